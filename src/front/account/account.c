#include "front/account/account.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sm.h"
#include "front/account/tally.h"
#include "loop/later.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BYTES_PER_TOKEN = 2,     /* of what a model reads, at the least; texts have about four */
    CALL_TOKENS = 64,        /* that a request has beyond its texts */
    OUTPUT_TOKENS = 16384,   /* of a model that does not tell how many it can write */
    LEAST_TOKENS = 256,      /* an answer of fewer is of no use */
    WAIT_MS = 10000,         /* for what other calls hold, until less is taken as well */
    REMOTE_WAIT_MS = 600000, /* of a call from a sandbox, whose job is under way */
    TICK_MS = 1000,
    RENEW_TICKS = LEDGER_LEASE_MS / TICK_MS / 3,
    USES_TICKS = 30, /* until the ledger hears which keys were used */
    USES_MAX = 256,
};

#define REVOKED "the key was revoked: it may spend nothing more"

enum hold_state {
    HOLD_FREE,     /* nothing is set aside: of a key without limits, or of a job */
    HOLD_ASKED,    /* the ledger is asked */
    HOLD_WAITING,  /* for what other calls hold: it is asked again */
    HOLD_HELD,     /* it is set aside */
    HOLD_REFUSED,  /* it is not; the asker was told, or is gone */
    HOLD_SETTLING, /* the ledger is told what was used */
};

static const struct sm_state states[] = {
    [HOLD_FREE] = {"free", SM_TO(HOLD_ASKED) | SM_TO(HOLD_SETTLING)},
    [HOLD_ASKED] = {"asked", SM_TO(HOLD_HELD) | SM_TO(HOLD_WAITING) | SM_TO(HOLD_FREE) |
                                 SM_TO(HOLD_REFUSED) | SM_TO(HOLD_SETTLING)},
    [HOLD_WAITING] = {"waiting", SM_TO(HOLD_ASKED) | SM_TO(HOLD_SETTLING)},
    [HOLD_HELD] = {"held", SM_TO(HOLD_SETTLING)},
    [HOLD_REFUSED] = {"refused", SM_TO(HOLD_SETTLING)},
    [HOLD_SETTLING] = {"settling", 0},
};
static const struct sm machine = {"hold", states, ARRAY_LEN(states)};

struct account_hold {
    struct account_hold *next;
    struct account_hold **at;
    struct accounts *all;
    enum hold_state state;
    struct ledger_reserve reserve; /* what is asked for, with the id and owner of `used` */
    struct ledger_used used;       /* and what it comes to */
    char kind[TALLY_KIND_SIZE];
    struct model_price price;
    bool priced;                      /* else the price is the dearest */
    int64_t input_tokens, input_nusd; /* of a call */
    bool is_call;
    int64_t wait_until_ms; /* for all of it */
    int64_t wait_ms;       /* after that, for any of it */
    struct account_grant grant;
    account_on_held on_held;
    void (*on_revoked)(void *ctx, const struct err *err);
    void *ctx;
    struct later later;
    struct err why; /* it is refused, without the ledger */
    unsigned asks;  /* that are not answered */
    bool unsettled; /* it is to be told again */
};

struct accounts {
    struct accounts_options opt;
    struct account_hold *list;
    struct later_queue later;
    uv_timer_t timer;
    int handles;
    unsigned ticks;
    struct tally *tally;
};

static void hold_move(struct account_hold *h, enum hold_state to) {
    h->state = (enum hold_state)sm_next(&machine, h->state, to);
}

static struct account_hold *account_add(struct accounts *a, const char *owner, const char *key,
                                        const char *kind) {
    struct account_hold *h = xcalloc(1, sizeof(*h));
    h->all = a;
    (void)id_new("hold", h->used.id);
    (void)snprintf(h->used.owner, sizeof(h->used.owner), "%s", owner);
    (void)snprintf(h->used.key, sizeof(h->used.key), "%s", key);
    (void)snprintf(h->kind, sizeof(h->kind), "%s", kind);
    h->used.kind = h->kind;
    h->reserve = (struct ledger_reserve){
        .id = h->used.id, .owner = h->used.owner, .key = h->used.key, .node = LEDGER_HERE};
    h->next = a->list;
    h->at = &a->list;
    if (h->next)
        h->next->at = &h->next;
    a->list = h;
    return h;
}

static void account_drop(struct account_hold *h) {
    later_cancel(&h->later);
    *h->at = h->next;
    if (h->next)
        h->next->at = h->at;
    free(h);
}

/* --- settling --- */

static void ask_to_reserve(struct account_hold *h);

/* Something was given back to this project, or some time has passed (NULL). */
static void ask_again(struct accounts *a, const char *owner) {
    for (struct account_hold *h = a->list; h; h = h->next)
        if (h->state == HOLD_WAITING && (!owner || strcmp(h->used.owner, owner) == 0))
            ask_to_reserve(h);
}

static void account_on_settled(void *ctx, const struct ledger_answer *answer) {
    struct account_hold *h = ctx;
    h->asks--;
    h->unsettled = answer->err.code == ERR_UNAVAILABLE || answer->err.code == ERR_FULL;
    if (answer->err.code && !h->unsettled)
        log_error("account.settle", "key", h->used.key, "error", answer->err.message);
    ask_again(h->all, h->used.owner);
    if (h->asks == 0 && !h->unsettled)
        account_drop(h);
}

static void tell_settled(struct account_hold *h) {
    h->unsettled = false;
    h->asks++;
    ledger_call(h->all->opt.ledger,
                &(struct ledger_ask){.op = LEDGER_SETTLE,
                                     .settle = {.node = LEDGER_HERE, .used = &h->used, .n = 1}},
                account_on_settled, h);
}

static int64_t account_charge(const struct account_hold *h, const struct model_usage *u) {
    return model_cost_nusd(&h->price, u);
}

void account_settle_as(struct account_hold *h, const struct model_usage *used, int64_t cost_nusd) {
    static const struct model_usage nothing;
    bool asked = h->state != HOLD_FREE;
    const struct model_usage *u = used ? used : &nothing;
    struct ledger_used *s = &h->used;
    later_cancel(&h->later);
    hold_move(h, HOLD_SETTLING);
    s->input_tokens = u->input_tokens;
    s->output_tokens = u->output_tokens;
    s->cache_read_tokens = u->cache_read_tokens;
    s->cache_write_tokens = u->cache_write_tokens;
    s->cost_nusd = h->priced ? cost_nusd : 0;
    s->charged_nusd = cost_nusd;
    if (asked) {
        tell_settled(h);
        return;
    }
    if (model_usage_tokens(u) > 0 || cost_nusd > 0)
        tally_add(h->all->tally, s);
    account_drop(h);
}

void account_settle(struct account_hold *h, const struct model_usage *used) {
    account_settle_as(h, used, used ? account_charge(h, used) : 0);
}

/* --- holding --- */

static void tell_held(void *ctx) {
    struct account_hold *h = ctx;
    h->on_held(h->ctx, &h->grant, NULL);
}

/* Whether the key or its project has such a limit. */
static bool account_limits_tokens(const struct ledger_reserve *s) {
    return s->limits.tokens_per_day > 0 || s->project_limits.tokens_per_day > 0;
}

static bool account_limits_nusd(const struct ledger_reserve *s) {
    return s->limits.nusd_per_day > 0 || s->project_limits.nusd_per_day > 0;
}

/* How many tokens the answer of a call may have, by what was set aside for it. */
static int64_t answer_tokens(const struct account_hold *h, const struct ledger_reserved *a) {
    int64_t n = h->reserve.tokens;
    if (account_limits_tokens(&h->reserve))
        n = MIN(n, a->tokens);
    n -= h->input_tokens;
    if (account_limits_nusd(&h->reserve) && h->price.output > 0)
        n = MIN(n, (a->nusd - h->input_nusd) / h->price.output);
    return MAX(n, 1);
}

/* It may have been done, and the answer lost: so it is given back. */
static void account_refuse(struct account_hold *h, const struct err *err) {
    struct err why = *err;
    account_on_held on_held = h->on_held;
    void *to = h->ctx;
    hold_move(h, HOLD_REFUSED);
    account_settle(h, NULL);
    on_held(to, NULL, &why);
}

static void account_on_reserved(void *ctx, const struct ledger_answer *answer);

static void ask_to_reserve(struct account_hold *h) {
    hold_move(h, HOLD_ASKED);
    h->asks++;
    ledger_call(h->all->opt.ledger,
                &(struct ledger_ask){.op = LEDGER_RESERVE, .reserve = h->reserve},
                account_on_reserved, h);
}

/* What other calls of the key hold is given back when they end: a call waits for that, and takes in
 * the end what there is. False: it has waited, and there is too little. */
static bool wait_for_others(struct account_hold *h) {
    int64_t now = clock_mono_ms();
    bool less = now >= h->wait_until_ms;
    bool first = less && !h->reserve.partial;
    if (!first && now >= h->wait_until_ms + h->wait_ms)
        return false;
    hold_move(h, HOLD_WAITING);
    h->reserve.partial = less;
    if (first)
        ask_to_reserve(h);
    return true;
}

static void account_on_reserved(void *ctx, const struct ledger_answer *answer) {
    struct account_hold *h = ctx;
    h->asks--;
    if (h->state == HOLD_SETTLING) { /* nobody waits any more */
        if (h->asks == 0 && !h->unsettled)
            account_drop(h);
        return;
    }
    if (answer->err.code == ERR_RATE && wait_for_others(h))
        return;
    if (answer->err.code) {
        account_refuse(h, &answer->err);
        return;
    }
    const struct ledger_reserve *s = &h->reserve;
    const struct ledger_reserved *got = &answer->reserved;
    hold_move(h, s->probe ? HOLD_FREE : HOLD_HELD);
    h->grant = (struct account_grant){.max_tokens = h->is_call ? answer_tokens(h, got) : 0,
                                      .tokens = account_limits_tokens(s) ? got->tokens : INT64_MAX,
                                      .nusd = account_limits_nusd(s) ? got->nusd : INT64_MAX};
    tell_held(h);
}

static void tell_refused(void *ctx) {
    struct account_hold *h = ctx;
    struct err why = h->why;
    account_on_held on_held = h->on_held;
    void *to = h->ctx;
    account_drop(h);
    on_held(to, NULL, &why);
}

/* A key that was revoked spends no more, whatever it has begun. */
static int account_read_limits(struct account_hold *h) {
    struct ledger_reserve *s = &h->reserve;
    struct identity who = {0};
    int rc = *s->key ? key_identity(h->all->opt.keys, s->key, &who, &h->why) : 0;
    s->limits = who.limits;
    s->project_limits = who.project_limits;
    return rc < 0 && h->why.code != ERR_UNAVAILABLE ? err_set(&h->why, ERR_FORBIDDEN, REVOKED) : rc;
}

static void account_start(struct account_hold *h, account_on_held on_held, void *ctx) {
    struct ledger_reserve *s = &h->reserve;
    h->on_held = on_held;
    h->ctx = ctx;
    if (account_read_limits(h) < 0) {
        later_post(&h->all->later, &h->later, tell_refused, h);
        return;
    }
    if (!account_limits_tokens(s) && !account_limits_nusd(s)) {
        h->grant = (struct account_grant){.tokens = INT64_MAX, .nusd = INT64_MAX};
        later_post(&h->all->later, &h->later, tell_held, h);
        return;
    }
    if (tally_has(h->all->tally, s->owner)) /* it had no limits when that was used */
        tally_tell(h->all->tally);
    h->wait_until_ms = clock_mono_ms() + WAIT_MS;
    ask_to_reserve(h);
}

static void set_price(struct account_hold *h, const struct model_info *model) {
    h->priced = model->price.known;
    h->price = h->priced ? model->price : h->all->opt.dearest;
    if (!h->priced)
        log_warn("account.price", "model", model->id, "note",
                 "its price is not known: it counts as the dearest for limits; add it to "
                 "models.json");
}

struct account_hold *account_hold_call(struct accounts *a, const struct account_call *call,
                                       account_on_held on_held, void *ctx) {
    struct account_hold *h = account_add(a, call->owner, call->key, call->kind);
    struct ledger_reserve *s = &h->reserve;
    set_price(h, call->model);
    const struct model_price *p = &h->price;
    int64_t most = call->max_tokens                 ? call->max_tokens
                   : call->model->max_output_tokens ? call->model->max_output_tokens
                                                    : OUTPUT_TOKENS;
    int64_t least = MIN(most, LEAST_TOKENS);
    h->is_call = true;
    h->wait_ms = call->wait_ms;
    h->input_tokens = (int64_t)(call->input_bytes / BYTES_PER_TOKEN) + CALL_TOKENS;
    h->input_nusd = h->input_tokens * MAX(MAX(p->input, p->cache_write), p->cache_read) +
                    call->searches * p->search;
    s->tokens_least = h->input_tokens + least;
    s->tokens = h->input_tokens + most;
    s->nusd_least = h->input_nusd + least * p->output;
    s->nusd = h->input_nusd + most * p->output;
    account_start(h, on_held, ctx);
    return h;
}

struct account_hold *account_hold_job(struct accounts *a, const struct account_job *job,
                                      account_on_held on_held, void *ctx) {
    struct account_hold *h = account_add(a, job->owner, job->key, job->kind);
    struct ledger_reserve *s = &h->reserve;
    set_price(h, job->model);
    h->on_revoked = job->on_revoked;
    s->probe = true;
    s->tokens_least = s->tokens = LEAST_TOKENS;
    s->nusd_least = s->nusd = LEAST_TOKENS * MAX(h->price.output, h->price.input);
    account_start(h, on_held, ctx);
    return h;
}

struct account_hold *account_hold_remote(struct accounts *a, const struct account_remote *call,
                                         account_on_held on_held, void *ctx) {
    struct account_hold *h = account_add(a, call->owner, call->key, call->kind);
    struct ledger_reserve *s = &h->reserve;
    h->priced = call->model->price.known;
    h->price = h->priced ? call->model->price : a->opt.dearest;
    s->tokens_least = call->input_tokens + MIN(call->output_tokens, LEAST_TOKENS);
    s->tokens = call->input_tokens + call->output_tokens;
    s->nusd_least = MIN(call->nusd_least, call->nusd);
    h->wait_ms = REMOTE_WAIT_MS;
    s->nusd = call->nusd;
    account_start(h, on_held, ctx);
    return h;
}

bool account_is_exceeded(const struct account_hold *h, const struct model_usage *used) {
    return account_charge(h, used) > h->grant.nusd || model_usage_tokens(used) > h->grant.tokens;
}

bool account_has_limits(struct accounts *a, const char *key) {
    struct identity who;
    return *key && key_identity(a->opt.keys, key, &who, NULL) == 0 && key_has_budget(&who);
}

const struct model_price *accounts_dearest(const struct accounts *a) {
    return &a->opt.dearest;
}

/* --- jobs that have ended --- */

void accounts_tell(struct accounts *a) {
    tally_tell(a->tally);
}

void account_count_job(struct accounts *a, const struct job_ended *ended) {
    struct ledger_used s = {
        .kind = ended->kind, .jobs = 1, .done = ended->done, .wall_ms = MAX(ended->wall_ms, 0)};
    (void)snprintf(s.owner, sizeof(s.owner), "%s", ended->owner);
    (void)snprintf(s.key, sizeof(s.key), "%s", ended->key);
    tally_add(a->tally, &s);
}

/* --- time --- */

static void account_on_renewed(void *ctx, const struct ledger_answer *answer) {
    (void)ctx;
    if (answer->err.code)
        log_warn("account.renew", "error", answer->err.message);
}

static void account_renew(struct accounts *a) {
    const char **ids = xcalloc(LEDGER_SPENDS_MAX, sizeof(*ids));
    const struct account_hold *h = a->list;
    while (h) {
        size_t n = 0;
        for (; h && n < LEDGER_SPENDS_MAX; h = h->next)
            if (h->state == HOLD_HELD)
                ids[n++] = h->used.id;
        if (n > 0)
            ledger_call(a->opt.ledger,
                        &(struct ledger_ask){.op = LEDGER_RESERVE_RENEW,
                                             .reserve_renew = {.ids = ids, .n = n}},
                        account_on_renewed, NULL);
    }
    free(ids);
}

/* Whoever hears of it may settle its own hold, and no other. */
static void account_check_keys(struct accounts *a) {
    struct account_hold *next;
    for (struct account_hold *h = a->list; h; h = next) {
        struct identity who;
        next = h->next;
        if (!h->on_revoked || !*h->used.key || (h->state != HOLD_FREE && h->state != HOLD_HELD))
            continue;
        if (key_identity(a->opt.keys, h->used.key, &who, &h->why) == 0 ||
            h->why.code == ERR_UNAVAILABLE)
            continue;
        struct err why;
        void (*on_revoked)(void *, const struct err *) = h->on_revoked;
        h->on_revoked = NULL;
        (void)err_set(&why, ERR_FORBIDDEN, REVOKED);
        on_revoked(h->ctx, &why);
    }
}

static void account_on_uses_noted(void *ctx, const struct ledger_answer *answer) {
    (void)ctx;
    if (answer->err.code)
        log_warn("account.uses", "error", answer->err.message);
}

/* When each key was used last is shown with it. What a server that dies did not tell is lost. */
static void account_note_uses(struct accounts *a) {
    struct ledger_key_use *uses = xcalloc(USES_MAX, sizeof(*uses));
    size_t n;
    do {
        n = keyring_take_uses(a->opt.keys, uses, USES_MAX);
        if (n > 0)
            ledger_call(
                a->opt.ledger,
                &(struct ledger_ask){.op = LEDGER_KEY_USED, .key_used = {.uses = uses, .n = n}},
                account_on_uses_noted, NULL);
    } while (n == USES_MAX);
    free(uses);
}

static void account_on_tick(uv_timer_t *t) {
    struct accounts *a = t->data;
    tally_tick(a->tally);
    account_check_keys(a);
    for (struct account_hold *h = a->list; h; h = h->next)
        if (h->state == HOLD_SETTLING && h->unsettled)
            tell_settled(h);
    ask_again(a, NULL);
    if (++a->ticks % RENEW_TICKS == 0)
        account_renew(a);
    if (a->ticks % USES_TICKS == 0)
        account_note_uses(a);
}

struct accounts *accounts_create(const struct accounts_options *options) {
    struct accounts *a = xcalloc(1, sizeof(*a));
    a->opt = *options;
    a->handles = 2;
    a->tally = tally_create(options->ledger);
    later_queue_init(&a->later, options->loop);
    (void)uv_timer_init(options->loop, &a->timer);
    a->timer.data = a;
    (void)uv_timer_start(&a->timer, account_on_tick, TICK_MS, TICK_MS);
    return a;
}

void accounts_close(struct accounts *a) {
    if (!a)
        return;
    accounts_tell(a);
    account_note_uses(a);
    (void)uv_timer_stop(&a->timer);
}

static void account_on_closed(uv_handle_t *handle) {
    struct accounts *a = handle->data;
    if (--a->handles > 0)
        return;
    struct account_hold *next;
    for (struct account_hold *h = a->list; h; h = next) {
        next = h->next;
        free(h);
    }
    tally_destroy(a->tally);
    free(a);
}

void accounts_destroy(struct accounts *a) {
    if (!a)
        return;
    later_queue_close(&a->later, account_on_closed, a);
    uv_close((uv_handle_t *)&a->timer, account_on_closed);
}
