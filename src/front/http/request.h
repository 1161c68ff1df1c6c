#pragma once
/* One HTTP request and its response, as a handler sees them. A handler gets a request and owes it
 * one answer: http_respond*() at once or later, or http_stream_begin() ... http_stream_end(). Until
 * that answer the request lives, even when the client is gone: then on_gone is called once, and
 * what is written goes nowhere. After the answer the pointer is dead.
 *
 * No function here runs anybody's callback, and none starts the next request of the connection:
 * that comes from the loop. When a call returns, nothing else has moved. */

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_req;
struct http_ws;
struct http_raw;

enum http_method {
    HTTP_METHOD_GET,
    HTTP_METHOD_HEAD,
    HTTP_METHOD_POST,
    HTTP_METHOD_PUT,
    HTTP_METHOD_PATCH,
    HTTP_METHOD_DELETE,
    HTTP_METHOD_OPTIONS,
    HTTP_METHOD_OTHER,
};

/* A slice of the request's head. */
struct http_text {
    const char *data;
    size_t len;
};

enum http_method http_req_method(const struct http_req *req);
const char *http_method_name(enum http_method method);
/* The method as it was sent, for proxies. */
struct http_text http_req_method_text(const struct http_req *req);
/* Percent-encoded, as sent, without the query; NUL-terminated. */
const char *http_req_path(const struct http_req *req);
/* Without "?", "" if there is none; NUL-terminated. */
const char *http_req_query(const struct http_req *req);
/* Lower-case host of the request without its port ("127.0.0.1", "a.localhost", "[::1]"). */
const char *http_req_host(const struct http_req *req);
/* The Host field as sent, with its port. */
const char *http_req_authority(const struct http_req *req);
/* The value of a header field as a NUL-terminated string, or NULL. A field that was sent more than
 * once gives the first; see http_req_header_count(). */
const char *http_req_header(const struct http_req *req, const char *name);
size_t http_req_header_count(const struct http_req *req, const char *name);
/* Field i, for proxies; false at the end. */
bool http_req_header_at(const struct http_req *req, size_t i, const char **ret_name,
                        const char **ret_value);
/* A path parameter, decoded, as the route names it. NUL-terminated; never NULL for a name that the
 * route has. */
const char *http_req_param(const struct http_req *req, const char *name);
/* A query parameter, decoded: 1 and a string that the caller frees, 0 if it is not there, negative
 * if it is malformed. */
int http_req_query_get(const struct http_req *req, const char *name, char **ret_value,
                       struct err *err);
/* Fails unless every name in the query is in the NULL-terminated list: a filter with a typing error
 * would show everything. */
int http_req_query_check(const struct http_req *req, const char *const *allowed, struct err *err);
/* True if the client lists the media type in Accept, other than by a wildcard. */
bool http_req_accepts(const struct http_req *req, const char *type);
const char *http_req_id(const struct http_req *req);
/* The whole body, for routes that do not stream it. NUL-terminated; the NUL does not count. A large
 * one may have gone when it was read, unless the route's reader keeps it. */
const char *http_req_body(const struct http_req *req, size_t *ret_len);
/* How many bytes it had. */
size_t http_req_body_len(const struct http_req *req);
/* What the route's reader has made of the body: the request's, until the handler returns. Large
 * bodies were read by a thread before the handler began. */
int http_req_read(struct http_req *req, void **ret, struct err *err);
/* For routes without a reader of their own: the body as JSON; an empty body is an error. */
int http_req_json(struct http_req *req, json_t **ret_json, struct err *err);
/* The same of any text; in any thread. */
int http_read_json(const char *body, size_t len, json_t **ret_json, struct err *err);
/* What the guard may set (the caller's identity). */
void http_req_set_user(struct http_req *req, void *user, void (*free_user)(void *));
void *http_req_user(const struct http_req *req);
/* True when the peer is on this machine: loopback, or a Unix socket. */
bool http_req_is_local(const struct http_req *req);

/* True when the client has shut its side after the request: it may wait for the answer, or be gone.
 */
bool http_req_is_shut(const struct http_req *req);

/* on_gone is called when the client leaves before the answer is complete. */
void http_req_on_gone(struct http_req *req, void (*on_gone)(void *ctx), void *ctx);

/* Streaming bodies (routes with HTTP_ROUTE_STREAM): data as it comes, then end. A body that breaks
 * off gives on_gone, no end. */
void http_req_on_body(struct http_req *req,
                      void (*on_data)(void *ctx, const char *data, size_t len),
                      void (*on_end)(void *ctx), void *ctx);
void http_req_body_pause(struct http_req *req);
void http_req_body_resume(struct http_req *req);

/* Adds a field to the answer's head. Name and value must not hold control characters: those that do
 * are left out (values from guests cannot split the head). */
void http_res_header(struct http_req *req, const char *name, const char *value);

void http_respond(struct http_req *req, int status, const char *type, const void *body, size_t len);
void http_respond_text(struct http_req *req, int status, const char *text);
/* Takes the writer's buffer: 500 if it overflowed. */
void http_respond_buf(struct http_req *req, int status, const char *type, struct buf *body);
void http_respond_json(struct http_req *req, int status, const json_t *json);
void http_respond_empty(struct http_req *req, int status);
/* {"error":{"code","message","request_id"}} with the status of the error's code. */
void http_respond_err(struct http_req *req, const struct err *err);
/* When to come again after an error of that kind, unless it was said; nothing for others. */
void http_res_retry_after(struct http_req *req, enum err_code code);
void http_res_retry_after_s(struct http_req *req, int64_t wait_s);

/* Before an answer of a route with HTTP_ROUTE_DIRECT that names what goes on: it leaves when what
 * was submitted to the store is written. */
void http_hold(struct http_req *req);

/* Before http_stream_begin(): how many bytes will come. */
void http_stream_length(struct http_req *req, uint64_t len);
/* Proxies are asked to pass each piece on at once, unless the length was given. */
void http_stream_begin(struct http_req *req, int status, const char *type);
/* The same for server-sent events. When nothing is sent for 15 s, a comment line is: what is
 * written must be whole events. */
void http_sse_begin(struct http_req *req);
/* True if more may be written now. False: wait. on_drain comes when there is room; on_gone comes
 * when the client is gone, or has come already. Whoever reads from somewhere to write here stops at
 * false and has both. */
bool http_stream_write(struct http_req *req, const void *data, size_t len);
/* After http_stream_begin(): whether what is written goes anywhere. Not if the method is HEAD:
 * there is no need to read it then. */
bool http_stream_has_body(const struct http_req *req);
void http_stream_on_drain(struct http_req *req, void (*on_drain)(void *ctx), void *ctx);
void http_stream_end(struct http_req *req);
/* Ends the connection in the middle of the body, so that the client knows that it is not whole. */
void http_stream_break(struct http_req *req);
/* One server-sent event; data may have several lines. event and id may be NULL. */
bool http_sse_send(struct http_req *req, const char *event, const char *id, const char *data,
                   size_t len);

/* WebSocket: takes over the request if it is a proper handshake, else answers with an error. */
struct http_ws_callbacks {
    void (*on_message)(void *ctx, struct http_ws *ws, const char *data, size_t len, bool text);
    /* Called once; the pointer is dead afterwards. */
    void (*on_close)(void *ctx, struct http_ws *ws, int code);
    void (*on_drain)(void *ctx, struct http_ws *ws); /* may be NULL */
};
bool http_req_is_upgrade(const struct http_req *req);
/* NULL if the handshake was refused (and answered). protocol may be NULL. */
struct http_ws *http_ws_accept(struct http_req *req, const char *protocol,
                               const struct http_ws_callbacks *callbacks, void *ctx);
/* False when the peer reads too slowly and the message was not queued: the socket is being closed.
 */
bool http_ws_send(struct http_ws *ws, const char *data, size_t len, bool text);
/* One message of text in three pieces. */
bool http_ws_send_around(struct http_ws *ws, const char *before, const char *text, size_t len,
                         const char *after);
/* The same. text is a string, which is kept and not copied while it waits to be sent: many sockets
 * that are sent the same one after the other share it. */
bool http_ws_send_shared(struct http_ws *ws, const char *before, json_t *text, const char *after);
/* Inside on_message: the message as the caller's own, with a NUL behind it. Large ones need not be
 * copied so. */
char *http_ws_take(struct http_ws *ws);
/* Reads nothing more of it until it is false again. What came together with the last message is
 * told still: 64 KiB at most. */
void http_ws_pause(struct http_ws *ws, bool paused);
/* Bytes that wait to be sent. */
size_t http_ws_queued(const struct http_ws *ws);
/* on_drain is called when few of them are left. False: there are none. */
bool http_ws_want_drain(struct http_ws *ws);
void http_ws_close(struct http_ws *ws, int code, const char *reason);

/* Hands the connection over: the head of a last answer (101) is sent as given, after that bytes go
 * through as they come. For proxies of protocols that begin as HTTP. */
struct http_raw_callbacks {
    void (*on_data)(void *ctx, const char *data, size_t len);
    /* Called once, unless http_raw_close() was; the pointer is dead afterwards. */
    void (*on_close)(void *ctx);
    void (*on_drain)(void *ctx);
};
/* NULL if it could not be (the request is answered then). */
struct http_raw *http_raw_accept(struct http_req *req, const char *head, size_t len,
                                 const struct http_raw_callbacks *callbacks, void *ctx);
/* False: wait for on_drain. */
bool http_raw_write(struct http_raw *r, const void *data, size_t len);
void http_raw_pause(struct http_raw *r, bool paused);
/* Closes it when all is written; the pointer is dead. */
void http_raw_close(struct http_raw *r);

/* The address of the peer as text, "" for a Unix socket. Returns out. */
#define HTTP_PEER_SIZE 64
char *http_req_peer(const struct http_req *req, char out[HTTP_PEER_SIZE]);
