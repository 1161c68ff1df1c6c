#include "base/base64.h"

#include <stdint.h>

static const char ALPHABET[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(char *out, const void *data, size_t len) {
    const uint8_t *p = data;
    for (size_t i = 0; i < len; i += 3) {
        uint32_t v = (uint32_t)p[i] << 16;
        if (i + 1 < len)
            v |= (uint32_t)p[i + 1] << 8;
        if (i + 2 < len)
            v |= p[i + 2];
        *out++ = ALPHABET[v >> 18];
        *out++ = ALPHABET[v >> 12 & 63];
        *out++ = i + 1 < len ? ALPHABET[v >> 6 & 63] : '=';
        *out++ = i + 2 < len ? ALPHABET[v & 63] : '=';
    }
}

/* One more than what each digit stands for; 0: it is none. A table, because files of megabytes come
 * this way. */
// clang-format off
static const uint8_t digits[128] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 63, 0, 0, 0, 64,
    53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 0, 0, 0, 0, 0, 0,
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
    16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 0, 0, 0, 0, 0,
    0, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41,
    42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 0, 0, 0, 0, 0,
};
// clang-format on

static int base64_digit(char c) {
    uint8_t at = (uint8_t)c;
    return at < 128 ? digits[at] - 1 : -1;
}

bool base64_decode(void *out, const char *text, size_t len, size_t *ret_len) {
    if (len % 4 != 0)
        return false;
    size_t pad = 0;
    if (len > 0)
        pad = text[len - 1] != '=' ? 0 : text[len - 2] != '=' ? 1 : 2;
    uint8_t *to = out;
    size_t i = 0;
    for (; i + 4 < len; i += 4, to += 3) {
        int d[4] = {base64_digit(text[i]), base64_digit(text[i + 1]), base64_digit(text[i + 2]),
                    base64_digit(text[i + 3])};
        if ((d[0] | d[1] | d[2] | d[3]) < 0)
            return false;
        uint32_t v = (uint32_t)(d[0] << 18 | d[1] << 12 | d[2] << 6 | d[3]);
        to[0] = (uint8_t)(v >> 16);
        to[1] = (uint8_t)(v >> 8);
        to[2] = (uint8_t)v;
    }
    if (i < len) {
        uint32_t v = 0;
        for (size_t k = 0; k < 4; k++) {
            int d = k < 4 - pad ? base64_digit(text[i + k]) : 0;
            if (d < 0)
                return false;
            v = v << 6 | (uint32_t)d;
        }
        if (v & ((1U << 8 * pad) - 1))
            return false;
        *to++ = (uint8_t)(v >> 16);
        if (pad < 2)
            *to++ = (uint8_t)(v >> 8);
        if (pad < 1)
            *to = (uint8_t)v;
    }
    *ret_len = len / 4 * 3 - pad;
    return true;
}
