#include "base/err.h"
#include "base/utf8.h"
#include "unit/unit.h"

#include <errno.h>
#include <string.h>

static void test_set_returns_the_negative_code(void **state) {
    (void)state;
    struct err e;
    assert_int_equal(err_set(&e, ERR_LIMIT, "over %d", 3), -ERR_LIMIT);
    assert_int_equal(e.code, ERR_LIMIT);
    assert_int_equal(e.sys, 0);
    assert_string_equal(e.message, "over 3");
    assert_int_equal(err_set(NULL, ERR_LIMIT, "x"), -ERR_LIMIT);
    errno = EIO;
    assert_int_equal(err_sys(NULL, "x"), -ERR_IO);
}

static void test_sys_adds_the_reason(void **state) {
    (void)state;
    struct err e;
    errno = ENOENT;
    assert_int_equal(err_sys(&e, "open %s", "f"), -ERR_IO);
    assert_int_equal(e.sys, ENOENT);
    assert_string_equal(e.message, "open f: No such file or directory");
    errno = ENOSPC;
    assert_int_equal(err_sys(&e, "write"), -ERR_FULL);
    assert_int_equal(err_http_status(e.code), 507);
    errno = EDQUOT;
    assert_int_equal(err_sys(NULL, "write"), -ERR_FULL);
}

static void test_wrap_puts_context_before_and_keeps_the_rest(void **state) {
    (void)state;
    struct err e;
    char text[401];
    memset(text, 'm', 400);
    text[400] = 0;
    (void)err_set(&e, ERR_TIMEOUT, "%s", text);
    assert_int_equal(err_wrap(&e, "load '%s'", "f"), -ERR_TIMEOUT);
    assert_int_equal(e.code, ERR_TIMEOUT);
    assert_int_equal(strncmp(e.message, "load 'f': mmm", 13), 0);
    assert_int_equal(strlen(e.message), 10 + 400);
    for (int i = 0; i < 100; i++)
        (void)err_wrap(&e, "%s", text);
    assert_true(strlen(e.message) < sizeof(e.message));
}

static void test_a_message_that_is_too_long_is_cut(void **state) {
    (void)state;
    struct err e;
    char text[2000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    (void)err_set(&e, ERR_IO, "%s", text);
    assert_int_equal(strlen(e.message), sizeof(e.message) - 1);
    errno = EACCES;
    (void)err_sys(&e, "%s", text);
    assert_int_equal(strlen(e.message), sizeof(e.message) - 1);
}

/* Cut anywhere, by the message's size or by a precision, around any bytes. */
static void test_a_message_is_utf8_whatever_went_into_it(void **state) {
    (void)state;
    static const char *const texts[] = {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80",
                                        "\xff",     "\x80",         "\xed\xa0\x80"};
    struct err e;
    char text[700];
    for (size_t t = 0; t < sizeof(texts) / sizeof(texts[0]); t++)
        for (size_t shift = 0; shift < 5; shift++) {
            size_t n = strlen(texts[t]);
            memset(text, 'x', shift);
            for (size_t i = shift; i < sizeof(text) - 1; i++)
                text[i] = texts[t][(i - shift) % n];
            text[sizeof(text) - 1] = 0;
            (void)err_set(&e, ERR_IO, "%s", text);
            assert_true(utf8_is_valid(e.message, strlen(e.message)));
            assert_true(strlen(e.message) > sizeof(e.message) - 5);
            (void)err_wrap(&e, "%s", text);
            assert_true(utf8_is_valid(e.message, strlen(e.message)));
            (void)err_set(&e, ERR_IO, "there is no \"%.64s\" here", text);
            assert_true(utf8_is_valid(e.message, strlen(e.message)));
            assert_non_null(strstr(e.message, "\" here"));
            errno = EACCES;
            (void)err_sys(&e, "%.*s", (int)(495 + shift), text);
            assert_true(utf8_is_valid(e.message, strlen(e.message)));
        }
    (void)err_set(&e, ERR_IO, "no \"%.4s\"", "x\xc3\xa9\xc3\xa9");
    assert_string_equal(e.message, "no \"x\xc3\xa9\"");
}

static void test_every_code_has_a_name_and_a_status(void **state) {
    (void)state;
    for (int c = 1; c < ERR_CODE_COUNT; c++) {
        assert_non_null(err_name((enum err_code)c));
        assert_true(err_http_status((enum err_code)c) >= 400);
        assert_true(err_exit_status((enum err_code)c) > 0);
        for (int d = 1; d < c; d++)
            assert_string_not_equal(err_name((enum err_code)c), err_name((enum err_code)d));
    }
    assert_string_equal(err_name(ERR_CODE_COUNT), "internal_error");
    assert_int_equal(err_http_status((enum err_code) - 5), 500);
    assert_int_equal(err_exit_status((enum err_code)1000), 70);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PLAIN(test_set_returns_the_negative_code),
        PLAIN(test_sys_adds_the_reason),
        PLAIN(test_wrap_puts_context_before_and_keeps_the_rest),
        PLAIN(test_a_message_that_is_too_long_is_cut),
        PLAIN(test_a_message_is_utf8_whatever_went_into_it),
        PLAIN(test_every_code_has_a_name_and_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
