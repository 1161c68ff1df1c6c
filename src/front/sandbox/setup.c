#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"
#include "front/sandbox/files.h"
#include "front/sandbox/parts.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Making one ready: network, snapshot, files. */

void setup_free(struct setup *u) {
    if (!u)
        return;
    egress_policy_finish(&u->policy);
    sandbox_files_finish(&u->files);
    fd_close(&u->snapshot);
    free(u);
}

static void setup_next_step(struct sandbox *s);

static void setup_on_written(void *ctx, struct sandbox_reply *reply, const struct err *err) {
    struct sandbox *s = ctx;
    struct setup *u = s->setup;
    (void)reply;
    if (err && !u->begun)
        return; /* there is no box, and that is said next */
    if (err) {
        struct err e = *err;
        (void)err_wrap(&e, "file %.200s", u->files.items[u->file].path);
        sandbox_give_up(s, &e);
        return;
    }
    if (u->at == u->files.items[u->file].len) {
        u->writing = false;
        u->file++;
    }
    setup_next_step(s);
}

/* Contents that do not fit into one message are written piece by piece. */
static void setup_write_piece(struct sandbox *s) {
    struct setup *u = s->setup;
    const struct sandbox_file *f = &u->files.items[u->file];
    size_t n = MIN(f->len - u->at, (size_t)SANDBOX_INLINE_MAX);
    struct sandbox_put put = {.path = f->path,
                              .mode = f->mode,
                              .flags =
                                  SANDBOX_WRITE_PARENTS | (u->at > 0 ? SANDBOX_WRITE_APPEND : 0),
                              .data = f->content + u->at,
                              .len = n,
                              .fd = -1};
    struct err err;
    u->at += n;
    if (sandbox_box_write(s->box, &put, setup_on_written, s))
        return;
    if (!u->begun) { /* it failed already, and why is still to be read; or it is written later */
        u->writing = false;
        return;
    }
    (void)err_set(&err, ERR_UNAVAILABLE, "the sandbox takes no files now");
    sandbox_give_up(s, &err);
}

static void begin_file(struct sandbox *s) {
    s->setup->writing = true;
    s->setup->at = 0;
    setup_write_piece(s);
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
static void setup_end_line(struct setup *u) {
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

static void setup_on_restore_output(void *ctx, int stream, const char *data, size_t len) {
    struct setup *u = ((struct sandbox *)ctx)->setup;
    for (size_t i = 0; u && stream == 2 && i < len; i++) {
        if (data[i] == '\n') {
            setup_end_line(u);
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
    int len = (int)u->said_len;
    if (sandbox_tar_is_too_large(exit, u->said, u->said_len))
        (void)err_set(
            err, ERR_LIMIT,
            "the snapshot does not fit (ask for more disk_mb, and memory_mb to hold it): %.*s", len,
            u->said);
    else
        (void)err_set(err, ERR_IO, "the snapshot cannot be restored: tar ended with %s%u: %.*s",
                      exit->signaled ? "signal " : "", exit->code, len, u->said);
}

static void setup_on_restored(void *ctx, const struct sandbox_exit *exit, const struct err *err) {
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
        setup_next_step(s);
        return;
    }
    if (exit)
        restore_failed(s->setup, exit, &e);
    else
        e = *err;
    sandbox_give_up(s, &e);
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
                                          .callbacks = {.on_output = setup_on_restore_output,
                                                        .on_input_drained = feed_snapshot,
                                                        .on_exit = setup_on_restored},
                                          .ctx = s},
        &err);
    if (!u->restore)
        sandbox_give_up(s, &err);
    else
        feed_snapshot(s);
}

static void setup_next_step(struct sandbox *s) {
    struct setup *u = s->setup;
    if (s->state == SANDBOX_ENDING)
        return;
    if (u->snapshot >= 0 && !u->restored) {
        begin_restore(s);
        return;
    }
    if (u->writing) {
        setup_write_piece(s);
        return;
    }
    if (u->file < u->files.n) {
        begin_file(s);
        return;
    }
    sandbox_move(s, SANDBOX_RUNNING);
    s->setup = NULL;
    sandbox_made made = u->made;
    void *ctx = u->ctx;
    setup_free(u);
    if (made)
        made(ctx, s, NULL);
}

/* Its answer cannot come before the box is ready: one waking less on either side. */
void setup_ahead(struct sandbox *s) {
    struct setup *u = s->setup;
    if (u && u->snapshot < 0 && u->files.n > 0)
        begin_file(s);
}

void setup_begin(struct sandbox *s, int listener) {
    struct setup *u = s->setup;
    u->begun = true;
    if (listener >= 0)
        s->line = network_open(s->all->network, s->id, listener, &u->policy);
    if (!u->writing) /* else it goes on when that is written */
        setup_next_step(s);
}
