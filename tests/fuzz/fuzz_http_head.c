/* A whole connection: the input goes over a socket into the real server, in pieces; routes of every
 * kind answer. What the checks let through must be what they promise. */

#include "base/mem.h"
#include "front/http/internal.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static uv_loop_t loop;
static struct http_server *server;
static struct sockaddr_un address = {.sun_family = AF_UNIX};

static void check(const struct http_req *req) {
    const char *name;
    const char *value;
    if (http_req_path(req)[0] != '/' || http_req_header_count(req, "host") > 1)
        abort();
    for (size_t i = 0; http_req_header_at(req, i, &name, &value); i++)
        if (!*name || strpbrk(name, " \t\r\n:") || strpbrk(value, "\r\n"))
            abort();
}

static void whole(struct http_req *req, void *ctx) {
    (void)ctx;
    check(req);
    size_t n;
    const char *body = http_req_body(req, &n);
    if (n > 4096)
        abort();
    http_respond(req, 200, "text/plain", body, n);
}

static struct http_req *uploading;

static void on_data(void *ctx, const char *data, size_t len) {
    (void)ctx;
    if (len > 0 && data[0] == 'P') {
        http_req_body_pause(uploading);
        http_req_body_resume(uploading);
    }
    (void)http_stream_write(uploading, data, len);
}

static void on_end(void *ctx) {
    (void)ctx;
    http_stream_end(uploading);
    uploading = NULL;
}

static void stream(struct http_req *req, void *ctx) {
    (void)ctx;
    check(req);
    uploading = req;
    http_req_on_body(req, on_data, on_end, NULL);
    http_req_on_gone(req, on_end, NULL);
    http_stream_begin(req, 200, "text/plain");
}

static void early(struct http_req *req, void *ctx) {
    (void)ctx;
    check(req);
    http_respond_empty(req, 204);
}

static void on_message(void *ctx, struct http_ws *ws, const char *data, size_t len, bool text) {
    (void)ctx;
    (void)http_ws_send(ws, data, len, text);
}

static void on_close(void *ctx, struct http_ws *ws, int code) {
    (void)ctx;
    (void)ws;
    (void)code;
}

static void ws(struct http_req *req, void *ctx) {
    (void)ctx;
    static const struct http_ws_callbacks callbacks = {.on_message = on_message,
                                                       .on_close = on_close};
    check(req);
    (void)http_ws_accept(req, NULL, &callbacks, NULL);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignore, NULL);
    (void)uv_loop_init(&loop);
    struct http_limits limits = http_limits_default();
    limits.head_bytes = 2048;
    limits.body_bytes = 4096;
    limits.ws_message_bytes = 4096;
    server = http_server_create(
        &(struct http_server_options){.loop = &loop, .limits = limits, .fallback = early});
    static const struct http_route routes[] = {
        {.methods = "GET,POST,PUT", .pattern = "/w", .handler = whole},
        {.methods = "GET,POST", .pattern = "/s", .handler = stream, .flags = HTTP_ROUTE_STREAM},
        {.methods = "POST", .pattern = "/e", .handler = early, .flags = HTTP_ROUTE_STREAM},
        {.methods = "GET", .pattern = "/ws", .handler = ws},
        {.methods = "GET", .pattern = "/p/{a}/{rest...}", .handler = whole},
    };
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++)
        http_server_route(server, &routes[i]);
    /* An abstract name that the kernel chooses. */
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t n = sizeof(sa_family_t);
    struct err err;
    if (bind(fd, (struct sockaddr *)&address, n) < 0)
        abort();
    n = sizeof(address);
    if (getsockname(fd, (struct sockaddr *)&address, &n) < 0 ||
        http_server_listen(server, fd, &err) < 0)
        abort();
    return 0;
}

static void drain(int fd) {
    char sink[4096];
    while (recv(fd, sink, sizeof(sink), MSG_DONTWAIT) > 0)
        continue;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t n = (socklen_t)(sizeof(sa_family_t) + 6);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, n) < 0)
        abort();
    size_t at = 0;
    /* A byte 0xff cuts the input into pieces. */
    while (at < size) {
        const uint8_t *cut = memchr(data + at, 0xff, size - at);
        size_t len = cut ? (size_t)(cut - data) - at : size - at;
        if (len > 0 && send(fd, data + at, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            break;
        at += len + 1;
        (void)uv_run(&loop, UV_RUN_NOWAIT);
        drain(fd);
    }
    if (size % 2)
        (void)shutdown(fd, SHUT_WR);
    for (int i = 0; i < 3; i++)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    drain(fd);
    close(fd);
    for (int i = 0; i < 20 && http_server_stats(server).connections > 0; i++)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    struct http_stats s = http_server_stats(server);
    if (s.connections > 0 || s.requests > 0 || s.websockets > 0)
        abort(); /* something of it stays */
    return 0;
}
