#include "front/cli/folder.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/rand.h"
#include "wire/changes.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH_MAX = 128 };

/* The next part of a path that is one: "." and empty ones are passed over. NULL at the end. */
static const char *folder_next_part(const char *p, size_t *ret_len) {
    while (true) {
        p += strspn(p, "/");
        size_t n = strcspn(p, "/");
        if (n == 0)
            return NULL;
        if (n != 1 || *p != '.') {
            *ret_len = n;
            return p;
        }
        p += n;
    }
}

static int open_below(int dir, const char *name) {
    return path_open_how(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0,
                         RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
}

/* --- repositories --- */

static bool folder_has(int dir, const char *name, const char *more) {
    struct stat st;
    return (more && strcmp(name, more) == 0) || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Git looks into the folder where it is started, takes one with these names for a repository and
 * runs what the settings in it say. more: a name that would be added; NULL: none. */
static bool is_repository(int dir, const char *more) {
    return folder_has(dir, "HEAD", more) &&
           (folder_has(dir, "commondir", more) ||
            (folder_has(dir, "objects", more) && folder_has(dir, "refs", more)));
}

static int folder_check_name(int dir, const char *path, const char *name, struct err *err) {
    if (changes_is_git(name, strlen(name)))
        return err_set(err, ERR_FORBIDDEN,
                       "%.300s: what git keeps in .git is not written, because git runs what it "
                       "says",
                       path);
    if (is_repository(dir, name))
        return err_set(err, ERR_FORBIDDEN,
                       "%.300s: its folder would be a git repository of its own, and git runs what "
                       "that says",
                       path);
    return 0;
}

/* --- paths --- */

static int folder_enter(int dir, const char *path, const char *name, bool make, int *ret_fd,
                        struct err *err) {
    bool there = folder_has(dir, name, NULL);
    if (!there && !make)
        return err_set(err, ERR_NOT_FOUND, "%.300s: its folder is not there", path);
    if (!there && mkdirat(dir, name, 0777) < 0 && errno != EEXIST)
        return err_sys(err, "make a folder for %.300s", path);
    *ret_fd = open_below(dir, name);
    if (*ret_fd >= 0)
        return 0;
    if (errno == ELOOP || errno == ENOTDIR)
        return err_set(err, ERR_FORBIDDEN, "%.300s: \"%s\" is not a folder, but a link or a file",
                       path, name);
    return err_sys(err, "%.300s", path);
}

int folder_parent(int dir, const char *path, bool make, char ret_name[FOLDER_NAME_SIZE],
                  int *ret_fd, struct err *err) {
    size_t n;
    const char *part = folder_next_part(path, &n);
    _cleanup_(close) int at = fcntl(dir, F_DUPFD_CLOEXEC, 3);
    if (*path == '/' || !part)
        return err_set(err, ERR_FORBIDDEN, "%.300s is not a path inside the folder", path);
    if (at < 0)
        return err_sys(err, "open the folder");
    for (int depth = 0; depth < DEPTH_MAX; depth++) {
        if (!path_is_plain_name(part, n))
            return err_set(err, ERR_FORBIDDEN, "%.300s is not a path inside the folder", path);
        memcpy(ret_name, part, n);
        ret_name[n] = 0;
        int rc = folder_check_name(at, path, ret_name, err);
        if (rc < 0)
            return rc;
        part = folder_next_part(part + n, &n);
        if (!part) {
            *ret_fd = steal_fd(&at);
            return 0;
        }
        int next = -1;
        rc = folder_enter(at, path, ret_name, make, &next, err);
        if (rc < 0)
            return rc;
        close(at);
        at = next;
    }
    return err_set(err, ERR_FORBIDDEN, "%.300s is too deep", path);
}

bool folder_link_is_inside(const char *path, const char *target) {
    size_t n;
    int depth = -1;
    bool named = false;
    if (*target == '/' || *target == 0)
        return false;
    for (const char *p = folder_next_part(path, &n); p; p = folder_next_part(p + n, &n))
        depth++;
    /* What is above `path` are folders, so ".." leads up one; after a name, which may be another
     * link, it could lead anywhere. */
    for (const char *p = folder_next_part(target, &n); p; p = folder_next_part(p + n, &n)) {
        bool up = n == 2 && p[0] == '.' && p[1] == '.';
        if ((up && (named || --depth < 0)) || changes_is_git(p, n))
            return false;
        named = named || !up;
    }
    return depth >= 0;
}

/* --- writing --- */

static void name_part(char ret[FOLDER_PART_SIZE]) {
    (void)snprintf(ret, FOLDER_PART_SIZE, ".cay-part-%016llx", (unsigned long long)rand_u64());
}

int folder_begin(int dir, const char *path, unsigned mode, struct folder_file *ret,
                 struct err *err) {
    struct folder_file f = {.parent = -1, .fd = -1};
    int rc = folder_parent(dir, path, true, f.name, &f.parent, err);
    if (rc < 0)
        return rc;
    name_part(f.part);
    f.fd =
        openat(f.parent, f.part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode & 0777);
    if (f.fd < 0) {
        rc = err_sys(err, "make %.300s", path);
        close(f.parent);
        return rc;
    }
    *ret = f;
    return 0;
}

static int folder_place(int parent, const char *from, const char *name, bool replace,
                        struct err *err) {
    if (renameat2(parent, from, parent, name, replace ? 0 : RENAME_NOREPLACE) == 0)
        return 0;
    if (errno == EEXIST || errno == EISDIR || errno == ENOTEMPTY)
        return err_set(err, ERR_CONFLICT, "\"%s\" is there already%s", name,
                       errno == EEXIST ? "" : ", and is a folder");
    return err_sys(err, "write %s", name);
}

int folder_commit(struct folder_file *f, bool replace, struct err *err) {
    int rc = folder_place(f->parent, f->part, f->name, replace, err);
    if (rc == 0)
        *f->part = 0;
    folder_cancel(f);
    return rc;
}

void folder_cancel(struct folder_file *f) {
    if (f->fd < 0)
        return;
    if (*f->part)
        (void)unlinkat(f->parent, f->part, 0);
    fd_close(&f->fd);
    fd_close(&f->parent);
}

int folder_link(int dir, const char *path, const char *target, bool replace, struct err *err) {
    if (!folder_link_is_inside(path, target))
        return err_set(err, ERR_FORBIDDEN, "%.300s: the link leads out of the folder", path);
    return folder_link_back(dir, path, target, replace, err);
}

int folder_link_back(int dir, const char *path, const char *target, bool replace, struct err *err) {
    char name[FOLDER_NAME_SIZE];
    char part[FOLDER_PART_SIZE];
    _cleanup_(close) int parent = -1;
    int rc = folder_parent(dir, path, true, name, &parent, err);
    if (rc < 0)
        return rc;
    name_part(part);
    if (symlinkat(target, parent, part) < 0)
        return err_sys(err, "make %.300s", path);
    rc = folder_place(parent, part, name, replace, err);
    if (rc < 0)
        (void)unlinkat(parent, part, 0);
    return rc;
}

int folder_make(int dir, const char *path, struct err *err) {
    char name[FOLDER_NAME_SIZE];
    _cleanup_(close) int parent = -1;
    _cleanup_(close) int made = -1;
    size_t n;
    if (!folder_next_part(path, &n))
        return 0; /* the folder itself */
    int rc = folder_parent(dir, path, true, name, &parent, err);
    return rc < 0 ? rc : folder_enter(parent, path, name, true, &made, err);
}

int folder_remove(int dir, const char *path, struct err *err) {
    char name[FOLDER_NAME_SIZE];
    _cleanup_(close) int parent = -1;
    int rc = folder_parent(dir, path, false, name, &parent, err);
    if (rc < 0)
        return rc == -ERR_NOT_FOUND ? 0 : rc;
    return unlinkat(parent, name, 0) == 0 || errno == ENOENT ? 0
                                                             : err_sys(err, "remove %.300s", path);
}

void folder_tidy(int dir, const char *path) {
    _cleanup_(free) char *above = xstrdup(path);
    for (char *slash; (slash = strrchr(above, '/'));) {
        char name[FOLDER_NAME_SIZE];
        struct err ignored;
        _cleanup_(close) int parent = -1;
        *slash = 0;
        if (folder_parent(dir, above, false, name, &parent, &ignored) < 0 ||
            unlinkat(parent, name, AT_REMOVEDIR) < 0)
            return;
    }
}
