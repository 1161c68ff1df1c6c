#include "front/task/hooks.h"
#include "unit/unit.h"

#include <stdlib.h>
#include <string.h>

static struct err e;

/* The example of the specification of Standard Webhooks. */
static void test_a_signature_is_as_the_specification_says(void **state) {
    (void)state;
    char *s = hooks_sign("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek",
                         "1614265330", "{\"test\": 2432232314}");
    assert_string_equal(s, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    free(s);
    assert_null(hooks_sign("plain", "a", "1", "{}"));
}

static void test_secrets_and_addresses_have_a_form(void **state) {
    (void)state;
    static const char *const bad_secrets[] = {
        "", "whsec_", "whsec_AAAA", "AAAAAAAAAAAAAAAAAAAAAAAA", "whsec_!!!!!!!!!!!!!!!!!!!!!!!!"};
    static const char *const bad_urls[] = {"",
                                           "x",
                                           "ftp://h/",
                                           "http://",
                                           "http://u@h/",
                                           "http://u:p@h/",
                                           "http://h/ x",
                                           "http://h/\r\nX: y",
                                           "http://h/#x",
                                           "http://h/?\x7f",
                                           "http://h/?\xc3\xa4",
                                           "http://h:99999/",
                                           "file:///etc/passwd"};
    static const char *const good_urls[] = {"http://h/", "https://h:8443/a?b=c",
                                            "http://[::1]:80/"};
    char longest[200] = "whsec_";
    memset(longest + 6, 'A', 88); /* 66 bytes */
    assert_int_equal(hooks_check_secret(longest, &e), -ERR_BAD_REQUEST);
    assert_int_equal(hooks_check_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", &e), 0);
    for (size_t i = 0; i < sizeof(bad_secrets) / sizeof(bad_secrets[0]); i++)
        assert_int_equal(hooks_check_secret(bad_secrets[i], &e), -ERR_BAD_REQUEST);
    for (size_t i = 0; i < sizeof(bad_urls) / sizeof(bad_urls[0]); i++)
        if (hooks_check_url(bad_urls[i], &e) == 0)
            fail_msg("%s is taken", bad_urls[i]);
    for (size_t i = 0; i < sizeof(good_urls) / sizeof(good_urls[0]); i++)
        if (hooks_check_url(good_urls[i], &e) < 0)
            fail_msg("%s is not taken", good_urls[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {PLAIN(test_a_signature_is_as_the_specification_says),
                                       PLAIN(test_secrets_and_addresses_have_a_form)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
