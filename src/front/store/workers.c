#include "front/store/internal.h"

#include "base/clock.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

enum {
    WORKER_SUM,
    WORKER_PUT,
    WORKER_GET,
    WORKER_GET_BY_LABEL,
    WORKER_DELETE,
    WORKER_LIST,
};

static const char *const sql[] = {
    [WORKER_SUM] = "SELECT count(*), coalesce(sum(bytes), 0) FROM workers"
                   " WHERE owner = ?1 AND id <> ?2",
    [WORKER_PUT] =
        "INSERT INTO workers (owner, id, label, code, updated_ms, bytes) VALUES (?1,?2,?3,?4,?5,?6)"
        " ON CONFLICT (owner, id) DO UPDATE SET code = ?4, updated_ms = ?5, bytes = ?6",
    [WORKER_GET] = "SELECT owner, id, label, code, updated_ms FROM workers"
                   " WHERE owner = ?1 AND id = ?2",
    [WORKER_GET_BY_LABEL] = "SELECT owner, id, label, code, updated_ms FROM workers"
                            " WHERE label = ?2",
    [WORKER_DELETE] = "DELETE FROM workers WHERE owner = ?1 AND id = ?2",
    [WORKER_LIST] = "SELECT owner, id, label, NULL, updated_ms FROM workers WHERE owner = ?1"
                    " ORDER BY id",
};

const struct store_statements store_worker_statements = {sql, ARRAY_LEN(sql)};

void store_worker_finish(struct store_worker *w) {
    if (!w)
        return;
    free(w->owner);
    free(w->id);
    free(w->label);
    free(w->code);
    *w = (struct store_worker){0};
}

static void read_worker(sqlite3_stmt *st, struct store_worker *w) {
    *w = (struct store_worker){.owner = store_column_dup(st, 0),
                               .id = store_column_dup(st, 1),
                               .label = store_column_dup(st, 2),
                               .code = store_column_dup(st, 3),
                               .updated_ms = sqlite3_column_int64(st, 4)};
}

static int check_room(struct store *s, const struct store_worker *w, struct err *err) {
    sqlite3_stmt *st = store_ready(s, STORE_WORKERS, WORKER_SUM);
    store_bind_str(st, 1, w->owner);
    store_bind_str(st, 2, w->id);
    int e = 0;
    if (sqlite3_step(st) != SQLITE_ROW)
        e = store_error(s->db, err, "count workers");
    else if (sqlite3_column_int64(st, 0) >= s->settings.workers)
        e = err_set(err, ERR_LIMIT,
                    "there are %lld workers, the most that one key may have (\"workers\"): delete "
                    "one first",
                    (long long)s->settings.workers);
    else if (sqlite3_column_int64(st, 1) + (int64_t)strlen(w->code) > s->settings.workers_mb << 20)
        e = err_set(err, ERR_LIMIT,
                    "with this one the workers of the key exceed %lld MiB (\"workers_mb\"): delete "
                    "one first",
                    (long long)s->settings.workers_mb);
    (void)sqlite3_reset(st);
    return e;
}

int store_worker_put(struct store *s, const struct store_worker *w, struct err *err) {
    int rc = check_room(s, w, err);
    if (rc < 0)
        return rc;
    sqlite3_stmt *st = store_ready(s, STORE_WORKERS, WORKER_PUT);
    store_bind_str(st, 1, w->owner);
    store_bind_str(st, 2, w->id);
    store_bind_str(st, 3, w->label);
    store_bind_str(st, 4, w->code);
    store_bind_int(st, 5, clock_wall_ms());
    store_bind_int(st, 6, (int64_t)strlen(w->code));
    return store_step(st, "record a worker", NULL, err);
}

int store_worker_get(struct store *s, const char *owner, const char *id_or_label,
                     struct store_worker *ret_worker, struct err *err) {
    sqlite3_stmt *st = store_ready(s, STORE_WORKERS, owner ? WORKER_GET : WORKER_GET_BY_LABEL);
    store_bind_str(st, 1, owner);
    store_bind_str(st, 2, id_or_label);
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW)
        read_worker(st, ret_worker);
    int e = rc == SQLITE_ROW ? 0
            : rc == SQLITE_DONE
                ? err_set(err, ERR_NOT_FOUND, "there is no worker \"%.60s\"", id_or_label)
                : store_error(s->db, err, "read a worker");
    (void)sqlite3_reset(st);
    return e;
}

int store_worker_delete(struct store *s, const char *owner, const char *id, struct err *err) {
    sqlite3_stmt *st = store_ready(s, STORE_WORKERS, WORKER_DELETE);
    store_bind_str(st, 1, owner);
    store_bind_str(st, 2, id);
    int64_t changes = 0;
    int rc = store_step(st, "delete a worker", &changes, err);
    if (rc == 0 && changes == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no worker \"%.60s\"", id);
    return rc;
}

int store_worker_list(struct store *s, const char *owner,
                      void (*on_worker)(void *ctx, const struct store_worker *worker), void *ctx,
                      struct err *err) {
    sqlite3_stmt *st = store_ready(s, STORE_WORKERS, WORKER_LIST);
    store_bind_str(st, 1, owner);
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct store_worker w;
        read_worker(st, &w);
        on_worker(ctx, &w);
        store_worker_finish(&w);
    }
    int e = rc == SQLITE_DONE ? 0 : store_error(s->db, err, "list workers");
    (void)sqlite3_reset(st);
    return e;
}
