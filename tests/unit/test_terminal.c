#include "front/cli/terminal.h"
#include "unit/unit.h"

#include <string.h>

static void assert_shown(const char *text, size_t len, const char *expected) {
    struct buf b;
    buf_init(&b, 4096);
    terminal_clean(&b, text, len);
    assert_string_equal(b.data ? b.data : "", expected);
    buf_finish(&b);
}

static void plain_text_stays(void **state) {
    (void)state;
    const char *text = "a\tb\nünïcödé 日本 🙂 العربية";
    assert_shown(text, strlen(text), text);
}

static void what_a_terminal_obeys_is_shown(void **state) {
    (void)state;
    assert_shown("\x1b[2J\x07\r", 6, "\\x1b[2J\\x07\\x0d");
    assert_shown("a\0b", 3, "a\\x00b");
    assert_shown("\x7f", 1, "\\x7f");
    assert_shown("\xc2\x9b"
                 "31m",
                 5, "\\u009b31m"); /* CSI as one character */
}

static void what_turns_or_hides_text_is_shown(void **state) {
    (void)state;
    assert_shown("\xe2\x80\xae"
                 "gpj.exe",
                 10, "\\u202egpj.exe"); /* override */
    assert_shown("\xe2\x81\xa6", 3, "\\u2066");
    assert_shown("\xe2\x80\x8b", 3, "\\u200b");
    assert_shown("\xe2\x80\xa8", 3, "\\u2028");
    assert_shown("\xef\xbb\xbf", 3, "\\ufeff");
    assert_shown("\xf3\xa0\x81\x81", 4, "\\U000e0041"); /* a tag */
}

static void bytes_that_are_no_text_are_shown(void **state) {
    (void)state;
    assert_shown("th\xe9!", 4, "th\\xe9!");
    assert_shown("\xe2\x80", 2, "\\xe2\\x80");
    assert_shown("\xc0\x9b", 2, "\\xc0\\x9b");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PLAIN(plain_text_stays),
        PLAIN(what_a_terminal_obeys_is_shown),
        PLAIN(what_turns_or_hides_text_is_shown),
        PLAIN(bytes_that_are_no_text_are_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
