#include "base/base64.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "front/api/api.h"
#include "front/api/sandbox.h"
#include "front/common/intake.h"
#include "front/server/guard.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    CHUNK = 32768,
    INLINE_BYTES = 1 << 20, /* of each stream, in an answer that has all in one */
    WS_HIGH_BYTES = 256 * 1024,
    RESIZE_MAX_BYTES = 1024, /* of the message of a terminal that has another size */
    SHOWN_BYTES = 4 << 20,   /* of a command with the longest words, each byte escaped */
};

/* --- output as events --- */

/* One who follows a command: by events, by one answer at the end, or over a WebSocket. */
struct exec_watch {
    struct exec_follower follower;
    struct exec *exec;
    struct http_req *req; /* or */
    struct http_ws *ws;
    struct front *front;
    struct exec_cursor cursor;
    bool events; /* else: waits for the end */
    bool full;   /* wait for on_drain */
    bool started_told;
};

static void api_execs_free_watch(struct exec_watch *w) {
    exec_unfollow(w->exec, &w->follower);
    exec_unref(w->exec);
    free(w);
}

static bool send_json(struct http_req *req, const char *event, const json_t *j) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, SHOWN_BYTES);
    (void)json_dump(j, &b);
    return http_sse_send(req, event, NULL, b.data, b.len);
}

/* What is no text goes as base 64. */
static bool api_execs_send_chunk(struct http_req *req, const struct exec_chunk *c) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, c->len * 6 + 256);
    struct json_writer j;
    json_writer_init(&j, &b);
    json_writer_object_begin(&j);
    json_writer_key(&j, "offset");
    json_writer_int(&j, (int64_t)c->offset);
    if (c->is_text) {
        json_writer_key(&j, "data");
        json_writer_text(&j, c->data, c->len);
    } else {
        _cleanup_(free) char *text = xmalloc(BASE64_SIZE(c->len));
        base64_encode(text, c->data, c->len);
        json_writer_key(&j, "data_base64");
        json_writer_text(&j, text, BASE64_SIZE(c->len));
    }
    json_writer_object_end(&j);
    return http_sse_send(req, c->stream == EXEC_STDOUT ? "stdout" : "stderr", NULL, b.data, b.len);
}

/* Everything that is there, until the client's pipe is full. The answer to a HEAD has no pipe that
 * fills: nothing is read for it. */
static void send_output(struct exec_watch *w) {
    struct exec_chunk chunk;
    if (!w->started_told) {
        _cleanup_(json) json_t *j = json_pack("{s:s}", "id", w->exec->id);
        w->started_told = true;
        w->full = !send_json(w->req, "started", j);
    }
    while (!w->full && http_stream_has_body(w->req) && exec_next(w->exec, &w->cursor, &chunk))
        w->full = !api_execs_send_chunk(w->req, &chunk);
}

static void pump_events(struct exec_watch *w) {
    send_output(w);
    if (w->full || !exec_has_ended(w->exec))
        return;
    struct http_req *req = w->req;
    _cleanup_(json) json_t *o = exec_show(w->exec);
    http_req_on_gone(req, NULL, NULL);
    http_stream_on_drain(req, NULL, NULL);
    (void)send_json(req, "exit", o);
    http_stream_end(req);
    api_execs_free_watch(w);
}

/* The whole command in one answer. Output of megabytes, each byte of which may be six in JSON, is
 * written by a thread. */
struct exec_answer {
    struct http_req *req;
    struct intake_item *item;
    struct buf out;
    struct json_writer json;
    char *data[3];
    size_t len[3];
};

static void api_execs_free_answer(void *ctx) {
    struct exec_answer *a = ctx;
    for (int i = EXEC_STDOUT; i <= EXEC_STDERR; i++)
        free(a->data[i]);
    buf_finish(&a->out);
    free(a);
}

static void read_stream(struct exec_answer *a, struct exec *e, int stream) {
    size_t len = (size_t)MIN(e->sizes[stream] - e->first[stream], (uint64_t)INLINE_BYTES);
    a->data[stream] = xmalloc(len + 1);
    ssize_t n = exec_read(e, stream, e->first[stream], a->data[stream], len);
    a->len[stream] = n > 0 ? (size_t)n : 0;
}

static void api_execs_write_answer(void *ctx) {
    struct exec_answer *a = ctx;
    for (int i = EXEC_STDOUT; i <= EXEC_STDERR; i++) {
        json_writer_key(&a->json, i == EXEC_STDOUT ? "stdout" : "stderr");
        json_writer_text(&a->json, a->data[i], a->len[i]);
    }
    json_writer_object_end(&a->json);
}

static void api_execs_on_answer_written(void *ctx) {
    struct exec_answer *a = ctx;
    http_respond_buf(a->req, 200, "application/json", &a->out);
    api_execs_free_answer(a);
}

static void api_execs_on_answer_gone(void *ctx) {
    struct exec_answer *a = ctx;
    http_respond_empty(a->req, 499);
    intake_cancel(a->item);
}

static struct exec_answer *begin_answer(struct http_req *req, struct exec *e) {
    struct exec_answer *a = xcalloc(1, sizeof(*a));
    _cleanup_(json) json_t *o = exec_show(e);
    const char *key;
    json_t *v;
    a->req = req;
    if (e->sizes[1] > INLINE_BYTES || e->sizes[2] > INLINE_BYTES)
        (void)json_object_set_new(o, "truncated", json_true());
    buf_init(&a->out, 16 << 20);
    json_writer_init(&a->json, &a->out);
    json_writer_object_begin(&a->json);
    json_object_foreach(o, key, v) {
        json_writer_key(&a->json, key);
        json_writer_tree(&a->json, v);
    }
    read_stream(a, e, EXEC_STDOUT);
    read_stream(a, e, EXEC_STDERR);
    return a;
}

static void api_execs_answer(struct exec_watch *w) {
    struct exec_answer *a = begin_answer(w->req, w->exec);
    size_t bytes = a->len[EXEC_STDOUT] + a->len[EXEC_STDERR];
    struct intake *intake = w->front->intake;
    http_req_on_gone(a->req, NULL, NULL);
    api_execs_free_watch(w);
    if (bytes <= LIMIT_READ_AT_ONCE_BYTES) {
        api_execs_write_answer(a);
        api_execs_on_answer_written(a);
        return;
    }
    http_req_on_gone(a->req, api_execs_on_answer_gone, a);
    a->item = intake_start(intake,
                           &(struct intake_ask){.owner = front_share(a->req),
                                                .bytes = bytes,
                                                .waits = true, /* one for each request */
                                                .work = api_execs_write_answer,
                                                .on_done = api_execs_on_answer_written,
                                                .free = api_execs_free_answer,
                                                .ctx = a},
                           NULL);
}

static void api_execs_on_change(void *ctx) {
    struct exec_watch *w = ctx;
    if (w->events && !w->full)
        pump_events(w);
    else if (!w->events && exec_has_ended(w->exec))
        api_execs_answer(w);
}

static void api_execs_on_drain(void *ctx) {
    struct exec_watch *w = ctx;
    w->full = false;
    api_execs_on_change(w);
}

static void api_execs_on_gone(void *ctx) {
    struct exec_watch *w = ctx;
    if (w->events)
        http_stream_end(w->req);
    else
        http_respond_empty(w->req, 499);
    api_execs_free_watch(w);
}

/* Takes the reference. */
static void watch_start(struct front *f, struct http_req *req, struct exec *e,
                        const uint64_t offsets[3], bool events) {
    struct exec_watch *w = xcalloc(1, sizeof(*w));
    *w = (struct exec_watch){.follower = {.on_change = api_execs_on_change, .ctx = w},
                             .exec = e,
                             .req = req,
                             .front = f,
                             .cursor = {.offsets = {0, offsets[1], offsets[2]}},
                             .events = events};
    exec_follow(e, &w->follower);
    http_req_on_gone(req, api_execs_on_gone, w);
    if (events) {
        http_stream_on_drain(req, api_execs_on_drain, w);
        http_sse_begin(req);
    }
    api_execs_on_change(w);
}

/* --- endpoints --- */

static void api_execs_start(struct http_req *req, void *ctx) {
    struct err err;
    struct sandbox *s = api_sandbox(req, ctx, false);
    if (!s)
        return;
    _cleanup_(json) json_t *body = NULL;
    struct exec_request r = {0};
    struct exec *e = NULL;
    bool events = http_req_accepts(req, "text/event-stream");
    int rc = api_body(req, &body, &err);
    if (rc == 0)
        rc = exec_request_read(body, &r, &err);
    r.brief = !events && !r.background;
    if (rc == 0)
        rc = exec_start(s, &r, &e, &err);
    exec_request_finish(&r);
    if (rc < 0) {
        api_fail(req, &err);
        return;
    }
    exec_prune(s);
    static const uint64_t begin[3];
    if (events || r.background)
        http_hold(req); /* it names the command */
    if (events) {
        watch_start(ctx, req, e, begin, true);
    } else if (r.background) {
        _cleanup_(json) json_t *o = exec_show(e);
        exec_unref(e);
        http_respond_json(req, 202, o);
    } else {
        watch_start(ctx, req, e, begin, false);
    }
}

static json_t *api_execs_show_record(const struct front *f, const struct store_record *r) {
    struct exec *e = NULL;
    struct err err;
    /* A living one knows more than its record, an interrupted one's files too. */
    if (r->ended_ms == 0 || exec_record_state(r) == EXEC_INTERRUPTED) {
        if (exec_open(f->sandboxes, r->parent, r->id, (struct store_scope){.all = true}, &e,
                      &err) == 0) {
            json_t *o = exec_show(e);
            exec_unref(e);
            return o;
        }
    }
    return exec_show_record(r);
}

static void api_execs_list(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    _cleanup_(json) json_t *known = NULL;
    const char *id = http_req_param(req, "id");
    if (sandboxes_show(f->sandboxes, id, front_scope(req), &known, &err) < 0)
        http_respond_err(req, &err);
    else
        api_records(req, f, "exec", "exec", "execs", id, api_execs_show_record);
}

static void api_execs_get(struct http_req *req, void *ctx) {
    struct exec *e = api_exec(req, ctx);
    if (!e)
        return;
    _cleanup_(json) json_t *o = exec_show(e);
    exec_unref(e);
    http_respond_json(req, 200, o);
}

static void api_execs_output(struct http_req *req, void *ctx) {
    struct err err;
    uint64_t offsets[3] = {0};
    struct exec *e = api_exec(req, ctx);
    if (!e)
        return;
    if (api_number(req, "stdout", INT64_MAX, &offsets[1], &err) < 0 ||
        api_number(req, "stderr", INT64_MAX, &offsets[2], &err) < 0) {
        exec_unref(e);
        http_respond_err(req, &err);
        return;
    }
    watch_start(ctx, req, e, offsets, true);
}

/* The bytes so far, with back-pressure. */
struct copy {
    struct exec *exec;
    struct http_req *req;
    int stream;
    uint64_t at, end;
};

static void free_copy(struct copy *c) {
    exec_unref(c->exec);
    free(c);
}

static void api_execs_on_copy_gone(void *ctx) {
    struct copy *c = ctx;
    http_stream_end(c->req);
    free_copy(c);
}

static void copy_on(void *ctx) {
    static char chunk[65536];
    struct copy *c = ctx;
    if (!http_stream_has_body(c->req))
        c->at = c->end;
    while (c->at < c->end) {
        ssize_t n = exec_read(c->exec, c->stream, c->at, chunk,
                              (size_t)MIN((uint64_t)sizeof(chunk), c->end - c->at));
        if (n <= 0)
            break;
        c->at += (uint64_t)n;
        if (!http_stream_write(c->req, chunk, (size_t)n) && c->at < c->end)
            return; /* goes on in on_drain, unless the client is gone */
    }
    http_req_on_gone(c->req, NULL, NULL);
    http_stream_on_drain(c->req, NULL, NULL);
    if (c->at < c->end)
        http_stream_break(c->req);
    else
        http_stream_end(c->req);
    free_copy(c);
}

static void api_execs_raw(struct http_req *req, struct front *f, int stream) {
    struct err err;
    uint64_t offset = 0;
    struct exec *e = api_exec(req, f);
    if (!e)
        return;
    if (api_number(req, "offset", INT64_MAX, &offset, &err) < 0) {
        exec_unref(e);
        http_respond_err(req, &err);
        return;
    }
    struct copy *c = xcalloc(1, sizeof(*c));
    *c = (struct copy){.exec = e,
                       .req = req,
                       .stream = stream,
                       .at = MAX(offset, e->first[stream]),
                       .end = e->sizes[stream]};
    http_req_on_gone(req, api_execs_on_copy_gone, c);
    http_stream_on_drain(req, copy_on, c);
    http_res_header(req, "Cache-Control", "no-store");
    http_stream_begin(req, 200, "application/octet-stream");
    copy_on(c);
}

static void raw_stdout(struct http_req *req, void *ctx) {
    api_execs_raw(req, ctx, EXEC_STDOUT);
}

static void raw_stderr(struct http_req *req, void *ctx) {
    api_execs_raw(req, ctx, EXEC_STDERR);
}

/* A command that runs, in a sandbox that can answer; else the request is answered. */
static struct exec *running_exec(struct http_req *req, struct front *f) {
    struct err err;
    struct exec *e = api_exec(req, f);
    if (!e)
        return NULL;
    if (exec_check_running(e, &err) == 0)
        return e;
    exec_unref(e);
    http_respond_err(req, &err);
    return NULL;
}

/* --- input --- */

struct input {
    struct exec_input *input;
    struct http_req *req;
    bool eof;
};

static void api_execs_on_room(void *ctx) {
    struct input *i = ctx;
    http_req_body_resume(i->req);
}

static void api_execs_on_input_failed(void *ctx, const struct err *err) {
    struct input *i = ctx;
    http_req_on_gone(i->req, NULL, NULL);
    http_req_on_body(i->req, NULL, NULL, NULL);
    http_respond_err(i->req, err);
    free(i);
}

static void api_execs_on_input_data(void *ctx, const char *data, size_t len) {
    struct input *i = ctx;
    if (!exec_input_write(i->input, data, len))
        http_req_body_pause(i->req);
}

static void api_execs_on_input_end(void *ctx) {
    struct input *i = ctx;
    if (!exec_input_is_open(i->input))
        return; /* on_input_failed answers */
    exec_input_close(i->input, i->eof);
    http_req_on_gone(i->req, NULL, NULL);
    http_respond_empty(i->req, 204);
    free(i);
}

static void api_execs_on_input_gone(void *ctx) {
    struct input *i = ctx;
    exec_input_close(i->input, false);
    http_respond_empty(i->req, 499);
    free(i);
}

static void stdin_(struct http_req *req, void *ctx) {
    static const struct exec_input_callbacks callbacks = {api_execs_on_room,
                                                          api_execs_on_input_failed};
    struct err err;
    struct exec *e = api_exec(req, ctx);
    if (!e)
        return;
    struct input *i = xcalloc(1, sizeof(*i));
    *i = (struct input){.req = req, .eof = api_flag(req, "eof")};
    int rc = exec_input_open(e, &callbacks, i, &i->input, &err);
    exec_unref(e);
    if (rc < 0) {
        free(i);
        http_respond_err(req, &err);
        return;
    }
    http_req_on_gone(req, api_execs_on_input_gone, i);
    http_req_on_body(req, api_execs_on_input_data, api_execs_on_input_end, i);
}

/* --- signals, size --- */

static int api_execs_signal_number(const json_t *v, int *ret, struct err *err) {
    static const struct {
        const char *name;
        int number;
    } names[] = {{"HUP", SIGHUP},   {"INT", SIGINT},   {"QUIT", SIGQUIT},   {"KILL", SIGKILL},
                 {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"TERM", SIGTERM},   {"CONT", SIGCONT},
                 {"STOP", SIGSTOP}, {"TSTP", SIGTSTP}, {"WINCH", SIGWINCH}, {"ALRM", SIGALRM},
                 {"PIPE", SIGPIPE}, {"ABRT", SIGABRT}};
    const char *text = json_string_value(v);
    if (json_is_integer(v) && json_integer_value(v) >= 1 && json_integer_value(v) <= 64) {
        *ret = (int)json_integer_value(v);
        return 0;
    }
    if (text && strncasecmp(text, "SIG", 3) == 0)
        text += 3;
    for (size_t i = 0; text && i < ARRAY_LEN(names); i++)
        if (strcasecmp(text, names[i].name) == 0) {
            *ret = names[i].number;
            return 0;
        }
    return err_set(err, ERR_BAD_REQUEST, "\"signal\" is a name such as \"INT\", or 1 to 64");
}

static void api_execs_on_signalled(struct ask *a, struct sandbox_reply *reply) {
    (void)reply;
    http_respond_empty(a->req, 204);
}

static void signal_(struct http_req *req, void *ctx) {
    static const char *const keys[] = {"signal", "group", NULL};
    struct err err;
    struct exec *e = running_exec(req, ctx);
    if (!e)
        return;
    _cleanup_(json) json_t *body = NULL;
    int number = 0;
    bool group = true;
    int rc = api_body(req, &body, &err);
    if (rc == 0)
        rc = json_check_keys(body, "the request", keys, &err);
    if (rc == 0)
        rc = api_execs_signal_number(json_object_get(body, "signal"), &number, &err);
    if (rc == 0)
        rc = json_get_bool(body, "group", &group, &err);
    if (rc < 0) {
        http_respond_err(req, &err);
    } else {
        struct ask *a = ask_new(ctx, req, api_execs_on_signalled);
        ask_wait(a, sandbox_box_signal(e->sandbox->box, e->command, number, group, ask_replied, a));
    }
    exec_unref(e);
}

static int read_size(const json_t *j, int64_t *cols, int64_t *rows, struct err *err) {
    *cols = *rows = 0;
    int rc = json_get_int(j, "cols", 1, 1000, cols, err);
    if (rc == 0)
        rc = json_get_int(j, "rows", 1, 1000, rows, err);
    if (rc == 0 && (!*cols || !*rows))
        rc = err_set(err, ERR_BAD_REQUEST, "\"cols\" and \"rows\" are needed");
    return rc;
}

static void api_execs_resize(struct http_req *req, void *ctx) {
    static const char *const keys[] = {"cols", "rows", NULL};
    struct err err;
    struct exec *e = running_exec(req, ctx);
    if (!e)
        return;
    _cleanup_(json) json_t *body = NULL;
    int64_t cols = 0;
    int64_t rows = 0;
    int rc = api_body(req, &body, &err);
    if (rc == 0)
        rc = json_check_keys(body, "the request", keys, &err);
    if (rc == 0)
        rc = read_size(body, &cols, &rows, &err);
    if (rc == 0 && !sandbox_command_resize(e->command, (uint32_t)cols, (uint32_t)rows))
        rc =
            err_set(&err, ERR_CONFLICT, "the command has no terminal: start it with \"tty\": true");
    exec_unref(e);
    if (rc < 0)
        http_respond_err(req, &err);
    else
        http_respond_empty(req, 204);
}

/* --- a terminal over a WebSocket --- */

static void tty_pump(void *ctx) {
    static char chunk[CHUNK];
    struct exec_watch *w = ctx;
    while (w->ws && http_ws_queued(w->ws) < WS_HIGH_BYTES) {
        w->cursor.offsets[1] = MAX(w->cursor.offsets[1], w->exec->first[1]);
        ssize_t n = exec_read(w->exec, EXEC_STDOUT, w->cursor.offsets[1], chunk, sizeof(chunk));
        if (n <= 0)
            break;
        w->cursor.offsets[1] += (uint64_t)n;
        if (!http_ws_send(w->ws, chunk, (size_t)n, false))
            return; /* on_close comes, or came */
    }
    if (!w->ws || !exec_has_ended(w->exec) || w->started_told ||
        w->cursor.offsets[1] < w->exec->sizes[1])
        return;
    w->started_told = true;
    json_t *o = exec_show(w->exec);
    (void)json_object_set_new(o, "type", json_string("exit"));
    _cleanup_(buf) struct buf b;
    buf_init(&b, SHOWN_BYTES);
    (void)json_dump(o, &b);
    json_decref(o);
    if (http_ws_send(w->ws, b.data, b.len, true) && w->ws)
        http_ws_close(w->ws, 1000, "the command has ended");
}

static void api_execs_on_tty_message(void *ctx, struct http_ws *ws, const char *data, size_t len,
                                     bool text) {
    struct exec_watch *w = ctx;
    struct err err;
    if (!w->exec->command)
        return;
    if (!text) {
        if (!sandbox_command_write(w->exec->command, data, len))
            http_ws_close(ws, 1008, "the terminal does not read its input");
        return;
    }
    int64_t cols;
    int64_t rows;
    _cleanup_(json) json_t *j = NULL;
    const char *type = NULL;
    if (len <= RESIZE_MAX_BYTES && json_parse(data, len, "the message", &j, &err) == 0)
        type = json_string_value(json_object_get(j, "type"));
    if (!type || strcmp(type, "resize") != 0 || read_size(j, &cols, &rows, &err) < 0)
        http_ws_close(ws, 1003, "text is {\"type\":\"resize\",\"cols\",\"rows\"}; keys are binary");
    else
        (void)sandbox_command_resize(w->exec->command, (uint32_t)cols, (uint32_t)rows);
}

static void api_execs_on_tty_close(void *ctx, struct http_ws *ws, int code) {
    struct exec_watch *w = ctx;
    (void)ws;
    (void)code;
    w->ws = NULL;
    api_execs_free_watch(w);
}

static void api_execs_on_tty_drain(void *ctx, struct http_ws *ws) {
    (void)ws;
    tty_pump(ctx);
}

static void api_execs_tty(struct http_req *req, void *ctx) {
    static const struct http_ws_callbacks callbacks = {
        api_execs_on_tty_message, api_execs_on_tty_close, api_execs_on_tty_drain};
    struct err err;
    uint64_t offset = 0;
    struct exec *e = api_exec(req, ctx);
    if (!e)
        return;
    int rc = api_number(req, "offset", INT64_MAX, &offset, &err);
    if (rc >= 0 && !json_is_true(json_object_get(e->doc, "tty")))
        rc =
            err_set(&err, ERR_CONFLICT, "the command has no terminal: start it with \"tty\": true");
    if (rc < 0) {
        exec_unref(e);
        http_respond_err(req, &err);
        return;
    }
    struct exec_watch *w = xcalloc(1, sizeof(*w));
    *w =
        (struct exec_watch){.follower = {.on_change = tty_pump, .ctx = w}, .exec = e, .front = ctx};
    w->cursor.offsets[1] = offset;
    w->ws = http_ws_accept(req, NULL, &callbacks, w);
    if (!w->ws) {
        exec_unref(e);
        free(w);
        return;
    }
    exec_follow(e, &w->follower);
    tty_pump(w);
}

void api_execs_routes(struct front *f) {
#define EXECS "/v1/sandboxes/{id}/execs"
    const struct http_route routes[] = {
        {"POST", "/v1/sandboxes/{id}/exec", api_execs_start, f, HTTP_ROUTE_DIRECT, 0},
        {"GET", EXECS, api_execs_list, f, FRONT_ROUTE_READ, 0},
        {"GET", EXECS "/{exec}", api_execs_get, f, FRONT_ROUTE_READ, 0},
        {"GET", EXECS "/{exec}/output", api_execs_output, f, FRONT_ROUTE_READ | HTTP_ROUTE_WATCH,
         0},
        {"GET", EXECS "/{exec}/stdout", raw_stdout, f, FRONT_ROUTE_READ, 0},
        {"GET", EXECS "/{exec}/stderr", raw_stderr, f, FRONT_ROUTE_READ, 0},
        {"POST", EXECS "/{exec}/stdin", stdin_, f, HTTP_ROUTE_STREAM | FRONT_ROUTE_LATE,
         (size_t)f->config->sandboxes.upload_mb << 20},
        {"POST", EXECS "/{exec}/signal", signal_, f, FRONT_ROUTE_LATE, 0},
        {"POST", EXECS "/{exec}/resize", api_execs_resize, f, FRONT_ROUTE_LATE, 0},
        {"GET", EXECS "/{exec}/tty", api_execs_tty, f, 0, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(routes); i++)
        http_server_route(f->http, &routes[i]);
}
