#pragma once
/* What the files of the ledger's SQLite file share: one per subject, each with its statements. */

#include "base/cleanup.h"
#include "front/ledger/db.h"
#include "front/store/sql.h"

enum ledger_subject {
    LEDGER_OWN,
    LEDGER_KEYS,
    LEDGER_PROJECTS,
    LEDGER_TASKS,
    LEDGER_QUEUE,
    LEDGER_HOOKS,
    LEDGER_SPENDS,
    LEDGER_WORKERS,
    LEDGER_CLOCK,
    LEDGER_SUBJECTS
};

struct ledger_statements {
    const char *const *sql;
    size_t n;
};
extern const struct ledger_statements ledger_key_statements;
extern const struct ledger_statements ledger_project_statements;
extern const struct ledger_statements ledger_task_statements;
extern const struct ledger_statements ledger_queue_statements;
extern const struct ledger_statements ledger_hook_statements;
extern const struct ledger_statements ledger_spend_statements;
extern const struct ledger_statements ledger_worker_statements;
extern const struct ledger_statements ledger_clock_statements;

struct ledger_db {
    struct sqlite3 *db;
    char *path;
    struct sqlite3_stmt **statements[LEDGER_SUBJECTS];
    int64_t (*now_ms)(void);  /* the wall clock */
    int64_t (*mono_ms)(void); /* one that nobody sets */
    bool follows_clock;       /* a server has begun here: what of them differs is known */
    int64_t wall_offset_ms;
    int64_t jumped_ms;  /* in the transaction under way */
    char turn[ID_SIZE]; /* the key that was served last */
    bool turn_set;
    char hook_turn[ID_SIZE]; /* the same for messages */
    bool hook_turn_set;
    char *hook_receiver; /* the receiver that was looked at last; NULL: none */
};

/* Each operation with the names of its ask and of its answer in the unions: those that have an
 * answer, then those that have none. */
#define LEDGER_ANSWERED(X)                                                                         \
    X(LEDGER_NODE_BEGIN, node_begin, node_begun)                                                   \
    X(LEDGER_TASK_SUBMIT, task_submit, task_submitted)                                             \
    X(LEDGER_TASK_GET, task_get, task_got)                                                         \
    X(LEDGER_TASK_LIST, task_list, task_listed)                                                    \
    X(LEDGER_TASK_CANCEL, task_cancel, task_cancelled)                                             \
    X(LEDGER_TASK_CLAIM, task_claim, task_claimed)                                                 \
    X(LEDGER_TASK_RENEW, task_renew, task_renewed)                                                 \
    X(LEDGER_TASK_REAP, task_reap, task_reaped)                                                    \
    X(LEDGER_HOOK_CLAIM, hook_claim, hook_claimed)                                                 \
    X(LEDGER_USAGE, usage, usage_report)                                                           \
    X(LEDGER_RESERVE, reserve, reserved)                                                           \
    X(LEDGER_KEY_ADD, key_add, key_added)                                                          \
    X(LEDGER_KEY_REVOKE, key_revoke, key_revoked)                                                  \
    X(LEDGER_KEY_LIST, key_list, key_listed)                                                       \
    X(LEDGER_KEY_EDIT, key_edit, key_edited)                                                       \
    X(LEDGER_PROJECT_ADD, project_add, project_got)                                                \
    X(LEDGER_PROJECT_EDIT, project_edit, project_got)                                              \
    X(LEDGER_PROJECT_GET, project_get, project_got)                                                \
    X(LEDGER_PROJECT_LIST, project_list, project_listed)                                           \
    X(LEDGER_WORKER_PUT, worker_put, worker_stored)                                                \
    X(LEDGER_WORKER_GET, worker_get, worker_got)                                                   \
    X(LEDGER_WORKER_DELETE, worker_delete, worker_deleted)
#define LEDGER_UNANSWERED(X)                                                                       \
    X(LEDGER_TASK_END, task_end, )                                                                 \
    X(LEDGER_HOOK_END, hook_end, )                                                                 \
    X(LEDGER_RESERVE_RENEW, reserve_renew, )                                                       \
    X(LEDGER_SETTLE, settle, )                                                                     \
    X(LEDGER_KEY_USED, key_used, )

/* Each has a function in the file of its subject, which writes its answer only on success. */
#define LEDGER_DECLARE(op, ask_, answer_)                                                          \
    int ledger_do_##ask_(struct ledger_db *db, const struct ledger_##ask_ *ask,                    \
                         struct ledger_##answer_ *ret, struct err *err);
#define LEDGER_DECLARE_UNANSWERED(op, ask_, answer_)                                               \
    int ledger_do_##ask_(struct ledger_db *db, const struct ledger_##ask_ *ask, struct err *err);
LEDGER_ANSWERED(LEDGER_DECLARE)
LEDGER_UNANSWERED(LEDGER_DECLARE_UNANSWERED)

/* What a server that begins anew had set aside counts as spent. */
int ledger_spend_forfeit(struct ledger_db *db, const char *node, struct err *err);
/* Forgets what was settled long ago. */
int ledger_spend_prune(struct ledger_db *db, struct err *err);
/* The two lists of LEDGER_USAGE that are about spending. */
int ledger_spend_usage(struct ledger_db *db, const struct ledger_usage *ask, char **ret_jobs,
                       char **ret_today, struct err *err);

/* What a task becomes when it ends, in the transaction of the caller: state, result, account, the
 * message to its webhook. */
int ledger_task_set_end(struct ledger_db *db, const struct ledger_task_end *end, struct err *err);
/* owner NULL: anyone's. ERR_NOT_FOUND. */
int ledger_task_load(struct ledger_db *db, const char *id, const char *owner, bool with_body,
                     struct ledger_task *ret_task, struct err *err);
/* It waits for its turn, from a time on. */
int ledger_task_wait(struct ledger_db *db, const char *id, const char *owner, int64_t priority,
                     int64_t run_at_ms, struct err *err);
/* One that cannot be written is noted with the task as failed; that is no error. */
int ledger_hook_add(struct ledger_db *db, const struct ledger_task *t, struct err *err);
/* A server begins: from now on jumps of the wall clock are noticed (clock.c). */
int ledger_clock_begin(struct ledger_db *db, struct err *err);
/* At the begin of a transaction: what waits or is held moves with a clock that has jumped. */
int ledger_clock_follow(struct ledger_db *db, struct err *err);
/* That was committed. */
void ledger_clock_followed(struct ledger_db *db);
/* Binds limits from a parameter on, and reads them from a column on. */
void ledger_limits_bind(struct sqlite3_stmt *st, int first, const struct ledger_limits *limits);
struct ledger_limits ledger_limits_column(struct sqlite3_stmt *st, int first);
/* The id of a project, by its id or its name. ERR_NOT_FOUND: there is none. */
int ledger_project_find(struct ledger_db *db, const char *id, char ret_id[ID_SIZE],
                        struct err *err);
void *ledger_grow(void *items, size_t n, size_t size);

/* The statement, fresh. */
struct sqlite3_stmt *ledger_ready(struct ledger_db *db, enum ledger_subject subject, int which);
