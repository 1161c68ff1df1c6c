#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/sm.h"
#include "base/text.h"
#include "egress/advice.h"
#include "egress/internal.h"
#include "http1/field.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINGER_MS = 2000, ERROR_MAX = 4096 };

static void egress_conn_on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *b);
static void egress_conn_run(struct egress_conn *c);

#define ENDS (SM_TO(EGRESS_CONN_LINGER) | SM_TO(EGRESS_CONN_CLOSED))
static const struct sm_state states[] = {
    [EGRESS_CONN_HEAD] = {"head", SM_TO(EGRESS_CONN_BODY) | SM_TO(EGRESS_CONN_BUSY) | ENDS},
    [EGRESS_CONN_BODY] = {"body", SM_TO(EGRESS_CONN_BUSY) | SM_TO(EGRESS_CONN_SEND) | ENDS},
    [EGRESS_CONN_SEND] = {"send", SM_TO(EGRESS_CONN_BUSY) | ENDS},
    [EGRESS_CONN_BUSY] = {"busy", SM_TO(EGRESS_CONN_HEAD) | SM_TO(EGRESS_CONN_TUNNEL) | ENDS},
    [EGRESS_CONN_TUNNEL] = {"tunnel", ENDS},
    [EGRESS_CONN_LINGER] = {"linger", SM_TO(EGRESS_CONN_CLOSED)},
    [EGRESS_CONN_CLOSED] = {"closed", 0},
};
static const struct sm machine = {"guest's connection", states, ARRAY_LEN(states)};

static bool egress_conn_is_over(const struct egress_conn *c) {
    return c->state == EGRESS_CONN_LINGER || c->state == EGRESS_CONN_CLOSED;
}

void egress_conn_move(struct egress_conn *c, enum egress_conn_state to) {
    if (c->state != to)
        c->state = sm_next(&machine, c->state, to);
    assert(c->state != EGRESS_CONN_TUNNEL || c->tunnel);
    assert((c->state != EGRESS_CONN_HEAD && !egress_conn_is_over(c)) ||
           (!c->forward && !c->tunnel));
}

/* --- life --- */

void egress_conn_unref(struct egress_conn *c) {
    if (--c->refs > 0)
        return;
    buf_finish(&c->in);
    buf_finish(&c->body);
    http1_head_finish(&c->head);
    decision_finish(&c->decision);
    line_unref(c->line);
    free(c);
}

static void egress_conn_on_tcp_closed(uv_handle_t *h) {
    egress_conn_unref(h->data);
}

void egress_conn_set_deadline(struct egress_conn *c, uint32_t ms) {
    c->deadline_ms = ms > 0 ? clock_mono_ms() + ms : 0;
}

static bool egress_conn_tell(struct egress_conn *c, enum egress_state state, bool always) {
    c->event.state = state;
    c->event.reason = c->reason;
    c->event.route = c->route;
    c->event.method = (char *)(uintptr_t)(c->head.method ? c->head.method : "");
    c->event.host = c->decision.host;
    c->event.port = c->decision.port;
    c->event.kind = c->decision.kind;
    c->event.path = c->decision.path ? c->decision.path : "";
    c->event.model = c->model;
    return audit_tell(c->line, &c->event, always);
}

void egress_conn_tell_begun(struct egress_conn *c) {
    c->begun_ms = clock_mono_ms();
    c->told = egress_conn_tell(c, EGRESS_BEGUN, false) ? TOLD_SINGLY : TOLD_FOLDED;
}

static void tell_ended(struct egress_conn *c) {
    if (c->told == TOLD_NOTHING)
        return;
    c->event.ms = (uint64_t)(clock_mono_ms() - c->begun_ms);
    (void)egress_conn_tell(c, EGRESS_ENDED, c->told == TOLD_SINGLY);
    c->told = TOLD_NOTHING;
}

/* Gives the memory of the body back, also in the sandbox's account. */
static void drop_body(struct egress_conn *c) {
    (void)line_hold(c->line, c->held_bytes, 0);
    c->held_bytes = 0;
    buf_finish(&c->body);
}

static void end_request(struct egress_conn *c) {
    forward_close(c);
    tunnel_close(c);
    tell_ended(c);
    drop_body(c);
    decision_finish(&c->decision);
    http1_head_finish(&c->head);
    c->event = (struct egress_event){0};
    c->reason[0] = 0;
    c->route[0] = 0;
    c->model[0] = 0;
}

void egress_conn_close(struct egress_conn *c) {
    if (c->state == EGRESS_CONN_CLOSED)
        return;
    end_request(c);
    egress_conn_move(c, EGRESS_CONN_CLOSED);
    *c->link = c->next;
    if (c->next)
        c->next->link = c->link;
    c->line->nconns--;
    uv_close((uv_handle_t *)&c->tcp, egress_conn_on_tcp_closed);
}

void egress_conn_cut(struct egress_conn *c, const char *reason) {
    if (c->told != TOLD_NOTHING)
        (void)text_print(c->reason, sizeof(c->reason), "%s", reason);
    egress_conn_close(c);
}

void egress_conn_deny(struct egress_conn *c, const char *reason, const void *last, size_t len) {
    c->event.cut = true;
    if (len > 0 && c->told != TOLD_NOTHING) {
        (void)text_print(c->reason, sizeof(c->reason), "%s", reason);
        if (egress_conn_write(c, last, len))
            egress_conn_answered(c, false); /* it goes when the guest has heard it */
        return;
    }
    egress_conn_cut(c, reason);
}

void egress_conn_accept(struct line *b) {
    struct egress_conn *c = xcalloc(1, sizeof(*c));
    struct egress *e = b->egress;
    c->line = b;
    c->refs = 1;
    b->refs++;
    (void)uv_tcp_init(e->loop, &c->tcp);
    c->tcp.data = c;
    buf_init(&c->in, e->config.head_bytes + 2 * READ_BYTES);
    c->next = b->conns;
    c->link = &b->conns;
    if (c->next)
        c->next->link = &c->next;
    b->conns = c;
    b->nconns++;
    if (uv_accept((uv_stream_t *)&b->listener, (uv_stream_t *)&c->tcp) < 0) {
        egress_conn_close(c);
        return;
    }
    (void)uv_tcp_nodelay(&c->tcp, 1);
    egress_sweep_start(e);
    if (b->nconns > e->config.connections) {
        struct err err;
        (void)err_set(&err, ERR_RATE, "this sandbox has %u connections open (limit connections)",
                      e->config.connections);
        egress_conn_refuse(c, &err, NULL);
        return;
    }
    egress_conn_set_deadline(c, e->config.head_timeout_ms);
    egress_conn_update_reading(c);
}

/* --- writing --- */

struct guest_write {
    uv_write_t req;
    struct egress_conn *conn;
    size_t len;
    char data[];
};

static void egress_conn_on_shut(uv_shutdown_t *req, int status) {
    struct egress_conn *c = req->data;
    (void)status;
    free(req);
    if (c->half == HALF_ENDED)
        egress_conn_close(c); /* both sides have said all */
    egress_conn_unref(c);
}

static void egress_conn_shut(struct egress_conn *c) {
    uv_shutdown_t *req = xcalloc(1, sizeof(*req));
    req->data = c;
    if (uv_shutdown(req, (uv_stream_t *)&c->tcp, egress_conn_on_shut) < 0)
        free(req);
    else
        c->refs++;
}

static void egress_conn_on_written(uv_write_t *req, int status) {
    struct guest_write *w = CONTAINER_OF(req, struct guest_write, req);
    struct egress_conn *c = w->conn;
    c->queued -= w->len;
    free(w);
    if (status < 0)
        egress_conn_cut(c, "the guest hung up");
    else if (c->state != EGRESS_CONN_CLOSED && c->throttled && c->queued == 0) {
        c->throttled = false;
        if (c->forward)
            forward_guest_drained(c);
        else if (c->tunnel)
            tunnel_guest_drained(c);
        else
            egress_conn_update_reading(c);
    }
    egress_conn_unref(c);
}

bool egress_conn_write(struct egress_conn *c, const void *data, size_t len) {
    if (c->state == EGRESS_CONN_CLOSED)
        return false;
    size_t done = 0;
    if (c->queued == 0 && len > 0) {
        uv_buf_t b = uv_buf_init((char *)(uintptr_t)data, (unsigned)len);
        int n = uv_try_write((uv_stream_t *)&c->tcp, &b, 1);
        if (n < 0 && n != UV_EAGAIN) {
            egress_conn_cut(c, "the guest hung up");
            return false;
        }
        done = n > 0 ? (size_t)n : 0;
    }
    if (done == len)
        return true;
    struct guest_write *w = xmalloc(sizeof(*w) + len - done);
    w->conn = c;
    w->len = len - done;
    memcpy(w->data, (const char *)data + done, w->len);
    uv_buf_t b = uv_buf_init(w->data, (unsigned)w->len);
    if (uv_write(&w->req, (uv_stream_t *)&c->tcp, &b, 1, egress_conn_on_written) < 0) {
        free(w);
        egress_conn_cut(c, "the guest hung up");
        return false;
    }
    c->refs++;
    c->queued += len - done;
    c->throttled = c->queued >= WRITE_HIGH_BYTES || c->tunnel;
    return true;
}

/* --- answers of our own --- */

static int egress_conn_status_of(const struct err *err) {
    return err->code == ERR_LIMIT ? 429 : err_http_status(err->code);
}

static const char *egress_conn_type_of(int status) {
    return status == 403   ? "permission_error"
           : status == 404 ? "not_found_error"
           : status == 413 ? "request_too_large"
           : status == 429 ? "rate_limit_error"
           : status < 500  ? "invalid_request_error"
                           : "api_error";
}

/* In the shape that the client of the api expects, so that its reader sees the message. */
static void write_error(struct buf *b, const struct egress_conn *c, int status,
                        const struct err *err) {
    enum egress_api api = c->decision.api;
    struct json_writer w;
    _cleanup_(buf) struct buf words;
    buf_init(&words, ERROR_MAX);
    (void)buf_add_str(&words, err->message);
    if (status == 403)
        advice_write(&c->line->policy, &words);
    json_writer_init(&w, b);
    json_writer_object_begin(&w);
    if (api == EGRESS_API_ANTHROPIC)
        json_put_str(&w, "type", "error");
    json_put_object_begin(&w, "error");
    if (api != EGRESS_API_NONE)
        json_put_str(&w, "type", egress_conn_type_of(status));
    if (api == EGRESS_API_OPENAI)
        json_put_null(&w, "param");
    if (api != EGRESS_API_ANTHROPIC)
        json_put_str(&w, "code", err_name(err->code));
    json_put_text(&w, "message", words.data, words.len);
    json_writer_object_end(&w);
    json_writer_object_end(&w);
    (void)buf_add_char(b, '\n');
}

static void egress_conn_linger(struct egress_conn *c) {
    egress_conn_move(c, EGRESS_CONN_LINGER);
    egress_conn_set_deadline(c, LINGER_MS);
    buf_clear(&c->in);
    egress_conn_shut(c);
    egress_conn_update_reading(c);
}

void egress_conn_refuse(struct egress_conn *c, const struct err *err, const char *reason) {
    int status = egress_conn_status_of(err);
    /* A request that is whole leaves the connection in order. */
    bool keep = c->state == EGRESS_CONN_BUSY && c->head.keep_alive && c->half != HALF_ENDED &&
                c->decision.kind != EGRESS_KIND_CONNECT;
    struct buf body;
    struct buf out;
    buf_init(&body, 2 * ERROR_MAX);
    buf_init(&out, 3 * ERROR_MAX);
    write_error(&body, c, status, err);
    /* Of a tunnel that is refused most clients show this line and nothing else. */
    bool policy = status == 403 && c->decision.kind == EGRESS_KIND_CONNECT;
    (void)buf_addf(&out, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n", status,
                   policy ? "Forbidden by the policy of this sandbox" : http1_phrase(status));
    /* Clients of models try again by themselves, unless they are told that it is of no use: what
     * the policy refuses, and a budget that is spent, will not change. A server that is away comes
     * back.
     */
    if (err->code == ERR_RATE || err->code == ERR_UNAVAILABLE)
        (void)buf_add_str(&out, "Retry-After: 1\r\n");
    else if (err->code != ERR_UPSTREAM && err->code != ERR_TIMEOUT)
        (void)buf_add_str(&out, "X-Should-Retry: false\r\n");
    bool head = c->head.method && strcmp(c->head.method, "HEAD") == 0;
    (void)buf_addf(&out, "X-Cay-Egress: refused\r\nContent-Length: %zu\r\n%s\r\n", body.len,
                   keep ? "" : "Connection: close\r\n");
    if (!head)
        (void)buf_add(&out, body.data, body.len);
    (void)text_print(c->reason, sizeof(c->reason), "%s", reason ? reason : err->message);
    c->event.status = (uint32_t)status;
    if (c->told == TOLD_NOTHING) {
        c->line->usage.refused++;
        c->event.number = ++c->line->egress->next_number;
        (void)egress_conn_tell(c, EGRESS_REFUSED, false);
    }
    bool open = egress_conn_write(c, out.data, out.len);
    buf_finish(&body);
    buf_finish(&out);
    if (open)
        egress_conn_answered(c, keep);
}

void egress_conn_answered(struct egress_conn *c, bool keep) {
    bool go_on = keep && c->state != EGRESS_CONN_SEND && c->head.keep_alive &&
                 c->half != HALF_ENDED && !c->line->closed;
    end_request(c);
    if (c->state == EGRESS_CONN_CLOSED)
        return;
    if (!go_on) {
        egress_conn_linger(c);
        return;
    }
    egress_conn_move(c, EGRESS_CONN_HEAD);
    c->scanned = 0;
    egress_conn_set_deadline(c, c->line->egress->config.idle_timeout_ms);
    if (!c->running)
        egress_conn_run(c);
    egress_conn_update_reading(c);
}

/* --- reading --- */

static void egress_conn_on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *out) {
    struct egress_conn *c = h->data;
    (void)hint;
    *out = uv_buf_init(c->line->egress->read_buf, READ_BYTES);
}

static bool egress_conn_wants_input(const struct egress_conn *c) {
    switch (c->state) {
    case EGRESS_CONN_BUSY:
        /* Its end is to be seen, and what comes early must not fill memory. */
        return c->in.len < c->line->egress->config.head_bytes;
    case EGRESS_CONN_HEAD:
        return !c->throttled;
    case EGRESS_CONN_TUNNEL:
        return !tunnel_is_full(c);
    case EGRESS_CONN_SEND:
        return c->body.len < STREAM_BYTES;
    case EGRESS_CONN_BODY:
    case EGRESS_CONN_LINGER:
        return true;
    case EGRESS_CONN_CLOSED:
        break;
    }
    return false;
}

void egress_conn_update_reading(struct egress_conn *c) {
    enum guest_half to = egress_conn_wants_input(c) ? HALF_READING : HALF_HELD;
    if (c->state == EGRESS_CONN_CLOSED || c->half == HALF_ENDED || c->half == to)
        return;
    c->half = to;
    if (to == HALF_HELD)
        (void)uv_read_stop((uv_stream_t *)&c->tcp);
    else if (uv_read_start((uv_stream_t *)&c->tcp, egress_conn_on_alloc, egress_conn_on_read) < 0)
        egress_conn_cut(c, "the guest hung up");
}

/* Whether all of the body must be seen before any of it goes out. */
static bool is_inspected(const struct egress_conn *c) {
    return c->decision.kind == EGRESS_KIND_MODEL;
}

static int check_body_limits(struct egress_conn *c, struct err *err) {
    const struct egress_config *config = &c->line->egress->config;
    if (is_inspected(c) && c->head.has_length && c->head.content_length > config->body_bytes)
        return err_set(err, ERR_TOO_LARGE, "the body exceeds %llu bytes (limit body_bytes)",
                       (unsigned long long)config->body_bytes);
    return 0;
}

/* The request is whole, or too long to wait for its end. */
static void egress_conn_dispatch(struct egress_conn *c, bool whole) {
    struct err err;
    egress_conn_move(c, whole ? EGRESS_CONN_BUSY : EGRESS_CONN_SEND);
    c->deadline_ms = 0; /* it is the server who is waited for */
    if (line_admit(c->line, &err) < 0) {
        egress_conn_refuse(c, &err, NULL);
        return;
    }
    c->event.number = ++c->line->egress->next_number;
    if (c->decision.kind == EGRESS_KIND_CONNECT)
        tunnel_start(c);
    else
        forward_start(c);
}

static int egress_conn_read_head(struct egress_conn *c, size_t len, struct err *err) {
    uint32_t max = c->line->egress->config.headers;
    http1_head_finish(&c->head);
    http1_head_init(&c->head, c->fields, max);
    int rc = http1_head_parse(&c->head, &c->reader, c->in.data, len, err);
    if (rc == -ERR_TOO_LARGE)
        return err_set(err, ERR_TOO_LARGE, "more than %zu header fields (limit headers)",
                       c->head.max_fields);
    if (rc == -ERR_UNSUPPORTED)
        err->code = ERR_BAD_REQUEST; /* 501 would be taken for the server's */
    return rc < 0 ? -(int)err->code : 0;
}

/* Clients of Anthropic's API greet its server first, and do not care for the answer. */
static bool is_greeting(const struct egress_conn *c) {
    const struct egress_policy *p = &c->line->policy;
    bool served = false;
    for (size_t i = 0; i < p->nroutes; i++)
        served = served || p->routes[i].api == EGRESS_API_ANTHROPIC;
    return served && strcmp(c->head.method, "HEAD") == 0 &&
           strcmp(c->head.target, "/api/hello") == 0 && !c->head.has_body;
}

/* It is no request to anybody: nothing is told or counted. */
static size_t egress_conn_greet(struct egress_conn *c, size_t len) {
    static const char hello[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    egress_conn_move(c, EGRESS_CONN_BUSY);
    if (egress_conn_write(c, hello, sizeof(hello) - 1))
        egress_conn_answered(c, true);
    return egress_conn_is_over(c) ? c->in.len : len;
}

/* Returns the bytes used, 0 if more are needed. */
static size_t egress_conn_take_head(struct egress_conn *c) {
    const struct egress_config *config = &c->line->egress->config;
    struct err err;
    if (c->scanned == 0 && c->in.len >= 2 && memcmp(c->in.data, "\r\n", 2) == 0)
        return 2;
    ssize_t end = http1_head_find_end(c->in.data, c->in.len, &c->scanned, &err);
    if (end == 0 && c->in.len <= config->head_bytes)
        return 0;
    if (end >= 0 && (end == 0 || (size_t)end > config->head_bytes))
        end = err_set(&err, ERR_TOO_LARGE, "the head exceeds %u bytes (limit head_bytes)",
                      config->head_bytes);
    int rc = (int)MIN(end, 0);
    if (rc == 0)
        rc = egress_conn_read_head(c, (size_t)end, &err);
    if (rc == 0 && is_greeting(c))
        return egress_conn_greet(c, (size_t)end);
    if (rc == 0)
        rc = decide(&c->line->policy, c->line->port, &c->head, &c->decision, &err);
    bool routed = c->decision.kind == EGRESS_KIND_ROUTE || c->decision.kind == EGRESS_KIND_MODEL;
    if (routed && *c->decision.host)
        (void)snprintf(c->route, sizeof(c->route), "%s",
                       c->line->policy.routes[c->decision.route].name);
    if (rc == 0)
        rc = check_body_limits(c, &err);
    if (rc < 0) {
        /* What is refused for what it asks, not for how, may be followed by another. */
        if (end > 0 && c->head.target && !c->head.has_body && err.code != ERR_BAD_REQUEST)
            egress_conn_move(c, EGRESS_CONN_BUSY);
        egress_conn_refuse(c, &err, NULL);
        return end > 0 && !egress_conn_is_over(c) ? (size_t)end : c->in.len;
    }
    c->scanned = 0;
    buf_init(&c->body, is_inspected(c) ? config->body_bytes : STREAM_BYTES + c->in.max);
    if (!c->head.has_body)
        return (size_t)end;
    egress_conn_move(c, EGRESS_CONN_BODY);
    egress_conn_set_deadline(c, config->body_timeout_ms);
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (c->head.expects_continue)
        (void)egress_conn_write(c, go_on, sizeof(go_on) - 1);
    return (size_t)end;
}

static bool egress_conn_on_body(void *ctx, const char *data, size_t len) {
    struct egress_conn *c = ctx;
    (void)buf_add(&c->body, data, len);
    bool fits = line_hold(c->line, c->held_bytes, c->body.cap);
    c->held_bytes = c->body.cap;
    return !c->body.full && fits;
}

void egress_conn_body_taken(struct egress_conn *c, size_t len) {
    buf_consume(&c->body, len);
    if (c->state != EGRESS_CONN_SEND || c->half == HALF_READING)
        return;
    egress_conn_set_deadline(c, c->line->egress->config.body_timeout_ms);
    egress_conn_update_reading(c);
}

/* What is wrong with a body that goes out already: the guest is told unless an answer has begun. */
static void refuse_body(struct egress_conn *c, const struct err *err) {
    if (c->event.status != 0)
        egress_conn_cut(c, err->message);
    else
        egress_conn_refuse(c, err, NULL);
}

static void egress_conn_refuse_held(const struct egress_conn *c, struct err *err) {
    const struct egress_config *config = &c->line->egress->config;
    bool own = c->line->held_bytes > config->held_bytes;
    (void)err_set(err, ERR_RATE,
                  "the requests of %s hold more than %llu bytes at once (limit %s): try again "
                  "when some have been answered",
                  own ? "the sandbox" : "all sandboxes",
                  (unsigned long long)(own ? config->held_bytes : config->held_all_bytes),
                  own ? "held_bytes" : "held_all_bytes");
}

/* Returns the bytes used; *ret_whole if the message ends there. */
static size_t egress_conn_take_body(struct egress_conn *c, bool *ret_whole) {
    const struct egress_config *config = &c->line->egress->config;
    struct err err;
    ssize_t used = http1_body_feed(&c->reader, &(struct http1_body_sink){egress_conn_on_body, c},
                                   c->in.data, c->in.len, ret_whole, &err);
    if (used >= 0) {
        if (!*ret_whole)
            egress_conn_set_deadline(c, config->body_timeout_ms);
        return (size_t)used;
    }
    if (c->body.full)
        (void)err_set(&err, ERR_TOO_LARGE, "the body exceeds %llu bytes (limit body_bytes)",
                      (unsigned long long)config->body_bytes);
    else if (used == -ERR_CANCELLED)
        egress_conn_refuse_held(c, &err);
    refuse_body(c, &err);
    return c->in.len;
}

static bool wants_parsing(const struct egress_conn *c) {
    return c->state == EGRESS_CONN_HEAD || c->state == EGRESS_CONN_BODY ||
           c->state == EGRESS_CONN_SEND;
}

/* A part of a body that goes out already has come. */
static void send_on(struct egress_conn *c, bool whole) {
    if (whole) {
        egress_conn_move(c, EGRESS_CONN_BUSY);
        c->deadline_ms = 0;
    } else if (!egress_conn_wants_input(c)) {
        c->deadline_ms = 0; /* it is the server who is waited for */
    }
    forward_body_came(c);
}

/* Takes requests out of what has come. */
static void egress_conn_run(struct egress_conn *c) {
    c->running = true;
    while (c->in.len > 0 && wants_parsing(c)) {
        bool whole = false;
        size_t used;
        if (c->state == EGRESS_CONN_HEAD) {
            if (c->throttled)
                break;
            used = egress_conn_take_head(c);
            whole = used > 2 && c->state == EGRESS_CONN_HEAD && c->head.target;
        } else {
            used = egress_conn_take_body(c, &whole);
        }
        if (used == 0 || c->state == EGRESS_CONN_CLOSED)
            break;
        if (used >= c->in.len)
            buf_clear(&c->in);
        else
            buf_consume(&c->in, used);
        if (c->state == EGRESS_CONN_SEND)
            send_on(c, whole);
        else if (whole ||
                 (c->state == EGRESS_CONN_BODY && !is_inspected(c) && c->body.len > STREAM_BYTES))
            egress_conn_dispatch(c, whole);
    }
    if (c->state == EGRESS_CONN_HEAD && c->in.len == 0)
        buf_finish(&c->in); /* an idle connection keeps no buffer */
    c->running = false;
}

static void egress_conn_on_eof(struct egress_conn *c) {
    (void)uv_read_stop((uv_stream_t *)&c->tcp);
    c->half = HALF_ENDED;
    /* One that has asked and shut its side still gets its answer, if that has not begun. */
    bool waits = c->state == EGRESS_CONN_BUSY && c->decision.kind != EGRESS_KIND_CONNECT &&
                 c->event.status == 0;
    if (c->state == EGRESS_CONN_TUNNEL)
        tunnel_guest_ended(c);
    else if (!waits)
        egress_conn_cut(c, "the guest hung up");
}

static void egress_conn_on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *b) {
    struct egress_conn *c = stream->data;
    if (n == 0 || c->state == EGRESS_CONN_CLOSED)
        return;
    if (n == UV_EOF) {
        egress_conn_on_eof(c);
        return;
    }
    if (n < 0) {
        egress_conn_cut(c, "the guest hung up");
        return;
    }
    if (c->state == EGRESS_CONN_TUNNEL) {
        tunnel_from_guest(c, b->base, (size_t)n);
        return;
    }
    if (c->state == EGRESS_CONN_LINGER)
        return;
    bool fresh = c->in.len == 0 && c->state == EGRESS_CONN_HEAD;
    if (!buf_add(&c->in, b->base, (size_t)n)) {
        egress_conn_deny(c, "too much was sent ahead", NULL, 0);
        return;
    }
    /* All of a head in this time, however its bytes drip. */
    if (fresh)
        egress_conn_set_deadline(c, c->line->egress->config.head_timeout_ms);
    egress_conn_run(c);
    egress_conn_update_reading(c);
}
