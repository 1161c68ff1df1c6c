/* Runs model streams from one JSON object on standard input and writes what happens as JSON lines,
 * so that tests in node can drive the real thing. Keys and addresses come from the environment.
 *
 *   {"request": {"model", "system", "messages", "tools", "max_tokens", "temperature", "script"},
 *    "options": {"file", "ca_file", "connect_timeout_ms", "idle_timeout_ms", "total_timeout_ms",
 *                "reply_bytes", "event_bytes", "retries", "retry_base_ms", "retry_wait_ms",
 *                "demo_delay_ms"},
 *    "times": 1,                 streams, one after the other (on one pool of connections)
 *    "gap_ms": 0,                between them
 *    "parallel": 1,              so many at once
 *    "cancel_at": "text_delta",  cancel inside the first event of that name
 *    "cancel_after_ms": 100,
 *    "quiet": false}             no lines but the last: for measurements
 *
 * Exit status 0 if every stream ended or was cancelled. */

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/mem.h"
#include "front/model/model.h"
#include "front/model/script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

struct cli {
    uv_loop_t loop;
    struct models *models;
    struct intake *intake;
    struct secrets secrets;
    json_t *input;
    struct model_request request;
    struct model_info model;
    const char *cancel_at;
    int64_t times;
    int64_t parallel;
    int64_t cancel_after_ms;
    int64_t gap_ms;
    uv_timer_t gap;
    bool quiet;
    int64_t started;
    int64_t ended;
    int64_t failed;
    int64_t pieces;
    int64_t turn_pieces; /* in this turn of the loop */
    int64_t most_pieces; /* in one */
    struct model_meter meter;
};

struct one {
    struct cli *c;
    struct model_stream *stream;
    uv_timer_t timer;
    struct model_usage usage;
    int64_t begun_ns;
    int64_t first_ns;
    bool over;
};

static void start(struct cli *c);

static void print(struct one *o, const char *event, json_t *fields) {
    if (!fields)
        fields = json_object();
    (void)json_object_set_new(fields, "event", json_string(event));
    if (!o->c->quiet) {
        char *line = json_dumps(fields, JSON_COMPACT | JSON_ENCODE_ANY);
        printf("%s\n", line);
        free(line);
    }
    json_decref(fields);
}

static void on_timer_closed(uv_handle_t *h) {
    free(h->data);
}

static void on_gap_over(uv_timer_t *h) {
    start(h->data);
}

static void over(struct one *o) {
    struct cli *c = o->c;
    if (o->over)
        return;
    o->over = true;
    o->stream = NULL;
    c->ended++;
    model_meter_add(&c->meter, &c->request.model->price, &o->usage);
    uv_close((uv_handle_t *)&o->timer, on_timer_closed);
    if (c->started >= c->times)
        return;
    if (c->gap_ms > 0)
        uv_timer_start(&c->gap, on_gap_over, (uint64_t)c->gap_ms, 0);
    else
        start(c);
}

/* True if the stream is gone. */
static bool seen(struct one *o, const char *event) {
    if (!o->first_ns)
        o->first_ns = clock_mono_ns();
    if (!o->c->cancel_at || strcmp(o->c->cancel_at, event) != 0)
        return false;
    o->usage = model_stream_usage(o->stream);
    model_stream_cancel(o->stream);
    print(o, "cancelled", NULL);
    over(o);
    return true;
}

static json_t *text_of(const char *text, size_t len) {
    json_t *j = json_stringn(text, len);
    return json_pack("{s:o}", "text", j ? j : json_string("(not UTF-8)"));
}

static void on_text_start(void *ctx) {
    print(ctx, "text_start", NULL);
    (void)seen(ctx, "text_start");
}

static void on_text_delta(void *ctx, const char *text, size_t len) {
    struct one *o = ctx;
    o->c->pieces++;
    o->c->turn_pieces++;
    if (!o->c->quiet)
        print(o, "text_delta", text_of(text, len));
    (void)seen(o, "text_delta");
}

static void on_text_end(void *ctx) {
    print(ctx, "text_end", NULL);
    (void)seen(ctx, "text_end");
}

static void on_reasoning_start(void *ctx) {
    print(ctx, "reasoning_start", NULL);
    (void)seen(ctx, "reasoning_start");
}

static void on_reasoning_delta(void *ctx, const char *text, size_t len) {
    print(ctx, "reasoning_delta", text_of(text, len));
    (void)seen(ctx, "reasoning_delta");
}

static void on_reasoning_end(void *ctx) {
    print(ctx, "reasoning_end", NULL);
    (void)seen(ctx, "reasoning_end");
}

static void on_tool_start(void *ctx, const char *id, const char *name) {
    print(ctx, "tool_start", json_pack("{s:s, s:s}", "id", id, "name", name));
    (void)seen(ctx, "tool_start");
}

static void on_tool_delta(void *ctx, const char *id, const char *json, size_t len) {
    json_t *fields = text_of(json, len);
    (void)json_object_set_new(fields, "id", json_string(id));
    print(ctx, "tool_delta", fields);
    (void)seen(ctx, "tool_delta");
}

static void on_tool_end(void *ctx, const char *id, const char *name,
                        const struct model_input *input) {
    print(ctx, "tool_end",
          json_pack("{s:s, s:s, s:O?, s:s?}", "id", id, "name", name, "input", input->tree, "error",
                    input->error));
    (void)seen(ctx, "tool_end");
}

static json_t *usage_json(const struct model_usage *u) {
    return json_pack("{s:I, s:I, s:I, s:I, s:b}", "input", (json_int_t)u->input_tokens, "output",
                     (json_int_t)u->output_tokens, "cache_read", (json_int_t)u->cache_read_tokens,
                     "cache_write", (json_int_t)u->cache_write_tokens, "estimated", u->estimated);
}

static void on_usage(void *ctx, const struct model_usage *usage) {
    struct one *o = ctx;
    o->usage = *usage;
    print(o, "usage", usage_json(usage));
    if (o->c->cancel_at && strcmp(o->c->cancel_at, "usage") == 0)
        (void)seen(o, "usage");
}

static void on_retry(void *ctx, unsigned attempt, unsigned wait_ms, const struct err *why) {
    print(ctx, "retry",
          json_pack("{s:i, s:i, s:s, s:s}", "attempt", attempt, "wait_ms", wait_ms, "code",
                    err_name(why->code), "message", why->message));
    struct one *o = ctx;
    if (o->c->cancel_at && strcmp(o->c->cancel_at, "retry") == 0)
        (void)seen(o, "retry");
}

static void on_done(void *ctx, enum model_stop stop, json_t *message) {
    print(ctx, "done", json_pack("{s:s, s:O}", "stop", model_stop_name(stop), "message", message));
    over(ctx);
}

static void on_error(void *ctx, const struct err *err, bool retryable, json_t *partial) {
    struct one *o = ctx;
    o->c->failed++;
    print(ctx, "error",
          json_pack("{s:s, s:s, s:b, s:O?}", "code", err_name(err->code), "message", err->message,
                    "retryable", retryable, "partial", partial));
    over(ctx);
}

static const struct model_callbacks callbacks = {
    on_text_start,    on_text_delta, on_text_end,   on_reasoning_start, on_reasoning_delta,
    on_reasoning_end, on_tool_start, on_tool_delta, on_tool_end,        on_usage,
    on_retry,         on_done,       on_error};

static void on_cancel(uv_timer_t *h) {
    struct one *o = h->data;
    o->usage = model_stream_usage(o->stream);
    model_stream_cancel(o->stream);
    print(o, "cancelled", NULL);
    over(o);
}

static void start(struct cli *c) {
    struct err err;
    struct one *o = xcalloc(1, sizeof(*o));
    o->c = c;
    o->begun_ns = clock_mono_ns();
    (void)uv_timer_init(&c->loop, &o->timer);
    o->timer.data = o;
    c->started++;
    if (model_stream(c->models, &c->request, &callbacks, o, &o->stream, &err) < 0) {
        c->failed++;
        print(o, "refused",
              json_pack("{s:s, s:s}", "code", err_name(err.code), "message", err.message));
        over(o);
        return;
    }
    if (c->cancel_after_ms >= 0)
        uv_timer_start(&o->timer, on_cancel, (uint64_t)c->cancel_after_ms, 0);
}

static int read_options(const json_t *j, struct models_options *o, struct err *err) {
    int64_t v[8] = {0};
    int64_t delay = 0;
    int64_t retries = 0;
    int rc = json_get_str(j, "file", &o->file, err);
    rc = rc ? rc : json_get_str(j, "ca_file", &o->ca_file, err);
    rc = rc ? rc : json_get_int(j, "connect_timeout_ms", 0, 1 << 30, &v[0], err);
    rc = rc ? rc : json_get_int(j, "idle_timeout_ms", 0, 1 << 30, &v[1], err);
    rc = rc ? rc : json_get_int(j, "total_timeout_ms", 0, 1 << 30, &v[2], err);
    rc = rc ? rc : json_get_int(j, "reply_bytes", 0, 1 << 30, &v[3], err);
    rc = rc ? rc : json_get_int(j, "event_bytes", 0, 1 << 30, &v[4], err);
    rc = rc ? rc : json_get_int(j, "retry_base_ms", 0, 1 << 30, &v[5], err);
    rc = rc ? rc : json_get_int(j, "retry_wait_ms", 0, 1 << 30, &v[6], err);
    rc = rc ? rc : json_get_int(j, "retries", -1, 100, &retries, err);
    rc = rc ? rc : json_get_int(j, "demo_delay_ms", -1, 10000, &delay, err);
    o->connect_timeout_ms = (unsigned)v[0];
    o->idle_timeout_ms = (unsigned)v[1];
    o->total_timeout_ms = (unsigned)v[2];
    o->reply_bytes = (size_t)v[3];
    o->event_bytes = (size_t)v[4];
    o->retry_base_ms = (unsigned)v[5];
    o->retry_wait_ms = (unsigned)v[6];
    o->retries = (int)retries;
    o->demo_delay_ms = (int)delay;
    return rc;
}

static int read_request(struct cli *c, struct err *err) {
    const json_t *j = json_object_get(c->input, "request");
    const char *name = NULL;
    const json_t *t = json_object_get(j, "temperature");
    struct model_request *r = &c->request;
    r->messages = json_object_get(j, "messages");
    r->tools = json_object_get(j, "tools");
    r->script = json_object_get(j, "script");
    r->temperature = t ? json_number_value(t) : -1;
    int rc = json_get_str(j, "model", &name, err);
    rc = rc ? rc : json_get_str(j, "system", &r->system, err);
    rc = rc ? rc : json_get_int(j, "max_tokens", 0, 1 << 30, &r->max_tokens, err);
    rc = rc ? rc : r->script ? script_check(r->script, err) : 0;
    r->model = &c->model;
    r->bytes = json_dumpb(r->messages, NULL, 0, JSON_COMPACT);
    return rc ? rc : models_find(c->models, name, &c->model, err);
}

static void on_walk(uv_handle_t *h, void *ctx) {
    (void)ctx;
    if (!uv_is_closing(h))
        fprintf(stderr, "left open: %s\n", uv_handle_type_name(uv_handle_get_type(h)));
}

static int run(struct cli *c, struct err *err) {
    struct models_options o = {.secrets = &c->secrets};
    int rc = read_options(json_object_get(c->input, "options"), &o, err);
    rc = rc ? rc : json_get_str(c->input, "cancel_at", &c->cancel_at, err);
    rc = rc ? rc : json_get_int(c->input, "times", 1, 1000000, &c->times, err);
    rc = rc ? rc : json_get_int(c->input, "parallel", 1, 10000, &c->parallel, err);
    rc = rc ? rc : json_get_int(c->input, "cancel_after_ms", 0, 60000, &c->cancel_after_ms, err);
    rc = rc ? rc : json_get_int(c->input, "gap_ms", 0, 60000, &c->gap_ms, err);
    rc = rc ? rc : json_get_bool(c->input, "quiet", &c->quiet, err);
    o.intake = c->intake = intake_create(&c->loop);
    rc = rc ? rc : models_create(&c->loop, &o, &c->models, err);
    if (rc < 0) {
        intake_destroy(c->intake);
        return rc;
    }
    rc = read_request(c, err);
    (void)uv_timer_init(&c->loop, &c->gap);
    c->gap.data = c;
    c->times = MAX(c->times, c->parallel);
    int64_t begun = clock_mono_ns();
    for (int64_t i = 0; rc == 0 && i < c->parallel; i++)
        start(c);
    while (rc == 0 && c->ended < c->times && uv_run(&c->loop, UV_RUN_ONCE)) {
        c->most_pieces = MAX(c->most_pieces, c->turn_pieces);
        c->turn_pieces = 0;
    }
    int64_t ns = clock_mono_ns() - begun;
    uv_close((uv_handle_t *)&c->gap, NULL);
    models_close(c->models, NULL, NULL);
    intake_destroy(c->intake);
    (void)uv_run(&c->loop, UV_RUN_DEFAULT);
    if (rc < 0)
        return rc;
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    json_t *sum = usage_json(&c->meter.usage);
    (void)json_object_set_new(sum, "event", json_string("end"));
    (void)json_object_set_new(sum, "streams", json_integer(c->ended));
    (void)json_object_set_new(sum, "failed", json_integer(c->failed));
    (void)json_object_set_new(sum, "pieces", json_integer(c->pieces));
    (void)json_object_set_new(sum, "most_pieces", json_integer(c->most_pieces));
    (void)json_object_set_new(sum, "cost_nusd", json_integer(c->meter.cost_nusd));
    (void)json_object_set_new(sum, "wall_us", json_integer(ns / 1000));
    (void)json_object_set_new(sum, "cpu_us",
                              json_integer((u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 +
                                           u.ru_utime.tv_usec + u.ru_stime.tv_usec));
    (void)json_object_set_new(sum, "max_rss_kb", json_integer(u.ru_maxrss));
    char *line = json_dumps(sum, JSON_COMPACT);
    printf("%s\n", line);
    free(line);
    json_decref(sum);
    return c->ended == c->times ? 0 : err_set(err, ERR_INTERNAL, "a stream never ended");
}

static void refuse(const struct err *err) {
    json_t *j = json_pack("{s:s, s:s, s:s}", "event", "refused", "code", err_name(err->code),
                          "message", err->message);
    char *line = json_dumps(j, JSON_COMPACT);
    printf("%s\n", line);
    free(line);
    json_decref(j);
}

int main(void) {
    struct err err;
    struct cli c = {.times = 1, .parallel = 1, .cancel_after_ms = -1};
    struct buf text;
    char chunk[65536];
    ssize_t n;
    buf_init(&text, 64 << 20);
    while ((n = read(STDIN_FILENO, chunk, sizeof(chunk))) > 0)
        (void)buf_add(&text, chunk, (size_t)n);
    setvbuf(stdout, NULL, _IOLBF, 0);
    (void)uv_loop_init(&c.loop);
    int rc = secrets_load(&c.secrets, NULL, &err);
    if (rc == 0)
        rc = json_parse(text.data ? text.data : "", text.len, "standard input", &c.input, &err);
    if (rc == 0)
        rc = run(&c, &err);
    if (rc < 0)
        refuse(&err);
    if (uv_loop_close(&c.loop) < 0) {
        uv_walk(&c.loop, on_walk, NULL);
        rc = -1;
    }
    json_decref(c.input);
    secrets_finish(&c.secrets);
    buf_finish(&text);
    return rc == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
