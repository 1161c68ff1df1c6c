#pragma once
/* A growing byte buffer with a maximum: there is no unbounded buffer in cay. Appends that would
 * pass the maximum change nothing, return false and set `full`, so that a chain of appends can be
 * checked once at the end. The bytes are always followed by a NUL that does not count. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    char *data;
    size_t len;
    size_t cap;
    size_t max;
    bool full;
};

void buf_init(struct buf *b, size_t max);
void buf_finish(struct buf *b);
bool buf_add(struct buf *b, const void *data, size_t len);
bool buf_add_str(struct buf *b, const char *s);
bool buf_add_char(struct buf *b, char c);
bool buf_addf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Room for n more bytes to be written at the returned place and then claimed by buf_claim(). */
char *buf_reserve(struct buf *b, size_t n);
void buf_claim(struct buf *b, size_t n);
/* Drops n bytes from the front. */
void buf_consume(struct buf *b, size_t n);
void buf_clear(struct buf *b);
/* The bytes as a NUL-terminated string that the caller frees; the buffer is empty afterwards. */
char *buf_steal(struct buf *b, size_t *ret_len);

static inline void cleanup_buf(struct buf *b) {
    buf_finish(b);
}
