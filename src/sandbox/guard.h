#pragma once
/* The guards of a sandbox, by name. In the program that ships each is always on. The build that the
 * escape tests use as a control reads CAY_SANDBOX_WITHOUT="seccomp,landlock" and leaves those out,
 * which proves that a test fails when its guard is gone. */

#include <stdbool.h>

enum guard {
    GUARD_SECCOMP,
    GUARD_LANDLOCK,
    GUARD_CAPS,
    GUARD_NNP,
    GUARD_DUMPABLE,
    GUARD_UID,      /* init has another uid than the guest (as root only) */
    GUARD_READONLY, /* the root is read-only */
    GUARD_HIDEPID,
    GUARD_MASK,   /* parts of /proc are masked or read-only */
    GUARD_NET,    /* a network namespace of its own */
    GUARD_DISK,   /* size of the work tmpfs */
    GUARD_INODES, /* its number of files */
    GUARD_CGROUP,
    GUARD_RLIMIT,
    GUARD_CLOSE, /* no inherited descriptors */
    GUARD_ENV,   /* clean environment */
    GUARD_WATCH, /* init's memory watch where no memory cgroup is */
    GUARD_SUID,  /* no setuid bits on writable binds */
    GUARD_COUNT,
};

#ifdef CAY_TEST_GUARDS
bool guard_on(enum guard g);
void guard_init(void);
#else
static inline bool guard_on(enum guard g) {
    (void)g;
    return true;
}
static inline void guard_init(void) {
}
#endif
