#include "sandbox/starter.h"

#include "base/fd.h"
#include "base/log.h"
#include "lock/cgroup.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Two processes: one waits for requests, the other for the end of the first. Whichever is killed,
 * the one that is left forks another, so that root's rights are not lost with one process. Only
 * both at once cannot be made good. */

enum { CONTROL = 3, GROUP_END_MS = 1000, PAUSE_MS = 100 };

/* A descriptor, or -1 at the end of the socket. */
static int starter_receive(int socket) {
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

/* What became of the one who takes requests. */
enum starter_outcome { OUTCOME_LAUNCH, OUTCOME_END, OUTCOME_ALONE };

static int open_self(void) {
    return (int)syscall(SYS_pidfd_open, getpid(), 0);
}

/* Forks a launcher for each descriptor that comes; in the launcher it returns OUTCOME_LAUNCH. */
static enum starter_outcome starter_serve(int socket, int watcher) {
    /* Launchers that end are nobody's business here: the front sees the end of their channel. */
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct sigaction dfl = {.sa_handler = SIG_DFL};
    (void)sigaction(SIGCHLD, &ignore, NULL);
    for (;;) {
        struct pollfd p[2] = {{.fd = socket, .events = POLLIN}, {.fd = watcher, .events = POLLIN}};
        if (poll(p, 2, -1) < 0 && errno != EINTR)
            return OUTCOME_END;
        if (p[0].revents == 0 && p[1].revents == 0)
            continue;
        if (p[0].revents == 0) {
            (void)sigaction(SIGCHLD, &dfl, NULL);
            return OUTCOME_ALONE;
        }
        int fd = starter_receive(socket);
        if (fd < 0)
            return OUTCOME_END;
        pid_t pid = fork();
        if (pid < 0)
            log_error("sandbox.start", "error", strerror(errno));
        if (pid == 0) {
            /* It ends with its channel, not with us: its sandboxes outlive whoever started it. */
            (void)sigaction(SIGCHLD, &dfl, NULL);
            if (dup2(fd, CONTROL) < 0)
                _exit(1);
            int none[1];
            fd_close_others(CONTROL + 1, none, 0);
            return OUTCOME_LAUNCH;
        }
        close(fd);
    }
}

/* True when the other one ended because the socket did. Launchers whose parent was killed are ours,
 * and are reaped here. */
static bool ended_well(pid_t other) {
    for (;;) {
        int status = 0;
        pid_t pid = wait(&status);
        if (pid < 0 && errno != EINTR)
            return false;
        if (pid != other)
            continue;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
            return true;
        log_warn("sandbox.starter", "error", "it was killed: another takes its place");
        return false;
    }
}

int starter_run(int socket) {
    pid_t front = getppid();
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignore, NULL); /* who reads the log may go before we do */
    for (;;) {
        (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
        int self = open_self();
        pid_t other = fork();
        if (other == 0) {
            enum starter_outcome outcome = starter_serve(socket, self);
            if (outcome == OUTCOME_LAUNCH)
                return CONTROL;
            if (outcome == OUTCOME_END)
                _exit(0);
        }
        fd_close(&self);
        if (other == 0)
            continue; /* the one who watched is gone: this one watches now */
        if (other > 0 && ended_well(other))
            break;
        (void)poll(NULL, 0, PAUSE_MS);
    }
    /* The launchers' channels ended with this socket: they clean up before they go. */
    while (wait(NULL) > 0 || errno == EINTR)
        ;
    /* The front made a group for its isolates, and has no longer the right to remove it. */
    struct cgroups groups;
    char why[128];
    cgroups_open(&groups, "", front, why, sizeof(why));
    cgroups_sweep_own(&groups, GROUP_END_MS);
    _exit(0);
}
