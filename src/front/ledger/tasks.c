#include "front/ledger/internal.h"

#include "base/mem.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TASK_ADD,
    TASK_ADD_BODY,
    TASK_BY_IDEM,
    TASK_GET,
    TASK_LIST, /* and three more */
    TASK_LIST_STATE,
    TASK_LIST_OWNER,
    TASK_LIST_OWNER_STATE,
    TASK_WAITING,
    TASK_BODIES,
    TASK_QUEUE,
    TASK_SCHEDULE,
    TASK_UNQUEUE,
    TASK_UNSCHEDULE,
    TASK_ASK_TO_END,
    TASK_SET_END,
    TASK_ADD_RESULT,
    TASK_DROP_BODY,
    TASK_ACCOUNT,
    TASK_USAGE,
};

/* The first columns are read by read_task(). */
#define COLUMNS                                                                                    \
    "t.id, t.owner, t.type, t.title, t.state, t.priority, t.timeout_ms, t.max_attempts, "          \
    "t.attempt, t.run, t.run_at_ms, t.created_ms, t.started_ms, t.finished_ms, t.idem, "           \
    "t.idem_hash, t.webhook, t.secret, t.error_code, t.error_message, "                            \
    "iif(t.webhook IS NULL, NULL, json_object('url', t.webhook, 'state', "                         \
    "coalesce(t.hook_state, 'none'), 'tries', t.hook_tries, 'error', t.hook_error)), "             \
    "coalesce((SELECT cancel FROM leases WHERE task = t.id), 0), t.key"

/* One for each, so that each has an index. */
#define LIST(which)                                                                                \
    "SELECT " COLUMNS " FROM tasks t WHERE " which "t.id < ?3 ORDER BY t.id DESC LIMIT ?4"

static const char *const sql[] = {
    [TASK_ADD] = "INSERT INTO tasks (id, owner, type, title, state, priority, timeout_ms,"
                 " max_attempts, run_at_ms, created_ms, idem, idem_hash, webhook, secret,"
                 " body_bytes, key) VALUES (?1,?2,?3,?4,0,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15)",
    [TASK_ADD_BODY] = "INSERT INTO task_bodies (task, body) VALUES (?1, ?2)",
    [TASK_BY_IDEM] = "SELECT id, idem_hash FROM tasks WHERE owner = ?1 AND idem = ?2",
    [TASK_GET] = "SELECT " COLUMNS ", iif(?3, (SELECT body FROM task_bodies WHERE task = t.id),"
                 " NULL), (SELECT result FROM task_results WHERE task = t.id),"
                 " (SELECT json_group_array(json_object('attempt', attempt, 'run', run, 'node',"
                 " node, 'started_ms', started_ms, 'ended_ms', ended_ms, 'outcome', outcome,"
                 " 'error', iif(error_code IS NULL, NULL, json_object('code', error_code,"
                 " 'message', error_message)))) FROM task_attempts WHERE task = t.id)"
                 " FROM tasks t WHERE t.id = ?1 AND (?2 IS NULL OR t.owner = ?2)",
    [TASK_LIST] = LIST(""),
    [TASK_LIST_STATE] = LIST("t.state = ?2 AND "),
    [TASK_LIST_OWNER] = LIST("t.owner = ?1 AND "),
    [TASK_LIST_OWNER_STATE] = LIST("t.owner = ?1 AND t.state = ?2 AND "),
    [TASK_WAITING] = "SELECT tasks FROM waiting WHERE owner = ?1",
    [TASK_BODIES] = "SELECT bodies FROM task_room WHERE owner = ?1",
    [TASK_QUEUE] = "INSERT INTO queue (task, owner, priority) VALUES (?1, ?2, ?3)",
    [TASK_SCHEDULE] = "INSERT INTO scheduled (task, owner, priority, run_at_ms)"
                      " VALUES (?1, ?2, ?3, ?4)",
    [TASK_UNQUEUE] = "DELETE FROM queue WHERE task = ?1",
    [TASK_UNSCHEDULE] = "DELETE FROM scheduled WHERE task = ?1",
    [TASK_ASK_TO_END] = "UPDATE leases SET cancel = 1 WHERE task = ?1",
    [TASK_SET_END] =
        "UPDATE tasks SET state = ?2, finished_ms = ?3, error_code = ?4,"
        " error_message = ?5, result_bytes = ?6, hook_state = iif(webhook IS NULL, NULL, 'pending')"
        " WHERE id = ?1 AND finished_ms = 0",
    [TASK_ADD_RESULT] = "INSERT INTO task_results VALUES (?1, ?2)",
    [TASK_DROP_BODY] = "DELETE FROM task_bodies WHERE task = ?1",
    [TASK_ACCOUNT] =
        "INSERT INTO usage (owner, key, day, type, state, tasks, attempts, wall_ms)"
        " SELECT owner, key, strftime('%Y-%m-%d', ?2 / 1000, 'unixepoch'), type, state, 1, attempt,"
        " coalesce((SELECT sum(ended_ms - started_ms) FROM task_attempts WHERE task = id), 0)"
        " FROM tasks WHERE id = ?1"
        " ON CONFLICT (owner, key, day, type, state) DO UPDATE SET tasks = tasks + 1,"
        " attempts = attempts + excluded.attempts, wall_ms = wall_ms + excluded.wall_ms",
    [TASK_USAGE] =
        "SELECT json_group_array(json_object('project', iif(owner = '', 'default', owner), 'key',"
        " key, 'day', day, 'type', type, 'tasks', n, 'done', done, 'attempts', attempts,"
        " 'wall_ms', wall_ms)) FROM (SELECT owner, key, day, type,"
        " sum(tasks) n, sum(iif(state = 2, tasks, 0)) done, sum(attempts) attempts,"
        " sum(wall_ms) wall_ms FROM usage WHERE (?1 IS NULL OR owner = ?1) AND day >= ?2"
        " GROUP BY owner, key, day, type ORDER BY day DESC, owner, key, type LIMIT ?3)",
};

const struct ledger_statements ledger_task_statements = {sql, ARRAY_LEN(sql)};

static sqlite3_stmt *ledger_tasks_ready(struct ledger_db *db, int which, const char *id) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_TASKS, which);
    store_bind_str(st, 1, id);
    return st;
}

static int ledger_tasks_run(struct ledger_db *db, int which, const char *id, int64_t *ret_changes,
                            struct err *err) {
    return store_step(ledger_tasks_ready(db, which, id), "write a task", ret_changes, err);
}

static void read_task(sqlite3_stmt *st, struct ledger_task *t) {
    *t = (struct ledger_task){.type = store_column_dup(st, 2),
                              .title = store_column_dup(st, 3),
                              .state = (enum task_state)sqlite3_column_int(st, 4),
                              .priority = sqlite3_column_int64(st, 5),
                              .timeout_ms = sqlite3_column_int64(st, 6),
                              .max_attempts = sqlite3_column_int64(st, 7),
                              .attempt = sqlite3_column_int64(st, 8),
                              .run_at_ms = sqlite3_column_int64(st, 10),
                              .created_ms = sqlite3_column_int64(st, 11),
                              .started_ms = sqlite3_column_int64(st, 12),
                              .finished_ms = sqlite3_column_int64(st, 13),
                              .idem = store_column_dup(st, 14),
                              .idem_hash = store_column_dup(st, 15),
                              .webhook = store_column_dup(st, 16),
                              .secret = store_column_dup(st, 17),
                              .error_code = store_column_dup(st, 18),
                              .error_message = store_column_dup(st, 19),
                              .hook = store_column_dup(st, 20),
                              .cancel = sqlite3_column_int(st, 21) != 0};
    store_column_id(st, 0, t->id);
    store_column_id(st, 1, t->owner);
    store_column_id(st, 9, t->run);
    store_column_id(st, 22, t->key);
}

int ledger_task_load(struct ledger_db *db, const char *id, const char *owner, bool with_body,
                     struct ledger_task *ret_task, struct err *err) {
    sqlite3_stmt *st = ledger_tasks_ready(db, TASK_GET, id);
    store_bind_str(st, 2, owner);
    store_bind_int(st, 3, with_body);
    int rc = sqlite3_step(st);
    int e = rc == SQLITE_ROW    ? 0
            : rc == SQLITE_DONE ? err_set(err, ERR_NOT_FOUND, "there is no task \"%.40s\"", id)
                                : store_error(db->db, err, "read a task");
    if (rc == SQLITE_ROW) {
        read_task(st, ret_task);
        ret_task->body = store_column_dup(st, 23);
        ret_task->body_len = (size_t)sqlite3_column_bytes(st, 23);
        ret_task->result = store_column_dup(st, 24);
        ret_task->attempts = store_column_dup(st, 25);
    }
    (void)sqlite3_reset(st);
    return e;
}

int ledger_task_wait(struct ledger_db *db, const char *id, const char *owner, int64_t priority,
                     int64_t run_at_ms, struct err *err) {
    bool now = run_at_ms <= db->now_ms();
    sqlite3_stmt *st = ledger_tasks_ready(db, now ? TASK_QUEUE : TASK_SCHEDULE, id);
    store_bind_str(st, 2, owner);
    store_bind_int(st, 3, priority);
    if (!now)
        store_bind_int(st, 4, run_at_ms);
    return store_step(st, "queue a task", NULL, err);
}

/* 1: this is a repetition, of that task. */
static int find_repeated(struct ledger_db *db, const struct ledger_task_submit *t,
                         struct ledger_task *ret_task, struct err *err) {
    if (ledger_task_load(db, t->id, t->owner, false, ret_task, &(struct err){0}) == 0)
        return 1;
    if (!t->idem)
        return 0;
    char id[ID_SIZE] = "";
    bool same = false;
    sqlite3_stmt *st = ledger_tasks_ready(db, TASK_BY_IDEM, t->owner);
    store_bind_str(st, 2, t->idem);
    if (sqlite3_step(st) == SQLITE_ROW) {
        const char *hash = (const char *)sqlite3_column_text(st, 1);
        store_column_id(st, 0, id);
        same = hash && strcmp(hash, t->idem_hash) == 0;
    }
    (void)sqlite3_reset(st);
    if (!*id)
        return 0;
    if (!same)
        return err_set(err, ERR_CONFLICT,
                       "this Idempotency-Key was used for another request (%s): use a new one", id);
    int rc = ledger_task_load(db, id, t->owner, false, ret_task, err);
    return rc < 0 ? rc : 1;
}

static int64_t ledger_tasks_number_of(struct ledger_db *db, int which, const char *owner) {
    sqlite3_stmt *st = ledger_tasks_ready(db, which, owner);
    int64_t n = sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    (void)sqlite3_reset(st);
    return n;
}

static int ledger_tasks_check_room(struct ledger_db *db, const struct ledger_task_submit *t,
                                   struct err *err) {
    int64_t n = ledger_tasks_number_of(db, TASK_WAITING, t->owner);
    int64_t bytes = ledger_tasks_number_of(db, TASK_BODIES, t->owner) + (int64_t)strlen(t->body);
    if (n >= (int64_t)t->waiting_max)
        return err_set(err, ERR_RATE, "%lld tasks of this key wait already (\"waiting_per_key\")",
                       (long long)n);
    if (t->bytes_max > 0 && bytes > t->bytes_max)
        return err_set(err, ERR_RATE,
                       "the tasks of this key that have not ended may have %lld MiB together "
                       "(\"waiting_mb_per_key\"): wait for some",
                       (long long)(t->bytes_max >> 20));
    return 0;
}

static int ledger_tasks_add(struct ledger_db *db, const struct ledger_task_submit *t,
                            struct err *err) {
    sqlite3_stmt *st = ledger_tasks_ready(db, TASK_ADD, t->id);
    store_bind_str(st, 2, t->owner);
    store_bind_str(st, 3, t->type);
    store_bind_str(st, 4, t->title);
    store_bind_int(st, 5, t->priority);
    store_bind_int(st, 6, t->timeout_ms);
    store_bind_int(st, 7, t->max_attempts);
    store_bind_int(st, 8, t->run_at_ms);
    store_bind_int(st, 9, db->now_ms());
    store_bind_str(st, 10, t->idem);
    store_bind_str(st, 11, t->idem_hash);
    store_bind_str(st, 12, t->webhook);
    store_bind_str(st, 13, t->secret);
    store_bind_int(st, 14, (int64_t)strlen(t->body));
    store_bind_str(st, 15, t->key ? t->key : "");
    int rc = store_step(st, "add a task", NULL, err);
    if (rc < 0)
        return rc;
    st = ledger_tasks_ready(db, TASK_ADD_BODY, t->id);
    store_bind_str(st, 2, t->body);
    rc = store_step(st, "add a task", NULL, err);
    return rc < 0 ? rc : ledger_task_wait(db, t->id, t->owner, t->priority, t->run_at_ms, err);
}

int ledger_do_task_submit(struct ledger_db *db, const struct ledger_task_submit *ask,
                          struct ledger_task_submitted *ret, struct err *err) {
    int found = find_repeated(db, ask, &ret->task, err);
    int rc = found;
    if (rc == 0)
        rc = ledger_tasks_check_room(db, ask, err);
    if (rc == 0)
        rc = ledger_tasks_add(db, ask, err);
    if (rc == 0)
        rc = ledger_task_load(db, ask->id, NULL, false, &ret->task, err);
    if (rc < 0)
        return rc;
    ret->repeated = found > 0;
    return 0;
}

int ledger_do_task_get(struct ledger_db *db, const struct ledger_task_get *ask,
                       struct ledger_task_got *ret, struct err *err) {
    return ledger_task_load(db, ask->id, ask->owner, false, &ret->task, err);
}

/* A type has no index: one call looks at that many rows. */
enum { TYPE_LOOK = 2000 };

int ledger_do_task_list(struct ledger_db *db, const struct ledger_task_list *ask,
                        struct ledger_task_listed *ret, struct err *err) {
    struct ledger_task_listed out = {0};
    int which = TASK_LIST + (ask->state != TASK_STATES ? 1 : 0) + (ask->owner ? 2 : 0);
    sqlite3_stmt *st = ledger_tasks_ready(db, which, ask->owner);
    store_bind_int(st, 2, ask->state);
    store_bind_str(st, 3, ask->before ? ask->before : "~");
    store_bind_int(st, 4, ask->type ? TYPE_LOOK : (int64_t)ask->limit + 1);
    int rc = SQLITE_ROW;
    size_t looked = 0;
    bool more = false;
    for (; !more && (rc = sqlite3_step(st)) == SQLITE_ROW; looked++) {
        bool fits = !ask->type || strcmp((const char *)sqlite3_column_text(st, 2), ask->type) == 0;
        more = fits && out.n == ask->limit;
        if (fits && !more) {
            out.tasks = ledger_grow(out.tasks, out.n, sizeof(*out.tasks));
            read_task(st, &out.tasks[out.n++]);
        }
        if (!more)
            store_column_id(st, 0, out.next);
    }
    if (!more && (!ask->type || looked < TYPE_LOOK))
        out.next[0] = 0;
    int e = more || rc == SQLITE_DONE ? 0 : store_error(db->db, err, "list tasks");
    (void)sqlite3_reset(st);
    if (e < 0)
        ledger_tasks_free(out.tasks, out.n);
    else
        *ret = out;
    return e;
}

/* One that waits ends here; one that runs is told by its next renewal. */
int ledger_do_task_cancel(struct ledger_db *db, const struct ledger_task_cancel *ask,
                          struct ledger_task_cancelled *ret, struct err *err) {
    struct ledger_task t = {0};
    int rc = ledger_task_load(db, ask->id, ask->owner, false, &t, err);
    enum task_state state = t.state;
    ledger_task_finish(&t);
    if (rc < 0)
        return rc;
    if (state == TASK_RUNNING) {
        rc = ledger_tasks_run(db, TASK_ASK_TO_END, ask->id, NULL, err);
    } else if (state == TASK_QUEUED) {
        rc = ledger_tasks_run(db, TASK_UNQUEUE, ask->id, NULL, err);
        if (rc == 0)
            rc = ledger_tasks_run(db, TASK_UNSCHEDULE, ask->id, NULL, err);
        if (rc == 0)
            rc = ledger_task_set_end(
                db, &(struct ledger_task_end){.id = ask->id, .state = TASK_CANCELLED}, err);
    } else {
        return err_set(err, ERR_CONFLICT, "it has ended already: it is %s", task_state_name(state));
    }
    return rc < 0 ? rc : ledger_task_load(db, ask->id, NULL, false, &ret->task, err);
}

int ledger_do_usage(struct ledger_db *db, const struct ledger_usage *ask,
                    struct ledger_usage_report *ret, struct err *err) {
    struct ledger_usage_report out = {0};
    sqlite3_stmt *st = ledger_tasks_ready(db, TASK_USAGE, ask->owner);
    store_bind_str(st, 2, ask->since ? ask->since : "");
    store_bind_int(st, 3, (int64_t)ask->limit);
    int rc = sqlite3_step(st) == SQLITE_ROW ? 0 : store_error(db->db, err, "read the usage");
    if (rc == 0)
        out.tasks = store_column_dup(st, 0);
    (void)sqlite3_reset(st);
    if (rc == 0)
        rc = ledger_spend_usage(db, ask, &out.jobs, &out.today, err);
    if (rc == 0)
        *ret = out;
    else
        free(out.tasks);
    return rc;
}

/* --- the end --- */

static int ledger_tasks_write_end(struct ledger_db *db, const struct ledger_task_end *end,
                                  struct err *err) {
    sqlite3_stmt *st = ledger_tasks_ready(db, TASK_SET_END, end->id);
    int64_t changes = 0;
    store_bind_int(st, 2, end->state);
    store_bind_int(st, 3, db->now_ms());
    store_bind_str(st, 4, end->error_code);
    store_bind_str(st, 5, end->error_message);
    store_bind_int(st, 6, end->result ? (int64_t)strlen(end->result) : 0);
    int rc = store_step(st, "end a task", &changes, err);
    if (rc == 0 && changes != 1)
        return err_set(err, ERR_CONFLICT, "it has ended already");
    if (rc < 0 || !end->result)
        return rc;
    st = ledger_tasks_ready(db, TASK_ADD_RESULT, end->id);
    store_bind_str(st, 2, end->result);
    return store_step(st, "keep a result", NULL, err);
}

int ledger_task_set_end(struct ledger_db *db, const struct ledger_task_end *end, struct err *err) {
    int rc = ledger_tasks_write_end(db, end, err);
    if (rc == 0)
        rc = ledger_tasks_run(db, TASK_DROP_BODY, end->id, NULL, err);
    if (rc == 0) {
        sqlite3_stmt *st = ledger_tasks_ready(db, TASK_ACCOUNT, end->id);
        store_bind_int(st, 2, db->now_ms());
        rc = store_step(st, "account for a task", NULL, err);
    }
    struct ledger_task t = {0};
    if (rc == 0)
        rc = ledger_task_load(db, end->id, NULL, false, &t, err);
    if (rc == 0 && t.webhook)
        rc = ledger_hook_add(db, &t, err);
    ledger_task_finish(&t);
    return rc;
}
