#include "front/store/internal.h"

#include "base/clock.h"
#include "base/mem.h"
#include "front/store/files.h"

#include <assert.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RUN_ADD,
    RUN_END,
    RUN_USAGE,
    RUN_GET,
    RUN_LOOK,
    RUN_PLACE,
    RUN_SINCE,
    RUN_LIST,
    RUN_LIST_OF_KIND,
    RUN_LIST_OF_OWNER,
    RUN_LIST_OF_OWNER_AND_KIND,
    RUN_INTERRUPT,
    EVENT_LAST,
    EVENT_ADD,
    EVENT_LIST,
};

enum { ROW_BYTES = 512, EVENT_BYTES = 64, SINCE_MARGIN_MS = 1000 };

#define RUN_COLUMNS                                                                                \
    "id, owner, kind, status, title, error_code, error_message, created_ms, finished_ms"
/* One statement for each index: with "?1 OR owner = ?2" SQLite would take none of them. */
#define USAGE                                                                                      \
    ", input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_nusd, unpriced,"   \
    " runs.key"
#define WITH_USAGE   " LEFT JOIN run_usage ON run = runs.rowid "
#define LIST         "SELECT " RUN_COLUMNS ", NULL" USAGE " FROM runs" WITH_USAGE
#define NEWEST_FIRST " AND runs.rowid < ?1 ORDER BY runs.rowid DESC LIMIT ?2"
#define SINCE        " AND runs.rowid > ?5"

static const char *const sql[] = {
    [RUN_ADD] = "INSERT INTO runs (id, owner, kind, status, title, detail, created_ms, bytes,"
                " error_code, error_message, finished_ms, key) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,"
                "?10,?11,?12)",
    [RUN_END] = "UPDATE runs SET status = ?2, error_code = ?3, error_message = ?4,"
                " detail = coalesce(?5, detail), finished_ms = ?6, bytes = coalesce(?7, bytes)"
                " WHERE id = ?1 AND status = 'running'",
    [RUN_USAGE] = "INSERT OR REPLACE INTO run_usage SELECT rowid, ?2, ?3, ?4, ?5, ?6, ?7 FROM runs"
                  " WHERE id = ?1",
    [RUN_GET] = "SELECT " RUN_COLUMNS ", detail" USAGE " FROM runs" WITH_USAGE
                "WHERE id = ?1 AND (?2 OR owner = ?3)",
    [RUN_LOOK] = "SELECT " RUN_COLUMNS ", NULL" USAGE ", runs.rowid FROM runs" WITH_USAGE
                 "WHERE id = ?1 AND (?2 OR owner = ?3)",
    /* Of one that is gone meanwhile: behind all that began with it or before, as their ids tell by
       the millisecond. */
    [RUN_PLACE] = "SELECT coalesce((SELECT rowid FROM runs WHERE id = ?1),"
                  " (SELECT max(rowid) + 1 FROM (SELECT rowid FROM runs WHERE ?1 GLOB 'run_*'"
                  " AND id < substr(?1, 1, 14) || '~' ORDER BY id DESC LIMIT 100)), 0)",
    /* Before all that began then or later. */
    [RUN_SINCE] = "SELECT coalesce((SELECT min(rowid) - 1 FROM (SELECT rowid FROM runs"
                  " WHERE id >= ?1 ORDER BY id LIMIT 100)), 9223372036854775807)",
    [RUN_LIST] = LIST "WHERE true" SINCE NEWEST_FIRST,
    [RUN_LIST_OF_KIND] = LIST "WHERE kind = ?4" SINCE NEWEST_FIRST,
    /* The newest of each kind, and of these the newest. */
    [RUN_LIST_OF_OWNER] = STORE_KINDS_OF(
        "?3") "SELECT " RUN_COLUMNS ", NULL" USAGE " FROM kinds CROSS JOIN runs"
              " ON owner = ?3 AND kind = its AND runs.rowid > max(?5, coalesce((SELECT rowid - 1"
              " FROM runs AS r WHERE r.owner = ?3 AND r.kind = its AND r.rowid < ?1"
              " ORDER BY r.rowid DESC LIMIT 1 OFFSET ?2 - 1), 0))" WITH_USAGE
              "WHERE true" NEWEST_FIRST,
    [RUN_LIST_OF_OWNER_AND_KIND] = LIST "WHERE owner = ?3 AND kind = ?4" SINCE NEWEST_FIRST,
    [RUN_INTERRUPT] = "UPDATE runs SET status = 'interrupted', finished_ms = ?1,"
                      " error_code = 'interrupted',"
                      " error_message = 'the server ended while this was running'"
                      " WHERE status = 'running' AND (rowid IN (SELECT run FROM run_watch)"
                      " OR rowid > (SELECT max(run) FROM run_watch))",
    [EVENT_LAST] =
        "SELECT seq, total_bytes FROM events WHERE run_id = ?1 ORDER BY seq DESC LIMIT 1",
    [EVENT_ADD] = "INSERT INTO events (run_id, time_ms, type, data, seq, total_bytes)"
                  " SELECT id, ?2, ?3, ?4, ?5, ?6 FROM runs"
                  " WHERE id = ?1 AND (?7 IS NULL OR owner = ?7)",
    [EVENT_LIST] = "SELECT seq, time_ms, type, data FROM events WHERE run_id = ?1 AND seq > ?2"
                   " ORDER BY seq LIMIT ?3",
};

const struct store_statements store_run_statements = {sql, ARRAY_LEN(sql)};

void store_run_finish(struct store_run *r) {
    if (!r)
        return;
    free(r->kind);
    free(r->title);
    free(r->detail);
    free(r->error_code);
    free(r->error_message);
    *r = (struct store_run){0};
}

static enum job_status store_runs_read_status(sqlite3_stmt *st) {
    enum job_status status = JOB_NO_STATUS;
    (void)job_status_parse((const char *)sqlite3_column_text(st, 3), &status);
    return status;
}

static void store_runs_read(sqlite3_stmt *st, struct store_run *r) {
    *r = (struct store_run){0};
    store_column_id(st, 0, r->id);
    store_column_id(st, 1, r->owner);
    store_column_id(st, 16, r->key);
    r->kind = store_column_dup(st, 2);
    r->status = store_runs_read_status(st);
    r->title = store_column_dup(st, 4);
    r->error_code = store_column_dup(st, 5);
    r->error_message = store_column_dup(st, 6);
    r->created_ms = sqlite3_column_int64(st, 7);
    r->finished_ms = sqlite3_column_int64(st, 8);
    r->detail = store_column_dup(st, 9);
    r->has_usage = sqlite3_column_type(st, 10) != SQLITE_NULL;
    r->usage = (struct store_run_usage){.input_tokens = sqlite3_column_int64(st, 10),
                                        .output_tokens = sqlite3_column_int64(st, 11),
                                        .cache_read_tokens = sqlite3_column_int64(st, 12),
                                        .cache_write_tokens = sqlite3_column_int64(st, 13),
                                        .cost_nusd = sqlite3_column_int64(st, 14),
                                        .unpriced = sqlite3_column_int(st, 15) != 0};
}

/* What a run with that detail takes, about: its row and its places in three indexes. */
static int64_t store_runs_weigh(size_t detail_len) {
    return ROW_BYTES + (int64_t)detail_len;
}

static bool has_usage(const struct store_run_usage *u) {
    return u->input_tokens || u->output_tokens || u->cache_read_tokens || u->cache_write_tokens ||
           u->cost_nusd || u->unpriced;
}

/* --- writing --- */

static int store_runs_write_usage(struct store *s, const char *id, const struct store_run_usage *u,
                                  struct err *err) {
    const int64_t values[] = {u->input_tokens,       u->output_tokens, u->cache_read_tokens,
                              u->cache_write_tokens, u->cost_nusd,     u->unpriced};
    sqlite3_stmt *st = store_write_statement(s, STORE_RUNS, RUN_USAGE);
    store_bind_str(st, 1, id);
    for (int i = 0; i < (int)ARRAY_LEN(values); i++)
        store_bind_int(st, 2 + i, values[i]);
    return store_step(st, "record the usage of a run", NULL, err);
}

/* A run that begins, or one that has begun and ended since the last transaction; or the end of one
 * that is in the database. */
struct run_op {
    struct store_op op;
    struct store_run run; /* of an end: its id */
    bool ended;
};

static void bind_detail(sqlite3_stmt *st, int i, const struct store_run *r) {
    if (r->detail)
        (void)sqlite3_bind_text64(st, i, r->detail, r->detail_len, SQLITE_STATIC, SQLITE_UTF8);
}

static int run_add(struct store *s, const struct store_op *op, struct err *err) {
    const struct run_op *o = (const struct run_op *)op;
    const struct store_run *r = &o->run;
    sqlite3_stmt *st = store_write_statement(s, STORE_RUNS, RUN_ADD);
    store_bind_str(st, 1, r->id);
    store_bind_str(st, 2, r->owner);
    store_bind_str(st, 3, r->kind);
    store_bind_str(st, 4, job_status_name(o->ended ? r->status : JOB_RUNNING));
    store_bind_str(st, 5, r->title);
    bind_detail(st, 6, r);
    store_bind_int(st, 7, r->created_ms);
    store_bind_int(st, 8, store_runs_weigh(r->detail_len));
    store_bind_str(st, 9, r->error_code);
    store_bind_str(st, 10, r->error_message);
    store_bind_int(st, 11, r->finished_ms);
    store_bind_str(st, 12, r->key);
    int rc = store_step(st, "record a run", NULL, err);
    if (rc == 0 && has_usage(&r->usage))
        rc = store_runs_write_usage(s, r->id, &r->usage, err);
    return rc;
}

static int run_close(struct store *s, const struct store_op *op, struct err *err) {
    const struct store_run *r = &((const struct run_op *)op)->run;
    sqlite3_stmt *st = store_write_statement(s, STORE_RUNS, RUN_END);
    store_bind_str(st, 1, r->id);
    store_bind_str(st, 2, job_status_name(r->status));
    store_bind_str(st, 3, r->error_code);
    store_bind_str(st, 4, r->error_message);
    bind_detail(st, 5, r);
    if (r->detail)
        store_bind_int(st, 7, store_runs_weigh(r->detail_len));
    store_bind_int(st, 6, r->finished_ms);
    int64_t changes = 0;
    int rc = store_step(st, "record the end of a run", &changes, err);
    if (rc == 0 && changes == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no running run \"%.40s\"", r->id);
    if (rc == 0 && has_usage(&r->usage))
        rc = store_runs_write_usage(s, r->id, &r->usage, err);
    return rc;
}

static void run_free(struct store_op *op) {
    struct run_op *o = (struct run_op *)op;
    store_run_finish(&o->run);
    free(o);
}

static const struct store_op_type run_begin_type = {
    .name = "a run", .begins = true, .run = run_add, .free = run_free};
static const struct store_op_type run_end_type = {
    .name = "the end of a run", .run = run_close, .free = run_free};

static char *copy_text(const char *text) {
    return text ? xstrdup(text) : NULL;
}

static size_t run_bytes(const struct store_run *r) {
    return sizeof(struct run_op) + r->detail_len + (r->title ? strlen(r->title) : 0);
}

int store_run_begin(struct store *s, const struct store_run *run, struct err *err) {
    struct run_op *o = xcalloc(1, sizeof(*o));
    struct store_run *r = &o->run;
    o->op.type = &run_begin_type;
    r->created_ms = run->created_ms;
    memcpy(r->id, run->id, sizeof(r->id));
    memcpy(r->owner, run->owner, sizeof(r->owner));
    memcpy(r->key, run->key, sizeof(r->key));
    r->kind = copy_text(run->kind);
    r->title = copy_text(run->title);
    r->detail = copy_text(run->detail);
    r->detail_len = r->detail ? strlen(r->detail) : 0;
    o->op.bytes = run_bytes(r);
    return store_submit(s, &o->op, err);
}

static void set_end(struct store_run *r, const struct store_run_end *end) {
    assert(end->status > JOB_RUNNING && end->status < JOB_STATUSES);
    r->status = end->status;
    r->error_code = copy_text(end->error_code);
    r->error_message = copy_text(end->error_message);
    r->finished_ms = clock_wall_ms();
    r->usage = end->usage;
    if (!end->detail)
        return;
    free(r->detail);
    r->detail = xstrndup(end->detail, end->detail_len);
    r->detail_len = end->detail_len;
}

/* Its beginning, if that waits to be written: then both are written as one. */
static struct run_op *find_beginning(const struct store *s, const char *id) {
    int n = 0;
    for (struct store_op *op = store_queue_last(s); op && n++ < STORE_MERGE_LOOK; op = op->prev) {
        struct run_op *o = (struct run_op *)op;
        if (op->type == &run_begin_type && !o->ended && strcmp(o->run.id, id) == 0)
            return o;
    }
    return NULL;
}

int store_run_end(struct store *s, const char *id, const struct store_run_end *end,
                  struct err *err) {
    struct run_op *o = find_beginning(s, id);
    if (o) {
        set_end(&o->run, end);
        o->ended = true;
        store_queue_resized(s, &o->op, run_bytes(&o->run));
        return 0;
    }
    o = xcalloc(1, sizeof(*o));
    o->op.type = &run_end_type;
    o->ended = true;
    (void)snprintf(o->run.id, sizeof(o->run.id), "%s", id);
    set_end(&o->run, end);
    o->op.bytes = run_bytes(&o->run);
    return store_submit(s, &o->op, err);
}

/* --- reading --- */

static int store_runs_get(struct store *s, int which, const char *id, struct store_scope scope,
                          struct store_run *ret_run, int64_t *ret_rowid, struct err *err) {
    sqlite3_stmt *st = store_read_statement(s, STORE_RUNS, which);
    store_bind_str(st, 1, id);
    store_bind_int(st, 2, scope.all);
    store_bind_str(st, 3, scope.owner ? scope.owner : "");
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW)
        store_runs_read(st, ret_run);
    if (rc == SQLITE_ROW && ret_rowid)
        *ret_rowid = sqlite3_column_int64(st, 17);
    int e = rc == SQLITE_ROW    ? 0
            : rc == SQLITE_DONE ? err_set(err, ERR_NOT_FOUND, "there is no run \"%.40s\"", id)
                                : store_error(s->read_db, err, "read a run");
    (void)sqlite3_reset(st);
    return e;
}

int store_run_get(struct store *s, const char *id, struct store_scope scope,
                  struct store_run *ret_run, struct err *err) {
    return store_runs_get(s, RUN_GET, id, scope, ret_run, NULL, err);
}

/* A statement would read all of a text to give a part of it. NULL: there is none. */
static char *read_begin(struct store *s, int64_t rowid, size_t max) {
    sqlite3_blob *blob = NULL;
    char *text = NULL;
    if (sqlite3_blob_open(s->read_db, "main", "runs", "detail", rowid, 0, &blob) == SQLITE_OK) {
        int n = (int)MIN((size_t)sqlite3_blob_bytes(blob), max);
        text = xmalloc((size_t)n + 1);
        text[n] = 0;
        if (sqlite3_blob_read(blob, text, n, 0) != SQLITE_OK) {
            free(text);
            text = NULL;
        }
    }
    (void)sqlite3_blob_close(blob);
    return text;
}

int store_run_look(struct store *s, const char *id, struct store_scope scope, size_t detail_bytes,
                   struct store_run *ret_run, struct err *err) {
    int64_t rowid = 0;
    int rc = store_runs_get(s, RUN_LOOK, id, scope, ret_run, &rowid, err);
    if (rc == 0 && detail_bytes > 0)
        ret_run->detail = read_begin(s, rowid, detail_bytes);
    return rc;
}

/* Where a list goes on that ended with that run, or with one that began at the time of that id. */
static int store_runs_find_place(struct store *s, int which, const char *id, int64_t *ret_rowid,
                                 struct err *err) {
    sqlite3_stmt *st = store_read_statement(s, STORE_RUNS, which);
    store_bind_str(st, 1, id);
    int e = sqlite3_step(st) == SQLITE_ROW ? 0 : store_error(s->read_db, err, "list runs");
    *ret_rowid = sqlite3_column_int64(st, 0);
    (void)sqlite3_reset(st);
    return e;
}

/* The rows between which the list lies. A run's record may be written some time after its id was
 * made, when that is a task's; which of them the times leave out is seen by store_runs_matches().
 */
static int find_places(struct store *s, const struct store_run_query *q, int64_t *ret_before,
                       int64_t *ret_after, struct err *err) {
    int64_t until = INT64_MAX;
    char id[ID_SIZE];
    int rc = 0;
    *ret_before = INT64_MAX;
    *ret_after = 0;
    if (q->before)
        rc = store_runs_find_place(s, RUN_PLACE, q->before, ret_before, err);
    if (rc == 0 && q->until_ms)
        rc = store_runs_find_place(s, RUN_PLACE, id_floor("run", q->until_ms, id), &until, err);
    if (rc == 0 && q->since_ms)
        rc = store_runs_find_place(s, RUN_SINCE, id_floor("run", q->since_ms - SINCE_MARGIN_MS, id),
                                   ret_after, err);
    *ret_before = MIN(*ret_before, until);
    return rc;
}

static bool has_text(sqlite3_stmt *st, int column, const char *text) {
    const char *in = (const char *)sqlite3_column_text(st, column);
    return in && strcasestr(in, text);
}

static bool store_runs_matches(sqlite3_stmt *st, const struct store_run_query *q) {
    int64_t created_ms = sqlite3_column_int64(st, 7);
    if (created_ms < q->since_ms || (q->until_ms && created_ms >= q->until_ms))
        return false;
    if (q->status && store_runs_read_status(st) != q->status)
        return false;
    if (q->key && strcmp((const char *)sqlite3_column_text(st, 16), q->key) != 0)
        return false;
    return !q->text || has_text(st, 4, q->text) || has_text(st, 6, q->text) ||
           has_text(st, 0, q->text);
}

static sqlite3_stmt *ready_list(struct store *s, const struct store_run_query *q) {
    bool of_owner = !q->scope.all;
    int which = of_owner && q->kind ? RUN_LIST_OF_OWNER_AND_KIND
                : of_owner          ? RUN_LIST_OF_OWNER
                : q->kind           ? RUN_LIST_OF_KIND
                                    : RUN_LIST;
    bool picks = q->status || q->key || q->text || q->since_ms || q->until_ms;
    sqlite3_stmt *st = store_read_statement(s, STORE_RUNS, which);
    store_bind_int(st, 2, picks ? STORE_RUNS_LOOK : (int64_t)q->limit + 1);
    store_bind_str(st, 3, q->scope.owner ? q->scope.owner : "");
    store_bind_str(st, 4, q->kind);
    return st;
}

int store_run_list(struct store *s, const struct store_run_query *query,
                   void (*on_run)(void *ctx, const struct store_run *run), void *ctx,
                   char ret_next[ID_SIZE], struct err *err) {
    int64_t before;
    int64_t after;
    int rc = find_places(s, query, &before, &after, err);
    if (rc < 0)
        return rc;
    sqlite3_stmt *st = ready_list(s, query);
    store_bind_int(st, 1, before);
    store_bind_int(st, 5, after);
    char last[ID_SIZE] = "";
    size_t n = 0;
    size_t seen = 0;
    bool more = false;
    while (!more && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        bool match = store_runs_matches(st, query);
        seen++;
        more = match && n == query->limit;
        if (more)
            break;
        store_column_id(st, 0, last);
        if (!match)
            continue;
        n++;
        struct store_run r;
        store_runs_read(st, &r);
        on_run(ctx, &r);
        store_run_finish(&r);
    }
    int e = more || rc == SQLITE_DONE ? 0 : store_error(s->read_db, err, "list runs");
    (void)sqlite3_reset(st);
    memcpy(ret_next, more || seen == STORE_RUNS_LOOK ? last : (char[ID_SIZE]){""}, ID_SIZE);
    return e;
}

int store_run_interrupt_all(struct store *s, int64_t *ret_count, struct err *err) {
    if (s->files >= 0)
        files_sweep_new(s->files);
    sqlite3_stmt *st = store_write_statement(s, STORE_RUNS, RUN_INTERRUPT);
    store_bind_int(st, 1, clock_wall_ms());
    return store_step(st, "mark interrupted runs", ret_count, err);
}

/* --- events --- */

struct event_op {
    struct store_op op;
    char run_id[ID_SIZE];
    char owner[ID_SIZE];
    bool any_owner;
    char type[32];
    int64_t time_ms;
    size_t len;
    char json[];
};

bool store_event_fits(const struct store *s, int64_t events, int64_t bytes, size_t len) {
    return events < s->settings.run_events &&
           bytes + store_event_bytes(len) <= s->settings.run_events_mb << 20;
}

int64_t store_event_bytes(size_t len) {
    return EVENT_BYTES + (int64_t)len;
}

/* The number and the bytes of the events that a run has. */
static int count_events(struct store *s, const char *run_id, int64_t *ret_n, int64_t *ret_bytes,
                        struct err *err) {
    sqlite3_stmt *st = store_write_statement(s, STORE_RUNS, EVENT_LAST);
    store_bind_str(st, 1, run_id);
    int rc = sqlite3_step(st);
    *ret_n = rc == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    *ret_bytes = rc == SQLITE_ROW ? sqlite3_column_int64(st, 1) : 0;
    int e = rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : store_error(s->db, err, "count events");
    (void)sqlite3_reset(st);
    return e;
}

static int event_run(struct store *s, const struct store_op *op, struct err *err) {
    const struct event_op *o = (const struct event_op *)op;
    int64_t n;
    int64_t bytes;
    int64_t changes = 0;
    int rc = count_events(s, o->run_id, &n, &bytes, err);
    if (rc < 0)
        return rc;
    if (!store_event_fits(s, n, bytes, o->len))
        return err_set(err, ERR_LIMIT,
                       "a run keeps %lld events and %lld MiB of them (\"run_events\", "
                       "\"run_events_mb\"): this one was left out; name another run",
                       (long long)s->settings.run_events, (long long)s->settings.run_events_mb);
    sqlite3_stmt *st = store_write_statement(s, STORE_RUNS, EVENT_ADD);
    store_bind_str(st, 1, o->run_id);
    store_bind_int(st, 2, o->time_ms);
    store_bind_str(st, 3, o->type);
    (void)sqlite3_bind_text64(st, 4, o->json, o->len, SQLITE_STATIC, SQLITE_UTF8);
    store_bind_int(st, 5, n + 1);
    store_bind_int(st, 6, bytes + store_event_bytes(o->len));
    store_bind_str(st, 7, o->any_owner ? NULL : o->owner);
    rc = store_step(st, "record an event", &changes, err);
    if (rc == 0 && changes == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no run \"%.40s\"", o->run_id);
    return rc;
}

static void event_free(struct store_op *op) {
    free(op);
}

static const struct store_op_type event_type = {
    .name = "an event", .begins = true, .run = event_run, .free = event_free};

int store_event_send(struct store *s, const char *run_id, struct store_scope scope,
                     const char *type, const char *json, size_t len, struct err *err) {
    struct event_op *o = xcalloc(1, sizeof(*o) + len + 1);
    o->op.type = &event_type;
    o->op.bytes = sizeof(*o) + len;
    (void)snprintf(o->run_id, sizeof(o->run_id), "%s", run_id);
    (void)snprintf(o->owner, sizeof(o->owner), "%s", scope.owner ? scope.owner : "");
    o->any_owner = scope.all;
    (void)snprintf(o->type, sizeof(o->type), "%s", type);
    o->time_ms = clock_wall_ms();
    o->len = len;
    memcpy(o->json, json, len);
    return store_submit(s, &o->op, err);
}

int store_event_add(struct store *s, const char *run_id, const char *type, const char *json,
                    size_t len, struct err *err) {
    return store_event_send(s, run_id, (struct store_scope){.all = true}, type, json, len, err);
}

int store_event_list(struct store *s, const char *run_id, int64_t after_seq, size_t limit,
                     void (*on_event)(void *ctx, const struct store_event *event), void *ctx,
                     struct err *err) {
    sqlite3_stmt *st = store_read_statement(s, STORE_RUNS, EVENT_LIST);
    store_bind_str(st, 1, run_id);
    store_bind_int(st, 2, after_seq);
    store_bind_int(st, 3, (int64_t)limit);
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct store_event e = {.seq = sqlite3_column_int64(st, 0),
                                .time_ms = sqlite3_column_int64(st, 1),
                                .type = (const char *)sqlite3_column_text(st, 2),
                                .json = (const char *)sqlite3_column_text(st, 3)};
        on_event(ctx, &e);
    }
    int e = rc == SQLITE_DONE ? 0 : store_error(s->read_db, err, "list events");
    (void)sqlite3_reset(st);
    return e;
}
