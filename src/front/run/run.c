#include "front/run/run.h"
#include "front/common/share.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECORD_MAX_BYTES = 64 << 20, CODE_MAX_BYTES = 256 << 10, MESSAGE_MAX_BYTES = 16 << 10 };

static const char *const level_names[] = {"debug", "log", "info", "warn", "error"};

struct run {
    char id[ID_SIZE];
    struct job *job; /* NULL: nothing is recorded */
    struct run_callbacks cb;
    void *ctx;
    struct guest_call *call;
    char *code;
    json_t *asked;
    struct buf output;
    struct buf logs; /* items of the JSON list */
    struct buf result;
    bool has_result;
    json_t *error;
    struct guest_usage usage;
    struct err failure; /* code 0: none */
};

static void run_destroy(struct run *run) {
    buf_finish(&run->output);
    buf_finish(&run->logs);
    buf_finish(&run->result);
    json_decref(run->error);
    json_decref(run->asked);
    free(run->code);
    free(run);
}

const char *run_id(const struct run *run) {
    return run->id;
}

const char *run_output(const struct run *run, size_t *ret_len) {
    *ret_len = run->output.len;
    return run->output.data ? run->output.data : "";
}

const json_t *run_error(const struct run *run) {
    return run->error;
}

const struct err *run_failure(const struct run *run) {
    return run->failure.code ? &run->failure : NULL;
}

const char *run_result(const struct run *run, size_t *ret_len) {
    *ret_len = run->result.len;
    return run->result.data ? run->result.data : "";
}

static void run_on_log(void *ctx, int level, double time_ms, const char *text, size_t len) {
    struct run *run = ctx;
    const char *name =
        level >= 0 && level < (int)ARRAY_LEN(level_names) ? level_names[level] : "log";
    if (run->logs.len > 0) { /* a first line may be empty */
        (void)buf_add_char(&run->output, '\n');
        (void)buf_add_char(&run->logs, ',');
    }
    (void)buf_add(&run->output, text, len);
    size_t from = run->logs.len;
    struct json_writer w;
    json_writer_init(&w, &run->logs);
    json_writer_object_begin(&w);
    json_put_str(&w, "level", name);
    json_put_int(&w, "time", (int64_t)time_ms);
    json_put_text(&w, "message", text, len);
    json_writer_object_end(&w);
    if (run->logs.full)
        return;
    const char *item = run->logs.data + from;
    if (run->job)
        job_event(run->job, "log", item, run->logs.len - from);
    if (run->cb.on_log)
        run->cb.on_log(run->ctx, name, item, run->logs.len - from);
}

static void run_on_result(void *ctx, const char *json, size_t len) {
    struct run *run = ctx;
    run->has_result = true;
    buf_clear(&run->result);
    (void)buf_add(&run->result, json, len);
}

static json_t *text_field(const json_t *from, const char *key) {
    const json_t *v = json_object_get(from, key);
    if (!json_is_string(v))
        return json_null();
    size_t n = utf8_floor(json_string_value(v), json_string_length(v), MESSAGE_MAX_BYTES);
    return json_stringn(json_string_value(v), n);
}

static json_t *number_field(const json_t *from, const char *key) {
    const json_t *v = json_object_get(from, key);
    return json_is_integer(v) ? json_integer(json_integer_value(v)) : json_null();
}

static void set_error(struct run *run, json_t *error) {
    if (run->error)
        json_decref(error); /* the first one tells why */
    else
        run->error = error;
}

/* Only what we know is taken over, in our shapes: the object is of the program's making. */
static void run_on_error(void *ctx, const json_t *e) {
    json_t *out = json_object();
    static const char *const texts[] = {"name", "message", "stack", "module", "kind", "excerpt"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        if (i < 4 || json_object_get(e, texts[i]))
            (void)json_object_set_new(out, texts[i], text_field(e, texts[i]));
    const json_t *code = json_object_get(e, "code");
    if (code)
        (void)json_object_set_new(
            out, "code", json_is_string(code) ? text_field(e, "code") : number_field(e, "code"));
    (void)json_object_set_new(out, "line", number_field(e, "line"));
    (void)json_object_set_new(out, "column", number_field(e, "column"));
    set_error(ctx, out);
}

/* A limit, a lost isolate, a cancelled run: an error that is not the program's own. */
static void set_host_error(struct run *run, const struct err *err) {
    char *stack =
        xasprintf("%s: %s", err->code == ERR_LIMIT ? "LimitError" : "Error", err->message);
    set_error(run, json_pack("{s:s,s:s,s:s,s:n,s:n,s:n,s:s}", "name",
                             err->code == ERR_LIMIT ? "LimitError" : "Error", "message",
                             err->message, "stack", stack, "module", "line", "column", "kind",
                             err->code == ERR_LIMIT ? "limit" : err_name(err->code)));
    free(stack);
}

static void run_write_usage(struct json_writer *w, const struct guest_usage *u) {
    json_put_object_begin(w, "usage");
    json_put_num(w, "wall_ms", (double)u->wall_us / 1000);
    json_put_num(w, "cpu_ms", (double)u->cpu_us / 1000);
    json_put_int(w, "peak_memory_bytes", (int64_t)u->peak_memory_bytes);
    json_put_int(w, "binding_calls", u->binding_calls);
    json_put_int(w, "output_bytes", (int64_t)u->output_bytes);
    json_put_num(w, "compiled_ms", (double)u->compiled_us / 1000);
    json_put_num(w, "started_ms", (double)u->taken_us / 1000);
    json_writer_object_end(w);
}

/* Of the record: what comes before the code, which only the store gets, and what comes behind. Both
 * are written once, for the store and for the answer. */
static void run_write_head(const struct run *run, struct buf *out, enum job_status status) {
    struct json_writer w;
    json_writer_init(&w, out);
    json_writer_object_begin(&w);
    json_put_str(&w, "id", run->id);
    json_put_str(&w, "status", job_status_name(status));
}

static void write_code(const struct run *run, struct buf *out) {
    struct json_writer w;
    json_writer_init(&w, out);
    w.comma = true;
    if (run->code)
        json_put_str(&w, "code", run->code);
    if (run->asked)
        json_put_tree(&w, "request", run->asked);
}

static void write_rest(const struct run *run, struct buf *out) {
    struct json_writer w;
    json_writer_init(&w, out);
    w.comma = true;
    json_put_text(&w, "output", run->output.data ? run->output.data : "", run->output.len);
    if (run->result.len > 0)
        json_put_raw(&w, "result", run->result.data, run->result.len);
    else
        json_put_null(&w, "result");
    json_put_tree(&w, "error", run->error);
    json_put_array_begin(&w, "logs");
    if (run->logs.len > 0)
        json_writer_raw(&w, run->logs.data, run->logs.len);
    json_writer_array_end(&w);
    run_write_usage(&w, &run->usage);
    json_writer_object_end(&w);
}

/* The answer is the record without the code. */
static void run_record_end(struct run *run, enum job_status status, const struct buf *answer,
                           size_t head_len) {
    if (!run->job)
        return;
    _cleanup_(buf) struct buf detail;
    buf_init(&detail, RECORD_MAX_BYTES);
    (void)buf_add(&detail, answer->data, head_len);
    write_code(run, &detail);
    (void)buf_add(&detail, answer->data + head_len, answer->len - head_len);
    detail.full = detail.full || answer->full;
    struct store_run_end end = {
        .status = status,
        .error_code = run->error ? json_string_value(json_object_get(run->error, "name")) : NULL,
        .error_message =
            run->error ? json_string_value(json_object_get(run->error, "message")) : NULL,
        .detail = detail.full ? NULL : detail.data,
        .detail_len = detail.len,
        .answer = answer->full ? NULL : answer->data,
        .answer_len = answer->len,
        .fault = err_is_fault(run->failure.code) || (run->error && run->usage.lost_binding)};
    if (run->error && !end.error_code)
        end.error_code = "Error";
    /* Ended from outside: the name of such an error in the program's terms says nothing. */
    if (run->failure.code && run->failure.code != ERR_LIMIT)
        end.error_code = err_name(run->failure.code);
    job_end(steal_ptr(&run->job), &end);
}

static void run_on_done(void *ctx, const struct guest_usage *usage, const struct err *err) {
    struct run *run = ctx;
    run->usage = *usage;
    run->call = NULL;
    if (err) {
        run->failure = *err;
        set_host_error(run, err);
    }
    enum job_status status = err && err->code == ERR_CANCELLED ? JOB_CANCELLED
                             : run->error                      ? JOB_FAILED
                                                               : JOB_DONE;
    _cleanup_(buf) struct buf record;
    buf_init(&record, RECORD_MAX_BYTES);
    run_write_head(run, &record, status);
    size_t head_len = record.len;
    write_rest(run, &record);
    run_record_end(run, status, &record, head_len);
    if (run->cb.on_done)
        run->cb.on_done(run->ctx, run, record.data, record.len);
    run_destroy(run);
}

static void run_on_cancel(void *ctx) {
    run_cancel(ctx);
}

static int run_record_begin(struct run *run, struct jobs *jobs, const struct run_request *q,
                            struct err *err) {
    if (!jobs)
        return 0;
    _cleanup_(buf) struct buf detail;
    buf_init(&detail, RECORD_MAX_BYTES);
    struct json_writer w;
    json_writer_init(&w, &detail);
    json_writer_object_begin(&w);
    json_put_str(&w, "code", run->code);
    json_writer_object_end(&w);
    return job_begin(jobs,
                     &(struct job_spec){.id = run->id,
                                        .kind = q->kind,
                                        .owner = q->owner,
                                        .key = q->key,
                                        .title = q->title,
                                        .detail = detail.data,
                                        .inner = q->inner,
                                        .stores_events = q->stores_events,
                                        .cancel = run_on_cancel,
                                        .ctx = run},
                     &run->job, err);
}

static struct run *run_create(struct jobs *jobs, const struct run_request *q, struct err *err) {
    struct run *run = xcalloc(1, sizeof(*run));
    if (q->id)
        (void)snprintf(run->id, sizeof(run->id), "%s", q->id);
    else
        id_new("run", run->id);
    run->cb = q->callbacks;
    run->ctx = q->ctx;
    run->asked = json_incref((json_t *)(uintptr_t)q->asked);
    if (q->code) {
        size_t n = strlen(q->code);
        run->code = xstrndup(q->code, utf8_floor(q->code, n, CODE_MAX_BYTES));
    }
    /* The isolate keeps to output_bytes and adds its note about what it left out. */
    buf_init(&run->output, 3 * (size_t)q->limits.output_bytes + 65536);
    buf_init(&run->logs, RECORD_MAX_BYTES / 2);
    buf_init(&run->result, RECORD_MAX_BYTES / 2);
    if (run_record_begin(run, jobs, q, err) < 0) {
        run_destroy(run);
        return NULL;
    }
    return run;
}

static struct guest_request call_of(struct run *run, const struct run_request *q) {
    return (struct guest_request){.spec = q->spec,
                                  .spec_len = q->spec_len,
                                  .own_spec = q->own_spec,
                                  .wall_ms = q->limits.wall_ms,
                                  .limits = &q->limits,
                                  .callbacks = {.on_log = run_on_log,
                                                .on_result = run_on_result,
                                                .on_error = run_on_error,
                                                .on_done = run_on_done},
                                  .ctx = run};
}

struct run *run_start_warm(struct runner *r, struct jobs *jobs, const struct run_request *q,
                           void (*on_end)(void *ctx), void *end_ctx, struct guest **ret_guest,
                           struct err *err) {
    struct run *run = run_create(jobs, q, err);
    if (!run)
        return NULL;
    struct guest_request call = call_of(run, q);
    struct guest_spec spec = {.source = q->source,
                              .source_len = q->source_len,
                              .source_hash = q->source_hash,
                              .env = q->env,
                              .limits = q->limits,
                              .warm = ret_guest != NULL,
                              .owner = share_name(q->owner, q->key),
                              .domain = q->domain,
                              .label = run->id};
    struct guest *g = guest_start(r, &spec, &call, on_end, end_ctx, &run->call);
    if (ret_guest)
        *ret_guest = g;
    return run;
}

struct run *run_start(struct runner *r, struct jobs *jobs, const struct run_request *q,
                      struct err *err) {
    return run_start_warm(r, jobs, q, NULL, NULL, NULL, err);
}

struct run *run_on_guest(struct guest *g, struct jobs *jobs, const struct run_request *q,
                         struct err *err) {
    struct run *run = run_create(jobs, q, err);
    if (!run)
        return NULL;
    struct guest_request call = call_of(run, q);
    run->call = guest_call(g, &call);
    return run;
}

void run_cancel(struct run *run) {
    if (run->call)
        guest_call_cancel(run->call);
}
