#include "front/code/door.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/rand.h"
#include "front/code/play.h"
#include "front/http/server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { TOKEN_BYTES = 24, BODY_BYTES = 8 << 20, ANSWER_BYTES = 1 << 20, BYTES_PER_TOKEN = 4 };

struct door {
    struct http_server *http;
    const json_t *script;
    char url[64];
    char token[2 * TOKEN_BYTES + 1];
};

/* --- the two APIs --- */

struct door_reply {
    char id[ID_SIZE];
    const struct buf *text;
    json_int_t input;
    json_int_t output;
};

static json_t *as_message(const struct door_reply *r) {
    return json_pack("{s:s,s:s,s:s,s:s,s:[{s:s,s:s%}],s:s,s:n,s:{s:I,s:I}}", "id", r->id, "type",
                     "message", "role", "assistant", "model", "demo", "content", "type", "text",
                     "text", r->text->data ? r->text->data : "", r->text->len, "stop_reason",
                     "end_turn", "stop_sequence", "usage", "input_tokens", r->input,
                     "output_tokens", r->output);
}

static json_t *as_completion(const struct door_reply *r) {
    return json_pack("{s:s,s:s,s:i,s:s,s:[{s:i,s:{s:s,s:s%},s:s}],s:{s:I,s:I,s:I}}", "id", r->id,
                     "object", "chat.completion", "created", 0, "model", "demo", "choices", "index",
                     0, "message", "role", "assistant", "content",
                     r->text->data ? r->text->data : "", r->text->len, "finish_reason", "stop",
                     "usage", "prompt_tokens", r->input, "completion_tokens", r->output,
                     "total_tokens", r->input + r->output);
}

static void door_event(struct http_req *req, const char *name, json_t *data) {
    _cleanup_(json) json_t *j = data;
    _cleanup_(free) char *text = json_dumps(j, JSON_COMPACT);
    if (text)
        (void)http_sse_send(req, name, NULL, text, strlen(text));
}

static void stream_message(struct http_req *req, const struct door_reply *r) {
    _cleanup_(json) json_t *whole = as_message(r);
    const char *text = r->text->data ? r->text->data : "";
    (void)json_array_clear(json_object_get(whole, "content"));
    (void)json_object_set_new(whole, "stop_reason", json_null());
    door_event(req, "message_start",
               json_pack("{s:s,s:O}", "type", "message_start", "message", whole));
    door_event(req, "content_block_start",
               json_pack("{s:s,s:i,s:{s:s,s:s}}", "type", "content_block_start", "index", 0,
                         "content_block", "type", "text", "text", ""));
    door_event(req, "content_block_delta",
               json_pack("{s:s,s:i,s:{s:s,s:s%}}", "type", "content_block_delta", "index", 0,
                         "delta", "type", "text_delta", "text", text, r->text->len));
    door_event(req, "content_block_stop",
               json_pack("{s:s,s:i}", "type", "content_block_stop", "index", 0));
    door_event(req, "message_delta",
               json_pack("{s:s,s:{s:s,s:n},s:{s:I}}", "type", "message_delta", "delta",
                         "stop_reason", "end_turn", "stop_sequence", "usage", "output_tokens",
                         r->output));
    door_event(req, "message_stop", json_pack("{s:s}", "type", "message_stop"));
}

static void stream_completion(struct http_req *req, const struct door_reply *r) {
    const char *text = r->text->data ? r->text->data : "";
    door_event(req, NULL,
               json_pack("{s:s,s:s,s:i,s:s,s:[{s:i,s:{s:s,s:s%},s:n}]}", "id", r->id, "object",
                         "chat.completion.chunk", "created", 0, "model", "demo", "choices", "index",
                         0, "delta", "role", "assistant", "content", text, r->text->len,
                         "finish_reason"));
    door_event(req, NULL,
               json_pack("{s:s,s:s,s:i,s:s,s:[{s:i,s:{},s:s}],s:{s:I,s:I,s:I}}", "id", r->id,
                         "object", "chat.completion.chunk", "created", 0, "model", "demo",
                         "choices", "index", 0, "delta", "finish_reason", "stop", "usage",
                         "prompt_tokens", r->input, "completion_tokens", r->output, "total_tokens",
                         r->input + r->output));
    (void)http_sse_send(req, NULL, NULL, "[DONE]", 6);
}

static void door_respond(struct http_req *req, const struct door *d, bool anthropic) {
    struct err err;
    _cleanup_(json) json_t *body = NULL;
    int rc = http_req_json(req, &body, &err);
    const json_t *messages = json_object_get(body, "messages");
    if (rc == 0 && !json_is_array(messages))
        rc = err_set(&err, ERR_BAD_REQUEST, "\"messages\" must be a list");
    if (rc < 0) {
        http_respond_err(req, &err);
        return;
    }
    _cleanup_(buf) struct buf text;
    buf_init(&text, ANSWER_BYTES);
    play_answer(d->script, messages, &text);
    size_t asked = http_req_body_len(req);
    struct door_reply r = {.text = &text,
                           .input = (json_int_t)(asked / BYTES_PER_TOKEN),
                           .output = (json_int_t)(text.len / BYTES_PER_TOKEN + 1)};
    id_new("msg", r.id);
    if (json_is_true(json_object_get(body, "stream"))) {
        http_sse_begin(req);
        if (anthropic)
            stream_message(req, &r);
        else
            stream_completion(req, &r);
        http_stream_end(req);
        return;
    }
    _cleanup_(json) json_t *out = anthropic ? as_message(&r) : as_completion(&r);
    http_respond_json(req, 200, out);
}

static void door_on_messages(struct http_req *req, void *ctx) {
    door_respond(req, ctx, true);
}

static void door_on_chat(struct http_req *req, void *ctx) {
    door_respond(req, ctx, false);
}

static void door_on_models(struct http_req *req, void *ctx) {
    (void)ctx;
    _cleanup_(json) json_t *out =
        json_pack("{s:s,s:[{s:s,s:s,s:s}],s:b}", "object", "list", "data", "id", "demo", "object",
                  "model", "display_name", "demo (a script)", "has_more", 0);
    http_respond_json(req, 200, out);
}

/* --- the server --- */

/* Whoever has no token learns nothing. */
static bool door_guard(struct http_req *req, unsigned flags, void *ctx) {
    (void)flags;
    const struct door *d = ctx;
    const char *key = http_req_header(req, "x-api-key");
    if (key && strcmp(key, d->token) == 0)
        return true;
    struct err err;
    (void)err_set(&err, ERR_NOT_FOUND, "there is nothing here");
    http_respond_err(req, &err);
    return false;
}

static int listen_loopback(struct door *d, struct err *err) {
    _cleanup_(close) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ||
        getsockname(fd, (struct sockaddr *)&a, &n) < 0)
        return err_sys(err, "listen on loopback for the demo model");
    (void)snprintf(d->url, sizeof(d->url), "http://127.0.0.1:%u", ntohs(a.sin_port));
    return http_server_listen(d->http, steal_fd(&fd), err);
}

/* Of all sandboxes together: they have a share of what is read beside the loop, as a key has. */
static const char *door_owner_of(const struct http_req *req) {
    (void)req;
    return "door";
}

int door_open(uv_loop_t *loop, struct intake *intake, const json_t *script, struct door **ret_door,
              struct err *err) {
    struct door *d = xcalloc(1, sizeof(*d));
    unsigned char raw[TOKEN_BYTES];
    rand_bytes(raw, sizeof(raw));
    for (size_t i = 0; i < sizeof(raw); i++)
        (void)snprintf(d->token + 2 * i, 3, "%02x", raw[i]);
    d->script = script;
    struct http_limits limits = http_limits_default();
    limits.body_bytes = BODY_BYTES;
    d->http = http_server_create(&(struct http_server_options){.loop = loop,
                                                               .limits = limits,
                                                               .guard = door_guard,
                                                               .intake = intake,
                                                               .owner = door_owner_of,
                                                               .ctx = d});
    static const struct {
        const char *methods;
        const char *pattern;
        http_handler handler;
    } routes[] = {{"POST", "/v1/messages", door_on_messages},
                  {"POST", "/v1/chat/completions", door_on_chat},
                  {"GET", "/v1/models", door_on_models}};
    for (size_t i = 0; i < ARRAY_LEN(routes); i++)
        http_server_route(d->http, &(struct http_route){.methods = routes[i].methods,
                                                        .pattern = routes[i].pattern,
                                                        .handler = routes[i].handler,
                                                        .ctx = d});
    int rc = listen_loopback(d, err);
    if (rc < 0) {
        door_close(d);
        return rc;
    }
    *ret_door = d;
    return 0;
}

const char *door_url(const struct door *d) {
    return d->url;
}

const char *door_authority(const struct door *d) {
    return d->url + strlen("http://");
}

const char *door_token(const struct door *d) {
    return d->token;
}

void door_close(struct door *d) {
    if (!d)
        return;
    http_server_destroy(d->http);
    free(d);
}
