#pragma once
/* What the files of http/ share; nobody else includes this. */

#include "base/buf.h"
#include "base/id.h"
#include "front/common/share.h"
#include "front/http/server.h"
#include "http1/head.h"
#include "loop/later.h"

#include <uv.h>
#include <wslay/wslay.h>

enum { HEADERS_MAX = 100, PARAMS_MAX = 4 };

enum conn_state {
    CONN_HEAD,   /* waiting for or reading a head */
    CONN_BODY,   /* reading a body */
    CONN_HANDLE, /* the message is complete, the answer is not */
    CONN_WS,     /* the connection is a WebSocket */
    CONN_RAW,    /* its bytes go through as they are */
    CONN_LINGER, /* answered with an error in the middle of a body: discarding what comes */
    CONN_CLOSING,
};

struct http_conn;

struct http_req {
    struct http_server *server;
    struct http_conn *conn; /* NULL when the client is gone */
    const struct http_route *route;
    int64_t start_ns;
    char id[28];

    struct http1_head head;
    enum http_method method;
    const char *path;
    const char *query;
    const char *authority;
    char *host;
    char *params[PARAMS_MAX];
    const char *param_names[PARAMS_MAX];
    size_t nparams;

    struct buf body;
    size_t body_seen;
    void *read;          /* what the route's reader has made of it */
    struct err read_err; /* why there is none; code 0: it was not tried */
    size_t held;         /* of the server's held_bytes, while the body is not whole */
    int64_t length;      /* of the answer's body, -1: not known before its end */
    bool keep_alive;
    bool body_done;
    bool body_paused;
    void (*on_data)(void *ctx, const char *data, size_t len);
    void (*on_end)(void *ctx);
    void *body_ctx;
    void (*on_gone)(void *ctx);
    void *gone_ctx;
    void (*on_drain)(void *ctx);
    void *drain_ctx;
    void *user;
    void (*free_user)(void *);

    int64_t ticket; /* it begins when the store has written that; 0: it has begun */
    struct later begin;

    struct buf extra; /* further header fields of the answer, ready to send */
    int status;
    bool streaming;   /* the answer's head is out */
    bool events;      /* and it is a stream of events */
    uint64_t said_ms; /* when something of it was last written */
    bool chunked;
    bool bodyless;                          /* the answer has a head only */
    bool owed;                              /* a handler owes an answer */
    struct http1_field fields[HEADERS_MAX]; /* of the head; last, and not initialised */
};

struct http_conn {
    struct http_server *server;
    struct http_conn *prev;
    struct http_conn *next;
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } uv;
    struct http1_body body;
    struct buf in;   /* bytes that wait: a part of a head, or what was pipelined */
    struct buf soon; /* small pieces of a stream that go out together, in the next turn */
    struct later flush;
    size_t scanned; /* bytes of a part of a head that hold no end of it */
    struct http_req *req;
    struct http_ws *ws;
    struct http_raw *raw;
    enum conn_state state;
    struct later later;         /* goes on with it, or ends it, in the next turn of the loop */
    uint64_t accepted_ms;       /* 0: it has had a request */
    uint64_t deadline_ms;       /* of the present state, 0: none */
    uint64_t write_deadline_ms; /* while bytes wait to be written */
    uint64_t pace_ms;           /* when the pace of a body was looked at last */
    size_t pace_seen;           /* what had come of it until then */
    /* What the client has not taken (unsent.c). */
    struct unsent *unsent;
    struct unsent *unsent_last;
    size_t queued;       /* bytes of it, and of the write that waits for the socket */
    size_t queue_first;  /* bytes of the write that began the queue */
    uint64_t taken_ms;   /* when the client last took something, or the queue began */
    int64_t hold_ticket; /* nothing leaves before the store has written that; 0: it may */
    struct later release;
    bool waking;         /* a write waits for the socket */
    bool drain_wanted;   /* somebody is told when the queue is short */
    char owner[ID_SIZE]; /* whose share the queue takes; "": nobody's */
    char key[ID_SIZE];   /* that it came with; "": none */
    bool local;
    bool reading;
    bool eof;        /* the client will send no more */
    bool throttled;  /* the producer was told to wait */
    bool running;    /* run() is on the stack */
    bool head_begun; /* a part of a head is here, and its deadline runs */
    bool broken;     /* a write failed: it closes in the next turn of the loop */
    bool closing;
    bool shut; /* our side is shut down after the last write */
};

struct http_server {
    struct http_server_options opt;
    struct http_req *handled; /* whose handler is being called; NULL: none, or it was answered */
    struct http_route *routes;
    size_t nroutes;
    struct http_route guest_route;
    struct http_route fallback_route;
    struct http_conn *conns;
    struct http_stats stats;
    uv_timer_t sweep;
    size_t delayed; /* requests and connections that wait for the store */
    struct later_queue later;
    struct later recheck;    /* of who is valid still */
    struct later_queue last; /* what is written soon: behind what else the loop has to do */
    struct listener *listeners;
    char date[40];
    uint64_t date_ms;
    char id_prefix[9];
    uint64_t next_id;
    struct shares unread;        /* of unread_bytes, by keys */
    struct unsent_block *shared; /* the last that was shared, while it is used; or NULL */
    uint64_t told_cut_ms;        /* when it was last said that clients are cut off */
    uint64_t told_refused_ms;    /* when it was last said that connections cannot be accepted */
    bool leaving;                /* http_server_leave(); also while it drains */
    bool draining;
    void (*on_drained)(void *ctx);
    void *drained_ctx;
    uv_timer_t drain_timer;
    bool drain_timer_used;
    int handles; /* of the server itself that are open */
    bool destroyed;
    char read_buf[65536];
};

struct listener {
    struct listener *next;
    struct http_server *server;
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } uv;
    bool unix_socket;
};

/* conn.c */
/* The one place that changes a connection's state. */
void conn_move(struct http_conn *c, enum conn_state to);
/* fd -1: libuv has it. */
void conn_accept(struct listener *l, int fd);
/* A server that ends gives a new connection so long to send its first request. */
enum { FIRST_MS = 1000 };
bool conn_expects(const struct http_conn *c, uint64_t now_ms);
void conn_close(struct http_conn *c);
/* Writes the pieces now or queues them. False if the connection is of no more use. */
bool conn_write(struct http_conn *c, const uv_buf_t *pieces, unsigned n);
/* What pieces are in, so that what has to wait need not be copied; each may be NULL. */
struct unsent_source {
    struct buf *own; /* the last piece is in it, and it may be taken */
    json_t *text;    /* a string that is a piece: it may be shared */
};
bool conn_write_from(struct http_conn *c, const uv_buf_t *pieces, unsigned n,
                     const struct unsent_source *from);
/* For pieces that others are likely to follow at once: what comes in one turn of the loop goes out
 * in one call. text is a string that is one of them, or NULL. */
bool conn_write_soon(struct http_conn *c, const uv_buf_t *pieces, unsigned n, json_t *text);
/* The client has taken something of what waits: from the loop. */
void conn_taken(struct http_conn *c);
void conn_sweep(struct http_server *s);
/* There is somebody whose time to speak runs. */
void http_server_watch(struct http_server *s);
/* The answer is complete: go on with the next request, or close. */
void conn_answered(struct http_conn *c, struct http_req *req);
/* Goes on in the next turn of the loop with input that was kept, and reads on. */
void conn_resume(struct http_conn *c);
/* The connection is of no more use: it ends in the next turn of the loop, so that nothing its users
 * hold is taken away under their hands. */
void conn_break(struct http_conn *c);
void conn_body_paused(struct http_conn *c, bool paused);
void conn_read_start(struct http_conn *c);
void conn_read_stop(struct http_conn *c);
void conn_linger(struct http_conn *c);
void conn_end_after_writes(struct http_conn *c);
/* The body of the request is not held any more. */
void conn_body_released(struct http_req *req);

/* unsent.c */
/* Puts what was not sent of the pieces into the queue. False: the queue is longer than it may be.
 */
bool unsent_add(struct http_conn *c, const uv_buf_t *pieces, unsigned n, size_t sent,
                const struct unsent_source *from);
/* Frees the queue. */
void unsent_drop(struct http_conn *c);
/* Writes what was held back. */
void unsent_release(struct http_conn *c);
/* A queue that is longer makes its producer wait. When clients that do not read make the server
 * hold much, each may have less. */
size_t unsent_high_mark(const struct http_conn *c);

/* head.c */
/* Parses a whole head into req, and readies the connection for the body. */
int head_parse(struct http_conn *c, struct http_req *req, const char *head, size_t len,
               struct err *err);

/* request.c */
struct http_req *req_create(struct http_server *s);
void req_destroy(struct http_req *req);
/* The error answer of the parser: no handler owes anything. */
void req_fail(struct http_conn *c, const struct err *err, int status);
/* Drops the link to a connection that goes away. */
void req_gone(struct http_req *req);

/* reading.c */
/* The body is large: the handler begins when a thread has read it. False: it may begin. */
bool req_read_apart(struct http_req *req);
/* Calls the handler. What was made of the body goes when it returns: a request may wait for its
 * answer for hours, and a tree is many times as large as its text. */
void req_handle(struct http_req *req);
/* Calls the handler. */
void req_begin(struct http_req *req);
/* commits.c: whether the request waits for the store; it does no more; whether its answer does; the
 * connection ends. */
bool commits_delay(struct http_req *req);
void commits_forget(struct http_req *req);
void commits_hold(struct http_req *req);
void commits_close(struct http_conn *c);
void req_read_done(struct http_req *req);

/* router.c */
/* At the end of the head: chooses the route and asks the guard. False if the request was answered.
 */
bool router_admit(struct http_server *s, struct http_req *req);

/* websocket.c */
bool ws_is_paused(const struct http_ws *ws);
void ws_feed(struct http_ws *ws, const char *data, size_t len);
void ws_conn_gone(struct http_ws *ws);
void ws_drained(struct http_ws *ws);
void ws_going_away(struct http_ws *ws);
void ws_tick(struct http_ws *ws, uint64_t now_ms);

/* follow.c */
void follow_tick(struct http_conn *c, uint64_t now_ms);

/* raw.c */
bool raw_is_paused(const struct http_raw *r);
void raw_feed(struct http_raw *r, const char *data, size_t len);
void raw_drained(struct http_raw *r);
void raw_conn_gone(struct http_raw *r);

/* server.c */
/* Frees a destroyed server once nothing of it is open any more. */
void server_release(struct http_server *s);

const char *server_date(struct http_server *s);
