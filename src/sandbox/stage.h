#pragma once
/* The launcher's own mount namespace: a tiny root that holds one template tree for each root kind,
 * ready to be cloned, and nothing of the host's but /proc. A second process, the binder, stays with
 * the host's mounts and turns a passed directory descriptor into a mount that can be handed to a
 * sandbox, because the kernel clones mounts only from within their own namespace. */

#include "base/err.h"
#include "wire/sandbox.h"

#include <stdbool.h>
#include <sys/types.h>

struct stage {
    bool root;
    bool has_proc; /* sandboxes get a /proc; false where the kernel refuses (see the launcher) */
    uid_t uid;
    gid_t gid;
    int proc;           /* the host's /proc: pids are those of the launcher's namespace */
    int full;           /* the mount namespace that has the templates, where the launcher is */
    int bare;           /* one with the same root and nothing else, for sandboxes to be copies of */
    bool lean;          /* that is done: the kernel can (Linux 6.17), and allows a /proc */
    unsigned terminals; /* for each sandbox: its share of what the machine has */
    int binder;         /* socket */
    pid_t binder_pid;
    char **names; /* root kinds; names[0] is "" */
    size_t nroots;
};

int stage_open(struct stage *s, const struct sandbox_config *config, struct err *err);
/* Where it is lean: into the bare namespace for a clone, which then has no mount to copy or to be
 * rid of, and back. */
int stage_leave(const struct stage *s, struct err *err);
int stage_return(const struct stage *s, struct err *err);
/* Where it is lean: a detached /proc for the pid namespace of that process, which cannot make it
 * itself: the kernel gives one only to who sees a whole one. */
int stage_make_proc(const struct stage *s, pid_t pid, int *ret_fd, struct err *err);
/* A detached copy of the template, CLOEXEC. */
int stage_clone_root(const struct stage *s, const char *name, int *ret_fd, struct err *err);
/* A detached mount of the directory or file. As root, files of its owner (and of his group) become
 * the guest's, whose host uid and gid are given. */
int stage_clone_bind(struct stage *s, int dirfd, bool rw, uid_t uid, struct err *err, int *ret_fd);
