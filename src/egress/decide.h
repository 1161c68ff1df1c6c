#pragma once
/* What a request of a guest asks for, and whether the policy of its sandbox grants it: from a head
 * and a policy alone, without looking at anything else. The default is no. */

#include "base/buf.h"
#include "base/err.h"
#include "http1/head.h"
#include "wire/egress.h"

#include <stdbool.h>
#include <stdint.h>

struct decision {
    enum egress_kind kind;
    char host[EGRESS_HOST_MAX + 1]; /* that is connected to */
    uint32_t port;
    bool literal;
    bool plain;          /* a tunnel without TLS */
    bool private;        /* its address may be a private one, if it is listed as such */
    uint32_t endpoint;   /* enum egress_endpoint, of a model */
    enum egress_api api; /* whose shape errors have, also if it was refused */
    size_t route;        /* index in the policy, of a route or model */
    char *path;          /* normal form, as it goes out behind the route's address; or NULL */
    const char *query;   /* "?...", or ""; borrowed from the head */
};

/* Fills *ret as far as it was understood, also when it refuses. `port` is the listener's own. */
int decide(const struct egress_policy *p, uint32_t port, const struct http1_head *h,
           struct decision *ret, struct err *err);
void decision_finish(struct decision *d);
/* The address a granted route or http request goes to; the caller frees. */
char *decision_url(const struct decision *d, const struct egress_policy *p);

/* One spelling for each path: escapes of plain characters are undone, the others are in upper case.
 * What servers may read as another path is refused: dot segments, empty segments, backslashes,
 * escaped slashes. */
int decide_normal_path(const char *path, size_t len, struct buf *out, struct err *err);
/* "*" matches within a segment, "**" at the end of the pattern anything. */
bool decide_path_matches(const char *pattern, const char *path);
/* True if the name is in the list; a "*" at the end of an item stands for any rest. */
bool decide_list_has(const struct sandbox_strv *list, const char *name);
