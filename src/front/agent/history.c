#include "front/agent/history.h"

#include "base/cleanup.h"
#include "base/mem.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

struct history {
    sqlite3 *db;
};

static const char schema[] =
    "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA trusted_schema = OFF;"
    "CREATE TABLE IF NOT EXISTS messages (seq INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL UNIQUE, json TEXT NOT NULL);"
    "CREATE TABLE IF NOT EXISTS executions (seq INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL UNIQUE, code TEXT NOT NULL, output TEXT NOT NULL, error TEXT,"
    " timestamp TEXT NOT NULL DEFAULT (datetime('now')));"
    "CREATE TABLE IF NOT EXISTS keys (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;";

static int db_error(struct history *h, struct err *err, const char *what) {
    return err_set(err, ERR_IO, "history: %s: %s", what, sqlite3_errmsg(h->db));
}

int history_open(const char *path, struct history **ret_history, struct err *err) {
    struct history *h = xcalloc(1, sizeof(*h));
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW;
    int rc = 0;
    if (sqlite3_open_v2(path, &h->db, flags, NULL) != SQLITE_OK ||
        sqlite3_busy_timeout(h->db, 5000) != SQLITE_OK ||
        sqlite3_exec(h->db, schema, NULL, NULL, NULL) != SQLITE_OK)
        rc = db_error(h, err, "open");
    if (rc < 0) {
        history_close(h);
        return rc;
    }
    *ret_history = h;
    return 0;
}

void history_close(struct history *h) {
    if (!h)
        return;
    (void)sqlite3_close(h->db);
    free(h);
}

static void cleanup_statement(sqlite3_stmt **st) {
    (void)sqlite3_finalize(*st);
}

static sqlite3_stmt *prepare(struct history *h, const char *sql) {
    sqlite3_stmt *st = NULL;
    (void)sqlite3_prepare_v2(h->db, sql, -1, &st, NULL);
    return st;
}

static void bind(sqlite3_stmt *st, int i, const char *v) {
    if (st && v)
        (void)sqlite3_bind_text(st, i, v, -1, SQLITE_STATIC);
}

static int step(struct history *h, sqlite3_stmt *st, const char *what, struct err *err) {
    return st && sqlite3_step(st) == SQLITE_DONE ? 0 : db_error(h, err, what);
}

int history_messages(struct history *h, json_t **ret_messages, struct err *err) {
    _cleanup_(statement) sqlite3_stmt *st = prepare(h, "SELECT json FROM messages ORDER BY seq");
    json_t *list = json_array();
    int rc = SQLITE_ERROR;
    while (st && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        json_t *m = json_loadb((const char *)sqlite3_column_text(st, 0),
                               (size_t)sqlite3_column_bytes(st, 0), JSON_ALLOW_NUL, NULL);
        if (m)
            (void)json_array_append_new(list, m);
    }
    if (rc != SQLITE_DONE) {
        json_decref(list);
        return db_error(h, err, "read messages");
    }
    *ret_messages = list;
    return 0;
}

int history_put(struct history *h, const json_t *message, struct err *err) {
    _cleanup_(statement) sqlite3_stmt *st =
        prepare(h, "INSERT INTO messages (id, json) VALUES (?1, ?2)"
                   " ON CONFLICT (id) DO UPDATE SET json = ?2");
    _cleanup_(free) char *text = json_dumps(message, JSON_COMPACT);
    bind(st, 1, json_string_value(json_object_get(message, "id")));
    bind(st, 2, text);
    return step(h, st, "write a message", err);
}

int history_truncate(struct history *h, const char *id, struct err *err) {
    _cleanup_(statement) sqlite3_stmt *st =
        prepare(h, "DELETE FROM messages WHERE ?1 IS NULL OR"
                   " seq > (SELECT seq FROM messages WHERE id = ?1)");
    bind(st, 1, id);
    return step(h, st, "remove messages", err);
}

int history_add_execution(struct history *h, const char *id, const char *code, const char *output,
                          const char *error, struct err *err) {
    _cleanup_(statement) sqlite3_stmt *st =
        prepare(h, "INSERT INTO executions (id, code, output, error) VALUES (?1, ?2, ?3, ?4)");
    bind(st, 1, id);
    bind(st, 2, code);
    bind(st, 3, output);
    bind(st, 4, error);
    return step(h, st, "record an execution", err);
}

static json_t *column_json(sqlite3_stmt *st, int i) {
    const char *v = (const char *)sqlite3_column_text(st, i);
    return v ? json_stringn(v, (size_t)sqlite3_column_bytes(st, i)) : json_null();
}

int history_executions(struct history *h, int64_t limit, json_t **ret_list, struct err *err) {
    _cleanup_(statement) sqlite3_stmt *st =
        prepare(h, "SELECT id, code, output, error, timestamp FROM executions"
                   " ORDER BY seq DESC LIMIT ?1");
    static const char *const keys[] = {"id", "code", "output", "error", "timestamp"};
    json_t *list = json_array();
    int rc = SQLITE_ERROR;
    if (st)
        (void)sqlite3_bind_int64(st, 1, limit);
    while (st && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        json_t *e = json_object();
        for (int i = 0; i < (int)ARRAY_LEN(keys); i++)
            (void)json_object_set_new(e, keys[i], column_json(st, i));
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
    _cleanup_(statement) sqlite3_stmt *st =
        prepare(h, value ? "INSERT INTO keys (key, value) VALUES (?1, ?2)"
                           " ON CONFLICT (key) DO UPDATE SET value = ?2"
                         : "DELETE FROM keys WHERE key = ?1");
    bind(st, 1, key);
    if (value)
        bind(st, 2, value);
    return step(h, st, "write a value", err);
}

int history_get(struct history *h, const char *key, char **ret_value, struct err *err) {
    _cleanup_(statement) sqlite3_stmt *st = prepare(h, "SELECT value FROM keys WHERE key = ?1");
    bind(st, 1, key);
    int rc = st ? sqlite3_step(st) : SQLITE_ERROR;
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        return db_error(h, err, "read a value");
    *ret_value = rc == SQLITE_ROW ? xstrdup((const char *)sqlite3_column_text(st, 0)) : NULL;
    return 0;
}
