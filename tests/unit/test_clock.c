#include "base/clock.h"
#include "unit/unit.h"

#include <string.h>
#include <time.h>

static void test_rfc3339(void **state) {
    (void)state;
    char out[CLOCK_RFC3339_SIZE];
    assert_string_equal(clock_rfc3339(0, out), "1970-01-01T00:00:00.000Z");
    assert_string_equal(clock_rfc3339(1735689600007, out), "2025-01-01T00:00:00.007Z");
    assert_string_equal(clock_rfc3339(253402300799999, out), "9999-12-31T23:59:59.999Z");
}

static void test_rfc3339_agrees_with_the_library(void **state) {
    (void)state;
    char out[CLOCK_RFC3339_SIZE];
    assert_string_equal(clock_rfc3339(-1, out), "1969-12-31T23:59:59.999Z");
    assert_string_equal(clock_rfc3339(951782400000, out), "2000-02-29T00:00:00.000Z");
    assert_string_equal(clock_rfc3339(INT64_MAX / 2, out), "");
    assert_string_equal(clock_rfc3339(INT64_MIN / 2, out), "");
    /* Every 17 hours from the year 1890 to 2300, past all kinds of leap years. */
    for (int64_t s = -2524608000; s < 10413792000; s += 61201) {
        time_t t = (time_t)s;
        struct tm tm;
        char wanted[CLOCK_RFC3339_SIZE];
        (void)strftime(wanted, sizeof(wanted), "%Y-%m-%dT%H:%M:%S.000Z", gmtime_r(&t, &tm));
        if (strcmp(clock_rfc3339(s * 1000, out), wanted) != 0)
            fail_msg("%s is not %s", out, wanted);
    }
}

static void test_clocks_go_on(void **state) {
    (void)state;
    int64_t mono = clock_mono_ns();
    int64_t ms = clock_mono_ms();
    struct timespec t = {.tv_nsec = 5000000};
    (void)nanosleep(&t, NULL);
    assert_true(clock_mono_ns() - mono >= 5000000);
    assert_true(clock_mono_ms() - ms >= 4);
    int64_t wall = clock_wall_ms() / 1000;
    int64_t now = (int64_t)time(NULL);
    assert_true(wall - now <= 1 && now - wall <= 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PLAIN(test_rfc3339), PLAIN(test_rfc3339_agrees_with_the_library), PLAIN(test_clocks_go_on)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
