#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/path.h"
#include "front/sandbox/parts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- folders --- */

int sandboxes_dir(const struct sandboxes *all, const char *id, bool make) {
    if (!id_is_valid("sbx", id, strlen(id))) {
        errno = ENOENT;
        return -1;
    }
    int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW;
    int fd = openat(all->dir, id, flags);
    if (fd < 0 && errno == ENOENT && make) {
        if (mkdirat(all->dir, id, 0700) < 0)
            return -1;
        fd = openat(all->dir, id, flags);
    }
    return fd;
}

int sandboxes_snapshots_dir(const struct sandboxes *all) {
    return all->snapshots;
}

struct snapshot **sandboxes_snapshots(struct sandboxes *all) {
    return &all->made;
}

static void remove_dir(const struct sandboxes *all, const char *id) {
    int fd = sandboxes_dir(all, id, false);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d)
        return;
    const struct dirent *e;
    while ((e = readdir(d)))
        if (e->d_name[0] != '.')
            (void)unlinkat(fd, e->d_name, 0);
    (void)closedir(d);
    (void)unlinkat(all->dir, id, AT_REMOVEDIR);
}

static int sandbox_records_open_dir(const char *data_dir, const char *name, int *ret_fd,
                                    struct err *err) {
    _cleanup_(free) char *path = path_join(data_dir, name);
    int rc = path_mkdirs(path, 0700, err);
    if (rc < 0)
        return rc;
    *ret_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *ret_fd < 0 ? err_sys(err, "%s", path) : 0;
}

/* --- what is remembered --- */

struct ids {
    char (*items)[ID_SIZE];
    size_t n;
};

static void sandbox_records_on_old(void *ctx, const struct store_record *r) {
    struct ids *ids = ctx;
    ids->items = xrealloc(ids->items, (ids->n + 1) * sizeof(*ids->items));
    memcpy(ids->items[ids->n++], r->id, ID_SIZE);
}

int sandboxes_forget(struct sandboxes *all, const char *id, struct err *err) {
    remove_dir(all, id);
    return store_record_delete(all->opt.store, "sandbox", id, err);
}

void records_prune(struct sandboxes *all) {
    struct ids old = {0};
    struct err err;
    const struct sandbox_settings *set = all->opt.settings;
    int64_t before = clock_wall_ms() - (int64_t)set->keep_s * 1000;
    all->pruned_ms = clock_mono_ms();
    int rc = store_record_old(all->opt.store, "sandbox", NULL, before, set->keep,
                              sandbox_records_on_old, &old, &err);
    for (size_t i = 0; rc == 0 && i < old.n; i++)
        rc = sandboxes_forget(all, old.items[i], &err);
    if (rc < 0)
        log_warn("sandbox.prune", "error", err.message);
    all->ended = 0;
    all->prune_again = rc == 0 && old.n > 0;
    free(old.items);
}

/* Folders without a record: left by a crash between the two. */
static void sweep_dirs(struct sandboxes *all) {
    int fd = fcntl(all->dir, F_DUPFD_CLOEXEC, 0);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct err err;
    struct ids gone = {0};
    const struct dirent *e;
    while (d && (e = readdir(d))) {
        struct store_record r = {0};
        if (!id_is_valid("sbx", e->d_name, strlen(e->d_name)))
            continue;
        int rc = store_record_get(all->opt.store, "sandbox", e->d_name, NULL,
                                  (struct store_scope){.all = true}, &r, &err);
        if (rc == -ERR_NOT_FOUND) {
            memcpy(r.id, e->d_name, strlen(e->d_name) + 1);
            sandbox_records_on_old(&gone, &r);
        }
        store_record_finish(&r);
    }
    if (d)
        (void)closedir(d);
    for (size_t i = 0; i < gone.n; i++)
        remove_dir(all, gone.items[i]);
    free(gone.items);
}

/* Archives without a record: what a crash left of a snapshot that was being made. */
static void sweep_snapshots(struct sandboxes *all) {
    int fd = fcntl(all->snapshots, F_DUPFD_CLOEXEC, 0);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct err err;
    const struct dirent *e;
    while (d && (e = readdir(d))) {
        struct store_record r = {0};
        char id[ID_SIZE];
        size_t n = strcspn(e->d_name, ".");
        if (strcmp(e->d_name + n, ".tar") != 0 || n >= sizeof(id) ||
            !id_is_valid("snp", e->d_name, n))
            continue;
        memcpy(id, e->d_name, n);
        id[n] = 0;
        if (store_record_get(all->opt.store, "snapshot", id, NULL,
                             (struct store_scope){.all = true}, &r, &err) == -ERR_NOT_FOUND)
            (void)unlinkat(all->snapshots, e->d_name, 0);
        store_record_finish(&r);
    }
    if (d)
        (void)closedir(d);
}

static const char *const status_names[] = {
    [SANDBOX_STATUS_RUNNING] = "running",         [SANDBOX_STATUS_PAUSED] = "paused",
    [SANDBOX_STATUS_STOPPED] = "stopped",         [SANDBOX_STATUS_FAILED] = "failed",
    [SANDBOX_STATUS_INTERRUPTED] = "interrupted",
};

const char *sandbox_status_name(enum sandbox_status status) {
    return status_names[status];
}

static enum sandbox_status living_status_of(const struct sandbox *s) {
    return s->state == SANDBOX_PAUSED ? SANDBOX_STATUS_PAUSED : SANDBOX_STATUS_RUNNING;
}

enum sandbox_status sandbox_record_status(const struct store_record *r) {
    unsigned i = SANDBOX_STATUS_STOPPED;
    while (i < SANDBOX_STATUS_INTERRUPTED && strcmp(status_names[i], r->status) != 0)
        i++;
    return r->ended_ms ? (enum sandbox_status)i : SANDBOX_STATUS_INTERRUPTED;
}

int record_put(const struct sandbox *s, enum sandbox_status status, int64_t ended_ms,
               struct err *err) {
    (void)json_object_set_new(s->doc, "expires_ms", json_integer(s->expires_ms));
    _cleanup_(free) char *doc = json_dumps(s->doc, JSON_COMPACT);
    struct store_record r = {.status = (char *)(uintptr_t)status_names[status],
                             .created_ms = s->created_ms,
                             .ended_ms = ended_ms,
                             .doc = doc};
    memcpy(r.id, s->id, sizeof(r.id));
    memcpy(r.owner, s->owner, sizeof(r.owner));
    return store_record_put(s->all->opt.store, "sandbox", &r, err);
}

int record_put_living(const struct sandbox *s, struct err *err) {
    return record_put(s, living_status_of(s), 0, err);
}

void sandbox_save(struct sandbox *s) {
    struct err err;
    if (record_put_living(s, &err) < 0)
        log_error("sandbox.record", "sandbox", s->id, "error", err.message);
}

json_t *records_usage_of(const struct sandbox_stats *st) {
    return json_pack("{s:I,s:I,s:I,s:I,s:I}", "memory_bytes", (json_int_t)st->memory_bytes,
                     "memory_peak_bytes", (json_int_t)st->memory_peak_bytes, "cpu_ms",
                     (json_int_t)(st->cpu_us / 1000), "pids", (json_int_t)st->pids, "oom_kills",
                     (json_int_t)st->oom_kills);
}

static json_t *sandbox_records_show(const char *id, enum sandbox_status status, int64_t created_ms,
                                    int64_t ended_ms, const json_t *doc) {
    char text[CLOCK_RFC3339_SIZE];
    json_t *o = json_object();
    json_int_t expires = json_integer_value(json_object_get(doc, "expires_ms"));
    (void)json_object_set_new(o, "id", json_string(id));
    (void)json_object_set_new(o, "name", json_null());
    (void)json_object_set_new(o, "status", json_string(status_names[status]));
    (void)json_object_set_new(o, "created_at", json_string(clock_rfc3339(created_ms, text)));
    (void)json_object_set_new(o, "expires_at",
                              expires ? json_string(clock_rfc3339(expires, text)) : json_null());
    (void)json_object_set_new(o, "stopped_at",
                              ended_ms ? json_string(clock_rfc3339(ended_ms, text)) : json_null());
    (void)json_object_update(o, (json_t *)(uintptr_t)doc);
    (void)json_object_del(o, "expires_ms");
    (void)json_object_del(o, "note");
    if (!json_object_get(o, "usage"))
        (void)json_object_set_new(o, "usage", json_null());
    if (!json_object_get(o, "error"))
        (void)json_object_set_new(o, "error", json_null());
    if (status == SANDBOX_STATUS_INTERRUPTED && json_is_null(json_object_get(o, "error")))
        (void)json_object_set_new(o, "error",
                                  json_pack("{s:s,s:s}", "code", "interrupted", "message",
                                            "the server ended while this was running"));
    return o;
}

json_t *sandbox_show(const struct sandbox *s) {
    (void)json_object_set_new(s->doc, "expires_ms", json_integer(s->expires_ms));
    json_t *o = sandbox_records_show(s->id, living_status_of(s), s->created_ms, 0, s->doc);
    json_t *usage = records_usage_of(&s->stats);
    if (s->line)
        (void)json_object_set_new(usage, "network", network_line_usage(s->line));
    (void)json_object_set_new(o, "usage", usage);
    return o;
}

json_t *sandboxes_show_record(const struct sandboxes *all, const struct store_record *r) {
    for (const struct sandbox *s = all->list; s; s = s->next)
        if (strcmp(s->id, r->id) == 0)
            return sandbox_show(s);
    _cleanup_(json) json_t *doc = store_record_doc(r);
    return sandbox_records_show(r->id, sandbox_record_status(r), r->created_ms, r->ended_ms, doc);
}

int sandboxes_show(struct sandboxes *all, const char *id, struct store_scope scope,
                   json_t **ret_object, struct err *err) {
    struct store_record r;
    int rc = store_record_get(all->opt.store, "sandbox", id, NULL, scope, &r, err);
    if (rc < 0)
        return rc;
    *ret_object = sandboxes_show_record(all, &r);
    store_record_finish(&r);
    return 0;
}

/* --- all of it --- */

int records_open(struct sandboxes *all, struct err *err) {
    all->dir = all->snapshots = -1;
    int rc = sandbox_records_open_dir(all->opt.data_dir, "sandboxes", &all->dir, err);
    if (rc == 0)
        rc = sandbox_records_open_dir(all->opt.data_dir, "snapshots", &all->snapshots, err);
    if (rc < 0)
        records_close(all);
    return rc;
}

void records_close(struct sandboxes *all) {
    fd_close(&all->dir);
    fd_close(&all->snapshots);
}

void records_sweep(struct sandboxes *all) {
    sweep_dirs(all);
    sweep_snapshots(all);
}
