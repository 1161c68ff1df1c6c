/* Chat Completions, as OpenAI, Ollama, vLLM, OpenRouter, Workers AI and others serve it. They agree
 * on the outline only: ids, usage, finish reasons and [DONE] may be missing, a tool call may come
 * in one piece or in hundreds. */

#include "base/limits.h"
#include "front/model/internal.h"
#include "front/model/messages.h"

#include <stdlib.h>
#include <string.h>

static void openai_write_pair(struct json_writer *w, const char *key, const char *value) {
    json_writer_key(w, key);
    json_writer_str(w, value);
}

/* All text blocks as one string; null when there is none. */
static void openai_write_text(struct json_writer *w, const json_t *content) {
    struct buf text;
    buf_init(&text, LIMIT_MODEL_REQUEST_BYTES);
    size_t i;
    const json_t *b;
    bool any = false;
    json_array_foreach(content, i, b) {
        const json_t *t = json_object_get(b, "text");
        if (strcmp(messages_str(b, "type"), "text") != 0)
            continue;
        if (any)
            (void)buf_add_str(&text, "\n\n");
        (void)buf_add(&text, json_string_value(t), json_string_length(t));
        any = true;
    }
    json_writer_key(w, "content");
    if (any)
        json_writer_text(w, text.data, text.len);
    else
        json_writer_null(w);
    buf_finish(&text);
}

static void openai_write_call(struct json_writer *w, const json_t *b) {
    const json_t *input = json_object_get(b, "input");
    char *text =
        json_is_object(input) ? json_dump_text(input, LIMIT_MODEL_REQUEST_BYTES, NULL) : NULL;
    json_writer_object_begin(w);
    openai_write_pair(w, "id", messages_str(b, "id"));
    openai_write_pair(w, "type", "function");
    json_writer_key(w, "function");
    json_writer_object_begin(w);
    openai_write_pair(w, "name", messages_str(b, "name"));
    openai_write_pair(w, "arguments", text ? text : "{}");
    json_writer_object_end(w);
    json_writer_object_end(w);
    free(text);
}

static void write_assistant(struct json_writer *w, const json_t *content) {
    size_t i;
    const json_t *b;
    size_t calls = 0;
    size_t texts = 0;
    json_array_foreach(content, i, b) {
        calls += strcmp(messages_str(b, "type"), "tool_call") == 0 ? 1 : 0;
        texts += strcmp(messages_str(b, "type"), "text") == 0 ? 1 : 0;
    }
    if (calls + texts == 0)
        return; /* reasoning alone does not go back here */
    json_writer_object_begin(w);
    openai_write_pair(w, "role", "assistant");
    openai_write_text(w, content);
    if (calls > 0) {
        json_writer_key(w, "tool_calls");
        json_writer_array_begin(w);
        json_array_foreach(content, i, b) {
            if (strcmp(messages_str(b, "type"), "tool_call") == 0)
                openai_write_call(w, b);
        }
        json_writer_array_end(w);
    }
    json_writer_object_end(w);
}

static void openai_write_messages(struct json_writer *w, const char *system,
                                  const json_t *messages) {
    json_writer_key(w, "messages");
    json_writer_array_begin(w);
    if (system && *system) {
        json_writer_object_begin(w);
        openai_write_pair(w, "role", "system");
        openai_write_pair(w, "content", system);
        json_writer_object_end(w);
    }
    size_t i;
    const json_t *m;
    json_array_foreach(messages, i, m) {
        const char *role = messages_str(m, "role");
        const json_t *content = json_object_get(m, "content");
        size_t k;
        const json_t *b;
        if (strcmp(role, "assistant") == 0) {
            write_assistant(w, content);
            continue;
        }
        if (strcmp(role, "user") == 0) {
            json_writer_object_begin(w);
            openai_write_pair(w, "role", "user");
            openai_write_text(w, content);
            json_writer_object_end(w);
            continue;
        }
        json_array_foreach(content, k, b) {
            json_writer_object_begin(w);
            openai_write_pair(w, "role", "tool");
            openai_write_pair(w, "tool_call_id", messages_str(b, "id"));
            json_writer_key(w, "content");
            messages_write_output(w, b);
            json_writer_object_end(w);
        }
    }
    json_writer_array_end(w);
}

static void openai_write_tools(struct json_writer *w, const json_t *tools) {
    json_writer_key(w, "tools");
    json_writer_array_begin(w);
    size_t i;
    const json_t *t;
    json_array_foreach(tools, i, t) {
        json_writer_object_begin(w);
        openai_write_pair(w, "type", "function");
        json_writer_key(w, "function");
        json_writer_object_begin(w);
        openai_write_pair(w, "name", messages_str(t, "name"));
        openai_write_pair(w, "description", messages_str(t, "description"));
        json_writer_key(w, "parameters");
        json_writer_tree(w, json_object_get(t, "input_schema"));
        json_writer_object_end(w);
        json_writer_object_end(w);
    }
    json_writer_array_end(w);
}

static void openai_write_body(const struct models *m, const struct model_request *r,
                              const json_t *messages, struct json_writer *w) {
    /* OpenAI's own reasoning models refuse max_tokens; others do not know the newer name. */
    const char *max_key =
        m->opt.secrets->values[SECRET_OPENAI_BASE_URL] ? "max_tokens" : "max_completion_tokens";
    json_writer_object_begin(w);
    openai_write_pair(w, "model", r->model->id);
    json_writer_key(w, "stream");
    json_writer_bool(w, true);
    if (!extra_has(r, "stream_options")) {
        json_writer_key(w, "stream_options");
        json_writer_raw(w, "{\"include_usage\":true}", 22);
    }
    if (r->max_tokens > 0 && !extra_has(r, max_key)) {
        json_writer_key(w, max_key);
        json_writer_int(w, r->max_tokens);
    }
    if (r->temperature >= 0 && !extra_has(r, "temperature")) {
        json_writer_key(w, "temperature");
        json_writer_num(w, r->temperature);
    }
    if (json_array_size(r->tools) > 0)
        openai_write_tools(w, r->tools);
    openai_write_messages(w, r->system, messages);
    extra_write(r, w);
    json_writer_object_end(w);
}

static size_t openai_headers(const struct models *m, struct fetch_header *out, struct buf *space) {
    size_t n = 0;
    const struct secrets *s = m->opt.secrets;
    if (s->values[SECRET_OPENAI_API_KEY]) {
        (void)buf_addf(space, "Bearer %s", s->values[SECRET_OPENAI_API_KEY]);
        out[n++] = (struct fetch_header){"authorization", space->data, true};
    }
    if (s->values[SECRET_OPENAI_ORG_ID])
        out[n++] =
            (struct fetch_header){"openai-organization", s->values[SECRET_OPENAI_ORG_ID], true};
    if (s->values[SECRET_OPENAI_PROJECT_ID])
        out[n++] =
            (struct fetch_header){"openai-project", s->values[SECRET_OPENAI_PROJECT_ID], true};
    return n;
}

/* --- the answer --- */

/* Negative: it does not say, or nothing that can be believed. */
static int64_t openai_count_of(const json_t *usage, const char *key) {
    const json_t *v = json_object_get(usage, key);
    bool good = json_is_integer(v) && json_integer_value(v) <= LIMIT_MODEL_USED;
    return good ? (int64_t)json_integer_value(v) : -1;
}

static int openai_on_usage(struct model_stream *s, const json_t *usage) {
    const json_t *details = json_object_get(usage, "prompt_tokens_details");
    int64_t in = openai_count_of(usage, "prompt_tokens");
    int64_t out = openai_count_of(usage, "completion_tokens");
    int64_t cached = openai_count_of(details, "cached_tokens");
    /* Some servers send it empty until the last event. */
    s->usage_odd = s->usage_odd || ((in < 0 || out < 0) && json_object_size(usage) > 0);
    if (in < 0 || out < 0)
        return 0;
    if (cached < 0 || cached > in)
        cached = 0;
    s->usage.input_tokens = in - cached;
    s->usage.cache_read_tokens = cached;
    s->usage.output_tokens = out;
    s->input_known = s->output_known = true;
    return stream_usage(s);
}

static int openai_on_call(struct model_stream *s, const json_t *call, size_t place,
                          struct err *err) {
    const json_t *function = json_object_get(call, "function");
    const json_t *arguments = json_object_get(function, "arguments");
    const json_t *number = json_object_get(call, "index");
    const char *name = messages_str(function, "name");
    int64_t index = json_is_integer(number) ? json_integer_value(number) : (int64_t)place;
    int rc = 0;
    /* A name begins a call. Some servers repeat name and id in each piece of it. */
    bool begins = *name && !reply_tool_is_same(&s->reply, index, messages_str(call, "id"), name);
    if (begins)
        rc = reply_tool_start(&s->reply, index, messages_str(call, "id"), name, err);
    if (rc < 0 || !arguments)
        return rc;
    if (json_is_string(arguments))
        return reply_tool_delta(&s->reply, index, json_string_value(arguments),
                                json_string_length(arguments), err);
    if (!json_is_object(arguments))
        return 0;
    char *text = json_dumps(arguments, JSON_COMPACT);
    rc = reply_tool_delta(&s->reply, index, text, strlen(text), err);
    free(text);
    return rc;
}

static int openai_on_content(struct model_stream *s, const json_t *delta, const char *key,
                             bool reasoning, struct err *err) {
    const json_t *v = json_object_get(delta, key);
    if (!json_is_string(v) || json_string_length(v) == 0)
        return 0;
    return reasoning ? reply_reasoning(&s->reply, json_string_value(v), json_string_length(v), err)
                     : reply_text(&s->reply, json_string_value(v), json_string_length(v), err);
}

static void openai_on_reason(struct model_stream *s, const char *reason) {
    static const struct {
        const char *name;
        enum model_stop stop;
    } reasons[] = {{"stop", MODEL_STOP_END},
                   {"tool_calls", MODEL_STOP_TOOL_CALLS},
                   {"function_call", MODEL_STOP_TOOL_CALLS},
                   {"length", MODEL_STOP_LENGTH},
                   {"content_filter", MODEL_STOP_REFUSAL}};
    enum model_stop stop = MODEL_STOP_OTHER;
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
        if (strcmp(reasons[i].name, reason) == 0)
            stop = reasons[i].stop;
    /* A refusal ends with "stop" as well. */
    if (s->stop == MODEL_STOP_REFUSAL)
        stop = MODEL_STOP_REFUSAL;
    /* Several servers say "stop" after a tool call. */
    if (stop == MODEL_STOP_END && reply_has_tools(&s->reply))
        stop = MODEL_STOP_TOOL_CALLS;
    stream_stop(s, stop);
}

static int openai_on_choice(struct model_stream *s, const json_t *choice, struct err *err) {
    const json_t *delta = json_object_get(choice, "delta");
    if (!delta)
        delta = json_object_get(choice, "message");
    int rc = openai_on_content(s, delta, "reasoning_content", true, err);
    if (rc == 0 && !json_object_get(delta, "reasoning_content"))
        rc = openai_on_content(s, delta, "reasoning", true, err);
    if (rc == 0)
        rc = openai_on_content(s, delta, "content", false, err);
    const json_t *refusal = json_object_get(delta, "refusal");
    if (rc == 0 && json_string_length(refusal) > 0) {
        s->stop = MODEL_STOP_REFUSAL;
        rc = openai_on_content(s, delta, "refusal", false, err);
    }
    const json_t *calls = json_object_get(delta, "tool_calls");
    for (size_t i = 0; rc == 0 && i < json_array_size(calls); i++)
        rc = openai_on_call(s, json_array_get(calls, i), i, err);
    const char *reason = messages_str(choice, "finish_reason");
    if (rc == 0 && *reason)
        openai_on_reason(s, reason);
    return rc;
}

static int openai_on_tree(struct model_stream *s, json_t *event, struct err *err) {
    int rc = 0;
    const json_t *error = json_object_get(event, "error");
    if (json_is_object(error) || json_is_string(error)) {
        const char *type = messages_str(error, "type");
        const json_t *code = json_object_get(error, "code");
        return stream_error(
            s, json_is_integer(code) ? (int)json_integer_value(code) : 0,
            *type ? type : messages_str(error, "code"),
            json_is_string(error) ? json_string_value(error) : messages_str(error, "message"), err);
    }
    const json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
    if (choice)
        rc = openai_on_choice(s, choice, err);
    const json_t *usage = json_object_get(event, "usage");
    if (rc == 0 && json_is_object(usage))
        rc = openai_on_usage(s, usage);
    return rc;
}

static int openai_on_event(struct model_stream *s, const char *data, size_t len, struct err *err) {
    if (len == 6 && memcmp(data, "[DONE]", 6) == 0) {
        if (s->state == STREAM_EVENTS)
            openai_on_reason(s, "stop");
        stream_finish(s);
        return 0;
    }
    json_t *event = NULL;
    s->retryable = true;
    int rc = event_parse(s->reply.provider, &s->high, data, len, &event, err);
    if (rc == 0)
        rc = openai_on_tree(s, event, err);
    json_decref(event);
    return rc;
}

/* --- a large event, as several --- */

/* Takes the delta. */
static void openai_add_delta(json_t *out, json_t *delta) {
    (void)json_array_append_new(out, json_pack("{s:[{s:o}]}", "choices", "delta", delta));
}

static void openai_cut_content(const json_t *delta, const char *key, json_t *out) {
    const json_t *text = json_object_get(delta, key);
    size_t at = 0;
    json_t *piece;
    while ((piece = event_piece(text, &at)))
        openai_add_delta(out, json_pack("{s:o}", key, piece));
}

static void openai_cut_call(const json_t *call, size_t place, json_t *out) {
    const json_t *function = json_object_get(call, "function");
    json_t *arguments = json_object_get(function, "arguments");
    const json_t *number = json_object_get(call, "index");
    json_int_t index = json_is_integer(number) ? json_integer_value(number) : (json_int_t)place;
    openai_add_delta(out, json_pack("{s:[{s:I,s:O?,s:{s:O?}}]}", "tool_calls", "index", index, "id",
                                    json_object_get(call, "id"), "function", "name",
                                    json_object_get(function, "name")));
    char *dumped = json_is_object(arguments) ? json_dumps(arguments, JSON_COMPACT) : NULL;
    json_t *text = dumped ? json_string(dumped) : json_incref(arguments);
    size_t at = 0;
    json_t *piece;
    while ((piece = event_piece(text, &at)))
        openai_add_delta(out, json_pack("{s:[{s:I,s:{s:o}}]}", "tool_calls", "index", index,
                                        "function", "arguments", piece));
    json_decref(text);
    free(dumped);
}

/* In the order of openai_on_choice(). */
static void openai_cut(json_t *event, json_t *out) {
    json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
    const json_t *delta = json_object_get(choice, "delta");
    if (!delta)
        delta = json_object_get(choice, "message");
    if (!delta || json_object_get(event, "error")) {
        (void)json_array_append(out, event);
        return;
    }
    bool has = json_object_get(delta, "reasoning_content") != NULL;
    openai_cut_content(delta, has ? "reasoning_content" : "reasoning", out);
    openai_cut_content(delta, "content", out);
    openai_cut_content(delta, "refusal", out);
    const json_t *calls = json_object_get(delta, "tool_calls");
    for (size_t i = 0; i < json_array_size(calls); i++)
        openai_cut_call(json_array_get(calls, i), i, out);
    (void)json_array_append_new(out,
                                json_pack("{s:[{s:{},s:O?}],s:O?}", "choices", "delta",
                                          "finish_reason", json_object_get(choice, "finish_reason"),
                                          "usage", json_object_get(event, "usage")));
}

const struct provider provider_openai = {.write = openai_write_body,
                                         .headers = openai_headers,
                                         .on_event = openai_on_event,
                                         .on_tree = openai_on_tree,
                                         .cut = openai_cut};
