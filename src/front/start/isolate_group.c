#include "front/start/isolate_group.h"

#include "base/fd.h"
#include "base/log.h"

#include <unistd.h>

enum {
    ISOLATE_PIDS_MAX = 8192,
    GROUP_END_MS = 1000,
};

void isolate_group_open(struct isolate_group *g, uint64_t memory) {
    struct err err = {0};
    if (memory == 0)
        memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 4 * 3;
    cgroups_open_gently(&g->groups, getpid());
    cgroups_sweep_stale(&g->groups);
    if (g->groups.version == SANDBOX_CGROUP_NONE)
        return;
    struct cgroup_slot slot;
    int rc = cgroup_slot_open(&g->groups, 0, &slot, &err);
    if (rc == 0) {
        rc = cgroup_slot_limit(&g->groups, &slot, memory, ISOLATE_PIDS_MAX, 0, &err);
        if (rc == 0)
            g->njoins = cgroup_slot_joins(&g->groups, &slot, g->joins);
        cgroup_slot_close(&slot);
    }
    if (rc < 0)
        log_warn("isolates.cgroup", "error", err.message);
    g->memory_bytes = g->njoins > 0 ? memory : 0;
}

void isolate_group_close(struct isolate_group *g, bool sweep) {
    if (sweep)
        cgroups_sweep_own(&g->groups, GROUP_END_MS);
    cgroups_close(&g->groups);
    for (size_t i = 0; i < g->njoins; i++)
        fd_close(&g->joins[i]);
}
