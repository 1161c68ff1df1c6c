#pragma once
/* HTTP requests to other servers, on the loop: libcurl's multi interface bound to libuv. A pool
 * holds the connections that are kept for reuse; a fetch is one request whose answer streams in by
 * callbacks. Only http and https, certificates are always verified, proxies of the environment are
 * ignored, redirects are not followed unless asked for. Nothing here is logged. */

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <uv.h>

struct fetch_pool;
struct fetch;

struct fetch_header {
    const char *name;
    const char *value;
    bool secret; /* wiped when the fetch ends; refused together with redirects */
};

enum { FETCH_WAIT = -2 };

struct fetch_options {
    const char *url;
    const char *unix_path; /* the socket of a server on this machine; NULL: as the URL says */
    const char *proxy;     /* "http://127.0.0.1:PORT": all of it goes through a tunnel of its own
                              there, which resolves the name; NULL: none */
    bool decode;           /* ask for gzip and undo it: max_body_bytes and on_data are of what comes
                              out */
    const char *method;    /* NULL: POST if there is a body, else GET */
    const struct fetch_header *headers;
    size_t nheaders;
    const void *body; /* copied */
    size_t body_len;
    /* Instead of a body: asked for its next bytes; 0 is its end, -1 breaks the request off,
     * FETCH_WAIT is that fetch_body_ready() will be called. Its length is body_len, or 0 if that is
     * not known. Goes over a connection of its own, since it cannot be sent twice. Not asked any
     * more once the server has refused the request. NULL: none. */
    ssize_t (*on_body)(void *ctx, char *out, size_t size);
    /* Over a connection of its own, which nobody uses afterwards: for requests of different keys to
     * servers that they chose. */
    bool alone;
    unsigned connect_timeout_ms; /* 0: 10 s */
    unsigned idle_timeout_ms;    /* no byte for so long; 0: none. Does not count while paused, nor
                                    while a body is waited for */
    unsigned total_timeout_ms;   /* 0: none */
    size_t max_body_bytes;       /* 0: none */
    unsigned max_redirects;      /* 0: a redirect is an answer like any other */
    const char *ca_file;         /* NULL: the system's */
    /* Signed by AWS's Signature V4: "aws:amz:REGION:s3", with the id of the key and its secret.
     * The URL has only letters, digits and "-._~/", and a header names the hash of the body. NULL:
     * not signed. */
    const char *sign;
    const char *user;
    const char *password;
    /* Asked for every address before a connection to it is made or used again; false refuses it.
     * NULL allows all. */
    bool (*on_address)(void *ctx, const struct sockaddr *address);
    /* The status and header fields of the final answer are there. May be NULL. */
    void (*on_head)(void *ctx, struct fetch *f, int status);
    void (*on_data)(void *ctx, const char *data, size_t len);
    /* Called once, err NULL when the answer is whole. The fetch is dead when it returns. */
    void (*on_end)(void *ctx, const struct err *err);
    void *ctx;
};

/* What a reference (a Location field) means on a page, as a new string: an http or https address
 * without a user's name, its fragment left out. */
int fetch_join(const char *base, const char *reference, char **ret_url, struct err *err);

/* Loads what libcurl reads from files when it starts. For a process that is locked before its first
 * pool is made; it is never undone. */
int fetch_prepare(struct err *err);
int fetch_pool_create(uv_loop_t *loop, unsigned max_connections, struct fetch_pool **ret_pool,
                      struct err *err);
/* Cancels what runs, without callbacks; on_closed may be NULL. NULL is allowed as the pool. */
void fetch_pool_close(struct fetch_pool *p, void (*on_closed)(void *ctx), void *ctx);

/* No callback comes before this has returned. May be called inside callbacks of other fetches. */
int fetch_start(struct fetch_pool *p, const struct fetch_options *options, struct fetch **ret_fetch,
                struct err *err);
/* The value of a header field of the answer, or NULL. */
const char *fetch_header(const struct fetch *f, const char *name);
/* All of them, in the order they came. */
void fetch_each_header(const struct fetch *f,
                       void (*on_field)(void *ctx, const char *name, const char *value), void *ctx);
/* Whether any of the request has gone out. Not after it has ended. */
bool fetch_sent(const struct fetch *f);
void fetch_set_idle_timeout(struct fetch *f, unsigned idle_timeout_ms);
/* No data comes while it is paused; the end may, if all data was delivered before. */
void fetch_pause(struct fetch *f);
void fetch_resume(struct fetch *f);
/* There is more of a body, or its end, after on_body gave FETCH_WAIT. */
void fetch_body_ready(struct fetch *f);
/* At any time, also inside its callbacks. No callback comes after it; NULL is allowed. */
void fetch_cancel(struct fetch *f);
/* As fetch_cancel(), but reads the little that may be left of the answer first, so that the
 * connection can be used again. */
void fetch_detach(struct fetch *f);
