#include "loop/exec.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ABOVE = 64 };

/* The descriptors are first copied above the range that they will be put into, so that none is
 * overwritten before its turn. */
static void put_descriptors(const struct exec_plan *p, int *ret_exec_fd) {
    int from[EXEC_FDS_MAX];
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (size_t i = 0; i < p->nfds; i++)
        from[i] = fcntl(p->fds[i] >= 0 ? p->fds[i] : null, F_DUPFD_CLOEXEC, ABOVE);
    int exec_fd = fcntl(p->exec_fd, F_DUPFD_CLOEXEC, ABOVE);
    for (size_t i = 0; i < p->nfds; i++)
        if (from[i] < 0 || dup2(from[i], (int)i) < 0)
            _exit(126);
    (void)syscall(SYS_close_range, (unsigned)p->nfds, (unsigned)exec_fd - 1, 0);
    (void)syscall(SYS_close_range, (unsigned)exec_fd + 1, ~0U, 0);
    *ret_exec_fd = exec_fd;
}

static void reset_signals(void) {
    sigset_t none;
    sigemptyset(&none);
    for (int s = 1; s < 32; s++)
        if (s != SIGKILL && s != SIGSTOP) {
            struct sigaction dfl = {.sa_handler = SIG_DFL};
            (void)sigaction(s, &dfl, NULL);
        }
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

void exec_plan_run(const struct exec_plan *p) {
    int exec_fd;
    for (size_t i = 0; i < p->njoins; i++)
        if (write(p->joins[i], "0", 1) < 0)
            _exit(126);
    put_descriptors(p, &exec_fd);
    if (p->drop) {
        /* The raw calls: libc's would signal threads that were not copied. */
        if (syscall(SYS_setgroups, 0, NULL) < 0 ||
            syscall(SYS_setresgid, p->gid, p->gid, p->gid) < 0 ||
            syscall(SYS_setresuid, p->uid, p->uid, p->uid) < 0)
            _exit(126);
    }
    /* Ctrl-C at our terminal is for us, who may want to end them in good order. */
    (void)setsid();
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != p->parent)
        _exit(126); /* the parent died before the line above */
    reset_signals();
    char *env[] = {NULL};
    (void)syscall(SYS_execveat, exec_fd, "", p->argv, env, AT_EMPTY_PATH);
    _exit(127);
}
