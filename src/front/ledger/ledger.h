#pragma once
/* The ledger: what several servers share and must agree on. (The store is what this server did.) It
 * may be a round trip away, so no call has its answer when it returns. Every request needs the keys
 * and the list of deployed workers; the front therefore has copies of them that the ledger keeps
 * fresh (front/ledger/keyring.h, front/run/roster.h).
 *
 * A back end does the work: SQLite (sqlite.c) now, PostgreSQL next. What each must promise of one
 * operation stands above its struct; the following holds for all:
 *  - Whole or not at all: each ask is one transaction. One that fails has changed nothing.
 *  - Repeatable: an ask may be done and its answer lost (ERR_UNAVAILABLE after LEDGER_WAIT_MS). So
 *    each may be asked again; what the repetition does is said with the operation.
 *  - Order: asks of one server are done in the order they were made. One that reads sees what was
 *    asked for before it.
 *  - Durable: what an ask has changed survives a loss of power from the moment it is answered.
 *    Asks that come at the same time may be put on the disk together.
 *  - One clock: leases and days (UTC) are measured by the ledger's clock, also when it jumps.
 *  - Fences: the number of an attempt, of a delivery's tries or of an epoch names one lease. What
 *    comes from an older lease is refused or ignored.
 *  - Spending: what a key has spent today and what is set aside never exceed its limit together,
 *    and so for a project over all its keys. A reservation whose lease is over, or whose server
 *    starts again, counts as spent whole, because nobody knows what was used.
 *  - Copies: the ledger tells all valid keys soon after it was opened and whenever they change,
 * with a version that grows; while they do not change, it confirms that version at least every
 *    LEDGER_CONFIRM_MS. What another process changed is told within that time. A copy that was not
 *    confirmed for LEDGER_STALE_MS is no longer used (503): a server that is cut off accepts a
 *    revoked key for no longer than that. The list of workers, without their code, is told the same
 *    way, then either one worker that changed or the whole list; its version grows by one with each
 *    change, and a code that was got under a version is never wrong, only old. */

#include "base/err.h"
#include "base/id.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

enum { LEDGER_HASH_SIZE = 32, LEDGER_CONFIRM_MS = 1000, LEDGER_STALE_MS = 15000 };

/* Of a key, or of a project over all its keys. Each 0: no limit. */
struct ledger_limits {
    int64_t rate_per_minute;
    int64_t max_jobs; /* at a time, on each server */
    int64_t tokens_per_day;
    int64_t nusd_per_day; /* billionths of a dollar */
};

/* A project owns data; its keys open the door to it. The default project, whose id is "", is the
 * one of the operator and of keys that were made without naming a project. */
struct ledger_project {
    char id[ID_SIZE];
    char *name;
    struct ledger_limits limits;
    int64_t created_ms;
    int64_t keys; /* valid ones; in answers only */
};
void ledger_project_finish(struct ledger_project *p);
/* An array of them. */
void ledger_projects_free(struct ledger_project *projects, size_t n);

struct ledger_key {
    char id[ID_SIZE];
    char project[ID_SIZE];
    char *name;
    char *scope;
    bool server; /* scope admin: of the server, not of its project alone */
    unsigned char hash[LEDGER_HASH_SIZE];
    unsigned char old_hash[LEDGER_HASH_SIZE]; /* of the secret before, valid until old_until_ms */
    int64_t old_until_ms;                     /* 0: there is none */
    struct ledger_limits limits;
    struct ledger_limits project_limits; /* as they are now; read only */
    int64_t created_ms;
    int64_t expires_ms; /* 0: never */
    int64_t revoked_ms; /* 0: not revoked */
    int64_t used_ms;    /* when it was used last, within a minute; 0: never */
    char *grants;       /* JSON object, or NULL */
};
void ledger_key_finish(struct ledger_key *k);
/* An array of them. */
void ledger_keys_free(struct ledger_key *keys, size_t n);

/* Keeps a copy of the keys. Both are called from the loop, and call nobody. */
struct ledger_watch {
    /* keys is the watcher's from now on: an array of n, allocated. */
    void (*on_keys)(void *ctx, struct ledger_key *keys, size_t n, uint64_t version);
    void (*on_confirmed)(void *ctx, uint64_t version);
    void *ctx;
};

/* LEDGER_KEY_ADD: stores a new key, unless as many are valid as may be (ERR_CONFLICT) or its
 * project does not exist (ERR_NOT_FOUND). Asked again with the same id, it changes nothing and
 * answers with the stored key. */
struct ledger_key_add {
    const struct ledger_key *key;
    const char *project; /* id or name of its project; NULL: as the key says. An admin key of the
                            default project becomes one of the server */
    size_t valid_max;
};
struct ledger_key_added {
    struct ledger_key key;
    bool repeated; /* the key was there before */
};

/* LEDGER_KEY_REVOKE: makes a key invalid from now on; ERR_NOT_FOUND if the ledger does not know it.
 * Asked again, it changes nothing. The ledger remembers a bounded number of revoked keys. */
struct ledger_key_revoke {
    const char *id;
    const char *project; /* whose key it must be; NULL: any */
};
struct ledger_key_revoked {
    char id[ID_SIZE];
    bool repeated; /* the key was revoked before */
};

/* LEDGER_KEY_EDIT: changes a key that is not revoked; ERR_NOT_FOUND. Asked again, it is the same
 * change once more. */
enum ledger_key_field {
    LEDGER_KEY_NAME = 1,
    LEDGER_KEY_GRANTS = 2,
    LEDGER_KEY_EXPIRES = 4,
    LEDGER_KEY_SECRET = 8, /* hash; the one before stays valid until old_until_ms */
};
enum ledger_limit_field {
    LEDGER_LIMIT_RATE = 16,
    LEDGER_LIMIT_JOBS = 32,
    LEDGER_LIMIT_TOKENS = 64,
    LEDGER_LIMIT_NUSD = 128,
};
struct ledger_key_edit {
    const struct ledger_key *key; /* its id, and what is in `fields` */
    unsigned fields;              /* of enum ledger_key_field and enum ledger_limit_field */
    const char *project;          /* whose key it must be; NULL: any */
};
struct ledger_key_edited {
    struct ledger_key key;
};

/* LEDGER_KEY_USED: remembers when keys were used last. Older times than the stored ones, and keys
 * that are gone, are passed over. Asked again, it changes nothing. */
struct ledger_key_use {
    char id[ID_SIZE];
    int64_t ms;
};
struct ledger_key_used {
    const struct ledger_key_use *uses;
    size_t n;
};

/* LEDGER_KEY_LIST: a page of all keys that are known, newest first. */
struct ledger_key_list {
    const char *project; /* the id of whose; NULL: all */
    const char *named;   /* and of these only: an id or name of a project; NULL: all */
    const char *before;  /* the `next` of the page before; NULL: from the newest */
    size_t limit;
};
struct ledger_key_listed {
    struct ledger_key *keys;
    size_t n;
    char next[ID_SIZE]; /* "": this is the last page */
};

/* LEDGER_PROJECT_ADD: stores a new project. ERR_CONFLICT if another has its name, or there are as
 * many as may be. Asked again with the same id, it changes nothing and answers with the stored
 * project. */
struct ledger_project_add {
    const struct ledger_project *project;
    size_t projects_max;
};
/* The answer to an add, an edit and a get. */
struct ledger_project_got {
    struct ledger_project project;
    bool repeated; /* it was there before */
};

/* LEDGER_PROJECT_EDIT: changes the name, if there is one, and limits; ERR_NOT_FOUND, ERR_CONFLICT
 * if another has the name. Asked again, it is the same change once more. */
struct ledger_project_edit {
    const char *id; /* or name */
    const struct ledger_project *project;
    unsigned fields; /* of enum ledger_limit_field */
};

/* LEDGER_PROJECT_GET: by id or, if there is none of that id, by name; ERR_NOT_FOUND. */
struct ledger_project_get {
    const char *id;
};

/* LEDGER_PROJECT_LIST: a page, oldest first. */
struct ledger_project_list {
    const char *after; /* the `next` of the page before; NULL: from the oldest */
    size_t limit;
};
struct ledger_project_listed {
    struct ledger_project *projects;
    size_t n;
    bool more;
    char next[ID_SIZE];
};

/* --- deployed workers --- */

enum { LEDGER_WORKER_NAME_SIZE = 64 };

struct ledger_worker {
    char owner[ID_SIZE]; /* the project */
    char key[ID_SIZE];   /* that put it, "" for the operator */
    char id[LEDGER_WORKER_NAME_SIZE];
    char label[LEDGER_WORKER_NAME_SIZE]; /* its host name before ".localhost" */
    int64_t version;
    int64_t updated_ms;
    bool public;
    char *code; /* JSON; in a put and the answer to a get only, else NULL */
    size_t code_len;
};
void ledger_worker_finish(struct ledger_worker *w);

/* Keeps a copy of the list. Each is called from the loop, and calls nobody. */
struct ledger_worker_watch {
    /* workers is the watcher's from now on: an array of n, allocated. */
    void (*on_all)(void *ctx, struct ledger_worker *workers, size_t n, uint64_t version);
    /* One was put, or (gone) deleted: all that is between the version before and this one. */
    void (*on_change)(void *ctx, const struct ledger_worker *worker, bool gone, uint64_t version);
    void (*on_confirmed)(void *ctx, uint64_t version);
    void *ctx;
};

/* LEDGER_WORKER_PUT: stores a worker, or replaces the one of that owner and id, under the next
 * version of the list, which nothing had before. ERR_LIMIT if its owner would have too many or too
 * large ones, ERR_CONFLICT if another has its label; both are checked in the same transaction.
 * Asked again, it is one more put of the same. It is answered after the change was told. */
struct ledger_worker_put {
    const struct ledger_worker *worker; /* owner, key, id, label, public and code are read */
    char **own_code;                    /* where the code is, if it may be taken; or NULL */
    size_t workers_max;                 /* of one owner */
    size_t bytes_max;                   /* of the code of all of them */
};
struct ledger_worker_stored {
    struct ledger_worker worker; /* without its code */
};

/* LEDGER_WORKER_GET: the newest version of a worker, with its code; ERR_NOT_FOUND. It may be newer
 * than the list, but is never older than what was told before it was asked. */
struct ledger_worker_get {
    const char *owner;
    const char *id;
};
struct ledger_worker_got {
    struct ledger_worker *worker; /* the code may be taken */
};

/* LEDGER_WORKER_DELETE: removes a worker; this takes a version of the list too. ERR_NOT_FOUND, also
 * when asked again. It is answered after the change was told. */
struct ledger_worker_delete {
    const char *owner;
    const char *id;
};
struct ledger_worker_deleted {
    struct ledger_worker worker; /* owner, id and the version of the list without it */
};

/* --- tasks --- */

enum {
    LEDGER_LEASE_MS = 30000,
    LEDGER_WAIT_MS = 5000,  /* for an answer */
    LEDGER_ASKS_MAX = 4096, /* that wait for their answers */
    LEDGER_RESULT_BYTES = 8 << 20,
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

/* A task as it is stored. Texts may be NULL. */
struct ledger_task {
    char id[ID_SIZE];
    char owner[ID_SIZE]; /* the project */
    char key[ID_SIZE];   /* that submitted it, "" for the operator */
    char run[ID_SIZE];   /* the job of the last attempt */
    enum task_state state;
    char *type;
    char *title;
    char *body; /* of a claim only */
    size_t body_len;
    char *idem; /* Idempotency-Key */
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
/* An array of them. */
void ledger_tasks_free(struct ledger_task *tasks, size_t n);

/* LEDGER_TASK_SUBMIT: stores a task, its body and its place in the queue. ERR_RATE if too many
 * tasks of its owner wait, or their bodies are too large. Asked again with the same id, or by the
 * same owner with the same Idempotency-Key and hash, it changes nothing and answers with the task
 * that is stored; the same Idempotency-Key with another hash is ERR_CONFLICT. */
struct ledger_task_submit {
    const char *id;
    const char *owner;
    const char *key; /* that submits it, "" for the operator */
    const char *type;
    const char *title; /* or NULL */
    const char *body;
    char **own_body; /* where the body is, if it may be taken; or NULL */
    const char *idem;
    const char *idem_hash;
    const char *webhook;
    const char *secret;
    int64_t priority;
    int64_t timeout_ms;
    int64_t max_attempts;
    int64_t run_at_ms;
    size_t waiting_max; /* tasks of this owner */
    int64_t bytes_max;  /* of the bodies of its tasks that have not ended; 0: any */
};
struct ledger_task_submitted {
    struct ledger_task task;
    bool repeated; /* the task was there before */
};

/* LEDGER_TASK_GET: one task, with its result and attempts and without its body; ERR_NOT_FOUND. */
struct ledger_task_get {
    const char *id;
    const char *owner; /* whose it must be; NULL: anyone's */
};
struct ledger_task_got {
    struct ledger_task task;
};

/* LEDGER_TASK_LIST: a page of tasks, newest first, without results. A type has no index: one ask
 * looks at a bounded number of rows, so a page may be short though more follow. */
struct ledger_task_list {
    const char *owner;     /* whose; NULL: anyone's */
    enum task_state state; /* which; TASK_STATES: any */
    const char *type;      /* which; NULL: any */
    const char *before;    /* the `next` of the page before; NULL: from the newest */
    size_t limit;
};
struct ledger_task_listed {
    struct ledger_task *tasks;
    size_t n;
    char next[ID_SIZE]; /* "": this is the last page */
};

/* LEDGER_TASK_CANCEL: ends a task that waits; one that runs is marked, and whoever holds it hears
 * of that when its lease is renewed. ERR_NOT_FOUND; ERR_CONFLICT if it has ended, so an ask that is
 * repeated may be refused. */
struct ledger_task_cancel {
    const char *id;
    const char *owner; /* whose it must be; NULL: anyone's */
};
struct ledger_task_cancelled {
    struct ledger_task task;
};

/* LEDGER_TASK_CLAIM: leases tasks to a server for LEDGER_LEASE_MS, each for a new attempt, whose
 * run id the ledger chooses. Owners take turns; each has its most urgent task first, then its
 * oldest. ERR_CONFLICT if another epoch of the server has begun. Asked again, it leases other
 * tasks: what an answer that was lost had leased is free again when those leases are over. A task
 * whose body cannot be read fails, and is not in the answer. */
struct ledger_task_claim {
    const char *node;
    int64_t epoch;
    size_t limit;
    size_t slots;   /* that the server has; a part of them is kept for owners who have nothing at
                       work; 0: nothing is kept */
    size_t per_key; /* tasks of one owner that may run, on all servers together */
};
struct ledger_task_claimed {
    struct ledger_task *tasks; /* with their bodies, which may be taken */
    size_t n;
    int64_t next_ms; /* until the next scheduled task is due; -1: there is none */
};

struct ledger_lease {
    char task[ID_SIZE];
    int64_t attempt;
};
enum ledger_lease_state {
    LEDGER_LEASE_KEPT,
    LEDGER_LEASE_CANCELLED, /* kept, and the task was asked to end */
    LEDGER_LEASE_LOST,      /* somebody else has the task, or nobody: stop */
};
struct ledger_lease_renewed {
    struct ledger_lease lease;
    enum ledger_lease_state state;
};

/* LEDGER_TASK_RENEW: each lease that the server still has lasts LEDGER_LEASE_MS from now on. The
 * answer has one entry for each lease, in the order of the ask. Asked again, it renews again. */
struct ledger_task_renew {
    const char *node;
    int64_t epoch;
    const struct ledger_lease *leases;
    size_t n;
};
struct ledger_task_renewed {
    struct ledger_lease_renewed *leases;
    size_t n;
};

/* LEDGER_TASK_END: ends an attempt. In one transaction the task has its state and result, its owner
 * is charged, and the message to its webhook waits to be sent; or, after a fault, the task is
 * queued again. ERR_CONFLICT if the attempt has no lease any more, unless it ended this way before:
 * an ask that is repeated succeeds and changes nothing. */
struct ledger_task_end {
    const char *id;
    int64_t attempt;
    enum task_state state;
    const char *error_code;    /* or NULL */
    const char *error_message; /* or NULL */
    const char *result;        /* JSON, or NULL */
    bool fault;                /* of the machine: the task is tried again, instead of its state */
    bool uncounted;            /* with a fault: this attempt does not count */
};

/* LEDGER_TASK_REAP: ends attempts whose leases are over, as faults, and forgets what need not be
 * kept, a bounded part at a time. One attempt that cannot be ended does not undo the others: it is
 * tried again after another lease. Any server may ask, at any time, again and again. */
struct ledger_task_reap {
    size_t limit;       /* leases */
    int64_t keep_ms;    /* for how long tasks that have ended are kept; 0: for ever */
    int64_t keep_tasks; /* how many of them; 0: all */
    int64_t keep_bytes; /* of their results; 0: all */
};
struct ledger_task_reaped {
    int64_t lapsed; /* leases that were over */
    bool more;      /* there is more to forget */
};

/* --- messages to webhooks --- */

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
/* An array of them. */
void ledger_hooks_free(struct ledger_hook *hooks, size_t n);

/* LEDGER_HOOK_CLAIM: takes messages that are due, and hides each for LEDGER_LEASE_MS. Those of one
 * task come in their order, one at a time. Owners take turns, and so do the receivers of each
 * (hooks.c says how they share). Asked again, it takes other messages; what an answer that was lost
 * had taken is due again after the lease. */
struct ledger_hook_claim {
    size_t limit;
    size_t per_key; /* messages of one owner that may be under way */
};
struct ledger_hook_claimed {
    struct ledger_hook *hooks;
    size_t n;
    int64_t next_ms; /* until the next message is due; -1: there is none */
};

enum ledger_hook_outcome { LEDGER_HOOK_DELIVERED, LEDGER_HOOK_RETRY, LEDGER_HOOK_FAILED };

/* LEDGER_HOOK_END: what became of a message, noted with its task. If it was said before, or the
 * message was taken again since, nothing changes, and that is no error. */
struct ledger_hook_end {
    int64_t seq;
    int64_t tries;
    enum ledger_hook_outcome outcome;
    const char *error; /* or NULL */
    int64_t retry_ms;  /* LEDGER_HOOK_RETRY: when it is due again, from now */
};

/* --- servers --- */

/* There is one server on an SQLite ledger: the lock of the data folder sees to that. */
#define LEDGER_HERE "here"

/* LEDGER_NODE_BEGIN: a server starts. If `epoch` is the one that the ledger has of it, the next one
 * begins: leases of earlier epochs are over, and what they reserved counts as spent. Otherwise
 * nothing changes. Asked again after its answer was lost, it therefore begins nothing, and answers
 * with the epoch to ask with. */
struct ledger_node_begin {
    const char *node;
    int64_t epoch; /* 0: it never began; -1: only tell */
};
struct ledger_node_begun {
    int64_t epoch; /* of now */
    bool begun;    /* by this ask */
};

/* --- spending --- */

enum { LEDGER_SPENDS_MAX = 512, LEDGER_SETTLED_MS = 600000 };

/* LEDGER_RESERVE: sets aside what a call of a model may cost, out of what its key, and its project,
 * have for the day. At most `tokens` and `nusd` are wanted, fewer than the least are of no use; a
 * limit of 0 is none. ERR_QUOTA if the day has too little left; ERR_RATE if only other
 * reservations hold what is missing. The reservation is a lease of LEDGER_LEASE_MS. Asked again
 * with the same id, it answers as the first time; ERR_CONFLICT if that id was settled since. */
struct ledger_reserve {
    const char *id;
    const char *owner; /* the project */
    const char *key;   /* "" for the operator */
    const char *node;
    int64_t tokens_least, tokens;
    int64_t nusd_least, nusd;
    struct ledger_limits limits;         /* of the key */
    struct ledger_limits project_limits; /* over all its keys */
    bool partial; /* take less than what is wanted, where others hold the rest */
    bool probe;   /* only say whether it would be granted */
};
struct ledger_reserved {
    int64_t tokens;
    int64_t nusd;
};

/* LEDGER_RESERVE_RENEW: these reservations last LEDGER_LEASE_MS from now on. One that was lost
 * (counted as spent, because its lease was over) stays known, so that it can be settled. Ids that
 * are unknown or settled are passed over. Asked again, it renews again. */
struct ledger_reserve_renew {
    const char *const *ids;
    size_t n; /* at most LEDGER_SPENDS_MAX */
};

/* What a call of a model, or jobs that have ended, really used. */
struct ledger_used {
    char id[ID_SIZE];    /* of the reservation, or one that is new */
    char owner[ID_SIZE]; /* the project */
    char key[ID_SIZE];   /* "" for the operator */
    const char *kind;    /* of the job */
    int64_t jobs, done, wall_ms;
    int64_t input_tokens, output_tokens, cache_read_tokens, cache_write_tokens;
    int64_t cost_nusd;    /* of what has a known price */
    int64_t charged_nusd; /* with the rest, by the dearest price */
};

/* LEDGER_SETTLE: frees each reservation, also one that was lost, and puts down what was used, for
 * the day of the reservation; without one, for today. Each id counts once: asked again within
 * LEDGER_SETTLED_MS, it changes nothing. All of them are settled, or none. */
struct ledger_settle {
    const char *node;
    const struct ledger_used *used;
    size_t n;
};

/* LEDGER_USAGE: what was used, as JSON lists, newest day first. */
struct ledger_usage {
    const char *owner; /* whose; NULL: anyone's */
    const char *since; /* the first day, such as "2026-01-31"; NULL: all */
    size_t limit;      /* rows of each list */
};
struct ledger_usage_report {
    char *tasks; /* by day, owner and type of task */
    char *jobs;  /* by day, owner and kind of job */
    char *today; /* by owner: what was spent today, and what is set aside */
};

/* --- asks and answers --- */

enum ledger_op {
    LEDGER_NODE_BEGIN,
    LEDGER_TASK_SUBMIT,
    LEDGER_TASK_GET,
    LEDGER_TASK_LIST,
    LEDGER_TASK_CANCEL,
    LEDGER_TASK_CLAIM,
    LEDGER_TASK_RENEW,
    LEDGER_TASK_END,
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
    LEDGER_KEY_EDIT,
    LEDGER_KEY_USED,
    LEDGER_PROJECT_ADD,
    LEDGER_PROJECT_EDIT,
    LEDGER_PROJECT_GET,
    LEDGER_PROJECT_LIST,
    LEDGER_WORKER_PUT,
    LEDGER_WORKER_GET,
    LEDGER_WORKER_DELETE,
    LEDGER_OPS
};

struct ledger_ask {
    enum ledger_op op;
    union {
        struct ledger_node_begin node_begin;
        struct ledger_task_submit task_submit;
        struct ledger_task_get task_get;
        struct ledger_task_list task_list;
        struct ledger_task_cancel task_cancel;
        struct ledger_task_claim task_claim;
        struct ledger_task_renew task_renew;
        struct ledger_task_end task_end;
        struct ledger_task_reap task_reap;
        struct ledger_hook_claim hook_claim;
        struct ledger_hook_end hook_end;
        struct ledger_usage usage;
        struct ledger_reserve reserve;
        struct ledger_reserve_renew reserve_renew;
        struct ledger_settle settle;
        struct ledger_key_add key_add;
        struct ledger_key_revoke key_revoke;
        struct ledger_key_list key_list;
        struct ledger_key_edit key_edit;
        struct ledger_key_used key_used;
        struct ledger_project_add project_add;
        struct ledger_project_edit project_edit;
        struct ledger_project_get project_get;
        struct ledger_project_list project_list;
        struct ledger_worker_put worker_put;
        struct ledger_worker_get worker_get;
        struct ledger_worker_delete worker_delete;
    };
};

struct ledger_answer {
    enum ledger_op op;
    struct err err; /* code 0: it was done */
    union {         /* set only if it was done */
        struct ledger_node_begun node_begun;
        struct ledger_task_submitted task_submitted;
        struct ledger_task_got task_got;
        struct ledger_task_listed task_listed;
        struct ledger_task_cancelled task_cancelled;
        struct ledger_task_claimed task_claimed;
        struct ledger_task_renewed task_renewed;
        struct ledger_task_reaped task_reaped;
        struct ledger_hook_claimed hook_claimed;
        struct ledger_usage_report usage_report;
        struct ledger_reserved reserved;
        struct ledger_key_added key_added;
        struct ledger_key_revoked key_revoked;
        struct ledger_key_listed key_listed;
        struct ledger_key_edited key_edited;
        struct ledger_project_got project_got;
        struct ledger_project_listed project_listed;
        struct ledger_worker_stored worker_stored;
        struct ledger_worker_got worker_got;
        struct ledger_worker_deleted worker_deleted;
    };
};
/* Zeroed memory is allowed. */
void ledger_answer_finish(struct ledger_answer *a);

typedef void (*ledger_on_answer)(void *ctx, const struct ledger_answer *answer);

struct ledger;
struct ledger_db;

/* The SQLite back end, on a file that was opened before (db.h) and is borrowed. The keys are told
 * before this returns. */
int ledger_open(uv_loop_t *loop, struct ledger_db *db, const struct ledger_watch *watch,
                struct ledger **ret_ledger, struct err *err);
/* The answer comes from the loop, once, and is freed afterwards; ERR_UNAVAILABLE if the ledger has
 * not answered in time, or too many are waited for. What the ask points to is not read any more
 * when this returns. */
void ledger_call(struct ledger *l, const struct ledger_ask *ask, ledger_on_answer on_answer,
                 void *ctx);
/* Has the list of workers told, from now on; with SQLite before this returns. NULL: no more. */
int ledger_watch_workers(struct ledger *l, const struct ledger_worker_watch *watch,
                         struct err *err);
/* Has the keys and the list told or confirmed as soon as that can be: with SQLite before it
 * returns. */
void ledger_refresh(void *ledger);
/* With SQLite all that was asked is done first, and waited for; what a back end cannot finish is
 * answered (ERR_CANCELLED). Memory goes from the loop. NULL is allowed. */
void ledger_close(struct ledger *l);
