#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "front/api/api.h"
#include "front/api/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A snapshot is an archive of what a sandbox can write to, made by tar inside and stored as it
 * comes. It is never opened here: a new sandbox unpacks it, inside. */

enum {
    SNAPSHOTS_AT_ONCE = 1,
    SAID_BYTES = 8192,
    KILLED_WAIT_MS = 2000, /* for the end of tar: a sandbox that is paused does not end it */
    WARNINGS_MAX = 50,
};

/* One that is being made. It is answered (by the end of tar, a limit or its time, whichever comes
 * first) and freed when tar is gone. */
struct snapshot {
    struct snapshot *next; /* while what has come of it counts */
    struct front *front;
    struct http_req *req; /* NULL when the client is gone, or answered */
    struct sandbox_command *command;
    uv_timer_t timer;
    char id[ID_SIZE];
    char sandbox[ID_SIZE];
    char owner[ID_SIZE];
    json_t *doc;
    int fd;
    uint64_t bytes;
    uint64_t stored, stored_own; /* of all and of this key, when those that are made are done */
    struct buf said;             /* by tar */
    bool counted;                /* it is in the list */
    bool answered;
    struct err err;
};

static void file_name(const char *id, char out[ID_SIZE + 8]) {
    (void)snprintf(out, ID_SIZE + 8, "%s.tar", id);
}

static json_t *show(const struct front *f, const struct store_record *r) {
    char text[CLOCK_RFC3339_SIZE];
    (void)f;
    json_t *o =
        json_pack("{s:s,s:s,s:s,s:I,s:[]}", "id", r->id, "sandbox", r->parent, "created_at",
                  clock_rfc3339(r->created_ms, text), "size", (json_int_t)r->bytes, "warnings");
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

/* --- the shares --- */

/* There is no room for what has come of it. Nothing is set aside for one that is being made: it
 * takes what it has written, so that a slow one keeps nobody from making theirs. */
static int check_room(const struct snapshot *s, struct err *err) {
    const struct sandbox_settings *set = &s->front->config->sandboxes;
    uint64_t all = s->stored;
    uint64_t own = s->stored_own;
    for (const struct snapshot *o = s->front->snapshots; o; o = o->next) {
        all += o->bytes;
        own += strcmp(o->owner, s->owner) == 0 ? o->bytes : 0;
    }
    if (s->bytes > (uint64_t)set->snapshot_mb << 20)
        return err_set(err, ERR_LIMIT,
                       "the snapshot exceeds %u MiB (setting sandboxes.snapshot_mb): delete files",
                       set->snapshot_mb);
    if (own > (uint64_t)set->snapshots_mb_per_key << 20)
        return err_set(err, ERR_LIMIT,
                       "the snapshots of this key exceed %u MiB (setting "
                       "sandboxes.snapshots_mb_per_key): delete some",
                       set->snapshots_mb_per_key);
    if (all > (uint64_t)set->snapshots_mb << 20)
        return err_set(err, ERR_RATE,
                       "the snapshots of all keys exceed %u MiB (setting sandboxes.snapshots_mb): "
                       "delete some, or wait until others do",
                       set->snapshots_mb);
    return 0;
}

static int read_stored(struct snapshot *s, struct err *err) {
    int64_t all = 0;
    int64_t own = 0;
    int rc = store_record_sum(s->front->store, "snapshot", NULL, &all, err);
    if (rc == 0)
        rc = store_record_sum(s->front->store, "snapshot", s->owner, &own, err);
    s->stored = (uint64_t)all;
    s->stored_own = (uint64_t)own;
    return rc;
}

/* --- the end --- */

/* What tar said, line by line: "tar: work/secret: Warning: Cannot open: Permission denied". */
static json_t *warnings_of(const struct buf *said) {
    json_t *list = json_array();
    for (size_t at = 0; at < said->len && json_array_size(list) < WARNINGS_MAX;) {
        const char *line = said->data + at;
        const char *end = memchr(line, '\n', said->len - at);
        size_t len = end ? (size_t)(end - line) : said->len - at;
        at += len + 1;
        if (len > 5 && memcmp(line, "tar: ", 5) == 0) {
            line += 5;
            len -= 5;
        }
        json_t *text = json_stringn(line, len);
        (void)json_array_append_new(list, text ? text : json_string("a name that is no text"));
    }
    return list;
}

static void take_out(struct snapshot *s) {
    if (!s->counted)
        return;
    s->counted = false;
    struct snapshot **at = &s->front->snapshots;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    if (s->err.code)
        return;
    /* It was in the list, and is in the store now. */
    for (struct snapshot *o = s->front->snapshots; o; o = o->next) {
        o->stored += s->bytes;
        o->stored_own += strcmp(o->owner, s->owner) == 0 ? s->bytes : 0;
    }
}

static void answer(struct snapshot *s) {
    _cleanup_(json) json_t *shown = NULL;
    char name[ID_SIZE + 8];
    if (s->answered)
        return;
    s->answered = true;
    (void)uv_timer_stop(&s->timer);
    (void)json_object_set_new(s->doc, "warnings", warnings_of(&s->said));
    if (!s->err.code)
        (void)record(s, &shown, &s->err);
    take_out(s);
    file_name(s->id, name);
    fd_close(&s->fd);
    if (s->err.code)
        (void)unlinkat(sandboxes_snapshots_dir(s->front->sandboxes), name, 0);
    struct http_req *req = steal_ptr(&s->req);
    if (!req)
        return;
    http_req_on_gone(req, NULL, NULL);
    if (s->err.code)
        api_fail(req, &s->err);
    else
        http_respond_json(req, 201, shown);
}

static void on_timer_closed(uv_handle_t *h) {
    struct snapshot *s = h->data;
    buf_finish(&s->said);
    json_decref(s->doc);
    free(s);
}

/* Tar is gone, or never came. */
static void finish(struct snapshot *s) {
    struct sandbox *box = sandboxes_find(s->front->sandboxes, s->sandbox);
    if (box)
        box->snapshots--;
    answer(s);
    uv_close((uv_handle_t *)&s->timer, on_timer_closed);
}

static void on_stuck(uv_timer_t *t) {
    answer(t->data);
}

/* Something is wrong that tar does not know of. */
static void stop(struct snapshot *s) {
    struct sandbox *box = sandboxes_find(s->front->sandboxes, s->sandbox);
    take_out(s);
    if (ftruncate(s->fd, 0) < 0)
        log_warn("sandbox.snapshot", "error", strerror(errno)); /* it is unlinked all the same */
    sandbox_command_discard(s->command, 1);
    sandbox_command_discard(s->command, 2);
    if (box && box->box)
        (void)sandbox_box_signal(box->box, s->command, SIGKILL, true, NULL, NULL);
    (void)uv_timer_start(&s->timer, on_stuck, KILLED_WAIT_MS, 0);
}

static void on_late(uv_timer_t *t) {
    struct snapshot *s = t->data;
    unsigned max = s->front->config->sandboxes.snapshot_s;
    (void)err_set(&s->err, ERR_LIMIT,
                  "the snapshot took longer than %u s (setting sandboxes.snapshot_s)", max);
    stop(s);
}

static void on_output(void *ctx, int stream, const char *data, size_t len) {
    struct snapshot *s = ctx;
    if (s->err.code)
        return;
    if (stream == 2) {
        (void)buf_add(&s->said, data, MIN(len, SAID_BYTES - s->said.len));
        return;
    }
    s->bytes += len;
    if (check_room(s, &s->err) == 0 && fd_write_all(s->fd, data, len) < 0)
        (void)err_sys(&s->err, "store the snapshot");
    if (s->err.code)
        stop(s);
}

static void on_exited(void *ctx, const struct sandbox_exit *exit, const struct err *err) {
    struct snapshot *s = ctx;
    s->command = NULL;
    /* tar says 1 when a file changed while it was read: the archive is whole all the same. */
    if (err && !s->err.code)
        s->err = *err;
    else if (exit && (exit->signaled || exit->code > 1) && !s->err.code)
        (void)err_set(&s->err, ERR_IO, "tar ended with %s%u: %.*s", exit->signaled ? "signal " : "",
                      exit->code, (int)MIN(s->said.len, (size_t)300), s->said.data);
    finish(s);
}

static void on_gone(void *ctx) {
    struct snapshot *s = ctx;
    http_respond_empty(s->req, 499);
    s->req = NULL;
}

/* --- the beginning --- */

static void start(struct snapshot *s, struct sandbox *box) {
    char file[ID_SIZE + 8];
    const struct sandbox_command_options options = {
        .archive = INIT_SNAPSHOT,
        .fd = -1,
        .callbacks = {.on_output = on_output, .on_exit = on_exited},
        .ctx = s};
    file_name(s->id, file);
    s->fd = openat(sandboxes_snapshots_dir(s->front->sandboxes), file,
                   O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (s->fd < 0)
        (void)err_sys(&s->err, "store the snapshot");
    else
        s->command = sandbox_command_start(box->box, &options, &s->err);
}

static int read_request(struct http_req *req, const struct sandbox *box, json_t **ret_doc,
                        struct err *err) {
    static const char *const keys[] = {"name", NULL};
    _cleanup_(json) json_t *body = NULL;
    const char *name = NULL;
    int rc = api_body(req, &body, err);
    if (rc == 0)
        rc = json_check_keys(body, "the request", keys, err);
    if (rc == 0)
        rc = json_get_str(body, "name", &name, err);
    if (rc == 0 && name)
        rc = sandbox_check_name(name, err);
    if (rc == 0 && box->snapshots >= SNAPSHOTS_AT_ONCE)
        rc = err_set(err, ERR_CONFLICT, "another snapshot of this sandbox is being made");
    if (rc == 0)
        *ret_doc = json_pack("{s:s?,s:O,s:s}", "name", name, "root",
                             json_object_get(box->doc, "root"), "sandbox", box->id);
    return rc;
}

static void create(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    json_t *doc = NULL;
    struct sandbox *box = api_sandbox(req, f, false);
    if (!box)
        return;
    if (read_request(req, box, &doc, &err) < 0) {
        http_respond_err(req, &err);
        return;
    }
    struct snapshot *s = xcalloc(1, sizeof(*s));
    *s = (struct snapshot){.front = f, .req = req, .doc = doc, .fd = -1, .next = f->snapshots};
    id_new("snp", s->id);
    memcpy(s->sandbox, box->id, sizeof(s->sandbox));
    memcpy(s->owner, box->owner, sizeof(s->owner));
    buf_init(&s->said, SAID_BYTES);
    (void)uv_timer_init(f->loop, &s->timer);
    s->timer.data = s;
    f->snapshots = s;
    s->counted = true;
    box->snapshots++;
    if (read_stored(s, &s->err) == 0 && check_room(s, &s->err) == 0)
        start(s, box);
    if (!s->command) {
        finish(s);
        return;
    }
    http_req_on_gone(req, on_gone, s);
    (void)uv_timer_start(&s->timer, on_late, (uint64_t)f->config->sandboxes.snapshot_s * 1000, 0);
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
