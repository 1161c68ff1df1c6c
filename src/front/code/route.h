#pragma once
/* What a coding job's sandbox can reach: its model, and while it is being made its repository. The
 * credentials are put on outside, by cay-egress. */

#include "base/err.h"
#include "front/code/definition.h"
#include "front/common/secrets.h"
#include "front/model/model.h"
#include "wire/egress.h"

struct door;

/* The model's. The caller finishes it. ERR_UNSUPPORTED if the model has no server here. */
int code_route_model(const struct secrets *secrets, const struct door *door,
                     const struct model_info *model, enum coder_dialect dialect,
                     struct egress_route *ret, struct err *err);
/* Upstreams of these that may have a private address: a new list of "host:port". */
json_t *code_route_private(const struct secrets *secrets, const struct door *door);

/* "https://host/path" as repositories have it: no name, password, query or fragment in it. The
 * caller frees what comes back, which has no "/" at its end. */
int code_repo_check(const char *url, char **ret_url, struct err *err);
/* The one of a repository, by which it can be fetched and nothing else. granted: a configured route
 * whose credential is put on, or NULL. The caller finishes it. */
int code_route_repo(const char *name, const char *repo, const struct egress_route *granted,
                    struct egress_route *ret, struct err *err);
