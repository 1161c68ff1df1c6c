#include "front/cli/socket.h"

#include "base/base64.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/mem.h"
#include "base/rand.h"

#include <curl/curl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <wslay/wslay.h>

/* The connection is libcurl's, so that https works as for every other call; the upgrade is ours and
 * the framing wslay's. */

enum {
    HEAD_MAX_BYTES = 16 << 10,
    MESSAGE_MAX_BYTES = 4 << 20,
    QUEUE_MAX_BYTES = 4 << 20,
    OPEN_TIMEOUT_MS = 10000,
};

struct client_socket {
    CURL *easy;
    wslay_event_context_ptr ws;
    uv_poll_t poll;
    int events;
    struct buf early; /* what came behind the head of the answer */
    struct socket_callbacks callbacks;
    void *ctx;
    bool reading;
    bool closed;
    bool gone; /* the stream itself */
};

static void cli_socket_update(struct client_socket *s);

/* --- bytes --- */

static ssize_t cli_socket_on_recv(wslay_event_context_ptr ws, uint8_t *out, size_t len, int flags,
                                  void *p) {
    struct client_socket *s = p;
    size_t n = 0;
    (void)flags;
    if (!s->reading) { /* the reader has enough for now */
        wslay_event_set_error(ws, WSLAY_ERR_WOULDBLOCK);
        return -1;
    }
    if (s->early.len > 0) {
        n = MIN(len, s->early.len);
        memcpy(out, s->early.data, n);
        buf_consume(&s->early, n);
        return (ssize_t)n;
    }
    CURLcode rc = curl_easy_recv(s->easy, out, len, &n);
    if (rc == CURLE_AGAIN) {
        wslay_event_set_error(ws, WSLAY_ERR_WOULDBLOCK);
        return -1;
    }
    if (rc != CURLE_OK || n == 0) {
        s->gone = true;
        wslay_event_set_error(ws, WSLAY_ERR_CALLBACK_FAILURE);
        return -1;
    }
    return (ssize_t)n;
}

static ssize_t cli_socket_on_send(wslay_event_context_ptr ws, const uint8_t *data, size_t len,
                                  int flags, void *p) {
    struct client_socket *s = p;
    size_t n = 0;
    (void)flags;
    CURLcode rc = curl_easy_send(s->easy, data, len, &n);
    if (rc == CURLE_OK)
        return (ssize_t)n;
    s->gone = rc != CURLE_AGAIN;
    wslay_event_set_error(ws, s->gone ? WSLAY_ERR_CALLBACK_FAILURE : WSLAY_ERR_WOULDBLOCK);
    return -1;
}

static int cli_socket_on_mask(wslay_event_context_ptr ws, uint8_t *out, size_t len, void *p) {
    (void)ws;
    (void)p;
    rand_bytes(out, len);
    return 0;
}

static void cli_socket_on_message(wslay_event_context_ptr ws,
                                  const struct wslay_event_on_msg_recv_arg *arg, void *p) {
    struct client_socket *s = p;
    (void)ws;
    if (!wslay_is_ctrl_frame(arg->opcode) && !s->closed)
        s->callbacks.on_message(s->ctx, arg->opcode == WSLAY_TEXT_FRAME, (const char *)arg->msg,
                                arg->msg_length);
}

/* --- the loop --- */

static void close_it(struct client_socket *s) {
    struct err err;
    if (s->closed)
        return;
    s->closed = true;
    (void)uv_poll_stop(&s->poll);
    unsigned code =
        wslay_event_get_close_received(s->ws) ? wslay_event_get_status_code_received(s->ws) : 0;
    if (code == WSLAY_CODE_NORMAL_CLOSURE || code == WSLAY_CODE_NO_STATUS_RCVD) {
        s->callbacks.on_closed(s->ctx, NULL);
        return;
    }
    if (code)
        (void)err_set(&err, ERR_UPSTREAM, "the server closed the connection (code %u)", code);
    else
        (void)err_set(&err, ERR_UNAVAILABLE, "the connection to the server was lost");
    s->callbacks.on_closed(s->ctx, &err);
}

static void cli_socket_on_poll(uv_poll_t *p, int status, int events) {
    struct client_socket *s = p->data;
    int rc = status < 0 ? -1 : 0;
    if (rc == 0 && (events & UV_READABLE))
        rc = wslay_event_recv(s->ws);
    if (rc == 0 && !s->closed && wslay_event_want_write(s->ws))
        rc = wslay_event_send(s->ws);
    if (rc != 0 || s->gone || (!wslay_event_want_read(s->ws) && !wslay_event_want_write(s->ws)))
        close_it(s);
    else
        cli_socket_update(s);
}

static void cli_socket_update(struct client_socket *s) {
    int events = 0;
    if (s->closed)
        return;
    if (s->reading)
        events |= UV_READABLE;
    if (wslay_event_want_write(s->ws))
        events |= UV_WRITABLE;
    if (events == s->events)
        return;
    s->events = events;
    if (events)
        (void)uv_poll_start(&s->poll, events, cli_socket_on_poll);
    else
        (void)uv_poll_stop(&s->poll);
}

bool socket_send(struct client_socket *s, bool text, const void *data, size_t len) {
    if (s->closed || socket_queued(s) + len > QUEUE_MAX_BYTES)
        return false;
    struct wslay_event_msg m = {
        .opcode = text ? WSLAY_TEXT_FRAME : WSLAY_BINARY_FRAME, .msg = data, .msg_length = len};
    if (wslay_event_queue_msg(s->ws, &m) != 0)
        return false;
    cli_socket_update(s);
    return true;
}

size_t socket_queued(const struct client_socket *s) {
    return wslay_event_get_queued_msg_length(s->ws);
}

void socket_read(struct client_socket *s, bool on) {
    bool again = on && !s->reading && !s->closed;
    s->reading = on;
    cli_socket_update(s);
    /* What was received but not handed on yet is not announced again by the kernel. */
    if (again)
        cli_socket_on_poll(&s->poll, 0, UV_READABLE);
}

/* --- opening --- */

static int cli_socket_wait_ready(struct client_socket *s, short events, struct err *err) {
    curl_socket_t fd = CURL_SOCKET_BAD;
    (void)curl_easy_getinfo(s->easy, CURLINFO_ACTIVESOCKET, &fd);
    struct pollfd p = {.fd = fd, .events = events};
    return poll(&p, 1, OPEN_TIMEOUT_MS) == 1
               ? 0
               : err_set(err, ERR_TIMEOUT, "the server does not answer");
}

static int send_head(struct client_socket *s, const struct client *c, const char *path,
                     const char *key, struct err *err) {
    const char *host = strstr(c->base, "://") + 3;
    _cleanup_(buf) struct buf head;
    buf_init(&head, HEAD_MAX_BYTES);
    (void)buf_addf(&head,
                   "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                   "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n",
                   path, host, key);
    if (c->auth)
        (void)buf_addf(&head, "Authorization: %s\r\n", c->auth);
    (void)buf_add_str(&head, "\r\n");
    int rc = head.full ? err_set(err, ERR_TOO_LARGE, "the request is too long") : 0;
    for (size_t done = 0; rc == 0 && done < head.len;) {
        size_t n = 0;
        CURLcode code = curl_easy_send(s->easy, head.data + done, head.len - done, &n);
        if (code == CURLE_AGAIN)
            rc = cli_socket_wait_ready(s, POLLOUT, err);
        else if (code != CURLE_OK)
            rc = err_set(err, ERR_UNAVAILABLE, "%s", curl_easy_strerror(code));
        done += n;
    }
    if (head.data)
        mem_wipe(head.data, head.len); /* the key was in it */
    return rc;
}

/* A refusal has a body in JSON that says why, which may come in a piece of its own. */
static int cli_socket_read_refusal(const struct buf *answer, const char *end, struct err *err) {
    const char *space = strchr(answer->data, ' ');
    long status = space ? strtol(space, NULL, 10) : 0;
    size_t head = (size_t)(end - answer->data) + 4;
    return client_refusal((int)status, end + 4, answer->len - head, err);
}

static int cli_socket_read_head(struct client_socket *s, struct err *err) {
    const char *end = NULL;
    int rc = 0;
    buf_init(&s->early, HEAD_MAX_BYTES);
    while (rc == 0) {
        char chunk[4096];
        size_t n = 0;
        end = s->early.data ? strstr(s->early.data, "\r\n\r\n") : NULL;
        if (end && strncmp(s->early.data, "HTTP/1.1 101", 12) == 0)
            break;
        CURLcode code = curl_easy_recv(s->easy, chunk, sizeof(chunk), &n);
        if (code == CURLE_AGAIN)
            rc = end ? cli_socket_read_refusal(&s->early, end, err)
                     : cli_socket_wait_ready(s, POLLIN, err);
        else if (code != CURLE_OK || n == 0)
            rc = end ? cli_socket_read_refusal(&s->early, end, err)
                     : err_set(err, ERR_UNAVAILABLE, "the server closed the connection");
        else if (!buf_add(&s->early, chunk, n))
            rc = err_set(err, ERR_PROTOCOL, "the server's answer is no HTTP");
    }
    if (rc < 0)
        return rc;
    buf_consume(&s->early, (size_t)(end - s->early.data) + 4);
    return 0;
}

static int connect_to(struct client_socket *s, const struct client *c, struct err *err) {
    char message[CURL_ERROR_SIZE] = "";
    (void)curl_easy_setopt(s->easy, CURLOPT_URL, c->base);
    if (c->unix_path)
        (void)curl_easy_setopt(s->easy, CURLOPT_UNIX_SOCKET_PATH, c->unix_path);
    (void)curl_easy_setopt(s->easy, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(s->easy, CURLOPT_PROXY, "");
    (void)curl_easy_setopt(s->easy, CURLOPT_NOPROXY, "*");
    (void)curl_easy_setopt(s->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    (void)curl_easy_setopt(s->easy, CURLOPT_CONNECT_ONLY, 1L);
    (void)curl_easy_setopt(s->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)OPEN_TIMEOUT_MS);
    (void)curl_easy_setopt(s->easy, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(s->easy, CURLOPT_ERRORBUFFER, message);
    CURLcode rc = curl_easy_perform(s->easy);
    (void)curl_easy_setopt(s->easy, CURLOPT_ERRORBUFFER, (char *)NULL);
    return rc == CURLE_OK
               ? 0
               : err_set(err, ERR_UNAVAILABLE, "%s: %s (is `cay serve` running there? --url)",
                         c->base, *message ? message : curl_easy_strerror(rc));
}

int socket_open(struct client *c, const char *path, const struct socket_callbacks *callbacks,
                void *ctx, struct client_socket **ret_socket, struct err *err) {
    static const struct wslay_event_callbacks ws = {.recv_callback = cli_socket_on_recv,
                                                    .send_callback = cli_socket_on_send,
                                                    .genmask_callback = cli_socket_on_mask,
                                                    .on_msg_recv_callback = cli_socket_on_message};
    struct client_socket *s = xcalloc(1, sizeof(*s));
    uint8_t nonce[16];
    char key[BASE64_SIZE(sizeof(nonce)) + 1] = "";
    curl_socket_t fd = CURL_SOCKET_BAD;
    rand_bytes(nonce, sizeof(nonce));
    base64_encode(key, nonce, sizeof(nonce));
    s->callbacks = *callbacks;
    s->ctx = ctx;
    s->easy = curl_easy_init();
    int rc = s->easy ? connect_to(s, c, err) : err_set(err, ERR_INTERNAL, "no memory");
    if (rc == 0)
        rc = send_head(s, c, path, key, err);
    if (rc == 0)
        rc = cli_socket_read_head(s, err);
    if (rc == 0 && wslay_event_context_client_init(&s->ws, &ws, s) != 0)
        rc = err_set(err, ERR_INTERNAL, "no memory");
    if (rc < 0) {
        buf_finish(&s->early);
        curl_easy_cleanup(s->easy);
        free(s);
        return rc;
    }
    wslay_event_config_set_max_recv_msg_length(s->ws, MESSAGE_MAX_BYTES);
    (void)curl_easy_getinfo(s->easy, CURLINFO_ACTIVESOCKET, &fd);
    (void)uv_poll_init(&c->loop, &s->poll, fd);
    s->poll.data = s;
    *ret_socket = s;
    socket_read(s, true);
    return 0;
}

static void cli_socket_on_poll_closed(uv_handle_t *h) {
    struct client_socket *s = h->data;
    wslay_event_context_free(s->ws);
    buf_finish(&s->early);
    curl_easy_cleanup(s->easy);
    free(s);
}

void socket_destroy(struct client_socket *s) {
    if (!s)
        return;
    s->closed = true;
    uv_close((uv_handle_t *)&s->poll, cli_socket_on_poll_closed);
}
