#pragma once
/* The database of a facet: opened, hardened and kept within its limits. db.c holds the connection,
 * the authorizer and the statement cache; call.c runs what holders ask for, admin.c what the owner
 * asks about the whole database, and check.c looks at files from elsewhere. One call runs at a
 * time. The JSON of the last answer is in `out` until the next call. */

#include "base/buf.h"
#include "base/err.h"
#include "wire/facet.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sqlite3;
struct sqlite3_stmt;

/* Whose SQL is being compiled: what the authorizer lets pass. */
enum db_mode {
    DB_MODE_READ,     /* a holder's query: nothing that writes */
    DB_MODE_WRITE,    /* a holder's execute or batch */
    DB_MODE_OPERATOR, /* the schema and the seed: also sets user_version */
    DB_MODE_INTERNAL, /* our own BEGIN, COMMIT, ROLLBACK and pragmas */
};

/* Why a running call was stopped. */
enum db_stop { DB_STOP_NONE, DB_STOP_TIME, DB_STOP_INTERRUPT, DB_STOP_GONE };

struct db_stmt {
    struct sqlite3_stmt *stmt;
    char *sql; /* NULL: not in the cache */
    size_t len;
    uint64_t hash;
    uint64_t used;
    enum db_mode mode;
};

enum { DB_CACHE_SIZE = 64, DB_OPEN_TIME_MS = 30000 };
/* Which migrations were applied. Holders can read it; only db_migrate() writes it. */
#define DB_RECORD_TABLE "_cay_migrations"
enum { DB_METHOD_QUERY, DB_METHOD_EXECUTE, DB_METHOD_BATCH, DB_METHOD_NAMED };

struct db {
    struct sqlite3 *sqlite;
    struct facet_limits limits; /* no zeros, but for calls_per_s */
    struct facet_method *methods;
    size_t nmethods;
    enum db_mode mode;
    char denied[96]; /* what the authorizer refused last */
    bool denied_write;
    bool recording;    /* DB_RECORD_TABLE may be written */
    char *insert_into; /* the table that the statement being compiled inserts into */
    struct db_stmt cache[DB_CACHE_SIZE];
    struct db_stmt single; /* a statement that is too large for the cache */
    uint64_t clock, cache_hits, cache_misses;
    struct sqlite3_stmt *begin, *commit, *rollback;
    int64_t deadline_ns;
    int64_t next_tick_ns;
    enum db_stop stop;
    /* Called every few milliseconds while a call runs; anything but NONE stops it. */
    enum db_stop (*on_tick)(void *ctx);
    void *tick_ctx;
    struct buf out;
    struct buf scratch;
};

struct db_call {
    unsigned method; /* DB_METHOD_..., or DB_METHOD_NAMED + index */
    const char *args;
    size_t args_len;
    bool may_write; /* the holder has execute() too */
    bool readonly;  /* nothing may be written, whatever the method */
    int64_t rowid;  /* last_insert_rowid() as this holder sees it; updated */
    bool ok;
    char code[40]; /* the error's code, empty for success */
    uint32_t rows;
    uint64_t changes;
    const char *sql; /* borrowed from args or the method */
    size_t sql_len;
};

/* Must be called once, before everything else, and while /dev/urandom can be opened. */
int db_global_init(struct err *err);
/* An empty db that knows its limits: the given ones, or the defaults. */
void db_init(struct db *db, const struct facet_limits *limits);
/* Opens o->file in the working folder, runs the schema and the seed. Takes the methods out of o.
 * Warnings (see struct facet_opened) are appended to the buffer. */
int db_open(struct db *db, struct facet_open *o, bool *ret_fresh, struct buf *warnings,
            struct err *err);
void db_finish(struct db *db);
/* Index of a method, or -1. */
int db_method_find(const struct db *db, const char *name, size_t len);
const char *db_method_name(const struct db *db, unsigned method);
/* Runs the call; the JSON of its result or failure is in db->out. */
void db_call(struct db *db, struct db_call *c);
/* Makes the answer a failure. */
void db_fail(struct db *db, struct db_call *c, const char *name, const char *code, const char *fmt,
             ...) __attribute__((format(printf, 5, 6)));
/* Copies the whole database, as of now, into a regular file. */
int db_export(struct db *db, int fd, uint64_t *ret_bytes, struct err *err);
void db_stats(const struct db *db, struct facet_stats *s);
/* Writes the log back into the database and cuts it to nothing. */
void db_settle(struct db *db);

/* What an owner wants to know, as JSON. Counting the rows of a table stops at the time limit. */
int db_inspect(struct db *db, struct buf *out, struct err *err);
/* Applies those of the payload (struct facet_migration) that were not applied before: in order,
 * each in a transaction of its own with its record. An error names the number; those before it stay
 * applied. */
int db_migrate(struct db *db, const void *data, size_t len, uint32_t *ret_applied, struct err *err);

/* --- for the other files of this folder --- */

/* Opens and hardens a connection: to a plain name in the working folder, or to ":memory:". */
int db_connect(struct db *db, const char *path, struct err *err);
/* The connection's last error, with what the authorizer refused. */
int db_failed(struct db *db, const char *what, struct err *err);
/* Our own SQL. The first value of the first row, if asked for. */
int db_internal(struct db *db, const char *sql, int64_t *ret, struct err *err);
/* Runs the statements of an operator's text, which may set user_version. */
int db_script(struct db *db, const char *what, const char *sql, struct err *err);
/* check.c: what is looked at before SQLite opens a file from elsewhere, and after. */
int db_check_header(const struct db *db, const char *path, struct err *err);
int db_check_content(struct db *db, struct err *err);
/* Begins the time that a call may take. */
void db_start_clock(struct db *db, uint64_t time_ms);
/* Compiles one statement, or finds it in the cache. *ret_tail is what follows it. SQLite's code. */
int db_prepare(struct db *db, enum db_mode mode, const char *sql, size_t len,
               struct db_stmt **ret_stmt, const char **ret_tail);
/* Resets the statement and frees it if it is not cached. NULL is fine. */
void db_release(struct db *db, struct db_stmt *s);
void db_drop_cache(struct db *db);
/* SQLite's code. */
int db_begin(struct db *db);
int db_commit(struct db *db);
/* Ends whatever transaction is open. */
void db_rollback(struct db *db);
/* True if nothing but white space, comments and semicolons is left. */
bool db_sql_is_blank(const char *sql, size_t len);
