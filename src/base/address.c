#include "base/address.h"

#include "base/cleanup.h"

#include <netinet/in.h>
#include <stdint.h>
#include <string.h>

struct range4 {
    uint8_t prefix[4];
    uint8_t bits;
    const char *what;
};

struct range6 {
    uint8_t prefix[16];
    uint8_t bits;
    const char *what;
};

static const char METADATA[] = "link-local, where clouds keep their metadata";

static const struct range4 ranges4[] = {
    {{0}, 8, "this host"},
    {{10}, 8, "private"},
    {{100, 64}, 10, "shared by a carrier"},
    {{127}, 8, "loopback"},
    {{168, 63, 129, 16}, 32, "the platform of a cloud"},
    {{169, 254}, 16, METADATA},
    {{172, 16}, 12, "private"},
    {{192, 0, 0}, 24, "special"},
    {{192, 0, 2}, 24, "for documentation"},
    {{192, 88, 99}, 24, "a relay of 6to4"},
    {{192, 168}, 16, "private"},
    {{198, 18}, 15, "for measurements"},
    {{198, 51, 100}, 24, "for documentation"},
    {{203, 0, 113}, 24, "for documentation"},
    {{224}, 4, "multicast"},
    {{240}, 4, "reserved, or broadcast"},
};

/* Those that carry an IPv4 address inside are refused whole: what they reach is not theirs to say.
 */
static const struct range6 ranges6[] = {
    {{0}, 128, "this host"},
    {{[15] = 1}, 128, "loopback"},
    {{[10] = 0xff, [11] = 0xff}, 96, "a mapped IPv4 address"},
    {{0}, 96, "a compatible IPv4 address"},
    {{0x00, 0x64, 0xff, 0x9b}, 96, "a translated IPv4 address"},
    {{0x00, 0x64, 0xff, 0x9b, 0x00, 0x01}, 48, "a translated IPv4 address"},
    {{0x01}, 64, "discarded"},
    {{0x20, 0x01, 0x00, 0x00}, 32, "Teredo"},
    {{0x20, 0x01, 0x0d, 0xb8}, 32, "for documentation"},
    {{0x20, 0x01}, 23, "special"},
    {{0x20, 0x02}, 16, "6to4"},
    {{0x3f, 0xff}, 20, "for documentation"},
    {{0xfc}, 7, "private"},
    {{0xfe, 0x80}, 10, METADATA},
    {{0xfe, 0xc0}, 10, "private"},
    {{0xff}, 8, "multicast"},
};

static bool begins_with(const uint8_t *address, const uint8_t *prefix, unsigned bits) {
    unsigned bytes = bits / 8;
    unsigned rest = bits % 8;
    if (memcmp(address, prefix, bytes) != 0)
        return false;
    if (rest == 0)
        return true;
    unsigned mask = 0xff00U >> rest & 0xffU;
    return ((address[bytes] ^ prefix[bytes]) & mask) == 0;
}

static const char *address_refusal4(const uint8_t *address) {
    for (size_t i = 0; i < ARRAY_LEN(ranges4); i++)
        if (begins_with(address, ranges4[i].prefix, ranges4[i].bits))
            return ranges4[i].what;
    return NULL;
}

static const char *address_refusal6(const uint8_t *address) {
    for (size_t i = 0; i < ARRAY_LEN(ranges6); i++)
        if (begins_with(address, ranges6[i].prefix, ranges6[i].bits))
            return ranges6[i].what;
    /* All of the Internet is in 2000::/3; what is beyond it has no meaning yet. */
    static const uint8_t global[] = {0x20};
    return begins_with(address, global, 3) ? NULL : "reserved";
}

const char *address_refusal(const struct sockaddr *address) {
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    switch (address->sa_family) {
    case AF_INET:
        memcpy(&v4, address, sizeof(v4));
        return address_refusal4((const uint8_t *)&v4.sin_addr);
    case AF_INET6:
        memcpy(&v6, address, sizeof(v6));
        return address_refusal6(v6.sin6_addr.s6_addr);
    default:
        return "not an Internet address";
    }
}
