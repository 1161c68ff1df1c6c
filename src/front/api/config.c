#include "base/cleanup.h"
#include "front/api/api.h"
#include "front/server/reload.h"

static void api_config_reload(struct http_req *req, void *ctx) {
    const struct front *f = ctx;
    struct err err;
    _cleanup_(json) json_t *report = NULL;
    if (reload_now(f->reload, &report, &err) < 0)
        http_respond_err(req, &err);
    else
        http_respond_json(req, 200, report);
}

void api_config_routes(struct front *f) {
    http_server_route(f->http, &(struct http_route){.methods = "POST",
                                                    .pattern = "/v1/config/reload",
                                                    .handler = api_config_reload,
                                                    .ctx = f,
                                                    .flags = FRONT_ROUTE_ADMIN});
}
