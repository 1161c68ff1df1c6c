#include "base/utf8.h"

static bool cont(unsigned char c) {
    return (c & 0xc0) == 0x80;
}

size_t utf8_sequence(const char *s, size_t len) {
    const unsigned char *u = (const unsigned char *)s;
    if (len == 0)
        return 0;
    if (u[0] < 0x80)
        return 1;
    if (u[0] >= 0xc2 && u[0] <= 0xdf)
        return len >= 2 && cont(u[1]) ? 2 : 0;
    if (u[0] >= 0xe0 && u[0] <= 0xef) {
        if (len < 3 || !cont(u[1]) || !cont(u[2]))
            return 0;
        if ((u[0] == 0xe0 && u[1] < 0xa0) || (u[0] == 0xed && u[1] > 0x9f))
            return 0;
        return 3;
    }
    if (u[0] >= 0xf0 && u[0] <= 0xf4) {
        if (len < 4 || !cont(u[1]) || !cont(u[2]) || !cont(u[3]))
            return 0;
        if ((u[0] == 0xf0 && u[1] < 0x90) || (u[0] == 0xf4 && u[1] > 0x8f))
            return 0;
        return 4;
    }
    return 0;
}

bool utf8_is_valid(const char *s, size_t len) {
    for (size_t i = 0; i < len;) {
        size_t n = utf8_sequence(s + i, len - i);
        if (n == 0)
            return false;
        i += n;
    }
    return true;
}

size_t utf8_floor(const char *s, size_t len, size_t max) {
    if (max >= len)
        return len;
    size_t n = max;
    while (n > 0 && max - n < 3 && cont((unsigned char)s[n]))
        n--;
    return n;
}
