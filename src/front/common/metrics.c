#include "front/common/metrics.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

enum { ROUTES_MAX = 128, BUCKETS = 8 };

static const int64_t bucket_us[BUCKETS] = {100, 500, 1000, 5000, 25000, 100000, 1000000, 10000000};

struct route_metric {
    const char *name;
    uint64_t by_class[6]; /* 1xx to 5xx */
    uint64_t buckets[BUCKETS];
    uint64_t count;
    double sum_s;
};

struct metrics {
    struct route_metric routes[ROUTES_MAX];
    size_t n;
    uv_prepare_t waits; /* the loop will wait */
    uint64_t waits_ns;  /* when it was about to the last time */
    uint64_t waited_ns; /* for how long by then, since the start */
    uint64_t turns[BUCKETS];
    uint64_t nturns;
    double turns_s, longest_s;
};

struct metrics *metrics_create(void) {
    return xcalloc(1, sizeof(struct metrics));
}

void metrics_destroy(struct metrics *m) {
    free(m);
}

static void add_time(uint64_t buckets[BUCKETS], int64_t us) {
    for (int i = 0; i < BUCKETS; i++)
        if (us <= bucket_us[i]) {
            buckets[i]++;
            break;
        }
}

/* What the loop does for descriptors it does while it "waits", as seen from a uv_check_t: only
 * libuv knows how long it slept. */
static void metrics_on_wait(uv_prepare_t *h) {
    struct metrics *m = h->data;
    uint64_t now = uv_hrtime();
    uint64_t waited = uv_metrics_idle_time(h->loop);
    uint64_t ns = now - m->waits_ns - (waited - m->waited_ns);
    bool first = m->waits_ns == 0;
    m->waits_ns = now;
    m->waited_ns = waited;
    if (first)
        return;
    double s = (double)ns / 1e9;
    add_time(m->turns, (int64_t)(ns / 1000));
    m->nturns++;
    m->turns_s += s;
    m->longest_s = MAX(m->longest_s, s);
}

void metrics_watch(struct metrics *m, struct uv_loop_s *loop) {
    (void)uv_loop_configure(loop, UV_METRICS_IDLE_TIME);
    (void)uv_prepare_init(loop, &m->waits);
    m->waits.data = m;
    (void)uv_prepare_start(&m->waits, metrics_on_wait);
    uv_unref((uv_handle_t *)&m->waits);
}

void metrics_unwatch(struct metrics *m) {
    uv_close((uv_handle_t *)&m->waits, NULL);
}

static struct route_metric *metrics_find(struct metrics *m, const char *name) {
    /* The same pattern is the same pointer, but for patterns with several routes. */
    for (size_t i = 0; i < m->n; i++)
        if (m->routes[i].name == name || strcmp(m->routes[i].name, name) == 0)
            return &m->routes[i];
    if (m->n == ROUTES_MAX)
        return &m->routes[0];
    m->routes[m->n].name = name;
    return &m->routes[m->n++];
}

void metrics_request(struct metrics *m, const char *route, int status, int64_t duration_us) {
    struct route_metric *r = metrics_find(m, route);
    int class = status / 100;
    r->by_class[class >= 1 && class <= 5 ? class : 5]++;
    add_time(r->buckets, duration_us);
    r->count++;
    r->sum_s += (double)duration_us / 1e6;
}

/* What waits for the loop waits for such a turn to end. */
static void write_turns(const struct metrics *m, struct buf *out) {
    (void)buf_add_str(out,
                      "# HELP cay_loop_turn_seconds Time that the loop was at work between two "
                      "waits.\n# TYPE cay_loop_turn_seconds histogram\n");
    uint64_t sum = 0;
    for (int b = 0; b < BUCKETS; b++) {
        sum += m->turns[b];
        (void)buf_addf(out, "cay_loop_turn_seconds_bucket{le=\"%g\"} %llu\n",
                       (double)bucket_us[b] / 1e6, (unsigned long long)sum);
    }
    (void)buf_addf(out,
                   "cay_loop_turn_seconds_bucket{le=\"+Inf\"} %llu\n"
                   "cay_loop_turn_seconds_sum %.6f\ncay_loop_turn_seconds_count %llu\n"
                   "# HELP cay_loop_longest_turn_seconds The longest of them since the start.\n"
                   "# TYPE cay_loop_longest_turn_seconds gauge\n"
                   "cay_loop_longest_turn_seconds %.6f\n",
                   (unsigned long long)m->nturns, m->turns_s, (unsigned long long)m->nturns,
                   m->longest_s);
}

void metrics_write(const struct metrics *m, struct buf *out) {
    write_turns(m, out);
    (void)buf_add_str(out, "# HELP cay_http_requests_total Answered requests.\n"
                           "# TYPE cay_http_requests_total counter\n");
    for (size_t i = 0; i < m->n; i++)
        for (int c = 1; c <= 5; c++)
            if (m->routes[i].by_class[c])
                (void)buf_addf(out, "cay_http_requests_total{route=\"%s\",status=\"%dxx\"} %llu\n",
                               m->routes[i].name, c, (unsigned long long)m->routes[i].by_class[c]);
    (void)buf_add_str(out, "# HELP cay_http_request_seconds Time from the head of a request to the "
                           "end of its answer.\n# TYPE cay_http_request_seconds histogram\n");
    for (size_t i = 0; i < m->n; i++) {
        const struct route_metric *r = &m->routes[i];
        uint64_t sum = 0;
        for (int b = 0; b < BUCKETS; b++) {
            sum += r->buckets[b];
            (void)buf_addf(out, "cay_http_request_seconds_bucket{route=\"%s\",le=\"%g\"} %llu\n",
                           r->name, (double)bucket_us[b] / 1e6, (unsigned long long)sum);
        }
        (void)buf_addf(out,
                       "cay_http_request_seconds_bucket{route=\"%s\",le=\"+Inf\"} %llu\n"
                       "cay_http_request_seconds_sum{route=\"%s\"} %.6f\n"
                       "cay_http_request_seconds_count{route=\"%s\"} %llu\n",
                       r->name, (unsigned long long)r->count, r->name, r->sum_s, r->name,
                       (unsigned long long)r->count);
    }
}

int64_t metrics_process_memory(int pid) {
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/statm", pid);
    _cleanup_(buf) struct buf b;
    buf_init(&b, 256);
    unsigned long long size = 0;
    unsigned long long resident = 0;
    if (fd_read_file(AT_FDCWD, path, &b, NULL) < 0 ||
        sscanf(b.data ? b.data : "", "%llu %llu", &size, &resident) != 2)
        return 0;
    return (int64_t)resident * sysconf(_SC_PAGESIZE);
}
