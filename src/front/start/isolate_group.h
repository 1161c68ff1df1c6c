#pragma once
/* A second wall around all isolates together, where the machine has control groups for us. */

#include "lock/cgroup.h"

#include <stdint.h>

struct isolate_group {
    struct cgroups groups;
    int joins[CGROUP_HIERS_MAX];
    size_t njoins;
    uint64_t memory_bytes; /* of all together; 0: there is no such wall */
    char why[512];         /* there is none; "" if there is one */
};

/* Before the first child is started: it would be in the way of groups (lock/cgroup.h). */
void isolate_group_settle(struct isolate_group *g);
/* memory 0: three quarters of the machine's. */
void isolate_group_open(struct isolate_group *g, uint64_t memory);
/* sweep: removes the groups, which only who made them may. */
void isolate_group_close(struct isolate_group *g, bool sweep);
