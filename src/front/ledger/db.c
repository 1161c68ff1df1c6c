#include "front/ledger/internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/path.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* How long a lock of another process is waited for: by the writer, and by the reader, which is on
 * the loop and meets one only while the log is recovered. */
enum { LOCK_MS = 5000, READER_LOCK_MS = 100 };
enum { OWN_VERSION, OWN_BEGIN, OWN_COMMIT, OWN_ROLLBACK };

static const char *const own_sql[] = {[OWN_VERSION] = "PRAGMA data_version",
                                      [OWN_BEGIN] = "BEGIN IMMEDIATE",
                                      [OWN_COMMIT] = "COMMIT",
                                      [OWN_ROLLBACK] = "ROLLBACK"};
static const struct ledger_statements own_statements = {own_sql, ARRAY_LEN(own_sql)};

static const struct ledger_statements *const all_statements[LEDGER_SUBJECTS] = {
    [LEDGER_OWN] = &own_statements,
    [LEDGER_KEYS] = &ledger_key_statements,
    [LEDGER_PROJECTS] = &ledger_project_statements,
    [LEDGER_TASKS] = &ledger_task_statements,
    [LEDGER_QUEUE] = &ledger_queue_statements,
    [LEDGER_HOOKS] = &ledger_hook_statements,
    [LEDGER_SPENDS] = &ledger_spend_statements,
    [LEDGER_WORKERS] = &ledger_worker_statements,
    [LEDGER_CLOCK] = &ledger_clock_statements};

#define WHOLE_TEXT(table)                                                                          \
    "(SELECT coalesce(group_concat(CAST(piece AS TEXT), ''), '') FROM (SELECT piece FROM"          \
    " text_pieces WHERE id >= 1024 * " table ".text AND id < 1024 * (" table ".text + 1)"          \
    " ORDER BY id))"

/* A key's name is its project's too, where no other has it. */
#define KEYS_BECOME_PROJECTS                                                                       \
    "INSERT INTO projects (id, name, created_ms) SELECT id, id, created_ms FROM keys;"             \
    "UPDATE projects SET name = (SELECT k.name FROM keys k WHERE k.id = projects.id)"              \
    " WHERE id IN (SELECT min(id) FROM keys WHERE name <> 'default' GROUP BY name"                 \
    " HAVING count(*) = 1);"                                                                       \
    "UPDATE keys SET project = id, server = (scope = 'admin');"

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
    "CREATE TABLE texts (id INTEGER PRIMARY KEY AUTOINCREMENT, state INTEGER NOT NULL);"
    "CREATE INDEX texts_dropped ON texts (id) WHERE state = 2;"
    "CREATE TABLE text_pieces (id INTEGER PRIMARY KEY, piece BLOB NOT NULL);"
    "ALTER TABLE task_bodies ADD COLUMN text INTEGER;"
    "ALTER TABLE workers ADD COLUMN text INTEGER;"
    "CREATE TRIGGER task_text_out AFTER DELETE ON task_bodies WHEN old.text IS NOT NULL"
    " BEGIN UPDATE texts SET state = 2 WHERE id = old.text; END;"
    "CREATE TRIGGER worker_text_out AFTER DELETE ON workers WHEN old.text IS NOT NULL"
    " BEGIN UPDATE texts SET state = 2 WHERE id = old.text; END;"
    "CREATE TRIGGER worker_text_new AFTER UPDATE OF text ON workers"
    " WHEN old.text IS NOT NULL AND old.text IS NOT new.text"
    " BEGIN UPDATE texts SET state = 2 WHERE id = old.text; END;",
    /* 9: long texts are columns again: a thread writes them now. The pieces of text N had the ids
       from 1024 * N on. The version of the keys grows with every change of them, so that a look at
       one number tells whether they must be read again. */
    "DROP TRIGGER task_text_out; DROP TRIGGER worker_text_out; DROP TRIGGER worker_text_new;"
    "UPDATE task_bodies SET body = " WHOLE_TEXT(
        "task_bodies") " WHERE text IS NOT NULL;"
                       "UPDATE workers SET code = " WHOLE_TEXT(
                           "workers") " WHERE text IS NOT NULL;"
                                      "ALTER TABLE task_bodies DROP COLUMN text; ALTER TABLE "
                                      "workers DROP COLUMN text;"
                                      "DROP TABLE texts; DROP TABLE text_pieces;"
                                      "CREATE TABLE key_version (n INTEGER NOT NULL); INSERT INTO "
                                      "key_version VALUES (1);"
                                      "CREATE TRIGGER key_in AFTER INSERT ON keys BEGIN UPDATE "
                                      "key_version SET n = n + 1; END;"
                                      "CREATE TRIGGER key_changed AFTER UPDATE ON keys BEGIN "
                                      "UPDATE key_version SET n = n + 1; END;"
                                      "CREATE TRIGGER key_out AFTER DELETE ON keys BEGIN UPDATE "
                                      "key_version SET n = n + 1; END;",
    /* 10: messages are chosen by their receivers: scheme, host and port of the address. One that
       has been tried, and is not being tried for the first time, shows that its receiver fails. */
    "ALTER TABLE outbox ADD COLUMN receiver TEXT NOT NULL DEFAULT '';"
    "UPDATE outbox SET receiver = substr(url, 1, instr(url, '://') + 1 + instr(replace(replace("
    "substr(url, instr(url, '://') + 3), '?', '/'), '#', '/') || '/', '/'));"
    "CREATE INDEX outbox_receiver ON outbox (owner, receiver, next_ms);"
    "CREATE INDEX outbox_failing ON outbox (owner, receiver) WHERE tries > taken;",
    /* 11: projects own data, and keys open the door to it. Each key of before becomes a project of
       its own, under its id: so every owner of before is a project, and nothing moves. What keys
       and projects spend is counted apart. */
    "CREATE TABLE projects (id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE,"
    " rate_per_minute INTEGER NOT NULL DEFAULT 0, max_jobs INTEGER NOT NULL DEFAULT 0,"
    " tokens_per_day INTEGER NOT NULL DEFAULT 0, nusd_per_day INTEGER NOT NULL DEFAULT 0,"
    " created_ms INTEGER NOT NULL) WITHOUT ROWID;"
    "INSERT INTO projects (id, name, created_ms) VALUES ('', 'default', 0);"
    "ALTER TABLE keys ADD COLUMN project TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE keys ADD COLUMN server INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE keys ADD COLUMN old_hash BLOB;"
    "ALTER TABLE keys ADD COLUMN old_until_ms INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE keys ADD COLUMN expires_ms INTEGER NOT NULL DEFAULT 0;" KEYS_BECOME_PROJECTS
    "CREATE INDEX keys_project ON keys (project, id);"
    "CREATE TABLE key_uses (key TEXT PRIMARY KEY, used_ms INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TRIGGER key_use_out AFTER DELETE ON keys BEGIN"
    " DELETE FROM key_uses WHERE key = old.id; END;"
    "CREATE TRIGGER project_changed AFTER UPDATE ON projects BEGIN"
    " UPDATE key_version SET n = n + 1; END;"
    "ALTER TABLE tasks ADD COLUMN key TEXT NOT NULL DEFAULT '';"
    "UPDATE tasks SET key = owner;"
    "ALTER TABLE workers ADD COLUMN key TEXT NOT NULL DEFAULT '';"
    "UPDATE workers SET key = owner;"
    "ALTER TABLE reserves ADD COLUMN key TEXT NOT NULL DEFAULT '';"
    "UPDATE reserves SET key = owner;"
    "CREATE TABLE key_days (owner TEXT NOT NULL, day TEXT NOT NULL,"
    " tokens INTEGER NOT NULL DEFAULT 0, nusd INTEGER NOT NULL DEFAULT 0,"
    " held_tokens INTEGER NOT NULL DEFAULT 0, held_nusd INTEGER NOT NULL DEFAULT 0,"
    " PRIMARY KEY (owner, day)) WITHOUT ROWID;"
    "CREATE INDEX key_days_day ON key_days (day);"
    "INSERT INTO key_days SELECT owner, day, tokens, nusd, held_tokens, held_nusd FROM spend_days;"
    "ALTER TABLE job_usage RENAME TO job_usage_old;"
    "CREATE TABLE job_usage (day TEXT NOT NULL, owner TEXT NOT NULL, key TEXT NOT NULL,"
    " kind TEXT NOT NULL, jobs INTEGER NOT NULL, done INTEGER NOT NULL, wall_ms INTEGER NOT NULL,"
    " input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,"
    " cache_read_tokens INTEGER NOT NULL, cache_write_tokens INTEGER NOT NULL,"
    " cost_nusd INTEGER NOT NULL, charged_nusd INTEGER NOT NULL,"
    " PRIMARY KEY (day, owner, key, kind)) WITHOUT ROWID;"
    "INSERT INTO job_usage SELECT day, owner, owner, kind, jobs, done, wall_ms, input_tokens,"
    " output_tokens, cache_read_tokens, cache_write_tokens, cost_nusd, charged_nusd"
    " FROM job_usage_old;"
    "DROP TABLE job_usage_old;"
    "ALTER TABLE usage RENAME TO usage_old;"
    "CREATE TABLE usage (owner TEXT NOT NULL, key TEXT NOT NULL, day TEXT NOT NULL,"
    " type TEXT NOT NULL, state INTEGER NOT NULL, tasks INTEGER NOT NULL,"
    " attempts INTEGER NOT NULL, wall_ms INTEGER NOT NULL,"
    " PRIMARY KEY (owner, key, day, type, state)) WITHOUT ROWID;"
    "INSERT INTO usage SELECT owner, owner, day, type, state, tasks, attempts, wall_ms"
    " FROM usage_old;"
    "DROP TABLE usage_old;",
};

#define KEY_COLUMNS "id, name, scope, hash, rate_per_minute, grants, created_ms, revoked_ms"

/* What was in the store before there was a ledger. */
static int ledger_db_take_over(void *ctx, int from, struct err *err) {
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
                              " FROM old.keys;" KEYS_BECOME_PROJECTS,
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

static int ledger_db_migrate(struct ledger_db *db, const char *data_dir, struct err *err) {
    bool fresh = data_dir && store_version(db->db) == 0;
    int rc = fresh ? attach_old(db, data_dir, err) : 0;
    if (rc == 0)
        rc = store_migrate(db->db, migrations, ARRAY_LEN(migrations), ledger_db_take_over, db, err);
    if (fresh)
        (void)sqlite3_exec(db->db, "DETACH old", NULL, NULL, NULL);
    return rc;
}

static int ledger_db_prepare(struct ledger_db *db, int subject, struct err *err) {
    const struct ledger_statements *s = all_statements[subject];
    db->statements[subject] = xcalloc(s->n, sizeof(sqlite3_stmt *));
    for (size_t i = 0; i < s->n; i++)
        if (sqlite3_prepare_v3(db->db, s->sql[i], -1, SQLITE_PREPARE_PERSISTENT,
                               &db->statements[subject][i], NULL) != SQLITE_OK)
            return store_error(db->db, err, s->sql[i]);
    return 0;
}

/* FULL: what was committed is on the disk, also when the power goes the moment after. */
static int ledger_db_set_up(struct ledger_db *db, const char *data_dir, struct err *err) {
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW;
    if (sqlite3_open_v2(db->path, &db->db, flags, NULL) != SQLITE_OK ||
        sqlite3_busy_timeout(db->db, LOCK_MS) != SQLITE_OK)
        return store_error(db->db, err, "open the ledger");
    /* Attempts are ended in savepoints. SQLite 3.40 (Debian 12) can lose committed pages after a
       ROLLBACK TO if it had spilled some of the transaction before: so it spills none. */
    int rc = store_exec(db->db,
                        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
                        "PRAGMA cache_spill = OFF; PRAGMA journal_size_limit = 16777216;"
                        "PRAGMA temp_store = MEMORY;"
                        "PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF;",
                        err, "set up the ledger");
    if (rc == 0)
        rc = ledger_db_migrate(db, data_dir, err);
    for (int i = 0; rc == 0 && i < LEDGER_SUBJECTS; i++)
        rc = ledger_db_prepare(db, i, err);
    return rc;
}

static int open_path(struct ledger_db *db, const char *data_dir, struct ledger_db **ret_db,
                     struct err *err) {
    int rc = ledger_db_set_up(db, data_dir, err);
    if (rc < 0) {
        store_remove_empty(db->path);
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
    db->mono_ms = clock_mono_ms;
    int rc = store_check_emptied(db->path, "cay.db", "its keys, workers and tasks", err);
    if (rc < 0) {
        ledger_db_close(db);
        return rc;
    }
    return open_path(db, data_dir, ret_db, err);
}

int ledger_db_open_reader(const struct ledger_db *of, struct ledger_db **ret_db, struct err *err) {
    static const int subjects[] = {LEDGER_OWN, LEDGER_KEYS, LEDGER_WORKERS};
    struct ledger_db *db = xcalloc(1, sizeof(*db));
    db->path = xstrdup(of->path);
    db->now_ms = of->now_ms;
    db->mono_ms = of->mono_ms;
    int rc = 0;
    if (sqlite3_open_v2(db->path, &db->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW, NULL) !=
            SQLITE_OK ||
        sqlite3_busy_timeout(db->db, READER_LOCK_MS) != SQLITE_OK)
        rc = store_error(db->db, err, "open the ledger");
    if (rc == 0)
        rc = store_exec(db->db, "PRAGMA query_only = ON; PRAGMA trusted_schema = OFF;", err,
                        "set up the ledger");
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(subjects); i++)
        rc = ledger_db_prepare(db, subjects[i], err);
    if (rc < 0) {
        ledger_db_close(db);
        return rc;
    }
    *ret_db = db;
    return 0;
}

int ledger_db_memory(int64_t (*now_ms)(void), struct ledger_db **ret_db, struct err *err) {
    struct ledger_db *db = xcalloc(1, sizeof(*db));
    db->path = xstrdup(":memory:");
    db->now_ms = db->mono_ms = now_ms;
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
    (void)sqlite3_close(db->db);
    free(db->hook_receiver);
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

void ledger_db_touch(const struct ledger_db *db) {
    if (utimensat(AT_FDCWD, db->path, NULL, 0) < 0)
        log_warn("ledger.touch", "errno", errno);
}

/* --- asks --- */

#define LEDGER_DO(op, ask_, answer_)                                                               \
    static int ledger_db_do_##ask_(struct ledger_db *db, const struct ledger_ask *ask,             \
                                   struct ledger_answer *ret, struct err *err) {                   \
        return ledger_do_##ask_(db, &ask->ask_, &ret->answer_, err);                               \
    }
#define LEDGER_DO_UNANSWERED(op, ask_, answer_)                                                    \
    static int ledger_db_do_##ask_(struct ledger_db *db, const struct ledger_ask *ask,             \
                                   struct ledger_answer *ret, struct err *err) {                   \
        (void)ret;                                                                                 \
        return ledger_do_##ask_(db, &ask->ask_, err);                                              \
    }
#define LEDGER_ENTRY(op, ask_, answer_) [op] = ledger_db_do_##ask_,

LEDGER_ANSWERED(LEDGER_DO)
LEDGER_UNANSWERED(LEDGER_DO_UNANSWERED)

static int (*const table[LEDGER_OPS])(struct ledger_db *db, const struct ledger_ask *ask,
                                      struct ledger_answer *ret, struct err *err) = {
    LEDGER_ANSWERED(LEDGER_ENTRY) LEDGER_UNANSWERED(LEDGER_ENTRY)};

static int own_step(struct ledger_db *db, int which, struct err *err) {
    return store_step(ledger_ready(db, LEDGER_OWN, which), own_sql[which], NULL, err);
}

/* Does the items up to the first that fails after it has changed something, which only a rollback
 * undoes. How many were done. */
static size_t do_items(struct ledger_db *db, struct ledger_item *items, size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct ledger_answer *a = &items[i].answer;
        struct err err = {0};
        int before = sqlite3_total_changes(db->db);
        *a = (struct ledger_answer){.op = items[i].ask->op};
        int rc = table[items[i].ask->op](db, items[i].ask, a, &err);
        bool rolled_back = sqlite3_get_autocommit(db->db) != 0; /* by SQLite: a full disk, say */
        if (rc == 0 && !rolled_back)
            continue;
        if (rc == 0) {
            (void)err_set(&err, ERR_IO, "store: the transaction was rolled back: try again");
            ledger_answer_finish(a);
        }
        *a = (struct ledger_answer){.op = items[i].ask->op, .err = err};
        if (rolled_back || sqlite3_total_changes(db->db) != before)
            return i;
    }
    return n;
}

/* True: all of them have their answers. False: nothing was done, and the error is why. */
static bool do_together(struct ledger_db *db, struct ledger_item *items, size_t n,
                        struct err *ret_err) {
    struct err err = {0};
    if (own_step(db, OWN_BEGIN, ret_err) < 0)
        return false;
    if (ledger_clock_follow(db, ret_err) < 0) {
        (void)own_step(db, OWN_ROLLBACK, &(struct err){0});
        return false;
    }
    size_t done = do_items(db, items, n);
    if (done == n && own_step(db, OWN_COMMIT, &err) == 0) {
        ledger_clock_followed(db);
        return true;
    }
    *ret_err = done == n ? err : items[done].answer.err;
    (void)own_step(db, OWN_ROLLBACK, &(struct err){0});
    for (size_t i = 0; i < MIN(done + 1, n); i++)
        ledger_answer_finish(&items[i].answer);
    return false;
}

void ledger_db_group(struct ledger_db *db, struct ledger_item *items, size_t n) {
    struct err err = {0};
    if (n > 1 && do_together(db, items, n, &err))
        return;
    /* A lock that was waited for in vain is not waited for again by each of them. */
    for (size_t i = 0; i < n; i++)
        if (err.code == ERR_UNAVAILABLE || !do_together(db, &items[i], 1, &err))
            items[i].answer = (struct ledger_answer){.op = items[i].ask->op, .err = err};
}

void ledger_db_do(struct ledger_db *db, const struct ledger_ask *ask,
                  struct ledger_answer *ret_answer) {
    struct ledger_item item = {.ask = ask};
    ledger_db_group(db, &item, 1);
    *ret_answer = item.answer;
}

void *ledger_grow(void *items, size_t n, size_t size) {
    bool full = n == 0 || (n >= 4 && (n & (n - 1)) == 0); /* a power of two */
    return full ? xrealloc(items, MAX(2 * n, 4) * size) : items;
}
