#include "base/cleanup.h"
#include "base/json.h"
#include "base/limits.h"
#include "egress/content.h"
#include "egress/model.h"

#include <string.h>

enum {
    BYTES_PER_TOKEN = 4, /* of an answer's text, about */
    EVENT_BYTES = 32,    /* of a stream for a token: most of them are the frame around the text */
};

static void read_count(const json_t *usage, const char *key, uint64_t *ret) {
    const json_t *v = json_object_get(usage, key);
    if (json_is_integer(v) && json_integer_value(v) >= 0)
        *ret = MIN((uint64_t)json_integer_value(v), (uint64_t)LIMIT_MODEL_USED);
}

static void read_usage(struct spend_meter *m, const json_t *usage, bool final) {
    struct model_tokens *t = &m->tokens;
    if (!json_is_object(usage))
        return;
    if (m->api == EGRESS_API_ANTHROPIC) {
        read_count(usage, "input_tokens", &t->input);
        read_count(usage, "output_tokens", &t->output);
        read_count(usage, "cache_read_input_tokens", &t->cache_read);
        read_count(usage, "cache_creation_input_tokens", &t->cache_write);
    } else {
        uint64_t cached = 0;
        read_count(usage, "prompt_tokens", &t->input);
        read_count(usage, "completion_tokens", &t->output);
        read_count(json_object_get(usage, "prompt_tokens_details"), "cached_tokens", &cached);
        t->cache_read = MIN(cached, t->input);
        t->input -= t->cache_read;
    }
    m->input_told = true;
    m->output_told = true;
    m->output_final = m->output_final || final;
}

/* Whether the usage that stands beside this is the last: some servers count along the way. */
static bool is_last(const struct spend_meter *m, const json_t *event) {
    if (m->api == EGRESS_API_ANTHROPIC)
        return json_is_string(json_object_get(json_object_get(event, "delta"), "stop_reason"));
    const json_t *choices = json_object_get(event, "choices");
    return json_is_array(choices) && json_array_size(choices) == 0;
}

static bool on_event(void *ctx, const char *event, const char *data, size_t len) {
    struct spend_meter *m = ctx;
    (void)event;
    if (!memmem(data, len, "\"usage\"", 7))
        return true;
    _cleanup_(json) json_t *j = json_loadb(data, len, JSON_ALLOW_NUL, NULL);
    if (strcmp(content_text(j, "type"), "message_start") == 0)
        read_usage(m, json_object_get(json_object_get(j, "message"), "usage"), false);
    else
        read_usage(m, json_object_get(j, "usage"), is_last(m, j)); /* message_delta, or a chunk */
    return true;
}

void spend_meter_init(struct spend_meter *m, enum egress_api api, bool events) {
    *m = (struct spend_meter){.api = api, .events = events};
    sse_init(&m->sse, LIMIT_MODEL_EVENT_BYTES, on_event, m);
    buf_init(&m->whole, LIMIT_MODEL_WHOLE_BYTES);
}

void spend_meter_finish(struct spend_meter *m) {
    if (m->api == EGRESS_API_NONE)
        return;
    sse_finish(&m->sse);
    buf_finish(&m->whole);
    *m = (struct spend_meter){0};
}

void spend_meter_feed(struct spend_meter *m, const char *data, size_t len) {
    m->bytes += len;
    if (m->lost)
        return;
    if (m->events)
        m->lost = sse_feed(&m->sse, data, len, NULL) < 0;
    else
        m->lost = !buf_add(&m->whole, data, len);
}

bool spend_meter_end(struct spend_meter *m, const struct model_ask *a, bool whole,
                     struct model_tokens *ret) {
    if (!m->events && !m->lost && m->whole.len > 0) {
        _cleanup_(json) json_t *j = json_loadb(m->whole.data, m->whole.len, JSON_ALLOW_NUL, NULL);
        read_usage(m, json_object_get(j, "usage"), true);
    }
    bool input_told = m->input_told;
    bool output_told = m->output_final || (whole && m->output_told && !m->lost);
    *ret = m->tokens;
    if (!input_told)
        ret->input = a->reserved.tokens_in;
    if (!output_told) {
        ret->output = MAX(ret->output, m->bytes / (m->events ? EVENT_BYTES : BYTES_PER_TOKEN));
        /* Who leaves early may have had the server write all the same. */
        if (!whole)
            ret->output = MAX(ret->output, a->reserved.tokens_out);
    }
    return input_told && output_told;
}
