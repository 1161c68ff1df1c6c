#pragma once
/* What the model has been told and has said: the task, then a turn for each step, an action and its
 * result. Bounded: when it gets too long, the oldest results are shortened first, then the oldest
 * actions, then the oldest turns are left out. The task and the last turn stay. */

#include "base/buf.h"
#include "base/json.h"
#include "coder/dialect.h"

#include <stddef.h>

struct exchange {
    char *action;
    char *result;
    bool short_result;
    bool short_action;
};

struct context {
    const char *spec;
    size_t max_bytes;
    struct exchange *turns;
    size_t nturns;
    size_t left_out; /* turns */
};

void context_init(struct context *c, const char *spec, size_t max_bytes);
void context_finish(struct context *c);
/* Takes its texts. */
void context_add(struct context *c, const struct exchange *turn);
/* Shortens what must be. */
void context_fit(struct context *c);
void context_write(const struct context *c, struct json_writer *w);
