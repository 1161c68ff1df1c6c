#include "base/path.h"

#include "base/cleanup.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { OPEN_TRIES = 128 };

char *path_join(const char *a, const char *b) {
    size_t n = strlen(a);
    return xasprintf("%s%s%s", a, n > 0 && a[n - 1] == '/' ? "" : "/", b);
}

int path_mkdirs(const char *path, mode_t mode, struct err *err) {
    _cleanup_(free) char *copy = xstrdup(path);
    for (char *p = copy + 1; *copy; p++) {
        if (*p != '/' && *p != 0)
            continue;
        char end = *p;
        *p = 0;
        if (mkdir(copy, mode) < 0 && errno != EEXIST)
            return err_sys(err, "create folder %s", copy);
        *p = end;
        if (end == 0)
            break;
    }
    struct stat st;
    if (stat(path, &st) < 0)
        return err_sys(err, "folder %s", path);
    if (!S_ISDIR(st.st_mode))
        return err_set(err, ERR_IO, "%s is not a folder", path);
    return 0;
}

char *path_self_dir(void) {
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n <= 0)
        return xstrdup(".");
    self[n] = 0;
    char *slash = strrchr(self, '/');
    return xstrndup(self, slash && slash != self ? (size_t)(slash - self) : 1);
}

int path_open_how(int dirfd, const char *path, int flags, mode_t mode, uint64_t resolve) {
    bool creates = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
    struct open_how how = {
        .flags = (unsigned long long)(flags | O_CLOEXEC),
        .mode = creates ? mode : 0,
        .resolve = resolve,
    };
    int fd = (int)syscall(SYS_openat2, dirfd, path, &how, sizeof(how));
    /* Bounded: a lease on the file gives the same error under O_NONBLOCK, and that one stays. */
    for (int tries = 1; fd < 0 && errno == EAGAIN && tries < OPEN_TRIES; tries++)
        fd = (int)syscall(SYS_openat2, dirfd, path, &how, sizeof(how));
    return fd;
}

int path_open_beneath(int dirfd, const char *path, int flags, mode_t mode) {
    return path_open_how(dirfd, path, flags, mode, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS);
}

bool path_is_plain_name(const char *name, size_t len) {
    if (len == 0 || len > NAME_MAX || memchr(name, '/', len) || memchr(name, 0, len))
        return false;
    return !(len == 1 && name[0] == '.') && !(len == 2 && name[0] == '.' && name[1] == '.');
}

static int path_remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

int path_remove_tree(const char *path, struct err *err) {
    enum { DESCRIPTORS = 16 };
    if (nftw(path, path_remove_entry, DESCRIPTORS, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
        return err_sys(err, "remove a folder");
    return 0;
}
