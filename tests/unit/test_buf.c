#include "base/buf.h"
#include "unit/unit.h"

#include <stdlib.h>
#include <string.h>

static void test_it_grows_and_stays_terminated(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 100000);
    for (int i = 0; i < 1000; i++)
        assert_true(buf_add(&b, "0123456789", 10));
    assert_int_equal(b.len, 10000);
    assert_int_equal(b.data[b.len], 0);
    buf_finish(&b);
    assert_null(b.data);
    assert_int_equal(b.max, 100000);
}

static void test_the_maximum_can_be_reached_and_not_passed(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 10);
    assert_true(buf_add(&b, "0123456789", 10));
    assert_false(b.full);
    assert_false(buf_add_char(&b, 'x'));
    assert_true(b.full);
    assert_int_equal(b.len, 10);
    assert_true(buf_add(&b, "", 0)); /* nothing fits always */
    assert_false(buf_addf(&b, "%d", 1));
    assert_null(buf_reserve(&b, SIZE_MAX));
    assert_string_equal(b.data, "0123456789");
    buf_clear(&b);
    assert_false(b.full);
    assert_false(buf_add(&b, "0123456789a", 11));
    assert_int_equal(b.len, 0);
    buf_finish(&b);
}

static void test_consume_drops_from_the_front(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 100);
    buf_consume(&b, 5); /* of an empty one */
    (void)buf_add_str(&b, "abcdef");
    buf_consume(&b, 2);
    assert_string_equal(b.data, "cdef");
    buf_consume(&b, 0);
    assert_string_equal(b.data, "cdef");
    buf_consume(&b, 100);
    assert_int_equal(b.len, 0);
    assert_string_equal(b.data, "");
    buf_finish(&b);
}

static void test_steal_hands_the_bytes_over(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 100);
    (void)buf_addf(&b, "%s-%d", "a", 7);
    size_t n = 0;
    char *s = buf_steal(&b, &n);
    assert_string_equal(s, "a-7");
    assert_int_equal(n, 3);
    assert_null(b.data);
    free(s);
    s = buf_steal(&b, &n);
    assert_string_equal(s, "");
    free(s);
    buf_finish(NULL);
}

static void test_bytes_may_be_nul(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 100);
    assert_true(buf_add(&b, "a\0b", 3));
    assert_int_equal(b.len, 3);
    assert_memory_equal(b.data, "a\0b", 4);
    char *at = buf_reserve(&b, 4);
    memcpy(at, "wxyz", 4);
    buf_claim(&b, 2);
    assert_memory_equal(b.data, "a\0bwx", 6);
    buf_finish(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PLAIN(test_it_grows_and_stays_terminated),
        PLAIN(test_the_maximum_can_be_reached_and_not_passed),
        PLAIN(test_consume_drops_from_the_front),
        PLAIN(test_steal_hands_the_bytes_over),
        PLAIN(test_bytes_may_be_nul),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
