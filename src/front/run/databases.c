#include "front/run/databases.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/path.h"
#include "front/common/share.h"
#include "front/ledger/keyring.h"
#include "front/store/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* An operation is a list of steps. Some are work for a thread, which sees nothing but the
 * operation; the others begin something on the loop and go on when its answer comes. Whatever
 * happens, the end is the same: holds are released, what is left under a temporary name is removed
 * by a thread, then the asker hears of it. */

enum { ROOM_BYTES = 1 << 20, BODY_BYTES = 8 << 20, DESCRIPTION_BYTES = 8 << 20 };

#define DATABASE_FILE "data.db"

struct database_step {
    int (*work)(struct database_op *op, struct err *err);  /* in a thread */
    int (*begin)(struct database_op *op, struct err *err); /* 0: database_go_on() comes later */
};

struct database_op {
    struct database_op *next;
    struct databases *all;
    const struct database_step *step; /* the next one */
    uv_work_t work;
    int (*working)(struct database_op *op, struct err *err);
    struct err work_err; /* the thread's, until it comes back */
    bool work_failed;
    bool in_thread;
    bool abandoned; /* nobody wants its result */
    bool ending;
    bool delivered; /* it is over, and only its file is kept */
    enum database_kind kind;
    char owner[ID_SIZE];
    char *owner_dir; /* where the owner's databases are */
    char *dir;       /* of the database */
    char *to;        /* COPY: the folder of the copy */
    char *temporary; /* the folder that has no name yet, or no more */
    char *after;
    char *limits;
    json_t *grants;
    size_t limit;
    int fd;
    struct facet_op *ask;
    struct facet_hold hold;           /* of the database */
    struct facet_hold temporary_hold; /* of the uploaded one while it is checked */
    struct buf body, writing;         /* IMPORT: what waits, and what a thread writes */
    struct buf description;
    bool takes_body, body_ended, wants_room;
    struct database_result result;
    struct database_entry *entries;
    void (*on_room)(void *ctx);
    void (*done)(void *ctx, struct database_result *r);
    void *ctx;
};

struct databases {
    struct databases_options opt;
    struct facet_open check; /* how an uploaded one is opened */
    struct database_op *ops;
    struct shares shares;
    size_t nops;
    uint64_t names; /* of temporary folders */
    char life[ID_SIZE];
    bool closing;
};

char *databases_dir(const struct databases *all, const char *owner, const char *name) {
    return database_dir(all->opt.data_dir, owner, name);
}

struct facet_ref databases_ref(const struct databases *all, const char *owner, const char *dir) {
    return (struct facet_ref){
        .dir = dir, .owner = owner, .open = all->opt.open, .must_exist = true};
}

/* --- the work of threads --- */

static int databases_sync_folder(const char *path, struct err *err) {
    _cleanup_(close) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 || fsync(fd) < 0 ? err_sys(err, "sync a folder of databases") : 0;
}

static int64_t databases_ms(const struct statx_timestamp *t) {
    return t->tv_sec * 1000 + t->tv_nsec / 1000000;
}

/* Fills an entry whose name is set. False: it is gone, or no folder. */
static bool databases_look(int owner_fd, struct database_entry *e) {
    static const char *const files[] = {DATABASE_FILE, DATABASE_FILE "-wal"};
    struct statx st;
    if (statx(owner_fd, e->name, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, &st) < 0 ||
        !S_ISDIR(st.stx_mode))
        return false;
    e->created_ms = st.stx_mask & STATX_BTIME ? databases_ms(&st.stx_btime) : 0;
    e->modified_ms = databases_ms(&st.stx_mtime);
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        _cleanup_(free) char *path = path_join(e->name, files[i]);
        if (statx(owner_fd, path, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &st) < 0)
            continue;
        e->bytes += (int64_t)st.stx_size;
        e->modified_ms = MAX(e->modified_ms, databases_ms(&st.stx_mtime));
    }
    return true;
}

/* Keeps the first names in order, one more than are asked for. */
static void databases_keep(struct database_op *op, const char *name) {
    struct database_result *r = &op->result;
    size_t at = 0;
    size_t high = r->n;
    while (at < high) {
        size_t middle = (at + high) / 2;
        if (strcmp(op->entries[middle].name, name) < 0)
            at = middle + 1;
        else
            high = middle;
    }
    if (at > op->limit)
        return;
    size_t kept = MIN(r->n, op->limit) - at; /* of those after it */
    memmove(&op->entries[at + 1], &op->entries[at], kept * sizeof(*op->entries));
    op->entries[at] = (struct database_entry){0};
    (void)snprintf(op->entries[at].name, sizeof(op->entries[at].name), "%.*s", DATABASE_NAME_MAX,
                   name);
    r->n = MIN(r->n + 1, op->limit + 1);
}

static int databases_list(struct database_op *op, struct err *err) {
    struct database_result *r = &op->result;
    DIR *d = opendir(op->owner_dir);
    if (!d)
        return errno == ENOENT ? 0 : err_sys(err, "list the databases");
    op->entries = xcalloc(op->limit + 2, sizeof(*op->entries));
    r->entries = op->entries;
    for (const struct dirent *e = readdir(d); e; e = readdir(d))
        if (database_is_name(e->d_name) && (!op->after || strcmp(e->d_name, op->after) > 0) &&
            key_is_granted(op->grants, "facets", e->d_name))
            databases_keep(op, e->d_name);
    r->more = r->n > op->limit;
    r->n = MIN(r->n, op->limit);
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++)
        if (databases_look(dirfd(d), &op->entries[i]))
            op->entries[n++] = op->entries[i];
    /* The next page begins after the last name that was looked at, be it gone or not. */
    if (n < r->n && n > 0)
        op->entries[n - 1] = op->entries[r->n - 1];
    r->n = n;
    (void)closedir(d);
    return 0;
}

/* Writes a small file, all of it or none. */
static int databases_write_file(const char *dir, const char *name, const char *text,
                                struct err *err) {
    _cleanup_(free) char *path = path_join(dir, name);
    _cleanup_(free) char *next = xasprintf("%s.new", path);
    _cleanup_(close) int fd =
        open(next, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || fd_write_all(fd, text, strlen(text)) < 0 || fsync(fd) < 0 ||
        rename(next, path) < 0)
        return err_sys(err, "write the limits of the database");
    return databases_sync_folder(dir, err);
}

static int databases_make(struct database_op *op, struct err *err) {
    int rc = path_mkdirs(op->owner_dir, 0700, err);
    if (rc < 0)
        return rc;
    op->result.created = mkdir(op->dir, 0700) == 0;
    if (!op->result.created && errno != EEXIST)
        return err_sys(err, "create the database's folder");
    if (op->result.created && databases_sync_folder(op->owner_dir, err) < 0)
        return -(int)err->code;
    if (op->limits && *op->limits)
        return databases_write_file(op->dir, FACET_LIMITS_FILE, op->limits, err);
    _cleanup_(free) char *old = path_join(op->dir, FACET_LIMITS_FILE);
    if (op->limits && unlink(old) < 0 && errno != ENOENT)
        return err_sys(err, "remove the limits of the database");
    return 0;
}

static int databases_find(struct database_op *op, struct err *err) {
    struct stat st;
    if (lstat(op->dir, &st) < 0 || !S_ISDIR(st.st_mode))
        return err_set(err, ERR_NOT_FOUND, "there is no such database");
    return 0;
}

/* Takes its name, so that nobody can open it, and counts what there was. The end removes it. */
static int databases_take_away(struct database_op *op, struct err *err) {
    if (rename(op->dir, op->temporary) < 0)
        return errno == ENOENT ? err_set(err, ERR_NOT_FOUND, "there is no such database")
                               : err_sys(err, "remove the database");
    if (databases_sync_folder(op->owner_dir, err) < 0)
        return -(int)err->code;
    DIR *d = opendir(op->temporary);
    struct stat st;
    for (const struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode)) {
            op->result.files++;
            op->result.bytes += (uint64_t)st.st_size;
        }
    if (d)
        (void)closedir(d);
    return 0;
}

static int databases_check_room(const struct database_op *op, struct err *err) {
    if (disk_is_full(op->owner_dir))
        return err_set(err, ERR_FULL, "the disk of the server is full");
    return 0;
}

static int databases_open_new(struct database_op *op, const char *path, struct err *err) {
    op->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    return op->fd < 0 ? err_sys(err, "create a file for the database") : 0;
}

/* A file that is gone when it is closed. */
static int databases_make_nameless(struct database_op *op, struct err *err) {
    if (databases_find(op, err) < 0 || databases_check_room(op, err) < 0 ||
        databases_open_new(op, op->temporary, err) < 0)
        return -(int)err->code;
    return unlink(op->temporary) < 0 ? err_sys(err, "unlink a file") : 0;
}

/* A folder for a new one, with the limits of the database, in which its file is open. */
static int databases_make_folder(struct database_op *op, struct err *err) {
    _cleanup_(free) char *limits = path_join(op->dir, FACET_LIMITS_FILE);
    _cleanup_(free) char *file = path_join(op->temporary, DATABASE_FILE);
    _cleanup_(buf) struct buf text;
    buf_init(&text, 4096);
    int rc =
        op->kind == DATABASE_COPY ? databases_find(op, err) : path_mkdirs(op->owner_dir, 0700, err);
    if (rc == 0)
        rc = databases_check_room(op, err);
    if (rc < 0)
        return rc;
    if (mkdir(op->temporary, 0700) < 0)
        return err_sys(err, "create a folder for the database");
    if (fd_read_file(AT_FDCWD, limits, &text, err) == 0 && text.data) {
        rc = databases_write_file(op->temporary, FACET_LIMITS_FILE, text.data, err);
        if (rc < 0)
            return rc;
    }
    return databases_open_new(op, file, err);
}

static int databases_sync_file(struct database_op *op, struct err *err) {
    if (fsync(op->fd) < 0)
        return err_sys(err, "write the database");
    fd_close(&op->fd);
    return 0;
}

static int databases_place_copy(struct database_op *op, struct err *err) {
    int rc = databases_sync_folder(op->temporary, err);
    if (rc < 0)
        return rc;
    if (renameat2(AT_FDCWD, op->temporary, AT_FDCWD, op->to, RENAME_NOREPLACE) < 0)
        return errno == EEXIST ? err_set(err, ERR_CONFLICT,
                                         "there is a database of that name already: remove it, or "
                                         "choose another name")
                               : err_sys(err, "name the copy");
    return databases_sync_folder(op->owner_dir, err);
}

/* Old and new change places by one call; the end removes the old one. */
static int databases_swap(struct database_op *op, struct err *err) {
    int rc = databases_sync_folder(op->temporary, err);
    if (rc < 0)
        return rc;
    if (renameat2(AT_FDCWD, op->temporary, AT_FDCWD, op->dir, RENAME_EXCHANGE) < 0) {
        if (errno != ENOENT ||
            renameat2(AT_FDCWD, op->temporary, AT_FDCWD, op->dir, RENAME_NOREPLACE) < 0)
            return err_sys(err, "put the database in its place");
        op->result.created = true;
    }
    return databases_sync_folder(op->owner_dir, err);
}

static void databases_sweep_owner(const char *dir, const char *own) {
    struct err ignored;
    DIR *d = opendir(dir);
    for (const struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        if (strncmp(e->d_name, ".tmp-", 5) == 0 && strncmp(e->d_name, own, strlen(own)) != 0) {
            _cleanup_(free) char *path = path_join(dir, e->d_name);
            (void)path_remove_tree(path, &ignored);
        }
    if (d)
        (void)closedir(d);
}

static int databases_sweep(struct database_op *op, struct err *err) {
    (void)err;
    DIR *d = opendir(op->owner_dir); /* of all owners */
    for (const struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        if (e->d_name[0] != '.') {
            _cleanup_(free) char *dir = path_join(op->owner_dir, e->d_name);
            databases_sweep_owner(dir, op->after);
        }
    if (d)
        (void)closedir(d);
    return 0;
}

static int databases_clean(struct database_op *op, struct err *err) {
    return path_remove_tree(op->temporary, err);
}

static int databases_write(struct database_op *op, struct err *err) {
    if (op->writing.len > 0 && fd_write_all(op->fd, op->writing.data, op->writing.len) < 0)
        return err_sys(err, "write the upload");
    return 0;
}

/* --- from step to step --- */

static void database_go_on(struct database_op *op);
static void database_feed(struct database_op *op);

static void databases_free_if_over(struct databases *all) {
    if (!all->closing || all->ops)
        return;
    shares_finish(&all->shares);
    free(all);
}

/* What may take long, and room on the disk. */
static bool database_counts(enum database_kind kind) {
    return kind == DATABASE_EXPORT || kind == DATABASE_COPY || kind == DATABASE_IMPORT;
}

static void database_free(struct database_op *op) {
    struct databases *all = op->all;
    struct database_op **at = &all->ops;
    while (*at != op)
        at = &(*at)->next;
    *at = op->next;
    if (database_counts(op->kind)) {
        shares_remove(&all->shares, op->owner);
        all->nops--;
    }
    json_decref(op->grants);
    free(op->owner_dir);
    free(op->dir);
    free(op->to);
    free(op->temporary);
    free(op->after);
    free(op->limits);
    free(op->entries);
    fd_close(&op->fd);
    buf_finish(&op->body);
    buf_finish(&op->writing);
    buf_finish(&op->description);
    free(op);
    databases_free_if_over(all);
}

/* The file of an export takes room on the disk until its asker has read it: so long it counts. */
static void database_deliver(struct database_op *op) {
    struct database_result *r = &op->result;
    bool stays = op->kind == DATABASE_EXPORT && op->done && !r->err.code;
    op->delivered = stays;
    r->fd = op->fd;
    r->description = &op->description;
    if (op->done)
        op->done(op->ctx, r);
    if (!stays)
        database_free(op);
}

static void databases_on_work(uv_work_t *w) {
    struct database_op *op = w->data;
    op->work_failed = op->working(op, &op->work_err) < 0;
}

static void databases_on_worked(uv_work_t *w, int status) {
    (void)status;
    struct database_op *op = w->data;
    op->in_thread = false;
    if (op->work_failed && !op->result.err.code)
        op->result.err = op->work_err;
    if (op->ending)
        database_deliver(op);
    else if (op->takes_body && !op->abandoned && !op->result.err.code)
        database_feed(op);
    else
        database_go_on(op);
}

static void database_work(struct database_op *op,
                          int (*work)(struct database_op *op, struct err *err)) {
    op->in_thread = true;
    op->working = work;
    op->work.data = op;
    (void)uv_queue_work(op->all->opt.loop, &op->work, databases_on_work, databases_on_worked);
}

static void database_end(struct database_op *op) {
    op->ending = true;
    facet_op_cancel(op->ask);
    op->ask = NULL;
    /* What is checked must have let go of its files before they are removed. */
    facets_release(&op->temporary_hold);
    if (op->kind == DATABASE_IMPORT && !op->all->closing)
        facets_abort(op->all->opt.facets, op->temporary);
    facets_release(&op->hold);
    if (op->kind != DATABASE_EXPORT || op->result.err.code)
        fd_close(&op->fd);
    if (op->temporary)
        database_work(op, databases_clean);
    else
        database_deliver(op);
}

static void database_go_on(struct database_op *op) {
    for (;;) {
        struct database_result *r = &op->result;
        const struct database_step *step = op->step;
        if (op->abandoned || r->err.code || (!step->work && !step->begin)) {
            database_end(op);
            return;
        }
        op->step++;
        if (step->work) {
            database_work(op, step->work);
            return;
        }
        int rc = step->begin(op, &r->err);
        if (rc == 0)
            return;
    }
}

/* --- steps on the loop --- */

static void databases_on_closed(void *ctx) {
    database_go_on(ctx);
}

static int database_begin_close(struct database_op *op, struct err *err) {
    op->hold = (struct facet_hold){.dir = op->dir, .on_closed = databases_on_closed, .ctx = op};
    return facets_hold(op->all->opt.facets, &op->hold, err);
}

static int database_begin_close_checked(struct database_op *op, struct err *err) {
    op->temporary_hold =
        (struct facet_hold){.dir = op->temporary, .on_closed = databases_on_closed, .ctx = op};
    return facets_hold(op->all->opt.facets, &op->temporary_hold, err);
}

static void databases_on_answer(void *ctx, bool ok, const char *data, size_t len,
                                const struct err *err) {
    struct database_op *op = ctx;
    op->ask = NULL;
    if (!ok || err || !data) {
        if (err)
            op->result.err = *err;
        else
            (void)err_set(&op->result.err, ERR_INTERNAL, "the database does not answer");
    } else if (op->kind == DATABASE_IMPORT) {
        (void)buf_add(&op->description, data, len);
    } else {
        struct unpack u;
        unpack_init(&u, data, len);
        op->result.bytes = unpack_u64(&u);
    }
    database_go_on(op);
}

static int database_begin_export(struct database_op *op, struct err *err) {
    struct facet_ref ref = databases_ref(op->all, op->owner, op->dir);
    op->ask = facets_ask(op->all->opt.facets, &ref,
                         &(struct facet_ask){.type = FACET_EXPORT, .fd = op->fd},
                         databases_on_answer, op, err);
    return op->ask ? 0 : -(int)err->code;
}

/* Opens the upload in a process of its own, which looks at all of it first. */
static int database_begin_check(struct database_op *op, struct err *err) {
    struct facet_ref ref = databases_ref(op->all, op->owner, op->temporary);
    ref.open = &op->all->check;
    op->ask =
        facets_ask(op->all->opt.facets, &ref, &(struct facet_ask){.type = FACET_INSPECT, .fd = -1},
                   databases_on_answer, op, err);
    return op->ask ? 0 : -(int)err->code;
}

static int database_begin_body(struct database_op *op, struct err *err) {
    (void)err;
    op->takes_body = op->wants_room = true;
    database_feed(op);
    return 0;
}

/* --- the upload --- */

/* Writes what has come, asks for more, or goes on when all is written. */
static void database_feed(struct database_op *op) {
    if (op->in_thread)
        return;
    buf_clear(&op->writing);
    if (op->body.len > 0) {
        struct buf empty = op->writing;
        op->writing = op->body;
        op->body = empty;
        database_work(op, databases_write);
    } else if (op->body_ended) {
        op->takes_body = false;
        database_go_on(op);
        return;
    }
    if (op->wants_room && op->body.len < ROOM_BYTES && op->on_room) {
        op->wants_room = false;
        op->on_room(op->ctx);
    }
}

bool database_op_add(struct database_op *op, const void *data, size_t len) {
    if (op->result.err.code)
        return false;
    if (!buf_add(&op->body, data, len))
        (void)err_set(&op->result.err, ERR_TOO_LARGE, "the upload comes faster than it is written");
    op->wants_room = op->wants_room || op->body.len >= ROOM_BYTES;
    if (op->takes_body && !op->in_thread) {
        struct buf empty = op->writing;
        op->writing = op->body;
        op->body = empty;
        database_work(op, databases_write); /* goes on, or ends, when it comes back */
    }
    return !op->wants_room && !op->result.err.code;
}

void database_op_finish(struct database_op *op) {
    op->body_ended = true;
    if (op->takes_body && !op->in_thread && !op->result.err.code) {
        buf_clear(&op->writing);
        database_work(op, databases_write); /* nothing: the end comes from the loop */
    }
}

/* --- asking --- */

static const struct database_step databases_steps[DATABASE_KINDS][9] = {
    [DATABASE_LIST] = {{.work = databases_list}},
    [DATABASE_MAKE] = {{.work = databases_make}},
    [DATABASE_REMOVE] = {{.work = databases_find},
                         {.begin = database_begin_close},
                         {.work = databases_take_away}},
    [DATABASE_EXPORT] = {{.work = databases_make_nameless}, {.begin = database_begin_export}},
    [DATABASE_COPY] = {{.work = databases_make_folder},
                       {.begin = database_begin_export},
                       {.work = databases_sync_file},
                       {.work = databases_place_copy}},
    [DATABASE_IMPORT] = {{.work = databases_make_folder},
                         {.begin = database_begin_body},
                         {.work = databases_sync_file},
                         {.begin = database_begin_check},
                         {.begin = database_begin_close_checked},
                         {.begin = database_begin_close},
                         {.work = databases_swap}},
    [DATABASE_SWEEP] = {{.work = databases_sweep}},
};

static struct database_op *database_create(struct databases *all,
                                           const struct database_request *r) {
    struct database_op *op = xcalloc(1, sizeof(*op));
    const char *owner = r->owner ? r->owner : "";
    bool temporary = r->kind >= DATABASE_REMOVE && r->kind <= DATABASE_IMPORT;
    *op = (struct database_op){.all = all,
                               .kind = r->kind,
                               .step = databases_steps[r->kind],
                               .dir = r->name ? databases_dir(all, owner, r->name) : NULL,
                               .to = r->to ? databases_dir(all, owner, r->to) : NULL,
                               .after = r->after ? xstrdup(r->after) : NULL,
                               .limits = r->limits ? xstrdup(r->limits) : NULL,
                               .grants = json_deep_copy(r->grants),
                               .limit = r->limit,
                               .fd = -1,
                               .on_room = r->on_room,
                               .done = r->done,
                               .ctx = r->ctx};
    (void)snprintf(op->owner, sizeof(op->owner), "%s", owner);
    op->owner_dir =
        xasprintf("%s/facets%s%s", all->opt.data_dir, r->kind == DATABASE_SWEEP ? "" : "/",
                  r->kind == DATABASE_SWEEP ? ""
                  : *owner                  ? owner
                                            : "operator");
    if (temporary)
        op->temporary = xasprintf("%s/.tmp-%s-%llu", op->owner_dir, all->life,
                                  (unsigned long long)++all->names);
    buf_init(&op->body, BODY_BYTES);
    buf_init(&op->writing, BODY_BYTES);
    buf_init(&op->description, DESCRIPTION_BYTES);
    op->next = all->ops;
    all->ops = op;
    return op;
}

struct database_op *databases_start(struct databases *all, const struct database_request *request,
                                    struct err *err) {
    const char *owner = request->owner ? request->owner : "";
    bool counts = database_counts(request->kind);
    if (counts && (all->nops >= LIMIT_DATABASE_OPS ||
                   shares_held(&all->shares, owner) >= share_of(owner, LIMIT_DATABASE_OPS))) {
        (void)err_set(err, ERR_RATE,
                      "too many databases are being exported, imported or copied: try again");
        return NULL;
    }
    if (counts) {
        shares_add(&all->shares, owner);
        all->nops++;
    }
    struct database_op *op = database_create(all, request);
    database_go_on(op); /* the first step is work for a thread */
    return op;
}

void database_op_leave(struct database_op *op) {
    if (op->delivered) {
        database_free(op);
        return;
    }
    op->done = NULL;
    op->on_room = NULL;
    op->abandoned = op->abandoned || database_counts(op->kind);
    if (op->abandoned && !op->in_thread && !op->ending)
        database_end(op);
}

struct databases *databases_create(const struct databases_options *options) {
    struct databases *all = xcalloc(1, sizeof(*all));
    all->opt = *options;
    all->check = *options->open;
    all->check.check = true;
    (void)id_new("db", all->life);
    _cleanup_(free) char *own = xasprintf(".tmp-%s-", all->life);
    database_go_on(
        database_create(all, &(struct database_request){.kind = DATABASE_SWEEP, .after = own}));
    return all;
}

void databases_close(struct databases *all) {
    if (!all)
        return;
    for (struct database_op *op = all->ops, *next; op; op = next) {
        next = op->next;
        op->done = NULL;
        op->on_room = NULL;
        op->abandoned = true;
        if (op->in_thread) { /* it ends when it comes back, without the facets */
            facets_release(&op->hold);
            facets_release(&op->temporary_hold);
        } else {
            database_end(op); /* only what is delivered has ended, and all requests are gone */
        }
    }
    all->closing = true;
    databases_free_if_over(all);
}
