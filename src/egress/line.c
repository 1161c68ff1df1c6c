#include "base/cleanup.h"
#include "base/clock.h"
#include "base/mem.h"
#include "egress/internal.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { BACKLOG = 128, SWEEP_MS = 250, USAGE_EVERY_MS = 1000 };

bool bucket_take(struct bucket *b, double per_second, double capacity) {
    int64_t now = clock_mono_ms();
    b->level = b->filled_ms == 0
                   ? capacity
                   : MIN(capacity, b->level + per_second * (double)(now - b->filled_ms) / 1000);
    b->filled_ms = now;
    if (b->level < 1)
        return false;
    b->level -= 1;
    return true;
}

/* --- what is told to the front --- */

void line_tell_usage(struct line *b) {
    struct buf out;
    buf_init(&out, EGRESS_FRAME_MAX);
    b->usage.sandbox = b->id;
    pack_egress_usage(&out, &b->usage);
    b->usage.sandbox = NULL;
    b->usage_untold = false;
    b->usage_told_ms = clock_mono_ms();
    (void)egress_send(b->egress, EGRESS_USAGE, 0, &out);
    buf_finish(&out);
}

void line_count(struct line *b, uint64_t bytes_in, uint64_t bytes_out) {
    b->usage.bytes_in += bytes_in;
    b->usage.bytes_out += bytes_out;
    b->usage_untold = true;
}

/* --- caps --- */

int line_admit(struct line *b, struct err *err) {
    const struct egress_caps *caps = &b->policy.caps;
    double rate = (double)caps->requests_per_minute;
    if (caps->requests > 0 && b->usage.requests >= caps->requests)
        return err_set(err, ERR_LIMIT,
                       "this sandbox has made all of its %llu requests: the operator would raise "
                       "the sandbox's network caps",
                       (unsigned long long)caps->requests);
    if (!line_bytes_left(b))
        return err_set(err, ERR_LIMIT,
                       "this sandbox has moved all of its %llu bytes: the operator would raise the "
                       "sandbox's network caps",
                       (unsigned long long)caps->bytes);
    if (caps->requests_per_minute > 0 && !bucket_take(&b->requests, rate / 60, rate))
        return err_set(err, ERR_RATE, "this sandbox may make %llu requests in a minute",
                       (unsigned long long)caps->requests_per_minute);
    return 0;
}

bool line_bytes_left(const struct line *b) {
    return b->policy.caps.bytes == 0 ||
           b->usage.bytes_in + b->usage.bytes_out < b->policy.caps.bytes;
}

bool line_hold(struct line *b, uint64_t had, uint64_t has) {
    const struct egress_config *config = &b->egress->config;
    b->held_bytes += has - had;
    b->egress->held_bytes += has - had;
    return b->held_bytes <= config->held_bytes && b->egress->held_bytes <= config->held_all_bytes;
}

/* --- deadlines --- */

static void egress_line_on_sweep(uv_timer_t *t) {
    struct egress *e = t->data;
    int64_t now = clock_mono_ms();
    bool needed = false;
    struct line *next_box;
    for (struct line *b = e->lines; b; b = next_box) {
        struct egress_conn *next;
        next_box = b->next;
        for (struct egress_conn *c = b->conns; c; c = next) {
            next = c->next;
            needed = true;
            if (c->deadline_ms > 0 && now >= c->deadline_ms)
                egress_conn_cut(c, c->state == EGRESS_CONN_HEAD || c->state == EGRESS_CONN_BODY ||
                                           c->state == EGRESS_CONN_SEND
                                       ? "the request did not come in time"
                                       : "nothing came for too long");
        }
        if (audit_is_due(b, now))
            audit_flush(b);
        if (b->usage_untold && now - b->usage_told_ms >= USAGE_EVERY_MS)
            line_tell_usage(b);
        bool kept = upstreams_sweep(b, now);
        needed = needed || kept || b->usage_untold || b->nfolds > 0;
    }
    if (!needed)
        (void)uv_timer_stop(t);
}

void egress_sweep_start(struct egress *e) {
    if (!uv_is_active((uv_handle_t *)&e->sweep))
        (void)uv_timer_start(&e->sweep, egress_line_on_sweep, SWEEP_MS, SWEEP_MS);
}

static bool has_endpoint(const struct sandbox_strv *list, const char *host, uint32_t port) {
    for (size_t i = 0; i < list->n; i++) {
        const char *text = list->items[i];
        char other[EGRESS_HOST_MAX + 1];
        uint32_t other_port;
        bool literal;
        if (egress_authority_parse(text, strlen(text), 443, other, &other_port, &literal) &&
            other_port == port && strcmp(other, host) == 0)
            return true;
    }
    return false;
}

bool egress_is_exempt(const struct egress *e, const struct decision *d) {
    bool route = d->kind == EGRESS_KIND_ROUTE || d->kind == EGRESS_KIND_MODEL;
    return d->private && (has_endpoint(&e->config.private, d->host, d->port) ||
                          (route && has_endpoint(&e->config.private_routes, d->host, d->port)));
}

/* --- opening and closing --- */

static void egress_line_on_connection(uv_stream_t *s, int status) {
    struct line *b = s->data;
    if (status == 0 && !b->closed)
        egress_conn_accept(b);
}

void line_unref(struct line *b) {
    if (--b->refs > 0)
        return;
    egress_policy_finish(&b->policy);
    free(b->id);
    free(b);
}

static void egress_line_on_listener_closed(uv_handle_t *h) {
    line_unref(h->data);
}

struct line *line_find(struct egress *e, const char *id) {
    for (struct line *b = e->lines; b; b = b->next)
        if (strcmp(b->id, id) == 0)
            return b;
    return NULL;
}

/* A listening TCP socket, and its port. */
static int check_listener(int fd, uint32_t *ret_port, struct err *err) {
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof(a);
    int listening = 0;
    socklen_t n = sizeof(listening);
    if (fd < 0)
        return err_set(err, ERR_PROTOCOL, "OPEN came without a listener");
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &n) < 0 || !listening ||
        getsockname(fd, (struct sockaddr *)&a, &len) < 0)
        return err_set(err, ERR_BAD_REQUEST, "the descriptor is no listener");
    if (a.ss_family == AF_INET)
        *ret_port = ntohs(((struct sockaddr_in *)&a)->sin_port);
    else if (a.ss_family == AF_INET6)
        *ret_port = ntohs(((struct sockaddr_in6 *)&a)->sin6_port);
    else
        return err_set(err, ERR_BAD_REQUEST, "the listener is not one of TCP");
    return 0;
}

/* What ran when a former life ended: nobody will say what it used. */
static void charge_running(struct egress_usage *u) {
    u->estimated = u->estimated || u->running_in + u->running_out > 0;
    u->tokens_in += u->running_in;
    u->tokens_out += u->running_out;
    u->cost_nusd += u->running_nusd;
    u->running_in = u->running_out = u->running_nusd = 0;
}

int line_open(struct egress *e, const char *id, struct egress_policy *policy,
              struct egress_usage *usage, int fd, struct err *err) {
    _cleanup_(close) int owned = fd;
    uint32_t port = 0;
    if (!*id || strlen(id) > SANDBOX_ID_MAX)
        return err_set(err, ERR_BAD_REQUEST, "an id of 1 to %d characters is needed",
                       SANDBOX_ID_MAX);
    if (line_find(e, id))
        return err_set(err, ERR_CONFLICT, "this sandbox is open already");
    if (e->nlines >= e->config.sandboxes)
        return err_set(err, ERR_LIMIT, "%u sandboxes are open (limit sandboxes)",
                       e->config.sandboxes);
    int rc = check_listener(fd, &port, err);
    if (rc < 0)
        return rc;
    struct line *b = xcalloc(1, sizeof(*b));
    b->egress = e;
    b->port = port;
    b->refs = 1;
    (void)uv_tcp_init(e->loop, &b->listener);
    b->listener.data = b;
    rc = uv_tcp_open(&b->listener, fd);
    if (rc == 0) {
        (void)steal_fd(&owned);
        rc = uv_listen((uv_stream_t *)&b->listener, BACKLOG, egress_line_on_connection);
    }
    if (rc < 0) {
        b->closed = true;
        uv_close((uv_handle_t *)&b->listener, egress_line_on_listener_closed);
        return err_set(err, ERR_IO, "listen: %s", uv_strerror(rc));
    }
    b->id = xstrdup(id);
    b->policy = *policy;
    *policy = (struct egress_policy){0};
    b->usage = *usage;
    b->usage.sandbox = NULL;
    charge_running(&b->usage);
    b->usage_untold = true;
    b->next = e->lines;
    e->lines = b;
    e->nlines++;
    return 0;
}

/* What the new policy does not grant any more is cut. */
static void judge_again(struct line *b, struct egress_conn *c, const char *old_url) {
    struct decision d;
    struct err err;
    if (c->state == EGRESS_CONN_HEAD || c->state == EGRESS_CONN_LINGER)
        return;
    int rc = decide(&b->policy, b->port, &c->head, &d, &err);
    bool same = rc == 0 && d.kind == c->decision.kind && d.plain == c->decision.plain;
    if (same && old_url && strcmp(old_url, b->policy.routes[d.route].url) != 0)
        same = false;
    if (same) {
        decision_finish(&c->decision);
        c->decision = d;
        /* What it holds was judged by the old policy, and the old credentials are looked for. */
        if (forward_waits(c)) {
            (void)err_set(&err, ERR_UNAVAILABLE,
                          "the policy of the sandbox has changed: try again");
            egress_conn_refuse(c, &err, NULL);
        }
        return;
    }
    decision_finish(&d);
    egress_conn_deny(c, "the policy of the sandbox has changed", NULL, 0);
}

void line_set_policy(struct line *b, struct egress_policy *policy) {
    struct egress_policy old = b->policy;
    struct egress_conn *next;
    b->policy = *policy;
    *policy = (struct egress_policy){0};
    for (struct egress_conn *c = b->conns; c; c = next) {
        next = c->next;
        bool routed =
            c->decision.kind == EGRESS_KIND_ROUTE || c->decision.kind == EGRESS_KIND_MODEL;
        judge_again(b, c, routed ? old.routes[c->decision.route].url : NULL);
    }
    upstreams_drop(b);
    egress_policy_finish(&old);
}

void line_close(struct line *b) {
    struct egress *e = b->egress;
    while (b->conns)
        egress_conn_cut(b->conns, "the sandbox was closed");
    upstreams_drop(b);
    audit_flush(b);
    line_tell_usage(b);
    b->closed = true;
    for (struct line **p = &e->lines; *p; p = &(*p)->next)
        if (*p == b) {
            *p = b->next;
            break;
        }
    e->nlines--;
    /* Not when the last connection is gone, but now. */
    egress_policy_finish(&b->policy);
    uv_close((uv_handle_t *)&b->listener, egress_line_on_listener_closed);
}
