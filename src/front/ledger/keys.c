#include "front/ledger/internal.h"

#include "base/clock.h"
#include "base/mem.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_ADD, KEY_REVOKE, KEY_LIST, KEY_GET, KEY_PAGE, KEY_COUNT, KEY_FORGET, KEY_VERSION };

/* Revoked keys are remembered, for who looks whose a record was; so many of them. */
enum { REVOKED_MAX = 1000 };

#define KEY_COLUMNS                                                                                \
    "id, name, scope, hash, rate_per_minute, created_ms, revoked_ms, grants, max_jobs,"            \
    " tokens_per_day, nusd_per_day"

#define OLD_REVOKED                                                                                \
    "SELECT id FROM keys WHERE revoked_ms > 0 ORDER BY revoked_ms DESC, id DESC LIMIT -1 OFFSET "  \
    "?1"

static const char *const sql[] = {
    [KEY_ADD] = "INSERT INTO keys (" KEY_COLUMNS ") VALUES (?1,?2,?3,?4,?5,?6,0,?7,?8,?9,?10)",
    [KEY_REVOKE] = "UPDATE keys SET revoked_ms = ?2 WHERE id = ?1 AND revoked_ms = 0",
    [KEY_LIST] = "SELECT " KEY_COLUMNS " FROM keys WHERE ?1 = 0 OR revoked_ms = 0"
                 " ORDER BY created_ms, id",
    [KEY_GET] = "SELECT " KEY_COLUMNS " FROM keys WHERE id = ?1",
    [KEY_PAGE] = "SELECT " KEY_COLUMNS " FROM keys WHERE ?1 IS NULL OR id < ?1"
                 " ORDER BY id DESC LIMIT ?2",
    [KEY_COUNT] = "SELECT count(*) FROM keys WHERE revoked_ms = 0",
    [KEY_FORGET] = "DELETE FROM keys WHERE id IN (" OLD_REVOKED ")",
    [KEY_VERSION] = "SELECT n FROM key_version",
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

static void ledger_keys_read(sqlite3_stmt *st, struct ledger_key *k) {
    *k = (struct ledger_key){0};
    store_column_id(st, 0, k->id);
    k->name = store_column_dup(st, 1);
    k->scope = store_column_dup(st, 2);
    if (sqlite3_column_bytes(st, 3) == LEDGER_HASH_SIZE)
        memcpy(k->hash, sqlite3_column_blob(st, 3), LEDGER_HASH_SIZE);
    k->rate_per_minute = sqlite3_column_int64(st, 4);
    k->created_ms = sqlite3_column_int64(st, 5);
    k->revoked_ms = sqlite3_column_int64(st, 6);
    k->grants = store_column_dup(st, 7);
    k->max_jobs = sqlite3_column_int64(st, 8);
    k->tokens_per_day = sqlite3_column_int64(st, 9);
    k->nusd_per_day = sqlite3_column_int64(st, 10);
}

static int ledger_keys_add(struct ledger_db *db, const struct ledger_key *key, struct err *err) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_KEYS, KEY_ADD);
    store_bind_str(st, 1, key->id);
    store_bind_str(st, 2, key->name);
    store_bind_str(st, 3, key->scope);
    (void)sqlite3_bind_blob(st, 4, key->hash, LEDGER_HASH_SIZE, SQLITE_STATIC);
    store_bind_int(st, 5, key->rate_per_minute);
    store_bind_int(st, 6, key->created_ms);
    store_bind_str(st, 7, key->grants);
    store_bind_int(st, 8, key->max_jobs);
    store_bind_int(st, 9, key->tokens_per_day);
    store_bind_int(st, 10, key->nusd_per_day);
    return store_step(st, "add a key", NULL, err);
}

int ledger_db_key_add(struct ledger_db *db, const struct ledger_key *key, struct err *err) {
    int rc = ledger_keys_add(db, key, err);
    if (rc == 0)
        ledger_touch(db);
    return rc;
}

static int ledger_keys_revoke(struct ledger_db *db, const char *id, struct err *err) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_KEYS, KEY_REVOKE);
    store_bind_str(st, 1, id);
    store_bind_int(st, 2, clock_wall_ms());
    int64_t changes = 0;
    int rc = store_step(st, "revoke a key", &changes, err);
    if (rc == 0 && changes == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no valid key \"%.40s\"", id);
    return rc;
}

int ledger_db_key_revoke(struct ledger_db *db, const char *id, struct err *err) {
    int rc = ledger_keys_revoke(db, id, err);
    if (rc == 0)
        ledger_touch(db);
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
    int there = ledger_keys_get(db, ask->key->id, &stored, err);
    int rc = there;
    if (rc == 0)
        rc = ledger_keys_check_room(db, ask->valid_max, err);
    if (rc == 0)
        rc = ledger_keys_add(db, ask->key, err);
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
    bool repeated = rc > 0 && k.revoked_ms > 0;
    ledger_key_finish(&k);
    if (rc >= 0 && !repeated)
        rc = ledger_keys_revoke(db, ask->id, err);
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
