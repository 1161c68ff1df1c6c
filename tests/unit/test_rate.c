#include "unit.h"

#include "base/cleanup.h"
#include "front/common/rate.h"

#include <stdio.h>
#include <string.h>

static bool take(struct rates *r, const char *name, int64_t per_minute, int64_t now_ms,
                 struct rate_left *left) {
    struct rate_left ignored;
    return rates_take(r, name, strlen(name), per_minute, now_ms, left ? left : &ignored);
}

static void test_so_many_a_minute_and_evenly_after(void **state) {
    (void)state;
    struct rates *r = rates_create(1024);
    struct rate_left left;
    for (int i = 0; i < 60; i++) {
        assert_true(take(r, "a", 60, 5, &left));
        assert_int_equal(left.requests, 59 - i);
    }
    assert_false(take(r, "a", 60, 5, &left));
    assert_int_equal(left.requests, 0);
    assert_in_range(left.wait_s, 1, 2);
    assert_true(take(r, "b", 60, 5, NULL));
    assert_false(take(r, "a", 60, 900, NULL));
    assert_true(take(r, "a", 60, 1100, NULL));
    assert_false(take(r, "a", 60, 1100, NULL));
    assert_true(take(r, "a", 60, 3600000, &left)); /* full again, and no more than that */
    assert_int_equal(left.requests, 59);
    assert_true(take(r, "a", 6, 3600000, &left)); /* a rate that was lowered holds at once */
    assert_int_equal(left.requests, 5);
    rates_destroy(r);
}

static void test_a_clock_that_goes_back_gives_nothing(void **state) {
    (void)state;
    struct rates *r = rates_create(8);
    for (int i = 0; i < 3; i++)
        assert_true(take(r, "a", 3, 100000, NULL));
    assert_false(take(r, "a", 3, 0, NULL));
    assert_false(take(r, "a", 3, 100, NULL));
    rates_destroy(r);
}

static void test_many_names_get_no_more_than_the_table_has(void **state) {
    (void)state;
    enum { PLACES = 64, RATE = 10 };
    struct rates *r = rates_create(PLACES);
    int n = 0;
    for (int i = 0; i < 20000; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "n%d", i);
        n += take(r, name, RATE, 1000, NULL);
    }
    assert_in_range(n, PLACES, PLACES * RATE);
    rates_destroy(r);
}

/* One who has had its requests stays known while others come and go. */
static void test_nobody_is_forgotten_by_a_flood_of_others(void **state) {
    (void)state;
    struct rates *r = rates_create(64);
    for (int i = 0; i < 10; i++)
        assert_true(take(r, "victim", 10, 0, NULL));
    for (int i = 0; i < 5000; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "n%d", i % 100);
        (void)take(r, name, 10, 0, NULL);
        assert_false(take(r, "victim", 10, 0, NULL));
    }
    rates_destroy(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_so_many_a_minute_and_evenly_after),
        cmocka_unit_test(test_a_clock_that_goes_back_gives_nothing),
        cmocka_unit_test(test_many_names_get_no_more_than_the_table_has),
        cmocka_unit_test(test_nobody_is_forgotten_by_a_flood_of_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
