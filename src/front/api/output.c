#include "base/base64.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/mem.h"
#include "front/api/api.h"
#include "front/api/sandbox.h"
#include "front/common/intake.h"
#include "front/http/follower.h"

#include <stdlib.h>

/* What a command in a sandbox writes: as events, as one answer when it has ended, or as the bytes
 * of one stream so far. Everything is read from the command's files, so a slow client changes
 * nothing for the command. */

enum {
    INLINE_BYTES = 1 << 20, /* of each stream, in an answer that has all in one */
    RAW_BYTES = 65536,      /* at a time */
};

struct exec_output {
    struct http_follower out;
    struct exec_follower follower;
    struct exec *exec;
    struct front *front;
    struct exec_cursor cursor;
    bool started_told;
};

static void output_free(void *ctx) {
    struct exec_output *o = ctx;
    exec_unfollow(o->exec, &o->follower);
    exec_unref(o->exec);
    free(o);
}

static void output_send_json(struct exec_output *o, const char *event, const json_t *j) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, API_EXEC_BYTES);
    (void)json_dump(j, &b);
    (void)http_follower_send(&o->out, event, NULL, b.data, b.len);
}

/* What is no text goes as base 64. */
static void output_send_chunk(struct exec_output *o, const struct exec_chunk *c) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, c->len * 6 + 256);
    struct json_writer j;
    json_writer_init(&j, &b);
    json_writer_object_begin(&j);
    json_put_int(&j, "offset", (int64_t)c->offset);
    if (c->is_text) {
        json_put_text(&j, "data", c->data, c->len);
    } else {
        _cleanup_(free) char *text = xmalloc(BASE64_SIZE(c->len));
        base64_encode(text, c->data, c->len);
        json_put_text(&j, "data_base64", text, BASE64_SIZE(c->len));
    }
    json_writer_object_end(&j);
    (void)http_follower_send(&o->out, c->stream == EXEC_STDOUT ? "stdout" : "stderr", NULL, b.data,
                             b.len);
}

static enum http_next output_next_event(void *ctx) {
    struct exec_output *o = ctx;
    struct exec_chunk chunk;
    if (!o->started_told) {
        _cleanup_(json) json_t *j = json_pack("{s:s}", "id", o->exec->id);
        o->started_told = true;
        output_send_json(o, "started", j);
    } else if (exec_next(o->exec, &o->cursor, &chunk)) {
        output_send_chunk(o, &chunk);
    } else {
        return exec_has_ended(o->exec) ? HTTP_NEXT_END : HTTP_NEXT_WAIT;
    }
    return HTTP_NEXT_MORE;
}

static void output_send_exit(void *ctx) {
    struct exec_output *o = ctx;
    _cleanup_(json) json_t *j = exec_show(o->exec);
    output_send_json(o, "exit", j);
}

/* --- the whole command in one answer --- */

/* Output of megabytes, each byte of which may be six in JSON, is written by a thread. */
struct exec_answer {
    struct http_req *req;
    struct intake_item *item;
    struct buf out;
    struct json_writer json;
    char *data[3];
    size_t len[3];
};

static void output_free_answer(void *ctx) {
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

static void output_write_answer(void *ctx) {
    struct exec_answer *a = ctx;
    json_put_text(&a->json, "stdout", a->data[EXEC_STDOUT], a->len[EXEC_STDOUT]);
    json_put_text(&a->json, "stderr", a->data[EXEC_STDERR], a->len[EXEC_STDERR]);
    json_writer_object_end(&a->json);
}

static void output_on_answer_written(void *ctx) {
    struct exec_answer *a = ctx;
    http_respond_buf(a->req, 200, "application/json", &a->out);
    output_free_answer(a);
}

static void output_on_answer_gone(void *ctx) {
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
        json_put_tree(&a->json, key, v);
    }
    read_stream(a, e, EXEC_STDOUT);
    read_stream(a, e, EXEC_STDERR);
    return a;
}

static enum http_next output_next_answer(void *ctx) {
    const struct exec_output *o = ctx;
    return exec_has_ended(o->exec) ? HTTP_NEXT_END : HTTP_NEXT_WAIT;
}

static void output_respond(void *ctx) {
    struct exec_output *o = ctx;
    struct exec_answer *a = begin_answer(o->out.req, o->exec);
    size_t bytes = a->len[EXEC_STDOUT] + a->len[EXEC_STDERR];
    if (bytes <= LIMIT_READ_AT_ONCE_BYTES) {
        output_write_answer(a);
        output_on_answer_written(a);
        return;
    }
    http_req_on_gone(a->req, output_on_answer_gone, a);
    a->item = intake_start(o->front->intake,
                           &(struct intake_ask){.owner = front_share(a->req),
                                                .bytes = bytes,
                                                .waits = true, /* one for each request */
                                                .work = output_write_answer,
                                                .on_done = output_on_answer_written,
                                                .free = output_free_answer,
                                                .ctx = a},
                           NULL);
}

/* --- the bytes so far --- */

struct raw_output {
    struct http_follower out;
    struct exec *exec;
    int stream;
    uint64_t at, end;
};

static void output_free_raw(void *ctx) {
    struct raw_output *r = ctx;
    exec_unref(r->exec);
    free(r);
}

static enum http_next output_next_raw(void *ctx) {
    static char chunk[RAW_BYTES];
    struct raw_output *r = ctx;
    if (r->at == r->end)
        return HTTP_NEXT_END;
    ssize_t n = exec_read(r->exec, r->stream, r->at, chunk,
                          (size_t)MIN((uint64_t)sizeof(chunk), r->end - r->at));
    if (n <= 0)
        return HTTP_NEXT_BREAK;
    r->at += (uint64_t)n;
    (void)http_follower_write(&r->out, chunk, (size_t)n);
    return HTTP_NEXT_MORE;
}

static void output_get_raw(struct http_req *req, struct front *f, int stream) {
    static const struct http_follower_type type = {.next = output_next_raw,
                                                   .free = output_free_raw};
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
    struct raw_output *r = xcalloc(1, sizeof(*r));
    *r = (struct raw_output){.exec = e, .stream = stream, .end = e->sizes[stream]};
    r->at = MIN(MAX(offset, e->first[stream]), r->end);
    http_follower_init(&r->out, req, &type, r);
    http_res_header(req, "Cache-Control", "no-store");
    http_follower_begin(&r->out, "application/octet-stream");
    http_follower_more(&r->out);
}

/* --- endpoints --- */

void api_output(struct front *f, struct http_req *req, struct exec *e, const uint64_t offsets[3],
                bool events) {
    static const struct http_follower_type as_events = {
        .next = output_next_event, .end = output_send_exit, .free = output_free};
    static const struct http_follower_type as_answer = {
        .next = output_next_answer, .end = output_respond, .free = output_free};
    struct exec_output *o = xcalloc(1, sizeof(*o));
    *o = (struct exec_output){.follower = {.on_change = http_follower_more, .ctx = &o->out},
                              .exec = e,
                              .front = f,
                              .cursor = {.offsets = {0, offsets[1], offsets[2]}}};
    exec_follow(e, &o->follower);
    http_follower_init(&o->out, req, events ? &as_events : &as_answer, o);
    if (events)
        http_follower_begin(&o->out, NULL);
    http_follower_more(&o->out);
}

static void output_get(struct http_req *req, void *ctx) {
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
    api_output(ctx, req, e, offsets, true);
}

static void output_get_stdout(struct http_req *req, void *ctx) {
    output_get_raw(req, ctx, EXEC_STDOUT);
}

static void output_get_stderr(struct http_req *req, void *ctx) {
    output_get_raw(req, ctx, EXEC_STDERR);
}

void api_output_routes(struct front *f) {
#define EXEC "/v1/sandboxes/{id}/execs/{exec}"
    const struct http_route routes[] = {
        {"GET", EXEC "/output", output_get, f, FRONT_ROUTE_READ | HTTP_ROUTE_WATCH, 0},
        {"GET", EXEC "/stdout", output_get_stdout, f, FRONT_ROUTE_READ, 0},
        {"GET", EXEC "/stderr", output_get_stderr, f, FRONT_ROUTE_READ, 0},
    };
    http_server_routes(f->http, routes, ARRAY_LEN(routes));
}
