#include "base/clock.h"
#include "base/json.h"
#include "front/api/api.h"
#include "front/run/workers.h"
#include "front/sandbox/sandboxes.h"

#include <string.h>
#include <unistd.h>

extern const char openapi_json[]; /* made from openapi.json */

static void health(struct http_req *req, void *ctx) {
    (void)ctx;
    static const char before[] = "{\"status\":\"healthy\",\"service\":\"sandbox-executor\","
                                 "\"timestamp\":\"";
    static const char after[] = "\",\"version\":\"" CAY_VERSION "\"}";
    char body[sizeof(before) + CLOCK_RFC3339_SIZE + sizeof(after)];
    memcpy(body, before, sizeof(before) - 1);
    char *p = body + sizeof(before) - 1;
    p += strlen(clock_rfc3339(clock_wall_ms(), p));
    memcpy(p, after, sizeof(after) - 1);
    http_respond(req, 200, "application/json", body, (size_t)(p - body) + sizeof(after) - 1);
}

static void openapi(struct http_req *req, void *ctx) {
    (void)ctx;
    http_respond(req, 200, "application/json", openapi_json, strlen(openapi_json));
}

static void gauge(struct buf *b, const char *name, const char *help, int64_t v) {
    (void)buf_addf(b, "# HELP %s %s\n# TYPE %s gauge\n%s %lld\n", name, help, name, name,
                   (long long)v);
}

static void write_up(void *ctx, const struct keeper_info *k) {
    (void)buf_addf(ctx, "cay_child_up{child=\"%s\"} %d\n", k->name, k->state == KEEPER_RUNNING);
}

static void write_restarts(void *ctx, const struct keeper_info *k) {
    (void)buf_addf(ctx, "cay_child_restarts_total{child=\"%s\"} %u\n", k->name, k->restarts);
}

static void write_memory(void *ctx, const struct keeper_info *k) {
    (void)buf_addf(ctx, "cay_child_memory_bytes{child=\"%s\"} %lld\n", k->name,
                   (long long)(k->pid ? metrics_process_memory(k->pid) : 0));
}

static void write_children(struct buf *b, const struct front *f) {
    (void)buf_add_str(b, "# HELP cay_child_up Whether a child program runs.\n"
                         "# TYPE cay_child_up gauge\n");
    front_children(f, write_up, b);
    (void)buf_add_str(b, "# HELP cay_child_restarts_total Restarts of a child program.\n"
                         "# TYPE cay_child_restarts_total counter\n");
    front_children(f, write_restarts, b);
    (void)buf_add_str(b, "# HELP cay_child_memory_bytes Resident memory of a child program.\n"
                         "# TYPE cay_child_memory_bytes gauge\n");
    front_children(f, write_memory, b);
}

static void counter(struct buf *b, const char *name, const char *help, uint64_t v) {
    (void)buf_addf(b, "# HELP %s %s\n# TYPE %s counter\n%s %llu\n", name, help, name, name,
                   (unsigned long long)v);
}

static void write_runs(struct buf *b, const struct front *f) {
    struct pool_stats p = pool_stats(f->runner->pool);
    struct compiler_stats c = compiler_stats(f->runner->compiler);
    struct facets_stats a = facets_stats(f->runner->facets);
    gauge(b, "cay_isolates_ready", "Isolates that wait for work.", (int64_t)p.ready);
    gauge(b, "cay_isolates_busy", "Isolates at work.", (int64_t)p.busy);
    gauge(b, "cay_runs_waiting", "Runs that wait for an isolate.", (int64_t)p.waiting);
    gauge(b, "cay_workers_warm", "Warm isolates of workers.", (int64_t)workers_warm(f->workers));
    gauge(b, "cay_facets_running", "Databases in use.", (int64_t)a.running);
    gauge(b, "cay_compile_cache_bytes", "Size of the compile cache.", (int64_t)c.cache_bytes);
    struct sandboxes_stats x = sandboxes_stats(f->sandboxes);
    gauge(b, "cay_sandboxes_running", "Sandboxes that run.", (int64_t)x.running);
    gauge(b, "cay_sandboxes_paused", "Sandboxes that are paused.", (int64_t)x.paused);
    gauge(b, "cay_sandbox_execs", "Commands that run in sandboxes.", (int64_t)x.execs);
    counter(b, "cay_sandboxes_created_total", "Sandboxes that were asked for.", x.created_total);
    counter(b, "cay_sandboxes_failed_total", "Sandboxes that did not end well.", x.failed_total);
    counter(b, "cay_isolates_started_total", "Isolates that were forked.", p.started);
    counter(b, "cay_runs_refused_total", "Runs refused for want of an isolate.", p.refused);
    counter(b, "cay_compile_hits_total", "Programs found in the cache.", c.hits);
    counter(b, "cay_compile_misses_total", "Programs compiled.", c.misses);
    counter(b, "cay_compile_failures_total", "Programs that did not compile.", c.failures);
    counter(b, "cay_facet_calls_total", "Calls of databases.", a.calls);
}

static void write_disk(struct buf *b, const struct disk_usage *d) {
    if (!d->is_known)
        return; /* yet */
    (void)buf_add_str(b, "# HELP cay_disk_bytes What the data folder takes, by what it is for; "
                         "counted once a minute.\n# TYPE cay_disk_bytes gauge\n");
    for (unsigned i = 0; i < DISK_PARTS; i++)
        (void)buf_addf(b, "cay_disk_bytes{part=\"%s\"} %lld\n", disk_part_name(i),
                       (long long)d->bytes[i]);
    gauge(b, "cay_disk_free_bytes", "What is left on the disk of the data folder.", d->free_bytes);
    gauge(b, "cay_disk_counted", "1: all files were counted, 0: there are too many.", d->is_whole);
}

static void write_bucket(struct buf *b, const struct mirror *m) {
    if (!m)
        return;
    struct mirror_stats s = mirror_stats(m);
    gauge(b, "cay_bucket_waiting", "Artifacts to be sent to the bucket, or removed there.",
          s.waiting);
    gauge(b, "cay_bucket_up", "0: the last request to the bucket failed.", !*s.error);
    counter(b, "cay_bucket_sent_total", "Artifacts sent to the bucket.", s.sent);
    counter(b, "cay_bucket_removed_total", "Artifacts removed there.", s.removed);
    counter(b, "cay_bucket_recalled_total", "Artifacts that were lost here and got from there.",
            s.recalled);
    counter(b, "cay_bucket_failures_total", "Requests to the bucket that failed.", s.failed);
}

static void metrics(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct http_stats s = http_server_stats(f->http);
    struct buf b;
    buf_init(&b, 1 << 20);
    (void)buf_addf(&b, "# HELP cay_info The version.\n# TYPE cay_info gauge\n"
                       "cay_info{version=\"" CAY_VERSION "\"} 1\n");
    gauge(&b, "cay_uptime_seconds", "Time since the start.",
          (clock_mono_ms() - f->started_ms) / 1000);
    gauge(&b, "cay_memory_bytes", "Resident memory of the front.",
          metrics_process_memory(getpid()));
    gauge(&b, "cay_http_connections", "Open connections.", (int64_t)s.connections);
    gauge(&b, "cay_http_websockets", "Open WebSockets.", (int64_t)s.websockets);
    gauge(&b, "cay_http_requests", "Requests that are being read or answered.",
          (int64_t)s.requests);
    (void)buf_addf(&b,
                   "# HELP cay_http_bytes_total Bytes read and written.\n"
                   "# TYPE cay_http_bytes_total counter\n"
                   "cay_http_bytes_total{direction=\"in\"} %llu\n"
                   "cay_http_bytes_total{direction=\"out\"} %llu\n"
                   "# HELP cay_http_refused_total Connections over the limit.\n"
                   "# TYPE cay_http_refused_total counter\ncay_http_refused_total %llu\n",
                   (unsigned long long)s.bytes_in, (unsigned long long)s.bytes_out,
                   (unsigned long long)s.refused_total);
    write_children(&b, f);
    write_runs(&b, f);
    write_disk(&b, f->disk);
    write_bucket(&b, f->mirror);
    metrics_write(f->metrics, &b);
    http_respond_buf(req, 200, "text/plain; version=0.0.4; charset=utf-8", &b);
}

void api_health_routes(struct front *f) {
    http_server_route(f->http, &(struct http_route){.methods = "GET",
                                                    .pattern = "/health",
                                                    .handler = health,
                                                    .flags = FRONT_ROUTE_PUBLIC});
    http_server_route(f->http, &(struct http_route){.methods = "GET",
                                                    .pattern = "/openapi.json",
                                                    .handler = openapi,
                                                    .flags = FRONT_ROUTE_PUBLIC});
    http_server_route(f->http, &(struct http_route){.methods = "GET",
                                                    .pattern = "/metrics",
                                                    .handler = metrics,
                                                    .ctx = f,
                                                    .flags = FRONT_ROUTE_READ});
}
