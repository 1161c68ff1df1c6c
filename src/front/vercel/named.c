#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "front/vercel/internal.h"

#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIND "vercel"

enum { SESSIONS_KEPT = 50, SNAPSHOTS_KEPT = 50, KEY_BYTES = 16, SAME_NAME_MAX = 8 };

/* Records are found by their parent: here that is what a name hashes to. */
static void key_of(const char *name, char out[ID_SIZE]) {
    unsigned char hash[SHA256_DIGEST_LENGTH];
    (void)SHA256((const unsigned char *)name, strlen(name), hash);
    size_t n = (size_t)snprintf(out, ID_SIZE, "vn_");
    for (size_t i = 0; i < KEY_BYTES; i++)
        n += (size_t)snprintf(out + n, ID_SIZE - n, "%02x", hash[i]);
}

void named_finish(struct named *n) {
    json_decref(n->doc);
    *n = (struct named){0};
}

void named_init(struct named *n, const char *owner, const char *name, json_t *config) {
    *n = (struct named){.created_ms = clock_wall_ms()};
    id_new("vsb", n->id);
    (void)snprintf(n->owner, sizeof(n->owner), "%s", owner);
    n->doc = json_pack("{s:s,s:O,s:[],s:[]}", "name", name ? name : n->id, "config", config,
                       "sessions", "snapshots");
}

static void read_record(const struct store_record *r, struct named *n) {
    *n = (struct named){.created_ms = r->created_ms, .doc = json_loads(r->doc, 0, NULL)};
    memcpy(n->id, r->id, sizeof(n->id));
    memcpy(n->owner, r->owner, sizeof(n->owner));
}

const char *named_name(const struct named *n) {
    return json_string_value(json_object_get(n->doc, "name"));
}

const char *named_session(const struct named *n) {
    return json_string_value(json_object_get(n->doc, "session"));
}

const json_t *named_config(const struct named *n, const char *key) {
    return json_object_get(json_object_get(n->doc, "config"), key);
}

bool named_is_persistent(const struct named *n) {
    return json_is_true(named_config(n, "persistent"));
}

struct finding {
    const char *name;
    struct named *ret;
};

static void on_candidate(void *ctx, const struct store_record *r) {
    struct finding *f = ctx;
    struct named n;
    read_record(r, &n);
    if (!f->ret->doc && named_name(&n) && strcmp(named_name(&n), f->name) == 0)
        *f->ret = n;
    else
        named_finish(&n);
}

int named_find(struct vercel *v, const char *owner, const char *name, struct named *ret,
               struct err *err) {
    char key[ID_SIZE];
    struct named found = {0};
    struct finding f = {name, &found};
    key_of(name, key);
    struct store_record_query q = {
        .scope = {.owner = owner}, .parent = key, .limit = SAME_NAME_MAX};
    int rc = store_record_list(v->front->store, KIND, &q, on_candidate, &f, err);
    if (rc < 0)
        return rc;
    if (!found.doc)
        return err_set(err, ERR_NOT_FOUND, "there is no sandbox \"%.100s\"", name);
    *ret = found;
    return 0;
}

int named_save(struct vercel *v, struct named *n, struct err *err) {
    (void)json_object_set_new(n->doc, "updated_ms", json_integer(clock_wall_ms()));
    _cleanup_(free) char *doc = json_dumps(n->doc, JSON_COMPACT);
    struct store_record r = {.status = (char *)"known",
                             .created_ms = n->created_ms,
                             .ended_ms = n->created_ms,
                             .doc = doc};
    memcpy(r.id, n->id, sizeof(r.id));
    memcpy(r.owner, n->owner, sizeof(r.owner));
    key_of(named_name(n), r.parent);
    return store_record_put(v->front->store, KIND, &r, err);
}

int named_delete(struct vercel *v, const struct named *n, struct err *err) {
    return store_record_delete(v->front->store, KIND, n->id, err);
}

struct named_listing {
    struct named *items;
    size_t n;
};

static void on_listed(void *ctx, const struct store_record *r) {
    struct named_listing *l = ctx;
    l->items = xrealloc(l->items, (l->n + 1) * sizeof(*l->items));
    read_record(r, &l->items[l->n++]);
}

static int list(struct vercel *v, const char *owner, size_t limit, struct named_listing *l,
                struct err *err) {
    struct store_record_query q = {.scope = {.owner = owner}, .limit = limit};
    return store_record_list(v->front->store, KIND, &q, on_listed, l, err);
}

static void finish_listing(struct named_listing *l) {
    for (size_t i = 0; i < l->n; i++)
        named_finish(&l->items[i]);
    free(l->items);
}

int named_each(struct vercel *v, const char *owner,
               void (*on_named)(void *ctx, const struct named *n), void *ctx, struct err *err) {
    struct named_listing l = {0};
    int rc = list(v, owner, VERCEL_NAMES_MAX, &l, err);
    for (size_t i = 0; rc == 0 && i < l.n; i++)
        on_named(ctx, &l.items[i]);
    finish_listing(&l);
    return rc;
}

int named_make_room(struct vercel *v, const char *owner, struct err *err) {
    struct named_listing l = {0};
    int rc = list(v, owner, VERCEL_NAMES_MAX + 1, &l, err);
    size_t left = l.n;
    for (size_t i = l.n; rc == 0 && left >= VERCEL_NAMES_MAX && i-- > 0;) {
        struct named *n = &l.items[i];
        const char *session = named_session(n);
        if (named_is_persistent(n) || (session && sandboxes_find(v->front->sandboxes, session)))
            continue;
        rc = named_delete(v, n, err);
        left--;
    }
    if (rc == 0 && left >= VERCEL_NAMES_MAX)
        rc = err_set(err, ERR_RATE, "this key has %d sandboxes that can be resumed: delete some",
                     VERCEL_NAMES_MAX);
    finish_listing(&l);
    return rc;
}

/* Puts an id at the front of a list, which keeps so many. Returns the one that falls out. */
static json_t *push(struct named *n, const char *key, const char *id, size_t max) {
    json_t *all = json_object_get(n->doc, key);
    (void)json_array_insert_new(all, 0, json_string(id));
    if (json_array_size(all) <= max)
        return NULL;
    json_t *last = json_incref(json_array_get(all, json_array_size(all) - 1));
    (void)json_array_remove(all, json_array_size(all) - 1);
    return last;
}

void named_add_session(struct named *n, const char *id) {
    json_decref(push(n, "sessions", id, SESSIONS_KEPT));
    (void)json_object_set_new(n->doc, "session", json_string(id));
}

void named_add_snapshot(struct vercel *v, struct named *n, const char *id) {
    const json_t *keep = named_config(n, "keepLastSnapshots");
    int64_t max = SNAPSHOTS_KEPT;
    (void)json_get_int(keep, "count", 1, SNAPSHOTS_KEPT, &max, NULL);
    (void)json_object_set_new(n->doc, "snapshot", json_string(id));
    _cleanup_(json) json_t *out = push(n, "snapshots", id, (size_t)max);
    struct err err;
    if (!out || !keep || json_is_false(json_object_get(keep, "deleteEvicted")))
        return;
    if (snapshot_delete(v->front->sandboxes, json_string_value(out),
                        (struct store_scope){.owner = n->owner}, &err) < 0 &&
        err.code != ERR_NOT_FOUND)
        log_warn("vercel.snapshot", "error", err.message);
}

const char *named_snapshot(struct vercel *v, struct named *n) {
    const char *id = json_string_value(json_object_get(n->doc, "snapshot"));
    struct store_record r;
    struct err err;
    if (!id || store_record_get(v->front->store, "snapshot", id, NULL,
                                (struct store_scope){.owner = n->owner}, &r, &err) < 0)
        return NULL;
    json_t *shown = show_snapshot(v, &r);
    store_record_finish(&r);
    json_decref(shown);
    return shown ? id : NULL;
}
