#include "lock/landlock.h"

#include "base/cleanup.h"
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct ruleset { /* as of version 6; Debian 12's header knows the first field only */
    uint64_t fs, net, scoped;
};

enum { SCOPED = 3 /* abstract sockets and signals */ };

/* The kernel takes no other for a file. */
static const uint64_t of_files = LANDLOCK_RIGHT_EXECUTE | LANDLOCK_RIGHT_WRITE |
                                 LANDLOCK_RIGHT_READ | LANDLOCK_RIGHT_TRUNCATE |
                                 LANDLOCK_RIGHT_IOCTL;

int landlock_version(void) {
    long n = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    return n > 0 ? (int)n : 0;
}

/* All that a version can refuse. */
static uint64_t landlock_known(int version) {
    uint64_t all = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;
    if (version >= 2)
        all |= 1ULL << 13; /* to link and rename to another folder */
    if (version >= 3)
        all |= LANDLOCK_RIGHT_TRUNCATE;
    if (version >= 5)
        all |= LANDLOCK_RIGHT_IOCTL;
    return all;
}

int landlock_open(struct landlock *l, uint64_t refused_tcp, struct err *err) {
    *l = (struct landlock){.version = landlock_version(), .fd = -1};
    if (l->version == 0)
        return 0;
    struct ruleset r = {.fs = landlock_known(l->version)};
    size_t size = sizeof(r.fs);
    if (l->version >= 4) {
        r.net = refused_tcp;
        size = offsetof(struct ruleset, scoped);
    }
    if (l->version >= 6) {
        r.scoped = SCOPED;
        size = sizeof(r);
    }
    l->fd = (int)syscall(SYS_landlock_create_ruleset, &r, size, 0);
    return l->fd < 0 ? err_sys(err, "landlock: new ruleset") : 0;
}

static int landlock_add(const struct landlock *l, int fd, uint64_t rights) {
    struct landlock_path_beneath_attr rule = {.allowed_access = rights & landlock_known(l->version),
                                              .parent_fd = fd};
    return (int)syscall(SYS_landlock_add_rule, l->fd, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
}

int landlock_allow(const struct landlock *l, const char *path, uint64_t rights, struct err *err) {
    struct stat st;
    if (l->fd < 0)
        return 0;
    _cleanup_(close) int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return errno == ENOENT ? 0 : err_sys(err, "landlock: open %s", path);
    if (!S_ISDIR(st.st_mode))
        rights &= of_files;
    return landlock_add(l, fd, rights) < 0 ? err_sys(err, "landlock: allow %s", path) : 0;
}

int landlock_allow_fd(const struct landlock *l, int fd, uint64_t rights, struct err *err) {
    if (l->fd < 0)
        return 0;
    return landlock_add(l, fd, rights) < 0 ? err_sys(err, "landlock: allow a folder") : 0;
}

int landlock_enforce(const struct landlock *l, struct err *err) {
    if (l->fd >= 0 && syscall(SYS_landlock_restrict_self, l->fd, 0) < 0)
        return err_sys(err, "landlock: restrict");
    return 0;
}

void landlock_close(struct landlock *l) {
    fd_close(&l->fd);
}
