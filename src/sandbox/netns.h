#pragma once
/* Empty network namespaces, one for each sandbox. Making one costs more than all the rest of a
 * sandbox, so a few are kept ready, made while the launcher has nothing else to do. They belong to
 * the launcher's user namespace: a guest that had every capability in its own could still not
 * configure its network. The launcher itself lives in one too and reaches no network. */

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

enum { NETNS_STOCK = 4 };

struct netns {
    int proc; /* the host's /proc, borrowed */
    int own;
    int stock[NETNS_STOCK];
    size_t n;
};

int netns_open(struct netns *s, int proc, struct err *err);
bool netns_is_short(const struct netns *s);
/* Adds one to the stock. */
int netns_refill(struct netns *s, struct err *err);
/* Moves the launcher into a fresh one, for the child that it is about to clone. */
int netns_enter(struct netns *s, struct err *err);
/* Back into the launcher's own. */
int netns_leave(struct netns *s, struct err *err);
