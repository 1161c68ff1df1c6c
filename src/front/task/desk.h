#pragma once
/* The desk: what this server has taken from the queue of tasks. It claims as many as there are
 * places, keeps its leases, starts and stops the work, and tells the ledger how each attempt ended,
 * until that is acknowledged or refused. It knows no loop, no jobs and no clock but those it is
 * given: so it can be tried against every order of crashes, lost answers and late writes.
 *
 * What it relies on are leases and fences alone: other servers have desks on the same ledger. Work
 * whose lease could not be renewed is stopped before the ledger gives it to another. */

#include "front/ledger/ledger.h"

enum {
    DESK_RENEW_MS = LEDGER_LEASE_MS / 3,
    DESK_MARGIN_MS = LEDGER_LEASE_MS / 3, /* work is stopped so long before its lease is over */
    DESK_REAP_MS = 5000,
    DESK_POLL_MS = 1000,
    DESK_RETRY_MS = 1000,
    DESK_REFUSALS = 6,       /* of an end by the ledger: half a minute */
    DESK_ERROR_BYTES = 4096, /* of each text of an error */
};
#define DESK_PLAIN_END                                                                             \
    "the attempt ended, but its result could not be stored; the server's log says why"

struct desk;

/* How a piece of work ended. */
struct desk_end {
    enum task_state state; /* done, failed or cancelled */
    bool fault;            /* the machine's doing, not the task's own: it is tried again */
    bool uncounted;        /* and the attempt does not count: there was no room, say */
    const char *error_code;
    const char *error_message;
    const char *result; /* JSON, or NULL */
};

struct desk_options {
    const char *node;
    size_t slots;                 /* tasks at a time */
    size_t per_key;               /* of them, of one key, on all servers together */
    int64_t keep_ms;              /* how long ended tasks are kept; 0: for ever */
    int64_t keep_tasks;           /* how many of them; 0: all */
    int64_t keep_bytes;           /* and of their results; 0: all */
    int64_t (*now_ms)(void *ctx); /* monotonic */
    void (*ask)(void *ctx, const struct ledger_ask *ask, ledger_on_answer on_answer,
                void *answer_ctx);
    /* Begins the work of an attempt; desk_ended() comes for it, later. The body may be taken. */
    int (*start)(void *ctx, struct ledger_task *task, struct err *err);
    /* Asks work to end soon. */
    void (*stop)(void *ctx, const char *task, int64_t attempt);
    /* desk_tick() is wanted after so long. */
    void (*wake)(void *ctx, int64_t after_ms);
    void *ctx;
};

struct desk *desk_create(const struct desk_options *options);
/* Whatever it waits for, no answer may come any more. */
void desk_destroy(struct desk *d);
/* Does what is due. */
void desk_tick(struct desk *d);
/* Something was queued. */
void desk_hint(struct desk *d);
/* It was asked to end: the ledger's word would come with the next renewal. */
void desk_cancel(struct desk *d, const char *task);
/* How one ends that could not be begun. Its texts are those of err. */
struct desk_end desk_end_of(const struct err *err);
void desk_ended(struct desk *d, const char *task, int64_t attempt, const struct desk_end *end);
/* Nothing is claimed any more. What is stopped from now on, other than by its owner, is to be tried
 * again. */
void desk_close(struct desk *d);
/* Whether it holds a task, or the ledger does not know yet how one ended, or one may come. */
bool desk_is_busy(const struct desk *d);
