#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "front/api/api.h"
#include "front/job/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER_MAX_BYTES = 32 << 20, EVENTS_MAX = 1000, RUNS_DEFAULT = 20 };

/* Jobs that began by an interface of UUIDs are told by theirs. */
static bool is_told_by_uuid(const char *kind) {
    return strcmp(kind, "sdk") == 0 || strcmp(kind, "execute") == 0;
}

/* A job in the path is named by its id, or by the UUID that is the same. */
const char *api_run_id(const struct http_req *req, char out[ID_SIZE]) {
    const char *name = http_req_param(req, "id");
    return id_from_uuid("run", name, out) ? out : name;
}

static void write_run(struct json_writer *w, const struct store_run *r) {
    char text[CLOCK_RFC3339_SIZE];
    char uuid[UUID_SIZE];
    json_writer_key(w, "id");
    json_writer_str(w, is_told_by_uuid(r->kind) ? id_to_uuid(r->id, uuid) : r->id);
    json_writer_key(w, "kind");
    json_writer_str(w, r->kind);
    json_writer_key(w, "status");
    json_writer_str(w, r->status);
    json_writer_key(w, "title");
    json_writer_str(w, r->title);
    json_writer_key(w, "created_at");
    json_writer_str(w, clock_rfc3339(r->created_ms, text));
    json_writer_key(w, "finished_at");
    json_writer_str(w, r->finished_ms ? clock_rfc3339(r->finished_ms, text) : NULL);
    json_writer_key(w, "duration_ms");
    if (r->finished_ms)
        json_writer_int(w, r->finished_ms - r->created_ms);
    else
        json_writer_null(w);
    json_writer_key(w, "error");
    if (r->error_code) {
        json_writer_object_begin(w);
        json_writer_key(w, "code");
        json_writer_str(w, r->error_code);
        json_writer_key(w, "message");
        json_writer_str(w, r->error_message);
        json_writer_object_end(w);
    } else {
        json_writer_null(w);
    }
}

struct runs_page {
    struct json_writer w;
    size_t limit;
    size_t n;
    char last[ID_SIZE];
    bool more;
};

static void on_run(void *ctx, const struct store_run *r) {
    struct runs_page *p = ctx;
    if (p->n == p->limit) {
        p->more = true;
        return;
    }
    p->n++;
    memcpy(p->last, r->id, sizeof(p->last));
    json_writer_object_begin(&p->w);
    write_run(&p->w, r);
    json_writer_object_end(&p->w);
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

static void list(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    _cleanup_(free) char *cursor = NULL;
    _cleanup_(free) char *kind = NULL;
    struct runs_page p = {.limit = RUNS_DEFAULT};
    int rc = api_read_limit(req, &p.limit, &err);
    if (rc >= 0)
        rc = http_req_query_get(req, "cursor", &cursor, &err);
    if (rc > 0 && !id_is_valid("run", cursor, strlen(cursor)))
        rc = err_set(&err, ERR_BAD_REQUEST, "\"cursor\" must be a next_cursor of an earlier page");
    if (rc >= 0)
        rc = http_req_query_get(req, "kind", &kind, &err);
    struct buf b;
    buf_init(&b, ANSWER_MAX_BYTES);
    json_writer_init(&p.w, &b);
    json_writer_object_begin(&p.w);
    json_writer_key(&p.w, "runs");
    json_writer_array_begin(&p.w);
    struct store_run_query q = {
        .scope = front_scope(req), .kind = kind, .before = cursor, .limit = p.limit + 1};
    if (rc >= 0)
        rc = store_run_list(f->store, &q, on_run, &p, &err);
    if (rc < 0) {
        buf_finish(&b);
        http_respond_err(req, &err);
        return;
    }
    json_writer_array_end(&p.w);
    json_writer_key(&p.w, "next_cursor");
    json_writer_str(&p.w, p.more ? p.last : NULL);
    json_writer_object_end(&p.w);
    http_respond_buf(req, 200, "application/json", &b);
}

static void on_event(void *ctx, const struct store_event *e) {
    struct json_writer *w = ctx;
    char text[CLOCK_RFC3339_SIZE];
    json_writer_object_begin(w);
    json_writer_key(w, "seq");
    json_writer_int(w, e->seq);
    json_writer_key(w, "time");
    json_writer_str(w, clock_rfc3339(e->time_ms, text));
    json_writer_key(w, "type");
    json_writer_str(w, e->type);
    json_writer_key(w, "data");
    json_writer_raw(w, e->json, strlen(e->json));
    json_writer_object_end(w);
}

static void respond_run(struct front *f, struct http_req *req, const char *id) {
    struct err err;
    struct store_run r;
    if (store_run_get(f->store, id, front_scope(req), &r, &err) < 0) {
        http_respond_err(req, &err);
        return;
    }
    struct buf b;
    buf_init(&b, ANSWER_MAX_BYTES);
    struct json_writer w;
    json_writer_init(&w, &b);
    json_writer_object_begin(&w);
    write_run(&w, &r);
    json_writer_key(&w, "detail");
    if (r.detail)
        json_writer_raw(&w, r.detail, strlen(r.detail));
    else
        json_writer_null(&w);
    json_writer_key(&w, "events");
    json_writer_array_begin(&w);
    int rc = store_event_list(f->store, id, 0, EVENTS_MAX, on_event, &w, &err);
    json_writer_array_end(&w);
    json_writer_object_end(&w);
    store_run_finish(&r);
    if (rc < 0) {
        buf_finish(&b);
        http_respond_err(req, &err);
        return;
    }
    http_respond_buf(req, 200, "application/json", &b);
}

static void get(struct http_req *req, void *ctx) {
    char id[ID_SIZE];
    respond_run(ctx, req, api_run_id(req, id));
}

/* --- following one --- */

struct run_follower {
    struct front *front;
    struct http_req *req;
    struct job_follow *follow;
    bool full; /* the client has not read what it was sent */
    struct api_following how;
    char prefix[UUID_SIZE + 1];
};

static void stop_following(struct run_follower *w) {
    job_unfollow(w->follow);
    free(w);
}

static bool send_event(void *ctx, const struct job_event *e) {
    struct run_follower *w = ctx;
    if (!w->how.stream)
        return true;
    char seq[UUID_SIZE + 24];
    (void)snprintf(seq, sizeof(seq), "%s%lld", w->prefix, (long long)e->seq);
    w->full = !http_sse_send(w->req, e->type, seq, e->json, e->len);
    return !w->full;
}

static void write_end(struct front *f, struct http_req *req, const char *id, struct buf *out) {
    struct err err;
    struct store_run r;
    if (store_run_get(f->store, id, front_scope(req), &r, &err) < 0)
        return;
    struct json_writer j;
    json_writer_init(&j, out);
    json_writer_object_begin(&j);
    write_run(&j, &r);
    json_writer_object_end(&j);
    store_run_finish(&r);
}

/* The last event: what became of it. */
static void send_end(struct run_follower *w) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, ANSWER_MAX_BYTES);
    w->how.write_end(w->front, w->req, job_followed(w->follow), &b);
    if (b.len > 0)
        (void)http_sse_send(w->req, "end", NULL, b.data, b.len);
}

static void on_more(void *ctx) {
    struct run_follower *w = ctx;
    if (w->full || job_read(w->follow, send_event, w))
        return;
    if (w->how.stream) {
        send_end(w);
        http_stream_end(w->req);
    } else {
        w->how.respond(w->front, w->req, job_followed(w->follow));
    }
    stop_following(w);
}

static void on_drain(void *ctx) {
    struct run_follower *w = ctx;
    w->full = false;
    on_more(w);
}

static void on_follower_gone(void *ctx) {
    struct run_follower *w = ctx;
    struct err ignored;
    if (!w->how.stream && w->how.cancels)
        (void)job_cancel(w->front->jobs, job_followed(w->follow), front_scope(w->req), &ignored);
    if (w->how.stream)
        http_stream_end(w->req);
    else
        http_respond_empty(w->req, 499);
    stop_following(w);
}

static int read_number(const char *text, int64_t *ret, struct err *err) {
    char *end = NULL;
    if (!text)
        return 0;
    *ret = strtoll(text, &end, 10);
    if (*end || *text < '0' || *text > '9' || *ret < 0)
        return err_set(err, ERR_BAD_REQUEST, "\"after\" must be the number of an event");
    return 0;
}

/* From the event after ?after=N, or after the Last-Event-ID that a browser sends by itself. */
static void follow(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    char id[ID_SIZE];
    _cleanup_(free) char *after_text = NULL;
    int64_t after = 0;
    int rc = http_req_query_get(req, "after", &after_text, &err);
    if (rc >= 0)
        rc = read_number(after_text ? after_text : http_req_header(req, "last-event-id"), &after,
                         &err);
    if (rc < 0)
        http_respond_err(req, &err);
    else
        api_follow(f, req, api_run_id(req, id), after, true);
}

void api_follow(struct front *f, struct http_req *req, const char *id, int64_t after, bool stream) {
    api_follow_as(f, req, &(struct api_following){.id = id, .after = after, .stream = stream});
}

void api_follow_as(struct front *f, struct http_req *req, const struct api_following *how) {
    struct err err;
    struct run_follower *w = xcalloc(1, sizeof(*w));
    *w = (struct run_follower){.front = f, .req = req, .how = *how};
    if (how->prefix)
        (void)snprintf(w->prefix, sizeof(w->prefix), "%.36s.", how->prefix);
    if (!how->respond)
        w->how.respond = respond_run;
    if (!how->write_end)
        w->how.write_end = write_end;
    if (job_follow(f->jobs, how->id, front_scope(req), how->after, on_more, w, &w->follow, &err) <
        0) {
        free(w);
        http_respond_err(req, &err);
        return;
    }
    http_req_on_gone(req, on_follower_gone, w);
    if (!how->stream)
        return;
    http_res_header(req, "Cache-Control", "no-store");
    http_stream_begin(req, 200, "text/event-stream");
    http_stream_on_drain(req, on_drain, w);
}

static void cancel(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    char id[ID_SIZE];
    if (job_cancel(f->jobs, api_run_id(req, id), front_scope(req), &err) < 0)
        http_respond_err(req, &err);
    else
        http_respond_empty(req, 202);
}

void api_runs_routes(struct front *f) {
    http_server_route(f->http, &(struct http_route){.methods = "GET",
                                                    .pattern = "/v1/runs",
                                                    .handler = list,
                                                    .ctx = f,
                                                    .flags = FRONT_ROUTE_READ});
    http_server_route(f->http, &(struct http_route){.methods = "GET",
                                                    .pattern = "/v1/runs/{id}",
                                                    .handler = get,
                                                    .ctx = f,
                                                    .flags = FRONT_ROUTE_READ});
    http_server_route(f->http, &(struct http_route){.methods = "GET",
                                                    .pattern = "/v1/runs/{id}/events",
                                                    .handler = follow,
                                                    .ctx = f,
                                                    .flags = FRONT_ROUTE_READ | HTTP_ROUTE_WATCH});
    http_server_route(f->http, &(struct http_route){.methods = "POST",
                                                    .pattern = "/v1/runs/{id}/cancel",
                                                    .handler = cancel,
                                                    .ctx = f});
}
