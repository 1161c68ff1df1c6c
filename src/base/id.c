#include "base/id.h"

#include "base/clock.h"
#include "base/rand.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";

enum { ID_DIGITS = 26 };

static char *write_id(const char *prefix, int64_t time_ms, unsigned char raw[16],
                      char out[ID_SIZE]) {
    int at = snprintf(out, ID_SIZE, "%.12s_", prefix);
    uint64_t ms = (uint64_t)time_ms;
    for (int i = 0; i < 6; i++)
        raw[i] = (unsigned char)(ms >> (8 * (5 - i)));
    /* 128 bits in 26 digits of 5 bits: the first digit carries 3 bits. */
    unsigned acc = 0;
    int bits = 2;
    size_t k = (size_t)at;
    for (size_t i = 0; i < 16; i++) {
        acc = (acc << 8) | raw[i];
        bits += 8;
        while (bits >= 5) {
            bits -= 5;
            out[k++] = digits[(acc >> bits) & 31];
        }
        acc &= (1U << bits) - 1;
    }
    out[k] = 0;
    return out;
}

char *id_new(const char *prefix, char out[ID_SIZE]) {
    unsigned char raw[16];
    rand_bytes(raw, sizeof(raw));
    return write_id(prefix, clock_wall_ms(), raw, out);
}

char *id_floor(const char *prefix, int64_t time_ms, char out[ID_SIZE]) {
    unsigned char raw[16] = {0};
    return write_id(prefix, time_ms > 0 ? time_ms : 0, raw, out);
}

bool id_is_valid(const char *prefix, const char *text, size_t len) {
    size_t n = strlen(prefix);
    if (len != n + 1 + ID_DIGITS || memcmp(text, prefix, n) != 0 || text[n] != '_')
        return false;
    for (size_t i = n + 1; i < len; i++)
        if (!text[i] || !strchr(digits, text[i]))
            return false;
    return true;
}

char *id_uuid(char out[UUID_SIZE]) {
    unsigned char r[16];
    rand_bytes(r, sizeof(r));
    r[6] = (unsigned char)((r[6] & 0x0f) | 0x40);
    r[8] = (unsigned char)((r[8] & 0x3f) | 0x80);
    (void)snprintf(out, UUID_SIZE,
                   "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", r[0],
                   r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9], r[10], r[11], r[12], r[13],
                   r[14], r[15]);
    return out;
}
