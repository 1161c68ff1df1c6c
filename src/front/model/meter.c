#include "front/model/meter.h"

#include "base/cleanup.h"

#include <inttypes.h>

int64_t model_usage_tokens(const struct model_usage *u) {
    return u->input_tokens + u->output_tokens + u->cache_read_tokens + u->cache_write_tokens;
}

int64_t model_cost_nusd(const struct model_price *p, const struct model_usage *u) {
    if (!p->known)
        return 0;
    return u->input_tokens * p->input + u->output_tokens * p->output +
           u->cache_read_tokens * p->cache_read +
           (u->cache_write_tokens - u->cache_write_1h_tokens) * p->cache_write +
           u->cache_write_1h_tokens * p->cache_write_1h + u->searches * p->search;
}

void model_meter_add(struct model_meter *m, const struct model_price *p,
                     const struct model_usage *u) {
    m->usage.input_tokens += u->input_tokens;
    m->usage.output_tokens += u->output_tokens;
    m->usage.cache_read_tokens += u->cache_read_tokens;
    m->usage.cache_write_tokens += u->cache_write_tokens;
    m->usage.cache_write_1h_tokens += u->cache_write_1h_tokens;
    m->usage.searches += u->searches;
    m->usage.estimated |= u->estimated;
    m->cost_nusd += model_cost_nusd(p, u);
    m->unpriced |= !p->known && model_usage_tokens(u) > 0;
    m->streams++;
}

int model_meter_check(const struct model_meter *m, const struct model_budget *b, struct err *err) {
    int64_t tokens = model_usage_tokens(&m->usage);
    if (b->max_tokens > 0 && tokens >= b->max_tokens)
        return err_set(err, ERR_LIMIT,
                       "this turn has used %" PRId64 " tokens; its budget is %" PRId64, tokens,
                       b->max_tokens);
    if (b->max_cost_nusd > 0 && m->cost_nusd >= b->max_cost_nusd)
        return err_set(err, ERR_LIMIT, "this turn has cost $%.4f; its budget is $%.4f",
                       (double)m->cost_nusd / NANO_USD_PER_USD,
                       (double)b->max_cost_nusd / NANO_USD_PER_USD);
    return 0;
}

int64_t model_meter_room(const struct model_meter *m, const struct model_budget *b,
                         const struct model_price *p, int64_t wanted) {
    int64_t room = wanted;
    if (b->max_tokens > 0) {
        int64_t left = MAX(b->max_tokens - model_usage_tokens(&m->usage), 1);
        room = room > 0 ? MIN(room, left) : left;
    }
    if (b->max_cost_nusd > 0 && p->known && p->output > 0) {
        int64_t left = MAX((b->max_cost_nusd - m->cost_nusd) / p->output, 1);
        room = room > 0 ? MIN(room, left) : left;
    }
    return room;
}
