#include "client.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEADLINE_MS = 60000 };

/* As wire_read(), but gives up. */
static int read_frame(struct wire_reader *r, int fd, struct wire_frame *ret, struct err *err) {
    int64_t end = clock_mono_ms() + DEADLINE_MS;
    for (;;) {
        int rc = wire_next(r, ret, err);
        if (rc != 0)
            return rc < 0 ? rc : 0;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int64_t left = end - clock_mono_ms();
        if (left <= 0 || poll(&p, 1, (int)left) == 0)
            return err_set(err, ERR_TIMEOUT, "no frame came");
        rc = wire_recv(r, fd, err);
        if (rc < 0)
            return rc;
    }
}

static _Noreturn void exec_launcher(const struct client_options *o, int control) {
    char *env[16] = {"CAY_LOG=warn", NULL};
    size_t n = 1;
    if (o->without)
        env[n++] = xasprintf("CAY_SANDBOX_WITHOUT=%s", o->without);
    for (char *const *p = o->env; p && *p && n < 15; p++)
        env[n++] = *p;
    if (control == 3)
        (void)fd_set_cloexec(3, false);
    else if (dup2(control, 3) < 0)
        _exit(126);
    if (o->uid && (setgroups(0, NULL) < 0 || setresgid(o->uid, o->uid, o->uid) < 0 ||
                   setresuid(o->uid, o->uid, o->uid) < 0))
        _exit(126);
    char *argv[] = {"cay-sandbox", NULL};
    execve(o->program, argv, env);
    _exit(127);
}

int client_start(struct client *c, const struct client_options *o, struct err *err) {
    int pair[2];
    *c = (struct client){.control = -1};
    int rc = fd_pair(pair, err);
    if (rc < 0)
        return rc;
    pid_t pid = fork();
    if (pid < 0)
        return err_sys(err, "fork");
    if (pid == 0)
        exec_launcher(o, pair[1]);
    close(pair[1]);
    c->pid = pid;
    c->control = pair[0];
    wire_reader_init(&c->reader, SANDBOX_CONTROL_MAX);
    /* What a user has only so many of is not shared with the sandboxes of others who test. */
    enum { UIDS = 65536, PIDS = 16384 };
    struct sandbox_config config = {.pool = o->pool,
                                    .max = o->max ? o->max : 64,
                                    .uid_base = 200000 + (uint32_t)getpid() % PIDS * UIDS,
                                    .uid_count = o->uids ? o->uids : UIDS,
                                    .state_dir = (char *)(uintptr_t)o->state_dir,
                                    .roots = o->roots,
                                    .nroots = o->nroots};
    struct buf b;
    buf_init(&b, 65536);
    pack_sandbox_config(&b, &config);
    struct wire_out out = {.type = SANDBOX_CONFIG, .id = ++c->next_id, .pieces = {{b.data, b.len}}};
    int sent = wire_send(c->control, &out);
    buf_finish(&b);
    struct wire_frame f;
    rc = sent < 0 ? err_sys(err, "send config") : read_frame(&c->reader, c->control, &f, err);
    if (rc < 0)
        return rc;
    struct unpack u;
    unpack_init(&u, f.data, f.len);
    if (f.type != SANDBOX_FEATURES)
        return unpack_sandbox_error(&u, err);
    unpack_sandbox_features(&u, &c->features);
    return unpack_ok(&u) ? 0 : err_set(err, ERR_PROTOCOL, "malformed features");
}

void client_stop(struct client *c) {
    fd_close(&c->control);
    if (c->pid > 0)
        while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    c->pid = 0;
    free(c->features.detail);
    wire_reader_finish(&c->reader);
}

static void note_exited(struct client *c, const struct wire_frame *f) {
    struct unpack u;
    unpack_init(&u, f->data, f->len);
    free(unpack_strdup(&u));
    c->last_status = (int)unpack_u32(&u);
    unpack_sandbox_stats(&u, &c->last_stats);
    c->nexited++;
}

/* The reply to request `id`; EXITED events on the way are noted. */
static int await(struct client *c, uint64_t id, struct wire_frame *ret, struct err *err) {
    for (;;) {
        int rc = read_frame(&c->reader, c->control, ret, err);
        if (rc < 0)
            return rc;
        if (ret->type == SANDBOX_EXITED)
            note_exited(c, ret);
        else if (ret->id == id)
            return 0;
        wire_frame_finish(ret);
    }
}

int client_wait_exited(struct client *c, const char *id, struct err *err) {
    struct wire_frame f;
    for (;;) {
        int rc = read_frame(&c->reader, c->control, &f, err);
        if (rc < 0)
            return rc;
        bool it = false;
        if (f.type == SANDBOX_EXITED) {
            struct unpack u;
            unpack_init(&u, f.data, f.len);
            _cleanup_(free) char *got = unpack_strdup(&u);
            it = strcmp(got, id) == 0;
            note_exited(c, &f);
        }
        wire_frame_finish(&f);
        if (it)
            return 0;
    }
}

int client_create(struct client *c, const struct sandbox_spec *spec, const int *bind_fds,
                  struct guest *ret, struct err *err) {
    *ret = (struct guest){.channel = -1, .pidfd = -1, .listener = -1};
    struct buf b;
    buf_init(&b, SANDBOX_CONTROL_MAX);
    pack_sandbox_spec(&b, spec);
    struct wire_out out = {.type = SANDBOX_CREATE,
                           .id = ++c->next_id,
                           .pieces = {{b.data, b.len}},
                           .fds = bind_fds,
                           .nfds = spec->nbinds};
    int sent = wire_send(c->control, &out);
    buf_finish(&b);
    struct wire_frame f;
    int rc = sent < 0 ? err_sys(err, "send create") : await(c, c->next_id, &f, err);
    if (rc < 0)
        return rc;
    if (f.type != SANDBOX_CREATED || f.nfds != 2) {
        struct unpack u;
        unpack_init(&u, f.data, f.len);
        rc = unpack_sandbox_error(&u, err);
        wire_frame_finish(&f);
        return rc;
    }
    ret->channel = wire_frame_take_fd(&f, 0);
    ret->pidfd = wire_frame_take_fd(&f, 1);
    (void)snprintf(ret->id, sizeof(ret->id), "%s", spec->id);
    wire_reader_init(&ret->reader, SANDBOX_INIT_MAX);
    return 0;
}

int guest_wait_ready(struct guest *g, struct err *err) {
    struct wire_frame f;
    if (g->ready)
        return 0;
    int rc = read_frame(&g->reader, g->channel, &f, err);
    if (rc < 0)
        return rc;
    if (f.type != INIT_READY) {
        struct unpack u;
        unpack_init(&u, f.data, f.len);
        return unpack_sandbox_error(&u, err);
    }
    g->listener = wire_frame_take_fd(&f, 0);
    g->ready = true;
    wire_frame_finish(&f);
    return 0;
}

void guest_close(struct guest *g) {
    fd_close(&g->channel);
    fd_close(&g->pidfd);
    fd_close(&g->listener);
    wire_reader_finish(&g->reader);
}

static int request(struct client *c, uint16_t type, const char *id, struct wire_frame *ret,
                   struct err *err) {
    struct buf b;
    buf_init(&b, 256);
    pack_str(&b, id);
    struct wire_out out = {.type = type, .id = ++c->next_id, .pieces = {{b.data, b.len}}};
    int sent = wire_send(c->control, &out);
    buf_finish(&b);
    return sent < 0 ? err_sys(err, "send") : await(c, c->next_id, ret, err);
}

int client_request(struct client *c, uint16_t type, const char *id, struct sandbox_stats *ret,
                   struct err *err) {
    struct wire_frame f;
    int rc = request(c, type, id, &f, err);
    if (rc < 0)
        return rc;
    struct unpack u;
    unpack_init(&u, f.data, f.len);
    if (f.type == SANDBOX_FAILED)
        return unpack_sandbox_error(&u, err);
    if (f.type == SANDBOX_STATS_ARE && ret)
        unpack_sandbox_stats(&u, ret);
    return 0;
}

int client_destroy(struct client *c, struct guest *g, struct err *err) {
    int rc = client_request(c, SANDBOX_DESTROY, g->id, NULL, err);
    guest_close(g);
    return rc;
}

int guest_send(struct guest *g, uint16_t type, uint64_t id, const struct buf *payload,
               const int *fds, size_t nfds) {
    struct wire_out out = {.type = type,
                           .id = id,
                           .pieces = {{payload ? payload->data : NULL, payload ? payload->len : 0}},
                           .fds = fds,
                           .nfds = nfds};
    return wire_send(g->channel, &out);
}

int guest_read(struct guest *g, struct wire_frame *ret, struct err *err) {
    int rc = guest_wait_ready(g, err);
    return rc < 0 ? rc : read_frame(&g->reader, g->channel, ret, err);
}

int guest_call(struct guest *g, uint16_t type, const struct buf *payload, const int *fds,
               size_t nfds, struct wire_frame *ret, struct err *err) {
    uint64_t id = ++g->next_id;
    if (guest_send(g, type, id, payload, fds, nfds) < 0)
        return err_sys(err, "send");
    for (;;) {
        int rc = guest_read(g, ret, err);
        if (rc < 0)
            return rc;
        if (ret->id != id) {
            wire_frame_finish(ret);
            continue;
        }
        if (ret->type != INIT_ERROR)
            return 0;
        struct unpack u;
        unpack_init(&u, ret->data, ret->len);
        return unpack_sandbox_error(&u, err);
    }
}

int guest_run(struct guest *g, struct sandbox_exec *e, struct run *ret, struct err *err) {
    int fds[2];
    *ret = (struct run){0};
    buf_init(&ret->out, 1 << 20);
    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_sys(err, "pipe");
    _cleanup_(close) int from = fds[0];
    e->out = SANDBOX_STREAM_FD;
    e->err = SANDBOX_STREAM_STDOUT;
    struct buf b;
    buf_init(&b, SANDBOX_INIT_MAX);
    pack_sandbox_exec(&b, e);
    uint64_t id = ++g->next_id;
    int sent = guest_send(g, INIT_EXEC, id, &b, &fds[1], 1);
    close(fds[1]);
    buf_finish(&b);
    if (sent < 0)
        return err_sys(err, "send");
    bool ended = false, closed = false;
    int64_t end = clock_mono_ms() + DEADLINE_MS;
    while (!ended || !closed) {
        struct wire_frame f;
        int rc = wire_next(&g->reader, &f, err);
        if (rc < 0)
            return rc;
        if (rc == 1) {
            struct unpack u;
            unpack_init(&u, f.data, f.len);
            if (f.type == INIT_READY) {
                g->ready = true;
                g->listener = wire_frame_take_fd(&f, 0);
            } else if (f.type == INIT_FAILED) {
                return unpack_sandbox_error(&u, err);
            } else if (f.id == id && f.type == INIT_STARTED) {
                ret->started = true;
                ret->pid = unpack_u32(&u);
            } else if (f.id == id && f.type == INIT_EXITED) {
                unpack_sandbox_exit(&u, &ret->exit);
                ended = true;
            } else if (f.id == id && f.type == INIT_ERROR) {
                (void)unpack_sandbox_error(&u, &ret->err);
                ended = closed = true;
            }
            wire_frame_finish(&f);
            continue;
        }
        /* After its end the channel has no more to say, and may be closed by a final command. */
        struct pollfd p[2] = {{.fd = ended ? -1 : g->channel, .events = POLLIN},
                              {.fd = closed ? -1 : from, .events = POLLIN}};
        int64_t left = end - clock_mono_ms();
        /* A process that the command left behind may hold the pipe: its end is not waited for. */
        if (ended && left > 500)
            left = 500;
        int n = left <= 0 ? 0 : poll(p, 2, (int)left);
        if (n == 0 && ended)
            break;
        if (n == 0)
            return err_set(err, ERR_TIMEOUT, "the command did not end");
        if (p[1].revents) {
            char chunk[65536];
            ssize_t k = read(from, chunk, sizeof(chunk));
            if (k <= 0)
                closed = true;
            else
                (void)buf_add(&ret->out, chunk, (size_t)k);
        }
        if (p[0].revents && (rc = wire_recv(&g->reader, g->channel, err)) < 0)
            return rc;
    }
    return 0;
}

int guest_runv(struct guest *g, struct run *ret, struct err *err, ...) {
    struct sandbox_exec e = {0};
    va_list ap;
    va_start(ap, err);
    for (const char *s; (s = va_arg(ap, const char *));)
        sandbox_strv_add(&e.argv, s);
    va_end(ap);
    int rc = guest_run(g, &e, ret, err);
    sandbox_exec_finish(&e);
    return rc;
}

void run_finish(struct run *r) {
    buf_finish(&r->out);
}

int run_status(const struct run *r) {
    return !r->started ? -1 : (int)r->exit.code + (r->exit.signaled ? 128 : 0);
}

int guest_write(struct guest *g, const char *path, const void *data, size_t n, uint32_t mode,
                struct err *err) {
    struct buf b;
    buf_init(&b, SANDBOX_INIT_MAX);
    pack_str(&b, path);
    pack_u32(&b, mode);
    pack_u32(&b, SANDBOX_WRITE_PARENTS);
    struct wire_frame f;
    int rc, fds[2];
    if (n <= SANDBOX_INLINE_MAX) {
        pack_bytes(&b, data, n);
        rc = guest_call(g, INIT_FILE_WRITE, &b, NULL, 0, &f, err);
    } else {
        pack_bytes(&b, "", 0);
        if (pipe2(fds, O_CLOEXEC) < 0)
            return err_sys(err, "pipe");
        pid_t pid = fork();
        if (pid == 0) {
            close(fds[0]);
            _exit(fd_write_all(fds[1], data, n) < 0);
        }
        close(fds[1]);
        rc = guest_call(g, INIT_FILE_WRITE, &b, fds, 1, &f, err);
        close(fds[0]);
        (void)waitpid(pid, NULL, 0);
    }
    buf_finish(&b);
    if (rc == 0)
        wire_frame_finish(&f);
    return rc;
}

int guest_read_file(struct guest *g, const char *path, struct buf *out, struct err *err) {
    struct buf b;
    buf_init(&b, 8192);
    pack_str(&b, path);
    struct wire_frame f;
    int rc = guest_call(g, INIT_FILE_READ, &b, NULL, 0, &f, err);
    buf_finish(&b);
    if (rc < 0)
        return rc;
    _cleanup_(close) int fd = wire_frame_take_fd(&f, 0);
    char chunk[65536];
    ssize_t n;
    while ((n = read(fd, chunk, sizeof(chunk))) > 0)
        if (!buf_add(out, chunk, (size_t)n))
            return err_set(err, ERR_TOO_LARGE, "file too large");
    return n < 0 ? err_sys(err, "read") : 0;
}
