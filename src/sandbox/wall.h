#pragma once
/* The walls of a sandbox, by name. In the program that ships each is always on. The build that the
 * escape tests use as a control reads CAY_SANDBOX_WITHOUT="seccomp,landlock" and leaves those out,
 * which proves that a test fails when its wall is gone. */

#include <stdbool.h>

enum wall {
    WALL_SECCOMP,
    WALL_LANDLOCK,
    WALL_CAPS,
    WALL_NNP,
    WALL_DUMPABLE,
    WALL_UID,      /* init has another uid than the guest (as root only) */
    WALL_READONLY, /* the root is read-only */
    WALL_HIDEPID,
    WALL_MASK,   /* parts of /proc are masked or read-only */
    WALL_NET,    /* a network namespace of its own */
    WALL_DISK,   /* size of the work tmpfs */
    WALL_INODES, /* its number of files */
    WALL_CGROUP,
    WALL_RLIMIT,
    WALL_CLOSE,     /* no inherited descriptors */
    WALL_ENV,       /* clean environment */
    WALL_WATCH,     /* init's memory watch where no memory cgroup is */
    WALL_SUID,      /* no setuid bits on writable binds */
    WALL_SOCKETS,   /* the cgroup bounds what TCP and UDP hold */
    WALL_TERMINALS, /* its share of the machine's terminals */
    WALL_PRIVATE,   /* what is mounted on the host later is not seen */
    WALL_VIEW,      /* read-only commands have a root of their own, and init a capability for it */
    WALL_LEAN,      /* no wall: without it sandboxes are made as on kernels before 6.17 */
    WALL_COUNT,
};

#ifdef CAY_TEST_WALLS
bool wall_on(enum wall g);
void walls_init(void);
#else
static inline bool wall_on(enum wall g) {
    (void)g;
    return true;
}
static inline void walls_init(void) {
}
#endif
