#pragma once
/* What makes the start of an isolate cheap besides a warm engine. A page fault is the unit of cost:
 * each lever takes some away. Every one returns an error instead of a half-done state, and the
 * zygote goes on without it. */

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Moves the engine's text and constants to huge anonymous pages: a fork shares them by a handful of
 * page-table entries, where a file's pages fault one by one in each child. Costs their size once.
 */
int lever_text(int proc_fd, struct err *err);

/* What a training child learns: the pages that a run touches. Memory that it shares with the
 * zygote, so nothing may be left of it when isolates are forked. */
struct lever_lesson;

int lever_lesson_create(struct lever_lesson **ret_lesson, struct err *err);
void lever_lesson_destroy(struct lever_lesson *l);
/* In the training child, when its run is over: notes what this process has that its parent does not
 * share. */
int lever_lesson_learn(struct lever_lesson *l, int proc_fd, struct err *err);

struct lever_pages;

/* It is never destroyed. */
int lever_pages_create(struct lever_lesson *l, struct lever_pages **ret_pages, struct err *err);
/* How many a run writes to. */
size_t lever_pages_count(const struct lever_pages *p);
/* In the zygote, while the engine is at rest: keeps what its pages hold, for isolates to be filled
 * from. It must be done again before a fork if anything was allocated or freed meanwhile. */
int lever_pages_keep(struct lever_pages *p, struct err *err);
/* They do not hold what was kept. */
bool lever_pages_differ(const struct lever_pages *p);
/* In an isolate, before work arrives and before it allocates anything. */
void lever_pages_populate(const struct lever_pages *p);
