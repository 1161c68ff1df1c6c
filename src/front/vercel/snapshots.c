#include "base/cleanup.h"
#include "base/mem.h"
#include "front/vercel/internal.h"

#include <stdlib.h>
#include <string.h>

enum { LIST_MAX = 1000 };

struct snapshot_listing {
    const char *name; /* of the sandbox; NULL: any */
    int64_t since_ms; /* those before are of another that had its name */
    char (*ids)[ID_SIZE];
    size_t n;
};

/* Only those of this wire: they know of which sandbox they are. */
static void vercel_snapshots_on_record(void *ctx, const struct store_record *r) {
    struct snapshot_listing *l = ctx;
    _cleanup_(json) json_t *doc = store_record_doc(r);
    const char *of = json_string_value(json_object_get(json_object_get(doc, "note"), "name"));
    if (!of || r->created_ms < l->since_ms || (l->name && strcmp(of, l->name) != 0))
        return;
    l->ids = xrealloc(l->ids, (l->n + 1) * sizeof(*l->ids));
    memcpy(l->ids[l->n++], r->id, ID_SIZE);
}

/* All of an owner, newest first; a new reference, or NULL with err. */
static json_t *vercel_snapshots_list_all(struct vercel *v, const char *owner, const char *name,
                                         struct err *err) {
    struct snapshot_listing l = {.name = name};
    struct named n = {0};
    struct store_record_query q = {.scope = {.owner = owner}, .limit = LIST_MAX};
    struct err ignored;
    json_t *all = NULL;
    if (name && vercel_named_find(v, owner, name, &n, &ignored) == 0)
        l.since_ms = n.created_ms;
    vercel_named_finish(&n);
    if (store_record_list(v->front->store, "snapshot", &q, vercel_snapshots_on_record, &l, err) ==
        0) {
        all = json_array();
        for (size_t i = 0; i < l.n; i++) {
            json_t *o = vercel_snapshot_open(v, owner, l.ids[i], &ignored);
            if (o)
                (void)json_array_append_new(all, o);
        }
    }
    free(l.ids);
    return all;
}

static void vercel_snapshots_list(struct http_req *req, void *ctx) {
    struct err err;
    struct vercel_page p;
    _cleanup_(free) char *name = NULL;
    int rc = vercel_page_read(req, "name", &p, &name, &err);
    json_t *all = rc < 0 ? NULL : vercel_snapshots_list_all(ctx, vercel_owner(req), name, &err);
    if (all)
        vercel_page_respond(req, "snapshots", all, &p);
    else
        http_respond_err(req, &err);
}

static void vercel_snapshots_get(struct http_req *req, void *ctx) {
    struct err err;
    json_t *shown =
        vercel_snapshot_open(ctx, vercel_owner(req), http_req_param(req, "snapshot"), &err);
    if (shown)
        vercel_respond(req, json_pack("{s:o}", "snapshot", shown));
    else
        http_respond_err(req, &err);
}

static void vercel_snapshots_delete(struct http_req *req, void *ctx) {
    struct err err;
    const char *owner = vercel_owner(req);
    const char *id = http_req_param(req, "snapshot");
    json_t *shown = vercel_snapshot_open(ctx, owner, id, &err);
    if (!shown || vercel_snapshot_delete(ctx, owner, id, &err) < 0) {
        json_decref(shown);
        http_respond_err(req, &err);
        return;
    }
    (void)json_object_set_new(shown, "status", json_string("deleted"));
    vercel_respond(req, json_pack("{s:o}", "snapshot", shown));
}

/* --- the tree: which was made from which --- */

static const char *vercel_snapshots_text_of(const json_t *snapshot, const char *key) {
    const char *t = json_string_value(json_object_get(snapshot, key));
    return t ? t : "";
}

/* One, with the others that were made from the same. */
static json_t *node_of(const json_t *all, json_t *snapshot) {
    size_t i;
    json_t *other;
    json_t *siblings = json_array();
    json_array_foreach((json_t *)(uintptr_t)all, i, other) {
        if (other != snapshot && *vercel_snapshots_text_of(snapshot, "parentId") &&
            strcmp(vercel_snapshots_text_of(other, "parentId"),
                   vercel_snapshots_text_of(snapshot, "parentId")) == 0)
            (void)json_array_append(siblings, other);
    }
    json_t *count = json_sprintf("%zu", json_array_size(siblings) + 1);
    return json_pack("{s:O,s:o,s:o}", "snapshot", snapshot, "siblings", siblings, "count", count);
}

static json_t *vercel_snapshots_find_in(const json_t *all, const char *id) {
    size_t i;
    json_t *s;
    json_array_foreach((json_t *)(uintptr_t)all, i, s) {
        if (strcmp(vercel_snapshots_text_of(s, "id"), id) == 0)
            return s;
    }
    return NULL;
}

/* From one to those that it came from. */
static void vercel_snapshots_tree(struct http_req *req, void *ctx) {
    struct err err;
    struct vercel_page p;
    _cleanup_(free) char *id = NULL;
    int rc = vercel_page_read(req, "snapshotId", &p, &id, &err);
    if (rc >= 0 && !id)
        rc = err_set(&err, ERR_BAD_REQUEST, "say which: ?snapshotId=");
    _cleanup_(json) json_t *all =
        rc < 0 || !id ? NULL : vercel_snapshots_list_all(ctx, vercel_owner(req), NULL, &err);
    json_t *at = all ? vercel_snapshots_find_in(all, id) : NULL;
    if (all && !at)
        (void)err_set(&err, ERR_NOT_FOUND, "there is no snapshot \"%.40s\"", id);
    if (!at) {
        http_respond_err(req, &err);
        return;
    }
    json_t *nodes = json_array();
    json_t *anchor = node_of(all, at);
    for (size_t n = 0; at && n < p.limit; n++) {
        (void)json_array_append_new(nodes, node_of(all, at));
        at = vercel_snapshots_find_in(all, vercel_snapshots_text_of(at, "parentId"));
    }
    json_t *next = at ? json_string(vercel_snapshots_text_of(at, "id")) : json_null();
    vercel_respond(req, json_pack("{s:o,s:o,s:{s:I,s:o}}", "snapshots", nodes, "anchor", anchor,
                                  "pagination", "count", (json_int_t)json_array_size(nodes), "next",
                                  next));
}

void vercel_snapshot_routes(struct vercel *v) {
    vercel_route(v, "GET", "/api/v2/sandboxes/snapshots/tree", vercel_snapshots_tree,
                 FRONT_ROUTE_READ, 0);
#define SNAPSHOT_ROUTES(base)                                                                      \
    vercel_route(v, "GET", base, vercel_snapshots_list, FRONT_ROUTE_READ, 0);                      \
    vercel_route(v, "GET", base "/{snapshot}", vercel_snapshots_get, FRONT_ROUTE_READ, 0);         \
    vercel_route(v, "DELETE", base "/{snapshot}", vercel_snapshots_delete, 0, 0)
    SNAPSHOT_ROUTES("/api/v2/sandboxes/snapshots");
    SNAPSHOT_ROUTES("/api/v1/sandboxes/snapshots");
}
