#include "isolate/rows.h"
#include "unit/unit.h"

#include <stdlib.h>
#include <string.h>

static char space[4096];

static struct buf room(size_t max) {
    return (struct buf){.data = space, .cap = sizeof(space), .max = max};
}

static void expect(const char *text, const char *objects) {
    struct buf out = room(sizeof(space) - 1);
    if (!rows_to_objects(text, strlen(text), &out))
        fail_msg("refused: %s", text);
    assert_int_equal(out.len, strlen(objects));
    assert_memory_equal(out.data, objects, out.len);
}

static void test_rows_become_objects(void **state) {
    (void)state;
    expect("{\"columns\":[\"a\"],\"rows\":[]}", "[]");
    expect("{\"columns\":[\"a\"],\"rows\":[[1],[2]]}", "[{\"a\":1},{\"a\":2}]");
    expect("{\"columns\":[\"a\",\"b\\\"]\"],\"rows\":[[-1.5e3,null],[true,\"x,\\\\\\\"]\"]]}",
           "[{\"a\":-1.5e3,\"b\\\"]\":null},{\"a\":true,\"b\\\"]\":\"x,\\\\\\\"]\"}]");
    expect("{\"columns\":[\"\"],\"rows\":[[\"\"]]}", "[{\"\":\"\"}]");
}

static void test_what_is_not_rows_is_refused(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",
        "null",
        "{}",
        "{\"columns\":[],\"rows\":[]}",
        "{\"columns\":[\"a\"]}",
        "{\"columns\":[\"a\"],\"rows\":[[1]]} ",
        "{\"columns\":[\"a\"],\"rows\":[[1],]}",
        "{\"columns\":[\"a\"],\"rows\":[,[1]]}",
        "{\"columns\":[\"a\"],\"rows\":[[1][2]]}",
        "{\"columns\":[\"a\"],\"rows\":[[1,2]]}",
        "{\"columns\":[\"a\",\"b\"],\"rows\":[[1]]}",
        "{\"columns\":[\"a\"],\"rows\":[[]]}",
        "{\"columns\":[\"a\"],\"rows\":[[[\"i\",\"9\"]]]}",
        "{\"columns\":[\"a\"],\"rows\":[[{}]]}",
        "{\"columns\":[\"a\"],\"rows\":[[1 ]]}",
        "{\"columns\":[1],\"rows\":[[1]]}",
        "{\"rows\":[[1]],\"columns\":[\"a\"]}",
        "{\"success\":true,\"columns\":[\"a\"],\"rows\":[[1]]}",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct buf out = room(sizeof(space) - 1);
        if (rows_to_objects(texts[i], strlen(texts[i]), &out))
            fail_msg("taken: %s", texts[i]);
    }
}

static void test_every_cut_is_refused(void **state) {
    (void)state;
    static const char text[] =
        "{\"columns\":[\"a\",\"\\\"\"],\"rows\":[[\"\\\\\",1],[null,\"z\"]]}";
    for (size_t n = 0; n < sizeof(text) - 1; n++) {
        char *cut = malloc(n ? n : 1); /* of that size: what is read beyond is seen */
        struct buf out = room(sizeof(space) - 1);
        memcpy(cut, text, n);
        assert_false(rows_to_objects(cut, n, &out));
        free(cut);
    }
}

static void test_what_does_not_fit_is_refused(void **state) {
    (void)state;
    static const char text[] = "{\"columns\":[\"a long name\"],\"rows\":[[1],[2],[3]]}";
    static const char made[] = "[{\"a long name\":1},{\"a long name\":2},{\"a long name\":3}]";
    for (size_t max = 0; max < sizeof(made) - 1; max++) {
        struct buf out = room(max);
        assert_false(rows_to_objects(text, sizeof(text) - 1, &out));
    }
    struct buf out = room(sizeof(made) - 1);
    assert_true(rows_to_objects(text, sizeof(text) - 1, &out));
    char many[2048] = "{\"columns\":[\"0\"";
    for (int i = 1; i < 65; i++)
        (void)strncat(many, ",\"0\"", sizeof(many) - strlen(many) - 1);
    (void)strncat(many, "],\"rows\":[]}", sizeof(many) - strlen(many) - 1);
    struct buf other = room(sizeof(space) - 1);
    assert_false(rows_to_objects(many, strlen(many), &other));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_become_objects),
        cmocka_unit_test(test_what_is_not_rows_is_refused),
        cmocka_unit_test(test_every_cut_is_refused),
        cmocka_unit_test(test_what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
