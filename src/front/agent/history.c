#include "front/agent/history.h"

#include "base/cleanup.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "front/store/wal.h"

#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum statement {
    BEGIN,
    COMMIT,
    ROLLBACK,
    MESSAGES,
    NEWEST,
    MESSAGE,
    PUT,
    PUT_BATCH,
    RESERVE,
    SIZE,
    REMOVE,
    CLEAR,
    TRUNCATE,
    MOVE_LAST,
    ADD_EXECUTION,
    PRUNE_EXECUTIONS,
    EXECUTIONS,
    SET,
    UNSET,
    GET,
    STATEMENTS,
};

enum { BATCH = 32 };
#define EIGHT "(?,?),(?,?),(?,?),(?,?),(?,?),(?,?),(?,?),(?,?)"

static const char *const sql[STATEMENTS] = {
    [BEGIN] = "BEGIN IMMEDIATE",
    [COMMIT] = "COMMIT",
    [ROLLBACK] = "ROLLBACK",
    [MESSAGES] = "SELECT id, json FROM messages ORDER BY seq",
    [NEWEST] = "SELECT id, json FROM messages ORDER BY seq DESC",
    [MESSAGE] = "SELECT json FROM messages WHERE id = ?1",
    [PUT] = "INSERT INTO messages (id, json, seq) VALUES (?1, ?2, ?3)"
            " ON CONFLICT (id) DO UPDATE SET json = ?2",
    [PUT_BATCH] = "INSERT INTO messages (id, json) VALUES " EIGHT "," EIGHT "," EIGHT "," EIGHT
                  " ON CONFLICT (id) DO UPDATE SET json = excluded.json",
    [RESERVE] = "UPDATE sqlite_sequence SET seq ="
                " MAX(seq, (SELECT COALESCE(MAX(seq), 0) FROM messages)) + 1"
                " WHERE name = 'messages' RETURNING seq",
    [SIZE] = "SELECT COALESCE(SUM(LENGTH(CAST(json AS BLOB))), 0), COUNT(*) FROM messages",
    [REMOVE] = "DELETE FROM messages WHERE id = ?1",
    [CLEAR] = "DELETE FROM messages",
    [TRUNCATE] = "DELETE FROM messages WHERE seq > (SELECT seq FROM messages WHERE id = ?1)",
    [MOVE_LAST] = "UPDATE messages SET seq = (SELECT MAX(seq) + 1 FROM messages)"
                  " WHERE id = ?1 AND seq < (SELECT MAX(seq) FROM messages)",
    [ADD_EXECUTION] = "INSERT INTO executions (id, code, output, error) VALUES (?1, ?2, ?3, ?4)",
    [PRUNE_EXECUTIONS] = "DELETE FROM executions"
                         " WHERE seq <= (SELECT MAX(seq) FROM executions) - ?1",
    [EXECUTIONS] = "SELECT id, code, output, error, timestamp FROM executions"
                   " ORDER BY seq DESC LIMIT ?1",
    [SET] = "INSERT INTO keys (key, value) VALUES (?1, ?2)"
            " ON CONFLICT (key) DO UPDATE SET value = ?2",
    [UNSET] = "DELETE FROM keys WHERE key = ?1",
    [GET] = "SELECT value FROM keys WHERE key = ?1",
};

struct history {
    char *path;
    sqlite3 *db;                          /* NULL: it rests */
    sqlite3_stmt *statements[STATEMENTS]; /* those that were needed since it was opened */
    struct history *newer, *older;
    char failure[160];
};

/* Those that are open, by last use. An open database takes 80 KiB, so only a few are: a thousand
 * conversations that begin at once leave no heap full of holes. */
enum { OPEN_MAX = 24 };
static struct history *newest, *oldest;
static unsigned nopen;

/* Nothing here may wait for the disk, since the loop would wait too. A new file needs no sync:
 * until its first checkpoint, which syncs, all it holds is in the write-ahead log. */
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

static int db_error(const struct history *h, struct err *err, const char *what) {
    if (h->db && sqlite3_errcode(h->db) == SQLITE_FULL)
        return err_set(err, ERR_FULL, "history: %s: the disk is full: make room", what);
    return err_set(err, ERR_IO, "history: %s: %s", what,
                   h->db ? sqlite3_errmsg(h->db) : h->failure);
}

static void forget(struct history *h) {
    *(h->newer ? &h->newer->older : &newest) = h->older;
    *(h->older ? &h->older->newer : &oldest) = h->newer;
    h->newer = h->older = NULL;
    nopen--;
}

static void remember(struct history *h) {
    h->older = newest;
    *(newest ? &newest->newer : &oldest) = h;
    newest = h;
    nopen++;
}

static bool is_busy(const struct history *h) {
    for (int i = 0; i < STATEMENTS; i++)
        if (h->statements[i] && sqlite3_stmt_busy(h->statements[i]))
            return true;
    return !sqlite3_get_autocommit(h->db);
}

/* One in the middle of something stays. */
static void rest_oldest(void) {
    struct history *next;
    for (struct history *h = oldest; h && nopen >= OPEN_MAX; h = next) {
        next = h->newer;
        if (!is_busy(h))
            (void)history_rest(h);
    }
}

static bool wake(struct history *h) {
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW;
    if (h->db) {
        forget(h);
        remember(h);
        return true;
    }
    rest_oldest();
    sqlite3 *db = NULL;
    if (sqlite3_open_v2(h->path, &db, flags, store_wal_vfs()) == SQLITE_OK &&
        sqlite3_db_config(db, SQLITE_DBCONFIG_LOOKASIDE, NULL, 0, 0) == SQLITE_OK &&
        sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL) == SQLITE_OK &&
        sqlite3_busy_timeout(db, 5000) == SQLITE_OK &&
        sqlite3_exec(db, schema, NULL, NULL, NULL) == SQLITE_OK) {
        h->db = db;
        remember(h);
        return true;
    }
    (void)snprintf(h->failure, sizeof(h->failure), "%s", sqlite3_errmsg(db));
    (void)sqlite3_close(db);
    return false;
}

int history_open(const char *path, struct history **ret_history, struct err *err) {
    struct history *h = xcalloc(1, sizeof(*h));
    h->path = xstrdup(path);
    if (!wake(h)) {
        int rc = db_error(h, err, "open");
        history_close(h);
        return rc;
    }
    *ret_history = h;
    return 0;
}

bool history_rest(struct history *h) {
    if (!h->db)
        return false;
    forget(h);
    for (int i = 0; i < STATEMENTS; i++)
        (void)sqlite3_finalize(steal_ptr(&h->statements[i]));
    (void)sqlite3_close(h->db);
    h->db = NULL;
    return true;
}

void history_close(struct history *h) {
    if (!h)
        return;
    (void)history_rest(h);
    free(h->path);
    free(h);
}

static void cleanup_statement(sqlite3_stmt **st) {
    if (!*st)
        return;
    (void)sqlite3_reset(*st);
    (void)sqlite3_clear_bindings(*st);
}

static sqlite3_stmt *prepare(struct history *h, enum statement which) {
    if (!wake(h))
        return NULL;
    sqlite3_stmt **st = &h->statements[which];
    if (!*st)
        (void)sqlite3_prepare_v3(h->db, sql[which], -1, SQLITE_PREPARE_PERSISTENT, st, NULL);
    return *st;
}

static void bind(sqlite3_stmt *st, int i, const char *v) {
    if (st && v)
        (void)sqlite3_bind_text(st, i, v, -1, SQLITE_STATIC);
}

static int step(const struct history *h, sqlite3_stmt *st, const char *what, struct err *err) {
    return st && sqlite3_step(st) == SQLITE_DONE ? 0 : db_error(h, err, what);
}

static int change(struct history *h, enum statement which, const char *id, const char *what,
                  struct err *err) {
    _cleanup_(statement) sqlite3_stmt *st = prepare(h, which);
    bind(st, 1, id);
    return step(h, st, what, err);
}

int history_begin(struct history *h, struct err *err) {
    return change(h, BEGIN, NULL, "begin", err);
}

int history_end(struct history *h, bool keep, struct err *err) {
    int rc = change(h, keep ? COMMIT : ROLLBACK, NULL, "end", err);
    if (rc < 0 && keep)
        (void)change(h, ROLLBACK, NULL, "end", NULL);
    return rc;
}

int history_each(struct history *h, bool newest_first, history_row row, void *ctx,
                 struct err *err) {
    _cleanup_(statement) sqlite3_stmt *st = prepare(h, newest_first ? NEWEST : MESSAGES);
    int rc = SQLITE_ERROR;
    bool more = true;
    while (st && more && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        const char *json = (const char *)sqlite3_column_text(st, 1);
        more = row(ctx, (const char *)sqlite3_column_text(st, 0), json,
                   (size_t)sqlite3_column_bytes(st, 1));
    }
    return rc == SQLITE_DONE || !more ? 0 : db_error(h, err, "read messages");
}

static bool add_text(void *ctx, const char *id, const char *json, size_t len) {
    (void)id;
    struct json_writer *w = ctx;
    json_writer_raw(w, json, len);
    return !w->out->full;
}

int history_text(struct history *h, struct buf *out, struct err *err) {
    struct json_writer w;
    json_writer_init(&w, out);
    json_writer_array_begin(&w);
    int rc = history_each(h, false, add_text, &w, err);
    json_writer_array_end(&w);
    if (rc == 0 && out->full)
        rc = err_set(err, ERR_TOO_LARGE, "the messages exceed %zu bytes", out->max);
    return rc;
}

int history_find(struct history *h, const char *id, char **ret_json, struct err *err) {
    _cleanup_(statement) sqlite3_stmt *st = prepare(h, MESSAGE);
    bind(st, 1, id);
    int rc = st ? sqlite3_step(st) : SQLITE_ERROR;
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        return db_error(h, err, "read a message");
    *ret_json = rc == SQLITE_ROW ? xstrdup((const char *)sqlite3_column_text(st, 0)) : NULL;
    return 0;
}

static int put(struct history *h, int64_t place, const char *id, const char *json, size_t len,
               struct err *err) {
    _cleanup_(statement) sqlite3_stmt *st = prepare(h, PUT);
    bind(st, 1, id);
    if (st)
        (void)sqlite3_bind_text(st, 2, json, (int)len, SQLITE_STATIC);
    if (st && place > 0)
        (void)sqlite3_bind_int64(st, 3, place);
    return step(h, st, "write a message", err);
}

/* Many at once take half the time of as many statements. */
static int put_batch(struct history *h, const struct history_message *list, struct err *err) {
    _cleanup_(statement) sqlite3_stmt *st = prepare(h, PUT_BATCH);
    for (int i = 0; st && i < BATCH; i++) {
        bind(st, 2 * i + 1, list[i].id);
        (void)sqlite3_bind_text(st, 2 * i + 2, list[i].json, (int)list[i].len, SQLITE_STATIC);
    }
    return step(h, st, "write messages", err);
}

int history_put(struct history *h, const struct history_message *list, size_t n, struct err *err) {
    int rc = 0;
    for (; n >= BATCH && rc == 0; n -= BATCH, list += BATCH)
        rc = put_batch(h, list, err);
    for (; n > 0 && rc == 0; n--, list++)
        rc = put(h, 0, list->id, list->json, list->len, err);
    return rc;
}

int history_put_at(struct history *h, int64_t place, const json_t *message, struct err *err) {
    size_t len = 0;
    _cleanup_(free) char *text = json_dump_text(message, INT_MAX, &len);
    return put(h, place, json_string_value(json_object_get(message, "id")), text, len, err);
}

int history_reserve(struct history *h, int64_t *ret_place, struct err *err) {
    _cleanup_(statement) sqlite3_stmt *st = prepare(h, RESERVE);
    int rc = st ? sqlite3_step(st) : SQLITE_ERROR;
    /* No row: nothing was ever stored, and the end will do. */
    int64_t place = rc == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    if (rc == SQLITE_ROW)
        rc = sqlite3_step(st);
    if (rc != SQLITE_DONE)
        return db_error(h, err, "keep a place");
    *ret_place = place;
    return 0;
}

int history_size(struct history *h, struct history_size *ret_size, struct err *err) {
    _cleanup_(statement) sqlite3_stmt *st = prepare(h, SIZE);
    if (!st || sqlite3_step(st) != SQLITE_ROW)
        return db_error(h, err, "measure messages");
    *ret_size = (struct history_size){.bytes = (size_t)sqlite3_column_int64(st, 0),
                                      .messages = (size_t)sqlite3_column_int64(st, 1)};
    return 0;
}

int history_remove(struct history *h, const char *id, struct err *err) {
    return change(h, id ? REMOVE : CLEAR, id, "remove messages", err);
}

int history_truncate(struct history *h, const char *id, struct err *err) {
    return change(h, TRUNCATE, id, "remove messages", err);
}

int history_move_last(struct history *h, const char *id, struct err *err) {
    return change(h, MOVE_LAST, id, "move a message", err);
}

static int add_execution(struct history *h, const char *const texts[4], struct err *err) {
    _cleanup_(statement) sqlite3_stmt *st = prepare(h, ADD_EXECUTION);
    for (int i = 0; i < 4; i++)
        bind(st, i + 1, texts[i]);
    return step(h, st, "record an execution", err);
}

static int prune_executions(struct history *h, struct err *err) {
    _cleanup_(statement) sqlite3_stmt *st = prepare(h, PRUNE_EXECUTIONS);
    if (st)
        (void)sqlite3_bind_int64(st, 1, HISTORY_EXECUTIONS_MAX);
    return step(h, st, "prune executions", err);
}

int history_add_execution(struct history *h, const char *id, const char *code, const char *output,
                          const char *error, struct err *err) {
    int rc = add_execution(h, (const char *const[]){id, code, output, error}, err);
    return rc < 0 ? rc : prune_executions(h, err);
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
    _cleanup_(statement) sqlite3_stmt *st = prepare(h, EXECUTIONS);
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
    _cleanup_(statement) sqlite3_stmt *st = prepare(h, value ? SET : UNSET);
    bind(st, 1, key);
    if (value)
        bind(st, 2, value);
    return step(h, st, "write a value", err);
}

int history_get(struct history *h, const char *key, char **ret_value, struct err *err) {
    _cleanup_(statement) sqlite3_stmt *st = prepare(h, GET);
    bind(st, 1, key);
    int rc = st ? sqlite3_step(st) : SQLITE_ERROR;
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        return db_error(h, err, "read a value");
    *ret_value = rc == SQLITE_ROW ? xstrdup((const char *)sqlite3_column_text(st, 0)) : NULL;
    return 0;
}
