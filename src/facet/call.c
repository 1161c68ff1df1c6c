#include "facet/db.h"

#include "base/base64.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "facet/args.h"

#include <errno.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* --- Failures -------------------------------------------------------------------------------- */

void db_fail(struct db *db, struct db_call *c, const char *name, const char *code, const char *fmt,
             ...) {
    char message[600];
    va_list ap;
    va_start(ap, fmt);
    (void)text_vprint(message, sizeof(message), fmt, ap);
    va_end(ap);
    c->ok = false;
    (void)snprintf(c->code, sizeof(c->code), "%s", code);
    /* The result that did not fit must not keep its failure from being told. */
    size_t max = db->out.max;
    db->out.max = MAX(max, (size_t)8192);
    buf_clear(&db->out);
    struct json_writer w;
    json_writer_init(&w, &db->out);
    json_writer_object_begin(&w);
    json_put_str(&w, "name", name);
    json_put_str(&w, "message", message);
    json_put_str(&w, "code", code);
    json_writer_object_end(&w);
    db->out.max = max;
}

static bool bad_argument(struct db *db, struct db_call *c, const char *why) {
    db_fail(db, c, "TypeError", "BAD_ARGUMENT", "%s", why);
    return false;
}

static const char *code_name(int rc) {
    static const struct {
        int code;
        const char *name;
    } NAMES[] = {
#define NAME(x) {x, #x}
        NAME(SQLITE_CONSTRAINT_CHECK),
        NAME(SQLITE_CONSTRAINT_DATATYPE),
        NAME(SQLITE_CONSTRAINT_FOREIGNKEY),
        NAME(SQLITE_CONSTRAINT_NOTNULL),
        NAME(SQLITE_CONSTRAINT_PRIMARYKEY),
        NAME(SQLITE_CONSTRAINT_ROWID),
        NAME(SQLITE_CONSTRAINT_TRIGGER),
        NAME(SQLITE_CONSTRAINT_UNIQUE),
        NAME(SQLITE_CONSTRAINT_VTAB),
        NAME(SQLITE_ABORT),
        NAME(SQLITE_AUTH),
        NAME(SQLITE_BUSY),
        NAME(SQLITE_CANTOPEN),
        NAME(SQLITE_CONSTRAINT),
        NAME(SQLITE_CORRUPT),
        NAME(SQLITE_FULL),
        NAME(SQLITE_INTERNAL),
        NAME(SQLITE_INTERRUPT),
        NAME(SQLITE_IOERR),
        NAME(SQLITE_LOCKED),
        NAME(SQLITE_MISMATCH),
        NAME(SQLITE_MISUSE),
        NAME(SQLITE_NOMEM),
        NAME(SQLITE_NOTADB),
        NAME(SQLITE_RANGE),
        NAME(SQLITE_READONLY),
        NAME(SQLITE_SCHEMA),
        NAME(SQLITE_TOOBIG),
#undef NAME
    };
    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++)
        if (NAMES[i].code == rc)
            return NAMES[i].name;
    return (rc & 0xff) != rc ? code_name(rc & 0xff) : "SQLITE_ERROR";
}

static bool facet_call_stopped(struct db *db, struct db_call *c) {
    switch (db->stop) {
    case DB_STOP_TIME:
        db_fail(db, c, "LimitError", "LIMIT_TIME", "time limit of %" PRIu64 " ms exceeded",
                db->limits.time_ms);
        return true;
    case DB_STOP_INTERRUPT:
        db_fail(db, c, "SqliteError", "INTERRUPTED", "the call was interrupted");
        return true;
    case DB_STOP_GONE:
        db_fail(db, c, "SqliteError", "GONE", "the holder hung up, or its capability was revoked");
        return true;
    case DB_STOP_NONE:
        break;
    }
    return false;
}

/* The connection's last error becomes the answer. */
static bool sqlite_failed(struct db *db, struct db_call *c, int rc) {
    int sys = errno; /* SQLite does not tell a full disk from its own limit (max_page_count) */
    if (facet_call_stopped(db, c))
        return false;
    if (db->denied_write) {
        db_fail(db, c, "SqliteError", "READ_ONLY",
                c->readonly ? "this capability only reads"
                            : "query() only reads: use execute() to write");
        return false;
    }
    if (db->denied[0]) {
        db_fail(db, c, "SqliteError", "SQLITE_AUTH", "not authorized: %s", db->denied);
        return false;
    }
    const struct facet_limits *l = &db->limits;
    switch (rc & 0xff) {
    case SQLITE_FULL:
        if (sys == ENOSPC || sys == EDQUOT) {
            db_fail(db, c, "SqliteError", "SQLITE_FULL",
                    "the disk of the server is full: nothing of this was written");
            return false;
        }
        db_fail(db, c, "LimitError", "LIMIT_DISK",
                "disk limit of %" PRIu64 " bytes reached: delete rows to go on", l->disk_bytes);
        return false;
    case SQLITE_NOMEM:
        db_fail(db, c, "LimitError", "LIMIT_MEMORY", "memory limit of %" PRIu64 " bytes exceeded",
                l->memory_bytes);
        db_drop_cache(db);
        return false;
    case SQLITE_TOOBIG:
        db_fail(db, c, "LimitError", "LIMIT_VALUE", "value limit of %" PRIu64 " bytes exceeded",
                l->value_bytes);
        return false;
    default:
        break;
    }
    db_fail(db, c, "SqliteError", code_name(rc), "%s", sqlite3_errmsg(db->sqlite));
    return false;
}

/* --- Rows ------------------------------------------------------------------------------------ */

static void put_digits(struct json_writer *w, int64_t v, bool tagged) {
    char text[32];
    char *p = text + sizeof(text);
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    if (tagged) {
        *--p = ']';
        *--p = '"';
    }
    do
        *--p = (char)('0' + u % 10);
    while ((u /= 10) > 0);
    if (v < 0)
        *--p = '-';
    if (tagged) {
        p -= 6;
        memcpy(p, "[\"i\",\"", 6);
    }
    json_writer_raw(w, p, (size_t)(text + sizeof(text) - p));
}

static void put_int(struct json_writer *w, int64_t v) {
    const int64_t exact = INT64_C(1) << 53;
    put_digits(w, v, v > exact || v < -exact);
}

static void put_blob(struct json_writer *w, const void *data, size_t len) {
    size_t n = BASE64_SIZE(len);
    json_writer_raw(w, "[\"b\",\"", 6);
    char *at = buf_reserve(w->out, n);
    if (!at)
        return;
    base64_encode(at, data, len);
    buf_claim(w->out, n);
    (void)buf_add(w->out, "\"]", 2);
}

static void put_column(struct json_writer *w, sqlite3_stmt *s, int i) {
    switch (sqlite3_column_type(s, i)) {
    case SQLITE_INTEGER:
        put_int(w, sqlite3_column_int64(s, i));
        break;
    case SQLITE_FLOAT:
        json_writer_num(w, sqlite3_column_double(s, i));
        break;
    case SQLITE_TEXT: {
        const char *p = (const char *)sqlite3_column_text(s, i);
        json_writer_text(w, p ? p : "", (size_t)sqlite3_column_bytes(s, i));
        break;
    }
    case SQLITE_BLOB: {
        const void *p = sqlite3_column_blob(s, i);
        put_blob(w, p, (size_t)sqlite3_column_bytes(s, i));
        break;
    }
    default:
        json_writer_null(w);
    }
}

static bool result_fits(struct db *db, struct db_call *c) {
    if (!db->out.full)
        return true;
    db_fail(db, c, "LimitError", "LIMIT_RESULT", "result limit of %" PRIu64 " bytes exceeded",
            db->limits.result_bytes);
    return false;
}

/* Steps to the end. "columns":[...],"rows":[[...],...] is written if the statement has columns, or
 * always. */
static bool step_all(struct db *db, struct db_call *c, sqlite3_stmt *s, struct json_writer *w,
                     bool always) {
    /* The first step may compile the statement anew and change its columns. */
    int rc = sqlite3_step(s);
    int n = sqlite3_column_count(s);
    bool written = n > 0 || always;
    if (written) {
        json_put_array_begin(w, "columns");
        for (int i = 0; i < n; i++)
            json_writer_str(w, sqlite3_column_name(s, i));
        json_writer_array_end(w);
        json_put_array_begin(w, "rows");
    }
    for (; rc == SQLITE_ROW; rc = sqlite3_step(s)) {
        if (++c->rows > db->limits.rows) {
            db_fail(db, c, "LimitError", "LIMIT_ROWS",
                    "row limit of %" PRIu64 " exceeded: add a LIMIT", db->limits.rows);
            return false;
        }
        json_writer_array_begin(w);
        for (int i = 0; i < n; i++)
            put_column(w, s, i);
        json_writer_array_end(w);
        if (!result_fits(db, c))
            return false;
    }
    if (rc != SQLITE_DONE)
        return sqlite_failed(db, c, rc);
    if (written)
        json_writer_array_end(w);
    return result_fits(db, c);
}

static bool step_rows(struct db *db, struct db_call *c, sqlite3_stmt *s, struct json_writer *w) {
    json_writer_object_begin(w);
    if (!step_all(db, c, s, w, true))
        return false;
    json_writer_object_end(w);
    return result_fits(db, c);
}

/* --- Statements ------------------------------------------------------------------------------ */

static bool facet_call_bind(struct db *db, struct db_call *c, sqlite3_stmt *s, int i,
                            const struct arg *v) {
    int rc = SQLITE_OK;
    switch (v->type) {
    case ARG_NULL:
        rc = sqlite3_bind_null(s, i);
        break;
    case ARG_INT:
        rc = sqlite3_bind_int64(s, i, v->i);
        break;
    case ARG_REAL:
        rc = sqlite3_bind_double(s, i, v->d);
        break;
    case ARG_TEXT:
        rc = sqlite3_bind_text64(s, i, v->p, v->len, SQLITE_STATIC, SQLITE_UTF8);
        break;
    case ARG_BLOB:
        rc = sqlite3_bind_blob64(s, i, v->p, v->len, SQLITE_STATIC);
        break;
    }
    return rc == SQLITE_OK ? true : sqlite_failed(db, c, rc);
}

/* Binds what is left of the array of arguments, and leaves it. */
static bool facet_call_bind_all(struct db *db, struct db_call *c, sqlite3_stmt *s, struct args *a) {
    int want = sqlite3_bind_parameter_count(s);
    int have = 0;
    struct arg v;
    int rc;
    while ((rc = args_value(a, &v)) == 1)
        if (++have <= want && !facet_call_bind(db, c, s, have, &v))
            return false;
    if (rc < 0)
        return bad_argument(db, c, a->error);
    if (have == want)
        return true;
    db_fail(db, c, "SqliteError", "SQLITE_RANGE",
            "the statement has %d parameter%s, but %d value%s given", want, want == 1 ? "" : "s",
            have, have == 1 ? " was" : "s were");
    return false;
}

/* The first argument: SQL. */
static bool take_sql(struct db *db, struct db_call *c, struct args *a) {
    struct arg v;
    int rc = args_value(a, &v);
    if (rc < 0)
        return bad_argument(db, c, a->error);
    if (rc == 0 || v.type != ARG_TEXT)
        return bad_argument(db, c, "the first argument must be a string of SQL");
    c->sql = v.p;
    c->sql_len = v.len;
    if (v.len > db->limits.sql_bytes) {
        db_fail(db, c, "LimitError", "LIMIT_SQL", "SQL limit of %" PRIu64 " bytes exceeded",
                db->limits.sql_bytes);
        return false;
    }
    if (memchr(v.p, 0, v.len))
        return bad_argument(db, c, "SQL must not hold a NUL character");
    return true;
}

/* Compiles c->sql. *ret_more is the text after the statement, NULL if there is no more. */
static bool facet_call_compile(struct db *db, struct db_call *c, enum db_mode mode, const char *sql,
                               size_t len, struct db_stmt **ret_stmt, const char **ret_more) {
    const char *tail;
    int rc = db_prepare(db, mode, sql, len, ret_stmt, &tail);
    if (rc != SQLITE_OK)
        return sqlite_failed(db, c, rc);
    if (!(*ret_stmt)->stmt) {
        db_release(db, *ret_stmt);
        *ret_stmt = NULL;
        return bad_argument(db, c, "the SQL is empty");
    }
    if (c->readonly && !sqlite3_stmt_readonly((*ret_stmt)->stmt)) {
        db_release(db, *ret_stmt);
        *ret_stmt = NULL;
        db_fail(db, c, "SqliteError", "READ_ONLY", "this capability only reads");
        return false;
    }
    *ret_more = db_sql_is_blank(tail, len - (size_t)(tail - sql)) ? NULL : tail;
    return true;
}

/* How the statements of a call that may write are compiled. */
static enum db_mode mode_of(const struct db_call *c) {
    return c->readonly ? DB_MODE_READ : DB_MODE_WRITE;
}

static bool one_statement(struct db *db, struct db_call *c, const char *more) {
    if (!more)
        return true;
    db_fail(
        db, c, "SqliteError", "SQLITE_ERROR",
        "one statement is expected, more follows: use execute() without parameters, or batch()");
    return false;
}

/* A statement with its values, one way or the other. */
static bool run_read(struct db *db, struct db_call *c, struct args *a, struct json_writer *w) {
    struct db_stmt *s = NULL;
    const char *more = NULL;
    bool ok = facet_call_compile(db, c, DB_MODE_READ, c->sql, c->sql_len, &s, &more) &&
              one_statement(db, c, more) && facet_call_bind_all(db, c, s->stmt, a);
    if (ok && !sqlite3_stmt_readonly(s->stmt)) {
        db_fail(db, c, "SqliteError", "READ_ONLY", "query() only reads: use execute() to write");
        ok = false;
    }
    ok = ok && step_rows(db, c, s->stmt, w);
    db_release(db, s);
    return ok;
}

static bool facet_call_begin(struct db *db, struct db_call *c) {
    int rc = db_begin(db);
    return rc == SQLITE_OK ? true : sqlite_failed(db, c, rc);
}

static bool facet_call_commit(struct db *db, struct db_call *c) {
    int rc = db_commit(db);
    return rc == SQLITE_OK ? true : sqlite_failed(db, c, rc);
}

/* query() of a statement that writes and has rows, for a holder that may write. */
static bool run_returning(struct db *db, struct db_call *c, struct args *a, struct json_writer *w) {
    struct db_stmt *s = NULL;
    const char *more = NULL;
    c->code[0] = 0;
    buf_clear(&db->out);
    json_writer_init(w, &db->out);
    bool ok = facet_call_compile(db, c, DB_MODE_WRITE, c->sql, c->sql_len, &s, &more) &&
              one_statement(db, c, more) && facet_call_bind_all(db, c, s->stmt, a);
    if (ok && sqlite3_column_count(s->stmt) == 0) {
        db_fail(db, c, "SqliteError", "READ_ONLY",
                "query() only reads: use execute() to write, or add RETURNING");
        ok = false;
    }
    int64_t before = sqlite3_total_changes64(db->sqlite);
    ok = ok && facet_call_begin(db, c) && step_rows(db, c, s->stmt, w);
    db_release(db, s);
    if (ok && sqlite3_total_changes64(db->sqlite) != before)
        c->changes = (uint64_t)sqlite3_changes64(db->sqlite);
    return ok && facet_call_commit(db, c);
}

/* What a holder reads; what it may execute it may also write this way, as long as it has rows. */
static bool run_query(struct db *db, struct db_call *c, struct args *a, struct json_writer *w) {
    return run_read(db, c, a, w) ||
           (db->denied_write && c->may_write && run_returning(db, c, a, w));
}

/* Runs the statement and writes {"success":true,...}. */
static bool step_write(struct db *db, struct db_call *c, sqlite3_stmt *s, struct json_writer *w) {
    int64_t before = sqlite3_total_changes64(db->sqlite);
    json_writer_object_begin(w);
    json_put_bool(w, "success", true);
    if (!step_all(db, c, s, w, false))
        return false;
    /* changes() keeps its value over a statement that changes no rows. */
    int64_t changes =
        sqlite3_total_changes64(db->sqlite) == before ? 0 : sqlite3_changes64(db->sqlite);
    c->changes += (uint64_t)changes;
    json_writer_key(w, "changes");
    put_int(w, changes);
    json_writer_key(w, "lastInsertRowid");
    put_int(w, sqlite3_last_insert_rowid(db->sqlite));
    json_writer_object_end(w);
    return result_fits(db, c);
}

/* Several statements without parameters: one transaction, the rows are dropped. */
static bool run_script(struct db *db, struct db_call *c, struct json_writer *w) {
    const char *sql = c->sql;
    const char *end = c->sql + c->sql_len;
    uint64_t changes = 0;
    if (!facet_call_begin(db, c))
        return false;
    while (sql && !db_sql_is_blank(sql, (size_t)(end - sql))) {
        struct db_stmt *s = NULL;
        const char *more = NULL;
        if (!facet_call_compile(db, c, mode_of(c), sql, (size_t)(end - sql), &s, &more))
            return false;
        int rc = SQLITE_ROW;
        int64_t before = sqlite3_total_changes64(db->sqlite);
        while (rc == SQLITE_ROW)
            rc = sqlite3_step(s->stmt);
        bool ok = rc == SQLITE_DONE ? true : sqlite_failed(db, c, rc);
        if (sqlite3_total_changes64(db->sqlite) != before)
            changes += (uint64_t)sqlite3_changes64(db->sqlite);
        db_release(db, s);
        if (!ok)
            return false;
        sql = more;
    }
    if (!facet_call_commit(db, c))
        return false;
    c->changes = changes;
    json_writer_object_begin(w);
    json_put_bool(w, "success", true);
    json_writer_key(w, "changes");
    put_int(w, (int64_t)changes);
    json_writer_key(w, "lastInsertRowid");
    put_int(w, sqlite3_last_insert_rowid(db->sqlite));
    json_writer_object_end(w);
    return true;
}

static bool run_write(struct db *db, struct db_call *c, struct args *a, struct json_writer *w,
                      bool may_be_script) {
    struct db_stmt *s = NULL;
    const char *more = NULL;
    if (!facet_call_compile(db, c, mode_of(c), c->sql, c->sql_len, &s, &more))
        return false;
    if (more && may_be_script) {
        int end = args_leave(a);
        db_release(db, s);
        if (end == 1)
            return run_script(db, c, w);
        return end < 0 ? bad_argument(db, c, a->error) : one_statement(db, c, more);
    }
    /* Rows that do not fit must undo what the statement wrote. */
    bool own = sqlite3_column_count(s->stmt) > 0 && !sqlite3_stmt_readonly(s->stmt) &&
               sqlite3_get_autocommit(db->sqlite);
    bool ok = one_statement(db, c, more) && facet_call_bind_all(db, c, s->stmt, a) &&
              (!own || facet_call_begin(db, c)) && step_write(db, c, s->stmt, w);
    db_release(db, s);
    return ok && (!own || facet_call_commit(db, c));
}

static bool run_batch_item(struct db *db, struct db_call *c, struct args *a,
                           struct json_writer *w) {
    struct db_stmt *s = NULL;
    const char *more = NULL;
    if (!take_sql(db, c, a) ||
        !facet_call_compile(db, c, mode_of(c), c->sql, c->sql_len, &s, &more))
        return false;
    bool ok = one_statement(db, c, more) && facet_call_bind_all(db, c, s->stmt, a);
    if (ok)
        ok = sqlite3_stmt_readonly(s->stmt) ? step_rows(db, c, s->stmt, w)
                                            : step_write(db, c, s->stmt, w);
    db_release(db, s);
    return ok;
}

static bool run_batch(struct db *db, struct db_call *c, struct args *a, struct json_writer *w) {
    if (args_enter(a) != 1)
        return bad_argument(db, c, "batch() takes one array: [[sql, value, ...], ...]");
    if (!facet_call_begin(db, c))
        return false;
    json_writer_array_begin(w);
    int rc;
    for (unsigned n = 1; (rc = args_enter(a)) == 1; n++) {
        if (n > LIMIT_FACET_BATCH) {
            db_fail(db, c, "LimitError", "LIMIT_BATCH", "batch limit of %d statements exceeded",
                    LIMIT_FACET_BATCH);
            return false;
        }
        if (!run_batch_item(db, c, a, w))
            return false;
    }
    if (rc < 0)
        return bad_argument(db, c, a->error);
    if (args_leave(a) != 1)
        return bad_argument(db, c, "batch() takes one array: [[sql, value, ...], ...]");
    json_writer_array_end(w);
    return result_fits(db, c) && facet_call_commit(db, c);
}

static bool facet_call_run(struct db *db, struct db_call *c, struct args *a,
                           struct json_writer *w) {
    if (args_enter(a) != 1)
        return bad_argument(db, c, a->error);
    switch (c->method) {
    case DB_METHOD_QUERY:
        return take_sql(db, c, a) && run_query(db, c, a, w);
    case DB_METHOD_EXECUTE:
        return take_sql(db, c, a) && run_write(db, c, a, w, true);
    case DB_METHOD_BATCH:
        return run_batch(db, c, a, w);
    default: {
        const struct facet_method *m = &db->methods[c->method - DB_METHOD_NAMED];
        c->sql = m->sql;
        c->sql_len = strlen(m->sql);
        return m->kind == FACET_KIND_QUERY ? run_read(db, c, a, w) : run_write(db, c, a, w, false);
    }
    }
}

void db_call(struct db *db, struct db_call *c) {
    errno = 0; /* for sqlite_failed() */
    enum { KEEP_BYTES = 256 * 1024 };
    struct args a;
    struct json_writer w;
    if (db->out.cap > KEEP_BYTES)
        buf_finish(&db->out);
    if (db->scratch.cap > KEEP_BYTES)
        buf_finish(&db->scratch);
    buf_clear(&db->out);
    args_init(&a, c->args, c->args_len, &db->scratch);
    json_writer_init(&w, &db->out);
    db_start_clock(db, db->limits.time_ms);
    sqlite3_set_last_insert_rowid(db->sqlite, c->rowid);
    c->ok = facet_call_run(db, c, &a, &w);
    if (!sqlite3_get_autocommit(db->sqlite)) {
        db_rollback(db);
        c->changes = 0;
    }
    c->rowid = sqlite3_last_insert_rowid(db->sqlite);
}
