#include "base/cleanup.h"
#include "base/clock.h"
#include "base/mem.h"
#include "front/vercel/internal.h"

#include <stdlib.h>
#include <string.h>

/* Sessions that run or ran, and the names that they belong to. */

/* {session} as the SDK of that version has it. */
static void respond_session(void *ctx, struct http_req *req, const char *id) {
    struct vercel *v = ctx;
    _cleanup_(json) json_t *o = json_pack("{s:o}", vercel_is_v1(req) ? "sandbox" : "session",
                                          show_session(v, vercel_owner(req), id));
    http_respond_json(req, 200, o);
}

static void get(struct http_req *req, void *ctx) {
    struct vercel *v = ctx;
    struct err err;
    struct named n = {0};
    const char *id = http_req_param(req, "id");
    if (vercel_named_of(v, vercel_owner(req), id, &n, &err) < 0) {
        http_respond_err(req, &err);
        return;
    }
    (void)json_object_set_new(n.doc, "session", json_string(id)); /* of which the routes are */
    _cleanup_(json) json_t *o = show_whole(v, req, &n);
    http_respond_json(req, 200, o);
    named_finish(&n);
}

/* --- the end --- */

struct stopping {
    struct vercel *v;
    struct http_req *req;
    struct session_stop *stop;
    bool snapshot;
    char id[ID_SIZE];
};

static json_t *snapshot_of(struct vercel *v, const char *owner, const json_t *made) {
    const char *id = json_string_value(json_object_get(made, "id"));
    struct store_record r;
    struct err err;
    if (!id || store_record_get(v->front->store, "snapshot", id, NULL,
                                (struct store_scope){.owner = owner}, &r, &err) < 0)
        return NULL;
    json_t *o = show_snapshot(v, &r);
    store_record_finish(&r);
    return o;
}

static void respond_stopped(struct vercel *v, struct http_req *req, const char *id,
                            const json_t *made) {
    struct named n = {0};
    struct err err;
    const char *owner = vercel_owner(req);
    json_t *session = show_session(v, owner, id);
    _cleanup_(json) json_t *o = json_object();
    (void)json_object_set_new(o, vercel_is_v1(req) ? "sandbox" : "session", session);
    if (!vercel_is_v1(req) && vercel_named_of(v, owner, id, &n, &err) == 0)
        (void)json_object_set_new(o, "sandbox", show_sandbox(v, &n));
    json_t *snapshot = snapshot_of(v, owner, made);
    if (snapshot)
        (void)json_object_set_new(o, "snapshot", snapshot);
    named_finish(&n);
    http_respond_json(req, 200, o);
}

static void on_stopped(void *ctx, const json_t *snapshot, const struct err *err) {
    struct stopping *s = ctx;
    http_req_on_gone(s->req, NULL, NULL);
    if (err)
        api_fail(s->req, err);
    else
        respond_stopped(s->v, s->req, s->id, snapshot);
    free(s);
}

static void on_stopping_gone(void *ctx) {
    struct stopping *s = ctx;
    stop_leave(s->stop);
    http_respond_empty(s->req, 499);
    free(s);
}

static void begin_stop(struct vercel *v, struct http_req *req, struct sandbox *box, bool snapshot,
                       int64_t expiration_ms) {
    struct stopping *s = xcalloc(1, sizeof(*s));
    *s = (struct stopping){.v = v, .req = req, .snapshot = snapshot};
    memcpy(s->id, box->id, sizeof(s->id));
    http_req_on_gone(req, on_stopping_gone, s);
    s->stop = stop_session(
        v, box,
        &(struct stop_ask){
            .snapshot = snapshot, .expiration_ms = expiration_ms, .cb = on_stopped, .ctx = s});
}

/* A second stop finds it stopped. */
static void stop(struct http_req *req, void *ctx) {
    struct vercel *v = ctx;
    const char *id = http_req_param(req, "id");
    struct named n = {0};
    struct err err;
    const struct sandbox *s = sandboxes_find(v->front->sandboxes, id);
    if (!s && vercel_named_of(v, vercel_owner(req), id, &n, &err) == 0) {
        named_finish(&n);
        respond_stopped(v, req, id, NULL);
        return;
    }
    struct sandbox *box = vercel_session(req, v);
    if (box)
        begin_stop(v, req, box, false, -1);
}

static void snapshot(struct http_req *req, void *ctx) {
    struct err err;
    int64_t expiration = -1;
    _cleanup_(json) json_t *body = NULL;
    struct sandbox *s = vercel_session(req, ctx);
    if (!s)
        return;
    if (api_body(req, &body, &err) < 0 ||
        json_get_int(body, "expiration", 0, INT64_MAX / 1000, &expiration, &err) < 0)
        http_respond_err(req, &err);
    else
        begin_stop(ctx, req, s, true, expiration);
}

/* --- time, network --- */

static void extend(struct http_req *req, void *ctx) {
    struct err err;
    int64_t duration = 0;
    _cleanup_(json) json_t *body = NULL;
    struct sandbox *s = vercel_session(req, ctx);
    if (!s)
        return;
    int rc = api_body(req, &body, &err);
    if (rc == 0)
        rc = json_get_int(body, "duration", 1, (int64_t)1000 * 315360000, &duration, &err);
    if (rc == 0 && !duration)
        rc = err_set(&err, ERR_BAD_REQUEST, "\"duration\" is needed, in milliseconds");
    if (rc == 0)
        rc = sandbox_extend(s, s->expires_ms - clock_wall_ms() + duration, &err);
    if (rc < 0)
        http_respond_err(req, &err);
    else
        respond_session(ctx, req, s->id);
}

static void set_network(struct http_req *req, void *ctx) {
    struct vercel *v = ctx;
    struct err err;
    struct policy p = {0};
    _cleanup_(json) json_t *body = NULL;
    _cleanup_(json) json_t *grants = api_grants(req);
    struct sandbox *s = vercel_session(req, v);
    if (!s)
        return;
    int rc = api_body(req, &body, &err);
    if (rc == 0)
        rc = policy_read(body, v->front->config->sandboxes.allow, &p, &err);
    if (rc < 0) {
        http_respond_err(req, &err);
        return;
    }
    struct changing *c = changing_new(req, s, respond_session, v);
    struct sandbox_network network = {.json = p.network,
                                      .grants = grants,
                                      .routes = p.routes,
                                      .nroutes = p.nroutes,
                                      .injected = p.injected};
    struct sandbox_change *change = sandbox_set_network(s, &network, changing_done, c, &err);
    policy_finish(&p);
    changing_wait(c, change, &err);
}

/* --- lists --- */

struct session_filter {
    struct vercel *v;
    json_t *all;
    bool sessions; /* 1.x knows no others */
    char *prefix;
    char *tag; /* "key:value" */
};

static bool has_tag(const struct named *n, const char *tag) {
    const char *colon = strchr(tag, ':');
    if (!colon)
        return false;
    _cleanup_(free) char *key = xstrndup(tag, (size_t)(colon - tag));
    const char *v = json_string_value(json_object_get(named_config(n, "tags"), key));
    return v && strcmp(v, colon + 1) == 0;
}

static void on_named(void *ctx, const struct named *n) {
    struct session_filter *f = ctx;
    if (f->prefix && strncmp(named_name(n), f->prefix, strlen(f->prefix)) != 0)
        return;
    if (f->tag && !has_tag(n, f->tag))
        return;
    struct named copy = *n;
    (void)json_array_append_new(f->all, f->sessions ? show_session(f->v, n->owner, named_session(n))
                                                    : show_sandbox(f->v, &copy));
}

static int compare_names(const void *a, const void *b) {
    const json_t *x = *(json_t *const *)a;
    const json_t *y = *(json_t *const *)b;
    return strcmp(json_string_value(json_object_get(y, "name")),
                  json_string_value(json_object_get(x, "name")));
}

/* As the rest is: the last first, unless it is asked for the other way round. */
static json_t *sort_names(json_t *all) {
    size_t n = json_array_size(all);
    void **items = xcalloc(n + 1, sizeof(void *));
    json_t *sorted = json_array();
    for (size_t i = 0; i < n; i++)
        items[i] = json_array_get(all, i);
    qsort(items, n, sizeof(void *), compare_names);
    for (size_t i = 0; i < n; i++)
        (void)json_array_append(sorted, items[i]);
    free(items);
    json_decref(all);
    return sorted;
}

static void list(struct http_req *req, void *ctx) {
    struct err err;
    struct vercel_page p;
    struct session_filter f = {.v = ctx, .all = json_array(), .sessions = vercel_is_v1(req)};
    _cleanup_(free) char *by = NULL;
    int rc = vercel_page_read(req, &p, &err);
    if (rc == 0)
        rc = http_req_query_get(req, "namePrefix", &f.prefix, &err);
    if (rc >= 0)
        rc = http_req_query_get(req, "tags", &f.tag, &err);
    if (rc >= 0)
        rc = http_req_query_get(req, "sortBy", &by, &err);
    if (rc >= 0)
        rc = named_each(ctx, vercel_owner(req), on_named, &f, &err);
    if (rc >= 0 && by && strcmp(by, "name") == 0)
        f.all = sort_names(f.all);
    free(f.prefix);
    free(f.tag);
    if (rc < 0) {
        json_decref(f.all);
        http_respond_err(req, &err);
        return;
    }
    vercel_page_respond(req, "sandboxes", f.all, &p);
}

static void list_sessions(struct http_req *req, void *ctx) {
    struct vercel *v = ctx;
    struct err err;
    struct vercel_page p;
    struct named n = {0};
    size_t i;
    const json_t *id;
    _cleanup_(free) char *name = NULL;
    int rc = vercel_page_read(req, &p, &err);
    if (rc == 0)
        rc = http_req_query_get(req, "name", &name, &err);
    if (rc >= 0)
        rc = name ? named_find(v, vercel_owner(req), name, &n, &err)
                  : err_set(&err, ERR_BAD_REQUEST, "say of which sandbox: ?name=");
    if (rc < 0) {
        http_respond_err(req, &err);
        return;
    }
    json_t *all = json_array();
    json_array_foreach(json_object_get(n.doc, "sessions"), i, id) {
        (void)json_array_append_new(all, show_session(v, n.owner, json_string_value(id)));
    }
    named_finish(&n);
    vercel_page_respond(req, "sessions", all, &p);
}

/* --- names --- */

static void respond_sandbox(struct vercel *v, struct http_req *req, struct named *n) {
    _cleanup_(json) json_t *o =
        json_pack("{s:o,s:o}", "sandbox", show_sandbox(v, n), "routes", show_routes(req, n));
    http_respond_json(req, 200, o);
}

static void update(struct http_req *req, void *ctx) {
    struct vercel *v = ctx;
    struct err err;
    struct named n = {0};
    const char *snapshot = NULL;
    struct store_record r = {0};
    _cleanup_(json) json_t *body = NULL;
    int rc = api_body(req, &body, &err);
    if (rc == 0)
        rc = named_find(v, vercel_owner(req), http_req_param(req, "name"), &n, &err);
    if (rc == 0)
        rc = config_read(body, json_object_get(n.doc, "config"), &err);
    if (rc == 0)
        rc = json_get_str(body, "currentSnapshotId", &snapshot, &err);
    if (rc == 0 && snapshot) {
        rc = store_record_get(v->front->store, "snapshot", snapshot, NULL,
                              (struct store_scope){.owner = n.owner}, &r, &err);
        store_record_finish(&r);
        (void)json_object_set_new(n.doc, "snapshot", json_string(snapshot));
    }
    if (rc == 0)
        rc = named_save(v, &n, &err);
    if (rc < 0)
        http_respond_err(req, &err);
    else
        respond_sandbox(v, req, &n);
    named_finish(&n);
}

static void delete_snapshots(struct vercel *v, const struct named *n) {
    size_t i;
    const json_t *id;
    struct err err;
    json_array_foreach(json_object_get(n->doc, "snapshots"), i, id) {
        (void)snapshot_delete(v->front->sandboxes, json_string_value(id),
                              (struct store_scope){.owner = n->owner}, &err);
    }
}

/* Its session ends with it. */
static void delete (struct http_req *req, void *ctx) {
    struct vercel *v = ctx;
    struct err err;
    struct named n = {0};
    int rc = named_find(v, vercel_owner(req), http_req_param(req, "name"), &n, &err);
    if (rc == 0)
        rc = named_delete(v, &n, &err);
    if (rc < 0) {
        http_respond_err(req, &err);
        named_finish(&n);
        return;
    }
    const char *session = named_session(&n);
    struct sandbox *s = session ? sandboxes_find(v->front->sandboxes, session) : NULL;
    if (s && !stop_is_under_way(v, session))
        (void)sandbox_end(s, NULL, NULL);
    if (api_flag(req, "deleteOrphanSnapshots"))
        delete_snapshots(v, &n);
    respond_sandbox(v, req, &n);
    named_finish(&n);
}

/* There are none; a program that lists them is told so. */
static void list_drives(struct http_req *req, void *ctx) {
    (void)ctx;
    vercel_page_respond(req, "drives", json_array(), &(struct vercel_page){.limit = 1});
}

static void no_drives(struct http_req *req, void *ctx) {
    (void)ctx;
    vercel_fail(req, 400, "unsupported",
                "there are no drives here: use snapshots, or a bind of cay.json");
}

void session_routes(struct vercel *v) {
    vercel_route(v, "GET", "/api/v2/sandboxes", list, FRONT_ROUTE_READ, 0);
    vercel_route(v, "GET", "/api/v1/sandboxes", list, FRONT_ROUTE_READ, 0);
    vercel_route(v, "GET", "/api/v2/sandboxes/sessions", list_sessions, FRONT_ROUTE_READ, 0);
    vercel_route(v, "GET", "/api/v2/sandboxes/drives", list_drives, FRONT_ROUTE_READ, 0);
    vercel_route(v, "POST,DELETE", "/api/v2/sandboxes/drives/{drive}", no_drives, 0, 0);
#define SESSION_ROUTES(base)                                                                       \
    vercel_route(v, "GET", base, get, FRONT_ROUTE_READ, 0);                                        \
    vercel_route(v, "POST", base "/stop", stop, 0, 0);                                             \
    vercel_route(v, "POST", base "/snapshot", snapshot, 0, 0);                                     \
    vercel_route(v, "POST", base "/extend-timeout", extend, 0, 0);                                 \
    vercel_route(v, "POST", base "/network-policy", set_network, 0, 0)
    SESSION_ROUTES("/api/v2/sandboxes/sessions/{id}");
    SESSION_ROUTES("/api/v1/sandboxes/{id}");
    vercel_route(v, "PATCH", "/api/v2/sandboxes/{name}", update, 0, 0);
    vercel_route(v, "DELETE", "/api/v2/sandboxes/{name}", delete, 0, 0);
}
