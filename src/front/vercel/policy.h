#pragma once
/* The SDK's network policies as this server's: hosts that may be reached, and routes that put
 * credentials on outside. */

#include "base/json_table.h"
#include "front/sandbox/network.h"

struct policy {
    struct network_ask network; /* hosts */
    struct egress_route *routes;
    size_t nroutes;
    json_t *injected; /* [{domain, route, headers: [name]}], or NULL */
};

/* A policy as it comes; without a mode it is a list of hosts. */
struct policy_wire {
    enum policy_mode { POLICY_ALL, POLICY_NONE, POLICY_LISTED } mode;
    const json_t *allow; /* [host], or {host: [rule]} */
    struct policy_subnets {
        const json_t *allow, *deny;
    } subnets;
};
enum { VERCEL_POLICY_FIELDS = 3 };
extern const struct json_field vercel_policy_fields[VERCEL_POLICY_FIELDS];
/* all: the operator's list, or NULL. */
int vercel_policy_make(const struct policy_wire *wire, const json_t *all, struct policy *ret,
                       struct err *err);
/* policy: of a request, or NULL (all that the operator lets out). all: the operator's list, or
 * NULL. */
int vercel_policy_read(const json_t *policy, const json_t *all, struct policy *ret,
                       struct err *err);
void vercel_policy_finish(struct policy *p);
/* The form of answers, from what is shown of a sandbox's network. */
json_t *vercel_policy_show(const json_t *network);
