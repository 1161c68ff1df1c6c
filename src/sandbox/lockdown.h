#pragma once
/* What makes a process harmless: no capabilities, an allow-list of system calls, Landlock. The
 * filter is compiled once by the launcher; a sandbox only installs it. */

#include "base/err.h"

#include <linux/filter.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lockdown {
    struct sock_fprog filter;  /* the allow-list */
    struct sock_fprog no_suid; /* on top of it where host folders are bound writable */
    int landlock_abi;          /* 0 is none */
};

int lockdown_init(struct lockdown *l, struct err *err);

enum {
    CAPS_INIT = 1 << 5 | 1 << 6 | 1 << 7, /* KILL, SETGID, SETUID */
    CAPS_VIEW = 1 << 18,                  /* SYS_CHROOT: see struct init_options */
};
#ifdef CAY_TEST_WALLS
/* Without the wall WALL_CAPS: what a guest holds if nothing is dropped. */
int lockdown_raise_ambient(void);
#endif
/* Empties the bounding and ambient sets and fixes the secure bits. Needs CAP_SETPCAP. */
int lockdown_bounding(struct err *err);

/* A Landlock ruleset for the sandbox's tree, to be enforced by lockdown_enforce(). -1: none. */
int lockdown_ruleset(const struct lockdown *l, const char *const *writable, size_t n, int *ret_fd,
                     struct err *err);
/* One more folder or file that may be written. */
int lockdown_allow_writable(const struct lockdown *l, int ruleset, const char *path,
                            struct err *err);
/* The root is another one since the ruleset was made. */
int lockdown_allow_root(const struct lockdown *l, int ruleset, struct err *err);
/* One more folder that may be read, by descriptor. */
int lockdown_allow_read(const struct lockdown *l, int ruleset, int fd, struct err *err);
/* no_new_privs, Landlock, seccomp: nothing is given back after this. */
int lockdown_enforce(const struct lockdown *l, int ruleset, struct err *err);
/* Also for a child that shares init's memory: returns -errno and leaves errno alone. */
int lockdown_install(const struct sock_fprog *filter);
