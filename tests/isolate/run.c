/* Runs one program file in a fresh isolate and prints everything that comes back.
 * usage: run CAY-ISOLATE PROGRAM.js [SPEC-JSON] */

#include "front.h"

#include "base/cleanup.h"
#include "base/fd.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

static uint16_t answer(void *arg, size_t i, const char *method, const char *args, uint64_t id,
                       const char **ret_json) {
    (void)arg;
    (void)id;
    fprintf(stderr, "call %zu %s %s\n", i, method, args);
    *ret_json = "{\"columns\":[\"n\",\"s\"],\"rows\":[[1,\"x\"],[2,\"y\"]]}";
    return ISOLATE_BINDING_RESULT;
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    struct err err;
    _cleanup_(buf) struct buf program;
    buf_init(&program, 16 << 20);
    if (fd_read_file(AT_FDCWD, argv[2], &program, &err) < 0)
        return 2;
    static struct front f;
    const char *levers = getenv("LEVERS");
    front_start(&f, argv[1], 0,
                levers ? (uint32_t)strtoul(levers, NULL, 0) : (uint32_t)ISOLATE_LEVER_ALL);
    printf("features %s\n", f.features);
    front_want(&f, 1);
    struct front_isolate iso;
    front_take(&f, &iso);
    struct front_run run = {.program = program.data, .answer = answer, .nfds = 1};
    run.spec = argc > 3 ? argv[3]
                        : "{\"env\":{\"db\":{\"fd\":0,\"kind\":\"facet\",\"methods\":[\"query\"]}}}";
    int ends[2];
    if (fd_pair(ends, &err) < 0)
        return 2;
    run.facets[0] = ends[0];
    run.fds[0] = ends[1];
    front_send_run(&iso, 1, &run);
    close(ends[1]);
    struct front_outcome o;
    front_finish_run(&iso, 1, &run, &o);
    printf("%sresult %s\nerror %s\ndone %d closed %d timeout %d cpu %lu us peak %lu KiB calls %u out %lu "
           "dropped %lu\n",
           o.logs.data ? o.logs.data : "", o.result ? o.result : "-", o.error ? o.error : "-", o.done, o.closed, o.timeout,
           o.cpu_us, o.peak_bytes / 1024, o.binding_calls, o.output_bytes, o.dropped_bytes);
    front_outcome_finish(&o);
    front_drop(&iso);
    struct front_exit e = front_wait_exit(&f, iso.number);
    printf("exit %x cpu %lu us faults %lu\n", (unsigned)e.status, e.cpu_us, e.minor_faults);
    front_stop(&f);
    return 0;
}
