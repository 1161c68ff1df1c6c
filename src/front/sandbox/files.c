#include "front/sandbox/files.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"
#include "loop/later.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 128 * 1024 };

static void set_gone(struct err *err) {
    (void)err_set(err, ERR_CONFLICT, "the sandbox was paused or ended");
}

/* --- reading --- */

struct file_reader {
    uv_fs_t fs;
    uv_loop_t *loop;
    struct file_reader_callbacks callbacks;
    void *ctx;
    struct sandbox_call *call;
    int fd;
    int64_t at;
    bool reading; /* a thread is at work on it */
    bool full;
    bool cancelled;
    char chunk[CHUNK];
};

static void free_reader(struct file_reader *r) {
    fd_close(&r->fd);
    free(r);
}

static void end_reader(struct file_reader *r, const struct err *err) {
    struct file_reader_callbacks callbacks = r->callbacks;
    void *ctx = r->ctx;
    free_reader(r);
    callbacks.on_end(ctx, err);
}

static void read_more(struct file_reader *r);

static void file_transfer_on_read(uv_fs_t *fs) {
    struct file_reader *r = fs->data;
    struct err err;
    ssize_t n = fs->result;
    uv_fs_req_cleanup(fs);
    r->reading = false;
    if (r->cancelled) {
        free_reader(r);
        return;
    }
    if (n <= 0) {
        if (n < 0)
            (void)err_set(&err, ERR_IO, "read the file: %s", uv_strerror((int)n));
        end_reader(r, n < 0 ? &err : NULL);
        return;
    }
    r->at += n;
    r->full = !r->callbacks.on_data(r->ctx, r->chunk, (size_t)n);
    if (!r->full)
        read_more(r);
}

/* On another thread: what a guest hands us may be slow. */
static void read_more(struct file_reader *r) {
    uv_buf_t b = uv_buf_init(r->chunk, sizeof(r->chunk));
    r->fs.data = r;
    r->reading = true;
    if (uv_fs_read(r->loop, &r->fs, r->fd, &b, 1, r->at, file_transfer_on_read) < 0)
        abort(); /* only for arguments that are none */
}

static void file_transfer_on_opened(void *ctx, struct sandbox_reply *reply, const struct err *err) {
    struct file_reader *r = ctx;
    r->call = NULL;
    if (err) {
        end_reader(r, err);
        return;
    }
    r->fd = steal_fd(&reply->fd);
    r->callbacks.on_open(r->ctx, &reply->stat);
    read_more(r);
}

struct file_reader *file_read(struct sandbox *s, const char *path,
                              const struct file_reader_callbacks *callbacks, void *ctx,
                              struct err *err) {
    struct file_reader *r = xcalloc(1, sizeof(*r));
    r->loop = sandboxes_loop(s->all);
    r->callbacks = *callbacks;
    r->ctx = ctx;
    r->fd = -1;
    r->call = sandbox_box_read(s->box, path, file_transfer_on_opened, r);
    if (r->call)
        return r;
    (void)err_set(err, ERR_UNAVAILABLE, "the sandbox takes no requests now");
    free(r);
    return NULL;
}

void file_reader_resume(struct file_reader *r) {
    if (!r->full || r->reading)
        return;
    r->full = false;
    read_more(r);
}

void file_reader_cancel(struct file_reader *r) {
    sandbox_call_cancel(r->call);
    r->cancelled = true;
    if (!r->reading)
        free_reader(r);
}

/* --- writing --- */

/* Those of one sandbox take turns: init takes one piece at a time anyway, and what waits for it
 * waits here, where it is counted, not in the channel. */
struct file_writer {
    struct sandboxes *all;
    struct file_writer *next;
    char id[ID_SIZE];
    struct file_writer_callbacks callbacks;
    void *ctx;
    char *path;
    uint32_t mode, flags;
    struct buf piece;
    size_t held;   /* of the bytes that all uploads hold */
    size_t on_way; /* in the call */
    struct sandbox_call *call;
    uint64_t turn; /* 0: it does not wait for one */
    uint64_t written;
    bool begun;
    bool finished; /* nothing more comes */
    bool full;
    struct err err;
    struct later later;
};

static void file_transfer_flush(struct file_writer *w);

static void count_held(struct file_writer *w) {
    sandboxes_hold_upload(w->all, &w->held, w->piece.cap + w->on_way);
}

static bool is_taken(const struct file_writer *w) {
    for (const struct file_writer *o = *sandboxes_writers(w->all); o; o = o->next)
        if (o->call && strcmp(o->id, w->id) == 0)
            return true;
    return false;
}

/* The one that has waited longest. */
static void next_turn(struct sandboxes *all, const char *id) {
    struct file_writer *first = NULL;
    for (struct file_writer *w = *sandboxes_writers(all); w; w = w->next)
        if (w->turn && strcmp(w->id, id) == 0 && (!first || w->turn < first->turn))
            first = w;
    if (first)
        file_transfer_flush(first);
}

static void unlink_writer(struct file_writer *w) {
    struct file_writer **at = sandboxes_writers(w->all);
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
}

void file_writer_cancel(struct file_writer *w) {
    struct sandboxes *all = w->all;
    char id[ID_SIZE];
    memcpy(id, w->id, sizeof(id));
    sandboxes_hold_upload(all, &w->held, 0);
    unlink_writer(w);
    later_cancel(&w->later);
    sandbox_call_cancel(w->call);
    buf_finish(&w->piece);
    free(w->path);
    free(w);
    next_turn(all, id);
}

static void end_writer(struct file_writer *w, const struct err *err) {
    struct file_writer_callbacks callbacks = w->callbacks;
    void *ctx = w->ctx;
    uint64_t written = w->written;
    file_writer_cancel(w);
    callbacks.on_end(ctx, written, err);
}

static void file_transfer_on_writer_failed(void *ctx) {
    struct file_writer *w = ctx;
    struct err err = w->err;
    end_writer(w, &err);
}

static void file_transfer_on_piece(void *ctx, struct sandbox_reply *reply, const struct err *err) {
    struct file_writer *w = ctx;
    w->call = NULL;
    w->on_way = 0;
    count_held(w);
    if (err) {
        struct err copy = *err;
        end_writer(w, &copy);
        return;
    }
    next_turn(w->all, w->id);
    w->written += reply->value;
    bool enough = w->piece.len >= sandboxes_upload_most(w->all, SANDBOX_INLINE_MAX);
    if (w->piece.len > 0 && (w->finished || enough)) {
        file_transfer_flush(w);
    } else if (w->finished) {
        end_writer(w, NULL);
    } else if (w->full) {
        w->full = false;
        w->callbacks.on_room(w->ctx);
    }
}

static void file_transfer_flush(struct file_writer *w) {
    if (is_taken(w)) {
        w->turn = w->turn ? w->turn : sandboxes_next_turn(w->all);
        return;
    }
    w->turn = 0;
    struct sandbox *s = sandboxes_find(w->all, w->id);
    size_t n = MIN(w->piece.len, (size_t)SANDBOX_INLINE_MAX);
    struct sandbox_put put = {.path = w->path,
                              .mode = w->mode,
                              .flags = w->flags | (w->begun ? SANDBOX_WRITE_APPEND : 0),
                              .data = w->piece.data,
                              .len = n,
                              .fd = -1};
    w->begun = true;
    if (s && s->state == SANDBOX_RUNNING)
        w->call = sandbox_box_write(s->box, &put, file_transfer_on_piece, w);
    buf_consume(&w->piece, n);
    if (w->piece.len == 0)
        buf_finish(&w->piece);
    w->on_way = w->call ? n : 0;
    count_held(w);
    if (!w->call) {
        set_gone(&w->err);
        later_post(sandboxes_later(w->all), &w->later, file_transfer_on_writer_failed, w);
    }
}

struct file_writer *file_write(struct sandbox *s, const struct file_target *target,
                               const struct file_writer_callbacks *callbacks, void *ctx) {
    struct file_writer *w = xcalloc(1, sizeof(*w));
    *w = (struct file_writer){.all = s->all,
                              .callbacks = *callbacks,
                              .ctx = ctx,
                              .path = xstrdup(target->path),
                              .mode = target->mode,
                              .flags = target->flags};
    memcpy(w->id, s->id, sizeof(w->id));
    w->next = *sandboxes_writers(s->all);
    *sandboxes_writers(s->all) = w;
    /* A pause takes hold between two reads of the connection. */
    buf_init(&w->piece, 2 * SANDBOX_INLINE_MAX + 128 * 1024);
    return w;
}

bool file_writer_add(struct file_writer *w, const char *data, size_t len) {
    if (w->err.code)
        return true; /* on_end comes */
    (void)buf_add(&w->piece, data, len);
    count_held(w);
    if (w->piece.len < sandboxes_upload_most(w->all, SANDBOX_INLINE_MAX))
        return true;
    w->full = true;
    if (!w->call)
        file_transfer_flush(w);
    return false;
}

void file_writer_finish(struct file_writer *w) {
    w->finished = true;
    if (!w->call && !w->err.code)
        file_transfer_flush(w);
}
