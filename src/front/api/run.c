#include "base/cleanup.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "front/api/api.h"
#include "front/http/follower.h"
#include "front/run/ask.h"
#include "front/run/tails.h"
#include "front/run/workers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A run that a request waits for. */
struct run_wait {
    struct http_follower out;
    struct front *front;
    struct run *run;
    json_t *tails;
    char owner[ID_SIZE];
};

static void send_tails(struct run_wait *w, const char *run_id, const char *record, size_t len) {
    size_t i;
    const json_t *t;
    struct err err;
    json_array_foreach(w->tails, i, t) {
        const char *url = json_string_value(json_object_get(t, "url"));
        if (url)
            tails_post(w->front->tails, run_id, url, record, len);
        const char *id = json_string_value(json_object_get(t, "run"));
        if (id && store_event_send(w->front->store, id, (struct store_scope){.owner = w->owner},
                                   "tail", record, len, &err) < 0)
            log_warn("tail.failed", "run", run_id, "to", id, "error", err.message);
    }
}

static void api_run_on_log(void *ctx, const char *level, const char *json, size_t len) {
    (void)level;
    struct run_wait *w = ctx;
    if (w->out.req && w->out.streams)
        (void)http_follower_send(&w->out, "log", NULL, json, len);
}

static void free_wait(struct run_wait *w) {
    json_decref(w->tails);
    free(w);
}

static void api_run_on_done(void *ctx, const struct run *run, const char *record, size_t len) {
    struct run_wait *w = ctx;
    struct http_req *req = w->out.req;
    const struct err *failure = run_failure(run);
    send_tails(w, run_id(run), record, len);
    if (req && w->out.streams) {
        (void)http_follower_send(&w->out, "result", NULL, record, len);
        http_follower_end(&w->out);
    } else if (req && failure && failure->code == ERR_RATE) {
        http_respond_err(req, failure); /* there was no room: it was not tried */
    } else if (req) {
        http_respond(req, 200, "application/json", record, len);
    }
    free_wait(w);
}

/* The client left: its run is of no use to anybody. */
static void api_run_on_gone(void *ctx) {
    struct run_wait *w = ctx;
    run_cancel(w->run);
}

static void start_run(struct front *f, struct http_req *req, struct run_asked *asked) {
    static const struct http_follower_type type = {.gone = api_run_on_gone};
    struct err err;
    json_t *tails = json_object_get(asked->body, "tails");
    if (tails_check(f->tails, tails, &err) < 0) {
        http_respond_err(req, &err);
        return;
    }
    struct run_wait *w = xcalloc(1, sizeof(*w));
    w->front = f;
    w->tails = json_incref(tails);
    (void)snprintf(w->owner, sizeof(w->owner), "%s", front_project(req));
    w->run = run_ask_start(
        &(struct run_ask){.runner = f->runner,
                          .jobs = f->jobs,
                          .workers = f->workers,
                          .owner = w->owner,
                          .key = front_key(req),
                          .body = asked->body,
                          .read = asked,
                          .callbacks = {.on_log = api_run_on_log, .on_done = api_run_on_done},
                          .ctx = w},
        &err);
    if (!w->run) { /* it was never begun */
        http_respond_err(req, &err);
        free_wait(w);
        return;
    }
    http_follower_init(&w->out, req, &type, w);
    if (http_req_accepts(req, "text/event-stream")) {
        http_hold(req); /* it names the run */
        http_follower_begin(&w->out, NULL);
    }
}

static void run_request(struct http_req *req, void *ctx) {
    struct err err;
    void *asked;
    if (http_req_read(req, &asked, &err) < 0)
        http_respond_err(req, &err);
    else
        start_run(ctx, req, asked);
}

/* --- workers --- */

static void respond_put(struct api_wait *w, const struct ledger_answer *a) {
    if (!w->req)
        return;
    const struct ledger_worker *k = &a->worker_stored.worker;
    const char *port = strrchr(http_req_authority(w->req), ':');
    _cleanup_(free) char *url = xasprintf("http://%s.localhost%s/", k->label, port ? port : "");
    _cleanup_(json) json_t *out =
        json_pack("{s:s,s:s,s:s}", "id", k->id, "host", k->label, "url", url);
    http_respond_json(w->req, 200, out);
}

static void worker_put(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    const struct store_settings *most = &f->config->store;
    struct err err;
    struct ledger_worker k;
    void *read = NULL;
    int rc = http_req_read(req, &read, &err);
    struct worker_asked *asked = read;
    if (rc == 0)
        rc = tails_check(f->tails, asked->tails, &err);
    if (rc == 0)
        rc = workers_make(f->workers,
                          &(struct workers_put){.owner = front_project(req),
                                                .key = front_key(req),
                                                .id = http_req_param(req, "id")},
                          asked, &k, &err);
    if (rc < 0) {
        http_respond_err(req, &err);
        return;
    }
    api_ask(f, req,
            &(struct ledger_ask){.op = LEDGER_WORKER_PUT,
                                 .worker_put = {.worker = &k,
                                                .own_code = &k.code,
                                                .workers_max = (size_t)most->workers,
                                                .bytes_max = (size_t)most->workers_mb << 20}},
            respond_put);
    ledger_worker_finish(&k);
}

static void respond_get(struct api_wait *w, const struct ledger_answer *a) {
    if (!w->req)
        return;
    const struct ledger_worker *k = a->worker_got.worker;
    _cleanup_(json) json_t *about = workers_describe(w->front->workers, k);
    struct buf out;
    buf_init(&out, (size_t)64 << 20);
    (void)json_dump(about, &out);
    if (k->code) { /* JSON that was written here: it goes out as it is */
        out.len--;
        (void)buf_add_str(&out, ",\"code\":");
        (void)buf_add(&out, k->code, k->code_len);
        (void)buf_add_char(&out, '}');
    }
    http_respond_buf(w->req, 200, "application/json", &out);
}

static void worker_get(struct http_req *req, void *ctx) {
    api_ask(ctx, req,
            &(struct ledger_ask){
                .op = LEDGER_WORKER_GET,
                .worker_get = {.owner = front_project(req), .id = http_req_param(req, "id")}},
            respond_get);
}

static void worker_list(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    json_t *list = NULL;
    if (workers_list(f->workers, front_project(req), &list, &err) < 0) {
        http_respond_err(req, &err);
        return;
    }
    _cleanup_(json) json_t *out = json_pack("{s:o}", "workers", list);
    http_respond_json(req, 200, out);
}

static void respond_deleted(struct api_wait *w, const struct ledger_answer *a) {
    (void)a;
    if (w->req)
        http_respond_empty(w->req, 204);
}

static void worker_delete(struct http_req *req, void *ctx) {
    api_ask(ctx, req,
            &(struct ledger_ask){
                .op = LEDGER_WORKER_DELETE,
                .worker_delete = {.owner = front_project(req), .id = http_req_param(req, "id")}},
            respond_deleted);
}

/* --- readers, which a thread may call --- */

static int api_run_read(const char *body, size_t len, const void *how, void **ret,
                        struct err *err) {
    struct run_asked *asked;
    int rc = run_ask_read(body, len, how, &asked, err);
    if (rc == 0)
        *ret = asked;
    return rc;
}

static void free_run(void *asked) {
    run_asked_destroy(asked);
}

static int api_run_read_worker(const char *body, size_t len, const void *how, void **ret,
                               struct err *err) {
    struct worker_asked asked;
    int rc = worker_ask_read(body, len, how, &asked, err);
    if (rc < 0)
        return rc;
    *ret = xmalloc(sizeof(asked));
    memcpy(*ret, &asked, sizeof(asked));
    return 0;
}

static void api_run_free_worker(void *asked) {
    worker_asked_finish(asked);
    free(asked);
}

void api_run_routes(struct front *f) {
    f->run_reader = (struct http_reader){.read = api_run_read,
                                         .free = free_run,
                                         .how = &f->runner->config.limits,
                                         .how_bytes = sizeof(f->runner->config.limits)};
    f->worker_reader = f->run_reader;
    f->worker_reader.read = api_run_read_worker;
    f->worker_reader.free = api_run_free_worker;
    const struct http_route routes[] = {
        {"POST", "/v1/run", run_request, f, HTTP_ROUTE_DIRECT, 0, &f->run_reader},
        {"GET", "/v1/workers", worker_list, f, FRONT_ROUTE_READ, 0},
        {"GET", "/v1/workers/{id}", worker_get, f, FRONT_ROUTE_READ, 0},
        {"PUT", "/v1/workers/{id}", worker_put, f, 0, 0, &f->worker_reader},
        {"DELETE", "/v1/workers/{id}", worker_delete, f, 0, 0},
    };
    http_server_routes(f->http, routes, ARRAY_LEN(routes));
}
