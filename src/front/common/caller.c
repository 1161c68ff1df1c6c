#include "front/common/caller.h"

#include "base/cleanup.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_SIZE = 64, HOPS_MAX = 16 };

/* 16 bytes, IPv4 as the addresses of IPv6 that stand for it. */
static bool caller_parse(const char *text, size_t len, unsigned char out[16]) {
    char copy[TEXT_SIZE];
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (len >= 2 && text[0] == '[' && text[len - 1] == ']') {
        text++;
        len -= 2;
    }
    if (len == 0 || len >= sizeof(copy))
        return false;
    memcpy(copy, text, len);
    copy[len] = 0;
    if (inet_pton(AF_INET6, copy, out) == 1)
        return true;
    memcpy(out, mapped, sizeof(mapped));
    return inet_pton(AF_INET, copy, out + 12) == 1;
}

static bool is_v4(const unsigned char a[16]) {
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    return memcmp(a, mapped, sizeof(mapped)) == 0;
}

static bool parse_net(const char *text, unsigned char out[16], unsigned *ret_bits) {
    size_t n = strcspn(text, "/");
    char *end = NULL;
    if (!caller_parse(text, n, out))
        return false;
    bool v4 = is_v4(out) && !memchr(text, ':', n);
    unsigned long max = v4 ? 32 : 128;
    unsigned long bits = max;
    if (text[n]) {
        if (text[n + 1] < '0' || text[n + 1] > '9')
            return false;
        bits = strtoul(text + n + 1, &end, 10);
        if (*end || bits > max)
            return false;
    }
    *ret_bits = (unsigned)(v4 ? bits + 96 : bits);
    return true;
}

int caller_net_check(const char *text, struct err *err) {
    unsigned char a[16];
    unsigned bits;
    if (parse_net(text, a, &bits))
        return 0;
    return err_set(err, ERR_BAD_REQUEST,
                   "\"%.100s\" is no address or range such as 10.0.0.0/8 or ::1", text);
}

static bool same_bits(const unsigned char *a, const unsigned char *b, unsigned bits) {
    if (memcmp(a, b, bits / 8) != 0)
        return false;
    unsigned rest = bits % 8;
    return rest == 0 || (a[bits / 8] ^ b[bits / 8]) >> (8 - rest) == 0;
}

static bool common_caller_is_in(const unsigned char a[16], char *const *nets, size_t n) {
    for (size_t i = 0; i < n; i++) {
        unsigned char net[16];
        unsigned bits;
        if (parse_net(nets[i], net, &bits) && same_bits(a, net, bits))
            return true;
    }
    return false;
}

bool caller_is_in(const char *address, char *const *nets, size_t n) {
    unsigned char a[16];
    return caller_parse(address, strlen(address), a) && common_caller_is_in(a, nets, n);
}

static size_t caller_trim(const char **text, size_t len) {
    while (len > 0 && (**text == ' ' || **text == '\t')) {
        (*text)++;
        len--;
    }
    while (len > 0 && ((*text)[len - 1] == ' ' || (*text)[len - 1] == '\t'))
        len--;
    return len;
}

/* Some proxies tell the port, too. */
static size_t without_port(const char *text, size_t len) {
    size_t digits = 0;
    while (digits < len && text[len - digits - 1] >= '0' && text[len - digits - 1] <= '9')
        digits++;
    if (digits == 0 || digits + 1 >= len || text[len - digits - 1] != ':')
        return len;
    size_t rest = len - digits - 1;
    bool alone = memchr(text, ':', rest) == NULL; /* else it is a part of an IPv6 address */
    return alone || text[rest - 1] == ']' ? rest : len;
}

void caller_address(const char *peer, const char *forwarded, char *const *proxies, size_t n,
                    char *out, size_t size) {
    (void)snprintf(out, size, "%s", peer);
    if (!forwarded || !caller_is_in(peer, proxies, n))
        return;
    const char *end = forwarded + strlen(forwarded);
    for (int hops = 0; end >= forwarded && hops < HOPS_MAX; hops++) {
        const char *from = end;
        unsigned char a[16];
        while (from > forwarded && from[-1] != ',')
            from--;
        const char *text = from;
        size_t len = caller_trim(&text, (size_t)(end - from));
        if (!caller_parse(text, without_port(text, len), a)) {
            (void)snprintf(out, size, CALLER_UNKNOWN);
            return;
        }
        if (is_v4(a))
            (void)inet_ntop(AF_INET, a + 12, out, (socklen_t)size);
        else
            (void)inet_ntop(AF_INET6, a, out, (socklen_t)size);
        if (!common_caller_is_in(a, proxies, n))
            return;
        end = from - 1;
    }
    if (end >= forwarded)
        (void)snprintf(out, size, CALLER_UNKNOWN);
}

size_t caller_name(const char *address, unsigned char out[CALLER_NAME_SIZE]) {
    unsigned char a[16];
    if (!caller_parse(address, strlen(address), a))
        return 0;
    out[0] = is_v4(a) ? '4' : '6';
    memcpy(out + 1, is_v4(a) ? a + 12 : a, is_v4(a) ? 4 : 8);
    return is_v4(a) ? 5 : 9;
}

bool caller_is_local(const char *address) {
    static const unsigned char loopback6[16] = {[15] = 1};
    unsigned char a[16];
    if (!*address)
        return true;
    if (!caller_parse(address, strlen(address), a))
        return false;
    return is_v4(a) ? a[12] == 127 : memcmp(a, loopback6, sizeof(a)) == 0;
}
