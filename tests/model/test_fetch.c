#include "unit/unit.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/mem.h"
#include "loop/fetch.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A server on the same loop: answers each request with `answer`, whatever it asks. */
struct server {
    uv_tcp_t listener;
    const char *answer;
    unsigned connections;
    unsigned requests;
    char last[8192];
    char url[64];
};

struct peer {
    uv_tcp_t tcp;
    struct server *server;
    char in[8192];
    size_t len;
};

/* One fetch as a test sees it. */
struct got {
    struct fetch *f;
    int status;
    struct buf body;
    bool ended;
    bool failed;
    struct err err;
    unsigned asked; /* on_address */
    bool refuse;
    void (*on_data)(struct got *g);
    void (*on_head)(struct got *g);
    void (*on_end)(struct got *g);
};

static uv_loop_t loop;
static struct fetch_pool *pool;
static struct server server;
static uv_timer_t limit;

static void on_peer_closed(uv_handle_t *h) {
    free(h->data);
}

static void on_write(uv_write_t *w, int status) {
    (void)status;
    free(w);
}

static void on_alloc(uv_handle_t *h, size_t n, uv_buf_t *b) {
    struct peer *p = h->data;
    (void)n;
    *b = uv_buf_init(p->in + p->len, (unsigned)(sizeof(p->in) - p->len - 1));
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b) {
    struct peer *p = s->data;
    (void)b;
    if (n < 0) {
        uv_close((uv_handle_t *)s, on_peer_closed);
        return;
    }
    p->len += (size_t)n;
    p->in[p->len] = 0;
    if (!strstr(p->in, "\r\n\r\n"))
        return;
    p->server->requests++;
    (void)snprintf(p->server->last, sizeof(p->server->last), "%s", p->in);
    p->len = 0;
    uv_write_t *w = xmalloc(sizeof(*w));
    uv_buf_t out = uv_buf_init((char *)p->server->answer, (unsigned)strlen(p->server->answer));
    assert_int_equal(uv_write(w, s, &out, 1, on_write), 0);
}

static void on_connection(uv_stream_t *s, int status) {
    struct server *sv = s->data;
    struct peer *p = xcalloc(1, sizeof(*p));
    assert_int_equal(status, 0);
    p->server = sv;
    p->tcp.data = p;
    sv->connections++;
    (void)uv_tcp_init(&loop, &p->tcp);
    assert_int_equal(uv_accept(s, (uv_stream_t *)&p->tcp), 0);
    assert_int_equal(uv_read_start((uv_stream_t *)&p->tcp, on_alloc, on_read), 0);
}

static void on_limit(uv_timer_t *t) {
    (void)t;
    fail_msg("nothing happens for 10 s");
}

static int setup(void **state) {
    (void)state;
    struct err err;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int len = sizeof(a);
    (void)uv_loop_init(&loop);
    server =
        (struct server){.answer = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nX-One: 1\r\n\r\nhello"};
    (void)uv_tcp_init(&loop, &server.listener);
    server.listener.data = &server;
    assert_int_equal(uv_tcp_bind(&server.listener, (struct sockaddr *)&a, 0), 0);
    assert_int_equal(uv_listen((uv_stream_t *)&server.listener, 16, on_connection), 0);
    assert_int_equal(uv_tcp_getsockname(&server.listener, (struct sockaddr *)&a, &len), 0);
    (void)snprintf(server.url, sizeof(server.url), "http://127.0.0.1:%u/x", ntohs(a.sin_port));
    (void)uv_timer_init(&loop, &limit);
    assert_int_equal(fetch_pool_create(&loop, 16, &pool, &err), 0);
    return 0;
}

static void close_all(uv_handle_t *h, void *ctx) {
    (void)ctx;
    if (!uv_is_closing(h))
        uv_close(h,
                 h->type == UV_TCP && h != (uv_handle_t *)&server.listener ? on_peer_closed : NULL);
}

static int teardown(void **state) {
    (void)state;
    fetch_pool_close(pool, NULL, NULL);
    /* Twice, so that what the pool has open is closed by it. */
    for (int i = 0; i < 5; i++)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    uv_walk(&loop, close_all, NULL);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop);
}

static bool on_address(void *ctx, const struct sockaddr *address) {
    struct got *g = ctx;
    const struct sockaddr_in *a = (const void *)address;
    assert_int_equal(a->sin_family, AF_INET);
    assert_int_equal(a->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    g->asked++;
    return !g->refuse;
}

static void on_head(void *ctx, struct fetch *f, int status) {
    struct got *g = ctx;
    assert_ptr_equal(f, g->f);
    assert_int_equal(g->status, 0);
    g->status = status;
    if (g->on_head)
        g->on_head(g);
}

static void on_data(void *ctx, const char *data, size_t len) {
    struct got *g = ctx;
    assert_true(g->status != 0);
    (void)buf_add(&g->body, data, len);
    if (g->on_data)
        g->on_data(g);
}

static void on_end(void *ctx, const struct err *err) {
    struct got *g = ctx;
    assert_false(g->ended);
    g->ended = true;
    g->failed = err != NULL;
    if (err)
        g->err = *err;
    if (g->on_end)
        g->on_end(g);
}

static int begin(struct got *g, struct fetch_options o) {
    buf_init(&g->body, 1 << 20);
    o.url = o.url ? o.url : server.url;
    o.on_head = on_head;
    o.on_data = on_data;
    o.on_end = on_end;
    o.ctx = g;
    return fetch_start(pool, &o, &g->f, &g->err);
}

static void run_until(const bool *flag) {
    (void)uv_timer_start(&limit, on_limit, 60000, 0);
    while (!*flag)
        (void)uv_run(&loop, UV_RUN_ONCE);
    (void)uv_timer_stop(&limit);
}

static void spin(void) {
    for (int i = 0; i < 50; i++)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
}

static void test_an_answer_comes_whole(void **state) {
    (void)state;
    struct got g = {0};
    assert_int_equal(begin(&g, (struct fetch_options){.body = "abc", .body_len = 3}), 0);
    assert_int_equal(g.status, 0);
    run_until(&g.ended);
    assert_false(g.failed);
    assert_int_equal(g.status, 200);
    assert_string_equal(g.body.data, "hello");
    assert_non_null(strstr(server.last, "POST /x HTTP/1.1\r\n"));
    assert_null(strcasestr(server.last, "expect:"));
    buf_finish(&g.body);
}

static void check_header(struct got *g) {
    assert_string_equal(fetch_header(g->f, "x-one"), "1");
    assert_string_equal(fetch_header(g->f, "Content-Length"), "5");
    assert_null(fetch_header(g->f, "x-two"));
}

static void test_header_fields_can_be_read(void **state) {
    (void)state;
    struct got g = {.on_head = check_header};
    assert_int_equal(begin(&g, (struct fetch_options){.method = "GET"}), 0);
    run_until(&g.ended);
    buf_finish(&g.body);
}

static void test_an_address_is_refused_before_it_is_connected_to(void **state) {
    (void)state;
    struct got g = {.refuse = true};
    assert_int_equal(begin(&g, (struct fetch_options){.on_address = on_address}), 0);
    run_until(&g.ended);
    spin();
    assert_true(g.failed);
    assert_int_equal(g.err.code, ERR_FORBIDDEN);
    assert_true(g.asked > 0);
    assert_int_equal(server.connections, 0);
    buf_finish(&g.body);
}

static void test_a_connection_made_for_another_is_guarded_too(void **state) {
    (void)state;
    struct got first = {0};
    assert_int_equal(begin(&first, (struct fetch_options){0}), 0);
    run_until(&first.ended);
    struct got second = {.refuse = true};
    assert_int_equal(begin(&second, (struct fetch_options){.on_address = on_address}), 0);
    run_until(&second.ended);
    spin();
    assert_int_equal(second.err.code, ERR_FORBIDDEN);
    assert_int_equal(server.requests, 1);
    struct got third = {0};
    assert_int_equal(begin(&third, (struct fetch_options){.on_address = on_address}), 0);
    run_until(&third.ended);
    assert_false(third.failed);
    assert_true(third.asked > 0);
    buf_finish(&first.body);
    buf_finish(&second.body);
    buf_finish(&third.body);
}

static void test_redirects_are_answers_unless_asked_for(void **state) {
    (void)state;
    char answer[256];
    (void)snprintf(answer, sizeof(answer),
                   "HTTP/1.1 302 Found\r\ncontent-length: 0\r\nlocation: %s\r\n\r\n", server.url);
    server.answer = answer;
    struct got g = {0};
    assert_int_equal(begin(&g, (struct fetch_options){0}), 0);
    run_until(&g.ended);
    assert_int_equal(g.status, 302);
    assert_int_equal(server.requests, 1);
    struct got more = {0};
    assert_int_equal(
        begin(&more, (struct fetch_options){.max_redirects = 3, .on_address = on_address}), 0);
    run_until(&more.ended);
    assert_true(more.failed); /* more than 3 */
    assert_int_equal(server.requests, 5);
    assert_true(more.asked >= 4); /* the guard sees each */
    struct got secret = {0};
    struct fetch_header key = {"x-api-key", "k", true};
    assert_int_equal(
        begin(&secret, (struct fetch_options){.max_redirects = 3, .headers = &key, .nheaders = 1}),
        -(int)ERR_BAD_REQUEST);
}

static void test_bad_requests_are_refused(void **state) {
    (void)state;
    static const char *const urls[] = {"file:///etc/passwd", "ftp://127.0.0.1/", "dict://x/", "x",
                                       "http://a b/",        "http://a\r\nb/"};
    struct got g = {0};
    for (size_t i = 0; i < ARRAY_LEN(urls); i++)
        assert_int_equal(begin(&g, (struct fetch_options){.url = urls[i]}), -(int)ERR_BAD_REQUEST);
    static const struct fetch_header headers[] = {
        {"a", "b\r\nc: d", false}, {"a\n", "b", false}, {"a:", "b", false}, {"", "b", false}};
    for (size_t i = 0; i < ARRAY_LEN(headers); i++)
        assert_int_equal(begin(&g, (struct fetch_options){.headers = &headers[i], .nheaders = 1}),
                         -(int)ERR_BAD_REQUEST);
    assert_int_equal(server.connections, 0);
}

static void test_size_limits(void **state) {
    (void)state;
    struct got g = {0};
    assert_int_equal(begin(&g, (struct fetch_options){.max_body_bytes = 4}), 0);
    run_until(&g.ended);
    assert_int_equal(g.err.code, ERR_LIMIT);
    assert_int_equal(g.body.len, 0);
    struct buf big;
    buf_init(&big, 1 << 20);
    (void)buf_add_str(&big, "HTTP/1.1 200 OK\r\n");
    for (int i = 0; i < 70; i++)
        (void)buf_addf(&big, "x-%d: %01000d\r\n", i, 0);
    (void)buf_add_str(&big, "\r\n");
    server.answer = big.data;
    struct got head = {0};
    assert_int_equal(begin(&head, (struct fetch_options){0}), 0);
    run_until(&head.ended);
    assert_int_equal(head.err.code, ERR_LIMIT);
    buf_finish(&big);
    buf_finish(&g.body);
    buf_finish(&head.body);
}

static void test_silence_is_an_error(void **state) {
    (void)state;
    server.answer = "HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nhello";
    struct got g = {0};
    assert_int_equal(begin(&g, (struct fetch_options){.idle_timeout_ms = 50}), 0);
    run_until(&g.ended);
    assert_int_equal(g.err.code, ERR_TIMEOUT);
    struct got total = {0};
    assert_int_equal(begin(&total, (struct fetch_options){.total_timeout_ms = 50}), 0);
    run_until(&total.ended);
    assert_int_equal(total.err.code, ERR_TIMEOUT);
    buf_finish(&g.body);
    buf_finish(&total.body);
}

static void cancel(struct got *g) {
    fetch_cancel(g->f);
}

static void test_cancel_anywhere(void **state) {
    (void)state;
    struct got at_once = {0};
    assert_int_equal(begin(&at_once, (struct fetch_options){0}), 0);
    fetch_cancel(at_once.f);
    fetch_cancel(NULL);
    struct got in_head = {.on_head = cancel};
    struct got in_data = {.on_data = cancel};
    struct got in_end = {.on_end = cancel};
    struct got connecting = {0};
    assert_int_equal(begin(&in_head, (struct fetch_options){0}), 0);
    assert_int_equal(begin(&in_data, (struct fetch_options){0}), 0);
    assert_int_equal(begin(&in_end, (struct fetch_options){0}), 0);
    assert_int_equal(begin(&connecting, (struct fetch_options){0}), 0);
    (void)uv_run(&loop, UV_RUN_ONCE);
    fetch_cancel(connecting.f);
    run_until(&in_end.ended);
    spin();
    assert_false(at_once.ended || in_head.ended || in_data.ended || connecting.ended);
    assert_int_equal(in_head.body.len, 0);
    assert_int_equal(in_data.body.len, 5);
    /* An answer without a body tells its head at the end. */
    server.answer = "HTTP/1.1 204 No\r\n\r\n";
    struct got empty = {.on_head = cancel};
    struct got next = {0};
    assert_int_equal(begin(&empty, (struct fetch_options){0}), 0);
    assert_int_equal(begin(&next, (struct fetch_options){0}), 0);
    run_until(&next.ended);
    spin();
    assert_int_equal(empty.status, 204);
    assert_false(empty.ended);
    buf_finish(&in_data.body);
    buf_finish(&in_end.body);
}

static struct got inner;

static void start_inner(struct got *g) {
    (void)g;
    assert_int_equal(begin(&inner, (struct fetch_options){0}), 0);
}

static void test_start_inside_a_callback(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct got g = {0};
        inner = (struct got){0};
        g.on_head = i == 0 ? start_inner : NULL;
        g.on_data = i == 1 ? start_inner : NULL;
        g.on_end = i == 2 ? start_inner : NULL;
        assert_int_equal(begin(&g, (struct fetch_options){0}), 0);
        run_until(&g.ended);
        run_until(&inner.ended);
        assert_false(inner.failed);
        assert_string_equal(inner.body.data, "hello");
        buf_finish(&g.body);
        buf_finish(&inner.body);
    }
    assert_true(server.connections <= 3); /* in on_end the connection is free again */
}

static void close_pool(struct got *g) {
    (void)g;
    fetch_pool_close(pool, NULL, NULL);
    pool = NULL;
}

static void test_the_pool_can_be_closed_inside_a_callback(void **state) {
    (void)state;
    struct err err;
    for (int i = 0; i < 3; i++) {
        struct got g = {0};
        struct got other = {0};
        g.on_head = i == 0 ? close_pool : NULL;
        g.on_data = i == 1 ? close_pool : NULL;
        g.on_end = i == 2 ? close_pool : NULL;
        assert_int_equal(begin(&g, (struct fetch_options){0}), 0);
        assert_int_equal(begin(&other, (struct fetch_options){.idle_timeout_ms = 5}), 0);
        (void)uv_timer_start(&limit, on_limit, 60000, 0);
        while (pool)
            (void)uv_run(&loop, UV_RUN_ONCE);
        (void)uv_timer_stop(&limit);
        spin();
        buf_finish(&g.body);
        buf_finish(&other.body);
        assert_int_equal(fetch_pool_create(&loop, 16, &pool, &err), 0);
    }
}

static void pause_it(struct got *g) {
    fetch_pause(g->f);
}

static void test_pause_holds_data_and_end_back(void **state) {
    (void)state;
    struct got g = {.on_head = pause_it};
    assert_int_equal(begin(&g, (struct fetch_options){.idle_timeout_ms = 1000}), 0);
    (void)uv_timer_start(&limit, on_limit, 60000, 0);
    while (g.status == 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
    (void)uv_timer_stop(&limit);
    uint64_t until = uv_now(&loop) + 2500;
    while (uv_now(&loop) < until) {
        uv_update_time(&loop);
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(g.body.len, 0);
    assert_false(g.ended);
    fetch_resume(g.f);
    assert_int_equal(g.body.len, 0); /* not inside the call */
    run_until(&g.ended);
    assert_false(g.failed);
    assert_string_equal(g.body.data, "hello");
    buf_finish(&g.body);
}

static void check_descriptors(struct got *g) {
    (void)g;
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    unsigned sockets = 0;
    for (struct dirent *e; (e = readdir(d));) {
        char target[64] = "";
        ssize_t n = readlinkat(dirfd(d), e->d_name, target, sizeof(target) - 1);
        if (n <= 0 || strncmp(target, "socket:", 7) != 0)
            continue;
        int flags = fcntl((int)strtol(e->d_name, NULL, 10), F_GETFD);
        struct sockaddr_storage a;
        socklen_t len = sizeof(a);
        if (getpeername((int)strtol(e->d_name, NULL, 10), (struct sockaddr *)&a, &len) < 0 ||
            a.ss_family != AF_INET)
            continue;
        sockets++;
        assert_true(flags & FD_CLOEXEC);
    }
    closedir(d);
    assert_true(sockets >= 2); /* both ends */
}

static void test_sockets_are_not_inherited(void **state) {
    (void)state;
    struct got g = {.on_data = check_descriptors};
    assert_int_equal(begin(&g, (struct fetch_options){0}), 0);
    run_until(&g.ended);
    buf_finish(&g.body);
}

static void detach(struct got *g) {
    fetch_detach(g->f);
}

static void test_a_detached_answer_is_read_out_in_silence(void **state) {
    (void)state;
    struct got g = {.on_head = detach};
    assert_int_equal(begin(&g, (struct fetch_options){0}), 0);
    (void)uv_timer_start(&limit, on_limit, 60000, 0);
    while (g.status == 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
    (void)uv_timer_stop(&limit);
    spin();
    struct got next = {0};
    assert_int_equal(begin(&next, (struct fetch_options){0}), 0);
    run_until(&next.ended);
    assert_false(g.ended);
    assert_int_equal(g.body.len, 0);
    assert_int_equal(server.connections, 1);
    buf_finish(&next.body);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(test_an_answer_comes_whole),
        UNIT(test_header_fields_can_be_read),
        UNIT(test_an_address_is_refused_before_it_is_connected_to),
        UNIT(test_a_connection_made_for_another_is_guarded_too),
        UNIT(test_redirects_are_answers_unless_asked_for),
        UNIT(test_bad_requests_are_refused),
        UNIT(test_size_limits),
        UNIT(test_silence_is_an_error),
        UNIT(test_cancel_anywhere),
        UNIT(test_start_inside_a_callback),
        UNIT(test_the_pool_can_be_closed_inside_a_callback),
        UNIT(test_pause_holds_data_and_end_back),
        UNIT(test_sockets_are_not_inherited),
        UNIT(test_a_detached_answer_is_read_out_in_silence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
