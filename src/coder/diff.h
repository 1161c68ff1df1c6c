#pragma once
/* The diff of one file, as `git apply` takes it: headers, hunks of three lines around each change,
 * contents that are no text as a binary patch. Made here and not by git, because git believes what
 * an agent can write: settings, attributes, drivers, nested repositories. */

#include "base/sha1.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct diff_side {
    uint32_t mode; /* as git has it; 0: there is no file */
    unsigned char hash[SHA1_SIZE];
    const char *data; /* NULL: it is not known, and the diff is a binary one */
    size_t len;
};

/* Takes the bytes of the diff. */
typedef void (*diff_out)(void *ctx, const char *data, size_t len);

void diff_write(const char *path, const struct diff_side *before, const struct diff_side *after,
                diff_out out, void *ctx);
/* Git's name of a content. */
void diff_hash(const char *data, size_t len, unsigned char ret[SHA1_SIZE]);
bool diff_is_text(const char *data, size_t len);
