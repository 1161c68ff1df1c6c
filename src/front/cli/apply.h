#pragma once
/* `cay code --apply`: what an agent changed is written to the folder that it had a copy of. The
 * changes come as files (wire/changes.h) and are written by folder.h; no diff is executed, and no
 * program is run in the folder. A file that is not as the agent got it is a conflict, and then
 * nothing is written. Before anything is, the versions that it replaces are kept, so that
 * `cay code --undo` takes all of it back, also after a failure in the middle. */

#include "base/err.h"
#include "base/json.h"
#include "wire/changes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct apply_change {
    struct apply_change *next;
    char *path;
    enum changes_op op;
    uint32_t mode;
    bool has_content;
    char *data; /* with a NUL after it */
    size_t len;
    size_t have;
    char *refused;  /* why it is not written; NULL: it is */
    char *conflict; /* why it may not be; NULL: it may */
    bool is_done;   /* the folder has it already */
    bool is_shown;  /* that it is refused */
};

struct apply {
    const char *dir; /* borrowed, as all that is given */
    int fd;
    const json_t *sent; /* {path: hash}: what the agent got */
    bool overwrite;     /* conflicts are written over */
    bool settings;      /* files that a server reads settings from are written, too */
    struct apply_change *list;
    struct apply_change *last;
    size_t n;
    struct changes_reader reader;
    size_t left; /* that could not be carried */
    size_t refused, conflicts, todo, written;
};

int apply_init(struct apply *a, const char *dir, const json_t *sent, bool overwrite,
               struct err *err);
void apply_finish(struct apply *a);
/* The bytes of the artifact, as they come; then its end. */
int apply_feed(struct apply *a, const char *data, size_t len, struct err *err);
/* Looks at the folder: what can be written, what is refused, what is in conflict. */
int apply_plan(struct apply *a, struct err *err);
/* What it will do, file by file, for people. */
void apply_show(const struct apply *a, FILE *out);
/* ERR_CONFLICT if there are conflicts; else writes. What turns out to be refused is named on out.
 */
int apply_write(struct apply *a, FILE *out, struct err *err);

/* Takes back what was written last to this folder. A file that was changed since stays, and is
 * named on out: ERR_CONFLICT then. */
int apply_undo(const char *dir, FILE *out, struct err *err);
