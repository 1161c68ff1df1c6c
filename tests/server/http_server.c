/* The front's HTTP server with routes that show what a handler can do, for tests that the product's
 * own routes do not reach: streaming both ways, answers that come late, WebSockets. Limits come as
 * NAME=NUMBER arguments; the port is printed; SIGTERM drains and ends it. */

#include "base/cleanup.h"
#include "base/mem.h"
#include "front/http/server.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static uv_loop_t loop;
static struct http_server *server;
static unsigned drain_ms = 2000;

static struct {
    long gone;      /* requests whose client left */
    long ws_closed; /* on_close calls */
    int ws_code;    /* of the last one */
    long paused;
} counts;

static long query_number(const struct http_req *req, const char *name, long other) {
    _cleanup_(free) char *v = NULL;
    return http_req_query_get(req, name, &v, NULL) == 1 ? strtol(v, NULL, 10) : other;
}

/* --- answers at once --- */

static void unavailable(struct http_req *req, void *ctx) {
    (void)ctx;
    struct err err;
    (void)err_set(&err, ERR_UNAVAILABLE, "not yet");
    http_respond_err(req, &err);
}

static void hello(struct http_req *req, void *ctx) {
    (void)ctx;
    http_respond_text(req, 200, "hello");
}

static void bytes(struct http_req *req, void *ctx) {
    (void)ctx;
    size_t n = (size_t)query_number(req, "n", 1000);
    _cleanup_(free) char *data = xmalloc(n);
    memset(data, 'b', n);
    http_respond(req, 200, "application/octet-stream", data, n);
}

static void echo(struct http_req *req, void *ctx) {
    (void)ctx;
    size_t n;
    const char *body = http_req_body(req, &n);
    http_respond(req, 200, "application/octet-stream", body, n);
}

static void show_counts(struct http_req *req, void *ctx) {
    (void)ctx;
    struct http_stats s = http_server_stats(server);
    char text[320];
    int n = snprintf(text, sizeof(text),
                     "{\"connections\":%zu,\"websockets\":%zu,\"gone\":%ld,\"ws_closed\":%ld,"
                     "\"ws_code\":%d,\"paused\":%ld,\"unread\":%zu,\"cut\":%llu}",
                     s.connections, s.websockets, counts.gone, counts.ws_closed, counts.ws_code,
                     counts.paused, s.unread_bytes, (unsigned long long)s.cut_total);
    http_respond(req, 200, "application/json", text, (size_t)n);
}

/* A media type of n characters, or with what would split the head. */
static void type(struct http_req *req, void *ctx) {
    (void)ctx;
    _cleanup_(free) char *bad = NULL;
    if (http_req_query_get(req, "text", &bad, NULL) == 1) {
        http_respond(req, 200, bad, "x", 1);
        return;
    }
    size_t n = (size_t)query_number(req, "n", 10);
    _cleanup_(free) char *text = xmalloc(n + 1);
    memset(text, 'a', n);
    text[n] = 0;
    http_respond(req, 200, text, "x", 1);
}

static void path_rest(struct http_req *req, void *ctx) {
    (void)ctx;
    http_respond_text(req, 200, http_req_param(req, "rest"));
}

/* --- answers later --- */

struct later {
    uv_timer_t timer;
    struct http_req *req;
    bool ws;
    bool answer_when_gone;
};

static void on_later_closed(uv_handle_t *h) {
    free(h->data);
}

static void ws_accept(struct http_req *req);

static void on_later(uv_timer_t *t) {
    struct later *l = t->data;
    if (l->ws)
        ws_accept(l->req);
    else if (l->req)
        http_respond_text(l->req, 200, "late");
    uv_close((uv_handle_t *)t, on_later_closed);
}

static void on_later_gone(void *ctx) {
    struct later *l = ctx;
    counts.gone++;
    if (l->answer_when_gone) {
        struct http_req *req = l->req;
        l->req = NULL;
        http_respond_empty(req, 499);
    }
}

static void later(struct http_req *req, void *ctx) {
    (void)ctx;
    struct later *l = xcalloc(1, sizeof(*l));
    l->req = req;
    l->ws = strcmp(http_req_path(req), "/ws-later") == 0;
    l->answer_when_gone = query_number(req, "answer", 0) != 0;
    (void)uv_timer_init(&loop, &l->timer);
    l->timer.data = l;
    http_req_on_gone(req, on_later_gone, l);
    (void)uv_timer_start(&l->timer, on_later, (uint64_t)query_number(req, "ms", 50), 0);
}

/* --- streams --- */

struct stream {
    struct http_req *req; /* NULL when the client is gone */
    size_t left;
    bool busy; /* pump() is on the stack: it frees */
};

static void pump(void *ctx) {
    struct stream *s = ctx;
    static char block[16384];
    memset(block, 's', sizeof(block));
    s->busy = true;
    while (s->req && s->left > 0) {
        size_t n = MIN(s->left, sizeof(block));
        s->left -= n;
        if (!http_stream_write(s->req, block, n)) {
            counts.paused++;
            s->busy = false;
            return;
        }
    }
    if (s->req)
        http_stream_end(s->req);
    free(s);
}

static void on_stream_gone(void *ctx) {
    struct stream *s = ctx;
    counts.gone++;
    struct http_req *req = s->req;
    s->req = NULL;
    http_stream_end(req);
    if (!s->busy)
        free(s);
}

static void stream(struct http_req *req, void *ctx) {
    (void)ctx;
    struct stream *s = xcalloc(1, sizeof(*s));
    s->req = req;
    s->left = (size_t)query_number(req, "n", 100000);
    s->busy = true;
    http_req_on_gone(req, on_stream_gone, s);
    http_stream_on_drain(req, pump, s);
    http_stream_begin(req, (int)query_number(req, "status", 200), "text/plain");
    pump(s);
}

/* --- a producer that does not wait --- */

struct drip {
    uv_timer_t timer;
    struct http_req *req;
    size_t n;
};

static void on_drip_closed(uv_handle_t *h) {
    free(h->data);
}

static void on_drip_gone(void *ctx) {
    struct drip *d = ctx;
    counts.gone++;
    http_stream_end(d->req);
    uv_close((uv_handle_t *)&d->timer, on_drip_closed);
}

static void on_drip(uv_timer_t *t) {
    struct drip *d = t->data;
    _cleanup_(free) char *data = xcalloc(1, d->n);
    (void)http_stream_write(d->req, data, d->n);
}

static void drip(struct http_req *req, void *ctx) {
    (void)ctx;
    size_t first = (size_t)query_number(req, "first", 1);
    struct drip *d = xcalloc(1, sizeof(*d));
    *d = (struct drip){.req = req, .n = (size_t)query_number(req, "n", 1)};
    (void)uv_timer_init(&loop, &d->timer);
    d->timer.data = d;
    http_req_on_gone(req, on_drip_gone, d);
    http_stream_begin(req, 200, "text/plain");
    _cleanup_(free) char *data = xcalloc(1, first);
    (void)http_stream_write(req, data, first);
    (void)uv_timer_start(&d->timer, on_drip, 10, 10);
}

/* --- bodies that stream in --- */

struct upload {
    uv_timer_t timer;
    struct http_req *req;
    size_t seen;
    enum { PLAIN, PAUSE_TIMER, PAUSE_AT_ONCE, DUPLEX } mode;
    uint64_t ms;
};

static void on_upload_closed(uv_handle_t *h) {
    free(h->data);
}

static void on_resume(uv_timer_t *t) {
    struct upload *u = t->data;
    if (u->req)
        http_req_body_resume(u->req);
}

static void on_upload_data(void *ctx, const char *data, size_t len) {
    struct upload *u = ctx;
    u->seen += len;
    if (u->mode == PAUSE_TIMER) {
        counts.paused++;
        http_req_body_pause(u->req);
        (void)uv_timer_start(&u->timer, on_resume, u->ms, 0);
    } else if (u->mode == PAUSE_AT_ONCE) {
        counts.paused++;
        http_req_body_pause(u->req);
        http_req_body_resume(u->req);
    } else if (u->mode == DUPLEX) {
        (void)http_stream_write(u->req, data, len);
    }
}

static void on_upload_end(void *ctx) {
    struct upload *u = ctx;
    struct http_req *req = u->req;
    u->req = NULL;
    char text[32];
    (void)snprintf(text, sizeof(text), "%zu", u->seen);
    if (u->mode == DUPLEX)
        http_stream_end(req);
    else
        http_respond_text(req, 200, text);
    uv_close((uv_handle_t *)&u->timer, on_upload_closed);
}

static void on_upload_gone(void *ctx) {
    struct upload *u = ctx;
    struct http_req *req = u->req;
    u->req = NULL;
    counts.gone++;
    if (u->mode == DUPLEX)
        http_stream_end(req);
    else
        http_respond_empty(req, 499);
    uv_close((uv_handle_t *)&u->timer, on_upload_closed);
}

static void upload(struct http_req *req, void *ctx) {
    (void)ctx;
    struct upload *u = xcalloc(1, sizeof(*u));
    u->req = req;
    u->ms = (uint64_t)query_number(req, "ms", 2);
    const char *p = http_req_path(req);
    u->mode = !strcmp(p, "/pausing")   ? PAUSE_TIMER
              : !strcmp(p, "/at-once") ? PAUSE_AT_ONCE
              : !strcmp(p, "/duplex")  ? DUPLEX
                                       : PLAIN;
    (void)uv_timer_init(&loop, &u->timer);
    u->timer.data = u;
    http_req_on_body(req, on_upload_data, on_upload_end, u);
    http_req_on_gone(req, on_upload_gone, u);
    if (u->mode == DUPLEX)
        http_stream_begin(req, 200, "text/plain");
}

static void early(struct http_req *req, void *ctx) {
    (void)ctx;
    http_respond_text(req, 200, "early");
}

/* --- WebSockets --- */

static void on_ws_message(void *ctx, struct http_ws *ws, const char *data, size_t len, bool text) {
    (void)ctx;
    static const char bye[] = "please close";
    if (len == sizeof(bye) - 1 && memcmp(data, bye, len) == 0)
        http_ws_close(ws, 4001, "as asked");
    else
        (void)http_ws_send(ws, data, len, text);
}

static void on_ws_close(void *ctx, struct http_ws *ws, int code) {
    (void)ctx;
    (void)ws;
    counts.ws_closed++;
    counts.ws_code = code;
}

static void ws_accept(struct http_req *req) {
    static const struct http_ws_callbacks callbacks = {.on_message = on_ws_message,
                                                       .on_close = on_ws_close};
    struct http_ws *ws = http_ws_accept(req, NULL, &callbacks, NULL);
    /* A pointer that is not NULL must be alive. */
    if (ws && http_ws_queued(ws) > 1000000)
        abort();
}

static void ws(struct http_req *req, void *ctx) {
    (void)ctx;
    ws_accept(req);
}

/* --- the program --- */

static const struct http_route routes[] = {
    {.methods = "GET", .pattern = "/hello", .handler = hello},
    {.methods = "GET", .pattern = "/unavailable", .handler = unavailable},
    {.methods = "GET", .pattern = "/bytes", .handler = bytes},
    {.methods = "GET", .pattern = "/counts", .handler = show_counts},
    {.methods = "GET", .pattern = "/type", .handler = type},
    {.methods = "GET", .pattern = "/path/{rest...}", .handler = path_rest},
    {.methods = "GET,POST", .pattern = "/later", .handler = later},
    {.methods = "GET", .pattern = "/stream", .handler = stream},
    {.methods = "GET", .pattern = "/drip", .handler = drip},
    {.methods = "POST", .pattern = "/echo", .handler = echo},
    {.methods = "POST", .pattern = "/upload", .handler = upload, .flags = HTTP_ROUTE_STREAM},
    {.methods = "POST", .pattern = "/pausing", .handler = upload, .flags = HTTP_ROUTE_STREAM},
    {.methods = "POST", .pattern = "/at-once", .handler = upload, .flags = HTTP_ROUTE_STREAM},
    {.methods = "POST", .pattern = "/duplex", .handler = upload, .flags = HTTP_ROUTE_STREAM},
    {.methods = "POST", .pattern = "/early", .handler = early, .flags = HTTP_ROUTE_STREAM},
    {.methods = "GET", .pattern = "/ws", .handler = ws},
    {.methods = "POST", .pattern = "/ws-stream", .handler = ws, .flags = HTTP_ROUTE_STREAM},
    {.methods = "GET", .pattern = "/ws-later", .handler = later},
};

static uv_signal_t term;
static uv_pipe_t parent;

static void on_drained(void *ctx) {
    (void)ctx;
    http_server_destroy(server);
    uv_close((uv_handle_t *)&term, NULL);
    uv_close((uv_handle_t *)&parent, NULL);
}

static void on_term(uv_signal_t *h, int signo) {
    (void)h;
    (void)signo;
    http_server_drain(server, drain_ms, on_drained, NULL);
}

static void set_limit(struct http_limits *l, const char *arg) {
    struct {
        const char *name;
        size_t *size;
        unsigned *ms;
    } table[] = {
        {"head_bytes=", &l->head_bytes, NULL},
        {"body_bytes=", &l->body_bytes, NULL},
        {"connections=", &l->connections, NULL},
        {"held_bytes=", &l->held_bytes, NULL},
        {"ws_message_bytes=", &l->ws_message_bytes, NULL},
        {"header_timeout_ms=", NULL, &l->header_timeout_ms},
        {"body_timeout_ms=", NULL, &l->body_timeout_ms},
        {"idle_timeout_ms=", NULL, &l->idle_timeout_ms},
        {"write_timeout_ms=", NULL, &l->write_timeout_ms},
        {"drain_ms=", NULL, &drain_ms},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        size_t n = strlen(table[i].name);
        if (strncmp(arg, table[i].name, n) != 0)
            continue;
        unsigned long v = strtoul(arg + n, NULL, 10);
        if (table[i].size)
            *table[i].size = v;
        else
            *table[i].ms = (unsigned)v;
        return;
    }
    (void)fprintf(stderr, "unknown limit %s\n", arg);
    exit(2);
}

static void on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *out) {
    (void)h;
    (void)hint;
    static char space[64];
    *out = uv_buf_init(space, sizeof(space));
}

/* The test that started us is gone. */
static void on_parent(uv_stream_t *s, ssize_t n, const uv_buf_t *b) {
    (void)s;
    (void)b;
    if (n < 0)
        _exit(3);
}

/* A key, without anybody who checks it. */
static const char *owner_of(const struct http_req *req) {
    const char *key = http_req_header(req, "x-key");
    return key ? key : "";
}

int main(int argc, char **argv) {
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignore, NULL);
    struct http_limits limits = http_limits_default();
    for (int i = 1; i < argc; i++)
        set_limit(&limits, argv[i]);
    (void)uv_loop_init(&loop);
    server = http_server_create(
        &(struct http_server_options){.loop = &loop, .limits = limits, .owner = owner_of});
    for (size_t i = 0; i < ARRAY_LEN(routes); i++)
        http_server_route(server, &routes[i]);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    struct err err;
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, n) < 0 ||
        getsockname(fd, (struct sockaddr *)&a, &n) < 0 || http_server_listen(server, fd, &err) < 0)
        return 1;
    (void)uv_signal_init(&loop, &term);
    (void)uv_signal_start(&term, on_term, SIGTERM);
    (void)uv_pipe_init(&loop, &parent, 0);
    (void)uv_pipe_open(&parent, STDIN_FILENO);
    (void)uv_read_start((uv_stream_t *)&parent, on_alloc, on_parent);
    uv_unref((uv_handle_t *)&parent);
    (void)printf("listening %u\n", ntohs(a.sin_port));
    (void)fflush(stdout);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop) == 0 ? 0 : 4;
}
