#include "front/code/purse.h"

#include "base/cleanup.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

/* A call from its ASK to its SPENT. */
struct purse_call {
    struct purse_call *next;
    struct code_purse *purse;
    uint64_t number;
    struct account_hold *hold;
    struct egress_ask asked; /* without its text */
    bool granted;
    uint64_t granted_tokens, granted_nusd; /* the call was made to fit into these */
};

struct code_purse {
    struct network_line *line; /* NULL: it is gone */
    struct accounts *accounts;
    char owner[ID_SIZE];
    char key[ID_SIZE];
    char kind[32];
    struct model_info model;
    struct purse_call *calls;
    enum err_code refusal;
    bool left; /* by the job */
};

static void purse_free_if_done(struct code_purse *p) {
    if (!p->line && p->left && !p->calls)
        free(p);
}

static void purse_call_free(struct purse_call *c) {
    struct purse_call **at = &c->purse->calls;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    free(c);
}

static void purse_on_held(void *ctx, const struct account_grant *grant, const struct err *err) {
    struct purse_call *c = ctx;
    struct code_purse *p = c->purse;
    if (!err) {
        c->granted = true;
        c->granted_tokens = (uint64_t)grant->tokens;
        c->granted_nusd = (uint64_t)grant->nusd;
        p->refusal = 0;
        network_line_grant(p->line, c->number, grant->tokens, grant->nusd, NULL);
        return;
    }
    p->refusal = err->code;
    network_line_grant(p->line, c->number, 0, 0, err);
    purse_call_free(c);
}

static void purse_on_ask(void *ctx, uint64_t number, const struct egress_ask *ask) {
    struct code_purse *p = ctx;
    struct purse_call *c = xcalloc(1, sizeof(*c));
    *c = (struct purse_call){.next = p->calls, .purse = p, .number = number, .asked = *ask};
    c->asked.sandbox = NULL;
    p->calls = c;
    c->hold = account_hold_remote(
        p->accounts,
        &(struct account_remote){.owner = p->owner,
                                 .key = p->key,
                                 .kind = p->kind,
                                 .model = &p->model,
                                 .input_tokens = (int64_t)MIN(ask->tokens_in, INT32_MAX),
                                 .output_tokens = (int64_t)MIN(ask->tokens_out, INT32_MAX),
                                 .nusd = (int64_t)MIN(ask->cost_nusd, INT64_MAX / 2),
                                 .nusd_least = (int64_t)MIN(ask->least_nusd, INT64_MAX / 2)},
        purse_on_held, c);
}

/* Nobody counted it: what it may have used at most counts. That is never more than was granted: a
 * call that got less than it asked for was shortened. */
static struct egress_spent purse_worst(const struct purse_call *c) {
    uint64_t input = MIN(c->asked.tokens_in, c->granted_tokens);
    return (struct egress_spent){.input = input,
                                 .output = MIN(c->asked.tokens_out, c->granted_tokens - input),
                                 .cost_nusd = MIN(c->asked.cost_nusd, c->granted_nusd),
                                 .estimated = true};
}

static void purse_on_spent(void *ctx, uint64_t number, const struct egress_spent *spent) {
    struct code_purse *p = ctx;
    struct purse_call *c = p->calls;
    while (c && c->number != number)
        c = c->next;
    if (!c)
        return;
    if (!c->granted)
        p->refusal = ERR_RATE;
    struct egress_spent s = spent ? *spent : c->granted ? purse_worst(c) : (struct egress_spent){0};
    struct model_usage used = {.input_tokens = (int64_t)s.input,
                               .output_tokens = (int64_t)s.output,
                               .cache_read_tokens = (int64_t)s.cache_read,
                               .cache_write_tokens = (int64_t)s.cache_write,
                               .estimated = s.estimated};
    account_settle_as(c->hold, &used, (int64_t)s.cost_nusd);
    purse_call_free(c);
}

static void purse_on_gone(void *ctx) {
    struct code_purse *p = ctx;
    p->line = NULL;
    purse_free_if_done(p);
}

static const struct network_payer purse_payer = {purse_on_ask, purse_on_spent, purse_on_gone};

struct code_purse *code_purse_open(struct network_line *line, const struct code_purse_options *o) {
    struct code_purse *p = xcalloc(1, sizeof(*p));
    p->line = line;
    p->accounts = o->accounts;
    p->model = *o->model;
    (void)snprintf(p->owner, sizeof(p->owner), "%s", o->owner);
    (void)snprintf(p->key, sizeof(p->key), "%s", o->key);
    (void)snprintf(p->kind, sizeof(p->kind), "%s", o->kind);
    network_line_set_payer(line, &purse_payer, p);
    return p;
}

enum err_code code_purse_refusal(const struct code_purse *p) {
    for (const struct purse_call *c = p ? p->calls : NULL; c; c = c->next)
        if (!c->granted)
            return ERR_RATE;
    return p ? p->refusal : 0;
}

void code_purse_leave(struct code_purse *p) {
    if (!p)
        return;
    p->left = true;
    purse_free_if_done(p);
}
