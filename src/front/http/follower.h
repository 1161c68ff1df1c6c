#pragma once
/* An answer that is made of what happens elsewhere: the events of a job, the output of a command,
 * the pieces of a file. Whoever has one embeds a follower, says how the next piece is sent, and
 * calls http_follower_more() whenever there may be one. The rest is done here: a client that reads
 * slowly is sent nothing until it has read, a client that leaves is noticed, and there is one end.
 *
 * The memory is the owner's until free(), which is called once: after the end, or when the client
 * has left. Keep-alive and the check of keys are those of every open stream (follow.c). */

#include "front/http/request.h"

enum http_next {
    HTTP_NEXT_MORE,  /* something was sent; there may be more */
    HTTP_NEXT_WAIT,  /* there is nothing now: http_follower_more() will be called */
    HTTP_NEXT_END,   /* that was all */
    HTTP_NEXT_BREAK, /* the answer is not whole: the connection ends */
};

struct http_follower_type {
    /* Sends a piece, if there is one. Not called while the client has not read the pieces before
     * it, nor for a HEAD. NULL: pieces are sent by others. */
    enum http_next (*next)(void *ctx);
    /* Sends the last piece; answers the request if the stream has not begun. NULL: there is none.
     */
    void (*end)(void *ctx);
    /* The client has left, and the request is still there. NULL: there is nothing to do. */
    void (*gone)(void *ctx);
    /* The request is gone. NULL: somebody else frees the memory. */
    void (*free)(void *ctx);
};

struct http_follower {
    struct http_req *req; /* NULL: it has ended, or the client has left */
    const struct http_follower_type *type;
    void *ctx;
    bool streams; /* the head is out */
    bool full;    /* the client has not read what it was sent */
};

/* From now on a client that leaves is noticed. */
void http_follower_init(struct http_follower *f, struct http_req *req,
                        const struct http_follower_type *type, void *ctx);
/* The head of a stream of this media type; NULL: of events. Nothing if it is out. */
void http_follower_begin(struct http_follower *f, const char *type);
/* False: the client has to read first. */
bool http_follower_write(struct http_follower *f, const void *data, size_t len);
bool http_follower_send(struct http_follower *f, const char *event, const char *id,
                        const char *data, size_t len);
/* Sends what there is; ctx is the follower, which may be freed when this returns. */
void http_follower_more(void *ctx);
/* Ends it now, without next(). Freed when these return. */
void http_follower_end(struct http_follower *f);
/* Answers with the error; a stream breaks off. */
void http_follower_fail(struct http_follower *f, const struct err *err);
