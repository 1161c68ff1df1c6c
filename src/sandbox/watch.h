#pragma once
/* Counts what a sandbox holds in memory where no control group does, and says whom to kill when it
 * is more than it may have. Looks at everything that a process can fill: its own pages, memory that
 * it shares (anonymous, memfd, System V), what it left in sockets and message queues, and the disk,
 * which is in memory. It is a watch and not a wall: between two looks a guest can take more, and
 * who sets his mind to it can hide some.
 *
 * Init calls it ten times a second. However much there is to look at, a call takes a few dozen
 * milliseconds at most: what is not done then is done in the next one. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { WATCH_MS = 100, WATCH_VICTIMS_MAX = 64 };

struct watch;

struct watch_options {
    int proc;          /* a /proc in which nothing hides; borrowed, as are the others */
    int disk;          /* the sandbox's tmpfs, or -1 */
    int diag;          /* a socket that tells of sockets (watch_diag()), or -1 */
    bool sockets_only; /* a control group counts the rest: only what TCP holds is looked at */
    uint64_t limit_bytes;
};

/* In place of a process: nobody knows who has the sockets, so all of them. */
enum { WATCH_EVERYBODY = -1 };

/* A descriptor for struct watch_options, made before the system call filter forbids it. -1 if this
 * kernel has none. */
int watch_diag(void);
struct watch *watch_create(const struct watch_options *options);
/* Looks once more; returns how many processes must be killed (or one WATCH_EVERYBODY). */
size_t watch_look(struct watch *w, pid_t ret_victims[WATCH_VICTIMS_MAX]);
/* Whether the last look saw no process but init. */
bool watch_is_idle(const struct watch *w);
