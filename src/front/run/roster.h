#pragma once
/* The roster: the front's copy of the list of deployed workers, all keys', without their code.
 * Every call, binding and host name is looked up in it, without a call of the ledger, which tells
 * it what changes. When the ledger has been silent for too long, nobody is found until it is back:
 * what was deleted elsewhere is not served for longer than that. */

#include "front/ledger/ledger.h"

struct roster;

/* now_ms: clock_mono_ms, but for tests. */
struct roster *roster_create(int64_t (*now_ms)(void));
void roster_destroy(struct roster *r);
/* For ledger_watch_workers(). */
struct ledger_worker_watch roster_watch(struct roster *r);
/* How it asks the ledger to tell or confirm, before it finds nobody. */
void roster_on_stale(struct roster *r, void (*look)(void *ctx), void *ctx);
/* Called whenever the list has become another one, also inside roster_find() and the like. */
void roster_on_change(struct roster *r, void (*changed)(void *ctx), void *ctx);

/* ERR_NOT_FOUND; ERR_UNAVAILABLE if the ledger is silent. */
int roster_find(struct roster *r, const char *owner, const char *id,
                struct ledger_worker *ret_worker, struct err *err);
int roster_find_label(struct roster *r, const char *label, struct ledger_worker *ret_worker,
                      struct err *err);
/* An owner's, by id: an array that is the roster's until the loop goes on. */
int roster_list(struct roster *r, const char *owner, struct ledger_worker *const **ret_workers,
                size_t *ret_n, struct err *err);
