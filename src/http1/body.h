#pragma once
/* The body of an HTTP/1 request, by its length or in chunks, in pieces as they come. Made ready by
 * http1_head_parse(). Trailer fields are dropped. */

#include "base/err.h"

#include <llhttp.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct http1_body {
    llhttp_t parser;
};

struct http1_body_sink {
    /* False: no more of it is wanted. */
    bool (*on_data)(void *ctx, const char *data, size_t len);
    void *ctx;
};

/* Returns the bytes used; *ret_whole if the body ends there. ERR_BAD_REQUEST for what is no body,
 * ERR_CANCELLED if the sink wanted no more. */
ssize_t http1_body_feed(struct http1_body *b, const struct http1_body_sink *sink, const char *data,
                        size_t len, bool *ret_whole, struct err *err);
