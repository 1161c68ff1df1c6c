#include "front/http/follower.h"

static void follower_free(struct http_follower *f) {
    f->req = NULL;
    if (f->type->free)
        f->type->free(f->ctx);
}

static void follower_on_gone(void *ctx) {
    struct http_follower *f = ctx;
    if (f->type->gone)
        f->type->gone(f->ctx);
    if (f->streams)
        http_stream_end(f->req);
    else
        http_respond_empty(f->req, 499);
    follower_free(f);
}

/* Whoever takes the request over at the end has callbacks of his own. */
static void follower_let_go(const struct http_follower *f) {
    http_req_on_gone(f->req, NULL, NULL);
    http_stream_on_drain(f->req, NULL, NULL);
}

void http_follower_end(struct http_follower *f) {
    follower_let_go(f);
    if (f->type->end)
        f->type->end(f->ctx);
    if (f->streams)
        http_stream_end(f->req);
    follower_free(f);
}

static void follower_break(struct http_follower *f) {
    follower_let_go(f);
    http_stream_break(f->req);
    follower_free(f);
}

void http_follower_fail(struct http_follower *f, const struct err *err) {
    if (f->streams) {
        follower_break(f);
        return;
    }
    follower_let_go(f);
    http_respond_err(f->req, err);
    follower_free(f);
}

/* The answer to a HEAD never fills up: nothing is read for it. */
static enum http_next follower_next(struct http_follower *f) {
    enum http_next n = HTTP_NEXT_MORE;
    if (f->streams && !http_stream_has_body(f->req))
        return HTTP_NEXT_END;
    while (n == HTTP_NEXT_MORE && !f->full)
        n = f->type->next(f->ctx);
    return n;
}

void http_follower_more(void *ctx) {
    struct http_follower *f = ctx;
    if (!f->req || f->full || !f->type->next)
        return;
    enum http_next n = follower_next(f);
    if (n == HTTP_NEXT_END)
        http_follower_end(f);
    else if (n == HTTP_NEXT_BREAK)
        follower_break(f);
}

static void follower_on_drain(void *ctx) {
    struct http_follower *f = ctx;
    f->full = false;
    http_follower_more(f);
}

void http_follower_init(struct http_follower *f, struct http_req *req,
                        const struct http_follower_type *type, void *ctx) {
    *f = (struct http_follower){.req = req, .type = type, .ctx = ctx};
    http_req_on_gone(req, follower_on_gone, f);
}

void http_follower_begin(struct http_follower *f, const char *type) {
    if (f->streams)
        return;
    f->streams = true;
    http_stream_on_drain(f->req, follower_on_drain, f);
    if (type)
        http_stream_begin(f->req, 200, type);
    else
        http_sse_begin(f->req);
}

bool http_follower_write(struct http_follower *f, const void *data, size_t len) {
    f->full = !http_stream_write(f->req, data, len);
    return !f->full;
}

bool http_follower_send(struct http_follower *f, const char *event, const char *id,
                        const char *data, size_t len) {
    f->full = !http_sse_send(f->req, event, id, data, len);
    return !f->full;
}
