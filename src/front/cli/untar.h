#pragma once
/* Unpacks an archive that a stranger made into one folder, and touches nothing outside it: only
 * plain files, folders and symbolic links are made, by folder.h, with no more than the permissions
 * of ordinary files. Reads ustar, and the long names of GNU and pax. */

#include "base/buf.h"
#include "base/err.h"
#include "front/cli/folder.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct untar {
    int dir; /* borrowed */
    char block[512];
    size_t have;             /* bytes of it */
    uint64_t left;           /* of the entry's content */
    size_t padding;          /* behind it */
    int kind;                /* of the entry */
    struct folder_file file; /* that is being written; fd -1: none */
    struct buf name, link;   /* of the next entry, if they were told ahead; also what is gathered */
    struct buf extra;
    bool ended;
    size_t files;
    size_t skipped;
    struct buf left_out; /* the first of those, a line each: why */
};

void untar_init(struct untar *t, int dir);
int untar_feed(struct untar *t, const char *data, size_t len, struct err *err);
/* Fails if the archive broke off. */
int untar_end(struct untar *t, struct err *err);
void untar_finish(struct untar *t);
