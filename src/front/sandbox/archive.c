#include "base/buf.h"
#include "base/cleanup.h"
#include "base/mem.h"
#include "front/sandbox/files.h"
#include "loop/later.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { ERROR_BYTES = 400, HOLD_BYTES = 64 * 1024, QUEUE_BYTES = 256 * 1024 };

struct archive {
    struct sandboxes *all;
    char id[ID_SIZE];
    struct archive_callbacks callbacks;
    void *ctx;
    struct sandbox_command *command; /* NULL before it has begun */
    char *path;
    /* The first bytes. Unpacking: until it is known what they are. Packing: so that what goes wrong
     * with a small one can still be said. */
    struct buf head;
    char error[ERROR_BYTES]; /* what tar said */
    size_t error_len;
    bool in;   /* it is unpacked */
    bool held; /* the first bytes of one that is packed are */
    bool full;
    size_t queued; /* of the bytes that all uploads hold */
    bool cancelled;
    struct err err; /* why it did not begin */
    struct later later;
};

static void count_queued(struct archive *a) {
    sandboxes_hold_upload(a->all, &a->queued,
                          a->command ? sandbox_command_input_queued(a->command) : 0);
}

static void free_archive(struct archive *a) {
    sandboxes_hold_upload(a->all, &a->queued, 0);
    later_cancel(&a->later);
    buf_finish(&a->head);
    free(a->path);
    free(a);
}

static void archive_end(struct archive *a, const struct err *err) {
    struct archive_callbacks callbacks = a->callbacks;
    void *ctx = a->ctx;
    bool cancelled = a->cancelled;
    free_archive(a);
    if (!cancelled)
        callbacks.on_end(ctx, err);
}

static void archive_on_not_begun(void *ctx) {
    struct archive *a = ctx;
    struct err err = a->err;
    archive_end(a, &err);
}

/* --- what tar says --- */

bool sandbox_tar_is_too_large(const struct sandbox_exit *exit, const char *said, size_t len) {
    static const char *const words[] = {"No space left", "Wrote only"};
    if (exit && exit->signaled && exit->code == SIGXFSZ)
        return true;
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (len > 0 && memmem(said, len, words[i], strlen(words[i])))
            return true;
    return false;
}

static void set_failed(const struct archive *a, const struct sandbox_exit *exit, struct err *err) {
    static const char denied[] = "Permission denied";
    bool unreadable = !a->in && memmem(a->error, a->error_len, denied, strlen(denied));
    if (a->in && sandbox_tar_is_too_large(exit, a->error, a->error_len))
        (void)err_set(err, ERR_LIMIT, "the archive, or a file of it, is larger than the disk: %.*s",
                      (int)a->error_len, a->error);
    else if (a->error_len > 0)
        (void)err_set(err, ERR_BAD_REQUEST, "%.*s%s", (int)a->error_len, a->error,
                      unreadable ? "skip_unreadable=1 leaves such files out" : "");
    else if (exit)
        (void)err_set(err, ERR_IO, "tar ended with %s%u", exit->signaled ? "signal " : "",
                      exit->code);
}

static void hand_on(struct archive *a, const char *data, size_t len) {
    if (!a->callbacks.on_data(a->ctx, data, len) && a->command)
        sandbox_command_pause(a->command, true);
}

/* What was held back. */
static void archive_let_go(struct archive *a) {
    a->held = false;
    hand_on(a, a->head.data, a->head.len);
    buf_clear(&a->head);
}

static void archive_on_output(void *ctx, int stream, const char *data, size_t len) {
    struct archive *a = ctx;
    if (stream == 2) {
        size_t n = MIN(len, sizeof(a->error) - a->error_len);
        memcpy(a->error + a->error_len, data, n);
        a->error_len += n;
        return;
    }
    if (a->cancelled || a->in)
        return;
    if (a->held && a->head.len + len <= HOLD_BYTES) {
        (void)buf_add(&a->head, data, len);
        return;
    }
    if (a->held)
        archive_let_go(a);
    hand_on(a, data, len);
}

static void archive_on_drained(void *ctx) {
    struct archive *a = ctx;
    count_queued(a);
    if (!a->full || a->cancelled)
        return;
    a->full = false;
    a->callbacks.on_room(a->ctx);
}

static void archive_on_exit_(void *ctx, const struct sandbox_exit *exit, const struct err *why) {
    struct archive *a = ctx;
    struct err err = {0};
    /* Packing, 1 says that a file changed while it was read: the archive is whole all the same. */
    bool ok = exit && !exit->signaled && exit->code <= (a->in ? 0 : 1);
    a->command = NULL;
    if (ok && a->held && !a->cancelled)
        archive_let_go(a);
    if (why)
        err = *why;
    else if (!ok)
        set_failed(a, exit, &err);
    archive_end(a, ok ? NULL : &err);
}

/* --- the beginning --- */

static int archive_start(struct archive *a, const char *const *args, struct err *err) {
    struct sandbox_exec e = {.cwd = (char *)"/"};
    struct sandbox *s = sandboxes_find(a->all, a->id);
    for (size_t i = 0; args[i]; i++)
        sandbox_strv_add(&e.argv, args[i]);
    if (s && s->state == SANDBOX_RUNNING)
        a->command = sandbox_command_start(
            s->box,
            &(struct sandbox_command_options){.exec = &e,
                                              .input = a->in,
                                              .callbacks = {NULL, archive_on_output,
                                                            a->in ? archive_on_drained : NULL,
                                                            archive_on_exit_},
                                              .ctx = a},
            err);
    else
        (void)err_set(err, ERR_CONFLICT, "the sandbox was paused or ended");
    sandbox_strv_finish(&e.argv);
    return a->command ? 0 : -(int)err->code;
}

static struct archive *new_archive(struct sandbox *s, const char *path,
                                   const struct archive_callbacks *callbacks, void *ctx) {
    struct archive *a = xcalloc(1, sizeof(*a));
    a->all = s->all;
    a->callbacks = *callbacks;
    a->ctx = ctx;
    a->path = xstrdup(path);
    memcpy(a->id, s->id, sizeof(a->id));
    buf_init(&a->head, 256 * 1024);
    return a;
}

/* Whether a path is that of the root, by its letters. */
static bool is_root(const char *path) {
    size_t depth = 0;
    while (*path) {
        path += strspn(path, "/");
        size_t n = strcspn(path, "/");
        if (n == 2 && memcmp(path, "..", 2) == 0)
            depth -= depth > 0;
        else if (n > 0 && !(n == 1 && path[0] == '.'))
            depth++;
        path += n;
    }
    return depth == 0;
}

struct archive *archive_pack(struct sandbox *s, const struct archive_pack *what,
                             const struct archive_callbacks *callbacks, void *ctx,
                             struct err *err) {
    static const char *const all[] = {"-cf", "-", "--", ".", NULL};
    /* What the guest has written; the system and /proc are not what anybody wants. */
    static const char *const of_root[] = {"-cf", "-", "--", "./work", "./home", "./tmp", NULL};
    struct archive *a = new_archive(s, what->path, callbacks, ctx);
    const char *args[16] = {"tar", "-C", a->path};
    size_t n = 3;
    a->held = true;
    if (what->skip_unreadable)
        args[n++] = "--ignore-failed-read";
    for (const char *const *more = is_root(a->path) ? of_root : all; *more; more++)
        args[n++] = *more;
    if (archive_start(a, args, err) == 0)
        return a;
    free_archive(a);
    return NULL;
}

struct archive *archive_unpack(struct sandbox *s, const char *path,
                               const struct archive_callbacks *callbacks, void *ctx) {
    struct archive *a = new_archive(s, path, callbacks, ctx);
    a->in = true;
    return a;
}

/* When the first bytes tell whether it is compressed. False: on_end comes. */
static bool begin_unpack(struct archive *a) {
    bool gzip = a->head.len >= 2 && memcmp(a->head.data, "\x1f\x8b", 2) == 0;
    const char *args[] = {
        "tar", "-C", a->path, gzip ? "-xzf" : "-xf", "-", "--no-same-owner", "--same-permissions",
        NULL};
    if (archive_start(a, args, &a->err) < 0) {
        later_post(sandboxes_later(a->all), &a->later, archive_on_not_begun, a);
        return false;
    }
    (void)sandbox_command_write(a->command, a->head.data, a->head.len);
    buf_clear(&a->head);
    return true;
}

bool archive_add(struct archive *a, const char *data, size_t len) {
    if (a->err.code)
        return true; /* on_end comes */
    if (!a->command) {
        (void)buf_add(&a->head, data, len);
        if (a->head.len >= 2)
            (void)begin_unpack(a);
        return true;
    }
    (void)sandbox_command_write(a->command, data, len);
    a->full = sandbox_command_input_queued(a->command) > sandboxes_upload_most(a->all, QUEUE_BYTES);
    count_queued(a);
    return !a->full;
}

void archive_finish(struct archive *a) {
    if (!a->err.code && (a->command || begin_unpack(a)))
        sandbox_command_end_input(a->command); /* on_exit_ tells */
}

void archive_resume(struct archive *a) {
    if (a->command)
        sandbox_command_pause(a->command, false);
}

void archive_cancel(struct archive *a) {
    struct sandbox *s = sandboxes_find(a->all, a->id);
    a->cancelled = true;
    if (!a->command) {
        free_archive(a);
        return;
    }
    if (s && s->box)
        (void)sandbox_box_signal(s->box, a->command, SIGKILL, true, NULL, NULL);
    sandbox_command_pause(a->command, false);
}
