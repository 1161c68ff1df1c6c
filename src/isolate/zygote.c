/* cay-isolate: brings the engine up once and forks one isolate per program, ahead of the work. The
 * contract is src/wire/isolate.h. It never runs a program of a user and never reads what one wrote:
 * the front talks to an isolate directly. */

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sm.h"
#include "base/text.h"
#include "isolate/embed.h"
#include "isolate/gather.h"
#include "isolate/isolate.h"
#include "isolate/lever.h"
#include "isolate/memory.h"
#include "isolate/probe.h"
#include "isolate/reset.h"
#include "isolate/warm.h"
#include "lock/lock.h"
#include "wire/frame.h"
#include "wire/isolate.h"
#include "wire/pack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    CHILDREN_MAX = 1024,
    CALLS_MAX = 1024, /* that are counted on one isolate */
    ENGINE_FDS_MAX = 16,
    WARM_RUNS = 10,  /* before the collection, and after it: it drops code */
    SHORT_RUNS = 20, /* fill the holes that it left, or isolates would write to all of them */
    CONTROL_FRAME_MAX = 65536,
    PROBE_BYTES = 1000,
};

struct zygote_config {
    uint32_t flags;
    uint32_t levers;
    uint64_t memory_max_bytes;
    uint32_t cpu_max_s;
    struct buf plan; /* for gather_begin() */
};

enum forked_state {
    FORKED_LOCKING,   /* it locks itself down */
    FORKED_SERVING,   /* it has, and is the front's */
    FORKED_OVERDRAWN, /* it used more than it was allowed, and was killed */
};

static const struct sm_state forked_states[] = {
    [FORKED_LOCKING] = {"locking", SM_TO(FORKED_SERVING) | SM_TO(FORKED_OVERDRAWN)},
    [FORKED_SERVING] = {"serving", SM_TO(FORKED_OVERDRAWN)},
    [FORKED_OVERDRAWN] = {"overdrawn", 0},
};
static const struct sm forked_sm = {"forked isolate", forked_states, ARRAY_LEN(forked_states)};

struct forked {
    pid_t pid;
    uint32_t number;
    enum forked_state state;
    int64_t allowed_ns;  /* of processor time, from its start */
    uint64_t base_bytes; /* in memory when it began, as it said */
    int channel;         /* held until the isolate said that it is locked down, then the front's */
};

/* A descriptor that the engine opened and that an isolate must not share with its siblings. */
struct engine_fd {
    int fd;
    enum { ENGINE_FD_EVENT, ENGINE_FD_TIMER, ENGINE_FD_STATM, ENGINE_FD_PLAIN } kind;
};

struct zygote {
    struct zygote_config config;
    struct lock lock;
    struct isolate isolate;
    struct wire_reader control;
    struct engine_fd engine_fds[ENGINE_FDS_MAX];
    size_t nengine_fds;
    struct forked children[CHILDREN_MAX];
    size_t nchildren;
    uint32_t last_number;
    uint32_t wanted;
    uint32_t levers;             /* that hold */
    struct lever_lesson *lesson; /* while it is learnt */
    struct lever_pages *pages;   /* NULL: not populated */
    struct reset *reset;         /* NULL: isolates do not reset */
    char lever_note[256];        /* why a lever does not hold */
    uint64_t size_bytes;
    uint64_t writable_bytes; /* of its memory that isolates may write to */
    int64_t check_ns;        /* when one can have used up what it is allowed, at the soonest */
    int signal_fd;
};

static int send_control(uint16_t type, const struct buf *payload, const int *fds, size_t nfds) {
    struct wire_out out = {
        .type = type, .pieces = {{payload->data, payload->len}}, .fds = fds, .nfds = nfds};
    return wire_send(ISOLATE_CONTROL_FD, &out);
}

static int read_config(struct zygote *z, struct err *err) {
    struct wire_frame f;
    int rc = wire_read(&z->control, ISOLATE_CONTROL_FD, &f, err);
    if (rc < 0)
        return err_wrap(err, "wait for the configuration");
    struct unpack u;
    unpack_init(&u, f.data, f.len);
    uint32_t version = unpack_u32(&u);
    struct zygote_config c = {.flags = unpack_u32(&u), .levers = unpack_u32(&u)};
    c.memory_max_bytes = unpack_u64(&u);
    c.cpu_max_s = unpack_u32(&u);
    size_t plan_len;
    const char *plan = unpack_bytes(&u, &plan_len);
    buf_init(&c.plan, GATHER_PLAN_MAX * sizeof(uint32_t));
    if (plan)
        (void)buf_add(&c.plan, plan, plan_len);
    wire_frame_finish(&f);
    if (f.type != ISOLATE_CONFIG || !unpack_ok(&u))
        return err_set(err, ERR_PROTOCOL, "the first message is no configuration");
    if (version != ISOLATE_VERSION)
        return err_set(err, ERR_PROTOCOL, "contract version %u, this program speaks %d", version,
                       ISOLATE_VERSION);
    z->config = c;
    return 0;
}

/* ---- the descriptors of the engine ---- */

static int zygote_main_list_fds(int proc_fd, int *out, size_t max) {
    int dir_fd = openat(proc_fd, "self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = dir_fd >= 0 ? fdopendir(dir_fd) : NULL;
    if (!dir)
        return -1;
    size_t n = 0;
    struct dirent *e;
    while ((e = readdir(dir)) && n < max)
        if (e->d_name[0] != '.' && (int)strtol(e->d_name, NULL, 10) != dir_fd)
            out[n++] = (int)strtol(e->d_name, NULL, 10);
    closedir(dir);
    return (int)n;
}

static bool zygote_main_contains(const int *list, int n, int v) {
    for (int i = 0; i < n; i++)
        if (list[i] == v)
            return true;
    return false;
}

/* Whatever is open now and was not before belongs to the engine. Of an unknown kind it would be
 * shared by all isolates, so it is refused. */
static int note_engine_fds(struct zygote *z, const int *before, int nbefore, struct err *err) {
    int now[128];
    int n = zygote_main_list_fds(z->lock.proc_fd, now, ARRAY_LEN(now));
    for (int i = 0; i < n; i++) {
        if (zygote_main_contains(before, nbefore, now[i]))
            continue;
        char path[64];
        char target[128];
        (void)snprintf(path, sizeof(path), "self/fd/%d", now[i]);
        ssize_t len = readlinkat(z->lock.proc_fd, path, target, sizeof(target) - 1);
        target[len > 0 ? len : 0] = 0;
        struct engine_fd e = {.fd = now[i], .kind = ENGINE_FD_PLAIN};
        if (strstr(target, "[eventfd"))
            e.kind = ENGINE_FD_EVENT;
        else if (strstr(target, "[timerfd"))
            e.kind = ENGINE_FD_TIMER;
        else if (strstr(target, "/statm"))
            e.kind = ENGINE_FD_STATM;
        else if (strcmp(target, "/dev/urandom") != 0)
            return err_set(err, ERR_INTERNAL, "the engine holds %s, which isolates cannot share",
                           target);
        if (z->nengine_fds == ENGINE_FDS_MAX)
            return err_set(err, ERR_INTERNAL, "the engine holds too many descriptors");
        z->engine_fds[z->nengine_fds++] = e;
    }
    return 0;
}

/* ---- in the child ---- */

enum purpose { TO_SERVE, TO_LEARN_PAGES, TO_GATHER };

static bool replace_fd(int fresh, int old) {
    if (fresh < 0)
        return false;
    bool ok = dup3(fresh, old, O_CLOEXEC) >= 0;
    close(fresh);
    return ok;
}

/* Fork ignores CLOEXEC: everything goes but the channel, the engine's own (fresh ones, or they
 * would join all isolates) and a /dev/null for standard input, output and error. */
static bool own_fds(const struct zygote *z, int channel, const struct memory_start *memory,
                    enum purpose purpose) {
    int keep[ENGINE_FDS_MAX + 16] = {0, 1, 2, channel, memory->statm_fd};
    size_t n = 5;
    if (memory->pages_fd >= 0)
        keep[n++] = memory->pages_fd;
    if (z->reset) {
        keep[n++] = RESET_PAGEMAP_FD;
        keep[n++] = RESET_MAPS_FD;
        keep[n++] = RESET_STATM_FD;
    }
    if (purpose == TO_LEARN_PAGES)
        keep[n++] = z->lock.proc_fd;
    bool ok = true;
    for (int i = 0; i < 3; i++)
        ok = ok && dup3(z->lock.null_fd, i, 0) >= 0;
    for (size_t i = 0; i < z->nengine_fds && ok; i++) {
        const struct engine_fd *e = &z->engine_fds[i];
        if (e->kind == ENGINE_FD_EVENT)
            ok = replace_fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), e->fd);
        else if (e->kind == ENGINE_FD_TIMER)
            ok = replace_fd(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC), e->fd);
        else if (e->kind == ENGINE_FD_STATM)
            ok = replace_fd(openat(z->lock.proc_fd, "self/statm", O_RDONLY | O_CLOEXEC), e->fd);
        keep[n++] = e->fd;
    }
    fd_close_others(0, keep, n);
    return ok;
}

/* The test build can leave the filter out, to see what holds behind it. */
static bool wants_filter(const struct zygote *z) {
#ifdef CAY_ISOLATE_PROBE
    return !(z->config.flags & PROBE_CONFIG_NO_FILTER);
#else
    (void)z;
    return true;
#endif
}

/* Serves one run without a filter, then notes what that wrote to. */
static void be_trained(struct zygote *z, enum purpose purpose) {
    struct err err;
    while (isolate_step(&z->isolate, -1)) {
    }
    int rc = purpose == TO_GATHER ? gather_note(&err)
                                  : lever_lesson_learn(z->lesson, z->lock.proc_fd, &err);
    _exit(rc < 0 ? ISOLATE_EXIT_SETUP : ISOLATE_EXIT_OK);
}

/* What a life has of its own when it begins: pages that were copied in an earlier one stay. */
static struct memory_start life_memory(const struct memory_start *first,
                                       const struct reset_stats *stats) {
    struct memory_start m = *first;
    uint64_t more = (uint64_t)(stats->own - MIN(stats->own, stats->own_at_point)) * 4096;
    m.shared_bytes -= MIN(m.shared_bytes, more);
    m.private_bytes = stats->private_bytes ? stats->private_bytes + more : 0;
    return m;
}

static void serve_front(struct zygote *z, int channel, const struct memory_start *memory)
    __attribute__((noreturn));

static void serve_front(struct zygote *z, int channel, const struct memory_start *memory) {
    struct err err;
    int again = z->reset ? reset_point(z->reset, &err) : 0;
    if (again < 0)
        _exit(ISOLATE_EXIT_SETUP);
    if (again > 0) {
        struct reset_stats stats = reset_stats(z->reset);
        struct memory_start life = life_memory(memory, &stats);
        isolate_reborn(&z->isolate, &life, stats.restored, stats.dropped, stats.known);
    } else {
        if (z->reset) { /* to take the image was not the program's doing */
            struct memory_start life = *memory;
            life.private_bytes = memory_private(memory->pages_fd);
            reset_note_private(z->reset, life.private_bytes);
            memory_open(&life);
        }
        uint8_t hello[WIRE_HEAD_SIZE];
        wire_head_encode(hello, ISOLATE_HELLO, memory_base_resident(), 0, 0);
        if (write(channel, hello, sizeof(hello)) != sizeof(hello))
            _exit(ISOLATE_EXIT_OK);
    }
    if (isolate_serve(&z->isolate) && z->reset)
        reset_now(z->reset);
    _exit(ISOLATE_EXIT_OK);
}

/* First of all, because it also undoes what was written since the fork. */
static void fill_pages(const struct lever_pages *pages) {
#ifdef CAY_ISOLATE_PROBE
    if (lever_pages_differ(pages))
        _exit(ISOLATE_EXIT_SETUP);
#endif
    lever_pages_populate(pages);
}

static void be_isolate(struct zygote *z, int channel, enum purpose purpose)
    __attribute__((noreturn));

static void be_isolate(struct zygote *z, int channel, enum purpose purpose) {
    struct err err;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (z->pages && purpose == TO_SERVE)
        fill_pages(z->pages);
    if (purpose == TO_GATHER && gather_watch(&err) < 0)
        _exit(ISOLATE_EXIT_SETUP);
    sigset_t none;
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    uint64_t filled = z->pages && purpose == TO_SERVE ? lever_pages_count(z->pages) * 4096 : 0;
    struct memory_start memory = {
        .statm_fd = openat(z->lock.proc_fd, "self/statm", O_RDONLY | O_CLOEXEC),
        .pages_fd = openat(z->lock.proc_fd, z->reset ? "self/smaps" : "self/smaps_rollup",
                           O_RDONLY | O_CLOEXEC),
        .shared_bytes = z->writable_bytes - MIN(z->writable_bytes, filled)};
    struct lock_limits limits = {.address_space_bytes = z->size_bytes + z->config.memory_max_bytes,
                                 .cpu_s = UINT32_MAX};
    if (z->reset && reset_prepare(z->reset, z->lock.proc_fd, &err) < 0)
        _exit(ISOLATE_EXIT_SETUP);
    if (memory.statm_fd < 0 || !own_fds(z, channel, &memory, purpose) ||
        lock_set_limits(&limits, &err) < 0)
        _exit(ISOLATE_EXIT_SETUP);
    isolate_seed(&z->isolate);
    isolate_open(&z->isolate, channel, &memory);
    if (purpose != TO_SERVE)
        be_trained(z, purpose);
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    if (wants_filter(z) && lock_set_filter(&z->lock, &err) < 0)
        _exit(ISOLATE_EXIT_SETUP);
    serve_front(z, channel, &memory);
}

/* ---- children ---- */

/* An isolate keeps to the limit of each call by a timer of its own. This is the wall behind it, for
 * one whose engine was taken over: it is counted here, where it can change nothing. RLIMIT_CPU is
 * of no use for that: it counts the whole life of a process that serves many calls, its hard half
 * cannot be raised, and the signal of its soft half can be blocked. */
static int64_t allowance_ns(const struct zygote *z) {
    return (int64_t)z->config.cpu_max_s * 1000000000;
}

static int64_t used_ns(const struct forked *c) {
    return clock_process_ns(c->pid);
}

static void forked_move(struct forked *c, enum forked_state to) {
    c->state = (enum forked_state)sm_next(&forked_sm, c->state, to);
}

/* Kills those that used more than they were allowed, and notes when the next can have: none can
 * use its time faster than it passes. */
static void check_allowances(struct zygote *z, int64_t now_ns) {
    z->check_ns = INT64_MAX;
    for (size_t i = 0; i < z->nchildren; i++) {
        struct forked *c = &z->children[i];
        if (c->state == FORKED_OVERDRAWN)
            continue;
        int64_t left = c->allowed_ns - used_ns(c);
        if (left <= 0) {
            forked_move(c, FORKED_OVERDRAWN);
            (void)kill(c->pid, SIGKILL);
        } else {
            z->check_ns = MIN(z->check_ns, now_ns + left);
        }
    }
}

/* How long poll() may wait. */
static int zygote_main_wait_ms(struct zygote *z) {
    int64_t now_ns = clock_mono_ns();
    if (now_ns >= z->check_ns)
        check_allowances(z, now_ns);
    if (z->check_ns == INT64_MAX)
        return -1;
    return (int)MIN((z->check_ns - now_ns) / 1000000 + 1, (int64_t)INT32_MAX);
}

/* One has so much from now on. */
static void check_after(struct zygote *z, int64_t ns) {
    z->check_ns = MIN(z->check_ns, clock_mono_ns() + ns);
}

static void zygote_main_allow(struct zygote *z, uint32_t number, uint32_t calls) {
    int64_t more_ns = MIN(calls, (uint32_t)CALLS_MAX) * allowance_ns(z);
    for (size_t i = 0; i < z->nchildren; i++)
        if (z->children[i].number == number)
            z->children[i].allowed_ns = used_ns(&z->children[i]) + more_ns;
    check_after(z, more_ns);
}

/* Isolates are filled from what the engine's pages hold now. An allocation of the zygote's own
 * changes them: as a rule there is none. */
static void keep_pages(struct zygote *z) {
    struct err why;
#ifdef CAY_ISOLATE_PROBE
    if (z->config.flags & PROBE_CONFIG_ALLOCATES)
        memset(xmalloc(PROBE_BYTES), 1, PROBE_BYTES);
#endif
    if (z->pages && !gather_is_sealed() && gather_seal() && lever_pages_keep(z->pages, &why) < 0)
        (void)text_print(z->lever_note, sizeof(z->lever_note), "%s", why.message);
}

static int fork_isolate(struct zygote *z, struct err *err) {
    int ends[2];
    int rc = fd_pair(ends, err);
    if (rc < 0)
        return rc;
    keep_pages(z);
    pid_t pid = fork();
    if (pid == 0)
        be_isolate(z, ends[1], TO_SERVE);
    close(ends[1]);
    if (pid < 0) {
        rc = err_sys(err, "fork");
        close(ends[0]);
        return rc;
    }
    z->children[z->nchildren++] = (struct forked){
        .pid = pid, .number = ++z->last_number, .allowed_ns = allowance_ns(z), .channel = ends[0]};
    check_after(z, allowance_ns(z));
    return 0;
}

/* Forks a child, runs a program in it and waits for its end. */
static int zygote_main_rehearse(struct zygote *z, enum purpose purpose, const char *program,
                                struct err *err) {
    int ends[2];
    int rc = fd_pair(ends, err);
    if (rc < 0)
        return rc;
    pid_t pid = fork();
    if (pid == 0)
        be_isolate(z, ends[1], purpose);
    close(ends[1]);
    rc = pid < 0 ? err_sys(err, "fork") : warm_drive(ends[0], program, err);
    close(ends[0]);
    int status = 0;
    if (pid > 0 && waitpid(pid, &status, 0) == pid && status != 0 && rc == 0)
        rc = err_set(err, ERR_INTERNAL, "a rehearsal ended with status %x", (unsigned)status);
    return rc;
}

/* The isolate said that it is locked down: from here on it is the front's. */
static void hand_over(struct forked *c) {
    uint8_t hello[WIRE_HEAD_SIZE];
    ssize_t n = fd_read_all(c->channel, hello, sizeof(hello));
    _cleanup_(close) int channel = steal_fd(&c->channel);
    if (n != sizeof(hello) || c->state != FORKED_LOCKING)
        return; /* it died: EXITED says so */
    forked_move(c, FORKED_SERVING);
    c->base_bytes = wire_head_id(hello);
    _cleanup_(close) int pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0);
    char space[16];
    struct buf b = {.data = space, .cap = sizeof(space), .max = sizeof(space) - 1};
    pack_u32(&b, c->number);
    pack_u32(&b, (uint32_t)c->pid);
    int fds[] = {channel, pidfd};
    if (pidfd < 0 || send_control(ISOLATE_READY, &b, fds, 2) < 0)
        (void)kill(c->pid, SIGKILL);
}

static void child_exited(struct zygote *z, pid_t pid, int status, const struct rusage *ru) {
    for (size_t i = 0; i < z->nchildren; i++) {
        struct forked *c = &z->children[i];
        if (c->pid != pid)
            continue;
        char space[64];
        struct buf b = {.data = space, .cap = sizeof(space), .max = sizeof(space) - 1};
        pack_u32(&b, c->number);
        pack_u32(&b, c->state == FORKED_OVERDRAWN ? ISOLATE_EXIT_CPU << 8 : (uint32_t)status);
        pack_u64(&b, (uint64_t)ru->ru_utime.tv_sec * 1000000u + (uint64_t)ru->ru_utime.tv_usec);
        pack_u64(&b, (uint64_t)ru->ru_stime.tv_sec * 1000000u + (uint64_t)ru->ru_stime.tv_usec);
        pack_u64(&b, (uint64_t)ru->ru_maxrss);
        pack_u64(&b, (uint64_t)ru->ru_minflt);
        pack_u64(&b, c->base_bytes / 1024);
        pack_u64(&b, z->writable_bytes / 1024);
        fd_close(&c->channel);
        z->children[i] = z->children[--z->nchildren];
        (void)send_control(ISOLATE_EXITED, &b, NULL, 0);
        return;
    }
}

static void zygote_main_reap(struct zygote *z) {
    struct signalfd_siginfo info;
    while (read(z->signal_fd, &info, sizeof(info)) > 0) {
    }
    struct rusage ru;
    int status;
    pid_t pid;
    while ((pid = wait4(-1, &status, WNOHANG, &ru)) > 0)
        child_exited(z, pid, status, &ru);
}

/* ---- control ---- */

static int zygote_main_on_control(struct zygote *z, struct wire_frame *f, struct err *err) {
    struct unpack u;
    unpack_init(&u, f->data, f->len);
    switch (f->type) {
    case ISOLATE_WANT:
        z->wanted += unpack_u32(&u);
        if (z->wanted > CHILDREN_MAX)
            z->wanted = CHILDREN_MAX;
        break;
    case ISOLATE_ALLOW: {
        uint32_t number = unpack_u32(&u);
        zygote_main_allow(z, number, unpack_u32(&u));
        break;
    }
    default:
        u.bad = true;
    }
    if (!unpack_ok(&u))
        return err_set(err, ERR_PROTOCOL, "malformed control message of type %u", f->type);
    return 0;
}

static int zygote_main_read_control(struct zygote *z, struct err *err) {
    int rc = wire_recv(&z->control, ISOLATE_CONTROL_FD, err);
    struct wire_frame f;
    while (rc >= 0 && (rc = wire_next(&z->control, &f, err)) == 1) {
        rc = zygote_main_on_control(z, &f, err);
        wire_frame_finish(&f);
    }
    return rc;
}

static int zygote_main_serve(struct zygote *z, struct err *err) {
    static struct pollfd p[2 + CHILDREN_MAX];
    for (;;) {
        /* One at a time, so that what is ready is handed over between two forks. */
        if (z->wanted > 0 && z->nchildren < CHILDREN_MAX) {
            int rc = fork_isolate(z, err);
            if (rc < 0)
                return rc;
            z->wanted--;
        }
        size_t n = 2;
        p[0] = (struct pollfd){.fd = ISOLATE_CONTROL_FD, .events = POLLIN};
        p[1] = (struct pollfd){.fd = z->signal_fd, .events = POLLIN};
        for (size_t i = 0; i < z->nchildren; i++)
            p[n++] = (struct pollfd){.fd = z->children[i].channel, .events = POLLIN};
        bool more = z->wanted > 0 && z->nchildren < CHILDREN_MAX;
        int next_ms = zygote_main_wait_ms(z);
        if (poll(p, n, more ? 0 : next_ms) < 0 && errno != EINTR)
            return err_sys(err, "poll");
        for (size_t i = 2; i < n; i++)
            if (p[i].revents)
                hand_over(&z->children[i - 2]);
        if (p[1].revents)
            zygote_main_reap(z);
        if (p[0].revents) {
            int rc = zygote_main_read_control(z, err);
            if (rc == -ERR_CANCELLED)
                return 0; /* the front is gone, and everything ends with it */
            if (rc < 0)
                return rc;
        }
    }
}

/* ---- start ---- */

static void zygote_main_write_features(const struct zygote *z, const char *error, struct buf *out) {
    const struct lock *l = &z->lock;
    const struct {
        const char *name;
        bool on;
    } locks[] = {
        {"user_ns", l->user_ns},   {"net_ns", l->net_ns},
        {"mount_ns", l->mount_ns}, {"ipc_ns", l->ipc_ns},
        {"uts_ns", l->uts_ns},     {"cgroup_ns", l->cgroup_ns},
        {"pid_ns", l->pid_ns},     {"empty_root", l->empty_root},
        {"seccomp", l->seccomp},   {"unprivileged", l->unprivileged},
    };
    static const char *const levers[] = {"warm", "threshold", "text", "populate", "gather"};
    struct json_writer w;
    json_writer_init(&w, out);
    json_writer_object_begin(&w);
    json_put_int(&w, "version", ISOLATE_VERSION);
    json_put_object_begin(&w, "locks");
    for (size_t i = 0; i < ARRAY_LEN(locks); i++)
        json_put_bool(&w, locks[i].name, locks[i].on);
    json_writer_object_end(&w);
    json_put_bool(&w, "complete", lock_is_complete(l));
    json_put_object_begin(&w, "levers");
    for (size_t i = 0; i < ARRAY_LEN(levers); i++)
        json_put_bool(&w, levers[i], z->levers & 1u << i);
    json_writer_object_end(&w);
    json_put_bool(&w, "reset", z->reset != NULL);
    if (z->pages)
        json_put_int(&w, "pages_populated", (int64_t)lever_pages_count(z->pages));
    if (z->lever_note[0])
        json_put_str(&w, "lever_note", z->lever_note);
    if (error)
        json_put_str(&w, "error", error);
    json_writer_object_end(&w);
}

static int send_features(const struct zygote *z, const char *error) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, 16384);
    zygote_main_write_features(z, error, &b);
    return send_control(ISOLATE_FEATURES, &b, NULL, 0);
}

static uint64_t own_size(int proc_fd) {
    _cleanup_(close) int fd = openat(proc_fd, "self/statm", O_RDONLY | O_CLOEXEC);
    char text[128] = "";
    if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
        return 0;
    return strtoull(text, NULL, 10) * 4096u;
}

/* A lever that does not hold is left out, and FEATURES says why. */
static void lever_done(struct zygote *z, enum isolate_lever lever, int rc, const struct err *err) {
    if (rc == 0)
        z->levers |= lever;
    else
        (void)text_print(z->lever_note, sizeof(z->lever_note), "%s", err->message);
}

static void begin_gathering(struct zygote *z) {
    struct err err;
    bool scouts = z->config.flags & ISOLATE_CONFIG_LEARN;
    if (!scouts && !(z->config.levers & ISOLATE_LEVER_GATHER))
        return;
    int rc = gather_begin(z->config.plan.data, z->config.plan.len, scouts, &err);
    if (rc != 0)
        lever_done(z, ISOLATE_LEVER_GATHER, MIN(rc, 0), &err);
    buf_finish(&z->config.plan);
}

static void pull_levers(struct zygote *z) {
    struct err err;
    int proc_fd = z->lock.proc_fd;
    if (z->config.levers & ISOLATE_LEVER_TEXT)
        lever_done(z, ISOLATE_LEVER_TEXT, lever_text(proc_fd, &err), &err);
}

static int rehearse_to_gather(void *ctx, const char *program, struct err *err) {
    return zygote_main_rehearse(ctx, TO_GATHER, program, err);
}

/* A later zygote can have what this one learns. */
static void zygote_main_scout(struct zygote *z) {
    struct err why;
    _cleanup_(buf) struct buf plan;
    buf_init(&plan, GATHER_PLAN_MAX * sizeof(uint32_t));
    if (gather_scout(rehearse_to_gather, z, &plan, &why) < 0)
        (void)text_print(z->lever_note, sizeof(z->lever_note), "%s", why.message);
    if (plan.len > 0)
        (void)send_control(ISOLATE_PLAN, &plan, NULL, 0);
}

static void learn_pages(struct zygote *z) {
    struct err why;
    int rc = lever_lesson_create(&z->lesson, &why);
    if (rc == 0)
        rc = zygote_main_rehearse(z, TO_LEARN_PAGES, isolate_plain_js, &why);
    if (rc == 0)
        rc = lever_pages_create(z->lesson, &z->pages, &why);
    if (rc == 0 && lever_pages_count(z->pages) == 0)
        z->pages = NULL;
    lever_lesson_destroy(steal_ptr(&z->lesson));
    lever_done(z, ISOLATE_LEVER_POPULATE, rc, &why);
}

/* Behind the walls, as every isolate will run: an engine that cannot do this must not serve. */
static int rehearse_all(struct zygote *z, struct err *err) {
    if (z->config.flags & ISOLATE_CONFIG_LEARN)
        zygote_main_scout(z);
    if (z->config.levers & ISOLATE_LEVER_POPULATE)
        learn_pages(z);
    if (z->config.flags & ISOLATE_CONFIG_RESET) {
        struct err why;
        if (reset_create(&z->reset, z->lock.proc_fd, &why) < 0)
            (void)text_print(z->lever_note, sizeof(z->lever_note), "%s", why.message);
    }
    return zygote_main_rehearse(z, TO_SERVE, isolate_warm_js, err);
}

static int bring_up(struct zygote *z, struct err *err) {
    wire_reader_init(&z->control, CONTROL_FRAME_MAX);
    int rc = read_config(z, err);
    if (rc < 0)
        return rc;
    z->levers = z->config.levers & ISOLATE_LEVER_THRESHOLD;
    engine_options(z->levers & ISOLATE_LEVER_THRESHOLD, z->config.memory_max_bytes);
    struct lock_options walls = {.forks = true};
    if (z->config.flags & ISOLATE_CONFIG_RESET) {
        walls.ioctl_fd = RESET_PAGEMAP_FD;
        walls.ioctl_request = RESET_SCAN_REQUEST;
    }
    rc = lock_enter(&z->lock, &walls, err);
    if (rc < 0)
        return rc;
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &mask, NULL);
    z->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    if (z->signal_fd < 0)
        return err_sys(err, "signalfd");
    int before[128];
    int nbefore = zygote_main_list_fds(z->lock.proc_fd, before, ARRAY_LEN(before));
    /* The engine says on standard error what its options already say. */
    _cleanup_(close) int error_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 64);
    (void)dup2(z->lock.null_fd, STDERR_FILENO);
    begin_gathering(z);
    rc = isolate_init(&z->isolate, err);
    (void)dup2(error_fd, STDERR_FILENO);
    if (rc < 0)
        return rc;
    fd_close(&error_fd);
    /* Once at least: what the engine opens at first use it must open here. */
    rc = warm_up(&z->isolate, isolate_warm_js,
                 z->config.levers & ISOLATE_LEVER_WARM ? WARM_RUNS : 1, err);
    if (rc < 0)
        return rc;
    z->levers |= z->config.levers & ISOLATE_LEVER_WARM;
    engine_collect(&z->isolate.engine);
    if (z->levers & ISOLATE_LEVER_WARM)
        rc = warm_up(&z->isolate, isolate_warm_js, WARM_RUNS, err);
    if (rc == 0)
        rc = warm_up(&z->isolate, isolate_short_js, z->levers & ISOLATE_LEVER_WARM ? SHORT_RUNS : 1,
                     err);
    gather_end();
    if (rc < 0)
        return rc;
    rc = note_engine_fds(z, before, nbefore, err);
    if (rc < 0)
        return rc;
    pull_levers(z);
    rc = lock_seal(&z->lock, err);
    if (rc < 0)
        return rc;
    z->size_bytes = own_size(z->lock.proc_fd);
    z->writable_bytes = memory_writable(z->lock.proc_fd);
    return rehearse_all(z, err);
}

/* Starts over with every symbol bound: one that an isolate binds at its first use writes a page. */
static void bind_now(char **argv) {
    if (getenv("LD_BIND_NOW"))
        return;
    (void)clearenv();
    (void)setenv("LD_BIND_NOW", "1", 1);
    (void)execv("/proc/self/exe", argv);
    (void)unsetenv("LD_BIND_NOW"); /* it did not work */
}

int main(int argc, char **argv) {
    (void)argc;
    bind_now(argv);
    (void)prctl(PR_SET_NAME, "cay-isolate");
    log_init("cay-isolate", LOG_LEVEL_INFO);
    static struct zygote z;
    struct err err;
    if (bring_up(&z, &err) < 0) {
        log_error("isolate.failed", "error", err.message);
        (void)send_features(&z, err.message);
        return err_exit_status(err.code);
    }
    bool refused = (z.config.flags & ISOLATE_CONFIG_STRICT) && !lock_is_complete(&z.lock);
    if (send_features(&z, refused ? "not every wall can be had here" : NULL) < 0 || refused)
        return EXIT_FAILURE;
    if (zygote_main_serve(&z, &err) < 0) {
        log_error("isolate.failed", "error", err.message);
        return err_exit_status(err.code);
    }
    return EXIT_SUCCESS;
}
