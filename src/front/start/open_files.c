#include "front/start/open_files.h"

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "front/config/config.h"

#include <stdlib.h>
#include <sys/resource.h>

enum { DESCRIPTORS_OWN = 128 }; /* programs, control groups, store, listeners; measured: 77 */

/* How many descriptors the server holds when all that its limits allow is there at once. */
static uint64_t descriptors_wanted(const struct config *k) {
    const struct runner_config *r = &k->runner;
    uint64_t processes = r->isolates + r->ready_isolates + r->warm_workers + r->facets;
    uint64_t sandboxes = (uint64_t)k->sandboxes.max + k->sandboxes.pool;
    /* A process is a socket and a pidfd, a command its three streams. */
    return DESCRIPTORS_OWN + k->http.connections + 2 * processes + 4 * sandboxes +
           3 * (uint64_t)k->sandboxes.commands;
}

int open_files_raise(struct config *k, struct err *err) {
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) < 0)
        return err_sys(err, "getrlimit");
    if (r.rlim_cur < r.rlim_max) {
        rlim_t before = r.rlim_cur;
        r.rlim_cur = r.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &r) < 0)
            r.rlim_cur = before;
    }
    uint64_t wanted = descriptors_wanted(k);
    if (r.rlim_cur >= wanted)
        return 0;
    _cleanup_(free) char *advice =
        xasprintf("set `ulimit -n %llu`, or LimitNOFILE=%llu in its unit",
                  (unsigned long long)wanted, (unsigned long long)wanted);
    if (r.rlim_cur < LIMIT_DESCRIPTORS_MIN)
        return err_set(err, ERR_LIMIT, "the limit of open files is %llu, too few to work with: %s",
                       (unsigned long long)r.rlim_cur, advice);
    k->http.connections = MIN(k->http.connections, (size_t)r.rlim_cur / 2);
    log_warn("server.open_files", "limit", (int64_t)r.rlim_cur, "wanted", (int64_t)wanted,
             "connections", (int64_t)k->http.connections, "advice", advice);
    return 0;
}
