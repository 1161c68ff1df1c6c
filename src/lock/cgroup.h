#pragma once
/* Control groups, version 1, version 2 or none: one for all isolates of a server, and one for each
 * sandbox of a launcher. All groups of a process live below one that is named after it
 * ("cay.PID.STARTTIME"), so that what a dead launcher left can be told from what a living one uses.
 * A slot is one sandbox's set of groups; it is made once and used by one sandbox after the other,
 * because making groups costs more than starting a process. Where the highest use of memory cannot
 * be reset (version 2 before Linux 6.12) each sandbox has a new group. */

#include "base/err.h"
#include "lock/usage.h"

#include <stdbool.h>
#include <sys/types.h>

enum { CGROUP_HIERS_MAX = 5 };

struct cgroup_hier {
    int parent;   /* directory that holds our group */
    int base;     /* our group */
    unsigned has; /* CGROUP_* bits */
};

struct cgroups {
    enum sandbox_cgroup version;
    struct cgroup_hier hiers[CGROUP_HIERS_MAX];
    size_t n;
    uint32_t controllers; /* enum sandbox_controller */
    bool counts_sockets;  /* what TCP and UDP hold is bounded too, where memory is */
    char name[64];
    bool fake; /* unit tests: a plain tree, whose files are made when they are written */
};

struct cgroup_slot {
    unsigned index;
    size_t n;
    int dirs[CGROUP_HIERS_MAX];
    int joins[CGROUP_HIERS_MAX]; /* version 1: "tasks", open for writing */
    uint64_t memory_bytes;       /* limits as they were last written */
    uint32_t pids, cpu_milli;
    uint64_t cpu_base_us;
    uint32_t oom_base;
    int peak; /* version 2 since Linux 6.12: memory.peak, whose reader may reset it; or -1 */
    uint64_t peak_base; /* up to this the peak is of the sandbox before */
};

/* How far a process may go to have groups below its own: */
enum cgroups_leave {
    CGROUPS_STAY,          /* it stays in its group */
    CGROUPS_LEAVE_SESSION, /* it leaves a login session, but not the service that it is a part of */
    CGROUPS_LEAVE,         /* it leaves any: for what ends with its parent anyway */
};

/* Version 2 allows controllers below a group only if no process is in the group itself. So this
 * process, before it starts others, moves to the leaf "cay-main" of its group if it is alone there,
 * or to a group of its own that systemd makes. No other process is ever moved. On failure there
 * will be no limit of memory; the error says why. `sysroot` is "" but in tests. */
int cgroups_settle(const char *sysroot, enum cgroups_leave leave, struct err *err);
/* Finds what can be used. Never fails: without usable groups the version is NONE. `why` says in a
 * few words what is missing. */
void cgroups_open(struct cgroups *c, const char *sysroot, pid_t pid, char *why, size_t why_size);
void cgroups_close(struct cgroups *c);
/* Whether all memory that a sandbox can hold is bounded, that of its sockets included. */
bool cgroups_bound_memory(const struct cgroups *c);
/* Whether memory is counted in version 2 on this machine, for whomever. */
bool cgroups_has_memory_v2(const char *sysroot);
/* Removes the groups of launchers that are gone, killing what is left in them. */
void cgroups_sweep_stale(const struct cgroups *c);
/* Removes our own groups, waiting up to timeout_ms for what is in them to end. */
void cgroups_sweep_own(const struct cgroups *c, int timeout_ms);

int cgroup_slot_open(const struct cgroups *c, unsigned index, struct cgroup_slot *ret,
                     struct err *err);
void cgroup_slot_close(struct cgroup_slot *s);
int cgroup_slot_limit(const struct cgroups *c, struct cgroup_slot *s, uint64_t memory_bytes,
                      uint32_t pids, uint32_t cpu_milli, struct err *err);
/* Starts the counters again for the next sandbox; `last` is what the one before ended with. */
void cgroup_slot_reset(const struct cgroups *c, struct cgroup_slot *s,
                       const struct sandbox_stats *last);
void cgroup_slot_stats(const struct cgroups *c, const struct cgroup_slot *s,
                       struct sandbox_stats *ret);
/* Bytes that are charged to it; 0 if nobody counts. */
uint64_t cgroup_slot_memory(const struct cgroups *c, const struct cgroup_slot *s);
/* Files to which a process writes "0" to join what bounds memory and processes; the caller closes
 * them. How many. */
size_t cgroup_slot_joins(const struct cgroups *c, const struct cgroup_slot *s,
                         int ret_fds[CGROUP_HIERS_MAX]);
/* False if there is no freezer. */
bool cgroup_slot_freeze(const struct cgroups *c, const struct cgroup_slot *s, bool on);

/* Where the group `self` of a hierarchy is seen: mounted at `mount`, whose root is `root`. */
void cgroup_path(const char *mount, const char *root, const char *self, char *out, size_t size);
