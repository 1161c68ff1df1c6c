#pragma once
/* The API of a running server, for commands: JSON in, JSON out, every refusal an error in the
 * server's own words. Where the server is: --url, else CAY_URL (http://..., https://... or
 * unix:PATH), else http://127.0.0.1:8787. The key: CAY_API_KEY. */

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/sse.h"
#include "loop/fetch.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <uv.h>

struct client {
    uv_loop_t loop;
    struct fetch_pool *pool;
    char *base;      /* "http://host:port" */
    char *unix_path; /* of its socket, or NULL */
    char *auth;      /* "Bearer ...", or NULL */
};

struct client_call {
    const char *method;         /* NULL: POST if there is a body, else GET */
    const char *path;           /* with its query */
    const char *accept;         /* NULL: application/json, or text/event-stream with on_event */
    struct fetch_header header; /* one more; its value may be NULL: none */
    const json_t *json;         /* the body; or: */
    const void *body;
    size_t body_len;
    ssize_t (*on_body)(void *ctx, char *out, size_t size); /* as in loop/fetch.h */
    /* Takes the answer's body, of a status below 300, instead of ret_json. Below 0: give up. */
    int (*on_data)(void *ctx, const char *data, size_t len, struct err *err);
    /* Takes its server-sent events, of at most max_event_bytes each; on_data may be NULL then. */
    sse_on_event *on_event;
    size_t max_event_bytes;
    /* Called once, for calls that are started; not for those that are waited for. */
    void (*on_end)(void *ctx, const struct err *err);
    void *ctx;
};

struct client_request;

/* Where the server is, if no option says it. */
const char *client_default_url(void);
int client_init(struct client *c, const char *url, struct err *err);
/* Cancels what runs. Every other handle on the loop must be closed or closing. */
void client_finish(struct client *c);
/* Carries it out. ret_json may be NULL; it is NULL for an answer without a body. */
int client_call(struct client *c, const struct client_call *call, json_t **ret_json,
                struct err *err);
/* Starts it; on_end comes later. The request is dead then. */
int client_start(struct client *c, const struct client_call *call,
                 struct client_request **ret_request, struct err *err);
/* No callback comes any more. NULL is allowed. */
void client_cancel(struct client_request *r);

/* A refusal of a server in its own words, which are in the body: -code. */
int client_refusal(int status, const char *body, size_t len, struct err *err);
/* The text of a member of an answer; "" if there is none. */
const char *client_text(const json_t *j, const char *key);
/* Adds a text as a part of a path or query. */
void client_encode(struct buf *b, const char *text);
/* The same of one name, whose slashes are no separators. */
void client_encode_name(struct buf *b, const char *text);
