#pragma once
/* Where the engine's allocations lie.
 *
 * Of the seven megabytes that the engine and the prelude take, a run writes to some three hundred
 * allocations: counters, caches, the heads of free lists. They lie scattered, and each one costs an
 * isolate the copy of a whole page. The engine comes up the same way every time, so an allocation
 * has a name: its size, and how many of that size came before. One zygote learns which of them a
 * run writes to (the plan); the next one puts those side by side. A plan that does not fit costs
 * room and nothing else. */

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum { HEAP_PLAN_MAX = 4096 };

struct heap_plan {
    uint32_t count;
    uint32_t name[HEAP_PLAN_MAX]; /* ascending */
};

#ifdef CAY_WITHOUT_GATHER
/* A build without it (meson option "gather"): libc's malloc, and nothing in front of it. */
static inline int heap_begin(const struct heap_plan *plan, struct err *err) {
    (void)plan;
    return err_set(err, ERR_UNSUPPORTED, "this build does not gather allocations");
}
static inline void heap_end(void) {
}
static inline int heap_watch(struct err *err) {
    return err_set(err, ERR_UNSUPPORTED, "this build does not gather allocations");
}
static inline int heap_learn(struct heap_plan *plan, struct err *err) {
    return heap_begin(plan, err);
}
static inline void heap_plan_sort(struct heap_plan *plan) {
    (void)plan;
}
static inline void heap_forget(void) {
}
#else
/* Allocations are named from here on. With a plan those that it has are put side by side; with NULL
 * they are noted, so that one can be learnt. */
int heap_begin(const struct heap_plan *plan, struct err *err);
/* No more are named. */
void heap_end(void);
/* In a process that is about to run a program: watches the heap. After it ran, what was written to
 * is added to a plan, in no order, some of it twice. */
int heap_watch(struct err *err);
int heap_learn(struct heap_plan *plan, struct err *err);
void heap_plan_sort(struct heap_plan *plan);
/* Drops what was noted. */
void heap_forget(void);
#endif
