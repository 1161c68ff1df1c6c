#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "front/api/api.h"
#include "front/api/sandbox.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A snapshot is an archive of what a sandbox can write to, made by tar inside and stored as it
 * comes. It is never opened here: a new sandbox unpacks it, inside. */

enum { NAME_BYTES = 100, SNAPSHOTS_AT_ONCE = 1 };

struct snapshot {
    struct front *front;
    struct http_req *req; /* NULL when the client is gone */
    struct sandbox_job *job;
    char id[ID_SIZE];
    char sandbox[ID_SIZE];
    char owner[ID_SIZE];
    json_t *doc;
    int fd;
    uint64_t bytes, max; /* max is reserved while it is being made */
    struct err err;
};

static void file_name(const char *id, char out[ID_SIZE + 8]) {
    (void)snprintf(out, ID_SIZE + 8, "%s.tar", id);
}

static json_t *show(const struct front *f, const struct store_record *r) {
    char text[CLOCK_RFC3339_SIZE];
    (void)f;
    json_t *o = json_pack("{s:s,s:s,s:s,s:I}", "id", r->id, "sandbox", r->parent, "created_at",
                          clock_rfc3339(r->created_ms, text), "size", (json_int_t)r->bytes);
    _cleanup_(json) json_t *doc = json_loads(r->doc, 0, NULL);
    (void)json_object_update(o, doc);
    return o;
}

static int record(struct snapshot *s, json_t **ret_shown, struct err *err) {
    _cleanup_(free) char *doc = json_dumps(s->doc, JSON_COMPACT);
    struct store_record r = {.status = (char *)"done",
                             .created_ms = clock_wall_ms(),
                             .ended_ms = clock_wall_ms(),
                             .bytes = (int64_t)s->bytes,
                             .doc = doc};
    memcpy(r.id, s->id, sizeof(r.id));
    memcpy(r.owner, s->owner, sizeof(r.owner));
    int rc = store_record_put(s->front->store, "snapshot", &r, err);
    if (rc == 0) {
        *ret_shown = show(s->front, &r);
        (void)json_object_set_new(*ret_shown, "sandbox", json_string(s->sandbox));
    }
    return rc;
}

static void finish(struct snapshot *s) {
    struct sandboxes *all = s->front->sandboxes;
    struct sandbox *box = sandboxes_find(all, s->sandbox);
    _cleanup_(json) json_t *shown = NULL;
    char name[ID_SIZE + 8];
    if (box)
        box->snapshots--;
    s->front->snapshots_reserved -= s->max;
    if (!s->err.code)
        (void)record(s, &shown, &s->err);
    file_name(s->id, name);
    if (s->err.code)
        (void)unlinkat(sandboxes_snapshots_dir(all), name, 0);
    if (s->req) {
        http_req_on_gone(s->req, NULL, NULL);
        if (s->err.code)
            http_respond_err(s->req, &s->err);
        else
            http_respond_json(s->req, 201, shown);
    }
    fd_close(&s->fd);
    json_decref(s->doc);
    free(s);
}

static void on_output(void *ctx, int stream, const char *data, size_t len) {
    struct snapshot *s = ctx;
    if (stream != 1 || s->err.code)
        return;
    s->bytes += len;
    if (s->bytes > s->max)
        (void)err_set(&s->err, ERR_LIMIT,
                      "the snapshot exceeds %llu MiB (settings sandboxes.snapshot_mb, "
                      "sandboxes.snapshots_mb): delete files or snapshots",
                      (unsigned long long)(s->max >> 20));
    else if (fd_write_all(s->fd, data, len) < 0)
        (void)err_sys(&s->err, "store the snapshot");
    if (!s->err.code)
        return;
    struct sandbox *box = sandboxes_find(s->front->sandboxes, s->sandbox);
    sandbox_job_discard(s->job, 1);
    if (box && box->box)
        (void)sandbox_box_signal(box->box, s->job, SIGKILL, true, NULL, NULL);
}

static void on_exited(void *ctx, const struct sandbox_exit *exit, const struct err *err) {
    struct snapshot *s = ctx;
    s->job = NULL;
    /* tar says 1 when a file changed while it was read: the archive is whole all the same. */
    if (err && !s->err.code)
        s->err = *err;
    else if (exit && (exit->signaled || exit->code > 1) && !s->err.code)
        (void)err_set(&s->err, ERR_IO, "tar ended with %s%u", exit->signaled ? "signal " : "",
                      exit->code);
    finish(s);
}

static void on_gone(void *ctx) {
    struct snapshot *s = ctx;
    http_respond_empty(s->req, 499);
    s->req = NULL;
}

/* What the quota leaves, when those that are being made become as large as they may. */
static int room(struct front *f, uint64_t *ret, struct err *err) {
    const struct sandbox_settings *set = &f->config->sandboxes;
    int64_t used = 0;
    int rc = store_record_sum(f->store, "snapshot", &used, err);
    uint64_t all = (uint64_t)set->snapshots_mb << 20;
    if (rc == 0 && (uint64_t)used >= all)
        rc = err_set(err, ERR_LIMIT,
                     "snapshots take %u MiB already (setting sandboxes.snapshots_mb): delete some",
                     set->snapshots_mb);
    if (rc == 0 && (uint64_t)used + f->snapshots_reserved >= all)
        rc = err_set(err, ERR_RATE,
                     "other snapshots are being made that may take what is left of %u MiB (setting "
                     "sandboxes.snapshots_mb): try again, or delete some",
                     set->snapshots_mb);
    if (rc == 0)
        *ret = MIN((uint64_t)set->snapshot_mb << 20, all - (uint64_t)used - f->snapshots_reserved);
    return rc;
}

static void create(struct http_req *req, void *ctx) {
    static const char *const keys[] = {"name", NULL};
    struct front *f = ctx;
    struct err err;
    struct sandbox *box = api_sandbox(req, f, false);
    if (!box)
        return;
    _cleanup_(json) json_t *body = NULL;
    const char *name = NULL;
    uint64_t max = 0;
    int rc = api_body(req, &body, &err);
    if (rc == 0)
        rc = json_check_keys(body, "the request", keys, &err);
    if (rc == 0)
        rc = json_get_str(body, "name", &name, &err);
    if (rc == 0 && name && strlen(name) > NAME_BYTES)
        rc = err_set(&err, ERR_BAD_REQUEST, "\"name\" has at most %d bytes", NAME_BYTES);
    if (rc == 0 && box->snapshots >= SNAPSHOTS_AT_ONCE)
        rc = err_set(&err, ERR_CONFLICT, "another snapshot of this sandbox is being made");
    if (rc == 0)
        rc = room(f, &max, &err);
    if (rc < 0) {
        http_respond_err(req, &err);
        return;
    }
    struct snapshot *s = xcalloc(1, sizeof(*s));
    char file[ID_SIZE + 8];
    s->front = f;
    s->req = req;
    s->max = max;
    f->snapshots_reserved += max;
    id_new("snp", s->id);
    memcpy(s->sandbox, box->id, sizeof(s->sandbox));
    memcpy(s->owner, box->owner, sizeof(s->owner));
    json_t *root = json_object_get(box->doc, "root");
    s->doc = json_pack("{s:s?,s:O,s:s}", "name", name, "root", root, "sandbox", box->id);
    file_name(s->id, file);
    s->fd = openat(sandboxes_snapshots_dir(f->sandboxes), file,
                   O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (s->fd < 0)
        (void)err_sys(&s->err, "store the snapshot");
    else
        s->job = sandbox_job_start(box->box,
                                   &(struct sandbox_job_options){
                                       .archive = INIT_SNAPSHOT,
                                       .fd = -1,
                                       .callbacks = {.on_output = on_output, .on_exit = on_exited},
                                       .ctx = s},
                                   &s->err);
    box->snapshots++;
    if (s->job)
        http_req_on_gone(req, on_gone, s);
    else
        finish(s);
}

static void list(struct http_req *req, void *ctx) {
    api_records(req, ctx, "snapshot", "snp", "snapshots", NULL, show);
}

static void get(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    struct store_record r;
    if (store_record_get(f->store, "snapshot", http_req_param(req, "id"), NULL, front_scope(req),
                         &r, &err) < 0) {
        http_respond_err(req, &err);
        return;
    }
    _cleanup_(json) json_t *o = show(f, &r);
    store_record_finish(&r);
    http_respond_json(req, 200, o);
}

static void delete (struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    struct store_record r;
    char name[ID_SIZE + 8];
    int rc = store_record_get(f->store, "snapshot", http_req_param(req, "id"), NULL,
                              front_scope(req), &r, &err);
    if (rc == 0) {
        file_name(r.id, name);
        (void)unlinkat(sandboxes_snapshots_dir(f->sandboxes), name, 0);
        rc = store_record_delete(f->store, "snapshot", r.id, &err);
        store_record_finish(&r);
    }
    if (rc < 0)
        http_respond_err(req, &err);
    else
        http_respond_empty(req, 204);
}

void api_snapshots_routes(struct front *f) {
    const struct http_route routes[] = {
        {"POST", "/v1/sandboxes/{id}/snapshots", create, f, 0, 0},
        {"GET", "/v1/snapshots", list, f, FRONT_ROUTE_READ, 0},
        {"GET", "/v1/snapshots/{id}", get, f, FRONT_ROUTE_READ, 0},
        {"DELETE", "/v1/snapshots/{id}", delete, f, 0, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(routes); i++)
        http_server_route(f->http, &routes[i]);
}
