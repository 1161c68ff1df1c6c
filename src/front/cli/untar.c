#include "front/cli/untar.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_MAX_BYTES = 4096, EXTRA_MAX_BYTES = 1 << 20, DEPTH_MAX = 128 };

/* --- paths: one folder after the other, none of them through a link --- */

/* The next part of a path that is one: "." and empty ones are passed over. NULL at the end. */
static const char *next_part(const char *p, size_t *ret_len) {
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

/* Opens the folder that holds the last part, which is written to ret_name; makes what is missing.
 */
static int open_parent(const struct untar *t, const char *path, char ret_name[256], int *ret_fd) {
    size_t n;
    const char *part = next_part(path, &n);
    _cleanup_(close) int dir = fcntl(t->dir, F_DUPFD_CLOEXEC, 3);
    if (!part)
        return -1; /* the folder itself */
    for (int depth = 0; dir >= 0 && depth < DEPTH_MAX; depth++) {
        if (!path_is_plain_name(part, n))
            return -1;
        memcpy(ret_name, part, n);
        ret_name[n] = 0;
        part = next_part(part + n, &n);
        if (!part) {
            *ret_fd = steal_fd(&dir);
            return 0;
        }
        if (mkdirat(dir, ret_name, 0777) < 0 && errno != EEXIST)
            return -1;
        int next = openat(dir, ret_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        close(dir);
        dir = next;
    }
    return -1;
}

/* Whether a link at `path` that says `target` stays inside, were it followed. What is above `path`
 * are folders, so ".." leads up one; behind a name, which may be another link, it could lead
 * anywhere. */
static bool stays_inside(const char *path, const char *target) {
    size_t n;
    int depth = -1;
    bool named = false;
    if (*target == '/' || *target == 0)
        return false;
    for (const char *p = next_part(path, &n); p; p = next_part(p + n, &n))
        depth++;
    for (const char *p = next_part(target, &n); p; p = next_part(p + n, &n)) {
        bool up = n == 2 && p[0] == '.' && p[1] == '.';
        if (up && (named || --depth < 0))
            return false;
        named = named || !up;
    }
    return depth >= 0;
}

/* --- entries --- */

static int make_file(struct untar *t, const char *path, mode_t mode, struct err *err) {
    char name[256];
    _cleanup_(close) int dir = -1;
    if (open_parent(t, path, name, &dir) < 0) {
        t->skipped++;
        return 0;
    }
    /* What is there is replaced, not written through: it may be a link. */
    (void)unlinkat(dir, name, 0);
    t->file = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                     mode & 0111 ? 0777 : 0666);
    if (t->file < 0 && (errno == EEXIST || errno == EISDIR || errno == ENAMETOOLONG)) {
        t->skipped++;
        return 0;
    }
    t->files++;
    return t->file < 0 ? err_sys(err, "make %s", path) : 0;
}

static void make_folder(struct untar *t, const char *path) {
    char name[256];
    size_t n;
    _cleanup_(close) int dir = -1;
    if (!next_part(path, &n))
        return;
    if (open_parent(t, path, name, &dir) < 0 || (mkdirat(dir, name, 0777) < 0 && errno != EEXIST))
        t->skipped++;
}

static void make_link(struct untar *t, const char *path, const char *target) {
    char name[256];
    _cleanup_(close) int dir = -1;
    if (!stays_inside(path, target) || open_parent(t, path, name, &dir) < 0) {
        t->skipped++;
        return;
    }
    (void)unlinkat(dir, name, 0);
    if (symlinkat(target, dir, name) < 0)
        t->skipped++;
}

/* --- heads --- */

static uint64_t read_number(const char *p, size_t n) {
    uint64_t v = 0;
    if ((unsigned char)p[0] & 0x80) { /* GNU: big endian */
        for (size_t i = 1; i < n; i++)
            v = v << 8 | (unsigned char)p[i];
        return v;
    }
    for (size_t i = 0; i < n && p[i]; i++)
        if (p[i] >= '0' && p[i] <= '7')
            v = v << 3 | (uint64_t)(p[i] - '0');
    return v;
}

static bool is_sound(const char *b) {
    uint64_t sum = 0;
    for (int i = 0; i < 512; i++)
        sum += i >= 148 && i < 156 ? ' ' : (unsigned char)b[i];
    return read_number(b + 148, 8) == sum;
}

static bool is_zero(const char *b) {
    for (int i = 0; i < 512; i++)
        if (b[i])
            return false;
    return true;
}

/* "LEN KEY=VALUE\n" records of pax. */
static void read_pax(struct untar *t) {
    const char *p = t->extra.data;
    const char *end = p + t->extra.len;
    while (p && p < end) {
        char *rest = NULL;
        unsigned long len = strtoul(p, &rest, 10);
        if (len == 0 || len > (unsigned long)(end - p) || !rest || *rest != ' ' || rest >= p + len)
            return;
        const char *key = rest + 1;
        const char *eq = memchr(key, '=', (size_t)(p + len - key));
        if (!eq)
            return;
        size_t n = (size_t)(p + len - 1 - (eq + 1));
        struct buf *to = NULL;
        if (eq - key == 4 && memcmp(key, "path", 4) == 0)
            to = &t->name;
        else if (eq - key == 8 && memcmp(key, "linkpath", 8) == 0)
            to = &t->link;
        if (to && p + len > eq + 1) {
            buf_clear(to);
            (void)buf_add(to, eq + 1, n);
        }
        p += len;
    }
}

static void set_field(struct buf *b, const char *prefix, const char *field, size_t n) {
    if (b->len > 0)
        return; /* told ahead */
    if (*prefix) {
        (void)buf_add(b, prefix, strnlen(prefix, 155));
        (void)buf_add_char(b, '/');
    }
    (void)buf_add(b, field, strnlen(field, n));
}

static int on_head(struct untar *t, struct err *err) {
    const char *b = t->block;
    if (is_zero(b)) {
        t->ended = true;
        return 0;
    }
    if (!is_sound(b))
        return err_set(err, ERR_PROTOCOL, "the archive is damaged");
    t->kind = (unsigned char)b[156];
    t->left = read_number(b + 124, 12);
    t->padding = (size_t)(-t->left & 511);
    if (t->kind == 'x' || t->kind == 'L' || t->kind == 'K') {
        buf_clear(&t->extra);
        return t->left > EXTRA_MAX_BYTES ? err_set(err, ERR_TOO_LARGE, "a name is too long") : 0;
    }
    if (t->kind == 'g')
        return 0;
    bool ustar = memcmp(b + 257, "ustar\0", 6) == 0;
    set_field(&t->name, ustar ? b + 345 : "", b, 100);
    set_field(&t->link, "", b + 157, 100);
    const char *name = t->name.data ? t->name.data : "";
    const char *link = t->link.data ? t->link.data : "";
    int rc = 0;
    size_t n = strlen(name);
    if (t->kind == '5' || ((t->kind == '0' || t->kind == 0) && n > 0 && name[n - 1] == '/'))
        make_folder(t, name);
    else if (t->kind == '0' || t->kind == 0 || t->kind == '7')
        rc = make_file(t, name, (mode_t)read_number(b + 100, 8), err);
    else if (t->kind == '2')
        make_link(t, name, link);
    else
        t->skipped++;
    buf_clear(&t->name);
    buf_clear(&t->link);
    return rc;
}

static int on_content(struct untar *t, const char *data, size_t n, struct err *err) {
    if (t->file >= 0 && fd_write_all(t->file, data, n) < 0)
        return err_sys(err, "write");
    if (t->kind == 'x' || t->kind == 'L' || t->kind == 'K')
        (void)buf_add(&t->extra, data, n);
    return 0;
}

static void on_entry_end(struct untar *t) {
    fd_close(&t->file);
    if (t->kind == 'x') {
        read_pax(t);
    } else if (t->kind == 'L' || t->kind == 'K') {
        struct buf *to = t->kind == 'L' ? &t->name : &t->link;
        buf_clear(to);
        (void)buf_add(to, t->extra.data ? t->extra.data : "",
                      t->extra.data ? strnlen(t->extra.data, t->extra.len) : 0);
    }
    t->kind = 0;
}

/* --- the stream --- */

void untar_init(struct untar *t, int dir) {
    *t = (struct untar){.dir = dir, .file = -1};
    buf_init(&t->name, NAME_MAX_BYTES);
    buf_init(&t->link, NAME_MAX_BYTES);
    buf_init(&t->extra, EXTRA_MAX_BYTES);
}

int untar_feed(struct untar *t, const char *data, size_t len, struct err *err) {
    int rc = 0;
    while (len > 0 && rc == 0 && !t->ended) {
        size_t n;
        if (t->left > 0) {
            n = (size_t)MIN((uint64_t)len, t->left);
            rc = on_content(t, data, n, err);
            t->left -= n;
        } else if (t->padding > 0) {
            n = MIN(len, t->padding);
            t->padding -= n;
        } else {
            n = MIN(len, sizeof(t->block) - t->have);
            memcpy(t->block + t->have, data, n);
            t->have += n;
            if (t->have == sizeof(t->block)) {
                t->have = 0;
                rc = on_head(t, err);
                if (rc == 0 && t->left == 0)
                    on_entry_end(t);
            }
            data += n;
            len -= n;
            continue;
        }
        data += n;
        len -= n;
        if (t->left == 0 && t->padding == 0)
            on_entry_end(t);
    }
    return rc;
}

int untar_end(struct untar *t, struct err *err) {
    return t->ended ? 0 : err_set(err, ERR_IO, "the archive broke off; what came is kept");
}

void untar_finish(struct untar *t) {
    fd_close(&t->file);
    buf_finish(&t->name);
    buf_finish(&t->link);
    buf_finish(&t->extra);
}
