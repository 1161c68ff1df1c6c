#include "facet/db.h"

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/text.h"
#include "facet/funcs.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    PAGE_BYTES = 4096,
    /* The log is written back at this size, and cut back to it. */
    LOG_PAGES = 256,
    CACHED_SQL_MAX = 16 * 1024,
    CACHED_STMT_MAX = 128 * 1024,
    /* Few, because one instruction can be a function that runs for a tenth of a second. */
    PROGRESS_OPS = 16,
    TICK_NS = 2000000,
    BUSY_MS = 1000,
};

/* --- What SQL may do ------------------------------------------------------------------------- */

static int facet_db_by_name(const void *key, const void *entry) {
    return strcasecmp(key, *(const char *const *)entry);
}

#define IS_LISTED(name, list)                                                                      \
    ((name) &&                                                                                     \
     bsearch((name), (list), ARRAY_LEN(list), sizeof((list)[0]), facet_db_by_name) != NULL)

/* Sorted. Left out on purpose: load_extension, fts3_tokenizer, sqlite_log, json_patch (quadratic),
 * what tells about the build, and the functions of modules that are not there. The sqlite_... ones
 * are SQLite's own steps of ALTER TABLE; a holder cannot call them. */
static const char *const FUNCTIONS[] = {
    "->",
    "->>",
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "avg",
    "bm25",
    "ceil",
    "ceiling",
    "changes",
    "char",
    "coalesce",
    "cos",
    "cosh",
    "count",
    "cume_dist",
    "current_date",
    "current_time",
    "current_timestamp",
    "date",
    "datetime",
    "degrees",
    "dense_rank",
    "exp",
    "first_value",
    "floor",
    "format",
    "glob",
    "group_concat",
    "hex",
    "highlight",
    "ifnull",
    "iif",
    "instr",
    "json",
    "json_array",
    "json_array_length",
    "json_extract",
    "json_group_array",
    "json_group_object",
    "json_insert",
    "json_object",
    "json_quote",
    "json_remove",
    "json_replace",
    "json_set",
    "json_type",
    "json_valid",
    "julianday",
    "lag",
    "last_insert_rowid",
    "last_value",
    "lead",
    "length",
    "like",
    "likelihood",
    "likely",
    "ln",
    "log",
    "log10",
    "log2",
    "lower",
    "ltrim",
    "match",
    "max",
    "min",
    "mod",
    "nth_value",
    "ntile",
    "nullif",
    "percent_rank",
    "pi",
    "pow",
    "power",
    "printf",
    "quote",
    "radians",
    "random",
    "randomblob",
    "rank",
    "replace",
    "round",
    "row_number",
    "rtrim",
    "sign",
    "sin",
    "sinh",
    "snippet",
    "soundex",
    "sqlite_drop_column",
    "sqlite_rename_column",
    "sqlite_rename_quotefix",
    "sqlite_rename_table",
    "sqlite_rename_test",
    "sqlite_version",
    "sqrt",
    "strftime",
    "substr",
    "substring",
    "sum",
    "tan",
    "tanh",
    "time",
    "total",
    "total_changes",
    "trim",
    "trunc",
    "typeof",
    "unicode",
    "unixepoch",
    "unlikely",
    "upper",
    "zeroblob",
};

/* Sorted. Each of these only reads, with or without an argument. */
static const char *const PRAGMAS[] = {
    "foreign_key_check", "foreign_key_list", "index_info", "index_list",
    "index_xinfo",       "table_info",       "table_list", "table_xinfo",
};

/* Sorted. These read without an argument and write with one. */
static const char *const PRAGMAS_BARE[] = {
    "data_version", "foreign_keys", "freelist_count", "page_count", "page_size", "user_version",
};

static bool pragma_is_allowed(const struct db *db, const char *name, const char *value) {
    if (IS_LISTED(name, PRAGMAS) || (!value && IS_LISTED(name, PRAGMAS_BARE)))
        return true;
    return db->mode == DB_MODE_OPERATOR && strcasecmp(name, "user_version") == 0;
}

static int facet_db_deny(struct db *db, const char *what, const char *name) {
    (void)text_print(db->denied, sizeof(db->denied), "%s%s%s", what, name ? " " : "",
                     name ? name : "");
    return SQLITE_DENY;
}

/* Something that writes, into the given schema. Temporary objects would outlive the call and could
 * hide the tables from other holders: only "main" is written. */
static int write_action(struct db *db, const char *schema, const char *a, const char *b) {
    if (!db->recording &&
        ((a && strcasecmp(a, DB_RECORD_TABLE) == 0) || (b && strcasecmp(b, DB_RECORD_TABLE) == 0)))
        return facet_db_deny(db, "writing", DB_RECORD_TABLE);
    if (schema && strcmp(schema, "main") != 0)
        return facet_db_deny(db, "temporary tables, views and triggers", NULL);
    if (db->mode != DB_MODE_READ)
        return SQLITE_OK;
    db->denied_write = true;
    return SQLITE_DENY;
}

/* Called while SQL is compiled, for each thing that the statement would do, also inside views and
 * triggers: what is not listed here cannot be done, whoever wrote the view. */
static int facet_db_on_authorize(void *ctx, int action, const char *a, const char *b,
                                 const char *schema, const char *trigger) {
    struct db *db = ctx;
    if (db->mode == DB_MODE_INTERNAL)
        return SQLITE_OK;
    switch (action) {
    case SQLITE_SELECT:
    case SQLITE_READ:
    case SQLITE_RECURSIVE:
        return SQLITE_OK;
    case SQLITE_FUNCTION:
        return IS_LISTED(b, FUNCTIONS) ? SQLITE_OK : facet_db_deny(db, "function", b);
    case SQLITE_PRAGMA:
        return pragma_is_allowed(db, a, b) ? SQLITE_OK : facet_db_deny(db, "PRAGMA", a);
    case SQLITE_INSERT:
        if (!trigger && !db->insert_into && strncasecmp(a, "sqlite_", 7) != 0)
            db->insert_into = xstrdup(a);
        return write_action(db, schema, a, NULL);
    case SQLITE_UPDATE:
        /* A virtual table that is looked at for the first time declares itself by this, and ALTER
         * TABLE looks into both; SQL that would really do it is refused by SQLite. */
        if (strcmp(a, "sqlite_master") == 0 || strcmp(a, "sqlite_temp_master") == 0)
            return SQLITE_OK;
        return write_action(db, schema, a, NULL);
    case SQLITE_DELETE:
    case SQLITE_CREATE_INDEX:
    case SQLITE_CREATE_TABLE:
    case SQLITE_CREATE_TRIGGER:
    case SQLITE_CREATE_VIEW:
    case SQLITE_DROP_INDEX:
    case SQLITE_DROP_TABLE:
    case SQLITE_DROP_TRIGGER:
    case SQLITE_DROP_VIEW:
    case SQLITE_DROP_VTABLE:
        return write_action(db, schema, a, b);
    case SQLITE_REINDEX:
    case SQLITE_ANALYZE: /* it changes no rows */
        return write_action(db, schema, NULL, NULL);
    case SQLITE_ALTER_TABLE:
        return write_action(db, a, b, NULL);
    case SQLITE_CREATE_VTABLE:
        if (strcasecmp(b ? b : "", "fts5") != 0)
            return facet_db_deny(db, "module", b);
        return write_action(db, schema, a, NULL);
    case SQLITE_TRANSACTION:
    case SQLITE_SAVEPOINT:
        return facet_db_deny(db,
                             "transactions: each call is one, and batch() makes one of several "
                             "statements",
                             NULL);
    case SQLITE_ATTACH:
    case SQLITE_DETACH:
        return facet_db_deny(db, "ATTACH, DETACH and VACUUM", NULL);
    default:
        return facet_db_deny(db, "temporary tables, views and triggers", NULL);
    }
}

/* --- Time ------------------------------------------------------------------------------------ */

static int64_t coarse_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int facet_db_on_progress(void *ctx) {
    struct db *db = ctx;
    int64_t now = coarse_ns();
    if (now >= db->deadline_ns) {
        db->stop = DB_STOP_TIME;
    } else if (now >= db->next_tick_ns && db->on_tick) {
        db->next_tick_ns = now + TICK_NS;
        db->stop = db->on_tick(db->tick_ctx);
    }
    return db->stop != DB_STOP_NONE;
}

void db_start_clock(struct db *db, uint64_t time_ms) {
    int64_t now = coarse_ns();
    db->deadline_ns = now + (int64_t)time_ms * 1000000;
    db->next_tick_ns = now + TICK_NS;
    db->stop = DB_STOP_NONE;
}

/* --- Statements ------------------------------------------------------------------------------ */

static uint64_t hash_sql(const char *sql, size_t len, enum db_mode mode) {
    /* Both ends are enough: a hit is compared whole. */
    uint64_t h = 14695981039346656037ULL ^ len ^ (uint64_t)mode << 32;
    size_t head = MIN(len, (size_t)48);
    size_t tail = MIN(len - head, (size_t)48);
    for (size_t i = 0; i < head; i++)
        h = (h ^ (unsigned char)sql[i]) * 1099511628211ULL;
    for (size_t i = len - tail; i < len; i++)
        h = (h ^ (unsigned char)sql[i]) * 1099511628211ULL;
    return h;
}

static void facet_db_drop(struct db_stmt *s) {
    sqlite3_finalize(s->stmt);
    free(s->sql);
    *s = (struct db_stmt){0};
}

void db_drop_cache(struct db *db) {
    for (size_t i = 0; i < DB_CACHE_SIZE; i++)
        facet_db_drop(&db->cache[i]);
}

bool db_sql_is_blank(const char *sql, size_t len) {
    const char *end = sql + len;
    while (sql < end) {
        if (strchr(" \t\r\n\f;", *sql) && *sql) {
            sql++;
        } else if (end - sql >= 2 && sql[0] == '-' && sql[1] == '-') {
            const char *eol = memchr(sql, '\n', (size_t)(end - sql));
            sql = eol ? eol : end;
        } else if (end - sql >= 2 && sql[0] == '/' && sql[1] == '*') {
            const char *close = memmem(sql + 2, (size_t)(end - sql) - 2, "*/", 2);
            sql = close ? close + 2 : end;
        } else {
            return false;
        }
    }
    return true;
}

int db_prepare(struct db *db, enum db_mode mode, const char *sql, size_t len,
               struct db_stmt **ret_stmt, const char **ret_tail) {
    db->mode = mode;
    db->denied[0] = 0;
    db->denied_write = false;
    uint64_t hash = hash_sql(sql, len, mode);
    struct db_stmt *oldest = &db->cache[0];
    for (size_t i = 0; i < DB_CACHE_SIZE; i++) {
        struct db_stmt *s = &db->cache[i];
        if (s->hash == hash && s->sql && s->mode == mode && s->len == len &&
            memcmp(s->sql, sql, len) == 0) {
            s->used = ++db->clock;
            db->cache_hits++;
            *ret_stmt = s;
            *ret_tail = sql + len;
            return SQLITE_OK;
        }
        if (s->used < oldest->used)
            oldest = s;
    }
    db->cache_misses++;
    free(steal_ptr(&db->insert_into));
    sqlite3_stmt *stmt = NULL;
    const char *tail = sql;
    int rc = sqlite3_prepare_v3(db->sqlite, sql, (int)len, SQLITE_PREPARE_PERSISTENT, &stmt, &tail);
    if (rc != SQLITE_OK)
        return rc;
    size_t rest = len - (size_t)(tail - sql);
    bool cached = stmt && mode != DB_MODE_OPERATOR && len <= CACHED_SQL_MAX &&
                  db_sql_is_blank(tail, rest) &&
                  sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_MEMUSED, 0) <= CACHED_STMT_MAX;
    struct db_stmt *s = cached ? oldest : &db->single;
    facet_db_drop(s);
    *s = (struct db_stmt){.stmt = stmt, .mode = mode};
    if (cached) {
        s->sql = xstrndup(sql, len);
        s->len = len;
        s->hash = hash;
        s->used = ++db->clock;
    }
    *ret_stmt = s;
    *ret_tail = tail;
    return SQLITE_OK;
}

void db_release(struct db *db, struct db_stmt *s) {
    if (!s)
        return;
    if (s->stmt) {
        sqlite3_reset(s->stmt);
        sqlite3_clear_bindings(s->stmt); /* the texts belong to the call */
    }
    if (s == &db->single)
        facet_db_drop(s);
}

static int step_internal(struct db *db, sqlite3_stmt *s) {
    enum db_mode mode = db->mode;
    db->mode = DB_MODE_INTERNAL;
    (void)sqlite3_step(s);
    int rc = sqlite3_reset(s);
    db->mode = mode;
    return rc;
}

int db_begin(struct db *db) {
    return step_internal(db, db->begin);
}

int db_commit(struct db *db) {
    return step_internal(db, db->commit);
}

void db_rollback(struct db *db) {
    /* The deadline must not stop the way back. */
    enum db_stop stop = db->stop;
    int64_t deadline = db->deadline_ns;
    db_start_clock(db, DB_OPEN_TIME_MS);
    (void)step_internal(db, db->rollback);
    db->stop = stop;
    db->deadline_ns = deadline;
}

/* --- Opening --------------------------------------------------------------------------------- */

int db_global_init(struct err *err) {
    /* One thread. No URI file names. Statement journals stay in memory: after the start, no file
     * can be opened. */
    if (sqlite3_config(SQLITE_CONFIG_SINGLETHREAD) != SQLITE_OK ||
        sqlite3_config(SQLITE_CONFIG_URI, 0) != SQLITE_OK ||
        sqlite3_config(SQLITE_CONFIG_STMTJRNL_SPILL, -1) != SQLITE_OK ||
        sqlite3_config(SQLITE_CONFIG_MMAP_SIZE, (sqlite3_int64)0, (sqlite3_int64)0) != SQLITE_OK ||
        sqlite3_initialize() != SQLITE_OK)
        return err_set(err, ERR_INTERNAL, "SQLite cannot be set up");
    /* Seeds SQLite's generator from the kernel while that can be reached. */
    char seed;
    sqlite3_randomness(1, &seed);
    /* date functions with 'localtime' must not look for time zone files later. */
    (void)setenv("TZ", "UTC0", 1);
    tzset();
    return 0;
}

int db_failed(struct db *db, const char *what, struct err *err) {
    int rc = sqlite3_errcode(db->sqlite);
    if ((rc & 0xff) == SQLITE_BUSY)
        return err_set(err, ERR_CONFLICT, "%s: another process has the database open", what);
    return err_set(err, ERR_INTERNAL, "%s: %s%s%s", what, sqlite3_errmsg(db->sqlite),
                   db->denied[0] ? ": " : "", db->denied);
}

int db_internal(struct db *db, const char *sql, int64_t *ret, struct err *err) {
    sqlite3_stmt *s = NULL;
    db->mode = DB_MODE_INTERNAL;
    db->denied[0] = 0;
    int rc = sqlite3_prepare_v2(db->sqlite, sql, -1, &s, NULL);
    if (rc != SQLITE_OK)
        return db_failed(db, sql, err);
    if (sqlite3_step(s) == SQLITE_ROW && ret)
        *ret = sqlite3_column_int64(s, 0);
    rc = sqlite3_finalize(s);
    return rc == SQLITE_OK ? 0 : db_failed(db, sql, err);
}

static uint64_t facet_db_or_default(uint64_t v, uint64_t fallback) {
    return v ? v : fallback;
}

static struct facet_limits facet_db_effective(const struct facet_limits *l) {
    return (struct facet_limits){
        .rows = facet_db_or_default(l->rows, LIMIT_FACET_ROWS),
        .result_bytes = facet_db_or_default(l->result_bytes, LIMIT_FACET_RESULT_BYTES),
        .time_ms = facet_db_or_default(l->time_ms, LIMIT_FACET_TIME_MS),
        .sql_bytes = MIN(facet_db_or_default(l->sql_bytes, LIMIT_FACET_SQL_BYTES), 16U << 20),
        .value_bytes = MIN(facet_db_or_default(l->value_bytes, LIMIT_FACET_VALUE_BYTES), 64U << 20),
        .call_bytes = MIN(facet_db_or_default(l->call_bytes, LIMIT_FACET_CALL_BYTES), 128U << 20),
        .disk_bytes = MAX(facet_db_or_default(l->disk_bytes, LIMIT_FACET_DISK_BYTES), 64U << 10),
        .memory_bytes =
            MAX(facet_db_or_default(l->memory_bytes, LIMIT_FACET_MEMORY_BYTES), 4U << 20),
        .stall_ms = facet_db_or_default(l->stall_ms, LIMIT_FACET_STALL_MS),
        .calls_per_s = l->calls_per_s,
    };
}

static int facet_db_harden(struct db *db, struct err *err) {
    static const struct {
        int option;
        int value;
    } CONFIG[] = {
        {SQLITE_DBCONFIG_DEFENSIVE, 1},
        {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
        {SQLITE_DBCONFIG_WRITABLE_SCHEMA, 0},
        {SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0},
        {SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER, 0},
        {SQLITE_DBCONFIG_ENABLE_FKEY, 1},
        {SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(CONFIG); i++)
        if (sqlite3_db_config(db->sqlite, CONFIG[i].option, CONFIG[i].value, NULL) != SQLITE_OK)
            return db_failed(db, "configure", err);
    const struct {
        int id;
        int value;
    } limits[] = {
        {SQLITE_LIMIT_LENGTH, (int)db->limits.value_bytes},
        {SQLITE_LIMIT_SQL_LENGTH, (int)db->limits.sql_bytes},
        {SQLITE_LIMIT_COLUMN, 500},
        {SQLITE_LIMIT_EXPR_DEPTH, 200},
        {SQLITE_LIMIT_COMPOUND_SELECT, 100},
        {SQLITE_LIMIT_VDBE_OP, 250000},
        {SQLITE_LIMIT_FUNCTION_ARG, 64},
        {SQLITE_LIMIT_ATTACHED, 0},
        {SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 100},
        {SQLITE_LIMIT_VARIABLE_NUMBER, 1000},
        {SQLITE_LIMIT_TRIGGER_DEPTH, 16},
        {SQLITE_LIMIT_WORKER_THREADS, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(limits); i++)
        (void)sqlite3_limit(db->sqlite, limits[i].id, limits[i].value);
    /* Modules that are left: no dbstat, rtree or fts3, and no sqlite_stmt, which shows one holder
     * the SQL of another. */
    static const char *MODULES[] = {"fts5", "json_each", "json_tree", NULL};
    if (sqlite3_drop_modules(db->sqlite, MODULES) != SQLITE_OK || funcs_install(db->sqlite) != 0)
        return db_failed(db, "configure", err);
    (void)sqlite3_hard_heap_limit64((sqlite3_int64)db->limits.memory_bytes);
    return 0;
}

static int facet_db_pragmas(struct db *db, bool full, int64_t *ret_objects, struct err *err) {
    char pages[64];
    char log[64];
    int64_t page_bytes = PAGE_BYTES;
    (void)snprintf(log, sizeof(log), "PRAGMA journal_size_limit=%d", LOG_PAGES * PAGE_BYTES);
    const char *const list[] = {
        /* One process has the database: the log's index lives in its memory, there are no locks to
         * take for each call, and a second process is told that it is busy. */
        "PRAGMA locking_mode=EXCLUSIVE",
        /* Takes the lock, or fails: journal_mode would not tell. */
        "SELECT count(*) FROM sqlite_schema",
        "PRAGMA journal_mode=WAL",
        full ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL",
        "PRAGMA temp_store=MEMORY",
        "PRAGMA cache_size=-4096",
        "PRAGMA cell_size_check=ON",
        "PRAGMA wal_autocheckpoint=256",
        log,
    };
    _Static_assert(LOG_PAGES == 256, "the pragma above says the same");
    for (size_t i = 0; i < ARRAY_LEN(list); i++)
        if (db_internal(db, list[i], i == 1 ? ret_objects : NULL, err) < 0)
            return -(int)err->code;
    /* A file from elsewhere may have pages of another size. */
    if (db_internal(db, "PRAGMA page_size", &page_bytes, err) < 0)
        return -(int)err->code;
    (void)snprintf(pages, sizeof(pages), "PRAGMA max_page_count=%llu",
                   (unsigned long long)(db->limits.disk_bytes / (uint64_t)page_bytes));
    return db_internal(db, pages, NULL, err);
}

static sqlite3_file *facet_db_file_of(const struct db *db, int which) {
    sqlite3_file *f = NULL;
    (void)sqlite3_file_control(db->sqlite, "main", which, &f);
    return f && f->pMethods ? f : NULL;
}

/* SQLite syncs the folder with the first sync of a new log, for which it opens the folder: that
 * must happen while it can. */
static int sync_log(struct db *db, struct err *err) {
    sqlite3_file *f = facet_db_file_of(db, SQLITE_FCNTL_JOURNAL_POINTER);
    if (!f || f->pMethods->xSync(f, SQLITE_SYNC_NORMAL) != SQLITE_OK)
        return err_set(err, ERR_IO, "the log of the database cannot be made");
    return 0;
}

/* Which tables were empty before the schema's own INSERTs. */
struct emptiness {
    char *name[64];
    bool was[64];
    size_t n;
};

static bool is_empty(struct db *db, const char *table) {
    char *sql = sqlite3_mprintf("SELECT 1 FROM \"%w\" LIMIT 1", table);
    sqlite3_stmt *s = NULL;
    db->mode = DB_MODE_READ;
    int rc = sql ? sqlite3_prepare_v2(db->sqlite, sql, -1, &s, NULL) : SQLITE_NOMEM;
    if (rc == SQLITE_OK)
        rc = sqlite3_step(s);
    sqlite3_finalize(s);
    sqlite3_free(sql);
    return rc == SQLITE_DONE;
}

static bool was_empty(struct db *db, struct emptiness *e, const char *table) {
    for (size_t i = 0; i < e->n; i++)
        if (strcasecmp(e->name[i], table) == 0)
            return e->was[i];
    bool empty = is_empty(db, table);
    if (e->n < ARRAY_LEN(e->name)) {
        e->name[e->n] = xstrdup(table);
        e->was[e->n++] = empty;
    }
    return empty;
}

/* With `e`, an INSERT runs only into a table that was empty. */
static int facet_db_script(struct db *db, const char *what, const char *sql, struct emptiness *e,
                           struct err *err) {
    size_t len = strlen(sql);
    while (!db_sql_is_blank(sql, len)) {
        struct db_stmt *s = NULL;
        const char *tail = sql;
        if (db_prepare(db, DB_MODE_OPERATOR, sql, len, &s, &tail) != SQLITE_OK)
            return db_failed(db, what, err);
        _cleanup_(free) char *table = steal_ptr(&db->insert_into);
        int rc = SQLITE_DONE;
        if (!e || !table || was_empty(db, e, table)) {
            db->mode = DB_MODE_OPERATOR;
            do
                rc = sqlite3_step(s->stmt);
            while (rc == SQLITE_ROW);
        }
        /* The message must be read before the statement is freed. */
        int result = rc == SQLITE_DONE ? 0 : db_failed(db, what, err);
        db_release(db, s);
        if (result < 0)
            return result;
        len -= (size_t)(tail - sql);
        sql = tail;
    }
    return 0;
}

int db_script(struct db *db, const char *what, const char *sql, struct err *err) {
    return facet_db_script(db, what, sql, NULL, err);
}

static int set_up_tables(struct db *db, const struct facet_open *o, bool fresh, struct err *err) {
    struct emptiness e = {0};
    int rc = db_begin(db) == SQLITE_OK ? 0 : db_failed(db, "begin", err);
    if (rc == 0)
        rc = facet_db_script(db, "schema", o->schema, &e, err);
    if (rc == 0 && o->seed[0] && (o->seed_table[0] ? is_empty(db, o->seed_table) : fresh))
        rc = facet_db_script(db, "seed", o->seed, NULL, err);
    if (rc == 0 && db_commit(db) != SQLITE_OK)
        rc = db_failed(db, "commit", err);
    if (!sqlite3_get_autocommit(db->sqlite))
        db_rollback(db);
    for (size_t i = 0; i < e.n; i++)
        free(e.name[i]);
    return rc;
}

static int check_method(struct db *db, const struct facet_method *m, size_t i, struct err *err) {
    size_t len = strlen(m->name);
    if (len == 0 || len > FACET_NAME_MAX ||
        db_method_find(db, m->name, len) != DB_METHOD_NAMED + (int)i)
        return err_set(err, ERR_BAD_REQUEST,
                       "method '%.64s': a name is unique, 1 to %d bytes, and not query, execute or "
                       "batch",
                       m->name, FACET_NAME_MAX);
    if (strlen(m->sql) > db->limits.sql_bytes)
        return err_set(err, ERR_BAD_REQUEST, "method '%s': SQL exceeds %llu bytes", m->name,
                       (unsigned long long)db->limits.sql_bytes);
    return 0;
}

static void try_methods(struct db *db, struct buf *warnings) {
    for (size_t i = 0; i < db->nmethods; i++) {
        const struct facet_method *m = &db->methods[i];
        struct db_stmt *s = NULL;
        const char *tail;
        struct err err;
        enum db_mode mode = m->kind == FACET_KIND_QUERY ? DB_MODE_READ : DB_MODE_WRITE;
        if (db_prepare(db, mode, m->sql, strlen(m->sql), &s, &tail) != SQLITE_OK) {
            (void)db_failed(db, "method", &err);
            (void)buf_addf(warnings, "method '%s': %s\n", m->name, err.message);
        } else if (!s->stmt || !db_sql_is_blank(tail, strlen(tail))) {
            (void)buf_addf(warnings, "method '%s' must be one statement\n", m->name);
        }
        db_release(db, s);
    }
}

void db_init(struct db *db, const struct facet_limits *limits) {
    *db = (struct db){.limits = facet_db_effective(limits), .mode = DB_MODE_INTERNAL};
    buf_init(&db->out, db->limits.result_bytes);
    buf_init(&db->scratch, db->limits.call_bytes);
}

int db_connect(struct db *db, const char *path, struct err *err) {
    int rc = sqlite3_open_v2(path, &db->sqlite,
                             SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX |
                                 SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE,
                             NULL);
    if (!db->sqlite)
        return err_set(err, ERR_INTERNAL, "open database: out of memory");
    if (rc != SQLITE_OK)
        return db_failed(db, "open database", err);
    (void)sqlite3_busy_timeout(db->sqlite, BUSY_MS);
    db_start_clock(db, DB_OPEN_TIME_MS);
    sqlite3_progress_handler(db->sqlite, PROGRESS_OPS, facet_db_on_progress, db);
    (void)sqlite3_set_authorizer(db->sqlite, facet_db_on_authorize, db);
    return facet_db_harden(db, err);
}

int db_open(struct db *db, struct facet_open *o, bool *ret_fresh, struct buf *warnings,
            struct err *err) {
    if (!path_is_plain_name(o->file, strlen(o->file)))
        return err_set(err, ERR_BAD_REQUEST, "'%.80s' is not a plain file name", o->file);
    _cleanup_(free) char *path = path_join(".", o->file);
    int64_t objects = 0;
    if ((o->check && db_check_header(db, path, err) < 0) || db_connect(db, path, err) < 0)
        return -(int)err->code;
    if (facet_db_pragmas(db, o->full, &objects, err) < 0) {
        if (o->check && err->code == ERR_INTERNAL) /* the file's fault, not ours */
            (void)err_set(err, ERR_BAD_REQUEST, "the file cannot be imported: %s",
                          sqlite3_errmsg(db->sqlite));
        return -(int)err->code;
    }
    if (sync_log(db, err) < 0 || (o->check && db_check_content(db, err) < 0))
        return -(int)err->code;
    if (sqlite3_prepare_v2(db->sqlite, "BEGIN", -1, &db->begin, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(db->sqlite, "COMMIT", -1, &db->commit, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(db->sqlite, "ROLLBACK", -1, &db->rollback, NULL) != SQLITE_OK)
        return db_failed(db, "prepare", err);
    bool fresh = objects == 0;
    int rc = set_up_tables(db, o, fresh, err);
    /* A holder who may execute anything can bring the tables into a shape that the schema does not
     * fit. That must not close the facet for good: the data is still there to be repaired. */
    if (rc < 0 && !fresh && err->code != ERR_CONFLICT)
        (void)buf_addf(warnings, "%s\n", err->message);
    else if (rc < 0)
        return rc;
    db->methods = steal_ptr(&o->methods);
    db->nmethods = o->nmethods;
    o->nmethods = 0;
    for (size_t i = 0; i < db->nmethods; i++)
        if (check_method(db, &db->methods[i], i, err) < 0)
            return -(int)err->code;
    try_methods(db, warnings);
    *ret_fresh = fresh;
    return 0;
}

void db_finish(struct db *db) {
    if (!db)
        return;
    db_drop_cache(db);
    facet_db_drop(&db->single);
    sqlite3_finalize(db->begin);
    sqlite3_finalize(db->commit);
    sqlite3_finalize(db->rollback);
    sqlite3_close_v2(db->sqlite);
    for (size_t i = 0; i < db->nmethods; i++) {
        free(db->methods[i].name);
        free(db->methods[i].sql);
    }
    free(db->methods);
    free(db->insert_into);
    buf_finish(&db->out);
    buf_finish(&db->scratch);
    *db = (struct db){0};
}

const char *db_method_name(const struct db *db, unsigned method) {
    static const char *const OWN[] = {"query", "execute", "batch"};
    return method < DB_METHOD_NAMED ? OWN[method] : db->methods[method - DB_METHOD_NAMED].name;
}

int db_method_find(const struct db *db, const char *name, size_t len) {
    for (unsigned i = 0; i < DB_METHOD_NAMED + db->nmethods; i++) {
        const char *have = db_method_name(db, i);
        if (strlen(have) == len && memcmp(have, name, len) == 0)
            return (int)i;
    }
    return -1;
}

/* --- The whole of it ------------------------------------------------------------------------- */

static uint64_t file_size(const struct db *db, int which) {
    sqlite3_file *f = facet_db_file_of(db, which);
    sqlite3_int64 n = 0;
    if (f)
        (void)f->pMethods->xFileSize(f, &n);
    return (uint64_t)n;
}

void db_settle(struct db *db) {
    struct err ignored;
    db_start_clock(db, DB_OPEN_TIME_MS);
    (void)db_internal(db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, &ignored);
}

/* After the log was written back the file is the whole database, and nobody changes it while we
 * copy. It is read through SQLite's own descriptor: to open and close another one would drop the
 * locks of this process. */
int db_export(struct db *db, int fd, uint64_t *ret_bytes, struct err *err) {
    struct stat st;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return err_set(err, ERR_BAD_REQUEST, "export goes into a regular file only");
    int64_t busy = 0;
    if (db_internal(db, "PRAGMA wal_checkpoint(TRUNCATE)", &busy, err) < 0)
        return -(int)err->code;
    sqlite3_file *f = facet_db_file_of(db, SQLITE_FCNTL_FILE_POINTER);
    sqlite3_int64 size = 0;
    if (busy || !f || f->pMethods->xFileSize(f, &size) != SQLITE_OK)
        return err_set(err, ERR_INTERNAL, "export: the log cannot be written back");
    enum { CHUNK = 256 * 1024 };
    _cleanup_(free) char *chunk = xmalloc(CHUNK);
    for (sqlite3_int64 at = 0; at < size;) {
        int n = (int)MIN((sqlite3_int64)CHUNK, size - at);
        if (f->pMethods->xRead(f, chunk, n, at) != SQLITE_OK)
            return err_set(err, ERR_IO, "export: read fails");
        for (int done = 0; done < n;) {
            ssize_t k = pwrite(fd, chunk + done, (size_t)(n - done), at + done);
            if (k < 0 && errno != EINTR)
                return err_sys(err, "export: write");
            done += k > 0 ? (int)k : 0;
        }
        at += n;
    }
    if (ftruncate(fd, size) < 0 || (fsync(fd) < 0 && errno != EINVAL))
        return err_sys(err, "export");
    *ret_bytes = (uint64_t)size;
    return 0;
}

void db_stats(const struct db *db, struct facet_stats *s) {
    s->db_bytes = file_size(db, SQLITE_FCNTL_FILE_POINTER);
    s->wal_bytes = file_size(db, SQLITE_FCNTL_JOURNAL_POINTER);
    s->memory_bytes = (uint64_t)sqlite3_memory_used();
    s->memory_peak_bytes = (uint64_t)sqlite3_memory_highwater(0);
    s->cache_hits = db->cache_hits;
    s->cache_misses = db->cache_misses;
}
