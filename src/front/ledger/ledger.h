#pragma once
/* The ledger: what several servers share and must agree on, as against the store, which is what
 * this server did. It may be a round trip away: nothing here has its answer when a call returns.
 * What every request needs, the keys, is therefore a copy in the front (front/keys.h) that the
 * ledger keeps fresh.
 *
 * Behind it is a back end: SQLite (sqlite.c) now, PostgreSQL next. What each promises:
 *  - Keys: it tells all that are valid soon after it was opened and whenever they have changed,
 * with a version that grows; while they have not, it confirms that version at least every
 *    LEDGER_CONFIRM_MS. What another process changed is told within that time at the latest. A copy
 *    that was not confirmed for LEDGER_STALE_MS is not used any more (503), so a server that is cut
 *    off from the ledger lets a revoked key in for no longer than that. */

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
    int64_t rate_per_minute; /* 0: no limit */
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

struct ledger;
struct ledger_db;

/* The SQLite back end, on a file that was opened before (db.h) and is borrowed. The keys are told
 * before this returns. */
int ledger_open(uv_loop_t *loop, struct ledger_db *db, const struct ledger_watch *watch,
                struct ledger **ret_ledger, struct err *err);
/* Has the keys told or confirmed as soon as that can be: with SQLite before it returns. */
void ledger_refresh(void *ledger);
/* Memory goes from the loop. NULL is allowed. */
void ledger_close(struct ledger *l);
