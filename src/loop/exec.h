#pragma once
/* The last steps of a new process before it is another program: only system calls, so that they can
 * be taken in memory that is shared with the parent. Also built into cay-spawn. */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { EXEC_FDS_MAX = 8 };

struct exec_plan {
    char *const *argv;
    int exec_fd;           /* the program */
    int fds[EXEC_FDS_MAX]; /* become 0, 1, 2, ...; -1 is /dev/null */
    size_t nfds;
    const int *joins; /* files of control groups that it joins */
    size_t njoins;
    bool drop; /* to uid and gid */
    uid_t uid;
    gid_t gid;
    pid_t parent; /* whose end is its end */
};

__attribute__((noreturn)) void exec_plan_run(const struct exec_plan *p);
