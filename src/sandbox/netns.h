#pragma once
/* Empty network namespaces, one for each sandbox. Making one costs more than all the rest of a
 * sandbox, so a process beside the launcher makes a few ahead and sends them: those that wait in
 * its socket are the stock. They belong to the launcher's user namespace: a guest that had every
 * capability in its own could still not configure its network. The launcher itself lives in one too
 * and reaches no network. */

#include "base/err.h"
#include "wire/frame.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { NETNS_STOCK = 4 };

struct netns {
    int proc; /* the host's /proc, borrowed */
    int own;
    int maker; /* socket, or -1: then each is made when it is needed */
    pid_t maker_pid;
    struct wire_reader reader;
    size_t asked; /* of the maker, and not taken yet */
};

int netns_open(struct netns *s, int proc, struct err *err);
/* Again, when it was killed. */
int netns_start_maker(struct netns *s, struct err *err);
/* Moves the launcher into a fresh one, for the child that it is about to clone. It lasts as long as
 * the descriptor, which is the caller's; -1 if there is none. */
int netns_enter(struct netns *s, int *ret_fd, struct err *err);
/* Back into the launcher's own. */
int netns_leave(struct netns *s, struct err *err);
