/* A database file that a stranger uploaded. It is looked at here, in a process that can touch
 * nothing else, before anybody is served from it:
 *
 * 1. The header, byte by byte, before SQLite sees the file: what it claims must fit its size.
 * 2. Its objects. SQLite takes the CREATE statements of a file as they are, without asking the
 *    authorizer, so each is run again in an empty database in memory, where the authorizer is
 *    asked; then every view, trigger, default and constraint is compiled by a statement that uses
 *    it. What a holder could not have created is refused.
 * 3. All its pages (integrity_check).
 *
 * The authorizer is asked again for every call, so a hole here would give nobody more than a
 * holder has: these checks say at once, and in words, what would fail later. */

#include "base/cleanup.h"
#include "base/mem.h"
#include "facet/db.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER_BYTES = 100, PAGE_MIN = 512, PAGE_MAX = 65536 };

static int check_refuse(struct err *err, const char *why) {
    return err_set(err, ERR_BAD_REQUEST, "the file cannot be imported: %s", why);
}

/* --- The header ------------------------------------------------------------------------------ */

static uint32_t check_u32(const unsigned char *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static int check_size(const struct db *db, const unsigned char *h, uint64_t size, struct err *err) {
    uint32_t page = (uint32_t)h[16] << 8 | h[17];
    uint64_t pages = check_u32(h + 28);
    if (page == 1)
        page = PAGE_MAX;
    if (page < PAGE_MIN || (page & (page - 1)) != 0)
        return check_refuse(err, "its header has no valid page size");
    if (page - h[20] < 480)
        return check_refuse(err, "its header reserves too much of each page");
    /* The count is valid if the version that wrote it is the last one that wrote at all. */
    bool counted = pages > 0 && check_u32(h + 24) == check_u32(h + 92);
    if (size % page != 0 || (counted && pages * page != size))
        return err_set(err, ERR_BAD_REQUEST,
                       "the file cannot be imported: it has %" PRIu64
                       " bytes, but its header says %" PRIu64 " pages of %u bytes (truncated?)",
                       size, pages, page);
    if (size > db->limits.disk_bytes)
        return err_set(err, ERR_TOO_LARGE,
                       "the file has %" PRIu64 " bytes, and the disk limit of this database is "
                       "%" PRIu64,
                       size, db->limits.disk_bytes);
    return 0;
}

int db_check_header(const struct db *db, const char *path, struct err *err) {
    _cleanup_(close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    unsigned char h[HEADER_BYTES];
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return err_set(err, ERR_IO, "the uploaded file cannot be opened");
    if (st.st_size == 0)
        return check_refuse(err, "it is empty");
    if (st.st_size < PAGE_MIN || pread(fd, h, sizeof(h), 0) != (ssize_t)sizeof(h) ||
        memcmp(h, "SQLite format 3", 16) != 0)
        return check_refuse(err, "it is not a SQLite 3 database");
    int rc = check_size(db, h, (uint64_t)st.st_size, err);
    if (rc < 0)
        return rc;
    if (h[18] < 1 || h[18] > 2 || h[19] < 1 || h[19] > 2)
        return check_refuse(err, "it was written by a newer version of SQLite");
    if (h[21] != 64 || h[22] != 32 || h[23] != 32)
        return check_refuse(err, "its header is damaged");
    if (check_u32(h + 44) > 4)
        return check_refuse(err, "its schema has an unknown format");
    uint32_t encoding = check_u32(h + 56);
    if (encoding == 2 || encoding == 3)
        return check_refuse(err, "its text is UTF-16; make a copy in UTF-8 (sqlite3 OLD .dump | "
                                 "sqlite3 NEW)");
    if (encoding > 3)
        return check_refuse(err, "its header names no known text encoding");
    return 0;
}

/* --- Its objects ----------------------------------------------------------------------------- */

static int check_object(struct db *copy, const char *type, const char *name, struct err *err) {
    struct err why;
    (void)db_failed(copy, "SQL", &why);
    return err_set(err, ERR_BAD_REQUEST,
                   "the file cannot be imported: the %s \"%.100s\" is refused: %s", type, name,
                   why.message);
}

/* Compiles a statement without running it. */
static bool check_compiles(struct db *copy, enum db_mode mode, const char *sql) {
    sqlite3_stmt *s = NULL;
    copy->mode = mode;
    copy->denied[0] = 0;
    copy->denied_write = false;
    bool ok = sql && sqlite3_prepare_v2(copy->sqlite, sql, -1, &s, NULL) == SQLITE_OK;
    sqlite3_finalize(s);
    return ok;
}

static bool check_has(struct db *copy, const char *name) {
    sqlite3_stmt *s = NULL;
    copy->mode = DB_MODE_INTERNAL;
    bool has = sqlite3_prepare_v2(copy->sqlite, "SELECT 1 FROM sqlite_schema WHERE name = ?", -1,
                                  &s, NULL) == SQLITE_OK &&
               sqlite3_bind_text(s, 1, name, -1, SQLITE_STATIC) == SQLITE_OK &&
               sqlite3_step(s) == SQLITE_ROW;
    sqlite3_finalize(s);
    return has;
}

/* The tables that SQLite makes itself have one shape. */
static bool check_is_own(const char *name, const char *sql) {
    static const char *const OWN[][2] = {
        {"sqlite_sequence", "CREATE TABLE sqlite_sequence(name,seq)"},
        {"sqlite_stat1", "CREATE TABLE sqlite_stat1(tbl,idx,stat)"},
        {"sqlite_stat4", "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)"},
    };
    for (size_t i = 0; i < ARRAY_LEN(OWN); i++)
        if (strcmp(name, OWN[i][0]) == 0)
            return strcmp(sql, OWN[i][1]) == 0;
    return false;
}

/* Runs one CREATE statement of the file in the copy. */
static int check_replay(struct db *copy, const char *type, const char *name, const char *sql,
                        size_t len, struct err *err) {
    sqlite3_stmt *s = NULL;
    const char *tail = NULL;
    if (strcmp(type, "table") == 0 && (check_is_own(name, sql) || check_has(copy, name)))
        return 0; /* the second: a shadow table that its virtual table has made */
    if (strlen(sql) != len || strncasecmp(sql, "create ", 7) != 0)
        return err_set(err, ERR_BAD_REQUEST,
                       "the file cannot be imported: the %s \"%.100s\" is no CREATE statement",
                       type, name);
    copy->mode = DB_MODE_OPERATOR;
    copy->denied[0] = 0;
    copy->recording = true; /* the file may be an export, with its migrations */
    int rc = sqlite3_prepare_v2(copy->sqlite, sql, -1, &s, &tail);
    if (rc == SQLITE_OK && s && !db_sql_is_blank(tail, strlen(tail)))
        rc = SQLITE_MISUSE;
    if (rc == SQLITE_OK && s)
        rc = sqlite3_step(s);
    int result = rc == SQLITE_DONE ? 0 : check_object(copy, type, name, err);
    sqlite3_finalize(s);
    copy->recording = false;
    return result;
}

/* Virtual tables first: they make their shadow tables. */
static const char *const CHECK_ORDER[] = {
    "SELECT 'table', name, sql FROM sqlite_schema WHERE type = 'table' AND rootpage = 0",
    "SELECT 'table', name, sql FROM sqlite_schema WHERE type = 'table' AND rootpage <> 0",
    "SELECT 'index', name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL",
    "SELECT 'view', name, sql FROM sqlite_schema WHERE type = 'view'",
    "SELECT 'trigger', name, sql FROM sqlite_schema WHERE type = 'trigger'",
    // NOLINTNEXTLINE(bugprone-suspicious-missing-comma): one text in two lines
    ("SELECT 'entry', name, sql FROM sqlite_schema"
     " WHERE type NOT IN ('table', 'index', 'view', 'trigger')"),
};

static int check_replay_all(struct db *db, struct db *copy, struct err *err) {
    for (size_t i = 0; i < ARRAY_LEN(CHECK_ORDER); i++) {
        sqlite3_stmt *s = NULL;
        db->mode = DB_MODE_INTERNAL;
        if (sqlite3_prepare_v2(db->sqlite, CHECK_ORDER[i], -1, &s, NULL) != SQLITE_OK)
            return check_object(db, "schema", "sqlite_schema", err);
        int rc;
        int result = 0;
        while (result == 0 && (rc = sqlite3_step(s)) == SQLITE_ROW) {
            const char *type = (const char *)sqlite3_column_text(s, 0);
            const char *name = (const char *)sqlite3_column_text(s, 1);
            const char *sql = (const char *)sqlite3_column_text(s, 2);
            if (!name || !sql || strcmp(type, "entry") == 0)
                result = check_refuse(err, "its schema has an entry that is no object");
            else
                result =
                    check_replay(copy, type, name, sql, (size_t)sqlite3_column_bytes(s, 2), err);
        }
        if (result == 0 && rc != SQLITE_DONE)
            result = check_object(db, "schema", "sqlite_schema", err);
        sqlite3_finalize(s);
        if (result < 0)
            return result;
    }
    return 0;
}

/* UPDATE "t" SET "a"="a", "b"="b": compiles what any UPDATE would. The caller frees it. */
static char *check_update_of(struct db *copy, const char *table) {
    char *sql = sqlite3_mprintf("PRAGMA table_xinfo(\"%w\")", table);
    sqlite3_stmt *s = NULL;
    sqlite3_str *out = sqlite3_str_new(copy->sqlite);
    const char *before = "SET";
    sqlite3_str_appendf(out, "UPDATE \"%w\" ", table);
    copy->mode = DB_MODE_INTERNAL;
    if (sql && sqlite3_prepare_v2(copy->sqlite, sql, -1, &s, NULL) == SQLITE_OK)
        while (sqlite3_step(s) == SQLITE_ROW)
            if (sqlite3_column_int(s, 6) == 0) { /* neither hidden nor generated */
                const char *column = (const char *)sqlite3_column_text(s, 1);
                sqlite3_str_appendf(out, "%s \"%w\" = \"%w\"", before, column, column);
                before = ",";
            }
    sqlite3_finalize(s);
    sqlite3_free(sql);
    return sqlite3_str_finish(out);
}

/* What may be said of a statement that is fine in itself: a view without such a trigger, the
 * tables behind a virtual one. */
static bool check_is_harmless(struct db *copy) {
    const char *message = sqlite3_errmsg(copy->sqlite);
    return !copy->denied[0] && (strstr(message, "because it is a view") != NULL ||
                                strstr(message, "may not be modified") != NULL);
}

/* Compiles every statement that can lead to what the object holds. */
static int check_use(struct db *copy, const char *type, const char *name, struct err *err) {
    char *const statements[] = {
        sqlite3_mprintf("SELECT * FROM \"%w\"", name),
        sqlite3_mprintf("DELETE FROM \"%w\"", name),
        sqlite3_mprintf("INSERT INTO \"%w\" DEFAULT VALUES", name),
        check_update_of(copy, name),
    };
    int rc = 0;
    copy->recording = true;
    for (size_t i = 0; i < ARRAY_LEN(statements); i++) {
        if (rc == 0 && !check_compiles(copy, DB_MODE_OPERATOR, statements[i]) &&
            (i == 0 || !check_is_harmless(copy)))
            rc = check_object(copy, type, name, err);
        sqlite3_free(statements[i]);
    }
    copy->recording = false;
    return rc;
}

static int check_use_all(struct db *copy, struct err *err) {
    sqlite3_stmt *s = NULL;
    int rc;
    int result = 0;
    copy->mode = DB_MODE_INTERNAL;
    if (sqlite3_prepare_v2(copy->sqlite,
                           "SELECT type, name FROM sqlite_schema WHERE type IN ('table', 'view') "
                           "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'",
                           -1, &s, NULL) != SQLITE_OK)
        return check_object(copy, "schema", "sqlite_schema", err);
    while (result == 0 && (rc = sqlite3_step(s)) == SQLITE_ROW)
        result = check_use(copy, (const char *)sqlite3_column_text(s, 0),
                           (const char *)sqlite3_column_text(s, 1), err);
    if (result == 0 && rc != SQLITE_DONE)
        result = check_object(copy, "schema", "sqlite_schema", err);
    sqlite3_finalize(s);
    return result;
}

/* --- Its pages ------------------------------------------------------------------------------- */

static int check_pages(struct db *db, struct err *err) {
    sqlite3_stmt *s = NULL;
    db->mode = DB_MODE_INTERNAL;
    db->denied[0] = 0;
    int rc = sqlite3_prepare_v2(db->sqlite, "PRAGMA integrity_check(1)", -1, &s, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(s);
    const char *text = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(s, 0) : NULL;
    int result = 0;
    if (db->stop == DB_STOP_TIME)
        result = err_set(err, ERR_LIMIT, "the file cannot be imported: checking it takes too long");
    else if (!text)
        result = check_refuse(err, sqlite3_errmsg(db->sqlite));
    else if (strcmp(text, "ok") != 0)
        result = err_set(err, ERR_BAD_REQUEST,
                         "the file cannot be imported: its integrity check fails: %.300s", text);
    sqlite3_finalize(s);
    return result;
}

int db_check_content(struct db *db, struct err *err) {
    struct db copy;
    db_init(&copy, &db->limits);
    int rc = db_connect(&copy, ":memory:", err);
    if (rc == 0)
        rc = check_replay_all(db, &copy, err);
    if (rc == 0)
        rc = check_use_all(&copy, err);
    db_finish(&copy);
    if (rc == 0)
        rc = check_pages(db, err);
    if (rc == 0)
        db_settle(db);
    return rc;
}
