#pragma once
/* Requests to models: what one asks for is judged before it goes out, and the tokens of its answer
 * are counted while it passes by. Knows no sockets. */

#include "base/buf.h"
#include "base/err.h"
#include "base/sse.h"
#include "egress/decide.h"
#include "wire/egress.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct model_tokens {
    uint64_t input; /* without those of the cache */
    uint64_t output;
    uint64_t cache_read;
    uint64_t cache_write;
};

/* What the sandbox has used and what its running requests may still use. */
struct model_room {
    uint64_t tokens;
    uint64_t cost_nusd;
};

struct model_ask {
    char *model;
    struct buf body;                  /* as it goes out: what was judged, written anew */
    const struct egress_price *price; /* or NULL; borrowed from the policy */
    uint64_t input_estimate;          /* tokens */
    struct model_room reserved;       /* what it may use at most, if there are caps */
};

/* Judges the body of a request to an endpoint that has one. ERR_FORBIDDEN for what is not granted,
 * ERR_LIMIT for a cap, ERR_BAD_REQUEST for what is malformed. */
int model_judge(const struct egress_policy *p, const struct decision *d,
                const struct model_room *used, const char *body, size_t len, struct model_ask *ret,
                struct err *err);
void model_ask_finish(struct model_ask *a);
uint64_t model_cost(const struct egress_price *price, const struct model_tokens *t);

struct model_meter {
    enum egress_api api;
    bool events; /* the answer is a stream of events */
    bool lost;   /* it could not be followed */
    bool input_told;
    bool output_told;
    struct sse sse;
    struct buf whole; /* an answer that is no stream */
    uint64_t bytes;   /* of the answer */
    struct model_tokens tokens;
};

void model_meter_init(struct model_meter *m, enum egress_api api, bool events);
void model_meter_finish(struct model_meter *m);
void model_meter_feed(struct model_meter *m, const char *data, size_t len);
/* At the end, whole or not: true if the server has told all, false if something is an estimate. */
bool model_meter_end(struct model_meter *m, uint64_t input_estimate);
