#pragma once
/* The head of a guest's request, read strictly: whatever could look like two different requests to
 * two parsers is an error. Knows no sockets. */

#include "base/err.h"

#include <llhttp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { HEAD_FIELDS_MAX = 256 };

struct head_field {
    const char *name;
    const char *value;
};

struct head {
    char *text; /* a copy, with NULs written over the separators */
    const char *method;
    const char *target;
    struct head_field fields[HEAD_FIELDS_MAX];
    size_t nfields;
    uint64_t content_length;
    bool has_body;
    bool has_length;
    bool chunked;
    bool http10;
    bool keep_alive;
    bool expects_continue;
};

/* The length of the head, 0 if its end has not come, or negative. *scanned remembers where to go
 * on and begins as 0. */
ssize_t head_find_end(const char *data, size_t len, size_t *scanned, struct err *err);
/* Parses len bytes with the end of the head as their end. The parser then knows how the body is
 * delimited; it is left with no callbacks. */
int head_parse(struct head *h, llhttp_t *parser, const char *data, size_t len, size_t max_fields,
               struct err *err);
void head_finish(struct head *h);
/* NULL if there is none. */
const char *head_value(const struct head *h, const char *name);
size_t head_count(const struct head *h, const char *name);
/* True if the field concerns this connection only: it is named by RFC 9110, or by Connection. */
bool head_is_hop_by_hop(const char *name, const char *connection);
