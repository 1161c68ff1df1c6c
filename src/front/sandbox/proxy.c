#include "front/sandbox/proxy.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/sm.h"
#include "front/http/fields.h"
#include "http1/field.h"
#include "loop/later.h"

#include <assert.h>
#include <errno.h>
#include <llhttp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

enum {
    OUT_MAX = 1 << 20,
    OUT_HIGH = 256 * 1024,
    OUT_LOW = 64 * 1024,
    FIELDS_MAX = 100,
    HEAD_MAX = 64 * 1024,
    CHUNK = 65536
};

enum proxy_state {
    PROXY_CONNECTING,
    PROXY_WAITING,   /* for the head of the answer */
    PROXY_UPGRADING, /* the guest has said 101 */
    PROXY_ANSWERING, /* the head of the answer is out */
    PROXY_COMPLETE,  /* the answer is whole */
    PROXY_RAW,       /* after an upgrade: bytes both ways */
    PROXY_DEAD,      /* its memory goes from the loop */
};

static const struct sm_state states[] = {
    [PROXY_CONNECTING] = {"connecting", SM_TO(PROXY_WAITING) | SM_TO(PROXY_DEAD)},
    [PROXY_WAITING] = {"waiting",
                       SM_TO(PROXY_UPGRADING) | SM_TO(PROXY_ANSWERING) | SM_TO(PROXY_DEAD)},
    [PROXY_UPGRADING] = {"upgrading", SM_TO(PROXY_RAW) | SM_TO(PROXY_DEAD)},
    [PROXY_ANSWERING] = {"answering", SM_TO(PROXY_COMPLETE) | SM_TO(PROXY_DEAD)},
    [PROXY_COMPLETE] = {"complete", SM_TO(PROXY_DEAD)},
    [PROXY_RAW] = {"raw", SM_TO(PROXY_DEAD)},
    [PROXY_DEAD] = {"dead", 0},
};
static const struct sm proxy_sm = {"proxy", states, ARRAY_LEN(states)};

/* What goes into the sandbox. */
enum proxy_sink {
    SINK_OPEN,
    SINK_FULL,   /* too much waits: the client is not read */
    SINK_BROKEN, /* the guest reads no more */
};

struct proxy {
    struct sandbox_visitor visitor;
    struct sandboxes *all;
    enum proxy_state state;
    struct http_req *req; /* NULL when it is answered or gone */
    struct http_raw *raw; /* after an upgrade */
    struct sandbox_call *call;
    char id[ID_SIZE];
    unsigned port;
    int fd;
    uv_poll_t poll;     /* in use from PROXY_WAITING on */
    struct later freed; /* for one that ends before that */
    int events;
    struct buf out;
    enum proxy_sink sink;
    bool chunked_out; /* the body goes in chunks */
    llhttp_t parser;
    llhttp_settings_t settings;
    struct buf head; /* NAME\0VALUE\0 ... of the answer */
    struct buf name;
    size_t fields;
    char *type;
    bool full; /* the client reads too slowly */
};

static bool proxy_is_whole(const struct proxy *p) {
    if (p->state == PROXY_DEAD)
        return !p->req && !p->raw && !p->call;
    if (p->state == PROXY_RAW)
        return !p->req && p->raw;
    return p->req && p->fd >= 0;
}

static void proxy_move(struct proxy *p, enum proxy_state to) {
    p->state = (enum proxy_state)sm_next(&proxy_sm, p->state, to);
    assert(proxy_is_whole(p));
}

static bool has_begun(const struct proxy *p) {
    return p->state == PROXY_ANSWERING || p->state == PROXY_COMPLETE;
}

/* --- fields --- */

/* Fields that we set ourselves. */
static bool is_set_here(const char *name) {
    static const char *const names[] = {"host",
                                        "content-length",
                                        "expect",
                                        "forwarded",
                                        "x-forwarded-for",
                                        "x-forwarded-host",
                                        "x-forwarded-proto",
                                        NULL};
    return field_in_list(name, names);
}

/* --- the end --- */

static void proxy_free(void *ctx) {
    struct proxy *p = ctx;
    fd_close(&p->fd);
    buf_finish(&p->out);
    buf_finish(&p->head);
    buf_finish(&p->name);
    free(p->type);
    free(p);
}

static void proxy_on_poll_closed(uv_handle_t *h) {
    proxy_free(h->data);
}

/* The client has its answer, or is gone. Those on the stack may still read the state. */
static void proxy_end(struct proxy *p) {
    bool polled = p->state != PROXY_CONNECTING;
    struct sandbox *s = sandboxes_find(p->all, p->id);
    if (s)
        sandbox_leave(s, &p->visitor);
    sandbox_call_cancel(steal_ptr(&p->call));
    proxy_move(p, PROXY_DEAD);
    if (polled)
        uv_close((uv_handle_t *)&p->poll, proxy_on_poll_closed);
    else
        later_post(sandboxes_later(p->all), &p->freed, proxy_free, p);
}

/* To a person a page, which looks again by itself: servers take a moment to start. The message is
 * ours, with nothing of the guest's in it. */
static void proxy_refuse(struct http_req *req, const struct err *err) {
    if (!http_req_accepts(req, "text/html")) {
        http_respond_err(req, err);
        return;
    }
    _cleanup_(buf) struct buf b;
    buf_init(&b, 2048);
    (void)buf_addf(&b,
                   "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">"
                   "<meta http-equiv=\"refresh\" content=\"3\">"
                   "<meta name=\"viewport\" content=\"width=device-width\">"
                   "<meta name=\"color-scheme\" content=\"light dark\">"
                   "<title>No answer</title><h1>No answer</h1><p>%s.</p>"
                   "<p>This page looks again every three seconds.</p></html>\n",
                   err->message);
    http_res_header(req, "Cache-Control", "no-store");
    http_respond(req, err_http_status(err->code), "text/html; charset=utf-8", b.data, b.len);
}

static void proxy_fail(struct proxy *p, const struct err *err) {
    struct http_req *req = p->req;
    p->req = NULL;
    if (p->raw)
        http_raw_close(steal_ptr(&p->raw));
    if (req) {
        http_req_on_gone(req, NULL, NULL);
        http_req_on_body(req, NULL, NULL, NULL);
        http_stream_on_drain(req, NULL, NULL);
        if (has_begun(p))
            http_stream_break(req); /* the client must see that it is not whole */
        else
            proxy_refuse(req, err);
    }
    proxy_end(p);
}

static void proxy_on_gone(void *ctx) {
    struct proxy *p = ctx;
    struct http_req *req = p->req;
    p->req = NULL;
    if (has_begun(p))
        http_stream_end(req);
    else
        http_respond_empty(req, 499);
    proxy_end(p);
}

static void proxy_update(struct proxy *p);

/* The time for an answer begins anew with everything that goes in, and ends with its head. */
static void set_deadline(struct proxy *p) {
    p->visitor.deadline_ms =
        p->state > PROXY_WAITING
            ? 0
            : clock_mono_ms() + (int64_t)sandboxes_settings(p->all)->answer_s * 1000;
}

static void proxy_on_late(void *ctx) {
    struct proxy *p = ctx;
    struct err err;
    (void)err_set(&err, ERR_UPSTREAM,
                  "the program at port %u did not answer within %u s (setting sandboxes.answer_s)",
                  p->port, sandboxes_settings(p->all)->answer_s);
    proxy_fail(p, &err);
}

/* Clients that have shut their side and have no answer yet may be gone, which cannot be seen: the
 * one that has waited longest makes room. */
static bool proxy_make_room(struct sandbox *s) {
    struct proxy *oldest = NULL;
    struct err err;
    for (struct sandbox_visitor *v = s->visitors; v; v = v->next) {
        struct proxy *p = v->ctx;
        if (p->req && !has_begun(p) && http_req_is_shut(p->req))
            oldest = p;
    }
    if (!oldest)
        return false;
    (void)err_set(&err, ERR_RATE,
                  "others wanted the connection, and this client has shut its side (setting "
                  "sandboxes.connections)");
    proxy_fail(oldest, &err);
    return true;
}

/* --- into the sandbox --- */

static void proxy_send_out(struct proxy *p) {
    bool was_full = p->sink == SINK_FULL;
    while (p->out.len > 0) {
        ssize_t n = send(p->fd, p->out.data, p->out.len, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (n < 0) {
            p->sink = SINK_BROKEN; /* its answer may still come */
            buf_clear(&p->out);
            break;
        }
        buf_consume(&p->out, (size_t)n);
        set_deadline(p);
    }
    if (was_full && p->out.len < OUT_LOW) {
        if (p->sink == SINK_FULL)
            p->sink = SINK_OPEN;
        if (p->raw)
            http_raw_pause(p->raw, false);
        else if (p->req)
            http_req_body_resume(p->req);
    }
}

static void add_out(struct proxy *p, const char *data, size_t len) {
    if (p->sink == SINK_BROKEN)
        return;
    set_deadline(p);
    (void)buf_add(&p->out, data, len); /* never full: the source is paused long before */
    if (p->out.len > OUT_HIGH && p->sink == SINK_OPEN) {
        p->sink = SINK_FULL;
        if (p->raw)
            http_raw_pause(p->raw, true);
        else
            http_req_body_pause(p->req);
    }
    proxy_update(p);
}

static void proxy_on_body(void *ctx, const char *data, size_t len) {
    struct proxy *p = ctx;
    char size[24];
    if (!p->chunked_out) {
        add_out(p, data, len);
        return;
    }
    int n = snprintf(size, sizeof(size), "%zx\r\n", len);
    add_out(p, size, (size_t)n);
    add_out(p, data, len);
    add_out(p, "\r\n", 2);
}

static void proxy_on_body_end(void *ctx) {
    struct proxy *p = ctx;
    if (p->chunked_out)
        add_out(p, "0\r\n\r\n", 5);
}

static void add_field(struct proxy *p, const char *name, const char *value) {
    (void)buf_addf(&p->out, "%s: %s\r\n", name, value);
}

static void proxy_write_head(struct proxy *p) {
    const struct http_req *req = p->req;
    const char *connection = http_req_header(req, "connection");
    const char *length = http_req_header(req, "content-length");
    bool upgrade = http_req_is_upgrade(req);
    struct http_text m = http_req_method_text(req);
    const char *name;
    const char *value;
    (void)buf_add(&p->out, m.data, m.len);
    (void)buf_addf(&p->out, " %s%s%s HTTP/1.1\r\n", http_req_path(req),
                   *http_req_query(req) ? "?" : "", http_req_query(req));
    add_field(p, "Host", http_req_authority(req));
    for (size_t i = 0; http_req_header_at(req, i, &name, &value); i++) {
        if (http1_is_hop_by_hop(name, connection) || is_set_here(name) ||
            (strcasecmp(name, "authorization") == 0 && field_is_our_key(value)))
            continue;
        if (strcasecmp(name, "cookie") == 0) {
            _cleanup_(free) char *rest = field_guest_cookies(value);
            if (rest)
                add_field(p, "Cookie", rest);
            continue;
        }
        add_field(p, name, value);
    }
    char peer[HTTP_PEER_SIZE];
    if (*http_req_peer(req, peer))
        add_field(p, "X-Forwarded-For", peer);
    add_field(p, "X-Forwarded-Host", http_req_authority(req));
    add_field(p, "X-Forwarded-Proto", "http");
    p->chunked_out = http_req_header(req, "transfer-encoding") != NULL;
    if (length)
        add_field(p, "Content-Length", length);
    else if (p->chunked_out)
        add_field(p, "Transfer-Encoding", "chunked");
    if (upgrade)
        add_field(p, "Upgrade", "websocket");
    add_field(p, "Connection", upgrade ? "Upgrade" : "close");
    (void)buf_add_str(&p->out, "\r\n");
}

/* --- out of the sandbox --- */

/* A part of a field's name or value. */
static int proxy_on_field(llhttp_t *parser, const char *at, size_t len) {
    struct proxy *p = parser->data;
    return buf_add(&p->head, at, len) ? 0 : HPE_USER;
}

static int proxy_on_field_complete(llhttp_t *parser) {
    struct proxy *p = parser->data;
    return ++p->fields <= FIELDS_MAX && buf_add_char(&p->head, 0) ? 0 : HPE_USER;
}

static int proxy_on_value_complete(llhttp_t *parser) {
    struct proxy *p = parser->data;
    return buf_add_char(&p->head, 0) ? 0 : HPE_USER;
}

static const char *answer_field(const struct proxy *p, const char *wanted) {
    for (size_t at = 0; at < p->head.len;) {
        const char *name = p->head.data + at;
        const char *value = name + strlen(name) + 1;
        if (strcasecmp(name, wanted) == 0)
            return value;
        at = (size_t)(value - p->head.data) + strlen(value) + 1;
    }
    return NULL;
}

static bool is_token(const char *name) {
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c <= ' ' || (unsigned char)*c >= 127 ||
            strchr("()<>@,;:\\\"/[]?={}", *c))
            return false;
    return *name != 0;
}

static bool is_value(const char *value) {
    for (const char *c = value; *c; c++)
        if (((unsigned char)*c < ' ' && *c != '\t') || *c == 127)
            return false;
    return true;
}

/* Calls put for each field of the answer that goes on to the client. */
static void each_field(struct proxy *p,
                       void (*put)(struct proxy *p, const char *n, const char *v)) {
    const char *connection = answer_field(p, "connection");
    for (size_t at = 0; at < p->head.len;) {
        const char *name = p->head.data + at;
        const char *value = name + strlen(name) + 1;
        at = (size_t)(value - p->head.data) + strlen(value) + 1;
        if (!is_token(name) || !is_value(value) || http1_is_hop_by_hop(name, connection) ||
            field_is_ours(name))
            continue;
        if (strcasecmp(name, "set-cookie") == 0 && !field_cookie_is_fine(value))
            continue;
        put(p, name, value);
    }
}

static void put_answer(struct proxy *p, const char *name, const char *value) {
    http_res_header(p->req, name, value);
}

static int proxy_on_headers_complete(llhttp_t *parser) {
    struct proxy *p = parser->data;
    int status = parser->status_code;
    if (status == 101 && http_req_is_upgrade(p->req)) {
        proxy_move(p, PROXY_UPGRADING);
        set_deadline(p);
        return 2; /* there is no body: what follows is not HTTP */
    }
    if (status < 100 || status > 599)
        return -1;
    if (status < 200)
        return 1; /* no body, whatever it says: its bytes would come before our head */
    const char *type = answer_field(p, "content-type");
    p->type = type && is_value(type) ? xstrdup(type) : NULL;
    each_field(p, put_answer);
    proxy_move(p, PROXY_ANSWERING);
    set_deadline(p);
    http_stream_begin(p->req, status, p->type);
    return http_req_method(p->req) == HTTP_METHOD_HEAD ? 1 : 0;
}

static int proxy_on_answer_body(llhttp_t *parser, const char *at, size_t len) {
    struct proxy *p = parser->data;
    if (!has_begun(p))
        return -1;
    if (!http_stream_write(p->req, at, len))
        p->full = true;
    return 0;
}

static int proxy_on_message_complete(llhttp_t *parser) {
    struct proxy *p = parser->data;
    if (p->state == PROXY_UPGRADING)
        return 0; /* the parser stops by itself */
    if (parser->status_code < 200) {
        buf_clear(&p->head);
        p->fields = 0;
        return 0;
    }
    proxy_move(p, PROXY_COMPLETE);
    return HPE_PAUSED;
}

/* --- after an upgrade --- */

static void proxy_on_raw_data(void *ctx, const char *data, size_t len) {
    add_out(ctx, data, len);
}

static void proxy_on_raw_close(void *ctx) {
    struct proxy *p = ctx;
    p->raw = NULL;
    proxy_end(p);
}

static void proxy_on_raw_drain(void *ctx) {
    struct proxy *p = ctx;
    p->full = false;
    proxy_update(p);
}

static void put_upgrade(struct proxy *p, const char *name, const char *value) {
    (void)buf_addf(&p->name, "%s: %s\r\n", name, value);
}

static void proxy_upgrade(struct proxy *p, const char *rest, size_t len) {
    static const struct http_raw_callbacks callbacks = {proxy_on_raw_data, proxy_on_raw_close,
                                                        proxy_on_raw_drain};
    struct http_req *req = p->req;
    buf_clear(&p->name);
    (void)buf_add_str(&p->name, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                                "Connection: Upgrade\r\n");
    each_field(p, put_upgrade);
    (void)buf_add_str(&p->name, "\r\n");
    p->req = NULL;
    http_req_on_body(req, NULL, NULL, NULL);
    p->raw = http_raw_accept(req, p->name.data, p->name.len, &callbacks, p);
    if (!p->raw) {
        proxy_end(p);
        return;
    }
    proxy_move(p, PROXY_RAW);
    if (len > 0 && !http_raw_write(p->raw, rest, len))
        p->full = true;
}

/* --- the socket --- */

static void proxy_finish(struct proxy *p) {
    struct http_req *req = p->req;
    p->req = NULL;
    http_req_on_gone(req, NULL, NULL);
    http_req_on_body(req, NULL, NULL, NULL);
    http_stream_on_drain(req, NULL, NULL);
    http_stream_end(req);
    proxy_end(p);
}

static void upstream_error(struct proxy *p, const char *what) {
    struct err err;
    (void)err_set(&err, ERR_UPSTREAM, "the program at port %u %s", p->port, what);
    proxy_fail(p, &err);
}

static void proxy_feed(struct proxy *p, const char *data, size_t len) {
    if (p->raw) {
        if (!http_raw_write(p->raw, data, len))
            p->full = true;
        return;
    }
    enum llhttp_errno e = llhttp_execute(&p->parser, data, len);
    if (p->state == PROXY_DEAD)
        return;
    if (p->state == PROXY_UPGRADING && e == HPE_PAUSED_UPGRADE) {
        const char *rest = llhttp_get_error_pos(&p->parser);
        proxy_upgrade(p, rest, (size_t)(data + len - rest));
    } else if (p->state == PROXY_COMPLETE) {
        proxy_finish(p);
    } else if (e != HPE_OK) {
        upstream_error(p, "gave an answer that is no HTTP");
    }
}

static void proxy_on_eof(struct proxy *p) {
    if (p->raw) {
        http_raw_close(steal_ptr(&p->raw));
        proxy_end(p);
        return;
    }
    /* A body without a length ends here. */
    bool whole = has_begun(p) && llhttp_finish(&p->parser) == HPE_OK;
    if (p->state == PROXY_DEAD)
        return;
    if (p->state == PROXY_COMPLETE || whole)
        proxy_finish(p);
    else
        upstream_error(p, "closed the connection before its answer was whole");
}

static void proxy_receive(struct proxy *p) {
    static char chunk[CHUNK];
    ssize_t n = recv(p->fd, chunk, sizeof(chunk), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0)
        proxy_on_eof(p);
    else
        proxy_feed(p, chunk, (size_t)n);
}

static void proxy_on_poll(uv_poll_t *poll, int status, int events) {
    struct proxy *p = poll->data;
    if (status < 0)
        events = UV_READABLE | UV_WRITABLE;
    if (events & UV_WRITABLE)
        proxy_send_out(p);
    if (p->state != PROXY_DEAD && (events & UV_READABLE))
        proxy_receive(p);
    proxy_update(p);
}

static void proxy_update(struct proxy *p) {
    if (p->state == PROXY_DEAD)
        return;
    int events = (p->full ? 0 : UV_READABLE) | (p->out.len > 0 ? UV_WRITABLE : 0);
    if (events == p->events)
        return;
    p->events = events;
    if (events)
        (void)uv_poll_start(&p->poll, events, proxy_on_poll);
    else
        (void)uv_poll_stop(&p->poll);
}

static void proxy_on_drain(void *ctx) {
    struct proxy *p = ctx;
    p->full = false;
    proxy_update(p);
}

static void proxy_on_connected(void *ctx, struct sandbox_reply *reply, const struct err *err) {
    struct proxy *p = ctx;
    p->call = NULL;
    if (err) {
        struct err e;
        (void)err_set(&e, ERR_UPSTREAM, "nothing answers at port %u of this sandbox", p->port);
        proxy_fail(p, &e);
        return;
    }
    p->fd = steal_fd(&reply->fd);
    if (uv_poll_init(sandboxes_loop(p->all), &p->poll, p->fd) < 0) {
        upstream_error(p, "cannot be watched");
        return;
    }
    p->poll.data = p;
    proxy_move(p, PROXY_WAITING);
    proxy_write_head(p);
    http_stream_on_drain(p->req, proxy_on_drain, p);
    proxy_update(p);
    http_req_on_body(p->req, proxy_on_body, proxy_on_body_end, p);
    http_req_body_resume(p->req);
}

/* --- the beginning --- */

static void set_up_parser(struct proxy *p) {
    llhttp_settings_init(&p->settings);
    p->settings.on_header_field = proxy_on_field;
    p->settings.on_header_field_complete = proxy_on_field_complete;
    p->settings.on_header_value = proxy_on_field;
    p->settings.on_header_value_complete = proxy_on_value_complete;
    p->settings.on_headers_complete = proxy_on_headers_complete;
    p->settings.on_body = proxy_on_answer_body;
    p->settings.on_message_complete = proxy_on_message_complete;
    llhttp_init(&p->parser, HTTP_RESPONSE, &p->settings);
    p->parser.data = p;
}

int proxy_request(struct sandbox *s, struct http_req *req, unsigned port, struct err *err) {
    if (s->connections >= sandboxes_settings(s->all)->connections && !proxy_make_room(s))
        return err_set(err, ERR_RATE,
                       "there are %zu connections to this sandbox (setting sandboxes.connections)",
                       s->connections);
    struct proxy *p = xcalloc(1, sizeof(*p));
    p->all = s->all;
    p->fd = -1;
    p->port = port;
    memcpy(p->id, s->id, sizeof(p->id));
    p->call = sandbox_box_port(s->box, (uint16_t)port, proxy_on_connected, p);
    if (!p->call) {
        free(p);
        return err_set(err, ERR_UNAVAILABLE, "the sandbox takes no connections now");
    }
    p->req = req;
    buf_init(&p->out, OUT_MAX);
    buf_init(&p->head, HEAD_MAX);
    buf_init(&p->name, HEAD_MAX + 1024);
    set_up_parser(p);
    p->visitor = (struct sandbox_visitor){.on_late = proxy_on_late, .ctx = p};
    sandbox_visit(s, &p->visitor);
    set_deadline(p);
    http_req_on_gone(req, proxy_on_gone, p);
    http_req_body_pause(req); /* until there is somebody to read it */
    return 0;
}
