#include "front/sandbox/snapshot.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SNAPSHOTS_AT_ONCE = 1,
    SAID_BYTES = 8192,
    KILLED_WAIT_MS = 2000, /* for the end of tar: a sandbox that is paused does not end it */
    WARNINGS_MAX = 50,
};

/* One that is being made. Its maker is told (by the end of tar, a limit or its time, whichever
 * comes first), and it is freed when tar is gone. */
struct snapshot {
    struct snapshot *next; /* while what has come of it counts */
    struct sandboxes *all;
    snapshot_made made; /* NULL: nobody waits */
    void *ctx;
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
    bool told;
    struct err err;
};

static void file_name(const char *id, char out[ID_SIZE + 8]) {
    (void)snprintf(out, ID_SIZE + 8, "%s.tar", id);
}

json_t *snapshot_show(const struct store_record *r) {
    char text[CLOCK_RFC3339_SIZE];
    json_t *o =
        json_pack("{s:s,s:s,s:s,s:I,s:[]}", "id", r->id, "sandbox", r->parent, "created_at",
                  clock_rfc3339(r->created_ms, text), "size", (json_int_t)r->bytes, "warnings");
    _cleanup_(json) json_t *doc = store_record_doc(r);
    (void)json_object_update(o, doc);
    (void)json_object_del(o, "note");
    return o;
}

static int snapshot_record(struct snapshot *s, json_t **ret_shown, struct err *err) {
    _cleanup_(free) char *doc = json_dumps(s->doc, JSON_COMPACT);
    struct store_record r = {.status = (char *)"done",
                             .created_ms = clock_wall_ms(),
                             .ended_ms = clock_wall_ms(),
                             .bytes = (int64_t)s->bytes,
                             .doc = doc};
    memcpy(r.id, s->id, sizeof(r.id));
    memcpy(r.owner, s->owner, sizeof(r.owner));
    int rc = store_record_put(sandboxes_store(s->all), "snapshot", &r, err);
    if (rc == 0) {
        *ret_shown = snapshot_show(&r);
        (void)json_object_set_new(*ret_shown, "sandbox", json_string(s->sandbox));
    }
    return rc;
}

/* --- the shares --- */

/* There is no room for what has come of it. Nothing is set aside for one that is being made: it
 * takes what it has written, so that a slow one keeps nobody from making theirs. */
static int snapshot_check_room(const struct snapshot *s, struct err *err) {
    const struct sandbox_settings *set = sandboxes_settings(s->all);
    uint64_t all = s->stored;
    uint64_t own = s->stored_own;
    for (const struct snapshot *o = *sandboxes_snapshots(s->all); o; o = o->next) {
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
    int rc = store_record_sum(sandboxes_store(s->all), "snapshot", NULL, &all, err);
    if (rc == 0)
        rc = store_record_sum(sandboxes_store(s->all), "snapshot", s->owner, &own, err);
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

static void snapshot_take_out(struct snapshot *s) {
    if (!s->counted)
        return;
    s->counted = false;
    struct snapshot **at = sandboxes_snapshots(s->all);
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    if (s->err.code)
        return;
    /* It was in the list, and is in the store now. */
    for (struct snapshot *o = *sandboxes_snapshots(s->all); o; o = o->next) {
        o->stored += s->bytes;
        o->stored_own += strcmp(o->owner, s->owner) == 0 ? s->bytes : 0;
    }
}

static void snapshot_tell(struct snapshot *s) {
    _cleanup_(json) json_t *shown = NULL;
    char name[ID_SIZE + 8];
    if (s->told)
        return;
    s->told = true;
    (void)uv_timer_stop(&s->timer);
    (void)json_object_set_new(s->doc, "warnings", warnings_of(&s->said));
    if (!s->err.code)
        (void)snapshot_record(s, &shown, &s->err);
    snapshot_take_out(s);
    file_name(s->id, name);
    fd_close(&s->fd);
    if (s->err.code)
        (void)unlinkat(sandboxes_snapshots_dir(s->all), name, 0);
    if (s->made)
        s->made(s->ctx, shown, s->err.code ? &s->err : NULL);
}

static void snapshot_on_timer_closed(uv_handle_t *h) {
    struct snapshot *s = h->data;
    buf_finish(&s->said);
    json_decref(s->doc);
    free(s);
}

/* Tar is gone, or never came. */
static void snapshot_finish(struct snapshot *s) {
    struct sandbox *box = sandboxes_find(s->all, s->sandbox);
    if (box)
        box->snapshots--;
    snapshot_tell(s);
    uv_close((uv_handle_t *)&s->timer, snapshot_on_timer_closed);
}

static void snapshot_on_stuck(uv_timer_t *t) {
    snapshot_tell(t->data);
}

/* Something is wrong that tar does not know of. */
static void snapshot_stop(struct snapshot *s) {
    struct sandbox *box = sandboxes_find(s->all, s->sandbox);
    snapshot_take_out(s);
    if (ftruncate(s->fd, 0) < 0)
        log_warn("sandbox.snapshot", "error", strerror(errno)); /* it is unlinked all the same */
    sandbox_command_discard(s->command, 1);
    sandbox_command_discard(s->command, 2);
    if (box && box->box)
        (void)sandbox_box_signal(box->box, s->command, SIGKILL, true, NULL, NULL);
    (void)uv_timer_start(&s->timer, snapshot_on_stuck, KILLED_WAIT_MS, 0);
}

static void snapshot_on_late(uv_timer_t *t) {
    struct snapshot *s = t->data;
    unsigned max = sandboxes_settings(s->all)->snapshot_s;
    (void)err_set(&s->err, ERR_LIMIT,
                  "the snapshot took longer than %u s (setting sandboxes.snapshot_s)", max);
    snapshot_stop(s);
}

static void snapshot_on_output(void *ctx, int stream, const char *data, size_t len) {
    struct snapshot *s = ctx;
    if (s->err.code)
        return;
    if (stream == 2) {
        (void)buf_add(&s->said, data, MIN(len, SAID_BYTES - s->said.len));
        return;
    }
    s->bytes += len;
    if (snapshot_check_room(s, &s->err) == 0 && fd_write_all(s->fd, data, len) < 0)
        (void)err_sys(&s->err, "store the snapshot");
    if (s->err.code)
        snapshot_stop(s);
}

static void snapshot_on_exited(void *ctx, const struct sandbox_exit *exit, const struct err *err) {
    struct snapshot *s = ctx;
    s->command = NULL;
    /* tar says 1 when a file changed while it was read: the archive is whole all the same. */
    if (err && !s->err.code)
        s->err = *err;
    else if (exit && (exit->signaled || exit->code > 1) && !s->err.code)
        (void)err_set(&s->err, ERR_IO, "tar ended with %s%u: %.*s", exit->signaled ? "signal " : "",
                      exit->code, (int)MIN(s->said.len, (size_t)300), s->said.data);
    snapshot_finish(s);
}

void snapshot_leave(struct snapshot *s) {
    s->made = NULL;
}

/* --- the beginning --- */

static void snapshot_start(struct snapshot *s, struct sandbox *box) {
    char file[ID_SIZE + 8];
    const struct sandbox_command_options options = {
        .archive = INIT_SNAPSHOT,
        .fd = -1,
        .callbacks = {.on_output = snapshot_on_output, .on_exit = snapshot_on_exited},
        .ctx = s};
    file_name(s->id, file);
    s->fd = openat(sandboxes_snapshots_dir(s->all), file,
                   O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (s->fd < 0)
        (void)err_sys(&s->err, "store the snapshot");
    else
        s->command = sandbox_command_start(box->box, &options, &s->err);
}

int snapshot_make(struct sandbox *box, const struct snapshot_ask *ask, struct snapshot **ret,
                  struct err *err) {
    struct sandboxes *all = box->all;
    if (box->snapshots >= SNAPSHOTS_AT_ONCE)
        return err_set(err, ERR_CONFLICT, "another snapshot of this sandbox is being made");
    struct snapshot *s = xcalloc(1, sizeof(*s));
    *s = (struct snapshot){.all = all,
                           .fd = -1,
                           .next = *sandboxes_snapshots(all),
                           .made = ask->made,
                           .ctx = ask->ctx};
    s->doc = json_pack("{s:s?,s:O,s:s,s:O*}", "name", ask->name, "root",
                       json_object_get(box->doc, "root"), "sandbox", box->id, "note", ask->note);
    id_new("snp", s->id);
    memcpy(s->sandbox, box->id, sizeof(s->sandbox));
    memcpy(s->owner, box->owner, sizeof(s->owner));
    buf_init(&s->said, SAID_BYTES);
    (void)uv_timer_init(sandboxes_loop(all), &s->timer);
    s->timer.data = s;
    *sandboxes_snapshots(all) = s;
    s->counted = true;
    box->snapshots++;
    if (read_stored(s, &s->err) == 0 && snapshot_check_room(s, &s->err) == 0)
        snapshot_start(s, box);
    if (!s->command) {
        *err = s->err;
        s->made = NULL;
        snapshot_finish(s);
        return -(int)err->code;
    }
    uint64_t max = (uint64_t)sandboxes_settings(all)->snapshot_s * 1000;
    (void)uv_timer_start(&s->timer, snapshot_on_late, max, 0);
    *ret = s;
    return 0;
}

int snapshot_delete(struct sandboxes *all, const char *id, struct store_scope scope,
                    struct err *err) {
    struct store_record r;
    char name[ID_SIZE + 8];
    int rc = store_record_get(sandboxes_store(all), "snapshot", id, NULL, scope, &r, err);
    if (rc < 0)
        return rc;
    file_name(r.id, name);
    (void)unlinkat(sandboxes_snapshots_dir(all), name, 0);
    rc = store_record_delete(sandboxes_store(all), "snapshot", r.id, err);
    store_record_finish(&r);
    return rc;
}
