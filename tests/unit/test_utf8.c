#include "base/utf8.h"
#include "unit/unit.h"

#include <string.h>

static void test_sequences(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t n;
    } cases[] = {
        {"a", 1},
        {"\x7f", 1},
        {"\xc2\x80", 2},
        {"\xdf\xbf", 2},
        {"\xe0\xa0\x80", 3},
        {"\xed\x9f\xbf", 3},
        {"\xee\x80\x80", 3},
        {"\xef\xbf\xbf", 3},
        {"\xf0\x90\x80\x80", 4},
        {"\xf4\x8f\xbf\xbf", 4},
        {"\x80", 0},
        {"\xbf", 0},
        {"\xc0\x80", 0},
        {"\xc1\xbf", 0},
        {"\xe0\x9f\xbf", 0},
        {"\xed\xa0\x80", 0},
        {"\xed\xbf\xbf", 0},
        {"\xf0\x8f\xbf\xbf", 0},
        {"\xf4\x90\x80\x80", 0},
        {"\xf5\x80\x80\x80", 0},
        {"\xff", 0},
        {"\xfe", 0},
        {"\xc2", 0},
        {"\xe0\xa0", 0},
        {"\xf0\x90\x80", 0},
        {"\xc2"
         "a",
         0},
        {"\xe0\xa0"
         "a",
         0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t len = strlen(cases[i].text);
        assert_int_equal(utf8_sequence(cases[i].text, len), cases[i].n);
        assert_int_equal(utf8_is_valid(cases[i].text, len), cases[i].n > 0);
    }
    assert_int_equal(utf8_sequence("", 0), 0);
    assert_true(utf8_is_valid("", 0));
    assert_true(utf8_is_valid("a\0b", 3));
}

static void test_every_code_point_agrees_with_the_rule(void **state) {
    (void)state;
    for (unsigned c = 0x80; c <= 0x10ffff; c++) {
        char s[4];
        size_t n = 0;
        if (c < 0x800) {
            s[n++] = (char)(0xc0 | c >> 6);
        } else if (c < 0x10000) {
            s[n++] = (char)(0xe0 | c >> 12);
            s[n++] = (char)(0x80 | (c >> 6 & 63));
        } else {
            s[n++] = (char)(0xf0 | c >> 18);
            s[n++] = (char)(0x80 | (c >> 12 & 63));
            s[n++] = (char)(0x80 | (c >> 6 & 63));
        }
        s[n++] = (char)(0x80 | (c & 63));
        bool surrogate = c >= 0xd800 && c <= 0xdfff;
        if (utf8_sequence(s, n) != (surrogate ? 0 : n))
            fail_msg("U+%04X", c);
    }
}

static void test_floor_never_cuts_a_sequence(void **state) {
    (void)state;
    static const char text[] = "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80z";
    size_t len = sizeof(text) - 1;
    static const size_t wanted[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11, 11};
    for (size_t max = 0; max < sizeof(wanted) / sizeof(wanted[0]); max++)
        assert_int_equal(utf8_floor(text, len, max), wanted[max]);
}

static void test_floor_sees_a_text_that_is_cut_itself(void **state) {
    (void)state;
    static const char text[] = "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80z";
    static const size_t wanted[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11};
    for (size_t len = 0; len < sizeof(wanted) / sizeof(wanted[0]); len++)
        assert_int_equal(utf8_floor(text, len, len), wanted[len]);
    assert_int_equal(utf8_floor("\x80\x80\x80\x80\x80", 5, 5), 5);
}

static void test_mending_keeps_what_is_whole(void **state) {
    (void)state;
    static const struct {
        const char *from;
        const char *to;
    } cases[] = {
        {"", ""},
        {"plain", "plain"},
        {"a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"\xc3\xa4\xc3", "\xc3\xa4"},
        {"\"\xc3\xa4\xc3\" is none", "\"\xc3\xa4\" is none"},
        {"\xf0\x9f\x98", ""},
        {"\xf0\x9f\x98\xe2\x82\xac", "\xe2\x82\xac"},
        {"\x80x\xff", "?x?"},
        {"\xed\xa0\x80", "???"},
        {"\xc0\xaf", "??"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[32];
        size_t len = strlen(cases[i].from);
        memcpy(text, cases[i].from, len + 1);
        assert_int_equal(utf8_mend(text, len), strlen(cases[i].to));
        assert_string_equal(text, cases[i].to);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PLAIN(test_sequences),
        PLAIN(test_every_code_point_agrees_with_the_rule),
        PLAIN(test_floor_never_cuts_a_sequence),
        PLAIN(test_floor_sees_a_text_that_is_cut_itself),
        PLAIN(test_mending_keeps_what_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
