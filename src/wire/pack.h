#pragma once
/* Fields inside a frame's payload, in an order both sides know: little-endian integers, and byte
 * strings with a 32-bit length before them. A reader that runs out, or meets a length that does not
 * fit, turns `bad` and gives zeros and empty strings from then on, so that a message is checked
 * once, at its end, by unpack_ok(). */

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void pack_u8(struct buf *b, uint8_t v);
void pack_u32(struct buf *b, uint32_t v);
void pack_u64(struct buf *b, uint64_t v);
void pack_f64(struct buf *b, double v);
void pack_bytes(struct buf *b, const void *data, size_t len);
void pack_str(struct buf *b, const char *s); /* NULL packs as empty */

struct unpack {
    const uint8_t *at;
    const uint8_t *end;
    bool bad;
};

void unpack_init(struct unpack *u, const void *data, size_t len);
uint8_t unpack_u8(struct unpack *u);
uint32_t unpack_u32(struct unpack *u);
uint64_t unpack_u64(struct unpack *u);
double unpack_f64(struct unpack *u);
/* Borrowed from the payload, not NUL-terminated; never NULL. */
const char *unpack_bytes(struct unpack *u, size_t *ret_len);
/* A copy that the caller frees; a string with a NUL inside turns the reader bad. */
char *unpack_strdup(struct unpack *u);
/* True if nothing was bad and nothing is left over. */
bool unpack_ok(const struct unpack *u);
