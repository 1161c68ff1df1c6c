#include "front/cli/untar.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_BYTES = 4096, EXTRA_MAX_BYTES = 1 << 20, NAMED_MAX = 10 };

/* --- entries --- */

/* Only what this machine cannot do ends it: what may not be written is left out and named. */
static int untar_leave_out(struct untar *t, const char *path, int rc, struct err *err) {
    if (rc == 0 || err->code == ERR_IO || err->code == ERR_FULL)
        return rc;
    if (t->skipped++ < NAMED_MAX)
        (void)buf_addf(&t->left_out, "%.200s\n", *err->message ? err->message : path);
    *err = (struct err){0};
    return 0;
}

static int make_file(struct untar *t, const char *path, unsigned mode, struct err *err) {
    int rc = folder_begin(t->dir, path, mode & 0111 ? 0777 : 0666, &t->file, err);
    if (rc == 0)
        t->files++;
    return untar_leave_out(t, path, rc, err);
}

static int end_file(struct untar *t, struct err *err) {
    if (t->file.fd < 0)
        return 0;
    int rc = folder_commit(&t->file, true, err);
    if (rc < 0)
        t->files--;
    return untar_leave_out(t, t->file.name, rc, err);
}

/* --- heads --- */

static uint64_t untar_read_number(const char *p, size_t n) {
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
    return untar_read_number(b + 148, 8) == sum;
}

static bool untar_is_zero(const char *b) {
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

static int untar_on_head(struct untar *t, struct err *err) {
    const char *b = t->block;
    if (untar_is_zero(b)) {
        t->ended = true;
        return 0;
    }
    if (!is_sound(b))
        return err_set(err, ERR_PROTOCOL, "the archive is damaged");
    t->kind = (unsigned char)b[156];
    t->left = untar_read_number(b + 124, 12);
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
    name += strspn(name, "/"); /* as every tar does */
    const char *link = t->link.data ? t->link.data : "";
    int rc = 0;
    size_t n = strlen(name);
    if (t->kind == '5' || ((t->kind == '0' || t->kind == 0) && n > 0 && name[n - 1] == '/'))
        rc = untar_leave_out(t, name, folder_make(t->dir, name, err), err);
    else if (t->kind == '0' || t->kind == 0 || t->kind == '7')
        rc = make_file(t, name, (unsigned)untar_read_number(b + 100, 8), err);
    else if (t->kind == '2')
        rc = untar_leave_out(t, name, folder_link(t->dir, name, link, true, err), err);
    else
        rc = untar_leave_out(
            t, name, err_set(err, ERR_FORBIDDEN, "%.300s is no file, folder or link", name), err);
    buf_clear(&t->name);
    buf_clear(&t->link);
    return rc;
}

static int untar_on_content(struct untar *t, const char *data, size_t n, struct err *err) {
    if (t->file.fd >= 0 && fd_write_all(t->file.fd, data, n) < 0)
        return err_sys(err, "write");
    if (t->kind == 'x' || t->kind == 'L' || t->kind == 'K')
        (void)buf_add(&t->extra, data, n);
    return 0;
}

static int untar_on_entry_end(struct untar *t, struct err *err) {
    int rc = end_file(t, err);
    if (t->kind == 'x') {
        read_pax(t);
    } else if (t->kind == 'L' || t->kind == 'K') {
        struct buf *to = t->kind == 'L' ? &t->name : &t->link;
        buf_clear(to);
        (void)buf_add(to, t->extra.data ? t->extra.data : "",
                      t->extra.data ? strnlen(t->extra.data, t->extra.len) : 0);
    }
    t->kind = 0;
    return rc;
}

/* --- the stream --- */

void untar_init(struct untar *t, int dir) {
    *t = (struct untar){.dir = dir, .file = {.parent = -1, .fd = -1}};
    buf_init(&t->left_out, NAMED_MAX * 256);
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
            rc = untar_on_content(t, data, n, err);
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
                rc = untar_on_head(t, err);
                if (rc == 0 && t->left == 0)
                    rc = untar_on_entry_end(t, err);
            }
            data += n;
            len -= n;
            continue;
        }
        data += n;
        len -= n;
        if (rc == 0 && t->left == 0 && t->padding == 0)
            rc = untar_on_entry_end(t, err);
    }
    return rc;
}

int untar_end(struct untar *t, struct err *err) {
    return t->ended
               ? 0
               : err_set(err, ERR_IO, "the archive broke off; the files that came whole are kept");
}

void untar_finish(struct untar *t) {
    folder_cancel(&t->file);
    buf_finish(&t->left_out);
    buf_finish(&t->name);
    buf_finish(&t->link);
    buf_finish(&t->extra);
}
