#pragma once
/* Shared by the files of this folder: a stream, and what a provider adds to it. */

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/sse.h"
#include "front/model/model.h"
#include "front/model/reply.h"
#include "loop/fetch.h"
#include "loop/later.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct models {
    uv_loop_t *loop;
    struct models_options opt;
    struct model_catalog *catalog;
    struct fetch_pool *pool;
    char *urls[MODEL_PROVIDERS]; /* the address that requests go to; NULL for the demo */
    struct model_stream *streams;
    struct later_queue turns;
};

enum { PROVIDER_HEADERS_MAX = 8 };

struct provider {
    /* Writes the body of the request; the messages are normalised. */
    void (*write)(const struct models *m, const struct model_request *r, const json_t *messages,
                  struct json_writer *w);
    /* Fills at most PROVIDER_HEADERS_MAX fields; `space` holds texts that are made for it. */
    size_t (*headers)(const struct models *m, struct fetch_header *out, struct buf *space);
    /* One event of the answer: tells its content, stop, end and usage to the stream. An error that
     * it returns ends the attempt; it says in s->retryable whether another may help. */
    int (*on_event)(struct model_stream *s, const char *data, size_t len, struct err *err);
    /* The same for one that was read. */
    int (*on_tree)(struct model_stream *s, json_t *event, struct err *err);
    /* Adds events to out which say the same, and none of them much. In any thread. */
    void (*cut)(json_t *event, json_t *out);
};

enum {
    MODEL_AT_ONCE_BYTES = 16 << 10, /* what is larger is read and written by a thread... */
    MODEL_PIECE_BYTES = 8 << 10,    /* ...and told in pieces, a few in a turn of the loop */
};

/* What a thread does for a stream, on memory of its own (aside.c). */
struct stream_aside {
    struct model_stream *stream; /* NULL: it is over */
    struct intake_item *item;
    void (*work)(struct stream_aside *a); /* in the thread */
    void (*done)(struct model_stream *s, struct stream_aside *a);
    const struct provider *provider;
    const char *name; /* the provider's */
    int rc;
    struct err err;
    char *data; /* of an event */
    size_t len;
    int high;
    json_t *pieces;            /* what it was cut into */
    struct reply_input *input; /* of a tool call */
    const struct models *m;    /* of a request: */
    struct model_info info;
    struct model_request request;
    char *system;
    json_t *messages;
    struct buf body; /* what it is written to */
};

extern const struct provider provider_anthropic;
extern const struct provider provider_openai;

enum stream_state {
    STREAM_ASKING,    /* an attempt is on its way; of the demo, all of it */
    STREAM_EVENTS,    /* the answer has begun */
    STREAM_WHOLE,     /* its content is whole; only the end of the stream is missing */
    STREAM_FINISHED,  /* the server said that this was all */
    STREAM_COMPLAINT, /* the answer is no event stream: it is read for what it says is wrong */
    STREAM_RESTING,   /* until the next attempt */
    STREAM_OVER,      /* ended or cancelled: no callback any more, freed by the last leave */
};

/* What the server said of another attempt. */
enum retry_advice { RETRY_UNSAID, RETRY_WANTED, RETRY_UNWANTED };

struct model_stream {
    enum stream_state state;
    struct models *m;
    struct model_stream *next;
    struct model_stream **link;
    struct model_info info;
    const struct provider *provider; /* NULL: the demo */
    struct model_callbacks cb;
    void *ctx;
    struct reply reply;
    struct sse sse;
    struct buf body;    /* of the request, for further attempts */
    size_t asked_bytes; /* about, of one without a body: of the demo */
    struct buf error_body;
    struct buf signature; /* of the thinking block that is open */
    json_t *ids;          /* of the tool calls in the conversation */
    struct fetch *fetch;
    struct demo *demo;
    uv_timer_t timer; /* until the next attempt, or the next piece of the demo */
    int64_t deadline_ms;
    unsigned attempt;
    int status;
    unsigned retry_after_ms;
    enum retry_advice advice;
    bool retryable; /* whether another attempt may help, as far as was read */
    struct model_usage usage;
    bool input_known;
    bool output_known;
    bool usage_odd; /* some count was none: all of them are estimated */
    enum model_stop stop;
    int high;           /* the first half of a split character, or 0 */
    size_t event_bytes; /* of the one that is told */
    size_t turn_bytes;  /* that came since others had a turn */
    struct later turn;  /* posted while it waits for the next one */
    /* What comes waits while a thread reads something, or pieces of it are told. */
    char *owner;
    struct stream_aside *aside;
    json_t *pieces; /* events */
    size_t piece;   /* the next of them */
    struct buf rest;
    bool ended; /* the connection has, meanwhile... */
    bool broke; /* ...because of this */
    struct err why;
    unsigned depth;
};

/* Tells the usage so far. */
int stream_usage(struct model_stream *s);
/* Why the answer stops, once its content is whole. */
void stream_stop(struct model_stream *s, enum model_stop stop);
/* The server's last word. */
void stream_finish(struct model_stream *s);
bool stream_is_over(const struct model_stream *s);
/* Cancelled: nobody is told. */
void stream_drop(struct model_stream *s);
/* Ends it well, or with an error that may be tried again unless something came. The stream may be
 * gone afterwards unless it was entered. */
void stream_done(struct model_stream *s);
void stream_fail(struct model_stream *s, const struct err *err, bool retryable);
/* Sends the request; fails only for what is wrong with the request itself. */
int stream_attempt(struct model_stream *s, struct err *err);
/* Around everything that may call back: the last leave frees a dead stream. */
void stream_enter(struct model_stream *s);
void stream_leave(struct model_stream *s);

/* One event's JSON. A character that a server split between two events (JSON.stringify writes its
 * halves as lone surrogates) is put together again: high is the half that waits, or 0. */
int event_parse(const char *provider, int *high, const char *data, size_t len, json_t **ret_event,
                struct err *err);
/* The next piece of a text, from *at on; NULL: that was all. */
json_t *event_piece(const json_t *text, size_t *at);

/* --- aside.c --- */

/* Whether the thread is to do it. */
bool stream_is_large(const struct model_stream *s, size_t bytes);
/* Begins the work of a, which it takes; its done comes from the loop, unless the stream is over. */
void stream_start_aside(struct model_stream *s, size_t bytes, struct stream_aside *a);
void stream_stop_aside(struct model_stream *s);
/* Frees a tree in a thread. */
void stream_dispose(struct model_stream *s, json_t *tree);
struct stream_aside *aside_event(const struct model_stream *s, const char *data, size_t len);
struct stream_aside *aside_input(struct reply_input *input);
/* Takes the messages, which are normalised. */
struct stream_aside *aside_request(const struct model_stream *s, const struct model_request *r,
                                   json_t *messages);
/* For a provider's error object or body: the text for a person, and whether trying again helps. The
 * type may be NULL. */
int stream_error(struct model_stream *s, int status, const char *type, const char *message,
                 struct err *err);

/* The same for an answer that is no event stream, from its status and what was read of it. */
void stream_body_error(struct model_stream *s, struct err *err);

/* The keys that `extra` of the model replaces are not written otherwise. */
bool extra_has(const struct model_request *r, const char *key);
void extra_write(const struct model_request *r, struct json_writer *w);

int demo_start(struct model_stream *s, const struct model_request *r, const json_t *messages,
               struct err *err);
void demo_destroy(struct demo *d);
