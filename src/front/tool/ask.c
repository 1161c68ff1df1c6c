#include "front/tool/ask.h"

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/mem.h"
#include "front/account/account.h"

#include <stdlib.h>
#include <string.h>

enum { ASK_SEARCHES = 8 }; /* by a provider's tool, at most */

struct tool_ask {
    struct ask_options opt;
    char *system;
    json_t *messages;
    size_t bytes; /* of what it asks */
    json_t *server_tools;
    struct account_hold *hold;
    struct model_stream *stream; /* NULL: what it may cost is being set aside */
};

static void tool_ask_stop(struct tool_ask *a) {
    const struct tool_env *env = a->opt.env;
    struct model_usage usage = {0};
    if (a->stream) {
        usage = model_stream_usage(a->stream);
        env->on_spent(env->ctx, &usage);
        model_stream_cancel(a->stream); /* of one that has ended it changes nothing */
    }
    if (a->hold)
        account_settle(a->hold, &usage);
    json_decref(a->messages);
    json_decref(a->server_tools);
    free(a->system);
    free(a);
}

static void tool_ask_finish(struct tool_ask *a, const json_t *content, const struct err *err) {
    struct ask_options o = a->opt;
    tool_ask_stop(a);
    o.done(o.ctx, content, err);
}

static void tool_ask_on_done(void *ctx, enum model_stop stop, json_t *message) {
    (void)stop;
    tool_ask_finish(ctx, json_object_get(message, "content"), NULL);
}

static void tool_ask_on_error(void *ctx, const struct err *err, bool retryable, json_t *partial) {
    (void)retryable;
    (void)partial;
    tool_ask_finish(ctx, NULL, err);
}

/* Watched while it comes, as the dialog's own answers are. */
static void tool_ask_check(struct tool_ask *a) {
    struct err err;
    struct model_usage usage = model_stream_usage(a->stream);
    const struct tool_env *env = a->opt.env;
    if (model_cost_nusd(&env->model->price, &usage) <= env->left_nusd(env->ctx) &&
        !(a->hold && account_is_exceeded(a->hold, &usage)))
        return;
    (void)err_set(&err, ERR_LIMIT, "the budget is used up");
    tool_ask_finish(a, NULL, &err);
}

static void tool_ask_on_usage(void *ctx, const struct model_usage *usage) {
    (void)usage;
    tool_ask_check(ctx);
}

static void tool_ask_on_text_delta(void *ctx, const char *text, size_t len) {
    (void)text;
    (void)len;
    tool_ask_check(ctx);
}

static const struct model_callbacks callbacks = {
    .on_usage = tool_ask_on_usage,
    .on_text_delta = tool_ask_on_text_delta,
    .on_done = tool_ask_on_done,
    .on_error = tool_ask_on_error,
};

static int tool_ask_start_stream(struct tool_ask *a, int64_t granted, struct err *err) {
    const struct tool_env *env = a->opt.env;
    int64_t wanted = a->opt.max_tokens;
    return model_stream(
        env->models,
        &(struct model_request){.model = env->model,
                                .system = a->system,
                                .messages = a->messages,
                                .bytes = a->bytes,
                                .owner = env->owner,
                                .server_tools = a->server_tools,
                                .max_tokens = granted > 0 ? MIN(wanted, granted) : wanted,
                                .temperature = -1},
        &callbacks, a, &a->stream, err);
}

static void tool_ask_on_held(void *ctx, const struct account_grant *grant, const struct err *err) {
    struct tool_ask *a = ctx;
    struct err why;
    if (err)
        a->hold = NULL;
    else if (tool_ask_start_stream(a, grant->max_tokens, &why) == 0)
        return;
    tool_ask_finish(a, NULL, err ? err : &why);
}

int ask_start(const struct ask_options *options, struct tool_ask **ret_ask, struct err *err) {
    const struct tool_env *env = options->env;
    struct tool_ask *a = xcalloc(1, sizeof(*a));
    a->opt = *options;
    a->system = xstrdup(options->system);
    a->messages = json_pack("[{s:s,s:o}]", "role", "user", "content", json_text(options->text));
    a->server_tools = json_incref((json_t *)(uintptr_t)options->server_tools);
    a->bytes = strlen(options->system) + strlen(options->text);
    int rc = 0;
    if (env->accounts)
        a->hold = account_hold_call(
            env->accounts,
            &(struct account_call){.owner = env->owner,
                                   .key = env->key,
                                   .kind = env->kind,
                                   .model = env->model,
                                   .input_bytes = a->bytes,
                                   .max_tokens = options->max_tokens,
                                   .searches = options->server_tools ? ASK_SEARCHES : 0},
            tool_ask_on_held, a);
    else
        rc = tool_ask_start_stream(a, 0, err);
    if (rc < 0) {
        tool_ask_stop(a);
        return rc;
    }
    *ret_ask = a;
    return 0;
}

void ask_cancel(struct tool_ask *a) {
    if (a)
        tool_ask_stop(a);
}

json_t *ask_text(const json_t *content) {
    _cleanup_(buf) struct buf text;
    buf_init(&text, LIMIT_MODEL_REPLY_BYTES + 1);
    size_t i;
    const json_t *b;
    json_array_foreach(content, i, b) {
        const char *type = json_string_value(json_object_get(b, "type"));
        const json_t *piece = json_object_get(b, "text");
        if (type && strcmp(type, "text") == 0)
            (void)buf_add(&text, json_string_value(piece), json_string_length(piece));
    }
    return json_stringn(text.data ? text.data : "", text.len);
}
