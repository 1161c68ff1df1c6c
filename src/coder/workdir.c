#include "base/cleanup.h"
#include "base/fd.h"
#include "base/path.h"
#include "coder/tools.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

const char *workdir_relative(const struct workdir *d, const char *path) {
    size_t n = strlen(d->path);
    if (path[0] != '/')
        return path;
    while (n > 0 && d->path[n - 1] == '/')
        n--;
    if (strncmp(path, d->path, n) != 0 || (path[n] != '/' && path[n] != 0))
        return NULL;
    path += n;
    while (*path == '/')
        path++;
    return *path ? path : ".";
}

int workdir_walk(int dirfd, const char *path, int flags, mode_t mode) {
    _cleanup_(close) int at = -1;
    char name[NAME_MAX + 1];
    if (*path == '/') {
        errno = EXDEV;
        return -1;
    }
    for (;;) {
        while (*path == '/')
            path++;
        size_t n = strcspn(path, "/");
        if (n > NAME_MAX || (n == 2 && memcmp(path, "..", 2) == 0)) {
            errno = n > NAME_MAX ? ENAMETOOLONG : EXDEV;
            return -1;
        }
        memcpy(name, n ? path : ".", n ? n : 1);
        name[n ? n : 1] = 0;
        const char *rest = path + n + strspn(path + n, "/");
        bool last = *rest == 0;
        int how = last ? flags : O_PATH | O_DIRECTORY;
        int next = openat(at < 0 ? dirfd : at, name, how | O_NOFOLLOW | O_CLOEXEC, mode);
        if (next < 0) {
            errno = errno == ELOOP ? EXDEV : errno;
            return -1;
        }
        if (last)
            return next;
        fd_close(&at);
        at = next;
        path = rest;
    }
}

int workdir_open(const struct workdir *d, const char *path, int flags, mode_t mode) {
    const char *relative = workdir_relative(d, path);
    if (!relative) {
        errno = EXDEV;
        return -1;
    }
    if (!*relative) {
        errno = ENOENT;
        return -1;
    }
    int fd = path_open_beneath(d->fd, relative, flags, mode);
    /* Sandboxes with a folder of the host that they may write to have no openat2(). */
    if (fd < 0 && (errno == ENOSYS || errno == EPERM))
        fd = workdir_walk(d->fd, relative, flags, mode);
    return fd;
}
