/* CONNECT: resolve, check each address, connect to the very address that was checked, see that the
 * TLS inside asks for the host that was allowed, then pass bytes both ways. */

#include "base/address.h"
#include "base/cleanup.h"
#include "base/mem.h"
#include "base/sm.h"
#include "base/text.h"
#include "egress/hello.h"
#include "egress/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ADDRESSES_MAX = 16 };
enum { HANDSHAKE_RECORD = 22, ALERT_RECORD = 21 };
enum alert { ALERT_ACCESS_DENIED = 49, ALERT_UNRECOGNIZED_NAME = 112 };

enum tunnel_state {
    TUNNEL_NEW,
    TUNNEL_RESOLVING,
    TUNNEL_CONNECTING,
    TUNNEL_BETWEEN, /* one address has failed, its socket closes; the next is tried then */
    TUNNEL_HELLO,   /* the guest has to say which host its TLS is for */
    TUNNEL_GREETED, /* it did, or need not; the server has said nothing yet */
    TUNNEL_OPEN,
    TUNNEL_OVER,
};

static const struct sm_state states[] = {
    [TUNNEL_NEW] = {"new", SM_TO(TUNNEL_RESOLVING) | SM_TO(TUNNEL_OVER)},
    [TUNNEL_RESOLVING] = {"resolving", SM_TO(TUNNEL_CONNECTING) | SM_TO(TUNNEL_OVER)},
    [TUNNEL_CONNECTING] = {"connecting", SM_TO(TUNNEL_BETWEEN) | SM_TO(TUNNEL_HELLO) |
                                             SM_TO(TUNNEL_GREETED) | SM_TO(TUNNEL_OVER)},
    [TUNNEL_BETWEEN] = {"between", SM_TO(TUNNEL_CONNECTING) | SM_TO(TUNNEL_OVER)},
    [TUNNEL_HELLO] = {"hello", SM_TO(TUNNEL_GREETED) | SM_TO(TUNNEL_OVER)},
    [TUNNEL_GREETED] = {"greeted", SM_TO(TUNNEL_OPEN) | SM_TO(TUNNEL_OVER)},
    [TUNNEL_OPEN] = {"open", SM_TO(TUNNEL_OVER)},
    [TUNNEL_OVER] = {"over", 0},
};
static const struct sm tunnel_sm = {"tunnel", states, ARRAY_LEN(states)};

/* What the server sends. */
enum up_half { UP_HELD, UP_READING, UP_ENDED };

struct tunnel {
    enum tunnel_state state;
    struct egress_conn *conn; /* NULL when that is gone */
    uv_getaddrinfo_t resolve;
    uv_connect_t connect;
    uv_tcp_t up;
    unsigned refs;
    struct sockaddr_storage addresses[ADDRESSES_MAX];
    size_t naddresses;
    size_t next;
    const char *refusal; /* of the last address that was refused */
    int error;           /* of the last connection that failed */
    enum up_half half;
    bool up_busy; /* something waits to be written: the guest is not read */
    bool up_shut; /* nothing will be */
    struct buf hello;
};

static void start_reading(struct tunnel *t);
static void connect_next(struct tunnel *t);

static void tunnel_move(struct tunnel *t, enum tunnel_state to) {
    t->state = (enum tunnel_state)sm_next(&tunnel_sm, t->state, to);
}

static bool is_through(const struct tunnel *t) {
    return t->state == TUNNEL_GREETED || t->state == TUNNEL_OPEN;
}

static bool has_socket(const struct tunnel *t) {
    return t->state == TUNNEL_CONNECTING || t->state == TUNNEL_HELLO || is_through(t);
}

static void tunnel_unref(struct tunnel *t) {
    if (--t->refs > 0)
        return;
    buf_finish(&t->hello);
    free(t);
}

static void tunnel_on_up_closed(uv_handle_t *h) {
    tunnel_unref(h->data);
}

void tunnel_close(struct egress_conn *c) {
    struct tunnel *t = c->tunnel;
    if (!t)
        return;
    c->tunnel = NULL;
    t->conn = NULL;
    c->line->ntunnels--;
    if (t->state == TUNNEL_RESOLVING)
        (void)uv_cancel((uv_req_t *)&t->resolve);
    if (has_socket(t))
        uv_close((uv_handle_t *)&t->up, tunnel_on_up_closed);
    tunnel_move(t, TUNNEL_OVER);
    tunnel_unref(t);
}

static void tunnel_fail(struct tunnel *t, enum err_code code, const char *text) {
    struct err err;
    struct egress_conn *c = t->conn;
    char name[EGRESS_AUTHORITY_SIZE];
    (void)err_set(&err, code, "%s: %s",
                  egress_authority_text(c->decision.host, c->decision.port, name), text);
    egress_conn_refuse(c, &err, NULL);
}

/* --- bytes --- */

struct tunnel_write {
    uv_write_t req;
    struct tunnel *tunnel;
    char data[];
};

static void tunnel_count(struct egress_conn *c, uint64_t in, uint64_t out) {
    c->event.bytes_in += in;
    c->event.bytes_out += out;
    line_count(c->line, in, out);
    egress_conn_set_deadline(c, c->line->egress->config.idle_timeout_ms);
}

static void tunnel_on_up_shut(uv_shutdown_t *req, int status) {
    struct tunnel *t = req->data;
    (void)status;
    free(req);
    tunnel_unref(t);
}

/* Both ends are told; the tunnel is over when both have ended. */
static void pass_end(struct tunnel *t) {
    struct egress_conn *c = t->conn;
    if (c->half == HALF_ENDED && !t->up_busy && !t->up_shut && is_through(t)) {
        uv_shutdown_t *req = xcalloc(1, sizeof(*req));
        t->up_shut = true;
        req->data = t;
        if (uv_shutdown(req, (uv_stream_t *)&t->up, tunnel_on_up_shut) < 0)
            free(req);
        else
            t->refs++;
    }
    if (t->half == UP_ENDED && c->queued == 0)
        egress_conn_answered(c, false); /* what the guest still says has nobody to hear it */
}

bool tunnel_is_full(const struct egress_conn *c) {
    return c->tunnel && c->tunnel->up_busy;
}

static void tunnel_on_up_written(uv_write_t *req, int status) {
    struct tunnel_write *w = CONTAINER_OF(req, struct tunnel_write, req);
    struct tunnel *t = w->tunnel;
    free(w);
    t->up_busy = false;
    if (t->conn && status < 0) {
        egress_conn_cut(t->conn, "the server hung up");
    } else if (t->conn) {
        egress_conn_update_reading(t->conn);
        pass_end(t);
    }
    tunnel_unref(t);
}

/* To the server. What it does not take at once waits, and the guest is not read meanwhile. */
static void tunnel_write_up(struct tunnel *t, const char *data, size_t len) {
    struct egress_conn *c = t->conn;
    uv_buf_t b = uv_buf_init((char *)(uintptr_t)data, (unsigned)len);
    int n = uv_try_write((uv_stream_t *)&t->up, &b, 1);
    if (n < 0 && n != UV_EAGAIN) {
        egress_conn_cut(c, "the server hung up");
        return;
    }
    tunnel_count(c, 0, len);
    if (!line_bytes_left(c->line)) {
        egress_conn_deny(c, "the sandbox has moved all the bytes it may", NULL, 0);
        return;
    }
    size_t done = n > 0 ? (size_t)n : 0;
    if (done == len)
        return;
    struct tunnel_write *w = xmalloc(sizeof(*w) + len - done);
    w->tunnel = t;
    memcpy(w->data, data + done, len - done);
    b = uv_buf_init(w->data, (unsigned)(len - done));
    if (uv_write(&w->req, (uv_stream_t *)&t->up, &b, 1, tunnel_on_up_written) < 0) {
        free(w);
        egress_conn_cut(c, "the server hung up");
        return;
    }
    t->refs++;
    t->up_busy = true;
    egress_conn_update_reading(c);
}

/* --- the hello --- */

/* A fatal alert is what a client of TLS understands. */
static void deny_tls(struct egress_conn *c, enum alert alert, const char *why) {
    const uint8_t record[] = {ALERT_RECORD, 3, 3, 0, 2, 2, (uint8_t)alert};
    egress_conn_deny(c, why, record, sizeof(record));
}

static bool check_hello(struct tunnel *t) {
    struct egress_conn *c = t->conn;
    char name[HELLO_NAME_MAX + 1];
    char why[400];
    switch (hello_parse((const uint8_t *)t->hello.data, t->hello.len, name)) {
    case HELLO_MORE:
        if (!t->hello.full)
            return false;
        break;
    case HELLO_OK:
        if (strcmp(name, c->decision.host) == 0)
            return true;
        (void)text_print(why, sizeof(why), "the TLS inside asks for \"%.200s\", not for \"%.100s\"",
                         name, c->decision.host);
        deny_tls(c, ALERT_UNRECOGNIZED_NAME, why);
        return false;
    case HELLO_NO_NAME:
        if (c->decision.literal)
            return true;
        deny_tls(c, ALERT_ACCESS_DENIED, "the TLS inside does not say which host it asks for");
        return false;
    case HELLO_BAD:
        break;
    }
    egress_conn_deny(c,
                     "what is spoken inside is not TLS: to allow that, the operator would write "
                     "\"tcp://host:port\"",
                     NULL, 0);
    return false;
}

void tunnel_from_guest(struct egress_conn *c, const char *data, size_t len) {
    struct tunnel *t = c->tunnel;
    if (is_through(t)) {
        tunnel_write_up(t, data, len);
        return;
    }
    (void)buf_add(&t->hello, data, MIN(len, t->hello.max - t->hello.len));
    if (t->hello.len == t->hello.max)
        t->hello.full = true;
    /* Where it is not good the tunnel is gone. */
    if (!check_hello(t))
        return;
    struct buf first = t->hello;
    tunnel_move(t, TUNNEL_GREETED);
    t->hello = (struct buf){0};
    /* The deadline was the hello's. */
    egress_conn_set_deadline(c, c->line->egress->config.idle_timeout_ms);
    tunnel_write_up(t, first.data, first.len);
    buf_finish(&first);
    if (c->tunnel == t)
        start_reading(t);
}

void tunnel_guest_ended(struct egress_conn *c) {
    if (is_through(c->tunnel))
        pass_end(c->tunnel);
    else
        egress_conn_cut(c, "the guest hung up");
}

void tunnel_guest_drained(struct egress_conn *c) {
    struct tunnel *t = c->tunnel;
    if (t->half == UP_ENDED)
        pass_end(t);
    else
        start_reading(t);
}

/* --- from the server --- */

static void tunnel_on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *out) {
    struct tunnel *t = h->data;
    (void)hint;
    *out =
        t->conn ? uv_buf_init(t->conn->line->egress->read_buf, READ_BYTES) : uv_buf_init(NULL, 0);
}

static void tunnel_on_up_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b) {
    struct tunnel *t = s->data;
    struct egress_conn *c = t->conn;
    if (n == 0 || !c)
        return;
    if (n == UV_EOF) {
        t->half = UP_ENDED;
        (void)uv_read_stop(s);
        pass_end(t);
        return;
    }
    if (n < 0) {
        egress_conn_cut(c, "the server hung up");
        return;
    }
    /* The first byte that comes back: a handshake, or an alert. */
    if (!c->decision.plain && t->state == TUNNEL_GREETED && b->base[0] != HANDSHAKE_RECORD &&
        b->base[0] != ALERT_RECORD) {
        deny_tls(c, ALERT_ACCESS_DENIED, "the server does not speak TLS");
        return;
    }
    if (t->state == TUNNEL_GREETED)
        tunnel_move(t, TUNNEL_OPEN);
    tunnel_count(c, (uint64_t)n, 0);
    if (!line_bytes_left(c->line)) {
        egress_conn_deny(c, "the sandbox has moved all the bytes it may", NULL, 0);
        return;
    }
    if (egress_conn_write(c, b->base, (size_t)n) && c->throttled) {
        t->half = UP_HELD;
        (void)uv_read_stop(s);
    }
}

static void start_reading(struct tunnel *t) {
    /* What a server says before it was greeted is nothing that TLS would say. */
    if (t->half != UP_HELD || !is_through(t))
        return;
    t->half = UP_READING;
    if (uv_read_start((uv_stream_t *)&t->up, tunnel_on_alloc, tunnel_on_up_read) < 0)
        egress_conn_cut(t->conn, "the server hung up");
}

/* --- connecting --- */

static void tunnel_connected(struct tunnel *t) {
    static const char ok[] = "HTTP/1.1 200 Connection established\r\n\r\n";
    struct egress_conn *c = t->conn;
    c->event.status = 200;
    egress_conn_tell_begun(c);
    egress_conn_move(c, EGRESS_CONN_TUNNEL);
    tunnel_move(t, c->decision.plain ? TUNNEL_GREETED : TUNNEL_HELLO);
    egress_conn_set_deadline(c, c->decision.plain ? c->line->egress->config.idle_timeout_ms
                                                  : c->line->egress->config.head_timeout_ms);
    (void)uv_tcp_nodelay(&t->up, 1);
    if (egress_conn_write(c, ok, sizeof(ok) - 1)) {
        /* What the guest sent ahead. */
        struct buf early = c->in;
        c->in = (struct buf){.max = early.max};
        if (early.len > 0)
            tunnel_from_guest(c, early.data, early.len);
        buf_finish(&early);
    }
    if (c->tunnel != t)
        return; /* it was cut */
    start_reading(t);
    if (c->tunnel == t)
        egress_conn_update_reading(c);
}

static void tunnel_on_retry_closed(uv_handle_t *h) {
    struct tunnel *t = h->data;
    if (t->conn)
        connect_next(t);
    tunnel_unref(t);
}

static void try_another(struct tunnel *t, int error) {
    t->error = error;
    tunnel_move(t, TUNNEL_BETWEEN);
    uv_close((uv_handle_t *)&t->up, tunnel_on_retry_closed);
}

static void tunnel_on_connected(uv_connect_t *req, int status) {
    struct tunnel *t = req->data;
    if (!t->conn)
        return;
    if (status == 0) {
        tunnel_connected(t);
        return;
    }
    try_another(t, status);
}

static void connect_next(struct tunnel *t) {
    if (t->next == t->naddresses) {
        if (t->naddresses == 0)
            tunnel_fail(t, ERR_FORBIDDEN, t->refusal);
        else
            tunnel_fail(t, ERR_UPSTREAM, uv_strerror(t->error));
        return;
    }
    struct sockaddr *a = (struct sockaddr *)&t->addresses[t->next++];
    (void)uv_tcp_init(t->conn->line->egress->loop, &t->up);
    t->up.data = t;
    t->connect.data = t;
    tunnel_move(t, TUNNEL_CONNECTING);
    t->refs++;
    int rc = uv_tcp_connect(&t->connect, &t->up, a, tunnel_on_connected);
    if (rc < 0)
        try_another(t, rc);
}

/* Keeps the addresses that may be connected to. */
static void keep_addresses(struct tunnel *t, const struct addrinfo *list) {
    const struct egress_conn *c = t->conn;
    bool exempt = egress_is_exempt(c->line->egress, &c->decision);
    t->refusal = "its address is not allowed";
    for (const struct addrinfo *a = list; a && t->naddresses < ADDRESSES_MAX; a = a->ai_next) {
        const char *refusal = address_refusal(a->ai_addr);
        if (refusal && !exempt) {
            t->refusal = refusal;
            continue;
        }
        memcpy(&t->addresses[t->naddresses++], a->ai_addr, a->ai_addrlen);
    }
}

static void tunnel_on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *list) {
    struct tunnel *t = req->data;
    struct egress_conn *c = t->conn;
    if (c && status < 0) {
        tunnel_fail(t, ERR_UPSTREAM, "the name cannot be resolved");
    } else if (c) {
        keep_addresses(t, list);
        if (t->naddresses == 0) {
            struct err err;
            char name[EGRESS_AUTHORITY_SIZE];
            (void)err_set(&err, ERR_FORBIDDEN,
                          "%s leads to an address that is %s: the operator would list it as a "
                          "private endpoint",
                          egress_authority_text(c->decision.host, c->decision.port, name),
                          t->refusal);
            egress_conn_refuse(c, &err, NULL);
        } else {
            connect_next(t);
        }
    }
    uv_freeaddrinfo(list);
    tunnel_unref(t);
}

void tunnel_start(struct egress_conn *c) {
    struct egress *e = c->line->egress;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    char service[8];
    struct err err;
    if (c->line->ntunnels >= e->config.tunnels) {
        (void)err_set(&err, ERR_RATE, "this sandbox has %u tunnels open (limit tunnels)",
                      e->config.tunnels);
        egress_conn_refuse(c, &err, NULL);
        return;
    }
    struct tunnel *t = xcalloc(1, sizeof(*t));
    t->conn = c;
    t->refs = 1;
    buf_init(&t->hello, HELLO_MAX_BYTES);
    c->tunnel = t;
    c->line->ntunnels++;
    c->line->usage.requests++;
    egress_conn_set_deadline(c, e->config.connect_timeout_ms);
    if (c->decision.literal)
        hints.ai_flags |= AI_NUMERICHOST;
    (void)snprintf(service, sizeof(service), "%u", c->decision.port);
    t->resolve.data = t;
    int rc =
        uv_getaddrinfo(e->loop, &t->resolve, tunnel_on_resolved, c->decision.host, service, &hints);
    if (rc < 0) {
        tunnel_fail(t, ERR_UPSTREAM, uv_strerror(rc));
        return;
    }
    tunnel_move(t, TUNNEL_RESOLVING);
    t->refs++;
}
