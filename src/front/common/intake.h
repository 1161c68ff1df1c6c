#pragma once
/* What would hold the loop for milliseconds is done by a thread: large bodies and messages are read
 * there, one at a time, owners in turns. What is asked for works on memory that is its own and sees
 * nothing else of the server. Small ones (LIMIT_READ_AT_ONCE_BYTES) are read on the loop. */

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

struct intake;
struct intake_item;

struct intake *intake_create(uv_loop_t *loop);
/* Nobody is told any more; its memory goes when the thread has come back. NULL is allowed. */
void intake_destroy(struct intake *r);

struct intake_ask {
    const char *owner;
    size_t bytes; /* that it keeps in memory until it is read */
    /* One who waits by himself until his last one was read, and has a bound of his own: he is never
     * refused, and counts for nothing. */
    bool waits;
    void (*work)(void *ctx);    /* in the thread */
    void (*on_done)(void *ctx); /* from the loop, once; ctx is the asker's again */
    void (*free)(void *ctx);    /* in its place if it was cancelled, from the loop */
    void *ctx;
};
/* NULL: too many wait (ERR_RATE), and ctx is the caller's still. */
struct intake_item *intake_start(struct intake *r, const struct intake_ask *what, struct err *err);
void intake_cancel(struct intake_item *g);

/* Frees something of many parts in a thread. r NULL: at once. */
void intake_dispose(struct intake *r, void (*free)(void *p), void *p);
/* The same for one who may outlive the intake. */
void intake_dispose_on(uv_loop_t *loop, void (*free)(void *p), void *p);
