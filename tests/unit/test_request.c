/* The life of requests and connections, on the real server in this process: the client is a socket
 * of this test, the loop turns when the test says so, and the handler is the test itself. */

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "front/http/server.h"
#include "unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static uv_loop_t loop;
static struct http_server *server;
static char socket_path[64];

/* What the handlers saw. */
static struct {
    struct http_req *req; /* the last one that waits for its answer */
    int handled;
    int gone;
    size_t body;
    bool answer_when_gone;
    bool end_when_gone;
    int ws_messages;
    int ws_closed;
    bool ws_returned; /* http_ws_accept() has returned */
    bool ws_early;    /* a message came before that */
    struct http_ws *ws;
} seen;

static void on_gone(void *ctx) {
    (void)ctx;
    seen.gone++;
    struct http_req *req = seen.req;
    if (seen.answer_when_gone || seen.end_when_gone)
        seen.req = NULL;
    if (seen.answer_when_gone)
        http_respond_empty(req, 499);
    else if (seen.end_when_gone)
        http_stream_end(req);
}

static void wait_handler(struct http_req *req, void *ctx) {
    (void)ctx;
    seen.handled++;
    seen.req = req;
    http_req_on_gone(req, on_gone, NULL);
}

static void stream_handler(struct http_req *req, void *ctx) {
    wait_handler(req, ctx);
    http_stream_begin(req, 200, "text/plain");
}

static void big_handler(struct http_req *req, void *ctx) {
    (void)ctx;
    static char data[100000];
    memset(data, 'b', sizeof(data));
    seen.handled++;
    http_respond(req, 200, "text/plain", data, sizeof(data));
}

static void huge_handler(struct http_req *req, void *ctx) {
    (void)ctx;
    size_t n = (size_t)4 << 20;
    _cleanup_(free) char *data = xmalloc(n);
    memset(data, 'h', n);
    seen.handled++;
    http_respond(req, 200, "text/plain", data, n);
}

static void echo_handler(struct http_req *req, void *ctx) {
    (void)ctx;
    size_t n;
    const char *body = http_req_body(req, &n);
    seen.handled++;
    seen.body = n;
    http_respond(req, 200, "text/plain", body, n);
}

static void on_data(void *ctx, const char *data, size_t len) {
    (void)data;
    seen.body += len;
    if (ctx) {
        http_req_body_pause(seen.req);
        http_req_body_resume(seen.req);
    }
}

static void on_end(void *ctx) {
    (void)ctx;
    struct http_req *req = seen.req;
    seen.req = NULL;
    http_respond_text(req, 200, "whole");
}

static void upload_handler(struct http_req *req, void *ctx) {
    wait_handler(req, ctx);
    http_req_on_body(req, on_data, on_end, ctx);
}

static void paused_handler(struct http_req *req, void *ctx) {
    upload_handler(req, ctx);
    http_req_body_pause(req);
}

static void duplex_handler(struct http_req *req, void *ctx) {
    upload_handler(req, ctx);
    seen.end_when_gone = true;
    http_stream_begin(req, 200, "text/plain");
    (void)http_stream_write(req, "begun", 5);
}

static void on_ws_message(void *ctx, struct http_ws *ws, const char *data, size_t len, bool text) {
    (void)ctx;
    (void)ws;
    (void)data;
    (void)len;
    (void)text;
    seen.ws_messages++;
    seen.ws_early = seen.ws_early || !seen.ws_returned;
}

static void on_ws_close(void *ctx, struct http_ws *ws, int code) {
    (void)ctx;
    (void)ws;
    (void)code;
    seen.ws_closed++;
    seen.ws = NULL;
    seen.ws_early = seen.ws_early || !seen.ws_returned;
}

static const struct http_ws_callbacks ws_callbacks = {.on_message = on_ws_message,
                                                      .on_close = on_ws_close};

static void sse_handler(struct http_req *req, void *ctx) {
    (void)ctx;
    char data[2000];
    memset(data, '\n', sizeof(data));
    http_stream_begin(req, 200, "text/event-stream");
    (void)http_sse_send(req, "e", "1", data, sizeof(data));
    (void)http_sse_send(req, NULL, NULL, "a\rid: 9\r\nb", 10);
    http_stream_end(req);
}

static void type_handler(struct http_req *req, void *ctx) {
    (void)ctx;
    char type[3000];
    memset(type, 'a', sizeof(type) - 1);
    type[sizeof(type) - 1] = 0;
    http_respond(req, 200, type, "x", 1);
}

static void split_handler(struct http_req *req, void *ctx) {
    (void)ctx;
    http_res_header(req, "X-Good", "fine");
    http_res_header(req, "X-Bad", "a\r\nX-Injected: 1");
    http_respond(req, 200, "text/html\r\nX-Injected: 2", "x", 1);
}

static void no_content_handler(struct http_req *req, void *ctx) {
    (void)ctx;
    http_stream_begin(req, 204, NULL);
    (void)http_stream_write(req, "not sent", 8);
    http_stream_end(req);
}

static const struct http_route routes[] = {
    {.methods = "GET", .pattern = "/wait", .handler = wait_handler},
    {.methods = "GET", .pattern = "/stream", .handler = stream_handler},
    {.methods = "GET", .pattern = "/big", .handler = big_handler},
    {.methods = "GET", .pattern = "/huge", .handler = huge_handler},
    {.methods = "POST", .pattern = "/echo", .handler = echo_handler},
    {.methods = "GET,POST",
     .pattern = "/upload",
     .handler = upload_handler,
     .flags = HTTP_ROUTE_STREAM,
     .body_bytes = 1 << 30},
    {.methods = "POST",
     .pattern = "/at-once",
     .handler = upload_handler,
     .ctx = &seen,
     .flags = HTTP_ROUTE_STREAM,
     .body_bytes = 1 << 30},
    {.methods = "POST",
     .pattern = "/paused",
     .handler = paused_handler,
     .flags = HTTP_ROUTE_STREAM},
    {.methods = "POST",
     .pattern = "/duplex",
     .handler = duplex_handler,
     .flags = HTTP_ROUTE_STREAM,
     .body_bytes = 10},
    {.methods = "GET", .pattern = "/sse", .handler = sse_handler},
    {.methods = "GET", .pattern = "/type", .handler = type_handler},
    {.methods = "GET", .pattern = "/split", .handler = split_handler},
    {.methods = "GET", .pattern = "/no-content", .handler = no_content_handler},
};

static void start(const struct http_limits *limits) {
    memset(&seen, 0, sizeof(seen));
    assert_int_equal(uv_loop_init(&loop), 0);
    server = http_server_create(&(struct http_server_options){.loop = &loop, .limits = *limits});
    for (size_t i = 0; i < ARRAY_LEN(routes); i++)
        http_server_route(server, &routes[i]);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    (void)snprintf(socket_path, sizeof(socket_path), "/tmp/cay-unit-%d.sock", (int)getpid());
    (void)unlink(socket_path);
    memcpy(a.sun_path, socket_path, strlen(socket_path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    struct err err;
    assert_int_equal(http_server_listen(server, fd, &err), 0);
}

static int setup(void **state) {
    (void)state;
    struct http_limits limits = http_limits_default();
    start(&limits);
    return 0;
}

static void turn(int times) {
    for (int i = 0; i < times; i++)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
}

static void turn_ms(int64_t ms) {
    int64_t end = clock_mono_ms() + ms;
    while (clock_mono_ms() < end) {
        turn(1);
        struct timespec t = {.tv_nsec = 1000000};
        (void)nanosleep(&t, NULL);
    }
    turn(2); /* the time may have been over before the first */
}

static int teardown(void **state) {
    (void)state;
    if (server)
        http_server_destroy(server);
    server = NULL;
    turn(10);
    (void)unlink(socket_path);
    return uv_loop_close(&loop) == 0 ? 0 : -1;
}

static int client(void) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, socket_path, strlen(socket_path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return fd;
}

static void say(int fd, const char *text) {
    size_t n = strlen(text);
    while (n > 0) {
        ssize_t k = send(fd, text, n, MSG_NOSIGNAL);
        if (k < 0 && errno == EAGAIN) {
            turn(1);
            continue;
        }
        assert_true(k > 0);
        text += k;
        n -= (size_t)k;
    }
    turn(5);
}

/* Everything until the server closes or falls silent; *ret_closed says which. */
static size_t hear(int fd, char *out, size_t size, bool *ret_closed) {
    size_t n = 0;
    int quiet = 0;
    *ret_closed = false;
    while (n < size && quiet < 50) {
        turn(2);
        ssize_t k = recv(fd, out + n, size - n, 0);
        if (k > 0) {
            n += (size_t)k;
            quiet = 0;
        } else if (k == 0 || errno != EAGAIN) {
            *ret_closed = true;
            break;
        } else {
            quiet++;
        }
    }
    if (n < size)
        out[n] = 0;
    return n;
}

static size_t live(void) {
    return http_server_stats(server).requests;
}

static int count(const char *text, const char *what) {
    int n = 0;
    for (const char *p = text; (p = strstr(p, what)); p += strlen(what))
        n++;
    return n;
}

static char text[1 << 23];

/* --- the tests --- */

static void test_half_a_body_leaves_nothing(void **state) {
    (void)state;
    for (int i = 0; i < 20; i++) {
        int fd = client();
        say(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\npart");
        assert_int_equal(live(), 1);
        close(fd);
        turn(5);
        assert_int_equal(live(), 0);
    }
    assert_int_equal(seen.handled, 0);
}

static void test_a_client_that_left_before_continue_leaves_nothing(void **state) {
    (void)state;
    int fd = client();
    static const char head[] = "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
                               "Content-Length: 9\r\n\r\n";
    assert_true(send(fd, head, sizeof(head) - 1, MSG_NOSIGNAL) > 0);
    close(fd);
    turn(10);
    assert_int_equal(live(), 0);
}

static void test_an_answer_to_a_gone_client_is_given_once(void **state) {
    (void)state;
    int fd = client();
    say(fd, "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    close(fd);
    turn(5);
    assert_int_equal(seen.gone, 0); /* a client that shut its side may still read */
    seen.answer_when_gone = true;   /* what the write in here must not set off */
    http_respond_text(seen.req, 200, "x");
    turn(5);
    assert_int_equal(seen.gone, 0);
    assert_int_equal(live(), 0);
}

static void test_the_end_of_a_stream_to_a_gone_client_is_given_once(void **state) {
    (void)state;
    int fd = client();
    say(fd, "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    http_stream_begin(seen.req, 200, "text/plain");
    close(fd); /* the loop does not turn: only the write can find out */
    seen.end_when_gone = true;
    http_stream_end(seen.req);
    turn(5);
    assert_int_equal(live(), 0);
}

static void test_a_stream_learns_that_its_client_is_gone(void **state) {
    (void)state;
    int fd = client();
    say(fd, "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    seen.end_when_gone = true;
    close(fd);
    turn(5);
    assert_int_equal(seen.gone, 1);
    assert_int_equal(live(), 0);
}

/* Whoever copies a file to it would read the whole file. */
static void test_a_stream_to_a_broken_connection_wants_no_more(void **state) {
    (void)state;
    static const char block[65536];
    int fd = client();
    say(fd, "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    seen.end_when_gone = true;
    close(fd); /* the loop does not turn: only a write can find out */
    int writes = 0;
    while (writes < 1000 && http_stream_write(seen.req, block, sizeof(block)))
        writes++;
    assert_true(writes < 10);
    assert_false(http_stream_write(seen.req, block, sizeof(block)));
    assert_int_equal(seen.gone, 0); /* nobody is called inside a write */
    turn(5);
    assert_int_equal(seen.gone, 1);
    assert_int_equal(live(), 0);
}

static void test_a_stream_after_its_client_is_gone_wants_no_more(void **state) {
    (void)state;
    int fd = client();
    say(fd, "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    close(fd);
    turn(5);
    assert_int_equal(seen.gone, 1);
    assert_false(http_stream_write(seen.req, "x", 1));
    http_stream_end(seen.req);
    assert_int_equal(live(), 0);
}

static void test_a_head_has_no_body_to_read(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool body;
    } cases[] = {{"HEAD /stream HTTP/1.1\r\nHost: a\r\n\r\n", false},
                 {"GET /stream HTTP/1.1\r\nHost: a\r\n\r\n", true}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int fd = client();
        say(fd, cases[i].text);
        assert_int_equal(http_stream_has_body(seen.req), cases[i].body);
        http_stream_end(seen.req);
        turn(5);
        close(fd);
        turn(5);
        assert_int_equal(live(), 0);
    }
}

static void test_an_answer_that_has_begun_is_broken_off_not_overwritten(void **state) {
    (void)state;
    static const char *const bodies[] = {"zz\r\n", "20\r\n0123456789abcdef0123456789abcdef\r\n"};
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
        int fd = client();
        bool closed;
        say(fd, "POST /duplex HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        say(fd, bodies[i]);
        (void)hear(fd, text, sizeof(text), &closed);
        assert_true(closed);
        assert_int_equal(count(text, "HTTP/1.1 "), 1);
        assert_non_null(strstr(text, "begun"));
        assert_int_equal(live(), 0);
        close(fd);
    }
}

static void test_a_half_closed_client_gets_a_large_answer_whole(void **state) {
    (void)state;
    static const char *const ends[] = {"", "Connection: close\r\n"};
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        int fd = client();
        bool closed;
        char head[100];
        (void)snprintf(head, sizeof(head), "GET /huge HTTP/1.1\r\nHost: a\r\n%s\r\n", ends[i]);
        say(fd, head);
        assert_int_equal(shutdown(fd, SHUT_WR), 0);
        turn(20);
        size_t n = hear(fd, text, sizeof(text), &closed);
        assert_true(closed);
        assert_true(n > (size_t)4 << 20);
        close(fd);
    }
}

static void test_all_requests_before_a_half_close_are_answered(void **state) {
    (void)state;
    int fd = client();
    bool closed;
    say(fd, "GET /wait HTTP/1.1\r\nHost: a\r\n\r\nGET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    turn(5);
    http_respond_text(seen.req, 200, "first");
    turn(5);
    assert_int_equal(seen.handled, 2);
    http_respond_text(seen.req, 200, "second");
    (void)hear(fd, text, sizeof(text), &closed);
    assert_true(closed);
    assert_int_equal(count(text, "HTTP/1.1 200"), 2);
    assert_int_equal(live(), 0);
    close(fd);
}

static void test_a_client_that_reads_nothing_cannot_fill_memory(void **state) {
    (void)state;
    int fd = client();
    for (int i = 0; i < 200; i++)
        (void)send(fd, "GET /big HTTP/1.1\r\nHost: a\r\n\r\n", 30, MSG_NOSIGNAL);
    turn(50);
    /* What the socket takes, the bound, and the answer that passed it. */
    assert_true(seen.handled < 12);
    bool closed;
    for (int i = 0; i < 4000 && seen.handled < 200; i++)
        (void)hear(fd, text, 100000, &closed);
    assert_int_equal(seen.handled, 200); /* and all are answered when it does read */
    close(fd);
}

static void test_a_slow_reader_is_not_idle(void **state) {
    (void)state;
    (void)teardown(state);
    struct http_limits limits = http_limits_default();
    limits.idle_timeout_ms = 100;
    start(&limits);
    int fd = client();
    bool closed;
    say(fd, "GET /huge HTTP/1.1\r\nHost: a\r\n\r\n");
    turn_ms(1300);
    size_t n = hear(fd, text, sizeof(text), &closed);
    assert_true(n > (size_t)4 << 20);
    turn_ms(1300);
    (void)hear(fd, text, sizeof(text), &closed);
    assert_true(closed); /* now it was */
    close(fd);
}

static void test_a_reader_is_dropped_when_it_stops_not_when_it_is_slow(void **state) {
    (void)state;
    (void)teardown(state);
    struct http_limits limits = http_limits_default();
    limits.write_timeout_ms = 2000;
    start(&limits);
    int fd = client();
    int stopped = client();
    say(fd, "GET /huge HTTP/1.1\r\nHost: a\r\n\r\n");
    say(stopped, "GET /huge HTTP/1.1\r\nHost: a\r\n\r\n");
    size_t n = 0;
    for (int i = 0; i < 3000 && http_server_stats(server).connections == 2; i++) {
        turn_ms(20);
        ssize_t k = recv(fd, text, 25000, 0);
        assert_true(k > 0);
        n += (size_t)k;
    }
    assert_int_equal(http_server_stats(server).connections, 1);
    assert_true(n < (size_t)4 << 20); /* it had not read all before the other was dropped */
    bool closed;
    n += hear(fd, text, sizeof(text), &closed);
    assert_true(n > (size_t)4 << 20);
    close(fd);
    close(stopped);
}

static void test_pausing_and_resuming_inside_the_callback_goes_on(void **state) {
    (void)state;
    int fd = client();
    bool closed;
    say(fd, "POST /at-once HTTP/1.1\r\nHost: a\r\nContent-Length: 300\r\n\r\n");
    for (int i = 0; i < 3; i++) {
        char part[101];
        memset(part, 'p', 100);
        part[100] = 0;
        say(fd, part);
    }
    (void)hear(fd, text, sizeof(text), &closed);
    assert_int_equal(seen.body, 300);
    assert_non_null(strstr(text, "whole"));
    close(fd);
}

static void test_time_for_a_body_stands_still_while_it_is_paused(void **state) {
    (void)state;
    (void)teardown(state);
    struct http_limits limits = http_limits_default();
    limits.body_timeout_ms = 500;
    start(&limits);
    int fd = client();
    bool closed;
    say(fd, "POST /paused HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab");
    turn_ms(1700);
    assert_int_equal(seen.gone, 0);
    assert_int_equal(send(fd, "cd", 2, MSG_NOSIGNAL), 2);
    http_req_body_resume(seen.req);
    (void)hear(fd, text, sizeof(text), &closed);
    assert_non_null(strstr(text, "whole"));
    close(fd);
}

static void test_a_request_outlives_its_server(void **state) {
    (void)state;
    int fd = client();
    say(fd, "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    http_server_destroy(server);
    turn(10);
    assert_int_equal(seen.gone, 1);
    http_respond_text(seen.req, 200, "too late");
    server = NULL;
    close(fd);
}

static void test_a_part_of_a_next_head_has_the_time_of_a_head(void **state) {
    (void)state;
    (void)teardown(state);
    struct http_limits limits = http_limits_default();
    limits.header_timeout_ms = 100;
    start(&limits);
    int fd = client();
    bool closed;
    say(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\nGET /big HT");
    turn_ms(1300);
    (void)hear(fd, text, sizeof(text), &closed);
    assert_non_null(strstr(text, "HTTP/1.1 408"));
    close(fd);
}

static void test_events_keep_their_lines(void **state) {
    (void)state;
    int fd = client();
    bool closed;
    say(fd, "GET /sse HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    (void)hear(fd, text, sizeof(text), &closed);
    assert_int_equal(count(text, "data: \n"), 2001);
    assert_non_null(strstr(text, "data: a\ndata: id: 9\ndata: b\n\n"));
    close(fd);
}

static void test_no_value_can_split_a_head(void **state) {
    (void)state;
    int fd = client();
    bool closed;
    say(fd, "GET /split HTTP/1.1\r\nHost: a\r\n\r\n");
    (void)hear(fd, text, sizeof(text), &closed);
    assert_null(strstr(text, "X-Injected"));
    assert_non_null(strstr(text, "X-Good: fine\r\n"));
    say(fd, "GET /type HTTP/1.1\r\nHost: a\r\n\r\n");
    (void)hear(fd, text, sizeof(text), &closed);
    assert_int_equal(strncmp(text, "HTTP/1.1 200 OK\r\n", 17), 0);
    close(fd);
}

static void test_a_status_without_a_body_gets_none(void **state) {
    (void)state;
    int fd = client();
    bool closed;
    say(fd, "GET /no-content HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    (void)hear(fd, text, sizeof(text), &closed);
    assert_null(strstr(text, "chunked"));
    assert_int_equal(strcmp(strstr(text, "\r\n\r\n"), "\r\n\r\n"), 0);
    close(fd);
}

static const char upgrade[] = "Host: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                              "Sec-WebSocket-Version: 13\r\n"
                              "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/* A text frame "hi" and a close frame, masked with zeros. */
static const char frames[] = "\x81\x82\0\0\0\0hi\x88\x82\0\0\0\0\x03\xe8";

static void test_frames_wait_until_the_websocket_is_known(void **state) {
    (void)state;
    int fd = client();
    char head[400];
    int n = snprintf(head, sizeof(head), "GET /wait HTTP/1.1\r\n%s", upgrade);
    memcpy(head + n, frames, sizeof(frames) - 1);
    assert_true(send(fd, head, (size_t)n + sizeof(frames) - 1, MSG_NOSIGNAL) > 0);
    turn(5);
    assert_int_equal(seen.handled, 1);
    assert_int_equal(http_server_stats(server).websockets, 0);
    seen.ws = http_ws_accept(seen.req, NULL, &ws_callbacks, NULL);
    seen.ws_returned = true;
    assert_non_null(seen.ws);
    assert_int_equal(http_ws_queued(seen.ws), 0);
    assert_int_equal(http_server_stats(server).websockets, 1);
    turn(5);
    assert_false(seen.ws_early);
    assert_int_equal(seen.ws_messages, 1);
    assert_int_equal(seen.ws_closed, 1);
    assert_int_equal(http_server_stats(server).websockets, 0);
    close(fd);
}

static void test_a_websocket_needs_a_whole_request(void **state) {
    (void)state;
    int fd = client();
    bool closed;
    char head[400];
    (void)snprintf(head, sizeof(head), "GET /upload HTTP/1.1\r\nContent-Length: 5\r\n%s", upgrade);
    say(fd, head);
    assert_int_equal(seen.handled, 1);
    assert_null(http_ws_accept(seen.req, NULL, &ws_callbacks, NULL));
    (void)hear(fd, text, sizeof(text), &closed);
    assert_non_null(strstr(text, "HTTP/1.1 400"));
    close(fd);
}

static void test_pings_of_a_client_that_reads_nothing_are_bounded(void **state) {
    (void)state;
    int fd = client();
    char head[400];
    (void)snprintf(head, sizeof(head), "GET /wait HTTP/1.1\r\n%s", upgrade);
    say(fd, head);
    seen.ws = http_ws_accept(seen.req, NULL, &ws_callbacks, NULL);
    seen.ws_returned = true;
    char ping[131] = "\x89\xfd";
    size_t sent = 0;
    size_t most = 0;
    int stuck = 0;
    while (sent < (size_t)8 << 20 && stuck < 20) {
        ssize_t k = send(fd, ping, sizeof(ping), MSG_NOSIGNAL);
        if (k != sizeof(ping)) {
            turn(2);
            stuck++;
            if (k > 0)
                break; /* half a ping: the socket is full for good */
            continue;
        }
        stuck = 0;
        sent += (size_t)k;
        if (seen.ws)
            most = MAX(most, http_ws_queued(seen.ws));
    }
    assert_true(sent < (size_t)8 << 20);
    assert_true(most < 2 * LIMIT_WRITE_HIGH_BYTES);
    close(fd);
    turn(5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(test_half_a_body_leaves_nothing),
        UNIT(test_a_client_that_left_before_continue_leaves_nothing),
        UNIT(test_an_answer_to_a_gone_client_is_given_once),
        UNIT(test_the_end_of_a_stream_to_a_gone_client_is_given_once),
        UNIT(test_a_stream_learns_that_its_client_is_gone),
        UNIT(test_a_stream_to_a_broken_connection_wants_no_more),
        UNIT(test_a_stream_after_its_client_is_gone_wants_no_more),
        UNIT(test_a_head_has_no_body_to_read),
        UNIT(test_an_answer_that_has_begun_is_broken_off_not_overwritten),
        UNIT(test_a_half_closed_client_gets_a_large_answer_whole),
        UNIT(test_all_requests_before_a_half_close_are_answered),
        UNIT(test_a_client_that_reads_nothing_cannot_fill_memory),
        UNIT(test_a_slow_reader_is_not_idle),
        UNIT(test_a_reader_is_dropped_when_it_stops_not_when_it_is_slow),
        UNIT(test_pausing_and_resuming_inside_the_callback_goes_on),
        UNIT(test_time_for_a_body_stands_still_while_it_is_paused),
        UNIT(test_a_request_outlives_its_server),
        UNIT(test_a_part_of_a_next_head_has_the_time_of_a_head),
        UNIT(test_events_keep_their_lines),
        UNIT(test_no_value_can_split_a_head),
        UNIT(test_a_status_without_a_body_gets_none),
        UNIT(test_frames_wait_until_the_websocket_is_known),
        UNIT(test_a_websocket_needs_a_whole_request),
        UNIT(test_pings_of_a_client_that_reads_nothing_are_bounded),
    };
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignore, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
