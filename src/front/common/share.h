#pragma once
/* How much of something that all clients share each key holds: places in a pool, in a queue, in a
 * table. A key may hold a part of it only, so that there is always room for another one. What has
 * no key (the operator's own) is not bounded by this. */

#include <stdbool.h>
#include <stddef.h>

struct share {
    struct share *next;
    size_t held;
    char owner[];
};

/* Zeroed memory is an empty one. */
struct shares {
    struct share *list;
};

void shares_finish(struct shares *s);
size_t shares_held(const struct shares *s, const char *owner);
/* n more, or n fewer: bytes, for instance. */
void shares_hold(struct shares *s, const char *owner, size_t n);
void shares_release(struct shares *s, const char *owner, size_t n);
/* The same, of one place. */
void shares_add(struct shares *s, const char *owner);
void shares_remove(struct shares *s, const char *owner);
/* Who holds most; NULL if nobody holds anything. */
const char *shares_greatest(const struct shares *s);

/* What one key may hold of `total`: three quarters, and never all of it if it can be
 * divided. */
size_t share_of(const char *owner, size_t total);
/* The name under which a project takes its shares. The keys of the default project have one each:
 * it is also the operator's, who may take all. */
const char *share_name(const char *project, const char *key);
