#include "facet/lock.h"

#include "base/cleanup.h"
#include "lock/filter.h"
#include "lock/landlock.h"
#include "lock/privileges.h"
#include "lock/sanitized.h"

#include <fcntl.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

bool facet_lock_is_relaxed(void) {
    return SANITIZED;
}

static int set_limit(int what, uint64_t n, struct err *err) {
    struct rlimit r = {.rlim_cur = n, .rlim_max = n};
    return setrlimit((__rlimit_resource_t)what, &r) < 0 ? err_sys(err, "setrlimit") : 0;
}

int facet_lock_process(struct err *err) {
    int rc = privileges_leave(err);
    return rc < 0 ? rc : set_limit(RLIMIT_NPROC, 0, err);
}

int facet_lock_limits(uint64_t memory_bytes, uint64_t file_bytes, struct err *err) {
    if (set_limit(RLIMIT_NOFILE, 128, err) < 0 || set_limit(RLIMIT_FSIZE, file_bytes, err) < 0)
        return -(int)err->code;
    if (facet_lock_is_relaxed())
        return 0;
    return set_limit(RLIMIT_DATA, memory_bytes, err);
}

int facet_lock_folder(int dirfd, uint32_t *ret_abi, struct err *err) {
    struct landlock l;
    int rc = landlock_open(&l, LANDLOCK_TCP_BIND | LANDLOCK_TCP_CONNECT, err);
    if (rc == 0)
        rc = landlock_allow_fd(&l, dirfd,
                               LANDLOCK_RIGHT_READ | LANDLOCK_RIGHT_WRITE | LANDLOCK_RIGHT_LIST |
                                   LANDLOCK_RIGHT_MAKE_FILE | LANDLOCK_RIGHT_REMOVE |
                                   LANDLOCK_RIGHT_TRUNCATE,
                               err);
    if (rc == 0)
        rc = landlock_enforce(&l, err);
    landlock_close(&l);
    if (rc == 0)
        *ret_abi = (uint32_t)l.version;
    return rc;
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

static int facet_lock_load(bool opening, struct err *err) {
    if (facet_lock_is_relaxed())
        return 0;
    struct filter *f = filter_create(FILTER_KILL);
    /* Memory is never executable; sockets are local pairs; fstat() is newfstatat() of no name. */
    filter_allow(f, RUNNING, ARRAY_LEN(RUNNING));
    filter_allow_memory(f);
    filter_allow_if(f, SCMP_SYS(sched_setaffinity), FILTER_ARGS(SCMP_A0(SCMP_CMP_EQ, 0)));
    filter_allow_if(f, SCMP_SYS(socketpair), FILTER_ARGS(SCMP_A0(SCMP_CMP_EQ, AF_UNIX)));
    /* wire/tray.h */
    filter_allow_if(f, SCMP_SYS(memfd_create),
                    FILTER_ARGS(SCMP_A1(SCMP_CMP_EQ, MFD_CLOEXEC | MFD_ALLOW_SEALING)));
    if (opening)
        filter_allow(f, OPENING, ARRAY_LEN(OPENING));
    else
        filter_allow_if(f, SCMP_SYS(newfstatat),
                        FILTER_ARGS(SCMP_A3(SCMP_CMP_MASKED_EQ, AT_EMPTY_PATH, AT_EMPTY_PATH)));
    return filter_load(f, false, err);
}

int facet_lock_calls_while_opening(struct err *err) {
    return facet_lock_load(true, err);
}

int facet_lock_calls(struct err *err) {
    return facet_lock_load(false, err);
}
