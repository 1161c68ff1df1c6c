#include "front/model/model.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rand.h"
#include "base/utf8.h"
#include "front/model/internal.h"
#include "front/model/messages.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum {
    RETRY_BASE_MS = 500,
    DEMO_DELAY_MS = 12,
    /* When the content is whole, or an error page has begun, the rest is not waited for long. */
    TAIL_MS = 5000,
    BYTES_PER_TOKEN = 4,
    MESSAGE_MAX = 300,
};

static const struct provider *const providers[MODEL_PROVIDERS] = {
    [MODEL_ANTHROPIC] = &provider_anthropic, [MODEL_OPENAI] = &provider_openai};

static int attempt(struct model_stream *s, struct err *err);
static void fail_by_fetch(struct model_stream *s, const struct err *why);

const char *model_stop_name(enum model_stop stop) {
    static const char *const names[] = {[MODEL_STOP_END] = "stop",
                                        [MODEL_STOP_TOOL_CALLS] = "tool-calls",
                                        [MODEL_STOP_LENGTH] = "length",
                                        [MODEL_STOP_REFUSAL] = "content-filter",
                                        [MODEL_STOP_OTHER] = "other"};
    return names[stop];
}

/* --- the life of a stream --- */

void stream_enter(struct model_stream *s) {
    s->depth++;
}

static void on_stream_closed(uv_handle_t *h) {
    struct model_stream *s = h->data;
    reply_finish(&s->reply);
    sse_finish(&s->sse);
    buf_finish(&s->body);
    buf_finish(&s->error_body);
    buf_finish(&s->signature);
    json_decref(s->ids);
    demo_destroy(s->demo);
    free(s);
}

void stream_leave(struct model_stream *s) {
    if (--s->depth > 0 || !s->dead)
        return;
    *s->link = s->next;
    if (s->next)
        s->next->link = s->link;
    uv_close((uv_handle_t *)&s->timer, on_stream_closed);
}

static void stop_all(struct model_stream *s) {
    (void)uv_timer_stop(&s->timer);
    fetch_cancel(s->fetch);
    s->fetch = NULL;
}

void model_stream_cancel(struct model_stream *s) {
    if (!s || s->dead)
        return;
    stream_enter(s);
    s->dead = true;
    stop_all(s);
    stream_leave(s);
}

void model_stream_pause(struct model_stream *s) {
    s->paused = true;
    if (s->fetch)
        fetch_pause(s->fetch);
    if (s->demo)
        demo_pause(s);
}

void model_stream_resume(struct model_stream *s) {
    if (!s->paused || s->dead)
        return;
    s->paused = false;
    if (s->fetch)
        fetch_resume(s->fetch);
    if (s->demo)
        demo_resume(s);
}

struct model_usage model_stream_usage(const struct model_stream *s) {
    struct model_usage u = s->usage;
    int64_t sent = (int64_t)(s->body.len / BYTES_PER_TOKEN) + 1;
    int64_t came = (int64_t)((s->reply.bytes + BYTES_PER_TOKEN - 1) / BYTES_PER_TOKEN);
    /* Before the first sign of an answer nothing is charged. A server that leaves counts out, or
     * says 0, must not make a budget endless. */
    if (!s->input_known && s->reply.count == 0)
        return u;
    if (!s->input_known || u.input_tokens + u.cache_read_tokens + u.cache_write_tokens == 0) {
        u.input_tokens = sent;
        u.estimated = true;
    }
    if (!s->output_known || (u.output_tokens == 0 && came > 0)) {
        u.output_tokens = MAX(u.output_tokens, came);
        u.estimated = true;
    }
    return u;
}

int stream_usage(struct model_stream *s) {
    struct model_usage u = model_stream_usage(s);
    if (s->cb.on_usage)
        s->cb.on_usage(s->ctx, &u);
    return s->dead ? -(int)ERR_CANCELLED : 0;
}

/* The answer is whole. The connection is worth keeping: its last bytes are on their way. */
void stream_done(struct model_stream *s) {
    struct err err;
    stream_enter(s);
    if (s->fetch)
        fetch_detach(s->fetch);
    s->fetch = NULL;
    int rc = reply_close_all(&s->reply, &err);
    if (rc == 0)
        rc = stream_usage(s);
    if (rc == 0) {
        json_t *message = reply_message(&s->reply);
        s->dead = true;
        if (s->cb.on_done)
            s->cb.on_done(s->ctx, s->stop, message);
        json_decref(message);
    }
    stream_leave(s);
}

/* --- errors --- */

/* Replaces what must not be shown in a text that came from outside: our own secrets, whatever looks
 * like a key, control characters. */
static void scrub(const struct models *m, const char *text, char *out, size_t size) {
    size_t n = 0;
    bool word = false; /* inside a word */
    while (*text && n + 12 < size) {
        size_t skip = 0;
        for (int i = 0; i < SECRET_COUNT; i++) {
            const char *v = m->opt.secrets->values[i];
            size_t len = v ? strlen(v) : 0;
            if (len >= 4 && strncmp(text, v, len) == 0 && len > skip)
                skip = len;
        }
        if (skip == 0 && !word && strncmp(text, "sk-", 3) == 0)
            skip = strcspn(text, " \t\r\n\"',;)}");
        if (skip > 0) {
            memcpy(out + n, "[redacted]", 10);
            n += 10;
            text += skip;
            word = true;
            continue;
        }
        unsigned char c = (unsigned char)*text++;
        out[n++] = c < 0x20 || c == 0x7f ? ' ' : (char)c;
        word = isalnum(c) || c == '-' || c == '_';
    }
    n = utf8_floor(out, n, n);
    out[n] = 0;
    if (!utf8_is_valid(out, n))
        (void)snprintf(out, size, "(an unreadable message)");
}

static bool has_word(const char *type, const char *const *words) {
    for (; type && *words; words++)
        if (strcmp(type, *words) == 0)
            return true;
    return false;
}

static enum err_code code_of(int status, const char *type) {
    static const char *const rate[] = {"rate_limit_error", "rate_limit_exceeded", "tokens",
                                       "requests", NULL};
    static const char *const busy[] = {"overloaded_error", "api_error",           "server_error",
                                       "timeout_error",    "service_unavailable", NULL};
    static const char *const key[] = {"authentication_error", "permission_error", "invalid_api_key",
                                      NULL};
    if (status == 401 || status == 403 || has_word(type, key))
        return ERR_UNAUTHORIZED;
    if (status == 429 || has_word(type, rate))
        return ERR_RATE;
    if (status == 408 || status == 500 || (status >= 502 && status <= 504) || status >= 520 ||
        has_word(type, busy))
        return ERR_UNAVAILABLE;
    if (status == 413 || (type && strcmp(type, "request_too_large") == 0))
        return ERR_TOO_LARGE;
    return ERR_UPSTREAM;
}

int stream_error(struct model_stream *s, int status, const char *type, const char *message,
                 struct err *err) {
    static const char *const final[] = {"insufficient_quota", "billing_error", NULL};
    const char *name = model_provider_name(s->info->provider);
    enum err_code code = code_of(status, type);
    char said[MESSAGE_MAX + 16];
    char number[32] = "";
    scrub(s->m, message ? message : "", said, sizeof(said));
    if (status > 0)
        (void)snprintf(number, sizeof(number), " (%d)", status);
    s->retryable = (code == ERR_RATE || code == ERR_UNAVAILABLE) && !has_word(type, final);
    if (s->retry_told)
        s->retryable = s->retry_wanted;
    const char *what = code == ERR_UNAUTHORIZED  ? "does not accept the key"
                       : code == ERR_RATE        ? "asks for fewer requests"
                       : code == ERR_UNAVAILABLE ? "is overloaded or failing"
                       : code == ERR_TOO_LARGE   ? "finds the conversation too long"
                                                 : "refused the request";
    const char *advice = code == ERR_UNAUTHORIZED && s->info->provider == MODEL_ANTHROPIC
                             ? "; check ANTHROPIC_API_KEY"
                         : code == ERR_UNAUTHORIZED ? "; check OPENAI_API_KEY"
                                                    : "";
    return err_set(err, code, "the model server of %s %s%s%s%s%s", name, what, number, advice,
                   *said ? ": " : "", said);
}

static void tell_error(struct model_stream *s, const struct err *err, bool retryable) {
    stop_all(s);
    int rc = s->reply.count > 0 ? stream_usage(s) : 0;
    if (rc == 0) {
        json_t *partial = s->reply.count > 0 ? reply_message(&s->reply) : NULL;
        s->dead = true;
        if (s->cb.on_error)
            s->cb.on_error(s->ctx, err, retryable, partial);
        json_decref(partial);
    }
}

static unsigned wait_ms(const struct model_stream *s) {
    uint64_t ms = s->m->opt.retry_base_ms;
    for (unsigned i = 1; i < s->attempt && ms < s->m->opt.retry_wait_ms; i++)
        ms *= 2;
    ms = MIN(ms, (uint64_t)s->m->opt.retry_wait_ms);
    /* Between half and all of it, so that many clients do not come back together. */
    ms -= rand_u64() % (ms / 2 + 1);
    return MAX((unsigned)ms, s->retry_after_ms);
}

static void on_retry(uv_timer_t *h) {
    struct model_stream *s = h->data;
    struct err err;
    stream_enter(s);
    if (attempt(s, &err) < 0)
        fail_by_fetch(s, &err);
    stream_leave(s);
}

void stream_fail(struct model_stream *s, const struct err *err, bool retryable) {
    if (s->dead)
        return;
    stream_enter(s);
    fetch_cancel(s->fetch);
    s->fetch = NULL;
    unsigned wait = wait_ms(s);
    bool again = retryable && s->reply.count == 0 && s->provider &&
                 (int)s->attempt <= s->m->opt.retries && wait <= s->m->opt.retry_wait_ms &&
                 clock_mono_ms() + wait < s->deadline_ms;
    if (!again) {
        tell_error(s, err, retryable);
    } else {
        if (s->cb.on_retry)
            s->cb.on_retry(s->ctx, s->attempt, wait, err);
        if (!s->dead) {
            uv_update_time(s->m->loop);
            (void)uv_timer_start(&s->timer, on_retry, wait, 0);
        }
    }
    stream_leave(s);
}

/* --- one attempt --- */

/* The code unit of the escape \uXXXX at text, or -1. */
static int unit_at(const char *text, const char *end) {
    int unit = 0;
    if (end - text < 6 || text[0] != '\\' || text[1] != 'u')
        return -1;
    for (int i = 2; i < 6; i++) {
        int c = tolower((unsigned char)text[i]);
        if (!isxdigit(c))
            return -1;
        unit = unit * 16 + (c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return unit;
}

/* Copies JSON text with every lone surrogate dealt with: one that ends a string is kept for the
 * next event, one that begins a string is joined with the one kept, any other becomes U+FFFD. */
static void mend_surrogates(struct model_stream *s, const char *at, size_t len, struct buf *out) {
    const char *end = at + len;
    const char *begin = at;
    while (at < end) {
        int unit = unit_at(at, end);
        if (unit < 0xd800 || unit > 0xdfff) {
            size_t n = *at == '\\' && end - at > 1 ? 2 : 1;
            (void)buf_add(out, at, n);
            at += n;
            continue;
        }
        int next = unit_at(at + 6, end);
        bool high = unit < 0xdc00;
        if (high && next >= 0xdc00 && next <= 0xdfff) {
            (void)buf_add(out, at, 12);
            at += 6;
        } else if (high && end - at > 6 && at[6] == '"') {
            s->high = unit;
        } else if (!high && s->high && at > begin && at[-1] == '"') {
            (void)buf_addf(out, "\\u%04x\\u%04x", (unsigned)s->high, (unsigned)unit);
            s->high = 0;
        } else {
            (void)buf_add_str(out, "\\ufffd");
        }
        at += 6;
    }
}

int stream_parse(struct model_stream *s, const char *data, size_t len, json_t **ret_event,
                 struct err *err) {
    int rc = json_parse(data, len, "an event of the answer", ret_event, err);
    if (rc < 0) {
        _cleanup_(buf) struct buf mended;
        buf_init(&mended, len + 64);
        mend_surrogates(s, data, len, &mended);
        rc = json_parse(mended.data ? mended.data : "", mended.len, "", ret_event, err);
    }
    return rc < 0 ? err_set(err, ERR_PROTOCOL,
                            "the model server of %s sent something that cannot be read",
                            s->reply.provider)
                  : 0;
}

static unsigned retry_after_ms(const struct fetch *f) {
    const char *ms = fetch_header(f, "retry-after-ms");
    const char *text = ms ? ms : fetch_header(f, "retry-after");
    if (!text)
        return 0;
    char *end;
    double n = strtod(text, &end);
    if (end != text && *end == 0 && n >= 0)
        return (unsigned)MIN(n * (ms ? 1 : 1000), 1e9);
    struct tm tm = {0};
    if (!strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &tm))
        return 0;
    int64_t left = (int64_t)timegm(&tm) * 1000 - clock_wall_ms();
    return left > 0 ? (unsigned)MIN(left, 1000000000) : 0;
}

static bool is_type(const char *value, const char *type) {
    return value && strncasecmp(value, type, strlen(type)) == 0;
}

static void on_head(void *ctx, struct fetch *f, int status) {
    struct model_stream *s = ctx;
    const char *type = fetch_header(f, "content-type");
    const char *again = fetch_header(f, "x-should-retry");
    s->status = status;
    s->is_events = status == 200 && !is_type(type, "text/html") &&
                   !is_type(type, "application/json") && !is_type(type, "text/plain");
    s->retry_after_ms = retry_after_ms(f);
    s->retry_told = again != NULL;
    s->retry_wanted = again && strcmp(again, "true") == 0;
    if (!s->is_events)
        fetch_set_idle_timeout(f, TAIL_MS);
}

/* What an answer that is no event stream says, as well as it can be told. */
static void fail_by_body(struct model_stream *s) {
    struct err err;
    json_t *body = NULL;
    const char *text = s->error_body.data ? s->error_body.data : "";
    const char *type = NULL;
    const char *message = "";
    if (json_parse(text, s->error_body.len, "the answer", &body, &err) == 0) {
        const json_t *error = json_object_get(body, "error");
        if (!json_is_object(error) && !json_is_string(error) && json_is_array(body))
            error = json_object_get(json_array_get(body, 0), "error");
        const json_t *from = json_is_object(error) ? error : body;
        type = messages_str(from, "type");
        if (strcmp(messages_str(from, "code"), "insufficient_quota") == 0)
            type = "insufficient_quota";
        message = json_is_string(error)            ? json_string_value(error)
                  : *messages_str(from, "message") ? messages_str(from, "message")
                  : *messages_str(from, "detail")  ? messages_str(from, "detail")
                                                   : "";
    } else if (s->error_body.len > 0) {
        while (isspace((unsigned char)*text))
            text++;
        message = *text == '<' ? "the answer is a web page; is the base URL right?" : text;
    }
    if (s->status == 200) {
        bool said = json_is_object(json_object_get(body, "error"));
        (void)stream_error(s, 0, type,
                           said || *text == '<' ? message : "the answer is no event stream", &err);
        s->retryable = s->retryable || s->error_body.len == 0;
    } else {
        (void)stream_error(s, s->status, type, message, &err);
    }
    json_decref(body);
    stream_fail(s, &err, s->retryable);
}

static bool on_event(void *ctx, const char *event, const char *data, size_t len) {
    struct model_stream *s = ctx;
    struct err err;
    (void)event;
    bool knew = s->stop_known;
    int rc = s->provider->on_event(s, data, len, &err);
    if (s->dead)
        return false;
    if (rc < 0) {
        if (rc == -(int)ERR_LIMIT)
            s->retryable = false;
        stream_fail(s, &err, s->retryable);
        return false;
    }
    if (s->finished) {
        stream_done(s);
        return false;
    }
    if (s->stop_known && !knew)
        fetch_set_idle_timeout(s->fetch, TAIL_MS);
    return true;
}

static void on_data(void *ctx, const char *data, size_t len) {
    struct model_stream *s = ctx;
    struct err err;
    stream_enter(s);
    if (s->is_events) {
        if (sse_feed(&s->sse, data, len, &err) < 0)
            stream_fail(s, &err, false);
    } else {
        size_t room = LIMIT_MODEL_ERROR_BYTES - s->error_body.len;
        (void)buf_add(&s->error_body, data, MIN(len, room));
        if (len >= room)
            fail_by_body(s);
    }
    stream_leave(s);
}

static void fail_by_fetch(struct model_stream *s, const struct err *why) {
    const char *name = model_provider_name(s->info->provider);
    struct err err = *why;
    bool retryable = why->code == ERR_UNAVAILABLE || why->code == ERR_TIMEOUT;
    /* The detail may name hosts of the operator: it is for the log alone. */
    log_warn("model.unreachable", "provider", name, "attempt", s->attempt, "error", why->message);
    if (why->code == ERR_TIMEOUT)
        (void)err_set(&err, ERR_TIMEOUT, "the model server of %s did not answer in time", name);
    else if (s->status > 0)
        (void)err_set(&err, ERR_UNAVAILABLE,
                      "the model server of %s broke off in the middle of its answer", name);
    else if (why->code == ERR_UNAVAILABLE)
        (void)err_set(&err, ERR_UNAVAILABLE, "cannot reach the model server of %s", name);
    else
        (void)err_set(&err, why->code, "cannot talk to the model server of %s: %s", name,
                      why->code == ERR_UPSTREAM ? "its certificate or protocol is not accepted"
                                                : "its base URL is not usable");
    stream_fail(s, &err, retryable);
}

static void on_end(void *ctx, const struct err *why) {
    struct model_stream *s = ctx;
    const char *name = model_provider_name(s->info->provider);
    struct err err;
    s->fetch = NULL;
    stream_enter(s);
    if (s->status > 0 && !s->is_events)
        fail_by_body(s);
    else if (s->stop_known)
        stream_done(s); /* all but the last words came */
    else if (why)
        fail_by_fetch(s, why);
    else {
        (void)err_set(&err, ERR_UNAVAILABLE,
                      s->reply.count > 0
                          ? "the model server of %s broke off in the middle of its answer"
                          : "the model server of %s sent an empty answer",
                      name);
        stream_fail(s, &err, true);
    }
    stream_leave(s);
}

static void reset(struct model_stream *s) {
    sse_finish(&s->sse);
    sse_init(&s->sse, s->m->opt.event_bytes, on_event, s);
    buf_clear(&s->error_body);
    buf_clear(&s->signature);
    s->usage = (struct model_usage){0};
    s->input_known = s->output_known = false;
    s->status = 0;
    s->retry_after_ms = 0;
    s->retry_told = false;
    s->high = 0;
    s->is_events = s->stop_known = s->finished = s->refused = false;
}

static int attempt(struct model_stream *s, struct err *err) {
    struct models *m = s->m;
    struct fetch_header headers[PROVIDER_HEADERS_MAX + 2] = {
        {"content-type", "application/json", false}, {"accept", "text/event-stream", false}};
    struct buf space;
    int64_t left = s->deadline_ms - clock_mono_ms();
    reset(s);
    s->attempt++;
    buf_init(&space, 65536);
    size_t n = 2 + s->provider->headers(m, headers + 2, &space);
    struct fetch_options o = {.url = m->urls[s->info->provider],
                              .method = "POST",
                              .headers = headers,
                              .nheaders = n,
                              .body = s->body.data,
                              .body_len = s->body.len,
                              .connect_timeout_ms = m->opt.connect_timeout_ms,
                              .idle_timeout_ms = m->opt.idle_timeout_ms,
                              .total_timeout_ms = (unsigned)MAX(left, 1),
                              .ca_file = m->opt.ca_file,
                              .on_head = on_head,
                              .on_data = on_data,
                              .on_end = on_end,
                              .ctx = s};
    int rc = fetch_start(m->pool, &o, &s->fetch, err);
    if (space.data)
        mem_wipe(space.data, space.cap);
    buf_finish(&space);
    if (rc == 0 && s->paused)
        fetch_pause(s->fetch);
    return rc;
}

/* --- starting --- */

bool extra_has(const struct model_request *r, const char *key) {
    return json_object_get(r->model->extra, key) != NULL;
}

void extra_write(const struct model_request *r, struct json_writer *w) {
    const char *key;
    json_t *value;
    json_object_foreach(r->model->extra, key, value) {
        if (json_is_null(value))
            continue;
        json_writer_key(w, key);
        json_writer_tree(w, value);
    }
}

static int check_tools(const json_t *tools, struct err *err) {
    size_t i;
    const json_t *t;
    if (tools && !json_is_array(tools))
        return err_set(err, ERR_BAD_REQUEST, "tools must be a list");
    json_array_foreach(tools, i, t) {
        if (!*messages_str(t, "name") || !json_is_object(json_object_get(t, "input_schema")))
            return err_set(err, ERR_BAD_REQUEST, "tools[%zu] needs \"name\" and \"input_schema\"",
                           i);
    }
    return 0;
}

static int begin(struct model_stream *s, const struct model_request *r, const json_t *messages,
                 struct err *err) {
    struct json_writer w;
    if (!s->provider)
        return demo_start(s, r, messages, err);
    json_writer_init(&w, &s->body);
    s->provider->write(s->m, r, messages, &w);
    if (s->body.full)
        return err_set(err, ERR_TOO_LARGE, "the conversation exceeds %d bytes",
                       LIMIT_MODEL_REQUEST_BYTES);
    return 0;
}

int model_stream(struct models *m, const struct model_request *request,
                 const struct model_callbacks *callbacks, void *ctx,
                 struct model_stream **ret_stream, struct err *err) {
    _cleanup_(json) json_t *messages = NULL;
    _cleanup_(json) json_t *ids = NULL;
    int rc = check_tools(request->tools, err);
    if (rc == 0)
        rc = messages_normalise(request->messages, &messages, &ids, err);
    if (rc < 0)
        return rc;
    struct model_stream *s = xcalloc(1, sizeof(*s));
    s->m = m;
    s->info = request->model;
    s->provider = providers[request->model->provider];
    s->cb = *callbacks;
    s->ctx = ctx;
    s->ids = steal_ptr(&ids);
    s->timer.data = s;
    s->deadline_ms = clock_mono_ms() + m->opt.total_timeout_ms;
    buf_init(&s->body, LIMIT_MODEL_REQUEST_BYTES);
    buf_init(&s->error_body, LIMIT_MODEL_ERROR_BYTES + 1);
    buf_init(&s->signature, m->opt.event_bytes);
    sse_init(&s->sse, m->opt.event_bytes, on_event, s);
    reply_init(&s->reply, &s->cb, ctx, &s->dead, m->opt.reply_bytes);
    s->reply.provider = model_provider_name(s->info->provider);
    s->reply.used_ids = s->ids;
    (void)uv_timer_init(m->loop, &s->timer);
    s->next = m->streams;
    s->link = &m->streams;
    if (s->next)
        s->next->link = &s->next;
    m->streams = s;
    stream_enter(s);
    rc = begin(s, request, messages, err);
    if (rc == 0 && s->provider) {
        rc = attempt(s, err);
        if (rc < 0)
            rc = err_wrap(err, "the base URL or the key of %s", s->reply.provider);
    }
    if (rc < 0)
        s->dead = true;
    else
        *ret_stream = s;
    stream_leave(s);
    return rc;
}

/* --- the models --- */

static char *make_url(const char *base, const char *usual, const char *version, const char *path) {
    size_t n = strlen(base ? base : usual);
    base = base ? base : usual;
    while (n > 0 && base[n - 1] == '/')
        n--;
    size_t v = strlen(version);
    bool has = n >= v && strncmp(base + n - v, version, v) == 0;
    return xasprintf("%.*s%s%s", (int)n, base, has ? "" : version, path);
}

int models_create(uv_loop_t *loop, const struct models_options *options, struct models **ret_models,
                  struct err *err) {
    struct models *m = xcalloc(1, sizeof(*m));
    struct models_options *o = &m->opt;
    *o = *options;
    m->loop = loop;
    o->connect_timeout_ms = o->connect_timeout_ms ? o->connect_timeout_ms : LIMIT_MODEL_CONNECT_MS;
    o->idle_timeout_ms = o->idle_timeout_ms ? o->idle_timeout_ms : LIMIT_MODEL_IDLE_MS;
    o->total_timeout_ms = o->total_timeout_ms ? o->total_timeout_ms : LIMIT_MODEL_TOTAL_MS;
    o->reply_bytes = o->reply_bytes ? o->reply_bytes : LIMIT_MODEL_REPLY_BYTES;
    o->event_bytes = o->event_bytes ? o->event_bytes : LIMIT_MODEL_EVENT_BYTES;
    o->retries = o->retries == 0 ? LIMIT_MODEL_RETRIES : MAX(o->retries, 0);
    o->retry_base_ms = o->retry_base_ms ? o->retry_base_ms : RETRY_BASE_MS;
    o->retry_wait_ms = o->retry_wait_ms ? o->retry_wait_ms : LIMIT_MODEL_RETRY_WAIT_MS;
    o->demo_delay_ms = o->demo_delay_ms < 0 ? DEMO_DELAY_MS : o->demo_delay_ms;
    int rc = model_catalog_load(o->file, &m->catalog, err);
    if (rc == 0)
        rc = fetch_pool_create(loop, LIMIT_MODEL_CONNECTIONS, &m->pool, err);
    if (rc < 0) {
        model_catalog_destroy(m->catalog);
        free(m);
        return rc;
    }
    char *const *v = o->secrets->values;
    m->urls[MODEL_ANTHROPIC] =
        make_url(v[SECRET_ANTHROPIC_BASE_URL], "https://api.anthropic.com", "/v1", "/messages");
    m->urls[MODEL_OPENAI] =
        make_url(v[SECRET_OPENAI_BASE_URL], "https://api.openai.com/v1", "", "/chat/completions");
    *ret_models = m;
    return 0;
}

struct closing {
    struct models *m;
    void (*on_closed)(void *ctx);
    void *ctx;
};

static void on_pool_closed(void *ctx) {
    struct closing *c = ctx;
    for (int i = 0; i < MODEL_PROVIDERS; i++)
        free(c->m->urls[i]);
    model_catalog_destroy(c->m->catalog);
    free(c->m);
    if (c->on_closed)
        c->on_closed(c->ctx);
    free(c);
}

void models_close(struct models *m, void (*on_closed)(void *ctx), void *ctx) {
    if (!m)
        return;
    for (struct model_stream *s = m->streams, *next; s; s = next) {
        next = s->next;
        model_stream_cancel(s);
    }
    struct closing *c = xmalloc(sizeof(*c));
    *c = (struct closing){m, on_closed, ctx};
    fetch_pool_close(m->pool, on_pool_closed, c);
}

static bool has_access(const struct models *m, enum model_provider p) {
    char *const *v = m->opt.secrets->values;
    if (p == MODEL_ANTHROPIC)
        return v[SECRET_ANTHROPIC_API_KEY] || v[SECRET_ANTHROPIC_AUTH_TOKEN];
    return p == MODEL_DEMO || v[SECRET_OPENAI_API_KEY] || v[SECRET_OPENAI_BASE_URL];
}

enum model_provider models_default_provider(const struct models *m) {
    for (int i = 0; i < MODEL_PROVIDERS; i++)
        if (has_access(m, (enum model_provider)i))
            return (enum model_provider)i;
    return MODEL_DEMO;
}

int models_find(struct models *m, const char *name, const struct model_info **ret_info,
                struct err *err) {
    const struct model_info *info;
    int rc = model_catalog_find(m->catalog, name, models_default_provider(m), &info, err);
    if (rc < 0)
        return rc;
    if (!has_access(m, info->provider))
        return err_set(err, ERR_UNAUTHORIZED, "the model \"%.100s\" needs a key: set %s", info->id,
                       info->provider == MODEL_ANTHROPIC ? "ANTHROPIC_API_KEY"
                                                         : "OPENAI_API_KEY or OPENAI_BASE_URL");
    *ret_info = info;
    return 0;
}

struct model_catalog *models_catalog(struct models *m) {
    return m->catalog;
}
