#include "unit.h"

#include "base/cleanup.h"
#include "front/common/caller.h"

#include <string.h>

static char *proxies[] = {(char *)"127.0.0.1", (char *)"10.1.0.0/16", (char *)"2001:db8::/33"};

static void check(const char *peer, const char *forwarded, const char *wanted) {
    char out[64];
    caller_address(peer, forwarded, proxies, ARRAY_LEN(proxies), out, sizeof(out));
    assert_string_equal(out, wanted);
}

static void test_only_a_proxy_is_believed(void **state) {
    (void)state;
    check("198.51.100.7", "203.0.113.5", "198.51.100.7");
    check("198.51.100.7", NULL, "198.51.100.7");
    check("127.0.0.1", NULL, "127.0.0.1");
    check("127.0.0.1", "203.0.113.5", "203.0.113.5");
    check("127.0.0.1", "6.6.6.6, 203.0.113.5", "203.0.113.5");
    check("127.0.0.1", "6.6.6.6,203.0.113.5 ,\t10.1.255.255", "203.0.113.5");
    check("127.0.0.1", "10.2.0.1, 10.1.0.1", "10.2.0.1");
    check("2001:db8:7fff::1", "2001:db8:8000::2", "2001:db8:8000::2");
    check("2001:db8:8000::1", "203.0.113.5", "2001:db8:8000::1");
    check("127.0.0.1", "[2001:db9::1]", "2001:db9::1");
    check("127.0.0.1", "::ffff:203.0.113.5", "203.0.113.5");
}

/* Least of all it is somebody on this machine. */
static void test_what_is_no_address_is_nobody(void **state) {
    (void)state;
    static const char *const bad[] = {"",
                                      ",",
                                      "203.0.113.5,",
                                      "203.0.113.5, unknown",
                                      "203.0.113.5, unknown, 10.1.2.3",
                                      "203.0.113.5, unknown, 127.0.0.1",
                                      "unix:",
                                      "203.0.113.5:",
                                      ":80",
                                      "203.0.113.5:80:80",
                                      "[2001:db9::1]:x"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        check("127.0.0.1", bad[i], CALLER_UNKNOWN);
    assert_false(caller_is_local(CALLER_UNKNOWN));
    char flood[4096];
    memset(flood, '1', sizeof(flood) - 1);
    flood[sizeof(flood) - 1] = 0;
    check("127.0.0.1", flood, CALLER_UNKNOWN);
    for (size_t i = 0; i + 10 < sizeof(flood); i += 10)
        memcpy(flood + i, "127.0.0.1,", 10);
    memcpy(flood + sizeof(flood) - 10, "127.0.0.1", 10);
    check("127.0.0.1", flood, CALLER_UNKNOWN);
    check("", "203.0.113.5", "");
}

static void test_a_port_is_not_part_of_it(void **state) {
    (void)state;
    check("127.0.0.1", "203.0.113.5:4711", "203.0.113.5");
    check("127.0.0.1", "[2001:db9::1]:4711", "2001:db9::1");
    check("127.0.0.1", "2001:db9::1:80", "2001:db9::1:80");
}

static void test_ranges(void **state) {
    (void)state;
    static const char *const good[] = {"1.2.3.4",       "1.2.3.4/32", "0.0.0.0/0", "::1",
                                       "2001:db8::/32", "::/0",       "[::1]"};
    static const char *const bad[] = {"",       "x",          "1.2.3",     "1.2.3.4/33", "1.2.3.4/",
                                      "::/129", "1.2.3.4/-1", "1.2.3.4/x", "localhost"};
    struct err err;
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert_int_equal(caller_net_check(good[i], &err), 0);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(caller_net_check(bad[i], &err), -ERR_BAD_REQUEST);
    char *all4[] = {(char *)"0.0.0.0/0"};
    assert_true(caller_is_in("9.9.9.9", all4, 1));
    assert_false(caller_is_in("2001:db8::1", all4, 1));
}

static void test_a_network_of_64_bits_is_one(void **state) {
    (void)state;
    unsigned char a[CALLER_NAME_SIZE];
    unsigned char b[CALLER_NAME_SIZE];
    assert_int_equal(caller_name("2001:db8:1:2::1", a), 9);
    assert_int_equal(caller_name("2001:db8:1:2:ffff::9", b), 9);
    assert_memory_equal(a, b, 9);
    assert_int_equal(caller_name("2001:db8:1:3::1", b), 9);
    assert_memory_not_equal(a, b, 9);
    assert_int_equal(caller_name("1.2.3.4", a), 5);
    assert_int_equal(caller_name("::ffff:1.2.3.4", b), 5);
    assert_memory_equal(a, b, 5);
    assert_int_equal(caller_name("?", a), 0);
    assert_true(caller_is_local(""));
    assert_true(caller_is_local("127.9.9.9"));
    assert_true(caller_is_local("::1"));
    assert_true(caller_is_local("::ffff:127.0.0.1"));
    assert_false(caller_is_local("128.0.0.1"));
    assert_false(caller_is_local("x"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_a_proxy_is_believed),
        cmocka_unit_test(test_what_is_no_address_is_nobody),
        cmocka_unit_test(test_a_port_is_not_part_of_it),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_a_network_of_64_bits_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
