#include "front/store/internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <sqlite3.h>
#include <stdio.h>
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

#define UNREADABLE "unreadable"

json_t *store_record_doc(const struct store_record *r) {
    json_t *doc = json_read_str(r->doc);
    if (json_is_object(doc))
        return doc;
    json_decref(doc);
    log_error("store.record", "record", r->id, "error", "the record cannot be read");
    return json_pack("{s:{s:s,s:s}}", "error", "code", UNREADABLE, "message",
                     "the record of this cannot be read: delete it");
}

int store_doc_check(const json_t *doc, const char *what, struct err *err) {
    const char *code = json_string_value(json_object_get(json_object_get(doc, "error"), "code"));
    if (!code || strcmp(code, UNREADABLE) != 0)
        return 0;
    return err_set(err, ERR_INTERNAL, "the record of \"%.100s\" cannot be read: delete it", what);
}

static void store_records_read(sqlite3_stmt *st, struct store_record *r) {
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

/* --- writing --- */

struct record_op {
    struct store_op op;
    char kind[16];
    struct store_record record; /* of one that is deleted: its id */
};

static int record_run_put(struct store *s, const struct store_op *op, struct err *err) {
    const struct record_op *o = (const struct record_op *)op;
    const struct store_record *r = &o->record;
    sqlite3_stmt *st = store_write_statement(s, STORE_RECORDS, RECORD_PUT);
    store_bind_str(st, 1, o->kind);
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

static int record_run_delete(struct store *s, const struct store_op *op, struct err *err) {
    const struct record_op *o = (const struct record_op *)op;
    sqlite3_stmt *st = store_write_statement(s, STORE_RECORDS, RECORD_DELETE);
    store_bind_str(st, 1, o->kind);
    store_bind_str(st, 2, o->record.id);
    return store_step(st, "delete a record", NULL, err);
}

static void record_free(struct store_op *op) {
    struct record_op *o = (struct record_op *)op;
    store_record_finish(&o->record);
    free(o);
}

/* What begins is refused on a full disk; its end is not, nor a change. */
static const struct store_op_type record_begin_type = {
    .name = "a record", .begins = true, .run = record_run_put, .free = record_free};
static const struct store_op_type record_put_type = {
    .name = "a record", .run = record_run_put, .free = record_free};
static const struct store_op_type record_named_type = {.name = "a record",
                                                       .begins = true,
                                                       .durable = true,
                                                       .run = record_run_put,
                                                       .free = record_free};
static const struct store_op_type record_delete_type = {
    .name = "a deletion", .durable = true, .run = record_run_delete, .free = record_free};
static const struct store_op_type exec_delete_type = {
    .name = "a deletion", .run = record_run_delete, .free = record_free};

static bool is_put(const struct store_op *op) {
    return op->type->run == record_run_put;
}

/* One that waits to be written, so that it is written once. Looking stops at what deletes it, or
 * its parent. */
static struct record_op *find_waiting(const struct store *s, const char *kind,
                                      const struct store_record *r) {
    int n = 0;
    for (struct store_op *op = store_queue_last(s); op && n++ < STORE_MERGE_LOOK; op = op->prev) {
        struct record_op *o = (struct record_op *)op;
        if (op->type->run == record_run_delete &&
            (strcmp(o->record.id, r->id) == 0 || strcmp(o->record.id, r->parent) == 0))
            return NULL;
        if (is_put(op) && strcmp(o->record.id, r->id) == 0 && strcmp(o->kind, kind) == 0)
            return o;
    }
    return NULL;
}

static void set_record(struct record_op *o, const struct store_record *r) {
    store_record_finish(&o->record);
    o->record = *r;
    o->record.status = xstrdup(r->status);
    o->record.doc = xstrdup(r->doc);
}

static struct record_op *record_op_create(const struct store_op_type *type, const char *kind,
                                          const struct store_record *r) {
    struct record_op *o = xcalloc(1, sizeof(*o));
    o->op.type = type;
    (void)snprintf(o->kind, sizeof(o->kind), "%s", kind);
    if (r->doc)
        set_record(o, r);
    else
        memcpy(o->record.id, r->id, sizeof(r->id));
    o->op.bytes = sizeof(*o) + (r->doc ? strlen(r->doc) : 0);
    return o;
}

/* A sandbox and a command end with the server; others (snapshots, sandboxes of the Vercel
 * interface) are there again after it, so a loss of power must not undo what was answered about
 * them. */
static const struct store_op_type *store_records_type_of(const char *kind,
                                                         const struct store_record *r) {
    bool lives_on = strcmp(kind, "sandbox") != 0 && strcmp(kind, "exec") != 0;
    return lives_on ? &record_named_type : r->ended_ms ? &record_put_type : &record_begin_type;
}

int store_record_put(struct store *s, const char *kind, const struct store_record *r,
                     struct err *err) {
    struct record_op *waiting = find_waiting(s, kind, r);
    if (!waiting)
        return store_submit(s, &record_op_create(store_records_type_of(kind, r), kind, r)->op, err);
    set_record(waiting, r);
    store_queue_resized(s, &waiting->op, sizeof(*waiting) + strlen(r->doc));
    return 0;
}

int store_record_delete(struct store *s, const char *kind, const char *id, struct err *err) {
    struct store_record r = {0};
    (void)snprintf(r.id, sizeof(r.id), "%s", id);
    bool is_exec = strcmp(kind, "exec") == 0; /* which go by themselves when there are many */
    return store_submit(
        s, &record_op_create(is_exec ? &exec_delete_type : &record_delete_type, kind, &r)->op, err);
}

/* --- reading --- */

/* The newest of those that wait which is about that record; NULL: what is written counts. */
static const struct record_op *store_records_find_newest(const struct store_op *first,
                                                         const char *kind, const char *id) {
    const struct record_op *found = NULL;
    for (const struct store_op *op = first; op; op = op->next) {
        const struct record_op *o = (const struct record_op *)op;
        bool put = op->type->run == record_run_put;
        if (!put && op->type->run != record_run_delete)
            continue;
        bool same = strcmp(o->record.id, id) == 0 && strcmp(o->kind, kind) == 0;
        bool parent_goes = !put && found && strcmp(found->record.parent, o->record.id) == 0;
        if (same || parent_goes)
            found = o;
    }
    return found;
}

/* False: it is not there, or not theirs. */
static bool copy_waiting(const struct record_op *o, const char *parent, struct store_scope scope,
                         struct store_record *ret) {
    const struct store_record *r = &o->record;
    if (o->op.type->run != record_run_put || (parent && strcmp(r->parent, parent) != 0) ||
        (!scope.all && strcmp(r->owner, scope.owner ? scope.owner : "") != 0))
        return false;
    *ret = *r;
    ret->status = xstrdup(r->status);
    ret->doc = xstrdup(r->doc);
    return true;
}

int store_record_get(struct store *s, const char *kind, const char *id, const char *parent,
                     struct store_scope scope, struct store_record *ret, struct err *err) {
    const struct record_op *waiting = store_records_find_newest(s->queue.first, kind, id);
    if (!waiting)
        waiting = store_records_find_newest(s->queue.batch, kind, id);
    if (waiting && copy_waiting(waiting, parent, scope, ret))
        return 0;
    if (waiting)
        return err_set(err, ERR_NOT_FOUND, "there is no %s \"%.40s\"", kind, id);
    sqlite3_stmt *st = store_read_statement(s, STORE_RECORDS, RECORD_GET);
    store_bind_str(st, 1, kind);
    store_bind_str(st, 2, id);
    store_bind_int(st, 3, scope.all);
    store_bind_str(st, 4, scope.owner ? scope.owner : "");
    store_bind_str(st, 5, parent);
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW)
        store_records_read(st, ret);
    int e = rc == SQLITE_ROW    ? 0
            : rc == SQLITE_DONE ? err_set(err, ERR_NOT_FOUND, "there is no %s \"%.40s\"", kind, id)
                                : store_error(s->read_db, err, "read a record");
    (void)sqlite3_reset(st);
    return e;
}

/* --- lists --- */

/* What a list hands out: rows of the database, and among them what waits to be written. */
struct record_merge {
    const char *kind;
    const struct store_record_query *query;
    const struct record_op **waiting; /* the newest about each record, by falling ids */
    size_t n;
    size_t next;   /* of waiting */
    size_t handed; /* out */
    void (*on_record)(void *ctx, const struct store_record *r);
    void *ctx;
};

static bool is_about(const struct store_op *op, const char *kind) {
    bool ours = op->type->run == record_run_put || op->type->run == record_run_delete;
    return ours && strcmp(((const struct record_op *)op)->kind, kind) == 0;
}

static void merge_add(struct record_merge *m, const struct store_op *first) {
    for (const struct store_op *op = first; op; op = op->next) {
        const struct record_op *o = (const struct record_op *)op;
        size_t i = 0;
        if (!is_about(op, m->kind))
            continue;
        while (i < m->n && strcmp(m->waiting[i]->record.id, o->record.id) > 0)
            i++;
        if (i < m->n && strcmp(m->waiting[i]->record.id, o->record.id) == 0) {
            m->waiting[i] = o;
            continue;
        }
        m->waiting = xrealloc(m->waiting, (m->n + 1) * sizeof(struct record_op *));
        memmove(m->waiting + i + 1, m->waiting + i, (m->n - i) * sizeof(struct record_op *));
        m->waiting[i] = o;
        m->n++;
    }
}

static void merge_hand_out(struct record_merge *m, const struct store_record *r) {
    if (m->handed < m->query->limit)
        m->on_record(m->ctx, r);
    m->handed++;
}

/* Those that wait with an id after `id`. True: one with that very id waits, and counts instead. */
static bool merge_up_to(struct record_merge *m, const char *id) {
    const struct store_record_query *q = m->query;
    for (; m->next < m->n; m->next++) {
        const struct record_op *o = m->waiting[m->next];
        int order = strcmp(o->record.id, id);
        struct store_record r;
        if (order < 0)
            return false;
        bool wanted = !q->before || strcmp(o->record.id, q->before) < 0;
        if (wanted && copy_waiting(o, q->parent, q->scope, &r)) {
            merge_hand_out(m, &r);
            store_record_finish(&r);
        }
        if (order == 0) {
            m->next++;
            return true;
        }
    }
    return false;
}

static void merge_on_record(void *ctx, const struct store_record *r) {
    struct record_merge *m = ctx;
    if (!merge_up_to(m, r->id))
        merge_hand_out(m, r);
}

static int list_records(struct store *s, sqlite3_stmt *st,
                        void (*on_record)(void *ctx, const struct store_record *r), void *ctx,
                        struct err *err) {
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct store_record r;
        store_records_read(st, &r);
        on_record(ctx, &r);
        store_record_finish(&r);
    }
    int e = rc == SQLITE_DONE ? 0 : store_error(s->read_db, err, "list records");
    (void)sqlite3_reset(st);
    return e;
}

int store_record_list(struct store *s, const char *kind, const struct store_record_query *query,
                      void (*on_record)(void *ctx, const struct store_record *r), void *ctx,
                      struct err *err) {
    int which = query->parent      ? RECORD_LIST_OF_PARENT
                : query->scope.all ? RECORD_LIST
                                   : RECORD_LIST_OF_OWNER;
    struct record_merge m = {.kind = kind, .query = query, .on_record = on_record, .ctx = ctx};
    merge_add(&m, s->queue.batch);
    merge_add(&m, s->queue.first);
    sqlite3_stmt *st = store_read_statement(s, STORE_RECORDS, which);
    store_bind_str(st, 1, kind);
    store_bind_str(st, 2, query->before ? query->before : STORE_AFTER_ALL_IDS);
    store_bind_int(st, 3, (int64_t)(query->limit + m.n)); /* some of them may be gone */
    store_bind_int(st, 4, query->scope.all);
    store_bind_str(st, 5, query->scope.owner ? query->scope.owner : "");
    store_bind_str(st, 6, query->parent);
    int rc = list_records(s, st, merge_on_record, &m, err);
    if (rc == 0)
        (void)merge_up_to(&m, "");
    free(m.waiting);
    return rc;
}

int store_record_interrupt_all(struct store *s, int64_t *ret_count, struct err *err) {
    sqlite3_stmt *st = store_write_statement(s, STORE_RECORDS, RECORD_INTERRUPT);
    store_bind_int(st, 1, clock_wall_ms());
    return store_step(st, "mark interrupted sandboxes", ret_count, err);
}

int store_record_old(struct store *s, const char *kind, const char *parent, int64_t before_ms,
                     size_t keep, void (*on_record)(void *ctx, const struct store_record *r),
                     void *ctx, struct err *err) {
    static const int which[] = {RECORD_BEYOND, RECORD_AGED};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < (before_ms > 0 ? 2 : 1); i++) {
        sqlite3_stmt *st = store_read_statement(s, STORE_RECORDS, which[i]);
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
    sqlite3_stmt *st =
        store_read_statement(s, STORE_RECORDS, owner ? RECORD_SUM_OF_OWNER : RECORD_SUM);
    store_bind_str(st, 1, kind);
    if (owner)
        store_bind_str(st, 2, owner);
    int e = 0;
    if (sqlite3_step(st) == SQLITE_ROW)
        *ret_bytes = sqlite3_column_int64(st, 0);
    else
        e = store_error(s->read_db, err, "sum records");
    (void)sqlite3_reset(st);
    return e;
}
