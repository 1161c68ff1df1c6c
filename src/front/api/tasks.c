#include "front/task/tasks.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json_table.h"
#include "base/limits.h"
#include "base/mem.h"
#include "front/api/api.h"
#include "front/job/answer.h"
#include "front/task/hooks.h"
#include "front/task/types.h"

#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* /v1/tasks: jobs in the durable queue. Everything here is asked of the ledger, and answered when
 * its answer comes. */

enum {
    BODY_BYTES = 25 << 20,
    TASKS_DEFAULT = 20,
    IDEM_BYTES = 200,
    TITLE_BYTES = 200,
    TIMEOUT_MAX_MS = 86400000,
    ATTEMPTS = 3,
    ATTEMPTS_MAX = 10,
    PRIORITY_MAX = 100,
    AHEAD_S = 366 * 86400,
};

/* --- in JSON --- */

void api_task_write(struct json_writer *w, const struct ledger_task *t, bool whole) {
    json_writer_object_begin(w);
    json_put_str(w, "id", t->id);
    json_put_str(w, "project", *t->owner ? t->owner : "default");
    json_put_str(w, "key", t->key);
    json_put_str(w, "type", t->type);
    json_put_str(w, "state", task_state_name(t->state));
    json_put_str(w, "title", t->title);
    json_put_int(w, "priority", t->priority);
    json_put_time(w, "created_at", t->created_ms);
    json_put_time(w, "run_at", t->run_at_ms);
    json_put_time(w, "started_at", t->started_ms);
    json_put_time(w, "finished_at", t->finished_ms);
    json_put_int(w, "timeout_ms", t->timeout_ms);
    json_put_int(w, "attempt", t->attempt);
    json_put_int(w, "max_attempts", t->max_attempts);
    json_put_str(w, "run", *t->run ? t->run : NULL);
    json_put_bool(w, "cancelling", t->cancel);
    job_answer_error(w, t->error_code, t->error_message);
    json_put_raw_str(w, "webhook", t->hook);
    json_put_str(w, "idempotency_key", t->idem);
    if (whole) {
        json_put_raw_str(w, "attempts", t->attempts);
        json_put_raw_str(w, "result", t->result);
        /* Too long, or no longer kept. */
        json_put_bool(w, "result_omitted", t->state == TASK_DONE && !t->result);
    }
    json_writer_object_end(w);
}

static void respond_task(struct http_req *req, int status, const struct ledger_task *t) {
    struct buf b;
    struct json_writer w;
    buf_init(&b, API_TASK_BYTES);
    json_writer_init(&w, &b);
    api_task_write(&w, t, true);
    http_respond_buf(req, status, "application/json", &b);
}

const char *api_whose(const struct http_req *req) {
    struct store_scope scope = front_scope(req);
    return scope.all ? NULL : scope.owner;
}

/* --- POST /v1/tasks --- */

/* A body as JSON has it. Texts stay the tree's. */
struct task_body {
    struct ledger_task_submit submit;
    const char *run_at;
    const json_t *input, *hook;
};

static int read_run_at(const char *text, int64_t *ret_ms, struct err *err) {
    int64_t ms = 0;
    if (!text)
        return 0;
    if (!clock_parse_rfc3339(text, &ms))
        return err_set(err, ERR_BAD_REQUEST,
                       "\"run_at\" must be a time such as \"2026-01-31T12:00:00Z\"");
    if (ms > clock_wall_ms() + (int64_t)AHEAD_S * 1000)
        return err_set(err, ERR_BAD_REQUEST, "\"run_at\" is more than a year ahead");
    *ret_ms = ms;
    return 0;
}

static int read_webhook(const json_t *hook, struct ledger_task_submit *t, struct err *err) {
    static const struct json_field table[] = {
        JSON_TEXT("url", struct ledger_task_submit, webhook),
        JSON_TEXT("secret", struct ledger_task_submit, secret),
    };
    if (!hook || json_is_null(hook))
        return 0;
    int rc = json_table_read(table, ARRAY_LEN(table), hook, "\"webhook\"", t, err);
    if (rc == 0 && (!t->webhook || !t->secret))
        rc = err_set(err, ERR_BAD_REQUEST, "a \"webhook\" has a \"url\" and a \"secret\"");
    if (rc == 0)
        rc = hooks_check_url(t->webhook, err);
    return rc == 0 ? hooks_check_secret(t->secret, err) : rc;
}

/* What is the same for tasks of every type. */
static int read_body(const json_t *tree, struct task_body *b, struct err *err) {
    static const struct json_field table[] = {
        JSON_TEXT("type", struct task_body, submit.type),
        JSON_TREE("input", struct task_body, input),
        JSON_TEXT("title", struct task_body, submit.title),
        JSON_TEXT("run_at", struct task_body, run_at),
        JSON_INT("priority", struct task_body, submit.priority, -PRIORITY_MAX, PRIORITY_MAX),
        JSON_INT("timeout_ms", struct task_body, submit.timeout_ms, 1, TIMEOUT_MAX_MS),
        JSON_INT("max_attempts", struct task_body, submit.max_attempts, 1, ATTEMPTS_MAX),
        JSON_TREE("webhook", struct task_body, hook),
    };
    struct ledger_task_submit *t = &b->submit;
    t->max_attempts = ATTEMPTS;
    int rc = json_table_read(table, ARRAY_LEN(table), tree, "the request", b, err);
    if (rc == 0 && !t->type)
        rc = err_set(err, ERR_BAD_REQUEST,
                     "say in \"type\" what it is: run, code, execute, "
                     "execute/sdk or claude-code");
    if (rc == 0 && t->title && strlen(t->title) > TITLE_BYTES)
        rc = err_set(err, ERR_BAD_REQUEST, "\"title\" has at most %d bytes", TITLE_BYTES);
    if (rc == 0)
        rc = read_run_at(b->run_at, &t->run_at_ms, err);
    return rc == 0 ? read_webhook(b->hook, t, err) : rc;
}

/* A body that was read. */
struct task_asked {
    json_t *body;
    char *input;    /* its text, or NULL */
    char hash[65];  /* of the body, if it is large; else "" */
    struct err err; /* what its type says to the input */
};

static void api_tasks_hash_body(const char *body, size_t len, char hash[65]) {
    unsigned char sum[SHA256_DIGEST_LENGTH];
    (void)SHA256((const unsigned char *)body, len, sum);
    for (size_t i = 0; i < sizeof(sum); i++)
        (void)snprintf(hash + 2 * i, 3, "%02x", sum[i]);
}

/* In any thread, as the next one. */
static int read_asked(const char *body, size_t len, const void *how, void **ret, struct err *err) {
    struct task_asked a = {0};
    int rc = http_read_json(body, len, &a.body, err);
    if (rc < 0)
        return rc;
    const json_t *input = json_object_get(a.body, "input");
    const char *name = json_string_value(json_object_get(a.body, "type"));
    const struct task_type *type = name ? task_type_find(name, &a.err) : NULL;
    if (type && type->read && json_is_object(input))
        (void)type->read(input, how, &a.err);
    a.input = json_dumps(input, JSON_COMPACT);
    if (len > LIMIT_READ_AT_ONCE_BYTES)
        api_tasks_hash_body(body, len, a.hash);
    *ret = xmalloc(sizeof(a));
    memcpy(*ret, &a, sizeof(a));
    return 0;
}

static void free_asked(void *asked) {
    struct task_asked *a = asked;
    json_decref(a->body);
    free(a->input);
    free(a);
}

static int read_idem(const struct http_req *req, struct task_asked *asked,
                     struct ledger_task_submit *t, struct err *err) {
    const char *key = http_req_header(req, "idempotency-key");
    size_t len;
    if (!key)
        return 0;
    size_t n = strlen(key);
    if (n == 0 || n > IDEM_BYTES || http_req_header_count(req, "idempotency-key") > 1)
        return err_set(err, ERR_BAD_REQUEST, "one Idempotency-Key of 1 to %d characters",
                       IDEM_BYTES);
    for (size_t i = 0; i < n; i++)
        if (key[i] < ' ' || key[i] > '~')
            return err_set(err, ERR_BAD_REQUEST, "an Idempotency-Key is visible ASCII");
    const char *body = http_req_body(req, &len);
    if (!*asked->hash)
        api_tasks_hash_body(body, len, asked->hash);
    t->idem = key;
    t->idem_hash = asked->hash;
    return 0;
}

static int check_input(struct front *f, const struct task_asked *asked, struct task_body *b,
                       struct err *err) {
    struct ledger_task_submit *t = &b->submit;
    const struct task_type *type = task_type_find(t->type, err);
    if (!type)
        return -(int)err->code;
    if (!json_is_object(b->input))
        return err_set(err, ERR_BAD_REQUEST, "\"input\" must be an object: what %s takes", t->type);
    if (asked->err.code) {
        *err = asked->err;
        return err_wrap(err, "\"input\"");
    }
    return tasks_check(f->tasks, type, b->input, &t->timeout_ms, err);
}

static void respond_submitted(struct api_wait *w, const struct ledger_answer *a) {
    const struct ledger_task *t = &a->task_submitted.task;
    char location[ID_SIZE + 16];
    tasks_hint(w->front->tasks, NULL);
    if (!w->req)
        return;
    (void)snprintf(location, sizeof(location), "/v1/tasks/%s", t->id);
    http_res_header(w->req, "Location", location);
    if (a->task_submitted.repeated)
        http_res_header(w->req, "Idempotent-Replayed", "true");
    respond_task(w->req, 202, t);
}

static void api_tasks_submit(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    void *read = NULL;
    struct task_body body = {0};
    struct ledger_task_submit *t = &body.submit;
    int rc = http_req_read(req, &read, &err);
    struct task_asked *asked = read;
    if (rc == 0)
        rc = read_body(asked->body, &body, &err);
    if (rc == 0)
        rc = read_idem(req, asked, t, &err);
    if (rc == 0)
        rc = check_input(f, asked, &body, &err);
    if (rc == 0 && !asked->input)
        rc = err_set(&err, ERR_BAD_REQUEST, "\"input\" cannot be written");
    if (rc < 0) {
        http_respond_err(req, &err);
        return;
    }
    char id[ID_SIZE];
    t->id = id_new("task", id);
    t->owner = front_project(req);
    t->key = front_key(req);
    t->body = asked->input;
    t->own_body = &asked->input;
    t->waiting_max = (size_t)f->config->tasks.waiting_per_key;
    t->bytes_max = f->config->tasks.waiting_mb_per_key << 20;
    api_ask(f, req, &(struct ledger_ask){.op = LEDGER_TASK_SUBMIT, .task_submit = *t},
            respond_submitted);
}

/* --- the others --- */

const char *api_task_id(struct http_req *req) {
    struct err err;
    const char *id = http_req_param(req, "id");
    if (id_is_valid("task", id, strlen(id)))
        return id;
    (void)err_set(&err, ERR_NOT_FOUND, "there is no task \"%.40s\"", id);
    http_respond_err(req, &err);
    return NULL;
}

static void respond_got(struct api_wait *w, const struct ledger_answer *a) {
    if (w->req)
        respond_task(w->req, 200, &a->task_got.task);
}

static void api_tasks_get(struct http_req *req, void *ctx) {
    const char *id = api_task_id(req);
    if (id)
        api_ask(ctx, req,
                &(struct ledger_ask){.op = LEDGER_TASK_GET,
                                     .task_get = {.id = id, .owner = api_whose(req)}},
                respond_got);
}

static void respond_cancelled(struct api_wait *w, const struct ledger_answer *a) {
    if (!a->err.code)
        tasks_hint(w->front->tasks, a->task_cancelled.task.id);
    if (w->req)
        respond_task(w->req, 202, &a->task_cancelled.task);
}

static void api_tasks_cancel(struct http_req *req, void *ctx) {
    const char *id = api_task_id(req);
    if (id)
        api_ask(ctx, req,
                &(struct ledger_ask){.op = LEDGER_TASK_CANCEL,
                                     .task_cancel = {.id = id, .owner = api_whose(req)}},
                respond_cancelled);
}

static void api_tasks_write_listed(struct json_writer *j, const struct ledger_answer *a, size_t i) {
    api_task_write(j, &a->task_listed.tasks[i], false);
}

static void api_tasks_respond_list(struct api_wait *w, const struct ledger_answer *a) {
    api_respond_page(w, a,
                     &(struct api_page){.name = "tasks",
                                        .n = a->task_listed.n,
                                        .max_bytes = API_TASK_BYTES,
                                        .next = a->task_listed.next,
                                        .write = api_tasks_write_listed});
}

static void api_tasks_list(struct http_req *req, void *ctx) {
    struct err err;
    static const char *const params[] = {"limit", "cursor", "state", "type", NULL};
    _cleanup_(free) char *cursor = NULL;
    _cleanup_(free) char *name = NULL;
    _cleanup_(free) char *type = NULL;
    struct ledger_ask what = {
        .op = LEDGER_TASK_LIST,
        .task_list = {.owner = api_whose(req), .state = TASK_STATES, .limit = TASKS_DEFAULT}};
    int rc = http_req_query_check(req, params, &err);
    if (rc == 0)
        rc = api_read_limit(req, &what.task_list.limit, &err);
    if (rc >= 0)
        rc = http_req_query_get(req, "cursor", &cursor, &err);
    if (rc > 0 && !id_is_valid("task", cursor, strlen(cursor)))
        rc = err_set(&err, ERR_BAD_REQUEST, "\"cursor\" must be a next_cursor of an earlier page");
    if (rc >= 0)
        rc = http_req_query_get(req, "state", &name, &err);
    if (rc > 0 && !task_state_parse(name, &what.task_list.state))
        rc = err_set(&err, ERR_BAD_REQUEST,
                     "\"state\" is queued, running, done, failed, cancelled or interrupted");
    if (rc >= 0)
        rc = http_req_query_get(req, "type", &type, &err);
    if (rc > 0 && !task_type_find(type, &err))
        rc = -(int)err.code;
    if (rc < 0) {
        http_respond_err(req, &err);
        return;
    }
    what.task_list.before = cursor;
    what.task_list.type = type;
    api_ask(ctx, req, &what, api_tasks_respond_list);
}

void api_tasks_routes(struct front *f) {
    f->task_reader = (struct http_reader){.read = read_asked,
                                          .free = free_asked,
                                          .how = &f->runner->config.limits,
                                          .how_bytes = sizeof(f->runner->config.limits)};
    /* Tasks are the ledger's, but for their events: none of these waits for the store. */
    const struct http_route routes[] = {
        {"POST", "/v1/tasks", api_tasks_submit, f, HTTP_ROUTE_DIRECT, BODY_BYTES, &f->task_reader},
        {"GET", "/v1/tasks", api_tasks_list, f, FRONT_ROUTE_READ | HTTP_ROUTE_DIRECT, 0},
        {"GET", "/v1/tasks/{id}", api_tasks_get, f, FRONT_ROUTE_READ | HTTP_ROUTE_DIRECT, 0},
        {"POST", "/v1/tasks/{id}/cancel", api_tasks_cancel, f, HTTP_ROUTE_DIRECT | FRONT_ROUTE_LATE,
         0},
    };
    http_server_routes(f->http, routes, ARRAY_LEN(routes));
}
