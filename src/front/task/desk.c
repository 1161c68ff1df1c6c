#include "front/task/desk.h"

#include "base/cleanup.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sm.h"

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
    bool telling;
    bool cancelled; /* by its owner */
    bool timed_out;
    struct ledger_task end; /* of which id, attempt, state, error and result are set */
    bool fault;
    bool uncounted;
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

static void free_held(struct held *h) {
    struct desk *d = h->desk;
    struct held **at = &d->list;
    while (*at != h)
        at = &(*at)->next;
    *at = h->next;
    d->nheld--;
    ledger_task_finish(&h->end);
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

static void ask(struct desk *d, const struct ledger_ask *what, ledger_on_answer on_answer,
                void *ctx) {
    d->opt.ask(d->opt.ctx, what, on_answer, ctx);
}

static struct held *find(const struct desk *d, const char *task, int64_t attempt) {
    struct held *h = d->list;
    while (h && (h->attempt != attempt || strcmp(h->task, task) != 0))
        h = h->next;
    return h;
}

static void wake(struct desk *d) {
    d->opt.wake(d->opt.ctx, 0);
}

/* --- ends --- */

static void on_told(void *ctx, const struct ledger_answer *a) {
    struct held *h = ctx;
    struct desk *d = h->desk;
    h->telling = false;
    if (a->err.code == 0 || a->err.code == ERR_CONFLICT) {
        if (a->err.code)
            log_warn("task.fenced", "task", h->task, "attempt", h->attempt);
        free_held(h); /* acknowledged, or another's by now */
        d->claim_ms = 0;
    } else {
        h->tell_ms = now_of(d) + DESK_RETRY_MS;
    }
    wake(d);
}

static void tell(struct held *h) {
    h->telling = true;
    ask(h->desk,
        &(struct ledger_ask){.op = LEDGER_TASK_FINISH,
                             .task = &h->end,
                             .fault = h->fault,
                             .uncounted = h->uncounted},
        on_told, h);
}

static char *copy(const char *text) {
    return text ? xstrdup(text) : NULL;
}

static void end(struct held *h, const struct desk_end *e) {
    h->end = (struct ledger_task){.attempt = h->attempt,
                                  .state = e->state,
                                  .error_code = copy(e->error_code),
                                  .error_message = copy(e->error_message),
                                  .result = copy(e->result)};
    memcpy(h->end.id, h->task, sizeof(h->end.id));
    h->fault = e->fault;
    h->uncounted = e->uncounted;
    held_move(h, HELD_ENDED);
    tell(h);
}

struct desk_end desk_end_of(const struct err *err) {
    return (struct desk_end){.state = TASK_FAILED,
                             .fault = err_is_fault(err->code),
                             .uncounted = err->code == ERR_RATE,
                             .error_code = err_name(err->code),
                             .error_message = err->message};
}

void desk_ended(struct desk *d, const char *task, int64_t attempt, const struct desk_end *e) {
    struct held *h = find(d, task, attempt);
    if (!h || h->state == HELD_ENDED)
        return;
    if (h->state == HELD_ABANDONED) {
        free_held(h);
        d->claim_ms = 0;
        wake(d);
        return;
    }
    struct desk_end how = *e;
    if (e->state == TASK_CANCELLED && h->timed_out)
        how = (struct desk_end){.state = TASK_FAILED,
                                .error_code = "timeout",
                                .error_message = "it took longer than its timeout_ms",
                                .result = e->result};
    else if (e->state == TASK_CANCELLED && !h->cancelled && d->closed)
        how = (struct desk_end){.fault = true,
                                .uncounted = true,
                                .error_code = "interrupted",
                                .error_message = "the server was stopped"};
    end(h, &how);
}

/* --- stopping --- */

static void stop(struct held *h) {
    if (h->state != HELD_WORKING)
        return;
    held_move(h, HELD_STOPPING);
    h->desk->opt.stop(h->desk->opt.ctx, h->task, h->attempt);
}

static void abandon(struct held *h) {
    if (h->state == HELD_ENDED || h->state == HELD_ABANDONED)
        return; /* the ledger itself says whether what ended still counts */
    log_warn("task.lost", "task", h->task, "attempt", h->attempt);
    stop(h);
    held_move(h, HELD_ABANDONED);
}

void desk_cancel(struct desk *d, const char *task) {
    for (struct held *h = d->list; h; h = h->next)
        if (strcmp(h->task, task) == 0) {
            h->cancelled = true;
            stop(h);
        }
}

void desk_close(struct desk *d) {
    d->closed = true;
}

/* --- claims --- */

static void take(struct desk *d, struct ledger_task *t, int64_t lease_ms) {
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
    if (d->opt.start(d->opt.ctx, t, &err) < 0) {
        struct desk_end e = desk_end_of(&err);
        end(h, &e);
    } else if (t->cancel) { /* since it was claimed */
        h->cancelled = true;
        stop(h);
    }
}

static void on_claimed(void *ctx, const struct ledger_answer *a) {
    struct desk *d = ctx;
    int64_t now = now_of(d);
    int64_t lease_ms = d->claim_sent_ms + LEDGER_LEASE_MS - DESK_MARGIN_MS;
    d->claiming = false;
    d->claim_ms = now + DESK_POLL_MS;
    if (a->err.code == ERR_CONFLICT)
        d->epoch = 0; /* it is begun anew */
    if (a->next_ms >= 0)
        d->claim_ms = MIN(d->claim_ms, now + a->next_ms);
    if (d->hinted || a->ntasks > 0)
        d->claim_ms = now;
    d->hinted = false;
    for (size_t i = 0; i < a->ntasks && !d->closed; i++)
        take(d, &a->tasks[i], lease_ms);
    wake(d);
}

static void claim(struct desk *d) {
    d->claiming = true;
    d->claim_sent_ms = now_of(d);
    ask(d,
        &(struct ledger_ask){.op = LEDGER_TASK_CLAIM,
                             .node = d->opt.node,
                             .epoch = d->epoch,
                             .limit = d->opt.slots - d->nheld,
                             .per_key = d->opt.per_key},
        on_claimed, d);
}

void desk_hint(struct desk *d) {
    d->hinted = d->claiming;
    d->claim_ms = 0;
    wake(d);
}

/* --- leases --- */

static void on_renewed(void *ctx, const struct ledger_answer *a) {
    struct desk *d = ctx;
    d->renewing = false;
    d->renew_ms = now_of(d) + (a->err.code ? DESK_RETRY_MS : DESK_RENEW_MS);
    for (size_t i = 0; i < a->nholds; i++) {
        const struct ledger_hold *k = &a->holds[i];
        struct held *h = find(d, k->task, k->attempt);
        if (!h)
            continue;
        if (k->lost) {
            abandon(h);
            continue;
        }
        h->lease_ms = d->renew_sent_ms + LEDGER_LEASE_MS - DESK_MARGIN_MS;
        if (k->cancel) {
            h->cancelled = true;
            stop(h);
        }
    }
    wake(d);
}

static void renew(struct desk *d) {
    struct ledger_hold *holds = xcalloc(MAX(d->nheld, 1), sizeof(*holds));
    size_t n = 0;
    for (const struct held *h = d->list; h; h = h->next)
        if (h->state != HELD_ABANDONED) {
            holds[n].attempt = h->attempt;
            memcpy(holds[n++].task, h->task, sizeof(h->task));
        }
    d->renewing = n > 0;
    d->renew_sent_ms = now_of(d);
    if (n > 0)
        ask(d,
            &(struct ledger_ask){.op = LEDGER_TASK_RENEW,
                                 .node = d->opt.node,
                                 .epoch = d->epoch,
                                 .holds = holds,
                                 .nholds = n},
            on_renewed, d);
    else
        d->renew_ms = d->renew_sent_ms + DESK_RENEW_MS;
    free(holds);
}

static void on_reaped(void *ctx, const struct ledger_answer *a) {
    struct desk *d = ctx;
    d->reaping = false;
    d->reap_ms = now_of(d) + (a->repeated ? 0 : DESK_REAP_MS);
    if (a->count > 0) {
        log_warn("tasks.interrupted", "count", a->count);
        d->reap_ms = 0;
        d->claim_ms = 0;
    }
    wake(d);
}

static void on_begun(void *ctx, const struct ledger_answer *a) {
    struct desk *d = ctx;
    d->beginning = false;
    d->begin_ms = now_of(d) + DESK_RETRY_MS;
    if (a->err.code == 0) {
        d->present = a->epoch;
        d->epoch = a->repeated ? 0 : a->epoch;
        d->begin_ms = 0;
    }
    wake(d);
}

/* --- time --- */

/* What must be done about one of them. */
static void tick_held(struct held *h, int64_t now) {
    if (now >= h->lease_ms)
        abandon(h);
    if (now >= h->timeout_ms && h->state == HELD_WORKING) {
        h->timed_out = true;
        stop(h);
    }
    if (h->state == HELD_ENDED && !h->telling && now >= h->tell_ms)
        tell(h);
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

static void begin(struct desk *d) {
    d->beginning = true;
    ask(d, &(struct ledger_ask){.op = LEDGER_NODE_BEGIN, .node = d->opt.node, .epoch = d->present},
        on_begun, d);
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
            begin(d);
        d->opt.wake(d->opt.ctx, DESK_RETRY_MS);
        return;
    }
    if (!d->renewing && now >= d->renew_ms)
        renew(d);
    if (!d->reaping && now >= d->reap_ms && !d->closed) {
        d->reaping = true;
        ask(d,
            &(struct ledger_ask){.op = LEDGER_TASK_REAP,
                                 .limit = 64,
                                 .keep_ms = d->opt.keep_ms,
                                 .keep_tasks = d->opt.keep_tasks,
                                 .keep_bytes = d->opt.keep_bytes},
            on_reaped, d);
    }
    if (!d->claiming && !d->closed && d->nheld < d->opt.slots && now >= d->claim_ms)
        claim(d);
    int64_t next = next_of(d) - now;
    d->opt.wake(d->opt.ctx, MAX(MIN(next, DESK_POLL_MS), 10));
}
