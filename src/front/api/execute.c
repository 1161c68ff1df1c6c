#include "front/execute/execute.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "front/api/api.h"
#include "front/code/task.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* POST /execute/sdk and POST /execute. Plain JSON when it has ended, and a client that leaves
 * cancels it; with Accept: text/event-stream its messages as they happen, and a client that comes
 * back with the Last-Event-ID goes on where it was. The UUIDs that are told are ids of jobs in
 * another spelling.
 */

enum { ANSWER_BYTES = 64 << 20, BODY_BYTES = 4 << 20, LOG_BYTES = 1 << 20, LOG_MORE = 256 << 10 };
enum { ANSWER_LOOK_BYTES = 32 << 10 };

static void write_head(struct json_writer *w, bool success, const char *uuid, int64_t time_ms) {
    char text[CLOCK_RFC3339_SIZE];
    json_writer_key(w, "success");
    json_writer_bool(w, success);
    json_writer_key(w, "request_id");
    json_writer_str(w, uuid);
    json_writer_key(w, "timestamp");
    json_writer_str(w, clock_rfc3339(time_ms, text));
}

static void write_problem(struct json_writer *w, const char *code, const char *message) {
    json_writer_key(w, "error");
    json_writer_object_begin(w);
    json_writer_key(w, "code");
    json_writer_str(w, code);
    json_writer_key(w, "message");
    json_writer_str(w, message);
    json_writer_object_end(w);
}

void api_execute_error(struct buf *out, const struct err *err) {
    struct json_writer w;
    char uuid[UUID_SIZE];
    json_writer_init(&w, out);
    json_writer_object_begin(&w);
    write_head(&w, false, id_uuid(uuid), clock_wall_ms());
    write_problem(&w, err_name(err->code), err->message);
    json_writer_object_end(&w);
}

/* --- the answer --- */

static void on_message(void *ctx, const struct store_event *e) {
    static const char *const types[] = {"system", "assistant", "user", "result"};
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (strcmp(e->type, types[i]) == 0)
            json_writer_raw(ctx, e->json, strlen(e->json));
}

static int write_messages(struct front *f, const char *id, struct json_writer *w, struct err *err) {
    json_writer_key(w, "messages");
    json_writer_array_begin(w);
    int rc =
        store_event_list(f->store, id, 0, (size_t)f->config->store.run_events, on_message, w, err);
    json_writer_array_end(w);
    return rc;
}

static void write_error_of(struct json_writer *w, const struct store_run *r, const json_t *error) {
    const char *code = json_string_value(json_object_get(error, "code"));
    const char *message = json_string_value(json_object_get(error, "message"));
    if (!code)
        code = r->error_code ? r->error_code : r->status;
    write_problem(w, code,
                  message            ? message
                  : r->error_message ? r->error_message
                                     : "it was ended");
}

/* --- the answer of a task --- */

static void on_logged(void *ctx, const struct store_event *e) {
    struct buf *log = ctx;
    _cleanup_(json) json_t *event = log->len < LOG_BYTES ? json_loads(e->json, 0, NULL) : NULL;
    if (event)
        code_task_log(log, e->type, event);
}

static int write_logs(struct front *f, const char *id, const json_t *detail, struct json_writer *w,
                      struct err *err) {
    const char *note = json_string_value(json_object_get(detail, "diff_note"));
    _cleanup_(buf) struct buf log;
    buf_init(&log, LOG_BYTES + LOG_MORE);
    int rc = store_event_list(f->store, id, 0, (size_t)f->config->store.run_events, on_logged, &log,
                              err);
    if (log.len >= LOG_BYTES)
        (void)buf_addf(&log, "[the log is longer than %d bytes: /v1/runs/%s has the rest]\n",
                       LOG_BYTES, id);
    if (note)
        (void)buf_addf(&log, "[%s]\n", note);
    json_writer_key(w, "logs");
    json_writer_text(w, log.data ? log.data : "", log.len);
    return rc;
}

static void write_text(struct json_writer *w, const json_t *from, const char *key, const char *as) {
    const json_t *v = json_object_get(from, key);
    if (!json_is_string(v))
        return;
    json_writer_key(w, as);
    json_writer_text(w, json_string_value(v), json_string_length(v));
}

static int write_task(struct front *f, const struct store_run *r, const json_t *detail, bool logs,
                      struct buf *out, struct err *err) {
    bool success = strcmp(r->status, "done") == 0;
    const char *code = r->error_code ? r->error_code : r->status;
    char uuid[UUID_SIZE];
    struct json_writer w;
    int rc = 0;
    json_writer_init(&w, out);
    json_writer_object_begin(&w);
    write_head(&w, success, id_to_uuid(r->id, uuid), r->created_ms);
    if (logs)
        rc = write_logs(f, r->id, detail, &w, err);
    write_text(&w, detail, "diff", "diff");
    json_writer_key(&w, "metadata");
    json_writer_object_begin(&w);
    json_writer_key(&w, "execution_time_ms");
    json_writer_int(&w, r->finished_ms - r->created_ms);
    write_text(&w, detail, "sandbox", "sandbox_id");
    write_text(&w, detail, "repo", "repo");
    json_writer_object_end(&w);
    if (!success)
        write_problem(&w, strcmp(code, "max_steps") == 0 ? "max_turns" : code,
                      r->error_message ? r->error_message : "it was ended");
    json_writer_object_end(&w);
    return rc < 0 ? rc : success ? 200 : code_task_status(code);
}

/* What a dialog has answered: its result as it is written, and what else is in the answer. */
struct ended_answer {
    const char *result; /* JSON, inside the run's detail; NULL: there is none */
    size_t len;
    json_t *rest;
};

/* The answer is the first member of the detail and the result the first of the answer: neither a
 * prompt nor a result of a megabyte is parsed. False: it goes on behind what was read. */
static bool find_answer(const char *detail, struct ended_answer *ret) {
    size_t len;
    *ret = (struct ended_answer){0};
    const char *answer = json_find_member(detail, strlen(detail), "\"answer\"", &len);
    if (!answer)
        return false;
    _cleanup_(buf) struct buf rest;
    buf_init(&rest, len + 1);
    const char *at = answer + 1; /* behind the brace */
    ret->result = json_find_member(answer, len, "\"result\"", &ret->len);
    if (ret->result)
        at = ret->result + ret->len;
    at += *at == ',';
    (void)buf_add_char(&rest, '{');
    (void)buf_add(&rest, at, (size_t)(answer + len - at));
    ret->rest = json_loadb(rest.data, rest.len, 0, NULL);
    return true;
}

static bool is_task(const struct store_run *r) {
    return strcmp(r->kind, "execute") == 0;
}

static int read_dialog(struct front *f, struct http_req *req, const char *id, struct store_run *r,
                       struct ended_answer *ret, struct err *err) {
    if (!r->detail || find_answer(r->detail, ret))
        return 0;
    store_run_finish(r);
    int rc = store_run_get(f->store, id, front_scope(req), r, err);
    if (rc == 0 && r->detail)
        (void)find_answer(r->detail, ret);
    return rc;
}

static int write_dialog(struct front *f, const struct store_run *r, const struct ended_answer *a,
                        bool messages, struct buf *out, struct err *err) {
    const json_t *metadata = json_object_get(a->rest, "metadata");
    const json_t *status = json_object_get(a->rest, "status");
    bool success = strcmp(r->status, "done") == 0;
    char uuid[UUID_SIZE];
    struct json_writer w;
    int rc = 0;
    json_writer_init(&w, out);
    json_writer_object_begin(&w);
    write_head(&w, success, id_to_uuid(r->id, uuid), r->created_ms);
    json_writer_key(&w, "result");
    if (a->result)
        json_writer_raw(&w, a->result, a->len);
    else
        json_writer_str(&w, "");
    if (messages)
        rc = write_messages(f, r->id, &w, err);
    if (metadata) {
        json_writer_key(&w, "metadata");
        json_writer_tree(&w, metadata);
    }
    if (!success)
        write_error_of(&w, r, json_object_get(a->rest, "error"));
    json_writer_object_end(&w);
    return rc < 0 ? rc : status ? (int)json_integer_value(status) : 500;
}

/* The answer of a job that has ended; the HTTP status for it, or negative. ret_quota: its key had
 * no more for the day. */
static int write_answer(struct front *f, struct http_req *req, const char *id, bool messages,
                        struct buf *out, bool *ret_quota, struct err *err) {
    struct store_run r;
    struct ended_answer answer = {0};
    int rc = store_run_look(f->store, id, front_scope(req), ANSWER_LOOK_BYTES, &r, err);
    if (rc < 0)
        return rc;
    *ret_quota = r.error_code && strcmp(r.error_code, err_name(ERR_QUOTA)) == 0;
    if (is_task(&r)) {
        store_run_finish(&r);
        rc = store_run_get(f->store, id, front_scope(req), &r, err);
        if (rc < 0)
            return rc;
        _cleanup_(json) json_t *detail = r.detail ? json_loads(r.detail, 0, NULL) : NULL;
        rc = write_task(f, &r, detail, messages, out, err);
    } else {
        rc = read_dialog(f, req, id, &r, &answer, err);
        if (rc < 0)
            return rc;
        rc = write_dialog(f, &r, &answer, messages, out, err);
        json_decref(answer.rest);
    }
    store_run_finish(&r);
    return rc;
}

static void respond(struct front *f, struct http_req *req, const char *id) {
    struct err err;
    struct buf out;
    buf_init(&out, ANSWER_BYTES);
    bool quota;
    int status = write_answer(f, req, id, true, &out, &quota, &err);
    if (status < 0) {
        buf_finish(&out);
        http_respond_err(req, &err);
    } else {
        if (quota)
            http_res_retry_after(req, ERR_QUOTA);
        http_respond_buf(req, status, "application/json", &out);
    }
}

/* The last event of a stream: the answer but for the messages, which came before it. */
static void write_end(struct front *f, struct http_req *req, const char *id, struct buf *out) {
    struct err err;
    bool quota;
    (void)write_answer(f, req, id, false, out, &quota, &err);
}

/* --- the request --- */

static void follow(struct front *f, struct http_req *req, const char *id, int64_t after, bool own) {
    char uuid[UUID_SIZE];
    char location[sizeof("/v1/runs/") + UUID_SIZE];
    (void)snprintf(location, sizeof(location), "/v1/runs/%s", id_to_uuid(id, uuid));
    http_res_header(req, "Location", location);
    api_follow_as(f, req,
                  &(struct api_following){.id = id,
                                          .after = after,
                                          .stream = http_req_accepts(req, "text/event-stream"),
                                          .cancels = own,
                                          .prefix = uuid,
                                          .respond = respond,
                                          .write_end = write_end});
}

/* "UUID.N": the id of the last event that was read. */
static bool read_last_event(const char *text, char ret_id[ID_SIZE], int64_t *ret_after) {
    char uuid[UUID_SIZE];
    char *end = NULL;
    const char *dot = strchr(text, '.');
    if (!dot || dot - text != UUID_SIZE - 1 || dot[1] < '0' || dot[1] > '9')
        return false;
    memcpy(uuid, text, UUID_SIZE - 1);
    uuid[UUID_SIZE - 1] = 0;
    *ret_after = strtoll(dot + 1, &end, 10);
    return !*end && id_from_uuid("run", uuid, ret_id);
}

static bool is_sdk(const struct http_req *req) {
    return strcmp(http_req_path(req), "/execute/sdk") == 0;
}

static int start(struct front *f, struct http_req *req, const json_t *body, char ret_id[ID_SIZE],
                 struct err *err) {
    const struct identity *who = front_identity(req);
    const char *owner = who ? who->key_id : "";
    if (is_sdk(req))
        return execute_sdk_start(f->executes, owner, body, ret_id, err);
    _cleanup_(json) json_t *grants = sandbox_grants(who);
    return code_task_start(
        f->codes,
        &(struct code_ask){
            .owner = owner, .scope = front_scope(req), .grants = grants, .body = body},
        ret_id, err);
}

/* A job of the kind that this path begins, of theirs. */
static int check_kind(struct front *f, struct http_req *req, const char *id, struct err *err) {
    struct store_run r;
    int rc = store_run_look(f->store, id, front_scope(req), 0, &r, err);
    if (rc < 0)
        return rc;
    if (strcmp(r.kind, is_sdk(req) ? "sdk" : "execute") != 0)
        rc = err_set(err, ERR_NOT_FOUND, "there is no run of %s with this id", http_req_path(req));
    store_run_finish(&r);
    return rc;
}

static void execute(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    char id[ID_SIZE];
    int64_t after = 0;
    const char *last = http_req_header(req, "last-event-id");
    _cleanup_(json) json_t *body = NULL;
    bool own = !last || !*last;
    int rc = own ? http_req_json(req, &body, &err) : 0;
    if (own && rc == 0)
        rc = start(f, req, body, id, &err);
    else if (!own && !read_last_event(last, id, &after))
        rc = err_set(&err, ERR_BAD_REQUEST, "Last-Event-ID must be the id of an event of %s",
                     http_req_path(req));
    else if (!own)
        rc = check_kind(f, req, id, &err);
    if (rc < 0)
        http_respond_err(req, &err);
    else
        follow(f, req, id, after, own);
}

void api_execute_routes(struct front *f) {
    static const char *const paths[] = {"/execute/sdk", "/execute"};
    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        http_server_route(f->http, &(struct http_route){.methods = "POST",
                                                        .pattern = paths[i],
                                                        .handler = execute,
                                                        .ctx = f,
                                                        .flags = HTTP_ROUTE_LEAVE,
                                                        .body_bytes = BODY_BYTES,
                                                        .write_error = api_execute_error});
}
