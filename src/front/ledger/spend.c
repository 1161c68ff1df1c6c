#include "front/ledger/internal.h"

#include "base/mem.h"

#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DAY_TODAY,
    DAY_GET,
    DAY_HOLD,
    DAY_SPEND,
    RESERVE_GET,
    RESERVE_ADD,
    RESERVE_RENEW,
    RESERVE_OVER,
    RESERVE_OF_NODE,
    RESERVE_LOST,
    RESERVE_SETTLED,
    RESERVE_PRUNE,
    JOBS_ADD,
    JOBS_USAGE,
    JOBS_TODAY,
};

enum { FREE_BATCH = 256, PRUNE_BATCH = 1000, ROWS_TODAY = 10000 };

static const char *const sql[] = {
    [DAY_TODAY] = "SELECT strftime('%Y-%m-%d', ?1 / 1000, 'unixepoch')",
    [DAY_GET] = "SELECT tokens, nusd, held_tokens, held_nusd FROM spend_days"
                " WHERE owner = ?1 AND day = ?2",
    [DAY_HOLD] = "INSERT INTO spend_days (owner, day, held_tokens, held_nusd)"
                 " VALUES (?1, ?2, ?3, ?4) ON CONFLICT (owner, day) DO UPDATE SET"
                 " held_tokens = held_tokens + excluded.held_tokens,"
                 " held_nusd = held_nusd + excluded.held_nusd",
    [DAY_SPEND] = "INSERT INTO spend_days (owner, day, tokens, nusd)"
                  " VALUES (?1, ?2, ?3, ?4) ON CONFLICT (owner, day) DO UPDATE SET"
                  " tokens = tokens + excluded.tokens, nusd = nusd + excluded.nusd",
    [RESERVE_GET] = "SELECT owner, day, tokens, nusd, settled_ms, lost FROM reserves WHERE id = ?1",
    [RESERVE_ADD] = "INSERT INTO reserves (id, owner, day, tokens, nusd, node, until_ms,"
                    " settled_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    /* One that is lost stays known for as long as its server lives after all. */
    [RESERVE_RENEW] = "UPDATE reserves SET until_ms = ?2, settled_ms = iif(lost, ?3, 0)"
                      " WHERE id = ?1 AND (settled_ms = 0 OR lost)",
    [RESERVE_OVER] = "SELECT id, owner, day, tokens, nusd FROM reserves"
                     " WHERE owner = ?1 AND until_ms <= ?2 AND settled_ms = 0 LIMIT ?3",
    [RESERVE_OF_NODE] = "SELECT id, owner, day, tokens, nusd FROM reserves"
                        " WHERE node = ?1 AND settled_ms = 0 AND ?2 >= 0 LIMIT ?3",
    [RESERVE_LOST] = "UPDATE reserves SET settled_ms = ?2, lost = 1 WHERE id = ?1",
    [RESERVE_SETTLED] = "UPDATE reserves SET settled_ms = ?2, lost = 0 WHERE id = ?1",
    [RESERVE_PRUNE] = "DELETE FROM reserves WHERE id IN (SELECT id FROM reserves"
                      " WHERE settled_ms > 0 AND settled_ms < ?1 LIMIT ?2)",
    [JOBS_ADD] = "INSERT INTO job_usage VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)"
                 " ON CONFLICT (day, owner, kind) DO UPDATE SET jobs = jobs + excluded.jobs,"
                 " done = done + excluded.done, wall_ms = wall_ms + excluded.wall_ms,"
                 " input_tokens = input_tokens + excluded.input_tokens,"
                 " output_tokens = output_tokens + excluded.output_tokens,"
                 " cache_read_tokens = cache_read_tokens + excluded.cache_read_tokens,"
                 " cache_write_tokens = cache_write_tokens + excluded.cache_write_tokens,"
                 " cost_nusd = cost_nusd + excluded.cost_nusd,"
                 " charged_nusd = charged_nusd + excluded.charged_nusd",
    [JOBS_USAGE] =
        "SELECT json_group_array(json_object('key', owner, 'day', day, 'kind', kind, 'jobs', jobs,"
        " 'done', done, 'wall_ms', wall_ms, 'input_tokens', input_tokens, 'output_tokens',"
        " output_tokens, 'cache_read_tokens', cache_read_tokens, 'cache_write_tokens',"
        " cache_write_tokens, 'cost_usd', cost_nusd / 1e9, 'charged_usd', charged_nusd / 1e9))"
        " FROM (SELECT * FROM job_usage WHERE (?1 IS NULL OR owner = ?1) AND day >= ?2"
        " ORDER BY day DESC, owner, kind LIMIT ?3)",
    [JOBS_TODAY] =
        "SELECT json_group_array(json_object('key', d.owner, 'day', d.day, 'tokens', d.tokens,"
        " 'charged_usd', d.nusd / 1e9, 'held_tokens', d.held_tokens, 'held_usd', d.held_nusd / 1e9,"
        " 'tokens_per_day', nullif(k.tokens_per_day, 0), 'usd_per_day',"
        " nullif(k.nusd_per_day, 0) / 1e9)) FROM (SELECT * FROM spend_days WHERE day = ?2"
        " AND (?1 IS NULL OR owner = ?1) LIMIT ?3) d LEFT JOIN keys k ON k.id = d.owner",
};

const struct ledger_statements ledger_spend_statements = {sql, ARRAY_LEN(sql)};

enum { DAY_SIZE = 11 };

struct reserve {
    char id[ID_SIZE];
    char owner[ID_SIZE];
    char day[DAY_SIZE];
    int64_t tokens;
    int64_t nusd;
    bool settled;
    bool lost; /* and counted as spent whole */
};

static sqlite3_stmt *ready(struct ledger_db *db, int which, const char *first) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_SPENDS, which);
    store_bind_str(st, 1, first);
    return st;
}

static void column_day(sqlite3_stmt *st, int i, char out[DAY_SIZE]) {
    const char *text = (const char *)sqlite3_column_text(st, i);
    (void)snprintf(out, DAY_SIZE, "%s", text ? text : "");
}

static void today(struct ledger_db *db, char out[DAY_SIZE]) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_SPENDS, DAY_TODAY);
    store_bind_int(st, 1, db->now_ms());
    out[0] = 0;
    if (sqlite3_step(st) == SQLITE_ROW)
        column_day(st, 0, out);
    (void)sqlite3_reset(st);
}

/* Adds to what is set aside of a day, or to what was spent. */
static int add_to_day(struct ledger_db *db, int which, const struct reserve *r, int64_t tokens,
                      int64_t nusd, struct err *err) {
    sqlite3_stmt *st = ready(db, which, r->owner);
    store_bind_str(st, 2, r->day);
    store_bind_int(st, 3, tokens);
    store_bind_int(st, 4, nusd);
    return store_step(st, "account for a day", NULL, err);
}

static bool find(struct ledger_db *db, const char *id, struct reserve *r) {
    sqlite3_stmt *st = ready(db, RESERVE_GET, id);
    bool row = sqlite3_step(st) == SQLITE_ROW;
    if (row) {
        *r = (struct reserve){.tokens = sqlite3_column_int64(st, 2),
                              .nusd = sqlite3_column_int64(st, 3),
                              .settled = sqlite3_column_int64(st, 4) > 0,
                              .lost = sqlite3_column_int64(st, 5) > 0};
        (void)snprintf(r->id, sizeof(r->id), "%s", id);
        store_column_id(st, 0, r->owner);
        column_day(st, 1, r->day);
    }
    (void)sqlite3_reset(st);
    return row;
}

static int add_usage(struct ledger_db *db, const char *day, const struct ledger_spend *a,
                     struct err *err) {
    const int64_t counts[] = {a->jobs,
                              a->done,
                              a->wall_ms,
                              a->input_tokens,
                              a->output_tokens,
                              a->cache_read_tokens,
                              a->cache_write_tokens,
                              a->cost_nusd,
                              a->charged_nusd};
    bool any = false;
    sqlite3_stmt *st = ready(db, JOBS_ADD, day);
    store_bind_str(st, 2, a->owner);
    store_bind_str(st, 3, a->kind);
    for (int i = 0; i < (int)ARRAY_LEN(counts); i++) {
        store_bind_int(st, 4 + i, counts[i]);
        any = any || counts[i] != 0;
    }
    return any ? store_step(st, "account for a job", NULL, err) : 0;
}

/* --- whose server is gone --- */

/* Shown as a kind of its own, since nobody knows what was used. */
static int add_lost(struct ledger_db *db, const struct reserve *r, int64_t nusd, struct err *err) {
    struct ledger_spend s = {.kind = "interrupted", .charged_nusd = nusd};
    memcpy(s.owner, r->owner, sizeof(s.owner));
    return add_usage(db, r->day, &s, err);
}

/* What was in flight may have been used up to the last token: it counts as spent, so that nobody
 * gets more than a day's worth by the death of servers. */
static int forfeit(struct ledger_db *db, const struct reserve *r, struct err *err) {
    sqlite3_stmt *st = ready(db, RESERVE_LOST, r->id);
    store_bind_int(st, 2, db->now_ms());
    int rc = store_step(st, "count what is lost", NULL, err);
    if (rc == 0)
        rc = add_to_day(db, DAY_HOLD, r, -r->tokens, -r->nusd, err);
    if (rc == 0)
        rc = add_to_day(db, DAY_SPEND, r, r->tokens, r->nusd, err);
    return rc < 0 ? rc : add_lost(db, r, r->nusd, err);
}

/* Of an owner those whose lease is over, or all of a node. */
static int forfeit_some(struct ledger_db *db, int which, const char *whose, struct err *err) {
    struct reserve *list = xcalloc(FREE_BATCH, sizeof(*list));
    size_t n;
    int rc = 0;
    do {
        sqlite3_stmt *st = ready(db, which, whose);
        store_bind_int(st, 2, db->now_ms());
        store_bind_int(st, 3, FREE_BATCH);
        for (n = 0; n < FREE_BATCH && sqlite3_step(st) == SQLITE_ROW; n++) {
            store_column_id(st, 0, list[n].id);
            store_column_id(st, 1, list[n].owner);
            column_day(st, 2, list[n].day);
            list[n].tokens = sqlite3_column_int64(st, 3);
            list[n].nusd = sqlite3_column_int64(st, 4);
        }
        (void)sqlite3_reset(st);
        for (size_t i = 0; rc == 0 && i < n; i++)
            rc = forfeit(db, &list[i], err);
    } while (rc == 0 && n == FREE_BATCH);
    free(list);
    return rc;
}

int ledger_spend_forfeit(struct ledger_db *db, const char *node, struct err *err) {
    return forfeit_some(db, RESERVE_OF_NODE, node, err);
}

int ledger_spend_prune(struct ledger_db *db, struct err *err) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_SPENDS, RESERVE_PRUNE);
    store_bind_int(st, 1, db->now_ms() - LEDGER_SETTLED_MS);
    store_bind_int(st, 2, PRUNE_BATCH);
    return store_step(st, "forget reservations", NULL, err);
}

/* --- reserving --- */

static int add(struct ledger_db *db, const struct reserve *r, const char *node, struct err *err) {
    sqlite3_stmt *st = ready(db, RESERVE_ADD, r->id);
    int64_t now = db->now_ms();
    store_bind_str(st, 2, r->owner);
    store_bind_str(st, 3, r->day);
    store_bind_int(st, 4, r->tokens);
    store_bind_int(st, 5, r->nusd);
    store_bind_str(st, 6, node);
    store_bind_int(st, 7, now + LEDGER_LEASE_MS);
    store_bind_int(st, 8, r->settled ? now : 0);
    return store_step(st, "reserve", NULL, err);
}

/* What is left of a day's limit; INT64_MAX: there is none. */
static int64_t left_of(int64_t limit, int64_t spent, int64_t held) {
    return limit > 0 ? MAX(limit - spent - held, 0) : INT64_MAX;
}

static int refuse_tokens(const struct ledger_spend *a, int64_t spent, int64_t held,
                         struct err *err) {
    return err_set(err, ERR_QUOTA,
                   "this key may use %" PRId64 " tokens a day: %" PRId64 " are used, %" PRId64
                   " set aside for what runs, and this may need %" PRId64
                   "; the next day begins at 00:00 UTC",
                   a->tokens_per_day, spent, held, a->tokens_least);
}

static int refuse_nusd(const struct ledger_spend *a, int64_t spent, int64_t held, struct err *err) {
    return err_set(err, ERR_QUOTA,
                   "this key may spend $%.4f a day: $%.4f is spent, $%.4f set aside for what runs, "
                   "and this may cost $%.4f; the next day begins at 00:00 UTC",
                   (double)a->nusd_per_day / 1e9, (double)spent / 1e9, (double)held / 1e9,
                   (double)a->nusd_least / 1e9);
}

/* As much as is wanted and left, of what has a limit. */
static int portion(struct ledger_db *db, const struct ledger_spend *a, struct reserve *r,
                   struct err *err) {
    sqlite3_stmt *st = ready(db, DAY_GET, a->owner);
    int64_t v[4] = {0};
    store_bind_str(st, 2, r->day);
    if (sqlite3_step(st) == SQLITE_ROW)
        for (int i = 0; i < 4; i++)
            v[i] = sqlite3_column_int64(st, i);
    (void)sqlite3_reset(st);
    int64_t tokens = left_of(a->tokens_per_day, v[0], v[2]);
    int64_t nusd = left_of(a->nusd_per_day, v[1], v[3]);
    if (tokens < MAX(a->tokens_least, 1))
        return refuse_tokens(a, v[0], v[2], err);
    if (nusd < MAX(a->nusd_least, 1) && a->nusd > 0)
        return refuse_nusd(a, v[1], v[3], err);
    r->tokens = a->tokens_per_day > 0 ? MIN(tokens, a->tokens) : 0;
    r->nusd = a->nusd_per_day > 0 ? MIN(nusd, a->nusd) : 0;
    return 0;
}

int ledger_do_reserve(struct ledger_db *db, const struct ledger_ask *ask,
                      struct ledger_answer *answer, struct err *err) {
    const struct ledger_spend *a = ask->spends;
    struct reserve r = {0};
    if (find(db, a->id, &r)) {
        answer->repeated = true;
        answer->tokens = r.tokens;
        answer->nusd = r.nusd;
        return r.settled ? err_set(err, ERR_CONFLICT, "it is settled already") : 0;
    }
    memcpy(r.id, a->id, sizeof(r.id));
    memcpy(r.owner, a->owner, sizeof(r.owner));
    today(db, r.day);
    int rc = forfeit_some(db, RESERVE_OVER, a->owner, err);
    if (rc == 0)
        rc = portion(db, a, &r, err);
    if (rc == 0)
        rc = add(db, &r, ask->node, err);
    if (rc == 0)
        rc = add_to_day(db, DAY_HOLD, &r, r.tokens, r.nusd, err);
    answer->tokens = r.tokens;
    answer->nusd = r.nusd;
    return rc;
}

int ledger_do_reserve_renew(struct ledger_db *db, const struct ledger_ask *ask,
                            struct ledger_answer *answer, struct err *err) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ask->nspends; i++) {
        sqlite3_stmt *st = ready(db, RESERVE_RENEW, ask->spends[i].id);
        int64_t changes = 0;
        store_bind_int(st, 2, db->now_ms() + LEDGER_LEASE_MS);
        store_bind_int(st, 3, db->now_ms());
        rc = store_step(st, "renew a reservation", &changes, err);
        answer->count += changes;
    }
    return rc;
}

/* --- settling --- */

/* What is set aside goes; what was lost and comes back after all was spent already. */
static int release(struct ledger_db *db, const struct reserve *r, struct err *err) {
    sqlite3_stmt *st = ready(db, RESERVE_SETTLED, r->id);
    store_bind_int(st, 2, db->now_ms());
    int rc = store_step(st, "settle", NULL, err);
    if (rc == 0)
        rc = add_to_day(db, r->lost ? DAY_SPEND : DAY_HOLD, r, -r->tokens, -r->nusd, err);
    return rc < 0 || !r->lost ? rc : add_lost(db, r, -r->nusd, err);
}

/* The row stays, so that this is done once. What is not known is charged to the day of today. */
static int settle(struct ledger_db *db, const struct ledger_ask *ask, const struct ledger_spend *a,
                  struct err *err) {
    struct reserve r = {.settled = true};
    int64_t tokens =
        a->input_tokens + a->output_tokens + a->cache_read_tokens + a->cache_write_tokens;
    int rc = 0;
    if (!find(db, a->id, &r)) {
        memcpy(r.id, a->id, sizeof(r.id));
        memcpy(r.owner, a->owner, sizeof(r.owner));
        today(db, r.day);
        rc = add(db, &r, ask->node, err);
    } else if (r.settled && !r.lost) {
        return 0;
    } else {
        rc = release(db, &r, err);
    }
    if (rc == 0 && (tokens > 0 || a->charged_nusd > 0))
        rc = add_to_day(db, DAY_SPEND, &r, tokens, a->charged_nusd, err);
    return rc < 0 ? rc : add_usage(db, r.day, a, err);
}

int ledger_do_settle(struct ledger_db *db, const struct ledger_ask *ask,
                     struct ledger_answer *answer, struct err *err) {
    int rc = 0;
    (void)answer;
    for (size_t i = 0; rc == 0 && i < ask->nspends; i++)
        rc = settle(db, ask, &ask->spends[i], err);
    return rc;
}

/* --- what was used --- */

static int read_json(struct ledger_db *db, int which, const char *owner, const char *day,
                     size_t limit, char **ret, struct err *err) {
    sqlite3_stmt *st = ready(db, which, owner);
    store_bind_str(st, 2, day);
    store_bind_int(st, 3, (int64_t)limit);
    int rc = sqlite3_step(st) == SQLITE_ROW ? 0 : store_error(db->db, err, "read the usage");
    if (rc == 0)
        *ret = store_column_dup(st, 0);
    (void)sqlite3_reset(st);
    return rc;
}

int ledger_spend_usage(struct ledger_db *db, const struct ledger_ask *ask,
                       struct ledger_answer *answer, struct err *err) {
    char day[DAY_SIZE];
    today(db, day);
    int rc = read_json(db, JOBS_USAGE, ask->owner, ask->before ? ask->before : "", ask->limit,
                       &answer->jobs, err);
    if (rc == 0)
        rc = read_json(db, JOBS_TODAY, ask->owner, day, ROWS_TODAY, &answer->today, err);
    return rc;
}
