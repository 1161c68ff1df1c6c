#include "front/store/disk.h"

#include "base/cleanup.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { FILES_MAX = 200000, DEPTH_MAX = 24, BLOCK = 512, FULL_BYTES = 1 << 20, FULL_INODES = 8 };

static const struct {
    const char *name;
    const char *begins; /* with this a name in the data folder does */
} parts[DISK_PARTS] = {
    [DISK_STORE] = {"store", "cay.db"},
    [DISK_LEDGER] = {"ledger", "ledger.db"},
    [DISK_ARTIFACTS] = {"artifacts", "artifacts"},
    [DISK_AGENTS] = {"agents", "agents"},
    [DISK_FACETS] = {"facets", "facets"},
    [DISK_SANDBOXES] = {"sandboxes", "sandboxes"},
    [DISK_SNAPSHOTS] = {"snapshots", "snapshots"},
    [DISK_OTHER] = {"other", ""},
};

const char *disk_part_name(enum disk_part part) {
    return parts[part].name;
}

static enum disk_part part_of(const char *name) {
    unsigned i = 0;
    while (strncmp(name, parts[i].begins, strlen(parts[i].begins)) != 0)
        i++;
    return (enum disk_part)i;
}

struct count {
    struct disk_usage *usage;
    const atomic_bool *over;
    int files;
};

static bool disk_is_over(const struct count *c) {
    return c->files >= FILES_MAX || (c->over && atomic_load(c->over));
}

/* part DISK_PARTS: by the name of each. Owns fd. */
static void count_folder(struct count *c, int fd, enum disk_part part, int depth) {
    DIR *d = fdopendir(fd);
    const struct dirent *e;
    if (!d) {
        (void)close(fd);
        return;
    }
    while (!disk_is_over(c) && (e = readdir(d))) {
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        enum disk_part of = part == DISK_PARTS ? part_of(e->d_name) : part;
        c->files++;
        c->usage->bytes[of] += (int64_t)st.st_blocks * BLOCK;
        if (!S_ISDIR(st.st_mode) || depth == DEPTH_MAX)
            continue;
        int sub = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (sub >= 0)
            count_folder(c, sub, of, depth + 1);
    }
    (void)closedir(d);
}

bool disk_is_full(const char *data_dir) {
    struct statvfs fs;
    if (statvfs(data_dir, &fs) != 0)
        return false;
    /* A file system that has no number of inodes says 0. */
    return (uint64_t)fs.f_bavail * fs.f_frsize < FULL_BYTES ||
           (fs.f_files > 0 && fs.f_favail < FULL_INODES);
}

void disk_measure(const char *data_dir, const atomic_bool *over, struct disk_usage *ret) {
    struct count c = {.usage = ret, .over = over};
    struct statvfs fs;
    *ret = (struct disk_usage){0};
    int fd = open(data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (fstatvfs(fd, &fs) == 0)
        ret->free_bytes = (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
    count_folder(&c, fd, DISK_PARTS, 0);
    ret->is_whole = !disk_is_over(&c);
    ret->is_known = true;
}
