#pragma once
/* What models cost: the tokens of a stream, their price, and a meter that sums the streams of a
 * turn and says when a budget is used up. Money is whole billionths of a dollar, so that sums are
 * exact and budgets compare alike everywhere. */

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define NANO_USD_PER_USD 1000000000LL

struct model_usage {
    int64_t input_tokens; /* without those of the cache */
    int64_t output_tokens;
    int64_t cache_read_tokens;
    int64_t cache_write_tokens;    /* all of them */
    int64_t cache_write_1h_tokens; /* of these, what stays for an hour */
    int64_t searches;              /* by the provider's own tool */
    bool estimated;                /* the server did not say (all): counted from the bytes */
};

/* Billionths of a dollar for one token, which is thousandths of a dollar for a million. */
struct model_price {
    int64_t input;
    int64_t output;
    int64_t cache_read;
    int64_t cache_write; /* for five minutes */
    int64_t cache_write_1h;
    int64_t search; /* for one search */
    bool known;
};

/* 0 means no limit. */
struct model_budget {
    int64_t max_tokens;    /* all kinds together */
    int64_t max_cost_nusd; /* counts only what has a known price */
};

struct model_meter {
    struct model_usage usage;
    int64_t cost_nusd;
    unsigned streams;
    bool unpriced; /* some of the usage has no known price */
};

int64_t model_usage_tokens(const struct model_usage *u);
int64_t model_cost_nusd(const struct model_price *p, const struct model_usage *u);
void model_meter_add(struct model_meter *m, const struct model_price *p,
                     const struct model_usage *u);
/* 0, or ERR_LIMIT with a message that names the budget that is used up. */
int model_meter_check(const struct model_meter *m, const struct model_budget *b, struct err *err);
/* How many tokens a further answer may have: the smaller of `wanted` (0: any) and what the budget
 * leaves; 0 means no limit, 1 is the least, so check first. */
int64_t model_meter_room(const struct model_meter *m, const struct model_budget *b,
                         const struct model_price *p, int64_t wanted);
