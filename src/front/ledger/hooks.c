#include "front/ledger/internal.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

/* Messages to webhooks that are to be sent. A claim hides one for the time of a lease; the number
 * of its tries is the fence of its end. Those of one task go in their order. Keys take turns, so
 * that a slow receiver of one does not hold up those of others. */

enum {
    HOOK_ADD,
    HOOK_FIRST_OWNER,
    HOOK_NEXT_OWNER,
    HOOK_TAKEN,
    HOOK_DUE,
    HOOK_TAKE,
    HOOK_NEXT,
    HOOK_LATER,
    HOOK_DROP,
    HOOK_NOTE
};

static const char *const sql[] = {
    [HOOK_ADD] = "INSERT INTO outbox (event, task, url, secret, next_ms, body, owner)"
                 " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    [HOOK_FIRST_OWNER] = "SELECT owner FROM outbox ORDER BY owner LIMIT 1",
    [HOOK_NEXT_OWNER] = "SELECT owner FROM outbox WHERE owner > ?1 ORDER BY owner LIMIT 1",
    [HOOK_TAKEN] = "SELECT count(*) FROM outbox WHERE owner = ?1 AND taken = 1 AND next_ms > ?2",
    [HOOK_DUE] = "SELECT seq, tries + 1, event, task, url, secret, body FROM outbox o"
                 " WHERE owner = ?1 AND next_ms <= ?2 AND NOT EXISTS (SELECT 1 FROM outbox"
                 " WHERE task = o.task AND seq < o.seq) ORDER BY next_ms LIMIT 1",
    [HOOK_TAKE] = "UPDATE outbox SET tries = ?2, next_ms = ?3, taken = 1 WHERE seq = ?1",
    /* What is due and was not taken waits for the end of one that is under way. */
    [HOOK_NEXT] = "SELECT min(next_ms) FROM outbox WHERE next_ms > ?1",
    [HOOK_LATER] =
        "UPDATE outbox SET next_ms = ?3, taken = 0 WHERE seq = ?1 AND tries = ?2 RETURNING task",
    [HOOK_DROP] = "DELETE FROM outbox WHERE seq = ?1 AND tries = ?2 RETURNING task",
    [HOOK_NOTE] = "UPDATE tasks SET hook_state = ?2, hook_tries = ?3, hook_error = ?4"
                  " WHERE id = ?1",
};

const struct ledger_statements ledger_hook_statements = {sql, ARRAY_LEN(sql)};

static char *message_of(const struct ledger_db *db, const struct ledger_task *t) {
    char created[CLOCK_RFC3339_SIZE];
    char finished[CLOCK_RFC3339_SIZE];
    char now[CLOCK_RFC3339_SIZE];
    json_t *error =
        t->error_code ? json_pack("{s:s,s:s*}", "code", t->error_code, "message", t->error_message)
                      : json_null();
    _cleanup_(json) json_t *j = json_pack(
        "{s:s,s:s,s:{s:s,s:s,s:s,s:I,s:s?,s:s,s:s,s:o}}", "type", "task.finished", "timestamp",
        clock_rfc3339(db->now_ms(), now), "data", "id", t->id, "type", t->type, "state",
        task_state_name(t->state), "attempt", (json_int_t)t->attempt, "run",
        *t->run ? t->run : NULL, "created_at", clock_rfc3339(t->created_ms, created), "finished_at",
        clock_rfc3339(t->finished_ms, finished), "error", error);
    return json_dumps(j, JSON_COMPACT);
}

int ledger_hook_add(struct ledger_db *db, const struct ledger_task *t, struct err *err) {
    char event[ID_SIZE];
    _cleanup_(free) char *body = message_of(db, t);
    if (!body)
        return err_set(err, ERR_INTERNAL, "the message to a webhook cannot be written");
    sqlite3_stmt *st = ledger_ready(db, LEDGER_HOOKS, HOOK_ADD);
    store_bind_str(st, 1, id_new("evt", event));
    store_bind_str(st, 2, t->id);
    store_bind_str(st, 3, t->webhook);
    store_bind_str(st, 4, t->secret ? t->secret : "");
    store_bind_int(st, 5, db->now_ms());
    store_bind_str(st, 6, body);
    store_bind_str(st, 7, t->owner);
    return store_step(st, "add a message to a webhook", NULL, err);
}

static sqlite3_stmt *ready(struct ledger_db *db, int which, const char *owner) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_HOOKS, which);
    store_bind_str(st, 1, owner);
    return st;
}

/* The one of that owner that waits longest. */
static bool read_due(struct ledger_db *db, const char *owner, struct ledger_answer *a) {
    sqlite3_stmt *st = ready(db, HOOK_DUE, owner);
    store_bind_int(st, 2, db->now_ms());
    bool row = sqlite3_step(st) == SQLITE_ROW;
    if (row) {
        a->hooks = ledger_grow(a->hooks, a->nhooks, sizeof(*a->hooks));
        struct ledger_hook *h = &a->hooks[a->nhooks++];
        *h = (struct ledger_hook){.seq = sqlite3_column_int64(st, 0),
                                  .tries = sqlite3_column_int64(st, 1),
                                  .url = store_column_dup(st, 4),
                                  .secret = store_column_dup(st, 5),
                                  .body = store_column_dup(st, 6)};
        store_column_id(st, 2, h->event);
        store_column_id(st, 3, h->task);
    }
    (void)sqlite3_reset(st);
    return row;
}

static int take(struct ledger_db *db, const struct ledger_hook *h, struct err *err) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_HOOKS, HOOK_TAKE);
    store_bind_int(st, 1, h->seq);
    store_bind_int(st, 2, h->tries);
    store_bind_int(st, 3, db->now_ms() + LEDGER_LEASE_MS);
    return store_step(st, "claim a message", NULL, err);
}

static bool may_send(struct ledger_db *db, const char *owner, const struct ledger_ask *ask) {
    sqlite3_stmt *st = ready(db, HOOK_TAKEN, owner);
    store_bind_int(st, 2, db->now_ms());
    int64_t n = sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    (void)sqlite3_reset(st);
    return n < (int64_t)ask->per_key;
}

/* The key whose turn it is; false: all had theirs. */
static bool next_owner(struct ledger_db *db) {
    sqlite3_stmt *st = db->hook_turn_set ? ready(db, HOOK_NEXT_OWNER, db->hook_turn)
                                         : ledger_ready(db, LEDGER_HOOKS, HOOK_FIRST_OWNER);
    db->hook_turn_set = sqlite3_step(st) == SQLITE_ROW;
    if (db->hook_turn_set)
        store_column_id(st, 0, db->hook_turn);
    (void)sqlite3_reset(st);
    return db->hook_turn_set;
}

static int claim_some(struct ledger_db *db, const struct ledger_ask *ask,
                      struct ledger_answer *answer, struct err *err) {
    size_t at_last_wrap = (size_t)-1;
    int rc = 0;
    while (rc == 0 && answer->nhooks < ask->limit) {
        if (!next_owner(db)) {
            if (at_last_wrap == answer->nhooks)
                break; /* a whole round, and nobody had one */
            at_last_wrap = answer->nhooks;
            continue;
        }
        if (may_send(db, db->hook_turn, ask) && read_due(db, db->hook_turn, answer))
            rc = take(db, &answer->hooks[answer->nhooks - 1], err);
    }
    return rc;
}

int ledger_do_hook_claim(struct ledger_db *db, const struct ledger_ask *ask,
                         struct ledger_answer *answer, struct err *err) {
    int rc = claim_some(db, ask, answer, err);
    sqlite3_stmt *st = ledger_ready(db, LEDGER_HOOKS, HOOK_NEXT);
    store_bind_int(st, 1, db->now_ms());
    if (sqlite3_step(st) == SQLITE_ROW && sqlite3_column_type(st, 0) != SQLITE_NULL)
        answer->next_ms = MAX(sqlite3_column_int64(st, 0) - db->now_ms(), 0);
    (void)sqlite3_reset(st);
    return rc;
}

int ledger_do_hook_end(struct ledger_db *db, const struct ledger_ask *ask,
                       struct ledger_answer *answer, struct err *err) {
    static const char *const states[] = {[LEDGER_HOOK_DELIVERED] = "delivered",
                                         [LEDGER_HOOK_RETRY] = "pending",
                                         [LEDGER_HOOK_FAILED] = "failed"};
    bool again = ask->hook_end == LEDGER_HOOK_RETRY;
    char task[ID_SIZE];
    sqlite3_stmt *st = ledger_ready(db, LEDGER_HOOKS, again ? HOOK_LATER : HOOK_DROP);
    store_bind_int(st, 1, ask->hook->seq);
    store_bind_int(st, 2, ask->hook->tries);
    if (again)
        store_bind_int(st, 3, db->now_ms() + ask->retry_ms);
    bool row = sqlite3_step(st) == SQLITE_ROW;
    if (row)
        store_column_id(st, 0, task);
    (void)sqlite3_reset(st);
    answer->repeated = !row; /* said before, or another has it now */
    if (!row)
        return 0;
    st = ledger_ready(db, LEDGER_HOOKS, HOOK_NOTE);
    store_bind_str(st, 1, task);
    store_bind_str(st, 2, states[ask->hook_end]);
    store_bind_int(st, 3, ask->hook->tries);
    store_bind_str(st, 4, ask->error);
    return store_step(st, "note a delivery", NULL, err);
}
