#pragma once
/* What a server inside a sandbox answers. One connection into the sandbox for each request, made by
 * its init; the answer is parsed strictly and put together again, so that nothing a guest sends is
 * taken for a head of ours. After an upgrade (WebSocket) bytes go through as they are. Keys of ours
 * stop here. */

#include "front/http/request.h"
#include "front/sandbox/sandboxes.h"

/* Takes the request, of a route that streams. Negative with err if it was not taken. */
int proxy_request(struct sandbox *s, struct http_req *req, unsigned port, struct err *err);
