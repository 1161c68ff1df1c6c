#include "base/mem.h"
#include "front/http/internal.h"

#include <stdlib.h>

/* A connection that is HTTP no more: after the head of a last answer its bytes go through as they
 * come, both ways, until either side closes. */

struct http_raw {
    struct http_conn *conn;
    struct http_raw_callbacks callbacks;
    void *ctx;
    bool paused;
};

struct http_raw *http_raw_accept(struct http_req *req, const char *head, size_t len,
                                 const struct http_raw_callbacks *callbacks, void *ctx) {
    struct http_conn *c = req->conn;
    uv_buf_t b = uv_buf_init((char *)(uintptr_t)head, (unsigned)len);
    req->on_gone = NULL;
    if (!c || c->state != CONN_HANDLE || c->server->draining || !conn_write(c, &b, 1)) {
        struct err err;
        (void)err_set(&err, ERR_UNAVAILABLE, "the connection cannot be handed over now");
        http_respond_err(req, &err);
        return NULL;
    }
    struct http_raw *r = xcalloc(1, sizeof(*r));
    r->conn = c;
    r->callbacks = *callbacks;
    r->ctx = ctx;
    struct http_server *s = c->server;
    req->status = 101;
    s->stats.requests_total++;
    if (s->opt.observer)
        s->opt.observer(req, req->route->pattern, 101, 0, s->opt.ctx);
    c->req = NULL;
    c->raw = r;
    conn_move(c, CONN_RAW);
    c->deadline_ms = 0;
    req_destroy(req);
    conn_resume(c); /* what came already waits until the caller knows the connection */
    return r;
}

bool raw_is_paused(const struct http_raw *r) {
    return r->paused;
}

void raw_feed(struct http_raw *r, const char *data, size_t len) {
    r->callbacks.on_data(r->ctx, data, len);
}

void raw_drained(struct http_raw *r) {
    if (r->callbacks.on_drain)
        r->callbacks.on_drain(r->ctx);
}

void raw_conn_gone(struct http_raw *r) {
    r->callbacks.on_close(r->ctx);
    free(r);
}

bool http_raw_write(struct http_raw *r, const void *data, size_t len) {
    uv_buf_t b = uv_buf_init((char *)(uintptr_t)data, (unsigned)len);
    return !conn_write(r->conn, &b, 1) || !r->conn->throttled;
}

void http_raw_pause(struct http_raw *r, bool paused) {
    if (r->paused == paused)
        return;
    r->paused = paused;
    if (paused)
        conn_read_stop(r->conn);
    else
        conn_resume(r->conn);
}

void http_raw_close(struct http_raw *r) {
    r->conn->raw = NULL;
    conn_end_after_writes(r->conn);
    free(r);
}
