#include "front/ledger/internal.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/path.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OWN_VERSION };

static const char *const own_sql[] = {[OWN_VERSION] = "PRAGMA data_version"};
static const struct ledger_statements own_statements = {own_sql, ARRAY_LEN(own_sql)};

static const struct ledger_statements *const all_statements[LEDGER_SUBJECTS] = {
    [LEDGER_OWN] = &own_statements, [LEDGER_KEYS] = &ledger_key_statements};

/* Never edit one that has been released: add the next. */
static const char *const migrations[] = {
    /* 1 */
    "CREATE TABLE keys (id TEXT PRIMARY KEY, name TEXT NOT NULL, scope TEXT NOT NULL,"
    " hash BLOB NOT NULL, rate_per_minute INTEGER NOT NULL DEFAULT 0, grants TEXT,"
    " created_ms INTEGER NOT NULL, revoked_ms INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;",
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

static int set_up(struct ledger_db *db, const char *data_dir, struct err *err) {
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW;
    if (sqlite3_open_v2(db->path, &db->db, flags, NULL) != SQLITE_OK ||
        sqlite3_busy_timeout(db->db, 5000) != SQLITE_OK)
        return store_error(db->db, err, "open the ledger");
    int rc = store_exec(db->db,
                        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
                        "PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF;",
                        err, "set up the ledger");
    if (rc == 0)
        rc = migrate(db, data_dir, err);
    for (int i = 0; rc == 0 && i < LEDGER_SUBJECTS; i++)
        rc = prepare(db, i, err);
    return rc;
}

int ledger_db_open(const char *data_dir, struct ledger_db **ret_db, struct err *err) {
    struct ledger_db *db = xcalloc(1, sizeof(*db));
    db->path = path_join(data_dir, "ledger.db");
    int rc = set_up(db, data_dir, err);
    if (rc < 0) {
        ledger_db_close(db);
        return rc;
    }
    *ret_db = db;
    return 0;
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
