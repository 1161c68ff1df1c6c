#pragma once
/* What the messages to a model hold: nothing that its server would have to fetch, and how many
 * tokens they are at most, about. Knows no sockets. */

#include "base/err.h"
#include "base/json.h"
#include "wire/egress.h"

#include <stdint.h>

enum { DEPTH_MAX = 64 };

/* Refuses content by its address, or stored at the server, however it is spelt, unless the route
 * grants it. */
int content_check(const struct egress_route *r, const json_t *messages, struct err *err);
/* Tokens of a whole request. Rather too many than too few, since caps are held by it while the
 * request runs: a guest chooses what it sends. Looks at every byte. */
uint64_t content_tokens(const json_t *body);
/* The text of a key, "" if it is none or has a NUL inside, so that it is equal to nothing. */
const char *content_text(const json_t *obj, const char *key);
