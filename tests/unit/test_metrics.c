#include "front/common/metrics.h"
#include "unit/unit.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

static void test_requests_are_counted_by_route_and_class(void **state) {
    (void)state;
    struct metrics *m = metrics_create();
    metrics_request(m, "/a", 200, 50);
    metrics_request(m, "/a", 204, 700);
    metrics_request(m, "/a", 404, 20000000);
    metrics_request(m, "/b", 799, 1);
    metrics_request(m, "/b", -1, 1);
    struct buf b;
    buf_init(&b, 100000);
    metrics_write(m, &b);
    static const char *const lines[] = {
        "cay_http_requests_total{route=\"/a\",status=\"2xx\"} 2\n",
        "cay_http_requests_total{route=\"/a\",status=\"4xx\"} 1\n",
        "cay_http_requests_total{route=\"/b\",status=\"5xx\"} 2\n",
        "cay_http_request_seconds_bucket{route=\"/a\",le=\"0.0001\"} 1\n",
        "cay_http_request_seconds_bucket{route=\"/a\",le=\"0.001\"} 2\n",
        "cay_http_request_seconds_bucket{route=\"/a\",le=\"10\"} 2\n",
        "cay_http_request_seconds_bucket{route=\"/a\",le=\"+Inf\"} 3\n",
        "cay_http_request_seconds_count{route=\"/a\"} 3\n",
        "cay_http_request_seconds_sum{route=\"/a\"} 20.000750\n",
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        if (!strstr(b.data, lines[i]))
            fail_msg("missing: %s in %s", lines[i], b.data);
    buf_finish(&b);
    metrics_destroy(m);
}

static void work_long(void) {
    for (uint64_t start = uv_hrtime(); uv_hrtime() - start < 7000000;)
        ;
}

/* Twice: a turn is known when the next one begins to wait. */
static void on_timer(uv_timer_t *t) {
    if (t->data)
        work_long();
    if (uv_timer_get_repeat(t) == 0)
        return;
    uv_timer_set_repeat(t, 0);
    (void)uv_timer_start(t, on_timer, 1, 0);
}

static void on_readable(uv_poll_t *p, int status, int events) {
    (void)status;
    (void)events;
    work_long();
    (void)uv_poll_stop(p);
}

/* Seconds of the longest turn while the timer fires after so many ms, and, fd >= 0, it is read. */
static double longest_turn(uint64_t timer_ms, bool timer_works, int fd) {
    struct metrics *m = metrics_create();
    uv_loop_t loop;
    uv_timer_t timer;
    uv_poll_t poll;
    assert_int_equal(uv_loop_init(&loop), 0);
    metrics_watch(m, &loop);
    assert_int_equal(uv_timer_init(&loop, &timer), 0);
    timer.data = timer_works ? m : NULL;
    assert_int_equal(uv_timer_start(&timer, on_timer, timer_ms, 1), 0);
    if (fd >= 0) {
        assert_int_equal(uv_poll_init(&loop, &poll, fd), 0);
        assert_int_equal(uv_poll_start(&poll, UV_READABLE, on_readable), 0);
    }
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    metrics_unwatch(m);
    uv_close((uv_handle_t *)&timer, NULL);
    if (fd >= 0)
        uv_close((uv_handle_t *)&poll, NULL);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    struct buf b;
    buf_init(&b, 100000);
    metrics_write(m, &b);
    assert_null(strstr(b.data, "cay_loop_turn_seconds_count 0\n"));
    const char *longest = strstr(b.data, "\ncay_loop_longest_turn_seconds ");
    assert_non_null(longest);
    double s = strtod(longest + strlen("\ncay_loop_longest_turn_seconds "), NULL);
    buf_finish(&b);
    metrics_destroy(m);
    return s;
}

static void test_a_long_turn_of_the_loop_is_seen(void **state) {
    (void)state;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], "x", 1), 1);
    assert_true(longest_turn(20, false, fds[0]) >= 0.007);
    assert_true(longest_turn(1, true, -1) >= 0.007);
    assert_true(longest_turn(3000, false, -1) < 3.0); /* it waits, and does nothing */
    close(fds[0]);
    close(fds[1]);
}

static void test_more_routes_than_fit_are_still_counted(void **state) {
    (void)state;
    static char names[300][8];
    struct metrics *m = metrics_create();
    for (int i = 0; i < 300; i++) {
        names[i][0] = (char)('a' + i / 26 % 26);
        names[i][1] = (char)('a' + i % 26);
        metrics_request(m, names[i], 200, 1);
    }
    struct buf b;
    buf_init(&b, 1000000);
    metrics_write(m, &b);
    long sum = 0;
    static const char line[] = "\ncay_http_request_seconds_count";
    for (const char *at = b.data; (at = strstr(at, line)); at++)
        sum += strtol(strchr(at, '}') + 1, NULL, 10);
    assert_int_equal(sum, 300);
    buf_finish(&b);
    metrics_destroy(m);
}

static void test_memory_of_processes(void **state) {
    (void)state;
    assert_true(metrics_process_memory(getpid()) > 100000);
    assert_int_equal(metrics_process_memory(-1), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PLAIN(test_requests_are_counted_by_route_and_class),
        PLAIN(test_more_routes_than_fit_are_still_counted),
        PLAIN(test_a_long_turn_of_the_loop_is_seen),
        PLAIN(test_memory_of_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
