#include "egress/scrub.h"

#include "base/cleanup.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE_MAX = 16 * 1024 * 1024 };

void scrub_init(struct scrub *s) {
    *s = (struct scrub){0};
    buf_init(&s->held, PIECE_MAX);
}

static void egress_scrub_add(struct scrub *s, const char *secret) {
    if (s->n < SCRUB_MAX && strlen(secret) >= SCRUB_SHORTEST)
        s->secrets[s->n++] = xstrdup(secret);
}

void scrub_add(struct scrub *s, const char *value) {
    const char *word = strrchr(value, ' ');
    /* What holds the word holds the value. */
    egress_scrub_add(s, word && strlen(word + 1) >= SCRUB_SHORTEST ? word + 1 : value);
}

void scrub_finish(struct scrub *s) {
    for (size_t i = 0; i < s->n; i++) {
        mem_wipe(s->secrets[i], strlen(s->secrets[i]));
        free(s->secrets[i]);
    }
    if (s->held.data)
        mem_wipe(s->held.data, s->held.len);
    buf_finish(&s->held);
    s->n = 0;
}

bool scrub_finds(const struct scrub *s, const char *text) {
    for (size_t i = 0; i < s->n; i++)
        if (strstr(text, s->secrets[i]))
            return true;
    return false;
}

/* How many bytes at the end may begin a secret. */
static size_t scrub_tail(const struct scrub *s, const char *data, size_t len) {
    size_t longest = 0;
    for (size_t i = 0; i < s->n; i++) {
        size_t k = MIN(strlen(s->secrets[i]) - 1, len);
        while (k > longest && memcmp(data + len - k, s->secrets[i], k) != 0)
            k--;
        longest = MAX(longest, k);
    }
    return longest;
}

static void drop_passed(struct scrub *s) {
    if (s->passed > 0)
        buf_consume(&s->held, s->passed);
    s->passed = 0;
}

bool scrub_feed(struct scrub *s, const char *data, size_t len, const char **ret_data,
                size_t *ret_len) {
    drop_passed(s);
    bool joined = s->held.len > 0;
    if (joined) {
        if (!buf_add(&s->held, data, len))
            return false;
        data = s->held.data;
        len = s->held.len;
    }
    for (size_t i = 0; i < s->n; i++)
        if (memmem(data, len, s->secrets[i], strlen(s->secrets[i])))
            return false;
    size_t keep = scrub_tail(s, data, len);
    if (joined)
        s->passed = len - keep;
    else if (keep > 0)
        (void)buf_add(&s->held, data + len - keep, keep);
    *ret_data = data;
    *ret_len = len - keep;
    return true;
}

void scrub_rest(struct scrub *s, const char **ret_data, size_t *ret_len) {
    drop_passed(s);
    *ret_data = s->held.data;
    *ret_len = s->held.len;
}
