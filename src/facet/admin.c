/* What an owner asks about the whole database: what is in it, and the steps that its schema has
 * taken. The front asks for it on the control socket; it runs between the calls of holders. */

#include "base/cleanup.h"
#include "base/json.h"
#include "base/mem.h"
#include "facet/db.h"

#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

/* --- What is in it --------------------------------------------------------------------------- */

static const char *admin_text(sqlite3_stmt *s, int column) {
    return (const char *)sqlite3_column_text(s, column);
}

static void admin_put_str(struct json_writer *w, const char *key, const char *text) {
    json_writer_key(w, key);
    json_writer_str(w, text);
}

static void admin_put_int(struct json_writer *w, const char *key, uint64_t v) {
    json_writer_key(w, key);
    json_writer_int(w, (int64_t)v);
}

/* Below 0: it cannot be counted in the time there is. */
static int64_t admin_count(struct db *db, const char *table) {
    char *sql = sqlite3_mprintf("SELECT count(*) FROM \"%w\"", table);
    sqlite3_stmt *s = NULL;
    int64_t n = -1;
    db->mode = DB_MODE_READ;
    if (sql && db->stop == DB_STOP_NONE &&
        sqlite3_prepare_v2(db->sqlite, sql, -1, &s, NULL) == SQLITE_OK &&
        sqlite3_step(s) == SQLITE_ROW)
        n = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    sqlite3_free(sql);
    return n;
}

static void admin_put_table(struct db *db, struct json_writer *w, sqlite3_stmt *s) {
    const char *name = admin_text(s, 1);
    bool view = strcmp(admin_text(s, 0), "view") == 0;
    int64_t rows = view ? -1 : admin_count(db, name);
    json_writer_object_begin(w);
    admin_put_str(w, "name", name);
    admin_put_str(w, "type", admin_text(s, 0));
    json_writer_key(w, "rows");
    if (rows < 0)
        json_writer_null(w);
    else
        json_writer_int(w, rows);
    admin_put_str(w, "sql", admin_text(s, 3));
    json_writer_object_end(w);
}

static void admin_put_other(struct json_writer *w, sqlite3_stmt *s) {
    json_writer_object_begin(w);
    admin_put_str(w, "name", admin_text(s, 1));
    admin_put_str(w, "table", admin_text(s, 2));
    admin_put_str(w, "sql", admin_text(s, 3));
    json_writer_object_end(w);
}

/* Objects of some types, as many as fit. False: there are more. */
static bool admin_put_objects(struct db *db, struct json_writer *w, const char *key,
                              const char *where, bool tables) {
    char sql[300];
    sqlite3_stmt *s = NULL;
    bool whole = true;
    (void)snprintf(sql, sizeof(sql),
                   "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE %s "
                   "AND name NOT LIKE 'sqlite\\_%%' ESCAPE '\\' AND tbl_name <> '" DB_RECORD_TABLE
                   "' ORDER BY name",
                   where);
    json_writer_key(w, key);
    json_writer_array_begin(w);
    db->mode = DB_MODE_INTERNAL;
    if (sqlite3_prepare_v2(db->sqlite, sql, -1, &s, NULL) == SQLITE_OK)
        while (whole && sqlite3_step(s) == SQLITE_ROW) {
            /* Room for this one and the rest of the answer. */
            size_t more = 6 * (size_t)(sqlite3_column_bytes(s, 1) + sqlite3_column_bytes(s, 2) +
                                       sqlite3_column_bytes(s, 3));
            whole = w->out->len + more + 65536 < w->out->max / 2;
            if (whole && tables)
                admin_put_table(db, w, s);
            else if (whole)
                admin_put_other(w, s);
        }
    sqlite3_finalize(s);
    json_writer_array_end(w);
    return whole;
}

static void admin_put_limits(const struct db *db, struct json_writer *w) {
    const struct facet_limits *l = &db->limits;
    json_writer_key(w, "limits");
    json_writer_object_begin(w);
    admin_put_int(w, "rows", l->rows);
    admin_put_int(w, "result_bytes", l->result_bytes);
    admin_put_int(w, "time_ms", l->time_ms);
    admin_put_int(w, "sql_bytes", l->sql_bytes);
    admin_put_int(w, "value_bytes", l->value_bytes);
    admin_put_int(w, "call_bytes", l->call_bytes);
    admin_put_int(w, "disk_bytes", l->disk_bytes);
    admin_put_int(w, "memory_bytes", l->memory_bytes);
    json_writer_object_end(w);
}

static void admin_put_migrations(struct db *db, struct json_writer *w) {
    sqlite3_stmt *s = NULL;
    json_writer_key(w, "migrations");
    json_writer_array_begin(w);
    db->mode = DB_MODE_READ;
    if (sqlite3_prepare_v2(db->sqlite,
                           "SELECT number, name, applied_at FROM " DB_RECORD_TABLE
                           " ORDER BY number LIMIT 1000",
                           -1, &s, NULL) == SQLITE_OK)
        while (sqlite3_step(s) == SQLITE_ROW) {
            json_writer_object_begin(w);
            admin_put_int(w, "number", (uint64_t)sqlite3_column_int64(s, 0));
            admin_put_str(w, "name", admin_text(s, 1));
            admin_put_str(w, "applied_at", admin_text(s, 2));
            json_writer_object_end(w);
        }
    sqlite3_finalize(s);
    json_writer_array_end(w);
}

int db_inspect(struct db *db, struct buf *out, struct err *err) {
    static const char *const NUMBERS[] = {"user_version", "page_size", "page_count",
                                          "freelist_count"};
    struct json_writer w;
    struct facet_stats st = {0};
    bool whole = true;
    db_stats(db, &st);
    json_writer_init(&w, out);
    json_writer_object_begin(&w);
    int64_t pages = 0;
    int64_t page_bytes = 0;
    if (db_internal(db, "PRAGMA page_count", &pages, err) < 0 ||
        db_internal(db, "PRAGMA page_size", &page_bytes, err) < 0)
        return -(int)err->code;
    admin_put_int(&w, "bytes", (uint64_t)(pages * page_bytes)); /* what is in the log counts too */
    admin_put_int(&w, "log_bytes", st.wal_bytes);
    for (size_t i = 0; i < ARRAY_LEN(NUMBERS); i++) {
        char sql[64];
        int64_t v = 0;
        (void)snprintf(sql, sizeof(sql), "PRAGMA %s", NUMBERS[i]);
        if (db_internal(db, sql, &v, err) < 0)
            return -(int)err->code;
        json_writer_key(&w, NUMBERS[i]);
        json_writer_int(&w, v);
    }
    admin_put_limits(db, &w);
    admin_put_migrations(db, &w);
    whole = admin_put_objects(db, &w, "tables", "type IN ('table', 'view')", true);
    whole = admin_put_objects(db, &w, "indexes", "type = 'index'", false) && whole;
    whole = admin_put_objects(db, &w, "triggers", "type = 'trigger'", false) && whole;
    json_writer_key(&w, "complete");
    json_writer_bool(&w, whole);
    json_writer_object_end(&w);
    if (out->full)
        return err_set(err, ERR_LIMIT, "the description of the database is too large");
    return 0;
}

/* --- Migrations ------------------------------------------------------------------------------ */

/* The highest number that was applied, 0 if none was. */
static int64_t admin_newest(struct db *db) {
    sqlite3_stmt *s = NULL;
    int64_t n = 0;
    db->mode = DB_MODE_READ;
    if (sqlite3_prepare_v2(db->sqlite, "SELECT max(number) FROM " DB_RECORD_TABLE, -1, &s, NULL) ==
            SQLITE_OK &&
        sqlite3_step(s) == SQLITE_ROW)
        n = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return n;
}

/* The text of an applied one, or NULL. The caller frees it. */
static char *admin_applied_sql(struct db *db, uint64_t number) {
    sqlite3_stmt *s = NULL;
    char *sql = NULL;
    db->mode = DB_MODE_READ;
    if (sqlite3_prepare_v2(db->sqlite, "SELECT sql FROM " DB_RECORD_TABLE " WHERE number = ?", -1,
                           &s, NULL) == SQLITE_OK &&
        sqlite3_bind_int64(s, 1, (sqlite3_int64)number) == SQLITE_OK &&
        sqlite3_step(s) == SQLITE_ROW)
        sql = xstrdup(admin_text(s, 0) ? admin_text(s, 0) : "");
    sqlite3_finalize(s);
    return sql;
}

static int admin_record(struct db *db, const struct facet_migration *m, struct err *err) {
    sqlite3_stmt *s = NULL;
    db->mode = DB_MODE_OPERATOR; /* not INTERNAL: the file may hold a trigger on this table */
    db->recording = true;
    int rc = sqlite3_prepare_v2(db->sqlite,
                                "INSERT INTO " DB_RECORD_TABLE
                                "(number, name, sql, applied_at) VALUES (?, ?, ?, "
                                "strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))",
                                -1, &s, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_int64(s, 1, (sqlite3_int64)m->number);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_text64(s, 2, m->name, m->name_len, SQLITE_STATIC, SQLITE_UTF8);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_text64(s, 3, m->sql, m->sql_len, SQLITE_STATIC, SQLITE_UTF8);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(s);
    db->recording = false;
    int result = rc == SQLITE_DONE ? 0 : db_failed(db, "record", err);
    sqlite3_finalize(s);
    return result;
}

static int admin_apply(struct db *db, const struct facet_migration *m, struct err *err) {
    _cleanup_(free) char *sql = xstrndup(m->sql, m->sql_len);
    int rc = db_begin(db) == SQLITE_OK ? 0 : db_failed(db, "begin", err);
    if (rc == 0)
        rc = db_script(db, "SQL", sql, err);
    if (rc == 0)
        rc = admin_record(db, m, err);
    if (rc == 0 && db_commit(db) != SQLITE_OK)
        rc = db_failed(db, "commit", err);
    if (!sqlite3_get_autocommit(db->sqlite))
        db_rollback(db);
    if (rc < 0 && db->stop == DB_STOP_TIME)
        rc = err_set(err, ERR_LIMIT, "all together take more than %d ms", DB_OPEN_TIME_MS);
    else if (rc < 0 && err->code == ERR_INTERNAL) /* the text's fault, not ours */
        err->code = ERR_BAD_REQUEST;
    return rc < 0 ? -(int)err->code : 0;
}

static int admin_check_order(const struct facet_migration *m, uint64_t last, struct err *err) {
    if (m->number == 0 || m->number > INT64_MAX)
        return err_set(err, ERR_BAD_REQUEST, "migrations have numbers from 1 on");
    if (m->number <= last)
        return err_set(err, ERR_BAD_REQUEST,
                       "migration %" PRIu64 " comes after %" PRIu64 ": numbers must rise",
                       m->number, last);
    if (memchr(m->sql, 0, m->sql_len) || memchr(m->name, 0, m->name_len))
        return err_set(err, ERR_BAD_REQUEST, "migration %" PRIu64 " holds a NUL character",
                       m->number);
    return 0;
}

/* 1: it has to be applied. 0: it was. */
static int admin_is_due(struct db *db, const struct facet_migration *m, int64_t newest,
                        struct err *err) {
    _cleanup_(free) char *sql = admin_applied_sql(db, m->number);
    if (!sql && (int64_t)m->number < newest)
        return err_set(err, ERR_CONFLICT,
                       "migration %" PRIu64 " was not applied, but the later %" PRId64
                       " was: give it a higher number",
                       m->number, newest);
    if (!sql)
        return 1;
    if (strlen(sql) == m->sql_len && memcmp(sql, m->sql, m->sql_len) == 0)
        return 0;
    return err_set(err, ERR_CONFLICT,
                   "migration %" PRIu64 " was applied with another text: undo the change of its "
                   "text, and add a new migration",
                   m->number);
}

static int admin_make_record_table(struct db *db, struct err *err) {
    db->recording = true;
    int rc = db_internal(db,
                         "CREATE TABLE IF NOT EXISTS " DB_RECORD_TABLE
                         "(number INTEGER PRIMARY KEY, name TEXT NOT NULL, sql TEXT NOT NULL, "
                         "applied_at TEXT NOT NULL)",
                         NULL, err);
    db->recording = false;
    return rc;
}

/* All are looked at before the first is applied: what cannot go well as a whole changes nothing. */
static int admin_walk(struct db *db, const void *data, size_t len, bool apply,
                      uint32_t *ret_applied, struct err *err) {
    struct unpack u;
    struct facet_migration m;
    uint64_t last = 0;
    int64_t newest = admin_newest(db);
    int rc;
    unpack_init(&u, data, len);
    while ((rc = facet_migration_next(&u, &m, err)) > 0) {
        rc = admin_check_order(&m, last, err);
        if (rc == 0)
            rc = admin_is_due(db, &m, newest, err);
        if (rc > 0 && apply) {
            rc = admin_apply(db, &m, err);
            if (rc < 0)
                return err_wrap(err, "migration %" PRIu64, m.number);
            ++*ret_applied;
        }
        if (rc < 0)
            return rc;
        last = m.number;
    }
    return rc;
}

int db_migrate(struct db *db, const void *data, size_t len, uint32_t *ret_applied,
               struct err *err) {
    uint32_t applied = 0;
    db_start_clock(db, DB_OPEN_TIME_MS);
    int rc = admin_make_record_table(db, err);
    if (rc == 0)
        rc = admin_walk(db, data, len, false, NULL, err);
    if (rc == 0)
        rc = admin_walk(db, data, len, true, &applied, err);
    db_drop_cache(db);
    if (rc == 0)
        *ret_applied = applied;
    return rc;
}
