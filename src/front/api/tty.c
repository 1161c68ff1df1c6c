#include "base/cleanup.h"
#include "base/json_table.h"
#include "base/mem.h"
#include "front/api/api.h"
#include "front/api/sandbox.h"

#include <stdlib.h>
#include <string.h>

/* The terminal of a command in a sandbox: its size, and the WebSocket that a terminal on the other
 * side is joined to. Bytes are binary messages, a new size is a text message. */

enum {
    CHUNK_BYTES = 32768,
    WS_HIGH_BYTES = 256 * 1024,
    RESIZE_MAX_BYTES = 1024, /* of the message of a terminal that has another size */
};

static const char no_terminal[] = "the command has no terminal: start it with \"tty\": true";

/* --- size --- */

struct tty_size {
    int64_t cols, rows;
};

/* what: as of json_table_read(). */
static int tty_read_size(const json_t *j, const char *what, struct tty_size *ret, struct err *err) {
    static const struct json_field table[] = {
        JSON_INT("cols", struct tty_size, cols, 1, 1000),
        JSON_INT("rows", struct tty_size, rows, 1, 1000),
    };
    struct tty_size size = {0};
    int rc = json_table_read(table, ARRAY_LEN(table), j, what, &size, err);
    if (rc == 0 && (!size.cols || !size.rows))
        rc = err_set(err, ERR_BAD_REQUEST, "\"cols\" and \"rows\" are needed");
    if (rc == 0)
        *ret = size;
    return rc;
}

static bool tty_resize(struct exec *e, const struct tty_size *size) {
    return sandbox_command_resize(e->command, (uint32_t)size->cols, (uint32_t)size->rows);
}

static void tty_post_size(struct http_req *req, void *ctx) {
    struct err err;
    struct exec *e = api_running_exec(req, ctx);
    if (!e)
        return;
    _cleanup_(json) json_t *body = NULL;
    struct tty_size size = {0};
    int rc = api_body(req, &body, &err);
    if (rc == 0)
        rc = tty_read_size(body, "the request", &size, &err);
    if (rc == 0 && !tty_resize(e, &size))
        rc = err_set(&err, ERR_CONFLICT, "%s", no_terminal);
    exec_unref(e);
    if (rc < 0)
        http_respond_err(req, &err);
    else
        http_respond_empty(req, 204);
}

/* --- the WebSocket --- */

struct tty {
    struct exec_follower follower;
    struct exec *exec;
    struct http_ws *ws; /* NULL: it is closed */
    uint64_t offset;    /* of what was sent */
    bool ended;         /* and the end too */
};

static void tty_free(struct tty *t) {
    exec_unfollow(t->exec, &t->follower);
    exec_unref(t->exec);
    free(t);
}

static void tty_send_exit(struct tty *t) {
    _cleanup_(json) json_t *o = exec_show(t->exec);
    _cleanup_(buf) struct buf b;
    t->ended = true;
    (void)json_object_set_new(o, "type", json_string("exit"));
    buf_init(&b, API_EXEC_BYTES);
    (void)json_dump(o, &b);
    if (http_ws_send(t->ws, b.data, b.len, true) && t->ws)
        http_ws_close(t->ws, 1000, "the command has ended");
}

static void tty_pump(void *ctx) {
    static char chunk[CHUNK_BYTES];
    struct tty *t = ctx;
    while (t->ws && http_ws_queued(t->ws) < WS_HIGH_BYTES) {
        t->offset = MAX(t->offset, t->exec->first[EXEC_STDOUT]);
        ssize_t n = exec_read(t->exec, EXEC_STDOUT, t->offset, chunk, sizeof(chunk));
        if (n <= 0)
            break;
        t->offset += (uint64_t)n;
        if (!http_ws_send(t->ws, chunk, (size_t)n, false))
            return; /* on_close comes, or came */
    }
    if (t->ws && !t->ended && exec_has_ended(t->exec) && t->offset >= t->exec->sizes[EXEC_STDOUT])
        tty_send_exit(t);
}

static void tty_on_message(void *ctx, struct http_ws *ws, const char *data, size_t len, bool text) {
    struct tty *t = ctx;
    struct err err;
    if (!t->exec->command)
        return;
    if (!text) {
        if (!sandbox_command_write(t->exec->command, data, len))
            http_ws_close(ws, 1008, "the terminal does not read its input");
        return;
    }
    struct tty_size size = {0};
    _cleanup_(json) json_t *j = NULL;
    const char *type = NULL;
    if (len <= RESIZE_MAX_BYTES && json_parse(data, len, "the message", &j, &err) == 0)
        type = json_string_value(json_object_get(j, "type"));
    if (!type || strcmp(type, "resize") != 0 || tty_read_size(j, NULL, &size, &err) < 0)
        http_ws_close(ws, 1003, "text is {\"type\":\"resize\",\"cols\",\"rows\"}; keys are binary");
    else
        (void)tty_resize(t->exec, &size);
}

static void tty_on_close(void *ctx, struct http_ws *ws, int code) {
    struct tty *t = ctx;
    (void)ws;
    (void)code;
    t->ws = NULL;
    tty_free(t);
}

static void tty_on_drain(void *ctx, struct http_ws *ws) {
    (void)ws;
    tty_pump(ctx);
}

static void tty_open(struct http_req *req, void *ctx) {
    static const struct http_ws_callbacks callbacks = {tty_on_message, tty_on_close, tty_on_drain};
    struct err err;
    uint64_t offset = 0;
    struct exec *e = api_exec(req, ctx);
    if (!e)
        return;
    int rc = api_number(req, "offset", INT64_MAX, &offset, &err);
    if (rc >= 0 && !json_is_true(json_object_get(e->doc, "tty")))
        rc = err_set(&err, ERR_CONFLICT, "%s", no_terminal);
    if (rc < 0) {
        exec_unref(e);
        http_respond_err(req, &err);
        return;
    }
    struct tty *t = xcalloc(1, sizeof(*t));
    *t = (struct tty){.follower = {.on_change = tty_pump, .ctx = t}, .exec = e, .offset = offset};
    t->ws = http_ws_accept(req, NULL, &callbacks, t);
    if (!t->ws) {
        exec_unref(e);
        free(t);
        return;
    }
    exec_follow(e, &t->follower);
    tty_pump(t);
}

void api_tty_routes(struct front *f) {
#define EXEC "/v1/sandboxes/{id}/execs/{exec}"
    const struct http_route routes[] = {
        {"POST", EXEC "/resize", tty_post_size, f, FRONT_ROUTE_LATE, 0},
        {"GET", EXEC "/tty", tty_open, f, 0, 0},
    };
    http_server_routes(f->http, routes, ARRAY_LEN(routes));
}
