#include "front/code/code.h"
#include "base/cleanup.h"
#include "front/api/api.h"
#include "front/api/sandbox.h"

#include <stdio.h>

/* POST /v1/code: an agent works in a sandbox. With Accept: text/event-stream its events come as
 * they happen; otherwise the record, when it has ended. */

static void api_code_start(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    char id[ID_SIZE];
    _cleanup_(json) json_t *body = NULL;
    _cleanup_(json) json_t *grants = key_grants(front_identity(req));
    struct code_request r;
    int rc = http_req_json(req, &body, &err);
    if (rc == 0)
        rc = code_request_read(body, &r, &err);
    if (rc == 0)
        rc = code_start(f->codes,
                        &(struct code_ask){.owner = front_project(req),
                                           .key = front_key(req),
                                           .scope = front_scope(req),
                                           .grants = grants},
                        &r, id, &err);
    if (rc < 0) {
        http_respond_err(req, &err);
        return;
    }
    char location[ID_SIZE + 16];
    (void)snprintf(location, sizeof(location), "/v1/runs/%s", id);
    http_res_header(req, "Location", location);
    api_follow(f, req, id, 0, http_req_accepts(req, "text/event-stream"));
}

/* GET /v1/code/agents: the kinds of agents there are. */
static void list_agents(struct http_req *req, void *ctx) {
    const struct front *f = ctx;
    _cleanup_(json) json_t *out = codes_show_agents(f->codes);
    http_respond_json(req, 200, out);
}

void api_code_routes(struct front *f) {
    http_server_route(f->http, &(struct http_route){.methods = "GET",
                                                    .pattern = "/v1/code/agents",
                                                    .handler = list_agents,
                                                    .ctx = f,
                                                    .flags = FRONT_ROUTE_READ});
    http_server_route(f->http, &(struct http_route){.methods = "POST",
                                                    .pattern = "/v1/code",
                                                    .handler = api_code_start,
                                                    .ctx = f,
                                                    .reader = &api_reader_files,
                                                    .body_bytes = (size_t)24 << 20});
}
