/* A request's head and body, as the front and the proxy read them: what is let through is what it
 * promises, and the same however the bytes come in pieces. */

#include "http1/head.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ROOM = 20, SEEN_MAX = 1 << 16 };

/* Where the head ends when it comes in pieces of that size. */
static ssize_t find_end(const char *data, size_t size, size_t step) {
    size_t scanned = 0;
    ssize_t end = 0;
    struct err err;
    for (size_t n = step; end == 0 && n < size + step; n += step)
        end = http1_head_find_end(data, n < size ? n : size, &scanned, &err);
    return end;
}

static void check(const struct http1_head *h) {
    if (!h->target || !*h->method || h->nfields > ROOM || http1_head_count(h, "host") > 1)
        abort();
    for (const char *p = h->target; *p; p++)
        if (*p <= ' ' || *p >= 127 || *p == '#')
            abort();
    if ((h->chunked && (h->has_length || h->http10)) ||
        (h->has_length && !h->content_length && h->has_body))
        abort();
    for (size_t i = 0; i < h->nfields; i++) {
        const char *value = h->fields[i].value;
        size_t n = strlen(value);
        if (!*h->fields[i].name || strpbrk(h->fields[i].name, " \t\r\n:") ||
            strpbrk(value, "\r\n") || (n > 0 && strchr(" \t", value[n - 1])))
            abort();
    }
}

struct seen {
    char data[SEEN_MAX];
    size_t len;
};

static bool on_data(void *ctx, const char *data, size_t len) {
    struct seen *s = ctx;
    if (len > SEEN_MAX - s->len)
        return false;
    memcpy(s->data + s->len, data, len);
    s->len += len;
    return true;
}

/* The bytes of the body that were used, -1 if it is none, and whether it came to its end. */
static ssize_t read_body(struct http1_body *b, const char *data, size_t size, size_t step,
                         struct seen *s, bool *ret_whole) {
    const struct http1_body_sink sink = {on_data, s};
    size_t at = 0;
    struct err err;
    s->len = 0;
    *ret_whole = false;
    while (at < size && !*ret_whole) {
        size_t n = size - at < step ? size - at : step;
        ssize_t used = http1_body_feed(b, &sink, data + at, n, ret_whole, &err);
        if (used < 0)
            return -1;
        if ((size_t)used > n || (!*ret_whole && (size_t)used != n))
            abort();
        at += (size_t)used;
    }
    return (ssize_t)at;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    static struct seen one, two;
    const char *data = (const char *)bytes;
    struct http1_field fields[ROOM];
    struct http1_head h;
    struct http1_body b;
    struct http1_body again;
    struct err err;
    ssize_t end = find_end(data, size, size ? size : 1);
    if ((end > 0) != (find_end(data, size, 1) > 0) || (size_t)(end > 0 ? end : 0) > size)
        abort();
    if (end <= 0)
        return 0;
    http1_head_init(&h, fields, ROOM);
    int rc = http1_head_parse(&h, &b, data, (size_t)end, &err);
    if (rc == 0)
        check(&h);
    if (rc == 0 && h.has_body) {
        bool whole_one;
        bool whole_two;
        again = b;
        size_t left = size - (size_t)end;
        ssize_t n = read_body(&b, data + end, left, left ? left : 1, &one, &whole_one);
        ssize_t m = read_body(&again, data + end, left, 1, &two, &whole_two);
        if (n != m || whole_one != whole_two ||
            (n >= 0 && (one.len != two.len || memcmp(one.data, two.data, one.len) != 0)))
            abort();
        if (h.has_length && n >= 0 && one.len > h.content_length)
            abort();
    }
    http1_head_finish(&h);
    return 0;
}
