#include "base/cleanup.h"
#include "base/mem.h"
#include "front/agent/agent.h"
#include "front/agent/socket.h"
#include "front/api/api.h"
#include "front/server/guard.h"

#include <stdlib.h>
#include <string.h>

/* The agents: for the clients of `agents` and `@cloudflare/ai-chat` under /agents/{agent}/{name},
 * with their own error texts, and over plain HTTP under /v1/agents. Turns over plain HTTP are in
 * turns.c. */

enum { MESSAGES_MAX_BYTES = 64 << 20 };

/* --- the original clients --- */

static bool api_agents_is_known(const struct front *f, struct http_req *req) {
    if (agent_defs_find(agents_defs(f->agents), http_req_param(req, "agent")))
        return true;
    http_respond_text(req, 400, "Invalid request");
    return false;
}

static void api_agents_refuse(struct http_req *req, const struct err *err) {
    http_respond_text(req, err_http_status(err->code), err->message);
}

static int api_agents_admit(void *ctx, const char *key_id, bool counts, struct err *err) {
    int64_t wait_s;
    return counts ? guard_admit(ctx, key_id, &wait_s, err) : guard_check_key(ctx, key_id, err);
}

static void api_agents_on_connect(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct agent *a;
    struct err err;
    if (!api_agents_is_known(f, req))
        return;
    if (!http_req_is_upgrade(req))
        http_respond_text(req, 404, "Not implemented");
    else if (agents_get(f->agents, front_project(req), http_req_param(req, "agent"),
                        http_req_param(req, "name"), &a, &err) < 0)
        api_agents_refuse(req, &err);
    else
        agent_socket_accept(req, a,
                            &(struct agent_socket_gate){.key_id = front_key(req),
                                                        .share = front_share(req),
                                                        .admit = api_agents_admit,
                                                        .ctx = f,
                                                        .intake = f->intake});
}

/* The messages of an instance, [] if there is no such instance yet. */
static int api_agents_read_messages(const struct front *f, const struct http_req *req,
                                    struct buf *out, struct err *err) {
    struct agent *a = NULL;
    int rc = agents_find(f->agents, front_project(req), http_req_param(req, "agent"),
                         http_req_param(req, "name"), &a, err);
    if (rc == 0 && a)
        return agent_messages(a, out, err);
    if (rc == 0)
        (void)buf_add_str(out, "[]");
    return rc;
}

static void get_messages(struct http_req *req, void *ctx) {
    struct err err;
    _cleanup_(buf) struct buf b;
    buf_init(&b, MESSAGES_MAX_BYTES);
    if (!api_agents_is_known(ctx, req))
        return;
    if (api_agents_read_messages(ctx, req, &b, &err) < 0)
        api_agents_refuse(req, &err);
    else
        http_respond_buf(req, 200, "application/json", &b);
}

/* A facet has no public address: paths of sub-agents lead nowhere. */
static void nothing_there(struct http_req *req, void *ctx) {
    if (api_agents_is_known(ctx, req))
        http_respond_text(req, 404, "Not implemented");
}

static void not_found(struct http_req *req, void *ctx) {
    (void)ctx;
    http_respond_text(req, 404, "Not found");
}

/* --- changes: answered when they are on the disk --- */

enum { RENAME_TRIES = 16 };

struct change_wait {
    struct history_wait wait;
    struct front *front;
    struct http_req *req;
    char *to;       /* the new name */
    unsigned tries; /* of a rename */
};

static void api_agents_free_change(struct change_wait *w) {
    history_wait_cancel(&w->wait);
    free(w->to);
    free(w);
}

static void api_agents_on_change_gone(void *ctx) {
    struct change_wait *w = ctx;
    struct http_req *req = w->req;
    api_agents_free_change(w);
    http_respond_empty(req, 499);
}

static struct change_wait *api_agents_begin_change(struct front *f, struct http_req *req) {
    struct change_wait *w = xcalloc(1, sizeof(*w));
    w->front = f;
    w->req = req;
    http_req_on_gone(req, api_agents_on_change_gone, w);
    return w;
}

static void api_agents_end_change(struct change_wait *w, const struct err *err) {
    struct http_req *req = w->req;
    http_req_on_gone(req, NULL, NULL);
    api_agents_free_change(w);
    if (err)
        http_respond_err(req, err);
    else
        http_respond_empty(req, 204);
}

static void api_agents_on_changed(void *ctx, const struct err *err) {
    api_agents_end_change(ctx, err);
}

/* rc and err: of the change itself. */
static void api_agents_changed(struct front *f, struct http_req *req, struct agent *a, int rc,
                               const struct err *err) {
    if (rc < 0) {
        http_respond_err(req, err);
        return;
    }
    struct change_wait *w = api_agents_begin_change(f, req);
    agents_when_written(f->agents, a, &w->wait, api_agents_on_changed, w);
}

/* Stops a turn; its stream says "abort". */
static void stop_turn(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    struct agent *a = NULL;
    int rc = agents_find(f->agents, front_project(req), http_req_param(req, "agent"),
                         http_req_param(req, "name"), &a, &err);
    if (rc == 0 && (!a || !agent_cancel(a, http_req_param(req, "turn"))))
        rc = err_set(&err, ERR_NOT_FOUND, "there is no such turn; it may have ended");
    api_agents_changed(f, req, a, rc, &err);
}

static void remove_agent(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    int rc = agents_remove(f->agents, front_project(req), http_req_param(req, "agent"),
                           http_req_param(req, "name"), &err);
    api_agents_changed(f, req, NULL, rc, &err);
}

static void api_agents_reset(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    int rc = agents_reset(f->agents, front_project(req), http_req_param(req, "agent"),
                          http_req_param(req, "name"), &err);
    api_agents_changed(f, req, NULL, rc, &err);
}

/* Its messages are written: now it can move. */
static void api_agents_on_renamable(void *ctx, const struct err *err) {
    (void)err;
    struct change_wait *w = ctx;
    struct err own;
    const struct http_req *req = w->req;
    int rc = agents_rename(w->front->agents, front_project(req), http_req_param(req, "agent"),
                           http_req_param(req, "name"), w->to, &own);
    /* Something was changed again. Whatever the reason is, it must not keep the loop busy. */
    if (rc == -ERR_UNAVAILABLE && ++w->tries < RENAME_TRIES)
        agents_when_written(w->front->agents, NULL, &w->wait, api_agents_on_renamable, w);
    else if (rc < 0)
        api_agents_end_change(w, &own);
    else
        agents_when_written(w->front->agents, NULL, &w->wait, api_agents_on_changed, w);
}

static void rename_agent(struct http_req *req, void *ctx) {
    static const char *const keys[] = {"name", NULL};
    struct front *f = ctx;
    struct err err;
    const char *to = NULL;
    _cleanup_(json) json_t *body = NULL;
    int rc = http_req_json(req, &body, &err);
    if (rc == 0)
        rc = json_check_keys(body, "the request", keys, &err);
    if (rc == 0)
        rc = json_get_str(body, "name", &to, &err);
    if (rc == 0 && !to)
        rc = err_set(&err, ERR_BAD_REQUEST, "\"name\" is missing");
    if (rc < 0 || !to) {
        http_respond_err(req, &err);
        return;
    }
    struct change_wait *w = api_agents_begin_change(f, req);
    w->to = xstrdup(to);
    agents_when_written(f->agents, NULL, &w->wait, api_agents_on_renamable, w);
}

static json_t *api_agents_describe(struct front *f, const struct http_req *req,
                                   const struct agent_def *d) {
    json_t *tools = json_array();
    for (size_t i = 0; i < d->ntools; i++)
        (void)json_array_append_new(tools, json_string(d->tools[i].name));
    return json_pack("{s:s,s:s,s:s,s:s?,s:o,s:O?,s:o}", "type", d->type, "title", d->title,
                     "description", d->description, "model", d->model, "tools", tools, "try",
                     d->tries, "names", agents_names(f->agents, front_project(req), d->type));
}

static void api_agents_list(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    json_t *all = json_array();
    for (const struct agent_def *d = agents_defs(f->agents); d; d = d->next)
        (void)json_array_append_new(all, api_agents_describe(f, req, d));
    _cleanup_(json) json_t *out = json_pack("{s:o}", "agents", all);
    http_respond_json(req, 200, out);
}

static void list_models(struct http_req *req, void *ctx) {
    const struct front *f = ctx;
    const char *provider;
    char usual[MODEL_ID_BYTES + 1];
    front_model(f, &provider, usual);
    _cleanup_(json) json_t *out =
        json_pack("{s:s?,s:o}", "default", *usual ? usual : NULL, "models", models_list(f->models));
    http_respond_json(req, 200, out);
}

static void api_agents_messages(struct http_req *req, void *ctx) {
    struct err err;
    _cleanup_(buf) struct buf b;
    buf_init(&b, MESSAGES_MAX_BYTES);
    (void)buf_add_str(&b, "{\"messages\":");
    if (api_agents_read_messages(ctx, req, &b, &err) < 0) {
        http_respond_err(req, &err);
        return;
    }
    (void)buf_add_char(&b, '}');
    http_respond_buf(req, 200, "application/json", &b);
}

static void api_agents_clear(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    struct agent *a = NULL;
    int rc = agents_find(f->agents, front_project(req), http_req_param(req, "agent"),
                         http_req_param(req, "name"), &a, &err);
    if (rc == 0 && a)
        rc = agent_clear(a, NULL, &err);
    api_agents_changed(f, req, a, rc, &err);
}

void api_agents_routes(struct front *f) {
#define ANY   "GET,POST,PUT,PATCH,DELETE,OPTIONS"
#define AGENT "/v1/agents/{agent}/{name}"
    struct http_route routes[] = {
        {"GET,OPTIONS", "/agents/{agent}/{name}/get-messages", get_messages, f, FRONT_ROUTE_READ,
         0},
        {ANY, "/agents/{agent}/{name}", api_agents_on_connect, f, 0, 0},
        {ANY, "/agents/{agent}/{name}/{rest...}", nothing_there, f, FRONT_ROUTE_READ, 0},
        {ANY, "/agents/{rest...}", not_found, f, FRONT_ROUTE_READ, 0},
        {"GET", "/v1/agents", api_agents_list, f, FRONT_ROUTE_READ, 0},
        {"GET", "/v1/models", list_models, f, FRONT_ROUTE_READ, 0},
        {"GET", AGENT "/messages", api_agents_messages, f, FRONT_ROUTE_READ, 0},
        {"DELETE", AGENT "/messages", api_agents_clear, f, 0, 0},
        {"DELETE", AGENT "/turns/{turn}", stop_turn, f, 0, 0},
        {"POST", AGENT "/reset", api_agents_reset, f, 0, 0},
        {"POST", AGENT "/rename", rename_agent, f, 0, 0},
        {"DELETE", AGENT, remove_agent, f, 0, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(routes); i++)
        routes[i].flags |= HTTP_ROUTE_DIRECT; /* a conversation has a file of its own */
    http_server_routes(f->http, routes, ARRAY_LEN(routes));
}
