#include "front/task/desk.h"

#include "base/cleanup.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sm.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

enum held_state {
    HELD_WORKING,
    HELD_STOPPING,  /* it was asked to end */
    HELD_ENDED,     /* the ledger is to be told */
    HELD_ABANDONED, /* its lease is lost: whatever comes of it does not count */
};

static const struct sm_state states[] = {
    [HELD_WORKING] = {"working", SM_TO(HELD_STOPPING) | SM_TO(HELD_ENDED) | SM_TO(HELD_ABANDONED)},
    [HELD_STOPPING] = {"stopping", SM_TO(HELD_ENDED) | SM_TO(HELD_ABANDONED)},
    [HELD_ENDED] = {"ended", 0},
    [HELD_ABANDONED] = {"abandoned", 0},
};
static const struct sm held_sm = {"held", states, ARRAY_LEN(states)};

/* An attempt that is ours. */
struct held {
    struct held *next;
    struct desk *desk;
    enum held_state state;
    char task[ID_SIZE];
    int64_t attempt;
    int64_t lease_ms;   /* until when it may work; monotonic */
    int64_t timeout_ms; /* when its time is over */
    int64_t tell_ms;    /* when the ledger is told (again) how it ended */
    int refusals;       /* of its end by the ledger, though that works */
    bool telling;
    bool plain;     /* its end says no more than that */
    bool cancelled; /* by its owner */
    bool timed_out;
    struct held_end { /* how it ended; texts or NULL */
        enum task_state state;
        bool fault;
        bool uncounted;
        char *error_code;
        char *error_message;
        char *result;
    } end;
};

struct desk {
    struct desk_options opt;
    struct held *list;
    size_t nheld;
    int64_t epoch;   /* 0: not begun */
    int64_t present; /* the last that the ledger told */
    int64_t begin_ms;
    int64_t claim_ms; /* when to claim next */
    int64_t renew_ms;
    int64_t reap_ms;
    int64_t claim_sent_ms;
    int64_t renew_sent_ms;
    bool beginning;
    bool claiming;
    bool renewing;
    bool reaping;
    bool hinted; /* while a claim was under way */
    bool closed;
};

static void held_move(struct held *h, enum held_state to) {
    h->state = (enum held_state)sm_next(&held_sm, h->state, to);
}

struct desk *desk_create(const struct desk_options *options) {
    struct desk *d = xcalloc(1, sizeof(*d));
    d->opt = *options;
    d->present = -1; /* to be asked for */
    return d;
}

static void held_end_finish(struct held_end *e) {
    free(e->error_code);
    free(e->error_message);
    free(e->result);
}

static void free_held(struct held *h) {
    struct desk *d = h->desk;
    struct held **at = &d->list;
    while (*at != h)
        at = &(*at)->next;
    *at = h->next;
    d->nheld--;
    held_end_finish(&h->end);
    free(h);
}

void desk_destroy(struct desk *d) {
    if (!d)
        return;
    while (d->list)
        free_held(d->list);
    free(d);
}

static int64_t now_of(const struct desk *d) {
    return d->opt.now_ms(d->opt.ctx);
}

static void desk_ask(struct desk *d, const struct ledger_ask *what, ledger_on_answer on_answer,
                     void *ctx) {
    d->opt.ask(d->opt.ctx, what, on_answer, ctx);
}

static struct held *desk_find(const struct desk *d, const char *task, int64_t attempt) {
    struct held *h = d->list;
    while (h && (h->attempt != attempt || strcmp(h->task, task) != 0))
        h = h->next;
    return h;
}

static void desk_wake(struct desk *d) {
    d->opt.wake(d->opt.ctx, 0);
}

/* --- ends --- */

static void held_set_end(struct held *h, const struct desk_end *e);

/* Whether the ledger, or the way to it, is what fails: then nothing else is done by it either. */
static bool ledger_is_away(enum err_code code) {
    return code == ERR_UNAVAILABLE || code == ERR_FULL || code == ERR_CANCELLED;
}

/* The end was not written. While the ledger is away, it is kept. An end that the ledger refuses to
 * write again and again becomes a plain one; should that be refused as well, the place is given up,
 * and the ledger ends the attempt by itself when the lease is over. So no end holds a place for
 * good. */
static void held_tell_later(struct held *h, const struct err *err) {
    struct desk *d = h->desk;
    bool away = ledger_is_away(err->code);
    if (!away)
        h->refusals++;
    h->tell_ms = now_of(d) + ((int64_t)DESK_RETRY_MS << (away ? 0 : h->refusals - 1));
    if (!away)
        log_error("task.end_refused", "task", h->task, "attempt", h->attempt, "refusals",
                  h->refusals, "error", err->message);
    if (h->refusals < DESK_REFUSALS)
        return;
    if (h->plain) {
        log_error("task.given_up", "task", h->task, "attempt", h->attempt);
        free_held(h);
        d->claim_ms = 0;
        return;
    }
    h->plain = true;
    h->refusals = 0;
    h->tell_ms = now_of(d);
    held_set_end(h, &(struct desk_end){.state = TASK_FAILED,
                                       .fault = h->end.fault,
                                       .uncounted = h->end.uncounted,
                                       .error_code = "internal_error",
                                       .error_message = DESK_PLAIN_END});
}

static void desk_on_told(void *ctx, const struct ledger_answer *a) {
    struct held *h = ctx;
    struct desk *d = h->desk;
    h->telling = false;
    if (a->err.code == 0 || a->err.code == ERR_CONFLICT) {
        if (a->err.code)
            log_warn("task.fenced", "task", h->task, "attempt", h->attempt);
        free_held(h); /* acknowledged, or another's by now */
        d->claim_ms = 0;
    } else {
        held_tell_later(h, &a->err);
    }
    desk_wake(d);
}

static void desk_tell(struct held *h) {
    h->telling = true;
    desk_ask(h->desk,
             &(struct ledger_ask){.op = LEDGER_TASK_END,
                                  .task_end = {.id = h->task,
                                               .attempt = h->attempt,
                                               .state = h->end.state,
                                               .error_code = h->end.error_code,
                                               .error_message = h->end.error_message,
                                               .result = h->end.result,
                                               .fault = h->end.fault,
                                               .uncounted = h->end.uncounted}},
             desk_on_told, h);
}

/* What others said about an error goes into answers, messages and the ledger. */
static char *desk_error_text(const char *text) {
    return text ? text_make("%.*s", DESK_ERROR_BYTES, text) : NULL;
}

static void held_set_end(struct held *h, const struct desk_end *e) {
    held_end_finish(&h->end);
    h->end = (struct held_end){.state = e->state,
                               .fault = e->fault,
                               .uncounted = e->uncounted,
                               .error_code = desk_error_text(e->error_code),
                               .error_message = desk_error_text(e->error_message),
                               .result = e->result ? xstrdup(e->result) : NULL};
}

static void task_desk_end(struct held *h, const struct desk_end *e) {
    held_set_end(h, e);
    held_move(h, HELD_ENDED);
    desk_tell(h);
}

struct desk_end desk_end_of(const struct err *err) {
    return (struct desk_end){.state = TASK_FAILED,
                             .fault = err_is_fault(err->code),
                             .uncounted = err->code == ERR_RATE,
                             .error_code = err_name(err->code),
                             .error_message = err->message};
}

/* The server stops: another, or the next one, does it. */
static struct desk_end desk_end_handed_back(void) {
    return (struct desk_end){.fault = true,
                             .uncounted = true,
                             .error_code = "interrupted",
                             .error_message = "the server was stopped"};
}

void desk_ended(struct desk *d, const char *task, int64_t attempt, const struct desk_end *e) {
    struct held *h = desk_find(d, task, attempt);
    if (!h || h->state == HELD_ENDED)
        return;
    if (h->state == HELD_ABANDONED) {
        free_held(h);
        d->claim_ms = 0;
        desk_wake(d);
        return;
    }
    struct desk_end how = *e;
    if (e->state == TASK_CANCELLED && h->timed_out)
        how = (struct desk_end){.state = TASK_FAILED,
                                .error_code = "timeout",
                                .error_message = "it took longer than its timeout_ms",
                                .result = e->result};
    else if (e->state == TASK_CANCELLED && !h->cancelled && d->closed)
        how = desk_end_handed_back();
    task_desk_end(h, &how);
}

/* --- stopping --- */

static void desk_stop(struct held *h) {
    if (h->state != HELD_WORKING)
        return;
    held_move(h, HELD_STOPPING);
    h->desk->opt.stop(h->desk->opt.ctx, h->task, h->attempt);
}

static void desk_abandon(struct held *h) {
    if (h->state == HELD_ENDED || h->state == HELD_ABANDONED)
        return; /* the ledger itself says whether what ended still counts */
    log_warn("task.lost", "task", h->task, "attempt", h->attempt);
    desk_stop(h);
    held_move(h, HELD_ABANDONED);
}

void desk_cancel(struct desk *d, const char *task) {
    for (struct held *h = d->list; h; h = h->next)
        if (strcmp(h->task, task) == 0) {
            h->cancelled = true;
            desk_stop(h);
        }
}

void desk_close(struct desk *d) {
    d->closed = true;
}

bool desk_is_busy(const struct desk *d) {
    return d->claiming || d->nheld > 0;
}

/* --- claims --- */

static void desk_take(struct desk *d, struct ledger_task *t, int64_t lease_ms) {
    struct err err;
    if (lease_ms <= now_of(d))
        return; /* the answer took so long that another may have it */
    struct held *h = xcalloc(1, sizeof(*h));
    *h = (struct held){.next = d->list,
                       .desk = d,
                       .attempt = t->attempt,
                       .lease_ms = lease_ms,
                       .timeout_ms = t->timeout_ms > 0 ? now_of(d) + t->timeout_ms : INT64_MAX};
    memcpy(h->task, t->id, sizeof(h->task));
    d->list = h;
    d->nheld++;
    if (d->closed) { /* while the answer was on its way */
        struct desk_end e = desk_end_handed_back();
        task_desk_end(h, &e);
    } else if (d->opt.start(d->opt.ctx, t, &err) < 0) {
        struct desk_end e = desk_end_of(&err);
        task_desk_end(h, &e);
    } else if (t->cancel) { /* since it was claimed */
        h->cancelled = true;
        desk_stop(h);
    }
}

static void desk_on_claimed(void *ctx, const struct ledger_answer *a) {
    struct desk *d = ctx;
    const struct ledger_task_claimed *c = &a->task_claimed;
    size_t n = a->err.code ? 0 : c->n;
    int64_t now = now_of(d);
    int64_t lease_ms = d->claim_sent_ms + LEDGER_LEASE_MS - DESK_MARGIN_MS;
    d->claiming = false;
    d->claim_ms = now + DESK_POLL_MS;
    if (a->err.code == ERR_CONFLICT)
        d->epoch = 0; /* it is begun anew */
    if (!a->err.code && c->next_ms >= 0)
        d->claim_ms = MIN(d->claim_ms, now + c->next_ms);
    if (d->hinted || n > 0)
        d->claim_ms = now;
    d->hinted = false;
    for (size_t i = 0; i < n; i++)
        desk_take(d, &c->tasks[i], lease_ms);
    desk_wake(d);
}

static void desk_claim(struct desk *d) {
    d->claiming = true;
    d->claim_sent_ms = now_of(d);
    desk_ask(d,
             &(struct ledger_ask){.op = LEDGER_TASK_CLAIM,
                                  .task_claim = {.node = d->opt.node,
                                                 .epoch = d->epoch,
                                                 .limit = d->opt.slots - d->nheld,
                                                 .slots = d->opt.slots,
                                                 .per_key = d->opt.per_key}},
             desk_on_claimed, d);
}

void desk_hint(struct desk *d) {
    d->hinted = d->claiming;
    d->claim_ms = 0;
    desk_wake(d);
}

/* --- leases --- */

static void desk_on_renewed(void *ctx, const struct ledger_answer *a) {
    struct desk *d = ctx;
    size_t n = a->err.code ? 0 : a->task_renewed.n;
    d->renewing = false;
    d->renew_ms = now_of(d) + (a->err.code ? DESK_RETRY_MS : DESK_RENEW_MS);
    for (size_t i = 0; i < n; i++) {
        const struct ledger_lease_renewed *k = &a->task_renewed.leases[i];
        struct held *h = desk_find(d, k->lease.task, k->lease.attempt);
        if (!h)
            continue;
        if (k->state == LEDGER_LEASE_LOST) {
            desk_abandon(h);
            continue;
        }
        h->lease_ms = d->renew_sent_ms + LEDGER_LEASE_MS - DESK_MARGIN_MS;
        if (k->state == LEDGER_LEASE_CANCELLED) {
            h->cancelled = true;
            desk_stop(h);
        }
    }
    desk_wake(d);
}

static void desk_renew(struct desk *d) {
    struct ledger_lease *leases = xcalloc(MAX(d->nheld, 1), sizeof(*leases));
    size_t n = 0;
    for (const struct held *h = d->list; h; h = h->next)
        if (h->state != HELD_ABANDONED) {
            leases[n].attempt = h->attempt;
            memcpy(leases[n++].task, h->task, sizeof(h->task));
        }
    d->renewing = n > 0;
    d->renew_sent_ms = now_of(d);
    if (n > 0)
        desk_ask(
            d,
            &(struct ledger_ask){
                .op = LEDGER_TASK_RENEW,
                .task_renew = {.node = d->opt.node, .epoch = d->epoch, .leases = leases, .n = n}},
            desk_on_renewed, d);
    else
        d->renew_ms = d->renew_sent_ms + DESK_RENEW_MS;
    free(leases);
}

static void desk_on_reaped(void *ctx, const struct ledger_answer *a) {
    struct desk *d = ctx;
    bool done = a->err.code == 0;
    d->reaping = false;
    d->reap_ms = now_of(d) + (done && a->task_reaped.more ? 0 : DESK_REAP_MS);
    if (done && a->task_reaped.lapsed > 0) {
        log_warn("tasks.interrupted", "count", a->task_reaped.lapsed);
        d->reap_ms = 0;
        d->claim_ms = 0;
    }
    desk_wake(d);
}

static void desk_on_begun(void *ctx, const struct ledger_answer *a) {
    struct desk *d = ctx;
    d->beginning = false;
    d->begin_ms = now_of(d) + DESK_RETRY_MS;
    if (a->err.code == 0) {
        d->present = a->node_begun.epoch;
        d->epoch = a->node_begun.begun ? a->node_begun.epoch : 0;
        d->begin_ms = 0;
    }
    desk_wake(d);
}

/* --- time --- */

/* What must be done about one of them. */
static void tick_held(struct held *h, int64_t now) {
    if (now >= h->lease_ms)
        desk_abandon(h);
    if (now >= h->timeout_ms && h->state == HELD_WORKING) {
        h->timed_out = true;
        desk_stop(h);
    }
    if (h->state == HELD_ENDED && !h->telling && now >= h->tell_ms)
        desk_tell(h);
}

static int64_t next_of(const struct desk *d) {
    int64_t next = d->renewing ? INT64_MAX : d->renew_ms;
    if (!d->closed && !d->reaping)
        next = MIN(next, d->reap_ms);
    if (!d->closed && !d->claiming && d->nheld < d->opt.slots)
        next = MIN(next, d->claim_ms);
    for (const struct held *h = d->list; h; h = h->next) {
        if (h->state == HELD_ENDED)
            next = MIN(next, h->telling ? INT64_MAX : h->tell_ms);
        else if (h->state != HELD_ABANDONED)
            next = MIN(next, h->lease_ms);
        if (h->state == HELD_WORKING)
            next = MIN(next, h->timeout_ms);
    }
    return next;
}

static void desk_begin(struct desk *d) {
    d->beginning = true;
    desk_ask(d,
             &(struct ledger_ask){.op = LEDGER_NODE_BEGIN,
                                  .node_begin = {.node = d->opt.node, .epoch = d->present}},
             desk_on_begun, d);
}

void desk_tick(struct desk *d) {
    int64_t now = now_of(d);
    struct held *following;
    for (struct held *h = d->list; h; h = following) {
        following = h->next;
        tick_held(h, now);
    }
    if (d->epoch == 0) {
        if (!d->beginning && now >= d->begin_ms && !d->closed)
            desk_begin(d);
        d->opt.wake(d->opt.ctx, DESK_RETRY_MS);
        return;
    }
    if (!d->renewing && now >= d->renew_ms)
        desk_renew(d);
    if (!d->reaping && now >= d->reap_ms && !d->closed) {
        d->reaping = true;
        desk_ask(d,
                 &(struct ledger_ask){.op = LEDGER_TASK_REAP,
                                      .task_reap = {.limit = 64,
                                                    .keep_ms = d->opt.keep_ms,
                                                    .keep_tasks = d->opt.keep_tasks,
                                                    .keep_bytes = d->opt.keep_bytes}},
                 desk_on_reaped, d);
    }
    if (!d->claiming && !d->closed && d->nheld < d->opt.slots && now >= d->claim_ms)
        desk_claim(d);
    int64_t next = next_of(d) - now;
    d->opt.wake(d->opt.ctx, MAX(MIN(next, DESK_POLL_MS), 10));
}
