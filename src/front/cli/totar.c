#include "front/cli/totar.h"

#include "base/cleanup.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 512, DEPTH_MAX = 100, NAMED_MAX = 10, NAME_BYTES = 100 };

void totar_init(struct totar *t, int out) {
    *t = (struct totar){.out = out};
    buf_init(&t->names, NAMED_MAX * 300);
}

void totar_finish(struct totar *t) {
    buf_finish(&t->names);
}

static void totar_leave(struct totar *t, const char *path, const char *why) {
    if (t->left++ < NAMED_MAX)
        (void)buf_addf(&t->names, "%.200s: %s\n", path, why);
}

static int totar_put(const struct totar *t, const void *data, size_t len, struct err *err) {
    const char *p = data;
    while (len > 0) {
        ssize_t n = send(t->out, p, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_sys(err, "send the archive");
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

static int totar_pad(const struct totar *t, uint64_t size, struct err *err) {
    static const char zero[BLOCK];
    return totar_put(t, zero, (size_t)(-size & (BLOCK - 1)), err);
}

/* Octal digits, or what GNU made of numbers that have too many of them. */
static void totar_put_number(char *field, size_t n, uint64_t v) {
    if (v >> (3 * (n - 1)) == 0) {
        for (size_t i = n - 1; i-- > 0; v >>= 3)
            field[i] = (char)('0' + (v & 7));
        return;
    }
    for (size_t i = n; i-- > 0; v >>= 8)
        field[i] = (char)(v & 0xff);
    field[0] |= (char)0x80;
}

struct totar_entry {
    const char *name;
    const char *target; /* of a link, or "" */
    char kind;
    mode_t mode;
    uint64_t size;
    time_t mtime;
};

static int put_head(const struct totar *t, const struct totar_entry *e, struct err *err);

/* A name that does not fit comes before its entry. */
static int put_long(const struct totar *t, char kind, const char *text, struct err *err) {
    size_t n = strlen(text) + 1;
    struct totar_entry e = {
        .name = "././@LongLink", .target = "", .kind = kind, .mode = 0644, .size = n};
    int rc = put_head(t, &e, err);
    if (rc == 0)
        rc = totar_put(t, text, n, err);
    return rc < 0 ? rc : totar_pad(t, n, err);
}

static int put_head(const struct totar *t, const struct totar_entry *e, struct err *err) {
    char b[BLOCK] = {0};
    unsigned sum = 0;
    int rc = 0;
    if (strlen(e->name) > NAME_BYTES)
        rc = put_long(t, 'L', e->name, err);
    if (rc == 0 && strlen(e->target) > NAME_BYTES)
        rc = put_long(t, 'K', e->target, err);
    if (rc < 0)
        return rc;
    memcpy(b, e->name, MIN(strlen(e->name), (size_t)NAME_BYTES));
    totar_put_number(b + 100, 8, e->mode & 07777);
    totar_put_number(b + 108, 8, 0);
    totar_put_number(b + 116, 8, 0);
    totar_put_number(b + 124, 12, e->size);
    totar_put_number(b + 136, 12, e->mtime > 0 ? (uint64_t)e->mtime : 0);
    memset(b + 148, ' ', 8);
    b[156] = e->kind;
    memcpy(b + 157, e->target, MIN(strlen(e->target), (size_t)NAME_BYTES));
    memcpy(b + 257, "ustar  ", 8); /* as GNU has it, which means its long names */
    for (size_t i = 0; i < sizeof(b); i++)
        sum += (unsigned char)b[i];
    (void)snprintf(b + 148, 7, "%06o", sum);
    return totar_put(t, b, sizeof(b), err);
}

/* As many bytes as the head said, whatever becomes of the file meanwhile. */
static int put_content(const struct totar *t, int fd, uint64_t size, struct err *err) {
    static char data[65536];
    for (uint64_t at = 0; at < size;) {
        size_t most = (size_t)MIN((uint64_t)sizeof(data), size - at);
        ssize_t n = read(fd, data, most);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            memset(data, 0, most);
            n = (ssize_t)most;
        }
        int rc = totar_put(t, data, (size_t)n, err);
        if (rc < 0)
            return rc;
        at += (uint64_t)n;
    }
    return totar_pad(t, size, err);
}

static int pack_file(struct totar *t, int dir, const char *name, const char *path,
                     struct err *err) {
    struct stat st;
    _cleanup_(close) int fd =
        openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        totar_leave(t, path, "cannot be read");
        return 0;
    }
    struct totar_entry e = {.name = path,
                            .target = "",
                            .kind = '0',
                            .mode = st.st_mode,
                            .size = (uint64_t)st.st_size,
                            .mtime = st.st_mtim.tv_sec};
    int rc = put_head(t, &e, err);
    return rc < 0 ? rc : put_content(t, fd, e.size, err);
}

static int pack_link(struct totar *t, int dir, const char *name, const char *path,
                     struct err *err) {
    char target[PATH_MAX];
    ssize_t n = readlinkat(dir, name, target, sizeof(target) - 1);
    if (n < 0) {
        totar_leave(t, path, "cannot be read");
        return 0;
    }
    target[n] = 0;
    return put_head(
        t, &(struct totar_entry){.name = path, .target = target, .kind = '2', .mode = 0777}, err);
}

static int pack_folder(struct totar *t, int dir, const char *path, int depth, struct err *err);

static int pack_entry(struct totar *t, int dir, const char *name, const char *path, int depth,
                      struct err *err) {
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0; /* gone since */
    if (S_ISREG(st.st_mode))
        return pack_file(t, dir, name, path, err);
    if (S_ISLNK(st.st_mode))
        return pack_link(t, dir, name, path, err);
    if (!S_ISDIR(st.st_mode)) {
        totar_leave(t, path, "a pipe, socket or device");
        return 0;
    }
    int sub = depth >= DEPTH_MAX
                  ? -1
                  : openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (sub < 0) {
        totar_leave(t, path, "cannot be read");
        return 0;
    }
    return pack_folder(t, sub, path, depth + 1, err);
}

/* Takes the descriptor. */
// NOLINTNEXTLINE(misc-no-recursion): bounded by DEPTH_MAX
static int pack_folder(struct totar *t, int dir, const char *path, int depth, struct err *err) {
    struct stat st;
    DIR *d = fdopendir(dir);
    const struct dirent *e;
    if (!d || fstat(dirfd(d), &st) < 0) {
        if (d)
            (void)closedir(d);
        else
            close(dir);
        totar_leave(t, path, "cannot be read");
        return 0;
    }
    _cleanup_(free) char *name = xasprintf("%s/", path);
    int rc = put_head(t,
                      &(struct totar_entry){.name = name,
                                            .target = "",
                                            .kind = '5',
                                            .mode = st.st_mode,
                                            .mtime = st.st_mtim.tv_sec},
                      err);
    while (rc == 0 && (e = readdir(d))) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        _cleanup_(free) char *below = xasprintf("%s/%s", path, e->d_name);
        rc = pack_entry(t, dirfd(d), e->d_name, below, depth, err);
    }
    (void)closedir(d);
    return rc;
}

int totar_write(struct totar *t, int dir, struct err *err) {
    static const char zero[2 * BLOCK];
    int top = fcntl(dir, F_DUPFD_CLOEXEC, 3);
    if (top < 0)
        return err_sys(err, "open the folder");
    int rc = pack_folder(t, top, ".", 0, err);
    return rc < 0 ? rc : totar_put(t, zero, sizeof(zero), err);
}
