#include "front/ledger/internal.h"

#include "base/log.h"
#include "base/mem.h"
#include "front/common/share.h"

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
    LEASE_COUNT_HERE,
    PROJECT_JOBS,
    PROJECT_OTHERS,
    KEY_IS_BUSY,
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
    LEASE_LATER,
    ONE_BEGIN,
    ONE_UNDO,
    ONE_DONE,
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
    [LEASE_COUNT_HERE] = "SELECT count(*) FROM leases WHERE owner = ?1 AND node = ?2",
    [PROJECT_JOBS] = "SELECT max_jobs FROM projects WHERE id = ?1 AND max_jobs > 0",
    [PROJECT_OTHERS] = "SELECT count(*) FROM (SELECT 1 FROM projects LIMIT 2)",
    /* Whether the key of a task has as many at work as it may. */
    [KEY_IS_BUSY] = "SELECT (SELECT count(*) FROM leases l JOIN tasks o ON o.id = l.task"
                    " WHERE l.owner = t.owner AND o.key = t.key) >= k.max_jobs"
                    " FROM tasks t JOIN keys k ON k.id = t.key AND k.max_jobs > 0 WHERE t.id = ?1",
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
    [LEASE_LATER] = "UPDATE leases SET until_ms = ?2 WHERE task = ?1",
    [ONE_BEGIN] = "SAVEPOINT one",
    [ONE_UNDO] = "ROLLBACK TO one",
    [ONE_DONE] = "RELEASE one",
    [TASK_ONE_MORE] = "UPDATE tasks SET max_attempts = max_attempts + 1 WHERE id = ?1",
};

const struct ledger_statements ledger_queue_statements = {sql, ARRAY_LEN(sql)};

static sqlite3_stmt *ledger_queue_ready(struct ledger_db *db, int which, const char *first) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_QUEUE, which);
    store_bind_str(st, 1, first);
    return st;
}

/* The first column of the first row, or `none`. */
static int64_t ledger_queue_number_of(sqlite3_stmt *st, int64_t none) {
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

static int64_t ledger_queue_epoch(struct ledger_db *db, const char *node) {
    return ledger_queue_number_of(ledger_queue_ready(db, NODE_EPOCH, node), 0);
}

int ledger_do_node_begin(struct ledger_db *db, const struct ledger_node_begin *ask,
                         struct ledger_node_begun *ret, struct err *err) {
    bool begins = ask->epoch == ledger_queue_epoch(db, ask->node);
    int rc = 0;
    if (begins)
        rc = store_step(ledger_queue_ready(db, NODE_BEGIN, ask->node), "begin", NULL, err);
    if (begins && rc == 0)
        rc = store_step(ledger_queue_ready(db, NODE_FREE, ask->node), "begin", NULL, err);
    if (begins && rc == 0)
        rc = ledger_spend_forfeit(db, ask->node, err);
    if (begins && rc == 0)
        rc = ledger_clock_begin(db, err);
    if (rc < 0)
        return rc;
    *ret = (struct ledger_node_begun){.epoch = ledger_queue_epoch(db, ask->node), .begun = begins};
    return 0;
}

/* --- what is due --- */

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

/* --- how an attempt ends --- */

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

static int try_again(struct ledger_db *db, const struct ledger_task_end *end, struct err *err) {
    char owner[ID_SIZE];
    int64_t at_ms = db->now_ms() + back_off(end->id, end->attempt);
    sqlite3_stmt *st = ledger_queue_ready(db, TASK_AGAIN, end->id);
    store_bind_str(st, 2, end->error_code);
    store_bind_str(st, 3, end->error_message);
    bool row = sqlite3_step(st) == SQLITE_ROW;
    int64_t priority = row ? sqlite3_column_int64(st, 1) : 0;
    if (row)
        store_column_id(st, 0, owner);
    (void)sqlite3_reset(st);
    return row ? ledger_task_wait(db, end->id, owner, priority, at_ms, err)
               : store_error(db->db, err, "queue a task again");
}

/* What was said of an attempt that has ended; NULL: it has not. The caller frees it. */
static char *outcome_of(struct ledger_db *db, const char *id, int64_t attempt,
                        int64_t *ret_max_attempts) {
    sqlite3_stmt *st = ledger_queue_ready(db, ATTEMPT_GET, id);
    store_bind_int(st, 2, attempt);
    bool row = sqlite3_step(st) == SQLITE_ROW;
    char *outcome = row ? store_column_dup(st, 0) : NULL;
    *ret_max_attempts = row ? sqlite3_column_int64(st, 1) : 0;
    (void)sqlite3_reset(st);
    return outcome;
}

static int end_attempt(struct ledger_db *db, const struct ledger_task_end *end, bool cancelled,
                       struct err *err) {
    int64_t most = 0;
    free(outcome_of(db, end->id, end->attempt, &most));
    sqlite3_stmt *st = ledger_queue_ready(db, LEASE_DROP, end->id);
    store_bind_int(st, 2, end->attempt);
    int rc = store_step(st, "end an attempt", NULL, err);
    if (rc < 0)
        return rc;
    st = ledger_queue_ready(db, ATTEMPT_END, end->id);
    store_bind_int(st, 2, end->attempt);
    store_bind_int(st, 3, db->now_ms());
    store_bind_str(st, 4, end->fault ? "fault" : task_state_name(end->state));
    store_bind_str(st, 5, end->error_code);
    store_bind_str(st, 6, end->error_message);
    rc = store_step(st, "end an attempt", NULL, err);
    if (rc < 0)
        return rc;
    if (end->fault && !cancelled && end->attempt < most)
        return try_again(db, end, err);
    struct ledger_task_end last = *end;
    if (end->fault)
        last.state = cancelled ? TASK_CANCELLED : TASK_INTERRUPTED;
    return ledger_task_set_end(db, &last, err);
}

/* A task whose body is damaged ends by itself: those that are claimed with it go on. */
static int end_unreadable(struct ledger_db *db, const char *id, struct err *err) {
    struct ledger_task_end end = {
        .id = id,
        .attempt = ledger_queue_number_of(ledger_queue_ready(db, LEASE_GET, id), 0),
        .state = TASK_FAILED,
        .error_code = err_name(ERR_INTERNAL),
        .error_message = "the body of this task is damaged in the ledger: submit the task again"};
    return end_attempt(db, &end, false, err);
}

/* --- claims --- */

static int ledger_queue_lease(struct ledger_db *db, const char *id,
                              const struct ledger_task_claim *ask, struct ledger_task_claimed *out,
                              struct err *err) {
    struct ledger_task t = {0};
    char run_id[ID_SIZE];
    int64_t now = db->now_ms();
    int rc = store_step(ledger_queue_ready(db, QUEUE_OUT, id), "claim", NULL, err);
    if (rc < 0)
        return rc;
    sqlite3_stmt *st = ledger_queue_ready(db, TASK_START, id);
    store_bind_str(st, 2, id_new("run", run_id));
    store_bind_int(st, 3, now);
    rc = store_step(st, "claim", NULL, err);
    if (rc < 0)
        return rc;
    st = ledger_queue_ready(db, LEASE_ADD, id);
    store_bind_str(st, 2, ask->node);
    store_bind_int(st, 3, ask->epoch);
    store_bind_int(st, 4, now + LEDGER_LEASE_MS);
    rc = store_step(st, "claim", NULL, err);
    if (rc < 0)
        return rc;
    st = ledger_queue_ready(db, ATTEMPT_ADD, id);
    store_bind_str(st, 2, ask->node);
    store_bind_int(st, 3, now);
    rc = store_step(st, "claim", NULL, err);
    if (rc < 0)
        return rc;
    if (ledger_task_load(db, id, NULL, true, &t, err) < 0 || !t.body) {
        ledger_task_finish(&t);
        return end_unreadable(db, id, err);
    }
    out->tasks = ledger_grow(out->tasks, out->n, sizeof(*out->tasks));
    out->tasks[out->n++] = t;
    return 0;
}

/* How many of a key may be at work: as the server has it, or less, if the key has a limit. */
static int64_t most_of(struct ledger_db *db, const char *owner,
                       const struct ledger_task_claim *ask) {
    int64_t per_key = (int64_t)ask->per_key;
    return MIN(ledger_queue_number_of(ledger_queue_ready(db, PROJECT_JOBS, owner), per_key),
               per_key);
}

/* How many keys have something in the queue, up to a number. */
static size_t owners_waiting(struct ledger_db *db, size_t max) {
    char owner[ID_SIZE];
    size_t n = 0;
    bool more = max > 0 && id_of(ledger_ready(db, LEDGER_QUEUE, QUEUE_FIRST_OWNER), owner);
    for (; more && n < max; n++)
        more = id_of(ledger_queue_ready(db, QUEUE_NEXT_OWNER, owner), owner);
    return n;
}

/* Whether a key that has something at work on this server may have one more of its slots. A part
 * (share_of()) is kept for keys that have nothing at work, since what runs is not taken back: it
 * may take hours. Of few slots that part is one, which the second key takes: two are kept, so that
 * two keys never hold up a third. While several keys wait, each has an equal part of the rest. */
static bool may_have_more(struct ledger_db *db, const char *owner,
                          const struct ledger_task_claim *ask, size_t waiting, size_t free_slots) {
    /* Where there is no project but the default one, it has all slots. */
    bool alone =
        !*owner && ledger_queue_number_of(ledger_ready(db, LEDGER_QUEUE, PROJECT_OTHERS), 0) < 2;
    size_t part = share_of(alone ? "" : "any", ask->slots);
    if (part < ask->slots && ask->slots > 2)
        part = MIN(part, ask->slots - 2);
    size_t parts = MAX(waiting, (size_t)1);
    sqlite3_stmt *st = ledger_queue_ready(db, LEASE_COUNT_HERE, owner);
    store_bind_str(st, 2, ask->node);
    size_t here = (size_t)ledger_queue_number_of(st, 0);
    return here == 0 || ask->slots == 0 ||
           (free_slots > ask->slots - part && here < (part + parts - 1) / parts);
}

/* Projects take turns, each with the best of its own; one that has as many at work as it may, or
 * the key of whose best task has, is passed over. */
static int ledger_queue_claim_some(struct ledger_db *db, const struct ledger_task_claim *ask,
                                   struct ledger_task_claimed *out, struct err *err) {
    size_t taken = 0; /* those too that are damaged, and not in the answer */
    size_t at_last_wrap = (size_t)-1;
    size_t waiting = owners_waiting(db, ask->slots);
    int rc = 0;
    while (rc == 0 && out->n < ask->limit) {
        char task[ID_SIZE];
        sqlite3_stmt *next = db->turn_set ? ledger_queue_ready(db, QUEUE_NEXT_OWNER, db->turn)
                                          : ledger_ready(db, LEDGER_QUEUE, QUEUE_FIRST_OWNER);
        if (!id_of(next, db->turn)) {
            db->turn_set = false;
            if (at_last_wrap == taken)
                break; /* a whole round, and nobody had one */
            at_last_wrap = taken;
            continue;
        }
        db->turn_set = true;
        if (ledger_queue_number_of(ledger_queue_ready(db, LEASE_COUNT, db->turn), 0) <
                most_of(db, db->turn, ask) &&
            may_have_more(db, db->turn, ask, waiting, ask->limit - out->n) &&
            id_of(ledger_queue_ready(db, QUEUE_BEST, db->turn), task) &&
            ledger_queue_number_of(ledger_queue_ready(db, KEY_IS_BUSY, task), 0) == 0) {
            rc = ledger_queue_lease(db, task, ask, out, err);
            taken++;
        }
    }
    return rc;
}

int ledger_do_task_claim(struct ledger_db *db, const struct ledger_task_claim *ask,
                         struct ledger_task_claimed *ret, struct err *err) {
    struct ledger_task_claimed out = {.next_ms = -1};
    if (ledger_queue_epoch(db, ask->node) != ask->epoch)
        return err_set(err, ERR_CONFLICT, "this server has begun anew elsewhere");
    int rc = move_due(db, err);
    if (rc == 0)
        rc = ledger_queue_claim_some(db, ask, &out, err);
    if (rc < 0) {
        ledger_tasks_free(out.tasks, out.n);
        return rc;
    }
    int64_t due = ledger_queue_number_of(ledger_ready(db, LEDGER_QUEUE, QUEUE_NEXT_DUE), -1);
    if (due >= 0)
        out.next_ms = MAX(due - db->now_ms(), 0);
    *ret = out;
    return 0;
}

int ledger_do_task_renew(struct ledger_db *db, const struct ledger_task_renew *ask,
                         struct ledger_task_renewed *ret, struct err *err) {
    (void)err;
    ret->leases = xcalloc(MAX(ask->n, 1), sizeof(*ret->leases));
    ret->n = ask->n;
    for (size_t i = 0; i < ask->n; i++) {
        const struct ledger_lease *l = &ask->leases[i];
        sqlite3_stmt *st = ledger_queue_ready(db, LEASE_RENEW, l->task);
        store_bind_int(st, 2, l->attempt);
        store_bind_str(st, 3, ask->node);
        store_bind_int(st, 4, ask->epoch);
        store_bind_int(st, 5, db->now_ms() + LEDGER_LEASE_MS);
        int64_t cancel = ledger_queue_number_of(st, -1);
        ret->leases[i] =
            (struct ledger_lease_renewed){.lease = *l,
                                          .state = cancel < 0   ? LEDGER_LEASE_LOST
                                                   : cancel > 0 ? LEDGER_LEASE_CANCELLED
                                                                : LEDGER_LEASE_KEPT};
    }
    return 0;
}

/* --- ends --- */

int ledger_do_task_end(struct ledger_db *db, const struct ledger_task_end *ask, struct err *err) {
    sqlite3_stmt *st = ledger_queue_ready(db, LEASE_GET, ask->id);
    bool held = sqlite3_step(st) == SQLITE_ROW && sqlite3_column_int64(st, 0) == ask->attempt;
    bool cancelled = held && sqlite3_column_int64(st, 1) != 0;
    (void)sqlite3_reset(st);
    int rc = 0;
    if (held && ask->fault && ask->uncounted)
        rc =
            store_step(ledger_queue_ready(db, TASK_ONE_MORE, ask->id), "end an attempt", NULL, err);
    if (held)
        return rc < 0 ? rc : end_attempt(db, ask, cancelled, err);
    /* Either this was said before and the answer was lost, or it comes too late. */
    int64_t most;
    _cleanup_(free) char *before = outcome_of(db, ask->id, ask->attempt, &most);
    const char *now = ask->fault ? "fault" : task_state_name(ask->state);
    if (before && strcmp(before, now) == 0)
        return 0;
    return err_set(err, ERR_CONFLICT, "attempt %lld of %s does not count any more",
                   (long long)ask->attempt, ask->id);
}

static size_t list_over(struct ledger_db *db, size_t max, struct ledger_lease *out) {
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
    int64_t beyond = ledger_queue_number_of(ledger_ready(db, LEDGER_QUEUE, ROOM_ENDED), 0) - keep;
    if (beyond <= 0 || !id_of(ledger_ready(db, LEDGER_QUEUE, ROOM_MOST_ENDED), owner))
        return 0;
    sqlite3_stmt *st = ledger_queue_ready(db, TASK_PRUNE_OF, owner);
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
        if (ledger_queue_number_of(ledger_ready(db, LEDGER_QUEUE, ROOM_RESULTS), 0) <= keep ||
            !id_of(ledger_ready(db, LEDGER_QUEUE, ROOM_MOST_RESULTS), owner) ||
            !id_of(ledger_queue_ready(db, RESULT_OLDEST, owner), task))
            break;
        if (i == RESULT_BATCH) {
            *ret_more = true;
            break;
        }
        rc = store_step(ledger_queue_ready(db, RESULT_DROP, task), "forget a result", NULL, err);
        if (rc == 0)
            rc = store_step(ledger_queue_ready(db, RESULT_FORGET, task), "forget a result", NULL,
                            err);
    }
    return rc;
}

static int prune_old(struct ledger_db *db, int64_t keep_ms, struct err *err) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_QUEUE, TASK_PRUNE);
    store_bind_int(st, 1, db->now_ms() - keep_ms);
    store_bind_int(st, 2, PRUNE_BATCH);
    return store_step(st, "forget tasks", NULL, err);
}

static int end_lost(struct ledger_db *db, const struct ledger_lease *lease, struct err *err) {
    struct ledger_task_end end = {.id = lease->task,
                                  .attempt = lease->attempt,
                                  .fault = true,
                                  .error_code = "interrupted",
                                  .error_message = "the server that ran it is gone"};
    sqlite3_stmt *st = ledger_queue_ready(db, LEASE_GET, end.id);
    bool cancelled = sqlite3_step(st) == SQLITE_ROW && sqlite3_column_int64(st, 1) != 0;
    (void)sqlite3_reset(st);
    return end_attempt(db, &end, cancelled, err);
}

static int queue_step(struct ledger_db *db, int which, struct err *err) {
    return store_step(ledger_ready(db, LEDGER_QUEUE, which), "end an attempt", NULL, err);
}

/* One that cannot be ended, because its rows are damaged, must not undo the ends of others. Its
 * lease is moved, so that it is tried again later and does not stand before others for good. */
static int end_lost_alone(struct ledger_db *db, const struct ledger_lease *lease, struct err *err) {
    struct err why = {0};
    int rc = queue_step(db, ONE_BEGIN, err);
    if (rc < 0)
        return rc;
    if (end_lost(db, lease, &why) == 0)
        return queue_step(db, ONE_DONE, err);
    if (sqlite3_get_autocommit(db->db)) { /* SQLite undid all: a full disk, say */
        *err = why;
        return -(int)why.code;
    }
    rc = queue_step(db, ONE_UNDO, err);
    if (rc == 0)
        rc = queue_step(db, ONE_DONE, err);
    if (rc < 0)
        return rc;
    log_error("task.end", "task", lease->task, "error", why.message);
    sqlite3_stmt *st = ledger_queue_ready(db, LEASE_LATER, lease->task);
    store_bind_int(st, 2, db->now_ms() + LEDGER_LEASE_MS);
    return store_step(st, "end an attempt", NULL, err);
}

int ledger_do_task_reap(struct ledger_db *db, const struct ledger_task_reap *ask,
                        struct ledger_task_reaped *ret, struct err *err) {
    struct ledger_lease over[64];
    size_t n = list_over(db, MIN(ask->limit, ARRAY_LEN(over)), over);
    bool more = false;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = end_lost_alone(db, &over[i], err);
    if (rc == 0)
        rc = ledger_spend_prune(db, err);
    if (rc == 0 && ask->keep_ms > 0)
        rc = prune_old(db, ask->keep_ms, err);
    if (rc == 0 && ask->keep_tasks > 0)
        rc = prune_tasks(db, ask->keep_tasks, &more, err);
    if (rc == 0 && ask->keep_bytes > 0)
        rc = prune_results(db, ask->keep_bytes, &more, err);
    if (rc < 0)
        return rc;
    *ret = (struct ledger_task_reaped){.lapsed = (int64_t)n, .more = more};
    return 0;
}
