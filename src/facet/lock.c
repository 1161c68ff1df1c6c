#include "facet/lock.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <seccomp.h>
#include <signal.h>
#include <stdbool.h>
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

bool lock_is_relaxed(void) {
    return SANITIZED;
}

static int set_limit(int what, uint64_t n, struct err *err) {
    struct rlimit r = {.rlim_cur = n, .rlim_max = n};
    return setrlimit((__rlimit_resource_t)what, &r) < 0 ? err_sys(err, "setrlimit") : 0;
}

int lock_process(struct err *err) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || prctl(PR_SET_DUMPABLE, 0) < 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_sys(err, "prctl");
    /* Ends at EINVAL, behind the last capability, or at EPERM, if there are none to lose. */
    for (unsigned long cap = 0; prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0; cap++)
        continue;
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}, {0}};
    if (syscall(SYS_capset, &head, none) < 0)
        return err_sys(err, "capset");
    if (set_limit(RLIMIT_CORE, 0, err) < 0 || set_limit(RLIMIT_NPROC, 0, err) < 0)
        return -(int)err->code;
    return 0;
}

int lock_limits(uint64_t memory_bytes, uint64_t file_bytes, struct err *err) {
    if (set_limit(RLIMIT_NOFILE, 128, err) < 0 || set_limit(RLIMIT_FSIZE, file_bytes, err) < 0)
        return -(int)err->code;
    if (lock_is_relaxed())
        return 0;
    return set_limit(RLIMIT_DATA, memory_bytes, err);
}

#ifndef LANDLOCK_ACCESS_FS_TRUNCATE
#define LANDLOCK_ACCESS_FS_TRUNCATE (1ULL << 14)
#endif
#define FS_IOCTL_DEV (1ULL << 15)
#define NET_TCP      (3ULL) /* bind and connect */
#define SCOPE_ALL    (3ULL) /* abstract sockets and signals */

/* The header of Debian 12 knows the first field only. */
struct ruleset {
    uint64_t fs, net, scoped;
};

int lock_folder(int dirfd, uint32_t *ret_abi, struct err *err) {
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi <= 0) {
        *ret_abi = 0;
        return 0;
    }
    struct ruleset r = {.fs = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1};
    size_t size = sizeof(r.fs);
    if (abi >= 2)
        r.fs |= LANDLOCK_ACCESS_FS_REFER;
    if (abi >= 3)
        r.fs |= LANDLOCK_ACCESS_FS_TRUNCATE;
    if (abi >= 4) {
        r.net = NET_TCP;
        size = 2 * sizeof(uint64_t);
    }
    if (abi >= 5)
        r.fs |= FS_IOCTL_DEV;
    if (abi >= 6) {
        r.scoped = SCOPE_ALL;
        size = sizeof(r);
    }
    _cleanup_(close) int fd = (int)syscall(SYS_landlock_create_ruleset, &r, size, 0);
    if (fd < 0)
        return err_sys(err, "landlock");
    struct landlock_path_beneath_attr rule = {
        .allowed_access = r.fs & (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE |
                                  LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
                                  LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_TRUNCATE),
        .parent_fd = dirfd,
    };
    if (syscall(SYS_landlock_add_rule, fd, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0 ||
        syscall(SYS_landlock_restrict_self, fd, 0) < 0)
        return err_sys(err, "landlock");
    *ret_abi = (uint32_t)abi;
    return 0;
}

/* What a running facet does: talk, wait, read and write files that are open, manage memory. */
static const int RUNNING[] = {
    SCMP_SYS(recvmsg),         SCMP_SYS(sendmsg),
    SCMP_SYS(sendto),          SCMP_SYS(shutdown),
    SCMP_SYS(epoll_wait),      SCMP_SYS(epoll_pwait),
    SCMP_SYS(epoll_ctl),       SCMP_SYS(poll),
    SCMP_SYS(ppoll),           SCMP_SYS(read),
    SCMP_SYS(write),           SCMP_SYS(pread64),
    SCMP_SYS(pwrite64),        SCMP_SYS(lseek),
    SCMP_SYS(ftruncate),       SCMP_SYS(fsync),
    SCMP_SYS(fdatasync),       SCMP_SYS(fallocate),
    SCMP_SYS(fstat),           SCMP_SYS(close),
    SCMP_SYS(fcntl),           SCMP_SYS(brk),
    SCMP_SYS(munmap),          SCMP_SYS(mremap),
    SCMP_SYS(madvise),         SCMP_SYS(futex),
    SCMP_SYS(getpid),          SCMP_SYS(getrandom),
    SCMP_SYS(setitimer),       SCMP_SYS(rt_sigreturn),
    SCMP_SYS(rt_sigprocmask),  SCMP_SYS(nanosleep),
    SCMP_SYS(clock_nanosleep), SCMP_SYS(clock_gettime),
    SCMP_SYS(gettimeofday),    SCMP_SYS(time),
    SCMP_SYS(restart_syscall), SCMP_SYS(exit),
    SCMP_SYS(exit_group),
};

/* What opening a database needs beyond that. */
static const int OPENING[] = {
    SCMP_SYS(openat),   SCMP_SYS(open),      SCMP_SYS(newfstatat), SCMP_SYS(stat),
    SCMP_SYS(lstat),    SCMP_SYS(readlink),  SCMP_SYS(readlinkat), SCMP_SYS(getcwd),
    SCMP_SYS(access),   SCMP_SYS(faccessat), SCMP_SYS(faccessat2), SCMP_SYS(unlink),
    SCMP_SYS(unlinkat), SCMP_SYS(fchmod),    SCMP_SYS(fchown),     SCMP_SYS(geteuid),
    SCMP_SYS(prctl),    SCMP_SYS(seccomp),   SCMP_SYS(prlimit64),
};

static int allow(scmp_filter_ctx f, const int *calls, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (seccomp_rule_add(f, SCMP_ACT_ALLOW, calls[i], 0) < 0)
            return -1;
    return 0;
}

static int load(bool opening, struct err *err) {
    if (lock_is_relaxed())
        return 0;
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_KILL_PROCESS);
    if (!f)
        return err_set(err, ERR_INTERNAL, "seccomp_init fails");
    /* Memory is never executable; sockets are local pairs; fstat() is newfstatat() of no name. */
    int rc = allow(f, RUNNING, ARRAY_LEN(RUNNING));
    if (rc == 0)
        rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1,
                              SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    if (rc == 0)
        rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1,
                              SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    if (rc == 0)
        rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(sched_setaffinity), 1,
                              SCMP_A0(SCMP_CMP_EQ, 0));
    if (rc == 0)
        rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(socketpair), 1,
                              SCMP_A0(SCMP_CMP_EQ, AF_UNIX));
    if (rc == 0 && opening)
        rc = allow(f, OPENING, ARRAY_LEN(OPENING));
    if (rc == 0 && !opening)
        rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(newfstatat), 1,
                              SCMP_A3(SCMP_CMP_MASKED_EQ, AT_EMPTY_PATH, AT_EMPTY_PATH));
    if (rc == 0)
        rc = seccomp_load(f);
    seccomp_release(f);
    return rc == 0 ? 0 : err_set(err, ERR_INTERNAL, "seccomp: %s", strerror(-rc));
}

int lock_calls_while_opening(struct err *err) {
    return load(true, err);
}

int lock_calls(struct err *err) {
    return load(false, err);
}
