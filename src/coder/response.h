#pragma once
/* One HTTP/1.1 response, as little of it as a call to a model needs: the status, the fields that
 * say when to try again, and the body by its length, in chunks or up to the end of the connection.
 * Takes bytes cut anywhere; everything is bounded. No I/O. */

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum response_state {
    RESPONSE_STATUS,
    RESPONSE_FIELDS,
    RESPONSE_LENGTH, /* a body of known length */
    RESPONSE_REST,   /* a body up to the end */
    RESPONSE_CHUNK_SIZE,
    RESPONSE_CHUNK,
    RESPONSE_CHUNK_END,
    RESPONSE_TRAILERS,
    RESPONSE_DONE,
};

struct response {
    enum response_state state;
    struct buf line;
    struct buf body;
    size_t head_bytes;
    uint64_t left; /* of the body or of the chunk */
    int status;
    bool has_length;
    bool chunked;
    bool may_retry;         /* false: the server says that there is no use */
    int64_t retry_after_ms; /* -1: it does not say */
};

void response_init(struct response *r, size_t max_body);
void response_finish(struct response *r);
/* ERR_PROTOCOL for what is no HTTP, ERR_TOO_LARGE past the maximum. Bytes after the response are
 * ignored. */
int response_feed(struct response *r, const char *data, size_t len, struct err *err);
/* The connection has ended: ERR_UPSTREAM if that is in the middle of the response. */
int response_end(struct response *r, struct err *err);
