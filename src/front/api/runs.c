#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "front/api/api.h"
#include "front/http/follower.h"
#include "front/job/answer.h"
#include "front/job/job.h"
#include "front/server/guard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER_MAX_BYTES = 32 << 20, RUNS_DEFAULT = 20, RUNS_TEXT_BYTES = 200 };
enum {
    RUNS_CURSOR,
    RUNS_KIND,
    RUNS_STATUS,
    RUNS_TEXT,
    RUNS_KEY,
    RUNS_PROJECT,
    RUNS_SINCE,
    RUNS_UNTIL,
    RUNS_TEXTS
};

/* A job in the path is named by its id, or by the UUID that is the same. */
const char *api_run_id(const struct http_req *req, char out[ID_SIZE]) {
    const char *name = http_req_param(req, "id");
    return id_from_uuid("run", name, out) ? out : name;
}

static void api_runs_on_run(void *ctx, const struct store_run *r) {
    struct json_writer *w = ctx;
    json_writer_object_begin(w);
    job_answer_run(w, r);
    json_writer_object_end(w);
}

int api_read_limit(const struct http_req *req, size_t *ret_limit, struct err *err) {
    _cleanup_(free) char *text = NULL;
    int rc = http_req_query_get(req, "limit", &text, err);
    if (rc <= 0)
        return rc;
    char *end = NULL;
    unsigned long v = strtoul(text, &end, 10);
    if (*end || text[0] < '0' || text[0] > '9' || v < 1 || v > LIMIT_PAGE_ROWS)
        return err_set(err, ERR_BAD_REQUEST, "\"limit\" must be a number from 1 to %d",
                       LIMIT_PAGE_ROWS);
    *ret_limit = v;
    return 0;
}

/* --- a page of them --- */

/* What a query points to. */
struct runs_filter {
    struct store_run_query query;
    char *texts[RUNS_TEXTS];
    char id[ID_SIZE];
};

static void runs_filter_finish(struct runs_filter *f) {
    for (size_t i = 0; i < RUNS_TEXTS; i++)
        free(f->texts[i]);
}

static int check_cursor(const struct http_req *req, struct runs_filter *f, struct err *err) {
    (void)req;
    f->query.before = f->texts[RUNS_CURSOR];
    if (id_is_valid("run", f->query.before, strlen(f->query.before)))
        return 0;
    return err_set(err, ERR_BAD_REQUEST, "\"cursor\" must be a next_cursor of an earlier page");
}

static int api_runs_check_kind(const struct http_req *req, struct runs_filter *f, struct err *err) {
    (void)req;
    (void)err;
    f->query.kind = f->texts[RUNS_KIND];
    return 0;
}

static int check_status(const struct http_req *req, struct runs_filter *f, struct err *err) {
    (void)req;
    if (job_status_parse(f->texts[RUNS_STATUS], &f->query.status))
        return 0;
    return err_set(err, ERR_BAD_REQUEST,
                   "\"status\" must be running, done, failed, interrupted or cancelled");
}

static int check_text(const struct http_req *req, struct runs_filter *f, struct err *err) {
    const char *text = f->texts[RUNS_TEXT];
    (void)req;
    if (strlen(text) > RUNS_TEXT_BYTES)
        return err_set(err, ERR_BAD_REQUEST, "\"text\" has at most %d bytes", RUNS_TEXT_BYTES);
    if (*text)
        f->query.text = id_from_uuid("run", text, f->id) ? f->id : text;
    return 0;
}

/* Of what may be seen anyway: those that one key began. */
static int check_key(const struct http_req *req, struct runs_filter *f, struct err *err) {
    const char *key = f->texts[RUNS_KEY];
    (void)req;
    f->query.key = strcmp(key, GUARD_NO_KEY) == 0 ? "" : key;
    if (*f->query.key && !id_is_valid("key", key, strlen(key)))
        return err_set(err, ERR_BAD_REQUEST,
                       "\"key\" must be the id of a key (`cay key list`), or \"%s\"", GUARD_NO_KEY);
    return 0;
}

/* Of one project: another than one's own is for those who see all. */
static int api_runs_check_project(const struct http_req *req, struct runs_filter *f,
                                  struct err *err) {
    const char *project = f->texts[RUNS_PROJECT];
    const char *owner = strcmp(project, "default") == 0 ? "" : project;
    struct store_scope scope = front_scope(req);
    if (*owner && !id_is_valid("prj", owner, strlen(owner)) &&
        !id_is_valid("key", owner, strlen(owner)))
        return err_set(err, ERR_BAD_REQUEST,
                       "\"project\" must be the id of a project (`cay project list`)");
    if (!scope.all && strcmp(scope.owner, owner) != 0)
        return err_set(err, ERR_FORBIDDEN,
                       "the runs of other projects are for admin keys of the server");
    f->query.scope = (struct store_scope){.owner = owner};
    return 0;
}

static int api_runs_read_time(const char *name, const char *text, int64_t *ret_ms,
                              struct err *err) {
    if (clock_parse_rfc3339(text, ret_ms) && *ret_ms > 0)
        return 0;
    return err_set(err, ERR_BAD_REQUEST,
                   "\"%s\" must be a time such as 2026-01-31T12:00:00Z (\"+\" is %%2B)", name);
}

static int check_since(const struct http_req *req, struct runs_filter *f, struct err *err) {
    (void)req;
    return api_runs_read_time("since", f->texts[RUNS_SINCE], &f->query.since_ms, err);
}

static int check_until(const struct http_req *req, struct runs_filter *f, struct err *err) {
    (void)req;
    return api_runs_read_time("until", f->texts[RUNS_UNTIL], &f->query.until_ms, err);
}

static int read_filter(const struct http_req *req, struct runs_filter *f, struct err *err) {
    static const struct {
        const char *name;
        int (*check)(const struct http_req *req, struct runs_filter *f, struct err *err);
    } params[RUNS_TEXTS] = {[RUNS_CURSOR] = {"cursor", check_cursor},
                            [RUNS_KIND] = {"kind", api_runs_check_kind},
                            [RUNS_STATUS] = {"status", check_status},
                            [RUNS_TEXT] = {"text", check_text},
                            [RUNS_KEY] = {"key", check_key},
                            [RUNS_PROJECT] = {"project", api_runs_check_project},
                            [RUNS_SINCE] = {"since", check_since},
                            [RUNS_UNTIL] = {"until", check_until}};
    const char *names[RUNS_TEXTS + 2] = {"limit"};
    for (size_t i = 0; i < RUNS_TEXTS; i++)
        names[i + 1] = params[i].name;
    int rc = http_req_query_check(req, names, err);
    if (rc == 0)
        rc = api_read_limit(req, &f->query.limit, err);
    for (size_t i = 0; rc >= 0 && i < RUNS_TEXTS; i++) {
        rc = http_req_query_get(req, params[i].name, &f->texts[i], err);
        if (rc > 0)
            rc = params[i].check(req, f, err);
    }
    return rc;
}

static void api_runs_list(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    struct runs_filter filter = {.query = {.scope = front_scope(req), .limit = RUNS_DEFAULT}};
    char next[ID_SIZE] = "";
    struct buf b;
    struct json_writer w;
    buf_init(&b, ANSWER_MAX_BYTES);
    json_writer_init(&w, &b);
    json_writer_object_begin(&w);
    json_put_array_begin(&w, "runs");
    int rc = read_filter(req, &filter, &err);
    if (rc >= 0)
        rc = store_run_list(f->store, &filter.query, api_runs_on_run, &w, next, &err);
    runs_filter_finish(&filter);
    if (rc < 0) {
        buf_finish(&b);
        http_respond_err(req, &err);
        return;
    }
    json_writer_array_end(&w);
    json_put_str(&w, "next_cursor", *next ? next : NULL);
    json_writer_object_end(&w);
    http_respond_buf(req, 200, "application/json", &b);
}

static void respond_run(struct front *f, struct http_req *req, const char *id) {
    struct err err;
    struct buf b;
    buf_init(&b, ANSWER_MAX_BYTES);
    if (job_answer(f->store, id, front_scope(req), &b, &err) < 0) {
        buf_finish(&b);
        http_respond_err(req, &err);
        return;
    }
    http_respond_buf(req, 200, "application/json", &b);
}

static void api_runs_get(struct http_req *req, void *ctx) {
    char id[ID_SIZE];
    respond_run(ctx, req, api_run_id(req, id));
}

/* --- following one --- */

struct run_follower {
    struct http_follower out;
    struct front *front;
    struct job_follow *follow;
    struct api_following how;
    char prefix[UUID_SIZE + 1];
};

static bool api_runs_send_event(void *ctx, const struct job_event *e) {
    struct run_follower *w = ctx;
    if (!w->how.stream)
        return true;
    char seq[UUID_SIZE + 24];
    (void)snprintf(seq, sizeof(seq), "%s%lld", w->prefix, (long long)e->seq);
    return http_follower_send(&w->out, e->type, seq, e->json, e->len);
}

static void api_runs_write_end(struct front *f, struct http_req *req, const char *id,
                               struct buf *out) {
    struct err err;
    struct store_run r;
    if (store_run_look(f->store, id, front_scope(req), 0, &r, &err) < 0)
        return;
    struct json_writer j;
    json_writer_init(&j, out);
    json_writer_object_begin(&j);
    job_answer_run(&j, &r);
    json_writer_object_end(&j);
    store_run_finish(&r);
}

static enum http_next api_runs_next(void *ctx) {
    struct run_follower *w = ctx;
    return job_read(w->follow, api_runs_send_event, w) ? HTTP_NEXT_WAIT : HTTP_NEXT_END;
}

/* The last event, or the answer: what became of it. */
static void api_runs_end(void *ctx) {
    struct run_follower *w = ctx;
    if (!w->how.stream) {
        w->how.respond(w->front, w->out.req, job_followed(w->follow));
        return;
    }
    _cleanup_(buf) struct buf b;
    buf_init(&b, ANSWER_MAX_BYTES);
    w->how.write_end(w->front, w->out.req, job_followed(w->follow), &b);
    if (b.len > 0)
        (void)http_follower_send(&w->out, "end", NULL, b.data, b.len);
}

static void api_runs_on_gone(void *ctx) {
    struct run_follower *w = ctx;
    struct err ignored;
    if (!w->how.stream && w->how.cancels)
        (void)job_cancel(w->front->jobs, job_followed(w->follow), front_scope(w->out.req),
                         &ignored);
}

static void api_runs_stop_following(void *ctx) {
    struct run_follower *w = ctx;
    job_unfollow(w->follow);
    free(w);
}

static int api_runs_read_number(const char *text, int64_t *ret, struct err *err) {
    char *end = NULL;
    if (!text)
        return 0;
    *ret = strtoll(text, &end, 10);
    if (*end || *text < '0' || *text > '9' || *ret < 0)
        return err_set(err, ERR_BAD_REQUEST, "\"after\" must be the number of an event");
    return 0;
}

/* From the event after ?after=N, or after the Last-Event-ID that a browser sends by itself. */
static void api_runs_follow(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    char id[ID_SIZE];
    _cleanup_(free) char *after_text = NULL;
    int64_t after = 0;
    int rc = http_req_query_get(req, "after", &after_text, &err);
    if (rc >= 0)
        rc = api_runs_read_number(after_text ? after_text : http_req_header(req, "last-event-id"),
                                  &after, &err);
    if (rc < 0)
        http_respond_err(req, &err);
    else
        api_follow(f, req, api_run_id(req, id), after, true);
}

void api_follow(struct front *f, struct http_req *req, const char *id, int64_t after, bool stream) {
    api_follow_as(f, req, &(struct api_following){.id = id, .after = after, .stream = stream});
}

void api_follow_as(struct front *f, struct http_req *req, const struct api_following *how) {
    static const struct http_follower_type type = {.next = api_runs_next,
                                                   .end = api_runs_end,
                                                   .gone = api_runs_on_gone,
                                                   .free = api_runs_stop_following};
    struct err err;
    struct run_follower *w = xcalloc(1, sizeof(*w));
    *w = (struct run_follower){.front = f, .how = *how};
    if (how->prefix)
        (void)snprintf(w->prefix, sizeof(w->prefix), "%.36s.", how->prefix);
    if (!how->respond)
        w->how.respond = respond_run;
    if (!how->write_end)
        w->how.write_end = api_runs_write_end;
    if (job_follow(f->jobs, how->id, front_scope(req), how->after, http_follower_more, &w->out,
                   &w->follow, &err) < 0) {
        free(w);
        http_respond_err(req, &err);
        return;
    }
    http_follower_init(&w->out, req, &type, w);
    if (how->stream)
        http_follower_begin(&w->out, NULL);
}

static void api_runs_cancel(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    char id[ID_SIZE];
    if (job_cancel(f->jobs, api_run_id(req, id), front_scope(req), &err) < 0)
        http_respond_err(req, &err);
    else
        http_respond_empty(req, 202);
}

void api_runs_routes(struct front *f) {
    const struct http_route routes[] = {
        {"GET", "/v1/runs", api_runs_list, f, FRONT_ROUTE_READ, 0},
        {"GET", "/v1/runs/{id}", api_runs_get, f, FRONT_ROUTE_READ, 0},
        {"GET", "/v1/runs/{id}/events", api_runs_follow, f, FRONT_ROUTE_READ | HTTP_ROUTE_WATCH, 0},
        {"POST", "/v1/runs/{id}/cancel", api_runs_cancel, f, FRONT_ROUTE_LATE, 0},
    };
    http_server_routes(f->http, routes, ARRAY_LEN(routes));
}
