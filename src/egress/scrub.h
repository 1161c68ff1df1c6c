#pragma once
/* Watches a stream of bytes for secrets that must not come back, also where they are cut between
 * two pieces. Knows no sockets. */

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

enum { SCRUB_MAX = 32, SCRUB_SHORTEST = 8 };

struct scrub {
    char *secrets[SCRUB_MAX];
    size_t n;
    struct buf held; /* the beginning of a secret, perhaps */
    size_t passed;   /* bytes of it that went on with the last call */
};

void scrub_init(struct scrub *s);
/* A header's value: all of it, and its last word ("Bearer TOKEN"). Short ones are not watched for.
 */
void scrub_add(struct scrub *s, const char *value);
/* Wipes them. */
void scrub_finish(struct scrub *s);
bool scrub_finds(const struct scrub *s, const char *text);
/* False if a secret came by. Else *ret_data is what may go on now, until the next call. */
bool scrub_feed(struct scrub *s, const char *data, size_t len, const char **ret_data,
                size_t *ret_len);
/* At the end: what was held back. */
void scrub_rest(struct scrub *s, const char **ret_data, size_t *ret_len);
