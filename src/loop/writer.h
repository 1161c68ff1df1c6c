#pragma once
/* A thread beside the loop that does one piece of work at a time: for what waits for a disk. The
 * caller keeps its own queue on the loop and hands over what has gathered when the thread is free,
 * so that a queue needs no lock and what came meanwhile is written together. A thread of its own,
 * not libuv's pool: there, four slow jobs of others would hold up every commit. */

#include <stdbool.h>
#include <uv.h>

struct writer;

/* NULL if there is no thread to be had. */
struct writer *writer_create(uv_loop_t *loop);
bool writer_is_busy(const struct writer *w);
/* Runs work(ctx) on the thread, then done(ctx) from the loop. The writer must not be busy. */
void writer_start(struct writer *w, void (*work)(void *ctx), void (*done)(void *ctx), void *ctx);
/* Waits for the work under way, calls its done, and ends the thread; closed(ctx) comes from the
 * loop when the memory is gone. NULL is allowed, and calls nobody. */
void writer_close(struct writer *w, void (*closed)(void *ctx), void *ctx);
