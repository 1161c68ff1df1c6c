#pragma once
/* What the files of this program share. One egress holds lines, one for each open sandbox; a line
 * holds its policy and the connections of its guests; a connection carries one request at a time,
 * which becomes a tunnel or a forward. */

#include "base/buf.h"
#include "base/err.h"
#include "egress/decide.h"
#include "http1/head.h"
#include "loop/channel.h"
#include "loop/fetch.h"
#include "wire/egress.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

enum {
    READ_BYTES = 64 * 1024,
    WRITE_HIGH_BYTES = 256 * 1024,
    STREAM_BYTES =
        256 * 1024, /* a longer body that need not be read as a whole goes out as it comes */
};

struct egress {
    uv_loop_t *loop;
    struct channel *channel;
    struct egress_config config;
    bool configured;
    struct line *lines;
    size_t nlines;
    uint64_t held_bytes; /* by bodies, of all sandboxes */
    size_t nidle;        /* upstreams without a request */
    uint64_t next_number;
    uv_timer_t sweep; /* deadlines, and usage that is to be told; runs while there is need */
    char read_buf[READ_BYTES];
};

struct bucket {
    double level;
    int64_t filled_ms;
};

struct line {
    struct egress *egress;
    struct line *next;
    char *id;
    struct egress_policy policy;
    struct egress_usage usage;
    bool usage_untold;
    int64_t usage_told_ms;
    uv_tcp_t listener;
    uint32_t port;
    struct upstream *upstreams;
    struct egress_conn *conns;
    size_t nconns;
    size_t ntunnels;
    uint64_t held_bytes;
    struct bucket requests;
    struct bucket asks;     /* of the front, before models are called */
    struct bucket events;   /* of what was let out */
    struct bucket refusals; /* that are told one by one */
    struct fold *folds;
    size_t nfolds;
    int64_t folds_told_ms;
    unsigned refs; /* the listener, and each connection until its memory is gone */
    bool closed;
};

enum egress_conn_state {
    EGRESS_CONN_HEAD,   /* waits for a head, or reads one */
    EGRESS_CONN_BODY,   /* reads a body */
    EGRESS_CONN_SEND,   /* reads a body that goes out as it comes */
    EGRESS_CONN_BUSY,   /* a forward is under way, or a tunnel is being made */
    EGRESS_CONN_TUNNEL, /* bytes pass both ways */
    EGRESS_CONN_LINGER, /* answered for the last time; what still comes is thrown away */
    EGRESS_CONN_CLOSED, /* its memory goes with the last handle */
};

/* What the guest sends. */
enum guest_half { HALF_HELD, HALF_READING, HALF_ENDED };

/* How BEGUN was told of a request: ENDED is due after that, and told in the same way. */
enum told { TOLD_NOTHING, TOLD_FOLDED, TOLD_SINGLY };

struct egress_conn {
    struct line *line;
    struct egress_conn *next;
    struct egress_conn **link;
    uv_tcp_t tcp;
    unsigned refs; /* handles that are open, requests that run */
    enum egress_conn_state state;
    enum guest_half half;
    bool throttled; /* too much waits to be written */
    bool running;   /* its input is being taken apart */
    int64_t deadline_ms;
    size_t queued;
    struct buf in;
    size_t scanned;
    struct http1_body reader;
    struct http1_head head;
    struct http1_field fields[HTTP1_FIELDS_MAX];
    struct buf body;
    uint64_t held_bytes; /* in the sandbox's account, until the request ends */
    struct decision decision;
    struct tunnel *tunnel;
    struct forward *forward;
    struct egress_event event; /* of the present request; texts are borrowed */
    char reason[512];
    char route[EGRESS_NAME_MAX + 1];
    char model[128];
    int64_t begun_ms;
    enum told told;
};

/* line.c */
/* Owns fd from here; takes the policy if it succeeds. */
int line_open(struct egress *e, const char *id, struct egress_policy *policy,
              struct egress_usage *usage, int fd, struct err *err);
struct line *line_find(struct egress *e, const char *id);
/* Owns the policy from here. */
void line_set_policy(struct line *b, struct egress_policy *policy);
void line_close(struct line *b);
void line_unref(struct line *b);
/* The caps on requests and bytes. */
int line_admit(struct line *b, struct err *err);
bool line_bytes_left(const struct line *b);
void line_count(struct line *b, uint64_t bytes_in, uint64_t bytes_out);
/* Memory of bodies, in the accounts of the sandbox and of all; false if one of them is over. */
bool line_hold(struct line *b, uint64_t had, uint64_t has);
void line_tell_usage(struct line *b);
/* True, and one less in it, if there was one. */
bool bucket_take(struct bucket *b, double per_second, double capacity);
void egress_sweep_start(struct egress *e);
/* Whether the address that this request leads to may be a private one. */
bool egress_is_exempt(const struct egress *e, const struct decision *d);

/* upstream.c */
#define UPSTREAM_PLAIN SIZE_MAX /* in place of a route: allowed hosts, over plain http */
struct upstream;
/* The connections of this sandbox to where one of its routes leads, for one request. */
int upstream_take(struct line *b, size_t route, struct upstream **ret, struct err *err);
struct fetch_pool *upstream_pool(const struct upstream *u);
/* The request is over. NULL is allowed. */
void upstream_release(struct upstream *u);
/* The routes are no longer those that the connections were made for. */
void upstreams_drop(struct line *b);
/* Closes those that were not used for some time. True while there are any. */
bool upstreams_sweep(struct line *b, int64_t now_ms);

/* audit.c */
/* Tells it, at once or, where there are too many, folded with others like it. True if at once. */
bool audit_tell(struct line *b, const struct egress_event *e, bool always);
void audit_flush(struct line *b);
bool audit_is_due(const struct line *b, int64_t now_ms);

/* conn.c */
/* The one place that changes a connection's state. */
void egress_conn_move(struct egress_conn *c, enum egress_conn_state to);
void egress_conn_accept(struct line *b);
/* At any time; the memory goes when the last handle is closed. */
void egress_conn_close(struct egress_conn *c);
void egress_conn_unref(struct egress_conn *c);
/* Writes now or queues a copy. False if the connection is of no more use. */
bool egress_conn_write(struct egress_conn *c, const void *data, size_t len);
/* Ends the request with an answer of our own, and tells why: `reason`, or what the guest is told.
 */
void egress_conn_refuse(struct egress_conn *c, const struct err *err, const char *reason);
/* The answer is complete: go on with the next request, or close. `keep` if the guest can tell
 * where it ended. */
void egress_conn_answered(struct egress_conn *c, bool keep);
/* Cuts it, and tells why. */
void egress_conn_cut(struct egress_conn *c, const char *reason);
/* The same, for what the guest did or a limit. The guest is sent these last bytes, if there are
 * any. */
void egress_conn_deny(struct egress_conn *c, const char *reason, const void *last, size_t len);
void egress_conn_set_deadline(struct egress_conn *c, uint32_t ms);
/* Tells BEGUN; ENDED is told when it is answered, cut or closed. */
void egress_conn_tell_begun(struct egress_conn *c);
/* Some of a body that goes out as it comes has gone. */
void egress_conn_body_taken(struct egress_conn *c, size_t len);
/* Reads on, or not, as the state wants it. */
void egress_conn_update_reading(struct egress_conn *c);

/* tunnel.c */
void tunnel_start(struct egress_conn *c);
/* The guest sent something, or its end. */
void tunnel_from_guest(struct egress_conn *c, const char *data, size_t len);
void tunnel_guest_ended(struct egress_conn *c);
/* Whether its server takes no more for now. */
bool tunnel_is_full(const struct egress_conn *c);
/* What was written to the guest is out. */
void tunnel_guest_drained(struct egress_conn *c);
void tunnel_close(struct egress_conn *c);

/* forward.c */
void forward_start(struct egress_conn *c);
void forward_guest_drained(struct egress_conn *c);
/* The front has said whether a call of a model may go out. */
void forward_granted(struct egress_conn *c, const struct egress_grant *g);
/* Whether nothing of the request has gone out yet. */
bool forward_waits(const struct egress_conn *c);
/* More of the body has come, or its end. */
void forward_body_came(struct egress_conn *c);
void forward_close(struct egress_conn *c);

/* main.c */
bool egress_send(struct egress *e, uint16_t type, uint64_t id, const struct buf *payload);
