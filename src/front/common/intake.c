#include "front/common/intake.h"

#include "base/id.h"
#include "base/limits.h"
#include "base/mem.h"
#include "front/common/share.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct intake_item {
    struct intake_item *next;
    struct intake *intake;
    char owner[ID_SIZE];
    struct intake_ask ask;
    bool cancelled; /* nobody waits for it */
    uint64_t round; /* in which it is read: each has one of every owner */
    uv_work_t work;
};

struct intake {
    uv_loop_t *loop;
    struct intake_item *waiting; /* by rounds, and in each in the order they came */
    struct intake_item *at_work;
    uint64_t round; /* of what was read last */
    struct shares shares;
    size_t n, bytes; /* of those that count */
    bool closing;
};

struct intake *intake_create(uv_loop_t *loop) {
    struct intake *r = xcalloc(1, sizeof(*r));
    r->loop = loop;
    return r;
}

static void intake_uncount(struct intake_item *g) {
    struct intake *r = g->intake;
    if (g->ask.waits)
        return;
    shares_remove(&r->shares, g->owner);
    r->n--;
    r->bytes -= g->ask.bytes;
}

static void intake_drop(struct intake_item *g) {
    intake_uncount(g);
    g->ask.free(g->ask.ctx);
    free(g);
}

static void intake_free_if_over(struct intake *r) {
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
        intake_drop(g);
    }
    if (r->at_work)
        r->at_work->cancelled = true;
    intake_free_if_over(r);
}

static void intake_on_work(uv_work_t *w) {
    const struct intake_item *g = w->data;
    g->ask.work(g->ask.ctx);
}

static void work_next(struct intake *r);

static void intake_on_worked(uv_work_t *w, int status) {
    (void)status;
    struct intake_item *g = w->data;
    struct intake *r = g->intake;
    void (*tell)(void *) = g->cancelled ? g->ask.free : g->ask.on_done;
    void *ctx = g->ask.ctx;
    r->at_work = NULL;
    intake_uncount(g);
    free(g);
    work_next(r);
    intake_free_if_over(r);
    tell(ctx);
}

static void work_next(struct intake *r) {
    struct intake_item *g = r->at_work ? NULL : r->waiting;
    if (!g)
        return;
    r->waiting = g->next;
    r->round = g->round;
    r->at_work = g;
    g->work.data = g;
    (void)uv_queue_work(r->loop, &g->work, intake_on_work, intake_on_worked);
}

/* Behind what its owner has already, and nobody is behind more than one of each other owner. */
static void line_up(struct intake *r, struct intake_item *g) {
    struct intake_item **at = &r->waiting;
    g->round = r->round;
    if (r->at_work && strcmp(r->at_work->owner, g->owner) == 0)
        g->round++;
    for (const struct intake_item *w = r->waiting; w; w = w->next)
        if (strcmp(w->owner, g->owner) == 0)
            g->round = w->round + 1;
    while (*at && (*at)->round <= g->round)
        at = &(*at)->next;
    g->next = *at;
    *at = g;
}

/* Bytes that count, of one owner. */
static size_t intake_bytes_of(const struct intake *r, const char *owner) {
    size_t sum = r->at_work && !r->at_work->ask.waits && strcmp(r->at_work->owner, owner) == 0
                     ? r->at_work->ask.bytes
                     : 0;
    for (const struct intake_item *g = r->waiting; g; g = g->next)
        if (!g->ask.waits && strcmp(g->owner, owner) == 0)
            sum += g->ask.bytes;
    return sum;
}

/* One alone is always read, however large. */
static bool intake_has_room(const struct intake *r, const struct intake_ask *what) {
    if (what->waits || r->n == 0)
        return true;
    size_t held = shares_held(&r->shares, what->owner);
    if (r->n >= LIMIT_READ_BODIES || held >= share_of(what->owner, LIMIT_READ_BODIES))
        return false;
    return r->bytes + what->bytes <= LIMIT_READ_BYTES &&
           (held == 0 || intake_bytes_of(r, what->owner) + what->bytes <=
                             share_of(what->owner, LIMIT_READ_BYTES));
}

struct intake_item *intake_start(struct intake *r, const struct intake_ask *what, struct err *err) {
    if (!intake_has_room(r, what)) {
        (void)err_set(err, ERR_RATE,
                      "%zu large bodies of %zu bytes are being read, of %d and %d at most: try "
                      "again in a second",
                      r->n, r->bytes, LIMIT_READ_BODIES, LIMIT_READ_BYTES);
        return NULL;
    }
    struct intake_item *g = xcalloc(1, sizeof(*g));
    g->intake = r;
    g->ask = *what;
    (void)snprintf(g->owner, sizeof(g->owner), "%s", what->owner);
    g->ask.owner = g->owner;
    if (!what->waits) {
        shares_add(&r->shares, g->owner);
        r->n++;
        r->bytes += what->bytes;
    }
    line_up(r, g);
    work_next(r);
    return g;
}

void intake_cancel(struct intake_item *g) {
    struct intake *r = g->intake;
    if (g == r->at_work) {
        g->cancelled = true;
        return;
    }
    struct intake_item **at = &r->waiting;
    while (*at != g)
        at = &(*at)->next;
    *at = g->next;
    intake_drop(g);
}

/* --- what is not needed any more --- */

struct disposal {
    uv_work_t work;
    void (*free)(void *p);
    void *p;
};

static void intake_on_dispose(uv_work_t *w) {
    const struct disposal *d = w->data;
    d->free(d->p);
}

static void intake_on_disposed(uv_work_t *w, int status) {
    (void)status;
    free(w->data);
}

void intake_dispose(struct intake *r, void (*free_p)(void *p), void *p) {
    if (r)
        intake_dispose_on(r->loop, free_p, p);
    else
        free_p(p);
}

void intake_dispose_on(uv_loop_t *loop, void (*free_p)(void *p), void *p) {
    struct disposal *d = xcalloc(1, sizeof(*d));
    *d = (struct disposal){.free = free_p, .p = p};
    d->work.data = d;
    (void)uv_queue_work(loop, &d->work, intake_on_dispose, intake_on_disposed);
}
