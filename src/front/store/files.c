#include "front/store/files.h"

#include "base/cleanup.h"
#include "base/mem.h"
#include "base/path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HASH_LEN = 64 };

int files_error(struct err *err, const char *what) {
    bool full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
    return full ? err_set(err, ERR_FULL, "%s: the disk is full", what) : err_sys(err, "%s", what);
}

int files_open_folder(const char *database, bool make, struct err *err) {
    const char *slash = strrchr(database, '/');
    _cleanup_(free) char *parent =
        slash ? xstrndup(database, (size_t)(slash - database) + 1) : xstrdup("./");
    _cleanup_(free) char *path = path_join(parent, "artifacts");
    if (make && mkdir(path, 0700) < 0 && errno != EEXIST)
        return files_error(err, "make the folder of artifacts");
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? err_sys(err, "open %s", path) : fd;
}

/* "ab/abcdef..." */
static void store_files_place(const char *hash, char out[HASH_LEN + 4]) {
    (void)snprintf(out, HASH_LEN + 4, "%.2s/%.64s", hash, hash);
}

int files_rename(int folder, const char *from, const char *hash, struct err *err) {
    char to[HASH_LEN + 4];
    char part[3] = {hash[0], hash[1], 0};
    store_files_place(hash, to);
    if (mkdirat(folder, part, 0700) < 0 && errno != EEXIST)
        return files_error(err, "make a folder for an artifact");
    if (renameat(folder, from, folder, to) == 0)
        return 0;
    struct stat st;
    bool renamed = errno == ENOENT && fstatat(folder, to, &st, AT_SYMLINK_NOFOLLOW) == 0;
    return renamed ? 0 : files_error(err, "name an artifact"); /* by a transaction that failed */
}

int files_open(int folder, const char *hash) {
    char path[HASH_LEN + 4];
    store_files_place(hash, path);
    return openat(folder, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
}

void files_delete(int folder, const char *hash) {
    char path[HASH_LEN + 4];
    store_files_place(hash, path);
    (void)unlinkat(folder, path, 0);
}

static DIR *store_files_open_dir(int folder, const char *name) {
    int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d && fd >= 0)
        (void)close(fd);
    return d;
}

void files_sweep_new(int folder) {
    static const char mark[] = FILES_NEW "_";
    DIR *d = store_files_open_dir(folder, ".");
    const struct dirent *e;
    while (d && (e = readdir(d)))
        if (strncmp(e->d_name, mark, strlen(mark)) == 0)
            (void)unlinkat(folder, e->d_name, 0);
    if (d)
        (void)closedir(d);
}

void files_sweep(int folder, unsigned part, bool (*is_known)(void *ctx, const char *hash),
                 void *ctx) {
    char name[3];
    (void)snprintf(name, sizeof(name), "%02x", part & 0xff);
    DIR *d = store_files_open_dir(folder, name);
    const struct dirent *e;
    while (d && (e = readdir(d)))
        if (strlen(e->d_name) == HASH_LEN && !is_known(ctx, e->d_name))
            (void)unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        (void)closedir(d);
}
