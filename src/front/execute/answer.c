#include "base/cleanup.h"
#include "base/mem.h"
#include "front/execute/execute.h"

#include <stdlib.h>
#include <string.h>

/* What POST /execute/sdk answers when its job has ended, and so what is the result of a task of
 * that type. */

enum { ANSWER_LOOK_BYTES = 32 << 10 };

static void execute_answer_on_message(void *ctx, const struct store_event *e) {
    static const char *const types[] = {"system", "assistant", "user", "result"};
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (strcmp(e->type, types[i]) == 0)
            json_writer_raw(ctx, e->json, strlen(e->json));
}

static int execute_answer_write_messages(const struct job_asked *ask, struct json_writer *w,
                                         struct err *err) {
    json_put_array_begin(w, "messages");
    int rc =
        store_event_list(ask->store, ask->id, 0, ask->events, execute_answer_on_message, w, err);
    json_writer_array_end(w);
    return rc;
}

static void write_error_of(struct json_writer *w, const struct store_run *r, const json_t *error) {
    const char *code = json_string_value(json_object_get(error, "code"));
    const char *message = json_string_value(json_object_get(error, "message"));
    if (!code)
        code = r->error_code ? r->error_code : job_status_name(r->status);
    job_answer_error(w, code,
                     message            ? message
                     : r->error_message ? r->error_message
                                        : "it was ended");
}

/* What a dialog has answered: its result as it is written, and what else is in the answer. */
struct ended_answer {
    const char *result; /* JSON, inside the run's detail; NULL: there is none */
    size_t len;
    json_t *rest;
};

/* Where the JSON string ends that begins at text; NULL: it goes on behind what was read. */
static const char *end_of_string(const char *text) {
    for (const char *at = text + 1; (at = strchr(at, '"')); at++) {
        const char *slash = at;
        while (slash[-1] == '\\')
            slash--;
        if ((at - slash) % 2 == 0)
            return at + 1;
    }
    return NULL;
}

/* The answer is the first member of the detail and the result the first of the answer (sdk.c):
 * neither a prompt nor a result of a megabyte is parsed, and what is behind the result is short.
 * False: it goes on behind what was read. */
static bool find_answer(const char *detail, struct ended_answer *ret) {
    static const char begin[] = "{\"answer\":{";
    static const char first[] = "\"result\":";
    const char *at = detail + strlen(begin);
    size_t len;
    *ret = (struct ended_answer){0};
    if (strncmp(detail, begin, strlen(begin)) != 0)
        return false;
    if (strncmp(at, first, strlen(first)) == 0) {
        ret->result = at + strlen(first);
        const char *end = *ret->result == '"' ? end_of_string(ret->result) : NULL;
        if (!end)
            return false;
        ret->len = (size_t)(end - ret->result);
        at = end + (*end == ',');
    }
    _cleanup_(buf) struct buf rest;
    buf_init(&rest, sizeof(begin) + ANSWER_LOOK_BYTES);
    (void)buf_add_str(&rest, begin);
    (void)buf_add(&rest, at, strnlen(at, ANSWER_LOOK_BYTES));
    const char *answer = json_find_member(rest.data, rest.len, "\"answer\"", &len);
    ret->rest = answer ? json_read(answer, len) : NULL;
    return answer != NULL;
}

static int read_dialog(const struct job_asked *ask, struct store_run *r, struct ended_answer *ret,
                       struct err *err) {
    if (!r->detail || find_answer(r->detail, ret))
        return 0;
    store_run_finish(r);
    int rc = store_run_get(ask->store, ask->id, ask->scope, r, err);
    if (rc == 0 && r->detail)
        (void)find_answer(r->detail, ret);
    return rc;
}

static int write_dialog(const struct job_asked *ask, const struct store_run *r,
                        const struct ended_answer *a, struct buf *out, struct err *err) {
    const json_t *metadata = json_object_get(a->rest, "metadata");
    const json_t *status = json_object_get(a->rest, "status");
    bool success = r->status == JOB_DONE;
    char uuid[UUID_SIZE];
    struct json_writer w;
    int rc = 0;
    json_writer_init(&w, out);
    json_writer_object_begin(&w);
    job_answer_head(&w, success, id_to_uuid(r->id, uuid), r->created_ms);
    json_put_raw(&w, "result", a->result ? a->result : "\"\"", a->result ? a->len : 2);
    if (!ask->short_)
        rc = execute_answer_write_messages(ask, &w, err);
    if (metadata)
        json_put_tree(&w, "metadata", metadata);
    if (!success)
        write_error_of(&w, r, json_object_get(a->rest, "error"));
    json_writer_object_end(&w);
    return rc < 0 ? rc : status ? (int)json_integer_value(status) : 500;
}

int execute_sdk_answer(const struct job_asked *ask, struct buf *out, struct job_answered *ret,
                       struct err *err) {
    struct store_run r;
    struct ended_answer answer = {0};
    int rc = store_run_look(ask->store, ask->id, ask->scope, ANSWER_LOOK_BYTES, &r, err);
    if (rc == 0)
        rc = read_dialog(ask, &r, &answer, err);
    if (rc < 0)
        return rc;
    rc = write_dialog(ask, &r, &answer, out, err);
    if (rc >= 0)
        *ret = (struct job_answered){
            .status = rc,
            .quota = r.error_code && strcmp(r.error_code, err_name(ERR_QUOTA)) == 0,
            .retry_after_s = json_integer_value(json_object_get(answer.rest, "retry_after_s"))};
    json_decref(answer.rest);
    store_run_finish(&r);
    return MIN(rc, 0);
}
