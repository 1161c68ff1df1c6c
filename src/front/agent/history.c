/* The messages, executions and values of one conversation, as the loop sees them.
 *
 * There are two connections to the file. `disk` writes, and is used by the queue's thread. `db` is
 * the loop's: it may only read the file, and holds what was changed since in temporary tables in
 * memory, one row for each row of the file that is to become another. The views below are the file
 * with those rows. When the thread has written them they go (history_forget_changes()). */
#include "front/agent/history.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/utf8.h"
#include "front/agent/history_queue.h"
#include "front/store/sql.h"

#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum statement {
    BEGIN,
    COMMIT,
    ROLLBACK,
    MESSAGES,
    NEWEST,
    MESSAGE,
    PUT,
    PUT_NEW,
    SIZE,
    REMOVE,
    CLEAR,
    TRUNCATE,
    MOVE_LAST,
    ADD_EXECUTION,
    EXECUTIONS,
    SET,
    GET,
    LAST,
    CHANGED_BYTES,
    TAKE_MESSAGES,
    TAKE_KEYS,
    TAKE_EXECUTIONS,
    FORGET_MESSAGES,
    FORGET_KEYS,
    FORGET_EXECUTIONS,
    STATEMENTS,
};

/* A row without JSON is one that goes. ?2 is the number of the change. */
#define CHANGE  "INSERT INTO changed_messages (id, change, seq, json) "
#define REMOVED CHANGE "SELECT id, ?2, seq, NULL FROM all_messages "
#define INSTEAD                                                                                    \
    " ON CONFLICT (id) DO UPDATE"                                                                  \
    " SET change = excluded.change, seq = excluded.seq, json = excluded.json"

/* The places are sorted, not the texts, which would be copied for that. The limit is none, but
 * keeps the inner order. */
#define IN_ORDER(order_)                                                                           \
    "SELECT o.id, COALESCE((SELECT json FROM changed_messages WHERE id = o.id),"                   \
    " (SELECT json FROM main.messages WHERE seq = o.seq))"                                         \
    " FROM (SELECT seq, id FROM all_messages ORDER BY " order_ " LIMIT -1) AS o"

static const char *const sql[STATEMENTS] = {
    [BEGIN] = "BEGIN",
    [COMMIT] = "COMMIT",
    [ROLLBACK] = "ROLLBACK",
    [MESSAGES] = IN_ORDER("seq"),
    [NEWEST] = IN_ORDER("seq DESC"),
    [MESSAGE] = "SELECT json FROM all_messages WHERE id = ?1",
    [PUT] = CHANGE "VALUES (?1, ?2,"
                   " COALESCE((SELECT seq FROM all_messages WHERE id = ?1), ?3), ?4)" INSTEAD,
    /* One that comes twice keeps its first place. */
    [PUT_NEW] = CHANGE "VALUES (?1, ?2, ?3, ?4) ON CONFLICT (id) DO UPDATE SET"
                       " change = excluded.change, json = excluded.json,"
                       " seq = CASE WHEN json IS NULL THEN excluded.seq ELSE seq END",
    [SIZE] = "SELECT COALESCE(SUM(LENGTH(CAST(json AS BLOB))), 0), COUNT(*) FROM all_messages",
    [REMOVE] = REMOVED "WHERE id = ?1" INSTEAD,
    [CLEAR] = REMOVED "WHERE TRUE" INSTEAD,
    [TRUNCATE] = REMOVED "WHERE seq > (SELECT seq FROM all_messages WHERE id = ?1)" INSTEAD,
    [MOVE_LAST] = CHANGE "SELECT id, ?2, ?3, json FROM all_messages"
                         " WHERE id = ?1 AND seq < (SELECT MAX(seq) FROM all_messages)" INSTEAD,
    [ADD_EXECUTION] = "INSERT INTO changed_executions (id, code, output, error, change, seq)"
                      " VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    [EXECUTIONS] = "SELECT id, code, output, error, timestamp FROM all_executions"
                   " ORDER BY seq DESC LIMIT ?1",
    [SET] = "INSERT INTO changed_keys (key, value, change) VALUES (?1, ?2, ?3)"
            " ON CONFLICT (key) DO UPDATE SET value = excluded.value, change = excluded.change",
    [GET] = "SELECT value FROM changed_keys WHERE key = ?1 UNION ALL"
            " SELECT value FROM keys WHERE key = ?1 AND key NOT IN (SELECT key FROM changed_keys)",
    [LAST] = "SELECT MAX(COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'messages'), 0),"
             " COALESCE((SELECT MAX(seq) FROM messages), 0)),"
             " COALESCE((SELECT MAX(seq) FROM executions), 0)",
    [CHANGED_BYTES] = "SELECT COALESCE((SELECT SUM(LENGTH(json)) FROM changed_messages), 0) +"
                      " COALESCE((SELECT SUM(LENGTH(value)) FROM changed_keys), 0) +"
                      " (SELECT COUNT(*) FROM changed_messages) +"
                      " (SELECT COUNT(*) FROM changed_keys) +"
                      " (SELECT COUNT(*) FROM changed_executions)",
    [TAKE_MESSAGES] = "SELECT seq, id, NULL FROM changed_messages WHERE json IS NULL UNION ALL"
                      " SELECT seq, id, json FROM changed_messages WHERE json IS NOT NULL",
    [TAKE_KEYS] = "SELECT 0, key, value FROM changed_keys",
    [TAKE_EXECUTIONS] = "SELECT seq, id, code, output, error, timestamp FROM changed_executions"
                        " ORDER BY seq",
    [FORGET_MESSAGES] = "DELETE FROM changed_messages WHERE change <= ?1",
    [FORGET_KEYS] = "DELETE FROM changed_keys WHERE change <= ?1",
    [FORGET_EXECUTIONS] = "DELETE FROM changed_executions WHERE change <= ?1",
};

enum written {
    WRITE_BEGIN,
    WRITE_COMMIT,
    WRITE_ROLLBACK,
    WRITE_MESSAGE,
    WRITE_NO_MESSAGE,
    WRITE_KEY,
    WRITE_NO_KEY,
    WRITE_EXECUTION,
    WRITE_PRUNE,
    WRITES,
};

static const char *const write_sql[WRITES] = {
    [WRITE_BEGIN] = "BEGIN IMMEDIATE",
    [WRITE_COMMIT] = "COMMIT",
    [WRITE_ROLLBACK] = "ROLLBACK",
    [WRITE_MESSAGE] = "INSERT INTO messages (seq, id, json) VALUES (?1, ?2, ?3)"
                      " ON CONFLICT (id) DO UPDATE SET seq = ?1, json = ?3",
    [WRITE_NO_MESSAGE] = "DELETE FROM messages WHERE id = ?2",
    [WRITE_KEY] = "INSERT INTO keys (key, value) VALUES (?2, ?3)"
                  " ON CONFLICT (key) DO UPDATE SET value = ?3",
    [WRITE_NO_KEY] = "DELETE FROM keys WHERE key = ?2",
    [WRITE_EXECUTION] = "INSERT INTO executions (seq, id, code, output, error, timestamp)"
                        " VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    [WRITE_PRUNE] = "DELETE FROM executions WHERE seq <= (SELECT MAX(seq) FROM executions) - ?1",
};

struct history {
    struct history_writes writes;
    char *path;
    sqlite3 *db;                          /* NULL: it rests */
    sqlite3_stmt *statements[STATEMENTS]; /* those that were needed since it was opened */
    sqlite3 *disk;                        /* open when db is; the thread's while it is at work */
    sqlite3_stmt *written[WRITES];
    int64_t last_message; /* the highest places that were ever taken */
    int64_t last_execution;
    int64_t changes;  /* their number, of one without a queue */
    bool has_changes; /* since it was opened, and not written */
    bool is_new;      /* neither the file nor its folder is on the disk yet */
    struct history *newer, *older;
    char failure[160];
    bool failed_full; /* it could not be opened because the disk is full */
};

/* Those that are open, by last use. An open database takes 80 KiB, so only a few are: a thousand
 * conversations that begin at once leave no heap full of holes. */
enum { OPEN_MAX = 24 };
static struct history *newest, *oldest;
static unsigned nopen;

/* The tables of a new file are made by the loop, without a sync, so that the thread finds a file
 * that is open: it could open that of another conversation, which has the name now. The thread
 * syncs it before anything in it counts as written. */
static const char schema[] =
    "PRAGMA synchronous = OFF; PRAGMA journal_mode = WAL; PRAGMA trusted_schema = OFF;"
    "PRAGMA cache_size = -256;"
    "CREATE TABLE IF NOT EXISTS messages (seq INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL UNIQUE, json TEXT NOT NULL);"
    "CREATE TABLE IF NOT EXISTS executions (seq INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL UNIQUE, code TEXT NOT NULL, output TEXT NOT NULL, error TEXT,"
    " timestamp TEXT NOT NULL DEFAULT (datetime('now')));"
    "CREATE TABLE IF NOT EXISTS keys (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
    "PRAGMA synchronous = NORMAL;";

static const char changes_schema[] =
    "PRAGMA trusted_schema = OFF; PRAGMA cache_size = -256; PRAGMA temp_store = MEMORY;"
    "CREATE TEMP TABLE changed_messages (id TEXT NOT NULL PRIMARY KEY, change INTEGER,"
    " seq INTEGER, json TEXT);"
    "CREATE TEMP TABLE changed_executions (id TEXT NOT NULL PRIMARY KEY, code TEXT, output TEXT,"
    " error TEXT, timestamp TEXT NOT NULL DEFAULT (datetime('now')), change INTEGER, seq INTEGER);"
    "CREATE TEMP TABLE changed_keys (key TEXT NOT NULL PRIMARY KEY, value TEXT, change INTEGER);"
    "CREATE TEMP VIEW all_messages AS"
    " SELECT seq, id, json FROM main.messages WHERE id NOT IN (SELECT id FROM changed_messages)"
    " UNION ALL SELECT seq, id, json FROM changed_messages WHERE json IS NOT NULL;"
    "CREATE TEMP VIEW all_executions AS"
    " SELECT seq, id, code, output, error, timestamp FROM main.executions"
    " WHERE id NOT IN (SELECT id FROM changed_executions)"
    " UNION ALL SELECT seq, id, code, output, error, timestamp FROM changed_executions;";

static int history_error(sqlite3 *db, struct err *err, const char *what) {
    if (store_is_full(db))
        return err_set(err, ERR_FULL, "history: %s: the disk is full: make room", what);
    return err_set(err, ERR_IO, "history: %s: %s", what, sqlite3_errmsg(db));
}

static int db_error(const struct history *h, struct err *err, const char *what) {
    if (h->db)
        return history_error(h->db, err, what);
    if (h->failed_full)
        return err_set(err, ERR_FULL, "history: %s: the disk is full: make room", what);
    return err_set(err, ERR_IO, "history: %s: %s", what, h->failure);
}

/* --- opening it --- */

static void history_forget(struct history *h) {
    *(h->newer ? &h->newer->older : &newest) = h->older;
    *(h->older ? &h->older->newer : &oldest) = h->newer;
    h->newer = h->older = NULL;
    nopen--;
}

static void history_remember(struct history *h) {
    h->older = newest;
    *(newest ? &newest->newer : &oldest) = h;
    newest = h;
    nopen++;
}

bool history_is_settled(const struct history *h) {
    return !h->has_changes && !h->writes.at_work;
}

static bool is_busy(const struct history *h) {
    for (int i = 0; i < STATEMENTS; i++)
        if (h->statements[i] && sqlite3_stmt_busy(h->statements[i]))
            return true;
    return !history_is_settled(h) || !sqlite3_get_autocommit(h->db);
}

/* One in the middle of something stays. */
static void rest_oldest(void) {
    struct history *next;
    for (struct history *h = oldest; h && nopen >= OPEN_MAX; h = next) {
        next = h->newer;
        (void)history_rest(h);
    }
}

static bool history_connect(struct history *h, int flags, const char *first, sqlite3 **ret_db) {
    sqlite3 *db = NULL;
    if (sqlite3_open_v2(h->path, &db, flags | SQLITE_OPEN_NOFOLLOW, NULL) == SQLITE_OK &&
        sqlite3_db_config(db, SQLITE_DBCONFIG_LOOKASIDE, NULL, 0, 0) == SQLITE_OK &&
        sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL) == SQLITE_OK &&
        sqlite3_busy_timeout(db, 5000) == SQLITE_OK &&
        sqlite3_exec(db, first, NULL, NULL, NULL) == SQLITE_OK) {
        *ret_db = db;
        return true;
    }
    h->failed_full = store_is_full(db);
    (void)text_print(h->failure, sizeof(h->failure), "%s", sqlite3_errmsg(db));
    (void)sqlite3_close(db);
    return false;
}

static void history_read_last(struct history *h) {
    sqlite3_stmt *st = NULL;
    if (sqlite3_prepare_v2(h->db, sql[LAST], -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW) {
        h->last_message = MAX(h->last_message, sqlite3_column_int64(st, 0));
        h->last_execution = MAX(h->last_execution, sqlite3_column_int64(st, 1));
    }
    (void)sqlite3_finalize(st);
}

static bool history_wake(struct history *h) {
    if (h->db) {
        history_forget(h);
        history_remember(h);
        return true;
    }
    rest_oldest();
    h->is_new = h->is_new || faccessat(AT_FDCWD, h->path, F_OK, 0) < 0;
    if (!history_connect(h, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, schema, &h->disk))
        return false;
    if (!history_connect(h, SQLITE_OPEN_READONLY, changes_schema, &h->db)) {
        (void)sqlite3_close(steal_ptr(&h->disk));
        return false;
    }
    history_remember(h);
    history_read_last(h);
    return true;
}

struct history_writes *history_writes(struct history *h) {
    return &h->writes;
}

int history_open(struct histories *all, const char *path, struct history **ret_history,
                 struct err *err) {
    struct history *h = xcalloc(1, sizeof(*h));
    h->writes.all = all;
    h->path = xstrdup(path);
    if (!history_wake(h)) {
        int rc = db_error(h, err, "open");
        history_free(h);
        return rc;
    }
    *ret_history = h;
    return 0;
}

static void history_disconnect(struct history *h) {
    if (!h->db)
        return;
    history_forget(h);
    for (int i = 0; i < STATEMENTS; i++)
        (void)sqlite3_finalize(steal_ptr(&h->statements[i]));
    for (int i = 0; i < WRITES; i++)
        (void)sqlite3_finalize(steal_ptr(&h->written[i]));
    (void)sqlite3_close(steal_ptr(&h->disk));
    (void)sqlite3_close(steal_ptr(&h->db));
}

bool history_rest(struct history *h) {
    if (!h->db || is_busy(h))
        return false;
    history_disconnect(h);
    return true;
}

void history_free(struct history *h) {
    history_disconnect(h);
    free(h->path);
    free(h);
}

void history_close(struct history *h) {
    if (!h)
        return;
    if (h->writes.all)
        histories_leave(h);
    else
        history_free(h);
}

void history_drop(struct history *h) {
    if (h)
        h->writes.dropped = true;
    history_close(h);
}

int history_admit(const struct history *h, struct err *err) {
    if (h->writes.blocked) {
        *err = h->writes.why;
        return -(int)err->code;
    }
    return h->writes.all ? histories_admit(h->writes.all, err) : 0;
}

void history_make_durable(struct history *h) {
    h->writes.durable = true;
}

/* --- statements --- */

static void cleanup_statement(sqlite3_stmt **st) {
    if (!*st)
        return;
    (void)sqlite3_reset(*st);
    (void)sqlite3_clear_bindings(*st);
}

static sqlite3_stmt *history_prepare(struct history *h, enum statement which) {
    if (!history_wake(h))
        return NULL;
    sqlite3_stmt **st = &h->statements[which];
    if (!*st)
        (void)sqlite3_prepare_v3(h->db, sql[which], -1, SQLITE_PREPARE_PERSISTENT, st, NULL);
    return *st;
}

static void history_bind(sqlite3_stmt *st, int i, const char *v) {
    if (st && v)
        (void)sqlite3_bind_text(st, i, v, -1, SQLITE_STATIC);
}

static void history_bind_int(sqlite3_stmt *st, int i, int64_t v) {
    if (st)
        (void)sqlite3_bind_int64(st, i, v);
}

static int history_step(const struct history *h, sqlite3_stmt *st, const char *what,
                        struct err *err) {
    return st && sqlite3_step(st) == SQLITE_DONE ? 0 : db_error(h, err, what);
}

/* --- changes --- */

static int64_t history_next_change(struct history *h) {
    return h->writes.all ? histories_ticket(h->writes.all) : ++h->changes;
}

/* Without a queue. */
static int history_write_now(struct history *h, struct err *err) {
    struct history_op *ops = NULL;
    int rc = history_take_changes(h, &ops, err);
    if (rc == 0)
        rc = history_write(h, ops, h->writes.durable, err);
    history_free_ops(ops);
    if (rc == 0)
        history_forget_changes(h, INT64_MAX);
    return rc;
}

/* Something has changed, in memory. */
static int history_changed(struct history *h, size_t bytes, struct err *err) {
    h->has_changes = true;
    h->writes.bytes += bytes;
    if (h->writes.all)
        histories_add(h->writes.all, h);
    else if (sqlite3_get_autocommit(h->db))
        return history_write_now(h, err);
    return 0;
}

static int history_control(struct history *h, enum statement which, struct err *err) {
    _cleanup_(statement) sqlite3_stmt *st = history_prepare(h, which);
    return history_step(h, st, which == BEGIN ? "begin" : "end", err);
}

int history_begin(struct history *h, struct err *err) {
    return history_control(h, BEGIN, err);
}

int history_end(struct history *h, bool keep, struct err *err) {
    int rc = history_control(h, keep ? COMMIT : ROLLBACK, err);
    if (rc < 0 && keep)
        (void)history_control(h, ROLLBACK, NULL);
    if (rc < 0 || !keep)
        history_forget_changes(h, -1); /* which counts what is left */
    return rc == 0 && keep && h->has_changes ? history_changed(h, 0, err) : rc;
}

static bool history_take(struct history *h, enum statement which, enum history_op_kind kind,
                         struct history_op ***at) {
    _cleanup_(statement) sqlite3_stmt *st = history_prepare(h, which);
    int rc = SQLITE_ERROR;
    while (st && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct history_op *op = xcalloc(1, sizeof(*op));
        op->kind = kind;
        op->seq = sqlite3_column_int64(st, 0);
        for (int i = 1; i < sqlite3_column_count(st); i++)
            op->texts[i - 1] = store_column_dup(st, i);
        **at = op;
        *at = &op->next;
    }
    return rc == SQLITE_DONE;
}

int history_take_changes(struct history *h, struct history_op **ret_ops, struct err *err) {
    struct history_op *ops = NULL;
    struct history_op **at = &ops;
    if (history_take(h, TAKE_MESSAGES, HISTORY_OP_MESSAGE, &at) &&
        history_take(h, TAKE_KEYS, HISTORY_OP_KEY, &at) &&
        history_take(h, TAKE_EXECUTIONS, HISTORY_OP_EXECUTION, &at)) {
        *ret_ops = ops;
        return 0;
    }
    history_free_ops(ops);
    return db_error(h, err, "read changes");
}

void history_free_ops(struct history_op *ops) {
    while (ops) {
        struct history_op *op = ops;
        ops = op->next;
        for (int i = 0; i < HISTORY_OP_TEXTS; i++)
            free(op->texts[i]);
        free(op);
    }
}

void history_forget_changes(struct history *h, int64_t ticket) {
    for (int i = FORGET_MESSAGES; i <= FORGET_EXECUTIONS; i++) {
        _cleanup_(statement) sqlite3_stmt *st = history_prepare(h, (enum statement)i);
        history_bind_int(st, 1, ticket);
        (void)history_step(h, st, "forget changes", NULL);
    }
    _cleanup_(statement) sqlite3_stmt *st = history_prepare(h, CHANGED_BYTES);
    if (st && sqlite3_step(st) == SQLITE_ROW)
        h->writes.bytes = (size_t)sqlite3_column_int64(st, 0);
    h->has_changes = h->writes.bytes > 0;
}

/* --- writing them: on the thread --- */

static int history_run(struct history *h, enum written which, const struct history_op *op) {
    sqlite3_stmt **st = &h->written[which];
    if (!*st && sqlite3_prepare_v3(h->disk, write_sql[which], -1, SQLITE_PREPARE_PERSISTENT, st,
                                   NULL) != SQLITE_OK)
        return SQLITE_ERROR;
    if (op)
        (void)sqlite3_bind_int64(*st, 1, op->seq);
    for (int i = 0; op && i < HISTORY_OP_TEXTS; i++)
        if (op->texts[i])
            (void)sqlite3_bind_text(*st, i + 2, op->texts[i], -1, SQLITE_STATIC);
    int rc = sqlite3_step(*st);
    (void)sqlite3_reset(*st);
    (void)sqlite3_clear_bindings(*st);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int history_write_op(struct history *h, const struct history_op *op) {
    static const struct history_op prune = {.seq = HISTORY_EXECUTIONS_MAX};
    switch (op->kind) {
    case HISTORY_OP_MESSAGE:
        return history_run(h, op->texts[1] ? WRITE_MESSAGE : WRITE_NO_MESSAGE, op);
    case HISTORY_OP_KEY:
        return history_run(h, op->texts[1] ? WRITE_KEY : WRITE_NO_KEY, op);
    case HISTORY_OP_EXECUTION:
        break;
    }
    int rc = history_run(h, WRITE_EXECUTION, op);
    return rc == SQLITE_OK ? history_run(h, WRITE_PRUNE, &prune) : rc;
}

/* A row that the file refuses keeps no other from being written. */
static int history_write_ops(struct history *h, const struct history_op *ops) {
    int rc = SQLITE_OK;
    for (const struct history_op *op = ops; op && rc == SQLITE_OK; op = op->next) {
        rc = history_write_op(h, op);
        if ((rc & 0xff) == SQLITE_CONSTRAINT || (rc & 0xff) == SQLITE_TOOBIG)
            rc = SQLITE_OK;
    }
    return rc;
}

/* A new file is on the disk when its first pages are, which the loop wrote without a sync, and all
 * folders above it; those that were there before cost little. */
static void history_sync_new(struct history *h) {
    enum { FOLDERS = 6 }; /* NAME, TYPE, agents, of a key: KEY, keys; and the one that has all */
    _cleanup_(free) char *at = xstrdup(h->path);
    int moved = 0;
    int rc = sqlite3_wal_checkpoint_v2(h->disk, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, &moved);
    for (int i = 0; i < FOLDERS; i++) {
        char *slash = strrchr(at, '/');
        if (!slash || slash == at)
            break;
        *slash = 0;
        _cleanup_(close) int fd = open(at, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0 || fsync(fd) < 0)
            break; /* above what is ours */
    }
    h->is_new = rc != SQLITE_OK || moved <= 0;
}

int history_write(struct history *h, const struct history_op *ops, bool durable, struct err *err) {
    const char *level = durable ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL";
    int rc = sqlite3_exec(h->disk, level, NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = history_run(h, WRITE_BEGIN, NULL);
    if (rc == SQLITE_OK)
        rc = history_write_ops(h, ops);
    if (rc == SQLITE_OK)
        rc = history_run(h, WRITE_COMMIT, NULL);
    if (rc == SQLITE_OK && durable && h->is_new)
        history_sync_new(h);
    if (rc == SQLITE_OK)
        return 0;
    int failed = history_error(h->disk, err, "write");
    (void)history_run(h, WRITE_ROLLBACK, NULL);
    return failed;
}

/* --- messages --- */

int history_each(struct history *h, bool newest_first, history_row row, void *ctx,
                 struct err *err) {
    _cleanup_(statement) sqlite3_stmt *st = history_prepare(h, newest_first ? NEWEST : MESSAGES);
    int rc = SQLITE_ERROR;
    bool more = true;
    while (st && more && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        const char *json = (const char *)sqlite3_column_text(st, 1);
        more = row(ctx, (const char *)sqlite3_column_text(st, 0), json,
                   (size_t)sqlite3_column_bytes(st, 1));
    }
    return rc == SQLITE_DONE || !more ? 0 : db_error(h, err, "read messages");
}

static bool history_add_text(void *ctx, const char *id, const char *json, size_t len) {
    (void)id;
    struct json_writer *w = ctx;
    json_writer_raw(w, json, len);
    return !w->out->full;
}

int history_text(struct history *h, struct buf *out, struct err *err) {
    struct json_writer w;
    json_writer_init(&w, out);
    json_writer_array_begin(&w);
    int rc = history_each(h, false, history_add_text, &w, err);
    json_writer_array_end(&w);
    if (rc == 0 && out->full)
        rc = err_set(err, ERR_TOO_LARGE, "the messages exceed %zu bytes", out->max);
    return rc;
}

int history_find(struct history *h, const char *id, char **ret_json, struct err *err) {
    _cleanup_(statement) sqlite3_stmt *st = history_prepare(h, MESSAGE);
    history_bind(st, 1, id);
    int rc = st ? sqlite3_step(st) : SQLITE_ERROR;
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        return db_error(h, err, "read a message");
    *ret_json = rc == SQLITE_ROW ? xstrdup((const char *)sqlite3_column_text(st, 0)) : NULL;
    return 0;
}

static int agent_history_put(struct history *h, int64_t place, const struct history_message *m,
                             struct err *err) {
    _cleanup_(statement) sqlite3_stmt *st = history_prepare(h, m->is_new ? PUT_NEW : PUT);
    history_bind(st, 1, m->id);
    if (st)
        (void)sqlite3_bind_text(st, 4, m->json, (int)m->len, SQLITE_STATIC);
    history_bind_int(st, 2, history_next_change(h));
    history_bind_int(st, 3, place > 0 ? place : ++h->last_message);
    int rc = history_step(h, st, "write a message", err);
    return rc < 0 ? rc : history_changed(h, m->len, err);
}

int history_put(struct history *h, const struct history_message *list, size_t n, struct err *err) {
    int rc = 0;
    for (; n > 0 && rc == 0; n--, list++)
        rc = agent_history_put(h, 0, list, err);
    return rc;
}

int history_put_at(struct history *h, int64_t place, const struct history_message *m,
                   struct err *err) {
    return agent_history_put(h, place, m, err);
}

int history_reserve(struct history *h, int64_t *ret_place, struct err *err) {
    if (!history_wake(h))
        return db_error(h, err, "keep a place");
    /* 0: nothing was ever stored, and the end will do. */
    *ret_place = h->last_message > 0 ? ++h->last_message : 0;
    return 0;
}

int history_size(struct history *h, struct history_size *ret_size, struct err *err) {
    _cleanup_(statement) sqlite3_stmt *st = history_prepare(h, SIZE);
    if (!st || sqlite3_step(st) != SQLITE_ROW)
        return db_error(h, err, "measure messages");
    *ret_size = (struct history_size){.bytes = (size_t)sqlite3_column_int64(st, 0),
                                      .messages = (size_t)sqlite3_column_int64(st, 1)};
    return 0;
}

/* place: where it goes, for those that move. */
static int history_change(struct history *h, enum statement which, const char *id, int64_t place,
                          const char *what, struct err *err) {
    _cleanup_(statement) sqlite3_stmt *st = history_prepare(h, which);
    history_bind(st, 1, id);
    history_bind_int(st, 2, history_next_change(h));
    if (place > 0)
        history_bind_int(st, 3, place);
    int rc = history_step(h, st, what, err);
    return rc < 0 ? rc : history_changed(h, 1, err);
}

int history_remove(struct history *h, const char *id, struct err *err) {
    return history_change(h, id ? REMOVE : CLEAR, id, 0, "remove messages", err);
}

int history_truncate(struct history *h, const char *id, struct err *err) {
    return history_change(h, TRUNCATE, id, 0, "remove messages", err);
}

int history_move_last(struct history *h, const char *id, struct err *err) {
    return history_change(h, MOVE_LAST, id, ++h->last_message, "move a message", err);
}

/* --- executions and values --- */

int history_add_execution(struct history *h, const char *id, const char *code, const char *output,
                          const char *error, struct err *err) {
    _cleanup_(statement) sqlite3_stmt *st = history_prepare(h, ADD_EXECUTION);
    const char *const texts[] = {id, code, output, error};
    for (int i = 0; i < (int)ARRAY_LEN(texts); i++)
        history_bind(st, i + 1, texts[i]);
    history_bind_int(st, 5, history_next_change(h));
    history_bind_int(st, 6, ++h->last_execution);
    int rc = history_step(h, st, "record an execution", err);
    return rc < 0 ? rc : history_changed(h, strlen(code) + strlen(output), err);
}

static json_t *column_json(sqlite3_stmt *st, int i, size_t max) {
    const char *v = (const char *)sqlite3_column_text(st, i);
    if (!v)
        return json_null();
    size_t n = (size_t)sqlite3_column_bytes(st, i);
    size_t kept = utf8_floor(v, n, max);
    if (kept == n)
        return json_stringn(v, n);
    _cleanup_(free) char *cut = xasprintf("%.*s\n... (%zu more bytes)", (int)kept, v, n - kept);
    return json_string(cut);
}

int history_executions(struct history *h, int64_t limit, size_t text_max, json_t **ret_list,
                       struct err *err) {
    _cleanup_(statement) sqlite3_stmt *st = history_prepare(h, EXECUTIONS);
    static const char *const keys[] = {"id", "code", "output", "error", "timestamp"};
    json_t *list = json_array();
    int rc = SQLITE_ERROR;
    if (st)
        (void)sqlite3_bind_int64(st, 1, limit);
    while (st && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        json_t *e = json_object();
        for (int i = 0; i < (int)ARRAY_LEN(keys); i++)
            (void)json_object_set_new(e, keys[i],
                                      column_json(st, i, i >= 1 && i <= 3 ? text_max : SIZE_MAX));
        (void)json_array_append_new(list, e);
    }
    if (rc != SQLITE_DONE) {
        json_decref(list);
        return db_error(h, err, "read executions");
    }
    *ret_list = list;
    return 0;
}

int history_set(struct history *h, const char *key, const char *value, struct err *err) {
    _cleanup_(statement) sqlite3_stmt *st = history_prepare(h, SET);
    history_bind(st, 1, key);
    history_bind(st, 2, value);
    history_bind_int(st, 3, history_next_change(h));
    int rc = history_step(h, st, "write a value", err);
    return rc < 0 ? rc : history_changed(h, value ? strlen(value) : 1, err);
}

int history_get(struct history *h, const char *key, char **ret_value, struct err *err) {
    _cleanup_(statement) sqlite3_stmt *st = history_prepare(h, GET);
    history_bind(st, 1, key);
    int rc = st ? sqlite3_step(st) : SQLITE_ERROR;
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        return db_error(h, err, "read a value");
    *ret_value = rc == SQLITE_ROW ? store_column_dup(st, 0) : NULL;
    return 0;
}
