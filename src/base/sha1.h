#pragma once
/* SHA-1, for the names that git gives to contents. Not for anything that must not collide. */

#include <stddef.h>
#include <stdint.h>

enum { SHA1_SIZE = 20, SHA1_HEX_SIZE = 41 };

struct sha1 {
    uint32_t h[5];
    uint64_t bytes;
    unsigned char block[64];
};

void sha1_init(struct sha1 *s);
void sha1_add(struct sha1 *s, const void *data, size_t len);
void sha1_end(struct sha1 *s, unsigned char ret[SHA1_SIZE]);
/* As hexadecimal digits with a NUL. */
void sha1_hex(const unsigned char hash[SHA1_SIZE], char ret[SHA1_HEX_SIZE]);
