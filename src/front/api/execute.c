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

enum { ANSWER_BYTES = 64 << 20, BODY_BYTES = 4 << 20 };

void api_execute_error(struct buf *out, const struct err *err) {
    struct json_writer w;
    char uuid[UUID_SIZE];
    json_writer_init(&w, out);
    json_writer_object_begin(&w);
    job_answer_head(&w, false, id_uuid(uuid), clock_wall_ms());
    job_answer_error(&w, err_name(err->code), err->message);
    json_writer_object_end(&w);
}

static bool is_sdk(const struct http_req *req) {
    return strcmp(http_req_path(req), "/execute/sdk") == 0;
}

/* --- the answer --- */

static int api_execute_write_answer(struct front *f, struct http_req *req, const char *id,
                                    bool short_, struct buf *out, struct job_answered *ret,
                                    struct err *err) {
    struct job_asked ask = {.store = f->store,
                            .events = (size_t)f->config->store.run_events,
                            .id = id,
                            .scope = front_scope(req),
                            .short_ = short_};
    return is_sdk(req) ? execute_sdk_answer(&ask, out, ret, err)
                       : code_task_answer(&ask, out, ret, err);
}

static void api_execute_respond(struct front *f, struct http_req *req, const char *id) {
    struct err err;
    struct job_answered how;
    struct buf out;
    buf_init(&out, ANSWER_BYTES);
    if (api_execute_write_answer(f, req, id, false, &out, &how, &err) < 0) {
        buf_finish(&out);
        http_respond_err(req, &err);
        return;
    }
    if (how.quota)
        http_res_retry_after(req, ERR_QUOTA);
    else if (how.retry_after_s > 0)
        http_res_retry_after_s(req, how.retry_after_s);
    http_respond_buf(req, how.status, "application/json", &out);
}

/* The last event of a stream: the answer but for the messages, which came before it. */
static void api_execute_write_end(struct front *f, struct http_req *req, const char *id,
                                  struct buf *out) {
    struct err err;
    struct job_answered how;
    (void)api_execute_write_answer(f, req, id, true, out, &how, &err);
}

/* --- the request --- */

static void api_execute_follow(struct front *f, struct http_req *req, const char *id, int64_t after,
                               bool own) {
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
                                          .respond = api_execute_respond,
                                          .write_end = api_execute_write_end});
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

static int api_execute_start(struct front *f, struct http_req *req, const json_t *body,
                             char ret_id[ID_SIZE], struct err *err) {
    const char *owner = front_project(req);
    const char *key = front_key(req);
    if (is_sdk(req))
        return execute_sdk_start(
            f->executes, &(struct execute_sdk_ask){.owner = owner, .key = key, .body = body},
            ret_id, err);
    _cleanup_(json) json_t *grants = key_grants(front_identity(req));
    struct code_request r;
    int rc = code_task_read(f->codes, body, grants, &r, err);
    return rc < 0
               ? rc
               : code_start(
                     f->codes,
                     &(struct code_ask){
                         .owner = owner, .key = key, .scope = front_scope(req), .grants = grants},
                     &r, ret_id, err);
}

/* A job of the kind that this path begins, of theirs. */
static int api_execute_check_kind(struct front *f, struct http_req *req, const char *id,
                                  struct err *err) {
    struct store_run r;
    int rc = store_run_look(f->store, id, front_scope(req), 0, &r, err);
    if (rc < 0)
        return rc;
    if (strcmp(r.kind, is_sdk(req) ? "sdk" : "execute") != 0)
        rc = err_set(err, ERR_NOT_FOUND, "there is no run of %s with this id", http_req_path(req));
    store_run_finish(&r);
    return rc;
}

static void api_execute_request(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    char id[ID_SIZE];
    int64_t after = 0;
    const char *last = http_req_header(req, "last-event-id");
    _cleanup_(json) json_t *body = NULL;
    bool own = !last || !*last;
    int rc = own ? http_req_json(req, &body, &err) : 0;
    if (own && rc == 0)
        rc = api_execute_start(f, req, body, id, &err);
    else if (!own && !read_last_event(last, id, &after))
        rc = err_set(&err, ERR_BAD_REQUEST, "Last-Event-ID must be the id of an event of %s",
                     http_req_path(req));
    else if (!own)
        rc = api_execute_check_kind(f, req, id, &err);
    if (rc < 0)
        http_respond_err(req, &err);
    else
        api_execute_follow(f, req, id, after, own);
}

void api_execute_routes(struct front *f) {
    static const char *const paths[] = {"/execute/sdk", "/execute"};
    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        http_server_route(f->http, &(struct http_route){.methods = "POST",
                                                        .pattern = paths[i],
                                                        .handler = api_execute_request,
                                                        .ctx = f,
                                                        .flags = HTTP_ROUTE_LEAVE,
                                                        .body_bytes = BODY_BYTES,
                                                        .write_error = api_execute_error});
}
