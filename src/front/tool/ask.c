#include "front/tool/ask.h"

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct tool_ask {
    struct ask_options opt;
    struct model_stream *stream;
};

static void spend(const struct tool_ask *a, const struct model_usage *usage) {
    a->opt.env->on_spent(a->opt.env->ctx, usage);
}

/* Cancelling a stream that has ended changes nothing. */
static void finish(struct tool_ask *a, const json_t *content, const struct err *err) {
    struct ask_options o = a->opt;
    struct model_usage usage = model_stream_usage(a->stream);
    spend(a, &usage);
    model_stream_cancel(a->stream);
    free(a);
    o.done(o.ctx, content, err);
}

static void on_done(void *ctx, enum model_stop stop, json_t *message) {
    (void)stop;
    finish(ctx, json_object_get(message, "content"), NULL);
}

static void on_error(void *ctx, const struct err *err, bool retryable, json_t *partial) {
    (void)retryable;
    (void)partial;
    finish(ctx, NULL, err);
}

/* Watched while it comes, as the dialog's own answers are. */
static void check(struct tool_ask *a) {
    struct err err;
    struct model_usage usage = model_stream_usage(a->stream);
    const struct tool_env *env = a->opt.env;
    if (model_cost_nusd(&env->model->price, &usage) <= env->left_nusd(env->ctx))
        return;
    (void)err_set(&err, ERR_LIMIT, "the budget is used up");
    finish(a, NULL, &err);
}

static void on_usage(void *ctx, const struct model_usage *usage) {
    (void)usage;
    check(ctx);
}

static void on_text_delta(void *ctx, const char *text, size_t len) {
    (void)text;
    (void)len;
    check(ctx);
}

static const struct model_callbacks callbacks = {
    .on_usage = on_usage,
    .on_text_delta = on_text_delta,
    .on_done = on_done,
    .on_error = on_error,
};

int ask_start(const struct ask_options *options, struct tool_ask **ret_ask, struct err *err) {
    const struct tool_env *env = options->env;
    _cleanup_(json) json_t *messages =
        json_pack("[{s:s,s:o}]", "role", "user", "content", json_text(options->text));
    struct tool_ask *a = xcalloc(1, sizeof(*a));
    a->opt = *options;
    int rc = model_stream(env->models,
                          &(struct model_request){.model = env->model,
                                                  .system = options->system,
                                                  .messages = messages,
                                                  .server_tools = options->server_tools,
                                                  .max_tokens = options->max_tokens,
                                                  .temperature = -1},
                          &callbacks, a, &a->stream, err);
    if (rc < 0) {
        free(a);
        return rc;
    }
    *ret_ask = a;
    return 0;
}

void ask_cancel(struct tool_ask *a) {
    if (!a)
        return;
    struct model_usage usage = model_stream_usage(a->stream);
    spend(a, &usage);
    model_stream_cancel(a->stream);
    free(a);
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
