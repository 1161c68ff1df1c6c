#include "front/model/model.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "front/model/internal.h"
#include "front/model/messages.h"

#include <stdlib.h>
#include <string.h>

enum { RETRY_BASE_MS = 500, DEMO_DELAY_MS = 12 };

static const struct provider *const providers[MODEL_PROVIDERS] = {
    [MODEL_ANTHROPIC] = &provider_anthropic, [MODEL_OPENAI] = &provider_openai};

const char *model_stop_name(enum model_stop stop) {
    static const char *const names[] = {[MODEL_STOP_END] = "stop",
                                        [MODEL_STOP_TOOL_CALLS] = "tool-calls",
                                        [MODEL_STOP_LENGTH] = "length",
                                        [MODEL_STOP_REFUSAL] = "content-filter",
                                        [MODEL_STOP_OTHER] = "other"};
    return names[stop];
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

static int model_check_tools(const json_t *tools, struct err *err) {
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

/* The body is written. */
static int model_send(struct model_stream *s, struct err *err) {
    if (s->body.full)
        return err_set(err, ERR_TOO_LARGE, "the conversation exceeds %d bytes",
                       LIMIT_MODEL_REQUEST_BYTES);
    int rc = stream_attempt(s, err);
    return rc < 0 ? err_wrap(err, "the base URL or the key of %s", s->reply.provider) : 0;
}

static void model_on_written(struct model_stream *s, struct stream_aside *a) {
    struct err err;
    s->body = a->body;
    a->body = (struct buf){0};
    if (model_send(s, &err) < 0)
        stream_fail(s, &err, false);
}

/* Takes the messages. */
static int model_begin(struct model_stream *s, const struct model_request *r, json_t *messages,
                       struct err *err) {
    _cleanup_(json) json_t *own = messages;
    struct json_writer w;
    if (!s->provider)
        return demo_start(s, r, messages, err);
    if (stream_is_large(s, r->bytes)) {
        struct stream_aside *a = aside_request(s, r, steal_ptr(&own));
        a->done = model_on_written;
        stream_start_aside(s, r->bytes, a);
        return 0;
    }
    json_writer_init(&w, &s->body);
    s->provider->write(s->m, r, messages, &w);
    return model_send(s, err);
}

int model_stream(struct models *m, const struct model_request *request,
                 const struct model_callbacks *callbacks, void *ctx,
                 struct model_stream **ret_stream, struct err *err) {
    _cleanup_(json) json_t *messages = NULL;
    _cleanup_(json) json_t *ids = NULL;
    int rc = model_check_tools(request->tools, err);
    if (rc == 0)
        rc = messages_normalise(request->messages, &messages, &ids, err);
    if (rc < 0)
        return rc;
    struct model_stream *s = xcalloc(1, sizeof(*s));
    s->m = m;
    s->info = *request->model;
    s->provider = providers[request->model->provider];
    s->cb = *callbacks;
    s->ctx = ctx;
    s->ids = steal_ptr(&ids);
    s->timer.data = s;
    s->deadline_ms = clock_mono_ms() + m->opt.total_timeout_ms;
    buf_init(&s->body, LIMIT_MODEL_REQUEST_BYTES);
    buf_init(&s->error_body, LIMIT_MODEL_ERROR_BYTES + 1);
    buf_init(&s->signature, m->opt.event_bytes);
    buf_init(&s->rest, LIMIT_MODEL_EVENT_BYTES);
    s->owner = xstrdup(request->owner ? request->owner : "");
    reply_init(&s->reply, &s->cb, ctx, m->opt.reply_bytes);
    s->reply.provider = model_provider_name(s->info.provider);
    s->reply.used_ids = s->ids;
    if (m->opt.intake && s->provider)
        s->reply.read_at_once = MODEL_AT_ONCE_BYTES;
    (void)uv_timer_init(m->loop, &s->timer);
    s->next = m->streams;
    s->link = &m->streams;
    if (s->next)
        s->next->link = &s->next;
    m->streams = s;
    stream_enter(s);
    rc = model_begin(s, request, steal_ptr(&messages), err);
    if (rc < 0)
        stream_drop(s);
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
    later_queue_init_next(&m->turns, loop);
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

static void model_on_turns_closed(uv_handle_t *h) {
    struct closing *c = h->data;
    for (int i = 0; i < MODEL_PROVIDERS; i++)
        free(c->m->urls[i]);
    model_catalog_destroy(c->m->catalog);
    free(c->m);
    if (c->on_closed)
        c->on_closed(c->ctx);
    free(c);
}

static void model_on_pool_closed(void *ctx) {
    struct closing *c = ctx;
    later_queue_close(&c->m->turns, model_on_turns_closed, c);
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
    fetch_pool_close(m->pool, model_on_pool_closed, c);
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

int models_find(const struct models *m, const char *name, struct model_info *ret_info,
                struct err *err) {
    struct model_info info;
    int rc = model_catalog_find(m->catalog, name, models_default_provider(m), &info, err);
    if (rc < 0)
        return rc;
    if (!has_access(m, info.provider))
        return err_set(err, ERR_UNAUTHORIZED, "the model \"%.100s\" needs a key: set %s", info.id,
                       info.provider == MODEL_ANTHROPIC ? "ANTHROPIC_API_KEY"
                                                        : "OPENAI_API_KEY or OPENAI_BASE_URL");
    *ret_info = info;
    return 0;
}

struct model_catalog *models_catalog(struct models *m) {
    return m->catalog;
}

json_t *models_list(struct models *m) {
    static const char *const told[] = {"id",      "provider",  "aliases", "usd_per_million",
                                       "context", "max_output"};
    json_t *list = json_array();
    size_t i;
    const json_t *model;
    json_array_foreach(json_object_get(model_catalog_json(m->catalog), "models"), i, model) {
        struct model_info info;
        _cleanup_(free) char *name =
            xasprintf("%s/%s", messages_str(model, "provider"), messages_str(model, "id"));
        if (models_find(m, name, &info, NULL) < 0)
            continue;
        json_t *one = json_object();
        for (size_t k = 0; k < ARRAY_LEN(told); k++)
            (void)json_object_set(one, told[k], json_object_get(model, told[k]));
        (void)json_array_append_new(list, one);
    }
    return list;
}
