#include "loop/spawner.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "wire/spawn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ATTEMPTS = 3, ANSWER_S = 5 };

struct spawner {
    uv_loop_t *loop;
    struct child *child;
    int life;   /* our end of its channel */
    int socket; /* where requests go */
};

static void spawner_on_exit_(void *ctx, int wait_status, const struct rusage *usage) {
    struct spawner *s = ctx;
    char text[64];
    (void)usage;
    s->child = NULL;
    log_warn("spawner.ended", "status", child_status_text(wait_status, text, sizeof(text)),
             "advice", "the other half of it goes on");
}

int spawner_start(uv_loop_t *loop, int exec_fd, struct spawner **ret_spawner, struct err *err) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(err, "socketpair");
    _cleanup_(close) int ours = pair[0];
    _cleanup_(close) int theirs = pair[1];
    struct spawner *s = xcalloc(1, sizeof(*s));
    int rc = child_spawn(loop,
                         &(struct child_options){.name = "cay-spawn",
                                                 .exec_fd = exec_fd,
                                                 .fds = &theirs,
                                                 .nfds = 1,
                                                 .quiet = true, /* it has nothing to say */
                                                 .on_exit = spawner_on_exit_,
                                                 .ctx = s},
                         &s->child, &s->life, err);
    if (rc < 0) {
        free(s);
        return rc;
    }
    child_unref(s->child);
    s->loop = loop;
    s->socket = steal_fd(&ours);
    uv_loop_set_data(loop, s);
    *ret_spawner = s;
    return 0;
}

void spawner_stop(struct spawner *s) {
    if (!s)
        return;
    uv_loop_set_data(s->loop, NULL);
    fd_close(&s->socket);
    fd_close(&s->life);
    child_abandon(s->child);
    free(s);
}

struct spawner *spawner_of(const uv_loop_t *loop) {
    return uv_loop_get_data(loop);
}

static int spawner_write_request(const struct exec_plan *p, struct spawn_request *q,
                                 struct err *err) {
    *q = (struct spawn_request){
        .nfds = (uint32_t)p->nfds, .njoins = (uint32_t)p->njoins, .parent = (int32_t)p->parent};
    if (p->drop || p->njoins > SPAWN_JOINS_MAX || p->nfds > SPAWN_GIVEN_MAX)
        return err_set(err, ERR_INTERNAL, "a program that the spawner cannot start");
    for (size_t i = 0; p->argv[i]; i++)
        if (!spawn_request_add_arg(q, p->argv[i]))
            return err_set(err, ERR_INTERNAL, "too many arguments");
    for (size_t i = 0; i < p->nfds; i++)
        q->given |= p->fds[i] >= 0 ? 1U << i : 0;
    return 0;
}

static size_t spawner_list_fds(const struct exec_plan *p, int reply, int fds[SPAWN_FDS_MAX]) {
    size_t n = 0;
    fds[n++] = reply;
    fds[n++] = p->exec_fd;
    for (size_t i = 0; i < p->nfds; i++)
        if (p->fds[i] >= 0)
            fds[n++] = p->fds[i];
    for (size_t i = 0; i < p->njoins; i++)
        fds[n++] = p->joins[i];
    return n;
}

static int spawner_send_request(int socket, struct spawn_request *q, const int *fds, size_t n) {
    union {
        char space[CMSG_SPACE(SPAWN_FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {.iov_base = q, .iov_len = sizeof(*q)};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.space,
                         .msg_controllen = CMSG_SPACE(n * sizeof(int))};
    struct cmsghdr *h = CMSG_FIRSTHDR(&msg);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(n * sizeof(int));
    memcpy(CMSG_DATA(h), fds, n * sizeof(int));
    return sendmsg(socket, &msg, MSG_NOSIGNAL) == (ssize_t)sizeof(*q) ? 0 : -1;
}

/* 1: answered; 0: who had the request is gone; negative: there is no use. */
static int spawner_ask(struct spawner *s, const struct exec_plan *plan, struct spawn_request *q,
                       struct spawn_answer *ret, struct err *err) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(err, "socketpair");
    _cleanup_(close) int ours = pair[0];
    int fds[SPAWN_FDS_MAX];
    size_t n = spawner_list_fds(plan, pair[1], fds);
    int rc = spawner_send_request(s->socket, q, fds, n);
    int saved = errno;
    (void)close(pair[1]);
    errno = saved;
    if (rc < 0)
        return err_sys(err, "ask the spawner");
    const struct timeval patience = {.tv_sec = ANSWER_S};
    (void)setsockopt(ours, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    ssize_t got;
    while ((got = recv(ours, ret, sizeof(*ret), 0)) < 0 && errno == EINTR)
        continue;
    if (got < 0)
        return err_set(err, ERR_UNAVAILABLE, "the spawner does not answer");
    return got == (ssize_t)sizeof(*ret);
}

int spawner_spawn(struct spawner *s, const struct exec_plan *plan, pid_t *ret_pid,
                  struct err *err) {
    struct spawn_request q;
    struct spawn_answer a;
    int rc = spawner_write_request(plan, &q, err);
    if (rc < 0)
        return rc;
    rc = 0;
    for (int i = 0; i < ATTEMPTS && rc == 0; i++)
        rc = spawner_ask(s, plan, &q, &a, err);
    if (rc == 0)
        return err_set(err, ERR_UNAVAILABLE, "the spawner ends before it answers");
    if (rc < 0)
        return rc;
    if (a.pid <= 0) {
        errno = a.error;
        return err_sys(err, "start a program");
    }
    *ret_pid = (pid_t)a.pid;
    return 0;
}
