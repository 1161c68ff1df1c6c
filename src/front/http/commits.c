/* Requests and answers that wait for the store.
 *
 * The store writes a little later than it is told to (front/store/queue.c). Two rules keep a client
 * from seeing that. A request begins when everything is written that was queued before it came, so
 * a GET sees what an earlier answer said. And the answer of a request that changes something leaves
 * when what was queued before it is written: what a client can name is there after a crash.
 *
 * Routes with HTTP_ROUTE_DIRECT, which read nothing from the store and whose answers name nothing
 * that goes on, do neither; http_hold() makes one of their answers wait. Nobody waits while the
 * store cannot be written. */
#include "front/http/internal.h"

static const struct http_commits *commits_of(const struct http_req *req) {
    const struct http_commits *k = &req->server->opt.commits;
    return k->submitted ? k : NULL;
}

static bool is_direct(const struct http_req *req) {
    static const unsigned direct =
        HTTP_ROUTE_DIRECT | HTTP_ROUTE_STREAM | HTTP_ROUTE_GUEST | HTTP_ROUTE_PAGE;
    return !req->route || (req->route->flags & direct) != 0;
}

static bool is_written(const struct http_commits *k, int64_t ticket) {
    return k->has_written(k->ctx, ticket);
}

/* --- requests --- */

static void commits_on_begin(void *ctx) {
    req_begin(ctx);
}

static void commits_on_gone(void *ctx) {
    struct http_req *req = ctx;
    commits_forget(req);
    http_respond_empty(req, 499);
}

bool commits_delay(struct http_req *req) {
    const struct http_commits *k = commits_of(req);
    if (!k || is_direct(req) || !req->conn)
        return false;
    int64_t ticket = k->submitted(k->ctx);
    if (is_written(k, ticket))
        return false;
    req->ticket = ticket;
    req->server->delayed++;
    http_req_on_gone(req, commits_on_gone, req);
    return true;
}

void commits_forget(struct http_req *req) {
    later_cancel(&req->begin);
    if (req->ticket)
        req->server->delayed--;
    req->ticket = 0;
}

static void commits_begin(struct http_req *req) {
    req->on_gone = NULL;
    commits_forget(req);
    later_post(&req->server->later, &req->begin, commits_on_begin, req);
    http_req_on_gone(req, commits_on_gone, req);
}

/* --- answers --- */

void http_hold(struct http_req *req) {
    const struct http_commits *k = commits_of(req);
    struct http_conn *c = req->conn;
    if (!k || !c || c->closing)
        return;
    int64_t ticket = k->submitted(k->ctx);
    if (is_written(k, ticket))
        return;
    if (!c->hold_ticket)
        req->server->delayed++;
    c->hold_ticket = ticket;
}

void commits_hold(struct http_req *req) {
    bool changes = req->method != HTTP_METHOD_GET && req->method != HTTP_METHOD_HEAD;
    if (changes && !is_direct(req))
        http_hold(req);
}

static void commits_on_release(void *ctx) {
    unsent_release(ctx);
}

void commits_close(struct http_conn *c) {
    later_cancel(&c->release);
    if (c->hold_ticket)
        c->server->delayed--;
    c->hold_ticket = 0;
}

void http_server_committed(struct http_server *s) {
    const struct http_commits *k = &s->opt.commits;
    if (s->delayed == 0)
        return;
    for (struct http_conn *c = s->conns; c; c = c->next) {
        if (c->hold_ticket && is_written(k, c->hold_ticket)) {
            commits_close(c);
            later_post(&s->later, &c->release, commits_on_release, c);
        }
        if (c->req && c->req->ticket && is_written(k, c->req->ticket))
            commits_begin(c->req);
    }
}
