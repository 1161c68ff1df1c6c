#include "base/clock.h"
#include "unit/unit.h"

#include <time.h>

static void test_rfc3339(void **state) {
    (void)state;
    char out[CLOCK_RFC3339_SIZE];
    assert_string_equal(clock_rfc3339(0, out), "1970-01-01T00:00:00.000Z");
    assert_string_equal(clock_rfc3339(1735689600007, out), "2025-01-01T00:00:00.007Z");
    assert_string_equal(clock_rfc3339(253402300799999, out), "9999-12-31T23:59:59.999Z");
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
    const struct CMUnitTest tests[] = {PLAIN(test_rfc3339), PLAIN(test_clocks_go_on)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
