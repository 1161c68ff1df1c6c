/* The pure parts of the facet: its messages, and the reader of a call's arguments. */

#include "base/base64.h"
#include "base/mem.h"
#include "facet/args.h"
#include "wire/facet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The text in memory of exactly its size, so that a sanitizer sees a read past its end. */
static struct buf scratch;
static char *exact;

static struct args args_of(const char *json) {
    struct args a;
    size_t n = strlen(json);
    free(exact);
    exact = xmalloc(n ? n : 1);
    memcpy(exact, json, n);
    buf_finish(&scratch);
    buf_init(&scratch, 1 << 20);
    args_init(&a, exact, n, &scratch);
    return a;
}

static int teardown(void **state) {
    (void)state;
    free(exact);
    exact = NULL;
    buf_finish(&scratch);
    return 0;
}

static struct arg one(const char *json) {
    struct args a = args_of(json);
    struct arg v = {0};
    struct arg rest;
    assert_int_equal(args_enter(&a), 1);
    assert_int_equal(args_value(&a, &v), 1);
    assert_int_equal(args_value(&a, &rest), 0);
    return v;
}

static void assert_text(const char *json, const char *text, size_t len) {
    struct arg v = one(json);
    assert_int_equal(v.type, ARG_TEXT);
    assert_int_equal(v.len, len);
    assert_memory_equal(v.p, text, len);
}

static void reads_every_scalar(void **state) {
    (void)state;
    assert_int_equal(one("[null]").type, ARG_NULL);
    assert_int_equal(one(" [ true ] ").i, 1);
    assert_int_equal(one("[false]").i, 0);
    assert_int_equal(one("[false]").type, ARG_INT);
    assert_int_equal(one("[-12]").i, -12);
    assert_int_equal(one("[0]").i, 0);
    assert_true(one("[9223372036854775807]").i == INT64_MAX);
    assert_true(one("[-9223372036854775808]").i == INT64_MIN);
    assert_int_equal(one("[9223372036854775808]").type, ARG_REAL);
    assert_true(one("[1.5e3]").d == 1500.0);
    assert_int_equal(one("[1e2]").type, ARG_REAL);
    assert_text("[\"\"]", "", 0);
    assert_text("[\"plain \xc3\xa4\"]", "plain \xc3\xa4", 8);
    assert_true(one("[[\"i\",\"9007199254740993\"]]").i == 9007199254740993);
    assert_true(one("[[\"i\",\"-1\"]]").i == -1);
    struct arg b = one("[ [ \"b\" , \"AAH/\" ] ]");
    assert_int_equal(b.type, ARG_BLOB);
    assert_int_equal(b.len, 3);
    assert_memory_equal(b.p, "\x00\x01\xff", 3);
    assert_int_equal(one("[[\"b\",\"\"]]").type, ARG_BLOB);
}

static void decodes_escapes(void **state) {
    (void)state;
    assert_text("[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"]", "\"\\/\b\f\n\r\t", 8);
    assert_text("[\"a\\u0000b\"]", "a\0b", 3);
    assert_text("[\"\\u00e4\\u20ac\"]", "\xc3\xa4\xe2\x82\xac", 5);
    assert_text("[\"\\ud83d\\ude00\"]", "\xf0\x9f\x98\x80", 4);
    /* Strings before an escape stay where they are; a blob may have been escaped itself. */
    struct args a = args_of("[\"x\\n\",\"y\\n\",[\"b\",\"\\/\\/8=\"],\"z\\n\"]");
    struct arg v[4];
    assert_int_equal(args_enter(&a), 1);
    for (int i = 0; i < 4; i++)
        assert_int_equal(args_value(&a, &v[i]), 1);
    assert_memory_equal(v[0].p, "x\n", 2);
    assert_memory_equal(v[1].p, "y\n", 2);
    assert_int_equal(v[2].len, 2);
    assert_memory_equal(v[2].p, "\xff\xff", 2);
    assert_memory_equal(v[3].p, "z\n", 2);
}

static void replaces_lone_surrogates(void **state) {
    (void)state;
    assert_text("[\"\\ud800\"]", "\xef\xbf\xbd", 3);
    assert_text("[\"\\udc00x\"]", "\xef\xbf\xbdx", 4);
    assert_text("[\"\\ud800\\u0041\"]",
                "\xef\xbf\xbd"
                "A",
                4);
    assert_text("[\"\\ud800\\ud83d\\ude00\"]", "\xef\xbf\xbd\xf0\x9f\x98\x80", 7);
}

static void refuses_what_is_not_json(void **state) {
    (void)state;
    static const char *const BAD[] = {
        "",
        "[",
        "]",
        "x",
        "{}",
        "1",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[1]x",
        "[1]]",
        "[\"a]",
        "[\"a\\\"]",
        "[\"\\x\"]",
        "[\"\\u12\"]",
        "[\"\\u12g4\"]",
        "[\"\n\"]",
        "[\"\xff\"]",
        "[\"\xed\xa0\x80\"]",
        "[01]",
        "[-]",
        "[1.]",
        "[.5]",
        "[1e]",
        "[+1]",
        "[0x10]",
        "[NaN]",
        "[Infinity]",
        "[1e999]",
        "[nul]",
        "[nulll]",
        "[tru]",
        "['a']",
        "[{}]",
        "[[]]",
        "[[1]]",
        "[[\"b\"]]",
        "[[\"b\",1]]",
        "[[\"c\",\"\"]]",
        "[[\"b\",\"A\"]]",
        "[[\"b\",\"AA=A\"]]",
        "[[\"b\",\"AB==\"]]",
        "[[\"b\",\"A A=\"]]",
        "[[\"i\",\"\"]]",
        "[[\"i\",\"-\"]]",
        "[[\"i\",\"1.5\"]]",
        "[[\"i\",\"9223372036854775808\"]]",
        "[[\"i\",\"1\",2]]",
        "[[\"bb\",\"AA==\"]]",
        "[/**/1]",
        "[\"a\"",
        "[1,\"a\"",
    };
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        struct args a = args_of(BAD[i]);
        struct arg v;
        int rc = args_enter(&a);
        while (rc == 1)
            rc = args_value(&a, &v);
        if (rc >= 0)
            fail_msg("accepted: %s", BAD[i]);
        assert_non_null(a.error);
    }
}

static void walks_a_batch(void **state) {
    (void)state;
    struct args a = args_of("[[[\"b\",\"AAAA\"],[\"x\"]]]");
    struct arg v;
    assert_int_equal(args_enter(&a), 1); /* the arguments */
    assert_int_equal(args_enter(&a), 1); /* the list */
    assert_int_equal(args_enter(&a), 1); /* a statement, although it looks like a blob */
    assert_int_equal(args_value(&a, &v), 1);
    assert_int_equal(v.type, ARG_TEXT);
    assert_int_equal(args_value(&a, &v), 1);
    assert_int_equal(args_value(&a, &v), 0);
    assert_int_equal(args_enter(&a), 1);
    assert_int_equal(args_value(&a, &v), 1);
    assert_int_equal(args_leave(&a), 1);
    assert_int_equal(args_enter(&a), 0);
    assert_int_equal(args_leave(&a), 1);
}

static void base64_is_strict_and_exact(void **state) {
    (void)state;
    char out[16];
    size_t n;
    static const char *const PAIRS[][2] = {
        {"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}};
    for (size_t i = 0; i < 5; i++) {
        size_t len = strlen(PAIRS[i][0]);
        base64_encode(out, PAIRS[i][0], len);
        assert_int_equal(BASE64_SIZE(len), strlen(PAIRS[i][1]));
        assert_memory_equal(out, PAIRS[i][1], strlen(PAIRS[i][1]));
        assert_true(base64_decode(out, PAIRS[i][1], strlen(PAIRS[i][1]), &n));
        assert_int_equal(n, len);
        assert_memory_equal(out, PAIRS[i][0], len);
    }
    assert_false(base64_decode(out, "====", 4, &n));
    assert_false(base64_decode(out, "Zg=", 3, &n));
    assert_false(base64_decode(out, "Zg==Zg==", 8, &n));
}

/* Decodes every shortened form of a message: none may pass, none may read past the end. */
#define REFUSES_SHORT_FORMS(b, decode)                                                             \
    for (size_t n_ = 0; n_ < (b).len; n_++) {                                                      \
        char *cut_ = xmalloc(n_ ? n_ : 1);                                                         \
        memcpy(cut_, (b).data, n_);                                                                \
        assert_true(decode(cut_, n_) < 0);                                                         \
        free(cut_);                                                                                \
    }

static int decode_open(const void *p, size_t n) {
    struct facet_open m;
    struct err err;
    int rc = facet_open_decode(p, n, &m, &err);
    if (rc == 0)
        facet_open_finish(&m);
    return rc;
}

static int decode_grant(const void *p, size_t n) {
    struct facet_grant m;
    struct err err;
    int rc = facet_grant_decode(p, n, &m, &err);
    if (rc == 0)
        facet_grant_finish(&m);
    return rc;
}

static void messages_survive_the_wire(void **state) {
    (void)state;
    struct err err;
    struct buf b;
    buf_init(&b, 1 << 16);
    struct facet_method methods[] = {{(char *)"all", (char *)"SELECT 1", FACET_KIND_QUERY},
                                     {(char *)"add", (char *)"INSERT", FACET_KIND_EXECUTE}};
    struct facet_open o = {.file = (char *)"a.db",
                           .schema = (char *)"s",
                           .seed_table = (char *)"t",
                           .full = true,
                           .idle_ms = 7,
                           .limits = {.rows = 1, .stall_ms = 8, .calls_per_s = 9},
                           .methods = methods,
                           .nmethods = 2};
    struct facet_open got;
    facet_open_encode(&b, &o);
    assert_int_equal(facet_open_decode(b.data, b.len, &got, &err), 0);
    assert_string_equal(got.file, "a.db");
    assert_string_equal(got.seed, "");
    assert_string_equal(got.seed_table, "t");
    assert_true(got.full);
    assert_int_equal(got.idle_ms, 7);
    assert_int_equal(got.limits.rows, 1);
    assert_int_equal(got.limits.stall_ms, 8);
    assert_int_equal(got.limits.calls_per_s, 9);
    assert_int_equal(got.nmethods, 2);
    assert_string_equal(got.methods[1].name, "add");
    assert_int_equal(got.methods[1].kind, FACET_KIND_EXECUTE);
    facet_open_finish(&got);
    REFUSES_SHORT_FORMS(b, decode_open);

    char *names[] = {(char *)"query", (char *)"all"};
    struct facet_grant g = {.grant = 5, .label = (char *)"l", .methods = names, .nmethods = 2};
    struct facet_grant got_grant;
    buf_clear(&b);
    facet_grant_encode(&b, &g);
    assert_int_equal(facet_grant_decode(b.data, b.len, &got_grant, &err), 0);
    assert_int_equal(got_grant.grant, 5);
    assert_false(got_grant.all);
    assert_string_equal(got_grant.methods[1], "all");
    facet_grant_finish(&got_grant);
    REFUSES_SHORT_FORMS(b, decode_grant);

    buf_clear(&b);
    struct facet_audit a = {.grant = 1,
                            .duration_us = 2,
                            .method = "m",
                            .method_len = 1,
                            .code = "",
                            .sql = "S",
                            .sql_len = 1};
    facet_audit_encode(&b, &a);
    facet_audit_encode(&b, &a);
    struct unpack u;
    unpack_init(&u, b.data, b.len);
    assert_int_equal(facet_audit_next(&u, &a, &err), 1);
    assert_int_equal(facet_audit_next(&u, &a, &err), 1);
    assert_int_equal(a.duration_us, 2);
    assert_int_equal(facet_audit_next(&u, &a, &err), 0);
    unpack_init(&u, b.data, b.len - 1);
    assert_int_equal(facet_audit_next(&u, &a, &err), 1);
    assert_true(facet_audit_next(&u, &a, &err) < 0);

    buf_clear(&b);
    (void)err_set(&err, ERR_LIMIT, "too much");
    facet_error_encode(&b, &err);
    assert_int_equal(facet_error_decode(b.data, b.len, &err), -ERR_LIMIT);
    assert_string_equal(err.message, "too much");
    buf_finish(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(reads_every_scalar, teardown),
        cmocka_unit_test_teardown(decodes_escapes, teardown),
        cmocka_unit_test_teardown(replaces_lone_surrogates, teardown),
        cmocka_unit_test_teardown(refuses_what_is_not_json, teardown),
        cmocka_unit_test_teardown(walks_a_batch, teardown),
        cmocka_unit_test(base64_is_strict_and_exact),
        cmocka_unit_test(messages_survive_the_wire),
    };
    return cmocka_run_group_tests_name("facet args", tests, NULL, NULL);
}
