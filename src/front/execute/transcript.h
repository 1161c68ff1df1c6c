#pragma once
/* The Agent SDK's view of a dialog: its messages, in the shapes that
 * `@anthropic-ai/claude-agent-sdk` publishes: system/init first, an assistant message for each
 * answer of the model, a user message for each result of a tool, and one result at the end. */

#include "base/json.h"
#include "front/dialog/dialog.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct transcript;

/* What became of it. */
struct transcript_end {
    const char *result; /* what was said last, as a JSON string; empty if nothing was */
    size_t result_len;
    int64_t turns;
    const char *code; /* NULL: it went well */
    int status;       /* of an HTTP answer that tells it */
    int64_t retry_after_s;
    bool held_up; /* it waited in vain for what other calls of its key hold */
    const char *message;
};

/* What it points to must last as long as the transcript. */
struct transcript_options {
    const char *session; /* a UUID */
    const struct model_info *model;
    const struct tool_offer *tools;
    size_t ntools;
    int64_t max_turns;
    double max_budget_usd;
    int64_t timeout_ms;
    void (*on_message)(void *ctx, const char *type, const char *json, size_t len);
    /* The last call; the transcript may be destroyed in it. */
    void (*on_end)(void *ctx, const struct transcript_end *end);
    void *ctx;
};

extern const struct dialog_view transcript_view; /* its ctx is a transcript */

struct transcript *transcript_create(const struct transcript_options *options);
/* The dialog that it shows has been started: tells system/init. */
void transcript_begin(struct transcript *t, const struct dialog *dialog);
/* It has become too long: a cancel that follows is for that. */
void transcript_overflow(struct transcript *t);
void transcript_destroy(struct transcript *t);
