#include "egress/lock.h"

#include "base/cleanup.h"
#include "lock/filter.h"
#include "lock/landlock.h"
#include "lock/privileges.h"
#include "lock/sanitized.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

int egress_lock_process(struct err *err) {
    const struct rlimit none = {0, 0};
    struct rlimit files;
    int rc = privileges_leave(err);
    if (rc < 0)
        return rc;
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

static int lock_files(const char *ca_file, struct err *err) {
    static const char *const folders[] = {"/etc",
                                          "/usr/lib/ssl",
                                          "/usr/share/ca-certificates",
                                          "/usr/local/share/ca-certificates",
                                          "/run/systemd/resolve",
                                          "/run/resolvconf",
                                          "/run/NetworkManager"};
    const uint64_t read = LANDLOCK_RIGHT_READ | LANDLOCK_RIGHT_LIST;
    struct landlock l;
    /* It connects, and is handed what it listens on. */
    int rc = landlock_open(&l, LANDLOCK_TCP_BIND, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < ARRAY_LEN(folders); i++)
        (void)landlock_allow(&l, folders[i], read, NULL);
    if (*ca_file)
        (void)landlock_allow(&l, ca_file, LANDLOCK_RIGHT_READ, NULL);
    if (SANITIZED) {
        (void)landlock_allow(&l, "/usr", read, NULL);
        (void)landlock_allow(&l, "/proc", read, NULL);
    }
    rc = landlock_enforce(&l, err);
    landlock_close(&l);
    return rc;
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

static void egress_lock_add_rules(struct filter *f) {
    filter_allow(f, CALLS, ARRAY_LEN(CALLS));
    filter_allow_memory(f);
    /* Only reading. */
    const scmp_datum_t writing = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND;
    filter_allow_if(f, SCMP_SYS(openat), FILTER_ARGS(SCMP_A2(SCMP_CMP_MASKED_EQ, writing, 0)));
    filter_allow_if(f, SCMP_SYS(open), FILTER_ARGS(SCMP_A1(SCMP_CMP_MASKED_EQ, writing, 0)));
    /* The Internet, the resolver's daemons, and which addresses this host has. */
    const int families[] = {AF_INET, AF_INET6, AF_UNIX, AF_NETLINK};
    for (size_t i = 0; i < ARRAY_LEN(families); i++)
        filter_allow_if(f, SCMP_SYS(socket),
                        FILTER_ARGS(SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)families[i])));
    filter_allow_if(f, SCMP_SYS(socketpair), FILTER_ARGS(SCMP_A0(SCMP_CMP_EQ, AF_UNIX)));
    /* Threads, no processes. */
    filter_allow_if(f, SCMP_SYS(clone),
                    FILTER_ARGS(SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD)));
    filter_refuse(f, SCMP_SYS(clone3), ENOSYS, NULL, 0);
    const int requests[] = {0x541B /* FIONREAD */, 0x5421 /* FIONBIO */};
    for (size_t i = 0; i < ARRAY_LEN(requests); i++)
        filter_allow_if(f, SCMP_SYS(ioctl),
                        FILTER_ARGS(SCMP_A1(SCMP_CMP_EQ, (scmp_datum_t)requests[i])));
    /* For threads. */
    filter_allow_if(f, SCMP_SYS(prctl), FILTER_ARGS(SCMP_A0(SCMP_CMP_EQ, PR_SET_NAME)));
    /* Its own limits are looked at, not set. */
    filter_allow_if(f, SCMP_SYS(prlimit64),
                    FILTER_ARGS(SCMP_A0(SCMP_CMP_EQ, 0), SCMP_A2(SCMP_CMP_EQ, 0)));
}

/* An unknown call fails instead of killing: resolvers differ between hosts in what they try, and
 * all of them go on when they are refused something. */
static int egress_lock_calls(struct err *err) {
    struct filter *f = filter_create(FILTER_EPERM);
    egress_lock_add_rules(f);
    return filter_load(f, true, err); /* the pool's threads may run already */
}

int egress_lock_world(const char *ca_file, struct err *err) {
    int rc = lock_files(ca_file, err);
    return rc < 0 || SANITIZED ? rc : egress_lock_calls(err);
}
