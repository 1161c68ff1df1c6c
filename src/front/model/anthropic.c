/* The Messages API: https://api.anthropic.com/v1/messages and what speaks like it. */

#include "base/cleanup.h"
#include "base/limits.h"
#include "front/model/internal.h"
#include "front/model/messages.h"

#include <stdlib.h>
#include <string.h>

/* Used when neither the request nor models.json says how long an answer may be: the field is
 * mandatory here. */
enum { DEFAULT_MAX_TOKENS = 8192 };

static void write_cache(struct json_writer *w) {
    json_writer_key(w, "cache_control");
    json_writer_object_begin(w);
    json_writer_key(w, "type");
    json_writer_str(w, "ephemeral");
    json_writer_object_end(w);
}

static void anthropic_write_pair(struct json_writer *w, const char *key, const char *value) {
    json_writer_key(w, key);
    json_writer_str(w, value);
}

static void write_json_text(struct json_writer *w, const char *key, const json_t *text) {
    json_writer_key(w, key);
    json_writer_text(w, json_string_value(text), json_string_length(text));
}

/* One block; `cache` marks the end of what the next request will repeat. */
static void write_block(struct json_writer *w, const json_t *b, bool cache) {
    const char *type = messages_str(b, "type");
    if (strcmp(type, "reasoning") == 0) {
        const json_t *raw = json_object_get(b, "raw");
        if (raw && strcmp(messages_str(b, "provider"), "anthropic") == 0)
            json_writer_tree(w, raw);
        return;
    }
    json_writer_object_begin(w);
    if (strcmp(type, "text") == 0) {
        anthropic_write_pair(w, "type", "text");
        write_json_text(w, "text", json_object_get(b, "text"));
    } else if (strcmp(type, "tool_call") == 0) {
        const json_t *input = json_object_get(b, "input");
        anthropic_write_pair(w, "type", "tool_use");
        anthropic_write_pair(w, "id", messages_str(b, "id"));
        anthropic_write_pair(w, "name", messages_str(b, "name"));
        json_writer_key(w, "input");
        if (json_is_object(input))
            json_writer_tree(w, input);
        else
            json_writer_raw(w, "{}", 2);
    } else {
        anthropic_write_pair(w, "type", "tool_result");
        anthropic_write_pair(w, "tool_use_id", messages_str(b, "id"));
        json_writer_key(w, "content");
        messages_write_output(w, b);
        if (json_is_true(json_object_get(b, "is_error"))) {
            json_writer_key(w, "is_error");
            json_writer_bool(w, true);
        }
    }
    if (cache)
        write_cache(w);
    json_writer_object_end(w);
}

static bool is_sent(const json_t *b) {
    return strcmp(messages_str(b, "type"), "reasoning") != 0 ||
           (json_object_get(b, "raw") && strcmp(messages_str(b, "provider"), "anthropic") == 0);
}

static void anthropic_write_messages(struct json_writer *w, const json_t *messages) {
    json_writer_key(w, "messages");
    json_writer_array_begin(w);
    size_t n = json_array_size(messages);
    for (size_t i = 0; i < n; i++) {
        const json_t *m = json_array_get(messages, i);
        const json_t *content = json_object_get(m, "content");
        bool assistant = strcmp(messages_str(m, "role"), "assistant") == 0;
        size_t k;
        const json_t *b;
        size_t sent = 0;
        json_array_foreach(content, k, b) {
            sent += is_sent(b) ? 1 : 0;
        }
        if (sent == 0)
            continue;
        json_writer_object_begin(w);
        anthropic_write_pair(w, "role", assistant ? "assistant" : "user");
        json_writer_key(w, "content");
        json_writer_array_begin(w);
        json_array_foreach(content, k, b) {
            write_block(w, b, i + 1 == n && k + 1 == json_array_size(content) && !assistant);
        }
        json_writer_array_end(w);
        json_writer_object_end(w);
    }
    json_writer_array_end(w);
}

static void anthropic_write_tools(struct json_writer *w, const json_t *tools,
                                  const json_t *server) {
    json_writer_key(w, "tools");
    json_writer_array_begin(w);
    size_t i;
    const json_t *t;
    json_array_foreach(tools, i, t) {
        json_writer_object_begin(w);
        anthropic_write_pair(w, "name", messages_str(t, "name"));
        anthropic_write_pair(w, "description", messages_str(t, "description"));
        json_writer_key(w, "input_schema");
        json_writer_tree(w, json_object_get(t, "input_schema"));
        if (i + 1 == json_array_size(tools))
            write_cache(w);
        json_writer_object_end(w);
    }
    json_array_foreach(server, i, t) {
        json_writer_tree(w, t);
    }
    json_writer_array_end(w);
}

static void anthropic_write_body(const struct models *m, const struct model_request *r,
                                 const json_t *messages, struct json_writer *w) {
    (void)m;
    int64_t max = r->max_tokens > 0 ? r->max_tokens : r->model->max_output_tokens;
    json_writer_object_begin(w);
    anthropic_write_pair(w, "model", r->model->id);
    if (!extra_has(r, "max_tokens")) {
        json_writer_key(w, "max_tokens");
        json_writer_int(w, max > 0 ? max : DEFAULT_MAX_TOKENS);
    }
    json_writer_key(w, "stream");
    json_writer_bool(w, true);
    if (r->temperature >= 0 && !extra_has(r, "temperature")) {
        json_writer_key(w, "temperature");
        json_writer_num(w, r->temperature);
    }
    if (r->system && *r->system) {
        json_writer_key(w, "system");
        json_writer_array_begin(w);
        json_writer_object_begin(w);
        anthropic_write_pair(w, "type", "text");
        anthropic_write_pair(w, "text", r->system);
        write_cache(w);
        json_writer_object_end(w);
        json_writer_array_end(w);
    }
    if (json_array_size(r->tools) + json_array_size(r->server_tools) > 0)
        anthropic_write_tools(w, r->tools, r->server_tools);
    anthropic_write_messages(w, messages);
    extra_write(r, w);
    json_writer_object_end(w);
}

static size_t anthropic_headers(const struct models *m, struct fetch_header *out,
                                struct buf *space) {
    size_t n = 0;
    const char *token = m->opt.secrets->values[SECRET_ANTHROPIC_AUTH_TOKEN];
    const char *key = m->opt.secrets->values[SECRET_ANTHROPIC_API_KEY];
    out[n++] = (struct fetch_header){"anthropic-version", "2023-06-01", false};
    if (token) {
        (void)buf_addf(space, "Bearer %s", token);
        out[n++] = (struct fetch_header){"authorization", space->data, true};
    } else if (key) {
        out[n++] = (struct fetch_header){"x-api-key", key, true};
    }
    return n;
}

/* --- the answer --- */

/* A count that is none is told by s->usage_odd: our own estimate counts then. */
static bool anthropic_read_count(struct model_stream *s, const json_t *usage, const char *key,
                                 int64_t *ret) {
    const json_t *v = json_object_get(usage, key);
    if (!v || json_is_null(v))
        return false;
    if (!json_is_integer(v) || json_integer_value(v) < 0 ||
        json_integer_value(v) > LIMIT_MODEL_USED) {
        s->usage_odd = true;
        return false;
    }
    *ret = (int64_t)json_integer_value(v);
    return true;
}

static void anthropic_read_cache_writes(struct model_stream *s, const json_t *usage) {
    const json_t *parts = json_object_get(usage, "cache_creation");
    int64_t all = s->usage.cache_write_tokens;
    int64_t hour = s->usage.cache_write_1h_tokens;
    int64_t rest = 0;
    (void)anthropic_read_count(s, usage, "cache_creation_input_tokens", &all);
    (void)anthropic_read_count(s, parts, "ephemeral_1h_input_tokens", &hour);
    (void)anthropic_read_count(s, parts, "ephemeral_5m_input_tokens", &rest);
    s->usage.cache_write_tokens = MAX(all, hour + rest);
    s->usage.cache_write_1h_tokens = MIN(hour, s->usage.cache_write_tokens);
}

static int anthropic_on_usage(struct model_stream *s, const json_t *usage, bool final) {
    if (!usage || json_is_null(usage))
        return 0;
    s->usage_odd = s->usage_odd || !json_is_object(usage);
    bool input = anthropic_read_count(s, usage, "input_tokens", &s->usage.input_tokens);
    bool output = anthropic_read_count(s, usage, "output_tokens", &s->usage.output_tokens);
    (void)anthropic_read_count(s, usage, "cache_read_input_tokens", &s->usage.cache_read_tokens);
    anthropic_read_cache_writes(s, usage);
    (void)anthropic_read_count(s, json_object_get(usage, "server_tool_use"), "web_search_requests",
                               &s->usage.searches);
    s->input_known = s->input_known || input;
    s->output_known = final && output;
    return stream_usage(s);
}

/* The event has no other use: parts of it are kept, and may change. */
static int anthropic_on_block_start(struct model_stream *s, const json_t *event, struct err *err) {
    json_t *block = json_object_get(event, "content_block");
    const char *type = messages_str(block, "type");
    int64_t index = json_integer_value(json_object_get(event, "index"));
    if (strcmp(type, "text") == 0) {
        const json_t *text = json_object_get(block, "text");
        return reply_text(&s->reply, messages_str(block, "text"), json_string_length(text), err);
    }
    if (strcmp(type, "thinking") == 0 || strcmp(type, "redacted_thinking") == 0) {
        buf_clear(&s->signature);
        (void)buf_add_str(&s->signature, messages_str(block, "signature"));
        int rc = reply_reasoning_open(&s->reply, json_incref(block), err);
        const json_t *text = json_object_get(block, "thinking");
        if (rc == 0)
            rc = reply_reasoning(&s->reply, messages_str(block, "thinking"),
                                 json_string_length(text), err);
        return rc;
    }
    if (strcmp(type, "web_search_tool_result") == 0)
        return reply_server(&s->reply, json_incref(block), json_object_get(event, "json"),
                            s->event_bytes, err);
    if (strcmp(type, "tool_use") != 0)
        return 0;
    int rc = reply_tool_start(&s->reply, index, messages_str(block, "id"),
                              messages_str(block, "name"), err);
    /* Real streams begin with {}; some servers give the whole input here. */
    const json_t *input = json_object_get(block, "input");
    if (rc == 0 && json_object_size(input) > 0) {
        char *text = json_dumps(input, JSON_COMPACT);
        rc = reply_tool_delta(&s->reply, index, text, strlen(text), err);
        free(text);
    }
    return rc;
}

/* The member of a delta that has its text; NULL: it has none. */
static const char *delta_key(const char *type) {
    return strcmp(type, "text_delta") == 0         ? "text"
           : strcmp(type, "thinking_delta") == 0   ? "thinking"
           : strcmp(type, "input_json_delta") == 0 ? "partial_json"
           : strcmp(type, "signature_delta") == 0  ? "signature"
                                                   : NULL;
}

static int anthropic_on_delta(struct model_stream *s, const json_t *event, struct err *err) {
    const json_t *delta = json_object_get(event, "delta");
    const char *key = delta_key(messages_str(delta, "type"));
    int64_t index = json_integer_value(json_object_get(event, "index"));
    const json_t *v = key ? json_object_get(delta, key) : NULL;
    if (!json_is_string(v))
        return 0;
    const char *text = json_string_value(v);
    size_t len = json_string_length(v);
    switch (*key) {
    case 'p':
        return reply_tool_delta(&s->reply, index, text, len, err);
    case 's':
        (void)buf_add(&s->signature, text, len);
        return 0;
    default:
        if (strcmp(key, "text") == 0)
            return reply_text(&s->reply, text, len, err);
        return reply_reasoning(&s->reply, text, len, err);
    }
}

/* The thinking block goes back as it would have come in one piece. */
static void seal_thinking(struct model_stream *s) {
    struct reply_block *b = reply_open_reasoning(&s->reply);
    if (!b || !b->raw || strcmp(messages_str(b->raw, "type"), "thinking") != 0)
        return;
    (void)json_object_set_new(b->raw, "thinking",
                              json_stringn(b->text.data ? b->text.data : "", b->text.len));
    (void)json_object_set_new(
        b->raw, "signature",
        json_stringn(s->signature.data ? s->signature.data : "", s->signature.len));
}

static int anthropic_on_block_stop(struct model_stream *s, const json_t *event, struct err *err) {
    int64_t index = json_integer_value(json_object_get(event, "index"));
    if (reply_tool_is_open(&s->reply, index))
        return reply_tool_end(&s->reply, index, err);
    seal_thinking(s);
    return reply_close_text(&s->reply, err);
}

static int anthropic_on_message_delta(struct model_stream *s, const json_t *event) {
    static const struct {
        const char *name;
        enum model_stop stop;
    } reasons[] = {{"end_turn", MODEL_STOP_END},
                   {"stop_sequence", MODEL_STOP_END},
                   {"tool_use", MODEL_STOP_TOOL_CALLS},
                   {"max_tokens", MODEL_STOP_LENGTH},
                   {"model_context_window_exceeded", MODEL_STOP_LENGTH},
                   {"refusal", MODEL_STOP_REFUSAL}};
    const char *reason = messages_str(json_object_get(event, "delta"), "stop_reason");
    if (*reason) {
        enum model_stop stop = MODEL_STOP_OTHER;
        for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
            if (strcmp(reasons[i].name, reason) == 0)
                stop = reasons[i].stop;
        stream_stop(s, stop);
    }
    return anthropic_on_usage(s, json_object_get(event, "usage"), true);
}

static int anthropic_on_tree(struct model_stream *s, json_t *event, struct err *err) {
    const char *type = messages_str(event, "type");
    const json_t *error = json_object_get(event, "error");
    if (strcmp(type, "content_block_delta") == 0)
        return anthropic_on_delta(s, event, err);
    if (strcmp(type, "content_block_start") == 0)
        return anthropic_on_block_start(s, event, err);
    if (strcmp(type, "content_block_stop") == 0)
        return anthropic_on_block_stop(s, event, err);
    if (strcmp(type, "message_start") == 0)
        return anthropic_on_usage(s, json_object_get(json_object_get(event, "message"), "usage"),
                                  false);
    if (strcmp(type, "message_delta") == 0)
        return anthropic_on_message_delta(s, event);
    if (strcmp(type, "error") == 0)
        return stream_error(s, 0, messages_str(error, "type"), messages_str(error, "message"), err);
    if (strcmp(type, "message_stop") == 0)
        stream_finish(s);
    return 0;
}

static int anthropic_on_event(struct model_stream *s, const char *data, size_t len,
                              struct err *err) {
    json_t *event = NULL;
    s->retryable = true;
    int rc = event_parse(s->reply.provider, &s->high, data, len, &event, err);
    if (rc == 0)
        rc = anthropic_on_tree(s, event, err);
    json_decref(event);
    return rc;
}

/* --- a large event, as several --- */

static void anthropic_cut_text(const json_t *event, const char *type, const json_t *text,
                               json_t *out) {
    size_t at = 0;
    json_t *piece;
    while ((piece = event_piece(text, &at)))
        (void)json_array_append_new(out, json_pack("{s:s,s:O?,s:{s:s,s:o}}", "type",
                                                   "content_block_delta", "index",
                                                   json_object_get(event, "index"), "delta", "type",
                                                   type, delta_key(type), piece));
}

/* A block that begins with its content: it goes without, and then what it had comes. */
static void anthropic_cut_block(json_t *event, json_t *out) {
    json_t *block = json_object_get(event, "content_block");
    static const struct {
        const char *block, *key, *delta;
    } kinds[] = {{"text", "text", "text_delta"},
                 {"thinking", "thinking", "thinking_delta"},
                 {"tool_use", "input", "input_json_delta"}};
    size_t k = 0;
    while (k < ARRAY_LEN(kinds) && strcmp(kinds[k].block, messages_str(block, "type")) != 0)
        k++;
    (void)json_array_append(out, event);
    if (k == ARRAY_LEN(kinds)) {
        char *json = json_dumps(block, JSON_COMPACT); /* who shows it needs no tree */
        (void)json_object_set_new(event, "json", json ? json_string(json) : NULL);
        free(json);
        return;
    }
    json_t *value = json_incref(json_object_get(block, kinds[k].key));
    (void)json_object_del(block, kinds[k].key);
    char *dumped = json_object_size(value) > 0 ? json_dumps(value, JSON_COMPACT) : NULL;
    json_t *text = dumped ? json_string(dumped) : json_incref(value);
    anthropic_cut_text(event, kinds[k].delta, text, out);
    json_decref(text);
    json_decref(value);
    free(dumped);
}

static void anthropic_cut(json_t *event, json_t *out) {
    const char *type = messages_str(event, "type");
    const json_t *delta = json_object_get(event, "delta");
    const char *delta_type = messages_str(delta, "type");
    if (strcmp(type, "content_block_start") == 0)
        anthropic_cut_block(event, out);
    else if (strcmp(type, "content_block_delta") == 0 && delta_key(delta_type))
        anthropic_cut_text(event, delta_type, json_object_get(delta, delta_key(delta_type)), out);
    else
        (void)json_array_append(out, event);
}

const struct provider provider_anthropic = {.write = anthropic_write_body,
                                            .headers = anthropic_headers,
                                            .on_event = anthropic_on_event,
                                            .on_tree = anthropic_on_tree,
                                            .cut = anthropic_cut};
