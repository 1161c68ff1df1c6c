#include "base/buf.h"

#include "base/cleanup.h"
#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_init(struct buf *b, size_t max) {
    *b = (struct buf){.max = max};
}

void buf_finish(struct buf *b) {
    if (!b)
        return;
    free(b->data);
    *b = (struct buf){.max = b->max};
}

char *buf_reserve(struct buf *b, size_t n) {
    if (n > b->max || b->len > b->max - n) {
        b->full = true;
        return NULL;
    }
    size_t need = b->len + n + 1;
    if (need > b->cap) {
        size_t cap = b->cap ? b->cap : 64;
        while (cap < need)
            cap *= 2;
        cap = MAX(need, MIN(cap, b->max + 1));
        b->data = xrealloc(b->data, cap);
        b->cap = cap;
    }
    return b->data + b->len;
}

void buf_claim(struct buf *b, size_t n) {
    b->len += n;
    b->data[b->len] = 0;
}

bool buf_add(struct buf *b, const void *data, size_t len) {
    char *at = buf_reserve(b, len);
    if (!at)
        return false;
    if (len)
        memcpy(at, data, len);
    buf_claim(b, len);
    return true;
}

bool buf_add_str(struct buf *b, const char *s) {
    return buf_add(b, s, strlen(s));
}

bool buf_add_char(struct buf *b, char c) {
    return buf_add(b, &c, 1);
}

bool buf_addf(struct buf *b, const char *fmt, ...) {
    va_list ap;
    va_list again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    bool ok = false;
    char *at = n < 0 ? NULL : buf_reserve(b, (size_t)n);
    if (at) {
        (void)vsnprintf(at, (size_t)n + 1, fmt, again);
        buf_claim(b, (size_t)n);
        ok = true;
    }
    va_end(again);
    return ok;
}

void buf_consume(struct buf *b, size_t n) {
    if (n >= b->len) {
        buf_clear(b);
        return;
    }
    memmove(b->data, b->data + n, b->len - n);
    b->len -= n;
    b->data[b->len] = 0;
}

void buf_clear(struct buf *b) {
    b->len = 0;
    b->full = false;
    if (b->data)
        b->data[0] = 0;
}

char *buf_steal(struct buf *b, size_t *ret_len) {
    char *data = b->data ? b->data : xstrdup("");
    if (ret_len)
        *ret_len = b->len;
    *b = (struct buf){.max = b->max};
    return data;
}
