#include "base/cleanup.h"
#include "base/limits.h"
#include "base/mem.h"
#include "coder/tools.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A folder may hold any number of entries: so many of it are read, then the rest is only said to be
 * there. */
enum { FOLDER_MAX = 1000 };

struct list {
    struct buf *out;
    size_t entries;
    bool more;
};

static int coder_list_by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void free_names(char **names, size_t n) {
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

/* Takes the descriptor. The names in order; true if there are more than were read. */
static bool coder_list_read_names(int fd, char ***ret_names, size_t *ret_n) {
    char **names = xcalloc(FOLDER_MAX, sizeof(*names));
    size_t n = 0;
    bool more = false;
    DIR *dir = fdopendir(fd);
    if (!dir)
        close(fd);
    const struct dirent *e;
    while (dir && !more && (e = readdir(dir))) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        more = n == FOLDER_MAX;
        if (!more)
            names[n++] = xstrdup(e->d_name);
    }
    if (dir)
        closedir(dir);
    qsort(names, n, sizeof(*names), coder_list_by_name);
    *ret_names = names;
    *ret_n = n;
    return more;
}

static void coder_list_add_entry(struct list *l, int dirfd, const char *prefix, const char *name,
                                 const struct stat *st) {
    (void)buf_addf(l->out, "%s%s", prefix, name);
    if (S_ISDIR(st->st_mode)) {
        (void)buf_add_char(l->out, '/');
    } else if (S_ISLNK(st->st_mode)) {
        char target[256];
        ssize_t n = readlinkat(dirfd, name, target, sizeof(target));
        (void)buf_addf(l->out, " -> %.*s", (int)MAX(n, (ssize_t)0), target);
    } else {
        (void)buf_addf(l->out, " (%lld bytes)", (long long)st->st_size);
    }
    (void)buf_add_char(l->out, '\n');
    l->entries++;
}

static bool is_full(const struct list *l) {
    return l->entries >= LIMIT_CODER_LIST_ENTRIES || l->out->len >= LIMIT_CODER_OUTPUT_BYTES;
}

/* What is there in numbers that tell nobody anything. */
static bool is_dull(const char *name) {
    return strcmp(name, ".git") == 0 || strcmp(name, "node_modules") == 0;
}

// NOLINTNEXTLINE(misc-no-recursion): bounded by LIMIT_CODER_LIST_DEPTH
static void coder_list_walk(struct list *l, int fd, const char *prefix, unsigned depth) {
    char **names = NULL;
    size_t n = 0;
    int at = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (at < 0)
        return;
    l->more = coder_list_read_names(at, &names, &n) || l->more;
    for (size_t i = 0; i < n; i++) {
        struct stat st;
        if (is_full(l)) {
            l->more = true;
            break;
        }
        if (fstatat(fd, names[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        coder_list_add_entry(l, fd, prefix, names[i], &st);
        if (!S_ISDIR(st.st_mode) || is_dull(names[i]))
            continue;
        if (depth == LIMIT_CODER_LIST_DEPTH) {
            l->more = true;
            continue;
        }
        _cleanup_(close) int below =
            openat(fd, names[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        _cleanup_(free) char *longer = xasprintf("%s%s/", prefix, names[i]);
        if (below >= 0)
            coder_list_walk(l, below, longer, depth + 1);
    }
    free_names(names, n);
}

int tool_list_files(struct tools *t, const json_t *args, struct coder_result *ret) {
    static const char *const keys[] = {"path", NULL};
    const char *path = ".";
    int rc = json_check_keys(args, "args of list_files", keys, &ret->error);
    if (rc == 0)
        rc = json_get_str(args, "path", &path, &ret->error);
    if (rc < 0)
        return rc;
    _cleanup_(close) int fd = workdir_open(&t->dir, *path ? path : ".", O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0 && (errno == EXDEV || errno == ELOOP))
        return err_set(&ret->error, ERR_FORBIDDEN,
                       "%.200s leads out of the work directory; name paths relative to it", path);
    if (fd < 0)
        return err_sys(&ret->error, "%.200s", path);
    struct list l = {.out = &ret->output};
    coder_list_walk(&l, fd, "", 1);
    if (l.more)
        (void)buf_add_str(l.out, "[there is more; list a folder further down by its path]\n");
    else if (l.entries == 0)
        (void)buf_add_str(l.out, "[no files]\n");
    return 0;
}
