#pragma once
/* Work for later in the turn of the loop: how something is told without running the listener's code
 * in the stack of whoever caused it. A queue belongs to one module, which owns its handle; an item
 * is part of the object that it is about, and costs no allocation and no system call. */

#include <stdbool.h>
#include <uv.h>

struct later_queue {
    uv_idle_t idle;
    uv_prepare_t prepare; /* of one that goes last, or waits for the next turn */
    uv_check_t check;     /* of one that waits for the next turn... */
    bool is_next;         /* ...which has come */
    enum { LATER_SOON, LATER_LAST, LATER_NEXT } kind;
    bool closing;
    unsigned waited; /* turns that it let others go first */
    uv_close_cb closed;
    struct later *first;
    struct later **last;
};

struct later {
    struct later_queue *queue; /* NULL: not posted */
    struct later *next;
    struct later **at; /* what points to it */
    void (*run)(void *ctx);
    void *ctx;
};

void later_queue_init(struct later_queue *q, uv_loop_t *loop);
/* One that runs when the loop would sleep, so behind whatever else is due, but for a few turns at
 * most: for what nobody waits for as long as for that. */
void later_queue_init_last(struct later_queue *q, uv_loop_t *loop);
/* One that runs in the next turn of the loop, when it has looked at its descriptors again: for work
 * of a millisecond, which is not to be added to the one that caused it. */
void later_queue_init_next(struct later_queue *q, uv_loop_t *loop);
/* What is posted still is run first, and what that posts. The memory must stay until closed is
 * called with the handle, whose data is ctx. */
void later_queue_close(struct later_queue *q, uv_close_cb closed, void *ctx);

/* Runs run(ctx) from the loop, in the order of posting. One that is posted already stays in its
 * place. */
void later_post(struct later_queue *q, struct later *l, void (*run)(void *ctx), void *ctx);
/* Zeroed memory and what is not posted are allowed. */
void later_cancel(struct later *l);
