#pragma once
/* What the files of the store share: one per subject, each with its statements and the calls of
 * store.h that use them. A new subject is a file, a name here, and a line in store.c's table; its
 * tables are a new migration. */

#include "base/cleanup.h"
#include "front/store/queue.h"
#include "front/store/sql.h"
#include "front/store/store.h"
#include "loop/later.h"
#include "loop/writer.h"

#include <stdatomic.h>
#include <uv.h>

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

/* How far back one looks for a waiting operation to change. */
enum { STORE_MERGE_LOOK = 256 };

enum store_subject {
    STORE_RUNS,
    STORE_RECORDS,
    STORE_NETWORK,
    STORE_ARTIFACTS,
    STORE_MIRROR,
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
extern const struct store_statements store_care_statements; /* on care_db */
extern const struct store_statements *const store_statements[STORE_SUBJECTS];

extern const char *const store_migrations[];
extern const int store_migration_count;

/* The writes that wait (queue.c). All of it is the loop's, except the batch while the thread has
 * it. */
struct store_queue {
    struct writer *writer; /* NULL: writes are done at once */
    uv_timer_t timer;
    struct later_queue later;
    struct later settled;
    struct store_op *first;
    struct store_op *last;
    struct store_op *batch; /* the thread's */
    int batch_rc;
    struct err batch_err;
    int64_t submitted; /* the ticket of the newest */
    int64_t written;   /* the ticket of the last that is committed */
    size_t bytes;
    bool hurry;   /* somebody waits */
    bool blocked; /* the last batch could not be written, for this reason: */
    bool closing;
    struct err err;
    struct store_wait *waits;
    void (*on_written)(void *ctx);
    void *written_ctx;
};

struct store {
    char *path;
    struct sqlite3 *db;      /* for writing: the writer thread's, once there is one */
    struct sqlite3 *read_db; /* for reading: the loop's */
    struct sqlite3 *care_db; /* of the thread that takes care, one at a time */
    struct sqlite3_stmt **write_statements[STORE_SUBJECTS];
    struct sqlite3_stmt **read_statements[STORE_SUBJECTS];
    struct store_settings settings;
    struct store_queue queue;
    atomic_int files;     /* the folder of artifacts, -1 while there is none */
    unsigned swept;       /* parts of it */
    atomic_int log_pages; /* in the write-ahead log, after the last commit */
    int care_at_pages;
    int care_log_pages; /* the same, as the thread that takes care saw it */
    atomic_bool care_over;
    atomic_bool care_waits; /* for others to let it write */
    atomic_bool care_moves; /* the log */
};

/* Once the connections are there. */
void store_care_init(struct store *s);
/* Before a transaction: one who writes without a pause would never let the other in, and one who
 * writes faster than the disk takes it would make the log grow. It sleeps: not for the loop. */
void store_care_give_way(struct store *s);
/* Statements, reset: what is bound stays the caller's until they are reset again. A statement for
 * reading sees what is committed. One for writing is for the `run` of an operation, or for the
 * start of the server, before there is a writer thread. One of STORE_CARE is for the thread that
 * takes care. */
struct sqlite3_stmt *store_read_statement(const struct store *s, enum store_subject subject,
                                          int which);
struct sqlite3_stmt *store_write_statement(const struct store *s, enum store_subject subject,
                                           int which);
