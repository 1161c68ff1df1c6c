#include "base/cleanup.h"
#include "base/mem.h"
#include "front/api/api.h"
#include "front/http/follower.h"
#include "front/job/job.h"
#include "front/task/tasks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* GET /v1/tasks/{id}/events: the events of a task, over all its attempts. Each attempt has a job,
 * whose events are followed; between two of them the ledger is asked what became of the task. */

enum { LOOK_MS = 1000 }; /* how often the ledger is asked, if nobody says anything */

struct task_follower {
    struct http_follower out;
    struct front *front;
    char task[ID_SIZE];
    char owner[ID_SIZE];
    bool all;
    int64_t attempt; /* which is followed, or was last */
    int64_t after;   /* of it */
    struct job_follow *follow;
    struct task_listener listener;
    uv_timer_t timer;
    bool asking;
    bool changed; /* while it was asking */
};

static void api_task_events_look(void *ctx);

static void api_task_events_on_closed(uv_handle_t *h) {
    free(h->data);
}

/* What was asked of the ledger comes back first. */
static void api_task_events_free(void *ctx) {
    struct task_follower *w = ctx;
    if (w->asking)
        return;
    job_unfollow(w->follow);
    task_unlisten(&w->listener);
    uv_close((uv_handle_t *)&w->timer, api_task_events_on_closed);
}

static bool api_task_events_send(void *ctx, const struct job_event *e) {
    struct task_follower *w = ctx;
    char id[48];
    (void)snprintf(id, sizeof(id), "%lld.%lld", (long long)w->attempt, (long long)e->seq);
    return http_follower_send(&w->out, e->type, id, e->json, e->len);
}

static enum http_next api_task_events_next(void *ctx) {
    struct task_follower *w = ctx;
    if (!w->follow || job_read(w->follow, api_task_events_send, w))
        return HTTP_NEXT_WAIT;
    job_unfollow(w->follow); /* that attempt is over */
    w->follow = NULL;
    api_task_events_look(w);
    return HTTP_NEXT_WAIT;
}

static void api_task_events_end(struct task_follower *w, const struct ledger_task *t) {
    _cleanup_(buf) struct buf b;
    struct json_writer j;
    buf_init(&b, API_TASK_BYTES);
    json_writer_init(&j, &b);
    api_task_write(&j, t, true);
    (void)http_follower_send(&w->out, "end", NULL, b.data, b.len);
    http_follower_end(&w->out);
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
            w->follow =
                job_follow_known(w->front->jobs, run, w->after, http_follower_more, &w->out);
        w->after = 0;
        if (w->follow)
            return true;
    }
    return false;
}

static void api_task_events_on_looked(void *ctx, const struct ledger_answer *a) {
    struct task_follower *w = ctx;
    const struct ledger_task *t = a->err.code ? NULL : &a->task_got.task;
    w->asking = false;
    if (!w->out.req) {
        api_task_events_free(w);
        return;
    }
    if (!t && !w->out.streams) {
        http_follower_fail(&w->out, &a->err);
        return;
    }
    http_follower_begin(&w->out, NULL);
    if (t && next_attempt(w, t))
        return;
    if (t && t->finished_ms > 0)
        api_task_events_end(w, t);
    else if (w->changed)
        api_task_events_look(w);
}

static void api_task_events_look(void *ctx) {
    struct task_follower *w = ctx;
    w->changed = w->asking;
    if (w->asking || w->follow || !w->out.req)
        return;
    w->asking = true;
    ledger_call(
        w->front->ledger,
        &(struct ledger_ask){.op = LEDGER_TASK_GET,
                             .task_get = {.id = w->task, .owner = w->all ? NULL : w->owner}},
        api_task_events_on_looked, w);
}

static void api_task_events_on_timer(uv_timer_t *t) {
    api_task_events_look(t->data);
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

static void api_task_events_start(struct front *f, struct http_req *req, struct task_follower *w) {
    static const struct http_follower_type type = {.next = api_task_events_next,
                                                   .free = api_task_events_free};
    struct store_scope scope = front_scope(req);
    w->front = f;
    w->all = scope.all;
    (void)snprintf(w->owner, sizeof(w->owner), "%s", scope.owner);
    w->listener = (struct task_listener){.on_change = api_task_events_look, .ctx = w};
    memcpy(w->listener.task, w->task, sizeof(w->listener.task));
    task_listen(f->tasks, &w->listener);
    (void)uv_timer_init(f->loop, &w->timer);
    w->timer.data = w;
    (void)uv_timer_start(&w->timer, api_task_events_on_timer, LOOK_MS, LOOK_MS);
    http_follower_init(&w->out, req, &type, w);
    api_task_events_look(w);
}

static void api_task_events_follow(struct http_req *req, void *ctx) {
    struct err err;
    _cleanup_(free) char *after = NULL;
    struct task_follower *w = xcalloc(1, sizeof(*w));
    int rc = http_req_query_get(req, "after", &after, &err);
    if (rc >= 0)
        rc = read_after(after ? after : http_req_header(req, "last-event-id"), &w->attempt,
                        &w->after, &err);
    if (rc < 0)
        http_respond_err(req, &err);
    const char *id = rc < 0 ? NULL : api_task_id(req);
    if (!id) {
        free(w);
        return;
    }
    (void)snprintf(w->task, sizeof(w->task), "%s", id);
    api_task_events_start(ctx, req, w);
}

void api_task_events_routes(struct front *f) {
    http_server_route(f->http, &(struct http_route){.methods = "GET",
                                                    .pattern = "/v1/tasks/{id}/events",
                                                    .handler = api_task_events_follow,
                                                    .ctx = f,
                                                    .flags = FRONT_ROUTE_READ | HTTP_ROUTE_WATCH});
}
