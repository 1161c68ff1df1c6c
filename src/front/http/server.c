#include "front/http/server.h"

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rand.h"
#include "front/http/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { SWEEP_MS = 500, BACKLOG = 4096 };

struct http_limits http_limits_default(void) {
    return (struct http_limits){
        .head_bytes = LIMIT_HEAD_BYTES,
        .body_bytes = LIMIT_BODY_BYTES,
        .connections = LIMIT_CONNECTIONS,
        .ws_message_bytes = LIMIT_WS_MESSAGE_BYTES,
        .body_pace_bytes = LIMIT_BODY_PACE_BYTES,
        .held_bytes = LIMIT_HELD_BYTES,
        .header_timeout_ms = LIMIT_HEADER_TIMEOUT_MS,
        .body_timeout_ms = LIMIT_BODY_TIMEOUT_MS,
        .idle_timeout_ms = LIMIT_IDLE_TIMEOUT_MS,
        .write_timeout_ms = LIMIT_WRITE_TIMEOUT_MS,
    };
}

static void http_server_on_sweep(uv_timer_t *t) {
    struct http_server *s = t->data;
    conn_sweep(s);
    if (!s->conns)
        (void)uv_timer_stop(t);
}

void http_server_watch(struct http_server *s) {
    if (!uv_is_active((uv_handle_t *)&s->sweep))
        (void)uv_timer_start(&s->sweep, http_server_on_sweep, SWEEP_MS, SWEEP_MS);
}

struct http_server *http_server_create(const struct http_server_options *options) {
    struct http_server *s = xcalloc(1, sizeof(*s));
    s->opt = *options;
    s->guest_route = (struct http_route){.methods = "",
                                         .pattern = "(guest)",
                                         .handler = options->guest_handler,
                                         .ctx = options->ctx,
                                         .flags = HTTP_ROUTE_STREAM | HTTP_ROUTE_GUEST,
                                         .body_bytes = (size_t)1 << 30};
    s->fallback_route = (struct http_route){.methods = "GET",
                                            .pattern = "(page)",
                                            .handler = options->fallback,
                                            .ctx = options->ctx,
                                            .flags = HTTP_ROUTE_PAGE};
    (void)snprintf(s->id_prefix, sizeof(s->id_prefix), "%08x", (unsigned)rand_u64());
    (void)uv_timer_init(options->loop, &s->sweep);
    s->sweep.data = s;
    uv_unref((uv_handle_t *)&s->sweep);
    later_queue_init(&s->later, options->loop);
    later_queue_init_last(&s->last, options->loop);
    s->handles = 3;
    return s;
}

void http_server_route(struct http_server *s, const struct http_route *route) {
    s->routes = xrealloc(s->routes, (s->nroutes + 1) * sizeof(*route));
    s->routes[s->nroutes++] = *route;
}

void http_server_routes(struct http_server *s, const struct http_route *routes, size_t n) {
    for (size_t i = 0; i < n; i++)
        http_server_route(s, &routes[i]);
}

static void http_server_on_connection(uv_stream_t *stream, int status) {
    struct listener *l = stream->data;
    struct http_server *s = l->server;
    if (status == 0) {
        conn_accept(l, -1);
        return;
    }
    /* No descriptor is free: libuv has hung up on whoever came. Said once a minute, not each time.
     */
    s->stats.refused_total++;
    uint64_t now = uv_now(s->opt.loop);
    if (s->told_refused_ms != 0 && now - s->told_refused_ms < 60000)
        return;
    s->told_refused_ms = now;
    log_warn("http.accept", "error", uv_strerror(status), "advice",
             status == UV_EMFILE ? "raise the limit of open files (ulimit -n)" : "");
}

int http_server_listen(struct http_server *s, int fd, struct err *err) {
    struct sockaddr_storage a = {0};
    socklen_t n = sizeof(a);
    if (getsockname(fd, (struct sockaddr *)&a, &n) < 0)
        return err_sys(err, "listen");
    struct listener *l = xcalloc(1, sizeof(*l));
    l->server = s;
    l->unix_socket = a.ss_family == AF_UNIX;
    int rc;
    if (l->unix_socket) {
        (void)uv_pipe_init(s->opt.loop, &l->uv.pipe, 0);
        rc = uv_pipe_open(&l->uv.pipe, fd);
    } else {
        (void)uv_tcp_init(s->opt.loop, &l->uv.tcp);
        rc = uv_tcp_open(&l->uv.tcp, fd);
    }
    l->uv.handle.data = l;
    l->next = s->listeners;
    s->listeners = l;
    s->handles++;
    if (rc == 0)
        rc = uv_listen(&l->uv.stream, BACKLOG, http_server_on_connection);
    if (rc < 0)
        return err_set(err, ERR_IO, "listen: %s", uv_strerror(rc));
    return 0;
}

void http_server_set_limits(struct http_server *s, const struct http_limits *limits) {
    s->opt.limits = *limits;
}

struct http_stats http_server_stats(const struct http_server *s) {
    return s->stats;
}

void server_release(struct http_server *s) {
    if (!s->destroyed || s->handles > 0 || s->stats.connections > 0 || s->stats.requests > 0)
        return;
    shares_finish(&s->unread);
    free(s->routes);
    free(s);
}

static void http_server_on_listener_closed(uv_handle_t *h) {
    struct listener *l = h->data;
    struct http_server *s = l->server;
    free(l);
    s->handles--;
    server_release(s);
}

/* Whoever has come by now is let in: closing the socket would cut them off. */
static void accept_waiting(struct listener *l) {
    uv_os_fd_t listening;
    int fd;
    if (uv_fileno(&l->uv.handle, &listening) == 0)
        while ((fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0)
            conn_accept(l, fd);
}

static void stop_listening(struct http_server *s) {
    while (s->listeners) {
        struct listener *l = s->listeners;
        accept_waiting(l);
        s->listeners = l->next;
        uv_close(&l->uv.handle, http_server_on_listener_closed);
    }
}

static void tell_drained(struct http_server *s) {
    void (*cb)(void *) = s->on_drained;
    s->on_drained = NULL;
    if (cb)
        cb(s->drained_ctx);
}

static void http_server_on_drain_timeout(uv_timer_t *t) {
    struct http_server *s = t->data;
    while (s->conns)
        conn_close(s->conns);
}

static bool http_server_is_endless(const struct http_conn *c) {
    return c->raw || c->ws ||
           (c->req && c->req->streaming && (c->req->route->flags & HTTP_ROUTE_WATCH));
}

void http_server_leave(struct http_server *s) {
    s->leaving = true;
}

size_t http_server_busy(const struct http_server *s) {
    size_t n = 0;
    for (const struct http_conn *c = s->conns; c; c = c->next)
        n += c->req && !http_server_is_endless(c);
    return n;
}

void http_server_drain(struct http_server *s, unsigned timeout_ms, void (*on_drained)(void *ctx),
                       void *ctx) {
    if (s->draining)
        return;
    s->draining = s->leaving = true;
    s->on_drained = on_drained;
    s->drained_ctx = ctx;
    stop_listening(s);
    (void)uv_timer_init(s->opt.loop, &s->drain_timer);
    s->drain_timer.data = s;
    s->drain_timer_used = true;
    s->handles++;
    (void)uv_timer_start(&s->drain_timer, http_server_on_drain_timeout, timeout_ms, 0);
    uint64_t now_ms = uv_now(s->opt.loop);
    struct http_conn *next;
    for (struct http_conn *c = s->conns; c; c = next) {
        next = c->next;
        if (c->ws)
            ws_going_away(c->ws);
        else if (http_server_is_endless(c))
            conn_close(c);
        else if (c->state == CONN_HEAD && c->in.len == 0 && !conn_expects(c, now_ms))
            conn_end_after_writes(c);
        else if (c->state == CONN_HEAD)
            c->deadline_ms = now_ms + FIRST_MS;
    }
    if (s->stats.connections == 0)
        tell_drained(s);
}

static void http_server_on_timer_closed(uv_handle_t *h) {
    struct http_server *s = h->data;
    s->handles--;
    server_release(s);
}

void http_server_destroy(struct http_server *s) {
    if (!s || s->destroyed)
        return;
    stop_listening(s);
    while (s->conns)
        conn_close(s->conns);
    s->destroyed = true;
    s->opt.intake = NULL; /* its owner ends it; requests that are owed an answer may stay */
    uv_close((uv_handle_t *)&s->sweep, http_server_on_timer_closed);
    later_queue_close(&s->later, http_server_on_timer_closed, s);
    later_queue_close(&s->last, http_server_on_timer_closed, s);
    if (s->drain_timer_used)
        uv_close((uv_handle_t *)&s->drain_timer, http_server_on_timer_closed);
}
