#include "front/run/run.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "front/api/api.h"
#include "front/run/code.h"
#include "front/run/tails.h"
#include "front/run/workers.h"

#include <stdlib.h>
#include <string.h>

enum { TITLE_BYTES = 80, ASKED_MAX_BYTES = 64 << 10 };

/* A run that a request waits for. */
struct run_wait {
    struct front *front;
    struct http_req *req;
    struct run *run;
    json_t *tails;
    char owner[ID_SIZE];
    bool stream;
};

static const char *owner_of(const struct http_req *req) {
    const struct identity *who = front_identity(req);
    return who ? who->key_id : "";
}

/* The first line of the code that says something, cut. */
static char *make_title(const struct code *c) {
    if (c->title)
        return xstrndup(c->title, utf8_floor(c->title, strlen(c->title), TITLE_BYTES));
    const char *p = c->main_code ? c->main_code : "";
    while (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r')
        p++;
    size_t n = strcspn(p, "\r\n");
    return xstrndup(p, utf8_floor(p, n, TITLE_BYTES));
}

/* What the record keeps of the request besides the code; NULL if there is nothing, or too much. */
static json_t *asked_with(const json_t *request) {
    static const char *const keys[] = {"language", "env", "limits"};
    json_t *out = json_object();
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (json_object_get(request, keys[i]))
            (void)json_object_set(out, keys[i], json_object_get(request, keys[i]));
    if (json_object_size(out) > 0 && json_dumpb(out, NULL, 0, JSON_COMPACT) <= ASKED_MAX_BYTES)
        return out;
    json_decref(out);
    return NULL;
}

static void send_tails(struct run_wait *w, const char *run_id, const char *record, size_t len) {
    size_t i;
    const json_t *t;
    struct err err;
    json_array_foreach(w->tails, i, t) {
        const char *url = json_string_value(json_object_get(t, "url"));
        if (url)
            tails_post(w->front->tails, run_id, url, record, len);
        const char *id = json_string_value(json_object_get(t, "run"));
        struct store_run r;
        if (!id || store_run_get(w->front->store, id, (struct store_scope){.owner = w->owner}, &r,
                                 &err) < 0)
            continue;
        store_run_finish(&r);
        if (store_event_add(w->front->store, id, "tail", record, len, &err) < 0)
            log_warn("tail.failed", "run", run_id, "to", id, "error", err.message);
    }
}

static void on_log(void *ctx, const char *level, const char *json, size_t len) {
    (void)level;
    struct run_wait *w = ctx;
    if (w->stream && w->req)
        (void)http_sse_send(w->req, "log", NULL, json, len);
}

static void free_wait(struct run_wait *w) {
    json_decref(w->tails);
    free(w);
}

static void on_done(void *ctx, const struct run *run, const char *record, size_t len) {
    struct run_wait *w = ctx;
    struct http_req *req = w->req;
    const struct err *failure = run_failure(run);
    send_tails(w, run_id(run), record, len);
    if (req && w->stream) {
        (void)http_sse_send(req, "result", NULL, record, len);
        http_stream_end(req);
    } else if (req && failure && failure->code == ERR_RATE) {
        http_respond_err(req, failure); /* there was no room: it was not tried */
    } else if (req) {
        http_respond(req, 200, "application/json", record, len);
    }
    free_wait(w);
}

/* The client left: its run is of no use to anybody. */
static void on_gone(void *ctx) {
    struct run_wait *w = ctx;
    struct http_req *req = w->req;
    w->req = NULL;
    if (w->stream)
        http_stream_end(req);
    else
        http_respond_empty(req, 499);
    run_cancel(w->run);
}

static void run_request(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    _cleanup_(json) json_t *json = NULL;
    struct code code;
    if (http_req_json(req, &json, &err) < 0 ||
        code_read(&code, json, &f->runner->config.limits, &err) < 0) {
        http_respond_err(req, &err);
        return;
    }
    const char *owner = owner_of(req);
    _cleanup_(free) char *facets = workers_facets_dir(f->workers, owner);
    struct env env = {0};
    const struct identity *who = front_identity(req);
    _cleanup_(json) json_t *grants = who && *who->grants ? json_loads(who->grants, 0, NULL) : NULL;
    int rc = tails_check(f->tails, code.tails, &err);
    if (rc == 0)
        rc = code_read_env(
            code.env,
            &(struct env_scope){
                .facets_dir = facets, .owner = owner, .workers = f->workers, .grants = grants},
            &env, &err);
    if (rc < 0) {
        code_finish(&code);
        http_respond_err(req, &err);
        return;
    }
    env.facet_open = &f->facet_open;
    struct run_wait *w = xcalloc(1, sizeof(*w));
    w->front = f;
    w->req = req;
    w->tails = json_incref((json_t *)(uintptr_t)code.tails);
    w->stream = http_req_accepts(req, "text/event-stream");
    memcpy(w->owner, owner, strlen(owner) + 1);
    if (w->stream) {
        http_res_header(req, "Cache-Control", "no-store");
        http_stream_begin(req, 200, "text/event-stream");
    }
    _cleanup_(free) char *title = make_title(&code);
    _cleanup_(json) json_t *asked = asked_with(json);
    _cleanup_(free) char *domain = code.reset ? code_domain(&code, owner) : NULL;
    struct run_request q = {.owner = owner,
                            .kind = "run",
                            .title = title,
                            .source = code.source.data,
                            .source_len = code.source.len,
                            .code = code.main_code,
                            .asked = asked,
                            .spec = code.spec.data,
                            .spec_len = code.spec.len,
                            .env = &env,
                            .domain = domain,
                            .limits = code.limits,
                            .callbacks = {.on_log = on_log, .on_done = on_done},
                            .ctx = w};
    w->run = code.id ? workers_run(f->workers, owner, &code, &q, &err)
                     : run_start(f->runner, f->jobs, &q, &err);
    if (w->run) {
        http_req_on_gone(req, on_gone, w);
    } else { /* it was never begun */
        if (w->stream) {
            _cleanup_(buf) struct buf b;
            buf_init(&b, 4096);
            json_write_str(&b, err.message, strlen(err.message));
            (void)http_sse_send(req, "error", NULL, b.data, b.len);
            http_stream_end(req);
        } else {
            http_respond_err(req, &err);
        }
        free_wait(w);
    }
    env_finish(&env);
    code_finish(&code);
}

/* --- workers --- */

static void worker_put(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    _cleanup_(json) json_t *json = NULL;
    char label[64];
    if (http_req_json(req, &json, &err) < 0 ||
        workers_put(f->workers, owner_of(req), http_req_param(req, "id"), json, label, &err) < 0) {
        http_respond_err(req, &err);
        return;
    }
    const char *port = strrchr(http_req_authority(req), ':');
    _cleanup_(free) char *url = xasprintf("http://%s.localhost%s/", label, port ? port : "");
    _cleanup_(json) json_t *out =
        json_pack("{s:s,s:s,s:s}", "id", http_req_param(req, "id"), "host", label, "url", url);
    http_respond_json(req, 200, out);
}

static void worker_get(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    _cleanup_(json) json_t *out = NULL;
    if (workers_get(f->workers, owner_of(req), http_req_param(req, "id"), &out, &err) < 0)
        http_respond_err(req, &err);
    else
        http_respond_json(req, 200, out);
}

static void worker_list(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    json_t *list = NULL;
    if (workers_list(f->workers, owner_of(req), &list, &err) < 0) {
        http_respond_err(req, &err);
        return;
    }
    _cleanup_(json) json_t *out = json_pack("{s:o}", "workers", list);
    http_respond_json(req, 200, out);
}

static void worker_delete(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    if (workers_delete(f->workers, owner_of(req), http_req_param(req, "id"), &err) < 0)
        http_respond_err(req, &err);
    else
        http_respond_empty(req, 204);
}

void api_run_routes(struct front *f) {
    size_t body = (size_t)f->runner->config.limits.module_bytes * 2 + (1 << 20);
    http_server_route(f->http, &(struct http_route){.methods = "POST",
                                                    .pattern = "/v1/run",
                                                    .handler = run_request,
                                                    .ctx = f,
                                                    .body_bytes = body});
    http_server_route(f->http, &(struct http_route){.methods = "GET",
                                                    .pattern = "/v1/workers",
                                                    .handler = worker_list,
                                                    .ctx = f,
                                                    .flags = FRONT_ROUTE_READ});
    http_server_route(f->http, &(struct http_route){.methods = "GET",
                                                    .pattern = "/v1/workers/{id}",
                                                    .handler = worker_get,
                                                    .ctx = f,
                                                    .flags = FRONT_ROUTE_READ});
    http_server_route(f->http, &(struct http_route){.methods = "PUT",
                                                    .pattern = "/v1/workers/{id}",
                                                    .handler = worker_put,
                                                    .ctx = f,
                                                    .body_bytes = body});
    http_server_route(f->http, &(struct http_route){.methods = "DELETE",
                                                    .pattern = "/v1/workers/{id}",
                                                    .handler = worker_delete,
                                                    .ctx = f});
}
