#include "front/start/data_dir.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TREE_DEPTH_MAX = 64 };

/* Gives a folder and what is in it to the server's user. Its present owner may be changing it
 * meanwhile, so no name is resolved twice and no link is followed: each step is taken from a
 * descriptor. A file with a second name may be somebody else's file: it stays as it is. */
static int give_tree(const struct server_user *user, int dirfd, const char *name, int depth) {
    /* The operator may have put a link in the place of the data folder, but of nothing in it. */
    int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (depth > 0 ? O_NOFOLLOW : 0);
    _cleanup_(close) int fd = openat(dirfd, name, flags);
    if (fd < 0)
        return -1;
    DIR *dir = fdopendir(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!dir)
        return -1;
    int rc = 0;
    const struct dirent *e;
    while (rc == 0 && (e = readdir(dir))) {
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            rc = errno == ENOENT ? 0 : -1;
        else if (S_ISDIR(st.st_mode))
            rc = depth < TREE_DEPTH_MAX ? give_tree(user, fd, e->d_name, depth + 1) : 0;
        else if (st.st_uid != user->uid && st.st_nlink == 1)
            rc = fchownat(fd, e->d_name, user->uid, user->gid, AT_SYMLINK_NOFOLLOW);
    }
    (void)closedir(dir);
    struct stat st;
    if (rc == 0 && fstat(fd, &st) == 0 && st.st_uid != user->uid)
        rc = fchown(fd, user->uid, user->gid);
    return rc;
}

int data_dir_make(const char *dir, const struct server_user *user, struct err *err) {
    int rc = path_mkdirs(dir, 0700, err);
    if (rc < 0)
        return err_wrap(err, "data folder (choose another with --data-dir)");
    if (!user->change)
        return 0;
    if (give_tree(user, AT_FDCWD, dir, 0) < 0)
        return err_sys(err, "data folder %s", dir);
    return 0;
}

int data_dir_lock(const char *dir, int *ret_fd, struct err *err) {
    _cleanup_(free) char *file = path_join(dir, "lock");
    _cleanup_(close) int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 && errno == EACCES)
        return err_set(err, ERR_IO,
                       "data folder %s: user %u, as whom the server runs, may not enter it: make "
                       "the folders above it passable (chmod o+x), or choose another with "
                       "--data-dir",
                       dir, (unsigned)geteuid());
    if (fd < 0)
        return err_sys(err, "data folder %s: open lock", dir);
    char text[32];
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
        text[n > 0 ? n : 0] = 0;
        text[strcspn(text, "\n")] = 0;
        return err_set(err, ERR_CONFLICT,
                       "another cay (pid %s) is using the data folder %s: stop it, or choose "
                       "another folder with --data-dir",
                       text, dir);
    }
    int n = snprintf(text, sizeof(text), "%d\n", (int)getpid());
    if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)n, 0) < 0)
        return err_sys(err, "data folder %s: write lock", dir);
    *ret_fd = steal_fd(&fd);
    return 0;
}
