#pragma once
/* The WebSocket of the `agents` and `@cloudflare/ai-chat` clients: JSON frames about identity,
 * state, rpc and chat. One per connection. */

#include "front/agent/agent.h"
#include "front/http/request.h"

/* Takes the request over. */
void agent_socket_accept(struct http_req *req, struct agent *agent);
