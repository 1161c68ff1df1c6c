/* Connections to servers, kept for the next request, belong to one sandbox and one of its routes.
 * What a guest sends, and what a server answers, can leave a connection in a state that only they
 * agree on: a second request in the body of the first, an answer too many. So a connection that one
 * sandbox has used never carries the request of another, nor one with another credential. Each
 * upstream has a pool of its own, and pools share nothing.
 *
 * An upstream is found or made when a request begins, and closed some time after its last one, at
 * once when its sandbox is closed or gets another policy: no connection outlives the grant it was
 * made for. */

#include "base/clock.h"
#include "base/mem.h"
#include "egress/internal.h"

#include <stdlib.h>

enum {
    UPSTREAM_IDLE_MS = 60000,
    UPSTREAMS_IDLE_MAX = 256, /* of all sandboxes: each may keep descriptors open */
};

struct upstream {
    struct upstream *next;
    struct egress *egress;
    struct line *line; /* NULL: it ends with its last request */
    size_t route;      /* of the line's policy; UPSTREAM_PLAIN */
    struct fetch_pool *pool;
    unsigned running; /* requests */
    int64_t idle_since_ms;
};

static void upstream_unlink(struct upstream *u) {
    struct upstream **at = &u->line->upstreams;
    while (*at != u)
        at = &(*at)->next;
    *at = u->next;
    u->line = NULL;
}

/* Nothing runs on it, and no line leads to it. */
static void upstream_close(struct upstream *u) {
    fetch_pool_close(u->pool, NULL, NULL);
    free(u);
}

int upstream_take(struct line *b, size_t route, struct upstream **ret, struct err *err) {
    struct upstream *u = b->upstreams;
    while (u && u->route != route)
        u = u->next;
    if (!u) {
        struct fetch_pool *pool = NULL;
        int rc = fetch_pool_create(b->egress->loop, b->egress->config.connections, &pool, err);
        if (rc < 0)
            return rc;
        u = xcalloc(1, sizeof(*u));
        *u = (struct upstream){
            .next = b->upstreams, .egress = b->egress, .line = b, .route = route, .pool = pool};
        b->upstreams = u;
    } else if (u->running == 0) {
        b->egress->nidle--;
    }
    u->running++;
    *ret = u;
    return 0;
}

struct fetch_pool *upstream_pool(const struct upstream *u) {
    return u->pool;
}

void upstream_release(struct upstream *u) {
    if (!u || --u->running > 0)
        return;
    if (u->line && u->egress->nidle < UPSTREAMS_IDLE_MAX) {
        u->egress->nidle++;
        u->idle_since_ms = clock_mono_ms();
        egress_sweep_start(u->egress);
        return;
    }
    if (u->line)
        upstream_unlink(u);
    upstream_close(u);
}

/* Takes one that has nothing to do out of the line and closes it. */
static void upstream_retire(struct upstream *u) {
    u->egress->nidle--;
    upstream_unlink(u);
    upstream_close(u);
}

void upstreams_drop(struct line *b) {
    struct upstream *next;
    for (struct upstream *u = b->upstreams; u; u = next) {
        next = u->next;
        if (u->running > 0)
            upstream_unlink(u);
        else
            upstream_retire(u);
    }
}

bool upstreams_sweep(struct line *b, int64_t now_ms) {
    struct upstream *next;
    for (struct upstream *u = b->upstreams; u; u = next) {
        next = u->next;
        if (u->running == 0 && now_ms - u->idle_since_ms >= UPSTREAM_IDLE_MS)
            upstream_retire(u);
    }
    return b->upstreams != NULL;
}
