#include "sandbox/files.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DEPTH_MAX = 100 };

static int sandbox_files_code_of(int sys) {
    switch (sys) {
    case ENOENT:
    case ENOTDIR:
        return ERR_NOT_FOUND;
    case EACCES:
    case EPERM:
    case EROFS:
        return ERR_FORBIDDEN;
    case EEXIST:
    case ENOTEMPTY:
    case EISDIR:
    case EXDEV:
    case ETXTBSY:
        return ERR_CONFLICT;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return ERR_LIMIT;
    case EINVAL:
    case ELOOP:
    case ENAMETOOLONG:
    case ENXIO: /* a pipe that nobody reads, a socket, a device that is not there */
    case ENODEV:
        return ERR_BAD_REQUEST;
    default:
        return ERR_IO;
    }
}

static int file_error(struct err *err, const char *path) {
    int sys = errno;
    (void)err_sys(err, "%s", path);
    err->code = (enum err_code)sandbox_files_code_of(sys);
    return -(int)err->code;
}

/* Neither a file nor a folder: to open it would wait for somebody, or do something. */
static int is_special(const char *path, struct err *err) {
    (void)err_set(err, ERR_BAD_REQUEST, "%s: a pipe, socket or device: only files have content",
                  path);
    err->sys = EINVAL;
    return -ERR_BAD_REQUEST;
}

static int open_in_root(int dirfd, const char *path, int flags, mode_t mode) {
    int all = flags | (flags & O_PATH ? 0 : O_NONBLOCK | O_NOCTTY);
    if (dirfd != AT_FDCWD)
        return path_open_beneath(dirfd, path, all, mode);
    /* The root of the resolution is the sandbox's root; "/work" is where relative names start. */
    _cleanup_(close) int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return -1;
    _cleanup_(free) char *full = path[0] == '/' ? NULL : path_join("/work", path);
    return path_open_how(root, full ? full : path, all, mode,
                         RESOLVE_NO_MAGICLINKS | RESOLVE_IN_ROOT);
}

/* init has rights in /proc that no guest has (its own memory, its own descriptors). */
static bool is_proc(int fd) {
    struct statfs fs;
    return fstatfs(fd, &fs) < 0 || fs.f_type == PROC_SUPER_MAGIC;
}

static int refuse_proc(int fd, const char *path, struct err *err) {
    if (!is_proc(fd))
        return 0;
    (void)err_set(err, ERR_FORBIDDEN, "%s: /proc is not served", path);
    err->sys = EACCES;
    return -ERR_FORBIDDEN;
}

static void fill_stat(const struct stat *st, struct sandbox_stat *ret) {
    *ret = (struct sandbox_stat){
        .kind = S_ISREG(st->st_mode)   ? SANDBOX_FILE
                : S_ISDIR(st->st_mode) ? SANDBOX_DIR
                : S_ISLNK(st->st_mode) ? SANDBOX_LINK
                                       : SANDBOX_OTHER,
        .mode = st->st_mode & 07777,
        .size = (uint64_t)st->st_size,
        .mtime_ms = (int64_t)st->st_mtim.tv_sec * 1000 + st->st_mtim.tv_nsec / 1000000,
    };
}

static int check_regular(int fd, const char *path, struct stat *st, struct err *err) {
    if (fstat(fd, st) < 0)
        return file_error(err, path);
    if (S_ISREG(st->st_mode))
        return refuse_proc(fd, path, err);
    if (!S_ISDIR(st->st_mode))
        return is_special(path, err);
    errno = EISDIR;
    return file_error(err, path);
}

int sandbox_files_open_read(const char *path, int *ret_fd, struct sandbox_stat *ret,
                            struct err *err) {
    struct stat st;
    _cleanup_(close) int fd = open_in_root(AT_FDCWD, path, O_RDONLY, 0);
    if (fd < 0)
        return errno == ENXIO ? is_special(path, err) : file_error(err, path);
    int rc = check_regular(fd, path, &st, err);
    if (rc < 0)
        return rc;
    fill_stat(&st, ret);
    *ret_fd = steal_fd(&fd);
    return 0;
}

/* The descriptor of the folder that holds path's last part, which is returned in ret_name. */
static int open_parent(const char *path, char ret_name[NAME_MAX + 1], struct err *err) {
    size_t n = strlen(path);
    while (n > 0 && path[n - 1] == '/')
        n--;
    size_t start = n;
    while (start > 0 && path[start - 1] != '/')
        start--;
    if (!path_is_plain_name(path + start, n - start)) {
        errno = EINVAL;
        return file_error(err, path);
    }
    memcpy(ret_name, path + start, n - start);
    ret_name[n - start] = 0;
    _cleanup_(free) char *dir = start == 0 ? xstrdup("/work") : xstrndup(path, start);
    int fd = open_in_root(AT_FDCWD, dir, O_PATH | O_DIRECTORY, 0);
    if (fd < 0)
        return file_error(err, path);
    if (refuse_proc(fd, path, err) < 0) {
        close(fd);
        return -ERR_FORBIDDEN;
    }
    return fd;
}

static int sandbox_files_make_parents(const char *path, struct err *err) {
    _cleanup_(free) char *copy = path[0] == '/' ? xstrdup(path) : path_join("/work", path);
    for (char *p = copy + 1; *p; p++) {
        if (*p != '/' || p[-1] == '/')
            continue;
        *p = 0;
        int rc = sandbox_files_mkdir(copy, 0755, false, err);
        if (rc < 0 && err->sys != EEXIST && err->sys != EROFS && err->sys != EACCES)
            return rc;
        *p = '/';
    }
    return 0;
}

int sandbox_files_open_write(const char *path, uint32_t mode, uint32_t flags, int *ret_fd,
                             struct err *err) {
    if ((flags & SANDBOX_WRITE_PARENTS) && sandbox_files_make_parents(path, err) < 0)
        return -(int)err->code;
    struct stat st;
    int how = O_WRONLY | O_CREAT | (flags & SANDBOX_WRITE_APPEND ? O_APPEND : 0) |
              (flags & SANDBOX_WRITE_EXCLUSIVE ? O_EXCL : 0);
    _cleanup_(close) int fd = open_in_root(AT_FDCWD, path, how, mode & 0777);
    if (fd < 0)
        return errno == ENXIO ? is_special(path, err) : file_error(err, path);
    int rc = check_regular(fd, path, &st, err);
    if (rc < 0)
        return rc;
    if (!(flags & SANDBOX_WRITE_APPEND) && st.st_size > 0 && ftruncate(fd, 0) < 0)
        return file_error(err, path);
    /* The mode is asked for, not a wish: umask and an existing file would change it. */
    if ((st.st_mode & 07777) != (mode & 0777) && fchmod(fd, mode & 0777) < 0)
        return file_error(err, path);
    *ret_fd = steal_fd(&fd);
    return 0;
}

int sandbox_files_copy(int from, int to, uint64_t *ret_bytes, struct err *err) {
    static char chunk[65536];
    uint64_t total = 0;
    for (;;) {
        ssize_t n = read(from, chunk, sizeof(chunk));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return file_error(err, "content");
        if (n == 0)
            break;
        if (fd_write_all(to, chunk, (size_t)n) < 0)
            return file_error(err, "write");
        total += (uint64_t)n;
    }
    *ret_bytes = total;
    return 0;
}

int sandbox_files_stat(const char *path, bool follow, struct sandbox_stat *ret, struct err *err) {
    struct stat st;
    _cleanup_(close) int fd = open_in_root(AT_FDCWD, path, O_PATH | (follow ? 0 : O_NOFOLLOW), 0);
    if (fd < 0 || fstat(fd, &st) < 0)
        return file_error(err, path);
    int rc = refuse_proc(fd, path, err);
    if (rc == 0)
        fill_stat(&st, ret);
    return rc;
}

int sandbox_files_list(const char *path, uint64_t skip, struct buf *out, struct err *err) {
    int fd = open_in_root(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return file_error(err, path);
    if (refuse_proc(fd, path, err) < 0) {
        close(fd);
        return -ERR_FORBIDDEN;
    }
    DIR *d = fdopendir(fd);
    if (!d) {
        close(fd);
        return file_error(err, path);
    }
    size_t head = out->len;
    uint32_t n = 0;
    bool more = false;
    pack_u32(out, 0);
    for (struct dirent *e; (e = readdir(d));) {
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (skip > 0) {
            skip--;
            continue;
        }
        if (n == SANDBOX_LIST_MAX) {
            more = true;
            break;
        }
        if (fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue; /* gone since */
        struct sandbox_stat s;
        fill_stat(&st, &s);
        pack_str(out, e->d_name);
        pack_sandbox_stat(out, &s);
        n++;
    }
    closedir(d);
    pack_u8(out, more);
    if (out->full)
        return err_set(err, ERR_TOO_LARGE, "%s: the list does not fit into a message", path);
    out->data[head] = (char)(n & 0xff);
    out->data[head + 1] = (char)(n >> 8 & 0xff);
    return 0;
}

int sandbox_files_mkdir(const char *path, uint32_t mode, bool parents, struct err *err) {
    char name[NAME_MAX + 1];
    if (parents && sandbox_files_make_parents(path, err) < 0)
        return -(int)err->code;
    _cleanup_(close) int dir = open_parent(path, name, err);
    if (dir < 0)
        return dir;
    if (mkdirat(dir, name, mode & 0777) < 0 && !(parents && errno == EEXIST))
        return file_error(err, path);
    return 0;
}

int sandbox_files_move(const char *from, const char *to, struct err *err) {
    char old_name[NAME_MAX + 1], new_name[NAME_MAX + 1];
    _cleanup_(close) int old_dir = open_parent(from, old_name, err);
    if (old_dir < 0)
        return old_dir;
    _cleanup_(close) int new_dir = open_parent(to, new_name, err);
    if (new_dir < 0)
        return new_dir;
    if (renameat(old_dir, old_name, new_dir, new_name) < 0)
        return file_error(err, from);
    return 0;
}

/* A folder that is being emptied. What lies too deep for our descriptors is moved up to it first,
 * so that no depth is too much. */
struct emptying {
    int top;
    unsigned moved; /* in this round */
    unsigned names; /* that were given */
    uint64_t count;
};

static int move_up(struct emptying *e, int dirfd, const char *name) {
    for (int tries = 0; tries < 1000; tries++) {
        char to[64];
        (void)snprintf(to, sizeof(to), ".cay-delete-%u", e->names++);
        if (renameat2(dirfd, name, e->top, to, RENAME_NOREPLACE) == 0) {
            e->moved++;
            return 0;
        }
        if (errno != EEXIST)
            return -1;
    }
    return -1;
}

/* Removes what is in the folder. Entered by descriptor without following links, so that a folder
 * swapped for a link while this runs is not walked into. */
static int empty_dir(struct emptying *e, int fd, int depth);

static int sandbox_files_remove_entry(struct emptying *e, int fd, const char *name, int depth) {
    if (unlinkat(fd, name, 0) == 0) {
        e->count++;
        return 0;
    }
    if (errno != EISDIR && errno != EPERM)
        return errno == ENOENT ? 0 : -1;
    if (unlinkat(fd, name, AT_REMOVEDIR) < 0) {
        if (errno != ENOTEMPTY && errno != EEXIST)
            return errno == ENOENT ? 0 : -1;
        if (depth >= DEPTH_MAX)
            return move_up(e, fd, name);
        int sub = open_in_root(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
        if (sub < 0 || empty_dir(e, sub, depth + 1) < 0 || unlinkat(fd, name, AT_REMOVEDIR) < 0)
            return -1;
    }
    e->count++;
    return 0;
}

/* Takes the descriptor. */
static int empty_dir(struct emptying *e, int fd, int depth) {
    DIR *d = fdopendir(fd);
    int rc = 0;
    if (!d) {
        close(fd);
        return -1;
    }
    for (struct dirent *it; rc == 0 && (it = readdir(d));)
        if (strcmp(it->d_name, ".") != 0 && strcmp(it->d_name, "..") != 0)
            rc = sandbox_files_remove_entry(e, fd, it->d_name, depth);
    int sys = errno;
    closedir(d);
    errno = sys;
    return rc;
}

static int sandbox_files_empty(int dirfd, const char *name, uint64_t *ret_count) {
    struct emptying e = {.top = open_in_root(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0)};
    if (e.top < 0)
        return -1;
    int rc = 0;
    do {
        e.moved = 0;
        int again = open_in_root(e.top, ".", O_RDONLY | O_DIRECTORY, 0);
        rc = again < 0 ? -1 : empty_dir(&e, again, 0);
    } while (rc == 0 && e.moved > 0);
    int sys = errno;
    close(e.top);
    errno = sys;
    *ret_count = e.count;
    return rc;
}

int sandbox_files_delete(const char *path, bool recursive, uint64_t *ret_count, struct err *err) {
    char name[NAME_MAX + 1];
    uint64_t count = 0;
    _cleanup_(close) int dir = open_parent(path, name, err);
    if (dir < 0)
        return dir;
    if (unlinkat(dir, name, 0) < 0) {
        if (errno != EISDIR && errno != EPERM)
            return file_error(err, path);
        if (recursive && sandbox_files_empty(dir, name, &count) < 0)
            return file_error(err, path);
        if (unlinkat(dir, name, AT_REMOVEDIR) < 0)
            return file_error(err, path);
    }
    *ret_count = count + 1;
    return 0;
}
