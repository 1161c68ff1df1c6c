#include "base/clock.h"
#include "base/mem.h"
#include "front/api/api.h"
#include "front/sandbox/sandboxes.h"
#include "front/server/sessions.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STATUS_EVERY_MS = 1000 };

static void api_status_write_features(struct json_writer *w, const struct features *f) {
    json_writer_key(w, "features");
    json_writer_array_begin(w);
    for (size_t i = 0; i < f->n; i++) {
        json_writer_object_begin(w);
        json_writer_key(w, "name");
        json_writer_str(w, f->items[i].name);
        json_writer_key(w, "status");
        json_writer_str(w, feature_status_name(f->items[i].status));
        json_writer_key(w, "detail");
        json_writer_str(w, f->items[i].detail);
        json_writer_key(w, "advice");
        json_writer_str(w, f->items[i].advice);
        json_writer_object_end(w);
    }
    json_writer_array_end(w);
}

static void write_child(void *ctx, const struct keeper_info *k) {
    struct json_writer *w = ctx;
    json_writer_object_begin(w);
    json_writer_key(w, "name");
    json_writer_str(w, k->name);
    json_writer_key(w, "pid");
    json_writer_int(w, k->pid);
    json_writer_key(w, "state");
    json_writer_str(w, keeper_state_name(k->state));
    json_writer_key(w, "restarts");
    json_writer_int(w, k->restarts);
    json_writer_key(w, "memory_bytes");
    json_writer_int(w, k->pid ? metrics_process_memory(k->pid) : 0);
    json_writer_key(w, "uptime_ms");
    json_writer_int(w, k->pid ? clock_mono_ms() - k->started_ms : 0);
    json_writer_object_end(w);
}

static void api_status_write_children(struct json_writer *w, const struct front *f, bool admin) {
    json_writer_key(w, "children");
    json_writer_array_begin(w);
    if (admin)
        front_children(f, write_child, w);
    json_writer_array_end(w);
}

/* A number about all keys together, which is for the operator's eyes. */
static void write_count(struct json_writer *w, const char *key, bool admin, int64_t n) {
    json_writer_key(w, key);
    if (admin)
        json_writer_int(w, n);
    else
        json_writer_null(w);
}

static void write_isolates(struct json_writer *w, const struct front *f, bool admin) {
    struct pool_stats st = pool_stats(f->runner->pool);
    const char *features = pool_features(f->runner->pool);
    json_writer_key(w, "isolates");
    json_writer_object_begin(w);
    write_count(w, "ready", admin, (int64_t)st.ready);
    write_count(w, "busy", admin, (int64_t)st.busy);
    write_count(w, "waiting", admin, (int64_t)st.waiting);
    write_count(w, "started_total", admin, (int64_t)st.started);
    json_writer_key(w, "memory_max_bytes"); /* of all together */
    if (f->isolates_memory_bytes > 0)
        json_writer_int(w, (int64_t)f->isolates_memory_bytes);
    else
        json_writer_null(w);
    json_writer_key(w, "features"); /* its walls and levers: the zygote's own JSON */
    json_writer_raw(w, features ? features : "null", strlen(features ? features : "null"));
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
    json_writer_key(w, "sandboxes");
    json_writer_object_begin(w);
    json_writer_key(w, "available");
    json_writer_bool(w, available);
    json_writer_key(w, "detail");
    json_writer_str(w, !available ? err.message : features ? features->detail : NULL);
    json_writer_key(w, "advice");
    json_writer_str(w, known ? told.advice : NULL);
    json_writer_key(w, "cgroups");
    json_writer_str(w, features && features->cgroup < 3 ? cgroups[features->cgroup] : NULL);
    json_writer_key(w, "network");
    json_writer_bool(w, network_is_there(sandboxes_network(f->sandboxes)));
    write_count(w, "starting", admin, (int64_t)st.starting);
    write_count(w, "running", admin, (int64_t)st.running);
    write_count(w, "paused", admin, (int64_t)st.paused);
    write_count(w, "execs", admin, (int64_t)st.execs);
    json_writer_key(w, "max");
    json_writer_int(w, f->config->sandboxes.max);
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
    json_writer_key(&w, "version");
    json_writer_str(&w, CAY_VERSION);
    json_writer_key(&w, "uptime_ms");
    json_writer_int(&w, clock_mono_ms() - f->started_ms);
    write_count(&w, "pid", admin, getpid());
    json_writer_key(&w, "listen");
    json_writer_array_begin(&w);
    for (size_t i = 0; admin && i < f->listeners.n; i++)
        json_writer_str(&w, f->listeners.urls[i]);
    json_writer_array_end(&w);
    json_writer_key(&w, "data_dir");
    json_writer_str(&w, admin ? f->config->data_dir : NULL);
    json_writer_key(&w, "model");
    json_writer_object_begin(&w);
    json_writer_key(&w, "provider");
    json_writer_str(&w, provider);
    json_writer_key(&w, "name");
    json_writer_str(&w, model);
    json_writer_object_end(&w);
    api_status_write_features(&w, &f->features);
    api_status_write_children(&w, f, admin);
    write_isolates(&w, f, admin);
    write_sandboxes(&w, f, admin);
    write_count(&w, "memory_bytes", admin, metrics_process_memory(getpid()));
    write_count(&w, "connections", admin, (int64_t)s.connections);
    write_count(&w, "requests_total", admin, (int64_t)s.requests_total);
    json_writer_key(&w, "require_key");
    json_writer_bool(&w, front_requires_key(f));
    json_writer_key(&w, "key");
    if (who && !who->operator_) {
        json_writer_object_begin(&w);
        json_writer_key(&w, "id");
        json_writer_str(&w, who->key_id);
        json_writer_key(&w, "name");
        json_writer_str(&w, who->name);
        json_writer_key(&w, "project");
        json_writer_str(&w, *who->project ? who->project : "default");
        json_writer_object_end(&w);
    } else {
        json_writer_null(&w);
    }
    json_writer_object_end(&w);
}

/* One page that watches: a timer and the request that it writes to. */
struct status_watch {
    uv_timer_t timer;
    struct front *front;
    struct http_req *req;
    struct identity who;
    bool full; /* it reads too slowly: what it missed does not matter */
};

static void send_status(struct status_watch *w) {
    struct buf b;
    buf_init(&b, 65536);
    write_status(&b, w->front, &w->who);
    w->full = !http_sse_send(w->req, "status", NULL, b.data, b.len);
    buf_finish(&b);
}

static void api_status_on_drain(void *ctx) {
    struct status_watch *w = ctx;
    w->full = false;
}

static void api_status_on_tick(uv_timer_t *t) {
    struct status_watch *w = t->data;
    if (w->req && !w->full)
        send_status(w);
}

static void api_status_on_timer_closed(uv_handle_t *h) {
    free(h->data);
}

static void api_status_on_gone(void *ctx) {
    struct status_watch *w = ctx;
    struct http_req *req = w->req;
    w->req = NULL;
    http_stream_end(req);
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
    struct status_watch *w = xcalloc(1, sizeof(*w));
    w->front = f;
    w->req = req;
    w->who = *front_identity(req);
    (void)uv_timer_init(f->loop, &w->timer);
    w->timer.data = w;
    http_req_on_gone(req, api_status_on_gone, w);
    http_stream_on_drain(req, api_status_on_drain, w);
    http_sse_begin(req);
    if (w->req)
        send_status(w);
    if (w->req)
        (void)uv_timer_start(&w->timer, api_status_on_tick, STATUS_EVERY_MS, STATUS_EVERY_MS);
}

void api_status_routes(struct front *f) {
    http_server_route(f->http, &(struct http_route){.methods = "GET",
                                                    .pattern = "/v1/status",
                                                    .handler = api_status_get,
                                                    .ctx = f,
                                                    .flags = FRONT_ROUTE_READ | HTTP_ROUTE_WATCH |
                                                             HTTP_ROUTE_DIRECT});
    http_server_route(f->http, &(struct http_route){.methods = "POST",
                                                    .pattern = "/v1/session",
                                                    .handler = session_create,
                                                    .ctx = f,
                                                    .flags = FRONT_ROUTE_READ});
    http_server_route(f->http, &(struct http_route){.methods = "DELETE",
                                                    .pattern = "/v1/session",
                                                    .handler = session_delete,
                                                    .ctx = f,
                                                    .flags = FRONT_ROUTE_PUBLIC});
}
