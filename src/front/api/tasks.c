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
    TIMEOUT_MS = 3600000,
    TIMEOUT_MAX_MS = 86400000,
    ATTEMPTS = 3,
    ATTEMPTS_MAX = 10,
    PRIORITY_MAX = 100,
    AHEAD_S = 366 * 86400,
    USAGE_ROWS = 10000,
    LOOK_MS = 1000, /* how often one that is followed is looked at, if nobody says anything */
};

/* --- in JSON --- */

static void write_time(struct json_writer *w, const char *key, int64_t ms) {
    char text[CLOCK_RFC3339_SIZE];
    json_writer_key(w, key);
    json_writer_str(w, ms ? clock_rfc3339(ms, text) : NULL);
}

static void write_number(struct json_writer *w, const char *key, int64_t v) {
    json_writer_key(w, key);
    json_writer_int(w, v);
}

static void write_text(struct json_writer *w, const char *key, const char *v) {
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

static void write_task(struct json_writer *w, const struct ledger_task *t, bool whole) {
    json_writer_object_begin(w);
    write_text(w, "id", t->id);
    write_text(w, "type", t->type);
    write_text(w, "state", task_state_name(t->state));
    write_text(w, "title", t->title);
    write_number(w, "priority", t->priority);
    write_time(w, "created_at", t->created_ms);
    write_time(w, "run_at", t->run_at_ms);
    write_time(w, "started_at", t->started_ms);
    write_time(w, "finished_at", t->finished_ms);
    write_number(w, "timeout_ms", t->timeout_ms);
    write_number(w, "attempt", t->attempt);
    write_number(w, "max_attempts", t->max_attempts);
    write_text(w, "run", *t->run ? t->run : NULL);
    json_writer_key(w, "cancelling");
    json_writer_bool(w, t->cancel);
    json_writer_key(w, "error");
    if (t->error_code) {
        json_writer_object_begin(w);
        write_text(w, "code", t->error_code);
        write_text(w, "message", t->error_message);
        json_writer_object_end(w);
    } else {
        json_writer_null(w);
    }
    write_raw(w, "webhook", t->hook);
    write_text(w, "idempotency_key", t->idem);
    if (whole) {
        write_raw(w, "attempts", t->attempts);
        write_raw(w, "result", t->result);
    }
    json_writer_object_end(w);
}

static void respond_task(struct http_req *req, int status, const struct ledger_task *t) {
    struct buf b;
    struct json_writer w;
    buf_init(&b, ANSWER_BYTES);
    json_writer_init(&w, &b);
    write_task(&w, t, true);
    http_respond_buf(req, status, "application/json", &b);
}

/* Whose tasks they may see; NULL: everybody's. */
static const char *whose(const struct http_req *req) {
    struct store_scope scope = front_scope(req);
    return scope.all ? NULL : scope.owner;
}

/* --- POST /v1/tasks --- */

static int read_run_at(const json_t *body, int64_t *ret_ms, struct err *err) {
    const json_t *v = json_object_get(body, "run_at");
    int64_t ms = 0;
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_string(v) || !clock_parse_rfc3339(json_string_value(v), &ms))
        return err_set(err, ERR_BAD_REQUEST,
                       "\"run_at\" must be a time such as \"2026-01-31T12:00:00Z\"");
    if (ms > clock_wall_ms() + (int64_t)AHEAD_S * 1000)
        return err_set(err, ERR_BAD_REQUEST, "\"run_at\" is more than a year ahead");
    *ret_ms = ms;
    return 0;
}

static int read_webhook(const json_t *body, struct ledger_task *t, struct err *err) {
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
    t->webhook = (char *)(uintptr_t)url;
    t->secret = (char *)(uintptr_t)secret;
    return rc;
}

/* A body that was read. */
struct task_asked {
    json_t *body;
    char *input; /* its text, or NULL */
    size_t input_len;
    char hash[65];  /* of the body, if it is large; else "" */
    struct err err; /* what its type says to the input */
};

static void hash_body(const char *body, size_t len, char hash[65]) {
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
    a.input_len = a.input ? strlen(a.input) : 0;
    if (len > LIMIT_READ_AT_ONCE_BYTES)
        hash_body(body, len, a.hash);
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

static int read_idem(const struct http_req *req, struct task_asked *asked, struct ledger_task *t,
                     struct err *err) {
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
        hash_body(body, len, asked->hash);
    t->idem = (char *)(uintptr_t)key;
    t->idem_hash = asked->hash;
    return 0;
}

/* What is the same for tasks of every type. Texts stay the body's. */
static int read_common(const json_t *body, struct ledger_task *t, struct err *err) {
    static const char *const keys[] = {"type",         "input",    "title",
                                       "run_at",       "priority", "timeout_ms",
                                       "max_attempts", "webhook",  NULL};
    const char *title = NULL;
    const char *type = NULL;
    t->timeout_ms = TIMEOUT_MS;
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
    t->type = (char *)(uintptr_t)type;
    t->title = (char *)(uintptr_t)title;
    return rc;
}

static int check_input(struct front *f, const struct task_asked *asked, const struct ledger_task *t,
                       struct err *err) {
    const json_t *input = json_object_get(asked->body, "input");
    const struct task_type *type = task_type_find(t->type, err);
    if (!type)
        return -(int)err->code;
    if (!json_is_object(input))
        return err_set(err, ERR_BAD_REQUEST, "\"input\" must be an object: what %s takes", t->type);
    int rc = tasks_check(f->tasks, type, input, err);
    if (rc == 0 && asked->err.code) {
        *err = asked->err;
        rc = -(int)err->code;
    }
    return rc < 0 ? err_wrap(err, "\"input\"") : 0;
}

static void respond_submitted(struct api_wait *w, const struct ledger_answer *a) {
    char location[ID_SIZE + 16];
    tasks_hint(w->front->tasks, NULL);
    if (!w->req)
        return;
    (void)snprintf(location, sizeof(location), "/v1/tasks/%s", a->tasks[0].id);
    http_res_header(w->req, "Location", location);
    if (a->repeated)
        http_res_header(w->req, "Idempotent-Replayed", "true");
    respond_task(w->req, 202, &a->tasks[0]);
}

static void submit(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    void *read = NULL;
    struct ledger_task t = {0};
    int rc = http_req_read(req, &read, &err);
    struct task_asked *asked = read;
    if (rc == 0)
        rc = read_common(asked->body, &t, &err);
    if (rc == 0)
        rc = read_idem(req, asked, &t, &err);
    if (rc == 0)
        rc = check_input(f, asked, &t, &err);
    if (rc == 0 && !asked->input)
        rc = err_set(&err, ERR_BAD_REQUEST, "\"input\" cannot be written");
    if (rc < 0) {
        http_respond_err(req, &err);
        return;
    }
    t.body = asked->input;
    t.body_len = asked->input_len;
    id_new("task", t.id);
    (void)snprintf(t.owner, sizeof(t.owner), "%s", front_identity(req)->key_id);
    api_ask(f, req,
            &(struct ledger_ask){.op = LEDGER_TASK_SUBMIT,
                                 .task = &t,
                                 .own_text = &asked->input,
                                 .per_key = (size_t)f->config->tasks.waiting_per_key,
                                 .body_bytes = f->config->tasks.waiting_mb_per_key << 20},
            respond_submitted);
}

/* --- the others --- */

/* False: it was answered. */
static bool read_id(struct http_req *req, struct ledger_task *t) {
    struct err err;
    const char *id = http_req_param(req, "id");
    if (id_is_valid("task", id, strlen(id))) {
        (void)snprintf(t->id, sizeof(t->id), "%s", id);
        return true;
    }
    (void)err_set(&err, ERR_NOT_FOUND, "there is no task \"%.40s\"", id);
    http_respond_err(req, &err);
    return false;
}

static void respond_got(struct api_wait *w, const struct ledger_answer *a) {
    if (w->req)
        respond_task(w->req, 200, &a->tasks[0]);
}

static void get(struct http_req *req, void *ctx) {
    struct ledger_task t = {0};
    if (read_id(req, &t))
        api_ask(ctx, req,
                &(struct ledger_ask){.op = LEDGER_TASK_GET, .task = &t, .owner = whose(req)},
                respond_got);
}

static void respond_cancelled(struct api_wait *w, const struct ledger_answer *a) {
    if (!a->err.code)
        tasks_hint(w->front->tasks, a->tasks[0].id);
    if (w->req)
        respond_task(w->req, 202, &a->tasks[0]);
}

static void cancel(struct http_req *req, void *ctx) {
    struct ledger_task t = {0};
    if (read_id(req, &t))
        api_ask(ctx, req,
                &(struct ledger_ask){.op = LEDGER_TASK_CANCEL, .task = &t, .owner = whose(req)},
                respond_cancelled);
}

static void write_listed(struct json_writer *j, const struct ledger_answer *a, size_t i) {
    write_task(j, &a->tasks[i], false);
}

static const char *listed_id(const struct ledger_answer *a, size_t i) {
    return a->tasks[i].id;
}

static void respond_list(struct api_wait *w, const struct ledger_answer *a) {
    api_respond_page(w, a,
                     &(struct api_page){.name = "tasks",
                                        .n = a->ntasks,
                                        .max_bytes = ANSWER_BYTES,
                                        .write = write_listed,
                                        .id = listed_id});
}

static void list(struct http_req *req, void *ctx) {
    struct err err;
    _cleanup_(free) char *cursor = NULL;
    _cleanup_(free) char *name = NULL;
    enum task_state state = TASK_QUEUED;
    struct ledger_ask what = {
        .op = LEDGER_TASK_LIST, .owner = whose(req), .state = -1, .limit = TASKS_DEFAULT};
    int rc = api_read_limit(req, &what.limit, &err);
    if (rc >= 0)
        rc = http_req_query_get(req, "cursor", &cursor, &err);
    if (rc > 0 && !id_is_valid("task", cursor, strlen(cursor)))
        rc = err_set(&err, ERR_BAD_REQUEST, "\"cursor\" must be a next_cursor of an earlier page");
    if (rc >= 0)
        rc = http_req_query_get(req, "state", &name, &err);
    if (rc > 0 && !task_state_parse(name, &state))
        rc = err_set(&err, ERR_BAD_REQUEST,
                     "\"state\" is queued, running, done, failed, cancelled or interrupted");
    if (rc < 0) {
        http_respond_err(req, &err);
        return;
    }
    if (name)
        what.state = (int)state;
    what.before = cursor;
    what.limit++; /* one more tells whether there is another page */
    api_ask(ctx, req, &what, respond_list);
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
    write_raw(&j, "usage", a->usage);
    write_raw(&j, "jobs", a->jobs);
    write_raw(&j, "today", a->today);
    json_writer_object_end(&j);
    http_respond_buf(w->req, 200, "application/json", &b);
}

static bool is_day(const char *text) {
    int64_t ms;
    _cleanup_(free) char *time = xasprintf("%.10sT00:00:00Z", text);
    return strlen(text) == 10 && clock_parse_rfc3339(time, &ms);
}

static void usage(struct http_req *req, void *ctx) {
    struct err err;
    _cleanup_(free) char *since = NULL;
    int rc = http_req_query_get(req, "since", &since, &err);
    if (rc > 0 && !is_day(since))
        rc = err_set(&err, ERR_BAD_REQUEST, "\"since\" must be a day such as 2026-01-31");
    if (rc < 0) {
        http_respond_err(req, &err);
        return;
    }
    accounts_tell(((struct front *)ctx)->accounts);
    api_ask(ctx, req,
            &(struct ledger_ask){
                .op = LEDGER_USAGE, .owner = whose(req), .before = since, .limit = USAGE_ROWS},
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

static void look(void *ctx);

static void on_timer_closed(uv_handle_t *h) {
    free(h->data);
}

static void stop_following(struct task_follower *w) {
    job_unfollow(w->follow);
    w->follow = NULL;
    task_unlisten(&w->listener);
    if (!uv_is_closing((uv_handle_t *)&w->timer))
        uv_close((uv_handle_t *)&w->timer, on_timer_closed);
}

static void end_following(struct task_follower *w) {
    struct http_req *req = w->req;
    w->req = NULL;
    if (req && w->begun)
        http_stream_end(req);
    else if (req)
        http_respond_empty(req, 499);
    if (!w->asking)
        stop_following(w);
}

static void on_follower_gone(void *ctx) {
    end_following(ctx);
}

static bool send_event(void *ctx, const struct job_event *e) {
    struct task_follower *w = ctx;
    char id[48];
    (void)snprintf(id, sizeof(id), "%lld.%lld", (long long)w->attempt, (long long)e->seq);
    w->full = !http_sse_send(w->req, e->type, id, e->json, e->len);
    return !w->full;
}

static void on_more(void *ctx) {
    struct task_follower *w = ctx;
    if (w->full || job_read(w->follow, send_event, w))
        return;
    job_unfollow(w->follow); /* that attempt is over */
    w->follow = NULL;
    look(w);
}

static void on_drain(void *ctx) {
    struct task_follower *w = ctx;
    w->full = false;
    if (w->follow)
        on_more(w);
}

static void send_end(struct task_follower *w, const struct ledger_task *t) {
    _cleanup_(buf) struct buf b;
    struct json_writer j;
    buf_init(&b, ANSWER_BYTES);
    json_writer_init(&j, &b);
    write_task(&j, t, true);
    (void)http_sse_send(w->req, "end", NULL, b.data, b.len);
    end_following(w);
}

static void begin_stream(struct task_follower *w) {
    if (w->begun)
        return;
    w->begun = true;
    http_res_header(w->req, "Cache-Control", "no-store");
    http_stream_begin(w->req, 200, "text/event-stream");
    http_stream_on_drain(w->req, on_drain, w);
}

/* The run of an attempt, as the ledger tells it; "" if there is none. */
static void run_of(const struct ledger_task *t, int64_t attempt, char out[ID_SIZE]) {
    _cleanup_(json) json_t *list = t->attempts ? json_loads(t->attempts, 0, NULL) : NULL;
    const json_t *a = json_array_get(list, (size_t)attempt - 1);
    const char *run = json_string_value(json_object_get(a, "run"));
    (void)snprintf(out, ID_SIZE, "%s", run ? run : "");
}

/* Goes on to the first attempt that was not read to its end. True: there is one. */
static bool next_attempt(struct task_follower *w, const struct ledger_task *t) {
    struct err err;
    while (w->attempt < t->attempt) {
        char run[ID_SIZE];
        w->attempt++;
        run_of(t, w->attempt, run);
        int rc = *run ? job_follow(w->front->jobs, run, (struct store_scope){.all = true}, w->after,
                                   on_more, w, &w->follow, &err)
                      : -1;
        w->after = 0;
        if (rc == 0)
            return true;
        /* It never came to be, or the store has forgotten it. */
    }
    return false;
}

static void on_looked(void *ctx, const struct ledger_answer *a) {
    struct task_follower *w = ctx;
    w->asking = false;
    if (!w->req) {
        stop_following(w);
        return;
    }
    if (a->err.code && !w->begun) {
        struct http_req *req = w->req;
        w->req = NULL;
        http_respond_err(req, &a->err);
        stop_following(w);
        return;
    }
    begin_stream(w);
    const struct ledger_task *t = a->ntasks > 0 ? &a->tasks[0] : NULL;
    if (t && next_attempt(w, t))
        return;
    if (t && t->finished_ms > 0)
        send_end(w, t);
    else if (w->changed)
        look(w);
}

static void look(void *ctx) {
    struct task_follower *w = ctx;
    struct ledger_task t = {0};
    w->changed = w->asking;
    if (w->asking || w->follow || !w->req)
        return;
    w->asking = true;
    memcpy(t.id, w->task, sizeof(t.id));
    ledger_call(
        w->front->ledger,
        &(struct ledger_ask){.op = LEDGER_TASK_GET, .task = &t, .owner = w->all ? NULL : w->owner},
        on_looked, w);
}

static void on_look_timer(uv_timer_t *t) {
    look(t->data);
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

static void follow(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    _cleanup_(free) char *after = NULL;
    struct ledger_task t = {0};
    struct task_follower *w = xcalloc(1, sizeof(*w));
    struct store_scope scope = front_scope(req);
    int rc = http_req_query_get(req, "after", &after, &err);
    if (rc >= 0)
        rc = read_after(after ? after : http_req_header(req, "last-event-id"), &w->attempt,
                        &w->after, &err);
    if (rc < 0)
        http_respond_err(req, &err);
    if (rc < 0 || !read_id(req, &t)) {
        free(w);
        return;
    }
    w->front = f;
    w->req = req;
    w->all = scope.all;
    (void)snprintf(w->owner, sizeof(w->owner), "%s", scope.owner);
    memcpy(w->task, t.id, sizeof(w->task));
    w->listener = (struct task_listener){.on_change = look, .ctx = w};
    memcpy(w->listener.task, t.id, sizeof(w->listener.task));
    task_listen(f->tasks, &w->listener);
    (void)uv_timer_init(f->loop, &w->timer);
    w->timer.data = w;
    (void)uv_timer_start(&w->timer, on_look_timer, LOOK_MS, LOOK_MS);
    http_req_on_gone(req, on_follower_gone, w);
    look(w);
}

void api_tasks_routes(struct front *f) {
    f->task_reader = (struct http_reader){.read = read_asked,
                                          .free = free_asked,
                                          .how = &f->runner->config.limits,
                                          .how_bytes = sizeof(f->runner->config.limits)};
    const struct http_route routes[] = {
        {.methods = "POST",
         .pattern = "/v1/tasks",
         .handler = submit,
         .body_bytes = BODY_BYTES,
         .reader = &f->task_reader},
        {.methods = "GET", .pattern = "/v1/tasks", .handler = list, .flags = FRONT_ROUTE_READ},
        {.methods = "GET", .pattern = "/v1/tasks/{id}", .handler = get, .flags = FRONT_ROUTE_READ},
        {.methods = "POST", .pattern = "/v1/tasks/{id}/cancel", .handler = cancel},
        {.methods = "GET", .pattern = "/v1/usage", .handler = usage, .flags = FRONT_ROUTE_READ},
        {.methods = "GET",
         .pattern = "/v1/tasks/{id}/events",
         .handler = follow,
         .flags = FRONT_ROUTE_READ | HTTP_ROUTE_WATCH},
    };
    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        struct http_route r = routes[i];
        r.ctx = f;
        http_server_route(f->http, &r);
    }
}
