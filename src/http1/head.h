#pragma once
/* The head of an HTTP/1 request, read strictly: whatever could look like two different requests to
 * two parsers is an error. Knows no sockets and no rules about hosts, targets or methods: those are
 * its users'. The memory of the fields is the user's too. */

#include "base/err.h"
#include "http1/body.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { HTTP1_FIELDS_MAX = 256 };

struct http1_field {
    const char *name;
    const char *value;
};

struct http1_head {
    char *text; /* a copy, with NULs written over the separators */
    const char *method;
    char *target; /* no blanks, controls, bytes above 126 or "#" */
    struct http1_field *fields;
    size_t max_fields;
    size_t nfields;
    uint64_t content_length;
    bool has_body;
    bool has_length;
    bool chunked;
    bool http10;
    bool keep_alive;
    bool expects_continue;
};

/* Room for so many fields, at most HTTP1_FIELDS_MAX; the table may be uninitialised. */
void http1_head_init(struct http1_head *h, struct http1_field *fields, size_t max_fields);
/* Leaves it as after init. */
void http1_head_finish(struct http1_head *h);
/* The length of the head with its empty line, 0 if its end has not come, or negative for what is
 * never allowed. *scanned remembers where to go on and begins as 0. */
ssize_t http1_head_find_end(const char *data, size_t len, size_t *scanned, struct err *err);
/* Parses len bytes with the end of the head as their end, and readies `body` for what follows.
 * ERR_TOO_LARGE: more fields than there is room for. ERR_UNSUPPORTED: a transfer coding. If it
 * fails, the method and the fields may have been read; the target is NULL. */
int http1_head_parse(struct http1_head *h, struct http1_body *body, const char *data, size_t len,
                     struct err *err);
/* The first of that name in any case; NULL if there is none. */
const char *http1_head_value(const struct http1_head *h, const char *name);
size_t http1_head_count(const struct http1_head *h, const char *name);
