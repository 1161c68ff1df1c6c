#include "unit/unit.h"
#include "wire/changes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct err err;

static struct changes_record record(enum changes_kind kind, const char *path) {
    struct changes_record r = {.kind = kind,
                               .op = CHANGES_ADDED,
                               .mode = CHANGES_MODE_FILE,
                               .size = 3,
                               .has_content = true,
                               .why = CHANGES_WHY_LARGE};
    (void)snprintf(r.path, sizeof(r.path), "%s", path);
    return r;
}

/* How many records of a stream are read; negative: it is refused. */
static int count(const struct buf *b, size_t piece, bool base) {
    static struct changes_record r;
    struct changes_reader reader;
    int n = 0;
    int rc = 0;
    changes_reader_init(&reader, base);
    for (size_t at = 0; at < b->len && rc == 0; at += piece) {
        rc = changes_reader_feed(&reader, b->data + at, b->len - at < piece ? b->len - at : piece,
                                 &err);
        while (rc == 0 && (rc = changes_reader_next(&reader, &r, &err)) > 0) {
            rc = 0;
            n++;
        }
    }
    changes_reader_finish(&reader);
    return rc < 0 ? rc : n;
}

static void what_is_packed_is_read(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 1 << 20);
    struct changes_record change = record(CHANGES_CHANGE, "a/b");
    struct changes_record content = {.kind = CHANGES_CONTENT, .data = "xyz", .len = 3};
    struct changes_record diff = {.kind = CHANGES_DIFF, .data = "diff", .len = 4};
    struct changes_record left = record(CHANGES_LEFT, "c/.git");
    struct changes_record end = {.kind = CHANGES_END, .end = {.added = 7, .cut = true}};
    changes_pack(&b, &change);
    changes_pack(&b, &content);
    changes_pack(&b, &diff);
    changes_pack(&b, &left);
    changes_pack(&b, &end);
    for (size_t piece = 1; piece <= b.len; piece++)
        assert_int_equal(count(&b, piece, false), 5);
    assert_int_equal(count(&b, b.len, true), -ERR_PROTOCOL); /* the other list */
    changes_pack(&b, &diff);
    assert_int_equal(count(&b, b.len, false), -ERR_PROTOCOL); /* after its end */
    buf_finish(&b);
}

static void names_lead_nowhere_else(void **state) {
    (void)state;
    static const char *const wrong[] = {"",    "/",  "/a",   "../a",   "a/..",    "a//b",
                                        "./a", "a/", ".git", "a/.GIT", "GIT~1/x", "a/.git/b"};
    /* What NTFS, HFS+ and an ext4 that folds cases take for ".git". */
    static const char *const git[] = {
        ".git.",         ".git ",       ".GIT. ./config", "a/.git::$INDEX_ALLOCATION/x",
        "git~1 .",       ".git\\hooks", ".g\u200cit",     "a/\ufeff.git\u00ad/x",
        ".git\u2060. :x"};
    static const char *const right[] = {"a",      "a/b",    "...",      ".gitignore",
                                        "git",    "a b",    "...x",     ".git.x",
                                        ".git x", "a:.git", "\u200c.x", "\xff\n"};
    for (size_t i = 0; i < sizeof(git) / sizeof(*git); i++)
        if (changes_path_is_sound(git[i]))
            fail_msg("'%s' is taken", git[i]);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        if (changes_path_is_sound(wrong[i]))
            fail_msg("'%s' is taken", wrong[i]);
    for (size_t i = 0; i < sizeof(right) / sizeof(*right); i++)
        if (!changes_path_is_sound(right[i]))
            fail_msg("'%s' is refused", right[i]);
}

static void order_is_that_of_a_walk(void **state) {
    (void)state;
    static const char *const sorted[] = {"a",   "a/b", "a/b/c", "a/c", "a-b",
                                         "a.b", "aa",  "b",     "\xff"};
    for (size_t i = 0; i < sizeof(sorted) / sizeof(*sorted); i++)
        for (size_t j = 0; j < sizeof(sorted) / sizeof(*sorted); j++) {
            int c = changes_compare(sorted[i], sorted[j]);
            assert_true(i < j ? c < 0 : i > j ? c > 0 : c == 0);
        }
}

static void what_is_out_of_order_or_too_much_is_refused(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 1 << 20);
    struct changes_record one = record(CHANGES_CHANGE, "b");
    struct changes_record two = record(CHANGES_CHANGE, "a");
    one.has_content = two.has_content = false;
    changes_pack(&b, &one);
    changes_pack(&b, &two);
    assert_int_equal(count(&b, b.len, false), -ERR_PROTOCOL);
    buf_clear(&b);
    one = record(CHANGES_CHANGE, "b");
    one.size = CHANGES_FILE_BYTES + 1;
    changes_pack(&b, &one);
    assert_int_equal(count(&b, b.len, false), -ERR_PROTOCOL);
    static const char *const names[] = {"../x", "/x", ".git/config", "a/../x"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        buf_clear(&b);
        one = record(CHANGES_CHANGE, names[i]);
        changes_pack(&b, &one);
        assert_int_equal(count(&b, b.len, false), -ERR_PROTOCOL);
    }
    buf_clear(&b);
    one = record(CHANGES_CHANGE, "b");
    one.mode = 0104755;
    changes_pack(&b, &one);
    assert_int_equal(count(&b, b.len, false), -ERR_PROTOCOL);
    buf_clear(&b);
    struct changes_record content = {.kind = CHANGES_CONTENT, .data = "xyzx", .len = 4};
    one = record(CHANGES_CHANGE, "b");
    changes_pack(&b, &one);
    changes_pack(&b, &content);
    assert_int_equal(count(&b, b.len, false), -ERR_PROTOCOL);
    buf_finish(&b);
}

static void sums_are_those_of_git(void **state) {
    (void)state;
    static const struct {
        const char *text;
        const char *hash;
    } cases[] = {{"", "da39a3ee5e6b4b0d3255bfef95601890afd80709"},
                 {"abc", "a9993e364706816aba3e25717850c26c9cd0d89d"},
                 {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                  "84983e441c3bd26ebaae4aa1f95129e5e54670f1"}};
    for (size_t i = 0; i < 3; i++)
        for (size_t piece = 1; piece < 70; piece++) {
            struct sha1 s;
            unsigned char hash[SHA1_SIZE];
            char hex[SHA1_HEX_SIZE];
            size_t len = strlen(cases[i].text);
            sha1_init(&s);
            for (size_t at = 0; at < len; at += piece)
                sha1_add(&s, cases[i].text + at, len - at < piece ? len - at : piece);
            sha1_end(&s, hash);
            sha1_hex(hash, hex);
            assert_string_equal(hex, cases[i].hash);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PLAIN(what_is_packed_is_read),  PLAIN(names_lead_nowhere_else),
        PLAIN(order_is_that_of_a_walk), PLAIN(what_is_out_of_order_or_too_much_is_refused),
        PLAIN(sums_are_those_of_git),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
