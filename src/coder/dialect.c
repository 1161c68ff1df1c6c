#include "coder/dialect.h"

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/utf8.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { VALUES_MAX = 100000 };

static const struct {
    const char *name;
    const char *path;
} dialects[DIALECT_COUNT] = {
    [DIALECT_ANTHROPIC] = {"anthropic", "/v1/messages"},
    [DIALECT_OPENAI] = {"openai", "/chat/completions"},
};

enum dialect dialect_find(const char *name) {
    unsigned i = 0;
    while (i < DIALECT_COUNT && strcmp(dialects[i].name, name) != 0)
        i++;
    return (enum dialect)i;
}

const char *dialect_name(enum dialect d) {
    return dialects[d].name;
}

const char *dialect_path(enum dialect d) {
    return dialects[d].path;
}

/* --- requests --- */

void dialect_begin(const struct dialect_request *r, struct json_writer *w) {
    json_writer_object_begin(w);
    json_put_str(w, "model", r->model);
    /* OpenAI's own models refuse the older name; servers that do not know the newer one ignore it.
     */
    json_put_int(w, r->dialect == DIALECT_OPENAI ? "max_completion_tokens" : "max_tokens",
                 r->max_tokens);
    if (r->dialect == DIALECT_ANTHROPIC)
        json_put_str(w, "system", r->system);
    json_put_array_begin(w, "messages");
    if (r->dialect == DIALECT_OPENAI) {
        json_writer_object_begin(w);
        json_put_str(w, "role", "system");
        json_put_str(w, "content", r->system);
        json_writer_object_end(w);
    }
}

void dialect_message(struct json_writer *w, bool assistant, const char *text, size_t len) {
    json_writer_object_begin(w);
    json_put_str(w, "role", assistant ? "assistant" : "user");
    json_put_text(w, "content", text, len);
    json_writer_object_end(w);
}

bool dialect_end(struct json_writer *w) {
    json_writer_array_end(w);
    json_writer_object_end(w);
    return !w->out->full;
}

/* --- answers --- */

static int64_t dialect_count_of(const json_t *obj, const char *key) {
    int64_t n = json_integer_value(json_object_get(obj, key));
    return n > 0 ? n : 0;
}

static bool dialect_add_text(struct buf *out, const json_t *text) {
    return !json_is_string(text) || buf_add(out, json_string_value(text), json_string_length(text));
}

static bool is_text(const json_t *v, const char *text) {
    return json_is_string(v) && strcmp(json_string_value(v), text) == 0;
}

static void read_stop(struct answer *a, const json_t *stop) {
    const char *name = json_string_value(stop);
    (void)snprintf(a->stop_name, sizeof(a->stop_name), "%s", name ? name : "");
    for (char *c = a->stop_name; *c; c++)
        *c = isgraph((unsigned char)*c) ? *c : '?';
    if (is_text(stop, "max_tokens") || is_text(stop, "length") ||
        is_text(stop, "model_context_window_exceeded"))
        a->stop = ANSWER_CUT;
    else if (is_text(stop, "refusal") || is_text(stop, "content_filter"))
        a->stop = ANSWER_REFUSED;
}

static bool read_anthropic(const json_t *body, struct answer *a) {
    const json_t *content = json_object_get(body, "content");
    const json_t *usage = json_object_get(body, "usage");
    const json_t *block;
    size_t i;
    if (!json_is_array(content))
        return false;
    json_array_foreach(content, i, block) {
        const json_t *type = json_object_get(block, "type");
        if (is_text(type, "text"))
            (void)dialect_add_text(&a->text, json_object_get(block, "text"));
        else if (is_text(type, "thinking"))
            (void)dialect_add_text(&a->thinking, json_object_get(block, "thinking"));
    }
    read_stop(a, json_object_get(body, "stop_reason"));
    a->input_tokens = dialect_count_of(usage, "input_tokens");
    a->output_tokens = dialect_count_of(usage, "output_tokens");
    a->cache_read_tokens = dialect_count_of(usage, "cache_read_input_tokens");
    a->cache_write_tokens = dialect_count_of(usage, "cache_creation_input_tokens");
    return true;
}

static bool read_openai(const json_t *body, struct answer *a) {
    const json_t *choice = json_array_get(json_object_get(body, "choices"), 0);
    const json_t *message = json_object_get(choice, "message");
    const json_t *content = json_object_get(message, "content");
    const json_t *refusal = json_object_get(message, "refusal");
    const json_t *usage = json_object_get(body, "usage");
    const json_t *part;
    size_t i;
    if (!json_is_object(message))
        return false;
    (void)dialect_add_text(&a->text, content);
    json_array_foreach(content, i, part) {
        (void)dialect_add_text(&a->text, json_object_get(part, "text"));
    }
    (void)dialect_add_text(&a->thinking, json_object_get(message, "reasoning_content"));
    read_stop(a, json_object_get(choice, "finish_reason"));
    if (json_string_length(refusal) > 0) {
        a->stop = ANSWER_REFUSED;
        buf_clear(&a->text);
        (void)dialect_add_text(&a->text, refusal);
    }
    a->cache_read_tokens =
        dialect_count_of(json_object_get(usage, "prompt_tokens_details"), "cached_tokens");
    a->input_tokens = dialect_count_of(usage, "prompt_tokens") - a->cache_read_tokens;
    a->input_tokens = MAX(a->input_tokens, (int64_t)0);
    a->output_tokens = dialect_count_of(usage, "completion_tokens");
    return true;
}

void answer_finish(struct answer *a) {
    buf_finish(&a->text);
    buf_finish(&a->thinking);
}

int answer_parse(enum dialect d, const char *body, size_t len, struct answer *ret,
                 struct err *err) {
    _cleanup_(json) json_t *json = NULL;
    struct answer a = {.stop = ANSWER_WHOLE};
    if (json_has_more_values(body, len, VALUES_MAX))
        return err_set(err, ERR_TOO_LARGE, "the model's answer has more than %d values",
                       VALUES_MAX);
    if (json_parse(body, len, "the model's answer", &json, err) < 0) {
        err->code = ERR_UPSTREAM;
        return -ERR_UPSTREAM;
    }
    buf_init(&a.text, LIMIT_CODER_REPLY_BYTES);
    buf_init(&a.thinking, LIMIT_CODER_REPLY_BYTES);
    bool known = d == DIALECT_ANTHROPIC ? read_anthropic(json, &a) : read_openai(json, &a);
    int rc = 0;
    if (!known)
        rc = err_set(err, ERR_UPSTREAM, "the model's answer is not one of the %s dialect",
                     dialects[d].name);
    else if (a.text.full)
        rc = err_set(err, ERR_TOO_LARGE, "the model's reply is longer than %d bytes",
                     LIMIT_CODER_REPLY_BYTES);
    if (rc < 0)
        answer_finish(&a);
    else
        *ret = a;
    return rc;
}

void answer_error_text(const char *body, size_t len, char *out, size_t size) {
    struct err err;
    _cleanup_(json) json_t *json = NULL;
    const char *text = NULL;
    size_t n = 0;
    out[0] = 0;
    if (!json_has_more_values(body, len, VALUES_MAX) &&
        json_parse(body, len, "an error", &json, &err) == 0) {
        const json_t *error = json_object_get(json, "error");
        const json_t *message = json_is_object(error) ? json_object_get(error, "message") : error;
        text = json_string_value(message);
        n = json_string_length(message);
    } else if (len > 0 && utf8_is_valid(body, len)) {
        text = body;
        n = len;
    }
    if (!text)
        return;
    n = utf8_floor(text, n, size - 1);
    memcpy(out, text, n);
    out[n] = 0;
    for (char *c = out; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = ' ';
}
