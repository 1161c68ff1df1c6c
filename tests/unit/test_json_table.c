#include "base/cleanup.h"
#include "base/json_table.h"
#include "unit/unit.h"

#include <string.h>

enum color { COLOR_RED, COLOR_GREEN, COLOR_BLUE };
static const char *const colors[] = {"red", "green", "blue"};

struct thing {
    const char *name;
    int64_t size;
    bool open;
    enum color color;
    const json_t *more, *values, *map;
    size_t length;
    int64_t most;
    struct inside {
        const char *word;
        struct deeper {
            int64_t depth;
        } deeper;
    } inside;
};

static int read_length(const json_t *value, void *member, struct err *err) {
    if (!json_is_array(value))
        return err_set(err, ERR_BAD_REQUEST, "\"list\" must be a list");
    *(size_t *)member = json_array_size(value);
    return 0;
}

static const struct json_field deeper[] = {JSON_INT("depth", struct deeper, depth, 0, 9)};
static const struct json_field inside[] = {
    JSON_TEXT_MAX("word", struct inside, word, 3),
    JSON_OBJECT("deeper", struct inside, deeper, deeper),
};
static const struct json_field here[] = {JSON_INT_UPTO("most", struct thing, most, 2)};

static const struct json_field table[] = {
    JSON_TEXT("name", struct thing, name),
    JSON_INT("size", struct thing, size, 1, 10),
    JSON_BOOL("open", struct thing, open),
    JSON_ENUM("color", struct thing, color, colors),
    JSON_TREE("more", struct thing, more),
    JSON_READ("list", struct thing, length, read_length, "array"),
    JSON_LIST_MAX("values", struct thing, values, 2),
    JSON_MAP("map", struct thing, map),
    JSON_OBJECT("inside", struct thing, inside, inside),
    JSON_OBJECT_HERE("here", here),
};

static int read_thing(const json_t *j, const char *what, struct thing *t, struct err *err) {
    return json_table_read(table, sizeof(table) / sizeof(table[0]), j, what, t, err);
}

static void test_each_kind_goes_to_its_member(void **state) {
    (void)state;
    struct err err;
    struct thing t = {0};
    _cleanup_(json) json_t *j = json_read_str("{\"name\":\"n\",\"size\":10,\"open\":true,"
                                              "\"color\":\"blue\",\"more\":{},\"list\":[1,2]}");
    assert_int_equal(read_thing(j, "the thing", &t, &err), 0);
    assert_string_equal(t.name, "n");
    assert_int_equal(t.size, 10);
    assert_true(t.open);
    assert_int_equal(t.color, COLOR_BLUE);
    assert_ptr_equal(t.more, json_object_get(j, "more"));
    assert_int_equal(t.length, 2);
}

static void test_objects_are_read_by_their_own_tables(void **state) {
    (void)state;
    struct err err;
    struct thing t = {.most = 5};
    _cleanup_(json) json_t *j =
        json_read_str("{\"values\":[1,2],\"map\":{\"a\":1},\"here\":{\"most\":5},"
                      "\"inside\":{\"word\":\"abc\",\"deeper\":{\"depth\":9}}}");
    assert_int_equal(read_thing(j, "the thing", &t, &err), 0);
    assert_ptr_equal(t.values, json_object_get(j, "values"));
    assert_ptr_equal(t.map, json_object_get(j, "map"));
    assert_string_equal(t.inside.word, "abc");
    assert_int_equal(t.inside.deeper.depth, 9);
    assert_int_equal(t.most, 5);
}

static void test_what_is_missing_or_null_keeps_its_default(void **state) {
    (void)state;
    struct err err;
    struct thing t = {.name = "d", .size = 7, .open = true, .color = COLOR_GREEN};
    _cleanup_(json) json_t *j =
        json_read_str("{\"name\":null,\"size\":null,\"open\":null,\"color\":null,\"values\":null,"
                      "\"map\":null,\"inside\":null,\"here\":{\"most\":null}}");
    assert_int_equal(read_thing(j, "the thing", &t, &err), 0);
    assert_string_equal(t.name, "d");
    assert_int_equal(t.size, 7);
    assert_true(t.open);
    assert_int_equal(t.color, COLOR_GREEN);
    assert_null(t.more);
    assert_null(t.values);
    assert_null(t.map);
}

static void test_an_error_names_the_key_and_what_it_takes(void **state) {
    (void)state;
    static const struct {
        const char *text, *error;
    } bad[] = {
        {"[]", "the thing must be a JSON object"},
        {"{\"nam\":1}", "the thing: unknown key \"nam\": did you mean \"name\"?"},
        {"{\"zebra\":1}", "the thing: unknown key \"zebra\""},
        {"{\"name\":1}", "\"name\" must be a string"},
        {"{\"name\":\"a\\u0000b\"}", "\"name\" must not hold a NUL character"},
        {"{\"size\":11}", "\"size\" must be an integer from 1 to 10"},
        {"{\"size\":1.5}", "\"size\" must be an integer from 1 to 10"},
        {"{\"open\":1}", "\"open\" must be true or false"},
        {"{\"color\":1}", "\"color\" must be a string"},
        {"{\"color\":\"pink\"}", "\"color\" must be \"red\", \"green\" or \"blue\""},
        {"{\"list\":null}", "\"list\" must be a list"},
        {"{\"values\":{}}", "\"values\" must be a list"},
        {"{\"values\":[1,2,3]}", "\"values\" must be a list of at most 2 values"},
        {"{\"map\":[]}", "\"map\" must be an object"},
        {"{\"inside\":1}", "\"inside\" must be an object"},
        {"{\"inside\":{\"wort\":1}}", "\"inside\": unknown key \"wort\": did you mean \"word\"?"},
        {"{\"inside\":{\"word\":1}}", "inside: \"word\" must be a string"},
        {"{\"inside\":{\"deeper\":{\"depth\":10}}}",
         "inside: deeper: \"depth\" must be an integer from 0 to 9"},
        {"{\"here\":{\"most\":1}}", "here: \"most\" must be an integer from 2 to 5"},
        {"{\"here\":{\"most\":6}}", "here: \"most\" must be an integer from 2 to 5"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct err err;
        struct thing t = {.most = 5};
        _cleanup_(json) json_t *j = json_read_str(bad[i].text);
        assert_int_equal(read_thing(j, "the thing", &t, &err), -ERR_BAD_REQUEST);
        assert_string_equal(err.message, bad[i].error);
    }
}

static void test_other_keys_are_left_alone_if_the_object_has_no_name(void **state) {
    (void)state;
    struct err err;
    struct thing t = {0};
    _cleanup_(json) json_t *j = json_read_str("{\"zebra\":1,\"size\":2,\"inside\":{\"zebra\":1}}");
    assert_int_equal(read_thing(j, NULL, &t, &err), 0);
    assert_int_equal(t.size, 2);
    assert_int_equal(read_thing(NULL, NULL, &t, &err), 0);
}

static void test_a_text_that_is_too_long_is_too_large(void **state) {
    (void)state;
    struct err err;
    struct thing t = {0};
    _cleanup_(json) json_t *j = json_read_str("{\"inside\":{\"word\":\"abcd\"}}");
    assert_int_equal(read_thing(j, "the thing", &t, &err), -ERR_TOO_LARGE);
    assert_string_equal(err.message, "inside: \"word\" exceeds 3 bytes");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PLAIN(test_each_kind_goes_to_its_member),
        PLAIN(test_objects_are_read_by_their_own_tables),
        PLAIN(test_a_text_that_is_too_long_is_too_large),
        PLAIN(test_what_is_missing_or_null_keeps_its_default),
        PLAIN(test_an_error_names_the_key_and_what_it_takes),
        PLAIN(test_other_keys_are_left_alone_if_the_object_has_no_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
