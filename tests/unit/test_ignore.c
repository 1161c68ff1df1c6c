#include "base/ignore.h"
#include "unit/unit.h"

#include <string.h>

/* Each answer here is git's: `git check-ignore --no-index` says the same. */
static const struct {
    const char *rules; /* of the top folder */
    const char *path;
    bool is_dir;
    bool ignored;
} cases[] = {
    {"*.log", "a.log", false, true},
    {"*.log", "deep/down/a.log", false, true},
    {"*.log", "a.logs", false, false},
    {"*.log\n!keep.log", "keep.log", false, false},
    {"!keep.log\n*.log", "keep.log", false, true},
    {"/build", "build", true, true},
    {"/build", "sub/build", true, false},
    {"build/", "build", true, true},
    {"build/", "build", false, false},
    {"build/", "sub/build", true, true},
    {"a/b", "a/b", false, true},
    {"a/b", "x/a/b", false, false},
    {"**/a/b", "x/y/a/b", false, true},
    {"**/a", "a", false, true},
    {"a/**", "a/x/y", false, true},
    {"a/**", "a", true, false},
    {"a/**/b", "a/b", false, true},
    {"a/**/b", "a/x/y/b", false, true},
    {"a/**/b", "a/x/y/c", false, false},
    {"a/*", "a/x", false, true},
    {"a/*/c", "a/x/y/c", false, false},
    {"?.c", "a.c", false, true},
    {"?.c", "ab.c", false, false},
    {"[a-c].o", "b.o", false, true},
    {"k[[:digit:]_].o", "k7.o", false, true},
    {"k[[:digit:]_].o", "k_.o", false, true},
    {"k[[:digit:]_].o", "kd.o", false, false},
    {"k[![:alpha:]]", "kb", false, false},
    {"k[[:digits:]]", "k7", false, false},
    {"[!a-c].o", "b.o", false, false},
    {"[]x].o", "].o", false, true},
    {"a[", "a[", false, false},
    {"\\#x", "#x", false, true},
    {"#x", "#x", false, false},
    {"\\!x", "!x", false, true},
    {"x  ", "x", false, true},
    {"x\\ ", "x ", false, true},
    {"x\r\ny", "x", false, true},
    {"\xef\xbb\xbfx", "x", false, true},
    {"\\*", "*", false, true},
    {"\\*", "a", false, false},
    {"", "a", false, false},
    {"/", "a", true, false},
    {"**", "a/b", false, true},
    {"a**b", "axxb", false, true},
    {"a**b/c", "ax/xb/c", false, false},
    {"*a*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false, false},
};

static void rules_mean_what_git_says(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ignore g = {0};
        ignore_add(&g, "", cases[i].rules, strlen(cases[i].rules));
        if (ignore_matches(&g, cases[i].path, cases[i].is_dir) != cases[i].ignored)
            fail_msg("'%s' and '%s'", cases[i].rules, cases[i].path);
        ignore_finish(&g);
    }
}

static void a_folder_has_rules_of_its_own(void **state) {
    (void)state;
    struct ignore g = {0};
    ignore_add(&g, "", "*.o", 3);
    size_t mark = g.n;
    ignore_add(&g, "sub", "!x.o\n/y", 7);
    assert_false(ignore_matches(&g, "sub/x.o", false));
    assert_true(ignore_matches(&g, "x.o", false));
    assert_true(ignore_matches(&g, "sub/y", false));
    assert_false(ignore_matches(&g, "sub/d/y", false));
    assert_false(ignore_matches(&g, "subs/y", false));
    ignore_drop(&g, mark);
    assert_true(ignore_matches(&g, "sub/x.o", false));
    ignore_finish(&g);
}

static void rules_have_a_limit(void **state) {
    (void)state;
    struct ignore g = {0};
    for (int i = 0; i <= IGNORE_RULES_MAX; i++)
        ignore_add(&g, "", "x", 1);
    assert_true(g.full);
    assert_int_equal(g.n, IGNORE_RULES_MAX);
    ignore_finish(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_mean_what_git_says),
        cmocka_unit_test(a_folder_has_rules_of_its_own),
        cmocka_unit_test(rules_have_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
