#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "front/agent/internal.h"
#include "front/agent/uimessage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Turns: from the user's message to the end of the assistant's. A turn is freed by the loop after
 * it has ended, so whoever is told that it is over may still look at it. */

enum { SAVE_MS = 1000, FRAME_BYTES = 160, TITLE_BYTES = 80 };

static const char harness[] = "import { WorkerEntrypoint } from \"cloudflare:workers\";\n"
                              "import run from \"user-code.js\";\n"
                              "export default class extends WorkerEntrypoint {\n"
                              "  verify() {}\n"
                              "  async run() { await run(this.env); }\n"
                              "}\n";

static const char stopped[] = "The turn was stopped before this tool had an answer.";

struct chunk {
    struct buf json;
    size_t seq;
    size_t value_at; /* of a delta: where its text begins; the next one of its kind is joined */
};

struct turn {
    struct turn *next;
    struct agent *agent;
    char *id;
    char run_id[ID_SIZE];
    const struct agent_listener *from; /* NULL when it is gone */
    json_t *user_ids;                  /* of the messages that it answers */
    /* What the model reads, growing as the turn goes on. */
    json_t *conversation;
    json_t *message; /* the assistant's UIMessage */
    char message_id[64];
    int64_t place; /* its place in the history */
    struct chunk *chunks;
    size_t nchunks;
    size_t next_seq;
    size_t stream_bytes; /* as frames of a WebSocket, about */
    const struct model_info *model;
    struct model_stream *stream;
    /* What the stream has said so far, for a turn that is stopped before its end. */
    json_t *said;
    const char *open_type; /* of the block that is open, or NULL */
    struct buf open_text;
    int64_t saved_ms;
    struct model_meter meter;
    struct model_usage usage; /* of the stream that runs */
    uv_timer_t timer;
    int64_t steps;
    unsigned blocks; /* numbers the text and reasoning blocks */
    json_t *calls;   /* tool calls of this step that wait */
    struct run *run;
    struct facet_op *op;
    char *code;          /* of the execution that runs */
    json_t *tool_output; /* known, but the state is told first */
    const char *outcome;
    bool waited; /* behind another turn */
    bool running;
    bool over;
};

static void start_turn(struct turn *t);
static void next_step(struct turn *t);
static void next_tool(struct turn *t);
static void end_turn(struct turn *t, const char *outcome, const char *error);

/* --- the stream --- */

static void on_timer_closed(uv_handle_t *h) {
    struct turn *t = h->data;
    for (size_t i = 0; i < t->nchunks; i++)
        buf_finish(&t->chunks[i].json);
    free(t->chunks);
    json_decref(t->user_ids);
    json_decref(t->conversation);
    json_decref(t->message);
    json_decref(t->said);
    json_decref(t->calls);
    json_decref(t->tool_output);
    buf_finish(&t->open_text);
    free(t->code);
    free(t->id);
    free(t);
}

const char *agent_turn(const struct agent *a) {
    return a->turns && a->turns->running && !a->turns->over ? a->turns->id : NULL;
}

size_t agent_chunk_count(const struct agent *a) {
    return a->turns ? a->turns->nchunks : 0;
}

const char *agent_chunk(const struct agent *a, size_t i, size_t *ret_seq, size_t *ret_len) {
    const struct chunk *c = &a->turns->chunks[i];
    *ret_seq = c->seq;
    *ret_len = c->json.len;
    return c->json.data;
}

/* How many bytes the text has inside another JSON text. */
static size_t quoted_bytes(const char *json, size_t len) {
    size_t n = len;
    for (size_t i = 0; i < len; i++)
        n += json[i] == '"' || json[i] == '\\';
    return n;
}

/* Joins a delta to the one before it, as one delta with both texts. */
static bool join(struct turn *t, const struct buf *b, size_t value_at) {
    struct chunk *c = t->nchunks ? &t->chunks[t->nchunks - 1] : NULL;
    if (!c || value_at == 0 || c->value_at != value_at ||
        memcmp(c->json.data, b->data, value_at) != 0)
        return false;
    c->json.len -= 2; /* the closing quote and brace */
    (void)buf_add(&c->json, b->data + value_at, b->len - value_at);
    t->stream_bytes += quoted_bytes(b->data + value_at, b->len - value_at);
    return true;
}

/* Keeps the chunk for those who join later, and tells those who listen. */
static void emit(struct turn *t, const struct buf *b, size_t value_at) {
    size_t max = t->agent->agents->opt.limits.stream_bytes;
    if (t->over)
        return;
    if (b->full || t->stream_bytes + quoted_bytes(b->data, b->len) + FRAME_BYTES > max) {
        char text[96];
        (void)snprintf(text, sizeof(text),
                       "the turn's stream exceeds %zu bytes (limit agent_stream_bytes)", max);
        end_turn(t, "error", text);
        return;
    }
    size_t seq = t->next_seq++;
    if (!join(t, b, value_at)) {
        if ((t->nchunks & (t->nchunks + 1)) == 0)
            t->chunks = xrealloc(t->chunks, 2 * (t->nchunks + 1) * sizeof(*t->chunks));
        struct chunk *c = &t->chunks[t->nchunks++];
        *c = (struct chunk){.seq = seq, .value_at = value_at};
        buf_init(&c->json, max);
        (void)buf_add(&c->json, b->data, b->len);
        t->stream_bytes += quoted_bytes(b->data, b->len) + FRAME_BYTES;
    }
    TELL(t->agent, NULL,
         if (!l->waiting && l->events->on_chunk)
             l->events->on_chunk(l->ctx, t->id, seq, b->data, b->len));
}

/* A chunk with a type and up to two texts; the second is a delta's. */
static void emit_chunk(struct turn *t, const char *type, const char *k1, const char *v1,
                       const char *k2, const char *v2, size_t len2) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, t->agent->agents->opt.limits.stream_bytes);
    struct json_writer w;
    size_t value_at = 0;
    json_writer_init(&w, &b);
    json_writer_object_begin(&w);
    json_writer_key(&w, "type");
    json_writer_str(&w, type);
    if (k1) {
        json_writer_key(&w, k1);
        json_writer_str(&w, v1);
    }
    if (k2) {
        json_writer_key(&w, k2);
        value_at = strstr(type, "-delta") ? b.len + 1 : 0;
        json_writer_text(&w, v2, len2);
    }
    json_writer_object_end(&w);
    emit(t, &b, value_at);
}

static void emit_tree(struct turn *t, json_t *chunk) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, t->agent->agents->opt.limits.stream_bytes);
    (void)json_dump(chunk, &b);
    emit(t, &b, 0);
    json_decref(chunk);
}

/* --- what the model says --- */

static json_t *open_block(const struct turn *t) {
    const char *text = t->open_text.data ? t->open_text.data : "";
    json_t *j = json_stringn(text, t->open_text.len);
    return json_pack("{s:s,s:o}", "type", t->open_type, "text", j ? j : uimessage_text(text));
}

static void begin_said(struct turn *t, const char *type) {
    t->blocks++;
    t->open_type = type;
    buf_clear(&t->open_text);
}

static void end_said(struct turn *t) {
    json_t *block = t->open_type ? open_block(t) : NULL;
    if (block)
        (void)json_array_append_new(t->said, block);
    t->open_type = NULL;
}

static void save_message(struct turn *t) {
    struct err err;
    t->saved_ms = clock_mono_ms();
    if (!uimessage_is_empty(t->message) &&
        history_put_at(t->agent->history, t->place, t->message, &err) < 0)
        log_error("agent.message", "error", err.message);
}

/* Now and then what was said so far is saved, so that little is lost with the server. */
static void save_said(struct turn *t) {
    if (t->over || clock_mono_ms() - t->saved_ms < SAVE_MS)
        return;
    json_t *whole = t->message;
    t->message = json_deep_copy(whole);
    uimessage_add_content(t->message, t->said);
    _cleanup_(json) json_t *open = json_array();
    json_t *block = t->open_type ? open_block(t) : NULL;
    if (block)
        (void)json_array_append_new(open, block);
    uimessage_add_content(t->message, open);
    save_message(t);
    json_decref(t->message);
    t->message = whole;
}

static const char *block_id(const struct turn *t, char out[16]) {
    (void)snprintf(out, 16, "b%u", t->blocks);
    return out;
}

static void on_text_start(void *ctx) {
    struct turn *t = ctx;
    char id[16];
    begin_said(t, "text");
    emit_chunk(t, "text-start", "id", block_id(t, id), NULL, NULL, 0);
}

static void on_text_delta(void *ctx, const char *text, size_t len) {
    struct turn *t = ctx;
    char id[16];
    (void)buf_add(&t->open_text, text, len);
    emit_chunk(t, "text-delta", "id", block_id(t, id), "delta", text, len);
    save_said(t);
}

static void on_text_end(void *ctx) {
    struct turn *t = ctx;
    char id[16];
    end_said(t);
    emit_chunk(t, "text-end", "id", block_id(t, id), NULL, NULL, 0);
}

static void on_reasoning_start(void *ctx) {
    struct turn *t = ctx;
    char id[16];
    begin_said(t, "reasoning");
    emit_chunk(t, "reasoning-start", "id", block_id(t, id), NULL, NULL, 0);
}

static void on_reasoning_delta(void *ctx, const char *text, size_t len) {
    struct turn *t = ctx;
    char id[16];
    (void)buf_add(&t->open_text, text, len);
    emit_chunk(t, "reasoning-delta", "id", block_id(t, id), "delta", text, len);
    save_said(t);
}

static void on_reasoning_end(void *ctx) {
    struct turn *t = ctx;
    char id[16];
    end_said(t);
    emit_chunk(t, "reasoning-end", "id", block_id(t, id), NULL, NULL, 0);
}

static void on_tool_start(void *ctx, const char *id, const char *name) {
    emit_chunk(ctx, "tool-input-start", "toolCallId", id, "toolName", name, strlen(name));
}

static void on_tool_delta(void *ctx, const char *id, const char *json, size_t len) {
    emit_chunk(ctx, "tool-input-delta", "toolCallId", id, "inputTextDelta", json, len);
}

static void on_tool_end(void *ctx, const char *id, const char *name, const json_t *input,
                        const char *error) {
    struct turn *t = ctx;
    if (input) {
        (void)json_array_append_new(t->said, json_pack("{s:s,s:s,s:s,s:O}", "type", "tool_call",
                                                       "id", id, "name", name, "input", input));
        emit_tree(t, json_pack("{s:s,s:s,s:s,s:O}", "type", "tool-input-available", "toolCallId",
                               id, "toolName", name, "input", input));
    } else {
        emit_tree(t, json_pack("{s:s,s:s,s:s,s:n,s:o}", "type", "tool-input-error", "toolCallId",
                               id, "toolName", name, "input", "errorText", uimessage_text(error)));
    }
}

static void on_usage(void *ctx, const struct model_usage *usage) {
    struct turn *t = ctx;
    t->usage = *usage;
}

static void take_usage(struct turn *t) {
    model_meter_add(&t->meter, &t->model->price, &t->usage);
    t->usage = (struct model_usage){0};
}

static struct model_budget budget_of(const struct agent_def *d) {
    return (struct model_budget){.max_tokens = d->budget.tokens,
                                 .max_cost_nusd = (int64_t)(d->budget.cost_usd * NANO_USD_PER_USD)};
}

/* The stream is over: what it said is in the message now. */
static void forget_said(struct turn *t) {
    (void)json_array_clear(t->said);
    t->open_type = NULL;
}

static void on_model_done(void *ctx, enum model_stop stop, json_t *message) {
    struct turn *t = ctx;
    struct err err;
    t->stream = NULL;
    take_usage(t);
    forget_said(t);
    const json_t *content = json_object_get(message, "content");
    uimessage_add_content(t->message, content);
    (void)json_array_append(t->conversation, message);
    json_decref(t->calls);
    t->calls = json_array();
    size_t i;
    json_t *c;
    json_array_foreach(content, i, c) {
        const char *type = json_string_value(json_object_get(c, "type"));
        if (type && strcmp(type, "tool_call") == 0)
            (void)json_array_append(t->calls, c);
    }
    save_message(t);
    if (json_array_size(t->calls) > 0) {
        (void)json_array_append_new(t->conversation,
                                    json_pack("{s:s,s:[]}", "role", "tool", "content"));
        next_tool(t);
        return;
    }
    /* An answer that the budget has cut short must not look like a whole one. */
    struct model_budget budget = budget_of(t->agent->def);
    if (stop == MODEL_STOP_LENGTH && model_meter_check(&t->meter, &budget, &err) < 0) {
        end_turn(t, "error", err.message);
        return;
    }
    if (uimessage_is_empty(t->message)) {
        end_turn(t, "error", "the model's answer is empty");
        return;
    }
    emit_chunk(t, "finish-step", NULL, NULL, NULL, NULL, 0);
    emit_tree(t, json_pack("{s:s,s:{s:s}}", "type", "finish", "messageMetadata", "finishReason",
                           model_stop_name(stop)));
    end_turn(t, NULL, NULL);
}

static void on_model_error(void *ctx, const struct err *err, bool retryable, json_t *partial) {
    (void)retryable;
    struct turn *t = ctx;
    t->stream = NULL;
    take_usage(t);
    forget_said(t);
    if (partial)
        uimessage_add_content(t->message, json_object_get(partial, "content"));
    log_warn("agent.model", "agent", t->agent->def->type, "error", err->message);
    end_turn(t, "error", err->message);
}

static const struct model_callbacks model_callbacks = {
    .on_text_start = on_text_start,
    .on_text_delta = on_text_delta,
    .on_text_end = on_text_end,
    .on_reasoning_start = on_reasoning_start,
    .on_reasoning_delta = on_reasoning_delta,
    .on_reasoning_end = on_reasoning_end,
    .on_tool_start = on_tool_start,
    .on_tool_delta = on_tool_delta,
    .on_tool_end = on_tool_end,
    .on_usage = on_usage,
    .on_done = on_model_done,
    .on_error = on_model_error,
};

/* --- tools --- */

/* The result of the first waiting call: to the page, the message and the model. */
static void finish_tool(struct turn *t, json_t *output, const char *error) {
    json_t *call = json_array_get(t->calls, 0);
    const char *id = json_string_value(json_object_get(call, "id"));
    json_t *last = json_array_get(t->conversation, json_array_size(t->conversation) - 1);
    json_t *value = error ? uimessage_text(error) : output;
    (void)json_array_append_new(json_object_get(last, "content"),
                                json_pack("{s:s,s:O,s:O,s:O,s:b}", "type", "tool_result", "id",
                                          json_object_get(call, "id"), "name",
                                          json_object_get(call, "name"), "output", value,
                                          "is_error", error != NULL));
    uimessage_set_output(t->message, id, value, error != NULL);
    save_message(t);
    emit_tree(t, json_pack("{s:s,s:s,s:O}", "type",
                           error ? "tool-output-error" : "tool-output-available", "toolCallId", id,
                           error ? "errorText" : "output", value));
    json_decref(value);
    (void)json_array_remove(t->calls, 0);
    next_tool(t);
}

static void after_sync(struct agent *a) {
    struct turn *t = a->turns;
    if (t && !t->over && t->tool_output)
        finish_tool(t, steal_ptr(&t->tool_output), NULL);
}

/* The error of a run as one text: its stack, or its name, message and place. */
static char *error_text(const json_t *error) {
    const json_t *stack = json_object_get(error, "stack");
    if (json_is_string(stack))
        return xstrdup(json_string_value(stack));
    const char *name = json_string_value(json_object_get(error, "name"));
    const char *message = json_string_value(json_object_get(error, "message"));
    const char *excerpt = json_string_value(json_object_get(error, "excerpt"));
    return xasprintf("%s: %s%s%s", name ? name : "Error", message ? message : "",
                     excerpt ? "\n" : "", excerpt ? excerpt : "");
}

/* {"output","error"} as the Sandbox example shapes it: console lines, a blank line, the error. A
 * program that could not be loaded has printed nothing. */
static json_t *shape_output(const struct run *run) {
    const json_t *error = run_error(run);
    const char *kind = json_string_value(json_object_get(error, "kind"));
    _cleanup_(free) char *text = error ? error_text(error) : NULL;
    size_t n;
    const char *lines = run_output(run, &n);
    _cleanup_(buf) struct buf out;
    buf_init(&out, n + (text ? strlen(text) : 0) + 64);
    if (!kind || strcmp(kind, "load") != 0) {
        (void)buf_add(&out, lines, n);
        if (text)
            (void)buf_addf(&out, "%sError: %s", n ? "\n\n" : "", text);
        if (out.len == 0)
            (void)buf_add_str(&out, "(no output)");
    }
    json_t *output = json_stringn(out.data ? out.data : "", out.len);
    return json_pack("{s:o,s:o}", "output",
                     output ? output : json_string("(the output is not text)"), "error",
                     text ? uimessage_text(text) : json_null());
}

/* The last of a turn that was stopped in the middle of a run. */
static void forget(struct turn *t) {
    struct turn **at = &t->agent->ending;
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    uv_close((uv_handle_t *)&t->timer, on_timer_closed);
}

static void on_code_done(void *ctx, const struct run *run, const char *record, size_t len) {
    (void)record;
    (void)len;
    struct turn *t = ctx;
    struct agent *a = t->agent;
    struct err err;
    char id[UUID_SIZE];
    t->run = NULL;
    json_t *output = shape_output(run);
    if (history_add_execution(a->history, id_uuid(id), t->code,
                              json_string_value(json_object_get(output, "output")),
                              json_string_value(json_object_get(output, "error")), &err) < 0)
        log_error("agent.execution", "error", err.message);
    free(t->code);
    t->code = NULL;
    if (t->over) { /* it was stopped; what it has done stays */
        json_decref(output);
        forget(t);
        agent_sync(a, NULL);
        return;
    }
    /* The state is told first, as clients of the original see it. */
    json_decref(t->tool_output);
    t->tool_output = output;
    agent_sync(a, after_sync);
}

static void make_env(const struct agent *a, struct env *env) {
    *env = (struct env){.items = xcalloc(a->def->nenv + 1, sizeof(*env->items))};
    for (size_t i = 0; i < a->def->nenv; i++) {
        const struct agent_binding *b = &a->def->env[i];
        struct env_item *item = &env->items[env->n++];
        *item = (struct env_item){.name = xstrdup(b->name), .fd = -1};
        if (!b->facet) {
            item->kind = ENV_JSON;
            item->json = json_incref(b->json);
            continue;
        }
        item->kind = ENV_FACET;
        item->facet_dir = xasprintf("%s/facets/%s", a->dir, b->facet->name);
        item->facet_open = &b->facet->open;
        size_t n = 0;
        while (b->methods && b->methods[n])
            n++;
        if (n > 0) {
            item->methods = xcalloc(n + 1, sizeof(*item->methods));
            for (size_t k = 0; k < n; k++)
                item->methods[k] = xstrdup(b->methods[k]);
        }
    }
}

static char *title_of(const struct agent *a) {
    char title[TITLE_BYTES];
    int n = snprintf(title, sizeof(title), "%s/%s", a->def->type, a->name);
    return xstrndup(title, utf8_floor(title, (size_t)n, sizeof(title) - 1));
}

static void write_source(struct buf *out, const char *code) {
    struct json_writer w;
    json_writer_init(&w, out);
    json_writer_object_begin(&w);
    json_writer_key(&w, "mainModule");
    json_writer_str(&w, "harness.js");
    json_writer_key(&w, "modules");
    json_writer_object_begin(&w);
    json_writer_key(&w, "harness.js");
    json_writer_str(&w, harness);
    json_writer_key(&w, "user-code.js");
    json_writer_str(&w, code);
    json_writer_object_end(&w);
    json_writer_object_end(&w);
}

static void run_code(struct turn *t, const char *code) {
    struct agent *a = t->agent;
    struct agents *all = a->agents;
    struct err err;
    _cleanup_(buf) struct buf source;
    buf_init(&source, (size_t)64 << 20);
    write_source(&source, code);
    static const char spec[] = "{\"verify\":true,\"method\":\"run\"}";
    _cleanup_(free) char *title = title_of(a);
    free(t->code);
    t->code = xstrdup(code);
    struct env env;
    make_env(a, &env);
    struct run_request q = {.owner = a->owner,
                            .kind = "execution",
                            .title = title,
                            .source = source.data,
                            .source_len = source.len,
                            .code = t->code,
                            .spec = spec,
                            .spec_len = sizeof(spec) - 1,
                            .env = &env,
                            .limits = all->opt.runner->config.limits,
                            .callbacks = {.on_done = on_code_done},
                            .ctx = t};
    t->run = run_start(all->opt.runner, all->opt.jobs, &q, &err);
    env_finish(&env);
    if (!t->run)
        finish_tool(t, NULL, err.message);
}

static void on_query_done(void *ctx, bool ok, const char *json, size_t len, const struct err *err) {
    struct turn *t = ctx;
    size_t max = t->agent->agents->opt.limits.tool_bytes;
    t->op = NULL;
    if (t->over)
        return;
    if (ok && len > max) {
        finish_tool(t,
                    json_pack("{s:o}", "error",
                              json_sprintf("the result has %zu bytes and may have %zu (limit "
                                           "agent_tool_bytes): select fewer rows or columns",
                                           len, max)),
                    NULL);
    } else if (ok) {
        json_t *rows = agent_rows(json, len);
        finish_tool(
            t, json_pack("{s:I,s:o}", "rowCount", (json_int_t)json_array_size(rows), "rows", rows),
            NULL);
    } else {
        _cleanup_(json) json_t *e = json ? json_loadb(json, len, JSON_ALLOW_NUL, NULL) : NULL;
        const char *name = json_string_value(json_object_get(e, "name"));
        _cleanup_(json) json_t *text = agent_facet_error(json, len, err);
        finish_tool(
            t,
            json_pack("{s:o}", "error",
                      json_sprintf("%s: %s", name ? name : "Error", json_string_value(text))),
            NULL);
    }
}

static void run_query(struct turn *t, const struct agent_tool *tool, const char *sql) {
    struct agent *a = t->agent;
    const struct agent_facet *f = NULL;
    for (size_t i = 0; i < a->def->nfacets; i++)
        if (strcmp(a->def->facets[i].name, tool->facet) == 0)
            f = &a->def->facets[i];
    _cleanup_(free) char *dir = NULL;
    struct facet_ref ref = agent_facet_ref(a, f, &dir);
    _cleanup_(buf) struct buf args;
    buf_init(&args, (size_t)64 << 20);
    (void)buf_add_char(&args, '[');
    json_write_str(&args, sql, strlen(sql));
    (void)buf_add_char(&args, ']');
    struct err err;
    t->op = facets_call(a->agents->opt.runner->facets, &ref, "query", args.data, on_query_done, t,
                        &err);
    if (!t->op)
        on_query_done(t, false, NULL, 0, &err);
}

static void next_tool(struct turn *t) {
    if (t->over)
        return;
    json_t *call = json_array_get(t->calls, 0);
    if (!call) {
        emit_chunk(t, "finish-step", NULL, NULL, NULL, NULL, 0);
        next_step(t);
        return;
    }
    const char *name = json_string_value(json_object_get(call, "name"));
    const json_t *input = json_object_get(call, "input");
    const char *bad = json_string_value(json_object_get(call, "input_error"));
    const struct agent_tool *tool = name ? agent_def_tool(t->agent->def, name) : NULL;
    const char *key = tool && tool->kind == AGENT_TOOL_QUERY ? "sql" : "code";
    const char *text = json_string_value(json_object_get(input, key));
    _cleanup_(free) char *error = NULL;
    if (bad)
        error = xasprintf("the input of the tool is not valid: %s", bad);
    else if (!tool)
        error = xasprintf("there is no tool \"%.64s\"", name ? name : "");
    else if (!text)
        error = xasprintf("the tool \"%s\" needs a text \"%s\"", tool->name, key);
    if (error || !tool)
        finish_tool(t, NULL, error);
    else if (tool->kind == AGENT_TOOL_CODE)
        run_code(t, text);
    else
        run_query(t, tool, text);
}

/* --- steps --- */

/* The model wants to go on but may not: as the original's stepCountIs(), this is no error. */
static void end_of_steps(struct turn *t) {
    char text[96];
    (void)snprintf(text, sizeof(text), "the turn has had its %lld steps (max_steps)",
                   (long long)t->agent->def->max_steps);
    (void)json_object_set_new(t->message, "metadata", json_pack("{s:s}", "limit", text));
    emit_tree(t, json_pack("{s:s,s:{s:s,s:s}}", "type", "finish", "messageMetadata", "finishReason",
                           "tool-calls", "limit", text));
    end_turn(t, NULL, NULL);
}

static void next_step(struct turn *t) {
    struct agent *a = t->agent;
    struct err err;
    const struct agent_def *d = a->def;
    struct model_budget budget = budget_of(d);
    if (t->over)
        return;
    if (t->steps >= d->max_steps) {
        end_of_steps(t);
        return;
    }
    if (model_meter_check(&t->meter, &budget, &err) < 0) {
        end_turn(t, "error", err.message);
        return;
    }
    t->steps++;
    emit_chunk(t, "start-step", NULL, NULL, NULL, NULL, 0);
    if (t->over)
        return;
    uimessage_step(t->message);
    struct model_request q = {
        .model = t->model,
        .system = d->prompt,
        .messages = t->conversation,
        .tools = d->tool_specs,
        .max_tokens = model_meter_room(&t->meter, &budget, &t->model->price, d->max_tokens),
        .temperature = -1,
        .script = d->demo};
    if (model_stream(a->agents->opt.models, &q, &model_callbacks, t, &t->stream, &err) < 0)
        end_turn(t, "error", err.message);
}

static void on_turn_timeout(uv_timer_t *timer) {
    struct turn *t = timer->data;
    char text[96];
    (void)snprintf(text, sizeof(text), "the turn took longer than %lld ms (budget wall_ms)",
                   (long long)t->agent->def->budget.wall_ms);
    end_turn(t, "error", text);
}

/* --- the record --- */

static void record_begin(struct turn *t) {
    struct err err;
    struct agent *a = t->agent;
    _cleanup_(free) char *title = title_of(a);
    struct store_run r = {.kind = (char *)"chat", .title = title, .created_ms = clock_wall_ms()};
    id_new("run", t->run_id);
    memcpy(r.id, t->run_id, sizeof(r.id));
    (void)snprintf(r.owner, sizeof(r.owner), "%s", a->owner);
    char text[sizeof(t->message_id) + 32];
    (void)snprintf(text, sizeof(text), "%lld %s", (long long)t->place, t->message_id);
    if (store_run_begin(a->agents->opt.store, &r, &err) < 0 ||
        history_set(a->history, "turn", text, &err) < 0)
        log_error("agent.record", "error", err.message);
}

static void record_end(struct turn *t, const char *error) {
    struct err err;
    struct agent *a = t->agent;
    const struct model_usage *u = &t->meter.usage;
    _cleanup_(json) json_t *detail = json_pack(
        "{s:s,s:s,s:s,s:I,s:{s:I,s:I,s:I,s:I},s:f}", "agent", a->def->type, "name", a->name,
        "model", t->model ? t->model->id : "", "steps", (json_int_t)t->steps, "tokens", "input",
        (json_int_t)u->input_tokens, "output", (json_int_t)u->output_tokens, "cache_read",
        (json_int_t)u->cache_read_tokens, "cache_write", (json_int_t)u->cache_write_tokens,
        "cost_usd", (double)t->meter.cost_nusd / NANO_USD_PER_USD);
    _cleanup_(free) char *text = json_dumps(detail, JSON_COMPACT);
    bool aborted = t->outcome && strcmp(t->outcome, "aborted") == 0;
    struct store_run_end end = {.status = error     ? "failed"
                                          : aborted ? "cancelled"
                                                    : "done",
                                .error_code = error ? "model_error" : NULL,
                                .error_message = error,
                                .detail = text,
                                .detail_len = text ? strlen(text) : 0};
    if (store_run_end(a->agents->opt.store, t->run_id, &end, &err) < 0 ||
        history_set(a->history, "turn", NULL, &err) < 0)
        log_error("agent.record", "error", err.message);
}

void turn_mark_cut(struct agent *a) {
    struct err err;
    _cleanup_(free) char *turn = NULL;
    _cleanup_(json) json_t *list = NULL;
    char *id = NULL;
    if (history_get(a->history, "turn", &turn, &err) < 0 || !turn)
        return;
    int64_t place = strtoll(turn, &id, 10);
    id += *id == ' ';
    agent_state_spoil(a); /* its last execution may not be in the state */
    if (history_messages(a->history, &list, &err) < 0)
        return;
    _cleanup_(json) json_t *message = NULL;
    size_t i;
    json_t *m;
    json_array_foreach(list, i, m) {
        const char *own = json_string_value(json_object_get(m, "id"));
        if (!message && own && strcmp(own, id) == 0)
            message = json_incref(m);
    }
    if (!message)
        message = uimessage_new(id);
    uimessage_settle(message, stopped);
    uimessage_add_note(message, "(This turn was cut off: the server ended while it was running.)");
    (void)json_object_set_new(message, "metadata", json_pack("{s:b}", "interrupted", 1));
    if (history_put_at(a->history, place, message, &err) < 0 ||
        history_set(a->history, "turn", NULL, &err) < 0)
        log_error("agent.cut", "error", err.message);
}

/* --- from begin to end --- */

/* The messages of a turn that has waited were stored before the answer that it waited for. */
static int catch_up(struct turn *t, struct err *err) {
    size_t i;
    const json_t *id;
    int rc = 0;
    json_array_foreach(t->user_ids, i, id) {
        if (rc == 0 && t->waited)
            rc = history_move_last(t->agent->history, json_string_value(id), err);
    }
    return rc;
}

/* What it answers is what is in the history now, not what comes while it waits for the loop. */
static int prepare_turn(struct turn *t, struct err *err) {
    struct agent *a = t->agent;
    t->saved_ms = clock_mono_ms();
    (void)snprintf(t->message_id, sizeof(t->message_id), "assistant_%lld_%08x",
                   (long long)clock_wall_ms(), (unsigned)(clock_mono_ns() & 0xffffffff));
    t->message = uimessage_new(t->message_id);
    t->said = json_array();
    _cleanup_(json) json_t *list = NULL;
    int rc = catch_up(t, err);
    if (rc == 0)
        rc = history_reserve(a->history, &t->place, err);
    record_begin(t);
    if (rc == 0)
        rc = history_messages(a->history, &list, err);
    if (rc == 0)
        t->conversation = uimessage_to_model(list, a->agents->opt.limits.context_bytes);
    return rc;
}

static void start_turn(struct turn *t) {
    struct agent *a = t->agent;
    struct err err;
    int rc = t->message ? 0 : prepare_turn(t, &err);
    t->running = true;
    if (rc == 0)
        rc = models_find(a->agents->opt.models,
                         a->def->model ? a->def->model : a->agents->opt.model, &t->model, &err);
    if (rc < 0) {
        end_turn(t, "error", err.message);
        return;
    }
    if (a->def->budget.wall_ms > 0)
        (void)uv_timer_start(&t->timer, on_turn_timeout, (uint64_t)a->def->budget.wall_ms, 0);
    emit_chunk(t, "start", "messageId", t->message_id, NULL, NULL, 0);
    next_step(t);
}

/* The model and the tools are told to stop; what has been said so far is kept. */
static void stop_work(struct turn *t) {
    if (t->stream) {
        t->usage = model_stream_usage(t->stream);
        take_usage(t);
        model_stream_cancel(t->stream);
        t->stream = NULL;
        end_said(t);
        uimessage_add_content(t->message, t->said);
    }
    facet_op_cancel(t->op);
    t->op = NULL;
    if (t->run)
        run_cancel(t->run); /* its end finds the turn over */
}

static void close_message(struct turn *t, const json_t *error) {
    uimessage_settle(t->message, stopped);
    if (error)
        (void)json_object_set_new(t->message, "metadata", json_pack("{s:O}", "error", error));
    else if (t->outcome)
        (void)json_object_set_new(t->message, "metadata", json_pack("{s:b}", "aborted", 1));
    save_message(t);
}

static void start_first(void *ctx) {
    const struct agent *a = ctx;
    if (a->turns && !a->turns->running && !a->closing)
        start_turn(a->turns);
}

/* outcome NULL: whole. error: for people. The next turn begins from the loop. */
static void end_turn(struct turn *t, const char *outcome, const char *error) {
    struct agent *a = t->agent;
    if (t->over)
        return;
    t->over = true;
    t->outcome = outcome;
    struct turn **at = &a->turns;
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    bool first = t->message != NULL; /* it was begun */
    _cleanup_(json) json_t *text = error ? uimessage_text(error) : NULL;
    if (first) {
        stop_work(t);
        close_message(t, text);
        record_end(t, text ? json_string_value(text) : NULL);
    }
    if (text)
        TELL(a, NULL,
             if (l->events->on_fail)
                 l->events->on_fail(l->ctx, t->id, json_string_value(text), t->user_ids));
    agent_tell_messages(a, t->from);
    TELL(a, NULL, {
        if (first)
            l->waiting = false;
        if (l->events->on_end)
            l->events->on_end(l->ctx, t->id, outcome, t->user_ids);
    });
    a->used_ms = clock_mono_ms();
    (void)uv_timer_stop(&t->timer);
    if (t->run) {
        t->next = a->ending;
        a->ending = t;
    } else {
        uv_close((uv_handle_t *)&t->timer, on_timer_closed);
    }
    if (a->turns && !a->closing)
        later_post(&a->agents->later, &a->next_turn, start_first, a);
}

void turns_end(struct agent *a, const char *error) {
    later_cancel(&a->next_turn);
    while (a->turns) {
        struct turn *last = a->turns;
        while (last->next)
            last = last->next;
        end_turn(last, error ? "error" : "aborted", error);
    }
}

void turns_abandon(struct agent *a) {
    while (a->ending) {
        run_abandon(a->ending->run);
        forget(a->ending);
    }
}

void turns_forget_listener(struct agent *a, const struct agent_listener *l) {
    for (struct turn *t = a->turns; t; t = t->next)
        if (t->from == l)
            t->from = NULL;
}

/* --- asking for one --- */

static const char *id_of(const json_t *message) {
    return json_string_value(json_object_get(message, "id"));
}

static bool is_user(const json_t *message) {
    const char *role = json_string_value(json_object_get(message, "role"));
    return role && strcmp(role, "user") == 0;
}

static const json_t *find_message(const json_t *list, const char *id) {
    size_t i;
    const json_t *m;
    json_array_foreach(list, i, m) if (strcmp(id_of(m), id) == 0) return m;
    return NULL;
}

/* The messages that the turn answers: the user's at the end. */
static int check_request(const struct agent *a, const json_t *messages, json_t *user_ids,
                         struct err *err) {
    size_t i;
    const json_t *m;
    if (!json_is_array(messages))
        return err_set(err, ERR_BAD_REQUEST, "\"messages\" must be a list");
    json_array_foreach(messages, i, m) {
        int rc = uimessage_check(m, a->agents->opt.limits.message_bytes, err);
        if (rc < 0)
            return rc;
        if (is_user(m))
            (void)json_array_append(user_ids, json_object_get(m, "id"));
        else
            (void)json_array_clear(user_ids);
    }
    if (json_array_size(user_ids) == 0)
        return err_set(err, ERR_BAD_REQUEST, "the last message must be the user's");
    return 0;
}

/* The new messages of the request go into the history; what the history has already stays. */
static int take_messages(struct agent *a, const struct agent_chat *chat, const json_t *known,
                         struct err *err) {
    size_t i;
    const json_t *m;
    bool all_known = true;
    const char *last = NULL;
    int rc = 0;
    json_array_foreach(chat->messages, i, m) {
        const json_t *own = find_message(known, id_of(m));
        all_known = all_known && own;
        last = id_of(m);
        /* An edited message of the user replaces ours; an assistant's is ours to keep. */
        if (rc == 0 && (!own || (is_user(m) && !json_equal(own, m))))
            rc = history_put(a->history, m, err);
    }
    /* The client goes on from an earlier place: what came after it makes way. */
    json_array_foreach(known, i, m) {
        if (rc == 0 && chat->whole && all_known && !find_message(chat->messages, id_of(m)))
            rc = history_remove(a->history, id_of(m), err);
    }
    if (rc == 0 && chat->regenerate)
        rc = history_truncate(a->history, last, err);
    int64_t bytes = 0;
    if (rc == 0)
        rc = history_bytes(a->history, &bytes, err);
    size_t max = a->agents->opt.limits.history_bytes;
    if (rc == 0 && bytes > (int64_t)max)
        rc = err_set(err, ERR_LIMIT,
                     "the conversation has %lld bytes and may have %zu (limit "
                     "agent_history_bytes): clear it, or begin another",
                     (long long)bytes, max);
    return rc;
}

static int store_messages(struct agent *a, const struct agent_chat *chat, struct err *err) {
    _cleanup_(json) json_t *known = NULL;
    int rc = history_messages(a->history, &known, err);
    if (rc == 0)
        rc = history_begin(a->history, err);
    if (rc < 0)
        return rc;
    rc = take_messages(a, chat, known, err);
    int end = history_end(a->history, rc == 0, rc == 0 ? err : NULL);
    return rc < 0 ? rc : end;
}

static int check_queue(const struct agent *a, const char *id, struct err *err) {
    size_t n = 0;
    size_t max = a->agents->opt.limits.turns;
    for (const struct turn *t = a->turns; t; t = t->next, n++)
        if (strcmp(t->id, id) == 0)
            return err_set(err, ERR_CONFLICT, "there is a turn with this id already");
    if (n >= max)
        return err_set(err, ERR_RATE, "%zu turns are waiting already (limit agent_turns)", max);
    return 0;
}

int agent_chat(struct agent *a, const struct agent_listener *from, const struct agent_chat *chat,
               struct err *err) {
    _cleanup_(json) json_t *user_ids = json_array();
    int rc = check_queue(a, chat->turn, err);
    if (rc == 0)
        rc = check_request(a, chat->messages, user_ids, err);
    if (rc == 0)
        rc = store_messages(a, chat, err);
    if (rc < 0)
        return rc;
    struct turn *t = xcalloc(1, sizeof(*t));
    t->agent = a;
    t->id = xstrdup(chat->turn);
    t->from = from;
    t->user_ids = steal_ptr(&user_ids);
    t->waited = a->turns != NULL;
    buf_init(&t->open_text, LIMIT_MODEL_REPLY_BYTES);
    (void)uv_timer_init(a->agents->opt.loop, &t->timer);
    t->timer.data = t;
    struct turn **at = &a->turns;
    while (*at)
        at = &(*at)->next;
    *at = t;
    agent_tell_messages(a, from);
    if (a->turns != t)
        return 0;
    rc = prepare_turn(t, err);
    if (rc < 0) {
        a->turns = NULL;
        uv_close((uv_handle_t *)&t->timer, on_timer_closed);
    } else {
        later_post(&a->agents->later, &a->next_turn, start_first, a);
    }
    return rc;
}

bool agent_cancel(struct agent *a, const char *turn) {
    struct turn *t = a->turns;
    while (t && strcmp(t->id, turn) != 0)
        t = t->next;
    if (t)
        end_turn(t, "aborted", NULL);
    return t != NULL;
}
