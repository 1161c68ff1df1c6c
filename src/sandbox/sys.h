#pragma once
/* System calls that Debian 12's C library has no names for, or whose headers clash. */

#include <fcntl.h>
#include <linux/mount.h>
#include <linux/sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* <sys/mount.h> and <linux/mount.h> cannot be included together with glibc 2.36. */
int mount(const char *source, const char *target, const char *type, unsigned long flags,
          const void *data);
int umount2(const char *target, int flags);
#define SYS_MNT_DETACH 2

static inline int sys_open_tree(int dirfd, const char *path, unsigned flags) {
    return (int)syscall(SYS_open_tree, dirfd, path, flags);
}

static inline int sys_move_mount(int from, int to_dirfd, const char *to) {
    return (int)syscall(SYS_move_mount, from, "", to_dirfd, to, MOVE_MOUNT_F_EMPTY_PATH);
}

static inline int sys_mount_setattr(int dirfd, const char *path, unsigned flags,
                                    struct mount_attr *attr) {
    return (int)syscall(SYS_mount_setattr, dirfd, path, flags, attr, sizeof(*attr));
}

static inline int sys_pivot_root(const char *new_root, const char *put_old) {
    return (int)syscall(SYS_pivot_root, new_root, put_old);
}

static inline pid_t sys_clone3(struct clone_args *args) {
    return (pid_t)syscall(SYS_clone3, args, sizeof(*args));
}

static inline int sys_pidfd_send_signal(int pidfd, int signo) {
    return (int)syscall(SYS_pidfd_send_signal, pidfd, signo, NULL, 0);
}

/* glibc's wrappers may broadcast to threads; these change the calling task only, which is what a
 * child that shares memory with init needs. */
static inline int sys_setresuid(uid_t id) {
    return (int)syscall(SYS_setresuid, id, id, id);
}

static inline int sys_setresgid(gid_t id) {
    return (int)syscall(SYS_setresgid, id, id, id);
}
