#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/sm.h"
#include "front/sandbox/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>

/* One command and its streams. A terminal is one descriptor, in the place of standard output, that
 * is read and written. When the command has ended, what its pipes hold at that moment is read, and
 * nothing after it: a process that it left behind may hold them open for ever. Those are then
 * emptied in silence, so that such a process does not die of a broken pipe. */

enum {
    LEFT_MAX = 64,
    CHUNK = 64 * 1024,
    SPLICE_BYTES = 1 << 20,
    TERMINAL_WAIT_MS = 200,
    DRAIN_READS = 64
};

enum command_state {
    COMMAND_ASKED, /* init was told of it */
    COMMAND_RUNNING,
    COMMAND_ENDED, /* the outcome is known, the rest of its output is read */
    COMMAND_TOLD,  /* so does its owner; what others write to its pipes is thrown away */
};

static const struct sm_state states[] = {
    [COMMAND_ASKED] = {"asked", SM_TO(COMMAND_RUNNING) | SM_TO(COMMAND_ENDED)},
    [COMMAND_RUNNING] = {"running", SM_TO(COMMAND_ENDED)},
    [COMMAND_ENDED] = {"ended", SM_TO(COMMAND_TOLD)},
    [COMMAND_TOLD] = {"told", 0},
};
static const struct sm command_sm = {"command", states, ARRAY_LEN(states)};

struct stream {
    struct sandbox_command *command;
    uv_loop_t *loop;
    uv_poll_t poll;
    int fd;
    int events; /* that are polled for */
    bool open;
    bool watched; /* the handle is in use */
    bool last;    /* only `left` more bytes are wanted */
    bool discard;
    size_t left;
    uint64_t discarded;
};

struct sandbox_command {
    struct sandbox_command *next;
    struct sandbox_box *box;     /* NULL when it is not in its list of running ones any more */
    struct sandbox_box *left_in; /* the box that it is in the list of ended ones of, or NULL */
    uint64_t id;
    struct sandbox_command_callbacks callbacks;
    void *ctx;
    struct stream streams[3]; /* input, output (or terminal), errors */
    enum command_state state;
    uv_timer_t timer;
    struct buf input;
    int64_t start_by_ms;
    bool input_ends;
    bool tty;
    struct winsize size; /* asked for before the terminal was there; no columns: nobody did */
    bool brief;          /* its output is not looked at before its start is known */
    bool paused;
    bool busy; /* inside a callback */
    int handles;
    struct sandbox_exit exit;
    struct err err; /* of one that has no exit */
};

static void command_move(struct sandbox_command *c, enum command_state to) {
    c->state = (enum command_state)sm_next(&command_sm, c->state, to);
}

static void sandbox_command_update(struct stream *s);
static void sandbox_command_settle(struct sandbox_command *c);

uint64_t sandbox_command_id(const struct sandbox_command *c) {
    return c->id;
}

struct sandbox_command *command_next(const struct sandbox_command *c) {
    return c->next;
}

int64_t command_start_by_ms(const struct sandbox_command *c) {
    return c->state == COMMAND_ASKED ? c->start_by_ms : 0;
}

void command_set_start_by_ms(struct sandbox_command *c, int64_t by_ms) {
    c->start_by_ms = by_ms;
}

static void sandbox_command_release(struct sandbox_command *c) {
    if (c->handles > 0 || c->state != COMMAND_TOLD || c->busy)
        return;
    if (c->left_in) {
        struct sandbox_command **at = box_left(c->left_in);
        while (*at != c)
            at = &(*at)->next;
        *at = c->next;
    }
    for (int i = 0; i < 3; i++)
        fd_close(&c->streams[i].fd);
    buf_finish(&c->input);
    free(c);
}

static void sandbox_command_on_stream_closed(uv_handle_t *h) {
    struct stream *s = h->data;
    fd_close(&s->fd);
    s->command->handles--;
    sandbox_command_release(s->command);
}

static void close_stream(struct stream *s) {
    if (!s->watched) {
        s->open = false;
        fd_close(&s->fd);
        return;
    }
    if (!s->open)
        return;
    s->open = false;
    (void)uv_poll_stop(&s->poll);
    uv_close((uv_handle_t *)&s->poll, sandbox_command_on_stream_closed);
}

static void sandbox_command_on_timer_closed(uv_handle_t *h) {
    struct sandbox_command *c = h->data;
    c->handles--;
    sandbox_command_release(c);
}

/* --- input --- */

static struct stream *input_stream(struct sandbox_command *c) {
    return &c->streams[c->tty ? 1 : 0];
}

static void flush_input(struct sandbox_command *c) {
    struct stream *s = input_stream(c);
    while (c->input.len > 0 && s->open) {
        if (c->tty)
            (void)fd_set_nonblock(s->fd, true); /* as in sandbox_command_read_output() */
        ssize_t n = write(s->fd, c->input.data, c->input.len);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (n < 0) { /* nobody reads it any more */
            buf_clear(&c->input);
            if (!c->tty)
                close_stream(s);
            break;
        }
        buf_consume(&c->input, (size_t)n);
    }
    if (c->input.len > 0)
        return;
    if (c->input_ends && !c->tty)
        close_stream(s);
    if (c->callbacks.on_input_drained && c->state != COMMAND_TOLD)
        c->callbacks.on_input_drained(c->ctx);
}

bool sandbox_command_write(struct sandbox_command *c, const void *data, size_t len) {
    if (c->input_ends || c->state >= COMMAND_ENDED || !(c->tty || c->streams[0].open))
        return true; /* goes where the input of a command that does not read goes */
    if (!buf_add(&c->input, data, len)) {
        c->input.full = false;
        return false;
    }
    sandbox_command_update(input_stream(c));
    return true;
}

size_t sandbox_command_input_queued(const struct sandbox_command *c) {
    return c->input.len;
}

void sandbox_command_end_input(struct sandbox_command *c) {
    if (c->input_ends)
        return;
    if (c->tty) {
        (void)sandbox_command_write(c, "\x04", 1);
        return;
    }
    c->input_ends = true;
    if (c->input.len == 0)
        close_stream(&c->streams[0]);
}

bool sandbox_command_resize(struct sandbox_command *c, uint32_t cols, uint32_t rows) {
    struct winsize w = {.ws_col = (unsigned short)cols, .ws_row = (unsigned short)rows};
    if (c->tty && c->state == COMMAND_ASKED) {
        c->size = w;
        return true;
    }
    return c->tty && c->streams[1].open && ioctl(c->streams[1].fd, TIOCSWINSZ, &w) == 0;
}

bool sandbox_command_is_terminal(const struct sandbox_command *c) {
    return c->tty;
}

/* --- output --- */

static int null_fd(void) {
    static int fd = -1;
    if (fd < 0)
        fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    return fd;
}

/* Empties the pipe without looking at it. */
static ssize_t drop_output(struct stream *s, size_t max) {
    if (!s->command->tty) {
        ssize_t n =
            splice(s->fd, NULL, null_fd(), NULL, MIN(max, (size_t)SPLICE_BYTES), SPLICE_F_NONBLOCK);
        if (n >= 0 || errno != EINVAL)
            return n;
    }
    char chunk[4096];
    return read(s->fd, chunk, MIN(max, sizeof(chunk)));
}

/* False at the end of the stream. */
static bool sandbox_command_read_output(struct stream *s) {
    struct sandbox_command *c = s->command;
    static char chunk[CHUNK]; /* one loop thread; the callee copies what it keeps */
    size_t want = s->last ? s->left : CHUNK;
    bool drop = s->discard || c->state == COMMAND_TOLD || !c->callbacks.on_output;
    if (want == 0)
        return false;
    if (c->tty)
        (void)fd_set_nonblock(s->fd, true); /* init has the same open file, and could clear it */
    ssize_t n = drop ? drop_output(s, s->last ? s->left : (size_t)SPLICE_BYTES)
                     : read(s->fd, chunk, MIN(want, sizeof(chunk)));
    if (n < 0 && errno == EAGAIN && s->last)
        s->left = 0; /* somebody inside has read it, who may open a pipe he has an end of */
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (n <= 0)
        return false; /* a terminal without a slave says EIO */
    if (s->last)
        s->left -= (size_t)n;
    if (drop) {
        s->discarded += (uint64_t)n;
        return true;
    }
    c->busy = true;
    c->callbacks.on_output(c->ctx, s == &c->streams[2] ? 2 : 1, chunk, (size_t)n);
    c->busy = false;
    return true;
}

static void sandbox_command_on_poll(uv_poll_t *p, int status, int events) {
    struct stream *s = p->data;
    struct sandbox_command *c = s->command;
    if (status < 0)
        events = s->events;
    if (s == input_stream(c) && (events & UV_WRITABLE)) {
        flush_input(c);
        if (!s->open)
            return;
    }
    if (s != &c->streams[0] && (events & (UV_READABLE | UV_DISCONNECT)) &&
        !sandbox_command_read_output(s))
        close_stream(s);
    if (s->open)
        sandbox_command_update(s);
    sandbox_command_settle(c);
}

static bool sandbox_command_watch(struct stream *s) {
    if (s->watched)
        return true;
    if (uv_poll_init(s->loop, &s->poll, s->fd) < 0) {
        close_stream(s);
        return false;
    }
    s->poll.data = s;
    s->watched = true;
    s->command->handles++;
    return true;
}

static void sandbox_command_update(struct stream *s) {
    struct sandbox_command *c = s->command;
    if (!s->open)
        return;
    int events = 0;
    if (s != &c->streams[0] && !c->paused && !(c->brief && c->state == COMMAND_ASKED))
        events |= UV_READABLE;
    if (s == input_stream(c) && c->input.len > 0)
        events |= UV_WRITABLE;
    if (events == s->events || !sandbox_command_watch(s))
        return;
    s->events = events;
    if (events)
        (void)uv_poll_start(&s->poll, events, sandbox_command_on_poll);
    else
        (void)uv_poll_stop(&s->poll);
}

static void sandbox_command_on_rest(uv_timer_t *t);

void sandbox_command_pause(struct sandbox_command *c, bool paused) {
    c->paused = paused;
    if (!paused && !c->tty && c->state == COMMAND_ENDED)
        (void)uv_timer_start(&c->timer, sandbox_command_on_rest, 0,
                             0); /* not from within the caller's call */
    sandbox_command_update(&c->streams[1]);
    sandbox_command_update(&c->streams[2]);
}

void sandbox_command_discard(struct sandbox_command *c, int stream) {
    c->streams[stream].discard = true;
}

uint64_t sandbox_command_discarded(const struct sandbox_command *c, int stream) {
    return c->streams[stream].discarded;
}

/* --- the end --- */

static void unlink_command(struct sandbox_command *c) {
    if (!c->box)
        return;
    struct sandbox_command **at = box_commands(c->box);
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    c->left_in = c->box;
    c->next = *box_left(c->left_in);
    *box_left(c->left_in) = c;
    c->box = NULL;
}

/* A guest that leaves processes behind with every command is not given pipes without end. */
static bool too_many_left(const struct sandbox_command *c) {
    size_t n = 0;
    for (const struct sandbox_command *o = c->left_in ? *box_left(c->left_in) : NULL; o;
         o = o->next)
        n++;
    return n > LEFT_MAX;
}

/* Tells the outcome when the last output was read. */
static void sandbox_command_settle(struct sandbox_command *c) {
    if (c->state != COMMAND_ENDED || c->busy)
        return;
    for (int i = 1; i < 3; i++) {
        const struct stream *s = &c->streams[i];
        if (s->open && !(s->last && s->left == 0))
            return;
    }
    command_move(c, COMMAND_TOLD);
    uv_close((uv_handle_t *)&c->timer, sandbox_command_on_timer_closed);
    close_stream(&c->streams[0]);
    if (c->tty || too_many_left(c)) {
        close_stream(&c->streams[1]);
        close_stream(&c->streams[2]);
    }
    for (int i = 1; i < 3; i++) {
        c->streams[i].last = false; /* from here on in silence */
        c->paused = false;
        sandbox_command_update(&c->streams[i]);
    }
    c->busy = true;
    if (c->callbacks.on_exit)
        c->callbacks.on_exit(c->ctx, c->err.code ? NULL : &c->exit, c->err.code ? &c->err : NULL);
    c->busy = false;
    sandbox_command_release(c);
}

/* What a pipe holds now is the rest. */
static void bound_rest(struct stream *s) {
    int n = 0;
    if (!s->open)
        return;
    s->last = true;
    s->left = ioctl(s->fd, FIONREAD, &n) == 0 && n > 0 ? (size_t)n : 0;
}

static void sandbox_command_on_terminal_late(uv_timer_t *t) {
    struct sandbox_command *c = t->data;
    close_stream(&c->streams[1]);
    sandbox_command_settle(c);
}

/* At once, not when the loop says that there is some: somebody who was left behind may read it
 * first, and then it never would. What such a one writes next is to be thrown away: if nobody is
 * there, there is no more to wait for. */
static void read_rest(struct stream *s) {
    while (s->open && s->left > 0 && !s->command->paused)
        if (!sandbox_command_read_output(s))
            close_stream(s);
    if (s->open && s->left == 0 && drop_output(s, CHUNK) == 0)
        close_stream(s);
    sandbox_command_update(s);
}

static void sandbox_command_on_rest(uv_timer_t *t) {
    struct sandbox_command *c = t->data;
    read_rest(&c->streams[1]);
    read_rest(&c->streams[2]);
    sandbox_command_settle(c);
}

/* The outcome is known. A terminal hands on with a delay; it
 * says itself when there is no more, unless somebody who was left behind still has it open. */
static void sandbox_command_finish(struct sandbox_command *c) {
    unlink_command(c);
    command_move(c, COMMAND_ENDED);
    for (int i = 1; i < 3; i++) {
        if (!c->tty)
            bound_rest(&c->streams[i]);
        else if (c->streams[i].open)
            (void)uv_timer_start(&c->timer, sandbox_command_on_terminal_late, TERMINAL_WAIT_MS, 0);
    }
    for (int i = 1; i < 3 && !c->tty; i++)
        read_rest(&c->streams[i]);
    sandbox_command_settle(c);
}

/* What is left is read at once, also from one that is paused: whoever hears of the end of the
 * sandbox next may not be there any more afterwards. */
static void sandbox_command_drain(struct stream *s) {
    for (int i = 0; i < DRAIN_READS && s->open && !(s->last && s->left == 0); i++) {
        struct pollfd p = {.fd = s->fd, .events = POLLIN};
        if (poll(&p, 1, 0) <= 0)
            break;
        if (!sandbox_command_read_output(s))
            close_stream(s);
    }
    close_stream(s);
}

void command_box_gone(struct sandbox_command *c) {
    c->left_in = NULL;
    c->next = NULL;
    if (c->state == COMMAND_TOLD)
        return;
    sandbox_command_drain(&c->streams[1]);
    sandbox_command_drain(&c->streams[2]);
    sandbox_command_settle(c);
}

void command_lost(struct sandbox_command *c, const struct err *err) {
    c->err = *err;
    unlink_command(c);
    for (int i = 1; i < 3; i++) {
        if (!c->tty)
            bound_rest(&c->streams[i]);
        sandbox_command_drain(&c->streams[i]);
    }
    command_move(c, COMMAND_ENDED);
    sandbox_command_settle(c);
}

/* --- the beginning --- */

static void sandbox_command_open_stream(struct sandbox_command *c, int which, int fd) {
    struct stream *s = &c->streams[which];
    s->fd = fd;
    s->loop = box_loop(c->box);
    s->open = true;
    (void)fd_set_nonblock(fd, true);
    sandbox_command_update(s);
}

static void sandbox_command_tell_started(struct sandbox_command *c) {
    c->busy = true;
    if (c->callbacks.on_started)
        c->callbacks.on_started(c->ctx);
    c->busy = false;
}

static const char *sandbox_command_on_started(struct sandbox_command *c, struct wire_frame *f,
                                              struct unpack *u) {
    unsigned number;
    (void)unpack_u32(u);
    if (c->state != COMMAND_ASKED || !unpack_ok(u) || f->nfds != (c->tty ? 1 : 0))
        return "a start that is none";
    int fd = wire_frame_take_fd(f, 0);
    if (c->tty && ioctl(fd, TIOCGPTN, &number) < 0) {
        fd_close(&fd);
        return "a terminal that is none";
    }
    command_move(c, COMMAND_RUNNING);
    if (c->tty) {
        if (c->size.ws_col > 0)
            (void)ioctl(fd, TIOCSWINSZ, &c->size);
        sandbox_command_open_stream(c, 1, fd);
    }
    for (int i = 1; i < 3; i++)
        sandbox_command_update(&c->streams[i]);
    sandbox_command_tell_started(c);
    return NULL;
}

const char *command_frame(struct sandbox_command *c, struct wire_frame *f) {
    struct unpack u;
    unpack_init(&u, f->data, f->len);
    if (f->type == INIT_STARTED)
        return sandbox_command_on_started(c, f, &u);
    if (f->nfds > 0)
        return "a descriptor that nobody asked for";
    if (f->type == INIT_EXITED &&
        (c->state == COMMAND_RUNNING || (c->state == COMMAND_ASKED && c->brief))) {
        unpack_sandbox_exit(&u, &c->exit);
        if (!unpack_ok(&u) || c->exit.code > 255)
            return "an exit that is none";
        if (c->state == COMMAND_ASKED) {
            command_move(c, COMMAND_RUNNING);
            sandbox_command_tell_started(c);
        }
        sandbox_command_finish(c);
        return NULL;
    }
    if (f->type == INIT_ERROR && c->state == COMMAND_ASKED) {
        (void)unpack_sandbox_error(&u, &c->err);
        sandbox_command_finish(c);
        return NULL;
    }
    return "a message out of turn";
}

/* What the command gets (theirs) and what stays here (ours). */
struct pipes {
    int ours[3];
    int theirs[3];
};

static int make_pipe(struct pipes *p, int which, struct err *err) {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_sys(err, "pipe");
    /* The guest has another user than the front where the launcher is root's, and would not be
     * let in when it opens /dev/stdout. A pipe has no name but in the /proc of who holds it. */
    (void)fchmod(fds[0], 0666);
    p->ours[which] = fds[which == 0 ? 1 : 0];
    p->theirs[which] = fds[which == 0 ? 0 : 1];
    return 0;
}

static int make_request(struct sandbox_command *c, const struct sandbox_command_options *o,
                        struct pipes *p, struct buf *out, struct err *err) {
    if (!o->exec) {
        int which = o->archive == INIT_TAR_IN ? 0 : 1;
        int rc = o->fd < 0 ? make_pipe(p, which, err) : 0;
        if (o->fd >= 0 && (p->theirs[which] = fcntl(o->fd, F_DUPFD_CLOEXEC, 3)) < 0)
            rc = err_sys(err, "archive");
        if (rc == 0)
            rc = make_pipe(p, 2, err);
        if (rc < 0)
            return rc;
        if (o->archive != INIT_SNAPSHOT)
            pack_str(out, o->dir);
        struct sandbox_strv none = {0};
        if (o->archive == INIT_TAR_OUT)
            pack_strv(out, o->paths ? o->paths : &none);
        return 0;
    }
    struct sandbox_exec e = *o->exec;
    int rc = 0;
    e.in = e.out = e.err = SANDBOX_STREAM_NULL;
    e.brief = c->brief;
    if (!c->tty) {
        e.out = e.err = SANDBOX_STREAM_FD;
        rc = make_pipe(p, 1, err);
        if (rc == 0)
            rc = make_pipe(p, 2, err);
        if (rc == 0 && o->input) {
            e.in = SANDBOX_STREAM_FD;
            rc = make_pipe(p, 0, err);
        }
    }
    pack_sandbox_exec(out, &e);
    return rc;
}

struct sandbox_command *sandbox_command_start(struct sandbox_box *b,
                                              const struct sandbox_command_options *o,
                                              struct err *err) {
    struct sandbox_command *c = xcalloc(1, sizeof(*c));
    struct pipes p = {{-1, -1, -1}, {-1, -1, -1}};
    _cleanup_(buf) struct buf payload;
    buf_init(&payload, SANDBOX_INIT_MAX);
    c->box = b;
    c->id = box_next_id(b);
    c->tty = o->exec && o->exec->tty;
    c->brief = o->exec && o->brief && !c->tty;
    c->callbacks = o->callbacks;
    c->ctx = o->ctx;
    buf_init(&c->input, SANDBOX_INPUT_MAX);
    for (int i = 0; i < 3; i++) {
        c->streams[i].command = c;
        c->streams[i].fd = -1;
    }
    int rc = make_request(c, o, &p, &payload, err);
    if (rc == 0) {
        int fds[3];
        size_t n = 0;
        for (int i = 0; i < 3; i++)
            if (p.theirs[i] >= 0)
                fds[n++] = p.theirs[i];
        if (payload.full)
            rc = err_set(err, ERR_TOO_LARGE, "the command does not fit into a message of %d bytes",
                         SANDBOX_INIT_MAX);
        else if (!box_send(b, o->exec ? INIT_EXEC : o->archive, c->id, &payload, fds, n))
            rc = err_set(err, ERR_UNAVAILABLE, "the sandbox takes no commands now");
    }
    for (int i = 0; i < 3; i++)
        fd_close(&p.theirs[i]);
    if (rc < 0) {
        for (int i = 0; i < 3; i++)
            fd_close(&p.ours[i]);
        buf_finish(&c->input);
        free(c);
        return NULL;
    }
    c->next = *box_commands(b);
    *box_commands(b) = c;
    c->start_by_ms = box_answer_by_ms(b, false);
    (void)uv_timer_init(box_loop(b), &c->timer);
    c->timer.data = c;
    c->handles = 1;
    for (int i = 0; i < 3; i++)
        if (p.ours[i] >= 0)
            sandbox_command_open_stream(c, i, p.ours[i]);
    return c;
}
