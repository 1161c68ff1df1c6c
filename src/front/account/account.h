#pragma once
/* Accounts: what keys spend on models. Before a model is called, by the front or from a sandbox,
 * the worst that the call may cost is set aside in the ledger; afterwards what it really used is
 * put down. So a server that dies has charged its keys what was used and what was in flight. A key
 * without limits has nothing set aside; its usage is added up in memory and put down within a
 * second (tally.h).
 *
 * A hold is one such call or job: from account_hold_*() until account_settle*(), or until on_held
 * has said that there is none. While it lasts its lease is renewed. What the ledger could not be
 * told is told again, until it has acknowledged it. */

#include "base/err.h"
#include "front/job/job.h"
#include "front/ledger/keyring.h"
#include "front/ledger/ledger.h"
#include "front/model/catalog.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct accounts;
struct account_hold;

struct accounts_options {
    uv_loop_t *loop;
    struct ledger *ledger;
    struct keyring *keys;
    struct model_price dearest; /* stands for prices that are not known */
};

struct accounts *accounts_create(const struct accounts_options *options);
/* Tells the ledger what it does not know yet. No hold is left. Before ledger_close(). */
void accounts_close(struct accounts *a);
/* After it: whatever was asked is answered. */
void accounts_destroy(struct accounts *a);

struct account_grant {
    int64_t max_tokens; /* of the answer of a call; 0: no limit */
    int64_t tokens;     /* all that it may use; each INT64_MAX: no limit */
    int64_t nusd;
};
/* Comes once, from the loop, unless the hold is settled before. err: nothing is held, and the hold
 * is gone; ERR_QUOTA if the key has spent what it may today, ERR_RATE if other calls hold the rest
 * and did not give it back while this one waited. */
typedef void (*account_on_held)(void *ctx, const struct account_grant *grant,
                                const struct err *err);

struct account_call {
    const char *owner;
    const char *key;  /* "" for the operator */
    const char *kind; /* of the job */
    const struct model_info *model;
    size_t input_bytes; /* what the model will read */
    int64_t max_tokens; /* of its answer; 0: as many as it can */
    int64_t searches;   /* by the provider's tool, at most */
    int64_t wait_ms;    /* for what other calls hold, beyond the usual time; 0: no longer */
};
struct account_hold *account_hold_call(struct accounts *a, const struct account_call *call,
                                       account_on_held on_held, void *ctx);
/* A job whose model is called from a sandbox. Nothing is set aside for it as a whole, but for each
 * of its calls; it begins only if the key has something left. */
struct account_job {
    const char *owner;
    const char *key;
    const char *kind;
    const struct model_info *model;
    /* Comes once at most, from the loop, while it is held: the key was revoked, and what calls the
     * model without asking here first must end. */
    void (*on_revoked)(void *ctx, const struct err *err);
};
struct account_hold *account_hold_job(struct accounts *a, const struct account_job *job,
                                      account_on_held on_held, void *ctx);

/* A call that cay-egress is about to pass on, with what it may use at most and what an answer of a
 * useful length costs. */
struct account_remote {
    const char *owner;
    const char *key;
    const char *kind;
    const struct model_info *model;
    int64_t input_tokens, output_tokens;
    int64_t nusd, nusd_least;
};
struct account_hold *account_hold_remote(struct accounts *a, const struct account_remote *call,
                                         account_on_held on_held, void *ctx);

/* Whether so much is more than what was set aside. */
bool account_is_exceeded(const struct account_hold *h, const struct model_usage *used);
/* What it has used; NULL: nothing. The pointer is dead. */
void account_settle(struct account_hold *h, const struct model_usage *used);
/* The same, with what another has counted. */
void account_settle_as(struct account_hold *h, const struct model_usage *used, int64_t cost_nusd);

/* Whether anything is set aside for the jobs of this key. */
bool account_has_limits(struct accounts *a, const char *key);
/* What stands for a price that is not known. */
const struct model_price *accounts_dearest(const struct accounts *a);

/* Tells the ledger of what was added up: so who asks it next hears of it. */
void accounts_tell(struct accounts *a);
/* A job has ended. */
void account_count_job(struct accounts *a, const struct job_ended *ended);
