#pragma once
/* The copy of a folder that an agent gets. What .gitignore names stays here, and so does what looks
 * like a secret, unless it is asked for; so does what is no plain file. All of that is told: a copy
 * that silently lacks something would be worse than none. No program is run in the folder. */

#include "base/err.h"
#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { GATHER_BYTES = 12 << 20, GATHER_FILES = 10000 };

enum gather_why {
    GATHER_IGNORED,
    GATHER_SECRET,
    GATHER_LINK,
    GATHER_SPECIAL, /* a pipe, a socket, a device */
    GATHER_NAME,    /* no UTF-8 */
    GATHER_UNREADABLE,
    GATHER_REPOSITORY,
    GATHER_WHYS,
};

struct gather {
    bool secrets;  /* are copied too */
    bool ignored;  /* the same of what .gitignore names */
    json_t *files; /* as POST /v1/code takes them */
    json_t *sent;  /* {path: SHA-256 of the content, in hexadecimal digits} */
    size_t bytes;
    size_t left[GATHER_WHYS];        /* how many stayed here */
    json_t *left_names[GATHER_WHYS]; /* the first of them */
};

void gather_init(struct gather *g);
void gather_finish(struct gather *g);
int gather_folder(struct gather *g, const char *path, struct err *err);
/* What stayed here, a line for each reason; nothing if there is nothing. */
void gather_show(const struct gather *g, FILE *out);
/* {reason: [path...]}, a new reference. */
json_t *gather_left(const struct gather *g);

enum { GATHER_HASH_SIZE = 65 };
void gather_hash(const void *data, size_t len, char ret[GATHER_HASH_SIZE]);
