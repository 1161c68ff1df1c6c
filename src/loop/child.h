#pragma once
/* A child program: started from a descriptor of its file (so that it starts even after we gave up
 * the right to see its folder), with an empty environment, descriptor 3 as its channel to us, its
 * standard error folded into our log, and death with us: by PR_SET_PDEATHSIG, and by the end of its
 * channel. */

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <uv.h>

struct child;

#define CHILD_CHANNEL_FD 3
#define CHILD_FDS_MAX    4

struct child_options {
    const char *name;
    int exec_fd;             /* borrowed: the program, opened with O_PATH */
    const char *const *args; /* after argv[0]; NULL-terminated; may be NULL */
    const int *fds;          /* become 4, 5, ... in the child; borrowed */
    size_t nfds;
    const int *joins; /* files of control groups that it joins; borrowed */
    size_t njoins;
    bool drop;  /* change to uid and gid before exec (only root can) */
    bool quiet; /* its standard error goes to /dev/null */
    uid_t uid;
    gid_t gid;
    /* Called once, when the child has ended. The pointer is dead afterwards. */
    void (*on_exit)(void *ctx, int wait_status, const struct rusage *usage);
    void *ctx;
};

/* ret_channel_fd is our end of descriptor 3: the caller's. */
int child_spawn(uv_loop_t *loop, const struct child_options *options, struct child **ret_child,
                int *ret_channel_fd, struct err *err);
pid_t child_pid(const struct child *c);
void child_kill(struct child *c, int signo);
/* The loop may end while it lives. */
void child_unref(struct child *c);
/* No callback comes after this; the child is killed and reaped. NULL is allowed. */
void child_abandon(struct child *c);
/* "exit status 3", "signal 9 (Killed)". Returns out. */
char *child_status_text(int wait_status, char *out, size_t size);
