#include "front/store/internal.h"

#include "base/clock.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

enum {
    RECORD_PUT,
    RECORD_GET,
    RECORD_LIST,
    RECORD_DELETE,
    RECORD_INTERRUPT,
    RECORD_OLD,
    RECORD_SUM,
};

#define RECORD_COLUMNS "kind, id, owner, parent, status, created_ms, ended_ms, bytes, doc"

static const char *const sql[] = {
    [RECORD_PUT] = "INSERT INTO records (" RECORD_COLUMNS ") VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9)"
                   " ON CONFLICT (kind, id) DO UPDATE SET status = ?5, ended_ms = ?7, bytes = ?8,"
                   " doc = ?9",
    [RECORD_GET] = "SELECT " RECORD_COLUMNS " FROM records WHERE kind = ?1 AND id = ?2"
                   " AND (?3 OR owner = ?4) AND (?5 IS NULL OR parent = ?5)",
    [RECORD_LIST] = "SELECT " RECORD_COLUMNS " FROM records WHERE kind = ?1 AND (?2 OR owner = ?3)"
                    " AND (?4 IS NULL OR parent = ?4) AND (?5 IS NULL OR id < ?5)"
                    " ORDER BY id DESC LIMIT ?6",
    [RECORD_DELETE] = "DELETE FROM records WHERE (kind = ?1 AND id = ?2) OR parent = ?2",
    [RECORD_INTERRUPT] = "UPDATE records SET status = 'interrupted', ended_ms = ?1"
                         " WHERE ended_ms = 0 AND kind IN ('sandbox', 'exec')",
    [RECORD_OLD] = "SELECT " RECORD_COLUMNS " FROM records WHERE kind = ?1 AND ended_ms > 0"
                   " AND (?2 IS NULL OR parent = ?2) AND (ended_ms < ?3 OR id NOT IN"
                   " (SELECT id FROM records WHERE kind = ?1 AND ended_ms > 0"
                   " AND (?2 IS NULL OR parent = ?2) ORDER BY id DESC LIMIT ?4)) LIMIT 100",
    [RECORD_SUM] = "SELECT coalesce(sum(bytes), 0) FROM records WHERE kind = ?1",
};

const struct store_statements store_record_statements = {sql, ARRAY_LEN(sql)};

void store_record_finish(struct store_record *r) {
    if (!r)
        return;
    free(r->status);
    free(r->doc);
    *r = (struct store_record){0};
}

static void read_record(sqlite3_stmt *st, struct store_record *r) {
    *r = (struct store_record){0};
    store_column_id(st, 1, r->id);
    store_column_id(st, 2, r->owner);
    store_column_id(st, 3, r->parent);
    r->status = store_column_dup(st, 4);
    r->created_ms = sqlite3_column_int64(st, 5);
    r->ended_ms = sqlite3_column_int64(st, 6);
    r->bytes = sqlite3_column_int64(st, 7);
    r->doc = store_column_dup(st, 8);
}

int store_record_put(struct store *s, const char *kind, const struct store_record *r,
                     struct err *err) {
    sqlite3_stmt *st = store_ready(s, STORE_RECORDS, RECORD_PUT);
    store_bind_str(st, 1, kind);
    store_bind_str(st, 2, r->id);
    store_bind_str(st, 3, r->owner);
    store_bind_str(st, 4, r->parent);
    store_bind_str(st, 5, r->status);
    store_bind_int(st, 6, r->created_ms);
    store_bind_int(st, 7, r->ended_ms);
    store_bind_int(st, 8, r->bytes);
    store_bind_str(st, 9, r->doc);
    return store_step(s, st, "record a sandbox", NULL, err);
}

int store_record_get(struct store *s, const char *kind, const char *id, const char *parent,
                     struct store_scope scope, struct store_record *ret, struct err *err) {
    sqlite3_stmt *st = store_ready(s, STORE_RECORDS, RECORD_GET);
    store_bind_str(st, 1, kind);
    store_bind_str(st, 2, id);
    store_bind_int(st, 3, scope.all);
    store_bind_str(st, 4, scope.owner ? scope.owner : "");
    store_bind_str(st, 5, parent);
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW)
        read_record(st, ret);
    int e = rc == SQLITE_ROW    ? 0
            : rc == SQLITE_DONE ? err_set(err, ERR_NOT_FOUND, "there is no %s \"%.40s\"", kind, id)
                                : store_error(s->db, err, "read a record");
    (void)sqlite3_reset(st);
    return e;
}

static int list_records(struct store *s, sqlite3_stmt *st,
                        void (*on_record)(void *ctx, const struct store_record *r), void *ctx,
                        struct err *err) {
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct store_record r;
        read_record(st, &r);
        on_record(ctx, &r);
        store_record_finish(&r);
    }
    int e = rc == SQLITE_DONE ? 0 : store_error(s->db, err, "list records");
    (void)sqlite3_reset(st);
    return e;
}

int store_record_list(struct store *s, const char *kind, const struct store_record_query *query,
                      void (*on_record)(void *ctx, const struct store_record *r), void *ctx,
                      struct err *err) {
    sqlite3_stmt *st = store_ready(s, STORE_RECORDS, RECORD_LIST);
    store_bind_str(st, 1, kind);
    store_bind_int(st, 2, query->scope.all);
    store_bind_str(st, 3, query->scope.owner ? query->scope.owner : "");
    store_bind_str(st, 4, query->parent);
    store_bind_str(st, 5, query->before);
    store_bind_int(st, 6, (int64_t)query->limit);
    return list_records(s, st, on_record, ctx, err);
}

int store_record_delete(struct store *s, const char *kind, const char *id, struct err *err) {
    sqlite3_stmt *st = store_ready(s, STORE_RECORDS, RECORD_DELETE);
    store_bind_str(st, 1, kind);
    store_bind_str(st, 2, id);
    return store_step(s, st, "delete a record", NULL, err);
}

int store_record_interrupt_all(struct store *s, int64_t *ret_count, struct err *err) {
    sqlite3_stmt *st = store_ready(s, STORE_RECORDS, RECORD_INTERRUPT);
    store_bind_int(st, 1, clock_wall_ms());
    return store_step(s, st, "mark interrupted sandboxes", ret_count, err);
}

int store_record_old(struct store *s, const char *kind, const char *parent, int64_t before_ms,
                     size_t keep, void (*on_record)(void *ctx, const struct store_record *r),
                     void *ctx, struct err *err) {
    sqlite3_stmt *st = store_ready(s, STORE_RECORDS, RECORD_OLD);
    store_bind_str(st, 1, kind);
    store_bind_str(st, 2, parent);
    store_bind_int(st, 3, before_ms);
    store_bind_int(st, 4, (int64_t)keep);
    return list_records(s, st, on_record, ctx, err);
}

int store_record_sum(struct store *s, const char *kind, int64_t *ret_bytes, struct err *err) {
    sqlite3_stmt *st = store_ready(s, STORE_RECORDS, RECORD_SUM);
    store_bind_str(st, 1, kind);
    int e = 0;
    if (sqlite3_step(st) == SQLITE_ROW)
        *ret_bytes = sqlite3_column_int64(st, 0);
    else
        e = store_error(s->db, err, "sum records");
    (void)sqlite3_reset(st);
    return e;
}
