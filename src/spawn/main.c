/* cay-spawn: starts the front's programs, because the front has a system-call filter which programs
 * would inherit. It is given descriptors and words, and holds nothing itself: no key, no file, no
 * environment.
 *
 * Two processes: one serves, the other waits for its end and then takes its place, so that programs
 * can be started again whichever of them is killed. All of them, and the programs, are children of
 * the front (CLONE_PARENT), which waits for them and with which they end. */

#include "loop/exec.h"
#include "wire/spawn.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum outcome { OUTCOME_ENDED, OUTCOME_ALONE };

static pid_t clone_sibling(void) {
    return (pid_t)syscall(SYS_clone, CLONE_PARENT, NULL, NULL, NULL, NULL);
}

static void spawn_main_close_all(const int *fds, size_t n) {
    for (size_t i = 0; i < n; i++)
        (void)close(fds[i]);
}

/* The descriptors of a message; those that do not fit are closed by the kernel. */
static size_t take_fds(struct msghdr *msg, int fds[SPAWN_FDS_MAX]) {
    const struct cmsghdr *h = CMSG_FIRSTHDR(msg);
    if (!h || h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
        return 0;
    size_t n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(fds, CMSG_DATA(h), n * sizeof(int));
    return n;
}

/* Puts the plan together; false for a request that contradicts itself. */
static bool spawn_main_read_request(const struct spawn_request *q, const int *fds, size_t nfds,
                                    char **argv, struct exec_plan *p) {
    if (!spawn_request_read(q, nfds, argv))
        return false;
    *p = (struct exec_plan){.argv = argv,
                            .exec_fd = fds[1],
                            .nfds = q->nfds,
                            .joins = fds + nfds - q->njoins,
                            .njoins = q->njoins,
                            .parent = q->parent};
    size_t at = 2;
    for (uint32_t i = 0; i < q->nfds; i++)
        p->fds[i] = q->given >> i & 1 ? fds[at++] : -1;
    return true;
}

/* False when the front's end of the socket is closed. */
static bool serve_one(void) {
    static struct spawn_request q;
    union {
        char space[CMSG_SPACE(SPAWN_FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = &q, .iov_len = sizeof(q)};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.space,
                         .msg_controllen = sizeof(control.space)};
    ssize_t n = recvmsg(SPAWN_SOCKET_FD, &msg, MSG_CMSG_CLOEXEC);
    if (n <= 0)
        return n < 0 && errno == EINTR;
    int fds[SPAWN_FDS_MAX] = {0};
    char *argv[SPAWN_ARGS_MAX + 1];
    struct exec_plan plan;
    struct spawn_answer a = {.error = EINVAL};
    size_t nfds = take_fds(&msg, fds);
    bool whole = n == (ssize_t)sizeof(q) && !(msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC));
    if (whole && spawn_main_read_request(&q, fds, nfds, argv, &plan)) {
        pid_t pid = clone_sibling();
        if (pid == 0)
            exec_plan_run(&plan);
        a = (struct spawn_answer){.pid = pid, .error = pid < 0 ? errno : 0};
    }
    if (nfds > 0)
        (void)send(fds[0], &a, sizeof(a), MSG_NOSIGNAL | MSG_DONTWAIT);
    spawn_main_close_all(fds, nfds);
    return true;
}

static enum outcome spawn_main_serve(int other) {
    for (;;) {
        struct pollfd p[2] = {{.fd = SPAWN_SOCKET_FD, .events = POLLIN},
                              {.fd = other, .events = POLLIN}};
        if (poll(p, 2, -1) < 0 && errno != EINTR)
            return OUTCOME_ENDED;
        if (p[1].revents)
            return OUTCOME_ALONE;
        if (p[0].revents && !serve_one())
            return OUTCOME_ENDED;
    }
}

/* Until the one that serves is gone; the front may be the cause. */
static enum outcome spawn_main_watch(int other) {
    struct pollfd p = {.fd = other, .events = POLLIN};
    while (poll(&p, 1, -1) < 0 && errno == EINTR)
        continue;
    struct pollfd s = {.fd = SPAWN_SOCKET_FD};
    return poll(&s, 1, 0) > 0 ? OUTCOME_ENDED : OUTCOME_ALONE;
}

static int pidfd_of(pid_t pid) {
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

/* Makes the one that watches; in it, *serving is false. The descriptor is the other one's. */
static int spawn_main_pair(bool *serving) {
    pid_t front = getppid();
    int self = pidfd_of(getpid());
    pid_t pid = clone_sibling();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != front)
            _exit(0);
        *serving = false;
        return self;
    }
    (void)close(self);
    return pid > 0 ? pidfd_of(pid) : -1;
}

int main(void) {
    bool serving = true;
    (void)prctl(PR_SET_DUMPABLE, 0);
    for (;;) {
        int other = spawn_main_pair(&serving);
        enum outcome outcome = serving ? spawn_main_serve(other) : spawn_main_watch(other);
        if (outcome == OUTCOME_ENDED)
            return 0;
        (void)close(other);
        serving = true;
    }
}
