#include "front/store/internal.h"

#include "base/fd.h"
#include "base/mem.h"
#include "front/store/files.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#define ARTIFACTS_OF(id) "coalesce((SELECT sum(bytes) FROM artifacts WHERE run_id = " id "), 0)"
#define EVENTS_OF(id)                                                                              \
    "coalesce((SELECT total_bytes FROM events WHERE run_id = " id " ORDER BY seq DESC LIMIT 1), "  \
    "0)"
#define EVENTS_OF_NEW    EVENTS_OF("new.id")
#define EVENTS_OF_OLD    EVENTS_OF("old.id")
#define ARTIFACTS_OF_NEW ARTIFACTS_OF("new.id")
#define ARTIFACTS_OF_OLD ARTIFACTS_OF("old.id")

/* Each entry is one migration; PRAGMA user_version counts those that have run. Never edit one that
 * has been released: add the next. */
const char *const store_migrations[] = {
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
    /* 4: an index for every list. What may have megabytes stands last in its row, since SQLite
       reads a row up to the last column that is asked for, and in tables with a rowid: a search in
       one without reads whole rows to compare them. */
    "ALTER TABLE runs RENAME TO runs_3;"
    "CREATE TABLE runs (id TEXT PRIMARY KEY, owner TEXT NOT NULL, kind TEXT NOT NULL,"
    " status TEXT NOT NULL, title TEXT NOT NULL, error_code TEXT, error_message TEXT,"
    " created_ms INTEGER NOT NULL, finished_ms INTEGER NOT NULL DEFAULT 0,"
    " bytes INTEGER NOT NULL DEFAULT 0, detail TEXT);"
    "INSERT INTO runs SELECT id, owner, kind, status, title, error_code, error_message,"
    " created_ms, finished_ms, coalesce(length(CAST(detail AS BLOB)), 0), detail FROM runs_3"
    " ORDER BY id;"
    "DROP TABLE runs_3;"
    "CREATE INDEX runs_owner ON runs (owner, id);"
    "CREATE INDEX runs_kind ON runs (kind, id);"
    "CREATE INDEX runs_owner_kind ON runs (owner, kind, id);"
    "CREATE INDEX runs_running ON runs (status) WHERE status = 'running';"
    "ALTER TABLE events RENAME TO events_3;"
    "CREATE TABLE events (run_id TEXT NOT NULL, seq INTEGER NOT NULL, time_ms INTEGER NOT NULL,"
    " type TEXT NOT NULL, total_bytes INTEGER NOT NULL DEFAULT 0, data TEXT NOT NULL,"
    " PRIMARY KEY (run_id, seq));"
    "INSERT INTO events SELECT run_id, seq, time_ms, type, 0, data FROM events_3"
    " WHERE run_id IN (SELECT id FROM runs);"
    "DROP TABLE events_3;"
    "ALTER TABLE workers RENAME TO workers_3;"
    "CREATE TABLE workers (owner TEXT NOT NULL, id TEXT NOT NULL, label TEXT NOT NULL UNIQUE,"
    " updated_ms INTEGER NOT NULL, bytes INTEGER NOT NULL DEFAULT 0, code TEXT NOT NULL,"
    " PRIMARY KEY (owner, id));"
    "INSERT INTO workers SELECT owner, id, label, updated_ms, length(CAST(code AS BLOB)), code"
    " FROM workers_3;"
    "DROP TABLE workers_3;"
    "ALTER TABLE records RENAME TO records_3;"
    "CREATE TABLE records (kind TEXT NOT NULL, id TEXT NOT NULL, owner TEXT NOT NULL,"
    " parent TEXT NOT NULL, status TEXT NOT NULL, created_ms INTEGER NOT NULL,"
    " ended_ms INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0, doc TEXT NOT NULL,"
    " PRIMARY KEY (kind, id));"
    "INSERT INTO records SELECT kind, id, owner, parent, status, created_ms, ended_ms, bytes, doc"
    " FROM records_3;"
    "DROP TABLE records_3;"
    "CREATE INDEX records_owner ON records (kind, owner, id);"
    "CREATE INDEX records_parent ON records (parent, kind, id);"
    "CREATE INDEX records_alive ON records (kind) WHERE ended_ms = 0;"
    "CREATE INDEX records_ended ON records (kind, parent, id, ended_ms) WHERE ended_ms > 0;"
    "CREATE INDEX records_bytes ON records (kind, bytes) WHERE bytes > 0;",
    /* 5: what the ended runs of each owner take, with their events. An event's total_bytes is the
       sum up to it. */
    "CREATE TABLE run_sums (owner TEXT PRIMARY KEY, runs INTEGER NOT NULL, bytes INTEGER NOT NULL)"
    " WITHOUT ROWID;"
    "INSERT INTO run_sums SELECT owner, count(*), sum(bytes) FROM runs WHERE status <> 'running'"
    " GROUP BY owner;"
    "CREATE TRIGGER run_added AFTER INSERT ON runs WHEN new.status <> 'running' BEGIN"
    " INSERT INTO run_sums VALUES (new.owner, 1, new.bytes)"
    " ON CONFLICT (owner) DO UPDATE SET runs = runs + 1, bytes = bytes + new.bytes; END;"
    "CREATE TRIGGER run_ended AFTER UPDATE OF status ON runs"
    " WHEN old.status = 'running' AND new.status <> 'running' BEGIN"
    " INSERT INTO run_sums VALUES (new.owner, 1, new.bytes + " EVENTS_OF_NEW ")"
    " ON CONFLICT (owner) DO UPDATE SET runs = runs + 1, bytes = bytes + excluded.bytes; END;"
    "CREATE TRIGGER run_deleted AFTER DELETE ON runs BEGIN"
    " UPDATE run_sums SET runs = runs - 1, bytes = bytes - old.bytes - " EVENTS_OF_OLD
    " WHERE owner = old.owner AND old.status <> 'running';"
    " DELETE FROM events WHERE run_id = old.id; END;"
    "CREATE TRIGGER event_added AFTER INSERT ON events BEGIN"
    " UPDATE run_sums SET bytes = bytes + new.total_bytes - coalesce((SELECT total_bytes FROM "
    "events"
    " WHERE run_id = new.run_id AND seq = new.seq - 1), 0)"
    " WHERE owner = (SELECT owner FROM runs WHERE id = new.run_id AND status <> 'running'); END;",
    /* 6: what sandboxes did on the network; it goes with the record of the sandbox. */
    "CREATE TABLE network_events (id INTEGER PRIMARY KEY, sandbox TEXT NOT NULL,"
    " refused INTEGER NOT NULL, seq INTEGER NOT NULL, n INTEGER NOT NULL, data TEXT NOT NULL);"
    "CREATE UNIQUE INDEX network_events_seq ON network_events (sandbox, seq);"
    "CREATE UNIQUE INDEX network_events_n ON network_events (sandbox, refused, n);"
    "CREATE INDEX network_events_refused ON network_events (refused);"
    "CREATE TABLE network_sum (id INTEGER PRIMARY KEY, events INTEGER NOT NULL);"
    "INSERT INTO network_sum VALUES (1, 0);"
    "CREATE TRIGGER network_event_added AFTER INSERT ON network_events BEGIN"
    " UPDATE network_sum SET events = events + 1 WHERE id = 1; END;"
    "CREATE TRIGGER network_event_deleted AFTER DELETE ON network_events BEGIN"
    " UPDATE network_sum SET events = events - 1 WHERE id = 1; END;"
    "CREATE TRIGGER network_events_forget AFTER DELETE ON records WHEN OLD.kind = 'sandbox'"
    " BEGIN DELETE FROM network_events WHERE sandbox = OLD.id; END;",
    /* 7: fewer pages to write for a run. Runs are listed in the order of their rowid. After a
       crash those that run_watch names are looked at, and all that began after the last of them;
       it begins and ends no run, so that a run does not cost two pages of an index. */
    "DROP INDEX runs_owner; DROP INDEX runs_kind; DROP INDEX runs_owner_kind;"
    "DROP INDEX runs_running;"
    "CREATE INDEX runs_kind ON runs (kind);"
    "CREATE INDEX runs_owner_kind ON runs (owner, kind);"
    "CREATE TABLE run_watch (run INTEGER PRIMARY KEY);"
    "INSERT INTO run_watch SELECT coalesce(max(rowid), 0) FROM runs;"
    "INSERT OR IGNORE INTO run_watch SELECT rowid FROM runs WHERE status = 'running';",
    /* 8: artifacts, counted as events are; blobs without any are deleted by who takes care. */
    "CREATE TABLE artifacts (run_id TEXT NOT NULL, name TEXT NOT NULL, type TEXT NOT NULL,"
    " bytes INTEGER NOT NULL, hash TEXT NOT NULL, created_ms INTEGER NOT NULL,"
    " PRIMARY KEY (run_id, name)) WITHOUT ROWID;"
    "CREATE TABLE blobs (hash TEXT PRIMARY KEY, bytes INTEGER NOT NULL, uses INTEGER NOT NULL)"
    " WITHOUT ROWID;"
    "CREATE INDEX blobs_unused ON blobs (hash) WHERE uses = 0;"
    "CREATE TRIGGER artifact_added AFTER INSERT ON artifacts BEGIN"
    " INSERT INTO blobs VALUES (new.hash, new.bytes, 1)"
    " ON CONFLICT (hash) DO UPDATE SET uses = uses + 1;"
    " UPDATE run_sums SET bytes = bytes + new.bytes WHERE owner ="
    " (SELECT owner FROM runs WHERE id = new.run_id AND status <> 'running'); END;"
    "CREATE TRIGGER artifact_deleted AFTER DELETE ON artifacts BEGIN"
    " UPDATE blobs SET uses = uses - 1 WHERE hash = old.hash;"
    " UPDATE run_sums SET bytes = bytes - old.bytes WHERE owner ="
    " (SELECT owner FROM runs WHERE id = old.run_id AND status <> 'running'); END;"
    "DROP TRIGGER run_ended; DROP TRIGGER run_deleted;"
    "CREATE TRIGGER run_ended AFTER UPDATE OF status ON runs"
    " WHEN old.status = 'running' AND new.status <> 'running' BEGIN"
    " INSERT INTO run_sums VALUES (new.owner, 1, new.bytes + " EVENTS_OF_NEW " + " ARTIFACTS_OF_NEW
    ")"
    " ON CONFLICT (owner) DO UPDATE SET runs = runs + 1, bytes = bytes + excluded.bytes; END;"
    "CREATE TRIGGER run_deleted AFTER DELETE ON runs BEGIN"
    " UPDATE run_sums SET runs = runs - 1, bytes = bytes - old.bytes - " EVENTS_OF_OLD
    " - " ARTIFACTS_OF_OLD " WHERE owner = old.owner AND old.status <> 'running';"
    " DELETE FROM events WHERE run_id = old.id; DELETE FROM artifacts WHERE run_id = old.id; END;",
    /* 9: where each blob is (mirror.c): 0 here alone, 1 in the bucket too, 2 to be removed there, 3
       being sent. */
    "DROP TRIGGER artifact_added;"
    "ALTER TABLE blobs ADD COLUMN stored INTEGER NOT NULL DEFAULT 0;"
    "CREATE INDEX blobs_moving ON blobs (stored, hash) WHERE stored <> 1;"
    "CREATE TRIGGER artifact_added AFTER INSERT ON artifacts BEGIN"
    " INSERT INTO blobs (hash, bytes, uses) VALUES (new.hash, new.bytes, 1)"
    " ON CONFLICT (hash) DO UPDATE SET uses = uses + 1, bytes = excluded.bytes;"
    " UPDATE run_sums SET bytes = bytes + new.bytes WHERE owner ="
    " (SELECT owner FROM runs WHERE id = new.run_id AND status <> 'running'); END;",
    /* 10: what runs used of models; only those that did have a row. */
    "CREATE TABLE run_usage (run INTEGER PRIMARY KEY, input_tokens INTEGER NOT NULL,"
    " output_tokens INTEGER NOT NULL, cache_read_tokens INTEGER NOT NULL,"
    " cache_write_tokens INTEGER NOT NULL, cost_nusd INTEGER NOT NULL, unpriced INTEGER NOT NULL);"
    "CREATE TRIGGER run_usage_deleted AFTER DELETE ON runs BEGIN"
    " DELETE FROM run_usage WHERE run = old.rowid; END;",
    /* 11: workers are the ledger's, which takes the table away when it has them all
       (ledger/workers.c). An earlier cay would miss it, and is told that it is too old. */
    "",
    /* 12: which key of the project began a run. The owner of before was the key. */
    "ALTER TABLE runs ADD COLUMN key TEXT NOT NULL DEFAULT ''; UPDATE runs SET key = owner;",
};
const int store_migration_count = ARRAY_LEN(store_migrations);

const struct store_statements *const store_statements[STORE_SUBJECTS] = {
    [STORE_RUNS] = &store_run_statements,        [STORE_RECORDS] = &store_record_statements,
    [STORE_NETWORK] = &store_network_statements, [STORE_ARTIFACTS] = &store_artifact_statements,
    [STORE_CARE] = &store_care_statements,       [STORE_MIRROR] = &store_mirror_statements,
};

static int prepare_on(sqlite3 *db, int subject, sqlite3_stmt ***ret, struct err *err) {
    const struct store_statements *all = store_statements[subject];
    *ret = xcalloc(all->n, sizeof(sqlite3_stmt *));
    for (size_t i = 0; i < all->n; i++)
        if (sqlite3_prepare_v3(db, all->sql[i], -1, SQLITE_PREPARE_PERSISTENT, &(*ret)[i], NULL) !=
            SQLITE_OK)
            return store_error(db, err, all->sql[i]);
    return 0;
}

/* Most statements are used on one connection only, but a list of which would have to be kept. */
static int store_prepare(struct store *s, int subject, struct err *err) {
    bool care = subject == STORE_CARE;
    int rc = prepare_on(care ? s->care_db : s->read_db, subject, &s->read_statements[subject], err);
    if (rc == 0 && !care)
        rc = prepare_on(s->db, subject, &s->write_statements[subject], err);
    return rc;
}

static void store_finalize(sqlite3_stmt **statements, int subject) {
    for (size_t k = 0; statements && k < store_statements[subject]->n; k++)
        (void)sqlite3_finalize(statements[k]);
    free(statements);
}

static int store_connect(const char *path, sqlite3 **ret_db, struct err *err) {
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW;
    if (sqlite3_open_v2(path, ret_db, flags, NULL) != SQLITE_OK ||
        sqlite3_busy_timeout(*ret_db, 5000) != SQLITE_OK)
        return store_error(*ret_db, err, "open the database");
    return store_exec(*ret_db, "PRAGMA synchronous = NORMAL", err, "open the database");
}

int store_open(const char *path, struct store **ret_store, struct err *err) {
    struct store *s = xcalloc(1, sizeof(*s));
    s->settings = store_settings_default();
    s->path = xstrdup(path);
    s->files = files_open_folder(path, false, NULL);
    int rc = store_check_emptied(path, "ledger.db", "the records of runs and sandboxes", err);
    if (rc == 0)
        rc = store_connect(path, &s->db, err);
    if (rc == 0)
        rc = store_exec(s->db,
                        "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0;"
                        "PRAGMA foreign_keys = ON; PRAGMA journal_size_limit = 33554432;"
                        "PRAGMA trusted_schema = OFF;",
                        err, "set up the database");
    if (rc == 0)
        rc = store_migrate(s->db, store_migrations, store_migration_count, NULL, NULL, err);
    if (rc == 0)
        rc = store_connect(path, &s->read_db, err);
    if (rc == 0)
        rc = store_exec(s->read_db, "PRAGMA query_only = ON", err, "open the database");
    if (rc == 0)
        rc = store_connect(path, &s->care_db, err);
    for (int i = 0; rc == 0 && i < STORE_SUBJECTS; i++)
        rc = store_prepare(s, i, err);
    if (rc == 0)
        store_care_init(s);
    if (rc < 0) {
        if (s->db)
            store_remove_empty(path);
        store_close(s);
        return rc;
    }
    *ret_store = s;
    return 0;
}

void store_configure(struct store *s, const struct store_settings *settings) {
    s->settings = *settings;
}

void store_close(struct store *s) {
    if (!s)
        return;
    store_stop_writer(s);
    for (int i = 0; i < STORE_SUBJECTS; i++) {
        store_finalize(s->read_statements[i], i);
        store_finalize(s->write_statements[i], i);
    }
    int files = atomic_load(&s->files);
    fd_close(&files);
    free(s->path);
    (void)sqlite3_close(s->care_db);
    (void)sqlite3_close(s->read_db);
    (void)sqlite3_close(s->db);
    free(s);
}

static sqlite3_stmt *store_reset(sqlite3_stmt *st) {
    (void)sqlite3_reset(st);
    (void)sqlite3_clear_bindings(st);
    errno = 0; /* for store_error() */
    return st;
}

sqlite3_stmt *store_read_statement(const struct store *s, enum store_subject subject, int which) {
    return store_reset(s->read_statements[subject][which]);
}

sqlite3_stmt *store_write_statement(const struct store *s, enum store_subject subject, int which) {
    return store_reset(s->write_statements[subject][which]);
}
