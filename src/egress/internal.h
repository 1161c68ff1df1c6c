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
    struct fetch_pool *pool;
    struct egress_config config;
    bool configured;
    struct line *lines;
    size_t nlines;
    uint64_t held_bytes; /* by bodies, of all sandboxes */
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
    struct conn *conns;
    size_t nconns;
    size_t ntunnels;
    uint64_t held_bytes;
    struct bucket requests;
    struct bucket events;   /* of what was let out */
    struct bucket refusals; /* that are told one by one */
    struct fold *folds;
    size_t nfolds;
    int64_t folds_told_ms;
    unsigned refs; /* the listener, and each connection until its memory is gone */
    bool closed;
};

enum conn_state {
    CONN_HEAD,   /* waits for a head, or reads one */
    CONN_BODY,   /* reads a body */
    CONN_SEND,   /* reads a body that goes out as it comes */
    CONN_BUSY,   /* a forward is under way, or a tunnel is being made */
    CONN_TUNNEL, /* bytes pass both ways */
    CONN_LINGER, /* answered for the last time; what still comes is thrown away */
};

struct conn {
    struct line *line;
    struct conn *next;
    struct conn **link;
    uv_tcp_t tcp;
    unsigned refs; /* handles that are open, requests that run */
    enum conn_state state;
    bool closing;
    bool reading;
    bool eof;       /* the guest sends no more */
    bool throttled; /* too much waits to be written */
    bool stalled;   /* the server of its tunnel takes no more */
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
    bool begun;   /* BEGUN was told, ENDED is due */
    bool singled; /* and was told by itself: so is ENDED */
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
/* Whether this upstream's address may be a private one. */
bool egress_is_exempt(const struct egress *e, const char *host, uint32_t port);

/* audit.c */
/* Tells it, at once or, where there are too many, folded with others like it. True if at once. */
bool audit_tell(struct line *b, const struct egress_event *e, bool always);
void audit_flush(struct line *b);
bool audit_is_due(const struct line *b, int64_t now_ms);

/* conn.c */
/* The one place that changes a connection's state. */
void conn_move(struct conn *c, enum conn_state to);
void conn_accept(struct line *b);
/* At any time; the memory goes when the last handle is closed. */
void conn_close(struct conn *c);
void conn_unref(struct conn *c);
/* Writes now or queues a copy. False if the connection is of no more use. */
bool conn_write(struct conn *c, const void *data, size_t len);
/* Ends the request with an answer of our own, and tells why: `reason`, or what the guest is told.
 */
void conn_refuse(struct conn *c, const struct err *err, const char *reason);
/* The answer is complete: go on with the next request, or close. `keep` if the guest can tell
 * where it ended. */
void conn_answered(struct conn *c, bool keep);
/* Cuts it, and tells why. */
void conn_cut(struct conn *c, const char *reason);
/* The same, for what the guest did or a limit. The guest is sent these last bytes, if there are
 * any. */
void conn_deny(struct conn *c, const char *reason, const void *last, size_t len);
void conn_set_deadline(struct conn *c, uint32_t ms);
/* Tells BEGUN; ENDED is told when it is answered, cut or closed. */
void conn_tell_begun(struct conn *c);
/* Some of a body that goes out as it comes has gone. */
void conn_body_taken(struct conn *c, size_t len);
/* Reads on, or not, as the state wants it. */
void conn_update_reading(struct conn *c);

/* tunnel.c */
void tunnel_start(struct conn *c);
/* The guest sent something, or its end. */
void tunnel_from_guest(struct conn *c, const char *data, size_t len);
void tunnel_guest_ended(struct conn *c);
/* What was written to the guest is out. */
void tunnel_guest_drained(struct conn *c);
void tunnel_close(struct conn *c);

/* forward.c */
void forward_start(struct conn *c);
void forward_guest_drained(struct conn *c);
/* More of the body has come, or its end. */
void forward_body_came(struct conn *c);
void forward_close(struct conn *c);

/* main.c */
bool egress_send(struct egress *e, uint16_t type, uint64_t id, const struct buf *payload);
