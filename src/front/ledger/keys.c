#include "front/ledger/internal.h"

#include "base/clock.h"
#include "base/mem.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEY_ADD,
    KEY_REVOKE,
    KEY_LIST,
    KEY_GET,
    KEY_PAGE,
    KEY_COUNT,
    KEY_FORGET,
    KEY_VERSION,
    KEY_EDIT,
    KEY_ROTATE,
    KEY_USED
};

/* How many revoked keys are remembered, for anyone who looks up whose a record was. */
enum { REVOKED_MAX = 1000 };

#define KEY_OWN_COLUMNS                                                                            \
    "id, project, name, scope, server, hash, old_hash, old_until_ms, created_ms, expires_ms,"      \
    " revoked_ms, grants, rate_per_minute, max_jobs, tokens_per_day, nusd_per_day"
#define KEY_SELECT                                                                                 \
    "SELECT k.id, k.project, k.name, k.scope, k.server, k.hash, k.old_hash, k.old_until_ms,"       \
    " k.created_ms, k.expires_ms, k.revoked_ms, k.grants, k.rate_per_minute, k.max_jobs,"          \
    " k.tokens_per_day, k.nusd_per_day, p.rate_per_minute, p.max_jobs, p.tokens_per_day,"          \
    " p.nusd_per_day, u.used_ms FROM keys k JOIN projects p ON p.id = k.project"                   \
    " LEFT JOIN key_uses u ON u.key = k.id"

#define OLD_REVOKED                                                                                \
    "SELECT id FROM keys WHERE revoked_ms > 0 ORDER BY revoked_ms DESC, id DESC LIMIT -1 OFFSET "  \
    "?1"

static const char *const sql[] = {
    [KEY_ADD] = "INSERT INTO keys (" KEY_OWN_COLUMNS
                ") VALUES (?1,?2,?3,?4,?5,?6,NULL,0,?7,?8,0,?9,?10,?11,?12,?13)",
    [KEY_REVOKE] = "UPDATE keys SET revoked_ms = ?2 WHERE id = ?1 AND revoked_ms = 0"
                   " AND (?3 IS NULL OR project = ?3)",
    [KEY_LIST] = KEY_SELECT " WHERE ?1 = 0 OR k.revoked_ms = 0 ORDER BY k.created_ms, k.id",
    [KEY_GET] = KEY_SELECT " WHERE k.id = ?1",
    [KEY_PAGE] = KEY_SELECT " WHERE (?1 IS NULL OR k.id < ?1) AND (?3 IS NULL OR k.project = ?3)"
                            " AND (?4 IS NULL OR k.project = ?4 OR p.name = ?4)"
                            " ORDER BY k.id DESC LIMIT ?2",
    [KEY_COUNT] = "SELECT count(*) FROM keys WHERE revoked_ms = 0",
    [KEY_FORGET] = "DELETE FROM keys WHERE id IN (" OLD_REVOKED ")",
    [KEY_VERSION] = "SELECT n FROM key_version",
    [KEY_EDIT] = "UPDATE keys SET name = iif(?2 & 1, ?3, name), grants = iif(?2 & 2, ?4, grants),"
                 " expires_ms = iif(?2 & 4, ?5, expires_ms),"
                 " rate_per_minute = iif(?2 & 16, ?6, rate_per_minute),"
                 " max_jobs = iif(?2 & 32, ?7, max_jobs),"
                 " tokens_per_day = iif(?2 & 64, ?8, tokens_per_day),"
                 " nusd_per_day = iif(?2 & 128, ?9, nusd_per_day)"
                 " WHERE id = ?1 AND revoked_ms = 0 AND (?10 IS NULL OR project = ?10)",
    /* Asked again with the same secret, the one before is still the one before. */
    [KEY_ROTATE] = "UPDATE keys SET old_hash = iif(hash = ?2, old_hash, hash), hash = ?2,"
                   " old_until_ms = ?3"
                   " WHERE id = ?1 AND revoked_ms = 0 AND (?4 IS NULL OR project = ?4)",
    [KEY_USED] = "INSERT INTO key_uses SELECT id, ?2 FROM keys WHERE id = ?1"
                 " ON CONFLICT (key) DO UPDATE SET used_ms = max(used_ms, excluded.used_ms)",
};

const struct ledger_statements ledger_key_statements = {sql, ARRAY_LEN(sql)};

void ledger_key_finish(struct ledger_key *k) {
    if (!k)
        return;
    free(k->name);
    free(k->scope);
    free(k->grants);
    *k = (struct ledger_key){0};
}

void ledger_keys_free(struct ledger_key *keys, size_t n) {
    for (size_t i = 0; i < n; i++)
        ledger_key_finish(&keys[i]);
    free(keys);
}

static void ledger_keys_column_hash(sqlite3_stmt *st, int i, unsigned char out[LEDGER_HASH_SIZE]) {
    if (sqlite3_column_bytes(st, i) == LEDGER_HASH_SIZE)
        memcpy(out, sqlite3_column_blob(st, i), LEDGER_HASH_SIZE);
}

static void ledger_keys_read(sqlite3_stmt *st, struct ledger_key *k) {
    *k = (struct ledger_key){.name = store_column_dup(st, 2),
                             .scope = store_column_dup(st, 3),
                             .server = sqlite3_column_int(st, 4) != 0,
                             .old_until_ms = sqlite3_column_int64(st, 7),
                             .created_ms = sqlite3_column_int64(st, 8),
                             .expires_ms = sqlite3_column_int64(st, 9),
                             .revoked_ms = sqlite3_column_int64(st, 10),
                             .grants = store_column_dup(st, 11),
                             .limits = ledger_limits_column(st, 12),
                             .project_limits = ledger_limits_column(st, 16),
                             .used_ms = sqlite3_column_int64(st, 20)};
    store_column_id(st, 0, k->id);
    store_column_id(st, 1, k->project);
    ledger_keys_column_hash(st, 5, k->hash);
    ledger_keys_column_hash(st, 6, k->old_hash);
}

static int ledger_keys_add(struct ledger_db *db, const struct ledger_key *key, struct err *err) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_KEYS, KEY_ADD);
    store_bind_str(st, 1, key->id);
    store_bind_str(st, 2, key->project);
    store_bind_str(st, 3, key->name);
    store_bind_str(st, 4, key->scope);
    store_bind_int(st, 5, key->server);
    (void)sqlite3_bind_blob(st, 6, key->hash, LEDGER_HASH_SIZE, SQLITE_STATIC);
    store_bind_int(st, 7, key->created_ms);
    store_bind_int(st, 8, key->expires_ms);
    store_bind_str(st, 9, key->grants);
    ledger_limits_bind(st, 10, &key->limits);
    return store_step(st, "add a key", NULL, err);
}

static int ledger_keys_revoke(struct ledger_db *db, const char *id, const char *project,
                              struct err *err) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_KEYS, KEY_REVOKE);
    store_bind_str(st, 1, id);
    store_bind_int(st, 2, clock_wall_ms());
    store_bind_str(st, 3, project);
    int64_t changes = 0;
    int rc = store_step(st, "revoke a key", &changes, err);
    if (rc == 0 && changes == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no valid key \"%.40s\"", id);
    return rc;
}

int ledger_db_key_list(struct ledger_db *db, bool valid,
                       void (*on_key)(void *ctx, const struct ledger_key *key), void *ctx,
                       struct err *err) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_KEYS, KEY_LIST);
    store_bind_int(st, 1, valid);
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct ledger_key k;
        ledger_keys_read(st, &k);
        on_key(ctx, &k);
        ledger_key_finish(&k);
    }
    int e = rc == SQLITE_DONE ? 0 : store_error(db->db, err, "list keys");
    (void)sqlite3_reset(st);
    return e;
}

int ledger_db_keys(struct ledger_db *db, struct ledger_key **ret_keys, size_t *ret_n,
                   struct err *err) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_KEYS, KEY_LIST);
    store_bind_int(st, 1, 1);
    struct ledger_key *keys = NULL;
    size_t n = 0;
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        keys = ledger_grow(keys, n, sizeof(*keys));
        ledger_keys_read(st, &keys[n++]);
    }
    (void)sqlite3_reset(st);
    if (rc == SQLITE_DONE) {
        *ret_keys = keys;
        *ret_n = n;
        return 0;
    }
    ledger_keys_free(keys, n);
    return store_error(db->db, err, "list keys");
}

int64_t ledger_db_key_version(struct ledger_db *db) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_KEYS, KEY_VERSION);
    int64_t v = sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_int64(st, 0) : -1;
    (void)sqlite3_reset(st);
    return v;
}

/* --- asks: their changes are told by the back end --- */

/* 1: there is one. */
static int ledger_keys_get(struct ledger_db *db, const char *id, struct ledger_key *ret_key,
                           struct err *err) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_KEYS, KEY_GET);
    store_bind_str(st, 1, id);
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW)
        ledger_keys_read(st, ret_key);
    int e = rc == SQLITE_ROW ? 1 : rc == SQLITE_DONE ? 0 : store_error(db->db, err, "read a key");
    (void)sqlite3_reset(st);
    return e;
}

static int ledger_keys_check_room(struct ledger_db *db, size_t limit, struct err *err) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_KEYS, KEY_COUNT);
    int64_t n = sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_int64(st, 0) : INT64_MAX;
    (void)sqlite3_reset(st);
    if (n < (int64_t)limit)
        return 0;
    return err_set(err, ERR_CONFLICT, "there are %zu keys already (\"keys\"): revoke one first",
                   limit);
}

static int forget_old(struct ledger_db *db, struct err *err) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_KEYS, KEY_FORGET);
    store_bind_int(st, 1, REVOKED_MAX);
    return store_step(st, "forget keys", NULL, err);
}

int ledger_do_key_add(struct ledger_db *db, const struct ledger_key_add *ask,
                      struct ledger_key_added *ret, struct err *err) {
    struct ledger_key stored;
    struct ledger_key key = *ask->key;
    int there = ledger_keys_get(db, key.id, &stored, err);
    int rc = there;
    if (rc == 0)
        rc = ledger_keys_check_room(db, ask->valid_max, err);
    if (rc == 0)
        rc = ledger_project_find(db, ask->project ? ask->project : key.project, key.project, err);
    key.server = !*key.project && strcmp(key.scope, "admin") == 0;
    if (rc == 0)
        rc = ledger_keys_add(db, &key, err);
    if (rc == 0)
        rc = ledger_keys_get(db, ask->key->id, &stored, err);
    if (rc < 0)
        return rc;
    *ret = (struct ledger_key_added){.key = stored, .repeated = there > 0};
    return 0;
}

int ledger_do_key_revoke(struct ledger_db *db, const struct ledger_key_revoke *ask,
                         struct ledger_key_revoked *ret, struct err *err) {
    struct ledger_key k = {0};
    int rc = ledger_keys_get(db, ask->id, &k, err);
    bool repeated =
        rc > 0 && k.revoked_ms > 0 && (!ask->project || strcmp(k.project, ask->project) == 0);
    ledger_key_finish(&k);
    if (rc >= 0 && !repeated)
        rc = ledger_keys_revoke(db, ask->id, ask->project, err);
    if (rc == 0)
        rc = forget_old(db, err);
    if (rc < 0)
        return rc;
    *ret = (struct ledger_key_revoked){.repeated = repeated};
    (void)snprintf(ret->id, sizeof(ret->id), "%s", ask->id);
    return 0;
}

int ledger_do_key_list(struct ledger_db *db, const struct ledger_key_list *ask,
                       struct ledger_key_listed *ret, struct err *err) {
    struct ledger_key_listed out = {0};
    sqlite3_stmt *st = ledger_ready(db, LEDGER_KEYS, KEY_PAGE);
    store_bind_str(st, 1, ask->before);
    store_bind_int(st, 2,
                   (int64_t)ask->limit + 1); /* one more tells whether there is another page */
    store_bind_str(st, 3, ask->project);
    store_bind_str(st, 4, ask->named);
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW && out.n < ask->limit) {
        out.keys = ledger_grow(out.keys, out.n, sizeof(*out.keys));
        ledger_keys_read(st, &out.keys[out.n++]);
    }
    if (rc == SQLITE_ROW && out.n > 0)
        memcpy(out.next, out.keys[out.n - 1].id, sizeof(out.next));
    int e = rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : store_error(db->db, err, "read keys");
    (void)sqlite3_reset(st);
    if (e < 0)
        ledger_keys_free(out.keys, out.n);
    else
        *ret = out;
    return e;
}

static int ledger_keys_step_edit(sqlite3_stmt *st, const char *id, struct err *err) {
    int64_t changes = 0;
    int rc = store_step(st, "change a key", &changes, err);
    if (rc == 0 && changes == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no valid key \"%.40s\"", id);
    return rc;
}

int ledger_do_key_edit(struct ledger_db *db, const struct ledger_key_edit *ask,
                       struct ledger_key_edited *ret, struct err *err) {
    const struct ledger_key *k = ask->key;
    sqlite3_stmt *st = ledger_ready(db, LEDGER_KEYS, KEY_EDIT);
    store_bind_str(st, 1, k->id);
    store_bind_int(st, 2, ask->fields);
    store_bind_str(st, 3, k->name);
    store_bind_str(st, 4, k->grants);
    store_bind_int(st, 5, k->expires_ms);
    ledger_limits_bind(st, 6, &k->limits);
    store_bind_str(st, 10, ask->project);
    int rc = ledger_keys_step_edit(st, k->id, err);
    if (rc == 0 && (ask->fields & LEDGER_KEY_SECRET)) {
        st = ledger_ready(db, LEDGER_KEYS, KEY_ROTATE);
        store_bind_str(st, 1, k->id);
        (void)sqlite3_bind_blob(st, 2, k->hash, LEDGER_HASH_SIZE, SQLITE_STATIC);
        store_bind_int(st, 3, k->old_until_ms);
        store_bind_str(st, 4, ask->project);
        rc = ledger_keys_step_edit(st, k->id, err);
    }
    if (rc == 0)
        rc = ledger_keys_get(db, k->id, &ret->key, err);
    return MIN(rc, 0);
}

int ledger_do_key_used(struct ledger_db *db, const struct ledger_key_used *ask, struct err *err) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ask->n; i++) {
        sqlite3_stmt *st = ledger_ready(db, LEDGER_KEYS, KEY_USED);
        store_bind_str(st, 1, ask->uses[i].id);
        store_bind_int(st, 2, ask->uses[i].ms);
        rc = store_step(st, "note the use of a key", NULL, err);
    }
    return rc;
}
