#include "front/ledger/internal.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

/* Messages to webhooks that are to be sent. A claim hides one for the time of a lease; the number
 * of its tries is the fence of its end. Those of one task go in their order. Keys take turns, so
 * that a slow receiver of one does not hold up those of others.
 *
 * The receivers of a key take turns, too, because a dead one holds each of its places until the
 * request times out. A third of a key's places is for receivers that have no other, one receiver
 * has a third at most, and one that has failed has a single place: all that have failed get a third
 * together, after the others. */

enum { RECEIVERS_LOOKED_AT = 256 }; /* of a key, in one turn; the next one goes on after them */

enum {
    HOOK_ADD,
    HOOK_FIRST_OWNER,
    HOOK_NEXT_OWNER,
    HOOK_UNDER_WAY,
    HOOK_FAILING,
    HOOK_NEXT_RECEIVER,
    HOOK_DUE,
    HOOK_TAKE,
    HOOK_NEXT,
    HOOK_LATER,
    HOOK_DROP,
    HOOK_NOTE
};

static const char *const sql[] = {
    [HOOK_ADD] = "INSERT INTO outbox (event, task, url, secret, next_ms, body, owner,"
                 " receiver) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    [HOOK_FIRST_OWNER] = "SELECT owner FROM outbox ORDER BY owner LIMIT 1",
    [HOOK_NEXT_OWNER] = "SELECT owner FROM outbox WHERE owner > ?1 ORDER BY owner LIMIT 1",
    [HOOK_UNDER_WAY] = "SELECT count(*), coalesce(sum(receiver = ?3), 0), coalesce(sum(EXISTS"
                       " (SELECT 1 FROM outbox f WHERE f.owner = o.owner AND"
                       " f.receiver = o.receiver AND f.tries > f.taken)), 0)"
                       " FROM outbox o WHERE owner = ?1 AND taken = 1 AND next_ms > ?2",
    [HOOK_FAILING] = "SELECT 1 FROM outbox WHERE owner = ?1 AND receiver = ?2 AND tries > taken"
                     " LIMIT 1",
    [HOOK_NEXT_RECEIVER] = "SELECT receiver FROM outbox WHERE owner = ?1 AND receiver > ?2"
                           " ORDER BY receiver LIMIT 1",
    [HOOK_DUE] = "SELECT seq, tries + 1, event, task, url, secret, body FROM outbox o"
                 " WHERE owner = ?1 AND receiver = ?3 AND next_ms <= ?2 AND NOT EXISTS"
                 " (SELECT 1 FROM outbox WHERE task = o.task AND seq < o.seq)"
                 " ORDER BY next_ms LIMIT 1",
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

/* Scheme, host and port of an address: who receives what is sent there. */
static size_t receiver_length(const char *url) {
    const char *host = strstr(url, "://");
    return host ? (size_t)(host + 3 - url) + strcspn(host + 3, "/?#") : strlen(url);
}

static char *message_of(const struct ledger_db *db, const struct ledger_task *t) {
    char created[CLOCK_RFC3339_SIZE];
    char finished[CLOCK_RFC3339_SIZE];
    char now[CLOCK_RFC3339_SIZE];
    json_t *error = t->error_code
                        ? json_pack("{s:o,s:o*}", "code", json_text(t->error_code), "message",
                                    t->error_message ? json_text(t->error_message) : NULL)
                        : json_null();
    _cleanup_(json) json_t *j = json_pack(
        "{s:s,s:s,s:{s:s,s:s,s:s,s:I,s:s?,s:s,s:s,s:o}}", "type", "task.finished", "timestamp",
        clock_rfc3339(db->now_ms(), now), "data", "id", t->id, "type", t->type, "state",
        task_state_name(t->state), "attempt", (json_int_t)t->attempt, "run",
        *t->run ? t->run : NULL, "created_at", clock_rfc3339(t->created_ms, created), "finished_at",
        clock_rfc3339(t->finished_ms, finished), "error", error);
    return json_dumps(j, JSON_COMPACT);
}

static int hook_insert(struct ledger_db *db, const struct ledger_task *t, struct err *err) {
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
    _cleanup_(free) char *receiver = xstrndup(t->webhook, receiver_length(t->webhook));
    store_bind_str(st, 8, receiver);
    return store_step(st, "add a message to a webhook", NULL, err);
}

/* A message that cannot be written is a failed delivery: the task has ended all the same. What
 * would fail any write is passed on, so that the end is tried again as a whole. */
int ledger_hook_add(struct ledger_db *db, const struct ledger_task *t, struct err *err) {
    struct err why = {0};
    int rc = hook_insert(db, t, &why);
    if (rc == 0)
        return 0;
    if (rc == -ERR_FULL || rc == -ERR_UNAVAILABLE || sqlite3_get_autocommit(db->db)) {
        *err = why;
        return rc;
    }
    log_error("task.webhook", "task", t->id, "error", why.message);
    sqlite3_stmt *st = ledger_ready(db, LEDGER_HOOKS, HOOK_NOTE);
    store_bind_str(st, 1, t->id);
    store_bind_str(st, 2, "failed");
    store_bind_int(st, 3, 0);
    store_bind_str(st, 4, "the message could not be written");
    return store_step(st, "note a delivery", NULL, err);
}

static sqlite3_stmt *ledger_hooks_ready(struct ledger_db *db, int which, const char *owner) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_HOOKS, which);
    store_bind_str(st, 1, owner);
    return st;
}

/* The messages of a key that are being sent. */
struct hook_load {
    size_t all;
    size_t there;   /* to one receiver */
    size_t failing; /* to receivers that have failed */
};

static struct hook_load load_of(struct ledger_db *db, const char *owner, const char *receiver) {
    struct hook_load l = {0};
    sqlite3_stmt *st = ledger_hooks_ready(db, HOOK_UNDER_WAY, owner);
    store_bind_int(st, 2, db->now_ms());
    store_bind_str(st, 3, receiver);
    if (sqlite3_step(st) == SQLITE_ROW)
        l = (struct hook_load){.all = (size_t)sqlite3_column_int64(st, 0),
                               .there = (size_t)sqlite3_column_int64(st, 1),
                               .failing = (size_t)sqlite3_column_int64(st, 2)};
    (void)sqlite3_reset(st);
    return l;
}

static bool is_failing(struct ledger_db *db, const char *owner, const char *receiver) {
    sqlite3_stmt *st = ledger_hooks_ready(db, HOOK_FAILING, owner);
    store_bind_str(st, 2, receiver);
    bool row = sqlite3_step(st) == SQLITE_ROW;
    (void)sqlite3_reset(st);
    return row;
}

static bool ledger_hooks_has_room(const struct hook_load *l, bool failing, size_t per_key) {
    size_t third = MAX(per_key / 3, (size_t)1);
    if (l->all >= per_key)
        return false;
    if (failing)
        return l->there == 0 && l->failing < third;
    return l->there == 0 || (l->there < third && l->all < per_key - per_key / 3);
}

/* The one that waits longest, for this receiver. */
static bool read_due(struct ledger_db *db, const char *owner, const char *receiver,
                     struct ledger_hook_claimed *out) {
    sqlite3_stmt *st = ledger_hooks_ready(db, HOOK_DUE, owner);
    store_bind_int(st, 2, db->now_ms());
    store_bind_str(st, 3, receiver);
    bool row = sqlite3_step(st) == SQLITE_ROW;
    if (row) {
        out->hooks = ledger_grow(out->hooks, out->n, sizeof(*out->hooks));
        struct ledger_hook *h = &out->hooks[out->n++];
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

/* The receiver after that one; NULL: there is none. The caller frees it. */
static char *receiver_after(struct ledger_db *db, const char *owner, const char *receiver) {
    sqlite3_stmt *st = ledger_hooks_ready(db, HOOK_NEXT_RECEIVER, owner);
    store_bind_str(st, 2, receiver);
    char *next = sqlite3_step(st) == SQLITE_ROW ? store_column_dup(st, 0) : NULL;
    (void)sqlite3_reset(st);
    return next;
}

/* One message of that owner, by turns of its receivers. All keys share the mark of where to go on:
 * a receiver that is passed over for it is next when those after it have no room. */
static bool ledger_hooks_choose(struct ledger_db *db, const char *owner, bool failing,
                                size_t per_key, struct ledger_hook_claimed *out) {
    _cleanup_(free) char *start = xstrdup(db->hook_receiver ? db->hook_receiver : "");
    char *now = xstrdup(start);
    bool wrapped = false;
    bool found = false;
    for (size_t i = 0; !found && i < RECEIVERS_LOOKED_AT; i++) {
        char *next = receiver_after(db, owner, now);
        if (!next && wrapped)
            break;
        free(now);
        now = next ? next : xstrdup("");
        wrapped = wrapped || !next;
        if (!next)
            continue;
        if (is_failing(db, owner, now) == failing) {
            struct hook_load l = load_of(db, owner, now);
            found = ledger_hooks_has_room(&l, failing, per_key) && read_due(db, owner, now, out);
        }
        if (wrapped && strcmp(now, start) >= 0)
            break;
    }
    free(db->hook_receiver);
    db->hook_receiver = now;
    return found;
}

static int ledger_hooks_take(struct ledger_db *db, const struct ledger_hook *h, struct err *err) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_HOOKS, HOOK_TAKE);
    store_bind_int(st, 1, h->seq);
    store_bind_int(st, 2, h->tries);
    store_bind_int(st, 3, db->now_ms() + LEDGER_LEASE_MS);
    return store_step(st, "claim a message", NULL, err);
}

/* The key whose turn it is; false: all had theirs. */
static bool next_owner(struct ledger_db *db) {
    sqlite3_stmt *st = db->hook_turn_set ? ledger_hooks_ready(db, HOOK_NEXT_OWNER, db->hook_turn)
                                         : ledger_ready(db, LEDGER_HOOKS, HOOK_FIRST_OWNER);
    db->hook_turn_set = sqlite3_step(st) == SQLITE_ROW;
    if (db->hook_turn_set)
        store_column_id(st, 0, db->hook_turn);
    (void)sqlite3_reset(st);
    return db->hook_turn_set;
}

static int ledger_hooks_claim_some(struct ledger_db *db, const struct ledger_hook_claim *ask,
                                   struct ledger_hook_claimed *out, struct err *err) {
    size_t at_last_wrap = (size_t)-1;
    int rc = 0;
    while (rc == 0 && out->n < ask->limit) {
        if (!next_owner(db)) {
            if (at_last_wrap == out->n)
                break; /* a whole round, and nobody had one */
            at_last_wrap = out->n;
            continue;
        }
        if (ledger_hooks_choose(db, db->hook_turn, false, ask->per_key, out) ||
            ledger_hooks_choose(db, db->hook_turn, true, ask->per_key, out))
            rc = ledger_hooks_take(db, &out->hooks[out->n - 1], err);
    }
    return rc;
}

int ledger_do_hook_claim(struct ledger_db *db, const struct ledger_hook_claim *ask,
                         struct ledger_hook_claimed *ret, struct err *err) {
    struct ledger_hook_claimed out = {.next_ms = -1};
    int rc = ledger_hooks_claim_some(db, ask, &out, err);
    if (rc < 0) {
        ledger_hooks_free(out.hooks, out.n);
        return rc;
    }
    sqlite3_stmt *st = ledger_ready(db, LEDGER_HOOKS, HOOK_NEXT);
    store_bind_int(st, 1, db->now_ms());
    if (sqlite3_step(st) == SQLITE_ROW && sqlite3_column_type(st, 0) != SQLITE_NULL)
        out.next_ms = MAX(sqlite3_column_int64(st, 0) - db->now_ms(), 0);
    (void)sqlite3_reset(st);
    *ret = out;
    return 0;
}

int ledger_do_hook_end(struct ledger_db *db, const struct ledger_hook_end *ask, struct err *err) {
    static const char *const states[] = {[LEDGER_HOOK_DELIVERED] = "delivered",
                                         [LEDGER_HOOK_RETRY] = "pending",
                                         [LEDGER_HOOK_FAILED] = "failed"};
    bool again = ask->outcome == LEDGER_HOOK_RETRY;
    char task[ID_SIZE];
    sqlite3_stmt *st = ledger_ready(db, LEDGER_HOOKS, again ? HOOK_LATER : HOOK_DROP);
    store_bind_int(st, 1, ask->seq);
    store_bind_int(st, 2, ask->tries);
    if (again)
        store_bind_int(st, 3, db->now_ms() + ask->retry_ms);
    bool row = sqlite3_step(st) == SQLITE_ROW;
    if (row)
        store_column_id(st, 0, task);
    (void)sqlite3_reset(st);
    if (!row)
        return 0; /* said before, or another has it now */
    st = ledger_ready(db, LEDGER_HOOKS, HOOK_NOTE);
    store_bind_str(st, 1, task);
    store_bind_str(st, 2, states[ask->outcome]);
    store_bind_int(st, 3, ask->tries);
    store_bind_str(st, 4, ask->error);
    return store_step(st, "note a delivery", NULL, err);
}
