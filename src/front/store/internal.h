#pragma once
/* What the files of the store share: one per subject, each with its statements and the calls of
 * store.h that use them. A new subject is a file, a name here, and a line in store.c's table; its
 * tables are a new migration. */

#include "base/cleanup.h"
#include "front/store/sql.h"
#include "front/store/store.h"

#include <stdatomic.h>

struct sqlite3;
struct sqlite3_stmt;

/* Sorts behind every id. */
#define STORE_AFTER_ALL_IDS "~"

/* Before a SELECT: kinds (its), the kinds of run that an owner has. With the index by owner and
 * kind that costs one step for each; so what is looked for in each kind and then put together needs
 * no index by owner alone, which would be one more page to write for every run. */
#define STORE_KINDS_OF(owner_)                                                                     \
    "WITH RECURSIVE kinds (its) AS (SELECT min(kind) FROM runs WHERE owner = " owner_              \
    " UNION ALL SELECT (SELECT min(kind) FROM runs WHERE owner = " owner_                          \
    " AND kind > its) FROM kinds WHERE its IS NOT NULL) "

enum store_subject {
    STORE_RUNS,
    STORE_RECORDS,
    STORE_NETWORK,
    STORE_ARTIFACTS,
    STORE_MIRROR,
    STORE_UNTOLD,
    STORE_CARE,
    STORE_SUBJECTS
};

struct store_statements {
    const char *const *sql;
    size_t n;
};

extern const struct store_statements store_run_statements;
extern const struct store_statements store_record_statements;
extern const struct store_statements store_network_statements;
extern const struct store_statements store_artifact_statements;
extern const struct store_statements store_mirror_statements;
extern const struct store_statements store_untold_statements;
extern const struct store_statements store_care_statements; /* on care_db */
extern const struct store_statements *const store_statements[STORE_SUBJECTS];

extern const char *const store_migrations[];
extern const int store_migration_count;

struct store {
    char *path;
    struct sqlite3 *db;
    struct sqlite3 *care_db; /* of the thread that takes care, one at a time */
    struct sqlite3_stmt **statements[STORE_SUBJECTS];
    struct store_settings settings;
    atomic_int files;        /* the folder of artifacts, -1 while there is none */
    unsigned swept;          /* parts of it */
    struct store_late *late; /* what is to be written when there is room */
    size_t nlate;
    size_t late_bytes;
    struct store_untold *untold; /* what waits to be written, oldest first */
    struct store_untold **untold_last;
    size_t nuntold;
    size_t untold_bytes;
    size_t nended;   /* of them have ended */
    int ends_fd;     /* the file of their ends (ends.c), -1: there is none */
    size_t ends_len; /* what of it is not in the database */
    uint64_t ends_salt;
    bool untold_stuck; /* the last time something could not be written: nothing waits */
    int log_pages;     /* in the write-ahead log, after the last commit */
    int care_at_pages;
    int care_log_pages; /* the same, as the thread that takes care saw it */
    atomic_bool care_over;
    atomic_bool care_waits; /* for others to let it write */
    atomic_bool care_moves; /* the log */
};

/* Once both connections are there. */
void store_care_init(struct store *s);
/* Before a statement: one who writes without a pause would never let the other in, and one who
 * writes faster than the disk takes it would make the log grow. */
void store_care_give_way(struct store *s);
/* Keeps what could not be written because the disk is full, for store_settle(). A run that has a
 * kind is not in the database yet. */
void store_late_run(struct store *s, const struct store_run *run, const struct store_run_end *end);
void store_late_record(struct store *s, const char *kind, const struct store_record *r);
/* What was kept of that record and of those it is the parent of. */
void store_late_forget(struct store *s, const char *id);
void store_late_drop(struct store *s);
/* As the calls of store.h, but what fails is not kept. */
int store_write_end(struct store *s, const char *id, const struct store_run_end *end,
                    int64_t finished_ms, struct err *err);
int store_write_record(struct store *s, const char *kind, const struct store_record *r,
                       struct err *err);
/* Of one that is not in the database: as one that runs, or with its end. */
int store_write_whole(struct store *s, const struct store_run *run, const struct store_run_end *end,
                      int64_t finished_ms, struct err *err);
/* One statement each, or two with usage, in a transaction or as one. */
int store_add_run(struct store *s, const struct store_run *run, const struct store_run_end *end,
                  int64_t finished_ms, struct err *err);
int store_add_record(struct store *s, const char *kind, const struct store_record *r,
                     struct err *err);
bool store_has_usage(const struct store_run_usage *u);
/* What its end says becomes part of the run, and what that was. */
void store_run_close(struct store_run *r, const struct store_run_end *end, int64_t finished_ms);
struct store_run_end store_end_of(const struct store_run *r);
/* Puts a run that has ended into the file of ends; false: it is not there. */
bool store_ends_add(struct store *s, const struct store_run *run);
bool store_ends_add_record(struct store *s, const char *kind, const struct store_record *r);
/* The database has all that is there. */
void store_ends_clear(struct store *s);
/* The end of a run, if that is untold: in the file of ends, or in the database with all that is
 * older. False: it is not untold. */
bool store_untold_end(struct store *s, const char *id, const struct store_run_end *end, int *ret_rc,
                      struct err *err);
/* A record that has ended is put into the file of ends, and soon into the database; false: it is
 * not. */
bool store_untold_record(struct store *s, const char *kind, const struct store_record *r);
/* A record that is about to be written. */
void store_untold_forget(struct store *s, const char *kind, const char *id);
void store_untold_drop(struct store *s);
/* The statement, fresh, when all that is untold has been written: what is bound stays the caller's
 * until it is reset. */
struct sqlite3_stmt *store_ready(struct store *s, enum store_subject subject, int which);
/* The same for a write that what is untold has no part in. */
struct sqlite3_stmt *store_apart(struct store *s, enum store_subject subject, int which);
/* The same in the middle of a transaction. */
struct sqlite3_stmt *store_next(const struct store *s, enum store_subject subject, int which);
