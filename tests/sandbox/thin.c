#include "client.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
int main(int argc, char **argv) {
    struct client c; struct err err = {0};
    struct client_options o = {.program = argv[1], .uid = (uid_t)atol(argv[2]), .pool = (uint32_t)(argc > 3 ? atol(argv[3]) : 0)};
    if (client_start(&c, &o, &err) < 0) { printf("start: %s\n", err.message); return 1; }
    printf("features root %d cgroup %u ctl %u landlock %u %s\n", c.features.root, c.features.cgroup, c.features.controllers, c.features.landlock, c.features.detail);
    usleep(50000);
    for (int i = 0; i < 3; i++) {
    struct guest g; struct sandbox_spec spec = {.id = "one", .egress = true};
    int64_t t0 = clock_mono_ns();
    if (client_create(&c, &spec, NULL, &g, &err) < 0) { printf("create: %s\n", err.message); return 1; }
    int64_t t1 = clock_mono_ns();
    if (guest_wait_ready(&g, &err) < 0) { printf("ready: %s\n", err.message); return 1; }
    int64_t t2 = clock_mono_ns();
    printf("create %.3f ready %.3f\n", (double)(t1-t0)/1e6, (double)(t2-t1)/1e6);
    const char *s = "#!/bin/sh\nid; pwd; ls -la / /dev; cat /proc/self/status | grep -E 'Cap|Seccomp|NoNew'; cat /proc/mounts /proc/self/cgroup; ps ax; ls /proc/1; env; echo hi > x; cat x\n";
    if (guest_write(&g, "/work/a.sh", s, strlen(s), 0755, &err) < 0) { printf("write: %s\n", err.message); return 1; }
    struct run r;
    if (guest_runv(&g, &r, &err, "true", NULL) < 0) { printf("run: %s\n", err.message); return 1; }
    if (guest_runv(&g, &r, &err, "./a.sh", NULL) < 0) { printf("run: %s\n", err.message); return 1; }
    if (i == 0) printf("started %d err %s status %d\n%.*s\n", r.started, r.err.message, run_status(&r), (int)r.out.len, r.out.data);
    t1 = clock_mono_ns();
    if (client_destroy(&c, &g, &err) < 0) { printf("destroy: %s\n", err.message); return 1; }
    printf("destroy %.3f\n", (double)(clock_mono_ns() - t1) / 1e6);
    usleep(20000);
    }
    client_stop(&c);
    return 0;
}
