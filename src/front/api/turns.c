#include "base/cleanup.h"
#include "base/json_table.h"
#include "base/mem.h"
#include "front/agent/agent.h"
#include "front/api/api.h"
#include "front/http/follower.h"

#include <stdlib.h>
#include <string.h>

/* Turns of an agent over plain HTTP: POST .../messages begins one, and its answer is the stream of
 * chunks that the AI SDK reads, or the message when it is whole. */

enum {
    LEAD_MAX_BYTES = 1024,
    ANSWER_MAX_BYTES = 64 << 20,
    HEAD_WAIT_MS = 15000, /* longer than a call waits for money that others hold */
};

/* A turn that a request waits for. */
struct turn_wait {
    struct http_follower out;
    struct agent_listener listener;
    char *turn;
    json_t *error;
    uv_timer_t timer; /* sends the head of a stream whose model takes long */
    struct buf lead;  /* events that wait for the head */
    bool stream;
};

static void api_turns_on_wait_closed(uv_handle_t *h) {
    free(h->data);
}

static void destroy_wait(struct turn_wait *w) {
    agent_unlisten(&w->listener);
    json_decref(w->error);
    free(w->turn);
    buf_finish(&w->lead);
    uv_close((uv_handle_t *)&w->timer, api_turns_on_wait_closed);
}

static void api_turns_begin_stream(struct turn_wait *w) {
    if (w->out.streams)
        return;
    (void)uv_timer_stop(&w->timer);
    http_res_header(w->out.req, "Cache-Control", "no-cache");
    http_res_header(w->out.req, "x-vercel-ai-ui-message-stream", "v1");
    http_follower_begin(&w->out, NULL);
    (void)http_follower_write(&w->out, w->lead.data, w->lead.len);
}

/* A turn that fails before its first word is answered with the status of the failure. After this
 * time the head goes out all the same: proxies give up on an answer that does not begin. */
static void api_turns_on_head_due(uv_timer_t *h) {
    struct turn_wait *w = h->data;
    if (w->out.req)
        api_turns_begin_stream(w);
}

static bool add_event(struct buf *b, const char *json, size_t len) {
    return buf_add_str(b, "data: ") && buf_add(b, json, len) && buf_add_str(b, "\n\n");
}

static void api_turns_send_event(struct turn_wait *w, const char *json, size_t len) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, len + 64);
    (void)add_event(&b, json, len);
    api_turns_begin_stream(w);
    (void)http_follower_write(&w->out, b.data, b.len);
}

/* "start" and "start-step" come before the model is asked, so they say nothing about its answer. */
static bool is_lead(const char *json, size_t len) {
    static const char start[] = "{\"type\":\"start";
    return len >= sizeof(start) && memcmp(json, start, sizeof(start) - 1) == 0;
}

static void api_turns_on_chunk(void *ctx, const char *turn, size_t seq, const char *json,
                               size_t len) {
    (void)seq;
    struct turn_wait *w = ctx;
    if (strcmp(turn, w->turn) != 0)
        return;
    if (!w->out.req || !w->stream)
        return;
    if (!w->out.streams && is_lead(json, len)) {
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
            api_turns_send_event(w, text, strlen(text));
        else
            api_turns_send_event(w, json, len);
        return;
    }
    api_turns_send_event(w, json, len);
}

static void api_turns_on_fail(void *ctx, const char *turn, const char *text,
                              const json_t *user_ids) {
    (void)user_ids;
    struct turn_wait *w = ctx;
    if (strcmp(turn, w->turn) != 0)
        return;
    w->error = json_string(text);
    if (!w->out.req || !w->out.streams)
        return; /* api_turns_on_end() answers with a status */
    _cleanup_(json) json_t *j = json_pack("{s:s,s:O?}", "type", "error", "errorText", w->error);
    _cleanup_(free) char *chunk = json_dumps(j, JSON_COMPACT);
    if (chunk)
        api_turns_send_event(w, chunk, strlen(chunk));
}

/* {"message"}, the assistant's; null if the turn was stopped before it said anything. */
static void api_turns_answer(struct turn_wait *w, const struct agent_turn_end *end) {
    struct err err;
    if (w->error) {
        (void)err_set(&err, end->refusal ? end->refusal : ERR_UPSTREAM, "%s",
                      json_string_value(w->error));
        if (end->retry_after_s > 0)
            http_res_retry_after_s(w->out.req, end->retry_after_s);
        http_respond_err(w->out.req, &err);
        return;
    }
    const char *message = json_string_value(end->message);
    struct buf b;
    buf_init(&b, ANSWER_MAX_BYTES);
    (void)buf_addf(&b, "{\"message\":%s", message ? message : "null");
    if (end->outcome)
        (void)buf_addf(&b, ",\"outcome\":\"%s\"", end->outcome);
    (void)buf_add_char(&b, '}');
    http_respond_buf(w->out.req, 200, "application/json", &b);
}

static void api_turns_on_end(void *ctx, const struct agent_turn_end *end) {
    struct turn_wait *w = ctx;
    if (strcmp(end->turn, w->turn) != 0)
        return;
    if (w->out.req && w->stream && (w->out.streams || !w->error)) {
        static const char aborted[] = "{\"type\":\"abort\"}";
        if (end->outcome && strcmp(end->outcome, "aborted") == 0)
            api_turns_send_event(w, aborted, strlen(aborted));
        api_turns_send_event(w, "[DONE]", 6);
        http_follower_end(&w->out);
    } else if (w->out.req) {
        api_turns_answer(w, end);
    }
    destroy_wait(w);
}

/* The client left: the turn goes on, as with a socket. */
static void api_turns_on_gone(void *ctx) {
    struct turn_wait *w = ctx;
    (void)uv_timer_stop(&w->timer);
}

static struct turn_wait *create_wait(struct front *f, struct http_req *req, const char *turn,
                                     bool stream) {
    static const struct agent_events events = {
        .on_chunk = api_turns_on_chunk, .on_fail = api_turns_on_fail, .on_end = api_turns_on_end};
    static const struct http_follower_type type = {.gone = api_turns_on_gone};
    struct turn_wait *w = xcalloc(1, sizeof(*w));
    w->listener = (struct agent_listener){.events = &events, .ctx = w};
    w->turn = xstrdup(turn);
    w->stream = stream;
    buf_init(&w->lead, LEAD_MAX_BYTES);
    (void)uv_timer_init(f->loop, &w->timer);
    w->timer.data = w;
    http_follower_init(&w->out, req, &type, w);
    return w;
}

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

static struct uimessages *api_turns_read_text(const char *text) {
    char id[ID_SIZE];
    _cleanup_(json) json_t *list = json_pack("[{s:s,s:s,s:[{s:s,s:s}]}]", "id", id_new("msg", id),
                                             "role", "user", "parts", "type", "text", "text", text);
    return uimessages_read(list);
}

struct chat_body {
    const char *text, *model;
    unsigned regenerate;
    const json_t *one, *all;
};

/* The body of the AI SDK's transport ({"messages", "trigger"}), its last-message form
 * ({"message"}), or {"text"} for people with curl; each with the "model" that is to answer. */
static int api_turns_read_tree(struct chat_read *r, struct err *err) {
    static const char *const triggers[] = {"submit-message", "regenerate-message"};
    static const struct json_field table[] = {
        JSON_TEXT("text", struct chat_body, text),
        JSON_ENUM("trigger", struct chat_body, regenerate, triggers),
        JSON_TEXT("model", struct chat_body, model),
        JSON_TREE("message", struct chat_body, one),
        JSON_TREE("messages", struct chat_body, all),
    };
    struct chat_body b = {0};
    if (!json_is_object(r->tree))
        return err_set(err, ERR_BAD_REQUEST, "the body must be an object");
    int rc = json_table_read(table, ARRAY_LEN(table), r->tree, NULL, &b, err);
    if (rc == 0 && !b.text && !b.one && !b.all)
        rc = err_set(err, ERR_BAD_REQUEST, "send \"messages\" (AI SDK), \"message\" or \"text\"");
    if (rc < 0)
        return rc;
    r->model = b.model;
    r->regenerate = b.regenerate;
    r->whole = !b.text && !b.one;
    _cleanup_(json) json_t *list = b.one ? json_pack("[O]", b.one) : NULL;
    r->messages = b.text ? api_turns_read_text(b.text) : uimessages_read(list ? list : b.all);
    return 0;
}

static int read_chat(const char *body, size_t len, const void *how, void **ret, struct err *err) {
    (void)how;
    struct chat_read *r = xcalloc(1, sizeof(*r));
    int rc = http_read_json(body, len, &r->tree, err);
    if (rc == 0)
        rc = api_turns_read_tree(r, err);
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
    const char *accept = http_req_header(req, "accept");
    struct turn_wait *w =
        create_wait(f, req, turn, !accept || strstr(accept, "application/json") == NULL);
    struct agent_chat chat = {.key = front_key(req),
                              .turn = w->turn,
                              .messages = r->messages,
                              .model = r->model,
                              .whole = r->whole,
                              .regenerate = r->regenerate};
    agent_listen(a, &w->listener);
    w->listener.waiting = false;
    http_res_header(req, "x-cay-turn", w->turn);
    if (w->stream)
        (void)uv_timer_start(&w->timer, api_turns_on_head_due, HEAD_WAIT_MS, 0);
    if (agent_chat(a, &w->listener, &chat, &err) < 0) {
        http_follower_fail(&w->out, &err);
        destroy_wait(w);
    }
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
    struct turn_wait *w = create_wait(f, req, turn, true);
    agent_listen(a, &w->listener);
    agent_catch_up(&w->listener);
    api_turns_begin_stream(w);
    for (size_t i = 0; i < agent_chunk_count(a); i++) {
        size_t len;
        size_t seq;
        const char *json = agent_chunk(a, i, &seq, &len);
        api_turns_on_chunk(w, w->turn, seq, json, len);
    }
    w->listener.waiting = false;
}

void api_turns_routes(struct front *f) {
    /* A conversation has a file of its own: DIRECT. */
    const struct http_route routes[] = {
        {"POST", "/v1/agents/{agent}/{name}/messages", post_message, f, HTTP_ROUTE_DIRECT, 0,
         &chat_reader},
        {"GET", "/v1/agents/{agent}/{name}/messages/{chat}/stream", resume_stream, f,
         FRONT_ROUTE_READ | HTTP_ROUTE_DIRECT, 0},
    };
    http_server_routes(f->http, routes, ARRAY_LEN(routes));
}
