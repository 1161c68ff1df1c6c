/* What is told to the front of each request. What was let out has a budget of its own, so that a
 * guest cannot hide it behind things that are refused anyway; what passes a budget is not dropped
 * but folded: told with a count, what is alike together, once a second. */

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/mem.h"
#include "egress/internal.h"

#include <stdlib.h>
#include <string.h>

enum {
    FOLDS_MAX = 32,
    FOLDS_EXACT = 16, /* with their paths */
    FOLD_MS = 1000,
    BURST = 4,        /* seconds of the rate, of what was let out */
    REFUSED_PART = 5, /* of the rate is for refusals */
};

struct fold {
    struct egress_event event; /* texts are owned */
};

static void audit_send_event(struct line *b, const struct egress_event *e) {
    struct egress_event told = *e;
    struct buf out;
    told.sandbox = b->id;
    buf_init(&out, EGRESS_FRAME_MAX);
    pack_egress_event(&out, &told);
    if (!egress_send(b->egress, EGRESS_EVENT, 0, &out))
        b->usage.events_lost += told.count;
    buf_finish(&out);
}

static bool audit_is_same(const struct egress_event *a, const struct egress_event *b) {
    return a->state == b->state && a->kind == b->kind && a->port == b->port &&
           a->status == b->status && a->cut == b->cut && strcmp(a->host, b->host) == 0 &&
           strcmp(a->method, b->method) == 0 && strcmp(a->route, b->route) == 0 &&
           strcmp(a->model, b->model) == 0 && strcmp(a->path, b->path) == 0;
}

static struct fold *audit_find(struct line *b, const struct egress_event *e) {
    for (size_t i = 0; i < b->nfolds; i++)
        if (audit_is_same(&b->folds[i].event, e))
            return &b->folds[i];
    return NULL;
}

static char *audit_cut(const char *text) {
    return xstrndup(text, strnlen(text, EGRESS_TEXT_MAX));
}

static struct fold *audit_add(struct line *b, const struct egress_event *e) {
    if (!b->folds)
        b->folds = xcalloc(FOLDS_MAX, sizeof(*b->folds));
    struct fold *f = &b->folds[b->nfolds++];
    f->event = (struct egress_event){.state = e->state,
                                     .kind = e->kind,
                                     .port = e->port,
                                     .status = e->status,
                                     .cut = e->cut,
                                     .host = audit_cut(e->host),
                                     .method = audit_cut(e->method),
                                     .route = audit_cut(e->route),
                                     .model = audit_cut(e->model),
                                     .path = audit_cut(e->path)};
    return f;
}

/* The place where it is counted. A guest that varies what it asks for makes places coarser, first
 * without paths, then one for each state. */
static struct fold *audit_place(struct line *b, struct egress_event *e) {
    static char none[] = "";
    static char any[] = "*";
    struct fold *f = NULL;
    if (e->state != EGRESS_REFUSED) {
        f = audit_find(b, e);
        if (!f && b->nfolds < FOLDS_EXACT)
            f = audit_add(b, e);
    }
    if (f)
        return f;
    if (*e->path)
        e->path = any;
    f = audit_find(b, e);
    /* One is left for each state. */
    if (!f && b->nfolds < FOLDS_MAX - 3)
        f = audit_add(b, e);
    if (f)
        return f;
    e->kind = EGRESS_KIND_NONE;
    e->host = e->path = any;
    e->method = e->route = e->model = none;
    e->port = e->status = 0;
    e->cut = false;
    f = audit_find(b, e);
    return f ? f : audit_add(b, e);
}

static void audit_fold(struct line *b, const struct egress_event *e) {
    struct egress_event like = *e;
    struct egress_event *f = &audit_place(b, &like)->event;
    f->count++;
    f->number = f->count == 1 ? e->number : 0;
    f->time_ms = e->time_ms;
    f->bytes_in += e->bytes_in;
    f->bytes_out += e->bytes_out;
    f->ms += e->ms;
    f->tokens_in += e->tokens_in;
    f->tokens_out += e->tokens_out;
    f->cost_nusd += e->cost_nusd;
    free(f->reason);
    f->reason = audit_cut(e->reason);
    if (b->folds_told_ms == 0)
        b->folds_told_ms = clock_mono_ms();
}

bool audit_tell(struct line *b, const struct egress_event *e, bool always) {
    double rate = b->egress->config.events_per_second;
    bool refused = e->state == EGRESS_REFUSED;
    struct egress_event told = *e;
    told.time_ms = clock_wall_ms();
    told.count = 1;
    b->usage_untold = true;
    if (always || (refused ? bucket_take(&b->refusals, rate / REFUSED_PART, rate)
                           : bucket_take(&b->events, rate, BURST * rate))) {
        audit_send_event(b, &told);
        return true;
    }
    audit_fold(b, &told);
    return false;
}

void audit_flush(struct line *b) {
    for (size_t i = 0; i < b->nfolds; i++) {
        audit_send_event(b, &b->folds[i].event);
        egress_event_finish(&b->folds[i].event);
    }
    b->nfolds = 0;
    b->folds_told_ms = 0;
    free(b->folds);
    b->folds = NULL;
}

bool audit_is_due(const struct line *b, int64_t now_ms) {
    return b->nfolds > 0 && now_ms - b->folds_told_ms >= FOLD_MS;
}
