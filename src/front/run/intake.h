#pragma once
/* Reads the large bodies of runs beside the loop, which would stand still for tens of milliseconds:
 * a thread parses them and makes the program's frames, one body at a time, owners in turns. One of
 * up to LIMIT_RUN_AT_ONCE_BYTES is read on the loop, by run_ask_read() itself. */

#include "front/run/ask.h"

#include <uv.h>

struct intake;
struct intake_item;

struct intake *intake_create(uv_loop_t *loop);
/* Nobody is told any more; its memory goes when the thread has come back. NULL is allowed. */
void intake_destroy(struct intake *r);

/* Comes once, from the loop, unless it is cancelled. asked is the callee's; err: it is none. */
typedef void (*intake_on_read)(void *ctx, struct run_asked *asked, const struct err *err);

struct intake_ask {
    const char *owner;
    struct buf *body;
    const struct run_limits *max;
};
/* Takes the body. NULL: too many wait (ERR_RATE), and the body is the caller's still. */
struct intake_item *intake_start(struct intake *r, const struct intake_ask *what,
                                 intake_on_read on_read, void *ctx, struct err *err);
void intake_cancel(struct intake_item *g);
