#pragma once
/* Requests to models: what one asks for is judged before it goes out, and the tokens of its answer
 * are counted while it passes by. Knows no sockets. */

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
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
    uint64_t cache_write;    /* for five minutes */
    uint64_t cache_write_1h; /* for an hour */
};

/* What the input of a request may have to be paid as. */
enum model_input { MODEL_INPUT_PLAIN, MODEL_INPUT_CACHE, MODEL_INPUT_HOUR };

/* What the sandbox has used and what its running requests may still use. */
struct model_room {
    uint64_t tokens_in;
    uint64_t tokens_out;
    uint64_t cost_nusd;
};

struct model_ask {
    char *model;
    struct buf body;                  /* as it goes out, if it was changed */
    const struct egress_price *price; /* or NULL; borrowed from the policy */
    bool billed;                      /* its answer costs something */
    enum model_input dearest;         /* the input is set aside as */
    uint64_t least_nusd;              /* with an answer of a useful length */
    struct model_room reserved;       /* what it may use at most; without caps, what it sends */
};

/* A request as a tree of bounded size. */
struct model_body {
    json_t *tree;
    uint64_t tokens; /* that it has, rather too many than too few */
    bool hour;       /* it has some of them kept in a cache for an hour */
};

/* Strict, so that the server reads the same in it. Takes its time for a large one; may run in
 * another thread. */
int model_parse(const char *body, size_t len, struct model_body *ret, struct err *err);
/* Judges it. ERR_FORBIDDEN for what is not granted, ERR_LIMIT for a cap, ERR_BAD_REQUEST for what
 * is malformed. Changes the tree where the answer must be bounded or the usage asked for.
 * ret->model is set also if it refuses. The answer has at most max_output tokens. */
int model_judge(const struct egress_policy *p, const struct decision *d,
                const struct model_room *used, const struct model_body *body, uint64_t max_output,
                struct model_ask *ret, struct err *err);
void model_ask_finish(struct model_ask *a);
uint64_t model_cost(const struct egress_price *price, const struct model_tokens *t);

struct spend_meter {
    enum egress_api api;
    bool events; /* the answer is a stream of events */
    bool lost;   /* it could not be followed */
    bool odd;    /* a count was none: nothing that the server told is believed */
    bool input_told;
    bool output_told;  /* in so far as the answer came */
    bool output_final; /* and no more of it comes */
    struct sse sse;
    struct buf whole; /* an answer that is no stream */
    uint64_t bytes;   /* of the answer */
    struct model_tokens tokens;
};

void spend_meter_init(struct spend_meter *m, enum egress_api api, bool events);
void spend_meter_finish(struct spend_meter *m);
void spend_meter_feed(struct spend_meter *m, const char *data, size_t len);
/* At the end: what the request has used, by what the server told; else by what was reserved. It may
 * have been left early (`whole` false), also before an answer (no bytes were fed, nor was it
 * initialised). True if the server has told all, false if something is an estimate. */
bool spend_meter_end(struct spend_meter *m, const struct model_ask *a, bool whole,
                     struct model_tokens *ret);
