#pragma once
/* The arguments of a call: a strict JSON reader that walks an array of scalars without building a
 * tree. A scalar is null, a boolean (0 or 1), a number, a string, ["b","<base64>"] for a blob or
 * ["i","<decimal>"] for an integer that a double cannot hold. A lone surrogate becomes U+FFFD.
 * Leaving the outermost array fails if anything but white space follows it. Texts point into the
 * JSON or into the scratch buffer: both must outlive their use. */

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum arg_type { ARG_NULL, ARG_INT, ARG_REAL, ARG_TEXT, ARG_BLOB };

struct arg {
    enum arg_type type;
    int64_t i;
    double d;
    const char *p;
    size_t len;
};

struct args {
    const char *at;
    const char *end;
    size_t total;
    unsigned depth; /* arrays that are entered and not left */
    struct buf *scratch;
    bool comma;        /* a comma is due before the next item */
    const char *error; /* what is wrong, after a function returned -1 */
};

/* The scratch buffer is cleared; its maximum must be at least len. */
void args_init(struct args *a, const char *text, size_t len, struct buf *scratch);
/* Enters an array: 1; 0 if the surrounding array ended (and was left); -1 for anything else. */
int args_enter(struct args *a);
/* Takes a scalar: 1; 0 if the array ended (and was left); -1 for anything else. */
int args_value(struct args *a, struct arg *ret);
/* 1 if the surrounding array ends here (it is left), 0 if another item follows, -1 if malformed. */
int args_leave(struct args *a);
