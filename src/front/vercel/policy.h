#pragma once
/* The SDK's network policies as this server's: hosts that may be reached, and routes that put
 * credentials on outside. */

#include "base/json.h"
#include "front/sandbox/network.h"

struct policy {
    struct network_ask network; /* hosts */
    struct egress_route *routes;
    size_t nroutes;
    json_t *injected; /* [{domain, route, headers: [name]}], or NULL */
};

/* policy: of a request, or NULL (all that the operator lets out). all: the operator's list, or
 * NULL. */
int vercel_policy_read(const json_t *policy, const json_t *all, struct policy *ret,
                       struct err *err);
void vercel_policy_finish(struct policy *p);
/* The form of answers, from what is shown of a sandbox's network. */
json_t *vercel_policy_show(const json_t *network);
