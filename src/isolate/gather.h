#pragma once
/* Where the engine's allocations lie.
 *
 * Of the seven megabytes that the engine and the prelude take, a run writes to some three hundred
 * allocations: counters, caches, the heads of free lists. They lie scattered, and each one costs an
 * isolate the copy of a whole page. The engine comes up the same way every time, so an allocation
 * has a name: its size, and how many of that size came before. One zygote, the scout, learns which
 * of them a run writes to (the plan); the next one puts those side by side. A plan that does not
 * fit costs room and nothing else.
 *
 * Without gather_begin() malloc is libc's. In a build without the meson option "gather" there is
 * nothing in front of it at all, and everything here fails or does nothing. */

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GATHER_PLAN_MAX = 4096 }; /* names */

/* Before the engine comes up. plan: what a scout said, u32 each; empty: there is none yet. A scout
 * has none and notes every allocation. 1: there is a plan, and it is followed; 0: blocks and holes
 * are kept together, no more. */
int gather_begin(const void *plan, size_t len, bool scouts, struct err *err);
/* The engine is up: what is allocated from now on is the isolates'. */
void gather_end(void);

/* Nothing is allocated or freed from here on: gather_is_sealed() until something is. False in a
 * build that could not tell. */
bool gather_seal(void);
bool gather_is_sealed(void);

/* In a scout: rehearse(ctx, program) runs a program in a child that calls gather_watch() before and
 * gather_note() after it. Appends the plan, and forgets what was noted. */
typedef int (*gather_rehearse)(void *ctx, const char *program, struct err *err);
int gather_scout(gather_rehearse rehearse, void *ctx, struct buf *plan, struct err *err);
int gather_watch(struct err *err);
int gather_note(struct err *err);
