#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "front/http/internal.h"
#include "front/http/url.h"
#include "http1/field.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

static const char *method_names[] = {"GET",   "HEAD",   "POST",    "PUT",
                                     "PATCH", "DELETE", "OPTIONS", "OTHER"};

const char *http_method_name(enum http_method method) {
    return method_names[method];
}

/* Heads are put together by hand: formatting them cost a tenth of a small request. */
static char *http_request_put(char *p, const char *text) {
    return mempcpy(p, text, strlen(text));
}

static char *http_request_put_number(char *p, uint64_t v) {
    char text[20];
    size_t n = sizeof(text);
    do
        text[--n] = (char)('0' + v % 10);
    while (v /= 10);
    memcpy(p, text + n, sizeof(text) - n);
    return p + sizeof(text) - n;
}

static char *put_hex(char *p, uint64_t v) {
    char text[16];
    size_t n = sizeof(text);
    do
        text[--n] = "0123456789abcdef"[v & 15];
    while (v >>= 4);
    memcpy(p, text + n, sizeof(text) - n);
    return p + sizeof(text) - n;
}

/* Further fields of an answer; those of a guest may be many. */
enum { EXTRA_MAX = 65536 };

struct http_req *req_create(struct http_server *s) {
    struct http_req *req = xmalloc(sizeof(*req));
    s->stats.requests++;
    memset(req, 0, offsetof(struct http_req, fields));
    http1_head_init(&req->head, req->fields, HEADERS_MAX);
    req->server = s;
    req->start_ns = clock_mono_ns();
    req->length = -1;
    char *p = http_request_put(req->id, s->id_prefix);
    *p++ = '-';
    *put_hex(p, ++s->next_id) = 0;
    buf_init(&req->extra, EXTRA_MAX);
    return req;
}

void req_destroy(struct http_req *req) {
    if (!req)
        return;
    if (req->server->handled == req)
        req->server->handled = NULL;
    commits_forget(req);
    if (req->free_user)
        req->free_user(req->user);
    conn_body_released(req);
    req_read_done(req);
    for (size_t i = 0; i < req->nparams; i++)
        free(req->params[i]);
    buf_finish(&req->body);
    buf_finish(&req->extra);
    http1_head_finish(&req->head);
    free(req->host);
    struct http_server *s = req->server;
    free(req);
    s->stats.requests--;
    server_release(s);
}

void req_gone(struct http_req *req) {
    req->conn = NULL;
    if (req->status == 0)
        req->status = 499;
    if (!req->owed) {
        req_destroy(req);
        return;
    }
    void (*on_gone)(void *) = req->on_gone;
    req->on_gone = NULL;
    req->on_data = NULL;
    req->on_end = NULL;
    req->on_drain = NULL;
    if (on_gone)
        on_gone(req->gone_ctx);
}

enum http_method http_req_method(const struct http_req *req) {
    return req->method;
}

struct http_text http_req_method_text(const struct http_req *req) {
    const char *m = req->head.method;
    return (struct http_text){m, strlen(m)};
}

const char *http_req_path(const struct http_req *req) {
    return req->path;
}

const char *http_req_query(const struct http_req *req) {
    return req->query;
}

const char *http_req_host(const struct http_req *req) {
    return req->host;
}

const char *http_req_authority(const struct http_req *req) {
    return req->authority;
}

const char *http_req_header(const struct http_req *req, const char *name) {
    return http1_head_value(&req->head, name);
}

size_t http_req_header_count(const struct http_req *req, const char *name) {
    return http1_head_count(&req->head, name);
}

bool http_req_header_at(const struct http_req *req, size_t i, const char **ret_name,
                        const char **ret_value) {
    if (i >= req->head.nfields)
        return false;
    *ret_name = req->head.fields[i].name;
    *ret_value = req->head.fields[i].value;
    return true;
}

const char *http_req_param(const struct http_req *req, const char *name) {
    for (size_t i = 0; i < req->nparams; i++)
        if (strcmp(req->param_names[i], name) == 0)
            return req->params[i];
    return NULL;
}

int http_req_query_get(const struct http_req *req, const char *name, char **ret_value,
                       struct err *err) {
    return url_query_get(req->query, name, ret_value, err);
}

int http_req_query_check(const struct http_req *req, const char *const *allowed, struct err *err) {
    return url_query_check(req->query, allowed, err);
}

bool http_req_accepts(const struct http_req *req, const char *type) {
    const char *accept = http_req_header(req, "accept");
    size_t n = strlen(type);
    while (accept && *accept) {
        accept += strspn(accept, " ,\t");
        size_t len = strcspn(accept, ",;");
        size_t end = len;
        while (end > 0 && (accept[end - 1] == ' ' || accept[end - 1] == '\t'))
            end--;
        if (end == n && strncasecmp(accept, type, n) == 0)
            return true;
        accept += strcspn(accept, ",");
    }
    return false;
}

const char *http_req_id(const struct http_req *req) {
    return req->id;
}

const char *http_req_body(const struct http_req *req, size_t *ret_len) {
    *ret_len = req->body.len;
    return req->body.data ? req->body.data : "";
}

size_t http_req_body_len(const struct http_req *req) {
    return req->body_seen;
}

void http_req_set_user(struct http_req *req, void *user, void (*free_user)(void *)) {
    req->user = user;
    req->free_user = free_user;
}

void *http_req_user(const struct http_req *req) {
    return req->user;
}

bool http_req_is_local(const struct http_req *req) {
    return req->conn && req->conn->local;
}

char *http_req_peer(const struct http_req *req, char out[HTTP_PEER_SIZE]) {
    struct sockaddr_storage a;
    int n = sizeof(a);
    out[0] = 0;
    if (!req->conn || req->conn->uv.handle.type != UV_TCP ||
        uv_tcp_getpeername(&req->conn->uv.tcp, (struct sockaddr *)&a, &n) < 0)
        return out;
    if (a.ss_family == AF_INET)
        (void)uv_ip4_name((struct sockaddr_in *)&a, out, HTTP_PEER_SIZE);
    else if (a.ss_family == AF_INET6)
        (void)uv_ip6_name((struct sockaddr_in6 *)&a, out, HTTP_PEER_SIZE);
    return out;
}

bool http_req_is_shut(const struct http_req *req) {
    return !req->conn || req->conn->eof;
}

void http_req_on_gone(struct http_req *req, void (*on_gone)(void *ctx), void *ctx) {
    req->on_gone = on_gone;
    req->gone_ctx = ctx;
}

void http_req_on_body(struct http_req *req,
                      void (*on_data)(void *ctx, const char *data, size_t len),
                      void (*on_end)(void *ctx), void *ctx) {
    req->on_data = on_data;
    req->on_end = on_end;
    req->body_ctx = ctx;
}

void http_req_body_pause(struct http_req *req) {
    req->body_paused = true;
    if (req->conn)
        conn_body_paused(req->conn, true);
}

void http_req_body_resume(struct http_req *req) {
    req->body_paused = false;
    if (req->conn)
        conn_body_paused(req->conn, false);
}

static bool is_field_value(const char *value) {
    for (const char *p = value; *p; p++)
        if (((unsigned char)*p < ' ' && *p != '\t') || *p == 127)
            return false;
    return true;
}

void http_res_header(struct http_req *req, const char *name, const char *value) {
    for (const char *p = name; *p; p++)
        if (*p <= ' ' || *p == ':' || *p == 127)
            return;
    if (!is_field_value(value))
        return;
    (void)buf_addf(&req->extra, "%s: %s\r\n", name, value);
}

const char *server_date(struct http_server *s) {
    uint64_t now = uv_now(s->opt.loop);
    if (s->date_ms == 0 || now - s->date_ms >= 1000) {
        time_t t = time(NULL);
        struct tm tm;
        (void)gmtime_r(&t, &tm);
        (void)strftime(s->date, sizeof(s->date), "%a, %d %b %Y %H:%M:%S GMT", &tm);
        s->date_ms = now ? now : 1;
    }
    return s->date;
}

static bool has_no_body(int status) {
    return status < 200 || status == 204 || status == 304;
}

enum { HEAD_MAX = 1024, TYPE_MAX = 256 };

/* Status line and fields, up to the empty line. len < 0: the length is not known. Every part but
 * the media type, which may be a guest's, is ours and short. */
static size_t make_head(struct http_req *req, char out[HEAD_MAX], int status, const char *type,
                        ssize_t len) {
    struct http_conn *c = req->conn;
    bool close_after = !req->keep_alive || (c && (c->server->leaving || c->state == CONN_BODY));
    if (close_after)
        req->keep_alive = false;
    char *p = http_request_put(out, "HTTP/1.1 ");
    p = http_request_put_number(p, (uint64_t)status);
    *p++ = ' ';
    p = http_request_put(p, http1_phrase(status));
    p = http_request_put(p, "\r\nDate: ");
    p = http_request_put(p, server_date(req->server));
    if (type && strlen(type) <= TYPE_MAX && is_field_value(type)) {
        p = http_request_put(p, "\r\nContent-Type: ");
        p = http_request_put(p, type);
    }
    if (len >= 0 && !has_no_body(status)) {
        p = http_request_put(p, "\r\nContent-Length: ");
        p = http_request_put_number(p, (uint64_t)len);
    } else if (req->chunked) {
        p = http_request_put(p, "\r\nTransfer-Encoding: chunked");
    }
    /* What guests make is on an origin of its own, and says itself who may embed it. */
    if (!req->route || !(req->route->flags & HTTP_ROUTE_GUEST))
        p = http_request_put(p, "\r\nCross-Origin-Resource-Policy: same-origin");
    p = http_request_put(p, "\r\nX-Content-Type-Options: nosniff\r\nX-Request-Id: ");
    p = http_request_put(p, req->id);
    p = http_request_put(p, close_after        ? "\r\nConnection: close\r\n"
                            : req->head.http10 ? "\r\nConnection: keep-alive\r\n"
                                               : "\r\n");
    return (size_t)(p - out);
}

static void http_request_observe(struct http_req *req) {
    struct http_server *s = req->server;
    s->stats.requests_total++;
    if (s->opt.observer)
        s->opt.observer(req, req->route ? req->route->pattern : "", req->status,
                        (clock_mono_ns() - req->start_ns) / 1000, s->opt.ctx);
}

/* The answer is complete; the request ends here. */
static void http_request_finish(struct http_req *req) {
    http_request_observe(req);
    req->owed = false;
    if (req->conn)
        conn_answered(req->conn, req);
    else
        req_destroy(req);
}

static bool send_whole(struct http_req *req, int status, const char *type, const void *body,
                       size_t len, struct buf *own) {
    if (!req->conn)
        return false;
    commits_hold(req);
    char head[HEAD_MAX];
    size_t n = make_head(req, head, status, type, (ssize_t)len);
    bool bodyless = req->method == HTTP_METHOD_HEAD || has_no_body(status);
    uv_buf_t pieces[4] = {uv_buf_init(head, (unsigned)n)};
    unsigned k = 1;
    if (req->extra.len > 0)
        pieces[k++] = uv_buf_init(req->extra.data, (unsigned)req->extra.len);
    pieces[k++] = uv_buf_init((char *)"\r\n", 2);
    if (!bodyless && len > 0)
        pieces[k++] = uv_buf_init((char *)(uintptr_t)body, (unsigned)len);
    return conn_write_from(req->conn, pieces, k,
                           &(struct unsent_source){.own = bodyless ? NULL : own});
}

static void http_request_respond(struct http_req *req, int status, const char *type,
                                 const void *body, size_t len, struct buf *own) {
    req->status = status;
    req->on_gone = NULL; /* this is the answer, whether the client is there or not */
    (void)send_whole(req, status, type, body, len, own);
    http_request_finish(req);
}

void http_respond(struct http_req *req, int status, const char *type, const void *body,
                  size_t len) {
    http_request_respond(req, status, type, body, len, NULL);
}

void http_respond_text(struct http_req *req, int status, const char *text) {
    http_respond(req, status, "text/plain; charset=utf-8", text, strlen(text));
}

void http_respond_buf(struct http_req *req, int status, const char *type, struct buf *body) {
    if (body->full) {
        struct err err;
        (void)err_set(&err, ERR_INTERNAL, "the answer exceeds %zu bytes; ask for less at a time",
                      body->max);
        http_respond_err(req, &err);
    } else {
        http_request_respond(req, status, type, body->data, body->len, body);
    }
    buf_finish(body);
}

void http_respond_json(struct http_req *req, int status, const json_t *json) {
    struct buf b;
    buf_init(&b, (size_t)64 << 20);
    if (!json_dump(json, &b))
        b.full = true;
    http_respond_buf(req, status, "application/json", &b);
}

void http_respond_empty(struct http_req *req, int status) {
    http_respond(req, status, NULL, NULL, 0);
}

static void error_body(struct buf *b, const struct http_req *req, const struct err *err) {
    struct json_writer w;
    if (req->route && req->route->write_error) {
        req->route->write_error(b, err);
        return;
    }
    json_writer_init(&w, b);
    json_writer_object_begin(&w);
    json_put_object_begin(&w, "error");
    json_put_str(&w, "code", err_name(err->code));
    json_put_str(&w, "message", err->message);
    json_put_str(&w, "request_id", req->id);
    json_writer_object_end(&w);
    json_writer_object_end(&w);
}

static bool has_extra(const struct http_req *req, const char *field) {
    return req->extra.data && strcasestr(req->extra.data, field);
}

/* What a key may spend is counted by days of UTC. */
void http_res_retry_after(struct http_req *req, enum err_code code) {
    int64_t wait_s = code == ERR_RATE || code == ERR_UNAVAILABLE ? 1
                     : code == ERR_QUOTA                         ? clock_day_left_s(clock_wall_ms())
                                                                 : 0;
    if (wait_s > 0)
        http_res_retry_after_s(req, wait_s);
}

void http_res_retry_after_s(struct http_req *req, int64_t wait_s) {
    char text[24];
    if (has_extra(req, "Retry-After: "))
        return;
    (void)snprintf(text, sizeof(text), "%lld", (long long)wait_s);
    http_res_header(req, "Retry-After", text);
}

void http_respond_err(struct http_req *req, const struct err *err) {
    struct buf b;
    buf_init(&b, 8192);
    error_body(&b, req, err);
    if (err->code == ERR_UNAUTHORIZED)
        http_res_header(req, "WWW-Authenticate", "Bearer");
    http_res_retry_after(req, err->code);
    http_respond_buf(req, err_http_status(err->code), "application/json", &b);
}

void req_fail(struct http_conn *c, const struct err *err, int status) {
    struct http_req *req = c->req;
    if (!req) {
        req = req_create(c->server);
        req->conn = c;
    }
    c->req = NULL;
    req->keep_alive = false;
    req->status = status ? status : err_http_status(err->code);
    struct buf b;
    buf_init(&b, 8192);
    error_body(&b, req, err);
    (void)send_whole(req, req->status, "application/json", b.data, b.len, NULL);
    buf_finish(&b);
    http_request_observe(req);
    req_destroy(req);
}

void http_stream_length(struct http_req *req, uint64_t len) {
    req->length = (int64_t)len;
}

void http_sse_begin(struct http_req *req) {
    if (!has_extra(req, "Cache-Control: "))
        http_res_header(req, "Cache-Control", "no-store");
    req->events = true;
    req->said_ms = uv_now(req->server->opt.loop);
    http_stream_begin(req, 200, "text/event-stream");
}

void http_stream_begin(struct http_req *req, int status, const char *type) {
    if (req->length < 0 && !has_extra(req, "X-Accel-Buffering: "))
        http_res_header(req, "X-Accel-Buffering", "no");
    req->status = status;
    req->streaming = true;
    struct http_conn *c = req->conn;
    if (!c)
        return;
    commits_hold(req);
    req->bodyless = req->method == HTTP_METHOD_HEAD || has_no_body(status);
    req->chunked = !req->head.http10 && !has_no_body(status) && req->length < 0;
    if (req->head.http10 && !req->bodyless && req->length < 0)
        req->keep_alive = false;
    char head[HEAD_MAX];
    size_t n = make_head(req, head, status, type, (ssize_t)req->length);
    uv_buf_t pieces[3] = {uv_buf_init(head, (unsigned)n),
                          uv_buf_init(req->extra.data, (unsigned)req->extra.len),
                          uv_buf_init((char *)"\r\n", 2)};
    (void)conn_write_soon(c, pieces, 3, NULL);
}

bool http_stream_write(struct http_req *req, const void *data, size_t len) {
    struct http_conn *c = req->conn;
    if (!c)
        return false;
    /* A chunk of no bytes would end the body. */
    if (len == 0 || req->bodyless)
        return true;
    /* More than was promised would be taken for the next answer. */
    if (req->length >= 0) {
        len = MIN(len, (size_t)req->length);
        req->length -= (int64_t)len;
    }
    char size[24];
    uv_buf_t pieces[3];
    unsigned k = 0;
    req->said_ms = uv_now(c->server->opt.loop);
    if (req->chunked) {
        int n = snprintf(size, sizeof(size), "%zx\r\n", len);
        pieces[k++] = uv_buf_init(size, (unsigned)n);
    }
    pieces[k++] = uv_buf_init((char *)(uintptr_t)data, (unsigned)len);
    if (req->chunked)
        pieces[k++] = uv_buf_init((char *)"\r\n", 2);
    /* A connection that is broken closes in the next turn of the loop, which calls on_gone. */
    return conn_write_soon(c, pieces, k, NULL) && !c->throttled;
}

bool http_stream_has_body(const struct http_req *req) {
    return !req->bodyless;
}

void http_stream_on_drain(struct http_req *req, void (*on_drain)(void *ctx), void *ctx) {
    req->on_drain = on_drain;
    req->drain_ctx = ctx;
}

void http_stream_end(struct http_req *req) {
    if (req->conn && req->length > 0 && !req->bodyless) {
        http_stream_break(req); /* less than was promised: the client must see it */
        return;
    }
    req->on_gone = NULL;
    if (req->conn && req->chunked && !req->bodyless) {
        uv_buf_t b = uv_buf_init((char *)"0\r\n\r\n", 5);
        (void)conn_write(req->conn, &b, 1);
    }
    http_request_finish(req);
}

void http_stream_break(struct http_req *req) {
    req->on_gone = NULL;
    if (req->conn) {
        struct http_conn *c = req->conn;
        c->req = NULL;
        req->conn = NULL;
        conn_close(c);
    }
    http_request_finish(req);
}

bool http_sse_send(struct http_req *req, const char *event, const char *id, const char *data,
                   size_t len) {
    struct buf b;
    buf_init(&b, len * 7 + 1024); /* at worst every byte ends a line */
    if (event)
        (void)buf_addf(&b, "event: %s\n", event);
    if (id)
        (void)buf_addf(&b, "id: %s\n", id);
    while (true) {
        /* A carriage return ends a line too: text must not begin a field of its own. */
        size_t n = 0;
        while (n < len && data[n] != '\n' && data[n] != '\r')
            n++;
        (void)buf_add_str(&b, "data: ");
        (void)buf_add(&b, data, n);
        (void)buf_add_char(&b, '\n');
        if (n == len)
            break;
        n += data[n] == '\r' && n + 1 < len && data[n + 1] == '\n' ? 2 : 1;
        data += n;
        len -= n;
    }
    (void)buf_add_char(&b, '\n');
    bool more = http_stream_write(req, b.data, b.len);
    buf_finish(&b);
    return more;
}
