#include "lock/lock.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "lock/filter.h"
#include "lock/privileges.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The user that isolates are when cay runs as root: nobody, who owns nothing. */
enum { NOBODY = 65534 };

static bool lock_write_proc(int proc_fd, const char *path, const char *text) {
    _cleanup_(close) int fd = openat(proc_fd, path, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && fd_write_all(fd, text, strlen(text)) == 0;
}

/* Inside, this process is nobody; outside, it is who it was. */
static bool map_user(int proc_fd, uid_t uid, gid_t gid) {
    char line[64];
    (void)lock_write_proc(proc_fd, "self/setgroups", "deny");
    (void)snprintf(line, sizeof(line), "%d %u 1", NOBODY, gid);
    if (!lock_write_proc(proc_fd, "self/gid_map", line))
        return false;
    (void)snprintf(line, sizeof(line), "%d %u 1", NOBODY, uid);
    return lock_write_proc(proc_fd, "self/uid_map", line);
}

static void enter_user_ns(struct lock *l) {
    uid_t uid = geteuid();
    gid_t gid = getegid();
    if (unshare(CLONE_NEWUSER) == 0)
        l->user_ns = map_user(l->proc_fd, uid, gid);
}

/* pid 1 of the isolates' namespace: holds it open, and when the zygote is gone takes every isolate
 * with it. A process of its own, because the engine must not be pid 1. */
static void be_init(int alive_fd) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)prctl(PR_SET_NAME, "cay-isolate-ini");
    int keep[] = {alive_fd};
    fd_close_others(0, keep, 1);
    char c;
    while (read(alive_fd, &c, 1) < 0 && errno == EINTR) {
    }
    _exit(0);
}

static int enter_pid_ns(struct lock *l, struct err *err) {
    if (unshare(CLONE_NEWPID) < 0)
        return 0;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(err, "pipe");
    pid_t pid = fork();
    if (pid < 0)
        return err_sys(err, "start pid 1 of the isolates");
    if (pid == 0) {
        close(ends[1]);
        be_init(ends[0]);
    }
    close(ends[0]);
    l->init_fd = ends[1];
    l->pid_ns = true;
    return 0;
}

static bool lock_enter_ns(int flag) {
    return unshare(flag) == 0;
}

static int lock_build_filter(struct lock *l, const struct lock_options *options, struct err *err);

int lock_enter(struct lock *l, const struct lock_options *options, struct err *err) {
    *l = (struct lock){.proc_fd = -1, .null_fd = -1, .init_fd = -1};
    l->proc_fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (l->proc_fd < 0)
        return err_sys(err, "open /proc");
    l->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (l->null_fd < 0)
        return err_sys(err, "open /dev/null");
    int rc = lock_build_filter(l, options, err);
    if (rc < 0)
        return rc;
    /* Root makes the other namespaces with the power it has and becomes nobody in lock_seal(). */
    if (geteuid() != 0)
        enter_user_ns(l);
    l->mount_ns = lock_enter_ns(CLONE_NEWNS);
    l->net_ns = lock_enter_ns(CLONE_NEWNET);
    l->ipc_ns = lock_enter_ns(CLONE_NEWIPC);
    l->uts_ns = lock_enter_ns(CLONE_NEWUTS);
    l->cgroup_ns = lock_enter_ns(CLONE_NEWCGROUP);
    return options->forks ? enter_pid_ns(l, err) : 0;
}

/* An empty, read-only tmpfs becomes the root; the old one is let go of. */
static bool empty_root(void) {
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return false;
    unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
    if (mount("none", "/tmp", "tmpfs", flags, "size=4k,nr_inodes=2,mode=0555") < 0)
        return false;
    if (chdir("/tmp") < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
        return false;
    if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return false;
    return mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | flags, NULL) == 0;
}

static bool become_nobody(void) {
    return setgroups(0, NULL) == 0 && setresgid(NOBODY, NOBODY, NOBODY) == 0 &&
           setresuid(NOBODY, NOBODY, NOBODY) == 0;
}

int lock_seal(struct lock *l, struct err *err) {
    l->empty_root = l->mount_ns && empty_root();
    if (geteuid() == 0) {
        (void)privileges_empty_bounding(NULL);
        if (!become_nobody())
            return err_sys(err, "become nobody");
        /* Changing the user made /proc/self root's; isolates open their own files in it. */
        (void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
        enter_user_ns(l);
    }
    (void)privileges_empty_bounding(NULL);
    int rc = privileges_set_caps(0);
    if (rc < 0) {
        errno = -rc;
        return err_sys(err, "drop capabilities");
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_sys(err, "no_new_privs");
    l->unprivileged = geteuid() != 0;
    return 0;
}

bool lock_is_complete(const struct lock *l) {
    return l->user_ns && l->net_ns && l->mount_ns && l->ipc_ns && l->uts_ns && l->pid_ns &&
           l->empty_root && l->unprivileged && l->seccomp;
}

int lock_set_limits(const struct lock_limits *limits, struct err *err) {
    const struct {
        int resource;
        rlim_t value;
    } walls[] = {
        {RLIMIT_AS, limits->address_space_bytes},
        {RLIMIT_CPU, limits->cpu_s},
        {RLIMIT_CORE, 0},
        {RLIMIT_FSIZE, 0},
        {RLIMIT_NPROC, 0},
        {RLIMIT_MEMLOCK, 0},
        {RLIMIT_MSGQUEUE, 0},
        /* Enough for what it has and what RUN brings. */
        {RLIMIT_NOFILE, 64},
    };
    for (size_t i = 0; i < ARRAY_LEN(walls); i++) {
        struct rlimit r = {.rlim_cur = walls[i].value, .rlim_max = walls[i].value};
        if (setrlimit((__rlimit_resource_t)walls[i].resource, &r) < 0)
            return err_sys(err, "limit %d", walls[i].resource);
    }
    return 0;
}

/* What an isolate needs, and nothing that opens, connects, starts or signals. Descriptors come in
 * with recvmsg (RUN brings the env's); there is no sendmsg, so none goes out. */
static const int allowed[] = {
    SCMP_SYS(read),
    SCMP_SYS(write),
    SCMP_SYS(pread64),
    SCMP_SYS(close),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(recvmsg),
    SCMP_SYS(munmap),
    SCMP_SYS(madvise),
    SCMP_SYS(mremap),
    SCMP_SYS(brk),
    SCMP_SYS(futex),
    SCMP_SYS(sched_yield),
    SCMP_SYS(getrandom),
    SCMP_SYS(getrusage),
    SCMP_SYS(setitimer),
    SCMP_SYS(timerfd_settime), /* the engine's own, since 2.54 */
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(exit_group),
    SCMP_SYS(exit),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(rt_sigprocmask),
};

static void lock_add_rules(struct filter *f, const struct lock_options *options) {
    /* What holds no capability may pass descriptors: it has none. */
    if (options->sends_messages)
        filter_allow(f, (const int[]){SCMP_SYS(sendmsg)}, 1);
    filter_allow(f, allowed, ARRAY_LEN(allowed));
    /* The engine reserved its code region before. */
    filter_allow_memory(f);
    /* send(): to the peer of a connected socket only. */
    filter_allow_if(f, SCMP_SYS(sendto), FILTER_ARGS(SCMP_A4(SCMP_CMP_EQ, 0)));
    /* Names for memory, since 2.54: many kernels have none, and answer so. */
    filter_refuse(f, SCMP_SYS(prctl), EINVAL, FILTER_ARGS(SCMP_A0(SCMP_CMP_EQ, PR_SET_VMA)));
    /* Where it runs itself. */
    filter_allow_if(f, SCMP_SYS(sched_setaffinity), FILTER_ARGS(SCMP_A0(SCMP_CMP_EQ, 0)));
    /* Whether shared memory that it was given can shrink under it. */
    filter_allow_if(f, SCMP_SYS(fcntl), FILTER_ARGS(SCMP_A1(SCMP_CMP_EQ, F_GET_SEALS)));
    /* Its own limits, which it can only lower. */
    filter_allow_if(f, SCMP_SYS(prlimit64), FILTER_ARGS(SCMP_A0(SCMP_CMP_EQ, 0)));
    if (options->ioctl_request)
        filter_allow_if(f, SCMP_SYS(ioctl),
                        FILTER_ARGS(SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)options->ioctl_fd),
                                    SCMP_A1(SCMP_CMP_EQ, options->ioctl_request)));
}

/* Built once, in the zygote, as a program for the kernel: an isolate loads it with one call. */
static int lock_build_filter(struct lock *l, const struct lock_options *options, struct err *err) {
    struct filter *f = filter_create(FILTER_KILL);
    lock_add_rules(f, options);
    struct sock_fprog prog;
    int rc = filter_export(f, &prog, err);
    if (rc < 0)
        return rc;
    l->filter = prog.filter;
    l->filter_n = prog.len;
    l->seccomp = true;
    return 0;
}

int lock_set_filter(const struct lock *l, struct err *err) {
    struct sock_fprog prog = {.len = (unsigned short)l->filter_n, .filter = l->filter};
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0)
        return err_sys(err, "system-call filter");
    return 0;
}
