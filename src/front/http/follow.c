#include "front/http/internal.h"

/* What open streams have in common, whatever is in them: answers in pieces, WebSockets, terminals,
 * connections that were handed over, and bodies that still come. They outlive the check that let
 * them in. When keys change, the front says so once, and all that belongs to somebody who is not
 * valid any more ends here: no stream has to think of it. And an event stream that says nothing for
 * a while gets a comment line, because proxies cut off what is silent for a minute. */

enum { KEEP_ALIVE_MS = 15000 };

static bool http_follow_is_open(const struct http_conn *c) {
    return c->ws || c->raw || (c->req && (c->req->streaming || !c->req->body_done));
}

static void follow_recheck(void *ctx) {
    struct http_server *s = ctx;
    struct http_conn *next;
    for (struct http_conn *c = s->conns; c; c = next) {
        next = c->next;
        if (!http_follow_is_open(c) || !*c->key || s->opt.is_valid(c->key, s->opt.ctx))
            continue;
        if (c->ws)
            http_ws_close(c->ws, 1008, "the key is not valid any more");
        else
            conn_close(c);
    }
}

void http_server_recheck(struct http_server *s) {
    if (s->opt.is_valid && !s->destroyed)
        later_post(&s->later, &s->recheck, follow_recheck, s);
}

/* Not while something waits to be read: a comment would hide that nobody reads. */
void follow_tick(struct http_conn *c, uint64_t now_ms) {
    struct http_req *req = c->req;
    if (!req || !req->events || c->queued > 0 || now_ms < req->said_ms + KEEP_ALIVE_MS)
        return;
    (void)http_stream_write(req, ":\n\n", 3);
}
