#include "base/address.h"
#include "unit/unit.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static const char *refusal(const char *text) {
    union address a = {0};
    if (strchr(text, ':')) {
        a.v6.sin6_family = AF_INET6;
        assert_int_equal(inet_pton(AF_INET6, text, &a.v6.sin6_addr), 1);
    } else {
        a.v4.sin_family = AF_INET;
        assert_int_equal(inet_pton(AF_INET, text, &a.v4.sin_addr), 1);
    }
    return address_refusal(&a.any);
}

/* Each range: its first and last address. */
static const char *const refused[] = {
    "0.0.0.0",
    "0.255.255.255",
    "10.0.0.0",
    "10.255.255.255",
    "100.64.0.0",
    "100.127.255.255",
    "127.0.0.0",
    "127.0.0.1",
    "127.255.255.255",
    "168.63.129.16",
    "169.254.0.0",
    "169.254.169.254",
    "169.254.255.255",
    "172.16.0.0",
    "172.31.255.255",
    "192.0.0.0",
    "192.0.0.255",
    "192.0.2.0",
    "192.0.2.255",
    "192.88.99.0",
    "192.168.0.0",
    "192.168.255.255",
    "198.18.0.0",
    "198.19.255.255",
    "198.51.100.0",
    "198.51.100.255",
    "203.0.113.0",
    "203.0.113.255",
    "224.0.0.0",
    "239.255.255.255",
    "240.0.0.0",
    "255.255.255.255",
    "::",
    "::1",
    "::2",
    "::7f00:1",
    "::8.8.8.8",
    "::ffff:0.0.0.0",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "::ffff:0:127.0.0.1",
    "64:ff9b::",
    "64:ff9b::10.0.0.1",
    "64:ff9b::8.8.8.8",
    "64:ff9b:1::",
    "64:ff9b:1:ffff::10.0.0.1",
    "100::",
    "2001::",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:2::1",
    "2001:10::1",
    "2001:1ff::1",
    "2001:db8::",
    "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
    "2002::",
    "2002:7f00:1::",
    "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    "3fff::1",
    "3fff:fff::1",
    "1fff::1",
    "4000::1",
    "5f00::1",
    "fc00::",
    "fd12:3456::1",
    "fdff::1",
    "fe80::1",
    "febf::1",
    "fec0::1",
    "ff00::",
    "ff02::1",
    "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
};

/* Their neighbours. */
static const char *const allowed[] = {
    "1.0.0.0",      "9.255.255.255",
    "11.0.0.0",     "100.63.255.255",
    "100.128.0.0",  "126.255.255.255",
    "128.0.0.0",    "169.253.255.255",
    "169.255.0.0",  "172.15.255.255",
    "172.32.0.0",   "192.0.1.0",
    "192.0.3.0",    "192.167.0.0",
    "192.169.0.0",  "198.17.255.255",
    "198.20.0.0",   "198.51.99.255",
    "198.51.101.0", "203.0.112.255",
    "203.0.114.0",  "223.255.255.255",
    "8.8.8.8",      "2000::1",
    "2001:200::1",  "2001:4860:4860::8888",
    "2003::1",      "2606:4700::1",
    "2a00::1",      "3ffe::1",
    "3fff:1000::1",
};

static void test_addresses_that_are_not_public_are_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        if (!refusal(refused[i]))
            fail_msg("%s passes", refused[i]);
}

static void test_public_addresses_pass(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++)
        if (refusal(allowed[i]))
            fail_msg("%s: %s", allowed[i], refusal(allowed[i]));
}

static void test_other_families_are_refused(void **state) {
    (void)state;
    static const sa_family_t families[] = {AF_UNSPEC, AF_UNIX, AF_NETLINK, AF_PACKET};
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        union address a = {.any.sa_family = families[i]};
        assert_non_null(address_refusal(&a.any));
        assert_false(address_is_public(&a.any));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PLAIN(test_addresses_that_are_not_public_are_refused),
        PLAIN(test_public_addresses_pass),
        PLAIN(test_other_families_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
