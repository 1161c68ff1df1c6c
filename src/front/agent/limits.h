#pragma once
/* What an agent's client or model can grow. Each is a key of "limits" in cay.json. */

#include "base/limits.h"

#include <stddef.h>

struct agent_limits {
    size_t turns;         /* of one instance: the one that runs and those that wait */
    size_t messages;      /* of one instance */
    size_t message_bytes; /* one message of a client */
    size_t history_bytes; /* the messages of one instance */
    size_t context_bytes; /* what of them a model reads; the oldest are left out */
    size_t stream_bytes;  /* a turn's stream, which is kept for those who join later */
    size_t tool_bytes;    /* what one tool call gives back */
    size_t instances;     /* of one agent and owner */
};

static inline struct agent_limits agent_limits_default(void) {
    return (struct agent_limits){.turns = LIMIT_AGENT_TURNS,
                                 .messages = LIMIT_AGENT_MESSAGES,
                                 .message_bytes = LIMIT_AGENT_MESSAGE_BYTES,
                                 .history_bytes = LIMIT_AGENT_HISTORY_BYTES,
                                 .context_bytes = LIMIT_AGENT_CONTEXT_BYTES,
                                 .stream_bytes = LIMIT_AGENT_STREAM_BYTES,
                                 .tool_bytes = LIMIT_AGENT_TOOL_BYTES,
                                 .instances = LIMIT_AGENT_INSTANCES};
}
