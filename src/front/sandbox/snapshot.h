#pragma once
/* A snapshot is an archive of what a sandbox can write to, made by tar inside and stored as it
 * comes. It is never opened here: a new sandbox unpacks it, inside. */

#include "front/sandbox/sandboxes.h"

struct snapshot;

/* err NULL: it is stored; shown is the object that clients see, borrowed. The pointer is dead
 * afterwards. */
typedef void (*snapshot_made)(void *ctx, const json_t *shown, const struct err *err);

struct snapshot_ask {
    const char *name; /* or NULL */
    json_t *note;     /* kept with it and not shown; or NULL; borrowed */
    snapshot_made made;
    void *ctx;
};
/* Negative with err if it cannot even begin; made is called once, later. */
int snapshot_make(struct sandbox *box, const struct snapshot_ask *ask, struct snapshot **ret,
                  struct err *err);
/* Nobody waits for it any more: it is made all the same. */
void snapshot_leave(struct snapshot *s);
/* The object that clients see; a new reference. */
json_t *snapshot_show(const struct store_record *r);
int snapshot_delete(struct sandboxes *all, const char *id, struct store_scope scope,
                    struct err *err);
