#include "base/utf8.h"

#include <stdint.h>
#include <string.h>

static bool utf8_cont(unsigned char c) {
    return (c & 0xc0) == 0x80;
}

size_t utf8_sequence(const char *s, size_t len) {
    const unsigned char *u = (const unsigned char *)s;
    if (len == 0)
        return 0;
    if (u[0] < 0x80)
        return 1;
    if (u[0] >= 0xc2 && u[0] <= 0xdf)
        return len >= 2 && utf8_cont(u[1]) ? 2 : 0;
    if (u[0] >= 0xe0 && u[0] <= 0xef) {
        if (len < 3 || !utf8_cont(u[1]) || !utf8_cont(u[2]))
            return 0;
        if ((u[0] == 0xe0 && u[1] < 0xa0) || (u[0] == 0xed && u[1] > 0x9f))
            return 0;
        return 3;
    }
    if (u[0] >= 0xf0 && u[0] <= 0xf4) {
        if (len < 4 || !utf8_cont(u[1]) || !utf8_cont(u[2]) || !utf8_cont(u[3]))
            return 0;
        if ((u[0] == 0xf0 && u[1] < 0x90) || (u[0] == 0xf4 && u[1] > 0x8f))
            return 0;
        return 4;
    }
    return 0;
}

bool utf8_is_valid(const char *s, size_t len) {
    uint64_t eight;
    for (size_t i = 0; i < len;) {
        if (len - i >= sizeof(eight)) {
            memcpy(&eight, s + i, sizeof(eight));
            if ((eight & 0x8080808080808080) == 0) {
                i += sizeof(eight);
                continue;
            }
        }
        size_t n = utf8_sequence(s + i, len - i);
        if (n == 0)
            return false;
        i += n;
    }
    return true;
}

/* How many bytes the sequence has that begins with this one; 0: none begins with it. */
static size_t sequence_length(unsigned char c) {
    return c < 0x80                 ? 1
           : c >= 0xc2 && c <= 0xdf ? 2
           : c >= 0xe0 && c <= 0xef ? 3
           : c >= 0xf0 && c <= 0xf4 ? 4
                                    : 0;
}

size_t utf8_floor(const char *s, size_t len, size_t max) {
    size_t n = max < len ? max : len;
    size_t at = n;
    while (at > 0 && n - at < 3 && utf8_cont((unsigned char)s[at - 1]))
        at--;
    return at > 0 && sequence_length((unsigned char)s[at - 1]) > n - at + 1 ? at - 1 : n;
}

/* The length of a sequence at s that lacks its end; 0: it is something else. */
static size_t cut_length(const char *s, size_t len) {
    size_t whole = sequence_length((unsigned char)s[0]);
    size_t n = 1;
    while (n < len && n < whole && utf8_cont((unsigned char)s[n]))
        n++;
    return n < whole ? n : 0;
}

size_t utf8_mend(char *s, size_t len) {
    size_t to = 0;
    for (size_t i = 0; i < len;) {
        size_t n = utf8_sequence(s + i, len - i);
        size_t cut = n == 0 ? cut_length(s + i, len - i) : 0;
        if (n > 0)
            memmove(s + to, s + i, n);
        else if (cut == 0)
            s[to] = '?';
        to += n > 0 ? n : cut > 0 ? 0 : 1;
        i += n > 0 ? n : cut > 0 ? cut : 1;
    }
    s[to] = 0;
    return to;
}
