#include "sandbox/starter.h"

#include "base/fd.h"
#include "base/log.h"
#include "lock/cgroup.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CONTROL = 3, GROUP_END_MS = 1000 };

/* A descriptor, or -1 at the end of the socket. */
static int receive(int socket) {
    for (;;) {
        union {
            char space[CMSG_SPACE(sizeof(int))];
            struct cmsghdr align;
        } control;
        char byte;
        struct iovec iov = {.iov_base = &byte, .iov_len = 1};
        struct msghdr msg = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.space,
                             .msg_controllen = sizeof(control.space)};
        ssize_t n = recvmsg(socket, &msg, MSG_CMSG_CLOEXEC);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        const struct cmsghdr *h = CMSG_FIRSTHDR(&msg);
        int fd = -1;
        if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS &&
            h->cmsg_len == CMSG_LEN(sizeof(int)))
            memcpy(&fd, CMSG_DATA(h), sizeof(fd));
        if (fd >= 0)
            return fd;
    }
}

int starter_run(int socket) {
    /* Launchers that end are nobody's business here: the front sees the end of their channel. */
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGCHLD, &ignore, NULL);
    pid_t self = getpid();
    for (;;) {
        int fd = receive(socket);
        if (fd < 0)
            break;
        pid_t pid = fork();
        if (pid < 0)
            log_error("sandbox.start", "error", strerror(errno));
        if (pid == 0) {
            struct sigaction dfl = {.sa_handler = SIG_DFL};
            (void)sigaction(SIGCHLD, &dfl, NULL);
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != self || dup2(fd, CONTROL) < 0)
                _exit(1);
            int none[1];
            fd_close_others(CONTROL + 1, none, 0);
            return CONTROL;
        }
        close(fd);
    }
    /* The launchers' channels ended with this socket: they clean up before they go. */
    while (wait(NULL) > 0 || errno == EINTR)
        ;
    /* The front made a group for its isolates, and has no longer the right to remove it. */
    struct cgroups groups;
    cgroups_open_gently(&groups, getppid());
    cgroups_sweep_own(&groups, GROUP_END_MS);
    _exit(0);
}
