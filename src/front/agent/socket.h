#pragma once
/* The WebSocket of the `agents` and `@cloudflare/ai-chat` clients: JSON frames about identity,
 * state, rpc and chat. One per connection. */

#include "front/agent/agent.h"
#include "front/common/intake.h"
#include "front/http/request.h"

/* Who opened it is asked for again with what comes over it: a key may be revoked, or have had its
 * requests. */
struct agent_socket_gate {
    const char *key_id; /* copied, as is the next */
    const char *share;  /* whose share large frames take */
    /* counts: the frame is a request of its own. ERR_RATE refuses it, any other error closes the
     * socket. */
    int (*admit)(void *ctx, const char *key_id, bool counts, struct err *err);
    void *ctx;             /* must outlive the socket */
    struct intake *intake; /* where large frames are read; ends after the last connection */
};

/* Takes the request over. */
void agent_socket_accept(struct http_req *req, struct agent *agent,
                         const struct agent_socket_gate *gate);
