#include "front/ledger/internal.h"

#include "base/clock.h"
#include "base/mem.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_ADD, KEY_REVOKE, KEY_LIST, KEY_GET, KEY_PAGE, KEY_COUNT, KEY_FORGET };

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

static int add_key(struct ledger_db *db, const struct ledger_key *key, struct err *err) {
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
    int rc = add_key(db, key, err);
    if (rc == 0)
        ledger_touch(db);
    return rc;
}

static int revoke_key(struct ledger_db *db, const char *id, struct err *err) {
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
    int rc = revoke_key(db, id, err);
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

/* --- asks: their changes are told by the back end --- */

static int read_into(struct ledger_db *db, sqlite3_stmt *st, struct ledger_answer *a,
                     struct err *err) {
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        a->keys = ledger_grow(a->keys, a->nkeys, sizeof(*a->keys));
        read_key(st, &a->keys[a->nkeys++]);
    }
    (void)sqlite3_reset(st);
    return rc == SQLITE_DONE ? 0 : store_error(db->db, err, "read keys");
}

static int get_key(struct ledger_db *db, const char *id, struct ledger_answer *a, struct err *err) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_KEYS, KEY_GET);
    store_bind_str(st, 1, id);
    return read_into(db, st, a, err);
}

static int check_room(struct ledger_db *db, size_t limit, struct err *err) {
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

int ledger_do_key_add(struct ledger_db *db, const struct ledger_ask *ask,
                      struct ledger_answer *answer, struct err *err) {
    int rc = get_key(db, ask->key->id, answer, err);
    answer->repeated = rc == 0 && answer->nkeys > 0;
    if (rc < 0 || answer->repeated)
        return rc;
    rc = check_room(db, ask->limit, err);
    if (rc == 0)
        rc = add_key(db, ask->key, err);
    return rc == 0 ? get_key(db, ask->key->id, answer, err) : rc;
}

int ledger_do_key_revoke(struct ledger_db *db, const struct ledger_ask *ask,
                         struct ledger_answer *answer, struct err *err) {
    int rc = get_key(db, ask->key->id, answer, err);
    if (rc < 0)
        return rc;
    answer->repeated = answer->nkeys > 0 && answer->keys[0].revoked_ms > 0;
    if (answer->repeated)
        return 0;
    rc = revoke_key(db, ask->key->id, err);
    return rc == 0 ? forget_old(db, err) : rc;
}

int ledger_do_key_list(struct ledger_db *db, const struct ledger_ask *ask,
                       struct ledger_answer *answer, struct err *err) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_KEYS, KEY_PAGE);
    store_bind_str(st, 1, ask->before);
    store_bind_int(st, 2, (int64_t)ask->limit);
    return read_into(db, st, answer, err);
}
