#include "loop/child.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "loop/exec.h"
#include "loop/spawner.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 8192 };

struct child {
    char *name;
    pid_t pid;
    int pidfd;
    uv_poll_t exit_poll;
    uv_pipe_t log_pipe;
    struct buf line;
    int handles;
    bool exited;
    bool abandoned;
    bool log_closed;
    void (*on_exit)(void *ctx, int wait_status, const struct rusage *usage);
    void *ctx;
};

/* Between vfork and exec the new process is in our memory. */
static pid_t vfork_plan(const struct exec_plan *p) {
    sigset_t all;
    sigset_t old;
    sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, &old);
    pid_t pid = vfork(); // NOLINT(clang-analyzer-security.insecureAPI.vfork)
    if (pid == 0)
        exec_plan_run(p); // NOLINT(clang-analyzer-unix.Vfork): system calls only, and no return
    int saved = errno;
    (void)sigprocmask(SIG_SETMASK, &old, NULL);
    errno = saved;
    return pid;
}

static int child_start(uv_loop_t *loop, const struct exec_plan *p, pid_t *ret_pid,
                       struct err *err) {
    struct spawner *spawner = spawner_of(loop);
    if (spawner)
        return spawner_spawn(spawner, p, ret_pid, err);
    pid_t pid = vfork_plan(p);
    if (pid < 0)
        return err_sys(err, "vfork");
    *ret_pid = pid;
    return 0;
}

static void child_on_handle_closed(uv_handle_t *h) {
    struct child *c = h->data;
    if (--c->handles > 0)
        return;
    fd_close(&c->pidfd);
    buf_finish(&c->line);
    free(c->name);
    free(c);
}

/* A line of one of our programs is a JSON record: it keeps its level and event and gets the
 * program's name. Any other line is shown as text. */
static void child_log_line(const struct child *c, const char *line, size_t len) {
    if (len == 0)
        return;
    _cleanup_(json) json_t *j = line[0] == '{' ? json_read(line, len) : NULL;
    const char *event = json_string_value(json_object_get(j, "event"));
    const char *level_text = json_string_value(json_object_get(j, "level"));
    enum log_level level = LOG_LEVEL_INFO;
    if (!event || !level_text || !log_level_parse(level_text, &level) || level == LOG_LEVEL_OFF) {
        log_info("child.stderr", "child", c->name, "text", line);
        return;
    }
    struct log_field fields[12] = {log_field_text("child", c->name)};
    size_t n = 1;
    const char *key;
    json_t *v;
    json_object_foreach(j, key, v) {
        if (n == ARRAY_LEN(fields) || !strcmp(key, "event") || !strcmp(key, "level") ||
            !strcmp(key, "time") || !strcmp(key, "program"))
            continue;
        if (json_is_string(v))
            fields[n++] = log_field_text(key, json_string_value(v));
        else if (json_is_integer(v))
            fields[n++] = log_field_int(key, json_integer_value(v));
        else if (json_is_boolean(v))
            fields[n++] = log_field_bool(key, json_is_true(v));
    }
    log_write(level, event, fields, n);
}

static void child_on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *out) {
    (void)h;
    (void)hint;
    static char space[16384];
    *out = uv_buf_init(space, sizeof(space));
}

static void close_log(struct child *c) {
    if (c->log_closed)
        return;
    c->log_closed = true;
    uv_close((uv_handle_t *)&c->log_pipe, child_on_handle_closed);
}

static void child_on_log(uv_stream_t *s, ssize_t n, const uv_buf_t *b) {
    struct child *c = s->data;
    if (n < 0) {
        child_log_line(c, c->line.data ? c->line.data : "", c->line.len);
        close_log(c);
        return;
    }
    for (ssize_t i = 0; i < n; i++) {
        if (b->base[i] == '\n') {
            child_log_line(c, c->line.data ? c->line.data : "", c->line.len);
            buf_clear(&c->line);
        } else {
            (void)buf_add_char(&c->line, b->base[i]); /* what passes the bound is left out */
        }
    }
}

static void child_on_exit_poll(uv_poll_t *p, int status, int events) {
    (void)status;
    (void)events;
    struct child *c = p->data;
    int st = 0;
    struct rusage usage = {0};
    pid_t r = wait4(c->pid, &st, WNOHANG, &usage);
    if (r == 0)
        return;
    c->exited = true;
    (void)uv_poll_stop(p);
    uv_close((uv_handle_t *)p, child_on_handle_closed);
    if (c->abandoned)
        close_log(c);
    else
        c->on_exit(c->ctx, r < 0 ? 0 : st, &usage);
}

static int open_log(int fds[2], bool quiet, struct err *err) {
    fds[0] = fds[1] = -1;
    if (!quiet && pipe2(fds, O_CLOEXEC) < 0)
        return err_sys(err, "pipe");
    return 0;
}

int child_spawn(uv_loop_t *loop, const struct child_options *options, struct child **ret_child,
                int *ret_channel_fd, struct err *err) {
    if (options->nfds > CHILD_FDS_MAX)
        return err_set(err, ERR_INTERNAL, "start %s: more than %d descriptors", options->name,
                       CHILD_FDS_MAX);
    int pair[2];
    int rc = fd_pair(pair, err);
    if (rc < 0)
        return rc;
    _cleanup_(close) int ours = pair[0];
    _cleanup_(close) int theirs = pair[1];
    int log[2];
    rc = open_log(log, options->quiet, err);
    if (rc < 0)
        return rc;
    _cleanup_(close) int log_ours = log[0];
    _cleanup_(close) int log_theirs = log[1];
    const char *argv[16] = {options->name};
    for (size_t i = 0; options->args && options->args[i] && i + 2 < ARRAY_LEN(argv); i++)
        argv[i + 1] = options->args[i];
    struct exec_plan plan = {.argv = (char *const *)argv,
                             .exec_fd = options->exec_fd,
                             .fds = {-1, -1, log_theirs, theirs},
                             .nfds = 4 + options->nfds,
                             .joins = options->joins,
                             .njoins = options->njoins,
                             .drop = options->drop,
                             .uid = options->uid,
                             .gid = options->gid,
                             .parent = getpid()};
    for (size_t i = 0; i < options->nfds; i++)
        plan.fds[4 + i] = options->fds[i];
    pid_t pid;
    rc = child_start(loop, &plan, &pid, err);
    if (rc < 0)
        return err_wrap(err, "start %s", options->name);
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0) {
        rc = err_sys(err, "pidfd_open");
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
        return rc;
    }
    struct child *c = xcalloc(1, sizeof(*c));
    c->name = xstrdup(options->name);
    c->pid = pid;
    c->pidfd = pidfd;
    c->on_exit = options->on_exit;
    c->ctx = options->ctx;
    buf_init(&c->line, LINE_MAX_BYTES);
    (void)uv_poll_init(loop, &c->exit_poll, pidfd);
    (void)uv_pipe_init(loop, &c->log_pipe, 0);
    c->exit_poll.data = c->log_pipe.data = c;
    c->handles = 2;
    (void)uv_poll_start(&c->exit_poll, UV_READABLE, child_on_exit_poll);
    if (log_ours >= 0) {
        (void)uv_pipe_open(&c->log_pipe, steal_fd(&log_ours));
        (void)uv_read_start((uv_stream_t *)&c->log_pipe, child_on_alloc, child_on_log);
    } else {
        close_log(c);
    }
    *ret_child = c;
    *ret_channel_fd = steal_fd(&ours);
    return 0;
}

pid_t child_pid(const struct child *c) {
    return c->pid;
}

void child_kill(struct child *c, int signo) {
    if (!c->exited)
        (void)syscall(SYS_pidfd_send_signal, c->pidfd, signo, NULL, 0);
}

void child_unref(struct child *c) {
    uv_unref((uv_handle_t *)&c->exit_poll);
    uv_unref((uv_handle_t *)&c->log_pipe);
}

void child_abandon(struct child *c) {
    if (!c || c->abandoned)
        return;
    c->abandoned = true;
    uv_ref((uv_handle_t *)&c->exit_poll);
    child_kill(c, SIGKILL);
    if (c->exited)
        close_log(c);
}

char *child_status_text(int wait_status, char *out, size_t size) {
    if (WIFEXITED(wait_status))
        (void)snprintf(out, size, "exit status %d", WEXITSTATUS(wait_status));
    else
        (void)snprintf(out, size, "signal %d (%s)", WTERMSIG(wait_status),
                       strsignal(WTERMSIG(wait_status)));
    return out;
}
