#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/sm.h"
#include "front/http/internal.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

/* One connection: bytes in, requests out, answers back in order. The input window is either the
 * loop's shared read buffer or, when a piece had to be kept, the connection's own `in`. Reading
 * stops while an answer is being made and more than a head is already waiting. */

enum {
    LINGER_MS = 2000,
    REFUSED_MAX = 64,
    REQUESTS_PER_TURN = 16,
    PACE_MS = 5000,
    SMALL_BODY = 16384, /* counts for nothing */
    SOON_BYTES = 16384,
    PIECES_MAX = 4, /* of a write */
};

#define ENDS (SM_TO(CONN_LINGER) | SM_TO(CONN_CLOSING))
static const struct sm_state states[] = {
    [CONN_HEAD] = {"head", SM_TO(CONN_BODY) | SM_TO(CONN_HANDLE) | ENDS},
    [CONN_BODY] = {"body", SM_TO(CONN_HANDLE) | ENDS},
    [CONN_HANDLE] = {"handle", SM_TO(CONN_HEAD) | SM_TO(CONN_WS) | SM_TO(CONN_RAW) | ENDS},
    [CONN_WS] = {"websocket", SM_TO(CONN_CLOSING)},
    [CONN_RAW] = {"raw", SM_TO(CONN_CLOSING)},
    [CONN_LINGER] = {"linger", SM_TO(CONN_CLOSING)},
    [CONN_CLOSING] = {"closing", 0},
};
static const struct sm machine = {"connection", states, ARRAY_LEN(states)};

void conn_move(struct http_conn *c, enum conn_state to) {
    if (c->state != to)
        c->state = sm_next(&machine, c->state, to);
}

static uint64_t http_conn_now_ms(const struct http_conn *c) {
    return uv_now(c->server->opt.loop);
}

static void http_conn_go_on(struct http_conn *c);
static void http_conn_flush(struct http_conn *c);

static void http_conn_on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *out) {
    (void)hint;
    struct http_conn *c = h->data;
    *out = uv_buf_init(c->server->read_buf, sizeof(c->server->read_buf));
}

static void http_conn_on_closed(uv_handle_t *h) {
    struct http_conn *c = h->data;
    struct http_server *s = c->server;
    later_cancel(&c->later);
    later_cancel(&c->flush);
    buf_finish(&c->in);
    buf_finish(&c->soon);
    free(c);
    s->stats.connections--;
    if (s->draining && s->stats.connections == 0 && s->on_drained) {
        void (*cb)(void *) = s->on_drained;
        s->on_drained = NULL;
        cb(s->drained_ctx);
    }
    server_release(s);
}

void conn_close(struct http_conn *c) {
    if (c->closing)
        return;
    http_conn_flush(c); /* what was said before goes, as far as the client takes it */
    commits_close(c);
    c->closing = true;
    conn_move(c, CONN_CLOSING);
    if (c->prev)
        c->prev->next = c->next;
    else
        c->server->conns = c->next;
    if (c->next)
        c->next->prev = c->prev;
    if (c->ws) {
        struct http_ws *ws = c->ws;
        c->ws = NULL;
        ws_conn_gone(ws);
    }
    if (c->raw) {
        struct http_raw *raw = c->raw;
        c->raw = NULL;
        raw_conn_gone(raw);
    }
    if (c->req) {
        struct http_req *req = c->req;
        c->req = NULL;
        req_gone(req);
    }
    unsent_drop(c);
    uv_close(&c->uv.handle, http_conn_on_closed);
}

static void http_conn_on_shutdown(uv_shutdown_t *r, int status) {
    struct http_conn *c = r->data;
    free(r);
    if (status < 0)
        conn_close(c);
}

/* All is written: close, or, when the client may still be sending, shut our side and read on for a
 * while, since a close with unread bytes would reset the connection and lose the answer. */
static void finish_writes(struct http_conn *c) {
    http_conn_flush(c);
    if (c->queued > 0 || c->closing)
        return;
    if (c->state != CONN_LINGER || c->eof) {
        conn_close(c);
        return;
    }
    if (c->shut)
        return;
    c->shut = true;
    uv_shutdown_t *r = xmalloc(sizeof(*r));
    r->data = c;
    if (uv_shutdown(r, &c->uv.stream, http_conn_on_shutdown) < 0) {
        free(r);
        conn_close(c);
    }
}

void conn_end_after_writes(struct http_conn *c) {
    if (c->closing)
        return;
    if (c->state != CONN_LINGER)
        conn_move(c, CONN_CLOSING);
    c->deadline_ms = c->state == CONN_LINGER ? http_conn_now_ms(c) + LINGER_MS : 0;
    finish_writes(c);
}

void conn_linger(struct http_conn *c) {
    if (c->closing)
        return;
    conn_move(c, CONN_LINGER);
    conn_read_start(c);
    conn_end_after_writes(c);
}

void conn_taken(struct http_conn *c) {
    struct http_server *s = c->server;
    c->taken_ms = http_conn_now_ms(c);
    c->write_deadline_ms = c->queued ? c->taken_ms + s->opt.limits.write_timeout_ms : 0;
    if (c->queued == 0 && c->state == CONN_HEAD && !c->head_begun)
        c->deadline_ms = c->taken_ms + s->opt.limits.idle_timeout_ms;
    if ((c->throttled || c->drain_wanted) &&
        c->queued <= MIN((size_t)LIMIT_WRITE_LOW_BYTES, unsent_high_mark(c))) {
        c->throttled = false;
        c->drain_wanted = false;
        if (c->ws)
            ws_drained(c->ws);
        else if (c->raw)
            raw_drained(c->raw);
        else if (c->req && c->req->on_drain)
            c->req->on_drain(c->req->drain_ctx);
        http_conn_go_on(c); /* requests and frames that came meanwhile have waited */
    }
    if (!c->closing && (c->state == CONN_CLOSING || c->state == CONN_LINGER))
        finish_writes(c);
}

void conn_break(struct http_conn *c) {
    c->broken = true;
    conn_resume(c);
}

/* The client is gone. Whoever writes is told so by the write. */
static bool write_failed(struct http_conn *c) {
    conn_break(c);
    return false;
}

static size_t total_of(const uv_buf_t *pieces, unsigned n) {
    size_t total = 0;
    for (unsigned i = 0; i < n; i++)
        total += pieces[i].len;
    return total;
}

static bool http_conn_write_now(struct http_conn *c, const uv_buf_t *pieces, unsigned n,
                                const struct unsent_source *from) {
    if (c->closing || c->broken)
        return false;
    size_t total = total_of(pieces, n);
    if (total == 0)
        return true;
    c->server->stats.bytes_out += total;
    size_t sent = 0;
    if (c->queued == 0 && !c->hold_ticket) {
        int k = uv_try_write(&c->uv.stream, pieces, n);
        if (k < 0 && k != UV_EAGAIN)
            return write_failed(c);
        sent = k > 0 ? (size_t)k : 0;
        if (sent == total)
            return true;
    }
    if (c->queued == 0) {
        /* Only what the client takes moves this: not what we add, a ping of ours, say. */
        c->taken_ms = http_conn_now_ms(c);
        c->write_deadline_ms = c->taken_ms + c->server->opt.limits.write_timeout_ms;
    }
    if (!unsent_add(c, pieces, n, sent, from))
        return write_failed(c);
    if (c->queued > unsent_high_mark(c))
        c->throttled = true;
    return true;
}

bool conn_write_from(struct http_conn *c, const uv_buf_t *pieces, unsigned n,
                     const struct unsent_source *from) {
    if (!c->soon.data)
        return http_conn_write_now(c, pieces, n, from);
    uv_buf_t all[1 + PIECES_MAX] = {uv_buf_init(c->soon.data, (unsigned)c->soon.len)};
    for (unsigned i = 0; i < n; i++)
        all[1 + i] = pieces[i];
    bool ok = http_conn_write_now(c, all, 1 + n, from);
    buf_finish(&c->soon); /* an idle connection keeps no buffer */
    later_cancel(&c->flush);
    return ok;
}

bool conn_write(struct http_conn *c, const uv_buf_t *pieces, unsigned n) {
    return conn_write_from(c, pieces, n, &(struct unsent_source){0});
}

static void http_conn_flush(struct http_conn *c) {
    if (c->soon.len > 0)
        (void)conn_write(c, NULL, 0);
}

static void http_conn_on_flush(void *ctx) {
    http_conn_flush(ctx);
}

bool conn_write_soon(struct http_conn *c, const uv_buf_t *pieces, unsigned n, json_t *text) {
    if (c->closing || c->broken)
        return false;
    if (c->queued > 0 || c->soon.len + total_of(pieces, n) > SOON_BYTES)
        return conn_write_from(c, pieces, n, &(struct unsent_source){.text = text});
    for (unsigned i = 0; i < n; i++)
        (void)buf_add(&c->soon, pieces[i].base, pieces[i].len);
    later_post(&c->server->last, &c->flush, http_conn_on_flush, c);
    return true;
}

static void http_conn_fail(struct http_conn *c, const struct err *err, int status) {
    req_fail(c, err, status);
    conn_linger(c);
}

static bool streams_body(const struct http_req *req) {
    return (req->route->flags & HTTP_ROUTE_STREAM) != 0;
}

static size_t body_max(const struct http_req *req) {
    return req->route->body_bytes ? req->route->body_bytes : req->server->opt.limits.body_bytes;
}

/* The body is not what it should be. A handler that has begun with the request is told that the
 * client is gone; an answer that has begun cannot be changed into an error, only broken off. */
static void fail_body(struct http_conn *c, const struct err *err) {
    struct http_req *req = c->req;
    if (req->streaming) {
        conn_close(c);
        return;
    }
    if (req->owed) {
        c->req = NULL;
        req_gone(req);
    }
    http_conn_fail(c, err, 0);
}

/* Counts what the body takes; false: all of them together take too much. */
static bool http_conn_hold(struct http_req *req) {
    struct http_stats *stats = &req->server->stats;
    size_t now = req->body.len > SMALL_BODY ? req->body.cap : 0;
    stats->held_bytes += now - req->held;
    req->held = now;
    return now == 0 || stats->held_bytes <= req->server->opt.limits.held_bytes;
}

void conn_body_released(struct http_req *req) {
    req->server->stats.held_bytes -= req->held;
    req->held = 0;
}

/* A route may have a bound of its own, which the setting does not change. */
static int body_too_large(const struct http_req *req, size_t max, struct err *err) {
    return err_set(err, ERR_TOO_LARGE, "the body exceeds %zu bytes (%s)", max,
                   req->route->body_bytes ? "the most that this endpoint takes"
                                          : "limits.body_bytes in cay.json");
}

static void http_conn_feed_body(struct http_conn *c, const char *data, size_t len) {
    struct http_req *req = c->req;
    if (!req || c->state != CONN_BODY)
        return;
    req->body_seen += len;
    size_t max = body_max(req);
    if (req->body_seen > max) {
        struct err err;
        (void)body_too_large(req, max, &err);
        fail_body(c, &err);
        return;
    }
    if (!streams_body(req)) {
        (void)buf_add(&req->body, data, len);
        if (!http_conn_hold(req)) {
            struct err err;
            (void)err_set(&err, ERR_UNAVAILABLE,
                          "the server holds too many bodies that are not whole (limit held_bytes); "
                          "try again");
            fail_body(c, &err);
        }
        return;
    }
    if (!req->body_paused)
        c->deadline_ms = http_conn_now_ms(c) + c->server->opt.limits.body_timeout_ms;
    if (req->on_data)
        req->on_data(req->body_ctx, data, len);
}

static void start_handler(struct http_req *req) {
    req->owed = true;
    if (!streams_body(req) && req_read_apart(req))
        return;
    req_handle(req);
}

/* The whole body is here. */
static void message_complete(struct http_conn *c) {
    struct http_req *req = c->req;
    conn_move(c, CONN_HANDLE);
    c->deadline_ms = 0;
    req->body_done = true;
    conn_body_released(req);
    if (!streams_body(req))
        start_handler(req);
    else if (req->on_end)
        req->on_end(req->body_ctx);
}

static void pace_begin(struct http_conn *c) {
    c->pace_ms = http_conn_now_ms(c);
    c->pace_seen = c->req ? c->req->body_seen : 0;
}

/* Whether a body comes as fast as it must. */
static bool keeps_pace(struct http_conn *c) {
    uint64_t now = http_conn_now_ms(c);
    if (c->state != CONN_BODY || !c->req || now < c->pace_ms + PACE_MS)
        return true;
    size_t least = c->server->opt.limits.body_pace_bytes * (PACE_MS / 1000);
    bool kept = c->req->body_paused || c->req->body_seen - c->pace_seen >= least;
    pace_begin(c);
    return kept;
}

/* Parses one head. Returns the bytes used, 0 if more are needed. */
static size_t http_conn_take_head(struct http_conn *c, const char *data, size_t len) {
    struct http_server *s = c->server;
    struct err err;
    /* An empty line before a request is tolerated, as RFC 9112 asks. */
    if (c->scanned == 0 && len >= 2 && data[0] == '\r' && data[1] == '\n')
        return 2;
    ssize_t end = http1_head_find_end(data, len, &c->scanned, &err);
    if (end == 0 && len <= s->opt.limits.head_bytes) {
        return 0;
    }
    if (end >= 0 && (end == 0 || (size_t)end > s->opt.limits.head_bytes)) {
        (void)err_set(&err, ERR_TOO_LARGE,
                      "the head of the request exceeds %zu bytes (limit "
                      "head_bytes)",
                      s->opt.limits.head_bytes);
        http_conn_fail(c, &err, 431);
        return len;
    }
    c->scanned = 0;
    c->head_begun = false;
    if (end < 0) {
        http_conn_fail(c, &err, 0);
        return len;
    }
    struct http_req *req = req_create(s);
    req->conn = c;
    c->req = req;
    if (head_parse(c, req, data, (size_t)end, &err) < 0) {
        http_conn_fail(c, &err, err.code == ERR_TOO_LARGE ? 431 : 0);
        return len;
    }
    /* Owed until the guard and the limits have passed it: they answer in the handler's place. */
    req->owed = true;
    req->body_done = !req->head.has_body;
    conn_move(c, req->head.has_body ? CONN_BODY : CONN_HANDLE);
    c->deadline_ms = req->head.has_body ? http_conn_now_ms(c) + s->opt.limits.body_timeout_ms : 0;
    pace_begin(c);
    if (!router_admit(s, req))
        return (size_t)end;
    size_t max = body_max(req);
    if (req->head.has_length && req->head.content_length > max) {
        (void)body_too_large(req, max, &err);
        http_respond_err(req, &err);
        return (size_t)end;
    }
    req->owed = false;
    buf_init(&req->body, max);
    if (req->head.expects_continue) {
        uv_buf_t b = uv_buf_init((char *)"HTTP/1.1 100 Continue\r\n\r\n", 25);
        if (!conn_write(c, &b, 1))
            return len;
    }
    if (streams_body(req) || req->body_done)
        start_handler(req);
    /* The handler may have answered, which ends the request. */
    if (c->req == req && req->body_done && req->on_end)
        req->on_end(req->body_ctx);
    return (size_t)end;
}

static bool http_conn_on_body(void *ctx, const char *data, size_t len) {
    http_conn_feed_body(ctx, data, len);
    return true;
}

static size_t http_conn_take_body(struct http_conn *c, const char *data, size_t len) {
    bool whole = false;
    struct err err;
    ssize_t used = http1_body_feed(&c->body, &(struct http1_body_sink){http_conn_on_body, c}, data,
                                   len, &whole, &err);
    if (c->state != CONN_BODY)
        return len;
    if (used < 0) {
        fail_body(c, &err);
        return len;
    }
    if (whole)
        message_complete(c);
    return MIN((size_t)used, len);
}

static size_t http_conn_run(struct http_conn *c, const char *data, size_t len) {
    size_t used = 0;
    int requests = 0;
    c->running = true;
    while (used < len && !c->broken) {
        size_t k;
        if (c->state == CONN_HEAD) {
            /* A client that sends requests and reads no answers fills its own pipe, not memory. */
            if (c->throttled)
                break;
            /* One that sends a thousand requests at once must not make the others wait. */
            if (requests++ == REQUESTS_PER_TURN) {
                conn_resume(c);
                break;
            }
            if (c->server->draining && c->scanned == 0 && used > 0) {
                conn_end_after_writes(c);
                break;
            }
            k = http_conn_take_head(c, data + used, len - used);
            if (k == 0) {
                if (!c->head_begun)
                    c->deadline_ms = http_conn_now_ms(c) + c->server->opt.limits.header_timeout_ms;
                c->head_begun = true;
                break;
            }
        } else if (c->state == CONN_BODY) {
            if (!c->req || c->req->body_paused)
                break;
            k = http_conn_take_body(c, data + used, len - used);
        } else if (c->state == CONN_WS) {
            if (ws_is_paused(c->ws))
                break;
            k = len - used;
            ws_feed(c->ws, data + used, k);
        } else if (c->state == CONN_RAW) {
            if (raw_is_paused(c->raw))
                break;
            k = len - used;
            raw_feed(c->raw, data + used, k);
        } else if (c->state == CONN_HANDLE) {
            break;
        } else {
            k = len - used; /* lingering or closing: nobody wants it */
        }
        used += k;
    }
    c->running = false;
    return MIN(used, len);
}

/* Runs over what is kept in `in`. */
static void run_kept(struct http_conn *c) {
    size_t used = http_conn_run(c, c->in.data, c->in.len);
    if (used == c->in.len)
        buf_finish(&c->in); /* an idle connection keeps no buffer */
    else
        buf_consume(&c->in, used);
}

static bool http_conn_wants_input(const struct http_conn *c) {
    if (c->later.queue)
        return false; /* what is here goes first */
    if (c->state == CONN_HANDLE)
        return c->in.len < c->server->opt.limits.head_bytes;
    if (c->state == CONN_BODY)
        return c->req && !c->req->body_paused;
    if (c->state == CONN_RAW)
        return !raw_is_paused(c->raw);
    if (c->state == CONN_WS && ws_is_paused(c->ws))
        return false;
    return !c->throttled || c->state == CONN_LINGER || c->state == CONN_CLOSING;
}

/* No more input comes: go on with the requests that are here, then with what is to be written. */
static void conn_end_after_eof(struct http_conn *c) {
    if (c->state == CONN_HEAD && c->in.len > 0 && c->throttled)
        return; /* requests that wait for the queue: http_conn_go_on() comes back here */
    conn_end_after_writes(c);
}

static void http_conn_on_eof(struct http_conn *c) {
    c->eof = true;
    conn_read_stop(c);
    /* A client that shut its side after a whole request still gets its answer; one that is sent a
     * stream is taken for gone, since a closed page looks the same, and so is one whose route would
     * go on working for nobody. */
    if (c->state == CONN_HANDLE && c->req && !c->req->streaming &&
        !(c->req->route && c->req->route->flags & HTTP_ROUTE_LEAVE))
        return;
    if (c->queued > 0 && c->state != CONN_BODY && c->state != CONN_WS && !c->req)
        conn_end_after_eof(c);
    else
        conn_close(c);
}

static void http_conn_on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *b) {
    struct http_conn *c = stream->data;
    if (n == 0 || c->closing || c->broken)
        return;
    if (n == UV_EOF) {
        http_conn_on_eof(c);
        return;
    }
    if (n < 0) {
        conn_close(c);
        return;
    }
    c->server->stats.bytes_in += (uint64_t)n;
    if (c->in.len > 0) {
        (void)buf_add(&c->in, b->base, (size_t)n);
        run_kept(c);
    } else {
        size_t used = http_conn_run(c, b->base, (size_t)n);
        if (used < (size_t)n && !c->closing)
            (void)buf_add(&c->in, b->base + used, (size_t)n - used);
    }
    if (c->closing)
        return;
    if (http_conn_wants_input(c))
        conn_read_start(c); /* a handler may have paused and resumed inside its callback */
    else
        conn_read_stop(c);
}

/* The time for a body does not run while its reader has no room for it. */
void conn_body_paused(struct http_conn *c, bool paused) {
    if (c->state == CONN_BODY)
        c->deadline_ms = paused ? 0 : http_conn_now_ms(c) + c->server->opt.limits.body_timeout_ms;
    pace_begin(c);
    if (paused)
        conn_read_stop(c);
    else if (c->in.len > 0 || c->eof)
        conn_resume(c);
    else if (http_conn_wants_input(c))
        conn_read_start(c);
}

void conn_read_start(struct http_conn *c) {
    if (c->reading || c->closing || c->eof)
        return;
    if (uv_read_start(&c->uv.stream, http_conn_on_alloc, http_conn_on_read) < 0) {
        conn_break(c);
        return;
    }
    c->reading = true;
}

void conn_read_stop(struct http_conn *c) {
    if (!c->reading)
        return;
    (void)uv_read_stop(&c->uv.stream);
    c->reading = false;
}

/* Goes on with input that was kept, and reads on: only ever from the loop. */
static void http_conn_go_on(struct http_conn *c) {
    if (c->closing || c->broken)
        return;
    if (c->in.len > 0)
        run_kept(c);
    if (c->closing)
        return;
    if (c->eof && c->state == CONN_HEAD)
        conn_end_after_eof(c);
    else if (c->eof && c->state == CONN_BODY)
        conn_close(c); /* the rest of that body will not come */
    else if (http_conn_wants_input(c))
        conn_read_start(c);
}

static void http_conn_on_turn(void *ctx) {
    struct http_conn *c = ctx;
    if (c->broken)
        conn_close(c);
    else
        http_conn_go_on(c);
}

void conn_resume(struct http_conn *c) {
    if (!c->closing)
        later_post(&c->server->later, &c->later, http_conn_on_turn, c);
}

void conn_answered(struct http_conn *c, struct http_req *req) {
    bool whole = c->state == CONN_HANDLE;
    bool keep = req->keep_alive && whole && !c->server->leaving && (!c->eof || c->in.len > 0);
    c->req = NULL;
    req_destroy(req);
    if (!whole) {
        /* Answered before the body was read: what follows is discarded with the connection. */
        conn_linger(c);
    } else if (!keep) {
        conn_end_after_writes(c);
    } else {
        conn_move(c, CONN_HEAD);
        c->accepted_ms = 0;
        c->deadline_ms = http_conn_now_ms(c) + c->server->opt.limits.idle_timeout_ms;
        /* Inside http_conn_run() the loop there goes on. Elsewhere somebody who answered is on the
         * stack: the next request must not run in there. */
        if (!c->running && (c->in.len > 0 || c->eof))
            conn_resume(c);
        else if (!c->running && http_conn_wants_input(c))
            conn_read_start(c);
    }
}

/* The connection that libuv has accepted, or one that its caller has. */
static int http_conn_open(struct listener *l, int fd, struct http_conn *c) {
    if (fd < 0)
        return uv_accept(&l->uv.stream, &c->uv.stream);
    int rc = l->unix_socket ? uv_pipe_open(&c->uv.pipe, fd) : uv_tcp_open(&c->uv.tcp, fd);
    if (rc < 0)
        (void)close(fd);
    return rc;
}

/* Whether a request may be on its way, though nothing of it was read. */
bool conn_expects(const struct http_conn *c, uint64_t now_ms) {
    char byte;
    uv_os_fd_t fd;
    if (c->accepted_ms && now_ms < c->accepted_ms + FIRST_MS)
        return true;
    return uv_fileno(&c->uv.handle, &fd) == 0 && recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
}

void conn_accept(struct listener *l, int fd) {
    struct http_server *s = l->server;
    struct http_conn *c = xcalloc(1, sizeof(*c));
    c->server = s;
    buf_init(&c->in, s->opt.limits.head_bytes + 2 * sizeof(s->read_buf));
    buf_init(&c->soon, SOON_BYTES);
    if (l->unix_socket)
        (void)uv_pipe_init(s->opt.loop, &c->uv.pipe, 0);
    else
        (void)uv_tcp_init(s->opt.loop, &c->uv.tcp);
    c->uv.handle.data = c;
    s->stats.connections++;
    s->stats.accepted_total++;
    c->next = s->conns;
    if (s->conns)
        s->conns->prev = c;
    s->conns = c;
    http_server_watch(s);
    if (http_conn_open(l, fd, c) < 0) {
        conn_close(c);
        return;
    }
    if (s->stats.connections > s->opt.limits.connections) {
        static char full[] = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n"
                             "Content-Length: 0\r\nConnection: close\r\n\r\n";
        uv_buf_t b = uv_buf_init(full, sizeof(full) - 1);
        s->stats.refused_total++;
        /* A few may stay for the moment it takes to read why; the rest are not worth it. */
        if (s->stats.connections <= s->opt.limits.connections + REFUSED_MAX && conn_write(c, &b, 1))
            conn_linger(c);
        else
            conn_close(c);
        return;
    }
    c->local = true;
    if (!l->unix_socket) {
        struct sockaddr_storage a;
        int n = sizeof(a);
        c->local = false;
        if (uv_tcp_getpeername(&c->uv.tcp, (struct sockaddr *)&a, &n) == 0) {
            if (a.ss_family == AF_INET)
                c->local = (ntohl(((struct sockaddr_in *)&a)->sin_addr.s_addr) >> 24) == 127;
            else if (a.ss_family == AF_INET6)
                c->local = IN6_IS_ADDR_LOOPBACK(&((struct sockaddr_in6 *)&a)->sin6_addr);
        }
        (void)uv_tcp_nodelay(&c->uv.tcp, 1);
    }
    c->accepted_ms = http_conn_now_ms(c);
    c->deadline_ms = c->accepted_ms + s->opt.limits.header_timeout_ms;
    conn_read_start(c);
}

/* A head or a body that does not come in time gets 408; an idle connection is just closed. */
static void http_conn_on_deadline(struct http_conn *c) {
    if (c->state == CONN_HEAD && c->in.len == 0) {
        conn_close(c);
        return;
    }
    if (c->state == CONN_HEAD || c->state == CONN_BODY) {
        struct err err;
        (void)err_set(&err, ERR_TIMEOUT, "the %s of the request did not come in time",
                      c->state == CONN_HEAD ? "head" : "body");
        if (c->state == CONN_BODY)
            fail_body(c, &err);
        else
            http_conn_fail(c, &err, 0);
        return;
    }
    conn_close(c);
}

void conn_sweep(struct http_server *s) {
    uint64_t now = uv_now(s->opt.loop);
    struct http_conn *next;
    for (struct http_conn *c = s->conns; c; c = next) {
        next = c->next;
        if (c->write_deadline_ms && now > c->write_deadline_ms)
            conn_close(c);
        else if ((c->deadline_ms && now > c->deadline_ms &&
                  !(c->state == CONN_HEAD && c->queued)) ||
                 !keeps_pace(c))
            http_conn_on_deadline(c);
        else if (c->ws)
            ws_tick(c->ws, now);
        else
            follow_tick(c, now);
    }
}
