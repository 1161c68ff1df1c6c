#pragma once
/* A tool's own question to the model of its environment: one answer, with no tools of ours, so that
 * whatever the question holds can do nothing. What it uses counts for the dialog's budget. */

#include "front/tool/tool.h"

struct tool_ask;

struct ask_options {
    struct tool_env *env;
    const char *system;
    const char *text;
    const json_t *server_tools; /* see model.h; or NULL */
    int64_t max_tokens;
    /* Comes once, from the loop; content is that of the message, NULL: err says why. */
    void (*done)(void *ctx, const json_t *content, const struct err *err);
    void *ctx;
};

int ask_start(const struct ask_options *options, struct tool_ask **ret_ask, struct err *err);
/* What it has used until now counts. NULL is allowed. */
void ask_cancel(struct tool_ask *a);
/* The texts of an answer, one after the other. */
json_t *ask_text(const json_t *content);
