#include "front/ledger/internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/path.h"
#include "front/store/wal.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* PASSES over what was written since the one before leave little; that little is waited for, at
 * LOCK_US a time, only if the log is long. */
enum { CHECKPOINT_PAGES = 1000, LONG_PAGES = 8000, PASSES = 3, LOCK_US = 100, LOCK_TRIES = 50 };
enum { OWN_VERSION, OWN_BEGIN, OWN_COMMIT, OWN_ROLLBACK };

static const char *const own_sql[] = {[OWN_VERSION] = "PRAGMA data_version",
                                      [OWN_BEGIN] = "BEGIN IMMEDIATE",
                                      [OWN_COMMIT] = "COMMIT",
                                      [OWN_ROLLBACK] = "ROLLBACK"};
static const struct ledger_statements own_statements = {own_sql, ARRAY_LEN(own_sql)};

static const struct ledger_statements *const all_statements[LEDGER_SUBJECTS] = {
    [LEDGER_OWN] = &own_statements,
    [LEDGER_KEYS] = &ledger_key_statements,
    [LEDGER_TASKS] = &ledger_task_statements,
    [LEDGER_QUEUE] = &ledger_queue_statements,
    [LEDGER_HOOKS] = &ledger_hook_statements,
    [LEDGER_SPENDS] = &ledger_spend_statements,
    [LEDGER_WORKERS] = &ledger_worker_statements};

/* Never edit one that has been released: add the next. */
static const char *const migrations[] = {
    /* 1 */
    "CREATE TABLE keys (id TEXT PRIMARY KEY, name TEXT NOT NULL, scope TEXT NOT NULL,"
    " hash BLOB NOT NULL, rate_per_minute INTEGER NOT NULL DEFAULT 0, grants TEXT,"
    " created_ms INTEGER NOT NULL, revoked_ms INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;",
    /* 2: tasks. What is looked at all the time (queue, scheduled, leases, outbox) holds only what
       is under way; tasks is the history. */
    "CREATE TABLE nodes (id TEXT PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE tasks (id TEXT PRIMARY KEY, owner TEXT NOT NULL, type TEXT NOT NULL,"
    " title TEXT, state INTEGER NOT NULL, priority INTEGER NOT NULL,"
    " timeout_ms INTEGER NOT NULL, max_attempts INTEGER NOT NULL,"
    " attempt INTEGER NOT NULL DEFAULT 0, run TEXT, run_at_ms INTEGER NOT NULL,"
    " created_ms INTEGER NOT NULL, started_ms INTEGER NOT NULL DEFAULT 0,"
    " finished_ms INTEGER NOT NULL DEFAULT 0, idem TEXT, idem_hash TEXT, webhook TEXT,"
    " secret TEXT, error_code TEXT, error_message TEXT, hook_state TEXT,"
    " hook_tries INTEGER NOT NULL DEFAULT 0, hook_error TEXT);"
    "CREATE UNIQUE INDEX tasks_idem ON tasks (owner, idem) WHERE idem IS NOT NULL;"
    "CREATE INDEX tasks_owner ON tasks (owner, id);"
    "CREATE INDEX tasks_state ON tasks (state, id);"
    "CREATE INDEX tasks_owner_state ON tasks (owner, state, id);"
    "CREATE INDEX tasks_finished ON tasks (finished_ms) WHERE finished_ms > 0;"
    "CREATE TABLE task_bodies (task TEXT PRIMARY KEY, body TEXT NOT NULL);"
    "CREATE TABLE task_results (task TEXT PRIMARY KEY, result TEXT NOT NULL);"
    "CREATE TABLE task_attempts (task TEXT NOT NULL, attempt INTEGER NOT NULL, node TEXT NOT NULL,"
    " run TEXT NOT NULL, started_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL DEFAULT 0,"
    " outcome TEXT, error_code TEXT, error_message TEXT, PRIMARY KEY (task, attempt))"
    " WITHOUT ROWID;"
    "CREATE TRIGGER task_deleted AFTER DELETE ON tasks BEGIN"
    " DELETE FROM task_bodies WHERE task = old.id; DELETE FROM task_results WHERE task = old.id;"
    " DELETE FROM task_attempts WHERE task = old.id; END;"
    "CREATE TABLE queue (task TEXT PRIMARY KEY, owner TEXT NOT NULL, priority INTEGER NOT NULL)"
    " WITHOUT ROWID;"
    "CREATE INDEX queue_turn ON queue (owner, priority DESC, task);"
    "CREATE TABLE scheduled (task TEXT PRIMARY KEY, owner TEXT NOT NULL,"
    " priority INTEGER NOT NULL, run_at_ms INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE INDEX scheduled_due ON scheduled (run_at_ms);"
    "CREATE TABLE leases (task TEXT PRIMARY KEY, owner TEXT NOT NULL, attempt INTEGER NOT NULL,"
    " node TEXT NOT NULL, epoch INTEGER NOT NULL, until_ms INTEGER NOT NULL,"
    " cancel INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;"
    "CREATE INDEX leases_owner ON leases (owner);"
    "CREATE INDEX leases_until ON leases (until_ms);"
    "CREATE TABLE waiting (owner TEXT PRIMARY KEY, tasks INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TRIGGER queue_in AFTER INSERT ON queue BEGIN INSERT INTO waiting VALUES (new.owner, 1)"
    " ON CONFLICT (owner) DO UPDATE SET tasks = tasks + 1; END;"
    "CREATE TRIGGER queue_out AFTER DELETE ON queue BEGIN"
    " UPDATE waiting SET tasks = tasks - 1 WHERE owner = old.owner; END;"
    "CREATE TRIGGER scheduled_in AFTER INSERT ON scheduled BEGIN"
    " INSERT INTO waiting VALUES (new.owner, 1)"
    " ON CONFLICT (owner) DO UPDATE SET tasks = tasks + 1; END;"
    "CREATE TRIGGER scheduled_out AFTER DELETE ON scheduled BEGIN"
    " UPDATE waiting SET tasks = tasks - 1 WHERE owner = old.owner; END;"
    "CREATE TABLE outbox (seq INTEGER PRIMARY KEY AUTOINCREMENT, event TEXT NOT NULL UNIQUE,"
    " task TEXT NOT NULL, url TEXT NOT NULL, secret TEXT NOT NULL, tries INTEGER NOT NULL DEFAULT "
    "0,"
    " next_ms INTEGER NOT NULL, body TEXT NOT NULL);"
    "CREATE INDEX outbox_next ON outbox (next_ms);"
    "CREATE INDEX outbox_task ON outbox (task, seq);"
    "CREATE TABLE usage (owner TEXT NOT NULL, day TEXT NOT NULL, type TEXT NOT NULL,"
    " state INTEGER NOT NULL, tasks INTEGER NOT NULL, attempts INTEGER NOT NULL,"
    " wall_ms INTEGER NOT NULL, PRIMARY KEY (owner, day, type, state)) WITHOUT ROWID;",
    /* 3: limits of keys, and what they spend. A reservation that was settled stays for a while, so
       that it is settled once. */
    "ALTER TABLE keys ADD COLUMN max_jobs INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE keys ADD COLUMN tokens_per_day INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE keys ADD COLUMN nusd_per_day INTEGER NOT NULL DEFAULT 0;"
    "CREATE TABLE spend_days (owner TEXT NOT NULL, day TEXT NOT NULL,"
    " tokens INTEGER NOT NULL DEFAULT 0, nusd INTEGER NOT NULL DEFAULT 0,"
    " held_tokens INTEGER NOT NULL DEFAULT 0, held_nusd INTEGER NOT NULL DEFAULT 0,"
    " PRIMARY KEY (owner, day)) WITHOUT ROWID;"
    "CREATE INDEX spend_days_day ON spend_days (day);"
    "CREATE TABLE reserves (id TEXT PRIMARY KEY, owner TEXT NOT NULL, day TEXT NOT NULL,"
    " tokens INTEGER NOT NULL, nusd INTEGER NOT NULL, node TEXT NOT NULL,"
    " until_ms INTEGER NOT NULL, settled_ms INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;"
    "CREATE INDEX reserves_until ON reserves (owner, until_ms) WHERE settled_ms = 0;"
    "CREATE INDEX reserves_node ON reserves (node) WHERE settled_ms = 0;"
    "CREATE INDEX reserves_settled ON reserves (settled_ms) WHERE settled_ms > 0;"
    "CREATE TABLE job_usage (day TEXT NOT NULL, owner TEXT NOT NULL, kind TEXT NOT NULL,"
    " jobs INTEGER NOT NULL, done INTEGER NOT NULL, wall_ms INTEGER NOT NULL,"
    " input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,"
    " cache_read_tokens INTEGER NOT NULL, cache_write_tokens INTEGER NOT NULL,"
    " cost_nusd INTEGER NOT NULL, charged_nusd INTEGER NOT NULL,"
    " PRIMARY KEY (day, owner, kind)) WITHOUT ROWID;",
    /* 4: what was set aside by a server that is gone counts as spent; `lost` tells it from what was
       settled. */
    "ALTER TABLE reserves ADD COLUMN lost INTEGER NOT NULL DEFAULT 0;",
    /* 5: deployed workers. The code, which may have megabytes, stands last in its row. */
    "CREATE TABLE workers (owner TEXT NOT NULL, id TEXT NOT NULL, label TEXT NOT NULL UNIQUE,"
    " version INTEGER NOT NULL, updated_ms INTEGER NOT NULL, public INTEGER NOT NULL,"
    " bytes INTEGER NOT NULL, code TEXT NOT NULL, PRIMARY KEY (owner, id));"
    "CREATE TABLE worker_version (n INTEGER NOT NULL);"
    "INSERT INTO worker_version VALUES (1);",
    /* 6: how much of the ledger the tasks of each key take: the bodies of those that have not
       ended, and what is kept of the others. Those of before do not count. */
    "ALTER TABLE tasks ADD COLUMN body_bytes INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE tasks ADD COLUMN result_bytes INTEGER NOT NULL DEFAULT 0;"
    "CREATE TABLE task_room (owner TEXT PRIMARY KEY, bodies INTEGER NOT NULL DEFAULT 0,"
    " ended INTEGER NOT NULL DEFAULT 0, results INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;"
    "CREATE INDEX task_room_ended ON task_room (ended);"
    "CREATE INDEX task_room_results ON task_room (results);"
    "INSERT INTO task_room (owner, ended) SELECT owner, count(*) FROM tasks WHERE finished_ms > 0"
    " GROUP BY owner;"
    "CREATE TRIGGER task_room_in AFTER INSERT ON tasks BEGIN"
    " INSERT INTO task_room (owner, bodies) VALUES (new.owner, new.body_bytes)"
    " ON CONFLICT (owner) DO UPDATE SET bodies = bodies + excluded.bodies; END;"
    "CREATE TRIGGER task_room_end AFTER UPDATE OF finished_ms ON tasks"
    " WHEN old.finished_ms = 0 AND new.finished_ms > 0 BEGIN"
    " UPDATE task_room SET bodies = bodies - old.body_bytes, ended = ended + 1,"
    " results = results + new.result_bytes WHERE owner = old.owner; END;"
    "CREATE TRIGGER task_room_less AFTER UPDATE OF result_bytes ON tasks"
    " WHEN old.finished_ms > 0 BEGIN UPDATE task_room SET"
    " results = results + new.result_bytes - old.result_bytes WHERE owner = old.owner; END;"
    "CREATE TRIGGER task_room_out AFTER DELETE ON tasks WHEN old.finished_ms > 0 BEGIN"
    " UPDATE task_room SET ended = ended - 1, results = results - old.result_bytes"
    " WHERE owner = old.owner; END;"
    "CREATE INDEX tasks_results ON tasks (owner, id) WHERE result_bytes > 0;",
    /* 7: messages to webhooks are sent in turns, as tasks are run. */
    "ALTER TABLE outbox ADD COLUMN owner TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE outbox ADD COLUMN taken INTEGER NOT NULL DEFAULT 0;"
    "UPDATE outbox SET owner = coalesce((SELECT owner FROM tasks WHERE id = outbox.task), '');"
    "CREATE INDEX outbox_owner ON outbox (owner, next_ms);"
    "CREATE INDEX outbox_taken ON outbox (owner) WHERE taken = 1;",
    /* 8: long bodies and codes are texts in pieces, and the column of their own is empty. */
    PIECES_SCHEMA "ALTER TABLE task_bodies ADD COLUMN text INTEGER;"
                  "ALTER TABLE workers ADD COLUMN text INTEGER;"
                  "CREATE TRIGGER task_text_out AFTER DELETE ON task_bodies"
                  " WHEN old.text IS NOT NULL BEGIN " PIECES_DROP "old.text; END;"
                  "CREATE TRIGGER worker_text_out AFTER DELETE ON workers"
                  " WHEN old.text IS NOT NULL BEGIN " PIECES_DROP "old.text; END;"
                  "CREATE TRIGGER worker_text_new AFTER UPDATE OF text ON workers"
                  " WHEN old.text IS NOT NULL AND old.text IS NOT new.text"
                  " BEGIN " PIECES_DROP "old.text; END;",
};

#define KEY_COLUMNS "id, name, scope, hash, rate_per_minute, grants, created_ms, revoked_ms"

/* What was in the store before there was a ledger. */
static int take_over(void *ctx, int from, struct err *err) {
    struct ledger_db *db = ctx;
    sqlite3_stmt *st = NULL;
    if (from > 0 ||
        sqlite3_prepare_v2(db->db, "SELECT 1 FROM old.sqlite_master WHERE name = 'keys'", -1, &st,
                           NULL) != SQLITE_OK)
        return 0; /* nothing is attached */
    bool there = sqlite3_step(st) == SQLITE_ROW;
    (void)sqlite3_finalize(st);
    return there ? store_exec(db->db,
                              "INSERT INTO main.keys (" KEY_COLUMNS ") SELECT " KEY_COLUMNS
                              " FROM old.keys",
                              err, "take over the keys")
                 : 0;
}

static int attach_old(struct ledger_db *db, const char *data_dir, struct err *err) {
    _cleanup_(free) char *old = path_join(data_dir, "cay.db");
    if (faccessat(AT_FDCWD, old, F_OK, 0) < 0)
        return 0;
    char *sql = sqlite3_mprintf("ATTACH %Q AS old", old);
    int rc = store_exec(db->db, sql, err, "read the store");
    sqlite3_free(sql);
    return rc;
}

static int migrate(struct ledger_db *db, const char *data_dir, struct err *err) {
    bool fresh = data_dir && store_version(db->db) == 0;
    int rc = fresh ? attach_old(db, data_dir, err) : 0;
    if (rc == 0)
        rc = store_migrate(db->db, migrations, ARRAY_LEN(migrations), take_over, db, err);
    if (fresh)
        (void)sqlite3_exec(db->db, "DETACH old", NULL, NULL, NULL);
    return rc;
}

static int prepare(struct ledger_db *db, int subject, struct err *err) {
    const struct ledger_statements *s = all_statements[subject];
    db->statements[subject] = xcalloc(s->n, sizeof(sqlite3_stmt *));
    for (size_t i = 0; i < s->n; i++)
        if (sqlite3_prepare_v3(db->db, s->sql[i], -1, SQLITE_PREPARE_PERSISTENT,
                               &db->statements[subject][i], NULL) != SQLITE_OK)
            return store_error(db->db, err, s->sql[i]);
    return 0;
}

static int on_commit(void *ctx, sqlite3 *handle, const char *name, int pages) {
    struct ledger_db *db = ctx;
    (void)handle;
    (void)name;
    if (pages < db->log_pages)
        db->long_at_pages = LONG_PAGES; /* it began from the front again */
    db->log_pages = pages;
    return SQLITE_OK;
}

static int on_mover_busy(void *ctx, int n) {
    (void)ctx;
    if (n >= LOCK_TRIES)
        return 0;
    (void)usleep(LOCK_US);
    return 1;
}

bool ledger_db_wants_checkpoint(const struct ledger_db *db) {
    return db->log_pages > CHECKPOINT_PAGES;
}

bool ledger_db_log_is_long(const struct ledger_db *db) {
    return db->log_pages > db->long_at_pages;
}

void ledger_db_checkpointed(struct ledger_db *db) {
    db->long_at_pages = MAX(LONG_PAGES, db->log_pages + CHECKPOINT_PAGES);
}

/* When all of it was moved, the next one who writes begins from the front by himself. */
void ledger_db_checkpoint(struct ledger_db *db) {
    int pages = 0;
    int done = 0;
    for (int i = 0; i < PASSES; i++) {
        (void)sqlite3_wal_checkpoint_v2(db->mover, NULL, SQLITE_CHECKPOINT_PASSIVE, &pages, &done);
        if (pages == done)
            return;
    }
    if (pages > LONG_PAGES)
        (void)sqlite3_wal_checkpoint_v2(db->mover, NULL, SQLITE_CHECKPOINT_RESTART, NULL, NULL);
}

/* A connection that has read nothing yet knows of no log, and would move none of it. */
static int open_mover(struct ledger_db *db, int flags, struct err *err) {
    if (sqlite3_open_v2(db->path, &db->mover, flags, store_wal_vfs()) != SQLITE_OK)
        return store_error(db->mover, err, "open the ledger");
    (void)sqlite3_busy_handler(db->mover, on_mover_busy, NULL);
    return store_exec(db->mover, "PRAGMA schema_version;", err, "read the ledger");
}

static int set_up(struct ledger_db *db, const char *data_dir, struct err *err) {
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW;
    if (sqlite3_open_v2(db->path, &db->db, flags, store_wal_vfs()) != SQLITE_OK ||
        sqlite3_busy_timeout(db->db, 5000) != SQLITE_OK)
        return store_error(db->db, err, "open the ledger");
    int rc = store_exec(db->db,
                        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
                        "PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = 16777216;"
                        "PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF;",
                        err, "set up the ledger");
    if (rc == 0)
        rc = migrate(db, data_dir, err);
    (void)sqlite3_wal_hook(db->db, on_commit, db);
    if (rc == 0 && data_dir)
        rc = open_mover(db, flags, err);
    db->long_at_pages = LONG_PAGES;
    for (int i = 0; rc == 0 && i < LEDGER_SUBJECTS; i++)
        rc = prepare(db, i, err);
    if (rc == 0)
        rc = pieces_open(db->db, &db->pieces, err);
    return rc;
}

static int open_path(struct ledger_db *db, const char *data_dir, struct ledger_db **ret_db,
                     struct err *err) {
    int rc = set_up(db, data_dir, err);
    if (rc < 0) {
        ledger_db_close(db);
        return rc;
    }
    *ret_db = db;
    return 0;
}

int ledger_db_open(const char *data_dir, struct ledger_db **ret_db, struct err *err) {
    struct ledger_db *db = xcalloc(1, sizeof(*db));
    db->path = path_join(data_dir, "ledger.db");
    db->now_ms = clock_wall_ms;
    return open_path(db, data_dir, ret_db, err);
}

int ledger_db_memory(int64_t (*now_ms)(void), struct ledger_db **ret_db, struct err *err) {
    struct ledger_db *db = xcalloc(1, sizeof(*db));
    db->path = xstrdup(":memory:");
    db->now_ms = now_ms;
    return open_path(db, NULL, ret_db, err);
}

void ledger_db_close(struct ledger_db *db) {
    if (!db)
        return;
    for (int i = 0; i < LEDGER_SUBJECTS; i++) {
        for (size_t k = 0; db->statements[i] && k < all_statements[i]->n; k++)
            (void)sqlite3_finalize(db->statements[i][k]);
        free(db->statements[i]);
    }
    pieces_close(db->pieces);
    (void)sqlite3_close(db->mover);
    (void)sqlite3_close(db->db);
    free(db->path);
    free(db);
}

struct sqlite3_stmt *ledger_ready(struct ledger_db *db, enum ledger_subject subject, int which) {
    sqlite3_stmt *st = db->statements[subject][which];
    (void)sqlite3_reset(st);
    (void)sqlite3_clear_bindings(st);
    errno = 0; /* for store_error() */
    return st;
}

int64_t ledger_db_version(struct ledger_db *db) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_OWN, OWN_VERSION);
    int64_t v = sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_int64(st, 0) : -1;
    (void)sqlite3_reset(st);
    return v;
}

const char *ledger_db_path(const struct ledger_db *db) {
    return db->path;
}

void ledger_touch(const struct ledger_db *db) {
    if (utimensat(AT_FDCWD, db->path, NULL, 0) < 0)
        log_warn("ledger.touch", "errno", errno);
}

/* --- asks --- */

static const ledger_do table[LEDGER_OPS] = {[LEDGER_NODE_BEGIN] = ledger_do_node_begin,
                                            [LEDGER_TASK_SUBMIT] = ledger_do_submit,
                                            [LEDGER_TASK_GET] = ledger_do_get,
                                            [LEDGER_TASK_LIST] = ledger_do_list,
                                            [LEDGER_TASK_CANCEL] = ledger_do_cancel,
                                            [LEDGER_TASK_CLAIM] = ledger_do_claim,
                                            [LEDGER_TASK_RENEW] = ledger_do_renew,
                                            [LEDGER_TASK_FINISH] = ledger_do_finish,
                                            [LEDGER_TASK_REAP] = ledger_do_reap,
                                            [LEDGER_HOOK_CLAIM] = ledger_do_hook_claim,
                                            [LEDGER_HOOK_END] = ledger_do_hook_end,
                                            [LEDGER_USAGE] = ledger_do_usage,
                                            [LEDGER_RESERVE] = ledger_do_reserve,
                                            [LEDGER_RESERVE_RENEW] = ledger_do_reserve_renew,
                                            [LEDGER_SETTLE] = ledger_do_settle,
                                            [LEDGER_KEY_ADD] = ledger_do_key_add,
                                            [LEDGER_KEY_REVOKE] = ledger_do_key_revoke,
                                            [LEDGER_KEY_LIST] = ledger_do_key_list,
                                            [LEDGER_WORKER_PUT] = ledger_do_worker_put,
                                            [LEDGER_WORKER_GET] = ledger_do_worker_get,
                                            [LEDGER_WORKER_DELETE] = ledger_do_worker_delete};

static int own_step(struct ledger_db *db, int which, struct err *err) {
    return store_step(ledger_ready(db, LEDGER_OWN, which), own_sql[which], NULL, err);
}

void ledger_db_do(struct ledger_db *db, const struct ledger_ask *ask,
                  struct ledger_answer *ret_answer) {
    struct ledger_answer a = {.next_ms = -1};
    struct err err = {0};
    int rc = own_step(db, OWN_BEGIN, &err);
    bool begun = rc == 0;
    if (rc == 0)
        rc = table[ask->op](db, ask, &a, &err);
    if (rc == 0)
        rc = own_step(db, OWN_COMMIT, &err);
    if (rc < 0 && begun)
        (void)own_step(db, OWN_ROLLBACK, &(struct err){0});
    if (rc < 0) {
        ledger_answer_finish(&a);
        a = (struct ledger_answer){.err = err, .next_ms = -1};
    }
    *ret_answer = a;
}

void *ledger_grow(void *items, size_t n, size_t size) {
    bool full = n == 0 || (n >= 4 && (n & (n - 1)) == 0); /* a power of two */
    return full ? xrealloc(items, MAX(2 * n, 4) * size) : items;
}
