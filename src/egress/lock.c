#include "egress/lock.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

int lock_process(struct err *err) {
    struct rlimit none = {0, 0};
    struct rlimit files;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || prctl(PR_SET_DUMPABLE, 0) < 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_sys(err, "prctl");
    for (unsigned long cap = 0; prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0; cap++)
        continue;
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[2] = {{0}, {0}};
    if (syscall(SYS_capset, &head, caps) < 0)
        return err_sys(err, "capset");
    if (setrlimit(RLIMIT_CORE, &none) < 0)
        return err_sys(err, "setrlimit");
    if (!SANITIZED && setrlimit(RLIMIT_FSIZE, &none) < 0)
        return err_sys(err, "setrlimit");
    /* A connection is one or two descriptors, and there are many sandboxes. */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    return 0;
}

/* --- files --- */

/* The header of Debian 12 knows the first field only. */
struct ruleset {
    uint64_t fs, net, scoped;
};
#define NET_BIND    1ULL
#define NET_CONNECT 2ULL
#define SCOPE_ALL   3ULL /* abstract sockets and signals */

static void allow_path(int ruleset, const char *path, bool folder) {
    _cleanup_(close) int fd = open(path, O_PATH | O_CLOEXEC);
    struct landlock_path_beneath_attr rule = {
        .allowed_access =
            LANDLOCK_ACCESS_FS_READ_FILE | (folder ? (uint64_t)LANDLOCK_ACCESS_FS_READ_DIR : 0),
        .parent_fd = fd,
    };
    /* What is not there needs no right. */
    if (fd >= 0)
        (void)syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
}

static int lock_files(const char *ca_file, struct err *err) {
    static const char *const folders[] = {"/etc",
                                          "/usr/lib/ssl",
                                          "/usr/share/ca-certificates",
                                          "/usr/local/share/ca-certificates",
                                          "/run/systemd/resolve",
                                          "/run/resolvconf",
                                          "/run/NetworkManager"};
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi <= 0)
        return 0;
    struct ruleset r = {.fs = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1};
    size_t size = sizeof(r.fs);
    if (abi >= 2)
        r.fs |= 1ULL << 13; /* refer */
    if (abi >= 3)
        r.fs |= 1ULL << 14; /* truncate */
    if (abi >= 4) {
        r.net = NET_BIND; /* it connects, and is handed what it listens on */
        size = 2 * sizeof(uint64_t);
    }
    if (abi >= 6) {
        r.scoped = SCOPE_ALL;
        size = sizeof(r);
    }
    _cleanup_(close) int fd = (int)syscall(SYS_landlock_create_ruleset, &r, size, 0);
    if (fd < 0)
        return err_sys(err, "landlock");
    for (size_t i = 0; i < ARRAY_LEN(folders); i++)
        allow_path(fd, folders[i], true);
    if (*ca_file)
        allow_path(fd, ca_file, false);
    if (SANITIZED) {
        allow_path(fd, "/usr", true);
        allow_path(fd, "/proc", true);
    }
    if (syscall(SYS_landlock_restrict_self, fd, 0) < 0)
        return err_sys(err, "landlock");
    return 0;
}

/* --- system calls --- */

static const int CALLS[] = {
    /* sockets */
    SCMP_SYS(accept4),
    SCMP_SYS(accept),
    SCMP_SYS(listen),
    SCMP_SYS(connect),
    SCMP_SYS(bind), /* of the resolver's netlink socket; Landlock stops it for TCP */
    SCMP_SYS(getsockname),
    SCMP_SYS(getpeername),
    SCMP_SYS(getsockopt),
    SCMP_SYS(setsockopt),
    SCMP_SYS(sendto),
    SCMP_SYS(sendmsg),
    SCMP_SYS(sendmmsg),
    SCMP_SYS(recvfrom),
    SCMP_SYS(recvmsg),
    SCMP_SYS(recvmmsg),
    SCMP_SYS(shutdown),
    SCMP_SYS(read),
    SCMP_SYS(write),
    SCMP_SYS(readv),
    SCMP_SYS(writev),
    SCMP_SYS(close),
    SCMP_SYS(fcntl),
    SCMP_SYS(dup),
    /* waiting */
    SCMP_SYS(epoll_wait),
    SCMP_SYS(epoll_pwait),
    SCMP_SYS(epoll_ctl),
    SCMP_SYS(epoll_create1),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(select),
    SCMP_SYS(pselect6),
    SCMP_SYS(eventfd2),
    SCMP_SYS(pipe2),
    SCMP_SYS(futex),
    SCMP_SYS(nanosleep),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_getres),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(time),
    SCMP_SYS(restart_syscall),
    /* reading what resolving and certificates need */
    SCMP_SYS(fstat),
    SCMP_SYS(newfstatat),
    SCMP_SYS(stat),
    SCMP_SYS(lstat),
    SCMP_SYS(statx),
    SCMP_SYS(access),
    SCMP_SYS(faccessat),
    SCMP_SYS(faccessat2),
    SCMP_SYS(readlink),
    SCMP_SYS(readlinkat),
    SCMP_SYS(lseek),
    SCMP_SYS(pread64),
    SCMP_SYS(getdents64),
    SCMP_SYS(uname),
    SCMP_SYS(getuid),
    SCMP_SYS(geteuid),
    SCMP_SYS(getgid),
    SCMP_SYS(getegid),
    SCMP_SYS(getpid),
    SCMP_SYS(getppid),
    SCMP_SYS(gettid),
    SCMP_SYS(getrandom),
    SCMP_SYS(sysinfo),
    /* memory and threads */
    SCMP_SYS(brk),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(madvise),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(rseq),
    SCMP_SYS(sched_yield),
    SCMP_SYS(sched_getaffinity),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
};

static int add_rules(scmp_filter_ctx f) {
    int rc = 0;
    for (size_t i = 0; i < ARRAY_LEN(CALLS) && rc == 0; i++)
        rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, CALLS[i], 0);
    const int maps[] = {SCMP_SYS(mmap), SCMP_SYS(mprotect)};
    for (size_t i = 0; i < ARRAY_LEN(maps) && rc == 0; i++)
        rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, maps[i], 1,
                              SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    /* Only reading. */
    const scmp_datum_t writing = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND;
    if (rc == 0)
        rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(openat), 1,
                              SCMP_A2(SCMP_CMP_MASKED_EQ, writing, 0));
    if (rc == 0)
        rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(open), 1,
                              SCMP_A1(SCMP_CMP_MASKED_EQ, writing, 0));
    /* The Internet, the resolver's daemons, and which addresses this host has. */
    const int families[] = {AF_INET, AF_INET6, AF_UNIX, AF_NETLINK};
    for (size_t i = 0; i < ARRAY_LEN(families) && rc == 0; i++)
        rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1,
                              SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)families[i]));
    if (rc == 0)
        rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(socketpair), 1,
                              SCMP_A0(SCMP_CMP_EQ, AF_UNIX));
    /* Threads, no processes. */
    if (rc == 0)
        rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
                              SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD));
    if (rc == 0)
        rc = seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
    const int requests[] = {0x541B /* FIONREAD */, 0x5421 /* FIONBIO */};
    for (size_t i = 0; i < ARRAY_LEN(requests) && rc == 0; i++)
        rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1,
                              SCMP_A1(SCMP_CMP_EQ, (scmp_datum_t)requests[i]));
    /* PR_SET_NAME, for threads. */
    if (rc == 0)
        rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(prctl), 1,
                              SCMP_A0(SCMP_CMP_EQ, PR_SET_NAME));
    /* Its own limits are looked at, not set. */
    if (rc == 0)
        rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), 2, SCMP_A0(SCMP_CMP_EQ, 0),
                              SCMP_A2(SCMP_CMP_EQ, 0));
    return rc;
}

/* An unknown call fails instead of killing: resolvers differ between hosts in what they try, and
 * all of them go on when they are refused something. */
static int lock_calls(struct err *err) {
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    if (!f)
        return err_set(err, ERR_INTERNAL, "no system-call filter");
    int rc = seccomp_attr_set(f, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    /* The pool's threads may run already. */
    if (rc == 0)
        rc = seccomp_attr_set(f, SCMP_FLTATR_CTL_TSYNC, 1);
    (void)seccomp_attr_set(f, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    if (rc == 0)
        rc = add_rules(f);
    if (rc == 0)
        rc = seccomp_load(f);
    seccomp_release(f);
    return rc == 0 ? 0 : err_set(err, ERR_INTERNAL, "system-call filter: %s", strerror(-rc));
}

int lock_world(const char *ca_file, struct err *err) {
    int rc = lock_files(ca_file, err);
    return rc < 0 || SANITIZED ? rc : lock_calls(err);
}
