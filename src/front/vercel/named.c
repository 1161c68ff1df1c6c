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
static void vercel_named_key_of(const char *name, char out[ID_SIZE]) {
    unsigned char hash[SHA256_DIGEST_LENGTH];
    (void)SHA256((const unsigned char *)name, strlen(name), hash);
    size_t n = (size_t)snprintf(out, ID_SIZE, "vn_");
    for (size_t i = 0; i < KEY_BYTES; i++)
        n += (size_t)snprintf(out + n, ID_SIZE - n, "%02x", hash[i]);
}

void vercel_named_finish(struct named *n) {
    json_decref(n->doc);
    *n = (struct named){0};
}

void vercel_named_init(struct named *n, const char *owner, const char *name, json_t *config) {
    *n = (struct named){.created_ms = clock_wall_ms()};
    id_new("vsb", n->id);
    (void)snprintf(n->owner, sizeof(n->owner), "%s", owner);
    n->doc = json_pack("{s:s,s:O,s:[],s:[]}", "name", name ? name : n->id, "config", config,
                       "sessions", "snapshots");
}

/* One that cannot be read goes by its id: it is listed, and can be deleted. */
static void vercel_named_read_record(const struct store_record *r, struct named *n) {
    *n = (struct named){.created_ms = r->created_ms, .doc = store_record_doc(r)};
    memcpy(n->id, r->id, sizeof(n->id));
    memcpy(n->owner, r->owner, sizeof(n->owner));
    n->unreadable = store_doc_check(n->doc, n->id, NULL) < 0 || !vercel_named_name(n);
    if (!n->unreadable)
        return;
    json_decref(n->doc);
    n->doc = json_pack("{s:s,s:{},s:[],s:[]}", "name", n->id, "config", "sessions", "snapshots");
}

const char *vercel_named_name(const struct named *n) {
    return json_string_value(json_object_get(n->doc, "name"));
}

const char *vercel_named_session(const struct named *n) {
    return json_string_value(json_object_get(n->doc, "session"));
}

const json_t *vercel_named_config(const struct named *n, const char *key) {
    return json_object_get(json_object_get(n->doc, "config"), key);
}

bool vercel_named_is_persistent(const struct named *n) {
    return json_is_true(vercel_named_config(n, "persistent"));
}

struct finding {
    const char *name;
    struct named *ret;
};

static void vercel_named_on_candidate(void *ctx, const struct store_record *r) {
    struct finding *f = ctx;
    struct named n;
    vercel_named_read_record(r, &n);
    if (!f->ret->doc && (n.unreadable || strcmp(vercel_named_name(&n), f->name) == 0))
        *f->ret = n;
    else
        vercel_named_finish(&n);
}

/* By the id that an unreadable one is listed with. */
static void find_unreadable(struct vercel *v, const char *owner, const char *id,
                            struct named *ret) {
    struct store_record r;
    struct named n = {0};
    struct err err;
    if (!id_is_valid("vsb", id, strlen(id)) || vercel_record(v, KIND, owner, id, &r, &err) < 0)
        return;
    vercel_named_read_record(&r, &n);
    store_record_finish(&r);
    if (n.unreadable)
        *ret = n;
    else
        vercel_named_finish(&n);
}

int vercel_named_find_any(struct vercel *v, const char *owner, const char *name, struct named *ret,
                          struct err *err) {
    char key[ID_SIZE];
    struct named found = {0};
    struct finding f = {name, &found};
    vercel_named_key_of(name, key);
    struct store_record_query q = {
        .scope = {.owner = owner}, .parent = key, .limit = SAME_NAME_MAX};
    int rc = store_record_list(v->front->store, KIND, &q, vercel_named_on_candidate, &f, err);
    if (rc < 0)
        return rc;
    if (!found.doc)
        find_unreadable(v, owner, name, &found);
    if (!found.doc)
        return err_set(err, ERR_NOT_FOUND, "there is no sandbox \"%.100s\"", name);
    *ret = found;
    return 0;
}

/* To the caller if it is the one; else it ends here. */
static int vercel_named_give(struct named *n, int rc, struct named *ret) {
    if (rc < 0)
        vercel_named_finish(n);
    else
        *ret = *n;
    return rc;
}

int vercel_named_find(struct vercel *v, const char *owner, const char *name, struct named *ret,
                      struct err *err) {
    struct named n = {0};
    int rc = vercel_named_find_any(v, owner, name, &n, err);
    if (rc == 0 && n.unreadable)
        rc = err_set(err, ERR_INTERNAL,
                     "the record of sandbox \"%.100s\" cannot be read: delete it", name);
    return vercel_named_give(&n, rc, ret);
}

/* Of a name that has been deleted and made again, the former one is not there. */
static int find_by_id(struct vercel *v, const char *owner, const char *id, const char *name,
                      struct named *ret, struct err *err) {
    struct named n = {0};
    int rc = vercel_named_find(v, owner, name, &n, err);
    if (rc == 0 && strcmp(n.id, id) != 0)
        rc = err_set(err, ERR_NOT_FOUND, "the sandbox \"%.100s\" was deleted meanwhile", name);
    return vercel_named_give(&n, rc, ret);
}

int vercel_named_find_same(struct vercel *v, const struct named *n, struct named *ret,
                           struct err *err) {
    return find_by_id(v, n->owner, n->id, vercel_named_name(n), ret, err);
}

static bool has_session(const struct named *n, const char *session) {
    size_t i;
    const json_t *id;
    json_array_foreach(json_object_get(n->doc, "sessions"), i, id) {
        if (json_is_string(id) && strcmp(json_string_value(id), session) == 0)
            return true;
    }
    return false;
}

int vercel_named_of(struct vercel *v, const char *owner, const char *session, struct named *ret,
                    struct err *err) {
    struct store_record r;
    struct named n = {0};
    int rc = vercel_record(v, "sandbox", owner, session, &r, err);
    if (rc < 0)
        return rc;
    _cleanup_(json) json_t *doc = store_record_doc(&r);
    store_record_finish(&r);
    const json_t *note = json_object_get(doc, "note");
    const char *name = json_string_value(json_object_get(note, "name"));
    const char *id = json_string_value(json_object_get(note, "named"));
    rc = store_doc_check(doc, session, err);
    if (rc < 0)
        return rc;
    if (!name)
        return err_set(err, ERR_NOT_FOUND, "there is no session \"%.40s\"", session);
    if (id)
        return find_by_id(v, owner, id, name, ret, err);
    rc = vercel_named_find(v, owner, name, &n, err); /* a former version did not note the id */
    if (rc == 0 && !has_session(&n, session))
        rc = err_set(err, ERR_NOT_FOUND, "there is no session \"%.40s\"", session);
    return vercel_named_give(&n, rc, ret);
}

int vercel_named_save(struct vercel *v, struct named *n, struct err *err) {
    (void)json_object_set_new(n->doc, "updated_ms", json_integer(clock_wall_ms()));
    _cleanup_(free) char *doc = json_dumps(n->doc, JSON_COMPACT);
    struct store_record r = {.status = (char *)"known",
                             .created_ms = n->created_ms,
                             .ended_ms = n->created_ms,
                             .doc = doc};
    memcpy(r.id, n->id, sizeof(r.id));
    memcpy(r.owner, n->owner, sizeof(r.owner));
    vercel_named_key_of(vercel_named_name(n), r.parent);
    return store_record_put(v->front->store, KIND, &r, err);
}

int vercel_named_delete(struct vercel *v, const struct named *n, struct err *err) {
    return store_record_delete(v->front->store, KIND, n->id, err);
}

struct named_listing {
    struct named *items;
    size_t n;
};

static void vercel_named_on_listed(void *ctx, const struct store_record *r) {
    struct named_listing *l = ctx;
    l->items = xrealloc(l->items, (l->n + 1) * sizeof(*l->items));
    vercel_named_read_record(r, &l->items[l->n++]);
}

static int vercel_named_list(struct vercel *v, const char *owner, size_t limit,
                             struct named_listing *l, struct err *err) {
    struct store_record_query q = {.scope = {.owner = owner}, .limit = limit};
    return store_record_list(v->front->store, KIND, &q, vercel_named_on_listed, l, err);
}

static void finish_listing(struct named_listing *l) {
    for (size_t i = 0; i < l->n; i++)
        vercel_named_finish(&l->items[i]);
    free(l->items);
}

static int compare_names(const void *a, const void *b) {
    return strcmp(vercel_named_name(b), vercel_named_name(a));
}

int vercel_named_each(struct vercel *v, const char *owner, bool by_name,
                      void (*on_named)(void *ctx, const struct named *n), void *ctx,
                      struct err *err) {
    struct named_listing l = {0};
    int rc = vercel_named_list(v, owner, VERCEL_NAMES_MAX, &l, err);
    if (rc == 0 && by_name && l.n > 0)
        qsort(l.items, l.n, sizeof(*l.items), compare_names);
    for (size_t i = 0; rc == 0 && i < l.n; i++)
        on_named(ctx, &l.items[i]);
    finish_listing(&l);
    return rc;
}

int vercel_named_make_room(struct vercel *v, const char *owner, struct err *err) {
    struct named_listing l = {0};
    int rc = vercel_named_list(v, owner, VERCEL_NAMES_MAX + 1, &l, err);
    size_t left = l.n;
    for (size_t i = l.n; rc == 0 && left >= VERCEL_NAMES_MAX && i-- > 0;) {
        struct named *n = &l.items[i];
        const char *session = vercel_named_session(n);
        if (vercel_named_is_persistent(n) ||
            (session && sandboxes_find(v->front->sandboxes, session)))
            continue;
        rc = vercel_named_delete(v, n, err);
        left--;
    }
    if (rc == 0 && left >= VERCEL_NAMES_MAX)
        rc = err_set(err, ERR_RATE, "this key has %d sandboxes that can be resumed: delete some",
                     VERCEL_NAMES_MAX);
    finish_listing(&l);
    return rc;
}

/* Puts an id at the front of a list, which keeps so many. Returns the one that falls out. */
static json_t *vercel_named_push(struct named *n, const char *key, const char *id, size_t max) {
    json_t *all = json_object_get(n->doc, key);
    (void)json_array_insert_new(all, 0, json_string(id));
    if (json_array_size(all) <= max)
        return NULL;
    json_t *last = json_incref(json_array_get(all, json_array_size(all) - 1));
    (void)json_array_remove(all, json_array_size(all) - 1);
    return last;
}

void vercel_named_add_session(struct named *n, const char *id) {
    json_decref(vercel_named_push(n, "sessions", id, SESSIONS_KEPT));
    (void)json_object_set_new(n->doc, "session", json_string(id));
}

void vercel_named_add_snapshot(struct vercel *v, struct named *n, const char *id) {
    const json_t *keep = vercel_named_config(n, "keepLastSnapshots");
    int64_t max = SNAPSHOTS_KEPT;
    (void)json_get_int(keep, "count", 1, SNAPSHOTS_KEPT, &max, NULL);
    (void)json_object_set_new(n->doc, "snapshot", json_string(id));
    _cleanup_(json) json_t *out = vercel_named_push(n, "snapshots", id, (size_t)max);
    struct err err;
    if (!out || !keep || json_is_false(json_object_get(keep, "deleteEvicted")))
        return;
    if (vercel_snapshot_delete(v, n->owner, json_string_value(out), &err) < 0 &&
        err.code != ERR_NOT_FOUND)
        log_warn("vercel.snapshot", "error", err.message);
}

const char *vercel_named_snapshot(struct vercel *v, struct named *n) {
    const char *id = json_string_value(json_object_get(n->doc, "snapshot"));
    struct err err;
    json_t *shown = id ? vercel_snapshot_open(v, n->owner, id, &err) : NULL;
    json_decref(shown);
    return shown ? id : NULL;
}
