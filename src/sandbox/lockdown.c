#include "sandbox/lockdown.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"
#include "lock/filter.h"
#include "lock/landlock.h"
#include "lock/privileges.h"
#include "lock/raw.h"
#include "sandbox/wall.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <netinet/in.h>
#include <sched.h>
#include <seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What ordinary programs call: the list that container runtimes agree on, without tracing, keys,
 * mounts, handles, NUMA policy and system-wide sync. Everything else is EPERM. */
static const char *const allowed[] = {
    "accept",
    "accept4",
    "access",
    "alarm",
    "arch_prctl",
    "bind",
    "brk",
    "capget",
    "capset",
    "chdir",
    "chmod",
    "chown",
    "chroot", /* init's: a guest lacks the capability */
    "clock_getres",
    "clock_gettime",
    "clock_nanosleep",
    "close",
    "close_range",
    "connect",
    "copy_file_range",
    "creat",
    "dup",
    "dup2",
    "dup3",
    "epoll_create",
    "epoll_create1",
    "epoll_ctl",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "eventfd",
    "eventfd2",
    "execve",
    "execveat",
    "exit",
    "exit_group",
    "faccessat",
    "faccessat2",
    "fadvise64",
    "fallocate",
    "fchdir",
    "fchmod",
    "fchmodat",
    "fchown",
    "fchownat",
    "fcntl",
    "fdatasync",
    "fgetxattr",
    "flistxattr",
    "flock",
    "fork",
    "fremovexattr",
    "fsetxattr",
    "fstat",
    "fstatfs",
    "fsync",
    "ftruncate",
    "futex",
    "futex_waitv",
    "futimesat",
    "getcpu",
    "getcwd",
    "getdents",
    "getdents64",
    "getegid",
    "geteuid",
    "getgid",
    "getgroups",
    "getitimer",
    "getpeername",
    "getpgid",
    "getpgrp",
    "getpid",
    "getppid",
    "getpriority",
    "getrandom",
    "getresgid",
    "getresuid",
    "getrlimit",
    "get_robust_list",
    "getrusage",
    "getsid",
    "getsockname",
    "getsockopt",
    "get_thread_area",
    "gettid",
    "gettimeofday",
    "getuid",
    "getxattr",
    "inotify_add_watch",
    "inotify_init",
    "inotify_init1",
    "inotify_rm_watch",
    "io_cancel",
    "io_destroy",
    "io_getevents",
    "ioprio_get",
    "ioprio_set",
    "io_setup",
    "io_submit",
    "kill",
    "landlock_add_rule",
    "landlock_create_ruleset",
    "landlock_restrict_self",
    "lchown",
    "lgetxattr",
    "link",
    "linkat",
    "listen",
    "listxattr",
    "llistxattr",
    "lremovexattr",
    "lseek",
    "lsetxattr",
    "lstat",
    "madvise",
    "membarrier",
    "memfd_create",
    "mincore",
    "mkdir",
    "mkdirat",
    "mlock",
    "mlock2",
    "mlockall",
    "mmap",
    "mprotect",
    "mq_getsetattr",
    "mq_notify",
    "mq_open",
    "mq_timedreceive",
    "mq_timedsend",
    "mq_unlink",
    "mremap",
    "msgctl",
    "msgget",
    "msgrcv",
    "msgsnd",
    "msync",
    "munlock",
    "munlockall",
    "munmap",
    "nanosleep",
    "newfstatat",
    "open",
    "openat",
    "openat2",
    "pause",
    "pidfd_open",
    "pidfd_send_signal",
    "pipe",
    "pipe2",
    "pkey_alloc",
    "pkey_free",
    "pkey_mprotect",
    "poll",
    "ppoll",
    "prctl",
    "pread64",
    "preadv",
    "preadv2",
    "process_mrelease",
    "pselect6",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "read",
    "readahead",
    "readlink",
    "readlinkat",
    "readv",
    "recvfrom",
    "recvmmsg",
    "recvmsg",
    "remap_file_pages",
    "removexattr",
    "rename",
    "renameat",
    "renameat2",
    "restart_syscall",
    "rmdir",
    "rseq",
    "rt_sigaction",
    "rt_sigpending",
    "rt_sigprocmask",
    "rt_sigqueueinfo",
    "rt_sigreturn",
    "rt_sigsuspend",
    "rt_sigtimedwait",
    "rt_tgsigqueueinfo",
    "sched_getaffinity",
    "sched_getattr",
    "sched_getparam",
    "sched_get_priority_max",
    "sched_get_priority_min",
    "sched_getscheduler",
    "sched_rr_get_interval",
    "sched_setaffinity",
    "sched_setattr",
    "sched_setparam",
    "sched_setscheduler",
    "sched_yield",
    "seccomp",
    "select",
    "semctl",
    "semget",
    "semop",
    "semtimedop",
    "sendfile",
    "sendmmsg",
    "sendmsg",
    "sendto",
    "setfsgid",
    "setfsuid",
    "setgid",
    "setgroups",
    "setitimer",
    "setpgid",
    "setpriority",
    "setregid",
    "setresgid",
    "setresuid",
    "setreuid",
    "setrlimit",
    "set_robust_list",
    "setsid",
    "setsockopt",
    "set_thread_area",
    "set_tid_address",
    "setuid",
    "setxattr",
    "shmat",
    "shmctl",
    "shmdt",
    "shmget",
    "shutdown",
    "sigaltstack",
    "signalfd",
    "signalfd4",
    "socketpair",
    "splice",
    "stat",
    "statfs",
    "statx",
    "symlink",
    "symlinkat",
    "sync_file_range",
    "sysinfo",
    "tee",
    "tgkill",
    "time",
    "timer_create",
    "timer_delete",
    "timer_getoverrun",
    "timer_gettime",
    "timer_settime",
    "timerfd_create",
    "timerfd_gettime",
    "timerfd_settime",
    "times",
    "tkill",
    "truncate",
    "umask",
    "uname",
    "unlink",
    "unlinkat",
    "utime",
    "utimensat",
    "utimes",
    "vfork",
    "vmsplice",
    "wait4",
    "waitid",
    "write",
    "writev",
};

#define NEW_NAMESPACES                                                                             \
    (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |     \
     CLONE_NEWCGROUP | 0x80 /* CLONE_NEWTIME */)

enum { TTY_STI = 0x5412, TTY_LINUX = 0x541C };

/* TCP and UDP, and no other protocol of the Internet: each is kernel code of its own that hardly
 * any program needs (MPTCP, UDP-Lite, SCTP, DCCP). The type is looked at too, because protocol 0
 * means whichever a type has. */
static void add_socket_rules(struct filter *f) {
    enum { TYPE = 15 }; /* beside it SOCK_CLOEXEC and SOCK_NONBLOCK */
    static const uint64_t families[] = {AF_INET, AF_INET6};
    static const uint64_t kinds[][2] = {
        {SOCK_STREAM, 0}, {SOCK_STREAM, IPPROTO_TCP}, {SOCK_DGRAM, 0}, {SOCK_DGRAM, IPPROTO_UDP}};
    for (size_t i = 0; i < ARRAY_LEN(families); i++) {
        for (size_t k = 0; k < ARRAY_LEN(kinds); k++)
            filter_allow_if(f, SCMP_SYS(socket),
                            FILTER_ARGS(SCMP_A0(SCMP_CMP_EQ, families[i]),
                                        SCMP_A1(SCMP_CMP_MASKED_EQ, TYPE, kinds[k][0]),
                                        SCMP_A2(SCMP_CMP_EQ, kinds[k][1])));
        /* What programs try first if the kernel has it: this makes them fall back. */
        filter_refuse(
            f, SCMP_SYS(socket), EPROTONOSUPPORT,
            FILTER_ARGS(SCMP_A0(SCMP_CMP_EQ, families[i]), SCMP_A2(SCMP_CMP_GT, IPPROTO_UDP)));
    }
    filter_allow_if(f, SCMP_SYS(socket), FILTER_ARGS(SCMP_A0(SCMP_CMP_EQ, AF_UNIX)));
    filter_allow_if(f, SCMP_SYS(socket),
                    FILTER_ARGS(SCMP_A0(SCMP_CMP_EQ, AF_NETLINK), SCMP_A2(SCMP_CMP_EQ, 0)));
    filter_refuse(f, SCMP_SYS(socket), EAFNOSUPPORT, FILTER_ARGS(SCMP_A0(SCMP_CMP_GT, AF_NETLINK)));
}

static void add_argument_rules(struct filter *f) {
    filter_allow_if(f, SCMP_SYS(clone),
                    FILTER_ARGS(SCMP_A0(SCMP_CMP_MASKED_EQ, NEW_NAMESPACES, 0)));
    filter_allow(f, (const int[]){SCMP_SYS(ioctl)}, 1);
    add_socket_rules(f);
    filter_allow_if(f, SCMP_SYS(prlimit64), FILTER_ARGS(SCMP_A0(SCMP_CMP_EQ, 0)));
    filter_allow(f, (const int[]){SCMP_SYS(setrlimit)}, 1);
    static const uint64_t personas[] = {0, 0x0008, 0x20000, 0x20008, 0xffffffff};
    for (size_t i = 0; i < ARRAY_LEN(personas); i++)
        filter_allow_if(f, SCMP_SYS(personality), FILTER_ARGS(SCMP_A0(SCMP_CMP_EQ, personas[i])));
    static const uint64_t kinds[] = {0, S_IFREG, S_IFIFO, S_IFSOCK};
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
#ifdef __NR_mknod
        filter_allow_if(f, SCMP_SYS(mknod),
                        FILTER_ARGS(SCMP_A1(SCMP_CMP_MASKED_EQ, S_IFMT, kinds[i])));
#endif
        filter_allow_if(f, SCMP_SYS(mknodat),
                        FILTER_ARGS(SCMP_A2(SCMP_CMP_MASKED_EQ, S_IFMT, kinds[i])));
    }
}

/* Putting words into a terminal's mouth. libseccomp cannot say "every ioctl but these two" with the
 * upper half of the argument ignored, as the kernel ignores it, so these come before its program.
 */
static const struct sock_filter no_sti[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 4),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TTY_STI, 1, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TTY_LINUX, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
};

/* RLIMIT_CORE stays as it is (see the launcher), and whoever sets it is told that he did: programs
 * that switch core dumps off take a refusal for the end. Again the upper half means nothing. */
static const struct sock_filter no_core[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setrlimit, 0, 2),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, RLIMIT_CORE, 7, 8),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prlimit64, 0, 7),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, RLIMIT_CORE, 0, 5),
    /* Only asking, without a new value, is what it seems to be. */
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 2),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2]) + 4),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 0),
};

/* The two above, then the filter. */
static int export_filter(struct filter *f, struct sock_fprog *ret, struct err *err) {
    struct sock_fprog own;
    int rc = filter_export(f, &own, err);
    if (rc < 0)
        return rc;
    size_t before = ARRAY_LEN(no_sti) + ARRAY_LEN(no_core);
    struct sock_filter *p = xmalloc((before + own.len) * sizeof(*p));
    memcpy(p, no_sti, sizeof(no_sti));
    memcpy(p + ARRAY_LEN(no_sti), no_core, sizeof(no_core));
    memcpy(p + before, own.filter, own.len * sizeof(*p));
    free(own.filter);
    *ret = (struct sock_fprog){.len = (unsigned short)(before + own.len), .filter = p};
    return 0;
}

/* ---- the tree ---- */

/* libseccomp's program asks for every call one by one, and the kernel walks it for each of some 460
 * calls when it is installed: 0.2 ms, a tenth of making a sandbox. Neighbouring calls mostly share
 * a verdict, so a binary search over ranges answers nearly all of them in front of it. */
enum { CALLS = 512, TREE_MAX = 250 };

enum verdict { VERDICT_EPERM, VERDICT_ENOSYS, VERDICT_ALLOW, VERDICT_ARGS };

static void fill_verdicts(uint8_t verdicts[CALLS]) {
    static const char *const with_args[] = {"clone",     "ioctl",       "socket", "prlimit64",
                                            "setrlimit", "personality", "mknod",  "mknodat"};
    memset(verdicts, VERDICT_EPERM, CALLS);
    /* Newer than the list: "not there" makes programs fall back, "not permitted" makes them fail.
     */
    memset(verdicts + 450, VERDICT_ENOSYS, CALLS - 450);
    for (size_t i = 0; i < ARRAY_LEN(allowed); i++) {
        int nr = seccomp_syscall_resolve_name(allowed[i]);
        if (nr >= 0 && nr < CALLS)
            verdicts[nr] = VERDICT_ALLOW;
    }
    for (size_t i = 0; i < ARRAY_LEN(with_args); i++) {
        int nr = seccomp_syscall_resolve_name(with_args[i]);
        if (nr >= 0 && nr < CALLS)
            verdicts[nr] = VERDICT_ARGS;
    }
    /* Its flags are in memory, where a filter cannot look: C libraries fall back to clone(). */
    verdicts[SYS_clone3] = VERDICT_ENOSYS;
}

struct tree {
    struct sock_filter code[TREE_MAX];
    size_t n;
    unsigned starts[CALLS];
    uint8_t verdicts[CALLS];
};

static void lockdown_emit(struct tree *t, struct sock_filter f) {
    assert(t->n < TREE_MAX);
    t->code[t->n++] = f;
}

static void emit_ranges(struct tree *t, size_t lo, size_t hi) {
    static const uint32_t actions[] = {[VERDICT_EPERM] = SECCOMP_RET_ERRNO | EPERM,
                                       [VERDICT_ENOSYS] = SECCOMP_RET_ERRNO | ENOSYS,
                                       [VERDICT_ALLOW] = SECCOMP_RET_ALLOW};
    if (lo == hi) {
        uint8_t v = t->verdicts[lo];
        /* The jump's length is filled in when the tree's is known. */
        lockdown_emit(t, v == VERDICT_ARGS
                             ? (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA, 0)
                             : (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, actions[v]));
        return;
    }
    size_t mid = (lo + hi + 1) / 2, at = t->n;
    lockdown_emit(t, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, t->starts[mid], 0, 0));
    emit_ranges(t, lo, mid - 1);
    t->code[at].jt = (uint8_t)(t->n - at - 1);
    emit_ranges(t, mid, hi);
}

/* Puts the tree before the program that looks at arguments (and kills x32 calls, which are past the
 * tree's end). */
static void lockdown_add_tree(struct sock_fprog *p) {
    static struct tree t;
    uint8_t all[CALLS];
    size_t ranges = 0;
    fill_verdicts(all);
    for (unsigned nr = 0; nr < CALLS; nr++)
        if (nr == 0 || all[nr] != all[nr - 1]) {
            t.starts[ranges] = nr;
            t.verdicts[ranges++] = all[nr];
        }
    t.starts[ranges] = CALLS;
    t.verdicts[ranges++] = VERDICT_ARGS;
    lockdown_emit(&t, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                                   offsetof(struct seccomp_data, arch)));
    /* 32-bit calls would need a list of their own. */
    lockdown_emit(
        &t, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, seccomp_arch_native(), 1, 0));
    lockdown_emit(&t, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
    lockdown_emit(&t, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                                   offsetof(struct seccomp_data, nr)));
    emit_ranges(&t, 0, ranges - 1);
    for (size_t i = 0; i < t.n; i++)
        if (t.code[i].code == (BPF_JMP | BPF_JA))
            t.code[i].k = (uint32_t)(t.n - i - 1);
    struct sock_filter *both = xmalloc((t.n + p->len) * sizeof(*both));
    memcpy(both, t.code, t.n * sizeof(*both));
    memcpy(both + t.n, p->filter, p->len * sizeof(*both));
    free(p->filter);
    p->filter = both;
    p->len = (unsigned short)(p->len + t.n);
}

static int lockdown_build_filter(struct sock_fprog *ret, struct err *err) {
    struct filter *f = filter_create(FILTER_EPERM);
    add_argument_rules(f);
    int rc = export_filter(f, ret, err);
    if (rc == 0)
        lockdown_add_tree(ret);
    return rc;
}

/* A guest that may write to a folder of the host must not leave a setuid program there. The mode of
 * openat2() is in memory, so that call goes away. */
static int build_no_suid(struct sock_fprog *ret, struct err *err) {
    static const struct {
        const char *name;
        unsigned arg;
        bool opens;
    } calls[] = {{"chmod", 1, false},  {"fchmod", 1, false},  {"fchmodat", 2, false},
                 {"open", 2, true},    {"openat", 3, true},   {"creat", 1, false},
                 {"mknod", 1, false},  {"mknodat", 2, false}, {"mkdir", 1, false},
                 {"mkdirat", 2, false}};
    struct filter *f = filter_create(FILTER_ALLOW);
    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        for (unsigned bit = S_ISGID; bit <= S_ISUID; bit <<= 1) {
            int nr = seccomp_syscall_resolve_name(calls[i].name);
            if (nr < 0)
                continue;
            struct scmp_arg_cmp mode = {
                .arg = calls[i].arg, .op = SCMP_CMP_MASKED_EQ, .datum_a = bit, .datum_b = bit};
            if (!calls[i].opens)
                filter_refuse(f, nr, EPERM, &mode, 1);
            /* Without these two the mode means nothing, and may be anything. */
            static const unsigned creates[] = {O_CREAT, O_TMPFILE & ~O_DIRECTORY};
            for (size_t k = 0; calls[i].opens && k < ARRAY_LEN(creates); k++)
                filter_refuse(f, nr, EPERM,
                              FILTER_ARGS(mode, {.arg = calls[i].arg - 1,
                                                 .op = SCMP_CMP_MASKED_EQ,
                                                 .datum_a = creates[k],
                                                 .datum_b = creates[k]}));
        }
    filter_refuse(f, SCMP_SYS(openat2), ENOSYS, NULL, 0);
    return export_filter(f, ret, err);
}

int lockdown_init(struct lockdown *l, struct err *err) {
    *l = (struct lockdown){0};
    l->landlock_abi = landlock_version();
    int rc = lockdown_build_filter(&l->filter, err);
    return rc < 0 ? rc : build_no_suid(&l->no_suid, err);
}

#ifdef CAY_TEST_WALLS
int lockdown_raise_ambient(void) {
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct d[2] = {{0}};
    long rc = raw(SYS_capget, (long)&head, (long)d, 0, 0);
    for (int i = 0; i < 2; i++)
        d[i].effective = d[i].inheritable = d[i].permitted;
    if (rc == 0)
        rc = raw(SYS_capset, (long)&head, (long)d, 0, 0);
    for (int cap = 0; rc == 0 && cap <= CAP_LAST_CAP; cap++)
        (void)raw(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0);
    return (int)rc;
}
#endif

int lockdown_bounding(struct err *err) {
    return wall_on(WALL_CAPS) ? privileges_empty_bounding(err) : 0;
}

/* ---- Landlock ---- */

#define READ  (LANDLOCK_RIGHT_READ | LANDLOCK_RIGHT_LIST)
#define WRITE (LANDLOCK_RIGHT_WRITE | LANDLOCK_RIGHT_TRUNCATE)

static struct landlock ruleset_of(const struct lockdown *l, int ruleset) {
    return (struct landlock){.version = l->landlock_abi, .fd = ruleset};
}

int lockdown_allow_writable(const struct lockdown *l, int ruleset, const char *path,
                            struct err *err) {
    struct landlock k = ruleset_of(l, ruleset);
    uint64_t never = LANDLOCK_RIGHT_MAKE_CHAR | LANDLOCK_RIGHT_MAKE_DISK;
    return landlock_allow(&k, path, LANDLOCK_RIGHT_ALL & ~never, err);
}

int lockdown_allow_root(const struct lockdown *l, int ruleset, struct err *err) {
    struct landlock k = ruleset_of(l, ruleset);
    return landlock_allow(&k, "/", READ | LANDLOCK_RIGHT_EXECUTE, err);
}

int lockdown_allow_read(const struct lockdown *l, int ruleset, int fd, struct err *err) {
    struct landlock k = ruleset_of(l, ruleset);
    return landlock_allow_fd(&k, fd, READ, err);
}

int lockdown_ruleset(const struct lockdown *l, const char *const *writable, size_t n, int *ret_fd,
                     struct err *err) {
    struct landlock k = {.fd = -1};
    *ret_fd = -1;
    if (!wall_on(WALL_LANDLOCK))
        return 0;
    int rc = landlock_open(&k, 0, err);
    if (rc == 0)
        rc = lockdown_allow_root(l, k.fd, err);
    if (rc == 0)
        rc = landlock_allow(&k, "/dev", READ | WRITE | LANDLOCK_RIGHT_IOCTL, err);
    if (rc == 0)
        rc = landlock_allow(&k, "/proc", READ | WRITE, err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = lockdown_allow_writable(l, k.fd, writable[i], err);
    if (rc == 0)
        *ret_fd = steal_fd(&k.fd);
    landlock_close(&k);
    return rc;
}

int lockdown_install(const struct sock_fprog *filter) {
    return (int)raw(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)filter, 0);
}

int lockdown_enforce(const struct lockdown *l, int ruleset, struct err *err) {
    if (wall_on(WALL_NNP) && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_sys(err, "no_new_privs");
    struct landlock k = ruleset_of(l, ruleset);
    int rc = landlock_enforce(&k, err);
    if (rc < 0)
        return rc;
    rc = wall_on(WALL_SECCOMP) ? lockdown_install(&l->filter) : 0;
    if (rc == 0)
        return 0;
    errno = -rc;
    return err_sys(err, "install the system call filter");
}
