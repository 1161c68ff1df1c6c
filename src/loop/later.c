#include "loop/later.h"

#include <stddef.h>

/* An idle handle runs once in every turn and keeps the loop from sleeping. A timer of 0 ms that is
 * started again inside its callback would run again in the same turn (libuv before 1.45). */

enum { ROUNDS = 4, LAST_TURNS = 4 };

static void unlink_item(struct later_queue *q, struct later *l) {
    *l->at = l->next;
    *(l->next ? &l->next->at : &q->last) = l->at;
    l->queue = NULL;
}

static void run_first(struct later_queue *q) {
    struct later *l = q->first;
    unlink_item(q, l);
    if (l->run)
        l->run(l->ctx); /* its memory may be gone now */
}

/* Runs what was posted before. False: the queue was closed meanwhile. */
static bool run_posted(struct later_queue *q) {
    struct later end = {0};
    later_post(q, &end, NULL, NULL);
    while (end.queue && q->first != &end)
        run_first(q);
    if (!end.queue)
        return false;
    unlink_item(q, &end);
    return true;
}

/* What these post in turn runs too, without a look at the descriptors in between (a system call),
 * but not for ever: an item that posts itself again lets the loop go on. */
static bool run_rounds(struct later_queue *q) {
    for (int i = 0; i < ROUNDS && q->first; i++)
        if (!run_posted(q))
            return false;
    return true;
}

static void later_on_turn(uv_idle_t *h) {
    struct later_queue *q = h->data;
    if (run_rounds(q) && !q->first)
        (void)uv_idle_stop(h);
}

static void stay_awake(uv_idle_t *h) {
    (void)h;
}

/* The loop is about to sleep, if nothing is due. */
static void later_on_last(uv_prepare_t *h) {
    struct later_queue *q = h->data;
    (void)uv_idle_stop(&q->idle); /* which is none of what is due */
    if (uv_backend_timeout(h->loop) == 0 && q->waited++ < LAST_TURNS) {
        /* It is 0 also for descriptors that the loop has not looked at yet, and sleeps then. */
        (void)uv_idle_start(&q->idle, stay_awake);
        return;
    }
    q->waited = 0;
    if (!run_rounds(q))
        return;
    if (q->first)
        return; /* what was posted keeps the loop awake */
    (void)uv_idle_stop(&q->idle);
    (void)uv_prepare_stop(h);
}

void later_queue_init(struct later_queue *q, uv_loop_t *loop) {
    *q = (struct later_queue){.last = &q->first};
    (void)uv_idle_init(loop, &q->idle);
    q->idle.data = q;
}

void later_queue_init_last(struct later_queue *q, uv_loop_t *loop) {
    later_queue_init(q, loop);
    (void)uv_prepare_init(loop, &q->prepare);
    q->prepare.data = q;
    q->kind = LATER_LAST;
}

/* The loop is about to look at its descriptors: what was posted before runs after that. */
static void later_on_prepare(uv_prepare_t *h) {
    struct later_queue *q = h->data;
    q->is_next = true;
}

static void later_on_check(uv_check_t *h) {
    struct later_queue *q = h->data;
    if (!q->is_next)
        return;
    q->is_next = false;
    if (!run_posted(q) || q->first)
        return;
    (void)uv_idle_stop(&q->idle);
    (void)uv_prepare_stop(&q->prepare);
    (void)uv_check_stop(h);
}

void later_queue_init_next(struct later_queue *q, uv_loop_t *loop) {
    later_queue_init_last(q, loop);
    (void)uv_check_init(loop, &q->check);
    q->check.data = q;
    q->kind = LATER_NEXT;
}

static void later_on_prepare_closed(uv_handle_t *h) {
    struct later_queue *q = h->data;
    uv_close((uv_handle_t *)&q->idle, q->closed);
}

static void later_on_check_closed(uv_handle_t *h) {
    struct later_queue *q = h->data;
    uv_close((uv_handle_t *)&q->prepare, later_on_prepare_closed);
}

void later_queue_close(struct later_queue *q, uv_close_cb closed, void *ctx) {
    while (q->first)
        run_first(q);
    q->idle.data = ctx;
    q->closing = true;
    q->closed = closed;
    if (q->kind == LATER_NEXT)
        uv_close((uv_handle_t *)&q->check, later_on_check_closed);
    else if (q->kind == LATER_LAST)
        uv_close((uv_handle_t *)&q->prepare, later_on_prepare_closed);
    else
        uv_close((uv_handle_t *)&q->idle, closed);
}

void later_post(struct later_queue *q, struct later *l, void (*run)(void *ctx), void *ctx) {
    if (l->queue)
        return;
    *l = (struct later){.queue = q, .at = q->last, .run = run, .ctx = ctx};
    *q->last = l;
    q->last = &l->next;
    if (q->closing)
        return;
    if (q->kind == LATER_NEXT) {
        (void)uv_prepare_start(&q->prepare, later_on_prepare);
        (void)uv_check_start(&q->check, later_on_check);
        (void)uv_idle_start(&q->idle, stay_awake);
    } else if (q->kind == LATER_LAST) {
        /* One that is started by another of its kind runs in the next turn: the loop must not sleep
         * before. */
        (void)uv_prepare_start(&q->prepare, later_on_last);
        (void)uv_idle_start(&q->idle, stay_awake);
    } else
        (void)uv_idle_start(&q->idle, later_on_turn);
}

void later_cancel(struct later *l) {
    if (l->queue)
        unlink_item(l->queue, l);
}
