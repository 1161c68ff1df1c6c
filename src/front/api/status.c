#include "base/cleanup.h"
#include "base/clock.h"
#include "base/mem.h"
#include "front/api/api.h"
#include "front/http/follower.h"
#include "front/sandbox/sandboxes.h"
#include "front/server/sessions.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STATUS_EVERY_MS = 1000 };

static void api_status_write_features(struct json_writer *w, const struct features *f) {
    json_put_array_begin(w, "features");
    for (size_t i = 0; i < f->n; i++) {
        json_writer_object_begin(w);
        json_put_str(w, "name", f->items[i].name);
        json_put_str(w, "status", feature_status_name(f->items[i].status));
        json_put_str(w, "detail", f->items[i].detail);
        json_put_str(w, "advice", f->items[i].advice);
        json_writer_object_end(w);
    }
    json_writer_array_end(w);
}

static void write_child(void *ctx, const struct keeper_info *k) {
    struct json_writer *w = ctx;
    json_writer_object_begin(w);
    json_put_str(w, "name", k->name);
    json_put_int(w, "pid", k->pid);
    json_put_str(w, "state", keeper_state_name(k->state));
    json_put_int(w, "restarts", k->restarts);
    json_put_int(w, "memory_bytes", k->pid ? metrics_process_memory(k->pid) : 0);
    json_put_int(w, "uptime_ms", k->pid ? clock_mono_ms() - k->started_ms : 0);
    json_writer_object_end(w);
}

static void api_status_write_children(struct json_writer *w, const struct front *f, bool admin) {
    json_put_array_begin(w, "children");
    if (admin)
        front_children(f, write_child, w);
    json_writer_array_end(w);
}

/* A number, or null: those about all keys together are for the operator's eyes. */
static void write_count(struct json_writer *w, const char *key, bool known, int64_t n) {
    if (known)
        json_put_int(w, key, n);
    else
        json_put_null(w, key);
}

static void write_isolates(struct json_writer *w, const struct front *f, bool admin) {
    struct pool_stats st = pool_stats(f->runner->pool);
    json_put_object_begin(w, "isolates");
    write_count(w, "ready", admin, (int64_t)st.ready);
    write_count(w, "busy", admin, (int64_t)st.busy);
    write_count(w, "waiting", admin, (int64_t)st.waiting);
    write_count(w, "started_total", admin, (int64_t)st.started);
    /* Of all together. */
    write_count(w, "memory_max_bytes", f->isolates_memory_bytes > 0,
                (int64_t)f->isolates_memory_bytes);
    /* Its walls and levers: the zygote's own JSON. */
    json_put_raw_str(w, "features", pool_features(f->runner->pool));
    json_writer_object_end(w);
}

static void write_sandboxes(struct json_writer *w, const struct front *f, bool admin) {
    static const char *const cgroups[] = {"none", "v1", "v2"};
    struct err err = {0};
    struct sandboxes_stats st = sandboxes_stats(f->sandboxes);
    const struct sandbox_features *features = sandboxes_features(f->sandboxes);
    bool available = sandboxes_check(f->sandboxes, &err) == 0;
    struct feature told;
    bool known = sandboxes_feature(f->sandboxes, &told);
    json_put_object_begin(w, "sandboxes");
    json_put_bool(w, "available", available);
    json_put_str(w, "detail", !available ? err.message : features ? features->detail : NULL);
    json_put_str(w, "advice", known ? told.advice : NULL);
    json_put_str(w, "cgroups", features && features->cgroup < 3 ? cgroups[features->cgroup] : NULL);
    json_put_bool(w, "network", network_is_there(sandboxes_network(f->sandboxes)));
    write_count(w, "starting", admin, (int64_t)st.starting);
    write_count(w, "running", admin, (int64_t)st.running);
    write_count(w, "paused", admin, (int64_t)st.paused);
    write_count(w, "execs", admin, (int64_t)st.execs);
    json_put_int(w, "max", f->config->sandboxes.max);
    write_count(w, "created_total", admin, (int64_t)st.created_total);
    write_count(w, "failed_total", admin, (int64_t)st.failed_total);
    json_writer_object_end(w);
}

/* Where things lie on the machine, its processes, and what all keys do together are for the
 * operator's eyes. */
static void write_status(struct buf *b, const struct front *f, const struct identity *who) {
    struct http_stats s = http_server_stats(f->http);
    const char *provider;
    char model[MODEL_ID_BYTES + 1];
    front_model(f, &provider, model);
    bool admin = who && who->server;
    struct json_writer w;
    json_writer_init(&w, b);
    json_writer_object_begin(&w);
    json_put_str(&w, "version", CAY_VERSION);
    json_put_int(&w, "uptime_ms", clock_mono_ms() - f->started_ms);
    write_count(&w, "pid", admin, getpid());
    json_put_array_begin(&w, "listen");
    for (size_t i = 0; admin && i < f->listeners.n; i++)
        json_writer_str(&w, f->listeners.urls[i]);
    json_writer_array_end(&w);
    json_put_str(&w, "data_dir", admin ? f->config->data_dir : NULL);
    json_put_object_begin(&w, "model");
    json_put_str(&w, "provider", provider);
    json_put_str(&w, "name", model);
    json_writer_object_end(&w);
    api_status_write_features(&w, &f->features);
    api_status_write_children(&w, f, admin);
    write_isolates(&w, f, admin);
    write_sandboxes(&w, f, admin);
    write_count(&w, "memory_bytes", admin, metrics_process_memory(getpid()));
    write_count(&w, "connections", admin, (int64_t)s.connections);
    write_count(&w, "requests_total", admin, (int64_t)s.requests_total);
    json_put_bool(&w, "require_key", front_requires_key(f));
    if (who && !who->operator_) {
        json_put_object_begin(&w, "key");
        json_put_str(&w, "id", who->key_id);
        json_put_str(&w, "name", who->name);
        json_put_str(&w, "project", *who->project ? who->project : "default");
        json_writer_object_end(&w);
    } else {
        json_put_null(&w, "key");
    }
    json_writer_object_end(&w);
}

/* One page that watches: a timer and the request that it writes to. What a page that reads too
 * slowly has missed does not matter. */
struct status_watch {
    struct http_follower out;
    uv_timer_t timer;
    struct front *front;
    struct identity who;
};

static enum http_next api_status_next(void *ctx) {
    struct status_watch *w = ctx;
    struct buf b;
    buf_init(&b, 65536);
    write_status(&b, w->front, &w->who);
    (void)http_follower_send(&w->out, "status", NULL, b.data, b.len);
    buf_finish(&b);
    return HTTP_NEXT_WAIT;
}

static void api_status_on_tick(uv_timer_t *t) {
    struct status_watch *w = t->data;
    http_follower_more(&w->out);
}

static void api_status_on_timer_closed(uv_handle_t *h) {
    free(h->data);
}

static void api_status_stop(void *ctx) {
    struct status_watch *w = ctx;
    uv_close((uv_handle_t *)&w->timer, api_status_on_timer_closed);
}

static void api_status_get(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    if (!http_req_accepts(req, "text/event-stream") || http_req_method(req) == HTTP_METHOD_HEAD) {
        struct buf b;
        buf_init(&b, 65536);
        write_status(&b, f, front_identity(req));
        http_respond_buf(req, 200, "application/json", &b);
        return;
    }
    static const struct http_follower_type type = {.next = api_status_next,
                                                   .free = api_status_stop};
    struct status_watch *w = xcalloc(1, sizeof(*w));
    w->front = f;
    w->who = *front_identity(req);
    (void)uv_timer_init(f->loop, &w->timer);
    w->timer.data = w;
    (void)uv_timer_start(&w->timer, api_status_on_tick, STATUS_EVERY_MS, STATUS_EVERY_MS);
    http_follower_init(&w->out, req, &type, w);
    http_follower_begin(&w->out, NULL);
    http_follower_more(&w->out);
}

void api_status_routes(struct front *f) {
    const struct http_route routes[] = {
        {"GET", "/v1/status", api_status_get, f,
         FRONT_ROUTE_READ | HTTP_ROUTE_WATCH | HTTP_ROUTE_DIRECT, 0},
        {"POST", "/v1/session", session_create, f, FRONT_ROUTE_READ, 0},
        {"DELETE", "/v1/session", session_delete, f, FRONT_ROUTE_PUBLIC, 0},
    };
    http_server_routes(f->http, routes, ARRAY_LEN(routes));
}
