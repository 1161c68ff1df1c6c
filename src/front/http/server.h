#pragma once
/* The HTTP/1.1 server: listeners, limits, routes, the guard that every request passes, graceful
 * end. One loop thread owns all of it. */

#include "base/err.h"
#include "front/common/intake.h"
#include "front/http/request.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct http_server;

struct http_limits {
    size_t head_bytes;
    size_t body_bytes;
    size_t connections;
    size_t ws_message_bytes;
    size_t body_pace_bytes; /* each second: who sends a body more slowly is cut off */
    size_t held_bytes; /* bodies that are not whole, and answers that are not read: all of them */
    unsigned header_timeout_ms;
    unsigned body_timeout_ms;
    unsigned idle_timeout_ms;
    unsigned write_timeout_ms;
};

typedef void (*http_handler)(struct http_req *req, void *ctx);
/* Returns true if the request may go on; else it has been answered. */
typedef bool (*http_guard)(struct http_req *req, unsigned flags, void *ctx);
/* Told once for every answered request, for logs and metrics. */
typedef void (*http_observer)(const struct http_req *req, const char *route, int status,
                              int64_t duration_us, void *ctx);

enum {
    HTTP_ROUTE_STREAM = 1 << 0, /* the handler starts at the end of the head and streams the body */
    HTTP_ROUTE_GUEST = 1 << 1,  /* content that guests make, on a host of its own */
    HTTP_ROUTE_PAGE = 1 << 2,   /* the fallback */
    HTTP_ROUTE_WATCH = 1 << 3,  /* its streams have no end of their own: a drain ends them */
    HTTP_ROUTE_LEAVE = 1 << 4,  /* who shuts his side while he waits for the answer is gone */
    HTTP_ROUTE_DIRECT = 1 << 5, /* it does not wait for the store: see struct http_commits */
    HTTP_ROUTE_USER = 1 << 8,   /* first bit that the guard may give a meaning */
};

/* Makes a body into what a handler works with. It may be called in any thread, and sees nothing but
 * its arguments. */
struct http_reader {
    int (*read)(const char *body, size_t len, const void *how, void **ret, struct err *err);
    void (*free)(void *read);
    const void *how; /* settings, of which a thread gets a copy */
    size_t how_bytes;
    bool keeps_body; /* the handler looks at the bytes too */
};
/* What a route without one has, for handlers that look at the bytes too. */
extern const struct http_reader http_reader_json_kept;

struct http_route {
    const char *methods; /* "GET", "GET,POST"; HEAD comes with GET */
    const char *pattern; /* "/v1/runs/{id}"; a last "{rest...}" takes the rest, slashes too */
    http_handler handler;
    void *ctx;
    unsigned flags;
    size_t body_bytes;                /* 0: the server's limit */
    const struct http_reader *reader; /* borrowed; NULL: as JSON */
    /* Writes the body of its errors; NULL: {"error":{"code","message","request_id"}}. */
    void (*write_error)(struct buf *out, const struct err *err);
};

/* What requests and answers wait for: the store's writes, by their tickets (commits.c). */
struct http_commits {
    int64_t (*submitted)(void *ctx);                /* the newest; NULL: nobody waits */
    bool (*has_written)(void *ctx, int64_t ticket); /* true also while it cannot be */
    void *ctx;
};

struct http_server_options {
    uv_loop_t *loop;
    struct http_limits limits;
    http_guard guard;
    /* An OPTIONS request to a known path: may add header fields to its answer. */
    void (*preflight)(struct http_req *req, const char *methods, void *ctx);
    http_observer observer;
    /* Requests for which this returns true go to guest_handler instead of the routes (content that
     * guests make must not share our origin). */
    bool (*is_guest_host)(const char *host, void *ctx);
    http_handler guest_handler; /* always streaming */
    http_handler fallback;      /* for GET paths that no route has; may be NULL */
    struct intake *intake;      /* where large bodies are read; NULL: on the loop */
    const char *(*owner)(const struct http_req *req); /* whose share they take; "" for nobody's */
    const char *(*key)(const struct http_req *req);   /* that they came with; "": none. Or NULL */
    /* Whether a key may still have open streams; see http_server_recheck(). NULL: always. */
    bool (*is_valid)(const char *key, void *ctx);
    struct http_commits commits;
    void *ctx;
};

struct http_limits http_limits_default(void);

struct http_server *http_server_create(const struct http_server_options *options);
/* The route's strings are borrowed for the server's life. */
void http_server_route(struct http_server *s, const struct http_route *route);
void http_server_routes(struct http_server *s, const struct http_route *routes, size_t n);
/* Listens on a descriptor that is bound already. */
int http_server_listen(struct http_server *s, int fd, struct err *err);

/* For what begins from now on. */
void http_server_set_limits(struct http_server *s, const struct http_limits *limits);

/* has_written() may have become true of something. From the loop. */
void http_server_committed(struct http_server *s);

/* Owners have changed: from the loop, every open stream of one that is not valid any more ends, be
 * it an answer in pieces, a WebSocket, a connection that was handed over, or a body that comes. */
void http_server_recheck(struct http_server *s);

struct http_stats {
    size_t connections;
    size_t websockets;
    size_t requests;     /* alive: read, handled or owed an answer */
    size_t held_bytes;   /* of bodies that are not whole */
    size_t unread_bytes; /* of memory for what clients have not read: answers, streams, sockets */
    uint64_t accepted_total;
    uint64_t refused_total; /* connections over the limit */
    uint64_t cut_total;     /* connections that did not read, and had to make room */
    uint64_t requests_total;
    uint64_t bytes_in;
    uint64_t bytes_out;
};
struct http_stats http_server_stats(const struct http_server *s);

/* The server will end soon. It listens still; every answer says that its connection ends, and new
 * WebSockets are refused. */
void http_server_leave(struct http_server *s);
/* Requests that are owed an answer. Streams without an end of their own are none. */
size_t http_server_busy(const struct http_server *s);
/* Stops listening, lets requests finish, closes WebSockets with 1001; on_drained is called when the
 * last connection is gone or after timeout_ms, whichever is first. */
void http_server_drain(struct http_server *s, unsigned timeout_ms, void (*on_drained)(void *ctx),
                       void *ctx);
/* After on_drained, with the loop still running one more turn. */
void http_server_destroy(struct http_server *s);
