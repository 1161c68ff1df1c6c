#include "base/sha1.h"

#include <stdio.h>
#include <string.h>

/* FIPS 180-4. cay-coder is static and has no library for it. */

static uint32_t sha1_rotate(uint32_t v, int n) {
    return v << n | v >> (32 - n);
}

static void sha1_block(struct sha1 *s, const unsigned char *p) {
    uint32_t w[80];
    uint32_t a = s->h[0], b = s->h[1], c = s->h[2], d = s->h[3], e = s->h[4];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
               (uint32_t)p[4 * i + 2] << 8 | (uint32_t)p[4 * i + 3];
    for (int i = 16; i < 80; i++)
        w[i] = sha1_rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (int i = 0; i < 80; i++) {
        uint32_t f = i < 20   ? (b & c) | (~b & d)
                     : i < 40 ? b ^ c ^ d
                     : i < 60 ? (b & c) | (b & d) | (c & d)
                              : b ^ c ^ d;
        static const uint32_t k[] = {0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6};
        uint32_t t = sha1_rotate(a, 5) + f + e + k[i / 20] + w[i];
        e = d;
        d = c;
        c = sha1_rotate(b, 30);
        b = a;
        a = t;
    }
    s->h[0] += a;
    s->h[1] += b;
    s->h[2] += c;
    s->h[3] += d;
    s->h[4] += e;
}

void sha1_init(struct sha1 *s) {
    *s = (struct sha1){.h = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0}};
}

void sha1_add(struct sha1 *s, const void *data, size_t len) {
    const unsigned char *p = data;
    size_t have = s->bytes % 64;
    s->bytes += len;
    if (have > 0) {
        size_t n = len < 64 - have ? len : 64 - have;
        memcpy(s->block + have, p, n);
        p += n;
        len -= n;
        if (have + n < 64)
            return;
        sha1_block(s, s->block);
    }
    for (; len >= 64; p += 64, len -= 64)
        sha1_block(s, p);
    if (len > 0)
        memcpy(s->block, p, len);
}

void sha1_end(struct sha1 *s, unsigned char ret[SHA1_SIZE]) {
    static const unsigned char pad[64] = {0x80};
    unsigned char length[8];
    uint64_t bits = s->bytes * 8;
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(bits >> (56 - 8 * i));
    sha1_add(s, pad, 1 + (size_t)(119 - s->bytes % 64) % 64);
    sha1_add(s, length, 8);
    for (int i = 0; i < SHA1_SIZE; i++)
        ret[i] = (unsigned char)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

void sha1_hex(const unsigned char hash[SHA1_SIZE], char ret[SHA1_HEX_SIZE]) {
    for (int i = 0; i < SHA1_SIZE; i++)
        (void)snprintf(ret + 2 * (size_t)i, 3, "%02x", hash[i]);
}
