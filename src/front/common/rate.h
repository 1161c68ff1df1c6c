#pragma once
/* How often callers may come: a token bucket for each, full at a number of requests a minute and
 * refilled evenly. The table has a fixed size. A caller has a few places in it, found by a hash
 * with a secret, and who comes when they are taken takes over the fullest one with what is left in
 * it: so a bucket that was emptied is the last to go, and nobody gets requests by coming under many
 * names.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rates;

/* places: how many callers are told apart. */
struct rates *rates_create(size_t places);
void rates_destroy(struct rates *r);

struct rate_left {
    int64_t requests; /* whole ones that are left */
    int64_t wait_s;   /* until there is one more, or the next; 1 at least */
};
/* True: the caller, a name of any bytes, may come, and has one less. per_minute is above 0. */
bool rates_take(struct rates *r, const void *name, size_t len, int64_t per_minute, int64_t now_ms,
                struct rate_left *ret_left);
