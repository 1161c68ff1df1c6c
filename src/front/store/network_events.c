#include "front/store/network_events.h"

#include "base/mem.h"
#include "front/store/internal.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

enum { TRIM_STEP = 1000 }; /* that go at once, more than come: others wait meanwhile */

enum network_statement {
    ADD,
    TRIM_EACH,
    COUNT_ALL,
    TRIM_ALL,
    FIND_NEWEST,
    LIST,
    COUNT_GONE,
    STATEMENTS
};

/* `n` numbers the events of a kind without gaps, so that the oldest are found by counting. */
static const char *const sql[STATEMENTS] = {
    [ADD] = "INSERT INTO network_events (sandbox, refused, seq, n, data) VALUES (?1, ?2,"
            " (SELECT coalesce(max(seq), 0) + 1 FROM network_events WHERE sandbox = ?1),"
            " (SELECT coalesce(max(n), 0) + 1 FROM network_events WHERE sandbox = ?1"
            "  AND refused = ?2), ?3)",
    [TRIM_EACH] = "DELETE FROM network_events WHERE sandbox = ?1 AND refused = ?2 AND n <="
                  " (SELECT max(n) FROM network_events WHERE sandbox = ?1 AND refused = ?2) - ?3",
    [COUNT_ALL] = "SELECT events FROM network_sum WHERE id = 1",
    [TRIM_ALL] = "DELETE FROM network_events WHERE id IN"
                 " (SELECT id FROM network_events WHERE refused = ?1 ORDER BY id LIMIT ?2)",
    [FIND_NEWEST] = "SELECT seq FROM network_events WHERE sandbox = ?1 ORDER BY seq DESC"
                    " LIMIT 1 OFFSET ?2",
    [LIST] = "SELECT seq, data FROM network_events WHERE sandbox = ?1 AND seq > ?2"
             " ORDER BY seq LIMIT ?3",
    [COUNT_GONE] = "SELECT coalesce(max(seq), 0) - count(*) FROM network_events WHERE sandbox = ?1",
};

const struct store_statements store_network_statements = {sql, ARRAY_LEN(sql)};

struct store_network {
    struct store *store;
    struct store_network_limits limits;
};

struct store_network *store_network_create(struct store *s,
                                           const struct store_network_limits *limits) {
    struct store_network *n = xcalloc(1, sizeof(*n));
    n->store = s;
    n->limits = *limits;
    return n;
}

void store_network_destroy(struct store_network *n) {
    free(n);
}

static int network_events_run(sqlite3_stmt *st, int64_t *ret_changes, struct err *err) {
    return store_step(st, "record what a sandbox did on the network", ret_changes, err);
}

/* The number that a statement gives, or `none` if it gives no row. */
static int get_number(sqlite3_stmt *st, int64_t none, int64_t *ret, struct err *err) {
    int rc = sqlite3_step(st);
    int e = 0;
    if (rc == SQLITE_ROW)
        *ret = sqlite3_column_int64(st, 0);
    else if (rc == SQLITE_DONE)
        *ret = none;
    else
        e = store_error(sqlite3_db_handle(st), err, "read what a sandbox did on the network");
    (void)sqlite3_reset(st);
    return e;
}

/* --- writing --- */

struct network_op {
    struct store_op op;
    struct store_network_limits limits;
    size_t n;
    struct store_network_event events[];
};

static int network_add(const struct store *s, const struct network_op *o,
                       const struct store_network_event *e, struct err *err) {
    sqlite3_stmt *st = store_write_statement(s, STORE_NETWORK, ADD);
    store_bind_str(st, 1, e->sandbox);
    store_bind_int(st, 2, e->refused);
    store_bind_str(st, 3, e->json);
    int rc = network_events_run(st, NULL, err);
    if (rc < 0)
        return rc;
    st = store_write_statement(s, STORE_NETWORK, TRIM_EACH);
    store_bind_str(st, 1, e->sandbox);
    store_bind_int(st, 2, e->refused);
    store_bind_int(st, 3, (int64_t)o->limits.each);
    return network_events_run(st, NULL, err);
}

static int network_trim(const struct store *s, const struct network_op *o, struct err *err) {
    int64_t all = 0;
    int rc = get_number(store_write_statement(s, STORE_NETWORK, COUNT_ALL), 0, &all, err);
    int64_t over = MIN(all - (int64_t)o->limits.total, TRIM_STEP);
    for (int refused = 1; rc == 0 && over > 0 && refused >= 0; refused--) {
        int64_t gone = 0;
        sqlite3_stmt *st = store_write_statement(s, STORE_NETWORK, TRIM_ALL);
        store_bind_int(st, 1, refused);
        store_bind_int(st, 2, over);
        rc = network_events_run(st, &gone, err);
        over -= gone;
    }
    return rc;
}

static int network_run(struct store *s, const struct store_op *op, struct err *err) {
    const struct network_op *o = (const struct network_op *)op;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < o->n; i++)
        rc = network_add(s, o, &o->events[i], err);
    return rc < 0 ? rc : network_trim(s, o, err);
}

static void network_free(struct store_op *op) {
    struct network_op *o = (struct network_op *)op;
    for (size_t i = 0; i < o->n; i++) {
        free((char *)(uintptr_t)o->events[i].sandbox);
        free((char *)(uintptr_t)o->events[i].json);
    }
    free(o);
}

static const struct store_op_type network_op_type = {.name = "events of the network",
                                                     .begins = true, /* they can be left out */
                                                     .run = network_run,
                                                     .free = network_free};

int store_network_add(struct store_network *n, const struct store_network_event *events,
                      size_t count, struct err *err) {
    struct network_op *o = xcalloc(1, sizeof(*o) + count * sizeof(o->events[0]));
    *o = (struct network_op){.op = {.type = &network_op_type}, .limits = n->limits, .n = count};
    for (size_t i = 0; i < count; i++) {
        o->events[i] = events[i];
        o->events[i].sandbox = xstrdup(events[i].sandbox);
        o->events[i].json = events[i].json ? xstrdup(events[i].json) : NULL;
        o->op.bytes += sizeof(o->events[i]) + (events[i].json ? strlen(events[i].json) : 0);
    }
    return store_submit(n->store, &o->op, err);
}

/* --- reading --- */

/* The number behind which the newest are. */
static int network_events_find_newest(const struct store_network *n,
                                      const struct store_network_query *query, int64_t *ret,
                                      struct err *err) {
    sqlite3_stmt *st = store_read_statement(n->store, STORE_NETWORK, FIND_NEWEST);
    store_bind_str(st, 1, query->sandbox);
    store_bind_int(st, 2, (int64_t)query->limit);
    return get_number(st, 0, ret, err);
}

int store_network_list(struct store_network *n, const struct store_network_query *query,
                       void (*on_event)(void *ctx, int64_t seq, const char *json), void *ctx,
                       int64_t *ret_gone, struct err *err) {
    sqlite3_stmt *st = store_read_statement(n->store, STORE_NETWORK, COUNT_GONE);
    int64_t after = query->after;
    int64_t gone = 0;
    store_bind_str(st, 1, query->sandbox);
    int rc = get_number(st, 0, &gone, err);
    if (rc == 0 && after < 0)
        rc = network_events_find_newest(n, query, &after, err);
    if (rc < 0)
        return rc;
    st = store_read_statement(n->store, STORE_NETWORK, LIST);
    store_bind_str(st, 1, query->sandbox);
    store_bind_int(st, 2, after);
    store_bind_int(st, 3, (int64_t)query->limit);
    int step;
    while ((step = sqlite3_step(st)) == SQLITE_ROW)
        on_event(ctx, sqlite3_column_int64(st, 0), (const char *)sqlite3_column_text(st, 1));
    if (step != SQLITE_DONE)
        rc = store_error(n->store->read_db, err, "read what a sandbox did on the network");
    (void)sqlite3_reset(st);
    if (rc == 0)
        *ret_gone = gone;
    return rc;
}
