#include "front/ledger/internal.h"

#include "base/mem.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NODE_BEGIN,
    NODE_EPOCH,
    NODE_FREE,
    QUEUE_DUE_IN,
    QUEUE_DUE_OUT,
    QUEUE_NEXT_DUE,
    QUEUE_FIRST_OWNER,
    QUEUE_NEXT_OWNER,
    QUEUE_BEST,
    QUEUE_OUT,
    LEASE_COUNT,
    KEY_JOBS,
    LEASE_ADD,
    LEASE_GET,
    LEASE_RENEW,
    LEASE_DROP,
    LEASE_OVER,
    TASK_START,
    TASK_AGAIN,
    ATTEMPT_ADD,
    ATTEMPT_END,
    ATTEMPT_GET,
    TASK_PRUNE,
    ROOM_ENDED,
    ROOM_RESULTS,
    ROOM_MOST_ENDED,
    ROOM_MOST_RESULTS,
    TASK_PRUNE_OF,
    RESULT_OLDEST,
    RESULT_FORGET,
    RESULT_DROP,
    TASK_ONE_MORE,
};

enum {
    DUE_BATCH = 256,
    RETRY_MS = 1000,
    RETRY_MAX_MS = 60000,
    PRUNE_BATCH = 100,
    RESULT_BATCH = 20
};

static const char *const sql[] = {
    [NODE_BEGIN] = "INSERT INTO nodes VALUES (?1, 1) ON CONFLICT (id) DO UPDATE SET"
                   " epoch = epoch + 1",
    [NODE_EPOCH] = "SELECT epoch FROM nodes WHERE id = ?1",
    [NODE_FREE] = "UPDATE leases SET until_ms = 0 WHERE node = ?1",
    [QUEUE_DUE_IN] = "INSERT INTO queue (task, owner, priority) SELECT task, owner, priority"
                     " FROM scheduled WHERE run_at_ms <= ?1 ORDER BY run_at_ms LIMIT ?2",
    [QUEUE_DUE_OUT] = "DELETE FROM scheduled WHERE run_at_ms <= ?1 AND task IN"
                      " (SELECT task FROM queue)",
    [QUEUE_NEXT_DUE] = "SELECT min(run_at_ms) FROM scheduled",
    [QUEUE_FIRST_OWNER] = "SELECT owner FROM queue ORDER BY owner LIMIT 1",
    [QUEUE_NEXT_OWNER] = "SELECT owner FROM queue WHERE owner > ?1 ORDER BY owner LIMIT 1",
    [QUEUE_BEST] = "SELECT task FROM queue WHERE owner = ?1 ORDER BY priority DESC, task LIMIT 1",
    [QUEUE_OUT] = "DELETE FROM queue WHERE task = ?1",
    [LEASE_COUNT] = "SELECT count(*) FROM leases WHERE owner = ?1",
    [KEY_JOBS] = "SELECT max_jobs FROM keys WHERE id = ?1 AND max_jobs > 0",
    [LEASE_ADD] = "INSERT INTO leases (task, owner, attempt, node, epoch, until_ms)"
                  " SELECT id, owner, attempt, ?2, ?3, ?4 FROM tasks WHERE id = ?1",
    [LEASE_GET] = "SELECT attempt, cancel FROM leases WHERE task = ?1",
    [LEASE_RENEW] = "UPDATE leases SET until_ms = ?5 WHERE task = ?1 AND attempt = ?2"
                    " AND node = ?3 AND epoch = ?4 RETURNING cancel",
    [LEASE_DROP] = "DELETE FROM leases WHERE task = ?1 AND attempt = ?2",
    [LEASE_OVER] = "SELECT task, attempt FROM leases WHERE until_ms <= ?1 LIMIT ?2",
    [TASK_START] = "UPDATE tasks SET state = 1, attempt = attempt + 1, run = ?2,"
                   " started_ms = iif(started_ms = 0, ?3, started_ms) WHERE id = ?1",
    [TASK_AGAIN] = "UPDATE tasks SET state = 0, error_code = ?2, error_message = ?3 WHERE id = ?1"
                   " AND state = 1 RETURNING owner, priority",
    [ATTEMPT_ADD] = "INSERT INTO task_attempts (task, attempt, node, run, started_ms)"
                    " SELECT id, attempt, ?2, run, ?3 FROM tasks WHERE id = ?1",
    [ATTEMPT_END] = "UPDATE task_attempts SET ended_ms = ?3, outcome = ?4, error_code = ?5,"
                    " error_message = ?6 WHERE task = ?1 AND attempt = ?2",
    [ATTEMPT_GET] = "SELECT a.outcome, t.max_attempts FROM task_attempts a JOIN tasks t"
                    " ON t.id = a.task WHERE a.task = ?1 AND a.attempt = ?2",
    [TASK_PRUNE] = "DELETE FROM tasks WHERE id IN (SELECT id FROM tasks WHERE finished_ms > 0"
                   " AND finished_ms < ?1 AND coalesce(hook_state, '') <> 'pending' LIMIT ?2)",
    [ROOM_ENDED] = "SELECT sum(ended) FROM task_room",
    [ROOM_RESULTS] = "SELECT sum(results) FROM task_room",
    [ROOM_MOST_ENDED] = "SELECT owner FROM task_room ORDER BY ended DESC LIMIT 1",
    [ROOM_MOST_RESULTS] = "SELECT owner FROM task_room ORDER BY results DESC LIMIT 1",
    [TASK_PRUNE_OF] = "DELETE FROM tasks WHERE id IN (SELECT id FROM tasks WHERE owner = ?1"
                      " AND finished_ms > 0 AND coalesce(hook_state, '') <> 'pending'"
                      " ORDER BY id LIMIT ?2)",
    [RESULT_OLDEST] = "SELECT id FROM tasks WHERE owner = ?1 AND result_bytes > 0 ORDER BY id"
                      " LIMIT 1",
    [RESULT_FORGET] = "UPDATE tasks SET result_bytes = 0 WHERE id = ?1",
    [RESULT_DROP] = "DELETE FROM task_results WHERE task = ?1",
    [TASK_ONE_MORE] = "UPDATE tasks SET max_attempts = max_attempts + 1 WHERE id = ?1",
};

const struct ledger_statements ledger_queue_statements = {sql, ARRAY_LEN(sql)};

static sqlite3_stmt *ready(struct ledger_db *db, int which, const char *first) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_QUEUE, which);
    store_bind_str(st, 1, first);
    return st;
}

/* The first column of the first row, or `none`. */
static int64_t number_of(sqlite3_stmt *st, int64_t none) {
    bool row = sqlite3_step(st) == SQLITE_ROW && sqlite3_column_type(st, 0) != SQLITE_NULL;
    int64_t n = row ? sqlite3_column_int64(st, 0) : none;
    (void)sqlite3_reset(st);
    return n;
}

static bool id_of(sqlite3_stmt *st, char out[ID_SIZE]) {
    bool row = sqlite3_step(st) == SQLITE_ROW;
    if (row)
        store_column_id(st, 0, out);
    (void)sqlite3_reset(st);
    return row;
}

int ledger_do_node_begin(struct ledger_db *db, const struct ledger_ask *ask,
                         struct ledger_answer *answer, struct err *err) {
    answer->epoch = number_of(ready(db, NODE_EPOCH, ask->node), 0);
    answer->repeated = ask->epoch != answer->epoch;
    if (answer->repeated)
        return 0;
    int rc = store_step(ready(db, NODE_BEGIN, ask->node), "begin", NULL, err);
    if (rc == 0)
        rc = store_step(ready(db, NODE_FREE, ask->node), "begin", NULL, err);
    if (rc == 0)
        rc = ledger_spend_forfeit(db, ask->node, err);
    if (rc == 0)
        answer->epoch = number_of(ready(db, NODE_EPOCH, ask->node), 0);
    return rc;
}

/* --- claims --- */

static int move_due(struct ledger_db *db, struct err *err) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_QUEUE, QUEUE_DUE_IN);
    int64_t now = db->now_ms();
    int64_t moved = 0;
    store_bind_int(st, 1, now);
    store_bind_int(st, 2, DUE_BATCH);
    int rc = store_step(st, "queue what is due", &moved, err);
    if (rc < 0 || moved == 0)
        return rc;
    st = ledger_ready(db, LEDGER_QUEUE, QUEUE_DUE_OUT);
    store_bind_int(st, 1, now);
    return store_step(st, "queue what is due", NULL, err);
}

static int lease(struct ledger_db *db, const char *id, const struct ledger_ask *ask,
                 struct ledger_answer *answer, struct err *err) {
    char run_id[ID_SIZE];
    int64_t now = db->now_ms();
    int rc = store_step(ready(db, QUEUE_OUT, id), "claim", NULL, err);
    if (rc < 0)
        return rc;
    sqlite3_stmt *st = ready(db, TASK_START, id);
    store_bind_str(st, 2, id_new("run", run_id));
    store_bind_int(st, 3, now);
    rc = store_step(st, "claim", NULL, err);
    if (rc < 0)
        return rc;
    st = ready(db, LEASE_ADD, id);
    store_bind_str(st, 2, ask->node);
    store_bind_int(st, 3, ask->epoch);
    store_bind_int(st, 4, now + LEDGER_LEASE_MS);
    rc = store_step(st, "claim", NULL, err);
    if (rc < 0)
        return rc;
    st = ready(db, ATTEMPT_ADD, id);
    store_bind_str(st, 2, ask->node);
    store_bind_int(st, 3, now);
    rc = store_step(st, "claim", NULL, err);
    return rc < 0 ? rc : ledger_task_load(db, id, NULL, true, answer, err);
}

/* How many of a key may be at work: as the server has it, or less, if the key has a limit. */
static int64_t most_of(struct ledger_db *db, const char *owner, const struct ledger_ask *ask) {
    int64_t per_key = (int64_t)ask->per_key;
    return MIN(number_of(ready(db, KEY_JOBS, owner), per_key), per_key);
}

/* Keys take turns, each with the best of its own; a key that has as many at work as it may is
 * passed over. */
static int claim_some(struct ledger_db *db, const struct ledger_ask *ask,
                      struct ledger_answer *answer, struct err *err) {
    size_t at_last_wrap = (size_t)-1;
    int rc = 0;
    while (rc == 0 && answer->ntasks < ask->limit) {
        char task[ID_SIZE];
        sqlite3_stmt *next = db->turn_set ? ready(db, QUEUE_NEXT_OWNER, db->turn)
                                          : ledger_ready(db, LEDGER_QUEUE, QUEUE_FIRST_OWNER);
        if (!id_of(next, db->turn)) {
            db->turn_set = false;
            if (at_last_wrap == answer->ntasks)
                break; /* a whole round, and nobody had one */
            at_last_wrap = answer->ntasks;
            continue;
        }
        db->turn_set = true;
        if (number_of(ready(db, LEASE_COUNT, db->turn), 0) < most_of(db, db->turn, ask) &&
            id_of(ready(db, QUEUE_BEST, db->turn), task))
            rc = lease(db, task, ask, answer, err);
    }
    return rc;
}

int ledger_do_claim(struct ledger_db *db, const struct ledger_ask *ask,
                    struct ledger_answer *answer, struct err *err) {
    if (number_of(ready(db, NODE_EPOCH, ask->node), 0) != ask->epoch)
        return err_set(err, ERR_CONFLICT, "this server has begun anew elsewhere");
    int rc = move_due(db, err);
    if (rc == 0)
        rc = claim_some(db, ask, answer, err);
    int64_t due = number_of(ledger_ready(db, LEDGER_QUEUE, QUEUE_NEXT_DUE), -1);
    if (due >= 0)
        answer->next_ms = MAX(due - db->now_ms(), 0);
    return rc;
}

int ledger_do_renew(struct ledger_db *db, const struct ledger_ask *ask,
                    struct ledger_answer *answer, struct err *err) {
    (void)err;
    answer->holds = xcalloc(MAX(ask->nholds, 1), sizeof(*answer->holds));
    for (size_t i = 0; i < ask->nholds; i++) {
        struct ledger_hold *h = &answer->holds[answer->nholds++];
        *h = ask->holds[i];
        sqlite3_stmt *st = ready(db, LEASE_RENEW, h->task);
        store_bind_int(st, 2, h->attempt);
        store_bind_str(st, 3, ask->node);
        store_bind_int(st, 4, ask->epoch);
        store_bind_int(st, 5, db->now_ms() + LEDGER_LEASE_MS);
        int64_t cancel = number_of(st, -1);
        h->lost = cancel < 0;
        h->cancel = cancel > 0;
    }
    return 0;
}

/* --- ends --- */

/* 1 s, 4 s, 16 s, a minute; up to a quarter more, so that what failed together does not come
 * together again. */
static int64_t back_off(const char *id, int64_t attempt) {
    int64_t ms = RETRY_MS;
    for (int64_t i = 1; i < attempt && ms < RETRY_MAX_MS; i++)
        ms *= 4;
    ms = MIN(ms, RETRY_MAX_MS);
    uint32_t h = 2166136261U;
    for (const char *p = id; *p; p++)
        h = (h ^ (unsigned char)*p) * 16777619U;
    return ms + (int64_t)(h % 256) * ms / 1024;
}

static int try_again(struct ledger_db *db, const char *id, int64_t attempt,
                     const struct ledger_task *end, struct err *err) {
    char owner[ID_SIZE];
    sqlite3_stmt *st = ready(db, TASK_AGAIN, id);
    store_bind_str(st, 2, end->error_code);
    store_bind_str(st, 3, end->error_message);
    bool row = sqlite3_step(st) == SQLITE_ROW;
    int64_t priority = row ? sqlite3_column_int64(st, 1) : 0;
    if (row)
        store_column_id(st, 0, owner);
    (void)sqlite3_reset(st);
    return row ? ledger_task_wait(db, id, owner, priority, db->now_ms() + back_off(id, attempt),
                                  err)
               : store_error(db->db, err, "queue a task again");
}

/* What was said of an attempt that has ended; NULL: it has not. The caller frees it. */
static char *outcome_of(struct ledger_db *db, const char *id, int64_t attempt,
                        int64_t *ret_max_attempts) {
    sqlite3_stmt *st = ready(db, ATTEMPT_GET, id);
    store_bind_int(st, 2, attempt);
    bool row = sqlite3_step(st) == SQLITE_ROW;
    char *outcome = row ? store_column_dup(st, 0) : NULL;
    *ret_max_attempts = row ? sqlite3_column_int64(st, 1) : 0;
    (void)sqlite3_reset(st);
    return outcome;
}

/* fault: what became of it is not the task's own doing. */
static int end_attempt(struct ledger_db *db, const struct ledger_task *end, bool fault,
                       bool cancelled, struct err *err) {
    int64_t most = 0;
    free(outcome_of(db, end->id, end->attempt, &most));
    sqlite3_stmt *st = ready(db, LEASE_DROP, end->id);
    store_bind_int(st, 2, end->attempt);
    int rc = store_step(st, "end an attempt", NULL, err);
    if (rc < 0)
        return rc;
    st = ready(db, ATTEMPT_END, end->id);
    store_bind_int(st, 2, end->attempt);
    store_bind_int(st, 3, db->now_ms());
    store_bind_str(st, 4, fault ? "fault" : task_state_name(end->state));
    store_bind_str(st, 5, end->error_code);
    store_bind_str(st, 6, end->error_message);
    rc = store_step(st, "end an attempt", NULL, err);
    if (rc < 0)
        return rc;
    if (fault && !cancelled && end->attempt < most)
        return try_again(db, end->id, end->attempt, end, err);
    struct ledger_task last = *end;
    if (fault)
        last.state = cancelled ? TASK_CANCELLED : TASK_INTERRUPTED;
    return ledger_task_end(db, end->id, &last, err);
}

int ledger_do_finish(struct ledger_db *db, const struct ledger_ask *ask,
                     struct ledger_answer *answer, struct err *err) {
    const struct ledger_task *t = ask->task;
    sqlite3_stmt *st = ready(db, LEASE_GET, t->id);
    bool held = sqlite3_step(st) == SQLITE_ROW && sqlite3_column_int64(st, 0) == t->attempt;
    bool cancelled = held && sqlite3_column_int64(st, 1) != 0;
    (void)sqlite3_reset(st);
    int rc = 0;
    if (held && ask->fault && ask->uncounted)
        rc = store_step(ready(db, TASK_ONE_MORE, t->id), "end an attempt", NULL, err);
    if (held)
        return rc < 0 ? rc : end_attempt(db, t, ask->fault, cancelled, err);
    /* Either this was said before and the answer was lost, or it comes too late. */
    int64_t most;
    _cleanup_(free) char *before = outcome_of(db, t->id, t->attempt, &most);
    const char *now = ask->fault ? "fault" : task_state_name(t->state);
    answer->repeated = before && strcmp(before, now) == 0;
    if (answer->repeated)
        return 0;
    return err_set(err, ERR_CONFLICT, "attempt %lld of %s does not count any more",
                   (long long)t->attempt, t->id);
}

static size_t list_over(struct ledger_db *db, size_t max, struct ledger_hold *out) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_QUEUE, LEASE_OVER);
    size_t n = 0;
    store_bind_int(st, 1, db->now_ms());
    store_bind_int(st, 2, (int64_t)max);
    while (n < max && sqlite3_step(st) == SQLITE_ROW) {
        store_column_id(st, 0, out[n].task);
        out[n++].attempt = sqlite3_column_int64(st, 1);
    }
    (void)sqlite3_reset(st);
    return n;
}

/* --- what is kept --- */

/* Of the key that has the most, the oldest. */
static int prune_tasks(struct ledger_db *db, int64_t keep, bool *ret_more, struct err *err) {
    char owner[ID_SIZE];
    int64_t gone = 0;
    int64_t beyond = number_of(ledger_ready(db, LEDGER_QUEUE, ROOM_ENDED), 0) - keep;
    if (beyond <= 0 || !id_of(ledger_ready(db, LEDGER_QUEUE, ROOM_MOST_ENDED), owner))
        return 0;
    sqlite3_stmt *st = ready(db, TASK_PRUNE_OF, owner);
    store_bind_int(st, 2, MIN(beyond, (int64_t)PRUNE_BATCH));
    int rc = store_step(st, "forget tasks", &gone, err);
    *ret_more = *ret_more || (gone > 0 && gone < beyond);
    return rc;
}

/* The task stays, and so does its Idempotency-Key; its run may have the result still. */
static int prune_results(struct ledger_db *db, int64_t keep, bool *ret_more, struct err *err) {
    int rc = 0;
    for (int i = 0; rc == 0; i++) {
        char owner[ID_SIZE];
        char task[ID_SIZE];
        if (number_of(ledger_ready(db, LEDGER_QUEUE, ROOM_RESULTS), 0) <= keep ||
            !id_of(ledger_ready(db, LEDGER_QUEUE, ROOM_MOST_RESULTS), owner) ||
            !id_of(ready(db, RESULT_OLDEST, owner), task))
            break;
        if (i == RESULT_BATCH) {
            *ret_more = true;
            break;
        }
        rc = store_step(ready(db, RESULT_DROP, task), "forget a result", NULL, err);
        if (rc == 0)
            rc = store_step(ready(db, RESULT_FORGET, task), "forget a result", NULL, err);
    }
    return rc;
}

static int prune_old(struct ledger_db *db, int64_t keep_ms, struct err *err) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_QUEUE, TASK_PRUNE);
    store_bind_int(st, 1, db->now_ms() - keep_ms);
    store_bind_int(st, 2, PRUNE_BATCH);
    return store_step(st, "forget tasks", NULL, err);
}

int ledger_do_reap(struct ledger_db *db, const struct ledger_ask *ask, struct ledger_answer *answer,
                   struct err *err) {
    struct ledger_hold over[64];
    size_t n = list_over(db, MIN(ask->limit, ARRAY_LEN(over)), over);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct ledger_task end = {.attempt = over[i].attempt,
                                  .error_code = (char *)(uintptr_t) "interrupted",
                                  .error_message =
                                      (char *)(uintptr_t) "the server that ran it is gone"};
        memcpy(end.id, over[i].task, sizeof(end.id));
        bool cancelled = false;
        sqlite3_stmt *st = ready(db, LEASE_GET, end.id);
        cancelled = sqlite3_step(st) == SQLITE_ROW && sqlite3_column_int64(st, 1) != 0;
        (void)sqlite3_reset(st);
        rc = end_attempt(db, &end, true, cancelled, err);
    }
    answer->count = (int64_t)n;
    if (rc == 0)
        rc = ledger_spend_prune(db, err);
    if (rc == 0 && ask->keep_ms > 0)
        rc = prune_old(db, ask->keep_ms, err);
    if (rc == 0 && ask->keep_tasks > 0)
        rc = prune_tasks(db, ask->keep_tasks, &answer->repeated, err);
    if (rc == 0 && ask->keep_bytes > 0)
        rc = prune_results(db, ask->keep_bytes, &answer->repeated, err);
    return rc;
}
