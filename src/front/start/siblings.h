#pragma once
/* The programs beside cay. They are opened while their folder can be seen and started from these
 * descriptors; two of them start before the front gives up what it will need no more. */

#include "base/err.h"

#include <stdbool.h>
#include <uv.h>

enum sibling {
    SIBLING_COMPILE,
    SIBLING_ISOLATE,
    SIBLING_FACET,
    SIBLING_SANDBOX,
    SIBLING_EGRESS,
    SIBLING_SPAWN,
    SIBLING_CODER, /* as what tells the changes of a coding job */
    SIBLING_COUNT,
};

struct siblings {
    int fds[SIBLING_COUNT];
    struct spawner *spawner; /* starts all other programs */
    struct child *starter;   /* keeps root, to start cay-sandbox */
    int starter_fd;          /* its end ends it */
    bool ending;             /* nobody wonders why one of them is gone */
};

void siblings_init(struct siblings *s);
void siblings_finish(struct siblings *s);
/* Without those of sandboxes everything else works. */
int siblings_open(struct siblings *s, const char *dir, bool need_spawn, struct err *err);
/* Sandboxes of root have host users of their own. What starts them keeps root when we give it up.
 */
int siblings_start_starter(struct siblings *s, uv_loop_t *loop, struct err *err);
/* Programs would inherit the front's filter, so that somebody without one has to start them. */
int siblings_start_spawner(struct siblings *s, uv_loop_t *loop, struct err *err);
/* When all that it started has ended. */
void siblings_stop_spawner(struct siblings *s);
