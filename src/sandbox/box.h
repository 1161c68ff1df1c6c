#pragma once
/* One sandbox being made: the child that the launcher clones becomes pid 1 of new namespaces,
 * builds its world in two steps (everything that all sandboxes share, then what the spec asks for),
 * locks itself down and turns into init. */

#include "base/err.h"
#include "lock/cgroup.h"
#include "sandbox/lockdown.h"
#include "sandbox/netns.h"
#include "sandbox/stage.h"

#include <sys/types.h>

/* How far a box goes by itself before it waits for its spec. */
enum box_ahead {
    BOX_NOW,    /* its spec is on the way */
    BOX_BLANK,  /* as far as every spec with its root goes */
    BOX_LOCKED, /* to its end: it will get a plain spec */
};

struct box_params {
    const struct stage *stage;
    struct netns *netns;
    const struct lockdown *lockdown;
    const struct cgroups *cgroups;
    const struct cgroup_slot *slot;
    const char *root;
    enum box_ahead ahead;
    uid_t uid; /* as root: the host uid (and gid) of init; the guest has the next one */
};

struct box {
    pid_t pid;
    int pidfd;
    int channel; /* the front's end */
    int mounts;  /* its mount namespace, or -1: it ends when this is closed, not with the box */
    int net;     /* so does its network namespace */
};

/* True if a locked box will do. */
bool box_spec_is_plain(const struct sandbox_spec *s);
/* Clones the child and lets it begin. It goes on by itself until it needs INIT_SETUP. */
int box_spawn(const struct box_params *p, struct box *ret, struct err *err);
