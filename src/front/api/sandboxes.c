#include "base/cleanup.h"
#include "base/json_table.h"
#include "base/mem.h"
#include "front/api/api.h"
#include "front/api/sandbox.h"

#include <stdlib.h>
#include <string.h>

enum {
    CREATE_BODY_BYTES = 16 << 20,
    EVENTS_PAGE = 1000,
    EVENTS_BYTES = 16 << 20,
};

/* --- making one --- */

struct making {
    struct http_req *req;
    struct sandbox *sandbox;
};

static void api_sandboxes_on_made(void *ctx, struct sandbox *s, const struct err *err) {
    struct making *m = ctx;
    http_req_on_gone(m->req, NULL, NULL);
    if (err) {
        http_respond_err(m->req, err);
    } else {
        _cleanup_(json) json_t *o = sandbox_show(s);
        http_respond_json(m->req, 201, o);
    }
    free(m);
}

static void api_sandboxes_on_maker_gone(void *ctx) {
    struct making *m = ctx;
    http_respond_empty(m->req, 499);
    sandbox_drop_maker(m->sandbox);
    free(m);
}

static void api_sandboxes_create(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    _cleanup_(json) json_t *body = NULL;
    _cleanup_(json) json_t *grants = api_grants(req);
    struct sandbox_request r = {
        .owner = front_project(req), .scope = front_scope(req), .grants = grants};
    struct making *m = xcalloc(1, sizeof(*m));
    m->req = req;
    int rc = api_body(req, &body, &err);
    if (rc == 0)
        rc = sandbox_request_read(body, &r, &err);
    if (rc == 0)
        m->sandbox = sandboxes_make(f->sandboxes, &r, api_sandboxes_on_made, m, &err);
    sandbox_request_finish(&r);
    if (m->sandbox) {
        http_req_on_gone(req, api_sandboxes_on_maker_gone, m);
        return;
    }
    free(m);
    api_fail(req, &err);
}

/* --- looking --- */

static json_t *api_sandboxes_show_record(const struct front *f, const struct store_record *r) {
    return sandboxes_show_record(f->sandboxes, r);
}

static void api_sandboxes_list(struct http_req *req, void *ctx) {
    api_records(req, ctx, "sandbox", "sbx", "sandboxes", NULL, api_sandboxes_show_record);
}

static void respond_shown(void *ctx, struct http_req *req, const char *id) {
    struct front *f = ctx;
    struct err err;
    _cleanup_(json) json_t *o = NULL;
    if (sandboxes_show(f->sandboxes, id, front_scope(req), &o, &err) < 0)
        http_respond_err(req, &err);
    else
        http_respond_json(req, 200, o);
}

static void api_sandboxes_get(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    const char *id = http_req_param(req, "id");
    struct sandbox *s = sandboxes_use(f->sandboxes, id, front_scope(req), true, &err);
    struct changing *c = s ? changing_new(req, s, respond_shown, f) : NULL;
    struct sandbox_change *change = s ? sandbox_measure(s, changing_done, c, &err) : NULL;
    if (change) {
        changing_wait(c, change, NULL);
        return;
    }
    free(c);
    respond_shown(f, req, id);
}

/* --- the end --- */

struct ending {
    struct http_req *req;
    struct sandbox_waiter *waiter;
};

static void api_sandboxes_on_ended(void *ctx) {
    struct ending *e = ctx;
    http_req_on_gone(e->req, NULL, NULL);
    http_respond_empty(e->req, 204);
    free(e);
}

static void api_sandboxes_on_ending_gone(void *ctx) {
    struct ending *e = ctx;
    e->waiter->cb = NULL;
    http_respond_empty(e->req, 499);
    free(e);
}

static void api_sandboxes_delete(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    const char *id = http_req_param(req, "id");
    struct store_scope scope = front_scope(req);
    struct sandbox *s = sandboxes_find(f->sandboxes, id);
    if (!s || !(scope.all || strcmp(s->owner, scope.owner) == 0)) {
        struct store_record r;
        int rc = store_record_get(f->store, "sandbox", id, NULL, scope, &r, &err);
        if (rc == 0) {
            store_record_finish(&r);
            rc = sandboxes_forget(f->sandboxes, id, &err);
        }
        if (rc < 0)
            http_respond_err(req, &err);
        else
            http_respond_empty(req, 204);
        return;
    }
    struct ending *e = xcalloc(1, sizeof(*e));
    e->req = req;
    http_req_on_gone(req, api_sandboxes_on_ending_gone, e);
    e->waiter = sandbox_end(s, api_sandboxes_on_ended, e);
}

/* --- time --- */

struct extend_body {
    int64_t timeout_s;
};

static void api_sandboxes_extend(struct http_req *req, void *ctx) {
    static const struct json_field table[] = {
        JSON_INT("timeout_s", struct extend_body, timeout_s, 1, 315360000)};
    struct err err;
    struct sandbox *s = api_sandbox(req, ctx, true);
    if (!s)
        return;
    _cleanup_(json) json_t *body = NULL;
    struct extend_body b = {.timeout_s = sandboxes_settings(s->all)->timeout_s};
    int rc = api_body(req, &body, &err);
    if (rc == 0)
        rc = json_table_read(table, ARRAY_LEN(table), body, "the request", &b, &err);
    if (rc == 0)
        rc = sandbox_extend(s, b.timeout_s * 1000, &err);
    if (rc < 0) {
        http_respond_err(req, &err);
        return;
    }
    _cleanup_(json) json_t *o = sandbox_show(s);
    http_respond_json(req, 200, o);
}

static void pause_or_resume(struct http_req *req, struct front *f, bool pause) {
    struct err err;
    struct sandbox *s = api_sandbox(req, f, true);
    if (!s)
        return;
    struct changing *c = changing_new(req, s, respond_shown, f);
    changing_wait(c, sandbox_pause(s, pause, changing_done, c, &err), &err);
}

static void pause_(struct http_req *req, void *ctx) {
    pause_or_resume(req, ctx, true);
}

static void api_sandboxes_resume(struct http_req *req, void *ctx) {
    pause_or_resume(req, ctx, false);
}

/* --- network --- */

static void put_network(struct http_req *req, void *ctx) {
    struct err err;
    struct sandbox *s = api_sandbox(req, ctx, true);
    if (!s)
        return;
    _cleanup_(json) json_t *body = NULL;
    _cleanup_(json) json_t *grants = api_grants(req);
    struct network_ask ask = {0};
    int rc = api_body(req, &body, &err);
    if (rc == 0)
        rc = network_ask_read(body, &ask, &err);
    if (rc < 0) {
        http_respond_err(req, &err);
    } else {
        struct changing *c = changing_new(req, s, respond_shown, ctx);
        struct sandbox_network network = {.ask = &ask, .grants = grants};
        changing_wait(c, sandbox_set_network(s, &network, changing_done, c, &err), &err);
    }
    network_ask_finish(&ask);
}

static void list_events(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    uint64_t after = UINT64_MAX;
    uint64_t limit = EVENTS_PAGE;
    _cleanup_(json) json_t *known = NULL;
    struct buf out;
    const char *id = http_req_param(req, "id");
    int rc = sandboxes_show(f->sandboxes, id, front_scope(req), &known, &err);
    if (rc >= 0)
        rc = api_number(req, "after", INT64_MAX, &after, &err);
    if (rc >= 0)
        rc = api_number(req, "limit", EVENTS_PAGE, &limit, &err);
    buf_init(&out, EVENTS_BYTES);
    const struct network_query query = {
        .sandbox = id, .after = after == UINT64_MAX ? -1 : (int64_t)after, .limit = limit};
    if (rc >= 0)
        rc = network_events(sandboxes_network(f->sandboxes), &query, &out, &err);
    if (rc < 0)
        http_respond_err(req, &err);
    else
        http_respond_buf(req, 200, "application/json", &out);
    buf_finish(&out);
}

void api_sandboxes_routes(struct front *f) {
    const struct http_route routes[] = {
        {"POST", "/v1/sandboxes", api_sandboxes_create, f, 0, CREATE_BODY_BYTES, &api_reader_files},
        {"GET", "/v1/sandboxes", api_sandboxes_list, f, FRONT_ROUTE_READ, 0},
        {"GET", "/v1/sandboxes/{id}", api_sandboxes_get, f, FRONT_ROUTE_READ, 0},
        {"DELETE", "/v1/sandboxes/{id}", api_sandboxes_delete, f, 0, 0},
        {"POST", "/v1/sandboxes/{id}/extend", api_sandboxes_extend, f, 0, 0},
        {"POST", "/v1/sandboxes/{id}/pause", pause_, f, 0, 0},
        {"POST", "/v1/sandboxes/{id}/resume", api_sandboxes_resume, f, 0, 0},
        {"PUT", "/v1/sandboxes/{id}/network", put_network, f, 0, 0},
        {"GET", "/v1/sandboxes/{id}/network/events", list_events, f, FRONT_ROUTE_READ, 0},
    };
    http_server_routes(f->http, routes, ARRAY_LEN(routes));
}
