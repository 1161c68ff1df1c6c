#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "front/vercel/internal.h"

#include <stdlib.h>
#include <string.h>

/* Sessions that run or ran, and the names that they belong to. */

/* What the bodies of this file say. */
struct session_wire {
    int64_t expiration_ms, duration_ms;
    const char *snapshot;
    const json_t *policy;
};

/* {session} as the SDK of that version has it. */
static void respond_session(void *ctx, struct http_req *req, const char *id) {
    struct vercel *v = ctx;
    vercel_respond(req, json_pack("{s:o}", vercel_is_v1(req) ? "sandbox" : "session",
                                  vercel_show_session(v, vercel_owner(req), id)));
}

static void vercel_sessions_get(struct http_req *req, void *ctx) {
    struct vercel *v = ctx;
    struct err err;
    struct named n = {0};
    const char *id = http_req_param(req, "id");
    if (vercel_named_of(v, vercel_owner(req), id, &n, &err) < 0) {
        http_respond_err(req, &err);
        return;
    }
    (void)json_object_set_new(n.doc, "session", json_string(id)); /* of which the routes are */
    vercel_respond(req, vercel_show_whole(v, req, &n));
    vercel_named_finish(&n);
}

/* --- the end --- */

struct stopping {
    struct vercel *v;
    struct http_req *req;
    struct session_stop *stop;
    bool snapshot;
    char id[ID_SIZE];
};

static void respond_stopped(struct vercel *v, struct http_req *req, const char *id,
                            const json_t *made) {
    struct named n = {0};
    struct err err;
    const char *owner = vercel_owner(req);
    const char *kept = json_string_value(json_object_get(made, "id"));
    json_t *session = vercel_show_session(v, owner, id);
    json_t *o = json_object();
    (void)json_object_set_new(o, vercel_is_v1(req) ? "sandbox" : "session", session);
    if (!vercel_is_v1(req) && vercel_named_of(v, owner, id, &n, &err) == 0)
        (void)json_object_set_new(o, "sandbox", vercel_show_sandbox(v, &n));
    json_t *snapshot = kept ? vercel_snapshot_open(v, owner, kept, &err) : NULL;
    if (snapshot)
        (void)json_object_set_new(o, "snapshot", snapshot);
    vercel_named_finish(&n);
    vercel_respond(req, o);
}

static void vercel_sessions_on_stopped(void *ctx, const json_t *snapshot, const struct err *err) {
    struct stopping *s = ctx;
    http_req_on_gone(s->req, NULL, NULL);
    if (err)
        api_fail(s->req, err);
    else
        respond_stopped(s->v, s->req, s->id, snapshot);
    free(s);
}

static void vercel_sessions_on_stopping_gone(void *ctx) {
    struct stopping *s = ctx;
    vercel_stop_leave(s->stop);
    http_respond_empty(s->req, 499);
    free(s);
}

static void begin_stop(struct vercel *v, struct http_req *req, struct sandbox *box, bool snapshot,
                       int64_t expiration_ms) {
    struct stopping *s = xcalloc(1, sizeof(*s));
    *s = (struct stopping){.v = v, .req = req, .snapshot = snapshot};
    memcpy(s->id, box->id, sizeof(s->id));
    http_req_on_gone(req, vercel_sessions_on_stopping_gone, s);
    s->stop = vercel_stop_session(v, box,
                                  &(struct stop_ask){.snapshot = snapshot,
                                                     .expiration_ms = expiration_ms,
                                                     .cb = vercel_sessions_on_stopped,
                                                     .ctx = s});
}

/* A second stop finds it stopped. */
static void vercel_sessions_stop(struct http_req *req, void *ctx) {
    struct vercel *v = ctx;
    const char *id = http_req_param(req, "id");
    struct named n = {0};
    struct err err;
    const struct sandbox *s = sandboxes_find(v->front->sandboxes, id);
    if (!s && vercel_named_of(v, vercel_owner(req), id, &n, &err) == 0) {
        vercel_named_finish(&n);
        respond_stopped(v, req, id, NULL);
        return;
    }
    struct sandbox *box = vercel_session(req, v);
    if (box)
        begin_stop(v, req, box, false, -1);
}

static void vercel_sessions_snapshot(struct http_req *req, void *ctx) {
    static const struct json_field table[] = {
        JSON_INT("expiration", struct session_wire, expiration_ms, 0, VERCEL_TIME_MAX_MS)};
    JSON_SHAPE("POST /api/v2/sandboxes/sessions/{id}/snapshot", table);
    struct session_wire w = {.expiration_ms = -1};
    struct err err;
    _cleanup_(json) json_t *body = NULL;
    struct sandbox *s = vercel_session(req, ctx);
    if (!s)
        return;
    if (vercel_body(req, table, ARRAY_LEN(table), &body, &w, &err) < 0)
        http_respond_err(req, &err);
    else
        begin_stop(ctx, req, s, true, w.expiration_ms);
}

/* --- time, network --- */

static void vercel_sessions_extend(struct http_req *req, void *ctx) {
    static const struct json_field table[] = {
        JSON_INT("duration", struct session_wire, duration_ms, 1, VERCEL_TIME_MAX_MS)};
    JSON_SHAPE("POST /api/v2/sandboxes/sessions/{id}/extend-timeout", table);
    struct session_wire w = {0};
    struct err err;
    _cleanup_(json) json_t *body = NULL;
    struct sandbox *s = vercel_session(req, ctx);
    if (!s)
        return;
    int rc = vercel_body(req, table, ARRAY_LEN(table), &body, &w, &err);
    if (rc == 0 && !w.duration_ms)
        rc = err_set(&err, ERR_BAD_REQUEST, "\"duration\" is needed, in milliseconds");
    if (rc == 0)
        rc = sandbox_extend(s, s->expires_ms - clock_wall_ms() + w.duration_ms, &err);
    if (rc < 0)
        http_respond_err(req, &err);
    else
        respond_session(ctx, req, s->id);
}

/* A policy that is being put in force. When it is, the sandbox keeps it for its next sessions, also
 * if the client has left by then. */
struct policy_change {
    struct vercel *v;
    struct http_req *req; /* NULL: its client left */
    json_t *config;       /* {networkPolicy} */
    char owner[ID_SIZE];
    char session[ID_SIZE];
};

static void policy_change_free(struct policy_change *c) {
    json_decref(c->config);
    free(c);
}

/* One whose name was deleted meanwhile has no next session. */
static int policy_change_keep(const struct policy_change *c, struct err *err) {
    struct named n = {0};
    int rc = vercel_named_of(c->v, c->owner, c->session, &n, err);
    if (rc == -ERR_NOT_FOUND)
        return 0;
    if (rc == 0)
        rc = json_object_update(json_object_get(n.doc, "config"), c->config);
    if (rc == 0)
        rc = vercel_named_save(c->v, &n, err);
    vercel_named_finish(&n);
    return rc < 0 ? err_wrap(err, "the policy holds until the session ends, and was not kept") : 0;
}

static void policy_change_on_done(void *ctx, const struct err *err) {
    struct policy_change *c = ctx;
    struct err why;
    if (c->req)
        http_req_on_gone(c->req, NULL, NULL);
    if (!err && policy_change_keep(c, &why) < 0) {
        log_error("vercel.policy", "sandbox", c->session, "error", why.message);
        err = &why;
    }
    if (c->req && err)
        http_respond_err(c->req, err);
    else if (c->req)
        respond_session(c->v, c->req, c->session);
    policy_change_free(c);
}

static void policy_change_on_gone(void *ctx) {
    struct policy_change *c = ctx;
    http_respond_empty(c->req, 499);
    c->req = NULL;
}

/* NULL with err: it is refused, and nothing has changed. */
static struct policy_change *policy_change_start(struct vercel *v, struct http_req *req,
                                                 struct sandbox *s, json_t *policy,
                                                 struct err *err) {
    struct policy p = {0};
    struct sandbox_change *change = NULL;
    _cleanup_(json) json_t *grants = api_grants(req);
    _cleanup_(json) json_t *asked = json_pack("{s:O}", "networkPolicy", policy);
    struct policy_change *c = xcalloc(1, sizeof(*c));
    *c = (struct policy_change){.v = v, .req = req, .config = json_object()};
    memcpy(c->owner, s->owner, sizeof(c->owner));
    memcpy(c->session, s->id, sizeof(c->session));
    int rc = vercel_config_read(asked, c->config, err);
    if (rc == 0)
        rc = vercel_policy_read(policy, v->front->config->sandboxes.allow, &p, err);
    if (rc == 0)
        change = sandbox_set_network(s,
                                     &(struct sandbox_network){.ask = &p.network,
                                                               .grants = grants,
                                                               .routes = p.routes,
                                                               .nroutes = p.nroutes,
                                                               .injected = p.injected},
                                     policy_change_on_done, c, err);
    vercel_policy_finish(&p);
    if (change)
        return c;
    policy_change_free(c);
    return NULL;
}

static void set_network(struct http_req *req, void *ctx) {
    struct err err;
    _cleanup_(json) json_t *body = NULL;
    struct policy_change *c = NULL;
    struct sandbox *s = vercel_session(req, ctx);
    if (!s)
        return;
    if (api_body(req, &body, &err) == 0)
        c = policy_change_start(ctx, req, s, body, &err);
    if (c)
        http_req_on_gone(req, policy_change_on_gone, c);
    else
        http_respond_err(req, &err);
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
    const char *v = json_string_value(json_object_get(vercel_named_config(n, "tags"), key));
    return v && strcmp(v, colon + 1) == 0;
}

static void vercel_sessions_on_named(void *ctx, const struct named *n) {
    struct session_filter *f = ctx;
    if (f->prefix && strncmp(vercel_named_name(n), f->prefix, strlen(f->prefix)) != 0)
        return;
    if (f->tag && !has_tag(n, f->tag))
        return;
    struct named copy = *n;
    (void)json_array_append_new(
        f->all, f->sessions ? vercel_show_session(f->v, n->owner, vercel_named_session(n))
                            : vercel_show_sandbox(f->v, &copy));
}

static void vercel_sessions_list(struct http_req *req, void *ctx) {
    struct err err;
    struct vercel_page p;
    struct session_filter f = {.v = ctx, .all = json_array(), .sessions = vercel_is_v1(req)};
    _cleanup_(free) char *by = NULL;
    int rc = vercel_page_read(req, "namePrefix", &p, &f.prefix, &err);
    if (rc >= 0)
        rc = http_req_query_get(req, "tags", &f.tag, &err);
    if (rc >= 0)
        rc = http_req_query_get(req, "sortBy", &by, &err);
    if (rc >= 0)
        rc = vercel_named_each(ctx, vercel_owner(req), by && strcmp(by, "name") == 0,
                               vercel_sessions_on_named, &f, &err);
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
    int rc = vercel_page_read(req, "name", &p, &name, &err);
    if (rc >= 0)
        rc = name ? vercel_named_find(v, vercel_owner(req), name, &n, &err)
                  : err_set(&err, ERR_BAD_REQUEST, "say of which sandbox: ?name=");
    if (rc < 0) {
        http_respond_err(req, &err);
        return;
    }
    json_t *all = json_array();
    json_array_foreach(json_object_get(n.doc, "sessions"), i, id) {
        (void)json_array_append_new(all, vercel_show_session(v, n.owner, json_string_value(id)));
    }
    vercel_named_finish(&n);
    vercel_page_respond(req, "sessions", all, &p);
}

/* --- names --- */

static void respond_sandbox(struct vercel *v, struct http_req *req, struct named *n) {
    vercel_respond(req, json_pack("{s:o,s:o}", "sandbox", vercel_show_sandbox(v, n), "routes",
                                  vercel_show_routes(req, n)));
}

/* Whether a session could begin with it: one that is refused is not kept. */
static int policy_check(struct vercel *v, const struct http_req *req, const json_t *policy,
                        struct err *err) {
    struct policy p = {0};
    struct egress_policy line = {0};
    _cleanup_(json) json_t *grants = api_grants(req);
    int rc = vercel_policy_read(policy, v->front->config->sandboxes.allow, &p, err);
    if (rc == 0)
        rc =
            network_resolve(sandboxes_network(v->front->sandboxes), &p.network, grants, &line, err);
    egress_policy_finish(&line);
    vercel_policy_finish(&p);
    return rc;
}

static void vercel_sessions_update(struct http_req *req, void *ctx) {
    static const struct json_field table[] = {
        JSON_TEXT("currentSnapshotId", struct session_wire, snapshot),
        JSON_MAP("networkPolicy", struct session_wire, policy),
    };
    JSON_SHAPE("PATCH /api/v2/sandboxes/{name}", table);
    struct session_wire w = {0};
    struct vercel *v = ctx;
    struct err err;
    struct named n = {0};
    struct store_record r = {0};
    _cleanup_(json) json_t *body = NULL;
    int rc = vercel_body(req, table, ARRAY_LEN(table), &body, &w, &err);
    if (rc == 0)
        rc = vercel_named_find(v, vercel_owner(req), http_req_param(req, "name"), &n, &err);
    if (rc == 0)
        rc = vercel_config_read(body, json_object_get(n.doc, "config"), &err);
    if (rc == 0 && w.policy)
        rc = policy_check(v, req, w.policy, &err);
    if (rc == 0 && w.snapshot) {
        rc = vercel_record(v, "snapshot", n.owner, w.snapshot, &r, &err);
        store_record_finish(&r);
        (void)json_object_set_new(n.doc, "snapshot", json_string(w.snapshot));
    }
    if (rc == 0)
        rc = vercel_named_save(v, &n, &err);
    if (rc < 0)
        http_respond_err(req, &err);
    else
        respond_sandbox(v, req, &n);
    vercel_named_finish(&n);
}

static void delete_snapshots(struct vercel *v, const struct named *n) {
    size_t i;
    const json_t *id;
    struct err err;
    json_array_foreach(json_object_get(n->doc, "snapshots"), i, id) {
        (void)vercel_snapshot_delete(v, n->owner, json_string_value(id), &err);
    }
}

/* Its session ends with it. */
static void vercel_sessions_delete(struct http_req *req, void *ctx) {
    struct vercel *v = ctx;
    struct err err;
    struct named n = {0};
    int rc = vercel_named_find_any(v, vercel_owner(req), http_req_param(req, "name"), &n, &err);
    if (rc == 0)
        rc = vercel_named_delete(v, &n, &err);
    if (rc < 0) {
        http_respond_err(req, &err);
        vercel_named_finish(&n);
        return;
    }
    const char *session = vercel_named_session(&n);
    struct sandbox *s = session ? sandboxes_find(v->front->sandboxes, session) : NULL;
    if (s && !vercel_stop_is_under_way(v, session))
        (void)sandbox_end(s, NULL, NULL);
    if (api_flag(req, "deleteOrphanSnapshots")) {
        delete_snapshots(v, &n);
        if (session)
            vercel_stop_forget(v, session);
    }
    respond_sandbox(v, req, &n);
    vercel_named_finish(&n);
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

void vercel_session_routes(struct vercel *v) {
    vercel_route(v, "GET", "/api/v2/sandboxes", vercel_sessions_list, FRONT_ROUTE_READ, 0);
    vercel_route(v, "GET", "/api/v1/sandboxes", vercel_sessions_list, FRONT_ROUTE_READ, 0);
    vercel_route(v, "GET", "/api/v2/sandboxes/sessions", list_sessions, FRONT_ROUTE_READ, 0);
    vercel_route(v, "GET", "/api/v2/sandboxes/drives", list_drives, FRONT_ROUTE_READ, 0);
    vercel_route(v, "POST,DELETE", "/api/v2/sandboxes/drives/{drive}", no_drives, 0, 0);
#define SESSION_ROUTES(base)                                                                       \
    vercel_route(v, "GET", base, vercel_sessions_get, FRONT_ROUTE_READ, 0);                        \
    vercel_route(v, "POST", base "/stop", vercel_sessions_stop, FRONT_ROUTE_LATE, 0);              \
    vercel_route(v, "POST", base "/snapshot", vercel_sessions_snapshot, FRONT_ROUTE_LATE, 0);      \
    vercel_route(v, "POST", base "/extend-timeout", vercel_sessions_extend, 0, 0);                 \
    vercel_route(v, "POST", base "/network-policy", set_network, 0, 0)
    SESSION_ROUTES("/api/v2/sandboxes/sessions/{id}");
    SESSION_ROUTES("/api/v1/sandboxes/{id}");
    vercel_route(v, "PATCH", "/api/v2/sandboxes/{name}", vercel_sessions_update, 0, 0);
    vercel_route(v, "DELETE", "/api/v2/sandboxes/{name}", vercel_sessions_delete, 0, 0);
}
