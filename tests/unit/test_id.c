#include "base/id.h"
#include "unit/unit.h"

#include <string.h>
#include <time.h>

static void test_ids_are_valid_and_differ(void **state) {
    (void)state;
    char ids[200][ID_SIZE];
    for (int i = 0; i < 200; i++) {
        (void)id_new("run", ids[i]);
        assert_int_equal(strlen(ids[i]), 30);
        assert_true(id_is_valid("run", ids[i], strlen(ids[i])));
        for (int k = 0; k < i; k++)
            assert_string_not_equal(ids[i], ids[k]);
    }
}

static void test_ids_sort_by_time(void **state) {
    (void)state;
    char before[ID_SIZE];
    char after[ID_SIZE];
    for (int i = 0; i < 20000; i++) {
        (void)id_new("run", before);
        (void)id_new("run", after);
        assert_true(strcmp(before, after) < 0);
    }
}

static void test_a_floor_is_below_what_is_made_from_then_on(void **state) {
    (void)state;
    char floor[ID_SIZE];
    char id[ID_SIZE];
    int64_t now = (int64_t)time(NULL) * 1000;
    (void)id_new("run", id);
    assert_true(strcmp(id_floor("run", now - 60000, floor), id) < 0);
    assert_true(id_is_valid("run", floor, strlen(floor)));
    assert_true(strcmp(id_floor("run", now + 60000, floor), id) > 0);
    assert_string_equal(id_floor("run", -5, floor), "run_00000000000000000000000000");
}

static void test_other_texts_are_not_valid(void **state) {
    (void)state;
    char id[ID_SIZE];
    (void)id_new("run", id);
    assert_false(id_is_valid("key", id, 30));
    assert_false(id_is_valid("run", id, 29));
    assert_false(id_is_valid("run", "run_", 4));
    assert_false(id_is_valid("run", "", 0));
    char bad[ID_SIZE];
    memcpy(bad, id, sizeof(bad));
    static const char others[] = "ILOUiluo/.-_A\0%";
    for (size_t i = 0; i < sizeof(others) - 1; i++) {
        if (others[i] == 'l' || others[i] == 'u' || others[i] == 'o' || others[i] == 'i' ||
            !strchr("0123456789abcdefghjkmnpqrstvwxyz", others[i]) || others[i] == 0) {
            bad[20] = others[i];
            assert_false(id_is_valid("run", bad, 30));
        }
    }
}

static void test_a_long_prefix_fits(void **state) {
    (void)state;
    char id[ID_SIZE];
    (void)id_new("abcdefghijkl", id);
    assert_int_equal(strlen(id), ID_SIZE - 1);
    assert_true(id_is_valid("abcdefghijkl", id, strlen(id)));
}

static void test_uuids_have_version_and_variant(void **state) {
    (void)state;
    char a[UUID_SIZE];
    char b[UUID_SIZE];
    (void)id_uuid(a);
    (void)id_uuid(b);
    assert_int_equal(strlen(a), 36);
    assert_int_equal(a[14], '4');
    assert_non_null(strchr("89ab", a[19]));
    assert_string_not_equal(a, b);
}

static void test_an_id_and_its_uuid_are_two_spellings(void **state) {
    (void)state;
    char uuid[UUID_SIZE];
    char id[ID_SIZE];
    char back[ID_SIZE];
    for (int i = 0; i < 200; i++) {
        (void)id_to_uuid(id_new("run", id), uuid);
        assert_int_equal(strlen(uuid), 36);
        assert_int_equal(uuid[14], '7');
        assert_non_null(strchr("89ab", uuid[19]));
        assert_true(id_from_uuid("run", uuid, back));
        assert_string_equal(back, id);
    }
    assert_true(id_from_uuid("run", "0193A7F0-0000-7000-8000-00000000000F", id));
    assert_string_equal(id_to_uuid(id, uuid), "0193a7f0-0000-7000-8000-00000000000f");
    assert_false(id_from_uuid("run", "", id));
    assert_false(id_from_uuid("run", "0193a7f0-0000-7000-8000-00000000000", id));
    assert_false(id_from_uuid("run", "0193a7f0-0000-7000-8000-00000000000f0", id));
    assert_false(id_from_uuid("run", "0193a7f0-0000-7000-8000_00000000000f", id));
    assert_false(id_from_uuid("run", "0193a7g0-0000-7000-8000-00000000000f", id));
    assert_false(id_from_uuid("run", "run_01jd3v0000000000000000000", id));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PLAIN(test_ids_are_valid_and_differ),
        PLAIN(test_ids_sort_by_time),
        PLAIN(test_a_floor_is_below_what_is_made_from_then_on),
        PLAIN(test_other_texts_are_not_valid),
        PLAIN(test_a_long_prefix_fits),
        PLAIN(test_uuids_have_version_and_variant),
        PLAIN(test_an_id_and_its_uuid_are_two_spellings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
