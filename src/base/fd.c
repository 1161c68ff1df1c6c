#include "base/fd.h"

#include "base/buf.h"
#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

void fd_close(int *fd) {
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

int fd_pair(int ret_fds[2], struct err *err) {
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ret_fds) < 0)
        return err_sys(err, "socketpair");
    return 0;
}

static int set_flag(int fd, int get, int set, int bit, bool on) {
    int flags = fcntl(fd, get);
    if (flags < 0)
        return -1;
    return fcntl(fd, set, on ? flags | bit : flags & ~bit);
}

int fd_set_nonblock(int fd, bool on) {
    return set_flag(fd, F_GETFL, F_SETFL, O_NONBLOCK, on);
}

int fd_set_cloexec(int fd, bool on) {
    return set_flag(fd, F_GETFD, F_SETFD, FD_CLOEXEC, on);
}

int fd_write_all(int fd, const void *data, size_t n) {
    const char *p = data;
    while (n > 0) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return -1;
        p += k;
        n -= (size_t)k;
    }
    return 0;
}

ssize_t fd_read_all(int fd, void *out, size_t n) {
    size_t got = 0;
    while (got < n) {
        ssize_t k = read(fd, (char *)out + got, n - got);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return -1;
        if (k == 0)
            break;
        got += (size_t)k;
    }
    return (ssize_t)got;
}

static int by_value(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

void fd_close_others(int first, int *keep, size_t nkeep) {
    qsort(keep, nkeep, sizeof(*keep), by_value);
    unsigned from = (unsigned)first;
    for (size_t i = 0; i < nkeep; i++) {
        if (keep[i] < (int)from)
            continue;
        if (keep[i] > (int)from)
            (void)syscall(SYS_close_range, from, (unsigned)keep[i] - 1, 0);
        from = (unsigned)keep[i] + 1;
    }
    (void)syscall(SYS_close_range, from, ~0U, 0);
}

int fd_read_file(int dirfd, const char *path, struct buf *out, struct err *err) {
    _cleanup_(close) int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "open %s", path);
    for (;;) {
        size_t room = MIN((size_t)65536, out->max - out->len + 1);
        char chunk[65536];
        ssize_t n = read(fd, chunk, room);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, "read %s", path);
        if (n == 0)
            return 0;
        if (!buf_add(out, chunk, (size_t)n))
            return err_set(err, ERR_TOO_LARGE, "%s is larger than %zu bytes", path, out->max);
    }
}
