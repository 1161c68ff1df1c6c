#include "front/store/internal.h"

#include "base/clock.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEY_ADD,
    KEY_GET,
    KEY_REVOKE,
    KEY_LIST,
    KEY_COUNT,
};

#define KEY_COLUMNS "id, name, scope, hash, rate_per_minute, created_ms, revoked_ms, grants"

static const char *const sql[] = {
    [KEY_ADD] = "INSERT INTO keys (" KEY_COLUMNS ") VALUES (?1,?2,?3,?4,?5,?6,0,?7)",
    [KEY_GET] = "SELECT " KEY_COLUMNS " FROM keys WHERE id = ?1",
    [KEY_REVOKE] = "UPDATE keys SET revoked_ms = ?2 WHERE id = ?1 AND revoked_ms = 0",
    [KEY_LIST] = "SELECT " KEY_COLUMNS " FROM keys ORDER BY created_ms, id",
    [KEY_COUNT] = "SELECT count(*) FROM keys WHERE revoked_ms = 0",
};

const struct store_statements store_key_statements = {sql, ARRAY_LEN(sql)};

void store_key_finish(struct store_key *k) {
    if (!k)
        return;
    free(k->name);
    free(k->scope);
    free(k->grants);
    *k = (struct store_key){0};
}

static void read_key(sqlite3_stmt *st, struct store_key *k) {
    *k = (struct store_key){0};
    store_column_id(st, 0, k->id);
    k->name = store_column_dup(st, 1);
    k->scope = store_column_dup(st, 2);
    if (sqlite3_column_bytes(st, 3) == STORE_HASH_SIZE)
        memcpy(k->hash, sqlite3_column_blob(st, 3), STORE_HASH_SIZE);
    k->rate_per_minute = sqlite3_column_int64(st, 4);
    k->created_ms = sqlite3_column_int64(st, 5);
    k->revoked_ms = sqlite3_column_int64(st, 6);
    k->grants = store_column_dup(st, 7);
}

int store_key_add(struct store *s, const struct store_key *key, struct err *err) {
    sqlite3_stmt *st = store_ready(s, STORE_KEYS, KEY_ADD);
    store_bind_str(st, 1, key->id);
    store_bind_str(st, 2, key->name);
    store_bind_str(st, 3, key->scope);
    (void)sqlite3_bind_blob(st, 4, key->hash, STORE_HASH_SIZE, SQLITE_STATIC);
    store_bind_int(st, 5, key->rate_per_minute);
    store_bind_int(st, 6, key->created_ms);
    store_bind_str(st, 7, key->grants);
    return store_step(st, "add a key", NULL, err);
}

int store_key_get(struct store *s, const char *id, struct store_key *ret_key, struct err *err) {
    sqlite3_stmt *st = store_ready(s, STORE_KEYS, KEY_GET);
    store_bind_str(st, 1, id);
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW)
        read_key(st, ret_key);
    int e = rc == SQLITE_ROW    ? 0
            : rc == SQLITE_DONE ? err_set(err, ERR_NOT_FOUND, "there is no key \"%.40s\"", id)
                                : store_error(s->db, err, "read a key");
    (void)sqlite3_reset(st);
    return e;
}

int store_key_revoke(struct store *s, const char *id, struct err *err) {
    sqlite3_stmt *st = store_ready(s, STORE_KEYS, KEY_REVOKE);
    store_bind_str(st, 1, id);
    store_bind_int(st, 2, clock_wall_ms());
    int64_t changes = 0;
    int rc = store_step(st, "revoke a key", &changes, err);
    if (rc == 0 && changes == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no valid key \"%.40s\"", id);
    return rc;
}

int store_key_list(struct store *s, void (*on_key)(void *ctx, const struct store_key *key),
                   void *ctx, struct err *err) {
    sqlite3_stmt *st = store_ready(s, STORE_KEYS, KEY_LIST);
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct store_key k;
        read_key(st, &k);
        on_key(ctx, &k);
        store_key_finish(&k);
    }
    int e = rc == SQLITE_DONE ? 0 : store_error(s->db, err, "list keys");
    (void)sqlite3_reset(st);
    return e;
}

int store_key_count(struct store *s, int64_t *ret_valid, struct err *err) {
    sqlite3_stmt *st = store_ready(s, STORE_KEYS, KEY_COUNT);
    int e = 0;
    if (sqlite3_step(st) == SQLITE_ROW)
        *ret_valid = sqlite3_column_int64(st, 0);
    else
        e = store_error(s->db, err, "count keys");
    (void)sqlite3_reset(st);
    return e;
}
