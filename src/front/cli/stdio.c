#include "front/cli/stdio.h"

#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

enum { CHUNK = 64 * 1024, PENDING_MAX = 4 << 20 };

struct end {
    bool pollable; /* else it is a file, which is always ready */
    bool armed;
    bool closed;
    struct buf pending; /* of 1 and 2 */
};

struct stdio {
    struct stdio_callbacks callbacks;
    void *ctx;
    int epoll;
    uv_poll_t poll;
    uv_idle_t idle; /* reads a file */
    int handles;
    bool reading;
    bool told_end;
    bool destroyed;
    struct end ends[3];
    bool raw;
    struct termios before;
};

static void stdio_arm(struct stdio *s, int fd, bool on) {
    struct end *e = &s->ends[fd];
    struct epoll_event ev = {.events = !on ? 0U : fd == 0 ? EPOLLIN : EPOLLOUT, .data.fd = fd};
    if (!e->pollable || e->armed == on)
        return;
    e->armed = on;
    /* Out of the set while it is not wanted: a hung-up peer would be told for ever. */
    (void)epoll_ctl(s->epoll, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fd, &ev);
}

/* --- input --- */

static void stdio_read_input(struct stdio *s) {
    static char chunk[CHUNK];
    ssize_t n = read(STDIN_FILENO, chunk, sizeof(chunk));
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) {
        stdio_read(s, false);
        s->told_end = true;
        s->callbacks.on_input(s->ctx, "", 0);
        return;
    }
    s->callbacks.on_input(s->ctx, chunk, (size_t)n);
}

static void stdio_on_idle(uv_idle_t *h) {
    stdio_read_input(h->data);
}

void stdio_read(struct stdio *s, bool on) {
    on = on && !s->told_end;
    if (s->reading == on)
        return;
    s->reading = on;
    if (s->ends[0].pollable)
        stdio_arm(s, STDIN_FILENO, on);
    else if (on)
        (void)uv_idle_start(&s->idle, stdio_on_idle);
    else
        (void)uv_idle_stop(&s->idle);
}

/* --- output --- */

static bool is_ready(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    return poll(&p, 1, 0) == 1;
}

static void close_end(struct stdio *s, int fd) {
    s->ends[fd].closed = true;
    buf_clear(&s->ends[fd].pending);
    stdio_arm(s, fd, false);
    s->callbacks.on_closed(s->ctx, fd);
}

/* How much went out; it never waits: a pipe that is ready takes PIPE_BUF bytes at once. */
static size_t stdio_write_some(struct stdio *s, int fd, const char *data, size_t len) {
    const struct end *e = &s->ends[fd];
    size_t done = 0;
    while (done < len && (!e->pollable || is_ready(fd))) {
        size_t n = e->pollable && len - done > 4096 ? 4096 : len - done;
        ssize_t k = write(fd, data + done, n);
        if (k < 0 && (errno == EINTR || errno == EAGAIN))
            break;
        if (k < 0) {
            if (errno != EPIPE &&
                fd == STDOUT_FILENO) /* a full disk; not one that has seen enough */
                (void)fprintf(stderr, "cay: standard output could not be written: %s\n",
                              strerror(errno));
            close_end(s, fd);
            return len;
        }
        done += (size_t)k;
    }
    return done;
}

bool stdio_write(struct stdio *s, int fd, const char *data, size_t len) {
    struct end *e = &s->ends[fd];
    size_t done = e->closed ? len : e->pending.len > 0 ? 0 : stdio_write_some(s, fd, data, len);
    if (done < len && !e->closed) {
        (void)buf_add(&e->pending, data + done, len - done);
        stdio_arm(s, fd, true);
    }
    return stdio_is_drained(s);
}

bool stdio_is_drained(const struct stdio *s) {
    return s->ends[1].pending.len == 0 && s->ends[2].pending.len == 0;
}

static void stdio_flush(struct stdio *s, int fd) {
    struct end *e = &s->ends[fd];
    size_t done = stdio_write_some(s, fd, e->pending.data, e->pending.len);
    if (e->closed)
        return;
    buf_consume(&e->pending, done);
    if (e->pending.len == 0)
        stdio_arm(s, fd, false);
}

static void stdio_on_poll(uv_poll_t *p, int status, int events) {
    struct stdio *s = p->data;
    struct epoll_event ev[3];
    (void)status;
    (void)events;
    int n = epoll_wait(s->epoll, ev, 3, 0);
    bool was_full = !stdio_is_drained(s);
    for (int i = 0; i < n && !s->destroyed; i++) {
        if (ev[i].data.fd == STDIN_FILENO && s->reading)
            stdio_read_input(s);
        else if (ev[i].data.fd != STDIN_FILENO)
            stdio_flush(s, ev[i].data.fd);
    }
    if (was_full && !s->destroyed && stdio_is_drained(s))
        s->callbacks.on_drained(s->ctx);
}

/* --- the terminal --- */

void stdio_raw(struct stdio *s) {
    struct termios t;
    if (s->raw || tcgetattr(STDIN_FILENO, &s->before) < 0)
        return;
    t = s->before;
    cfmakeraw(&t);
    s->raw = tcsetattr(STDIN_FILENO, TCSADRAIN, &t) == 0;
}

bool stdio_size(uint32_t *ret_cols, uint32_t *ret_rows) {
    struct winsize w;
    *ret_cols = 80;
    *ret_rows = 24;
    if (ioctl(STDIN_FILENO, TIOCGWINSZ, &w) < 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) < 0)
        return false;
    if (w.ws_col == 0 || w.ws_row == 0)
        return false;
    *ret_cols = w.ws_col;
    *ret_rows = w.ws_row;
    return true;
}

/* --- life --- */

struct stdio *stdio_create(uv_loop_t *loop, const struct stdio_callbacks *callbacks, void *ctx) {
    struct stdio *s = xcalloc(1, sizeof(*s));
    s->callbacks = *callbacks;
    s->ctx = ctx;
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    for (int fd = 0; fd < 3; fd++) {
        struct epoll_event ev = {.events = 0, .data.fd = fd};
        struct end *e = &s->ends[fd];
        buf_init(&e->pending, PENDING_MAX);
        e->pollable = epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &ev) == 0;
        if (e->pollable)
            (void)epoll_ctl(s->epoll, EPOLL_CTL_DEL, fd, &ev);
    }
    (void)uv_poll_init(loop, &s->poll, s->epoll);
    (void)uv_idle_init(loop, &s->idle);
    s->poll.data = s->idle.data = s;
    s->handles = 2;
    (void)uv_poll_start(&s->poll, UV_READABLE, stdio_on_poll);
    return s;
}

static void stdio_on_handle_closed(uv_handle_t *h) {
    struct stdio *s = h->data;
    if (--s->handles > 0)
        return;
    fd_close(&s->epoll);
    for (int fd = 0; fd < 3; fd++)
        buf_finish(&s->ends[fd].pending);
    free(s);
}

void stdio_destroy(struct stdio *s) {
    if (!s || s->destroyed)
        return;
    s->destroyed = true;
    if (s->raw)
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &s->before);
    uv_close((uv_handle_t *)&s->poll, stdio_on_handle_closed);
    uv_close((uv_handle_t *)&s->idle, stdio_on_handle_closed);
}
