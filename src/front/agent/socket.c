#include "front/agent/socket.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/limits.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FRAME_MAX_BYTES = 16 << 20,
    RESULT_MAX_BYTES = LIMIT_WS_QUEUE_BYTES - (64 << 10), /* with the rest of its frame */
    TURN_ID_MAX_BYTES = 128,
    WS_POLICY = 1008,
    WS_TOO_BIG = 1009,
    WS_TRY_LATER = 1013,
    WS_RESTART = 1012,
};

struct agent_socket {
    struct http_ws *ws;             /* NULL when it is closed */
    struct agent_listener listener; /* its agent is NULL when the instance is gone */
    size_t holders;                 /* the connection, and calls under way */
    bool ready_wait;
    struct agent_socket_gate gate;
    char key_id[ID_SIZE];
    char share[ID_SIZE];     /* of the project */
    bool shut;               /* nothing goes in or out any more */
    struct frame_in *frames; /* that wait, in their order: a thread reads the first */
    bool over;               /* the connection is gone, and its last frames are not handled */
    bool state_unsent;       /* the client had not taken the last state when it was sent */
    bool state_waits;        /* there is a newer one, to be sent when it has */
};

/* What a client said. */
struct frame_read {
    json_t *tree; /* NULL: it is none that has a meaning */
    json_t *body; /* of a request for a turn, which is a text in it */
    struct err body_err;
    struct uimessages *messages; /* that it brings */
    json_t *text;                /* the state that it sets, or its arguments, as JSON: a string */
    bool too_many;               /* values: a tree is many times as large as its text */
};

struct frame_in {
    struct frame_in *next;
    struct agent_socket *socket; /* which stays while it has frames */
    char *text;
    size_t len;
    struct frame_read read;
};

static struct agent_socket *agent_socket_hold(struct agent_socket *s) {
    s->holders++;
    return s;
}

static void agent_socket_release(struct agent_socket *s) {
    if (--s->holders == 0)
        free(s);
}

/* --- who is there --- */

static void agent_socket_shut(struct agent_socket *s, int code, const char *reason) {
    s->shut = true;
    if (s->ws)
        http_ws_close(s->ws, code, reason);
}

/* ERR_RATE, or another error: then the socket is shut. */
static int agent_socket_admit(struct agent_socket *s, bool counts, struct err *err) {
    int rc = s->gate.admit(s->gate.ctx, s->key_id, counts, err);
    if (rc < 0 && rc != -(int)ERR_RATE)
        agent_socket_shut(s, WS_POLICY, "the key is not valid any more");
    return rc;
}

/* --- frames to the client --- */

static bool may_hear(struct agent_socket *s) {
    return s->ws && !s->shut;
}

static void send_buf(struct agent_socket *s, struct buf *b) {
    if (!b->full && may_hear(s))
        (void)http_ws_send(s->ws, b->data, b->len, true);
    buf_finish(b);
}

static void send_tree(struct agent_socket *s, json_t *frame) {
    struct buf b;
    buf_init(&b, FRAME_MAX_BYTES);
    if (frame && json_dump(frame, &b))
        send_buf(s, &b);
    else
        buf_finish(&b);
    json_decref(frame);
}

/* A large text is not copied to become a part of a frame. */
static void send_around(struct agent_socket *s, const char *before, const char *json, size_t len,
                        const char *after) {
    if (may_hear(s))
        (void)http_ws_send_around(s->ws, before, json, len, after);
}

/* A chunk of a turn: the chunk is a text inside the frame. */
static void agent_socket_send_chunk(struct agent_socket *s, const char *turn, size_t seq,
                                    const char *json, size_t len, bool replay) {
    struct buf b;
    buf_init(&b, FRAME_MAX_BYTES);
    struct json_writer w;
    json_writer_init(&w, &b);
    json_writer_object_begin(&w);
    json_put_text(&w, "body", json, len);
    json_put_bool(&w, "done", false);
    json_put_str(&w, "id", turn);
    json_put_str(&w, "type", "cf_agent_use_chat_response");
    if (replay)
        json_put_bool(&w, "replay", true);
    json_put_int(&w, "seq", (int64_t)seq);
    json_writer_object_end(&w);
    send_buf(s, &b);
}

static void agent_socket_on_chunk(void *ctx, const char *turn, size_t seq, const char *json,
                                  size_t len) {
    agent_socket_send_chunk(ctx, turn, seq, json, len, false);
}

static void agent_socket_on_fail(void *ctx, const char *turn, const char *text,
                                 const json_t *user_ids) {
    send_tree(ctx, json_pack("{s:b,s:o,s:b,s:s,s:s,s:O?}", "error", 1, "body", json_text(text),
                             "done", 0, "id", turn, "type", "cf_agent_use_chat_response",
                             "messageIds", user_ids));
}

static void agent_socket_on_end(void *ctx, const struct agent_turn_end *end) {
    json_t *f = json_pack("{s:s,s:b,s:s,s:s}", "body", "", "done", 1, "id", end->turn, "type",
                          "cf_agent_use_chat_response");
    if (end->outcome)
        (void)json_object_set_new(f, "outcome", json_string(end->outcome));
    if (end->user_ids)
        (void)json_object_set(f, "messageIds", (json_t *)(uintptr_t)end->user_ids);
    send_tree(ctx, f);
}

static void agent_socket_on_messages(void *ctx, json_t *text) {
    struct agent_socket *s = ctx;
    if (may_hear(s))
        (void)http_ws_send_shared(s->ws, "{\"messages\":", text,
                                  ",\"type\":\"cf_agent_chat_messages\"}");
}

static void send_state(struct agent_socket *s, json_t *text) {
    s->state_waits = false;
    if (may_hear(s))
        (void)http_ws_send_shared(s->ws, "{\"type\":\"cf_agent_state\",\"state\":", text, "}");
    s->state_unsent = s->ws && http_ws_queued(s->ws) > 0;
}

static void agent_socket_on_state(void *ctx, json_t *text) {
    struct agent_socket *s = ctx;
    /* The first state comes in its place, after the identity. */
    if (s->ready_wait)
        return;
    /* A client that has not taken the last one gets what is newest when it has: states that nobody
     * reads do not add up. */
    if (s->state_unsent && s->ws && http_ws_want_drain(s->ws))
        s->state_waits = true;
    else
        send_state(s, text);
}

static void agent_socket_on_drain(void *ctx, struct http_ws *ws) {
    (void)ws;
    struct agent_socket *s = ctx;
    const json_t *state =
        s->state_waits && agent_is_open(s->listener.agent) ? agent_state_for(&s->listener) : NULL;
    if (state)
        send_state(s, (json_t *)(uintptr_t)state);
}

static void agent_socket_on_clear(void *ctx) {
    send_tree(ctx, json_pack("{s:s}", "type", "cf_agent_chat_clear"));
}

/* The client comes again by itself, to a new instance. */
static void agent_socket_on_gone(void *ctx) {
    struct agent_socket *s = ctx;
    agent_socket_shut(s, WS_RESTART, "the agent was removed");
}

static const struct agent_events events = {
    .on_chunk = agent_socket_on_chunk,
    .on_fail = agent_socket_on_fail,
    .on_end = agent_socket_on_end,
    .on_messages = agent_socket_on_messages,
    .on_state = agent_socket_on_state,
    .on_clear = agent_socket_on_clear,
    .on_gone = agent_socket_on_gone,
};

/* --- frames from the client --- */

/* NULL: it is not there, or no text, or one with a NUL. */
static const char *agent_socket_text_of(const json_t *f, const char *key) {
    const char *text = NULL;
    (void)json_get_str(f, key, &text, NULL);
    return text;
}

static const char *turn_id(const json_t *f) {
    const char *id = agent_socket_text_of(f, "id");
    return id && *id && strlen(id) <= TURN_ID_MAX_BYTES ? id : NULL;
}

static void refuse_request(struct agent_socket *s, const json_t *f, const struct err *err) {
    const char *id = turn_id(f);
    if (!id)
        return;
    agent_socket_on_fail(s, id, err->message, NULL);
    agent_socket_on_end(s, &(struct agent_turn_end){.turn = id, .outcome = "error"});
}

static void agent_socket_on_request(struct agent_socket *s, const struct frame_read *read) {
    const json_t *f = read->tree;
    const json_t *j = read->body;
    const char *id = turn_id(f);
    struct err err = read->body_err;
    if (!id)
        return;
    int rc = j ? 0 : -(int)err.code;
    const char *trigger = agent_socket_text_of(j, "trigger");
    const char *model = NULL;
    if (rc == 0)
        rc = json_get_str(j, "model", &model, &err);
    struct agent_chat chat = {.key = s->key_id,
                              .turn = id,
                              .messages = read->messages,
                              .model = model,
                              .whole = true,
                              .regenerate = trigger && strcmp(trigger, "regenerate-message") == 0};
    if (rc == 0)
        rc = agent_chat(s->listener.agent, &s->listener, &chat, &err);
    if (rc < 0)
        refuse_request(s, f, &err);
}

struct rpc_call {
    struct agent_socket *socket;
    json_t *id;
};

static void send_rpc_error(struct agent_socket *s, const json_t *id, const json_t *error) {
    send_tree(
        s, json_pack("{s:O,s:O,s:b,s:s}", "error", error, "id", id, "success", 0, "type", "rpc"));
}

static void send_rpc_result(struct agent_socket *s, const json_t *id, const char *result,
                            size_t len) {
    _cleanup_(buf) struct buf before;
    buf_init(&before, FRAME_MAX_BYTES);
    (void)buf_add_str(&before, "{\"done\":true,\"id\":");
    (void)json_dump(id, &before);
    (void)buf_add_str(&before, ",\"result\":");
    if (!before.full)
        send_around(s, before.data, result, len, ",\"success\":true,\"type\":\"rpc\"}");
}

static void agent_socket_on_rpc_done(void *ctx, const char *result, size_t len,
                                     const json_t *error) {
    struct rpc_call *c = ctx;
    struct agent_socket *s = c->socket;
    _cleanup_(json) json_t *too_large =
        len > RESULT_MAX_BYTES
            ? json_sprintf("the result has %zu bytes, and may have %d", len, RESULT_MAX_BYTES)
            : NULL;
    if (error || too_large)
        send_rpc_error(s, c->id, error ? error : too_large);
    else
        send_rpc_result(s, c->id, result, len);
    json_decref(c->id);
    free(c);
    agent_socket_release(s);
}

static void refuse_rpc(struct agent_socket *s, const json_t *f, const struct err *err) {
    const json_t *id = json_object_get(f, "id");
    _cleanup_(json) json_t *text = json_text(err->message);
    if (json_is_string(id))
        send_rpc_error(s, id, text);
}

static void agent_socket_on_rpc(struct agent_socket *s, const struct frame_read *read) {
    const json_t *f = read->tree;
    json_t *id = json_object_get(f, "id");
    const char *method = agent_socket_text_of(f, "method");
    if (!json_is_string(id) || !method || !read->text)
        return;
    struct rpc_call *c = xmalloc(sizeof(*c));
    *c = (struct rpc_call){.socket = agent_socket_hold(s), .id = json_incref(id)};
    agent_rpc(s->listener.agent, method, json_string_value(read->text), agent_socket_on_rpc_done,
              c);
}

static void agent_socket_on_resume_request(struct agent_socket *s, const struct frame_read *read) {
    const json_t *f = read->tree;
    const char *turn = agent_turn(s->listener.agent);
    json_t *answer =
        turn ? json_pack("{s:s,s:s}", "type", "cf_agent_stream_resuming", "id", turn)
             : json_pack("{s:s,s:s}", "type", "cf_agent_stream_resume_none", "reason", "idle");
    json_t *probe = json_object_get(f, "probeId");
    if (json_is_string(probe))
        (void)json_object_set(answer, "probeId", probe);
    if (turn)
        s->listener.waiting = true;
    send_tree(s, answer);
}

/* Replays the running turn from its beginning; live chunks follow without a gap. A turn that is
 * over meanwhile has told its messages already. */
static void agent_socket_on_resume_ack(struct agent_socket *s, const struct frame_read *read) {
    const json_t *f = read->tree;
    const char *id = agent_socket_text_of(f, "id");
    const char *turn = agent_turn(s->listener.agent);
    if (!id || (turn && strcmp(id, turn) != 0))
        return;
    if (!turn) {
        send_tree(s, json_pack("{s:s,s:b,s:s,s:s,s:b}", "body", "", "done", 1, "id", id, "type",
                               "cf_agent_use_chat_response", "replay", 1));
        return;
    }
    agent_catch_up(&s->listener);
    size_t n = agent_chunk_count(s->listener.agent);
    for (size_t i = 0; i < n && s->listener.agent; i++) {
        size_t len;
        size_t seq;
        const char *json = agent_chunk(s->listener.agent, i, &seq, &len);
        agent_socket_send_chunk(s, turn, seq, json, len, true);
    }
    send_tree(s, json_pack("{s:s,s:b,s:s,s:s,s:b,s:b}", "body", "", "done", 0, "id", turn, "type",
                           "cf_agent_use_chat_response", "replay", 1, "replayComplete", 1));
    s->listener.waiting = false;
}

static void agent_socket_on_cancel(struct agent_socket *s, const struct frame_read *read) {
    const json_t *f = read->tree;
    if (agent_socket_text_of(f, "id"))
        (void)agent_cancel(s->listener.agent, agent_socket_text_of(f, "id"));
}

static void refuse_state(struct agent_socket *s, const json_t *f, const struct err *err) {
    (void)f;
    send_tree(s, json_pack("{s:s,s:o}", "type", "cf_agent_state_error", "error",
                           json_text(err->message)));
}

static void agent_socket_on_set_state(struct agent_socket *s, const struct frame_read *read) {
    const json_t *f = read->tree;
    struct err err;
    if (agent_set_state(s->listener.agent, &s->listener, read->text, &err) < 0)
        refuse_state(s, f, &err);
}

static void agent_socket_on_set_messages(struct agent_socket *s, const struct frame_read *read) {
    struct err err;
    (void)agent_set_messages(s->listener.agent, &s->listener, read->messages, &err);
}

static void agent_socket_on_clear_request(struct agent_socket *s, const struct frame_read *read) {
    (void)read;
    struct err err;
    (void)agent_clear(s->listener.agent, &s->listener, &err);
}

/* Frames that the protocol has no answer to: the client must not take them for done. */
static void refuse_all(struct agent_socket *s, const json_t *f, const struct err *err) {
    (void)f;
    agent_socket_shut(s, WS_TRY_LATER, err->message);
}

static json_t *text_of_tree(const json_t *tree) {
    size_t len = 0;
    _cleanup_(free) char *text = json_dump_text(tree, FRAME_MAX_BYTES, &len);
    return text ? json_stringn_nocheck(text, len) : NULL;
}

/* --- reading them: in any thread --- */

static void agent_socket_read_request(struct frame_read *r) {
    const char *body = agent_socket_text_of(json_object_get(r->tree, "init"), "body");
    if (!body)
        (void)err_set(&r->body_err, ERR_BAD_REQUEST, "the request has no body");
    else if (json_has_more_values(body, strlen(body), LIMIT_JSON_VALUES))
        (void)err_set(&r->body_err, ERR_TOO_LARGE, "the request has more than %d JSON values",
                      LIMIT_JSON_VALUES);
    else if (json_parse(body, strlen(body), "the request's body", &r->body, &r->body_err) == 0)
        r->messages = uimessages_read(json_object_get(r->body, "messages"));
}

static void agent_socket_read_state(struct frame_read *r) {
    r->text = text_of_tree(json_object_get(r->tree, "state"));
}

static void agent_socket_read_messages(struct frame_read *r) {
    r->messages = uimessages_read(json_object_get(r->tree, "messages"));
}

static void agent_socket_read_args(struct frame_read *r) {
    const json_t *args = json_object_get(r->tree, "args");
    r->text = json_is_array(args) ? text_of_tree(args) : NULL;
}

/* Those with a refusal count as requests of the key. */
static const struct frame_type {
    const char *name;
    void (*handle)(struct agent_socket *s, const struct frame_read *read);
    void (*refuse)(struct agent_socket *s, const json_t *f, const struct err *err);
    void (*read)(struct frame_read *r);
} frame_types[] = {
    {"cf_agent_use_chat_request", agent_socket_on_request, refuse_request,
     agent_socket_read_request},
    {"cf_agent_chat_request_cancel", agent_socket_on_cancel, NULL, NULL},
    {"cf_agent_state", agent_socket_on_set_state, refuse_state, agent_socket_read_state},
    {"rpc", agent_socket_on_rpc, refuse_rpc, agent_socket_read_args},
    {"cf_agent_chat_clear", agent_socket_on_clear_request, refuse_all, NULL},
    {"cf_agent_chat_messages", agent_socket_on_set_messages, refuse_all,
     agent_socket_read_messages},
    {"cf_agent_stream_resume_request", agent_socket_on_resume_request, NULL, NULL},
    {"cf_agent_stream_resume_ack", agent_socket_on_resume_ack, NULL, NULL},
};

static const struct frame_type *agent_socket_type_of(const json_t *f) {
    const char *name = agent_socket_text_of(f, "type");
    for (size_t i = 0; name && i < ARRAY_LEN(frame_types); i++)
        if (strcmp(frame_types[i].name, name) == 0)
            return &frame_types[i];
    return NULL;
}

/* Unknown types and malformed frames get no answer. */
static struct frame_read read_frame(const char *text, size_t len) {
    struct frame_read r = {.too_many = json_has_more_values(text, len, LIMIT_JSON_VALUES)};
    if (r.too_many || json_parse(text, len, "frame", &r.tree, NULL) < 0 || !json_is_object(r.tree))
        return r;
    const struct frame_type *type = agent_socket_type_of(r.tree);
    if (type && type->read)
        type->read(&r);
    return r;
}

static void finish_read(struct frame_read *r) {
    json_decref(r->tree);
    json_decref(r->body);
    uimessages_free(r->messages);
    json_decref(r->text);
}

static void agent_socket_on_frame(struct agent_socket *s, const struct frame_read *r) {
    const struct frame_type *type = agent_socket_type_of(r->tree);
    struct err err;
    if (r->too_many)
        agent_socket_shut(s, WS_TOO_BIG, "a frame has too many JSON values");
    if (s->shut || !agent_is_open(s->listener.agent) || !type)
        return;
    int rc = agent_socket_admit(s, type->refuse != NULL, &err);
    if (rc == 0)
        type->handle(s, r);
    else if (!s->shut && type->refuse)
        type->refuse(s, r->tree, &err);
}

/* --- frames that wait --- */

static void end_socket(struct agent_socket *s) {
    if (s->ready_wait && s->listener.agent)
        agent_cancel_ready(s->listener.agent, s);
    agent_unlisten(&s->listener);
    agent_socket_release(s);
}

/* In any thread. */
static void free_frame(void *frame) {
    struct frame_in *f = frame;
    finish_read(&f->read);
    free(f->text);
    free(f);
}

static void drop_frames(struct agent_socket *s) {
    while (s->frames) {
        struct frame_in *f = s->frames;
        s->frames = f->next;
        free_frame(f);
    }
}

static bool agent_socket_is_large(const struct frame_in *f) {
    return f->len > LIMIT_READ_AT_ONCE_BYTES;
}

static void agent_socket_go_on(struct agent_socket *s);

/* The first one was read. */
static void agent_socket_take_frame(struct agent_socket *s) {
    struct frame_in *f = s->frames;
    agent_socket_on_frame(s, &f->read);
    s->frames = f->next;
    if (agent_socket_is_large(f))
        intake_dispose(s->gate.intake, free_frame, f);
    else
        free_frame(f);
}

static void agent_socket_on_frame_read(void *ctx) {
    struct agent_socket *s = ((struct frame_in *)ctx)->socket;
    agent_socket_take_frame(s);
    agent_socket_go_on(s);
}

static void agent_socket_on_work(void *ctx) {
    struct frame_in *f = ctx;
    f->read = read_frame(f->text, f->len);
}

/* The server ends: nothing is read any more. */
static void agent_socket_on_dropped(void *ctx) {
    struct agent_socket *s = ((struct frame_in *)ctx)->socket;
    drop_frames(s);
    if (s->over)
        end_socket(s);
}

/* Large ones are read beside the loop; those behind one wait for it. */
static void agent_socket_go_on(struct agent_socket *s) {
    while (s->frames && !agent_socket_is_large(s->frames)) {
        s->frames->read = read_frame(s->frames->text, s->frames->len);
        agent_socket_take_frame(s);
    }
    if (s->frames)
        (void)intake_start(s->gate.intake,
                           &(struct intake_ask){.owner = s->share,
                                                .bytes = s->frames->len,
                                                .waits = true,
                                                .work = agent_socket_on_work,
                                                .on_done = agent_socket_on_frame_read,
                                                .free = agent_socket_on_dropped,
                                                .ctx = s->frames},
                           NULL);
    else if (s->over)
        end_socket(s);
    else
        http_ws_pause(s->ws, false);
}

static void add_frame(struct agent_socket *s, struct http_ws *ws, size_t len) {
    struct frame_in *f = xcalloc(1, sizeof(*f));
    *f = (struct frame_in){.socket = s, .text = http_ws_take(ws), .len = len};
    struct frame_in **at = &s->frames;
    while (*at)
        at = &(*at)->next;
    *at = f;
}

static void agent_socket_on_message(void *ctx, struct http_ws *ws, const char *data, size_t len,
                                    bool text) {
    struct agent_socket *s = ctx;
    if (!text || s->shut || !agent_is_open(s->listener.agent))
        return;
    bool wait = s->frames != NULL;
    if (!wait && len <= LIMIT_READ_AT_ONCE_BYTES) {
        struct frame_read r = read_frame(data, len);
        agent_socket_on_frame(s, &r);
        finish_read(&r);
        return;
    }
    add_frame(s, ws, len);
    if (wait)
        return;
    http_ws_pause(ws, true);
    agent_socket_go_on(s);
}

/* A turn that was asked for begins also if who asked has gone. */
static void agent_socket_on_close(void *ctx, struct http_ws *ws, int code) {
    (void)ws;
    (void)code;
    struct agent_socket *s = ctx;
    s->ws = NULL;
    s->over = true;
    if (!s->frames)
        end_socket(s);
}

/* --- the beginning --- */

static void agent_socket_greet(void *ctx) {
    struct agent_socket *s = ctx;
    s->ready_wait = false;
    const struct agent_def *d = agent_def(s->listener.agent);
    const json_t *state = agent_state_for(&s->listener);
    const char *turn = agent_turn(s->listener.agent);
    json_t *identity = json_pack("{s:s,s:s,s:s}", "type", "cf_agent_identity", "name",
                                 agent_name(s->listener.agent), "agent", d->type);
    /* Only a turn that was running when it came: one that it asked for before it was greeted
     * streams to it already. */
    if (turn && s->listener.waiting)
        send_tree(s, json_pack("{s:s,s:s}", "type", "cf_agent_stream_resuming", "id", turn));
    if (state)
        (void)json_object_set_new(identity, "stateFollows", json_true());
    send_tree(s, identity);
    if (state)
        send_state(s, (json_t *)(uintptr_t)state);
    send_tree(s, json_pack("{s:{s:[],s:[],s:{},s:[]},s:s}", "mcp", "prompts", "resources",
                           "servers", "tools", "type", "cf_agent_mcp_servers"));
}

void agent_socket_accept(struct http_req *req, struct agent *agent,
                         const struct agent_socket_gate *gate) {
    static const struct http_ws_callbacks callbacks = {.on_message = agent_socket_on_message,
                                                       .on_close = agent_socket_on_close,
                                                       .on_drain = agent_socket_on_drain};
    struct agent_socket *s = xcalloc(1, sizeof(*s));
    s->listener = (struct agent_listener){.events = &events, .ctx = s};
    s->gate = *gate;
    (void)snprintf(s->key_id, sizeof(s->key_id), "%s", gate->key_id);
    s->gate.key_id = s->key_id;
    (void)snprintf(s->share, sizeof(s->share), "%s", gate->share);
    s->ws = http_ws_accept(req, NULL, &callbacks, s);
    if (!s->ws) {
        free(s);
        return;
    }
    s->holders = 1; /* until on_close */
    agent_listen(agent, &s->listener);
    s->ready_wait = true;
    agent_when_ready(agent, agent_socket_greet, s);
}
