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

enum count { COUNT_NONE, COUNT_TOLD, COUNT_ODD };

/* A count is a whole number that a model can reach. Anything else that stands in its place (a text,
 * a fraction, less than nothing) was not understood, and is not taken for 0. */
static enum count egress_meter_read_count(const json_t *usage, const char *key, uint64_t *ret) {
    const json_t *v = json_object_get(usage, key);
    if (!v || json_is_null(v))
        return COUNT_NONE;
    if (!json_is_integer(v) || json_integer_value(v) < 0 ||
        json_integer_value(v) > LIMIT_MODEL_USED)
        return COUNT_ODD;
    *ret = (uint64_t)json_integer_value(v);
    return COUNT_TOLD;
}

/* What goes into the cache for an hour is among what goes there at all. */
static enum count egress_meter_read_cache_writes(const json_t *usage, struct model_tokens *t) {
    const json_t *parts = json_object_get(usage, "cache_creation");
    uint64_t all = t->cache_write + t->cache_write_1h;
    uint64_t hour = t->cache_write_1h;
    uint64_t rest = 0;
    enum count c = egress_meter_read_count(usage, "cache_creation_input_tokens", &all);
    enum count of_hour = egress_meter_read_count(parts, "ephemeral_1h_input_tokens", &hour);
    enum count of_rest = egress_meter_read_count(parts, "ephemeral_5m_input_tokens", &rest);
    if (c == COUNT_ODD || of_hour == COUNT_ODD || of_rest == COUNT_ODD)
        return COUNT_ODD;
    all = MAX(all, hour + rest);
    t->cache_write_1h = MIN(hour, all);
    t->cache_write = all - t->cache_write_1h;
    return COUNT_TOLD;
}

static void egress_meter_read_usage(struct spend_meter *m, const json_t *usage, bool final) {
    struct model_tokens *t = &m->tokens;
    enum count input, output, read, write = COUNT_NONE;
    if (!usage || json_is_null(usage))
        return;
    if (m->api == EGRESS_API_ANTHROPIC) {
        input = egress_meter_read_count(usage, "input_tokens", &t->input);
        output = egress_meter_read_count(usage, "output_tokens", &t->output);
        read = egress_meter_read_count(usage, "cache_read_input_tokens", &t->cache_read);
        write = egress_meter_read_cache_writes(usage, t);
    } else {
        uint64_t cached = 0;
        input = egress_meter_read_count(usage, "prompt_tokens", &t->input);
        output = egress_meter_read_count(usage, "completion_tokens", &t->output);
        read = egress_meter_read_count(json_object_get(usage, "prompt_tokens_details"),
                                       "cached_tokens", &cached);
        if (input == COUNT_TOLD) {
            t->cache_read = MIN(cached, t->input);
            t->input -= t->cache_read;
        }
    }
    m->odd = m->odd || !json_is_object(usage) || input == COUNT_ODD || output == COUNT_ODD ||
             read == COUNT_ODD || write == COUNT_ODD;
    /* Every request has some input, and every answer some output: where there is said to be none,
     * it was not counted. */
    m->input_told =
        m->input_told || t->input + t->cache_read + t->cache_write + t->cache_write_1h > 0;
    m->output_told = m->output_told || t->output > 0;
    m->output_final = m->output_final || (final && t->output > 0 && output == COUNT_TOLD);
}

/* Whether the usage that stands beside this is the last: some servers count along the way. */
static bool is_last(const struct spend_meter *m, const json_t *event) {
    if (m->api == EGRESS_API_ANTHROPIC)
        return json_is_string(json_object_get(json_object_get(event, "delta"), "stop_reason"));
    const json_t *choices = json_object_get(event, "choices");
    return json_is_array(choices) && json_array_size(choices) == 0;
}

static bool egress_meter_on_event(void *ctx, const char *event, const char *data, size_t len) {
    struct spend_meter *m = ctx;
    (void)event;
    if (!memmem(data, len, "\"usage\"", 7))
        return true;
    _cleanup_(json) json_t *j = json_read(data, len);
    if (strcmp(content_text(j, "type"), "message_start") == 0)
        egress_meter_read_usage(m, json_object_get(json_object_get(j, "message"), "usage"), false);
    else
        egress_meter_read_usage(m, json_object_get(j, "usage"),
                                is_last(m, j)); /* message_delta, or a chunk */
    return true;
}

void spend_meter_init(struct spend_meter *m, enum egress_api api, bool events) {
    *m = (struct spend_meter){.api = api, .events = events};
    sse_init(&m->sse, LIMIT_MODEL_EVENT_BYTES, egress_meter_on_event, m);
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
        _cleanup_(json) json_t *j = json_read(m->whole.data, m->whole.len);
        egress_meter_read_usage(m, json_object_get(j, "usage"), true);
    }
    bool input_told = m->input_told && !m->odd;
    bool output_told = !m->odd && (m->output_final || (whole && m->output_told && !m->lost));
    *ret = m->tokens;
    if (!input_told) {
        /* It may all have gone into a cache, as was set aside. */
        *ret = (struct model_tokens){.output = m->tokens.output};
        uint64_t *kind = a->dearest == MODEL_INPUT_HOUR    ? &ret->cache_write_1h
                         : a->dearest == MODEL_INPUT_CACHE ? &ret->cache_write
                                                           : &ret->input;
        *kind = a->reserved.tokens_in;
    }
    if (!output_told) {
        ret->output = MAX(ret->output, m->bytes / (m->events ? EVENT_BYTES : BYTES_PER_TOKEN));
        /* Who leaves early may have had the server write all the same. */
        if (!whole)
            ret->output = MAX(ret->output, a->reserved.tokens_out);
    }
    return input_told && output_told;
}
