#pragma once
/* What the files of the ledger's SQLite file share: one per subject, each with its statements. */

#include "base/cleanup.h"
#include "front/ledger/db.h"
#include "front/store/pieces.h"
#include "front/store/sql.h"

enum ledger_subject {
    LEDGER_OWN,
    LEDGER_KEYS,
    LEDGER_TASKS,
    LEDGER_QUEUE,
    LEDGER_HOOKS,
    LEDGER_SPENDS,
    LEDGER_WORKERS,
    LEDGER_SUBJECTS
};

struct ledger_statements {
    const char *const *sql;
    size_t n;
};
extern const struct ledger_statements ledger_key_statements;
extern const struct ledger_statements ledger_task_statements;
extern const struct ledger_statements ledger_queue_statements;
extern const struct ledger_statements ledger_hook_statements;
extern const struct ledger_statements ledger_spend_statements;
extern const struct ledger_statements ledger_worker_statements;

struct ledger_db {
    struct sqlite3 *db;
    struct sqlite3 *mover; /* of the thread that moves the log */
    struct pieces *pieces; /* long texts */
    char *path;
    int log_pages;     /* after the last commit */
    int long_at_pages; /* from here on those who write much wait until it was moved */
    struct sqlite3_stmt **statements[LEDGER_SUBJECTS];
    int64_t (*now_ms)(void);
    char turn[ID_SIZE]; /* the key that was served last */
    bool turn_set;
    char hook_turn[ID_SIZE]; /* the same for messages */
    bool hook_turn_set;
};

typedef int (*ledger_do)(struct ledger_db *db, const struct ledger_ask *ask,
                         struct ledger_answer *answer, struct err *err);
int ledger_do_node_begin(struct ledger_db *db, const struct ledger_ask *ask,
                         struct ledger_answer *answer, struct err *err);
int ledger_do_submit(struct ledger_db *db, const struct ledger_ask *ask,
                     struct ledger_answer *answer, struct err *err);
int ledger_do_get(struct ledger_db *db, const struct ledger_ask *ask, struct ledger_answer *answer,
                  struct err *err);
int ledger_do_list(struct ledger_db *db, const struct ledger_ask *ask, struct ledger_answer *answer,
                   struct err *err);
int ledger_do_cancel(struct ledger_db *db, const struct ledger_ask *ask,
                     struct ledger_answer *answer, struct err *err);
int ledger_do_claim(struct ledger_db *db, const struct ledger_ask *ask,
                    struct ledger_answer *answer, struct err *err);
int ledger_do_renew(struct ledger_db *db, const struct ledger_ask *ask,
                    struct ledger_answer *answer, struct err *err);
int ledger_do_finish(struct ledger_db *db, const struct ledger_ask *ask,
                     struct ledger_answer *answer, struct err *err);
int ledger_do_reap(struct ledger_db *db, const struct ledger_ask *ask, struct ledger_answer *answer,
                   struct err *err);
int ledger_do_hook_claim(struct ledger_db *db, const struct ledger_ask *ask,
                         struct ledger_answer *answer, struct err *err);
int ledger_do_usage(struct ledger_db *db, const struct ledger_ask *ask,
                    struct ledger_answer *answer, struct err *err);
int ledger_do_key_add(struct ledger_db *db, const struct ledger_ask *ask,
                      struct ledger_answer *answer, struct err *err);
int ledger_do_key_revoke(struct ledger_db *db, const struct ledger_ask *ask,
                         struct ledger_answer *answer, struct err *err);
int ledger_do_key_list(struct ledger_db *db, const struct ledger_ask *ask,
                       struct ledger_answer *answer, struct err *err);
int ledger_do_worker_put(struct ledger_db *db, const struct ledger_ask *ask,
                         struct ledger_answer *answer, struct err *err);
int ledger_do_worker_get(struct ledger_db *db, const struct ledger_ask *ask,
                         struct ledger_answer *answer, struct err *err);
int ledger_do_worker_delete(struct ledger_db *db, const struct ledger_ask *ask,
                            struct ledger_answer *answer, struct err *err);
int ledger_do_hook_end(struct ledger_db *db, const struct ledger_ask *ask,
                       struct ledger_answer *answer, struct err *err);

int ledger_do_reserve(struct ledger_db *db, const struct ledger_ask *ask,
                      struct ledger_answer *answer, struct err *err);
int ledger_do_reserve_renew(struct ledger_db *db, const struct ledger_ask *ask,
                            struct ledger_answer *answer, struct err *err);
int ledger_do_settle(struct ledger_db *db, const struct ledger_ask *ask,
                     struct ledger_answer *answer, struct err *err);
/* What a server that begins anew had set aside counts as spent. */
int ledger_spend_forfeit(struct ledger_db *db, const char *node, struct err *err);
/* Forgets what was settled long ago. */
int ledger_spend_prune(struct ledger_db *db, struct err *err);
int ledger_spend_usage(struct ledger_db *db, const struct ledger_ask *ask,
                       struct ledger_answer *answer, struct err *err);

/* What a task becomes when it ends, in the transaction of the caller: state, result, account, the
 * message to its webhook. Only state, error and result are read. */
int ledger_task_end(struct ledger_db *db, const char *id, const struct ledger_task *end,
                    struct err *err);
/* Appends the task to the answer. owner NULL: anybody's. ERR_NOT_FOUND. */
int ledger_task_load(struct ledger_db *db, const char *id, const char *owner, bool with_body,
                     struct ledger_answer *answer, struct err *err);
/* It waits for its turn, from a time on. */
int ledger_task_wait(struct ledger_db *db, const char *id, const char *owner, int64_t priority,
                     int64_t run_at_ms, struct err *err);
int ledger_hook_add(struct ledger_db *db, const struct ledger_task *t, struct err *err);
void *ledger_grow(void *items, size_t n, size_t size);

/* The statement, fresh. */
struct sqlite3_stmt *ledger_ready(struct ledger_db *db, enum ledger_subject subject, int which);
/* Tells who watches the file that something was committed. */
void ledger_touch(const struct ledger_db *db);
