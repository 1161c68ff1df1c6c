#include "front/start/isolate_group.h"

#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"

#include <unistd.h>

enum {
    ISOLATE_PIDS_MAX = 8192,
    GROUP_END_MS = 1000,
};

/* An ordinary user's server stays in the login session: a scope of the user's systemd would end
 * with the user's last logout. */
void isolate_group_settle(struct isolate_group *g) {
    struct err err;
    if (cgroups_settle("", geteuid() == 0 ? CGROUPS_LEAVE_SESSION : CGROUPS_STAY, &err) < 0)
        (void)text_print(g->why, sizeof(g->why), "%s", err.message);
}

static int isolate_group_join(struct isolate_group *g, uint64_t memory, struct err *err) {
    struct cgroup_slot slot;
    int rc = cgroup_slot_open(&g->groups, 0, &slot, err);
    if (rc < 0)
        return rc;
    rc = cgroup_slot_limit(&g->groups, &slot, memory, ISOLATE_PIDS_MAX, 0, err);
    if (rc == 0)
        g->njoins = cgroup_slot_joins(&g->groups, &slot, g->joins);
    cgroup_slot_close(&slot);
    return rc;
}

void isolate_group_open(struct isolate_group *g, uint64_t memory) {
    struct err err;
    char ignored[128];
    if (memory == 0)
        memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 4 * 3;
    cgroups_open(&g->groups, "", getpid(), ignored, sizeof(ignored));
    cgroups_sweep_stale(&g->groups);
    if (isolate_group_join(g, memory, &err) < 0)
        (void)text_print(g->why, sizeof(g->why), "%s", err.message);
    else if (g->njoins > 0 && (g->groups.controllers & SANDBOX_HAS_MEMORY))
        g->memory_bytes = memory;
    else if (!*g->why)
        (void)text_print(g->why, sizeof(g->why), "no control group with memory is delegated");
    if (g->memory_bytes > 0)
        *g->why = 0;
    else
        log_warn("isolates.cgroup", "error", g->why, "effect",
                 "isolates have no common limit of memory; `cay doctor` says what to do");
}

void isolate_group_close(struct isolate_group *g, bool sweep) {
    if (sweep)
        cgroups_sweep_own(&g->groups, GROUP_END_MS);
    cgroups_close(&g->groups);
    for (size_t i = 0; i < g->njoins; i++)
        fd_close(&g->joins[i]);
}
