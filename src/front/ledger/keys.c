#include "front/ledger/internal.h"

#include "base/clock.h"
#include "base/mem.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_ADD, KEY_REVOKE, KEY_LIST };

#define KEY_COLUMNS                                                                                \
    "id, name, scope, hash, rate_per_minute, created_ms, revoked_ms, grants, max_jobs,"            \
    " tokens_per_day, nusd_per_day"

static const char *const sql[] = {
    [KEY_ADD] = "INSERT INTO keys (" KEY_COLUMNS ") VALUES (?1,?2,?3,?4,?5,?6,0,?7,?8,?9,?10)",
    [KEY_REVOKE] = "UPDATE keys SET revoked_ms = ?2 WHERE id = ?1 AND revoked_ms = 0",
    [KEY_LIST] = "SELECT " KEY_COLUMNS " FROM keys WHERE ?1 = 0 OR revoked_ms = 0"
                 " ORDER BY created_ms, id",
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

static void read_key(sqlite3_stmt *st, struct ledger_key *k) {
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

int ledger_db_key_add(struct ledger_db *db, const struct ledger_key *key, struct err *err) {
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
    int rc = store_step(st, "add a key", NULL, err);
    if (rc == 0)
        ledger_touch(db);
    return rc;
}

int ledger_db_key_revoke(struct ledger_db *db, const char *id, struct err *err) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_KEYS, KEY_REVOKE);
    store_bind_str(st, 1, id);
    store_bind_int(st, 2, clock_wall_ms());
    int64_t changes = 0;
    int rc = store_step(st, "revoke a key", &changes, err);
    if (rc == 0 && changes == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no valid key \"%.40s\"", id);
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
        read_key(st, &k);
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
    size_t room = 0;
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        if (n == room) {
            room = MAX(2 * room, 16);
            keys = xrealloc(keys, room * sizeof(*keys));
        }
        read_key(st, &keys[n++]);
    }
    (void)sqlite3_reset(st);
    if (rc == SQLITE_DONE) {
        *ret_keys = keys;
        *ret_n = n;
        return 0;
    }
    while (n > 0)
        ledger_key_finish(&keys[--n]);
    free(keys);
    return store_error(db->db, err, "list keys");
}
