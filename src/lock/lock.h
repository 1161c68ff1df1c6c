#pragma once
/* The walls around programs that meet code of strangers: the zygote of isolates and the compiler.
 * The zygote enters namespaces once, at its start; when the engine is
 * up it leaves the file system for an empty root and drops every privilege; each isolate then sets
 * its limits and its system-call filter. Each wall that cannot be had is said, not hidden. */

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lock {
    bool user_ns, net_ns, mount_ns, ipc_ns, uts_ns, cgroup_ns, pid_ns;
    bool empty_root;   /* else: what the zygote's root is */
    bool unprivileged; /* no capability is left and the user is not root */
    bool seccomp;
    int proc_fd;     /* /proc as it was before the root was left */
    int null_fd;     /* /dev/null */
    int init_fd;     /* held open: the pid namespace ends with it */
    void *filter;    /* struct sock_filter[] */
    size_t filter_n; /* instructions */
};

struct lock_options {
    bool forks;                  /* its children live in a pid namespace of their own */
    bool sends_messages;         /* sendmsg() is allowed: for what holds no capability */
    int ioctl_fd;                /* one ioctl on one descriptor is allowed, */
    unsigned long ioctl_request; /* if this is not 0 */
};

/* Namespaces. Needs a process with one thread. Only what has no fallback is an error. */
int lock_enter(struct lock *l, const struct lock_options *options, struct err *err);
/* The empty root, privileges, no_new_privs. The engine must be up: nothing can be opened from here
 * on but through l->proc_fd. */
int lock_seal(struct lock *l, struct err *err);
/* True if every wall stands. */
bool lock_is_complete(const struct lock *l);

struct lock_limits {
    uint64_t address_space_bytes;
    uint32_t cpu_s;
};

/* In an isolate, before the filter. */
int lock_set_limits(const struct lock_limits *limits, struct err *err);
/* In an isolate, last of all: a system call that is not on the list kills the process. */
int lock_set_filter(const struct lock *l, struct err *err);
