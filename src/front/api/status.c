#include "base/clock.h"
#include "base/mem.h"
#include "front/api/api.h"
#include "front/guard.h"
#include "front/sandbox/sandboxes.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STATUS_EVERY_MS = 1000 };

static void write_features(struct json_writer *w, const struct features *f) {
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

static void write_children(struct json_writer *w, const struct front *f) {
    json_writer_key(w, "children");
    json_writer_array_begin(w);
    front_children(f, write_child, w);
    json_writer_array_end(w);
}

static void write_isolates(struct json_writer *w, const struct front *f) {
    struct pool_stats st = pool_stats(f->runner->pool);
    const char *features = pool_features(f->runner->pool);
    json_writer_key(w, "isolates");
    json_writer_object_begin(w);
    json_writer_key(w, "ready");
    json_writer_int(w, (int64_t)st.ready);
    json_writer_key(w, "busy");
    json_writer_int(w, (int64_t)st.busy);
    json_writer_key(w, "waiting");
    json_writer_int(w, (int64_t)st.waiting);
    json_writer_key(w, "started_total");
    json_writer_int(w, (int64_t)st.started);
    json_writer_key(w, "memory_max_bytes"); /* of all together */
    if (f->isolates_memory_bytes > 0)
        json_writer_int(w, (int64_t)f->isolates_memory_bytes);
    else
        json_writer_null(w);
    json_writer_key(w, "features"); /* its walls and levers: the zygote's own JSON */
    json_writer_raw(w, features ? features : "null", strlen(features ? features : "null"));
    json_writer_object_end(w);
}

static void write_sandboxes(struct json_writer *w, const struct front *f) {
    static const char *const cgroups[] = {"none", "v1", "v2"};
    struct err err = {0};
    struct sandboxes_stats st = sandboxes_stats(f->sandboxes);
    const struct sandbox_features *features = sandboxes_features(f->sandboxes);
    bool available = sandboxes_check(f->sandboxes, &err) == 0;
    json_writer_key(w, "sandboxes");
    json_writer_object_begin(w);
    json_writer_key(w, "available");
    json_writer_bool(w, available);
    json_writer_key(w, "detail");
    json_writer_str(w, !available ? err.message : features ? features->detail : NULL);
    json_writer_key(w, "cgroups");
    json_writer_str(w, features && features->cgroup < 3 ? cgroups[features->cgroup] : NULL);
    json_writer_key(w, "network");
    json_writer_bool(w, network_is_there(sandboxes_network(f->sandboxes)));
    json_writer_key(w, "starting");
    json_writer_int(w, (int64_t)st.starting);
    json_writer_key(w, "running");
    json_writer_int(w, (int64_t)st.running);
    json_writer_key(w, "paused");
    json_writer_int(w, (int64_t)st.paused);
    json_writer_key(w, "execs");
    json_writer_int(w, (int64_t)st.execs);
    json_writer_key(w, "max");
    json_writer_int(w, f->config->sandboxes.max);
    json_writer_key(w, "created_total");
    json_writer_int(w, (int64_t)st.created_total);
    json_writer_key(w, "failed_total");
    json_writer_int(w, (int64_t)st.failed_total);
    json_writer_object_end(w);
}

/* Where things lie on the machine is for the operator's eyes. */
static void write_status(struct buf *b, const struct front *f, const struct identity *who) {
    struct http_stats s = http_server_stats(f->http);
    const char *provider;
    char model[MODEL_ID_BYTES + 1];
    front_model(f, &provider, model);
    bool admin = who && who->scope == KEY_SCOPE_ADMIN;
    struct json_writer w;
    json_writer_init(&w, b);
    json_writer_object_begin(&w);
    json_writer_key(&w, "version");
    json_writer_str(&w, CAY_VERSION);
    json_writer_key(&w, "uptime_ms");
    json_writer_int(&w, clock_mono_ms() - f->started_ms);
    json_writer_key(&w, "pid");
    json_writer_int(&w, getpid());
    json_writer_key(&w, "listen");
    json_writer_array_begin(&w);
    for (size_t i = 0; i < f->listeners.n; i++)
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
    write_features(&w, &f->features);
    write_children(&w, f);
    write_isolates(&w, f);
    write_sandboxes(&w, f);
    json_writer_key(&w, "memory_bytes");
    json_writer_int(&w, metrics_process_memory(getpid()));
    json_writer_key(&w, "connections");
    json_writer_int(&w, (int64_t)s.connections);
    json_writer_key(&w, "requests_total");
    json_writer_int(&w, (int64_t)s.requests_total);
    json_writer_key(&w, "require_key");
    json_writer_bool(&w, front_requires_key(f));
    json_writer_key(&w, "key");
    if (who && !who->operator_) {
        json_writer_object_begin(&w);
        json_writer_key(&w, "id");
        json_writer_str(&w, who->key_id);
        json_writer_key(&w, "name");
        json_writer_str(&w, who->name);
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

static void on_drain(void *ctx) {
    struct status_watch *w = ctx;
    w->full = false;
}

static void on_tick(uv_timer_t *t) {
    struct status_watch *w = t->data;
    if (w->req && !w->full)
        send_status(w);
}

static void on_timer_closed(uv_handle_t *h) {
    free(h->data);
}

static void on_gone(void *ctx) {
    struct status_watch *w = ctx;
    struct http_req *req = w->req;
    w->req = NULL;
    http_stream_end(req);
    uv_close((uv_handle_t *)&w->timer, on_timer_closed);
}

static void status(struct http_req *req, void *ctx) {
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
    http_res_header(req, "Cache-Control", "no-store");
    http_req_on_gone(req, on_gone, w);
    http_stream_on_drain(req, on_drain, w);
    http_stream_begin(req, 200, "text/event-stream");
    if (w->req)
        send_status(w);
    if (w->req)
        (void)uv_timer_start(&w->timer, on_tick, STATUS_EVERY_MS, STATUS_EVERY_MS);
}

void api_status_routes(struct front *f) {
    http_server_route(f->http, &(struct http_route){.methods = "GET",
                                                    .pattern = "/v1/status",
                                                    .handler = status,
                                                    .ctx = f,
                                                    .flags = FRONT_ROUTE_READ | HTTP_ROUTE_WATCH});
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
