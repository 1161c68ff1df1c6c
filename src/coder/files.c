#include "base/cleanup.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "coder/tools.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_MAX = LIMIT_CODER_OUTPUT_BYTES };

static int path_error(struct err *err, const char *path) {
    if (errno == EXDEV || errno == ELOOP)
        return err_set(err, ERR_FORBIDDEN,
                       "%.200s leads out of the work directory; name paths relative to it", path);
    if (errno == ENXIO)
        return err_set(err, ERR_BAD_REQUEST, "%.200s is no regular file", path);
    return err_sys(err, "%.200s", path);
}

static int coder_files_get_path(const json_t *args, const char **ret, struct err *err) {
    const char *path = NULL;
    int rc = json_get_str(args, "path", &path, err);
    if (rc < 0)
        return rc;
    if (!path || !*path)
        return err_set(err, ERR_BAD_REQUEST, "\"path\" is missing");
    *ret = path;
    return 0;
}

/* A text that may hold anything a file may. */
static int get_text(const json_t *args, const char *key, const json_t **ret, struct err *err) {
    const json_t *v = json_object_get(args, key);
    if (!json_is_string(v))
        return err_set(err, ERR_BAD_REQUEST, "\"%s\" must be a string", key);
    if (json_string_length(v) > LIMIT_CODER_FILE_BYTES)
        return err_set(err, ERR_TOO_LARGE, "\"%s\" is longer than %d bytes", key,
                       LIMIT_CODER_FILE_BYTES);
    *ret = v;
    return 0;
}

/* Neither a folder nor a pipe or a device, which would wait for somebody or do something. */
static int open_regular(const struct workdir *d, const char *path, int flags, int *ret_fd,
                        struct stat *ret_st, struct err *err) {
    _cleanup_(close) int fd = workdir_open(d, path, flags | O_NONBLOCK | O_NOCTTY, 0666);
    if (fd < 0)
        return path_error(err, path);
    if (fstat(fd, ret_st) < 0)
        return path_error(err, path);
    if (!S_ISREG(ret_st->st_mode))
        return err_set(err, ERR_BAD_REQUEST, "%.200s is %s", path,
                       S_ISDIR(ret_st->st_mode) ? "a folder" : "no regular file");
    *ret_fd = steal_fd(&fd);
    return 0;
}

/* --- write_file --- */

/* `path` is relative to the work directory. */
static int coder_files_make_parents(const struct workdir *d, const char *path, struct err *err) {
    _cleanup_(free) char *copy = xstrdup(path);
    for (char *slash = strchr(copy, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        _cleanup_(close) int there = workdir_open(d, copy, O_PATH | O_DIRECTORY, 0);
        if (there < 0 && errno == ENOENT && *copy) {
            char *name = strrchr(copy, '/');
            const char *last = name ? name + 1 : copy;
            if (name)
                *name = 0;
            _cleanup_(close) int parent =
                workdir_open(d, name ? copy : ".", O_PATH | O_DIRECTORY, 0);
            if (name)
                *name = '/';
            if (parent < 0 || (mkdirat(parent, last, 0777) < 0 && errno != EEXIST))
                return path_error(err, copy);
        } else if (there < 0) {
            return path_error(err, copy);
        }
        *slash = '/';
    }
    return 0;
}

static int coder_files_put(int fd, const char *path, const char *data, size_t len,
                           struct err *err) {
    if (ftruncate(fd, 0) < 0 || fd_write_all(fd, data, len) < 0)
        return path_error(err, path);
    return 0;
}

int tool_write_file(struct tools *t, const json_t *args, struct coder_result *ret) {
    static const char *const keys[] = {"path", "content", NULL};
    struct err *err = &ret->error;
    const char *path = NULL;
    const json_t *content = NULL;
    struct stat st;
    _cleanup_(close) int fd = -1;
    int rc = json_check_keys(args, "args of write_file", keys, err);
    if (rc == 0)
        rc = coder_files_get_path(args, &path, err);
    if (rc == 0)
        rc = get_text(args, "content", &content, err);
    const char *relative = rc == 0 ? workdir_relative(&t->dir, path) : NULL;
    if (rc == 0 && !relative) {
        errno = EXDEV;
        rc = path_error(err, path);
    }
    if (rc == 0)
        rc = coder_files_make_parents(&t->dir, relative, err);
    if (rc == 0)
        rc = open_regular(&t->dir, path, O_WRONLY | O_CREAT, &fd, &st, err);
    if (rc == 0)
        rc =
            coder_files_put(fd, path, json_string_value(content), json_string_length(content), err);
    if (rc == 0)
        (void)buf_addf(&ret->output, "wrote %zu bytes to %.200s", json_string_length(content),
                       path);
    return rc;
}

/* --- read_file --- */

static int get_window(const json_t *args, int64_t *offset, int64_t *limit, struct err *err) {
    int rc = json_get_int(args, "offset", 0, INT64_MAX / 2, offset, err);
    return rc < 0 ? rc : json_get_int(args, "limit", 4, READ_MAX, limit, err);
}

/* Where the text ends if a sequence that the window cuts is left for the next one. */
static size_t whole_end(const char *data, size_t len) {
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        unsigned char c = (unsigned char)data[len - back];
        if (c < 0x80)
            break;
        if (c >= 0xc0)
            return utf8_sequence(data + len - back, back) ? len : len - back;
    }
    return len;
}

static int read_window(int fd, const char *path, int64_t offset, int64_t limit, int64_t size,
                       struct buf *out, struct err *err) {
    char chunk[READ_MAX];
    ssize_t n = 1;
    size_t got = 0;
    size_t from = 0;
    while (n != 0 && got < (size_t)limit) {
        n = pread(fd, chunk + got, (size_t)limit - got, offset + (int64_t)got);
        if (n < 0 && errno != EINTR)
            return path_error(err, path);
        got += n > 0 ? (size_t)n : 0;
    }
    size_t end = offset + (int64_t)got < size ? whole_end(chunk, got) : got;
    while (offset > 0 && from < end && from < 3 && ((unsigned char)chunk[from] & 0xc0) == 0x80)
        from++;
    if (memchr(chunk, 0, got) || !utf8_is_valid(chunk + from, end - from))
        return err_set(err, ERR_BAD_REQUEST,
                       "%.200s is binary (%" PRId64 " bytes); look at it with a command", path,
                       size);
    (void)buf_add(out, chunk + from, end - from);
    int64_t first = offset + (int64_t)from;
    int64_t next = offset + (int64_t)end;
    if (next < size)
        (void)buf_addf(out,
                       "\n[bytes %" PRId64 " to %" PRId64 " of %" PRId64
                       "; for more, read_file with \"offset\": %" PRId64 "]",
                       first, next, size, next);
    return 0;
}

int tool_read_file(struct tools *t, const json_t *args, struct coder_result *ret) {
    static const char *const keys[] = {"path", "offset", "limit", NULL};
    struct err *err = &ret->error;
    const char *path = NULL;
    int64_t offset = 0;
    int64_t limit = READ_MAX;
    struct stat st = {0};
    _cleanup_(close) int fd = -1;
    int rc = json_check_keys(args, "args of read_file", keys, err);
    if (rc == 0)
        rc = coder_files_get_path(args, &path, err);
    if (rc == 0)
        rc = get_window(args, &offset, &limit, err);
    if (rc == 0)
        rc = open_regular(&t->dir, path, O_RDONLY, &fd, &st, err);
    if (rc == 0)
        rc = read_window(fd, path, offset, limit, st.st_size, &ret->output, err);
    return rc;
}

/* --- edit_file --- */

static int replace_once(const struct buf *was, const json_t *old, const json_t *new,
                        struct buf *out, struct err *err) {
    const char *needle = json_string_value(old);
    size_t n = json_string_length(old);
    const char *data = was->data ? was->data : "";
    const char *found = memmem(data, was->len, needle, n);
    if (!found)
        return err_set(err, ERR_NOT_FOUND,
                       "\"old\" is not in the file; it must be there exactly, with its white "
                       "space: read the file first");
    size_t before = (size_t)(found - data);
    if (memmem(found + 1, was->len - before - 1, needle, n))
        return err_set(err, ERR_CONFLICT,
                       "\"old\" is in the file more than once; take more of the text around it");
    bool fits = buf_add(out, data, before) &&
                buf_add(out, json_string_value(new), json_string_length(new)) &&
                buf_add(out, found + n, was->len - before - n);
    return fits ? 0
                : err_set(err, ERR_TOO_LARGE, "the file would be larger than %d bytes",
                          LIMIT_CODER_FILE_BYTES);
}

static int coder_files_read_whole(int fd, const char *path, const struct stat *st, struct buf *out,
                                  struct err *err) {
    if (st->st_size > LIMIT_CODER_FILE_BYTES)
        return err_set(err, ERR_TOO_LARGE, "%.200s is larger than %d bytes; edit it by a command",
                       path, LIMIT_CODER_FILE_BYTES);
    size_t size = (size_t)st->st_size;
    char *at = buf_reserve(out, size);
    ssize_t n = at ? pread(fd, at, size, 0) : -1;
    if (n < 0)
        return path_error(err, path);
    buf_claim(out, (size_t)n);
    return 0;
}

int tool_edit_file(struct tools *t, const json_t *args, struct coder_result *ret) {
    static const char *const keys[] = {"path", "old", "new", NULL};
    struct err *err = &ret->error;
    const char *path = NULL;
    const json_t *old = NULL;
    const json_t *new = NULL;
    struct stat st = {0};
    _cleanup_(close) int fd = -1;
    _cleanup_(buf) struct buf was;
    _cleanup_(buf) struct buf now;
    buf_init(&was, LIMIT_CODER_FILE_BYTES);
    buf_init(&now, LIMIT_CODER_FILE_BYTES);
    int rc = json_check_keys(args, "args of edit_file", keys, err);
    if (rc == 0)
        rc = coder_files_get_path(args, &path, err);
    if (rc == 0)
        rc = get_text(args, "old", &old, err);
    if (rc == 0)
        rc = get_text(args, "new", &new, err);
    if (rc == 0 && json_string_length(old) == 0)
        rc = err_set(err, ERR_BAD_REQUEST, "\"old\" is empty; to write a new file use write_file");
    if (rc == 0)
        rc = open_regular(&t->dir, path, O_RDWR, &fd, &st, err);
    if (rc == 0)
        rc = coder_files_read_whole(fd, path, &st, &was, err);
    if (rc == 0)
        rc = replace_once(&was, old, new, &now, err);
    if (rc == 0 && lseek(fd, 0, SEEK_SET) < 0)
        rc = path_error(err, path);
    if (rc == 0)
        rc = coder_files_put(fd, path, now.data ? now.data : "", now.len, err);
    if (rc == 0)
        (void)buf_addf(&ret->output, "replaced %zu bytes by %zu in %.200s", json_string_length(old),
                       json_string_length(new), path);
    return rc;
}
