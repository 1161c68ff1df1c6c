#include "front/run/databases.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json_table.h"
#include "base/limits.h"
#include "base/mem.h"
#include "front/api/api.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* /v1/facets: the databases of an owner. Files are the affair of run/databases.h, SQL is that of
 * cay-facet; here requests become the one or the other, often several in a row. */

enum {
    PAGE_DEFAULT = 100,
    PAGE_BYTES = 1 << 20,
    QUERY_BYTES = LIMIT_FACET_CALL_BYTES,
    MIGRATE_BYTES = 8 << 20,
    MIGRATIONS_MAX = 1000,
    MIGRATION_NAME_BYTES = 200,
    ANSWER_BYTES = 80 << 20,
    CHUNK_BYTES = 64 * 1024,
};

/* A request, from its first step to its answer. */
struct api_database {
    struct front *front;
    struct http_req *req; /* NULL: the client left */
    char owner[ID_SIZE];
    char *name;
    char *dir;
    struct database_op *op; /* what is waited for: one of these three */
    struct facet_op *ask;
    struct intake_item *reading;
    struct buf migrations;
    struct buf json; /* what the database answered */
    bool is_valid;
    bool created;
    bool sets_limits, limits_wait;
    bool migrates;
    uint32_t applied;
    void (*respond)(struct api_database *w);
    /* the export */
    int fd;
    uint64_t bytes, sent;
};

static void api_database_free(void *ctx) {
    struct api_database *w = ctx;
    free(w->name);
    free(w->dir);
    buf_finish(&w->migrations);
    buf_finish(&w->json);
    free(w);
}

static void api_database_on_gone(void *ctx) {
    struct api_database *w = ctx;
    http_respond_empty(w->req, 499);
    w->req = NULL;
    if (w->op)
        database_op_leave(w->op);
    facet_op_cancel(w->ask);
    if (w->reading)
        intake_cancel(w->reading); /* frees it */
    else
        api_database_free(w);
}

static void api_database_fail(struct api_database *w, const struct err *err) {
    struct err named = *err;
    if (err->code == ERR_NOT_FOUND)
        (void)err_set(&named, ERR_NOT_FOUND, "there is no database \"%s\"", w->name);
    http_req_on_gone(w->req, NULL, NULL);
    http_req_on_body(w->req, NULL, NULL, NULL);
    http_respond_err(w->req, &named);
    api_database_free(w);
}

static void api_database_send(struct api_database *w, int status, struct buf *b) {
    http_req_on_gone(w->req, NULL, NULL);
    http_req_on_body(w->req, NULL, NULL, NULL);
    http_respond_buf(w->req, status, "application/json", b);
    api_database_free(w);
}

/* A name that is none cannot be there. */
static int api_databases_check_name(const struct http_req *req, const char *name, bool makes,
                                    struct err *err) {
    if (!database_is_name(name) && makes)
        return err_set(err, ERR_BAD_REQUEST,
                       "a database has a name of 1 to %d letters, digits, \"_\" and \"-\"",
                       DATABASE_NAME_MAX);
    if (!database_is_name(name))
        return err_set(err, ERR_NOT_FOUND, "there is no database \"%.*s\"", DATABASE_NAME_MAX,
                       name);
    const struct identity *who = front_identity(req);
    _cleanup_(json) json_t *grants = who ? key_grants(who) : NULL;
    if (!key_is_granted(grants, "facets", name))
        return err_set(err, ERR_FORBIDDEN, "this key may not use the facet \"%s\"", name);
    return 0;
}

/* NULL: it was answered. */
static struct api_database *api_database_new(struct front *f, struct http_req *req, bool makes) {
    struct err err;
    const char *name = http_req_param(req, "name");
    if (api_databases_check_name(req, name, makes, &err) < 0) {
        http_respond_err(req, &err);
        return NULL;
    }
    struct api_database *w = xcalloc(1, sizeof(*w));
    w->front = f;
    w->req = req;
    w->fd = -1;
    (void)snprintf(w->owner, sizeof(w->owner), "%s", front_project(req));
    w->name = xstrdup(name);
    w->dir = databases_dir(f->databases, w->owner, name);
    buf_init(&w->migrations, MIGRATE_BYTES + 64 * MIGRATIONS_MAX);
    buf_init(&w->json, ANSWER_BYTES);
    http_req_on_gone(req, api_database_on_gone, w);
    return w;
}

static void api_database_start(struct api_database *w, const struct database_request *what) {
    struct err err;
    struct database_request r = *what;
    r.owner = w->owner;
    r.name = w->name;
    r.ctx = w;
    w->op = databases_start(w->front->databases, &r, &err);
    if (!w->op)
        api_database_fail(w, &err);
}

/* --- what a database answers --- */

/* It is JSON, but the process that wrote it has met a stranger's SQL: it is looked at before it is
 * passed on, by a thread if it is large. */
static void api_database_look(void *ctx) {
    struct api_database *w = ctx;
    w->is_valid = w->json.len > 1 && json_is_valid(w->json.data, w->json.len);
}

static void api_database_on_looked(void *ctx) {
    struct api_database *w = ctx;
    struct err err;
    w->reading = NULL;
    if (w->is_valid) {
        w->respond(w);
        return;
    }
    (void)err_set(&err, ERR_PROTOCOL, "the database's process answered with something else");
    api_database_fail(w, &err);
}

static void api_database_answer(struct api_database *w, const char *json, size_t len,
                                void (*respond)(struct api_database *w)) {
    struct err err;
    w->respond = respond;
    (void)buf_add(&w->json, json, len);
    if (len <= LIMIT_READ_AT_ONCE_BYTES) {
        api_database_look(w);
        api_database_on_looked(w);
        return;
    }
    w->reading = intake_start(w->front->intake,
                              &(struct intake_ask){.owner = w->owner,
                                                   .bytes = len,
                                                   .work = api_database_look,
                                                   .on_done = api_database_on_looked,
                                                   .free = api_database_free,
                                                   .ctx = w},
                              &err);
    if (!w->reading)
        api_database_fail(w, &err);
}

/* --- one of them --- */

/* {"name":...,OURS,ITS OWN} */
static void api_database_respond_shown(struct api_database *w) {
    struct buf b;
    struct json_writer j;
    buf_init(&b, ANSWER_BYTES);
    json_writer_init(&j, &b);
    json_writer_object_begin(&j);
    json_writer_key(&j, "name");
    json_writer_str(&j, w->name);
    if (w->migrates) {
        json_writer_key(&j, "applied");
        json_writer_int(&j, w->applied);
    }
    if (w->sets_limits) {
        json_writer_key(&j, "limits_pending");
        json_writer_bool(&j, w->limits_wait);
    }
    (void)buf_add_char(&b, ',');
    (void)buf_add(&b, w->json.data + 1, w->json.len - 1);
    api_database_send(w, w->created ? 201 : 200, &b);
}

static void api_database_on_inspected(void *ctx, bool ok, const char *json, size_t len,
                                      const struct err *err) {
    struct api_database *w = ctx;
    struct err broken;
    (void)ok;
    w->ask = NULL;
    if (!err && (len < 3 || json[0] != '{')) {
        (void)err_set(&broken, ERR_PROTOCOL, "the database's process describes nothing");
        err = &broken;
    }
    if (err)
        api_database_fail(w, err);
    else
        api_database_answer(w, json, len, api_database_respond_shown);
}

static void api_database_ask(struct api_database *w, enum facet_msg type, const struct buf *payload,
                             facet_answered done) {
    struct err err;
    struct facet_ref ref = databases_ref(w->front->databases, w->owner, w->dir);
    w->ask =
        facets_ask(w->front->runner->facets, &ref,
                   &(struct facet_ask){.type = type, .payload = payload, .fd = -1}, done, w, &err);
    if (!w->ask)
        api_database_fail(w, &err);
}

static void api_databases_get(struct http_req *req, void *ctx) {
    struct api_database *w = api_database_new(ctx, req, false);
    if (w)
        api_database_ask(w, FACET_INSPECT, NULL, api_database_on_inspected);
}

/* --- PUT: its folder, its limits, its migrations --- */

static int api_databases_read_limits(const struct front *f, const json_t *obj, char **ret,
                                     struct err *err) {
    const struct facet_limits *max = &f->config->runner.facet;
    struct database_limits {
        int64_t rows, result_bytes, time_ms, disk_bytes, memory_bytes, calls_per_s;
    } l = {0};
    const struct json_field table[] = {
        JSON_INT("rows", struct database_limits, rows, 1, (int64_t)max->rows),
        JSON_INT("result_bytes", struct database_limits, result_bytes, 1024,
                 LIMIT_FACET_RESULT_BYTES),
        JSON_INT("time_ms", struct database_limits, time_ms, 1, (int64_t)max->time_ms),
        JSON_INT("disk_bytes", struct database_limits, disk_bytes, 65536, (int64_t)max->disk_bytes),
        JSON_INT("memory_bytes", struct database_limits, memory_bytes, 4 << 20,
                 (int64_t)max->memory_bytes),
        JSON_INT("calls_per_s", struct database_limits, calls_per_s, 1, 1000000),
    };
    int rc = json_table_read(table, ARRAY_LEN(table), obj, "\"limits\"", &l, err);
    if (rc < 0)
        return err_wrap(err, "limits");
    _cleanup_(json) json_t *kept = json_object();
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)obj, key, v) {
        if (!json_is_null(v))
            (void)json_object_set(kept, key, v);
    }
    *ret = json_object_size(kept) > 0 ? json_dumps(kept, JSON_COMPACT) : xstrdup("");
    return 0;
}

static int api_databases_read_migration(struct buf *out, const json_t *v, struct err *err) {
    static const char *const keys[] = {"number", "name", "sql", NULL};
    const char *name = "";
    const char *sql = NULL;
    int64_t number = 0;
    int rc = json_check_keys(v, "a migration", keys, err);
    if (rc == 0)
        rc = json_get_int(v, "number", 1, INT64_MAX, &number, err);
    if (rc == 0)
        rc = json_get_str(v, "name", &name, err);
    if (rc == 0)
        rc = json_get_str(v, "sql", &sql, err);
    if (rc == 0 && (number == 0 || !sql))
        rc = err_set(err, ERR_BAD_REQUEST, "a migration has a \"number\" and \"sql\"");
    if (rc == 0 && strlen(name) > MIGRATION_NAME_BYTES)
        rc = err_set(err, ERR_BAD_REQUEST, "the \"name\" of a migration has at most %d bytes",
                     MIGRATION_NAME_BYTES);
    if (rc == 0)
        facet_migration_encode(out, &(struct facet_migration){.number = (uint64_t)number,
                                                              .name = name,
                                                              .name_len = strlen(name),
                                                              .sql = sql,
                                                              .sql_len = strlen(sql)});
    return rc;
}

static int api_databases_read_migrations(const json_t *list, struct buf *out, struct err *err) {
    size_t i;
    const json_t *v;
    if (!json_is_array(list) || json_array_size(list) > MIGRATIONS_MAX)
        return err_set(err, ERR_BAD_REQUEST,
                       "\"migrations\" is a list of at most %d {\"number\",\"name\",\"sql\"}",
                       MIGRATIONS_MAX);
    json_array_foreach(list, i, v) {
        int rc = api_databases_read_migration(out, v, err);
        if (rc < 0)
            return err_wrap(err, "migrations[%zu]", i);
    }
    if (out->full)
        return err_set(err, ERR_TOO_LARGE, "the migrations have more than %d bytes", MIGRATE_BYTES);
    return 0;
}

static void api_database_on_migrated(void *ctx, bool ok, const char *data, size_t len,
                                     const struct err *err) {
    struct api_database *w = ctx;
    struct unpack u;
    (void)ok;
    w->ask = NULL;
    if (err) {
        api_database_fail(w, err);
        return;
    }
    unpack_init(&u, data, len);
    w->applied = unpack_u32(&u);
    api_database_ask(w, FACET_INSPECT, NULL, api_database_on_inspected);
}

static void api_database_on_made(void *ctx, struct database_result *r) {
    struct api_database *w = ctx;
    w->op = NULL;
    if (r->err.code) {
        api_database_fail(w, &r->err);
        return;
    }
    w->created = r->created;
    if (w->sets_limits)
        w->limits_wait = !facets_close_unused(w->front->runner->facets, w->dir);
    if (w->migrates)
        api_database_ask(w, FACET_MIGRATE, &w->migrations, api_database_on_migrated);
    else
        api_database_ask(w, FACET_INSPECT, NULL, api_database_on_inspected);
}

static int api_databases_read_put(struct api_database *w, char **ret_limits, struct err *err) {
    static const char *const keys[] = {"limits", "migrations", NULL};
    _cleanup_(json) json_t *body = NULL;
    int rc = http_req_body_len(w->req) > 0 ? http_req_json(w->req, &body, err) : 0;
    if (rc < 0 || !body)
        return rc;
    const json_t *limits = json_object_get(body, "limits");
    const json_t *migrations = json_object_get(body, "migrations");
    rc = json_check_keys(body, "the request", keys, err);
    w->sets_limits = limits != NULL;
    w->migrates = migrations && !json_is_null(migrations);
    if (rc == 0 && limits && !json_is_null(limits))
        rc = api_databases_read_limits(w->front, limits, ret_limits, err);
    else if (rc == 0 && limits)
        *ret_limits = xstrdup("");
    if (rc == 0 && w->migrates)
        rc = api_databases_read_migrations(migrations, &w->migrations, err);
    return rc;
}

static void api_databases_put(struct http_req *req, void *ctx) {
    struct err err;
    _cleanup_(free) char *limits = NULL;
    struct api_database *w = api_database_new(ctx, req, true);
    if (!w)
        return;
    if (api_databases_read_put(w, &limits, &err) < 0)
        api_database_fail(w, &err);
    else
        api_database_start(w, &(struct database_request){.kind = DATABASE_MAKE,
                                                         .limits = limits,
                                                         .done = api_database_on_made});
}

/* --- DELETE --- */

static void api_database_on_removed(void *ctx, struct database_result *r) {
    struct api_database *w = ctx;
    struct buf b;
    struct json_writer j;
    w->op = NULL;
    if (r->err.code) {
        api_database_fail(w, &r->err);
        return;
    }
    buf_init(&b, PAGE_BYTES);
    json_writer_init(&j, &b);
    json_writer_object_begin(&j);
    json_writer_key(&j, "name");
    json_writer_str(&j, w->name);
    json_writer_key(&j, "removed");
    json_writer_object_begin(&j);
    json_writer_key(&j, "files");
    json_writer_int(&j, (int64_t)r->files);
    json_writer_key(&j, "bytes");
    json_writer_int(&j, (int64_t)r->bytes);
    json_writer_object_end(&j);
    json_writer_object_end(&j);
    api_database_send(w, 200, &b);
}

static void api_databases_delete(struct http_req *req, void *ctx) {
    struct api_database *w = api_database_new(ctx, req, false);
    if (w)
        api_database_start(w, &(struct database_request){.kind = DATABASE_REMOVE,
                                                         .done = api_database_on_removed});
}

/* --- SQL --- */

static void api_database_respond_rows(struct api_database *w) {
    api_database_send(w, 200, &w->json);
}

static void api_database_respond_results(struct api_database *w) {
    struct buf b;
    buf_init(&b, ANSWER_BYTES);
    (void)buf_add_str(&b, "{\"results\":");
    (void)buf_add(&b, w->json.data, w->json.len);
    (void)buf_add_char(&b, '}');
    api_database_send(w, 200, &b);
}

/* {"name","message","code"} of a call that failed. */
static int api_databases_failure(const char *json, size_t len, struct err *err) {
    _cleanup_(json) json_t *j = json_read(json, len);
    const char *message = json_string_value(json_object_get(j, "message"));
    const char *code = json_string_value(json_object_get(j, "code"));
    if (!message || !code)
        return err_set(err, ERR_PROTOCOL, "the database's process answered with something else");
    const char *how = "";
    if (strcmp(code, "LIMIT_ROWS") == 0 || strcmp(code, "LIMIT_RESULT") == 0)
        how = "; read it in pages: ORDER BY rowid LIMIT 1000, then WHERE rowid > the last one";
    enum err_code kind = strncmp(code, "LIMIT_", 6) == 0 ? ERR_LIMIT
                         : strcmp(code, "READ_ONLY") == 0 || strcmp(code, "SQLITE_AUTH") == 0
                             ? ERR_FORBIDDEN
                         : strncmp(code, "SQLITE_CONSTRAINT", 17) == 0 ? ERR_CONFLICT
                                                                       : ERR_BAD_REQUEST;
    return err_set(err, kind, "%.350s%s (%.40s)", message, how, code);
}

static void api_database_on_rows(void *ctx, bool ok, const char *json, size_t len,
                                 const struct err *err) {
    struct api_database *w = ctx;
    struct err failure;
    w->ask = NULL;
    if (!err && !ok) {
        (void)api_databases_failure(json, len, &failure);
        err = &failure;
    }
    if (err)
        api_database_fail(w, err);
    else
        api_database_answer(w, json, len, w->respond);
}

struct database_query {
    const char *sql;
    const json_t *params, *batch;
    bool readonly;
};

/* [sql, value, ...] */
static int api_databases_read_statement(const char *sql, const json_t *params, json_t **ret,
                                        struct err *err) {
    if (!sql)
        return err_set(err, ERR_BAD_REQUEST, "a statement has \"sql\"");
    if (params && !json_is_null(params) && !json_is_array(params))
        return err_set(err, ERR_BAD_REQUEST, "\"params\" is a list of values, in their order");
    json_t *list = json_array();
    (void)json_array_append_new(list, json_string(sql));
    if (json_is_array(params))
        (void)json_array_extend(list, (json_t *)(uintptr_t)params);
    *ret = list;
    return 0;
}

static int api_databases_read_batch(const json_t *batch, json_t **ret, struct err *err) {
    static const char *const keys[] = {"sql", "params", NULL};
    _cleanup_(json) json_t *list = json_array();
    size_t i;
    const json_t *v;
    if (!json_is_array(batch) || json_array_size(batch) > LIMIT_FACET_BATCH)
        return err_set(err, ERR_BAD_REQUEST,
                       "\"batch\" is a list of at most %d {\"sql\",\"params\"}", LIMIT_FACET_BATCH);
    json_array_foreach(batch, i, v) {
        const char *sql = NULL;
        json_t *one = NULL;
        int rc = json_check_keys(v, "a statement", keys, err);
        if (rc == 0)
            rc = json_get_str(v, "sql", &sql, err);
        if (rc == 0)
            rc = api_databases_read_statement(sql, json_object_get(v, "params"), &one, err);
        if (rc < 0)
            return err_wrap(err, "batch[%zu]", i);
        (void)json_array_append_new(list, one);
    }
    *ret = json_pack("[O]", list);
    return 0;
}

static int api_databases_read_query(struct http_req *req, const json_t *body,
                                    struct database_query *q, json_t **ret_args, struct err *err) {
    static const struct json_field table[] = {
        JSON_TEXT("sql", struct database_query, sql),
        JSON_TREE("params", struct database_query, params),
        JSON_TREE("batch", struct database_query, batch),
        JSON_BOOL("readonly", struct database_query, readonly),
    };
    int rc = json_table_read(table, ARRAY_LEN(table), body, "the request", q, err);
    if (rc < 0)
        return rc;
    if (!q->sql == !q->batch)
        return err_set(err, ERR_BAD_REQUEST, "send either \"sql\" (and \"params\") or \"batch\"");
    if (!q->readonly && front_identity(req) && front_identity(req)->scope < KEY_SCOPE_RUN)
        return err_set(err, ERR_FORBIDDEN,
                       "this needs a key with the scope \"run\", or \"readonly\": true");
    return q->batch ? api_databases_read_batch(q->batch, ret_args, err)
                    : api_databases_read_statement(q->sql, q->params, ret_args, err);
}

static void api_databases_query(struct http_req *req, void *ctx) {
    struct err err;
    _cleanup_(json) json_t *body = NULL;
    _cleanup_(json) json_t *args = NULL;
    struct database_query q = {0};
    struct api_database *w = api_database_new(ctx, req, false);
    if (!w)
        return;
    int rc = http_req_json(req, &body, &err);
    if (rc == 0)
        rc = api_databases_read_query(req, body, &q, &args, &err);
    if (rc < 0) {
        api_database_fail(w, &err);
        return;
    }
    const char *method = q.batch ? "batch" : q.readonly ? "query" : "execute";
    struct facet_ref ref = databases_ref(w->front->databases, w->owner, w->dir);
    _cleanup_(free) char *text = json_dumps(args, JSON_COMPACT);
    w->respond = q.batch ? api_database_respond_results : api_database_respond_rows;
    w->ask = (q.readonly ? facets_read : facets_call)(
        w->front->runner->facets, &ref, method, text ? text : "[]", api_database_on_rows, w, &err);
    if (!w->ask)
        api_database_fail(w, &err);
}

/* --- export --- */

static void api_database_end_export(struct api_database *w, bool whole) {
    http_req_on_gone(w->req, NULL, NULL);
    http_stream_on_drain(w->req, NULL, NULL);
    if (whole)
        http_stream_end(w->req);
    else
        http_stream_break(w->req);
    database_op_leave(w->op);
    api_database_free(w);
}

static void api_database_on_export_gone(void *ctx) {
    struct api_database *w = ctx;
    http_stream_end(w->req);
    database_op_leave(w->op);
    api_database_free(w);
}

/* As much as the client takes. The file was written a moment ago. */
static void api_database_send_more(void *ctx) {
    struct api_database *w = ctx;
    char data[CHUNK_BYTES];
    while (http_stream_has_body(w->req) && w->sent < w->bytes) {
        ssize_t n =
            pread(w->fd, data, MIN(sizeof(data), (size_t)(w->bytes - w->sent)), (off_t)w->sent);
        if (n <= 0) {
            api_database_end_export(w, false);
            return;
        }
        w->sent += (uint64_t)n;
        if (!http_stream_write(w->req, data, (size_t)n))
            return; /* it comes back, or the client is gone */
    }
    api_database_end_export(w, true);
}

static void api_database_on_exported(void *ctx, struct database_result *r) {
    struct api_database *w = ctx;
    if (r->err.code) {
        w->op = NULL;
        api_database_fail(w, &r->err);
        return;
    }
    w->fd = r->fd;
    w->bytes = r->bytes;
    _cleanup_(free) char *name = xasprintf("attachment; filename=\"%s.db\"", w->name);
    http_req_on_gone(w->req, api_database_on_export_gone, w);
    http_res_header(w->req, "Content-Disposition", name);
    http_res_header(w->req, "Cache-Control", "no-store");
    http_stream_on_drain(w->req, api_database_send_more, w);
    http_stream_length(w->req, w->bytes);
    http_stream_begin(w->req, 200, "application/vnd.sqlite3");
    api_database_send_more(w);
}

static void api_databases_export(struct http_req *req, void *ctx) {
    struct api_database *w = api_database_new(ctx, req, false);
    if (w)
        api_database_start(w, &(struct database_request){.kind = DATABASE_EXPORT,
                                                         .done = api_database_on_exported});
}

/* --- import --- */

static void api_database_on_room(void *ctx) {
    struct api_database *w = ctx;
    http_req_body_resume(w->req);
}

static void api_database_on_body(void *ctx, const char *data, size_t len) {
    struct api_database *w = ctx;
    if (!database_op_add(w->op, data, len))
        http_req_body_pause(w->req);
}

static void api_database_on_body_end(void *ctx) {
    struct api_database *w = ctx;
    database_op_finish(w->op);
}

static void api_database_on_imported(void *ctx, struct database_result *r) {
    struct api_database *w = ctx;
    struct err err;
    w->op = NULL;
    if (!r->err.code && (r->description->len < 3 || r->description->data[0] != '{')) {
        (void)err_set(&err, ERR_PROTOCOL, "the database's process describes nothing");
        r->err = err;
    }
    w->created = r->created;
    if (r->err.code)
        api_database_fail(w, &r->err);
    else
        api_database_answer(w, r->description->data, r->description->len,
                            api_database_respond_shown);
}

static void api_databases_import(struct http_req *req, void *ctx) {
    struct api_database *w = api_database_new(ctx, req, true);
    if (!w)
        return;
    http_req_body_pause(req);
    http_req_on_body(req, api_database_on_body, api_database_on_body_end, w);
    api_database_start(w, &(struct database_request){.kind = DATABASE_IMPORT,
                                                     .on_room = api_database_on_room,
                                                     .done = api_database_on_imported});
}

/* --- copy --- */

static void api_database_respond_copied(struct api_database *w, const struct database_result *r) {
    struct buf b;
    struct json_writer j;
    buf_init(&b, PAGE_BYTES);
    json_writer_init(&j, &b);
    json_writer_object_begin(&j);
    json_writer_key(&j, "name");
    json_writer_text(&j, w->json.data, w->json.len);
    json_writer_key(&j, "bytes");
    json_writer_int(&j, (int64_t)r->bytes);
    json_writer_object_end(&j);
    api_database_send(w, 201, &b);
}

static void api_database_on_copied(void *ctx, struct database_result *r) {
    struct api_database *w = ctx;
    w->op = NULL;
    if (r->err.code)
        api_database_fail(w, &r->err);
    else
        api_database_respond_copied(w, r);
}

static void api_databases_copy(struct http_req *req, void *ctx) {
    static const char *const keys[] = {"to", NULL};
    struct err err;
    const char *to = NULL;
    _cleanup_(json) json_t *body = NULL;
    struct api_database *w = api_database_new(ctx, req, false);
    if (!w)
        return;
    int rc = http_req_json(req, &body, &err);
    if (rc == 0)
        rc = json_check_keys(body, "the request", keys, &err);
    if (rc == 0)
        rc = json_get_str(body, "to", &to, &err);
    if (rc == 0 && !to)
        rc = err_set(&err, ERR_BAD_REQUEST, "\"to\" is the name of the copy");
    if (rc == 0)
        rc = api_databases_check_name(req, to, true, &err);
    if (rc < 0) {
        api_database_fail(w, &err);
        return;
    }
    (void)buf_add_str(&w->json, to);
    api_database_start(w, &(struct database_request){
                              .kind = DATABASE_COPY, .to = to, .done = api_database_on_copied});
}

/* --- the list --- */

static void api_databases_write_time(struct json_writer *j, const char *key, int64_t ms) {
    char text[CLOCK_RFC3339_SIZE];
    json_writer_key(j, key);
    json_writer_str(j, ms ? clock_rfc3339(ms, text) : NULL);
}

static void api_databases_write_entry(const struct api_database *w, struct json_writer *j,
                                      const struct database_entry *e) {
    _cleanup_(free) char *dir = databases_dir(w->front->databases, w->owner, e->name);
    json_writer_object_begin(j);
    json_writer_key(j, "name");
    json_writer_str(j, e->name);
    json_writer_key(j, "bytes");
    json_writer_int(j, e->bytes);
    api_databases_write_time(j, "created_at", e->created_ms);
    api_databases_write_time(j, "modified_at", e->modified_ms);
    json_writer_key(j, "open");
    json_writer_bool(j, facets_is_open(w->front->runner->facets, dir));
    json_writer_object_end(j);
}

static void api_database_on_listed(void *ctx, struct database_result *r) {
    struct api_database *w = ctx;
    struct buf b;
    struct json_writer j;
    w->op = NULL;
    if (r->err.code) {
        api_database_fail(w, &r->err);
        return;
    }
    buf_init(&b, PAGE_BYTES);
    json_writer_init(&j, &b);
    json_writer_object_begin(&j);
    json_writer_key(&j, "facets");
    json_writer_array_begin(&j);
    for (size_t i = 0; i < r->n; i++)
        api_databases_write_entry(w, &j, &r->entries[i]);
    json_writer_array_end(&j);
    json_writer_key(&j, "next_cursor");
    json_writer_str(&j, r->more && r->n > 0 ? r->entries[r->n - 1].name : NULL);
    json_writer_object_end(&j);
    api_database_send(w, 200, &b);
}

static void api_databases_list(struct http_req *req, void *ctx) {
    static const char *const params[] = {"limit", "cursor", NULL};
    struct front *f = ctx;
    struct err err;
    _cleanup_(free) char *cursor = NULL;
    size_t limit = PAGE_DEFAULT;
    int rc = http_req_query_check(req, params, &err);
    if (rc == 0)
        rc = api_read_limit(req, &limit, &err);
    if (rc >= 0)
        rc = http_req_query_get(req, "cursor", &cursor, &err);
    if (rc > 0 && !database_is_name(cursor))
        rc = err_set(&err, ERR_BAD_REQUEST, "\"cursor\" must be a next_cursor of an earlier page");
    if (rc < 0) {
        http_respond_err(req, &err);
        return;
    }
    const struct identity *who = front_identity(req);
    _cleanup_(json) json_t *grants = who ? key_grants(who) : NULL;
    struct api_database *w = xcalloc(1, sizeof(*w));
    *w = (struct api_database){.front = f, .req = req, .fd = -1};
    (void)snprintf(w->owner, sizeof(w->owner), "%s", front_project(req));
    http_req_on_gone(req, api_database_on_gone, w);
    api_database_start(w, &(struct database_request){.kind = DATABASE_LIST,
                                                     .after = cursor,
                                                     .limit = limit,
                                                     .grants = grants,
                                                     .done = api_database_on_listed});
}

void api_databases_routes(struct front *f) {
#define FACETS "/v1/facets"
    size_t upload = (size_t)f->config->runner.facet.disk_bytes;
    enum { READ = FRONT_ROUTE_READ | HTTP_ROUTE_DIRECT, RUN = HTTP_ROUTE_DIRECT };
    const struct http_route routes[] = {
        {"GET", FACETS, api_databases_list, f, READ, 0},
        {"GET", FACETS "/{name}", api_databases_get, f, READ, 0},
        {"PUT", FACETS "/{name}", api_databases_put, f, RUN, MIGRATE_BYTES},
        {"DELETE", FACETS "/{name}", api_databases_delete, f, RUN, 0},
        {"POST", FACETS "/{name}/query", api_databases_query, f, READ, QUERY_BYTES},
        {"POST", FACETS "/{name}/copy", api_databases_copy, f, RUN, 0},
        {"GET", FACETS "/{name}/export", api_databases_export, f, READ, 0},
        {"PUT", FACETS "/{name}/import", api_databases_import, f, RUN | HTTP_ROUTE_STREAM, upload},
    };
    for (size_t i = 0; i < ARRAY_LEN(routes); i++)
        http_server_route(f->http, &routes[i]);
}
