#include "base/cleanup.h"
#include "base/limits.h"
#include "base/mem.h"
#include "front/http/internal.h"

#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    PING_AFTER_MS = 30000,
    DEAD_AFTER_MS = 75000,
    TURN_BYTES = 256 << 10, /* that are taken from one client in a turn of the loop */
    HEAD_MAX_BYTES = 10,    /* of a frame to a client */
    PIECES_MAX = 3,         /* of its payload */
    WS_TOO_BIG = 1009,
};

struct http_ws {
    struct http_conn *conn; /* NULL when the connection is gone */
    struct later later;     /* then its end is told, and it is freed */
    wslay_event_context_ptr ctx;
    struct http_ws_callbacks callbacks;
    void *user;
    const char *in;
    size_t in_len;
    struct buf message; /* that is not whole yet */
    bool in_control;    /* a control frame is being read, perhaps amid the message's */
    size_t fed;         /* in this turn of the loop, or a little before */
    uint64_t heard_ms;
    bool pinged;
    bool paused;
};

static void websocket_on_over(void *ctx) {
    struct http_ws *ws = ctx;
    int code = wslay_event_get_close_received(ws->ctx)
                   ? wslay_event_get_status_code_received(ws->ctx)
                   : 1006;
    ws->callbacks.on_close(ws->user, ws, code);
    wslay_event_context_free(ws->ctx);
    buf_finish(&ws->message);
    free(ws);
}

void ws_conn_gone(struct http_ws *ws) {
    struct http_server *s = ws->conn->server;
    s->stats.websockets--;
    ws->conn = NULL;
    later_post(&s->later, &ws->later, websocket_on_over, ws);
}

static ssize_t websocket_on_recv(wslay_event_context_ptr ctx, uint8_t *out, size_t len, int flags,
                                 void *p) {
    (void)flags;
    struct http_ws *ws = p;
    if (ws->in_len == 0) {
        wslay_event_set_error(ctx, WSLAY_ERR_WOULDBLOCK);
        return -1;
    }
    size_t n = MIN(len, ws->in_len);
    memcpy(out, ws->in, n);
    ws->in += n;
    ws->in_len -= n;
    return (ssize_t)n;
}

static ssize_t websocket_on_send(wslay_event_context_ptr ctx, const uint8_t *data, size_t len,
                                 int flags, void *p) {
    (void)flags;
    struct http_ws *ws = p;
    uv_buf_t b = uv_buf_init((char *)(uintptr_t)data, (unsigned)len);
    if (!ws->conn || !conn_write_soon(ws->conn, &b, 1, NULL)) {
        wslay_event_set_error(ctx, WSLAY_ERR_CALLBACK_FAILURE);
        return -1;
    }
    return (ssize_t)len;
}

/* wslay looks at the length of a frame alone when it does not gather messages itself. */
static void websocket_on_frame(wslay_event_context_ptr ctx,
                               const struct wslay_event_on_frame_recv_start_arg *arg, void *p) {
    struct http_ws *ws = p;
    ws->in_control = wslay_is_ctrl_frame(arg->opcode);
    if (ws->in_control || arg->payload_length <= ws->message.max - ws->message.len)
        return;
    (void)wslay_event_queue_close(ctx, WS_TOO_BIG, NULL, 0);
    wslay_event_shutdown_read(ctx);
}

static void websocket_on_piece(wslay_event_context_ptr ctx,
                               const struct wslay_event_on_frame_recv_chunk_arg *arg, void *p) {
    (void)ctx;
    struct http_ws *ws = p;
    if (!ws->in_control && arg->data_length > 0)
        (void)buf_add(&ws->message, arg->data, arg->data_length);
}

static void websocket_on_msg(wslay_event_context_ptr ctx,
                             const struct wslay_event_on_msg_recv_arg *arg, void *p) {
    struct http_ws *ws = p;
    if (wslay_is_ctrl_frame(arg->opcode))
        return;
    if (ws->conn && wslay_event_get_read_enabled(ctx) && !wslay_event_get_close_sent(ctx))
        ws->callbacks.on_message(ws->user, ws, ws->message.data ? ws->message.data : "",
                                 ws->message.len, arg->opcode == WSLAY_TEXT_FRAME);
    buf_finish(&ws->message); /* an idle connection keeps no buffer */
}

char *http_ws_take(struct http_ws *ws) {
    return buf_steal(&ws->message, NULL);
}

static const struct wslay_event_callbacks wslay_callbacks = {
    .recv_callback = websocket_on_recv,
    .send_callback = websocket_on_send,
    .on_frame_recv_start_callback = websocket_on_frame,
    .on_frame_recv_chunk_callback = websocket_on_piece,
    .on_msg_recv_callback = websocket_on_msg,
};

/* The WebSocket is over; what is written still goes out. */
static void websocket_detach(struct http_ws *ws) {
    struct http_conn *c = ws->conn;
    c->ws = NULL;
    ws_conn_gone(ws);
    conn_end_after_writes(c);
}

/* Sends what is queued; ends the connection when the closing handshake is done. */
static void websocket_flush(struct http_ws *ws) {
    if (!ws->conn)
        return;
    if (wslay_event_send(ws->ctx) != 0)
        conn_break(ws->conn);
    else if (!wslay_event_want_read(ws->ctx) && !wslay_event_want_write(ws->ctx))
        websocket_detach(ws);
}

void ws_feed(struct http_ws *ws, const char *data, size_t len) {
    ws->in = data;
    ws->in_len = len;
    ws->heard_ms = uv_now(ws->conn->server->opt.loop);
    ws->pinged = false;
    int rc = wslay_event_recv(ws->ctx);
    if (rc != 0 && ws->conn) {
        /* A frame that is none: wslay has no close code for it. */
        static char bye[] = "\x88\x02\x03\xea"; /* 1002 */
        uv_buf_t b = uv_buf_init(bye, sizeof(bye) - 1);
        if (wslay_event_get_close_sent(ws->ctx) || conn_write(ws->conn, &b, 1))
            websocket_detach(ws);
    }
    websocket_flush(ws);
    ws->fed += len;
    if (ws->fed < TURN_BYTES || !ws->conn)
        return;
    ws->fed = 0;
    conn_resume(ws->conn); /* the others have their turn first */
}

void ws_drained(struct http_ws *ws) {
    if (ws->callbacks.on_drain)
        ws->callbacks.on_drain(ws->user, ws);
}

void ws_going_away(struct http_ws *ws) {
    http_ws_close(ws, 1001, "the server is shutting down");
}

void ws_tick(struct http_ws *ws, uint64_t now_ms) {
    if (ws->paused)
        return;
    if (now_ms > ws->heard_ms + DEAD_AFTER_MS) {
        conn_close(ws->conn);
    } else if (!ws->pinged && now_ms > ws->heard_ms + PING_AFTER_MS) {
        ws->pinged = true;
        struct wslay_event_msg ping = {.opcode = WSLAY_PING};
        (void)wslay_event_queue_msg(ws->ctx, &ping);
        websocket_flush(ws);
    }
}

static bool has_token(const char *list, const char *token) {
    size_t n = strlen(token);
    while (list && *list) {
        list += strspn(list, " ,\t");
        size_t len = strcspn(list, ", \t");
        if (len == n && strncasecmp(list, token, n) == 0)
            return true;
        list += len;
    }
    return false;
}

bool http_req_is_upgrade(const struct http_req *req) {
    return has_token(http_req_header(req, "upgrade"), "websocket");
}

static bool check_handshake(struct http_req *req, const char **ret_key, struct err *err) {
    const char *key = http_req_header(req, "sec-websocket-key");
    const char *version = http_req_header(req, "sec-websocket-version");
    if (req->method != HTTP_METHOD_GET || req->head.http10 || !req->body_done ||
        !http_req_is_upgrade(req) || !has_token(http_req_header(req, "connection"), "upgrade")) {
        (void)err_set(err, ERR_BAD_REQUEST, "this address speaks WebSocket: send an upgrade");
        return false;
    }
    if (!version || strcmp(version, "13") != 0) {
        http_res_header(req, "Sec-WebSocket-Version", "13");
        (void)err_set(err, ERR_BAD_REQUEST, "only WebSocket version 13 is spoken here");
        return false;
    }
    unsigned char raw[20];
    if (!key || strlen(key) != 24 || EVP_DecodeBlock(raw, (const unsigned char *)key, 24) != 18) {
        (void)err_set(err, ERR_BAD_REQUEST, "Sec-WebSocket-Key is missing or malformed");
        return false;
    }
    *ret_key = key;
    return true;
}

struct http_ws *http_ws_accept(struct http_req *req, const char *protocol,
                               const struct http_ws_callbacks *callbacks, void *ctx) {
    const char *key = NULL;
    struct err err;
    struct http_conn *c = req->conn;
    if (!c)
        (void)err_set(&err, ERR_CANCELLED, "the client is gone");
    else if (c->server->leaving)
        (void)err_set(&err, ERR_UNAVAILABLE, "the server is shutting down");
    if (!c || c->server->leaving || !check_handshake(req, &key, &err)) {
        http_respond_err(req, &err);
        return NULL;
    }
    char text[64];
    int n = snprintf(text, sizeof(text), "%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key);
    unsigned char digest[SHA_DIGEST_LENGTH];
    (void)SHA1((const unsigned char *)text, (size_t)n, digest);
    char accept[32];
    (void)EVP_EncodeBlock((unsigned char *)accept, digest, sizeof(digest));
    char head[512];
    n = snprintf(head, sizeof(head),
                 "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                 "Sec-WebSocket-Accept: %s\r\n%s%.64s%s",
                 accept, protocol ? "Sec-WebSocket-Protocol: " : "", protocol ? protocol : "",
                 protocol ? "\r\n" : "");
    uv_buf_t pieces[3] = {uv_buf_init(head, (unsigned)n),
                          uv_buf_init(req->extra.data, (unsigned)req->extra.len),
                          uv_buf_init((char *)"\r\n", 2)};
    req->on_gone = NULL;
    if (!conn_write(c, pieces, 3)) {
        http_respond_empty(req, 499);
        return NULL;
    }
    struct http_ws *ws = xcalloc(1, sizeof(*ws));
    ws->conn = c;
    ws->callbacks = *callbacks;
    ws->user = ctx;
    ws->heard_ms = uv_now(c->server->opt.loop);
    if (wslay_event_context_server_init(&ws->ctx, &wslay_callbacks, ws) != 0)
        abort(); /* out of memory */
    wslay_event_config_set_no_buffering(ws->ctx, 1);
    wslay_event_config_set_max_recv_msg_length(ws->ctx, c->server->opt.limits.ws_message_bytes);
    buf_init(&ws->message, c->server->opt.limits.ws_message_bytes);
    req->status = 101;
    struct http_server *s = c->server;
    s->stats.websockets++;
    s->stats.requests_total++;
    if (s->opt.observer)
        s->opt.observer(req, req->route->pattern, 101, 0, s->opt.ctx);
    c->req = NULL;
    c->ws = ws;
    conn_move(c, CONN_WS);
    c->deadline_ms = 0;
    req_destroy(req);
    /* Frames that came already must not be handled before the caller knows its WebSocket. */
    conn_resume(c);
    return ws;
}

/* Of a whole message, which is written as it is: to go through wslay it would be copied. */
static unsigned websocket_write_head(char head[static HEAD_MAX_BYTES], int opcode, uint64_t len) {
    unsigned more = len < 126 ? 0 : len <= UINT16_MAX ? 2 : 8;
    head[0] = (char)(0x80 | opcode);
    head[1] = (char)(more == 0 ? len : more == 2 ? 126 : 127);
    for (unsigned i = 0; i < more; i++)
        head[2 + i] = (char)(len >> (8 * (more - 1 - i)));
    return 2 + more;
}

static bool ws_send(struct http_ws *ws, uv_buf_t all[static 1 + PIECES_MAX], unsigned n, bool text,
                    json_t *shared) {
    char head[HEAD_MAX_BYTES];
    size_t len = 0;
    for (unsigned i = 1; i <= n; i++)
        len += all[i].len;
    if (!ws->conn || ws->conn->broken)
        return false;
    if (ws->conn->queued + len > LIMIT_WS_QUEUE_BYTES) {
        conn_break(ws->conn);
        return false;
    }
    websocket_flush(ws); /* an answer to a ping, say, or the end */
    if (!ws->conn || ws->conn->broken || !wslay_event_get_write_enabled(ws->ctx))
        return false;
    all[0] = uv_buf_init(
        head, websocket_write_head(head, text ? WSLAY_TEXT_FRAME : WSLAY_BINARY_FRAME, len));
    return conn_write_soon(ws->conn, all, 1 + n, shared);
}

bool http_ws_send(struct http_ws *ws, const char *data, size_t len, bool text) {
    uv_buf_t all[1 + PIECES_MAX] = {[1] = uv_buf_init((char *)(uintptr_t)data, (unsigned)len)};
    return ws_send(ws, all, 1, text, NULL);
}

bool http_ws_send_around(struct http_ws *ws, const char *before, const char *text, size_t len,
                         const char *after) {
    uv_buf_t all[1 + PIECES_MAX] = {
        [1] = uv_buf_init((char *)(uintptr_t)before, (unsigned)strlen(before)),
        [2] = uv_buf_init((char *)(uintptr_t)text, (unsigned)len),
        [3] = uv_buf_init((char *)(uintptr_t)after, (unsigned)strlen(after))};
    return ws_send(ws, all, 3, true, NULL);
}

bool http_ws_send_shared(struct http_ws *ws, const char *before, json_t *text, const char *after) {
    uv_buf_t all[1 + PIECES_MAX] = {
        [1] = uv_buf_init((char *)(uintptr_t)before, (unsigned)strlen(before)),
        [2] = uv_buf_init((char *)(uintptr_t)json_string_value(text),
                          (unsigned)json_string_length(text)),
        [3] = uv_buf_init((char *)(uintptr_t)after, (unsigned)strlen(after))};
    return ws_send(ws, all, 3, true, text);
}

bool ws_is_paused(const struct http_ws *ws) {
    return ws->paused;
}

void http_ws_pause(struct http_ws *ws, bool paused) {
    if (ws->paused == paused)
        return;
    ws->paused = paused;
    if (!ws->conn)
        return;
    ws->heard_ms = uv_now(ws->conn->server->opt.loop); /* nothing was listened to meanwhile */
    if (paused)
        conn_read_stop(ws->conn);
    else
        conn_resume(ws->conn);
}

size_t http_ws_queued(const struct http_ws *ws) {
    return ws->conn ? ws->conn->queued : 0;
}

bool http_ws_want_drain(struct http_ws *ws) {
    if (http_ws_queued(ws) == 0)
        return false;
    ws->conn->drain_wanted = true;
    return true;
}

void http_ws_close(struct http_ws *ws, int code, const char *reason) {
    if (!ws->conn)
        return;
    size_t n = reason ? MIN(strlen(reason), (size_t)120) : 0;
    (void)wslay_event_queue_close(ws->ctx, (uint16_t)code, (const uint8_t *)reason, n);
    ws->conn->deadline_ms = uv_now(ws->conn->server->opt.loop) + 5000;
    websocket_flush(ws);
}
