#include "base/cleanup.h"
#include "base/mem.h"
#include "front/agent/agent.h"
#include "front/agent/socket.h"
#include "front/api/api.h"
#include "front/server/guard.h"

#include <stdlib.h>
#include <string.h>

/* The agents: for the clients of `agents` and `@cloudflare/ai-chat` under /agents/{agent}/{name},
 * with their own error texts, and over plain HTTP under /v1/agents. */

enum {
    MESSAGES_MAX_BYTES = 64 << 20,
    LEAD_MAX_BYTES = 1024,
    HEAD_WAIT_MS = 15000, /* longer than a call waits for money that others hold */
};

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

/* --- plain HTTP --- */

/* A turn that a request waits for. */
struct turn_wait {
    struct agent_listener listener;
    struct http_req *req; /* NULL when the client is gone */
    char *turn;
    json_t *error;
    uv_timer_t timer; /* sends the head of a stream whose model takes long */
    struct buf lead;  /* events that wait for the head */
    bool stream;
    bool begun;
};

static struct turn_wait *create_wait(uv_loop_t *loop, struct http_req *req, const char *turn) {
    struct turn_wait *w = xcalloc(1, sizeof(*w));
    w->req = req;
    w->turn = xstrdup(turn);
    buf_init(&w->lead, LEAD_MAX_BYTES);
    (void)uv_timer_init(loop, &w->timer);
    w->timer.data = w;
    return w;
}

static void api_agents_on_wait_closed(uv_handle_t *h) {
    free(h->data);
}

static void destroy_wait(struct turn_wait *w) {
    agent_unlisten(&w->listener);
    json_decref(w->error);
    free(w->turn);
    buf_finish(&w->lead);
    uv_close((uv_handle_t *)&w->timer, api_agents_on_wait_closed);
}

static void api_agents_begin_stream(struct turn_wait *w) {
    if (w->begun)
        return;
    w->begun = true;
    (void)uv_timer_stop(&w->timer);
    http_res_header(w->req, "Cache-Control", "no-cache");
    http_res_header(w->req, "x-vercel-ai-ui-message-stream", "v1");
    http_sse_begin(w->req);
    (void)http_stream_write(w->req, w->lead.data, w->lead.len);
}

/* A turn that fails before its first word is answered with the status of the failure. After this
 * time the head goes out all the same: proxies give up on an answer that does not begin. */
static void api_agents_on_head_due(uv_timer_t *h) {
    struct turn_wait *w = h->data;
    if (w->req)
        api_agents_begin_stream(w);
}

static bool add_event(struct buf *b, const char *json, size_t len) {
    return buf_add_str(b, "data: ") && buf_add(b, json, len) && buf_add_str(b, "\n\n");
}

static void api_agents_send_event(struct turn_wait *w, const char *json, size_t len) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, len + 64);
    (void)add_event(&b, json, len);
    api_agents_begin_stream(w);
    (void)http_stream_write(w->req, b.data, b.len);
}

/* "start" and "start-step" come before the model is asked, so they say nothing about its answer. */
static bool is_lead(const char *json, size_t len) {
    static const char start[] = "{\"type\":\"start";
    return len >= sizeof(start) && memcmp(json, start, sizeof(start) - 1) == 0;
}

static void api_agents_on_chunk(void *ctx, const char *turn, size_t seq, const char *json,
                                size_t len) {
    (void)seq;
    struct turn_wait *w = ctx;
    if (strcmp(turn, w->turn) != 0)
        return;
    if (!w->req || !w->stream)
        return;
    if (!w->begun && is_lead(json, len)) {
        (void)add_event(&w->lead, json, len);
        return;
    }
    /* Over HTTP the reason stands beside the type; the other protocol has it in the metadata. */
    static const char finish[] = "{\"type\":\"finish\",\"messageMetadata\":{";
    if (len > sizeof(finish) && memcmp(json, finish, sizeof(finish) - 1) == 0) {
        _cleanup_(json) json_t *j = json_read(json, len);
        json_t *metadata = json_object_get(j, "messageMetadata");
        (void)json_object_set(j, "finishReason", json_object_get(metadata, "finishReason"));
        (void)json_object_del(metadata, "finishReason");
        if (json_object_size(metadata) == 0)
            (void)json_object_del(j, "messageMetadata");
        _cleanup_(free) char *text = json_dumps(j, JSON_COMPACT);
        if (text)
            api_agents_send_event(w, text, strlen(text));
        else
            api_agents_send_event(w, json, len);
        return;
    }
    api_agents_send_event(w, json, len);
}

static void api_agents_on_fail(void *ctx, const char *turn, const char *text,
                               const json_t *user_ids) {
    (void)user_ids;
    struct turn_wait *w = ctx;
    if (strcmp(turn, w->turn) != 0)
        return;
    w->error = json_string(text);
    if (!w->req || !w->begun)
        return; /* api_agents_on_end() answers with a status */
    _cleanup_(json) json_t *j = json_pack("{s:s,s:O?}", "type", "error", "errorText", w->error);
    _cleanup_(free) char *chunk = json_dumps(j, JSON_COMPACT);
    if (chunk)
        api_agents_send_event(w, chunk, strlen(chunk));
}

/* {"message"}, the assistant's; null if the turn was stopped before it said anything. */
static void api_agents_answer(struct turn_wait *w, const struct agent_turn_end *end) {
    struct err err;
    if (w->error) {
        (void)err_set(&err, end->refusal ? end->refusal : ERR_UPSTREAM, "%s",
                      json_string_value(w->error));
        if (end->retry_after_s > 0)
            http_res_retry_after_s(w->req, end->retry_after_s);
        http_respond_err(w->req, &err);
        return;
    }
    _cleanup_(json) json_t *out =
        json_pack("{s:O?,s:s*}", "message", end->message, "outcome", end->outcome);
    http_respond_json(w->req, 200, out);
}

static void api_agents_on_end(void *ctx, const struct agent_turn_end *end) {
    struct turn_wait *w = ctx;
    if (strcmp(end->turn, w->turn) != 0)
        return;
    bool stream = w->stream && (w->begun || !w->error);
    if (w->req && stream) {
        static const char aborted[] = "{\"type\":\"abort\"}";
        if (end->outcome && strcmp(end->outcome, "aborted") == 0)
            api_agents_send_event(w, aborted, strlen(aborted));
        api_agents_send_event(w, "[DONE]", 6);
    }
    if (w->req) {
        http_req_on_gone(w->req, NULL, NULL);
        if (stream)
            http_stream_end(w->req);
        else
            api_agents_answer(w, end);
    }
    destroy_wait(w);
}

/* The client left: the turn goes on, as with a socket. */
static void api_agents_on_gone(void *ctx) {
    struct turn_wait *w = ctx;
    struct http_req *req = w->req;
    w->req = NULL;
    (void)uv_timer_stop(&w->timer);
    if (w->begun)
        http_stream_end(req);
    else
        http_respond_empty(req, 499);
}

static const struct agent_events events = {
    .on_chunk = api_agents_on_chunk, .on_fail = api_agents_on_fail, .on_end = api_agents_on_end};

/* What a request for a turn says. */
struct chat_read {
    json_t *tree;
    struct uimessages *messages;
    const char *model;
    bool whole;
    bool regenerate;
};

static void free_chat(void *read) {
    struct chat_read *r = read;
    json_decref(r->tree);
    uimessages_free(r->messages);
    free(r);
}

static struct uimessages *api_agents_read_text(const char *text) {
    char id[ID_SIZE];
    _cleanup_(json) json_t *list = json_pack("[{s:s,s:s,s:[{s:s,s:s}]}]", "id", id_new("msg", id),
                                             "role", "user", "parts", "type", "text", "text", text);
    return uimessages_read(list);
}

/* The body of the AI SDK's transport ({"messages", "trigger"}), its last-message form
 * ({"message"}), or {"text"} for people with curl; each with the "model" that is to answer. */
static int api_agents_read_tree(struct chat_read *r, struct err *err) {
    const json_t *j = r->tree;
    const char *text = NULL;
    const char *trigger = NULL;
    int rc = json_is_object(j) ? 0 : err_set(err, ERR_BAD_REQUEST, "the body must be an object");
    if (rc == 0)
        rc = json_get_str(j, "text", &text, err);
    if (rc == 0)
        rc = json_get_str(j, "trigger", &trigger, err);
    if (rc == 0)
        rc = json_get_str(j, "model", &r->model, err);
    if (rc < 0)
        return rc;
    r->regenerate = trigger && strcmp(trigger, "regenerate-message") == 0;
    if (trigger && !r->regenerate && strcmp(trigger, "submit-message") != 0)
        return err_set(err, ERR_BAD_REQUEST, "\"trigger\" is submit-message or regenerate-message");
    json_t *one = json_object_get(j, "message");
    json_t *all = json_object_get(j, "messages");
    if (!text && !one && !all)
        return err_set(err, ERR_BAD_REQUEST, "send \"messages\" (AI SDK), \"message\" or \"text\"");
    r->whole = !text && !one;
    _cleanup_(json) json_t *list = one ? json_pack("[O]", one) : json_incref(all);
    r->messages = text ? api_agents_read_text(text) : uimessages_read(list);
    return 0;
}

static int read_chat(const char *body, size_t len, const void *how, void **ret, struct err *err) {
    (void)how;
    struct chat_read *r = xcalloc(1, sizeof(*r));
    int rc = http_read_json(body, len, &r->tree, err);
    if (rc == 0)
        rc = api_agents_read_tree(r, err);
    if (rc < 0)
        free_chat(r);
    else
        *ret = r;
    return rc;
}

static const struct http_reader chat_reader = {.read = read_chat, .free = free_chat};

/* A client may choose the id of its turn: it can then stop a turn whose answer has not begun. */
static int check_turn_id(const struct http_req *req, struct err *err) {
    const char *id = http_req_header(req, "x-cay-turn");
    if (id && !id_is_valid("turn", id, strlen(id)))
        return err_set(err, ERR_BAD_REQUEST, "x-cay-turn must be a turn's id, as in answers");
    return 0;
}

static void post_message(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    struct agent *a;
    void *read = NULL;
    if (agents_get(f->agents, front_project(req), http_req_param(req, "agent"),
                   http_req_param(req, "name"), &a, &err) < 0 ||
        check_turn_id(req, &err) < 0 || http_req_read(req, &read, &err) < 0) {
        http_respond_err(req, &err);
        return;
    }
    const struct chat_read *r = read;
    char id[ID_SIZE];
    const char *turn = http_req_header(req, "x-cay-turn");
    if (!turn)
        turn = id_new("turn", id);
    struct turn_wait *w = create_wait(f->loop, req, turn);
    const char *accept = http_req_header(req, "accept");
    w->stream = !accept || strstr(accept, "application/json") == NULL;
    w->listener = (struct agent_listener){.events = &events, .ctx = w};
    struct agent_chat chat = {.key = front_key(req),
                              .turn = w->turn,
                              .messages = r->messages,
                              .model = r->model,
                              .whole = r->whole,
                              .regenerate = r->regenerate};
    agent_listen(a, &w->listener);
    w->listener.waiting = false;
    http_res_header(req, "x-cay-turn", w->turn);
    http_req_on_gone(req, api_agents_on_gone, w);
    if (w->stream)
        (void)uv_timer_start(&w->timer, api_agents_on_head_due, HEAD_WAIT_MS, 0);
    if (agent_chat(a, &w->listener, &chat, &err) < 0) {
        http_req_on_gone(req, NULL, NULL);
        destroy_wait(w);
        http_respond_err(req, &err);
    }
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

/* The turn that runs, from its beginning: the AI SDK asks for it when a page was loaded again, with
 * its own id of the chat, which says no more than the conversation's name. 204: none runs. */
static void resume_stream(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    struct agent *a = NULL;
    if (agents_find(f->agents, front_project(req), http_req_param(req, "agent"),
                    http_req_param(req, "name"), &a, &err) < 0) {
        http_respond_err(req, &err);
        return;
    }
    const char *turn = a ? agent_turn(a) : NULL;
    if (!turn) {
        http_respond_empty(req, 204);
        return;
    }
    struct turn_wait *w = create_wait(f->loop, req, turn);
    w->stream = true;
    w->listener = (struct agent_listener){.events = &events, .ctx = w};
    agent_listen(a, &w->listener);
    http_req_on_gone(req, api_agents_on_gone, w);
    agent_catch_up(&w->listener);
    api_agents_begin_stream(w);
    for (size_t i = 0; i < agent_chunk_count(a); i++) {
        size_t len;
        size_t seq;
        const char *json = agent_chunk(a, i, &seq, &len);
        api_agents_on_chunk(w, w->turn, seq, json, len);
    }
    w->listener.waiting = false;
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
    static const struct {
        const char *methods;
        const char *pattern;
        http_handler handler;
        unsigned flags;
        const struct http_reader *reader; /* NULL: as JSON */
    } routes[] = {
        {"GET,OPTIONS", "/agents/{agent}/{name}/get-messages", get_messages, FRONT_ROUTE_READ,
         NULL},
        {"GET,POST,PUT,PATCH,DELETE,OPTIONS", "/agents/{agent}/{name}", api_agents_on_connect, 0,
         NULL},
        {"GET,POST,PUT,PATCH,DELETE,OPTIONS", "/agents/{agent}/{name}/{rest...}", nothing_there,
         FRONT_ROUTE_READ, NULL},
        {"GET,POST,PUT,PATCH,DELETE,OPTIONS", "/agents/{rest...}", not_found, FRONT_ROUTE_READ,
         NULL},
        {"GET", "/v1/agents", api_agents_list, FRONT_ROUTE_READ, NULL},
        {"GET", "/v1/models", list_models, FRONT_ROUTE_READ, NULL},
        {"GET", "/v1/agents/{agent}/{name}/messages", api_agents_messages, FRONT_ROUTE_READ, NULL},
        {"POST", "/v1/agents/{agent}/{name}/messages", post_message, 0, &chat_reader},
        {"GET", "/v1/agents/{agent}/{name}/messages/{chat}/stream", resume_stream, FRONT_ROUTE_READ,
         NULL},
        {"DELETE", "/v1/agents/{agent}/{name}/messages", api_agents_clear, 0, NULL},
        {"DELETE", "/v1/agents/{agent}/{name}/turns/{turn}", stop_turn, 0, NULL},
        {"POST", "/v1/agents/{agent}/{name}/reset", api_agents_reset, 0, NULL},
        {"POST", "/v1/agents/{agent}/{name}/rename", rename_agent, 0, NULL},
        {"DELETE", "/v1/agents/{agent}/{name}", remove_agent, 0, NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(routes); i++)
        http_server_route(f->http,
                          &(struct http_route){.methods = routes[i].methods,
                                               .pattern = routes[i].pattern,
                                               .handler = routes[i].handler,
                                               .ctx = f,
                                               /* A conversation has a file of its own. */
                                               .flags = routes[i].flags | HTTP_ROUTE_DIRECT,
                                               .reader = routes[i].reader});
}
