#include "front/run/intake.h"

#include "base/limits.h"
#include "base/mem.h"
#include "front/share.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct intake_item {
    struct intake_item *next;
    struct intake *intake;
    char owner[ID_SIZE];
    struct buf body;
    struct run_limits max;  /* a copy: the settings may change meanwhile */
    intake_on_read on_read; /* NULL: nobody waits for it */
    void *ctx;
    uv_work_t work;
    /* what the thread has made */
    struct run_asked asked;
    int rc;
    struct err err;
};

struct intake {
    uv_loop_t *loop;
    struct intake_item *waiting; /* in the order they came */
    struct intake_item *at_work;
    char turn[ID_SIZE]; /* whose was read last */
    struct shares shares;
    size_t n;
    bool closing;
};

struct intake *intake_create(uv_loop_t *loop) {
    struct intake *r = xcalloc(1, sizeof(*r));
    r->loop = loop;
    return r;
}

static void drop(struct intake_item *g) {
    struct intake *r = g->intake;
    shares_remove(&r->shares, g->owner);
    r->n--;
    buf_finish(&g->body);
    free(g);
}

static void free_if_over(struct intake *r) {
    if (!r->closing || r->at_work)
        return;
    shares_finish(&r->shares);
    free(r);
}

void intake_destroy(struct intake *r) {
    if (!r)
        return;
    r->closing = true;
    while (r->waiting) {
        struct intake_item *g = r->waiting;
        r->waiting = g->next;
        drop(g);
    }
    if (r->at_work)
        r->at_work->on_read = NULL;
    free_if_over(r);
}

/* --- the thread --- */

static void on_work(uv_work_t *w) {
    struct intake_item *g = w->data;
    g->rc = run_ask_read(g->body.data, g->body.len, &g->max, &g->asked, &g->err);
    buf_finish(&g->body);
}

static void work_next(struct intake *r);

static void on_worked(uv_work_t *w, int status) {
    (void)status;
    struct intake_item *g = w->data;
    struct intake *r = g->intake;
    struct run_asked asked = g->asked;
    struct err err = g->err;
    intake_on_read on_read = g->on_read;
    void *ctx = g->ctx;
    bool failed = g->rc < 0;
    r->at_work = NULL;
    drop(g);
    work_next(r);
    free_if_over(r);
    if (on_read)
        on_read(ctx, failed ? NULL : &asked, failed ? &err : NULL);
    else if (!failed)
        run_asked_finish(&asked);
}

/* The first of another owner than the last one's, if there is one. */
static struct intake_item *take_next(struct intake *r) {
    struct intake_item **at = &r->waiting;
    while (*at && strcmp((*at)->owner, r->turn) == 0)
        at = &(*at)->next;
    if (!*at)
        at = &r->waiting;
    struct intake_item *g = *at;
    if (g)
        *at = g->next;
    return g;
}

static void work_next(struct intake *r) {
    struct intake_item *g = r->at_work ? NULL : take_next(r);
    if (!g)
        return;
    memcpy(r->turn, g->owner, sizeof(r->turn));
    r->at_work = g;
    g->work.data = g;
    (void)uv_queue_work(r->loop, &g->work, on_work, on_worked);
}

/* --- who asks --- */

struct intake_item *intake_start(struct intake *r, const struct intake_ask *what,
                                 intake_on_read on_read, void *ctx, struct err *err) {
    if (r->n >= LIMIT_RUN_BODIES ||
        shares_held(&r->shares, what->owner) >= share_of(what->owner, LIMIT_RUN_BODIES)) {
        (void)err_set(err, ERR_RATE,
                      "%zu large programs are being read, of %d at most: try again in a second",
                      r->n, LIMIT_RUN_BODIES);
        return NULL;
    }
    struct intake_item *g = xcalloc(1, sizeof(*g));
    g->intake = r;
    (void)snprintf(g->owner, sizeof(g->owner), "%s", what->owner);
    g->body = *what->body;
    *what->body = (struct buf){0};
    g->max = *what->max;
    g->on_read = on_read;
    g->ctx = ctx;
    shares_add(&r->shares, g->owner);
    r->n++;
    struct intake_item **at = &r->waiting;
    while (*at)
        at = &(*at)->next;
    *at = g;
    work_next(r);
    return g;
}

void intake_cancel(struct intake_item *g) {
    struct intake *r = g->intake;
    if (g == r->at_work) {
        g->on_read = NULL;
        return;
    }
    struct intake_item **at = &r->waiting;
    while (*at != g)
        at = &(*at)->next;
    *at = g->next;
    drop(g);
}
