#pragma once
/* Packs a folder of this machine as a tar archive, while it is sent. No program is run for it: the
 * folder may be one that strangers have written. Links are packed as links and never followed. */

#include "base/buf.h"
#include "base/err.h"

#include <stddef.h>

struct totar {
    int out;          /* a socket; borrowed */
    size_t left;      /* that is neither file, folder nor link, or cannot be read */
    struct buf names; /* the first of those, a line each */
};

void totar_init(struct totar *t, int out);
void totar_finish(struct totar *t);
/* Blocks while nobody reads. */
int totar_write(struct totar *t, int dir, struct err *err);
