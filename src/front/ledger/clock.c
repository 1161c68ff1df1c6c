#include "front/ledger/internal.h"

#include "base/log.h"

#include <sqlite3.h>
#include <stdlib.h>

/* Leases, retries and messages that wait are durations, but the ledger has to remember them across
 * restarts, so they are stored as times of the wall clock. When somebody sets that clock while a
 * server runs, they would be over at once, or not for hours. So a server that has begun compares
 * the wall clock with the monotonic one before each transaction, and when the wall clock has jumped
 * it moves all stored ends of durations by as much. What users see and ask for (created_at, run_at,
 * days, what is kept for how long) stays as it is: that is meant by the wall clock.
 *
 * A clock that jumped while no server ran is not noticed. Leases do not matter then, since they are
 * over when a server begins; what waits for another try is held to the longest wait there is. */

enum { JUMP_MS = 1000, RETRY_WAIT_MAX_MS = 75000, HOOK_WAIT_MAX_MS = 21600000 };

enum {
    MOVE_LEASES,
    MOVE_RETRIES,
    MOVE_HOOKS,
    MOVE_RESERVES,
    MOVE_SETTLED,
    BOUND_RETRIES,
    BOUND_HOOKS
};

static const char *const sql[] = {
    /* 0 is the end of a lease whose server began again. */
    [MOVE_LEASES] = "UPDATE leases SET until_ms = until_ms + ?1 WHERE until_ms > 0",
    [MOVE_RETRIES] = "UPDATE scheduled SET run_at_ms = run_at_ms + ?1 WHERE task IN"
                     " (SELECT id FROM tasks WHERE attempt > 0)",
    [MOVE_HOOKS] = "UPDATE outbox SET next_ms = next_ms + ?1",
    [MOVE_RESERVES] = "UPDATE reserves SET until_ms = until_ms + ?1 WHERE settled_ms = 0",
    [MOVE_SETTLED] = "UPDATE reserves SET settled_ms = settled_ms + ?1 WHERE settled_ms > 0",
    [BOUND_RETRIES] = "UPDATE scheduled SET run_at_ms = ?1 WHERE run_at_ms > ?1 AND task IN"
                      " (SELECT id FROM tasks WHERE attempt > 0)",
    [BOUND_HOOKS] = "UPDATE outbox SET next_ms = ?1 WHERE next_ms > ?1",
};

const struct ledger_statements ledger_clock_statements = {sql, ARRAY_LEN(sql)};

static int clock_run(struct ledger_db *db, int which, int64_t ms, struct err *err) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_CLOCK, which);
    store_bind_int(st, 1, ms);
    return store_step(st, "follow the clock", NULL, err);
}

int ledger_clock_begin(struct ledger_db *db, struct err *err) {
    if (db->follows_clock)
        return 0;
    int64_t now = db->now_ms();
    int rc = clock_run(db, BOUND_RETRIES, now + RETRY_WAIT_MAX_MS, err);
    if (rc == 0)
        rc = clock_run(db, BOUND_HOOKS, now + HOOK_WAIT_MAX_MS, err);
    if (rc < 0)
        return rc;
    db->follows_clock = true;
    db->wall_offset_ms = now - db->mono_ms();
    return 0;
}

int ledger_clock_follow(struct ledger_db *db, struct err *err) {
    db->jumped_ms = 0;
    if (!db->follows_clock)
        return 0;
    int64_t jumped = db->now_ms() - db->mono_ms() - db->wall_offset_ms;
    if (llabs(jumped) < JUMP_MS)
        return 0;
    for (int i = MOVE_LEASES; i <= MOVE_SETTLED; i++) {
        int rc = clock_run(db, i, jumped, err);
        if (rc < 0)
            return rc;
    }
    db->jumped_ms = jumped;
    return 0;
}

void ledger_clock_followed(struct ledger_db *db) {
    if (db->jumped_ms == 0)
        return;
    log_warn("ledger.clock", "jumped_ms", db->jumped_ms);
    db->wall_offset_ms += db->jumped_ms;
    db->jumped_ms = 0;
}
