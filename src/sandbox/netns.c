#include "sandbox/netns.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/wall.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAKER_NICE = 10 };

/* The caller is in the new one afterwards. */
static int netns_make(struct err *err) {
    if (unshare(CLONE_NEWNET) < 0)
        return err_sys(err, "new network namespace");
    _cleanup_(close) int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq r = {.ifr_name = "lo"};
    r.ifr_flags = IFF_UP | IFF_RUNNING;
    if (s < 0 || ioctl(s, SIOCSIFFLAGS, &r) < 0)
        return err_sys(err, "raise the loopback interface");
    return 0;
}

static int netns_current(const struct netns *s, int *ret_fd, struct err *err) {
    int fd = openat(s->proc, "self/ns/net", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "open the network namespace");
    *ret_fd = fd;
    return 0;
}

int netns_leave(struct netns *s, struct err *err) {
    if (wall_on(WALL_NET) && setns(s->own, CLONE_NEWNET) < 0)
        return err_sys(err, "leave a network namespace");
    return 0;
}

/* ---- made ahead, beside the launcher ---- */

/* An answer without a descriptor: none can be made. The launcher tries itself, and says why. */
static _Noreturn void maker_main(struct netns *s, int socket) {
    struct wire_reader r;
    struct wire_frame f;
    struct err err;
    wire_reader_init(&r, 0);
    while (wire_read(&r, socket, &f, &err) == 1) {
        wire_frame_finish(&f);
        _cleanup_(close) int fd = -1;
        (void)(netns_make(&err) == 0 && netns_current(s, &fd, &err) == 0);
        struct wire_out out = {.fds = &fd, .nfds = fd >= 0 ? 1 : 0};
        /* Or the last one would be kept by being the maker's. */
        if (netns_leave(s, &err) < 0 || wire_send(socket, &out) < 0)
            break;
    }
    _exit(0);
}

static void netns_ask(struct netns *s) {
    struct wire_out out = {0};
    while (s->maker >= 0 && s->asked < NETNS_STOCK && wire_try_send(s->maker, &out) > 0)
        s->asked++;
}

static void drop_maker(struct netns *s) {
    fd_close(&s->maker);
    wire_reader_finish(&s->reader);
    s->asked = 0;
}

int netns_start_maker(struct netns *s, struct err *err) {
    int pair[2];
    drop_maker(s);
    if (!wall_on(WALL_NET))
        return 0;
    int rc = fd_pair(pair, err);
    if (rc < 0)
        return rc;
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)setpriority(PRIO_PROCESS, 0, MAKER_NICE);
        int keep[] = {pair[1], s->proc, s->own};
        fd_close_others(3, keep, ARRAY_LEN(keep));
        maker_main(s, pair[1]);
    }
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return err_sys(err, "fork");
    }
    (void)fd_set_nonblock(pair[0], true);
    wire_reader_init(&s->reader, 0);
    s->maker = pair[0];
    s->maker_pid = pid;
    netns_ask(s);
    return 0;
}

/* One that was made ahead, or -1. */
static int netns_take(struct netns *s) {
    struct wire_frame f;
    struct err err;
    int rc = s->maker < 0 ? 0 : wire_next(&s->reader, &f, &err);
    if (s->maker >= 0 && rc == 0 && wire_recv(&s->reader, s->maker, &err) == 1)
        rc = wire_next(&s->reader, &f, &err);
    if (rc != 1)
        return -1;
    int fd = wire_frame_take_fd(&f, 0);
    wire_frame_finish(&f);
    s->asked--;
    if (fd < 0)
        drop_maker(s);
    netns_ask(s);
    return fd;
}

int netns_open(struct netns *s, int proc, struct err *err) {
    *s = (struct netns){.proc = proc, .own = -1, .maker = -1};
    if (!wall_on(WALL_NET))
        return 0;
    int rc = netns_make(err);
    if (rc == 0)
        rc = netns_current(s, &s->own, err);
    return rc < 0 ? rc : netns_start_maker(s, err);
}

int netns_enter(struct netns *s, int *ret_fd, struct err *err) {
    if (!wall_on(WALL_NET)) {
        *ret_fd = -1;
        return 0;
    }
    _cleanup_(close) int fd = netns_take(s);
    if (fd < 0) {
        int rc = netns_make(err);
        return rc < 0 ? rc : netns_current(s, ret_fd, err);
    }
    if (setns(fd, CLONE_NEWNET) < 0)
        return err_sys(err, "enter a network namespace");
    *ret_fd = steal_fd(&fd);
    return 0;
}
