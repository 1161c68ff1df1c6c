#include "base/cleanup.h"
#include "base/mem.h"
#include "front/code/task.h"

#include <stdlib.h>
#include <string.h>

/* What POST /execute answers when its job has ended, and so what is the result of a task of that
 * type. */

enum { LOG_BYTES = 1 << 20, LOG_MORE = 256 << 10 };

static void code_answer_on_logged(void *ctx, const struct store_event *e) {
    struct buf *log = ctx;
    _cleanup_(json) json_t *event = log->len < LOG_BYTES ? json_read_str(e->json) : NULL;
    if (event)
        code_task_log(log, e->type, event);
}

static int write_logs(const struct job_asked *ask, const json_t *detail, struct json_writer *w,
                      struct err *err) {
    const char *note = json_string_value(json_object_get(detail, "diff_note"));
    _cleanup_(buf) struct buf log;
    buf_init(&log, LOG_BYTES + LOG_MORE);
    int rc =
        store_event_list(ask->store, ask->id, 0, ask->events, code_answer_on_logged, &log, err);
    if (log.len >= LOG_BYTES)
        (void)buf_addf(&log, "[the log is longer than %d bytes: /v1/runs/%s has the rest]\n",
                       LOG_BYTES, ask->id);
    if (note)
        (void)buf_addf(&log, "[%s]\n", note);
    json_put_text(w, "logs", log.data ? log.data : "", log.len);
    return rc;
}

static void code_answer_write_text(struct json_writer *w, const json_t *from, const char *key,
                                   const char *as) {
    const json_t *v = json_object_get(from, key);
    if (!json_is_string(v))
        return;
    json_put_text(w, as, json_string_value(v), json_string_length(v));
}

static int code_answer_write_task(const struct job_asked *ask, const struct store_run *r,
                                  const json_t *detail, struct buf *out, struct err *err) {
    bool success = r->status == JOB_DONE;
    const char *code = r->error_code ? r->error_code : job_status_name(r->status);
    char uuid[UUID_SIZE];
    struct json_writer w;
    int rc = 0;
    json_writer_init(&w, out);
    json_writer_object_begin(&w);
    job_answer_head(&w, success, id_to_uuid(r->id, uuid), r->created_ms);
    if (!ask->short_)
        rc = write_logs(ask, detail, &w, err);
    code_answer_write_text(&w, detail, "diff", "diff");
    if (json_object_get(detail, "diff"))
        json_put_bool(&w, "diff_is_whole", json_is_true(json_object_get(detail, "diff_is_whole")));
    code_answer_write_text(&w, detail, "diff_note", "diff_note");
    json_put_object_begin(&w, "metadata");
    json_put_int(&w, "execution_time_ms", r->finished_ms - r->created_ms);
    code_answer_write_text(&w, detail, "sandbox", "sandbox_id");
    code_answer_write_text(&w, detail, "repo", "repo");
    json_writer_object_end(&w);
    if (!success)
        job_answer_error(&w, strcmp(code, "max_steps") == 0 ? "max_turns" : code,
                         r->error_message ? r->error_message : "it was ended");
    json_writer_object_end(&w);
    return rc < 0 ? rc : success ? 200 : code_task_status(code);
}

int code_task_answer(const struct job_asked *ask, struct buf *out, struct job_answered *ret,
                     struct err *err) {
    struct store_run r;
    int rc = store_run_get(ask->store, ask->id, ask->scope, &r, err);
    if (rc < 0)
        return rc;
    _cleanup_(json) json_t *detail = json_read_str(r.detail);
    if (r.detail && !detail)
        rc = err_set(err, ERR_INTERNAL,
                     "what job %s left cannot be read; its events are at /v1/runs/%s/events", r.id,
                     r.id);
    else
        rc = code_answer_write_task(ask, &r, detail, out, err);
    if (rc >= 0)
        *ret = (struct job_answered){
            .status = rc,
            .quota = r.error_code && strcmp(r.error_code, err_name(ERR_QUOTA)) == 0,
            .retry_after_s = r.error_code && strcmp(r.error_code, err_name(ERR_RATE)) == 0};
    store_run_finish(&r);
    return MIN(rc, 0);
}
