#include "base/cleanup.h"
#include "base/json.h"
#include "unit/unit.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int parse(const char *text, json_t **ret) {
    struct err e;
    return json_parse(text, strlen(text), "text", ret, &e);
}

static void test_what_is_not_json_is_refused(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        " ",
        "{",
        "[1,]",
        "{\"a\":1,}",
        "nul",
        "NaN",
        "Infinity",
        "-",
        "01",
        "1.",
        ".5",
        "+1",
        "'a'",
        "{a:1}",
        "\"\\x\"",
        "\"\\ud800\"",
        "\"\\udc00\\ud800\"",
        "\"\xc3\"",
        "\"\xff\"",
        "\"\xed\xa0\x80\"",
        "\"\xc0\xaf\"",
        "\"\xf4\x90\x80\x80\"",
        "\"tab\there\"",
        "1 2",
        "{\"a\":1,\"a\":2}",
        "1e999",
        "9223372036854775808",
        "-9223372036854775809",
        "123456789012345678901234567890",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        json_t *j = NULL;
        if (parse(bad[i], &j) == 0)
            fail_msg("accepted: %s", bad[i]);
        assert_null(j);
    }
}

static void test_deep_nesting_is_refused_not_followed(void **state) {
    (void)state;
    static char deep[200001];
    memset(deep, '[', 100000);
    memset(deep + 100000, ']', 100000);
    json_t *j = NULL;
    assert_int_equal(parse(deep, &j), -ERR_BAD_REQUEST);
}

static void test_numbers_and_nul_keep_their_value(void **state) {
    (void)state;
    json_t *j = NULL;
    assert_int_equal(parse("[9007199254740993,-9223372036854775808,\"a\\u0000b\"]", &j), 0);
    assert_int_equal(json_integer_value(json_array_get(j, 0)), 9007199254740993);
    assert_true(json_integer_value(json_array_get(j, 1)) == INT64_MIN);
    assert_int_equal(json_string_length(json_array_get(j, 2)), 3);
    struct buf b;
    buf_init(&b, 1000);
    assert_true(json_dump(j, &b));
    assert_string_equal(b.data, "[9007199254740993,-9223372036854775808,\"a\\u0000b\"]");
    buf_finish(&b);
    buf_init(&b, 10);
    assert_false(json_dump(j, &b));
    buf_finish(&b);
    json_decref(j);
}

static void test_an_error_says_where(void **state) {
    (void)state;
    struct err e;
    json_t *j;
    assert_int_equal(json_parse("{\n  \"a\": x\n}", 12, "cay.json", &j, &e), -ERR_BAD_REQUEST);
    assert_non_null(strstr(e.message, "cay.json is not valid JSON: line 2"));
}

static void test_readers_name_the_key(void **state) {
    (void)state;
    struct err e;
    json_t *j;
    static const char *const known[] = {"s", "n", "b", "z", NULL};
    assert_int_equal(parse("{\"s\":\"t\",\"n\":5,\"b\":true,\"z\":null,\"nul\":\"a\\u0000\"}", &j),
                     0);
    assert_int_equal(json_check_keys(j, "thing", known, &e), -ERR_BAD_REQUEST);
    assert_string_equal(e.message, "thing: unknown key \"nul\"");
    const char *s = "old";
    int64_t n = 1;
    bool b = false;
    assert_int_equal(json_get_str(j, "z", &s, &e), 0);
    assert_string_equal(s, "old"); /* null and missing leave it */
    assert_int_equal(json_get_str(j, "missing", &s, &e), 0);
    assert_int_equal(json_get_str(j, "s", &s, &e), 0);
    assert_string_equal(s, "t");
    assert_int_equal(json_get_str(j, "n", &s, &e), -ERR_BAD_REQUEST);
    assert_non_null(strstr(e.message, "\"n\" must be a string"));
    assert_int_equal(json_get_str(j, "nul", &s, &e), -ERR_BAD_REQUEST);
    assert_int_equal(json_get_int(j, "n", 0, 5, &n, &e), 0);
    assert_int_equal(n, 5);
    assert_int_equal(json_get_int(j, "n", 6, 9, &n, &e), -ERR_BAD_REQUEST);
    assert_non_null(strstr(e.message, "\"n\" must be an integer from 6 to 9"));
    assert_int_equal(json_get_int(j, "b", 0, 9, &n, &e), -ERR_BAD_REQUEST);
    assert_int_equal(json_get_bool(j, "b", &b, &e), 0);
    assert_true(b);
    assert_int_equal(json_get_bool(j, "n", &b, &e), -ERR_BAD_REQUEST);
    json_decref(j);
    j = json_array();
    assert_int_equal(json_check_keys(j, "thing", known, &e), -ERR_BAD_REQUEST);
    json_decref(j);
}

static void written(const char *text, size_t len, const char *wanted) {
    struct buf b;
    buf_init(&b, 1000);
    json_write_str(&b, text, len);
    assert_string_equal(b.data, wanted);
    buf_finish(&b);
}

static void test_strings_are_escaped(void **state) {
    (void)state;
    written("a\"\\/b", 5, "\"a\\\"\\\\/b\"");
    written("\n\r\t\b\x01\x1f\x7f", 7, "\"\\n\\r\\t\\u0008\\u0001\\u001f\\u007f\"");
    written("a\0b", 3, "\"a\\u0000b\"");
    written("", 0, "\"\"");
    written("\xc3\xa4\xf0\x9f\x98\x80", 6, "\"\xc3\xa4\xf0\x9f\x98\x80\"");
    /* What is not UTF-8 becomes U+FFFD, byte by byte. */
    written("a\xff\xc3", 3, "\"a\xef\xbf\xbd\xef\xbf\xbd\"");
    written("\xed\xa0\x80", 3, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
    /* U+009B begins a command on many terminals. */
    written("\xc2\x9b"
            "2J\xc2\xa0",
            6, "\"\\u009b2J\xc2\xa0\"");
}

static void test_the_writer_places_commas(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 1000);
    struct json_writer w;
    json_writer_init(&w, &b);
    json_writer_object_begin(&w);
    json_writer_key(&w, "a");
    json_writer_array_begin(&w);
    json_writer_int(&w, INT64_MIN);
    json_writer_num(&w, 0.1);
    json_writer_num(&w, NAN);
    json_writer_num(&w, -INFINITY);
    json_writer_array_begin(&w);
    json_writer_array_end(&w);
    json_writer_str(&w, NULL);
    json_writer_array_end(&w);
    json_writer_key(&w, "b");
    json_writer_object_begin(&w);
    json_writer_object_end(&w);
    json_writer_key(&w, "c");
    json_writer_raw(&w, "[1]", 3);
    json_writer_key(&w, "d");
    json_writer_bool(&w, false);
    json_writer_key(&w, "e");
    json_writer_tree(&w, NULL);
    json_writer_object_end(&w);
    assert_string_equal(b.data, "{\"a\":[-9223372036854775808,0.1,null,null,[],"
                                "null],\"b\":{},\"c\":[1],\"d\":false,\"e\":null}");
    json_t *j = NULL;
    assert_int_equal(parse(b.data, &j), 0);
    json_decref(j);
    buf_finish(&b);
}

static void test_members_are_a_key_and_a_value(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 1000);
    struct json_writer w;
    json_writer_init(&w, &b);
    json_writer_object_begin(&w);
    json_put_str(&w, "a", "x");
    json_put_str(&w, "b", NULL);
    json_put_text(&w, "c", "y\0z", 3);
    json_put_int(&w, "d", -1);
    json_put_num(&w, "e", 0.5);
    json_put_bool(&w, "f", true);
    json_put_null(&w, "g");
    json_put_time(&w, "h", 1);
    json_put_time(&w, "i", 0);
    json_put_raw(&w, "j", "[1]x", 3);
    json_put_raw_str(&w, "k", "{}");
    json_put_raw_str(&w, "l", NULL);
    json_put_tree(&w, "m", NULL);
    json_put_object_begin(&w, "n");
    json_writer_object_end(&w);
    json_put_array_begin(&w, "o");
    json_writer_array_end(&w);
    json_writer_object_end(&w);
    assert_string_equal(b.data, "{\"a\":\"x\",\"b\":null,\"c\":\"y\\u0000z\",\"d\":-1,\"e\":0.5,"
                                "\"f\":true,\"g\":null,\"h\":\"1970-01-01T00:00:00.001Z\","
                                "\"i\":null,\"j\":[1],\"k\":{},\"l\":null,\"m\":null,"
                                "\"n\":{},\"o\":[]}");
    buf_finish(&b);
}

static void test_a_full_buffer_shows_at_the_end(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 8);
    struct json_writer w;
    json_writer_init(&w, &b);
    json_writer_array_begin(&w);
    for (int i = 0; i < 10; i++)
        json_writer_str(&w, "abc");
    json_writer_array_end(&w);
    assert_true(b.full);
    buf_finish(&b);
}

static void test_values_are_counted_outside_of_strings(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t values;
    } of[] = {{"1", 1},
              {"[1,2,3]", 4},
              {"{\"a\":[{},[]],\"b\":2}", 6},
              {"\",,,[[[\"", 1},
              {"[\"a\\\",,\",\"\\\\\",1]", 4}};
    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
        size_t len = strlen(of[i].text);
        /* It may count too many (a bracket and its first value), never too few. */
        assert_true(json_has_more_values(of[i].text, len, of[i].values - 1) || of[i].values == 1);
        assert_false(json_has_more_values(of[i].text, len, 2 * of[i].values));
    }
    /* It does not look behind the end. */
    assert_false(json_has_more_values("\"\\", 2, 1));
    assert_false(json_has_more_values("\"", 1, 1));
    assert_false(json_has_more_values("", 0, 1));
}

static void test_any_bytes_become_text(void **state) {
    (void)state;
    json_t *j = json_text("a\xff"
                          "b\xc3");
    assert_string_equal(json_string_value(j), "a\xef\xbf\xbd"
                                              "b\xef\xbf\xbd");
    json_decref(j);
    j = json_text("\xc3\xa4\n");
    assert_string_equal(json_string_value(j), "\xc3\xa4\n");
    json_decref(j);
}

/* As printf and strtod have them: the shortest text that reads back as the number. */
static void check_number(double v) {
    char wanted[40];
    _cleanup_(buf) struct buf b;
    struct json_writer w;
    buf_init(&b, 100);
    json_writer_init(&w, &b);
    json_writer_num(&w, v);
    (void)snprintf(wanted, sizeof(wanted), "%.15g", v);
    if (strtod(wanted, NULL) != v)
        (void)snprintf(wanted, sizeof(wanted), "%.17g", v);
    assert_string_equal(b.data, wanted);
}

static void test_numbers_are_written_as_printf_would(void **state) {
    (void)state;
    static const double some[] = {
        0,     -0.0,  1,    -1,     0.001, 0.0005, 0.1234,          0.999,           1e-7,
        1e10,  1e11,  1e15, 1e16,   1e300, 5e-324, 99999999999.999, 12345678901.234, 1.1,
        2.675, 100.5, 0.3,  1 / 3.0};
    for (size_t i = 0; i < ARRAY_LEN(some); i++)
        check_number(some[i]);
    for (uint64_t n = 0; n < 20000; n++) {
        check_number((double)n / 1000);
        check_number((double)(n * 7919 * 1000003 % 99999999999999) / 1000);
        check_number((double)n / 1024);
    }
    static const int64_t whole[] = {0, 7, -7, 10, 99, 100, INT64_MAX, INT64_MIN, INT64_MIN + 1};
    for (size_t i = 0; i < ARRAY_LEN(whole); i++) {
        char wanted[40];
        _cleanup_(buf) struct buf b;
        struct json_writer w;
        buf_init(&b, 100);
        json_writer_init(&w, &b);
        json_writer_int(&w, whole[i]);
        (void)snprintf(wanted, sizeof(wanted), "%" PRId64, whole[i]);
        assert_string_equal(b.data, wanted);
    }
}

static void test_a_tree_is_written_as_jansson_would(void **state) {
    (void)state;
    static const char *const texts[] = {
        "{}",
        "[]",
        "[[],{},[{}]]",
        "{\"a\":{\"b\":[1,2,{\"c\":null}]},\"d\":true,\"e\":false}",
        "[0,-1,9223372036854775807,-9223372036854775808]",
        "[1.5,1e300,-0.0,1e-7,123456789.125,3.0]",
        ("\"\\u0000\\u0001\\b\\f\\n\\r\\t\\u001f\\u007f\\u0080\\u00e"
         "4\\u20ac\\ud83d\\ude00/\\\\\\\"\""),
        "{\"\":1,\"k\\n\\\"\":2}"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        _cleanup_(json) json_t *j = NULL;
        size_t len = 0;
        assert_int_equal(json_parse(texts[i], strlen(texts[i]), "text", &j, NULL), 0);
        _cleanup_(free) char *wanted = json_dumps(j, JSON_COMPACT | JSON_ENCODE_ANY);
        _cleanup_(free) char *got = json_dump_text(j, 1000, &len);
        assert_string_equal(got, wanted);
        assert_int_equal(len, strlen(wanted));
        assert_null(json_dump_text(j, len - 1, NULL));
    }
    /* Longer than the pieces it is written in. */
    for (size_t n = 1000; n < 1040; n++) {
        char *long_text = calloc(1, n + 1);
        memset(long_text, 'x', n);
        long_text[n - 1] = 1;
        _cleanup_(json) json_t *j = json_string(long_text);
        _cleanup_(free) char *wanted = json_dumps(j, JSON_COMPACT | JSON_ENCODE_ANY);
        _cleanup_(free) char *got = json_dump_text(j, 10000, NULL);
        assert_string_equal(got, wanted);
        free(long_text);
    }
}

static void check_member(const char *text, const char *key, const char *want) {
    size_t len = 0;
    const char *got = json_find_member(text, strlen(text), key, &len);
    if (!want) {
        assert_null(got);
        return;
    }
    assert_non_null(got);
    assert_int_equal(len, strlen(want));
    assert_memory_equal(got, want, len);
}

static void test_a_member_is_found_in_the_text(void **state) {
    (void)state;
    static const char text[] =
        " { \"a\" : 1 , \"b\":{\"c\":[\"}\\\"\",2]},\"c\":\"x,\\\"d\\\":5\",\"d\":null}";
    check_member(text, "\"a\"", "1");
    check_member(text, "\"b\"", "{\"c\":[\"}\\\"\",2]}");
    check_member(text, "\"c\"", "\"x,\\\"d\\\":5\"");
    check_member(text, "\"d\"", "null");
    check_member(text, "\"e\"", NULL);
    check_member(text, "\"\"", NULL);
    check_member("{}", "\"a\"", NULL);
    check_member("[1]", "\"a\"", NULL);
    check_member("", "\"a\"", NULL);
    for (size_t cut = 0; cut < strlen(text); cut++) { /* one that lies about its end */
        size_t len;
        const char *got = json_find_member(text, cut, "\"d\"", &len);
        assert_true(!got || got + len <= text + cut);
    }
}

/* What one reader takes, the other takes too: nothing that was accepted and stored is lost. */
static void test_what_is_stored_is_read_by_the_same_rule(void **state) {
    (void)state;
    static const char *const texts[] = {
        "\"a\\u0000b\"",     "{\"a\":[\"\\u0000\"]}", "1", "null",        "[]",
        "{\"a\":1,\"a\":2}", "{\"a\\u0000\":1}",      "{", "\"\\ud800\"", "99999999999999999999"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        _cleanup_(json) json_t *a = NULL;
        int rc = parse(texts[i], &a);
        _cleanup_(json) json_t *b = json_read_str(texts[i]);
        assert_true((rc == 0) == (b != NULL));
        _cleanup_(free) char *text = rc == 0 ? json_dump_text(a, 1000, NULL) : NULL;
        _cleanup_(json) json_t *again = json_read_str(text);
        assert_true(rc < 0 || json_equal(a, again));
    }
    assert_null(json_read_str(NULL));
    assert_null(json_read(NULL, 0));
    /* The deepest that is accepted can be stored inside something else. */
    char deep[2 * JSON_DEPTH_MAX + 4] = "";
    memset(deep, '[', JSON_DEPTH_MAX);
    memset(deep + JSON_DEPTH_MAX, ']', JSON_DEPTH_MAX);
    _cleanup_(json) json_t *j = NULL;
    assert_int_equal(parse(deep, &j), 0);
    _cleanup_(json) json_t *outer = json_pack("{s:{s:O}}", "a", "b", j);
    _cleanup_(free) char *text = json_dump_text(outer, 10000, NULL);
    _cleanup_(json) json_t *again = json_read_str(text);
    assert_non_null(again);
    memset(deep, '[', JSON_DEPTH_MAX + 1);
    memset(deep + JSON_DEPTH_MAX + 1, ']', JSON_DEPTH_MAX + 1);
    json_t *none = NULL;
    assert_int_equal(parse(deep, &none), -ERR_BAD_REQUEST);
}

static void check_nul(const char *text, const char *what, const char *where) {
    struct err err = {0};
    _cleanup_(json) json_t *j = json_read_str(text);
    assert_non_null(j);
    assert_int_equal(json_check_no_nul(j, what, &err), where ? -ERR_BAD_REQUEST : 0);
    if (where)
        assert_non_null(strstr(err.message, where));
}

static void test_a_nul_is_found_and_named(void **state) {
    (void)state;
    check_nul("{\"a\":\"x\",\"b\":[1,null,\"y\"]}", "m", NULL);
    check_nul("{\"a\":\"x\\u0000y\"}", "tags", "\"tags.a\"");
    check_nul("{\"a\":{\"c\":\"z\"},\"b\":[\"x\",{\"k\":\"\\u0000\"}]}", "m", "\"m.b[1].k\"");
    check_nul("{\"a\":\"\\u0000\"}", NULL, "\"a\"");
    check_nul("\"\\u0000\"", "name", "\"name\"");
    assert_int_equal(json_check_no_nul(NULL, "m", NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_are_written_as_printf_would),
        PLAIN(test_what_is_not_json_is_refused),
        PLAIN(test_deep_nesting_is_refused_not_followed),
        PLAIN(test_numbers_and_nul_keep_their_value),
        PLAIN(test_an_error_says_where),
        PLAIN(test_readers_name_the_key),
        PLAIN(test_strings_are_escaped),
        PLAIN(test_the_writer_places_commas),
        PLAIN(test_members_are_a_key_and_a_value),
        PLAIN(test_a_full_buffer_shows_at_the_end),
        PLAIN(test_values_are_counted_outside_of_strings),
        PLAIN(test_any_bytes_become_text),
        PLAIN(test_a_tree_is_written_as_jansson_would),
        PLAIN(test_a_member_is_found_in_the_text),
        PLAIN(test_what_is_stored_is_read_by_the_same_rule),
        PLAIN(test_a_nul_is_found_and_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
