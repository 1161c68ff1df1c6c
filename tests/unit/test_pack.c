#include "unit/unit.h"
#include "wire/pack.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void fill(struct buf *b) {
    buf_init(b, 1000);
    pack_u8(b, 200);
    pack_u32(b, 0x01020304);
    pack_u64(b, UINT64_MAX - 1);
    pack_f64(b, -0.5);
    pack_bytes(b, "a\0b", 3);
    pack_str(b, "text");
    pack_str(b, NULL);
}

static void test_what_is_packed_comes_out(void **state) {
    (void)state;
    struct buf b;
    fill(&b);
    assert_memory_equal(b.data + 1, "\x04\x03\x02\x01", 4); /* little endian */
    struct unpack u;
    size_t n;
    unpack_init(&u, b.data, b.len);
    assert_int_equal(unpack_u8(&u), 200);
    assert_int_equal(unpack_u32(&u), 0x01020304);
    assert_true(unpack_u64(&u) == UINT64_MAX - 1);
    assert_true(unpack_f64(&u) == -0.5);
    const char *p = unpack_bytes(&u, &n);
    assert_int_equal(n, 3);
    assert_memory_equal(p, "a\0b", 3);
    assert_false(unpack_ok(&u)); /* something is left */
    char *s = unpack_strdup(&u);
    assert_string_equal(s, "text");
    free(s);
    s = unpack_strdup(&u);
    assert_string_equal(s, "");
    free(s);
    assert_true(unpack_ok(&u));
    assert_int_equal(unpack_u8(&u), 0);
    assert_false(unpack_ok(&u));
    buf_finish(&b);
}

static void test_every_cut_is_noticed(void **state) {
    (void)state;
    struct buf b;
    fill(&b);
    for (size_t cut = 0; cut < b.len; cut++) {
        /* A copy of its own, so that a sanitizer sees a read past it. */
        char *part = malloc(cut ? cut : 1);
        memcpy(part, b.data, cut);
        struct unpack u;
        size_t n;
        unpack_init(&u, part, cut);
        (void)unpack_u8(&u);
        (void)unpack_u32(&u);
        (void)unpack_u64(&u);
        (void)unpack_f64(&u);
        assert_non_null(unpack_bytes(&u, &n));
        free(unpack_strdup(&u));
        free(unpack_strdup(&u));
        assert_false(unpack_ok(&u));
        free(part);
    }
    buf_finish(&b);
}

static void test_a_length_that_does_not_fit_is_bad(void **state) {
    (void)state;
    struct unpack u;
    size_t n = 7;
    unpack_init(&u,
                "\xff\xff\xff\xff"
                "abc",
                7);
    assert_string_equal(unpack_bytes(&u, &n), "");
    assert_int_equal(n, 0);
    assert_true(u.bad);
    assert_int_equal(unpack_u8(&u), 0); /* and stays bad */
    unpack_init(&u, "\x03\0\0\0a\0b", 7);
    char *s = unpack_strdup(&u);
    assert_string_equal(s, "");
    assert_false(unpack_ok(&u)); /* a NUL inside */
    free(s);
    unpack_init(&u, NULL, 0);
    assert_true(unpack_ok(&u));
}

static void test_a_full_buffer_is_seen(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 6);
    pack_u32(&b, 1);
    pack_str(&b, "abc");
    assert_true(b.full);
    buf_finish(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PLAIN(test_what_is_packed_comes_out),
        PLAIN(test_every_cut_is_noticed),
        PLAIN(test_a_length_that_does_not_fit_is_bad),
        PLAIN(test_a_full_buffer_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
