#include "base/cleanup.h"
#include "base/mem.h"
#include "front/api/api.h"
#include "front/api/sandbox.h"
#include "front/sandbox/snapshot.h"

#include <stdlib.h>

struct snapshot_making {
    struct http_req *req;
    struct snapshot *snapshot;
};

static void api_snapshots_on_made(void *ctx, const json_t *shown, const struct err *err) {
    struct snapshot_making *m = ctx;
    http_req_on_gone(m->req, NULL, NULL);
    if (err)
        api_fail(m->req, err);
    else
        http_respond_json(m->req, 201, shown);
    free(m);
}

static void api_snapshots_on_gone(void *ctx) {
    struct snapshot_making *m = ctx;
    http_respond_empty(m->req, 499);
    snapshot_leave(m->snapshot);
    free(m);
}

static int api_snapshots_read_name(const json_t *body, const char **ret, struct err *err) {
    static const char *const keys[] = {"name", NULL};
    int rc = json_check_keys(body, "the request", keys, err);
    if (rc == 0)
        rc = json_get_str(body, "name", ret, err);
    return rc == 0 && *ret ? sandbox_check_name(*ret, err) : rc;
}

static void api_snapshots_create(struct http_req *req, void *ctx) {
    struct err err;
    struct sandbox *box = api_sandbox(req, ctx, false);
    if (!box)
        return;
    _cleanup_(json) json_t *body = NULL;
    struct snapshot_making *m = xcalloc(1, sizeof(*m));
    struct snapshot_ask ask = {.made = api_snapshots_on_made, .ctx = m};
    m->req = req;
    if (api_body(req, &body, &err) < 0 || api_snapshots_read_name(body, &ask.name, &err) < 0 ||
        snapshot_make(box, &ask, &m->snapshot, &err) < 0) {
        free(m);
        api_fail(req, &err);
        return;
    }
    http_req_on_gone(req, api_snapshots_on_gone, m);
}

static json_t *api_snapshots_show(const struct front *f, const struct store_record *r) {
    (void)f;
    return snapshot_show(r);
}

static void api_snapshots_list(struct http_req *req, void *ctx) {
    api_records(req, ctx, "snapshot", "snp", "snapshots", NULL, api_snapshots_show);
}

static void api_snapshots_get(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    struct store_record r;
    if (store_record_get(f->store, "snapshot", http_req_param(req, "id"), NULL, front_scope(req),
                         &r, &err) < 0) {
        http_respond_err(req, &err);
        return;
    }
    _cleanup_(json) json_t *o = snapshot_show(&r);
    store_record_finish(&r);
    http_respond_json(req, 200, o);
}

static void api_snapshots_delete(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    if (snapshot_delete(f->sandboxes, http_req_param(req, "id"), front_scope(req), &err) < 0)
        http_respond_err(req, &err);
    else
        http_respond_empty(req, 204);
}

void api_snapshots_routes(struct front *f) {
    const struct http_route routes[] = {
        {"POST", "/v1/sandboxes/{id}/snapshots", api_snapshots_create, f, 0, 0},
        {"GET", "/v1/snapshots", api_snapshots_list, f, FRONT_ROUTE_READ, 0},
        {"GET", "/v1/snapshots/{id}", api_snapshots_get, f, FRONT_ROUTE_READ, 0},
        {"DELETE", "/v1/snapshots/{id}", api_snapshots_delete, f, 0, 0},
    };
    http_server_routes(f->http, routes, ARRAY_LEN(routes));
}
