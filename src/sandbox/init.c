#include "sandbox/init.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/mem.h"
#include "lock/privileges.h"
#include "lock/raw.h"
#include "sandbox/files.h"
#include "sandbox/sys.h"
#include "sandbox/wall.h"
#include "sandbox/watch.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <termios.h>

enum { CONNECT_MS = 20, TICK_MS = 1000, BRIEF_MS = 2 };
enum { SOCKETS_PART = 4 }; /* of the memory, that sockets may have where only they are watched */
#ifdef CAY_TEST_WALLS
enum { START_TICKS = 5 };
#else
enum { START_TICKS = LIMIT_SANDBOX_START_S };
#endif

/* A command or a file worker that runs. Between fork and exec a command is the guest's already, who
 * may stop it, or let exec wait (a lease on the program): nothing here waits for it. */
struct init_command {
    uint64_t id;
    pid_t pid; /* 0 is a free place */
    bool worker;
    bool final; /* the sandbox ends with it */
    bool oom;
    bool told;          /* the last word about it was said: it only has to be reaped */
    struct start *from; /* what the child was started from, while it may still need it */
    int start;          /* a pipe that says what became of its exec, or -1 when that is known */
    int master;         /* of its terminal, until STARTED; else -1 */
    int waited;         /* ticks that its exec has taken */
    int64_t brief_ms;   /* until then nobody needs to hear of its start */
};

/* What a file worker says before it exits, in memory shared with init. */
struct result {
    uint64_t value;
    struct err err;
};

struct init {
    const struct init_options *o;
    struct init_command commands[SANDBOX_EXECS_MAX];
    size_t ncommands;
    struct result *results; /* one for each place in commands, from the first file worker on */
    int signals;
    int timer;
    struct watch *watch;
    size_t nstarting;
    int64_t tick_ms; /* when the last one was */
};

/* ---- replies ---- */

static void init_send_frame(struct init *in, const struct wire_out *out) {
    if (wire_send(in->o->channel, out) < 0)
        _exit(0); /* the front is gone, and with pid 1 goes everything */
}

static void init_reply(struct init *in, uint16_t type, uint64_t id, const struct buf *b) {
    init_send_frame(in, &(struct wire_out){.type = type,
                                           .id = id,
                                           .pieces = {{b ? b->data : NULL, b ? b->len : 0}}});
}

static void reply_ok(struct init *in, uint64_t id, uint64_t value) {
    struct buf b;
    buf_init(&b, 64);
    pack_u64(&b, value);
    init_reply(in, INIT_OK, id, &b);
    buf_finish(&b);
}

static void reply_error(struct init *in, uint64_t id, const struct err *err) {
    struct buf b;
    buf_init(&b, 4096);
    pack_sandbox_error(&b, err);
    init_reply(in, INIT_ERROR, id, &b);
    buf_finish(&b);
}

static void reply_fd(struct init *in, uint16_t type, uint64_t id, const struct buf *b, int fd) {
    init_send_frame(in, &(struct wire_out){.type = type,
                                           .id = id,
                                           .pieces = {{b ? b->data : NULL, b ? b->len : 0}},
                                           .fds = &fd,
                                           .nfds = 1});
}

/* ---- commands ---- */

static struct init_command *find_command(struct init *in, uint64_t id) {
    for (size_t i = 0; i < SANDBOX_EXECS_MAX; i++)
        if (in->commands[i].pid > 0 && in->commands[i].id == id && !in->commands[i].told)
            return &in->commands[i];
    return NULL;
}

static struct init_command *init_free_place(struct init *in, struct err *err) {
    for (size_t i = 0; i < SANDBOX_EXECS_MAX; i++)
        if (in->commands[i].pid == 0)
            return &in->commands[i];
    (void)err_set(err, ERR_LIMIT, "a sandbox runs at most %d commands at once", SANDBOX_EXECS_MAX);
    return NULL;
}

static void watch_memory(struct init *in, bool on) {
    if (!in->watch)
        return;
    struct itimerspec t = {0};
    if (on)
        t.it_value.tv_nsec = t.it_interval.tv_nsec = WATCH_MS * 1000000L;
    (void)timerfd_settime(in->timer, 0, &t, NULL);
}

static void add_command(struct init *in, struct init_command *j, uint64_t id, pid_t pid,
                        bool worker) {
    *j = (struct init_command){.id = id, .pid = pid, .worker = worker, .start = -1, .master = -1};
    if (in->ncommands++ == 0)
        watch_memory(in, true);
}

static uint64_t init_micros(const struct timeval *t) {
    return (uint64_t)t->tv_sec * 1000000 + (uint64_t)t->tv_usec;
}

static void tell_exit(struct init *in, const struct init_command *j, int status,
                      const struct rusage *ru) {
    struct sandbox_exit e = {
        .signaled = WIFSIGNALED(status),
        .code = (uint32_t)(WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status)),
        .oom = j->oom && status != 0,
        .user_us = init_micros(&ru->ru_utime),
        .system_us = init_micros(&ru->ru_stime),
        .max_rss_bytes = (uint64_t)ru->ru_maxrss * 1024,
    };
    struct buf b;
    buf_init(&b, 256);
    pack_sandbox_exit(&b, &e);
    init_reply(in, INIT_EXITED, j->id, &b);
    buf_finish(&b);
    if (j->final)
        _exit(0);
}

struct start;
static void start_free(struct start *s);
static void look_at_start(struct init *in, struct init_command *j, bool ended);

static void command_ended(struct init *in, struct init_command *j, int status,
                          const struct rusage *ru) {
    if (j->start >= 0)
        look_at_start(in, j, true); /* all ends of the pipe are closed: it has its answer */
    struct init_command was = *j;
    const size_t at = (size_t)(j - in->commands);
    start_free(steal_ptr(&j->from));
    j->pid = 0;
    in->ncommands--;
    if (was.told)
        return;
    if (!was.worker) {
        tell_exit(in, &was, status, ru);
    } else if (!WIFEXITED(status)) {
        struct err err;
        (void)err_set(&err, ERR_CANCELLED, "the file operation was killed");
        reply_error(in, was.id, &err);
    } else if (WEXITSTATUS(status) != 0) {
        struct result *r = &in->results[at];
        r->err.message[sizeof(r->err.message) - 1] = 0;
        reply_error(in, was.id, &r->err);
    } else {
        reply_ok(in, was.id, in->results[at].value);
    }
}

static void init_reap(struct init *in) {
    for (;;) {
        int status;
        struct rusage ru;
        pid_t pid = wait4(-1, &status, WNOHANG, &ru);
        if (pid <= 0)
            return;
        for (size_t i = 0; i < SANDBOX_EXECS_MAX; i++)
            if (in->commands[i].pid == pid)
                command_ended(in, &in->commands[i], status, &ru);
    }
}

/* ---- becoming the guest ---- */

/* All of this runs in a child that may share init's memory: raw calls only, which return -errno. */

static int init_lower(int which, rlim_t value) {
    struct rlimit have = {0}, want = {value, value};
    long rc = raw(SYS_prlimit64, 0, which, 0, (long)&have);
    if (rc == 0 && have.rlim_max > value)
        rc = raw(SYS_prlimit64, 0, which, (long)&want, 0);
    return (int)rc;
}

/* Init may have more of what the guest can use up, and needs it then. The kernel counts descriptors
 * that are on their way to other processes for all processes of a user, and compares with the limit
 * of the one that sends: half of init's at most, so that a guest cannot keep init from answering.
 */
static int lower_limits(const struct init_options *o) {
    struct rlimit files = {0};
    if (!wall_on(WALL_RLIMIT))
        return 0;
    int rc = (int)raw(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, (long)&files);
    if (rc == 0)
        rc = init_lower(RLIMIT_NPROC, o->spec->pids);
    return rc < 0 ? rc : init_lower(RLIMIT_NOFILE, MIN((rlim_t)o->spec->files, files.rlim_max / 2));
}

static int become_guest(const struct init_options *o, bool no_suid) {
    enum { ID = SANDBOX_GUEST_UID };
    int rc = lower_limits(o);
    if (rc == 0 && o->own_uid) {
        rc = (int)raw(SYS_setresgid, ID, ID, ID, 0);
        if (rc == 0)
            rc = (int)raw(SYS_setresuid, ID, ID, ID, 0);
    }
    if (rc == 0 && wall_on(WALL_CAPS))
        rc = privileges_set_caps(0);
#ifdef CAY_TEST_WALLS
    if (rc == 0 && !wall_on(WALL_CAPS))
        rc = lockdown_raise_ambient();
#endif
    return rc == 0 && no_suid ? lockdown_install(&o->lockdown->no_suid) : rc;
}

/* ---- commands ---- */

enum { START_STACK = 16 * 1024 };

/* What a command is started from: the child's until it has become the program, or is gone. */
struct start {
    const struct init_options *o;
    struct sandbox_exec e;
    char **env;
    struct sandbox_strv paths; /* where argv[0] may be */
    int fds[3];                /* -1 keeps /dev/null */
    const char *cwd;
    int ruleset; /* of Landlock, over the sandbox's own; -1: none */
    int report;  /* closed by exec; what went wrong before it is written there */
    _Alignas(16) char stack[START_STACK];
};

static void start_free(struct start *s) {
    if (!s)
        return;
    fd_close(&s->ruleset);
    free(s->env);
    sandbox_strv_finish(&s->paths);
    sandbox_exec_finish(&s->e);
    free(s);
}

/* Less than PIPE_BUF, so that it is there as a whole or not at all. */
struct start_report {
    int sys;
    char what[1024];
};

static int start_failed(const struct start *s, long rc, const char *what) {
    struct start_report r;
    size_t n = 0;
    for (; what[n] && n < sizeof(r.what) - 1; n++)
        r.what[n] = what[n];
    r.what[n] = 0;
    r.sys = (int)-rc;
    (void)raw(SYS_write, s->report, (long)&r, sizeof(r), 0);
    return 127;
}

static int start_streams(struct start *s) {
    long rc = 0;
    for (int i = 0; rc >= 0 && i < 3; i++)
        if (s->fds[i] >= 0)
            rc = raw(SYS_dup3, s->fds[i], i, 0, 0);
    if (rc < 0)
        return start_failed(s, rc, "streams");
    if (s->e.tty && (rc = raw(SYS_ioctl, 0, TIOCSCTTY, 0, 0)) < 0)
        return start_failed(s, rc, "controlling terminal");
    if (!wall_on(WALL_CLOSE))
        return 0;
    if (s->report != 3)
        (void)raw(SYS_dup3, s->report, 3, O_CLOEXEC, 0);
    s->report = 3;
    (void)raw(SYS_close_range, 4, ~0U, 0, 0);
    return 0;
}

/* A root in which the mount of the work folder is read-only, whatever is done to it by name or by
 * descriptor. Landlock is for what a root does not hold: the roots and descriptors of other
 * processes, in /proc. */
static long start_view(const struct start *s) {
    long rc = 0;
    if (!s->e.read_only)
        return 0;
    if (wall_on(WALL_VIEW)) {
        rc = raw(SYS_fchdir, s->o->view, 0, 0, 0);
        if (rc == 0)
            rc = raw(SYS_chroot, (long)".", 0, 0, 0);
    }
    if (rc == 0 && s->ruleset >= 0)
        rc = raw(SYS_landlock_restrict_self, s->ruleset, 0, 0, 0);
    return rc;
}

static int start_main(void *arg) {
    struct start *s = arg;
    const unsigned long dfl[4] = {0}, none = 0; /* as the kernel has them: SIG_DFL, no signal */
    (void)raw(SYS_rt_sigaction, SIGPIPE, (long)dfl, 0, sizeof(none));
    long rc = raw(SYS_setsid, 0, 0, 0, 0);
    if (rc < 0)
        return start_failed(s, rc, "new session");
    rc = start_view(s);
    if (rc < 0)
        return start_failed(s, rc, "a read-only work folder");
    if (start_streams(s) != 0)
        return 127;
    rc = become_guest(s->o, s->o->no_suid);
    if (rc < 0)
        return start_failed(s, rc, "become the guest");
    for (size_t i = 0; rc == 0 && i < s->e.nrlimits; i++)
        rc = init_lower((int)s->e.rlimits[i].resource, s->e.rlimits[i].value);
    if (rc < 0)
        return start_failed(s, rc, "limits");
    rc = raw(SYS_chdir, (long)s->cwd, 0, 0, 0);
    if (rc < 0)
        return start_failed(s, rc, s->cwd);
    (void)raw(SYS_rt_sigprocmask, SIG_SETMASK, (long)&none, 0, sizeof(none));
    long why = -ENOENT;
    for (size_t i = 0; i < s->paths.n; i++) {
        rc = raw(SYS_execve, (long)s->paths.items[i], (long)s->e.argv.items, (long)s->env, 0);
        if (rc != -ENOENT && rc != -ENOTDIR)
            why = rc;
        if (rc != -ENOENT && rc != -ENOTDIR && rc != -EACCES)
            break;
    }
    return start_failed(s, why, s->e.argv.items[0]);
}

static const char *env_get(char **env, const char *key) {
    size_t n = strlen(key);
    for (char **p = env; *p; p++)
        if (strncmp(*p, key, n) == 0 && (*p)[n] == '=')
            return *p + n + 1;
    return NULL;
}

/* Later wins. The strings stay where they are; the caller frees the array. */
static void env_set(char **env, size_t *n, char *entry) {
    size_t key = strcspn(entry, "=");
    for (size_t i = 0; i < *n; i++)
        if (strncmp(env[i], entry, key + 1) == 0) {
            env[i] = entry;
            return;
        }
    env[(*n)++] = entry;
}

static char **make_env(const struct init_options *o, const struct sandbox_exec *e) {
    static char *const defaults[] = {"PATH=/usr/local/bin:/usr/bin:/bin",
                                     "HOME=/home/cay",
                                     "USER=cay",
                                     "LOGNAME=cay",
                                     "SHELL=/bin/bash",
                                     "LANG=C.UTF-8",
                                     "TERM=xterm-256color"};
    char **env = xcalloc(ARRAY_LEN(defaults) + o->spec->env.n + e->env.n + 1, sizeof(char *));
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(defaults) - (e->tty ? 0 : 1); i++)
        env[n++] = defaults[i];
    for (size_t i = 0; i < o->spec->env.n; i++)
        env_set(env, &n, o->spec->env.items[i]);
    for (size_t i = 0; i < e->env.n; i++)
        env_set(env, &n, e->env.items[i]);
    return env;
}

static void init_find_program(const char *name, char **env, struct sandbox_strv *ret) {
    if (strchr(name, '/')) {
        sandbox_strv_add(ret, name);
        return;
    }
    const char *path = env_get(env, "PATH");
    for (const char *p = path; p && *p;) {
        size_t n = strcspn(p, ":");
        if (n > 0) {
            _cleanup_(free) char *full = xasprintf("%.*s/%s", (int)n, p, name);
            sandbox_strv_add(ret, full);
        }
        p += n + (p[n] == ':');
    }
}

static int open_terminal(const struct init *in, const struct sandbox_exec *e, int *ret_master,
                         int *ret_slave, struct err *err) {
    _cleanup_(close) int master = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    int unlock = 0;
    if (master < 0 && errno == ENOSPC)
        return err_set(err, ERR_LIMIT,
                       "the sandbox has no terminal left: its programs hold %u, which is its share "
                       "of this machine's",
                       in->o->terminals);
    if (master < 0 || ioctl(master, TIOCSPTLCK, &unlock) < 0)
        return err_sys(err, "open a terminal");
    int slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (slave < 0)
        return err_sys(err, "open a terminal");
    struct winsize w = {.ws_col = (unsigned short)(e->cols ? e->cols : 80),
                        .ws_row = (unsigned short)(e->rows ? e->rows : 24)};
    (void)ioctl(slave, TIOCSWINSZ, &w);
    *ret_slave = slave;
    *ret_master = steal_fd(&master);
    return 0;
}

static int take_streams(struct wire_frame *f, const struct sandbox_exec *e, int fds[3],
                        struct err *err) {
    const uint32_t modes[3] = {e->in, e->out, e->err};
    size_t next = 0;
    for (int i = 0; i < 3; i++) {
        if (modes[i] != SANDBOX_STREAM_FD)
            continue;
        fds[i] = next < f->nfds ? f->fds[next++] : -1; /* stays the frame's */
        if (fds[i] < 0)
            return err_set(err, ERR_PROTOCOL, "a stream has no descriptor");
    }
    if (e->err == SANDBOX_STREAM_STDOUT)
        fds[2] = fds[1];
    return 0;
}

/* The child borrows init's memory, so that no page table is copied, and init goes on: what it is
 * given stays as it is until it is known to have become the program. The pipe is read without
 * waiting, and its other end is the child's alone. */
static int init_launch(struct init *in, struct start *s, pid_t *ret_pid, int *ret_report,
                       struct err *err) {
    int report[2];
    if (pipe2(report, O_CLOEXEC | O_NONBLOCK) < 0)
        return err_sys(err, "start a process");
    s->report = report[1];
    pid_t pid = clone(start_main, s->stack + sizeof(s->stack),
                      (RAW_SHARES_MEMORY ? CLONE_VM : 0) | SIGCHLD, s);
    int sys = errno;
    close(report[1]);
    if (pid < 0) {
        close(report[0]);
        errno = sys;
        (void)err_sys(err, "start a process");
        if (sys == EAGAIN) {
            (void)err_set(err, ERR_LIMIT, "the sandbox has no process left: its limit is %u",
                          in->o->spec->pids);
            err->sys = sys;
        }
        return -(int)err->code;
    }
    *ret_pid = pid;
    *ret_report = report[0];
    return 0;
}

static void start_known(struct init *in, struct init_command *j) {
    fd_close(&j->start);
    in->nstarting--;
}

static void tell_not_started(struct init *in, struct init_command *j, const struct err *err) {
    start_known(in, j);
    fd_close(&j->master);
    j->told = true;
    reply_error(in, j->id, err);
}

static void init_tell_started(struct init *in, struct init_command *j) {
    struct buf b;
    buf_init(&b, 64);
    pack_u32(&b, (uint32_t)j->pid);
    if (j->master >= 0)
        reply_fd(in, INIT_STARTED, j->id, &b, j->master);
    else
        init_reply(in, INIT_STARTED, j->id, &b);
    fd_close(&j->master);
    buf_finish(&b);
}

/* What the child said: nothing yet, that it failed, or, by closing the pipe, that it became the
 * program (or was killed on the way: then that is how it ended). */
static void look_at_start(struct init *in, struct init_command *j, bool ended) {
    struct start_report r;
    ssize_t n = read(j->start, &r, sizeof(r));
    if (n < 0)
        return;
    if (n != sizeof(r)) {
        start_known(in, j);
        start_free(steal_ptr(&j->from));
        if (!ended || j->brief_ms == 0)
            init_tell_started(in, j);
        return;
    }
    struct err err;
    errno = r.sys;
    (void)err_sys(&err, "%.*s", (int)sizeof(r.what) - 1, r.what);
    if (r.sys == ENOENT || r.sys == EACCES || r.sys == ENOEXEC || r.sys == ENOTDIR)
        err.code = ERR_NOT_FOUND;
    tell_not_started(in, j, &err);
}

/* Ticks, not a clock: the time that a sandbox is frozen is not the command's. */
static void check_starts(struct init *in) {
    int64_t now = clock_mono_ms();
    if (now - in->tick_ms < TICK_MS)
        return;
    in->tick_ms = now;
    for (size_t i = 0; i < SANDBOX_EXECS_MAX; i++) {
        struct init_command *j = &in->commands[i];
        if (j->pid == 0 || j->start < 0 || j->waited++ < START_TICKS)
            continue;
        struct err err;
        (void)kill(j->pid, SIGKILL);
        (void)err_set(&err, ERR_TIMEOUT,
                      "the command did not begin within %d s: something in the sandbox stopped it "
                      "or holds its program",
                      START_TICKS);
        tell_not_started(in, j, &err);
    }
}

/* For a command that may not change the work folder: the places that it may write to are the
 * others. What has been opened for writing before stays so, hence it is for the child alone. */
static int close_work(const struct init *in, struct start *s, struct err *err) {
    static const char *const writable[] = {"/tmp", "/var/tmp", "/home", "/dev/shm"};
    if (in->o->lockdown->landlock_abi == 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "a read-only command needs Landlock, which this kernel does not have: see "
                       "`cay doctor`");
    return lockdown_ruleset(in->o->lockdown, writable, ARRAY_LEN(writable), &s->ruleset, err);
}

/* Opens what it needs and lets the child begin. */
static int init_begin(struct init *in, struct init_command *j, struct start *s,
                      struct wire_frame *f, struct err *err) {
    const struct sandbox_exec *e = &s->e;
    _cleanup_(close) int master = -1;
    _cleanup_(close) int slave = -1;
    int rc = e->tty ? open_terminal(in, e, &master, &slave, err) : take_streams(f, e, s->fds, err);
    if (rc == 0 && e->read_only)
        rc = close_work(in, s, err);
    if (rc < 0)
        return rc;
    if (e->tty)
        s->fds[0] = s->fds[1] = s->fds[2] = slave;
    s->cwd = e->cwd && *e->cwd ? e->cwd : "/work";
    s->env = make_env(in->o, e);
    init_find_program(e->argv.items[0], s->env, &s->paths);
    pid_t pid = 0;
    int report = -1;
    rc = init_launch(in, s, &pid, &report, err);
    if (rc < 0)
        return rc;
    add_command(in, j, f->id, pid, false);
    j->final = e->final;
    j->from = s;
    j->start = report;
    j->master = steal_fd(&master);
    int64_t now = clock_mono_ms();
    j->brief_ms = e->brief && !e->tty ? now + BRIEF_MS : 0;
    if (in->nstarting++ == 0)
        in->tick_ms = now;
    return 0;
}

/* Takes over what the exec holds. */
static void init_run_exec(struct init *in, struct sandbox_exec *e, struct wire_frame *f) {
    struct err err = {0};
    struct start *s = xmalloc(sizeof(*s));
    s->o = in->o;
    s->e = *e;
    s->env = NULL;
    s->paths = (struct sandbox_strv){0};
    s->ruleset = -1;
    s->fds[0] = s->fds[1] = s->fds[2] = -1;
    *e = (struct sandbox_exec){0};
    struct init_command *j = find_command(in, f->id) ? NULL : init_free_place(in, &err);
    int rc = j          ? init_begin(in, j, s, f, &err)
             : err.code ? -(int)err.code
                        : err_set(&err, ERR_CONFLICT, "this id is running");
    if (rc < 0) {
        start_free(s);
        reply_error(in, f->id, &err);
    }
}

static void init_on_exec(struct init *in, struct wire_frame *f, struct unpack *u) {
    struct sandbox_exec e;
    unpack_sandbox_exec(u, &e);
    struct err err;
    if (unpack_ok(u)) {
        init_run_exec(in, &e, f);
    } else {
        (void)err_set(&err, ERR_BAD_REQUEST, "malformed exec");
        reply_error(in, f->id, &err);
    }
    sandbox_exec_finish(&e);
}

/* tar runs as the guest like any command: an archive can do nothing that a command cannot. */
static void run_tar(struct init *in, struct wire_frame *f, struct sandbox_strv *argv, bool reads) {
    struct sandbox_exec e = {.argv = *argv,
                             .cwd = xstrdup("/"),
                             .in = reads ? SANDBOX_STREAM_FD : SANDBOX_STREAM_NULL,
                             .out = reads ? SANDBOX_STREAM_NULL : SANDBOX_STREAM_FD,
                             .err = f->nfds > 1 ? SANDBOX_STREAM_FD : SANDBOX_STREAM_NULL};
    *argv = (struct sandbox_strv){0};
    /* By the environment, since a tar that is not GNU's passes over what it does not know there.
     * Only the disk itself is kept, holes as holes, and a file that cannot be read costs only
     * itself. */
    if (f->type == INIT_SNAPSHOT)
        sandbox_strv_add(&e.env, "TAR_OPTIONS=--anchored --sparse --one-file-system "
                                 "--ignore-failed-read");
    init_run_exec(in, &e, f);
}

/* For a path below the root, as a pattern: GNU tar takes what has no wildcard for a word, and then
 * looks at every part of every name, which takes minutes in a deep tree. */
static void add_exclude(struct sandbox_strv *argv, const char *path) {
    struct buf b;
    buf_init(&b, 3 * SANDBOX_PATH_MAX);
    (void)buf_addf(&b, "--exclude=[%c]", path[1]);
    for (const char *c = path + 2; path[1] && *c; c++) {
        if (strchr("*?[\\", *c))
            (void)buf_add_char(&b, '\\');
        (void)buf_add_char(&b, *c);
    }
    (void)buf_add_char(&b, 0);
    sandbox_strv_add(argv, b.data);
    buf_finish(&b);
}

static void init_on_tar(struct init *in, struct wire_frame *f, struct unpack *u) {
    struct sandbox_strv argv = {0}, paths = {0};
    bool reads = f->type == INIT_TAR_IN;
    sandbox_strv_add(&argv, "tar");
    if (f->type == INIT_SNAPSHOT) {
        static const char *const whole[] = {"-C", "/", "-cf", "-", "work", "home", "tmp"};
        const struct sandbox_spec *spec = in->o->spec;
        /* Not even the places of binds: they may be read-only where this is restored. */
        for (size_t i = 0; i < spec->nbinds; i++)
            add_exclude(&argv, spec->binds[i].path);
        for (size_t i = 0; i < ARRAY_LEN(whole); i++)
            sandbox_strv_add(&argv, whole[i]);
    } else {
        _cleanup_(free) char *dir = unpack_strdup(u);
        if (f->type == INIT_TAR_OUT)
            unpack_strv(u, 4096, &paths);
        sandbox_strv_add(&argv, "-C");
        sandbox_strv_add(&argv, *dir ? dir : "/work");
        sandbox_strv_add(&argv, reads ? "-xf" : "-cf");
        sandbox_strv_add(&argv, "-");
        if (reads) {
            sandbox_strv_add(&argv, "--no-same-owner");
            sandbox_strv_add(&argv, "--same-permissions");
        } else {
            sandbox_strv_add(&argv, "--");
            for (size_t i = 0; i < paths.n; i++)
                sandbox_strv_add(&argv, paths.items[i]);
            if (paths.n == 0)
                sandbox_strv_add(&argv, ".");
        }
    }
    struct err err;
    if (unpack_ok(u)) {
        run_tar(in, f, &argv, reads);
    } else {
        (void)err_set(&err, ERR_BAD_REQUEST, "malformed archive request");
        reply_error(in, f->id, &err);
    }
    sandbox_strv_finish(&argv);
    sandbox_strv_finish(&paths);
}

static void init_on_signal(struct init *in, struct wire_frame *f, struct unpack *u) {
    uint64_t id = unpack_u64(u);
    int signo = (int)unpack_u32(u);
    bool group = unpack_u8(u) != 0;
    struct err err = {0};
    struct init_command *j = id ? find_command(in, id) : NULL;
    int rc = 0;
    if (!unpack_ok(u) || signo < 0 || signo > SIGRTMAX)
        rc = err_set(&err, ERR_BAD_REQUEST, "malformed signal");
    else if (id && !j)
        rc = err_set(&err, ERR_NOT_FOUND, "this command does not run");
    /* Not reaped yet, so the number still means this process: its group has the same, once it has
     * one. */
    else if (kill(!id     ? -1
                  : group ? -j->pid
                          : j->pid,
                  signo) < 0 &&
             !(errno == ESRCH && !id) &&
             !(id && group && j->start >= 0 && kill(j->pid, signo) == 0))
        rc = err_sys(&err, "signal");
    if (rc < 0)
        reply_error(in, f->id, &err);
    else
        reply_ok(in, f->id, 0);
}

/* ---- files ---- */

static bool map_results(struct init *in, struct err *err) {
    if (in->results)
        return true;
    void *p = mmap(NULL, SANDBOX_EXECS_MAX * sizeof(struct result), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        (void)err_sys(err, "start a file worker");
    else
        in->results = p;
    return in->results != NULL;
}

/* Work that may take long runs in a process of its own, as the guest. */
static pid_t fork_worker(struct init *in, uint64_t id, struct result **ret) {
    struct err err = {0};
    struct init_command *j = find_command(in, id) ? NULL : init_free_place(in, &err);
    if (!j || !map_results(in, &err)) {
        if (!err.code)
            (void)err_set(&err, ERR_CONFLICT, "this id is running");
        reply_error(in, id, &err);
        return -1;
    }
    struct result *r = &in->results[j - in->commands];
    *r = (struct result){0};
    pid_t pid = fork();
    if (pid < 0) {
        (void)err_sys(&err, "start a file worker");
        reply_error(in, id, &err);
        return -1;
    }
    if (pid > 0) {
        add_command(in, j, id, pid, true);
        return pid;
    }
    struct sigaction dfl = {.sa_handler = SIG_DFL};
    (void)sigaction(SIGPIPE, &dfl, NULL);
    close(in->o->channel);
    /* Its own modes never have the bits, and it needs openat2(). */
    if (become_guest(in->o, false) < 0)
        _exit(1);
    *ret = r;
    return 0;
}

static void init_on_file_write(struct init *in, struct wire_frame *f, struct unpack *u) {
    _cleanup_(free) char *path = unpack_strdup(u);
    uint32_t mode = unpack_u32(u);
    uint32_t flags = unpack_u32(u);
    size_t len;
    const char *data = unpack_bytes(u, &len);
    struct err err = {0};
    if (!unpack_ok(u)) {
        (void)err_set(&err, ERR_BAD_REQUEST, "malformed file write");
        reply_error(in, f->id, &err);
        return;
    }
    int fd = -1, rc;
    if (f->nfds == 0) {
        rc = sandbox_files_open_write(path, mode, flags, &fd, &err);
        if (rc == 0 && fd_write_all(fd, data, len) < 0) {
            rc = err_sys(&err, "write %s", path);
            if (err.sys == ENOSPC || err.sys == EFBIG)
                err.code = ERR_LIMIT;
        }
        fd_close(&fd);
        if (rc < 0)
            reply_error(in, f->id, &err);
        else
            reply_ok(in, f->id, len);
        return;
    }
    struct result *r;
    if (fork_worker(in, f->id, &r) != 0)
        return;
    rc = sandbox_files_open_write(path, mode, flags, &fd, &r->err);
    if (rc == 0)
        rc = sandbox_files_copy(f->fds[0], fd, &r->value, &r->err);
    _exit(rc < 0);
}

static void init_on_file_delete(struct init *in, struct wire_frame *f, struct unpack *u) {
    _cleanup_(free) char *path = unpack_strdup(u);
    bool recursive = unpack_u8(u) != 0;
    struct err err;
    struct result *r;
    if (!unpack_ok(u)) {
        (void)err_set(&err, ERR_BAD_REQUEST, "malformed file delete");
        reply_error(in, f->id, &err);
        return;
    }
    if (fork_worker(in, f->id, &r) == 0)
        _exit(sandbox_files_delete(path, recursive, &r->value, &r->err) < 0);
}

static void init_on_file_read(struct init *in, struct wire_frame *f, struct unpack *u) {
    _cleanup_(free) char *path = unpack_strdup(u);
    struct err err = {0};
    struct sandbox_stat st;
    int fd = -1;
    int rc = unpack_ok(u) ? sandbox_files_open_read(path, &fd, &st, &err)
                          : err_set(&err, ERR_BAD_REQUEST, "malformed file read");
    if (rc < 0) {
        reply_error(in, f->id, &err);
        return;
    }
    struct buf b;
    buf_init(&b, 256);
    pack_sandbox_stat(&b, &st);
    reply_fd(in, INIT_FILE, f->id, &b, fd);
    buf_finish(&b);
    close(fd);
}

static void init_on_file_meta(struct init *in, struct wire_frame *f, struct unpack *u) {
    _cleanup_(free) char *path = unpack_strdup(u);
    _cleanup_(free) char *to = f->type == INIT_FILE_MOVE ? unpack_strdup(u) : NULL;
    uint64_t skip = f->type == INIT_FILE_LIST ? unpack_u64(u) : 0;
    uint32_t mode = f->type == INIT_FILE_MKDIR ? unpack_u32(u) : 0;
    bool flag = f->type == INIT_FILE_MKDIR || f->type == INIT_FILE_STAT ? unpack_u8(u) != 0 : false;
    struct err err = {0};
    struct buf b;
    buf_init(&b, SANDBOX_INIT_MAX);
    struct sandbox_stat st;
    int rc = 0;
    uint16_t type = INIT_OK;
    if (!unpack_ok(u)) {
        rc = err_set(&err, ERR_BAD_REQUEST, "malformed file request");
    } else if (f->type == INIT_FILE_STAT) {
        rc = sandbox_files_stat(path, flag, &st, &err);
        type = INIT_STAT;
        if (rc == 0)
            pack_sandbox_stat(&b, &st);
    } else if (f->type == INIT_FILE_LIST) {
        rc = sandbox_files_list(path, skip, &b, &err);
        type = INIT_ENTRIES;
    } else if (f->type == INIT_FILE_MKDIR) {
        rc = sandbox_files_mkdir(path, mode, flag, &err);
    } else {
        rc = sandbox_files_move(path, to, &err);
    }
    if (rc == 0 && type == INIT_OK)
        pack_u64(&b, 0);
    if (rc < 0)
        reply_error(in, f->id, &err);
    else
        init_reply(in, type, f->id, &b);
    buf_finish(&b);
}

/* ---- ports, memory ---- */

static int connect_local(uint16_t port) {
    struct sockaddr_in v4 = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 v6 = {
        .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    const struct {
        const void *addr;
        socklen_t len;
        int family;
    } tries[] = {{&v4, sizeof(v4), AF_INET}, {&v6, sizeof(v6), AF_INET6}};
    int sys = ECONNREFUSED;
    for (size_t i = 0; i < ARRAY_LEN(tries); i++) {
        int s = socket(tries[i].family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        /* The answer of a closed port comes a moment later; a full backlog may take its time. */
        struct pollfd p = {.fd = s, .events = POLLOUT};
        int failed = 0;
        socklen_t n = sizeof(failed);
        if (s < 0 || (connect(s, tries[i].addr, tries[i].len) < 0 && errno != EINPROGRESS))
            failed = errno;
        else if (poll(&p, 1, CONNECT_MS) == 1)
            (void)getsockopt(s, SOL_SOCKET, SO_ERROR, &failed, &n);
        if (failed == 0)
            return s;
        if (i == 0)
            sys = failed;
        fd_close(&s);
    }
    errno = sys;
    return -1;
}

static void init_on_connect(struct init *in, struct wire_frame *f, struct unpack *u) {
    uint32_t port = unpack_u32(u);
    struct err err;
    int s = -1;
    if (!unpack_ok(u) || port == 0 || port > 65535)
        (void)err_set(&err, ERR_BAD_REQUEST, "port must be 1 to 65535");
    else if ((s = connect_local((uint16_t)port)) < 0) {
        (void)err_sys(&err, "port %u", port);
        err.code = ERR_UNAVAILABLE;
    }
    if (s < 0) {
        reply_error(in, f->id, &err);
        return;
    }
    reply_fd(in, INIT_PORT, f->id, NULL, s);
    close(s);
}

/* Stands in for the kernel's out-of-memory killer where no cgroup limits the sandbox. What a
 * command leaves behind is watched too. */
static void init_on_watch(struct init *in) {
    uint64_t ticks;
    pid_t victims[WATCH_VICTIMS_MAX];
    (void)!read(in->timer, &ticks, sizeof(ticks));
    size_t n = watch_look(in->watch, victims);
    for (size_t i = 0; i < n; i++) {
        bool all = victims[i] == WATCH_EVERYBODY;
        pid_t session = all ? 0 : getsid(victims[i]);
        for (size_t k = 0; k < SANDBOX_EXECS_MAX; k++)
            if (in->commands[k].pid > 0 &&
                (all || in->commands[k].pid == victims[i] || in->commands[k].pid == session))
                in->commands[k].oom = true;
        (void)kill(victims[i], SIGKILL);
    }
    if (in->ncommands == 0 && watch_is_idle(in->watch))
        watch_memory(in, false);
}

/* ---- the loop ---- */

static void init_on_frame(struct init *in, struct wire_frame *f) {
    struct unpack u;
    unpack_init(&u, f->data, f->len);
    struct err err;
    switch (f->type) {
    case INIT_EXEC:
        init_on_exec(in, f, &u);
        break;
    case INIT_TAR_IN:
    case INIT_TAR_OUT:
    case INIT_SNAPSHOT:
        init_on_tar(in, f, &u);
        break;
    case INIT_SIGNAL:
        init_on_signal(in, f, &u);
        break;
    case INIT_FILE_READ:
        init_on_file_read(in, f, &u);
        break;
    case INIT_FILE_WRITE:
        init_on_file_write(in, f, &u);
        break;
    case INIT_FILE_DELETE:
        init_on_file_delete(in, f, &u);
        break;
    case INIT_FILE_STAT:
    case INIT_FILE_LIST:
    case INIT_FILE_MKDIR:
    case INIT_FILE_MOVE:
        init_on_file_meta(in, f, &u);
        break;
    case INIT_CONNECT_PORT:
        init_on_connect(in, f, &u);
        break;
    case INIT_SYNC:
        reply_ok(in, f->id, 0);
        break;
    default:
        (void)err_set(&err, ERR_PROTOCOL, "unknown message %d", f->type);
        reply_error(in, f->id, &err);
    }
    wire_frame_finish(f);
}

static void init_on_signals(struct init *in) {
    struct signalfd_siginfo si[16];
    ssize_t n = read(in->signals, si, sizeof(si));
    for (ssize_t i = 0; i < n / (ssize_t)sizeof(si[0]); i++) {
        /* Without a freezer the launcher asks by signal. Its pid is not of this namespace; a guest
         * that sends the same has one. */
        if (si[i].ssi_signo == SIGUSR1 && si[i].ssi_pid == 0)
            (void)kill(-1, SIGSTOP);
        if (si[i].ssi_signo == SIGUSR2 && si[i].ssi_pid == 0)
            (void)kill(-1, SIGCONT);
    }
    init_reap(in);
}

static void init_drain(struct init *in) {
    struct err err;
    struct wire_frame f;
    int rc;
    while ((rc = wire_next(in->o->reader, &f, &err)) == 1)
        init_on_frame(in, &f);
    if (rc < 0)
        _exit(1);
}

/* The one instance: a sandbox has one init, and a large object on its stack would be touched page
 * by page. */
static struct init instance = {.timer = -1, .signals = -1};

static int init_rehearse(void *arg) {
    (void)arg;
    return 0;
}

static void take_signals(struct init *in) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignore, NULL);
    in->signals = sigprocmask(SIG_SETMASK, &set, NULL) < 0
                      ? -1
                      : signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (in->signals < 0)
        _exit(1);
}

void init_prepare(void) {
    take_signals(&instance);
    /* The first child of a new process pays for pages that are touched the first time. Whoever
     * prepares ahead lets nobody pay. */
    static _Alignas(16) char stack[4096];
    pid_t pid = clone(init_rehearse, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
    if (pid > 0)
        (void)waitpid(pid, NULL, 0);
}

enum { POLL_CHANNEL, POLL_SIGNALS, POLL_TIMER, POLL_STARTS };

/* What becomes of a brief one is looked at when it has ended, or is brief no more: to be woken for
 * its start would take the processor that it is on. */
static bool is_looked_at(const struct init_command *j, int64_t now_ms) {
    return j->pid > 0 && j->start >= 0 && j->brief_ms <= now_ms;
}

static size_t fill_poll(const struct init *in, struct pollfd *p, int *ret_timeout_ms) {
    size_t n = POLL_STARTS;
    int64_t now = in->nstarting > 0 ? clock_mono_ms() : 0;
    *ret_timeout_ms = in->nstarting > 0 ? TICK_MS : -1;
    p[POLL_CHANNEL] = (struct pollfd){.fd = in->o->channel, .events = POLLIN};
    p[POLL_SIGNALS] = (struct pollfd){.fd = in->signals, .events = POLLIN};
    p[POLL_TIMER] = (struct pollfd){.fd = in->timer, .events = POLLIN};
    for (size_t i = 0; in->nstarting > 0 && i < SANDBOX_EXECS_MAX; i++)
        if (is_looked_at(&in->commands[i], now))
            p[n++] = (struct pollfd){.fd = in->commands[i].start, .events = POLLIN};
        else if (in->commands[i].pid > 0 && in->commands[i].start >= 0)
            *ret_timeout_ms = BRIEF_MS;
    return n;
}

static void init_on_starts(struct init *in) {
    int64_t now = in->nstarting > 0 ? clock_mono_ms() : 0;
    for (size_t i = 0; in->nstarting > 0 && i < SANDBOX_EXECS_MAX; i++)
        if (is_looked_at(&in->commands[i], now))
            look_at_start(in, &in->commands[i], false);
    if (in->nstarting > 0)
        check_starts(in);
}

_Noreturn void init_run(const struct init_options *o) {
    struct init *in = &instance;
    if (in->signals < 0)
        take_signals(in);
    in->o = o;
    if (fd_set_nonblock(o->channel, true) < 0)
        _exit(1);
    if (o->watch_memory || o->watch_sockets) {
        uint64_t limit = o->spec->memory_bytes;
        in->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        in->watch = watch_create(
            &(struct watch_options){.proc = o->proc,
                                    .disk = o->disk,
                                    .diag = o->diag,
                                    .sockets_only = !o->watch_memory,
                                    .limit_bytes = o->watch_memory ? limit : limit / SOCKETS_PART});
    }
    for (;;) {
        init_drain(in);
        struct pollfd p[POLL_STARTS + SANDBOX_EXECS_MAX];
        int timeout_ms;
        size_t n = fill_poll(in, p, &timeout_ms);
        if (poll(p, n, timeout_ms) < 0 && errno != EINTR)
            _exit(1);
        struct err err;
        if (p[POLL_SIGNALS].revents)
            init_on_signals(in);
        init_on_starts(in);
        if (p[POLL_TIMER].revents)
            init_on_watch(in);
        if (p[POLL_CHANNEL].revents && wire_recv(o->reader, o->channel, &err) < 0)
            _exit(0); /* the front closed the channel: the sandbox ends */
    }
}
