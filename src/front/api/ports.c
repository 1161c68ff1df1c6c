#include "base/cleanup.h"
#include "base/mem.h"
#include "front/api/api.h"
#include "front/api/sandbox.h"
#include "front/sandbox/proxy.h"
#include "front/server/guard.h"
#include "front/server/sessions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* PORT-SANDBOX.localhost: a server inside a sandbox, on an origin of its own. */

/* "PORT-sbx_..." */
static bool parse_host(const char *host, unsigned *ret_port, char ret_id[ID_SIZE]) {
    size_t digits = strspn(host, "0123456789");
    size_t len = strcspn(host, ".");
    if (digits == 0 || digits > 5 || host[0] == '0' || host[digits] != '-' ||
        strcmp(host + len, ".localhost") != 0 || len - digits - 1 >= ID_SIZE)
        return false;
    unsigned long port = strtoul(host, NULL, 10);
    memcpy(ret_id, host + digits + 1, len - digits - 1);
    ret_id[len - digits - 1] = 0;
    *ret_port = (unsigned)port;
    return port <= 65535 && id_is_valid("sbx", ret_id, strlen(ret_id));
}

static struct sandbox *api_ports_find(struct http_req *req, struct front *f, const char *id,
                                      struct err *err) {
    const struct identity *who = front_identity(req);
    struct sandbox *s = who ? sandboxes_find(f->sandboxes, id) : NULL;
    if (s && !who->server && strcmp(s->owner, who->project) != 0)
        s = NULL;
    if (!s) {
        (void)err_set(err, ERR_NOT_FOUND, "there is no sandbox at this host name");
        return NULL;
    }
    if (s->state != SANDBOX_RUNNING) {
        (void)err_set(err, ERR_CONFLICT, "the sandbox is not running");
        return NULL;
    }
    return s;
}

/* POST .../ports/PORT/pass: a link for a browser, which sends no key. */
static void api_ports_pass(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    const char *text = http_req_param(req, "port");
    unsigned port;
    char id[ID_SIZE];
    _cleanup_(free) char *host = xasprintf("%.8s-%.64s.localhost", text, http_req_param(req, "id"));
    struct err err;
    if (strlen(text) > 5 || !parse_host(host, &port, id)) {
        (void)err_set(&err, ERR_BAD_REQUEST, "a port is a number from 1 to 65535");
        http_respond_err(req, &err);
        return;
    }
    if (!api_sandbox(req, f, true))
        return;
    char token[PASS_SIZE];
    bool has = session_pass_create(req, f, host, token);
    const char *at = strrchr(http_req_authority(req), ':');
    _cleanup_(free) char *url = xasprintf("http://%s%s/%s%s", host, at ? at : "",
                                          has ? "?cay_pass=" : "", has ? token : "");
    _cleanup_(json) json_t *out = json_pack("{s:s}", "url", url);
    http_respond_json(req, 200, out);
}

void api_ports_routes(struct front *f) {
    http_server_route(f->http,
                      &(struct http_route){.methods = "POST",
                                           .pattern = "/v1/sandboxes/{id}/ports/{port}/pass",
                                           .handler = api_ports_pass,
                                           .ctx = f});
}

bool api_port(struct http_req *req, struct front *f) {
    unsigned port;
    char id[ID_SIZE];
    struct err err;
    if (!parse_host(http_req_host(req), &port, id))
        return false;
    if (session_pass_enter(req, f))
        return true;
    struct sandbox *s = api_ports_find(req, f, id, &err);
    if (!s || proxy_request(s, req, port, &err) < 0)
        api_fail(req, &err);
    return true;
}
