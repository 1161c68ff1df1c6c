#include "sandbox/netns.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "sandbox/wall.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* The launcher is in the new one afterwards. */
static int make(struct err *err) {
    if (unshare(CLONE_NEWNET) < 0)
        return err_sys(err, "new network namespace");
    _cleanup_(close) int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq r = {.ifr_name = "lo"};
    r.ifr_flags = IFF_UP | IFF_RUNNING;
    if (s < 0 || ioctl(s, SIOCSIFFLAGS, &r) < 0)
        return err_sys(err, "raise the loopback interface");
    return 0;
}

static int current(const struct netns *s, int *ret_fd, struct err *err) {
    int fd = openat(s->proc, "self/ns/net", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "open the network namespace");
    *ret_fd = fd;
    return 0;
}

int netns_open(struct netns *s, int proc, struct err *err) {
    *s = (struct netns){.proc = proc, .own = -1};
    if (!wall_on(WALL_NET))
        return 0;
    int rc = make(err);
    return rc < 0 ? rc : current(s, &s->own, err);
}

bool netns_is_short(const struct netns *s) {
    return s->n < NETNS_STOCK && wall_on(WALL_NET);
}

int netns_refill(struct netns *s, struct err *err) {
    int rc = make(err);
    if (rc == 0)
        rc = current(s, &s->stock[s->n], err);
    if (rc == 0)
        s->n++;
    int back = netns_leave(s, rc == 0 ? err : NULL);
    return rc < 0 ? rc : back;
}

int netns_enter(struct netns *s, struct err *err) {
    if (!wall_on(WALL_NET))
        return 0;
    if (s->n == 0)
        return make(err);
    _cleanup_(close) int fd = s->stock[--s->n];
    if (setns(fd, CLONE_NEWNET) < 0)
        return err_sys(err, "enter a network namespace");
    return 0;
}

int netns_leave(struct netns *s, struct err *err) {
    if (wall_on(WALL_NET) && setns(s->own, CLONE_NEWNET) < 0)
        return err_sys(err, "leave a network namespace");
    return 0;
}
