#pragma once
/* The SDK's network policies as this server's: hosts that may be reached, and routes that put
 * credentials on outside. */

#include "base/json.h"
#include "wire/egress.h"

struct policy {
    json_t *network; /* {allow: [host]} */
    struct egress_route *routes;
    size_t nroutes;
    json_t *injected; /* [{domain, route, headers: [name]}], or NULL */
};

/* policy: of a request, or NULL (all that the operator lets out). all: the operator's list, or
 * NULL. */
int policy_read(const json_t *policy, const json_t *all, struct policy *ret, struct err *err);
void policy_finish(struct policy *p);
/* The form of answers, from what is shown of a sandbox's network. */
json_t *policy_show(const json_t *network);
