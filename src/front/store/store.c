#include "front/store/store.h"

#include "base/clock.h"
#include "base/mem.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

/* Each entry is one migration; PRAGMA user_version counts those that have run. Never edit one that
 * has been released: add the next. */
static const char *const migrations[] = {
    /* 1 */
    "CREATE TABLE keys (id TEXT PRIMARY KEY, name TEXT NOT NULL, scope TEXT NOT NULL,"
    " hash BLOB NOT NULL, rate_per_minute INTEGER NOT NULL DEFAULT 0, grants TEXT,"
    " created_ms INTEGER NOT NULL, revoked_ms INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;"
    "CREATE TABLE runs (id TEXT PRIMARY KEY, owner TEXT NOT NULL, kind TEXT NOT NULL,"
    " status TEXT NOT NULL, title TEXT NOT NULL, detail TEXT, error_code TEXT, error_message TEXT,"
    " created_ms INTEGER NOT NULL, finished_ms INTEGER NOT NULL DEFAULT 0);"
    "CREATE INDEX runs_owner ON runs (owner, id);"
    "CREATE INDEX runs_running ON runs (status) WHERE status = 'running';"
    "CREATE TABLE events (run_id TEXT NOT NULL, seq INTEGER NOT NULL, time_ms INTEGER NOT NULL,"
    " type TEXT NOT NULL, data TEXT NOT NULL, PRIMARY KEY (run_id, seq)) WITHOUT ROWID;",
    /* 2 */
    "CREATE TABLE workers (owner TEXT NOT NULL, id TEXT NOT NULL, label TEXT NOT NULL UNIQUE,"
    " code TEXT NOT NULL, updated_ms INTEGER NOT NULL, PRIMARY KEY (owner, id)) WITHOUT ROWID;",
    /* 3 */
    "CREATE TABLE records (kind TEXT NOT NULL, id TEXT NOT NULL, owner TEXT NOT NULL,"
    " parent TEXT NOT NULL, status TEXT NOT NULL, created_ms INTEGER NOT NULL,"
    " ended_ms INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0, doc TEXT NOT NULL,"
    " PRIMARY KEY (kind, id)) WITHOUT ROWID;"
    "CREATE INDEX records_owner ON records (kind, owner, id);"
    "CREATE INDEX records_parent ON records (parent, kind, id);"
    "CREATE INDEX records_alive ON records (kind) WHERE ended_ms = 0;",
};

enum statement {
    KEY_ADD,
    KEY_GET,
    KEY_REVOKE,
    KEY_LIST,
    KEY_COUNT,
    RUN_BEGIN,
    RUN_END,
    RUN_GET,
    RUN_LIST,
    RUN_INTERRUPT,
    EVENT_ADD,
    EVENT_LIST,
    WORKER_PUT,
    WORKER_GET,
    WORKER_DELETE,
    WORKER_LIST,
    RECORD_PUT,
    RECORD_GET,
    RECORD_LIST,
    RECORD_DELETE,
    RECORD_INTERRUPT,
    RECORD_OLD,
    RECORD_SUM,
    STATEMENT_COUNT,
};

#define KEY_COLUMNS "id, name, scope, hash, rate_per_minute, created_ms, revoked_ms, grants"
#define RUN_COLUMNS                                                                                \
    "id, owner, kind, status, title, detail, error_code, error_message, created_ms, finished_ms"

#define RECORD_COLUMNS "kind, id, owner, parent, status, created_ms, ended_ms, bytes, doc"

static const char *const statement_sql[STATEMENT_COUNT] = {
    [KEY_ADD] = "INSERT INTO keys (" KEY_COLUMNS ") VALUES (?1,?2,?3,?4,?5,?6,0,?7)",
    [KEY_GET] = "SELECT " KEY_COLUMNS " FROM keys WHERE id = ?1",
    [KEY_REVOKE] = "UPDATE keys SET revoked_ms = ?2 WHERE id = ?1 AND revoked_ms = 0",
    [KEY_LIST] = "SELECT " KEY_COLUMNS " FROM keys ORDER BY created_ms, id",
    [KEY_COUNT] = "SELECT count(*) FROM keys WHERE revoked_ms = 0",
    [RUN_BEGIN] = "INSERT INTO runs (id, owner, kind, status, title, detail, created_ms)"
                  " VALUES (?1,?2,?3,'running',?4,?5,?6)",
    [RUN_END] = "UPDATE runs SET status = ?2, error_code = ?3, error_message = ?4,"
                " detail = coalesce(?5, detail), finished_ms = ?6"
                " WHERE id = ?1 AND status = 'running'",
    [RUN_GET] = "SELECT " RUN_COLUMNS " FROM runs WHERE id = ?1 AND (?2 OR owner = ?3)",
    [RUN_LIST] = "SELECT " RUN_COLUMNS " FROM runs WHERE (?1 OR owner = ?2)"
                 " AND (?3 IS NULL OR id < ?3) AND (?4 IS NULL OR kind = ?4)"
                 " ORDER BY id DESC LIMIT ?5",
    [RUN_INTERRUPT] = "UPDATE runs SET status = 'interrupted', finished_ms = ?1,"
                      " error_code = 'interrupted',"
                      " error_message = 'the server ended while this was running'"
                      " WHERE status = 'running'",
    [EVENT_ADD] = "INSERT INTO events (run_id, seq, time_ms, type, data) VALUES (?1,"
                  " (SELECT coalesce(max(seq), 0) + 1 FROM events WHERE run_id = ?1), ?2, ?3, ?4)",
    [EVENT_LIST] = "SELECT seq, time_ms, type, data FROM events WHERE run_id = ?1 AND seq > ?2"
                   " ORDER BY seq LIMIT ?3",
    [WORKER_PUT] =
        "INSERT INTO workers (owner, id, label, code, updated_ms) VALUES (?1,?2,?3,?4,?5)"
        " ON CONFLICT (owner, id) DO UPDATE SET code = ?4, updated_ms = ?5",
    [WORKER_GET] = "SELECT owner, id, label, code, updated_ms FROM workers"
                   " WHERE (?1 IS NULL AND label = ?2) OR (owner = ?1 AND id = ?2)",
    [WORKER_DELETE] = "DELETE FROM workers WHERE owner = ?1 AND id = ?2",
    [WORKER_LIST] = "SELECT owner, id, label, code, updated_ms FROM workers WHERE owner = ?1"
                    " ORDER BY id",
    [RECORD_PUT] = "INSERT INTO records (" RECORD_COLUMNS ") VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9)"
                   " ON CONFLICT (kind, id) DO UPDATE SET status = ?5, ended_ms = ?7, bytes = ?8,"
                   " doc = ?9",
    [RECORD_GET] = "SELECT " RECORD_COLUMNS " FROM records WHERE kind = ?1 AND id = ?2"
                   " AND (?3 OR owner = ?4) AND (?5 IS NULL OR parent = ?5)",
    [RECORD_LIST] = "SELECT " RECORD_COLUMNS " FROM records WHERE kind = ?1 AND (?2 OR owner = ?3)"
                    " AND (?4 IS NULL OR parent = ?4) AND (?5 IS NULL OR id < ?5)"
                    " ORDER BY id DESC LIMIT ?6",
    [RECORD_DELETE] = "DELETE FROM records WHERE (kind = ?1 AND id = ?2) OR parent = ?2",
    [RECORD_INTERRUPT] = "UPDATE records SET status = 'interrupted', ended_ms = ?1"
                         " WHERE ended_ms = 0 AND kind IN ('sandbox', 'exec')",
    [RECORD_OLD] = "SELECT " RECORD_COLUMNS " FROM records WHERE kind = ?1 AND ended_ms > 0"
                   " AND (?2 IS NULL OR parent = ?2) AND (ended_ms < ?3 OR id NOT IN"
                   " (SELECT id FROM records WHERE kind = ?1 AND ended_ms > 0"
                   " AND (?2 IS NULL OR parent = ?2) ORDER BY id DESC LIMIT ?4)) LIMIT 100",
    [RECORD_SUM] = "SELECT coalesce(sum(bytes), 0) FROM records WHERE kind = ?1",
};

struct store {
    sqlite3 *db;
    sqlite3 *checkpoint_db; /* used by one worker thread at a time */
    sqlite3_stmt *statements[STATEMENT_COUNT];
};

static int db_error(sqlite3 *db, struct err *err, const char *what) {
    int code = sqlite3_extended_errcode(db);
    if ((code & 0xff) == SQLITE_FULL)
        return err_set(err, ERR_IO, "store: %s: the disk is full", what);
    return err_set(err, ERR_IO, "store: %s: %s", what, sqlite3_errmsg(db));
}

static int exec(sqlite3 *db, const char *sql, struct err *err, const char *what) {
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
        return db_error(db, err, what);
    return 0;
}

static int user_version(sqlite3 *db) {
    sqlite3_stmt *st = NULL;
    int v = -1;
    if (sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW)
        v = sqlite3_column_int(st, 0);
    (void)sqlite3_finalize(st);
    return v;
}

static int migrate(struct store *s, struct err *err) {
    int rc = exec(s->db, "BEGIN IMMEDIATE", err, "lock the database");
    if (rc < 0)
        return rc;
    int version = user_version(s->db);
    int latest = (int)(sizeof(migrations) / sizeof(migrations[0]));
    if (version < 0)
        rc = err_set(err, ERR_IO,
                     "the schema version cannot be read, or is none of ours: the file is damaged "
                     "or not cay's; choose another --data-dir");
    if (version > latest)
        rc = err_set(err, ERR_IO,
                     "the database was written by a newer cay (schema %d, this one knows %d): "
                     "update cay, or choose another --data-dir",
                     version, latest);
    for (int i = version; rc == 0 && i < latest; i++) {
        rc = exec(s->db, migrations[i], err, "migrate");
        char *sql = sqlite3_mprintf("PRAGMA user_version = %d", i + 1);
        if (rc == 0)
            rc = exec(s->db, sql, err, "migrate");
        sqlite3_free(sql);
    }
    if (rc == 0)
        rc = exec(s->db, "COMMIT", err, "migrate");
    if (rc < 0)
        (void)sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

int store_open(const char *path, struct store **ret_store, struct err *err) {
    struct store *s = xcalloc(1, sizeof(*s));
    int rc = 0;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW;
    if (sqlite3_open_v2(path, &s->db, flags, NULL) != SQLITE_OK ||
        sqlite3_busy_timeout(s->db, 5000) != SQLITE_OK)
        rc = db_error(s->db, err, "open the database");
    if (rc == 0)
        rc = exec(s->db,
                  "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
                  "PRAGMA wal_autocheckpoint = 0; PRAGMA foreign_keys = ON;"
                  "PRAGMA journal_size_limit = 16777216; PRAGMA trusted_schema = OFF;",
                  err, "set up the database");
    if (rc == 0)
        rc = migrate(s, err);
    for (int i = 0; rc == 0 && i < STATEMENT_COUNT; i++)
        if (sqlite3_prepare_v3(s->db, statement_sql[i], -1, SQLITE_PREPARE_PERSISTENT,
                               &s->statements[i], NULL) != SQLITE_OK)
            rc = db_error(s->db, err, statement_sql[i]);
    if (rc == 0 && (sqlite3_open_v2(path, &s->checkpoint_db, flags, NULL) != SQLITE_OK ||
                    sqlite3_exec(s->checkpoint_db, "PRAGMA synchronous = NORMAL", NULL, NULL,
                                 NULL) != SQLITE_OK))
        rc = db_error(s->checkpoint_db, err, "open the database");
    if (rc < 0) {
        store_close(s);
        return rc;
    }
    *ret_store = s;
    return 0;
}

void store_close(struct store *s) {
    if (!s)
        return;
    for (int i = 0; i < STATEMENT_COUNT; i++)
        (void)sqlite3_finalize(s->statements[i]);
    (void)sqlite3_close(s->checkpoint_db);
    (void)sqlite3_close(s->db);
    free(s);
}

void store_checkpoint(struct store *s) {
    (void)sqlite3_wal_checkpoint_v2(s->checkpoint_db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
}

/* --- small helpers around a prepared statement --- */

static sqlite3_stmt *ready(struct store *s, enum statement which) {
    sqlite3_stmt *st = s->statements[which];
    (void)sqlite3_reset(st);
    (void)sqlite3_clear_bindings(st);
    return st;
}

static void bind_str(sqlite3_stmt *st, int i, const char *v) {
    if (v)
        (void)sqlite3_bind_text(st, i, v, -1, SQLITE_STATIC);
}

static void bind_int(sqlite3_stmt *st, int i, int64_t v) {
    (void)sqlite3_bind_int64(st, i, v);
}

static char *column_strdup(sqlite3_stmt *st, int i) {
    const char *v = (const char *)sqlite3_column_text(st, i);
    return v ? xstrndup(v, (size_t)sqlite3_column_bytes(st, i)) : NULL;
}

static void column_id(sqlite3_stmt *st, int i, char out[ID_SIZE]) {
    const char *v = (const char *)sqlite3_column_text(st, i);
    size_t n = v ? strlen(v) : 0;
    if (n >= ID_SIZE)
        n = 0;
    if (n)
        memcpy(out, v, n);
    out[n] = 0;
}

/* Runs a statement that returns no rows; *ret_changes may be NULL. */
static int run(struct store *s, sqlite3_stmt *st, const char *what, int64_t *ret_changes,
               struct err *err) {
    int rc = sqlite3_step(st);
    if (rc != SQLITE_DONE) {
        int e = db_error(s->db, err, what);
        (void)sqlite3_reset(st);
        return e;
    }
    (void)sqlite3_reset(st);
    if (ret_changes)
        *ret_changes = sqlite3_changes64(s->db);
    return 0;
}

/* --- keys --- */

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
    column_id(st, 0, k->id);
    k->name = column_strdup(st, 1);
    k->scope = column_strdup(st, 2);
    if (sqlite3_column_bytes(st, 3) == STORE_HASH_SIZE)
        memcpy(k->hash, sqlite3_column_blob(st, 3), STORE_HASH_SIZE);
    k->rate_per_minute = sqlite3_column_int64(st, 4);
    k->created_ms = sqlite3_column_int64(st, 5);
    k->revoked_ms = sqlite3_column_int64(st, 6);
    k->grants = column_strdup(st, 7);
}

int store_key_add(struct store *s, const struct store_key *key, struct err *err) {
    sqlite3_stmt *st = ready(s, KEY_ADD);
    bind_str(st, 1, key->id);
    bind_str(st, 2, key->name);
    bind_str(st, 3, key->scope);
    (void)sqlite3_bind_blob(st, 4, key->hash, STORE_HASH_SIZE, SQLITE_STATIC);
    bind_int(st, 5, key->rate_per_minute);
    bind_int(st, 6, key->created_ms);
    bind_str(st, 7, key->grants);
    return run(s, st, "add a key", NULL, err);
}

int store_key_get(struct store *s, const char *id, struct store_key *ret_key, struct err *err) {
    sqlite3_stmt *st = ready(s, KEY_GET);
    bind_str(st, 1, id);
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW)
        read_key(st, ret_key);
    int e = rc == SQLITE_ROW    ? 0
            : rc == SQLITE_DONE ? err_set(err, ERR_NOT_FOUND, "there is no key \"%.40s\"", id)
                                : db_error(s->db, err, "read a key");
    (void)sqlite3_reset(st);
    return e;
}

int store_key_revoke(struct store *s, const char *id, struct err *err) {
    sqlite3_stmt *st = ready(s, KEY_REVOKE);
    bind_str(st, 1, id);
    bind_int(st, 2, clock_wall_ms());
    int64_t changes = 0;
    int rc = run(s, st, "revoke a key", &changes, err);
    if (rc == 0 && changes == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no valid key \"%.40s\"", id);
    return rc;
}

int store_key_list(struct store *s, void (*on_key)(void *ctx, const struct store_key *key),
                   void *ctx, struct err *err) {
    sqlite3_stmt *st = ready(s, KEY_LIST);
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct store_key k;
        read_key(st, &k);
        on_key(ctx, &k);
        store_key_finish(&k);
    }
    int e = rc == SQLITE_DONE ? 0 : db_error(s->db, err, "list keys");
    (void)sqlite3_reset(st);
    return e;
}

int store_key_count(struct store *s, int64_t *ret_valid, struct err *err) {
    sqlite3_stmt *st = ready(s, KEY_COUNT);
    int e = 0;
    if (sqlite3_step(st) == SQLITE_ROW)
        *ret_valid = sqlite3_column_int64(st, 0);
    else
        e = db_error(s->db, err, "count keys");
    (void)sqlite3_reset(st);
    return e;
}

/* --- runs --- */

void store_run_finish(struct store_run *r) {
    if (!r)
        return;
    free(r->kind);
    free(r->status);
    free(r->title);
    free(r->detail);
    free(r->error_code);
    free(r->error_message);
    *r = (struct store_run){0};
}

static void read_run(sqlite3_stmt *st, struct store_run *r) {
    *r = (struct store_run){0};
    column_id(st, 0, r->id);
    column_id(st, 1, r->owner);
    r->kind = column_strdup(st, 2);
    r->status = column_strdup(st, 3);
    r->title = column_strdup(st, 4);
    r->detail = column_strdup(st, 5);
    r->error_code = column_strdup(st, 6);
    r->error_message = column_strdup(st, 7);
    r->created_ms = sqlite3_column_int64(st, 8);
    r->finished_ms = sqlite3_column_int64(st, 9);
}

int store_run_begin(struct store *s, const struct store_run *run_, struct err *err) {
    sqlite3_stmt *st = ready(s, RUN_BEGIN);
    bind_str(st, 1, run_->id);
    bind_str(st, 2, run_->owner);
    bind_str(st, 3, run_->kind);
    bind_str(st, 4, run_->title);
    bind_str(st, 5, run_->detail);
    bind_int(st, 6, run_->created_ms);
    return run(s, st, "record a run", NULL, err);
}

int store_run_end(struct store *s, const char *id, const struct store_run_end *end,
                  struct err *err) {
    sqlite3_stmt *st = ready(s, RUN_END);
    bind_str(st, 1, id);
    bind_str(st, 2, end->status);
    bind_str(st, 3, end->error_code);
    bind_str(st, 4, end->error_message);
    if (end->detail)
        (void)sqlite3_bind_text64(st, 5, end->detail, end->detail_len, SQLITE_STATIC, SQLITE_UTF8);
    bind_int(st, 6, clock_wall_ms());
    int64_t changes = 0;
    int rc = run(s, st, "record the end of a run", &changes, err);
    if (rc == 0 && changes == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no running run \"%.40s\"", id);
    return rc;
}

int store_run_get(struct store *s, const char *id, struct store_scope scope,
                  struct store_run *ret_run, struct err *err) {
    sqlite3_stmt *st = ready(s, RUN_GET);
    bind_str(st, 1, id);
    bind_int(st, 2, scope.all);
    bind_str(st, 3, scope.owner ? scope.owner : "");
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW)
        read_run(st, ret_run);
    int e = rc == SQLITE_ROW    ? 0
            : rc == SQLITE_DONE ? err_set(err, ERR_NOT_FOUND, "there is no run \"%.40s\"", id)
                                : db_error(s->db, err, "read a run");
    (void)sqlite3_reset(st);
    return e;
}

int store_run_list(struct store *s, const struct store_run_query *query,
                   void (*on_run)(void *ctx, const struct store_run *run), void *ctx,
                   struct err *err) {
    sqlite3_stmt *st = ready(s, RUN_LIST);
    bind_int(st, 1, query->scope.all);
    bind_str(st, 2, query->scope.owner ? query->scope.owner : "");
    bind_str(st, 3, query->before);
    bind_str(st, 4, query->kind);
    bind_int(st, 5, (int64_t)query->limit);
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct store_run r;
        read_run(st, &r);
        on_run(ctx, &r);
        store_run_finish(&r);
    }
    int e = rc == SQLITE_DONE ? 0 : db_error(s->db, err, "list runs");
    (void)sqlite3_reset(st);
    return e;
}

int store_run_interrupt_all(struct store *s, int64_t *ret_count, struct err *err) {
    sqlite3_stmt *st = ready(s, RUN_INTERRUPT);
    bind_int(st, 1, clock_wall_ms());
    return run(s, st, "mark interrupted runs", ret_count, err);
}

/* --- events --- */

int store_event_add(struct store *s, const char *run_id, const char *type, const char *json,
                    size_t len, struct err *err) {
    sqlite3_stmt *st = ready(s, EVENT_ADD);
    bind_str(st, 1, run_id);
    bind_int(st, 2, clock_wall_ms());
    bind_str(st, 3, type);
    (void)sqlite3_bind_text64(st, 4, json, len, SQLITE_STATIC, SQLITE_UTF8);
    return run(s, st, "record an event", NULL, err);
}

int store_event_list(struct store *s, const char *run_id, int64_t after_seq, size_t limit,
                     void (*on_event)(void *ctx, const struct store_event *event), void *ctx,
                     struct err *err) {
    sqlite3_stmt *st = ready(s, EVENT_LIST);
    bind_str(st, 1, run_id);
    bind_int(st, 2, after_seq);
    bind_int(st, 3, (int64_t)limit);
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct store_event e = {.seq = sqlite3_column_int64(st, 0),
                                .time_ms = sqlite3_column_int64(st, 1),
                                .type = (const char *)sqlite3_column_text(st, 2),
                                .json = (const char *)sqlite3_column_text(st, 3)};
        on_event(ctx, &e);
    }
    int e = rc == SQLITE_DONE ? 0 : db_error(s->db, err, "list events");
    (void)sqlite3_reset(st);
    return e;
}

/* --- workers --- */

void store_worker_finish(struct store_worker *w) {
    if (!w)
        return;
    free(w->owner);
    free(w->id);
    free(w->label);
    free(w->code);
    *w = (struct store_worker){0};
}

static void read_worker(sqlite3_stmt *st, struct store_worker *w) {
    *w = (struct store_worker){.owner = column_strdup(st, 0),
                               .id = column_strdup(st, 1),
                               .label = column_strdup(st, 2),
                               .code = column_strdup(st, 3),
                               .updated_ms = sqlite3_column_int64(st, 4)};
}

int store_worker_put(struct store *s, const struct store_worker *w, struct err *err) {
    sqlite3_stmt *st = ready(s, WORKER_PUT);
    bind_str(st, 1, w->owner);
    bind_str(st, 2, w->id);
    bind_str(st, 3, w->label);
    bind_str(st, 4, w->code);
    bind_int(st, 5, clock_wall_ms());
    return run(s, st, "record a worker", NULL, err);
}

int store_worker_get(struct store *s, const char *owner, const char *id_or_label,
                     struct store_worker *ret_worker, struct err *err) {
    sqlite3_stmt *st = ready(s, WORKER_GET);
    bind_str(st, 1, owner);
    bind_str(st, 2, id_or_label);
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW)
        read_worker(st, ret_worker);
    int e = rc == SQLITE_ROW ? 0
            : rc == SQLITE_DONE
                ? err_set(err, ERR_NOT_FOUND, "there is no worker \"%.60s\"", id_or_label)
                : db_error(s->db, err, "read a worker");
    (void)sqlite3_reset(st);
    return e;
}

int store_worker_delete(struct store *s, const char *owner, const char *id, struct err *err) {
    sqlite3_stmt *st = ready(s, WORKER_DELETE);
    bind_str(st, 1, owner);
    bind_str(st, 2, id);
    int64_t changes = 0;
    int rc = run(s, st, "delete a worker", &changes, err);
    if (rc == 0 && changes == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no worker \"%.60s\"", id);
    return rc;
}

int store_worker_list(struct store *s, const char *owner,
                      void (*on_worker)(void *ctx, const struct store_worker *worker), void *ctx,
                      struct err *err) {
    sqlite3_stmt *st = ready(s, WORKER_LIST);
    bind_str(st, 1, owner);
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct store_worker w;
        read_worker(st, &w);
        on_worker(ctx, &w);
        store_worker_finish(&w);
    }
    int e = rc == SQLITE_DONE ? 0 : db_error(s->db, err, "list workers");
    (void)sqlite3_reset(st);
    return e;
}

/* --- records of sandboxes --- */

void store_record_finish(struct store_record *r) {
    if (!r)
        return;
    free(r->status);
    free(r->doc);
    *r = (struct store_record){0};
}

static void read_record(sqlite3_stmt *st, struct store_record *r) {
    *r = (struct store_record){0};
    column_id(st, 1, r->id);
    column_id(st, 2, r->owner);
    column_id(st, 3, r->parent);
    r->status = column_strdup(st, 4);
    r->created_ms = sqlite3_column_int64(st, 5);
    r->ended_ms = sqlite3_column_int64(st, 6);
    r->bytes = sqlite3_column_int64(st, 7);
    r->doc = column_strdup(st, 8);
}

int store_record_put(struct store *s, const char *kind, const struct store_record *r,
                     struct err *err) {
    sqlite3_stmt *st = ready(s, RECORD_PUT);
    bind_str(st, 1, kind);
    bind_str(st, 2, r->id);
    bind_str(st, 3, r->owner);
    bind_str(st, 4, r->parent);
    bind_str(st, 5, r->status);
    bind_int(st, 6, r->created_ms);
    bind_int(st, 7, r->ended_ms);
    bind_int(st, 8, r->bytes);
    bind_str(st, 9, r->doc);
    return run(s, st, "record a sandbox", NULL, err);
}

int store_record_get(struct store *s, const char *kind, const char *id, const char *parent,
                     struct store_scope scope, struct store_record *ret, struct err *err) {
    sqlite3_stmt *st = ready(s, RECORD_GET);
    bind_str(st, 1, kind);
    bind_str(st, 2, id);
    bind_int(st, 3, scope.all);
    bind_str(st, 4, scope.owner ? scope.owner : "");
    bind_str(st, 5, parent);
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW)
        read_record(st, ret);
    int e = rc == SQLITE_ROW    ? 0
            : rc == SQLITE_DONE ? err_set(err, ERR_NOT_FOUND, "there is no %s \"%.40s\"", kind, id)
                                : db_error(s->db, err, "read a record");
    (void)sqlite3_reset(st);
    return e;
}

static int list_records(struct store *s, sqlite3_stmt *st,
                        void (*on_record)(void *ctx, const struct store_record *r), void *ctx,
                        struct err *err) {
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct store_record r;
        read_record(st, &r);
        on_record(ctx, &r);
        store_record_finish(&r);
    }
    int e = rc == SQLITE_DONE ? 0 : db_error(s->db, err, "list records");
    (void)sqlite3_reset(st);
    return e;
}

int store_record_list(struct store *s, const char *kind, const struct store_record_query *query,
                      void (*on_record)(void *ctx, const struct store_record *r), void *ctx,
                      struct err *err) {
    sqlite3_stmt *st = ready(s, RECORD_LIST);
    bind_str(st, 1, kind);
    bind_int(st, 2, query->scope.all);
    bind_str(st, 3, query->scope.owner ? query->scope.owner : "");
    bind_str(st, 4, query->parent);
    bind_str(st, 5, query->before);
    bind_int(st, 6, (int64_t)query->limit);
    return list_records(s, st, on_record, ctx, err);
}

int store_record_delete(struct store *s, const char *kind, const char *id, struct err *err) {
    sqlite3_stmt *st = ready(s, RECORD_DELETE);
    bind_str(st, 1, kind);
    bind_str(st, 2, id);
    return run(s, st, "delete a record", NULL, err);
}

int store_record_interrupt_all(struct store *s, int64_t *ret_count, struct err *err) {
    sqlite3_stmt *st = ready(s, RECORD_INTERRUPT);
    bind_int(st, 1, clock_wall_ms());
    return run(s, st, "mark interrupted sandboxes", ret_count, err);
}

int store_record_old(struct store *s, const char *kind, const char *parent, int64_t before_ms,
                     size_t keep, void (*on_record)(void *ctx, const struct store_record *r),
                     void *ctx, struct err *err) {
    sqlite3_stmt *st = ready(s, RECORD_OLD);
    bind_str(st, 1, kind);
    bind_str(st, 2, parent);
    bind_int(st, 3, before_ms);
    bind_int(st, 4, (int64_t)keep);
    return list_records(s, st, on_record, ctx, err);
}

int store_record_sum(struct store *s, const char *kind, int64_t *ret_bytes, struct err *err) {
    sqlite3_stmt *st = ready(s, RECORD_SUM);
    bind_str(st, 1, kind);
    int e = 0;
    if (sqlite3_step(st) == SQLITE_ROW)
        *ret_bytes = sqlite3_column_int64(st, 0);
    else
        e = db_error(s->db, err, "sum records");
    (void)sqlite3_reset(st);
    return e;
}
