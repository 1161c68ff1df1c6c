#pragma once
/* What makes the start of an isolate cheap besides a warm engine. A page fault is the unit of cost:
 * each lever takes some away. Every one returns an error instead of a half-done state, and the
 * zygote goes on without it. */

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

/* Moves the engine's text and constants to huge anonymous pages: a fork shares them by a handful of
 * page-table entries, where a file's pages fault one by one in each child. Costs their size once.
 */
int lever_text(int proc_fd, struct err *err);

/* The pages a run touches, learnt in a child that ran one. Lives in shared memory. */
struct lever_pages;

int lever_pages_create(struct lever_pages **ret_pages, struct err *err);
/* In the training child, when its run is over: notes what this process has that its parent does not
 * share. */
int lever_pages_learn(struct lever_pages *p, int proc_fd, struct err *err);
size_t lever_pages_count(const struct lever_pages *p);
/* In an isolate, before work arrives. */
void lever_pages_populate(const struct lever_pages *p);
