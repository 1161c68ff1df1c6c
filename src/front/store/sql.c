#include "front/store/sql.h"

#include "base/cleanup.h"
#include "base/mem.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool store_is_full(sqlite3 *db) {
    int sys = errno; /* sqlite3_system_errno() is not set by a commit that fails */
    int code = sqlite3_extended_errcode(db) & 0xff;
    if (code != SQLITE_IOERR && code != SQLITE_CANTOPEN)
        sys = 0;
    return code == SQLITE_FULL || sys == ENOSPC || sys == EDQUOT || sys == EFBIG;
}

int store_error(sqlite3 *db, struct err *err, const char *what) {
    if (store_is_full(db))
        return err_set(err, ERR_FULL,
                       "store: %s: the disk is full: make room where --data-dir lies, or keep less "
                       "(\"store\" in cay.json)",
                       what);
    if ((sqlite3_extended_errcode(db) & 0xff) == SQLITE_BUSY)
        return err_set(err, ERR_UNAVAILABLE,
                       "store: %s: another program has the database locked: try again in some "
                       "seconds",
                       what);
    return err_set(err, ERR_IO, "store: %s: %s", what, sqlite3_errmsg(db));
}

int store_check_emptied(const char *path, const char *beside, const char *lost, struct err *err) {
    struct stat st;
    const char *slash = strrchr(path, '/');
    _cleanup_(free) char *other =
        xasprintf("%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, beside);
    if (stat(path, &st) < 0 || st.st_size > 0 || stat(other, &st) < 0 || st.st_size == 0)
        return 0;
    return err_set(
        err, ERR_IO,
        "%s is empty, though this data folder has been in use: %s are gone; put a backup "
        "in its place, or delete the file to start without them",
        path, lost);
}

void store_remove_empty(const char *path) {
    struct stat st;
    if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0)
        (void)unlink(path);
}

int store_exec(sqlite3 *db, const char *sql, struct err *err, const char *what) {
    errno = 0;
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
        return store_error(db, err, what);
    return 0;
}

int store_version(sqlite3 *db) {
    sqlite3_stmt *st = NULL;
    int v = -1;
    if (sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW)
        v = sqlite3_column_int(st, 0);
    (void)sqlite3_finalize(st);
    return v;
}

int store_migrate(sqlite3 *db, const char *const *migrations, int latest,
                  int (*after)(void *ctx, int from, struct err *err), void *ctx, struct err *err) {
    int rc = store_exec(db, "BEGIN IMMEDIATE", err, "lock the database");
    if (rc < 0)
        return rc;
    int version = store_version(db);
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
        rc = store_exec(db, migrations[i], err, "migrate");
        char *sql = sqlite3_mprintf("PRAGMA user_version = %d", i + 1);
        if (rc == 0)
            rc = store_exec(db, sql, err, "migrate");
        sqlite3_free(sql);
    }
    if (rc == 0 && after && version < latest)
        rc = after(ctx, version, err);
    if (rc == 0)
        rc = store_exec(db, "COMMIT", err, "migrate");
    if (rc < 0)
        (void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

void store_bind_str(sqlite3_stmt *st, int i, const char *v) {
    if (v)
        (void)sqlite3_bind_text(st, i, v, -1, SQLITE_STATIC);
}

void store_bind_int(sqlite3_stmt *st, int i, int64_t v) {
    (void)sqlite3_bind_int64(st, i, v);
}

char *store_column_dup(sqlite3_stmt *st, int i) {
    const char *v = (const char *)sqlite3_column_text(st, i);
    return v ? xstrndup(v, (size_t)sqlite3_column_bytes(st, i)) : NULL;
}

void store_column_id(sqlite3_stmt *st, int i, char out[ID_SIZE]) {
    const char *v = (const char *)sqlite3_column_text(st, i);
    size_t n = v ? strlen(v) : 0;
    if (n >= ID_SIZE)
        n = 0;
    if (n)
        memcpy(out, v, n);
    out[n] = 0;
}

int store_step(sqlite3_stmt *st, const char *what, int64_t *ret_changes, struct err *err) {
    sqlite3 *db = sqlite3_db_handle(st);
    int rc = sqlite3_step(st);
    if (rc != SQLITE_DONE) {
        int e = store_error(db, err, what);
        (void)sqlite3_reset(st);
        return e;
    }
    (void)sqlite3_reset(st);
    if (ret_changes)
        *ret_changes = sqlite3_changes64(db);
    return 0;
}
