#include "base/clock.h"
#include "base/json.h"
#include "front/api/api.h"
#include "front/run/workers.h"
#include "front/sandbox/sandboxes.h"

#include <string.h>
#include <unistd.h>

extern const char openapi_json[]; /* made from openapi.json */

/* Always 200: the server answers, and a part that is missing is no reason to send nobody to it. */
static void api_health_get(struct http_req *req, void *ctx) {
    const struct front *f = ctx;
    const char *detail = disk_is_full(f->config->data_dir)
                             ? ",\"detail\":\"the disk of the server is full: nothing new is "
                               "started (507) until there is room\""
                         : store_blocked(f->store)
                             ? ",\"detail\":\"the records of the server cannot be written: nothing "
                               "new is started until they can; its log says why\""
                         : !sandboxes_are_well(f->sandboxes)
                             ? ",\"detail\":\"sandboxes are not available: /v1/status says why, "
                               "`cay doctor` on the server what to do\""
                             : "";
    char now[CLOCK_RFC3339_SIZE], body[512];
    int n = snprintf(body, sizeof(body),
                     "{\"status\":\"%s\",\"service\":\"sandbox-executor\",\"timestamp\":\"%s\","
                     "\"version\":\"" CAY_VERSION "\"%s}",
                     *detail ? "degraded" : "healthy", clock_rfc3339(clock_wall_ms(), now), detail);
    http_respond(req, 200, "application/json", body, (size_t)n);
}

/* For a load balancer: whether to send requests here. */
static void api_health_ready(struct http_req *req, void *ctx) {
    const struct front *f = ctx;
    const char *why = f->leaving                          ? "draining"
                      : disk_is_full(f->config->data_dir) ? "disk_full"
                      : store_blocked(f->store)           ? "store_blocked"
                      : !keyring_is_current(f->keys)      ? "ledger_away"
                                                          : "ready";
    bool ready = strcmp(why, "ready") == 0;
    char body[64];
    int n = snprintf(body, sizeof(body), "{\"status\":\"%s\"}", why);
    if (!ready)
        http_res_header(req, "Retry-After", "1");
    http_respond(req, ready ? 200 : 503, "application/json", body, (size_t)n);
}

static void api_health_openapi(struct http_req *req, void *ctx) {
    (void)ctx;
    http_respond(req, 200, "application/json", openapi_json, strlen(openapi_json));
}

static void api_health_gauge(struct buf *b, const char *name, const char *help, int64_t v) {
    (void)buf_addf(b, "# HELP %s %s\n# TYPE %s gauge\n%s %lld\n", name, help, name, name,
                   (long long)v);
}

static void api_health_write_up(void *ctx, const struct keeper_info *k) {
    (void)buf_addf(ctx, "cay_child_up{child=\"%s\"} %d\n", k->name, k->state == KEEPER_RUNNING);
}

static void write_restarts(void *ctx, const struct keeper_info *k) {
    (void)buf_addf(ctx, "cay_child_restarts_total{child=\"%s\"} %u\n", k->name, k->restarts);
}

static void write_memory(void *ctx, const struct keeper_info *k) {
    (void)buf_addf(ctx, "cay_child_memory_bytes{child=\"%s\"} %lld\n", k->name,
                   (long long)(k->pid ? metrics_process_memory(k->pid) : 0));
}

static void api_health_write_children(struct buf *b, const struct front *f) {
    (void)buf_add_str(b, "# HELP cay_child_up Whether a child program runs.\n"
                         "# TYPE cay_child_up gauge\n");
    front_children(f, api_health_write_up, b);
    (void)buf_add_str(b, "# HELP cay_child_restarts_total Restarts of a child program.\n"
                         "# TYPE cay_child_restarts_total counter\n");
    front_children(f, write_restarts, b);
    (void)buf_add_str(b, "# HELP cay_child_memory_bytes Resident memory of a child program.\n"
                         "# TYPE cay_child_memory_bytes gauge\n");
    front_children(f, write_memory, b);
}

static void api_health_counter(struct buf *b, const char *name, const char *help, uint64_t v) {
    (void)buf_addf(b, "# HELP %s %s\n# TYPE %s counter\n%s %llu\n", name, help, name, name,
                   (unsigned long long)v);
}

static void write_runs(struct buf *b, const struct front *f) {
    struct pool_stats p = pool_stats(f->runner->pool);
    struct compiler_stats c = compiler_stats(f->runner->compiler);
    struct facets_stats a = facets_stats(f->runner->facets);
    api_health_gauge(b, "cay_isolates_ready", "Isolates that wait for work.", (int64_t)p.ready);
    api_health_gauge(b, "cay_isolates_busy", "Isolates at work.", (int64_t)p.busy);
    api_health_gauge(b, "cay_runs_waiting", "Runs that wait for an isolate.", (int64_t)p.waiting);
    api_health_gauge(b, "cay_workers_warm", "Warm isolates of workers.",
                     (int64_t)workers_warm(f->workers));
    api_health_gauge(b, "cay_facets_running", "Databases in use.", (int64_t)a.running);
    api_health_gauge(b, "cay_compile_cache_bytes", "Size of the compile cache.",
                     (int64_t)c.cache_bytes);
    struct sandboxes_stats x = sandboxes_stats(f->sandboxes);
    api_health_gauge(b, "cay_sandboxes_running", "Sandboxes that run.", (int64_t)x.running);
    api_health_gauge(b, "cay_sandboxes_paused", "Sandboxes that are paused.", (int64_t)x.paused);
    api_health_gauge(b, "cay_sandbox_execs", "Commands that run in sandboxes.", (int64_t)x.execs);
    api_health_counter(b, "cay_sandboxes_created_total", "Sandboxes that were asked for.",
                       x.created_total);
    api_health_counter(b, "cay_sandboxes_failed_total", "Sandboxes that did not end well.",
                       x.failed_total);
    api_health_counter(b, "cay_isolates_started_total", "Isolates that were forked.", p.started);
    api_health_counter(b, "cay_runs_refused_total", "Runs refused for want of an isolate.",
                       p.refused);
    api_health_counter(b, "cay_compile_hits_total", "Programs found in the cache.", c.hits);
    api_health_counter(b, "cay_compile_misses_total", "Programs compiled.", c.misses);
    api_health_counter(b, "cay_compile_failures_total", "Programs that did not compile.",
                       c.failures);
    api_health_counter(b, "cay_facet_calls_total", "Calls of databases.", a.calls);
}

static void write_disk(struct buf *b, const struct disk_usage *d) {
    if (!d->is_known)
        return; /* yet */
    (void)buf_add_str(b, "# HELP cay_disk_bytes What the data folder takes, by what it is for; "
                         "counted once a minute.\n# TYPE cay_disk_bytes gauge\n");
    for (unsigned i = 0; i < DISK_PARTS; i++)
        (void)buf_addf(b, "cay_disk_bytes{part=\"%s\"} %lld\n", disk_part_name(i),
                       (long long)d->bytes[i]);
    api_health_gauge(b, "cay_disk_free_bytes", "What is left on the disk of the data folder.",
                     d->free_bytes);
    api_health_gauge(b, "cay_disk_counted", "1: all files were counted, 0: there are too many.",
                     d->is_whole);
}

static void write_bucket(struct buf *b, const struct mirror *m) {
    if (!m)
        return;
    struct mirror_stats s = mirror_stats(m);
    api_health_gauge(b, "cay_bucket_waiting",
                     "Artifacts to be sent to the bucket, or removed there.", s.waiting);
    api_health_gauge(b, "cay_bucket_up", "0: the last request to the bucket failed.", !*s.error);
    api_health_counter(b, "cay_bucket_sent_total", "Artifacts sent to the bucket.", s.sent);
    api_health_counter(b, "cay_bucket_removed_total", "Artifacts removed there.", s.removed);
    api_health_counter(b, "cay_bucket_recalled_total",
                       "Artifacts that were lost here and got from there.", s.recalled);
    api_health_counter(b, "cay_bucket_failures_total", "Requests to the bucket that failed.",
                       s.failed);
}

static void api_health_metrics(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct http_stats s = http_server_stats(f->http);
    struct buf b;
    buf_init(&b, 1 << 20);
    (void)buf_addf(&b, "# HELP cay_info The version.\n# TYPE cay_info gauge\n"
                       "cay_info{version=\"" CAY_VERSION "\"} 1\n");
    api_health_gauge(&b, "cay_uptime_seconds", "Time since the start.",
                     (clock_mono_ms() - f->started_ms) / 1000);
    api_health_gauge(&b, "cay_memory_bytes", "Resident memory of the front.",
                     metrics_process_memory(getpid()));
    api_health_gauge(&b, "cay_http_connections", "Open connections.", (int64_t)s.connections);
    api_health_gauge(&b, "cay_http_websockets", "Open WebSockets.", (int64_t)s.websockets);
    api_health_gauge(&b, "cay_http_requests", "Requests that are being read or answered.",
                     (int64_t)s.requests);
    api_health_gauge(&b, "cay_http_unread_bytes", "Memory for what clients have not read.",
                     (int64_t)s.unread_bytes);
    (void)buf_addf(&b,
                   "# HELP cay_http_bytes_total Bytes read and written.\n"
                   "# TYPE cay_http_bytes_total counter\n"
                   "cay_http_bytes_total{direction=\"in\"} %llu\n"
                   "cay_http_bytes_total{direction=\"out\"} %llu\n"
                   "# HELP cay_http_refused_total Connections over the limit.\n"
                   "# TYPE cay_http_refused_total counter\ncay_http_refused_total %llu\n"
                   "# HELP cay_http_cut_total Connections that were cut off because their clients "
                   "did not read.\n"
                   "# TYPE cay_http_cut_total counter\ncay_http_cut_total %llu\n",
                   (unsigned long long)s.bytes_in, (unsigned long long)s.bytes_out,
                   (unsigned long long)s.refused_total, (unsigned long long)s.cut_total);
    api_health_write_children(&b, f);
    write_runs(&b, f);
    write_disk(&b, f->disk);
    write_bucket(&b, f->mirror);
    metrics_write(f->metrics, &b);
    http_respond_buf(req, 200, "text/plain; version=0.0.4; charset=utf-8", &b);
}

void api_health_routes(struct front *f) {
    http_server_route(f->http,
                      &(struct http_route){.methods = "GET",
                                           .pattern = "/health",
                                           .handler = api_health_get,
                                           .ctx = f,
                                           .flags = FRONT_ROUTE_PUBLIC | HTTP_ROUTE_DIRECT});
    http_server_route(f->http,
                      &(struct http_route){.methods = "GET",
                                           .pattern = "/ready",
                                           .handler = api_health_ready,
                                           .ctx = f,
                                           .flags = FRONT_ROUTE_PUBLIC | HTTP_ROUTE_DIRECT});
    http_server_route(f->http,
                      &(struct http_route){.methods = "GET",
                                           .pattern = "/openapi.json",
                                           .handler = api_health_openapi,
                                           .flags = FRONT_ROUTE_PUBLIC | HTTP_ROUTE_DIRECT});
    http_server_route(f->http,
                      &(struct http_route){.methods = "GET",
                                           .pattern = "/metrics",
                                           .handler = api_health_metrics,
                                           .ctx = f,
                                           .flags = FRONT_ROUTE_ADMIN | HTTP_ROUTE_DIRECT});
}
