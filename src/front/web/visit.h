#pragma once
/* A visit to a page: one GET with its redirects, through cay-egress. Each hop has a line of its own
 * that leads to the one host and port of its address and nowhere else; cay-egress resolves the name
 * and refuses every address that is not of the public Internet, unless the operator has exempted
 * that host and port. So a redirect or a name that resolves differently the next time reaches
 * nothing that the first address could not. */

#include "base/err.h"
#include "front/sandbox/network.h"
#include "loop/fetch.h"
#include "loop/later.h"

#include <stdbool.h>
#include <stddef.h>

struct visit;

struct visit_page {
    const char *url; /* after redirects */
    int status;
    const char *type; /* the Content-Type; "" if there was none */
    const char *data;
    size_t len;
    bool cut; /* there was more */
};

struct visit_options {
    uv_loop_t *loop;
    struct network *network;
    struct fetch_pool *pool;
    const char *url; /* copied */
    int64_t timeout_ms;
    /* Comes once, from the loop; page NULL: err says why. The visit is dead when it returns. */
    void (*done)(void *ctx, const struct visit_page *page, const struct err *err);
    void *ctx;
};

/* Refuses what is no http or https address. No callback comes then. */
int visit_start(const struct visit_options *options, struct visit **ret_visit, struct err *err);
/* NULL is allowed. */
void visit_cancel(struct visit *v);
