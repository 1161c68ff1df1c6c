#pragma once
/* The ledger: what several servers share and must agree on, as against the store, which is what
 * this server did. It may be a round trip away: nothing here has its answer when a call returns.
 * What every request needs, the keys and the list of deployed workers, is therefore a copy in the
 * front (front/keys.h, front/run/roster.h) that the ledger keeps fresh.
 *
 * Behind it is a back end: SQLite (sqlite.c) now, PostgreSQL next. What each promises:
 *  - Keys: it tells all that are valid soon after it was opened and whenever they have changed,
 * with a version that grows; while they have not, it confirms that version at least every
 *    LEDGER_CONFIRM_MS. What another process changed is told within that time at the latest. A copy
 *    that was not confirmed for LEDGER_STALE_MS is not used any more (503), so a server that is cut
 *    off from the ledger lets a revoked key in for no longer than that.
 *  - Asks: each is one transaction, done whole or not at all. It may be done and its answer lost
 *    (ERR_UNAVAILABLE after LEDGER_WAIT_MS): so each can be asked again, and is then answered as
 * the first time. Asks of one server are done in the order they were made, but for those that may
 *    take long, since a text of megabytes goes with them (own_text; the answers to claims and
 * gets).
 *  - Tasks: a claim is a lease of LEDGER_LEASE_MS by the ledger's clock, for one attempt. The
 * number of the attempt is the fence: what ends an attempt names it, and is refused (ERR_CONFLICT)
 * once the lease was given to another or taken away. The end of a task, its result, the account of
 * its key and the message to its webhook are one transaction. So a task may be run more than once,
 *    and its end is acknowledged once.
 *  - Spending: a reservation sets aside what a model call or a job may cost, of what its key has
 * for the day (UTC, by the ledger's clock); the sum of what was spent and what is set aside never
 *    exceeds that. It has an id of its asker's, is a lease as a claim is, and counts as spent whole
 * when the lease is over or its server begins anew: nobody knows what was used. Settling puts down
 * what was really used, once for each id, also of one that was lost so.
 *  - Deployed workers: it tells the list of all, without their code, as it tells the keys, and then
 *    either one that has changed or the whole list again; each with the list's version, which grows
 *    by one with every change. So calls, bindings and host names are looked up in a copy
 *    (run/roster.h). A put gives a worker the new version of the list, which nothing had before: a
 *    code that was got under a version is never wrong, only old. Puts and deletes are answered
 *    after their change was told, so that whoever was answered calls what he has put. What a key
 *    may have is counted in the transaction of the put. A put that is asked again is one more of
 *    the same; a delete that is asked again finds nothing. A get answers with the newest: it may be
 *    newer than the list, never older than what was told before it was asked.
 *  - Nodes: LEDGER_NODE_BEGIN makes a new epoch of a server; leases of its earlier epochs are over.
 */

#include "base/err.h"
#include "base/id.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

enum { LEDGER_HASH_SIZE = 32, LEDGER_CONFIRM_MS = 1000, LEDGER_STALE_MS = 15000 };

struct ledger_key {
    char id[ID_SIZE];
    char *name;
    char *scope;
    unsigned char hash[LEDGER_HASH_SIZE];
    int64_t rate_per_minute; /* each 0: no limit */
    int64_t max_jobs;        /* at a time, on each server */
    int64_t tokens_per_day;
    int64_t nusd_per_day; /* billionths of a dollar */
    int64_t created_ms;
    int64_t revoked_ms; /* 0: valid */
    char *grants;       /* JSON object, or NULL */
};
void ledger_key_finish(struct ledger_key *k);

/* Who keeps a copy of the keys. Both are called from the loop, and call nobody. */
struct ledger_watch {
    /* keys is the watcher's from now on: an array of n, allocated. */
    void (*on_keys)(void *ctx, struct ledger_key *keys, size_t n, uint64_t version);
    void (*on_confirmed)(void *ctx, uint64_t version);
    void *ctx;
};

/* --- deployed workers --- */

enum { LEDGER_WORKER_NAME_SIZE = 64 };

struct ledger_worker {
    char owner[ID_SIZE]; /* the key's id, "" for the operator */
    char id[LEDGER_WORKER_NAME_SIZE];
    char label[LEDGER_WORKER_NAME_SIZE]; /* its host name before ".localhost" */
    int64_t version;
    int64_t updated_ms;
    bool public;
    char *code; /* JSON; of a put and the answer to a get only, else NULL */
    size_t code_len;
    int64_t text; /* the back end's own: where a long code is; 0: in `code` */
};
void ledger_worker_finish(struct ledger_worker *w);

/* Who keeps a copy of the list. Each is called from the loop, and calls nobody. */
struct ledger_worker_watch {
    /* workers is the watcher's from now on: an array of n, allocated. */
    void (*on_all)(void *ctx, struct ledger_worker *workers, size_t n, uint64_t version);
    /* One was put, or (gone) deleted: all that is between the version before and this one. */
    void (*on_change)(void *ctx, const struct ledger_worker *worker, bool gone, uint64_t version);
    void (*on_confirmed)(void *ctx, uint64_t version);
    void *ctx;
};

/* --- tasks --- */

enum {
    LEDGER_LEASE_MS = 30000,
    LEDGER_WAIT_MS = 5000,  /* for an answer */
    LEDGER_ASKS_MAX = 4096, /* that wait for their answers */
    LEDGER_RESULT_BYTES = 1 << 20,
};

enum ledger_op {
    LEDGER_NODE_BEGIN,
    LEDGER_TASK_SUBMIT,
    LEDGER_TASK_GET,
    LEDGER_TASK_LIST,
    LEDGER_TASK_CANCEL,
    LEDGER_TASK_CLAIM,
    LEDGER_TASK_RENEW,
    LEDGER_TASK_FINISH,
    LEDGER_TASK_REAP,
    LEDGER_HOOK_CLAIM,
    LEDGER_HOOK_END,
    LEDGER_USAGE,
    LEDGER_RESERVE,
    LEDGER_RESERVE_RENEW,
    LEDGER_SETTLE,
    LEDGER_KEY_ADD,
    LEDGER_KEY_REVOKE,
    LEDGER_KEY_LIST,
    LEDGER_WORKER_PUT,
    LEDGER_WORKER_GET,
    LEDGER_WORKER_DELETE,
    LEDGER_OPS
};

enum task_state {
    TASK_QUEUED,
    TASK_RUNNING,
    TASK_DONE,
    TASK_FAILED,
    TASK_CANCELLED,
    TASK_INTERRUPTED, /* it was cut off as often as it may be */
    TASK_STATES
};
const char *task_state_name(enum task_state state);
/* False: there is none of that name. */
bool task_state_parse(const char *name, enum task_state *ret_state);

/* "ATTEMPT.NUMBER", as the events of a task are called; both from 1. */
bool task_event_parse(const char *text, int64_t *ret_attempt, int64_t *ret_number);

/* Texts may be NULL. In an ask they are the caller's, in an answer the answer's. */
struct ledger_task {
    char id[ID_SIZE];
    char owner[ID_SIZE]; /* the key's id, "" for the operator */
    char run[ID_SIZE];   /* the job of the last attempt */
    enum task_state state;
    char *type;
    char *title;
    char *body; /* of a claim and a submission only */
    size_t body_len;
    int64_t text; /* as of a worker */
    char *idem;   /* Idempotency-Key */
    char *idem_hash;
    char *webhook;
    char *secret;
    char *error_code;
    char *error_message;
    char *result;   /* JSON */
    char *attempts; /* JSON: what became of each */
    char *hook;     /* JSON: what became of the message; NULL: there is no webhook */
    int64_t priority;
    int64_t timeout_ms;
    int64_t max_attempts;
    int64_t attempt; /* from 1; 0: it was not tried yet */
    int64_t run_at_ms;
    int64_t created_ms;
    int64_t started_ms;
    int64_t finished_ms;
    bool cancel; /* it was asked to end */
};
void ledger_task_finish(struct ledger_task *t);

struct ledger_hold {
    char task[ID_SIZE];
    int64_t attempt;
    bool lost;   /* somebody else has it, or nobody: stop */
    bool cancel; /* it was asked to end */
};

/* A message to a webhook. */
struct ledger_hook {
    int64_t seq;
    int64_t tries; /* with this one; the fence of its end */
    char event[ID_SIZE];
    char task[ID_SIZE];
    char *url;
    char *secret;
    char *body;
};
void ledger_hook_finish(struct ledger_hook *h);

enum ledger_hook_end { LEDGER_HOOK_DELIVERED, LEDGER_HOOK_RETRY, LEDGER_HOOK_FAILED };

/* There is one server on an SQLite ledger: the lock of the data folder sees to that. */
#define LEDGER_HERE "here"

/* --- spending --- */

enum { LEDGER_SPENDS_MAX = 512, LEDGER_SETTLED_MS = 600000 }; /* so long a repetition is known */

struct ledger_spend {
    char id[ID_SIZE];
    char owner[ID_SIZE]; /* the key's id */
    const char *kind;    /* settle: of the job */
    /* reserve: the least that is of use, and all that is wanted; at most that of what the day has
     * left. A limit of 0 is none. */
    int64_t tokens_least, tokens;
    int64_t nusd_least, nusd;
    int64_t tokens_per_day, nusd_per_day;
    /* settle: what was used */
    int64_t jobs, done, wall_ms; /* jobs that have ended */
    int64_t input_tokens, output_tokens, cache_read_tokens, cache_write_tokens;
    int64_t cost_nusd;    /* of what has a known price */
    int64_t charged_nusd; /* with the rest, by the dearest price */
};

/* What each op reads: */
struct ledger_ask {
    enum ledger_op op;
    const char *node;                   /* begin, claim, renew */
    int64_t epoch;                      /* claim, renew; begin: that it is now */
    const struct ledger_key *key;       /* add: all; revoke: id */
    const struct ledger_worker *worker; /* put: owner, id, label, public, code; get, delete: owner,
                                           id */
    const struct ledger_task *task;     /* submit: all; get, cancel: id; finish: id, attempt, state,
                                           error, result */
    char **own_text; /* submit, worker put: where the body or code is, if it may be taken */
    bool rehearsal;  /* submit, worker put: only whether it would be refused, or was done before */
    const char *owner;  /* get, list, cancel: whose they must be; NULL: anybody's */
    int state;          /* list: which; -1: all */
    const char *before; /* lists: NULL, or an id; usage: NULL, or the first day */
    size_t limit;       /* list, claim, reap, hook claim: how many; key add: that are
                           valid; worker put: that a key may have */
    size_t limit_bytes; /* worker put: of the code of all that a key has */
    size_t per_key; /* claim: how many of a key may run; hook claim: be sent; submit: may wait */
    int64_t body_bytes; /* submit: of those of a key that have not ended; 0: any */
    int64_t keep_ms;    /* reap: ended ones older than this go; 0: none */
    int64_t keep_tasks; /* reap: so many that have ended stay; 0: all */
    int64_t keep_bytes; /* reap: so much of their results; 0: all */
    const struct ledger_hold *holds;
    size_t nholds;
    bool fault;                     /* finish: the machine's doing: it is tried again */
    bool uncounted;                 /* finish: with fault: and this attempt does not count */
    const struct ledger_hook *hook; /* hook end: seq, tries */
    enum ledger_hook_end hook_end;
    const char *error;                 /* hook end */
    int64_t retry_ms;                  /* hook end */
    const struct ledger_spend *spends; /* reserve: one; renew: id; settle */
    size_t nspends;
};

struct ledger_answer {
    char *usage;    /* usage: a JSON list, newest day first: of tasks */
    char *jobs;     /* usage: the same of jobs */
    char *today;    /* usage: what keys have spent today, and what is set aside */
    int64_t tokens; /* reserve: what was set aside */
    int64_t nusd;
    struct err err; /* code 0: it was done */
    struct ledger_task *tasks;
    size_t ntasks;
    struct ledger_key *keys; /* list: newest first; add: the key; revoke: as it was left */
    size_t nkeys;
    struct ledger_worker *workers; /* put, delete: without its code; get: with it */
    size_t nworkers;
    struct ledger_hold *holds; /* renew: as asked */
    size_t nholds;
    struct ledger_hook *hooks;
    size_t nhooks;
    int64_t epoch;   /* begin */
    int64_t next_ms; /* claim, hook claim: until the next is due; -1: none is known */
    int64_t count;   /* reap: how many leases were over */
    bool repeated;   /* submit, finish: it was done before; begin: it was not done; reap: there is
                        more to do */
};
void ledger_answer_finish(struct ledger_answer *a);

typedef void (*ledger_on_answer)(void *ctx, const struct ledger_answer *answer);

struct ledger;
struct ledger_db;

/* The SQLite back end, on a file that was opened before (db.h) and is borrowed. The keys are told
 * before this returns. */
int ledger_open(uv_loop_t *loop, struct ledger_db *db, const struct ledger_watch *watch,
                struct ledger **ret_ledger, struct err *err);
/* The answer comes from the loop, once: ERR_UNAVAILABLE if the ledger has not answered in time, or
 * too many are waited for. What the ask points to is not read any more when this returns. */
void ledger_call(struct ledger *l, const struct ledger_ask *ask, ledger_on_answer on_answer,
                 void *ctx);
/* Has the list of workers told, from now on; with SQLite before this returns. NULL: no more. */
int ledger_watch_workers(struct ledger *l, const struct ledger_worker_watch *watch,
                         struct err *err);
/* Has the keys and the list told or confirmed as soon as that can be: with SQLite before it
 * returns. */
void ledger_refresh(void *ledger);
/* What waits is answered (ERR_CANCELLED). Memory goes from the loop. NULL is allowed. */
void ledger_close(struct ledger *l);
