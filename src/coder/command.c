#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "coder/tools.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* A command is a shell in a session of its own. Whatever it leaves running is found again, since
 * orphans become our children (PR_SET_CHILD_SUBREAPER, main.c), and is ended with it: a step is
 * over when it is over. */

enum {
    HEAD_MAX = LIMIT_CODER_OUTPUT_BYTES / 2,
    TAIL_MAX = LIMIT_CODER_OUTPUT_BYTES / 2,
    TELL_BYTES = 4096, /* of output are told at once, */
    TELL_MS = 50,      /* or after that time */
    END_MS = 5000,     /* for what was killed to be gone */
};

struct command {
    struct tools *tools;
    int64_t step;
    pid_t pid;
    int pid_fd;
    int out_fd;
    struct buf head;
    size_t told; /* of the head */
    int64_t tell_ms;
    char tail[TAIL_MAX]; /* a ring */
    uint64_t total;
    bool open; /* the pipe */
};

/* --- output --- */

static void tell_text(struct command *c, const char *text, size_t len, uint64_t left_out) {
    json_t *fields =
        json_pack("{s:I,s:o}", "step", (json_int_t)c->step, "text", coder_shorten_text(text, len));
    if (left_out > 0)
        (void)json_object_set_new(fields, "left_out", json_integer((json_int_t)left_out));
    events_tell(c->tools->events, CODER_OUTPUT, fields);
}

/* What came of the head and was not told; a character that is not whole yet waits. */
static void coder_command_tell_head(struct command *c, bool last) {
    size_t n = c->head.len - c->told;
    const char *at = c->head.data + c->told;
    c->tell_ms = LIFE_NEVER;
    if (n == 0)
        return;
    for (size_t back = 1; !last && back <= 3 && back <= n; back++)
        if ((unsigned char)at[n - back] >= 0xc0) {
            n -= utf8_sequence(at + n - back, back) ? 0 : back;
            break;
        }
    if (n > 0)
        tell_text(c, at, n, 0);
    c->told += n;
}

static void coder_command_add_output(struct command *c, const char *data, size_t len) {
    size_t room = HEAD_MAX - c->head.len;
    size_t n = MIN(room, len);
    if (n > 0) {
        (void)buf_add(&c->head, data, n);
        if (c->tell_ms == LIFE_NEVER)
            c->tell_ms = clock_mono_ms() + TELL_MS;
        if (c->head.len - c->told >= TELL_BYTES || c->head.len == HEAD_MAX)
            coder_command_tell_head(c, false);
    }
    c->total += n;
    for (size_t i = n; i < len;) {
        size_t at = (size_t)((c->total - HEAD_MAX) % TAIL_MAX);
        size_t k = MIN(len - i, TAIL_MAX - at);
        memcpy(c->tail + at, data + i, k);
        c->total += k;
        i += k;
    }
}

/* Returns false at the end of the pipe, or if it has nothing now. */
static bool coder_command_read_output(struct command *c) {
    char chunk[65536];
    ssize_t n = read(c->out_fd, chunk, sizeof(chunk));
    if (n < 0)
        return errno == EINTR;
    if (n == 0) {
        c->open = false;
        return false;
    }
    coder_command_add_output(c, chunk, (size_t)n);
    return true;
}

static void coder_command_add_clean(struct buf *out, const char *text, size_t len) {
    for (size_t i = 0; i < len;) {
        size_t n = utf8_sequence(text + i, len - i);
        (void)buf_add(out, n ? text + i : "\xef\xbf\xbd", n ? n : 3);
        i += n ? n : 1;
    }
}

/* The whole of it for the model, and the end of it as an event. */
static void finish_output(struct command *c, struct buf *out) {
    coder_command_tell_head(c, true);
    coder_command_add_clean(out, c->head.data ? c->head.data : "", c->head.len);
    uint64_t rest = c->total - c->head.len;
    if (rest == 0)
        return;
    char tail[TAIL_MAX];
    size_t n = (size_t)MIN(rest, (uint64_t)TAIL_MAX);
    size_t from = rest > TAIL_MAX ? (size_t)(rest % TAIL_MAX) : 0;
    memcpy(tail, c->tail + from, n - from);
    memcpy(tail + n - from, c->tail, from);
    size_t skip = 0;
    while (rest > TAIL_MAX && skip < 3 && ((unsigned char)tail[skip] & 0xc0) == 0x80)
        skip++;
    uint64_t left_out = rest - n + skip;
    if (left_out > 0)
        (void)buf_addf(out, "\n[%llu bytes left out]\n", (unsigned long long)left_out);
    coder_command_add_clean(out, tail + skip, n - skip);
    tell_text(c, tail + skip, n - skip, left_out);
}

/* --- the process --- */

static _Noreturn void become_shell(const struct tools *t, const char *command, int out_fd,
                                   pid_t agent) {
    char *const argv[] = {(char[]){"sh"}, (char[]){"-c"}, (char *)(uintptr_t)command, NULL};
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    life_forget();
    (void)setsid();
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != agent)
        _exit(127); /* it died before that: nobody would tell us */
    if (null >= 0 && dup2(null, 0) >= 0 && dup2(out_fd, 1) >= 0 && dup2(out_fd, 2) >= 0 &&
        fchdir(t->dir.fd) == 0) {
        (void)syscall(SYS_close_range, 3U, ~0U, 0);
        (void)execve("/bin/sh", argv, environ);
    }
    static const char text[] = "cay-coder: /bin/sh could not be started\n";
    (void)!write(2, text, sizeof(text) - 1);
    _exit(127);
}

static int coder_command_start(struct command *c, const char *command, struct err *err) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(err, "pipe");
    c->out_fd = ends[0];
    _cleanup_(close) int out = ends[1];
    (void)fd_set_nonblock(c->out_fd, true);
    pid_t agent = getpid();
    c->pid = fork();
    if (c->pid < 0)
        return err_sys(err, "fork");
    if (c->pid == 0)
        become_shell(c->tools, command, out, agent);
    c->pid_fd = (int)syscall(SYS_pidfd_open, c->pid, 0);
    if (c->pid_fd < 0) {
        (void)err_sys(err, "pidfd_open");
        (void)kill(c->pid, SIGKILL);
        (void)waitpid(c->pid, NULL, 0);
        return -ERR_IO;
    }
    c->open = true;
    return 0;
}

/* Until the shell ends, its time or the run's is up. */
static enum life_wait coder_command_follow(struct command *c, int64_t until_ms) {
    for (;;) {
        struct pollfd fds[2] = {{.fd = c->open ? c->out_fd : -1, .events = POLLIN},
                                {.fd = c->pid_fd, .events = POLLIN}};
        enum life_wait w = life_wait(c->tools->life, fds, 2, MIN(until_ms, c->tell_ms));
        if (w == LIFE_PASSED && clock_mono_ms() < until_ms) {
            coder_command_tell_head(c, false);
            continue;
        }
        if (w != LIFE_READY)
            return w;
        /* First the shell: what it left in the background may write for ever. */
        if (fds[1].revents)
            return LIFE_READY;
        (void)coder_command_read_output(c);
    }
}

/* Our children: the orphans of the command, when its shell is gone. At most so many at a time. */
static size_t find_children(pid_t *pids, size_t max) {
    char text[4096];
    _cleanup_(close) int fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
    size_t n = 0;
    text[MAX(len, (ssize_t)0)] = 0;
    char *at = text;
    while (n < max && *at) {
        char *end;
        long pid = strtol(at, &end, 10);
        if (end == at || *end != ' ') /* the last may be cut */
            break;
        pids[n++] = (pid_t)pid;
        at = end + 1;
    }
    return n;
}

/* Kills one child and waits for it; true if it had to be killed. */
static bool end_child(pid_t pid, int64_t until_ms) {
    int status = 0;
    if (waitpid(pid, &status, WNOHANG) == pid)
        return false;
    _cleanup_(close) int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    (void)kill(pid, SIGKILL);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int64_t left = until_ms - clock_mono_ms();
    (void)poll(&p, 1, (int)MAX(left, (int64_t)0));
    return waitpid(pid, &status, WNOHANG) == pid;
}

/* What the command left behind: whatever of it is found, each of which gives us its children when
 * it dies, until there are none. The shell is dead and not waited for yet, so that its number,
 * which is its group's too, is nobody else's. */
static unsigned coder_command_sweep(pid_t shell) {
    unsigned ended = 0;
    int64_t until = clock_mono_ms() + END_MS;
    pid_t pids[256];
    size_t n;
    (void)kill(-shell, SIGSTOP); /* none of the group forks while they are counted */
    while ((n = find_children(pids, ARRAY_LEN(pids))) > 0 && clock_mono_ms() < until) {
        if (n == 1 && pids[0] == shell)
            break;
        for (size_t i = 0; i < n; i++)
            ended += pids[i] != shell && end_child(pids[i], until);
    }
    (void)kill(-shell, SIGKILL); /* all that is done where there is no /proc */
    return ended;
}

static void coder_command_finish(struct command *c, enum life_wait how, struct coder_result *ret) {
    int status = 0;
    if (how != LIFE_READY) {
        struct pollfd p = {.fd = c->pid_fd, .events = POLLIN};
        (void)kill(-c->pid, SIGKILL);
        (void)kill(c->pid, SIGKILL); /* it may not have come to its own session yet */
        (void)poll(&p, 1, END_MS);
    }
    ret->ended = coder_command_sweep(c->pid);
    (void)waitpid(c->pid, &status, WNOHANG);
    int64_t until = clock_mono_ms() + END_MS;
    while (c->open && clock_mono_ms() < until && coder_command_read_output(c))
        ;
    finish_output(c, &ret->output);
    ret->told = ret->exited = true;
    ret->timed_out = how == LIFE_PASSED;
    ret->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    ret->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    ret->ok = how == LIFE_READY && ret->exit_code == 0;
}

static int coder_command_read_args(const struct tools *t, const json_t *args,
                                   const char **ret_command, int64_t *ret_timeout_ms,
                                   struct err *err) {
    static const char *const keys[] = {"command", "timeout_ms", NULL};
    int64_t timeout_ms = t->command_timeout_ms;
    const char *command = NULL;
    int rc = json_check_keys(args, "args of run_command", keys, err);
    if (rc == 0)
        rc = json_get_str(args, "command", &command, err);
    if (rc == 0 && (!command || !*command))
        rc = err_set(err, ERR_BAD_REQUEST, "\"command\" is missing");
    if (rc == 0)
        rc = json_get_int(args, "timeout_ms", 1, t->command_timeout_ms, &timeout_ms, err);
    if (rc < 0)
        return rc;
    *ret_command = command;
    *ret_timeout_ms = timeout_ms;
    return 0;
}

int tool_run_command(struct tools *t, int64_t step, const json_t *args, struct coder_result *ret,
                     struct err *err) {
    const char *text = NULL;
    int64_t timeout_ms = 0;
    if (coder_command_read_args(t, args, &text, &timeout_ms, &ret->error) < 0)
        return 0;
    struct command *c = xcalloc(1, sizeof(*c));
    c->tools = t;
    c->step = step;
    c->pid_fd = c->out_fd = -1;
    c->tell_ms = LIFE_NEVER;
    buf_init(&c->head, HEAD_MAX);
    int rc = 0;
    if (coder_command_start(c, text, &ret->error) == 0) {
        enum life_wait how = coder_command_follow(c, clock_mono_ms() + timeout_ms);
        coder_command_finish(c, how, ret);
        if (how == LIFE_CANCELLED)
            rc = err_set(err, ERR_CANCELLED, "cancelled while a command ran, which was ended");
        else if (how == LIFE_TIMEOUT)
            rc = err_set(err, ERR_TIMEOUT, "the run's time was up while a command ran");
    }
    fd_close(&c->pid_fd);
    fd_close(&c->out_fd);
    buf_finish(&c->head);
    free(c);
    return rc;
}
