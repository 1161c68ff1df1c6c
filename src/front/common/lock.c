#include "front/common/lock.h"

#include "base/cleanup.h"
#include "lock/filter.h"
#include "lock/sanitized.h"

#include <errno.h>
#include <linux/sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>

/* The loop, the store, files of the data folder, connections, children. What libraries try on other
 * machines fails with EPERM or ENOSYS, which they take for an answer. */
static const int CALLS[] = {
    /* sockets */
    SCMP_SYS(accept),
    SCMP_SYS(accept4),
    SCMP_SYS(bind),
    SCMP_SYS(connect),
    SCMP_SYS(getpeername),
    SCMP_SYS(getsockname),
    SCMP_SYS(getsockopt),
    SCMP_SYS(listen),
    SCMP_SYS(recvfrom),
    SCMP_SYS(recvmmsg),
    SCMP_SYS(recvmsg),
    SCMP_SYS(sendmmsg),
    SCMP_SYS(sendmsg),
    SCMP_SYS(sendto),
    SCMP_SYS(setsockopt),
    SCMP_SYS(shutdown),
    /* descriptors */
    SCMP_SYS(close),
    SCMP_SYS(close_range),
    SCMP_SYS(dup),
    SCMP_SYS(dup2),
    SCMP_SYS(dup3),
    SCMP_SYS(eventfd2),
    SCMP_SYS(fcntl),
    SCMP_SYS(lseek),
    SCMP_SYS(memfd_create),
    SCMP_SYS(pipe2),
    SCMP_SYS(pread64),
    SCMP_SYS(preadv),
    SCMP_SYS(pwrite64),
    SCMP_SYS(pwritev),
    SCMP_SYS(read),
    SCMP_SYS(readv),
    SCMP_SYS(sendfile),
    SCMP_SYS(splice),
    SCMP_SYS(write),
    SCMP_SYS(writev),
    /* files */
    SCMP_SYS(access),
    SCMP_SYS(chdir),
    SCMP_SYS(chmod),
    SCMP_SYS(copy_file_range),
    SCMP_SYS(faccessat),
    SCMP_SYS(faccessat2),
    SCMP_SYS(fadvise64),
    SCMP_SYS(fallocate),
    SCMP_SYS(fchmod),
    SCMP_SYS(fchmodat),
    SCMP_SYS(fchown),
    SCMP_SYS(fdatasync),
    SCMP_SYS(flock),
    SCMP_SYS(fstat),
    SCMP_SYS(fstatfs),
    SCMP_SYS(fsync),
    SCMP_SYS(ftruncate),
    SCMP_SYS(getcwd),
    SCMP_SYS(getdents64),
    SCMP_SYS(inotify_add_watch),
    SCMP_SYS(inotify_init1),
    SCMP_SYS(inotify_rm_watch),
    SCMP_SYS(link),
    SCMP_SYS(linkat),
    SCMP_SYS(lstat),
    SCMP_SYS(mkdir),
    SCMP_SYS(mkdirat),
    SCMP_SYS(newfstatat),
    SCMP_SYS(open),
    SCMP_SYS(openat),
    SCMP_SYS(openat2),
    SCMP_SYS(readlink),
    SCMP_SYS(readlinkat),
    SCMP_SYS(rename),
    SCMP_SYS(renameat),
    SCMP_SYS(renameat2),
    SCMP_SYS(rmdir),
    SCMP_SYS(stat),
    SCMP_SYS(statfs),
    SCMP_SYS(statx),
    SCMP_SYS(symlinkat),
    SCMP_SYS(umask),
    SCMP_SYS(unlink),
    SCMP_SYS(unlinkat),
    SCMP_SYS(utimensat),
    /* waiting and time */
    SCMP_SYS(clock_getres),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(epoll_create1),
    SCMP_SYS(epoll_ctl),
    SCMP_SYS(epoll_pwait),
    SCMP_SYS(epoll_wait),
    SCMP_SYS(futex),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(nanosleep),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(pselect6),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(select),
    SCMP_SYS(time),
    SCMP_SYS(timerfd_create),
    SCMP_SYS(timerfd_settime),
    /* children, which others start */
    SCMP_SYS(kill),
    SCMP_SYS(pidfd_open),
    SCMP_SYS(pidfd_send_signal),
    SCMP_SYS(wait4),
    SCMP_SYS(waitid),
    /* itself */
    SCMP_SYS(brk),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(getcpu),
    SCMP_SYS(getegid),
    SCMP_SYS(geteuid),
    SCMP_SYS(getgid),
    SCMP_SYS(getpid),
    SCMP_SYS(getppid),
    SCMP_SYS(getrandom),
    SCMP_SYS(getrusage),
    SCMP_SYS(gettid),
    SCMP_SYS(getuid),
    SCMP_SYS(madvise),
    SCMP_SYS(membarrier),
    SCMP_SYS(mincore),
    SCMP_SYS(mremap),
    SCMP_SYS(munmap),
    SCMP_SYS(rseq),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sched_getaffinity),
    SCMP_SYS(sched_yield),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(sysinfo),
    SCMP_SYS(tgkill),
    SCMP_SYS(uname),
};

static void front_lock_add_rules(struct filter *f) {
    filter_allow(f, CALLS, ARRAY_LEN(CALLS));
    filter_allow_memory(f);
    /* The network, our own programs, and which addresses this machine has. */
    const int families[] = {AF_INET, AF_INET6, AF_UNIX, AF_NETLINK};
    for (size_t i = 0; i < ARRAY_LEN(families); i++)
        filter_allow_if(f, SCMP_SYS(socket),
                        FILTER_ARGS(SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)families[i])));
    filter_allow_if(f, SCMP_SYS(socketpair), FILTER_ARGS(SCMP_A0(SCMP_CMP_EQ, AF_UNIX)));
    /* Threads, no processes. The flags of clone3() are in memory, where a filter cannot look. */
    filter_allow_if(f, SCMP_SYS(clone),
                    FILTER_ARGS(SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD)));
    filter_refuse(f, SCMP_SYS(clone3), ENOSYS, NULL, 0);
    static const unsigned requests[] = {FIONREAD,   FIONBIO,    TCGETS,
                                        TIOCGWINSZ, TIOCSWINSZ, TIOCGPTN};
    for (size_t i = 0; i < ARRAY_LEN(requests); i++)
        filter_allow_if(f, SCMP_SYS(ioctl),
                        FILTER_ARGS(SCMP_A1(SCMP_CMP_EQ, (scmp_datum_t)requests[i])));
    filter_allow_if(f, SCMP_SYS(prctl), FILTER_ARGS(SCMP_A0(SCMP_CMP_EQ, PR_SET_NAME)));
    /* Limits are looked at, not set. */
    filter_allow_if(f, SCMP_SYS(prlimit64),
                    FILTER_ARGS(SCMP_A0(SCMP_CMP_EQ, 0), SCMP_A2(SCMP_CMP_EQ, 0)));
}

int front_lock_calls(struct err *err) {
    if (SANITIZED)
        return 0;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_sys(err, "no_new_privs");
    struct filter *f = filter_create(FILTER_EPERM);
    front_lock_add_rules(f);
    return filter_load(f, true, err);
}
