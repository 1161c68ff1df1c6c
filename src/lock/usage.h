#pragma once
/* What control groups can do on this machine, and what they tell of one that is in use. */

#include <stdint.h>

enum sandbox_cgroup { SANDBOX_CGROUP_NONE, SANDBOX_CGROUP_V1, SANDBOX_CGROUP_V2 };
enum sandbox_controller {
    SANDBOX_HAS_MEMORY = 1,
    SANDBOX_HAS_PIDS = 2,
    SANDBOX_HAS_CPU = 4,
    SANDBOX_HAS_FREEZER = 8,
};

struct sandbox_stats {
    uint64_t memory_bytes;
    uint64_t memory_peak_bytes;
    uint64_t cpu_us;
    uint32_t pids;
    uint32_t oom_kills;
};
