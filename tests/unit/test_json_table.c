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
    const json_t *more;
    size_t length;
};

static int read_length(const json_t *value, void *member, struct err *err) {
    if (!json_is_array(value))
        return err_set(err, ERR_BAD_REQUEST, "\"list\" must be a list");
    *(size_t *)member = json_array_size(value);
    return 0;
}

static const struct json_field table[] = {
    JSON_TEXT("name", struct thing, name), JSON_INT("size", struct thing, size, 1, 10),
    JSON_BOOL("open", struct thing, open), JSON_ENUM("color", struct thing, color, colors),
    JSON_TREE("more", struct thing, more), JSON_READ("list", struct thing, length, read_length),
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

static void test_what_is_missing_or_null_keeps_its_default(void **state) {
    (void)state;
    struct err err;
    struct thing t = {.name = "d", .size = 7, .open = true, .color = COLOR_GREEN};
    _cleanup_(json) json_t *j =
        json_read_str("{\"name\":null,\"size\":null,\"open\":null,\"color\":null}");
    assert_int_equal(read_thing(j, "the thing", &t, &err), 0);
    assert_string_equal(t.name, "d");
    assert_int_equal(t.size, 7);
    assert_true(t.open);
    assert_int_equal(t.color, COLOR_GREEN);
    assert_null(t.more);
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
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct err err;
        struct thing t = {0};
        _cleanup_(json) json_t *j = json_read_str(bad[i].text);
        assert_int_equal(read_thing(j, "the thing", &t, &err), -ERR_BAD_REQUEST);
        assert_string_equal(err.message, bad[i].error);
    }
}

static void test_other_keys_are_left_alone_if_the_object_has_no_name(void **state) {
    (void)state;
    struct err err;
    struct thing t = {0};
    _cleanup_(json) json_t *j = json_read_str("{\"zebra\":1,\"size\":2}");
    assert_int_equal(read_thing(j, NULL, &t, &err), 0);
    assert_int_equal(t.size, 2);
    assert_int_equal(read_thing(NULL, NULL, &t, &err), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PLAIN(test_each_kind_goes_to_its_member),
        PLAIN(test_what_is_missing_or_null_keeps_its_default),
        PLAIN(test_an_error_names_the_key_and_what_it_takes),
        PLAIN(test_other_keys_are_left_alone_if_the_object_has_no_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
