#include "front/sandbox/sandboxes.h"

#include "base/base64.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/sm.h"
#include "front/sandbox/exec.h"
#include "loop/later.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    TICK_MS = 100,
    PRUNE_EVERY_MS = 60000,
    PRUNE_AFTER = 50,
    FILES_MAX = 1000,
    NAME_BYTES = 100,
    METADATA_BYTES = 16384,
    ENV_BYTES = 65536,
    EXPIRE_GRACE_S = 30, /* beyond the time that a snapshot may take */
};

enum { SMALL_UPLOAD = 16 * 1024 };

struct sandboxes {
    struct sandboxes_options opt;
    struct sandbox_launcher *host; /* NULL: there is no cay-sandbox */
    struct network *network;
    struct sandbox *list;
    size_t live;
    int dir;               /* data_dir/sandboxes */
    int snapshots;         /* data_dir/snapshots */
    struct snapshot *made; /* snapshots that are being made */
    uv_timer_t timer;
    struct later_queue later;
    int64_t pruned_ms;
    struct file_writer *writers;
    uint64_t turns;       /* of writers */
    size_t uploads_bytes; /* that they hold */
    unsigned ended;       /* since then */
    bool prune_again;     /* it found some, and there may be more */
    uint64_t created_total, failed_total;
    bool (*on_expire)(void *ctx, struct sandbox *s);
    void *expire_ctx;
    bool closing;
    unsigned parts; /* that are to be closed */
    void (*on_closed)(void *ctx);
    void *closed_ctx;
};

/* What is left to do before it can be handed out. */
struct setup {
    struct sandbox *sandbox;
    sandbox_made made;
    void *ctx;
    struct egress_policy policy;
    json_t *files; /* list, or NULL */
    size_t file;   /* the next */
    char *content; /* of the file that is being written */
    size_t len, at;
    bool first;
    int snapshot; /* an archive to restore, or -1 */
    struct sandbox_command *restore;
    bool restored;
    /* What tar said: the line that comes, by its first and last bytes, and the lines that matter.
     */
    char line[256], tail[32], said[400];
    size_t line_len, tail_len, said_len;
    uint64_t too_long; /* paths */
};

/* --- states --- */

static const struct sm_state states[] = {
    [SANDBOX_STARTING] = {"starting", SM_TO(SANDBOX_RUNNING) | SM_TO(SANDBOX_ENDING)},
    [SANDBOX_RUNNING] = {"running", SM_TO(SANDBOX_PAUSED) | SM_TO(SANDBOX_ENDING)},
    [SANDBOX_PAUSED] = {"paused", SM_TO(SANDBOX_RUNNING) | SM_TO(SANDBOX_ENDING)},
    [SANDBOX_ENDING] = {"ending", 0},
};
static const struct sm sandbox_sm = {"sandbox", states, ARRAY_LEN(states)};

void sandbox_move(struct sandbox *s, enum sandbox_state to) {
    s->state = (enum sandbox_state)sm_next(&sandbox_sm, s->state, to);
}

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

static int open_dir(const char *data_dir, const char *name, int *ret_fd, struct err *err) {
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

static void on_old(void *ctx, const struct store_record *r) {
    struct ids *ids = ctx;
    ids->items = xrealloc(ids->items, (ids->n + 1) * sizeof(*ids->items));
    memcpy(ids->items[ids->n++], r->id, ID_SIZE);
}

int sandboxes_forget(struct sandboxes *all, const char *id, struct err *err) {
    remove_dir(all, id);
    return store_record_delete(all->opt.store, "sandbox", id, err);
}

static void prune(struct sandboxes *all) {
    struct ids old = {0};
    struct err err;
    const struct sandbox_settings *set = all->opt.settings;
    int64_t before = clock_wall_ms() - (int64_t)set->keep_s * 1000;
    all->pruned_ms = clock_mono_ms();
    int rc =
        store_record_old(all->opt.store, "sandbox", NULL, before, set->keep, on_old, &old, &err);
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
            on_old(&gone, &r);
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

static const char *const state_names[] = {"running", "running", "paused", "running"};

static int put_record(const struct sandbox *s, const char *status, int64_t ended_ms,
                      struct err *err) {
    (void)json_object_set_new(s->doc, "expires_ms", json_integer(s->expires_ms));
    _cleanup_(free) char *doc = json_dumps(s->doc, JSON_COMPACT);
    struct store_record r = {.status = (char *)(uintptr_t)status,
                             .created_ms = s->created_ms,
                             .ended_ms = ended_ms,
                             .doc = doc};
    memcpy(r.id, s->id, sizeof(r.id));
    memcpy(r.owner, s->owner, sizeof(r.owner));
    return store_record_put(s->all->opt.store, "sandbox", &r, err);
}

void sandbox_save(struct sandbox *s) {
    struct err err;
    if (put_record(s, state_names[s->state], 0, &err) < 0)
        log_error("sandbox.record", "sandbox", s->id, "error", err.message);
}

static json_t *usage_of(const struct sandbox_stats *st) {
    return json_pack("{s:I,s:I,s:I,s:I,s:I}", "memory_bytes", (json_int_t)st->memory_bytes,
                     "memory_peak_bytes", (json_int_t)st->memory_peak_bytes, "cpu_ms",
                     (json_int_t)(st->cpu_us / 1000), "pids", (json_int_t)st->pids, "oom_kills",
                     (json_int_t)st->oom_kills);
}

static json_t *show(const char *id, const char *status, int64_t created_ms, int64_t ended_ms,
                    const json_t *doc) {
    char text[CLOCK_RFC3339_SIZE];
    json_t *o = json_object();
    json_int_t expires = json_integer_value(json_object_get(doc, "expires_ms"));
    (void)json_object_set_new(o, "id", json_string(id));
    (void)json_object_set_new(o, "name", json_null());
    (void)json_object_set_new(o, "status", json_string(status));
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
    if (strcmp(status, "interrupted") == 0 && json_is_null(json_object_get(o, "error")))
        (void)json_object_set_new(o, "error",
                                  json_pack("{s:s,s:s}", "code", "interrupted", "message",
                                            "the server ended while this was running"));
    return o;
}

json_t *sandbox_show(const struct sandbox *s) {
    (void)json_object_set_new(s->doc, "expires_ms", json_integer(s->expires_ms));
    json_t *o = show(s->id, state_names[s->state], s->created_ms, 0, s->doc);
    json_t *usage = usage_of(&s->stats);
    if (s->line)
        (void)json_object_set_new(usage, "network", network_line_usage(s->line));
    (void)json_object_set_new(o, "usage", usage);
    return o;
}

json_t *sandboxes_show_record(const struct sandboxes *all, const struct store_record *r) {
    for (const struct sandbox *s = all->list; s; s = s->next)
        if (strcmp(s->id, r->id) == 0)
            return sandbox_show(s);
    _cleanup_(json) json_t *doc = json_loads(r->doc, 0, NULL);
    /* One that is gone, and whose end could not be written down. */
    const char *status = r->ended_ms ? r->status : "interrupted";
    return show(r->id, status, r->created_ms, r->ended_ms, doc);
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

/* --- finding --- */

struct sandbox *sandboxes_find(struct sandboxes *all, const char *id) {
    struct sandbox *s = all->list;
    while (s && strcmp(s->id, id) != 0)
        s = s->next;
    return s;
}

struct sandbox *sandboxes_use(struct sandboxes *all, const char *id, struct store_scope scope,
                              bool paused, struct err *err) {
    struct sandbox *s = sandboxes_find(all, id);
    if (!s || !(scope.all || strcmp(s->owner, scope.owner) == 0)) {
        struct store_record r;
        if (store_record_get(all->opt.store, "sandbox", id, NULL, scope, &r, err) < 0)
            return NULL;
        (void)err_set(err, ERR_CONFLICT, "the sandbox is %.20s: make a new one", r.status);
        store_record_finish(&r);
        return NULL;
    }
    if (s->state == SANDBOX_STARTING || s->state == SANDBOX_ENDING) {
        (void)err_set(err, ERR_CONFLICT, "the sandbox is %s",
                      s->state == SANDBOX_STARTING ? "starting: wait until it is made" : "ending");
        return NULL;
    }
    if (s->state == SANDBOX_PAUSED && !paused) {
        (void)err_set(err, ERR_CONFLICT, "the sandbox is paused: resume it first");
        return NULL;
    }
    return s;
}

/* --- the end --- */

static void free_setup(struct setup *u) {
    if (!u)
        return;
    egress_policy_finish(&u->policy);
    json_decref(u->files);
    free(u->content);
    fd_close(&u->snapshot);
    free(u);
}

static json_t *error_object(const struct err *err) {
    json_t *j = json_pack("{s:s,s:s}", "code", err_name(err->code), "message", err->message);
    return j ? j
             : json_pack("{s:s,s:s}", "code", err_name(err->code), "message",
                         "the sandbox gave a reason that is no text");
}

static void update_timer(struct sandboxes *all);

static void free_sandbox(struct sandbox *s) {
    json_decref(s->doc);
    json_decref(s->env);
    free(s);
}

/* It is gone. */
static void bury(struct sandbox *s, const struct err *why) {
    struct sandboxes *all = s->all;
    struct setup *setup = s->setup;
    struct err err = s->err.code ? s->err : why ? *why : (struct err){0};
    bool failed = setup != NULL || (why && !s->expired && !all->closing);
    const char *status = setup                         ? "failed"
                         : !failed                     ? "stopped"
                         : err.code == ERR_UNAVAILABLE ? "interrupted"
                                                       : "failed";
    if (setup && !err.code)
        (void)err_set(&err, ERR_CANCELLED, "it was ended before it was ready");
    s->box = NULL;
    json_t *usage = usage_of(&s->stats);
    if (s->line) {
        (void)json_object_set_new(usage, "network", network_line_usage(s->line));
        network_line_close(s->line);
        s->line = NULL;
    }
    (void)json_object_set_new(s->doc, "usage", usage);
    while (s->execs)
        exec_detach(s->execs);
    if (s->expired)
        (void)err_set(&err, ERR_TIMEOUT,
                      "its time was over: make another, and ask for more (timeout_s)");
    if (err.code)
        (void)json_object_set_new(s->doc, "error", error_object(&err));
    struct err ignored;
    if (put_record(s, status, clock_wall_ms(), &ignored) < 0)
        log_error("sandbox.record", "sandbox", s->id, "error", ignored.message);
    s->all->ended++;
    struct sandbox **at = &all->list;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    all->live--;
    if (failed)
        all->failed_total++;
    log_info("sandbox.ended", "sandbox", s->id, "status", status, "error", err.message);
    s->setup = NULL;
    if (setup && setup->made)
        setup->made(setup->ctx, NULL, &err);
    free_setup(setup);
    while (s->waiters) {
        struct sandbox_waiter *w = s->waiters;
        s->waiters = w->next;
        if (w->cb)
            w->cb(w->ctx);
        free(w);
    }
    free_sandbox(s);
    update_timer(all);
}

static void on_box_failed(void *ctx, const struct err *err) {
    bury(ctx, err);
}

static void on_box_exited(void *ctx, const struct sandbox_stats *stats, const struct err *err) {
    struct sandbox *s = ctx;
    if (stats->cpu_us || stats->memory_peak_bytes)
        s->stats = *stats;
    bury(s, err);
}

struct sandbox_waiter *sandbox_wait(struct sandbox *s, void (*cb)(void *ctx), void *ctx) {
    struct sandbox_waiter *w = xcalloc(1, sizeof(*w));
    *w = (struct sandbox_waiter){.next = s->waiters, .cb = cb, .ctx = ctx};
    s->waiters = w;
    return w;
}

struct sandbox_waiter *sandbox_end(struct sandbox *s, void (*cb)(void *ctx), void *ctx) {
    struct sandbox_waiter *w = cb ? sandbox_wait(s, cb, ctx) : NULL;
    if (s->state != SANDBOX_ENDING) {
        sandbox_move(s, SANDBOX_ENDING);
        sandbox_box_destroy(s->box);
    }
    return w;
}

/* What it takes to be made ready did not work. */
static void give_up(struct sandbox *s, const struct err *err) {
    if (!s->err.code)
        s->err = *err;
    (void)sandbox_end(s, NULL, NULL);
}

void sandbox_drop_maker(struct sandbox *s) {
    struct err err;
    (void)err_set(&err, ERR_CANCELLED, "the client left before it was made");
    if (s->setup)
        s->setup->made = NULL;
    give_up(s, &err);
}

/* --- making one ready: network, snapshot, files --- */

static void next_step(struct sandbox *s);

static void on_written(void *ctx, struct sandbox_reply *reply, const struct err *err) {
    struct sandbox *s = ctx;
    struct setup *u = s->setup;
    (void)reply;
    if (err) {
        struct err e = *err;
        const json_t *f = json_array_get(u->files, u->file);
        (void)err_wrap(&e, "file %.200s", json_string_value(json_object_get(f, "path")));
        give_up(s, &e);
        return;
    }
    if (u->at == u->len) {
        free(steal_ptr(&u->content));
        u->file++;
    }
    next_step(s);
}

/* Contents that do not fit into one message are written piece by piece. */
static void write_piece(struct sandbox *s) {
    struct setup *u = s->setup;
    const json_t *f = json_array_get(u->files, u->file);
    size_t n = MIN(u->len - u->at, (size_t)SANDBOX_INLINE_MAX);
    int64_t mode = 0644;
    (void)json_get_int(f, "mode", 0, 0777, &mode, NULL);
    struct sandbox_put put = {.path = json_string_value(json_object_get(f, "path")),
                              .mode = (uint32_t)mode,
                              .flags =
                                  SANDBOX_WRITE_PARENTS | (u->at > 0 ? SANDBOX_WRITE_APPEND : 0),
                              .data = u->content + u->at,
                              .len = n,
                              .fd = -1};
    struct err err;
    u->at += n;
    if (!sandbox_box_write(s->box, &put, on_written, s)) {
        (void)err_set(&err, ERR_UNAVAILABLE, "the sandbox takes no files now");
        give_up(s, &err);
    }
}

static void begin_file(struct sandbox *s) {
    struct setup *u = s->setup;
    const json_t *f = json_array_get(u->files, u->file);
    const json_t *text = json_object_get(f, "content");
    const json_t *b64 = json_object_get(f, "content_base64");
    u->at = 0;
    if (b64) {
        size_t len = json_string_length(b64);
        u->content = xmalloc(len + 1);
        (void)base64_decode(u->content, json_string_value(b64), len, &u->len); /* was checked */
    } else {
        u->len = json_string_length(text);
        u->content = xmalloc(u->len + 1);
        memcpy(u->content, json_string_value(text), u->len);
    }
    write_piece(s);
}

/* The archive is handed on as fast as tar inside takes it. */
static void feed_snapshot(void *ctx) {
    struct sandbox *s = ctx;
    struct setup *u = s->setup;
    static char chunk[65536];
    while (u && u->restore && u->snapshot >= 0 &&
           sandbox_command_input_queued(u->restore) < sizeof(chunk)) {
        ssize_t n = read(u->snapshot, chunk, sizeof(chunk));
        /* What is not queued went nowhere: tar has ended, or reads no more. */
        if (n > 0 && sandbox_command_write(u->restore, chunk, (size_t)n) &&
            sandbox_command_input_queued(u->restore) > 0)
            continue;
        fd_close(&u->snapshot);
        sandbox_command_end_input(u->restore);
    }
}

/* A guest can make a path that no program can name; tar packs it, but cannot unpack it again. All
 * the rest is restored. */
static void end_line(struct setup *u) {
    static const char too_long[] = "File name too long";
    static const char summary[] = "tar: Exiting with failure status";
    size_t n = strlen(too_long);
    if (u->tail_len >= n && memcmp(u->tail + u->tail_len - n, too_long, n) == 0) {
        u->too_long++;
    } else if (u->line_len < strlen(summary) || memcmp(u->line, summary, strlen(summary)) != 0) {
        size_t k = MIN(u->line_len, sizeof(u->said) - u->said_len);
        memcpy(u->said + u->said_len, u->line, k);
        u->said_len += k;
        if (u->said_len < sizeof(u->said))
            u->said[u->said_len++] = '\n';
    }
    u->line_len = u->tail_len = 0;
}

static void on_restore_output(void *ctx, int stream, const char *data, size_t len) {
    struct setup *u = ((struct sandbox *)ctx)->setup;
    for (size_t i = 0; u && stream == 2 && i < len; i++) {
        if (data[i] == '\n') {
            end_line(u);
            continue;
        }
        if (u->line_len < sizeof(u->line))
            u->line[u->line_len++] = data[i];
        if (u->tail_len == sizeof(u->tail)) {
            memmove(u->tail, u->tail + 1, sizeof(u->tail) - 1);
            u->tail_len--;
        }
        u->tail[u->tail_len++] = data[i];
    }
}

static void warn_too_long(struct sandbox *s) {
    char text[128];
    (void)snprintf(text, sizeof(text), "%llu paths of the snapshot are too long to be restored",
                   (unsigned long long)s->setup->too_long);
    (void)json_object_set_new(s->doc, "warnings", json_pack("[s]", text));
}

static void restore_failed(const struct setup *u, const struct sandbox_exit *exit,
                           struct err *err) {
    static const char full[] = "No space left";
    static const char part[] = "Wrote only";
    int len = (int)u->said_len;
    bool too_long = exit->signaled && exit->code == SIGXFSZ; /* one file, longer than the disk */
    if (too_long || memmem(u->said, u->said_len, full, strlen(full)) ||
        memmem(u->said, u->said_len, part, strlen(part)))
        (void)err_set(err, ERR_LIMIT, "the snapshot does not fit (ask for more disk_mb): %.*s", len,
                      u->said);
    else
        (void)err_set(err, ERR_IO, "the snapshot cannot be restored: tar ended with %s%u: %.*s",
                      exit->signaled ? "signal " : "", exit->code, len, u->said);
}

static void on_restored(void *ctx, const struct sandbox_exit *exit, const struct err *err) {
    struct sandbox *s = ctx;
    struct err e;
    if (!s->setup)
        return;
    s->setup->restore = NULL;
    struct setup *u = s->setup;
    bool only_long = u->too_long > 0 && u->said_len == 0;
    if (exit && !exit->signaled && (exit->code == 0 || only_long)) {
        if (u->too_long > 0)
            warn_too_long(s);
        next_step(s);
        return;
    }
    if (exit)
        restore_failed(s->setup, exit, &e);
    else
        e = *err;
    give_up(s, &e);
}

static void begin_restore(struct sandbox *s) {
    struct setup *u = s->setup;
    struct err err;
    u->restored = true;
    u->restore = sandbox_command_start(
        s->box,
        &(struct sandbox_command_options){.archive = INIT_TAR_IN,
                                          .dir = "/",
                                          .fd = -1,
                                          .callbacks = {.on_output = on_restore_output,
                                                        .on_input_drained = feed_snapshot,
                                                        .on_exit = on_restored},
                                          .ctx = s},
        &err);
    if (!u->restore)
        give_up(s, &err);
    else
        feed_snapshot(s);
}

static void next_step(struct sandbox *s) {
    struct setup *u = s->setup;
    if (s->state == SANDBOX_ENDING)
        return;
    if (u->snapshot >= 0 && !u->restored) {
        begin_restore(s);
        return;
    }
    if (u->content) {
        write_piece(s);
        return;
    }
    if (u->file < json_array_size(u->files)) {
        begin_file(s);
        return;
    }
    sandbox_move(s, SANDBOX_RUNNING);
    s->setup = NULL;
    sandbox_made made = u->made;
    void *ctx = u->ctx;
    free_setup(u);
    if (made)
        made(ctx, s, NULL);
}

static void on_box_ready(void *ctx, int listener) {
    struct sandbox *s = ctx;
    if (listener >= 0)
        s->line = network_open(s->all->network, s->id, listener, &s->setup->policy);
    next_step(s);
}

/* --- reading what is asked for --- */

bool sandbox_is_granted(const json_t *grants, const char *kind, const char *name) {
    if (!grants || !json_is_object(grants))
        return true;
    size_t i;
    const json_t *v;
    json_array_foreach(json_object_get(grants, kind), i, v) {
        if (json_is_string(v) && strcmp(json_string_value(v), name) == 0)
            return true;
    }
    return false;
}

/* Control characters, and those that break a line or turn its direction: U+0080 to U+009F, U+2028
 * to U+202E, U+2066 to U+2069. */
static bool forges(const char *s) {
    const unsigned char *u = (const unsigned char *)s;
    return *u < 0x20 || *u == 0x7f || (u[0] == 0xc2 && u[1] < 0xa0) ||
           (u[0] == 0xe2 && u[1] == 0x80 && u[2] >= 0xa8 && u[2] <= 0xae) ||
           (u[0] == 0xe2 && u[1] == 0x81 && u[2] >= 0xa6 && u[2] <= 0xa9);
}

int sandbox_check_name(const char *name, struct err *err) {
    if (strlen(name) > NAME_BYTES)
        return err_set(err, ERR_BAD_REQUEST, "\"name\" has at most %d bytes", NAME_BYTES);
    for (; *name; name++)
        if (forges(name))
            return err_set(err, ERR_BAD_REQUEST, "\"name\" is one line without control characters");
    return 0;
}

static int read_files(const json_t *files, struct err *err) {
    static const char *const keys[] = {"path", "content", "content_base64", "mode", NULL};
    size_t i;
    const json_t *f;
    if (files && (!json_is_array(files) || json_array_size(files) > FILES_MAX))
        return err_set(err, ERR_BAD_REQUEST, "\"files\" must be a list of at most %d files",
                       FILES_MAX);
    json_array_foreach(files, i, f) {
        const char *path = NULL;
        const char *text = NULL;
        const char *b64 = NULL;
        int64_t mode = 0;
        int rc = json_check_keys(f, "a file", keys, err);
        if (rc == 0)
            rc = json_get_str(f, "path", &path, err);
        if (rc == 0 && (!path || !*path || strlen(path) >= SANDBOX_PATH_MAX))
            rc = err_set(err, ERR_BAD_REQUEST, "a file needs a \"path\" of less than %d bytes",
                         SANDBOX_PATH_MAX);
        const json_t *content = json_object_get(f, "content");
        if (rc == 0 && content && !json_is_string(content))
            rc = err_set(err, ERR_BAD_REQUEST, "\"content\" must be a string");
        text = json_string_value(content);
        if (rc == 0)
            rc = json_get_str(f, "content_base64", &b64, err);
        if (rc == 0 && !text == !b64)
            rc = err_set(err, ERR_BAD_REQUEST,
                         "a file has either \"content\" or \"content_base64\"");
        if (rc == 0)
            rc = json_get_int(f, "mode", 0, 0777, &mode, err);
        if (rc == 0 && b64) {
            size_t len = 0;
            _cleanup_(free) char *out = xmalloc(strlen(b64) + 1);
            if (!base64_decode(out, b64, strlen(b64), &len))
                rc = err_set(err, ERR_BAD_REQUEST, "\"content_base64\" is no base64");
        }
        if (rc < 0)
            return err_wrap(err, "files[%zu]", i);
    }
    return 0;
}

static int read_env(const json_t *env, struct sandbox_strv *ret, struct err *err) {
    const char *name;
    json_t *v;
    size_t bytes = 0;
    if (env && !json_is_object(env))
        return err_set(err, ERR_BAD_REQUEST, "\"env\" must be an object of strings");
    json_object_foreach((json_t *)(uintptr_t)env, name, v) {
        const char *text = json_string_value(v);
        if (!*name || strchr(name, '=') || !text || strlen(text) != json_string_length(v))
            return err_set(err, ERR_BAD_REQUEST,
                           "\"env\": names have no \"=\", values are strings without NUL");
        bytes += strlen(name) + strlen(text) + 2;
        if (bytes > ENV_BYTES)
            return err_set(err, ERR_TOO_LARGE, "\"env\" exceeds %d bytes", ENV_BYTES);
        _cleanup_(free) char *entry = xasprintf("%s=%s", name, text);
        sandbox_strv_add(ret, entry);
    }
    return 0;
}

struct sandbox_request {
    struct sandbox_spec spec;
    int bind_fds[SANDBOX_BINDS_MAX];
    struct egress_policy policy;
    json_t *doc;
    int64_t timeout_s;
    int snapshot;
};

static int read_binds(const struct sandboxes *all, const struct sandbox_ask *ask,
                      struct sandbox_request *p, struct err *err) {
    static const char *const keys[] = {"name", "path", "mode", NULL};
    const json_t *list = json_object_get(ask->body, "binds");
    size_t i;
    const json_t *b;
    if (list && (!json_is_array(list) || json_array_size(list) > SANDBOX_BINDS_MAX))
        return err_set(err, ERR_BAD_REQUEST, "\"binds\" must be a list of at most %d binds",
                       SANDBOX_BINDS_MAX);
    json_array_foreach(list, i, b) {
        const char *name = NULL;
        const char *path = NULL;
        const char *mode = "ro";
        int rc = json_check_keys(b, "a bind", keys, err);
        if (rc == 0)
            rc = json_get_str(b, "name", &name, err);
        if (rc == 0)
            rc = json_get_str(b, "path", &path, err);
        if (rc == 0)
            rc = json_get_str(b, "mode", &mode, err);
        if (rc == 0 && (!name || !path))
            rc = err_set(err, ERR_BAD_REQUEST, "a bind needs a \"name\" and a \"path\"");
        bool write = rc == 0 && strcmp(mode, "rw") == 0;
        if (rc == 0 && !write && strcmp(mode, "ro") != 0)
            rc = err_set(err, ERR_BAD_REQUEST, "a bind's \"mode\" is \"ro\" or \"rw\"");
        const struct sandbox_bind_setting *set =
            rc == 0 ? sandbox_settings_bind(all->opt.settings, name) : NULL;
        if (rc < 0)
            return rc;
        if (!set || !sandbox_is_granted(ask->grants, "binds", name))
            return err_set(err, ERR_FORBIDDEN, "there is no bind \"%.64s\" for this key", name);
        if (write && !set->write)
            return err_set(err, ERR_FORBIDDEN, "the bind \"%.64s\" is read-only", name);
        p->bind_fds[p->spec.nbinds] = set->fd;
        p->spec.binds[p->spec.nbinds++] = (struct sandbox_bind){
            .path = xstrdup(path), .mode = write ? SANDBOX_BIND_RW : SANDBOX_BIND_RO};
    }
    return 0;
}

/* A limit that a request may lower. */
static int add_bind(struct sandbox_request *p, const struct sandbox_extra *extra, struct err *err) {
    if (p->spec.nbinds == SANDBOX_BINDS_MAX)
        return err_set(err, ERR_BAD_REQUEST, "\"binds\": %d are too many here", SANDBOX_BINDS_MAX);
    p->bind_fds[p->spec.nbinds] = extra->bind_fd;
    p->spec.binds[p->spec.nbinds++] =
        (struct sandbox_bind){.path = xstrdup(extra->bind_path), .mode = SANDBOX_BIND_RO};
    return 0;
}

static int read_limit(const json_t *body, const char *key, int64_t min, int64_t max, int64_t *ret,
                      struct err *err) {
    int64_t v = max;
    int rc = json_get_int(body, key, 0, INT64_MAX, &v, err);
    if (rc == 0 && (v < min || v > max))
        return err_set(err, v > max ? ERR_LIMIT : ERR_BAD_REQUEST,
                       "\"%s\" must be from %lld to %lld (setting sandboxes.%s)", key,
                       (long long)min, (long long)max, key);
    *ret = v;
    return rc;
}

static int read_limits(const struct sandboxes *all, const json_t *body, struct sandbox_request *p,
                       struct err *err) {
    const struct sandbox_settings *set = all->opt.settings;
    int64_t memory = 0;
    int64_t disk = 0;
    int64_t pids = 0;
    double cpus = set->cpus;
    const json_t *v = json_object_get(body, "cpus");
    int rc = read_limit(body, "memory_mb", 16, set->memory_mb, &memory, err);
    if (rc == 0)
        rc = read_limit(body, "disk_mb", 1, set->disk_mb, &disk, err);
    if (rc == 0)
        rc = read_limit(body, "pids", 1, set->pids, &pids, err);
    if (rc == 0 && v && !json_is_null(v)) {
        cpus = json_is_number(v) ? json_number_value(v) : -1;
        if (!(cpus >= 0.01 && cpus <= 4096) || (set->cpus > 0 && cpus > set->cpus))
            rc = err_set(err, cpus > 0 ? ERR_LIMIT : ERR_BAD_REQUEST,
                         "\"cpus\" must be a number from 0.01 to %g (setting sandboxes.cpus)",
                         set->cpus > 0 ? set->cpus : 4096.0);
    }
    p->timeout_s = set->timeout_s;
    if (rc == 0)
        rc = json_get_int(body, "timeout_s", 1, INT64_MAX, &p->timeout_s, err);
    if (rc == 0 && p->timeout_s > set->max_timeout_s)
        rc = err_set(err, ERR_LIMIT, "\"timeout_s\" may be %u at most (setting max_timeout_s)",
                     set->max_timeout_s);
    if (rc < 0)
        return rc;
    /* What is the launcher's default comes from its pool of ready ones. */
    p->spec.memory_bytes = (uint64_t)memory << 20;
    p->spec.disk_bytes = (uint64_t)disk << 20;
    if (p->spec.disk_bytes == SANDBOX_DEFAULT_DISK)
        p->spec.disk_bytes = 0;
    p->spec.pids = (uint32_t)pids;
    p->spec.cpu_milli = (uint32_t)(cpus * 1000);
    (void)json_object_set_new(p->doc, "limits",
                              json_pack("{s:I,s:I,s:I,s:o,s:I}", "memory_mb", (json_int_t)memory,
                                        "disk_mb", (json_int_t)disk, "pids", (json_int_t)pids,
                                        "cpus", cpus > 0 ? json_real(cpus) : json_null(),
                                        "timeout_s", (json_int_t)p->timeout_s));
    return 0;
}

static int open_snapshot(const struct sandboxes *all, const struct sandbox_ask *ask, const char *id,
                         struct sandbox_request *p, struct err *err) {
    struct store_record r;
    char name[ID_SIZE + 8];
    int rc = store_record_get(all->opt.store, "snapshot", id, NULL, ask->scope, &r, err);
    if (rc < 0)
        return rc;
    (void)snprintf(name, sizeof(name), "%s.tar", r.id);
    store_record_finish(&r);
    p->snapshot = openat(all->snapshots, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return p->snapshot < 0 ? err_sys(err, "the snapshot %s", id) : 0;
}

/* What is asked for wins over these. */
static void name_guest(struct sandbox_request *p, const struct sandbox_extra *extra) {
    p->spec.work = extra->work ? xstrdup(extra->work) : NULL;
    if (!extra->user)
        return;
    static const char *const names[] = {"HOME=/home/", "USER=", "LOGNAME="};
    p->spec.user = xstrdup(extra->user);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        _cleanup_(free) char *entry = xasprintf("%s%s", names[i], extra->user);
        sandbox_strv_add(&p->spec.env, entry);
    }
}

static int read_plan(struct sandboxes *all, const struct sandbox_ask *ask,
                     struct sandbox_request *p, struct err *err) {
    static const char *const keys[] = {"name",    "root",      "snapshot",  "files",   "env",
                                       "network", "binds",     "memory_mb", "disk_mb", "pids",
                                       "cpus",    "timeout_s", "metadata",  NULL};
    const json_t *body = ask->body;
    const char *name = NULL;
    const char *root = "";
    const char *snapshot = NULL;
    json_t *metadata = json_object_get(body, "metadata");
    p->doc = json_object();
    int rc = json_check_keys(body, "the request", keys, err);
    if (rc == 0)
        rc = json_get_str(body, "name", &name, err);
    if (rc == 0 && name)
        rc = sandbox_check_name(name, err);
    if (rc == 0)
        rc = json_get_str(body, "root", &root, err);
    if (rc == 0 && *root && !sandbox_settings_root(all->opt.settings, root))
        rc = err_set(err, ERR_BAD_REQUEST, "there is no root \"%.64s\" (setting sandboxes.roots)",
                     root);
    if (rc == 0)
        rc = json_get_str(body, "snapshot", &snapshot, err);
    if (rc == 0)
        rc = read_files(json_object_get(body, "files"), err);
    if (rc == 0 && ask->extra)
        name_guest(p, ask->extra);
    if (rc == 0)
        rc = read_env(json_object_get(body, "env"), &p->spec.env, err);
    if (rc == 0)
        rc = read_limits(all, body, p, err);
    if (rc == 0)
        rc = read_binds(all, ask, p, err);
    if (rc == 0 && ask->extra && ask->extra->bind_fd >= 0)
        rc = add_bind(p, ask->extra, err);
    if (rc == 0 && metadata) {
        _cleanup_(free) char *text = json_dumps(metadata, JSON_COMPACT);
        if (!json_is_object(metadata) || strlen(text) > METADATA_BYTES)
            rc = err_set(err, ERR_BAD_REQUEST, "\"metadata\" must be an object of at most %d bytes",
                         METADATA_BYTES);
    }
    json_t *shown = NULL;
    if (rc == 0)
        rc = network_read(all->network, json_object_get(body, "network"), ask->grants, &p->policy,
                          &shown, err);
    for (size_t i = 0; rc == 0 && ask->extra && i < ask->extra->nroutes; i++)
        network_add_route(all->network, &p->policy, &ask->extra->routes[i]);
    if (rc == 0 && ask->extra)
        network_cap_cost(&p->policy, ask->extra->max_usd);
    if (rc == 0 && snapshot)
        rc = open_snapshot(all, ask, snapshot, p, err);
    if (rc < 0)
        return rc;
    p->spec.root = xstrdup(root);
    p->spec.egress = network_is_there(all->network);
    (void)json_object_set_new(p->doc, "name", name ? json_string(name) : json_null());
    (void)json_object_set_new(p->doc, "root", *root ? json_string(root) : json_null());
    (void)json_object_set_new(p->doc, "snapshot", snapshot ? json_string(snapshot) : json_null());
    if (ask->extra && ask->extra->injected)
        (void)json_object_set(shown, "injected", (json_t *)(uintptr_t)ask->extra->injected);
    if (ask->extra && ask->extra->note)
        (void)json_object_set(p->doc, "note", ask->extra->note);
    (void)json_object_set_new(p->doc, "network", shown);
    json_t *binds = json_object_get(body, "binds");
    (void)json_object_set_new(p->doc, "binds", binds ? json_incref(binds) : json_array());
    (void)json_object_set_new(p->doc, "metadata", metadata ? json_incref(metadata) : json_object());
    return 0;
}

static int check_room(const struct sandboxes *all, const char *owner, struct err *err) {
    const struct sandbox_settings *set = all->opt.settings;
    size_t own = 0;
    for (const struct sandbox *s = all->list; s; s = s->next)
        own += strcmp(s->owner, owner) == 0;
    if (all->live >= set->max)
        return err_set(err, ERR_RATE,
                       "there are %zu sandboxes already: end one, or wait (setting sandboxes.max)",
                       all->live);
    if (own >= set->max_per_key)
        return err_set(err, ERR_RATE,
                       "this key has %zu sandboxes already: end one, or wait (setting "
                       "sandboxes.max_per_key)",
                       own);
    return 0;
}

static void finish_plan(struct sandbox_request *p) {
    sandbox_spec_finish(&p->spec);
    egress_policy_finish(&p->policy);
    json_decref(p->doc);
    fd_close(&p->snapshot);
}

struct sandbox *sandboxes_make(struct sandboxes *all, const struct sandbox_ask *ask,
                               sandbox_made made, void *ctx, struct err *err) {
    static const struct sandbox_box_callbacks callbacks = {on_box_ready, on_box_failed,
                                                           on_box_exited};
    struct sandbox_request p = {.snapshot = -1};
    int rc = read_plan(all, ask, &p, err);
    if (rc == 0)
        rc = sandboxes_check(all, err);
    if (rc == 0)
        rc = check_room(all, ask->owner, err);
    if (rc < 0) {
        finish_plan(&p);
        return NULL;
    }
    struct sandbox *s = xcalloc(1, sizeof(*s));
    s->all = all;
    id_new("sbx", s->id);
    (void)snprintf(s->owner, sizeof(s->owner), "%s", ask->owner);
    if (ask->extra && ask->extra->agent)
        (void)snprintf(s->agent, sizeof(s->agent), "%s", ask->extra->agent);
    s->doc = steal_ptr(&p.doc);
    s->env = json_incref(json_object_get(ask->body, "env"));
    s->created_ms = clock_wall_ms();
    s->expires_ms = s->created_ms + p.timeout_s * 1000;
    /* Before it starts: what is not written down is not made. */
    if (put_record(s, state_names[s->state], 0, err) < 0) {
        free_sandbox(s);
        finish_plan(&p);
        return NULL;
    }
    s->next = all->list;
    all->list = s;
    all->live++;
    p.spec.id = xstrdup(s->id);
    s->setup = xcalloc(1, sizeof(*s->setup));
    *s->setup = (struct setup){.sandbox = s,
                               .made = made,
                               .ctx = ctx,
                               .policy = p.policy,
                               .files = json_incref(json_object_get(ask->body, "files")),
                               .snapshot = steal_fd(&p.snapshot)};
    p.policy = (struct egress_policy){0};
    s->box = sandbox_box_create(all->host, &p.spec, p.bind_fds, &callbacks, s, err);
    if (!s->box) {
        s->setup->made = NULL;
        bury(s, err);
        s = NULL;
    } else {
        all->created_total++;
    }
    finish_plan(&p);
    update_timer(all);
    return s;
}

int sandbox_extend(struct sandbox *s, int64_t timeout_ms, struct err *err) {
    const struct sandbox_settings *set = s->all->opt.settings;
    int64_t expires = clock_wall_ms() + timeout_ms;
    if (expires - s->created_ms > (int64_t)set->max_timeout_s * 1000)
        return err_set(err, ERR_LIMIT,
                       "a sandbox lives %u seconds at most (setting sandboxes.max_timeout_s)",
                       set->max_timeout_s);
    s->expires_ms = expires;
    sandbox_save(s);
    return 0;
}

void sandbox_visit(struct sandbox *s, struct sandbox_visitor *v) {
    v->next = s->visitors;
    s->visitors = v;
    s->connections++;
}

void sandbox_leave(struct sandbox *s, struct sandbox_visitor *v) {
    struct sandbox_visitor **at = &s->visitors;
    while (*at != v)
        at = &(*at)->next;
    *at = v->next;
    s->connections--;
}

/* --- the clock --- */

static void check_visitors(struct sandbox *s, int64_t now_ms) {
    struct sandbox_visitor *next;
    for (struct sandbox_visitor *v = s->visitors; v; v = next) {
        next = v->next;
        if (v->deadline_ms && now_ms >= v->deadline_ms)
            v->on_late(v->ctx);
    }
}

static void expire(struct sandbox *s, int64_t now_ms) {
    struct sandboxes *all = s->all;
    bool first = !s->expired;
    s->expired = true;
    if (first && all->on_expire && all->on_expire(all->expire_ctx, s))
        s->expires_ms = now_ms + (int64_t)(all->opt.settings->snapshot_s + EXPIRE_GRACE_S) * 1000;
    else
        (void)sandbox_end(s, NULL, NULL);
}

static void on_tick(uv_timer_t *t) {
    struct sandboxes *all = t->data;
    int64_t wall = clock_wall_ms();
    int64_t now = clock_mono_ms();
    for (struct sandbox *s = all->list; s; s = s->next) {
        for (struct exec *e = s->execs; e; e = e->next)
            exec_check_time(e, now);
        check_visitors(s, now);
        if (wall >= s->expires_ms && s->state != SANDBOX_ENDING)
            expire(s, wall);
    }
    if (all->prune_again || all->ended >= PRUNE_AFTER || now - all->pruned_ms > PRUNE_EVERY_MS)
        prune(all);
    update_timer(all);
}

static void update_timer(struct sandboxes *all) {
    if (all->closing)
        return;
    if (all->list && !uv_is_active((uv_handle_t *)&all->timer))
        (void)uv_timer_start(&all->timer, on_tick, TICK_MS, TICK_MS);
    else if (!all->list && !all->prune_again && all->ended < PRUNE_AFTER)
        (void)uv_timer_stop(&all->timer);
}

/* --- all of them --- */

int sandboxes_open(const struct sandboxes_options *o, struct sandboxes **ret, struct err *err) {
    struct sandboxes *all = xcalloc(1, sizeof(*all));
    int64_t interrupted = 0;
    all->opt = *o;
    all->dir = all->snapshots = -1;
    int rc = open_dir(o->data_dir, "sandboxes", &all->dir, err);
    if (rc == 0)
        rc = open_dir(o->data_dir, "snapshots", &all->snapshots, err);
    if (rc == 0)
        rc = store_record_interrupt_all(o->store, &interrupted, err);
    if (rc == 0)
        rc = network_create(&(struct network_options){.loop = o->loop,
                                                      .settings = o->settings,
                                                      .secrets = o->secrets,
                                                      .models = o->models,
                                                      .private_also = o->private_also,
                                                      .store = o->store,
                                                      .exec_fd = o->egress_fd},
                            &all->network, err);
    if (rc < 0) {
        fd_close(&all->dir);
        fd_close(&all->snapshots);
        free(all);
        return rc;
    }
    (void)uv_timer_init(o->loop, &all->timer);
    all->timer.data = all;
    later_queue_init(&all->later, o->loop);
    if (interrupted > 0)
        log_warn("sandboxes.interrupted", "count", interrupted);
    sweep_dirs(all);
    sweep_snapshots(all);
    prune(all);
    if (o->sandbox_fd >= 0 || o->starter >= 0) {
        const struct sandbox_settings *set = o->settings;
        _cleanup_(free) char *state = set->nroots ? path_join(o->data_dir, "roots") : xstrdup("");
        struct sandbox_config config = {.pool = set->pool,
                                        .max = set->max + set->pool,
                                        .uid_base = set->uid_base,
                                        .uid_count = set->uid_count,
                                        .state_dir = state,
                                        .roots = set->roots,
                                        .nroots = set->nroots};
        if (config.max > config.uid_count / 2)
            config.max = config.uid_count / 2;
        all->host = sandbox_launcher_create(&(struct sandbox_launcher_options){
            .loop = o->loop, .exec_fd = o->sandbox_fd, .starter = o->starter, .config = &config});
    }
    *ret = all;
    return 0;
}

static void on_all_closed(uv_handle_t *h) {
    struct sandboxes *all = h->data;
    if (all->on_closed)
        all->on_closed(all->closed_ctx);
    fd_close(&all->dir);
    fd_close(&all->snapshots);
    free(all);
}

/* The queue is the last: what ends has something to tell. */
static void on_part_closed(void *ctx) {
    struct sandboxes *all = ctx;
    if (--all->parts == 0)
        later_queue_close(&all->later, on_all_closed, all);
}

static void on_timer_closed(uv_handle_t *h) {
    on_part_closed(h->data);
}

void sandboxes_on_expire(struct sandboxes *all, bool (*on_expire)(void *ctx, struct sandbox *s),
                         void *ctx) {
    all->on_expire = on_expire;
    all->expire_ctx = ctx;
}

void sandboxes_close(struct sandboxes *all, void (*on_closed)(void *ctx), void *ctx) {
    all->closing = true;
    all->on_closed = on_closed;
    all->closed_ctx = ctx;
    all->parts = all->host ? 3 : 2;
    network_hush(all->network);
    if (all->host)
        sandbox_launcher_stop(all->host, on_part_closed, all);
    network_stop(all->network, on_part_closed, all);
    uv_close((uv_handle_t *)&all->timer, on_timer_closed);
}

struct sandboxes_stats sandboxes_stats(const struct sandboxes *all) {
    struct sandboxes_stats st = {.created_total = all->created_total,
                                 .failed_total = all->failed_total};
    for (const struct sandbox *s = all->list; s; s = s->next) {
        st.starting += s->state == SANDBOX_STARTING;
        st.running += s->state == SANDBOX_RUNNING;
        st.paused += s->state == SANDBOX_PAUSED;
        for (const struct exec *e = s->execs; e; e = e->next)
            st.execs++;
    }
    return st;
}

struct sandboxes_running sandboxes_running(const struct sandboxes *all, const char *owner) {
    struct sandboxes_running r = {0};
    for (const struct sandbox *s = all->list; s; s = s->next) {
        bool own = strcmp(s->owner, owner) == 0;
        for (const struct exec *e = s->execs; e; e = e->next) {
            size_t unread = e->command ? sandbox_command_input_queued(e->command) : 0;
            r.all++;
            r.own += own;
            r.unread_all += unread;
            r.unread_own += own ? unread : 0;
        }
    }
    return r;
}

bool sandboxes_take_input(const struct sandboxes *all, const char *owner) {
    struct sandboxes_running r = sandboxes_running(all, owner);
    return r.unread_all < LIMIT_SANDBOX_INPUT_ALL_BYTES &&
           (*owner == 0 || r.unread_own < LIMIT_SANDBOX_INPUT_BYTES);
}

void sandboxes_hold_upload(struct sandboxes *all, size_t *held, size_t now) {
    all->uploads_bytes += now - *held;
    *held = now;
}

struct file_writer **sandboxes_writers(struct sandboxes *all) {
    return &all->writers;
}

uint64_t sandboxes_next_turn(struct sandboxes *all) {
    return ++all->turns;
}

size_t sandboxes_upload_most(const struct sandboxes *all, size_t wanted) {
    return all->uploads_bytes < LIMIT_SANDBOX_UPLOADS_BYTES ? wanted : MIN(wanted, SMALL_UPLOAD);
}

int sandboxes_check(const struct sandboxes *all, struct err *err) {
    if (!all->host)
        return err_set(err, ERR_UNAVAILABLE,
                       "the program cay-sandbox is missing beside cay: run `make`, or install it");
    if (sandbox_launcher_info(all->host).lost)
        return err_set(
            err, ERR_UNAVAILABLE,
            "sandboxes cannot be made: the processes that kept root's rights for it were "
            "killed. Restart cay");
    return sandbox_launcher_check(all->host, err);
}

const struct sandbox_features *sandboxes_features(const struct sandboxes *all) {
    return all->host ? sandbox_launcher_features(all->host) : NULL;
}

void sandboxes_children(const struct sandboxes *all,
                        void (*on_child)(void *ctx, const struct keeper_info *info), void *ctx) {
    if (all->host) {
        struct keeper_info info = sandbox_launcher_info(all->host);
        on_child(ctx, &info);
    }
    if (network_is_there(all->network)) {
        struct keeper_info info = network_info(all->network);
        on_child(ctx, &info);
    }
}

struct store *sandboxes_store(const struct sandboxes *all) {
    return all->opt.store;
}

const struct sandbox_settings *sandboxes_settings(const struct sandboxes *all) {
    return all->opt.settings;
}

uv_loop_t *sandboxes_loop(const struct sandboxes *all) {
    return all->opt.loop;
}

struct later_queue *sandboxes_later(struct sandboxes *all) {
    return &all->later;
}

struct network *sandboxes_network(const struct sandboxes *all) {
    return all->network;
}
