#pragma once
/* Finds the plan by which zygotes lay out their allocations (src/isolate/gather.h): a zygote that
 * forks nothing is sent once, learns it and ends. One that fails is not sent again: a plan makes
 * isolates cheaper, and nothing needs it. */

#include "base/buf.h"
#include "front/run/zygote.h"
#include "loop/later.h"

struct scout;

struct scout *scout_create(const struct zygote_options *options, struct later_queue *later);
/* The server has settled: it goes, if it has not. */
void scout_send(struct scout *s);
/* What is known; empty: nothing. */
const struct buf *scout_plan(const struct scout *s);
/* A zygote that began with the plan has failed: it may have been the plan. */
void scout_forget(struct scout *s);
/* on_stopped when its process is gone; the pointer is dead then. */
void scout_stop(struct scout *s, void (*on_stopped)(void *ctx), void *ctx);
