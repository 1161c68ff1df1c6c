#pragma once
/* The loop: ask the model for the next action, tell what will be done, do it, tell the model what
 * came of it; until it says that it is done, or may not go on. */

#include "coder/call.h"
#include "coder/context.h"
#include "coder/events.h"
#include "coder/life.h"
#include "coder/tools.h"
#include "wire/coder.h"

struct coder {
    struct life *life;
    struct events *events;
    struct tools tools;
    struct model_route route;
    struct dialect_request request;
    struct context context;
    int64_t max_steps;
    /* what came of it */
    int64_t steps;
    int64_t calls;
    int64_t input_tokens;
    int64_t output_tokens;
    int64_t cache_read_tokens;
    int64_t cache_write_tokens;
};

/* Runs to the end and tells it: exactly one CODER_DONE or CODER_FAILED. */
enum coder_reason agent_run(struct coder *a);
/* Tells the end of a run that did not come to its loop. */
void agent_fail(struct coder *a, enum coder_reason reason, const char *message, const char *text,
                size_t len);
