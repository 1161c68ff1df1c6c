#include "front/ledger/internal.h"

#include "base/mem.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WORKER_VERSION,
    WORKER_NEXT,
    WORKER_SUM,
    WORKER_LABEL,
    WORKER_PUT,
    WORKER_GET,
    WORKER_DELETE,
    WORKER_LIST,
};

#define WORKER_COLUMNS "owner, id, label, version, updated_ms, public, key"

static const char *const sql[] = {
    [WORKER_VERSION] = "SELECT n FROM worker_version",
    [WORKER_NEXT] = "UPDATE worker_version SET n = n + 1 RETURNING n",
    [WORKER_SUM] = "SELECT count(*), coalesce(sum(bytes), 0) FROM workers"
                   " WHERE owner = ?1 AND id <> ?2",
    [WORKER_LABEL] = "SELECT 1 FROM workers WHERE label = ?3 AND NOT (owner = ?1 AND id = ?2)",
    [WORKER_PUT] = "INSERT INTO workers (" WORKER_COLUMNS ", bytes, code)"
                   " VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9) ON CONFLICT (owner, id) DO UPDATE SET"
                   " version = ?4, updated_ms = ?5, public = ?6, key = ?7, bytes = ?8, code = ?9",
    [WORKER_GET] = "SELECT " WORKER_COLUMNS ", code FROM workers WHERE owner = ?1 AND id = ?2",
    [WORKER_DELETE] = "DELETE FROM workers WHERE owner = ?1 AND id = ?2",
    [WORKER_LIST] = "SELECT " WORKER_COLUMNS " FROM workers",
};

const struct ledger_statements ledger_worker_statements = {sql, ARRAY_LEN(sql)};

void ledger_worker_finish(struct ledger_worker *w) {
    free(w->code);
    *w = (struct ledger_worker){0};
}

static void column_name(sqlite3_stmt *st, int i, char out[LEDGER_WORKER_NAME_SIZE]) {
    const char *v = (const char *)sqlite3_column_text(st, i);
    size_t n = v ? strlen(v) : 0;
    n = MIN(n, (size_t)LEDGER_WORKER_NAME_SIZE - 1);
    if (n)
        memcpy(out, v, n);
    out[n] = 0;
}

static void ledger_workers_read(sqlite3_stmt *st, struct ledger_worker *w) {
    *w = (struct ledger_worker){.version = sqlite3_column_int64(st, 3),
                                .updated_ms = sqlite3_column_int64(st, 4),
                                .public = sqlite3_column_int(st, 5) != 0};
    store_column_id(st, 0, w->owner);
    column_name(st, 1, w->id);
    column_name(st, 2, w->label);
    store_column_id(st, 6, w->key);
}

static sqlite3_stmt *ready_for(struct ledger_db *db, int which, const char *owner, const char *id) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_WORKERS, which);
    store_bind_str(st, 1, owner);
    store_bind_str(st, 2, id);
    return st;
}

static int no_worker(const char *id, struct err *err) {
    return err_set(err, ERR_NOT_FOUND, "there is no worker \"%.60s\"", id);
}

int64_t ledger_db_worker_version(struct ledger_db *db) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_WORKERS, WORKER_VERSION);
    int64_t v = sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_int64(st, 0) : -1;
    (void)sqlite3_reset(st);
    return v;
}

int ledger_db_workers(struct ledger_db *db, struct ledger_worker **ret_workers, size_t *ret_n,
                      struct err *err) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_WORKERS, WORKER_LIST);
    struct ledger_worker *list = NULL;
    size_t n = 0;
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        list = ledger_grow(list, n, sizeof(*list));
        ledger_workers_read(st, &list[n++]);
    }
    int e = rc == SQLITE_DONE ? 0 : store_error(db->db, err, "list workers");
    (void)sqlite3_reset(st);
    if (e < 0) {
        free(list);
        return e;
    }
    *ret_workers = list;
    *ret_n = n;
    return 0;
}

static int64_t code_bytes(const struct ledger_worker *w) {
    return w->code ? (int64_t)strlen(w->code) : 0;
}

/* --- asks: their changes are told by the back end --- */

static int ledger_workers_check_room(struct ledger_db *db, const struct ledger_worker_put *ask,
                                     struct err *err) {
    sqlite3_stmt *st = ready_for(db, WORKER_SUM, ask->worker->owner, ask->worker->id);
    int e = 0;
    if (sqlite3_step(st) != SQLITE_ROW)
        e = store_error(db->db, err, "count workers");
    else if (sqlite3_column_int64(st, 0) >= (int64_t)ask->workers_max)
        e = err_set(err, ERR_LIMIT,
                    "there are %zu workers, the most that one key may have (\"workers\"): delete "
                    "one first",
                    ask->workers_max);
    else if (sqlite3_column_int64(st, 1) + code_bytes(ask->worker) > (int64_t)ask->bytes_max)
        e = err_set(err, ERR_LIMIT,
                    "with this one the workers of the key exceed %zu MiB (\"workers_mb\"): delete "
                    "one first",
                    ask->bytes_max >> 20);
    (void)sqlite3_reset(st);
    return e;
}

/* A key's worker has a part of the key's id in its host name, which the operator's may have too. */
static int check_label(struct ledger_db *db, const struct ledger_worker *w, struct err *err) {
    sqlite3_stmt *st = ready_for(db, WORKER_LABEL, w->owner, w->id);
    store_bind_str(st, 3, w->label);
    int rc = sqlite3_step(st);
    int e =
        rc == SQLITE_DONE ? 0
        : rc == SQLITE_ROW
            ? err_set(err, ERR_CONFLICT,
                      "the host name \"%s\" is that of another worker: choose another id", w->label)
            : store_error(db->db, err, "look for a host name");
    (void)sqlite3_reset(st);
    return e;
}

static int next_version(struct ledger_db *db, int64_t *ret_version, struct err *err) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_WORKERS, WORKER_NEXT);
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        *ret_version = sqlite3_column_int64(st, 0);
        rc = sqlite3_step(st);
    }
    int e = rc == SQLITE_DONE ? 0 : store_error(db->db, err, "count a change of workers");
    (void)sqlite3_reset(st);
    return e;
}

static int put_worker(struct ledger_db *db, const struct ledger_worker *w, struct err *err) {
    sqlite3_stmt *st = ready_for(db, WORKER_PUT, w->owner, w->id);
    store_bind_str(st, 3, w->label);
    store_bind_int(st, 4, w->version);
    store_bind_int(st, 5, w->updated_ms);
    store_bind_int(st, 6, w->public);
    store_bind_str(st, 7, w->key);
    store_bind_int(st, 8, code_bytes(w));
    store_bind_str(st, 9, w->code);
    return store_step(st, "put a worker", NULL, err);
}

int ledger_do_worker_put(struct ledger_db *db, const struct ledger_worker_put *ask,
                         struct ledger_worker_stored *ret, struct err *err) {
    struct ledger_worker w = *ask->worker;
    w.updated_ms = db->now_ms();
    int rc = ledger_workers_check_room(db, ask, err);
    if (rc == 0)
        rc = check_label(db, &w, err);
    if (rc == 0)
        rc = next_version(db, &w.version, err);
    if (rc == 0)
        rc = put_worker(db, &w, err);
    if (rc < 0)
        return rc;
    w.code = NULL;
    ret->worker = w;
    return 0;
}

int ledger_do_worker_get(struct ledger_db *db, const struct ledger_worker_get *ask,
                         struct ledger_worker_got *ret, struct err *err) {
    sqlite3_stmt *st = ready_for(db, WORKER_GET, ask->owner, ask->id);
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        ret->worker = xmalloc(sizeof(*ret->worker));
        ledger_workers_read(st, ret->worker);
        ret->worker->code = store_column_dup(st, 7);
        ret->worker->code_len = (size_t)sqlite3_column_bytes(st, 7);
    }
    int e = rc == SQLITE_ROW    ? 0
            : rc == SQLITE_DONE ? no_worker(ask->id, err)
                                : store_error(db->db, err, "read a worker");
    (void)sqlite3_reset(st);
    return e;
}

int ledger_do_worker_delete(struct ledger_db *db, const struct ledger_worker_delete *ask,
                            struct ledger_worker_deleted *ret, struct err *err) {
    struct ledger_worker w = {0};
    int64_t changes = 0;
    int rc = store_step(ready_for(db, WORKER_DELETE, ask->owner, ask->id), "delete a worker",
                        &changes, err);
    if (rc == 0 && changes == 0)
        rc = no_worker(ask->id, err);
    if (rc == 0)
        rc = next_version(db, &w.version, err);
    if (rc < 0)
        return rc;
    (void)snprintf(w.owner, sizeof(w.owner), "%s", ask->owner);
    (void)snprintf(w.id, sizeof(w.id), "%s", ask->id);
    ret->worker = w;
    return 0;
}

/* --- what was the store's --- */

/* Those that are here already came with an attempt that was cut off. */
static const char take_sql[] =
    "INSERT OR IGNORE INTO main.workers (" WORKER_COLUMNS ", bytes, code)"
    " SELECT owner, id, label,"
    " (SELECT n FROM main.worker_version) + row_number() OVER (ORDER BY owner, id), updated_ms,"
    " CASE WHEN json_valid(code) THEN json_type(code, '$.public') IS 'true' ELSE 0 END, owner,"
    " length(CAST(code AS BLOB)), code FROM old.workers;"
    "UPDATE main.worker_version SET n = n + (SELECT count(*) FROM old.workers);";
static const char missing_sql[] =
    "SELECT count(*) FROM old.workers AS o WHERE NOT EXISTS"
    " (SELECT 1 FROM main.workers AS m WHERE m.owner = o.owner AND m.id = o.id)";

static int64_t ledger_workers_number(struct ledger_db *db, const char *text) {
    sqlite3_stmt *st = NULL;
    int64_t n = -1;
    if (sqlite3_prepare_v2(db->db, text, -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW)
        n = sqlite3_column_int64(st, 0);
    (void)sqlite3_finalize(st);
    return n;
}

static int ledger_workers_copy_all(struct ledger_db *db, struct err *err) {
    int rc = store_exec(db->db, "BEGIN IMMEDIATE", err, "lock the ledger");
    if (rc < 0)
        return rc;
    rc = store_exec(db->db, take_sql, err, "take over the workers");
    if (rc == 0 && ledger_workers_number(db, missing_sql) != 0)
        rc = err_set(err, ERR_CONFLICT,
                     "cay.db has a worker with the host name of one in ledger.db: delete one of "
                     "the two");
    if (rc == 0)
        rc = store_exec(db->db, "COMMIT", err, "take over the workers");
    if (rc < 0)
        (void)sqlite3_exec(db->db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

/* They are on the disk here before they go there: two files have no commit in common. */
static int ledger_workers_take(struct ledger_db *db, struct err *err) {
    if (ledger_workers_number(db,
                              "SELECT count(*) FROM old.sqlite_master WHERE name = 'workers'") == 0)
        return 0;
    int rc = ledger_workers_copy_all(db, err);
    if (rc < 0)
        return rc;
    if (sqlite3_wal_checkpoint_v2(db->db, "main", SQLITE_CHECKPOINT_FULL, NULL, NULL) != SQLITE_OK)
        return store_error(db->db, err, "write the workers that were taken over");
    return store_exec(db->db, "DROP TABLE old.workers", err, "leave the workers to the ledger");
}

int ledger_db_take_workers(struct ledger_db *db, const char *store_path, struct err *err) {
    char *attach = sqlite3_mprintf("ATTACH %Q AS old", store_path);
    int rc = store_exec(db->db, attach, err, "read the store");
    sqlite3_free(attach);
    if (rc < 0)
        return rc;
    rc = ledger_workers_take(db, err);
    (void)sqlite3_exec(db->db, "DETACH old", NULL, NULL, NULL);
    return rc;
}
