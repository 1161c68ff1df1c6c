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

static int digit(char c) {
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool base64_decode(void *out, const char *text, size_t len, size_t *ret_len) {
    if (len % 4 != 0)
        return false;
    size_t pad = 0;
    if (len > 0)
        pad = text[len - 1] != '=' ? 0 : text[len - 2] != '=' ? 1 : 2;
    uint8_t *to = out;
    for (size_t i = 0; i < len; i += 4) {
        size_t skip = i + 4 == len ? pad : 0;
        uint32_t v = 0;
        for (size_t k = 0; k < 4; k++) {
            int d = k < 4 - skip ? digit(text[i + k]) : 0;
            if (d < 0)
                return false;
            v = v << 6 | (uint32_t)d;
        }
        if (v & ((1U << 8 * skip) - 1))
            return false;
        *to++ = (uint8_t)(v >> 16);
        if (skip < 2)
            *to++ = (uint8_t)(v >> 8);
        if (skip < 1)
            *to++ = (uint8_t)v;
    }
    *ret_len = len / 4 * 3 - pad;
    return true;
}
