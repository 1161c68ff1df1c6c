#pragma once
/* The databases of owners as files: which there are, and what is done to one as a whole. A database
 * is a folder, DATA/facets/OWNER/NAME, with data.db and perhaps limits.json; what is in data.db is
 * cay-facet's affair, the front moves bytes and folders. Folders are walked, written and removed by
 * threads. What is not ready is in a folder ".tmp-..." beside the others, which no name can mean,
 * and gets its name by one rename: a crash leaves the old or the new, and the rest is swept at the
 * next start. */

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "front/run/bindings.h"
#include "front/run/facets.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct databases_options {
    uv_loop_t *loop;
    struct facets *facets;
    const char *data_dir;          /* borrowed, as is the next */
    const struct facet_open *open; /* how they are opened */
};

struct databases;
struct database_op;

struct databases *databases_create(const struct databases_options *options);
/* Nobody is told any more. Before the facets are stopped. NULL is allowed. */
void databases_close(struct databases *all);
/* For facets_*(), of one that must exist. */
struct facet_ref databases_ref(const struct databases *all, const char *owner, const char *dir);
/* Its folder; the caller frees. */
char *databases_dir(const struct databases *all, const char *owner, const char *name);

enum database_kind {
    DATABASE_LIST,
    DATABASE_MAKE,   /* its folder and its limits */
    DATABASE_REMOVE, /* holders are cut off */
    DATABASE_EXPORT, /* a copy in a file without a name */
    DATABASE_COPY,   /* under another name */
    DATABASE_IMPORT, /* see database_op_add() */
    DATABASE_SWEEP,  /* what a dead server left */
    DATABASE_KINDS
};

struct database_entry {
    char name[DATABASE_NAME_MAX + 1];
    int64_t bytes;
    int64_t created_ms; /* 0: the file system does not know */
    int64_t modified_ms;
};

struct database_result {
    struct err err;                       /* code 0: it went well */
    const struct database_entry *entries; /* LIST, by name */
    size_t n;
    bool more;      /* LIST: there are others after these */
    bool created;   /* MAKE, IMPORT: there was none */
    uint64_t bytes; /* REMOVE, EXPORT */
    uint64_t files; /* REMOVE */
    int fd;         /* EXPORT: good until database_op_leave(), which must be called then */
    const struct buf *description; /* IMPORT: as INSPECT has it */
};

struct database_request {
    enum database_kind kind;
    const char *owner;
    const char *name;     /* but for LIST */
    const char *to;       /* COPY */
    const char *after;    /* LIST: the last name of the page before, or NULL */
    size_t limit;         /* LIST */
    const json_t *grants; /* LIST: only what these allow; NULL: all */
    const char *limits; /* MAKE: JSON for FACET_LIMITS_FILE; "": none any more; NULL: as they are */
    void (*on_room)(void *ctx);                         /* IMPORT: more of the file may come */
    void (*done)(void *ctx, struct database_result *r); /* from the loop */
    void *ctx;
};

/* NULL: ERR_RATE, and done is not called. All texts are copied. */
struct database_op *databases_start(struct databases *all, const struct database_request *request,
                                    struct err *err);
/* IMPORT: the next bytes of the file, as many as the caller lets come. False: no more before
 * on_room(). */
bool database_op_add(struct database_op *op, const void *data, size_t len);
/* IMPORT: that was all of it. It is checked by a cay-facet of its own, and takes the place of the
 * database if it is good. */
void database_op_finish(struct database_op *op);
/* Nobody waits for it: no callback comes. What was not ready is dropped; a removal goes on. */
void database_op_leave(struct database_op *op);
