#pragma once
/* pid 1 of a sandbox: runs commands, hands out terminals, files and ports, reaps. It holds one
 * descriptor that matters, its channel to the front, and cannot be dumped, traced or signalled by
 * the guest. */

#include "sandbox/lockdown.h"
#include "wire/frame.h"
#include "wire/sandbox.h"

#include <stdbool.h>

struct init_options {
    int channel;
    struct wire_reader *reader; /* may hold frames already */
    const struct lockdown *lockdown;
    const struct sandbox_spec *spec;
    bool own_uid;         /* init is uid 1 and becomes the guest for each command */
    bool watch_memory;    /* no cgroup limits it */
    bool watch_sockets;   /* one does, but its sockets only by and large */
    int proc, disk, diag; /* for the watch: see struct watch_options */
    unsigned terminals;   /* that there can be */
    int view;             /* the root of commands that may not write to the work folder */
    bool no_suid;         /* a host folder is bound writable */
};

/* What can be done before the spec is known, by a box that is made ahead. */
void init_prepare(void);
_Noreturn void init_run(const struct init_options *o);

enum { INIT_UID = 1 };
