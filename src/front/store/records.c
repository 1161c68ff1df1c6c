#include "front/store/internal.h"

#include "base/clock.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

enum {
    RECORD_PUT,
    RECORD_GET,
    RECORD_LIST,
    RECORD_LIST_OF_OWNER,
    RECORD_LIST_OF_PARENT,
    RECORD_DELETE,
    RECORD_INTERRUPT,
    RECORD_BEYOND,
    RECORD_AGED,
    RECORD_SUM,
    RECORD_SUM_OF_OWNER,
};

#define RECORD_COLUMNS "kind, id, owner, parent, status, created_ms, ended_ms, bytes, doc"
#define LIST           "SELECT " RECORD_COLUMNS " FROM records "
#define ENDED          "WHERE kind = ?1 AND parent = ?2 AND ended_ms > 0"
#define SUM            "SELECT coalesce(sum(bytes), 0) FROM records INDEXED BY records_bytes "
#define NTH_NEWEST     "SELECT id FROM records " ENDED " ORDER BY id DESC LIMIT 1 OFFSET ?3"

enum { OLD_MAX = 100 };

static const char *const sql[] = {
    [RECORD_PUT] = "INSERT INTO records (" RECORD_COLUMNS ") VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9)"
                   " ON CONFLICT (kind, id) DO UPDATE SET status = ?5, ended_ms = ?7, bytes = ?8,"
                   " doc = ?9",
    [RECORD_GET] = "SELECT " RECORD_COLUMNS " FROM records WHERE kind = ?1 AND id = ?2"
                   " AND (?3 OR owner = ?4) AND (?5 IS NULL OR parent = ?5)",
    [RECORD_LIST] = LIST "WHERE kind = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3",
    [RECORD_LIST_OF_OWNER] =
        LIST "WHERE kind = ?1 AND owner = ?5 AND id < ?2 ORDER BY id DESC LIMIT ?3",
    [RECORD_LIST_OF_PARENT] = LIST "WHERE kind = ?1 AND parent = ?6 AND (?4 OR owner = ?5)"
                                   " AND id < ?2 ORDER BY id DESC LIMIT ?3",
    [RECORD_DELETE] = "DELETE FROM records WHERE (kind = ?1 AND id = ?2) OR parent = ?2",
    [RECORD_INTERRUPT] = "UPDATE records INDEXED BY records_alive SET status = 'interrupted',"
                         " ended_ms = ?1"
                         " WHERE ended_ms = 0 AND kind IN ('sandbox', 'exec')",
    [RECORD_BEYOND] = LIST ENDED " AND id <= (" NTH_NEWEST ") ORDER BY id LIMIT ?4",
    [RECORD_AGED] = LIST ENDED " AND ended_ms < ?5 AND id > coalesce((" NTH_NEWEST
                               "), '') ORDER BY id LIMIT ?4",
    [RECORD_SUM] = SUM "WHERE kind = ?1 AND bytes > 0",
    [RECORD_SUM_OF_OWNER] = SUM "WHERE kind = ?1 AND bytes > 0 AND owner = ?2",
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

static int put(sqlite3_stmt *st, const char *kind, const struct store_record *r, struct err *err) {
    store_bind_str(st, 1, kind);
    store_bind_str(st, 2, r->id);
    store_bind_str(st, 3, r->owner);
    store_bind_str(st, 4, r->parent);
    store_bind_str(st, 5, r->status);
    store_bind_int(st, 6, r->created_ms);
    store_bind_int(st, 7, r->ended_ms);
    store_bind_int(st, 8, r->bytes);
    store_bind_str(st, 9, r->doc);
    return store_step(st, "record a sandbox", NULL, err);
}

int store_write_record(struct store *s, const char *kind, const struct store_record *r,
                       struct err *err) {
    return put(store_apart(s, STORE_RECORDS, RECORD_PUT), kind, r, err);
}

int store_add_record(struct store *s, const char *kind, const struct store_record *r,
                     struct err *err) {
    return put(store_next(s, STORE_RECORDS, RECORD_PUT), kind, r, err);
}

int store_record_put(struct store *s, const char *kind, const struct store_record *r,
                     struct err *err) {
    store_late_forget(s, r->id);
    if (r->ended_ms && store_untold_record(s, kind, r)) /* what begins is to hear of a full disk */
        return 0;
    store_untold_forget(s, kind, r->id);
    int rc = store_write_record(s, kind, r, err);
    if (rc == -ERR_FULL && r->ended_ms)
        store_late_record(s, kind, r);
    s->untold_stuck |= rc < 0; /* who begins next is to hear of it */
    return rc;
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
    int which = query->parent      ? RECORD_LIST_OF_PARENT
                : query->scope.all ? RECORD_LIST
                                   : RECORD_LIST_OF_OWNER;
    sqlite3_stmt *st = store_ready(s, STORE_RECORDS, which);
    store_bind_str(st, 1, kind);
    store_bind_str(st, 2, query->before ? query->before : STORE_AFTER_ALL_IDS);
    store_bind_int(st, 3, (int64_t)query->limit);
    store_bind_int(st, 4, query->scope.all);
    store_bind_str(st, 5, query->scope.owner ? query->scope.owner : "");
    store_bind_str(st, 6, query->parent);
    return list_records(s, st, on_record, ctx, err);
}

int store_record_delete(struct store *s, const char *kind, const char *id, struct err *err) {
    /* What the file of ends has of it goes to the database first, or the next server would take it
     * from there. */
    if (s->nended == 0)
        store_untold_forget(s, kind, id);
    int rc = store_untold_write(s, err);
    if (rc < 0)
        return rc;
    sqlite3_stmt *st = store_ready(s, STORE_RECORDS, RECORD_DELETE);
    store_late_forget(s, id);
    store_bind_str(st, 1, kind);
    store_bind_str(st, 2, id);
    return store_step(st, "delete a record", NULL, err);
}

int store_record_interrupt_all(struct store *s, int64_t *ret_count, struct err *err) {
    sqlite3_stmt *st = store_ready(s, STORE_RECORDS, RECORD_INTERRUPT);
    store_bind_int(st, 1, clock_wall_ms());
    return store_step(st, "mark interrupted sandboxes", ret_count, err);
}

int store_record_old(struct store *s, const char *kind, const char *parent, int64_t before_ms,
                     size_t keep, void (*on_record)(void *ctx, const struct store_record *r),
                     void *ctx, struct err *err) {
    static const int which[] = {RECORD_BEYOND, RECORD_AGED};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < (before_ms > 0 ? 2 : 1); i++) {
        sqlite3_stmt *st = store_ready(s, STORE_RECORDS, which[i]);
        store_bind_str(st, 1, kind);
        store_bind_str(st, 2, parent ? parent : "");
        store_bind_int(st, 3, (int64_t)keep);
        store_bind_int(st, 4, OLD_MAX);
        store_bind_int(st, 5, before_ms);
        rc = list_records(s, st, on_record, ctx, err);
    }
    return rc;
}

int store_record_sum(struct store *s, const char *kind, const char *owner, int64_t *ret_bytes,
                     struct err *err) {
    sqlite3_stmt *st = store_ready(s, STORE_RECORDS, owner ? RECORD_SUM_OF_OWNER : RECORD_SUM);
    store_bind_str(st, 1, kind);
    if (owner)
        store_bind_str(st, 2, owner);
    int e = 0;
    if (sqlite3_step(st) == SQLITE_ROW)
        *ret_bytes = sqlite3_column_int64(st, 0);
    else
        e = store_error(s->db, err, "sum records");
    (void)sqlite3_reset(st);
    return e;
}
