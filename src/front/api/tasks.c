#include "front/task/tasks.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "front/account/account.h"
#include "front/api/api.h"
#include "front/job/job.h"
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
    ANSWER_BYTES = 32 << 20,
    TASKS_DEFAULT = 20,
    IDEM_BYTES = 200,
    TITLE_BYTES = 200,
    TIMEOUT_MAX_MS = 86400000,
    ATTEMPTS = 3,
    ATTEMPTS_MAX = 10,
    PRIORITY_MAX = 100,
    AHEAD_S = 366 * 86400,
    USAGE_ROWS = 10000,
    LOOK_MS = 1000, /* how often one that is followed is looked at, if nobody says anything */
};

/* --- in JSON --- */

static void api_tasks_write_time(struct json_writer *w, const char *key, int64_t ms) {
    char text[CLOCK_RFC3339_SIZE];
    json_writer_key(w, key);
    json_writer_str(w, ms ? clock_rfc3339(ms, text) : NULL);
}

static void write_number(struct json_writer *w, const char *key, int64_t v) {
    json_writer_key(w, key);
    json_writer_int(w, v);
}

static void api_tasks_write_text(struct json_writer *w, const char *key, const char *v) {
    json_writer_key(w, key);
    json_writer_str(w, v);
}

/* A value that the ledger made. */
static void write_raw(struct json_writer *w, const char *key, const char *json) {
    json_writer_key(w, key);
    if (json)
        json_writer_raw(w, json, strlen(json));
    else
        json_writer_null(w);
}

static void api_tasks_write(struct json_writer *w, const struct ledger_task *t, bool whole) {
    json_writer_object_begin(w);
    api_tasks_write_text(w, "id", t->id);
    api_tasks_write_text(w, "project", *t->owner ? t->owner : "default");
    api_tasks_write_text(w, "key", t->key);
    api_tasks_write_text(w, "type", t->type);
    api_tasks_write_text(w, "state", task_state_name(t->state));
    api_tasks_write_text(w, "title", t->title);
    write_number(w, "priority", t->priority);
    api_tasks_write_time(w, "created_at", t->created_ms);
    api_tasks_write_time(w, "run_at", t->run_at_ms);
    api_tasks_write_time(w, "started_at", t->started_ms);
    api_tasks_write_time(w, "finished_at", t->finished_ms);
    write_number(w, "timeout_ms", t->timeout_ms);
    write_number(w, "attempt", t->attempt);
    write_number(w, "max_attempts", t->max_attempts);
    api_tasks_write_text(w, "run", *t->run ? t->run : NULL);
    json_writer_key(w, "cancelling");
    json_writer_bool(w, t->cancel);
    json_writer_key(w, "error");
    if (t->error_code) {
        json_writer_object_begin(w);
        api_tasks_write_text(w, "code", t->error_code);
        api_tasks_write_text(w, "message", t->error_message);
        json_writer_object_end(w);
    } else {
        json_writer_null(w);
    }
    write_raw(w, "webhook", t->hook);
    api_tasks_write_text(w, "idempotency_key", t->idem);
    if (whole) {
        write_raw(w, "attempts", t->attempts);
        write_raw(w, "result", t->result);
        json_writer_key(w, "result_omitted"); /* too long, or no longer kept */
        json_writer_bool(w, t->state == TASK_DONE && !t->result);
    }
    json_writer_object_end(w);
}

static void respond_task(struct http_req *req, int status, const struct ledger_task *t) {
    struct buf b;
    struct json_writer w;
    buf_init(&b, ANSWER_BYTES);
    json_writer_init(&w, &b);
    api_tasks_write(&w, t, true);
    http_respond_buf(req, status, "application/json", &b);
}

/* Whose tasks they may see; NULL: everybody's. */
static const char *api_tasks_whose(const struct http_req *req) {
    struct store_scope scope = front_scope(req);
    return scope.all ? NULL : scope.owner;
}

/* --- POST /v1/tasks --- */

static int read_run_at(const json_t *body, int64_t *ret_ms, struct err *err) {
    const char *text = NULL;
    int64_t ms = 0;
    int rc = json_get_str(body, "run_at", &text, err);
    if (rc < 0 || !text)
        return rc;
    if (!clock_parse_rfc3339(text, &ms))
        return err_set(err, ERR_BAD_REQUEST,
                       "\"run_at\" must be a time such as \"2026-01-31T12:00:00Z\"");
    if (ms > clock_wall_ms() + (int64_t)AHEAD_S * 1000)
        return err_set(err, ERR_BAD_REQUEST, "\"run_at\" is more than a year ahead");
    *ret_ms = ms;
    return 0;
}

static int read_webhook(const json_t *body, struct ledger_task_submit *t, struct err *err) {
    static const char *const keys[] = {"url", "secret", NULL};
    const json_t *hook = json_object_get(body, "webhook");
    const char *url = NULL;
    const char *secret = NULL;
    if (!hook || json_is_null(hook))
        return 0;
    int rc = json_check_keys(hook, "\"webhook\"", keys, err);
    if (rc == 0)
        rc = json_get_str(hook, "url", &url, err);
    if (rc == 0)
        rc = json_get_str(hook, "secret", &secret, err);
    if (rc == 0 && (!url || !secret))
        rc = err_set(err, ERR_BAD_REQUEST, "a \"webhook\" has a \"url\" and a \"secret\"");
    if (rc == 0)
        rc = hooks_check_url(url, err);
    if (rc == 0)
        rc = hooks_check_secret(secret, err);
    t->webhook = url;
    t->secret = secret;
    return rc;
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

/* What is the same for tasks of every type. Texts stay the body's. */
static int read_common(const json_t *body, struct ledger_task_submit *t, struct err *err) {
    static const char *const keys[] = {"type",         "input",    "title",
                                       "run_at",       "priority", "timeout_ms",
                                       "max_attempts", "webhook",  NULL};
    const char *title = NULL;
    const char *type = NULL;
    t->max_attempts = ATTEMPTS;
    int rc = json_check_keys(body, "the request", keys, err);
    if (rc == 0)
        rc = json_get_str(body, "type", &type, err);
    if (rc == 0 && !type)
        rc = err_set(err, ERR_BAD_REQUEST,
                     "say in \"type\" what it is: run, code, execute, "
                     "execute/sdk or claude-code");
    if (rc == 0)
        rc = json_get_str(body, "title", &title, err);
    if (rc == 0 && title && strlen(title) > TITLE_BYTES)
        rc = err_set(err, ERR_BAD_REQUEST, "\"title\" has at most %d bytes", TITLE_BYTES);
    if (rc == 0)
        rc = json_get_int(body, "priority", -PRIORITY_MAX, PRIORITY_MAX, &t->priority, err);
    if (rc == 0)
        rc = json_get_int(body, "timeout_ms", 1, TIMEOUT_MAX_MS, &t->timeout_ms, err);
    if (rc == 0)
        rc = json_get_int(body, "max_attempts", 1, ATTEMPTS_MAX, &t->max_attempts, err);
    if (rc == 0)
        rc = read_run_at(body, &t->run_at_ms, err);
    if (rc == 0)
        rc = read_webhook(body, t, err);
    t->type = type;
    t->title = title;
    return rc;
}

static int check_input(struct front *f, const struct task_asked *asked,
                       struct ledger_task_submit *t, struct err *err) {
    const json_t *input = json_object_get(asked->body, "input");
    const struct task_type *type = task_type_find(t->type, err);
    if (!type)
        return -(int)err->code;
    if (!json_is_object(input))
        return err_set(err, ERR_BAD_REQUEST, "\"input\" must be an object: what %s takes", t->type);
    if (asked->err.code) {
        *err = asked->err;
        return err_wrap(err, "\"input\"");
    }
    return tasks_check(f->tasks, type, input, &t->timeout_ms, err);
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
    struct ledger_ask what = {.op = LEDGER_TASK_SUBMIT};
    struct ledger_task_submit *t = &what.task_submit;
    int rc = http_req_read(req, &read, &err);
    struct task_asked *asked = read;
    if (rc == 0)
        rc = read_common(asked->body, t, &err);
    if (rc == 0)
        rc = read_idem(req, asked, t, &err);
    if (rc == 0)
        rc = check_input(f, asked, t, &err);
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
    api_ask(f, req, &what, respond_submitted);
}

/* --- the others --- */

/* NULL: it was answered. */
static const char *read_id(struct http_req *req) {
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
    const char *id = read_id(req);
    if (id)
        api_ask(ctx, req,
                &(struct ledger_ask){.op = LEDGER_TASK_GET,
                                     .task_get = {.id = id, .owner = api_tasks_whose(req)}},
                respond_got);
}

static void respond_cancelled(struct api_wait *w, const struct ledger_answer *a) {
    if (!a->err.code)
        tasks_hint(w->front->tasks, a->task_cancelled.task.id);
    if (w->req)
        respond_task(w->req, 202, &a->task_cancelled.task);
}

static void api_tasks_cancel(struct http_req *req, void *ctx) {
    const char *id = read_id(req);
    if (id)
        api_ask(ctx, req,
                &(struct ledger_ask){.op = LEDGER_TASK_CANCEL,
                                     .task_cancel = {.id = id, .owner = api_tasks_whose(req)}},
                respond_cancelled);
}

static void api_tasks_write_listed(struct json_writer *j, const struct ledger_answer *a, size_t i) {
    api_tasks_write(j, &a->task_listed.tasks[i], false);
}

static void api_tasks_respond_list(struct api_wait *w, const struct ledger_answer *a) {
    api_respond_page(w, a,
                     &(struct api_page){.name = "tasks",
                                        .n = a->task_listed.n,
                                        .max_bytes = ANSWER_BYTES,
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
        .task_list = {.owner = api_tasks_whose(req), .state = TASK_STATES, .limit = TASKS_DEFAULT}};
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

/* --- GET /v1/usage --- */

static void respond_usage(struct api_wait *w, const struct ledger_answer *a) {
    struct buf b;
    struct json_writer j;
    if (!w->req)
        return;
    buf_init(&b, ANSWER_BYTES);
    json_writer_init(&j, &b);
    json_writer_object_begin(&j);
    write_raw(&j, "usage", a->usage_report.tasks);
    write_raw(&j, "jobs", a->usage_report.jobs);
    write_raw(&j, "today", a->usage_report.today);
    json_writer_object_end(&j);
    http_respond_buf(w->req, 200, "application/json", &b);
}

static bool is_day(const char *text) {
    int64_t ms;
    if (!text)
        return false;
    _cleanup_(free) char *time = xasprintf("%.10sT00:00:00Z", text);
    return strlen(text) == 10 && clock_parse_rfc3339(time, &ms);
}

static void api_tasks_usage(struct http_req *req, void *ctx) {
    struct err err;
    static const char *const params[] = {"since", NULL};
    _cleanup_(free) char *since = NULL;
    int rc = http_req_query_check(req, params, &err);
    if (rc == 0)
        rc = http_req_query_get(req, "since", &since, &err);
    if (rc > 0 && !is_day(since))
        rc = err_set(&err, ERR_BAD_REQUEST, "\"since\" must be a day such as 2026-01-31");
    if (rc < 0) {
        http_respond_err(req, &err);
        return;
    }
    accounts_tell(((struct front *)ctx)->accounts);
    api_ask(ctx, req,
            &(struct ledger_ask){
                .op = LEDGER_USAGE,
                .usage = {.owner = api_tasks_whose(req), .since = since, .limit = USAGE_ROWS}},
            respond_usage);
}

/* --- following one, over all its attempts --- */

struct task_follower {
    struct front *front;
    struct http_req *req; /* NULL: the client left */
    char task[ID_SIZE];
    char owner[ID_SIZE];
    bool all;
    int64_t attempt; /* which is followed, or was last */
    int64_t after;   /* of it */
    struct job_follow *follow;
    struct task_listener listener;
    uv_timer_t timer;
    bool begun;
    bool asking;
    bool changed; /* while it was asking */
    bool full;    /* the client has not read what it was sent */
};

static void api_tasks_look(void *ctx);

static void api_tasks_on_timer_closed(uv_handle_t *h) {
    free(h->data);
}

static void api_tasks_stop_following(struct task_follower *w) {
    job_unfollow(w->follow);
    w->follow = NULL;
    task_unlisten(&w->listener);
    if (!uv_is_closing((uv_handle_t *)&w->timer))
        uv_close((uv_handle_t *)&w->timer, api_tasks_on_timer_closed);
}

static void end_following(struct task_follower *w) {
    struct http_req *req = w->req;
    w->req = NULL;
    if (req && w->begun)
        http_stream_end(req);
    else if (req)
        http_respond_empty(req, 499);
    if (!w->asking)
        api_tasks_stop_following(w);
}

static void api_tasks_on_follower_gone(void *ctx) {
    end_following(ctx);
}

static bool api_tasks_send_event(void *ctx, const struct job_event *e) {
    struct task_follower *w = ctx;
    char id[48];
    (void)snprintf(id, sizeof(id), "%lld.%lld", (long long)w->attempt, (long long)e->seq);
    w->full = !http_sse_send(w->req, e->type, id, e->json, e->len);
    return !w->full;
}

static void api_tasks_on_more(void *ctx) {
    struct task_follower *w = ctx;
    if (w->full || job_read(w->follow, api_tasks_send_event, w))
        return;
    job_unfollow(w->follow); /* that attempt is over */
    w->follow = NULL;
    api_tasks_look(w);
}

static void api_tasks_on_drain(void *ctx) {
    struct task_follower *w = ctx;
    w->full = false;
    if (w->follow)
        api_tasks_on_more(w);
}

static void api_tasks_send_end(struct task_follower *w, const struct ledger_task *t) {
    _cleanup_(buf) struct buf b;
    struct json_writer j;
    buf_init(&b, ANSWER_BYTES);
    json_writer_init(&j, &b);
    api_tasks_write(&j, t, true);
    (void)http_sse_send(w->req, "end", NULL, b.data, b.len);
    end_following(w);
}

static void api_tasks_begin_stream(struct task_follower *w) {
    if (w->begun)
        return;
    w->begun = true;
    http_sse_begin(w->req);
    http_stream_on_drain(w->req, api_tasks_on_drain, w);
}

/* The run of an attempt, as the ledger tells it; "" if there is none. */
static void run_of(const struct ledger_task *t, int64_t attempt, char out[ID_SIZE]) {
    _cleanup_(json) json_t *list = t->attempts ? json_read_str(t->attempts) : NULL;
    const json_t *a = json_array_get(list, (size_t)attempt - 1);
    const char *run = json_string_value(json_object_get(a, "run"));
    (void)snprintf(out, ID_SIZE, "%s", run ? run : "");
}

/* Goes on to the first attempt that was not read to its end. True: there is one. */
static bool next_attempt(struct task_follower *w, const struct ledger_task *t) {
    while (w->attempt < t->attempt) {
        char run[ID_SIZE];
        run_of(t, w->attempt + 1, run);
        /* Its job has not begun yet, or its end is not in the ledger yet: it is looked at again. */
        if (t->state == TASK_RUNNING && w->attempt + 1 == t->attempt &&
            !job_is_running(w->front->jobs, run))
            return false;
        w->attempt++;
        if (*run)
            w->follow = job_follow_known(w->front->jobs, run, w->after, api_tasks_on_more, w);
        w->after = 0;
        if (w->follow)
            return true;
    }
    return false;
}

static void api_tasks_on_looked(void *ctx, const struct ledger_answer *a) {
    struct task_follower *w = ctx;
    w->asking = false;
    if (!w->req) {
        api_tasks_stop_following(w);
        return;
    }
    if (a->err.code && !w->begun) {
        struct http_req *req = w->req;
        w->req = NULL;
        http_respond_err(req, &a->err);
        api_tasks_stop_following(w);
        return;
    }
    api_tasks_begin_stream(w);
    const struct ledger_task *t = a->err.code ? NULL : &a->task_got.task;
    if (t && next_attempt(w, t))
        return;
    if (t && t->finished_ms > 0)
        api_tasks_send_end(w, t);
    else if (w->changed)
        api_tasks_look(w);
}

static void api_tasks_look(void *ctx) {
    struct task_follower *w = ctx;
    w->changed = w->asking;
    if (w->asking || w->follow || !w->req)
        return;
    w->asking = true;
    ledger_call(
        w->front->ledger,
        &(struct ledger_ask){.op = LEDGER_TASK_GET,
                             .task_get = {.id = w->task, .owner = w->all ? NULL : w->owner}},
        api_tasks_on_looked, w);
}

static void api_tasks_on_look_timer(uv_timer_t *t) {
    api_tasks_look(t->data);
}

/* "ATTEMPT.NUMBER" of the last event that was seen. */
static int read_after(const char *text, int64_t *ret_attempt, int64_t *ret_after, struct err *err) {
    int64_t attempt;
    int64_t after;
    if (!text)
        return 0;
    if (!task_event_parse(text, &attempt, &after))
        return err_set(err, ERR_BAD_REQUEST,
                       "\"after\" must be the id of an event, such as \"1.17\"");
    *ret_attempt = attempt - 1; /* which is gone on with */
    *ret_after = after;
    return 0;
}

static void api_tasks_follow(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    _cleanup_(free) char *after = NULL;
    const char *id = NULL;
    struct task_follower *w = xcalloc(1, sizeof(*w));
    struct store_scope scope = front_scope(req);
    int rc = http_req_query_get(req, "after", &after, &err);
    if (rc >= 0)
        rc = read_after(after ? after : http_req_header(req, "last-event-id"), &w->attempt,
                        &w->after, &err);
    if (rc < 0)
        http_respond_err(req, &err);
    else
        id = read_id(req);
    if (!id) {
        free(w);
        return;
    }
    w->front = f;
    w->req = req;
    w->all = scope.all;
    (void)snprintf(w->owner, sizeof(w->owner), "%s", scope.owner);
    (void)snprintf(w->task, sizeof(w->task), "%s", id);
    w->listener = (struct task_listener){.on_change = api_tasks_look, .ctx = w};
    memcpy(w->listener.task, w->task, sizeof(w->listener.task));
    task_listen(f->tasks, &w->listener);
    (void)uv_timer_init(f->loop, &w->timer);
    w->timer.data = w;
    (void)uv_timer_start(&w->timer, api_tasks_on_look_timer, LOOK_MS, LOOK_MS);
    http_req_on_gone(req, api_tasks_on_follower_gone, w);
    api_tasks_look(w);
}

void api_tasks_routes(struct front *f) {
    f->task_reader = (struct http_reader){.read = read_asked,
                                          .free = free_asked,
                                          .how = &f->runner->config.limits,
                                          .how_bytes = sizeof(f->runner->config.limits)};
    const struct http_route routes[] = {
        {.methods = "POST",
         .pattern = "/v1/tasks",
         .handler = api_tasks_submit,
         .flags = HTTP_ROUTE_DIRECT, /* tasks are the ledger's, but for their events */
         .body_bytes = BODY_BYTES,
         .reader = &f->task_reader},
        {.methods = "GET",
         .pattern = "/v1/tasks",
         .handler = api_tasks_list,
         .flags = FRONT_ROUTE_READ | HTTP_ROUTE_DIRECT},
        {.methods = "GET",
         .pattern = "/v1/tasks/{id}",
         .handler = api_tasks_get,
         .flags = FRONT_ROUTE_READ | HTTP_ROUTE_DIRECT},
        {.methods = "POST",
         .pattern = "/v1/tasks/{id}/cancel",
         .handler = api_tasks_cancel,
         .flags = HTTP_ROUTE_DIRECT | FRONT_ROUTE_LATE},
        {.methods = "GET",
         .pattern = "/v1/usage",
         .handler = api_tasks_usage,
         .flags = FRONT_ROUTE_READ | HTTP_ROUTE_DIRECT},
        {.methods = "GET",
         .pattern = "/v1/tasks/{id}/events",
         .handler = api_tasks_follow,
         .flags = FRONT_ROUTE_READ | HTTP_ROUTE_WATCH},
    };
    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        struct http_route r = routes[i];
        r.ctx = f;
        http_server_route(f->http, &r);
    }
}
