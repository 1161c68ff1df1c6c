#include "base/cleanup.h"
#include "base/clock.h"
#include "base/mem.h"
#include "front/ledger/backend.h"
#include "loop/later.h"

#include <stdlib.h>

enum { SWEEPS = 20 }; /* while an answer is waited for */

/* One that was asked, until its answer has been given. */
struct ledger_call {
    struct ledger_call *next;
    struct ledger *ledger;
    uint64_t id;
    int64_t deadline_ms; /* monotonic */
    ledger_on_answer on_answer;
    void *ctx;
    struct later later;
    struct ledger_answer answer;
    bool answered;
};

struct ledger {
    const struct ledger_backend *ops;
    void *backend;
    struct later_queue later;
    uv_timer_t timer;
    int handles;               /* that are not closed */
    struct ledger_call *calls; /* oldest first: they are answered in about this order */
    struct ledger_call **last;
    size_t ncalls;
    uint64_t next_id;
    int64_t wait_ms;
    bool closed;
};

static void ledger_give(void *ctx) {
    struct ledger_call *c = ctx;
    struct ledger_call **at = &c->ledger->calls;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    if (!c->next)
        c->ledger->last = at;
    c->ledger->ncalls--;
    c->on_answer(c->ctx, &c->answer);
    ledger_answer_finish(&c->answer);
    free(c);
}

static void ledger_deliver(struct ledger_call *c, struct ledger_answer *with) {
    c->answered = true;
    c->answer = *with;
    later_post(&c->ledger->later, &c->later, ledger_give, c);
}

static void ledger_fail(struct ledger_call *c, enum err_code code, const char *message) {
    struct ledger_answer a = {0};
    (void)err_set(&a.err, code, "%s", message);
    ledger_deliver(c, &a);
}

static struct ledger_call *ledger_find(struct ledger *l, uint64_t id) {
    struct ledger_call *c = l->calls;
    while (c && c->id != id)
        c = c->next;
    return c;
}

bool ledger_is_waited_for(struct ledger *l, uint64_t id) {
    const struct ledger_call *c = ledger_find(l, id);
    return c && !c->answered;
}

void ledger_answered(struct ledger *l, uint64_t id, struct ledger_answer *with) {
    struct ledger_call *c = ledger_find(l, id);
    if (!c || c->answered)
        ledger_answer_finish(with);
    else
        ledger_deliver(c, with);
}

static void ledger_on_sweep(uv_timer_t *t) {
    struct ledger *l = t->data;
    int64_t now = clock_mono_ms();
    bool waits = false;
    for (struct ledger_call *c = l->calls; c; c = c->next) {
        if (!c->answered && now >= c->deadline_ms)
            ledger_fail(c, ERR_UNAVAILABLE,
                        "the ledger does not answer: try again in some seconds");
        waits |= !c->answered;
    }
    if (!waits)
        (void)uv_timer_stop(t);
}

struct ledger *ledger_create(uv_loop_t *loop, const struct ledger_backend *ops, void *backend) {
    struct ledger *l = xcalloc(1, sizeof(*l));
    l->ops = ops;
    l->backend = backend;
    l->handles = 2;
    l->wait_ms = LEDGER_WAIT_MS;
    l->last = &l->calls;
    later_queue_init(&l->later, loop);
    (void)uv_timer_init(loop, &l->timer);
    l->timer.data = l;
    return l;
}

void ledger_set_wait(struct ledger *l, int64_t ms) {
    l->wait_ms = ms;
}

void ledger_call(struct ledger *l, const struct ledger_ask *ask, ledger_on_answer on_answer,
                 void *ctx) {
    struct ledger_call *c = xcalloc(1, sizeof(*c));
    *c = (struct ledger_call){.ledger = l,
                              .id = ++l->next_id,
                              .deadline_ms = clock_mono_ms() + l->wait_ms,
                              .on_answer = on_answer,
                              .ctx = ctx};
    *l->last = c;
    l->last = &c->next;
    l->ncalls++;
    if (l->closed) {
        ledger_fail(c, ERR_CANCELLED, "the server stops");
    } else if (l->ncalls > LEDGER_ASKS_MAX) {
        ledger_fail(c, ERR_UNAVAILABLE, "too many wait for the ledger: try again in some seconds");
    } else {
        l->ops->ask(l->backend, c->id, ask);
        if (!c->answered && !uv_is_active((uv_handle_t *)&l->timer))
            (void)uv_timer_start(&l->timer, ledger_on_sweep, (uint64_t)l->wait_ms / SWEEPS,
                                 (uint64_t)l->wait_ms / SWEEPS);
    }
}

void ledger_refresh(void *ledger) {
    struct ledger *l = ledger;
    l->ops->refresh(l->backend);
}

int ledger_watch_workers(struct ledger *l, const struct ledger_worker_watch *watch,
                         struct err *err) {
    return l->ops->watch_workers(l->backend, watch, err);
}

static void ledger_on_closed(uv_handle_t *h) {
    struct ledger *l = h->data;
    if (--l->handles == 0)
        free(l);
}

void ledger_close(struct ledger *l) {
    if (!l)
        return;
    l->closed = true;
    l->ops->close(l->backend);
    for (struct ledger_call *c = l->calls; c; c = c->next)
        if (!c->answered)
            ledger_fail(c, ERR_CANCELLED, "the server stops");
    uv_close((uv_handle_t *)&l->timer, ledger_on_closed);
    later_queue_close(&l->later, ledger_on_closed, l);
}
