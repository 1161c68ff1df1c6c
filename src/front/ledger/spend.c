#include "front/ledger/internal.h"

#include "base/mem.h"

#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DAY_TODAY,
    DAY_GET, /* of a project; the next three in its place are a key's */
    DAY_HOLD,
    DAY_SPEND,
    KEY_DAY_GET,
    KEY_DAY_HOLD,
    KEY_DAY_SPEND,
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

enum { OF_KEY = KEY_DAY_GET - DAY_GET };

enum { FREE_BATCH = 256, PRUNE_BATCH = 1000, ROWS_TODAY = 10000 };

#define DAY_GET_SQL(table)                                                                         \
    "SELECT tokens, nusd, held_tokens, held_nusd FROM " table " WHERE owner = ?1 AND day = ?2"
#define DAY_HOLD_SQL(table)                                                                        \
    "INSERT INTO " table " (owner, day, held_tokens, held_nusd) VALUES (?1, ?2, ?3, ?4)"           \
    " ON CONFLICT (owner, day) DO UPDATE SET held_tokens = held_tokens + excluded.held_tokens,"    \
    " held_nusd = held_nusd + excluded.held_nusd"
#define DAY_SPEND_SQL(table)                                                                       \
    "INSERT INTO " table " (owner, day, tokens, nusd) VALUES (?1, ?2, ?3, ?4)"                     \
    " ON CONFLICT (owner, day) DO UPDATE SET tokens = tokens + excluded.tokens,"                   \
    " nusd = nusd + excluded.nusd"

static const char *const sql[] = {
    [DAY_TODAY] = "SELECT strftime('%Y-%m-%d', ?1 / 1000, 'unixepoch')",
    [DAY_GET] = DAY_GET_SQL("spend_days"),
    [DAY_HOLD] = DAY_HOLD_SQL("spend_days"),
    [DAY_SPEND] = DAY_SPEND_SQL("spend_days"),
    [KEY_DAY_GET] = DAY_GET_SQL("key_days"),
    [KEY_DAY_HOLD] = DAY_HOLD_SQL("key_days"),
    [KEY_DAY_SPEND] = DAY_SPEND_SQL("key_days"),
    [RESERVE_GET] = "SELECT owner, day, tokens, nusd, settled_ms, lost, key FROM reserves"
                    " WHERE id = ?1",
    [RESERVE_ADD] = "INSERT INTO reserves (id, owner, day, tokens, nusd, node, until_ms,"
                    " settled_ms, key) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    /* One that is lost stays known for as long as its server lives after all. */
    [RESERVE_RENEW] = "UPDATE reserves SET until_ms = ?2, settled_ms = iif(lost, ?3, 0)"
                      " WHERE id = ?1 AND (settled_ms = 0 OR lost)",
    [RESERVE_OVER] = "SELECT id, owner, day, tokens, nusd, key FROM reserves"
                     " WHERE owner = ?1 AND until_ms <= ?2 AND settled_ms = 0 LIMIT ?3",
    [RESERVE_OF_NODE] = "SELECT id, owner, day, tokens, nusd, key FROM reserves"
                        " WHERE node = ?1 AND settled_ms = 0 AND ?2 >= 0 LIMIT ?3",
    [RESERVE_LOST] = "UPDATE reserves SET settled_ms = ?2, lost = 1 WHERE id = ?1",
    [RESERVE_SETTLED] = "UPDATE reserves SET settled_ms = ?2, lost = 0 WHERE id = ?1",
    [RESERVE_PRUNE] = "DELETE FROM reserves WHERE id IN (SELECT id FROM reserves"
                      " WHERE settled_ms > 0 AND settled_ms < ?1 LIMIT ?2)",
    [JOBS_ADD] =
        "INSERT INTO job_usage VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12,"
        " ?13) ON CONFLICT (day, owner, key, kind) DO UPDATE SET jobs = jobs + excluded.jobs,"
        " done = done + excluded.done, wall_ms = wall_ms + excluded.wall_ms,"
        " input_tokens = input_tokens + excluded.input_tokens,"
        " output_tokens = output_tokens + excluded.output_tokens,"
        " cache_read_tokens = cache_read_tokens + excluded.cache_read_tokens,"
        " cache_write_tokens = cache_write_tokens + excluded.cache_write_tokens,"
        " cost_nusd = cost_nusd + excluded.cost_nusd,"
        " charged_nusd = charged_nusd + excluded.charged_nusd",
    [JOBS_USAGE] =
        "SELECT json_group_array(json_object('project', iif(owner = '', 'default', owner), 'key',"
        " key, 'day', day, 'kind', kind, 'jobs', jobs, 'done', done, 'wall_ms', wall_ms, "
        "'input_tokens', input_tokens, 'output_tokens',"
        " output_tokens, 'cache_read_tokens', cache_read_tokens, 'cache_write_tokens',"
        " cache_write_tokens, 'cost_usd', cost_nusd / 1e9, 'charged_usd', charged_nusd / 1e9))"
        " FROM (SELECT * FROM job_usage WHERE (?1 IS NULL OR owner = ?1) AND day >= ?2"
        " ORDER BY day DESC, owner, key, kind LIMIT ?3)",
    [JOBS_TODAY] =
        "SELECT json_group_array(json_object('project', iif(project = '', 'default', project),"
        " 'key', owner, 'day', day, 'tokens', tokens, 'charged_usd', nusd / 1e9, 'held_tokens',"
        " held_tokens, 'held_usd', held_nusd / 1e9, 'tokens_per_day', nullif(most_tokens, 0),"
        " 'usd_per_day', nullif(most_nusd, 0) / 1e9)) FROM (SELECT d.*, coalesce(k.project,"
        " d.owner) AS project, k.tokens_per_day AS most_tokens, k.nusd_per_day AS most_nusd"
        " FROM key_days d LEFT JOIN keys k ON k.id = d.owner WHERE d.day = ?2"
        " AND (?1 IS NULL OR coalesce(k.project, d.owner) = ?1) LIMIT ?3)",
};

const struct ledger_statements ledger_spend_statements = {sql, ARRAY_LEN(sql)};

enum { DAY_SIZE = 11 };

struct reserve {
    char id[ID_SIZE];
    char owner[ID_SIZE];
    char key[ID_SIZE];
    char day[DAY_SIZE];
    int64_t tokens;
    int64_t nusd;
    bool settled;
    bool lost; /* and counted as spent whole */
};

static sqlite3_stmt *ledger_spend_ready(struct ledger_db *db, int which, const char *first) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_SPENDS, which);
    store_bind_str(st, 1, first);
    return st;
}

static void column_day(sqlite3_stmt *st, int i, char out[DAY_SIZE]) {
    const char *text = (const char *)sqlite3_column_text(st, i);
    (void)snprintf(out, DAY_SIZE, "%s", text ? text : "");
}

static void ledger_spend_today(struct ledger_db *db, char out[DAY_SIZE]) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_SPENDS, DAY_TODAY);
    store_bind_int(st, 1, db->now_ms());
    out[0] = 0;
    if (sqlite3_step(st) == SQLITE_ROW)
        column_day(st, 0, out);
    (void)sqlite3_reset(st);
}

/* One of today, for nothing yet. */
static struct reserve ledger_spend_new(struct ledger_db *db, const char *id, const char *owner,
                                       const char *key) {
    struct reserve r = {0};
    (void)snprintf(r.id, sizeof(r.id), "%s", id);
    (void)snprintf(r.owner, sizeof(r.owner), "%s", owner);
    (void)snprintf(r.key, sizeof(r.key), "%s", key ? key : "");
    ledger_spend_today(db, r.day);
    return r;
}

/* Adds to what is set aside of a day (DAY_HOLD), or to what was spent (DAY_SPEND): by the project,
 * and by the key. */
static int add_to_day(struct ledger_db *db, int which, const struct reserve *r, int64_t tokens,
                      int64_t nusd, struct err *err) {
    const char *const whose[] = {r->owner, r->key};
    int rc = 0;
    for (int i = 0; rc == 0 && i < 2; i++) {
        sqlite3_stmt *st = ledger_spend_ready(db, which + i * OF_KEY, whose[i]);
        store_bind_str(st, 2, r->day);
        store_bind_int(st, 3, tokens);
        store_bind_int(st, 4, nusd);
        rc = store_step(st, "account for a day", NULL, err);
    }
    return rc;
}

static bool ledger_spend_find(struct ledger_db *db, const char *id, struct reserve *r) {
    sqlite3_stmt *st = ledger_spend_ready(db, RESERVE_GET, id);
    bool row = sqlite3_step(st) == SQLITE_ROW;
    if (row) {
        *r = (struct reserve){.tokens = sqlite3_column_int64(st, 2),
                              .nusd = sqlite3_column_int64(st, 3),
                              .settled = sqlite3_column_int64(st, 4) > 0,
                              .lost = sqlite3_column_int64(st, 5) > 0};
        (void)snprintf(r->id, sizeof(r->id), "%s", id);
        store_column_id(st, 0, r->owner);
        store_column_id(st, 6, r->key);
        column_day(st, 1, r->day);
    }
    (void)sqlite3_reset(st);
    return row;
}

static int ledger_spend_add_usage(struct ledger_db *db, const char *day,
                                  const struct ledger_used *a, struct err *err) {
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
    sqlite3_stmt *st = ledger_spend_ready(db, JOBS_ADD, day);
    store_bind_str(st, 2, a->owner);
    store_bind_str(st, 3, a->key);
    store_bind_str(st, 4, a->kind);
    for (int i = 0; i < (int)ARRAY_LEN(counts); i++) {
        store_bind_int(st, 5 + i, counts[i]);
        any = any || counts[i] != 0;
    }
    return any ? store_step(st, "account for a job", NULL, err) : 0;
}

/* --- whose server is gone --- */

/* Shown as a kind of its own, since nobody knows what was used. */
static int add_lost(struct ledger_db *db, const struct reserve *r, int64_t nusd, struct err *err) {
    struct ledger_used s = {.kind = "interrupted", .charged_nusd = nusd};
    memcpy(s.owner, r->owner, sizeof(s.owner));
    memcpy(s.key, r->key, sizeof(s.key));
    return ledger_spend_add_usage(db, r->day, &s, err);
}

/* What was in flight may have been used up to the last token: it counts as spent, so that nobody
 * gets more than a day's worth by the death of servers. */
static int ledger_spend_forfeit_one(struct ledger_db *db, const struct reserve *r,
                                    struct err *err) {
    sqlite3_stmt *st = ledger_spend_ready(db, RESERVE_LOST, r->id);
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
        sqlite3_stmt *st = ledger_spend_ready(db, which, whose);
        store_bind_int(st, 2, db->now_ms());
        store_bind_int(st, 3, FREE_BATCH);
        for (n = 0; n < FREE_BATCH && sqlite3_step(st) == SQLITE_ROW; n++) {
            store_column_id(st, 0, list[n].id);
            store_column_id(st, 1, list[n].owner);
            column_day(st, 2, list[n].day);
            list[n].tokens = sqlite3_column_int64(st, 3);
            list[n].nusd = sqlite3_column_int64(st, 4);
            store_column_id(st, 5, list[n].key);
        }
        (void)sqlite3_reset(st);
        for (size_t i = 0; rc == 0 && i < n; i++)
            rc = ledger_spend_forfeit_one(db, &list[i], err);
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

static int ledger_spend_add(struct ledger_db *db, const struct reserve *r, const char *node,
                            struct err *err) {
    sqlite3_stmt *st = ledger_spend_ready(db, RESERVE_ADD, r->id);
    int64_t now = db->now_ms();
    store_bind_str(st, 2, r->owner);
    store_bind_str(st, 3, r->day);
    store_bind_int(st, 4, r->tokens);
    store_bind_int(st, 5, r->nusd);
    store_bind_str(st, 6, node);
    store_bind_int(st, 7, now + LEDGER_LEASE_MS);
    store_bind_int(st, 8, r->settled ? now : 0);
    store_bind_str(st, 9, r->key);
    return store_step(st, "reserve", NULL, err);
}

/* Who asks may wait: what is set aside is mostly given back. */
static int ledger_spend_refuse_held(const char *whose, const char *what, struct err *err) {
    return err_set(err, ERR_RATE,
                   "other calls of this %s hold the %s that this may need: try again in some "
                   "seconds",
                   whose, what);
}

static int refuse_tokens(const char *whose, int64_t limit, int64_t spent, int64_t least,
                         struct err *err) {
    return err_set(err, ERR_QUOTA,
                   "this %s may use %" PRId64 " tokens a day: %" PRId64
                   " are used, and this may need %" PRId64 "; the next day begins at 00:00 UTC",
                   whose, limit, spent, least);
}

static int refuse_nusd(const char *whose, int64_t limit, int64_t spent, int64_t least,
                       struct err *err) {
    return err_set(err, ERR_QUOTA,
                   "this %s may spend $%.4f a day: $%.4f is spent, and this may cost $%.4f; the "
                   "next day begins at 00:00 UTC",
                   whose, (double)limit / 1e9, (double)spent / 1e9, (double)least / 1e9);
}

/* One of a day's limits. */
struct purse {
    int64_t limit; /* 0: none */
    int64_t spent, held;
    int64_t least, wanted;
};

enum purse_verdict { PURSE_GRANTED, PURSE_HELD, PURSE_SPENT };

/* What can be had today is bounded by what was spent; what can be had now, by what others hold too.
 */
static enum purse_verdict purse_open(const struct purse *p, bool partial, int64_t *ret) {
    if (p->limit == 0 || p->wanted == 0) {
        *ret = 0;
        return PURSE_GRANTED;
    }
    int64_t today = MAX(p->limit - p->spent, 0);
    int64_t now = MAX(today - p->held, 0);
    int64_t most = MIN(today, p->wanted);
    if (today < MAX(p->least, 1))
        return PURSE_SPENT;
    if (now < MAX(p->least, 1) || (now < most && !partial))
        return PURSE_HELD;
    *ret = MIN(now, most);
    return PURSE_GRANTED;
}

/* What is used and held of a day, and the limits: a project's, or a key's. */
struct day {
    const char *whose; /* in errors */
    const struct ledger_limits *limits;
    int64_t tokens, nusd, held_tokens, held_nusd;
};

static struct day ledger_spend_day(struct ledger_db *db, int which, const char *id,
                                   const char *day) {
    struct day d = {0};
    sqlite3_stmt *st = ledger_spend_ready(db, which, id);
    store_bind_str(st, 2, day);
    if (sqlite3_step(st) == SQLITE_ROW) {
        d.tokens = sqlite3_column_int64(st, 0);
        d.nusd = sqlite3_column_int64(st, 1);
        d.held_tokens = sqlite3_column_int64(st, 2);
        d.held_nusd = sqlite3_column_int64(st, 3);
    }
    (void)sqlite3_reset(st);
    return d;
}

/* As much as is wanted and left, of what has a limit; 0 of what has none. */
static int ledger_spend_part(const struct ledger_reserve *a, const struct day *d,
                             int64_t *ret_tokens, int64_t *ret_nusd, struct err *err) {
    const struct ledger_limits *l = d->limits;
    struct purse tokens = {l->tokens_per_day, d->tokens, d->held_tokens, a->tokens_least,
                           a->tokens};
    struct purse nusd = {l->nusd_per_day, d->nusd, d->held_nusd, a->nusd_least, a->nusd};
    int64_t some_tokens = 0;
    int64_t some_nusd = 0;
    enum purse_verdict of_tokens = purse_open(&tokens, a->partial, &some_tokens);
    enum purse_verdict of_nusd = purse_open(&nusd, a->partial, &some_nusd);
    if (of_tokens == PURSE_SPENT)
        return refuse_tokens(d->whose, l->tokens_per_day, d->tokens, a->tokens_least, err);
    if (of_nusd == PURSE_SPENT)
        return refuse_nusd(d->whose, l->nusd_per_day, d->nusd, a->nusd_least, err);
    if (of_tokens == PURSE_HELD || of_nusd == PURSE_HELD)
        return ledger_spend_refuse_held(d->whose, of_nusd == PURSE_HELD ? "money" : "tokens", err);
    if (l->tokens_per_day > 0)
        *ret_tokens = *ret_tokens > 0 ? MIN(*ret_tokens, some_tokens) : some_tokens;
    if (l->nusd_per_day > 0)
        *ret_nusd = *ret_nusd > 0 ? MIN(*ret_nusd, some_nusd) : some_nusd;
    return 0;
}

/* What both the key and the project have left. */
static int ledger_spend_portion(struct ledger_db *db, const struct ledger_reserve *a,
                                struct reserve *r, struct err *err) {
    struct day key = ledger_spend_day(db, KEY_DAY_GET, r->key, r->day);
    struct day project = ledger_spend_day(db, DAY_GET, r->owner, r->day);
    key.whose = "key";
    key.limits = &a->limits;
    project.whose = "project";
    project.limits = &a->project_limits;
    int rc = ledger_spend_part(a, &key, &r->tokens, &r->nusd, err);
    return rc < 0 ? rc : ledger_spend_part(a, &project, &r->tokens, &r->nusd, err);
}

int ledger_do_reserve(struct ledger_db *db, const struct ledger_reserve *ask,
                      struct ledger_reserved *ret, struct err *err) {
    struct reserve r;
    int rc = 0;
    if (ledger_spend_find(db, ask->id, &r)) {
        if (r.settled)
            return err_set(err, ERR_CONFLICT, "it is settled already");
    } else {
        r = ledger_spend_new(db, ask->id, ask->owner, ask->key);
        rc = forfeit_some(db, RESERVE_OVER, ask->owner, err);
        if (rc == 0)
            rc = ledger_spend_portion(db, ask, &r, err);
        if (rc == 0 && !ask->probe)
            rc = ledger_spend_add(db, &r, ask->node, err);
        if (rc == 0 && !ask->probe)
            rc = add_to_day(db, DAY_HOLD, &r, r.tokens, r.nusd, err);
    }
    if (rc == 0)
        *ret = (struct ledger_reserved){.tokens = r.tokens, .nusd = r.nusd};
    return rc;
}

int ledger_do_reserve_renew(struct ledger_db *db, const struct ledger_reserve_renew *ask,
                            struct err *err) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ask->n; i++) {
        sqlite3_stmt *st = ledger_spend_ready(db, RESERVE_RENEW, ask->ids[i]);
        store_bind_int(st, 2, db->now_ms() + LEDGER_LEASE_MS);
        store_bind_int(st, 3, db->now_ms());
        rc = store_step(st, "renew a reservation", NULL, err);
    }
    return rc;
}

/* --- settling --- */

/* What is set aside goes; what was lost and comes back after all was spent already. */
static int ledger_spend_release(struct ledger_db *db, const struct reserve *r, struct err *err) {
    sqlite3_stmt *st = ledger_spend_ready(db, RESERVE_SETTLED, r->id);
    store_bind_int(st, 2, db->now_ms());
    int rc = store_step(st, "settle", NULL, err);
    if (rc == 0)
        rc = add_to_day(db, r->lost ? DAY_SPEND : DAY_HOLD, r, -r->tokens, -r->nusd, err);
    return rc < 0 || !r->lost ? rc : add_lost(db, r, -r->nusd, err);
}

/* The row stays, so that this is done once. What is not known is charged to the day of today. */
static int ledger_spend_settle(struct ledger_db *db, const char *node, const struct ledger_used *a,
                               struct err *err) {
    struct reserve r;
    int64_t tokens =
        a->input_tokens + a->output_tokens + a->cache_read_tokens + a->cache_write_tokens;
    int rc = 0;
    if (!ledger_spend_find(db, a->id, &r)) {
        r = ledger_spend_new(db, a->id, a->owner, a->key);
        r.settled = true;
        rc = ledger_spend_add(db, &r, node, err);
    } else if (r.settled && !r.lost) {
        return 0;
    } else {
        rc = ledger_spend_release(db, &r, err);
    }
    if (rc == 0 && (tokens > 0 || a->charged_nusd > 0))
        rc = add_to_day(db, DAY_SPEND, &r, tokens, a->charged_nusd, err);
    return rc < 0 ? rc : ledger_spend_add_usage(db, r.day, a, err);
}

int ledger_do_settle(struct ledger_db *db, const struct ledger_settle *ask, struct err *err) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ask->n; i++)
        rc = ledger_spend_settle(db, ask->node, &ask->used[i], err);
    return rc;
}

/* --- what was used --- */

static int ledger_spend_read_json(struct ledger_db *db, int which, const char *owner,
                                  const char *day, size_t limit, char **ret, struct err *err) {
    sqlite3_stmt *st = ledger_spend_ready(db, which, owner);
    store_bind_str(st, 2, day);
    store_bind_int(st, 3, (int64_t)limit);
    int rc = sqlite3_step(st) == SQLITE_ROW ? 0 : store_error(db->db, err, "read the usage");
    if (rc == 0)
        *ret = store_column_dup(st, 0);
    (void)sqlite3_reset(st);
    return rc;
}

int ledger_spend_usage(struct ledger_db *db, const struct ledger_usage *ask, char **ret_jobs,
                       char **ret_today, struct err *err) {
    char day[DAY_SIZE];
    char *jobs = NULL;
    ledger_spend_today(db, day);
    int rc = ledger_spend_read_json(db, JOBS_USAGE, ask->owner, ask->since ? ask->since : "",
                                    ask->limit, &jobs, err);
    if (rc == 0)
        rc = ledger_spend_read_json(db, JOBS_TODAY, ask->owner, day, ROWS_TODAY, ret_today, err);
    if (rc == 0)
        *ret_jobs = jobs;
    else
        free(jobs);
    return rc;
}
