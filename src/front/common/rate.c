#include "front/common/rate.h"

#include "base/cleanup.h"
#include "base/mem.h"
#include "base/rand.h"
#include "front/common/digest.h"

#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>

enum { WAYS = 8, SECRET_BYTES = 16, NAME_BYTES = 64, MS_PER_MINUTE = 60000 };

struct rate_bucket {
    uint64_t name; /* hashed; 0: nobody's */
    double tokens;
    int64_t filled_ms; /* monotonic */
    int64_t per_minute;
};

struct rates {
    unsigned char secret[SECRET_BYTES];
    size_t sets; /* of WAYS places each */
    struct rate_bucket places[];
};

struct rates *rates_create(size_t places) {
    size_t sets = MAX(places / WAYS, 1);
    struct rates *r = xcalloc(1, sizeof(*r) + sets * WAYS * sizeof(struct rate_bucket));
    r->sets = sets;
    rand_bytes(r->secret, sizeof(r->secret));
    return r;
}

void rates_destroy(struct rates *r) {
    free(r);
}

/* Which set, and the name in it. */
static struct rate_bucket *find_set(struct rates *r, const void *name, size_t len,
                                    uint64_t *ret_name) {
    unsigned char text[SECRET_BYTES + NAME_BYTES];
    unsigned char hash[SHA256_DIGEST_LENGTH];
    uint64_t parts[2];
    len = MIN(len, (size_t)NAME_BYTES);
    memcpy(text, r->secret, SECRET_BYTES);
    memcpy(text + SECRET_BYTES, name, len);
    digest_sha256(text, SECRET_BYTES + len, hash);
    memcpy(parts, hash, sizeof(parts));
    *ret_name = parts[1] ? parts[1] : 1;
    return &r->places[parts[0] % r->sets * WAYS];
}

static void rate_refill(struct rate_bucket *b, int64_t now_ms) {
    double max = (double)b->per_minute;
    double more = (double)MAX(now_ms - b->filled_ms, 0) * max / MS_PER_MINUTE;
    b->tokens = MIN(b->tokens + more, max);
    b->filled_ms = now_ms;
}

/* The caller's own, else a free one, else the fullest. */
static struct rate_bucket *rate_find(struct rates *r, const void *name, size_t len,
                                     int64_t per_minute, int64_t now_ms) {
    uint64_t hashed;
    struct rate_bucket *set = find_set(r, name, len, &hashed);
    struct rate_bucket *best = &set[0];
    double best_part = -1;
    for (struct rate_bucket *b = set; b < set + WAYS; b++) {
        if (b->name == hashed) {
            rate_refill(b, now_ms);
            b->per_minute = per_minute;
            b->tokens = MIN(b->tokens, (double)per_minute);
            return b;
        }
        if (b->name)
            rate_refill(b, now_ms);
        double part = b->name ? b->tokens / (double)b->per_minute : 2;
        if (part > best_part) {
            best = b;
            best_part = part;
        }
    }
    *best = (struct rate_bucket){.name = hashed,
                                 .per_minute = per_minute,
                                 .tokens = MIN(best_part, 1) * (double)per_minute,
                                 .filled_ms = now_ms};
    return best;
}

bool rates_take(struct rates *r, const void *name, size_t len, int64_t per_minute, int64_t now_ms,
                struct rate_left *ret_left) {
    struct rate_bucket *b = rate_find(r, name, len, per_minute, now_ms);
    bool may = b->tokens >= 1;
    if (may)
        b->tokens -= 1;
    double missing = (double)((int64_t)b->tokens + 1) - b->tokens;
    double wait_s = missing * MS_PER_MINUTE / 1000 / (double)per_minute;
    *ret_left = (struct rate_left){.requests = (int64_t)b->tokens, .wait_s = (int64_t)wait_s + 1};
    return may;
}
