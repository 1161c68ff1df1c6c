#include "base/clock.h"
#include "unit/unit.h"

#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

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

static void test_rfc3339_is_read(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {{"1970-01-01T00:00:00Z", 0},
                {"2026-11-15T22:00:00.5Z", 1794780000500},
                {"2026-11-15t22:00:00.123999z", 1794780000123},
                {"2026-11-16T00:30:00+02:30", 1794780000000},
                {"2026-11-15T21:59:00-00:01", 1794780000000},
                {"2024-02-29T00:00:00Z", 1709164800000}};
    static const char *const bad[] = {"",
                                      "2026-11-15",
                                      "2026-11-15T22:00:00",
                                      "2026-11-15 22:00:00Z",
                                      "2026-13-15T22:00:00Z",
                                      "2026-02-29T22:00:00Z",
                                      "2026-06-31T22:00:00Z",
                                      "2026-11-15T24:00:00Z",
                                      "2026-11-15T22:00:60Z",
                                      "2026-11-15T22:00:00.Z",
                                      "2026-11-15T22:00:00.1234567890Z",
                                      "2026-11-15T22:00:00Zx",
                                      "2026-11-15T22:00:00+24:00",
                                      "2026-11-15T22:00:00+0100",
                                      "1969-12-31T23:59:59Z",
                                      "+026-11-15T22:00:00Z",
                                      "2026-1-15T22:00:00Z"};
    int64_t ms;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        ms = -1;
        assert_true(clock_parse_rfc3339(good[i].text, &ms));
        assert_int_equal(ms, good[i].ms);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (clock_parse_rfc3339(bad[i], &ms))
            fail_msg("%s is taken", bad[i]);
}

static void test_what_is_left_of_a_day(void **state) {
    (void)state;
    const int64_t midnight = 1735689600000;
    assert_int_equal(clock_day_left_s(midnight), 86400);
    assert_int_equal(clock_day_left_s(midnight + 999), 86400);
    assert_int_equal(clock_day_left_s(midnight + 1000), 86399);
    assert_int_equal(clock_day_left_s(midnight + 86399999), 1);
    assert_int_equal(clock_day_left_s(-1000), 1);
}

static void test_clocks_go_on(void **state) {
    (void)state;
    int64_t mono = clock_mono_ns();
    int64_t ms = clock_mono_ms();
    struct timespec t = {.tv_nsec = 5000000};
    (void)nanosleep(&t, NULL);
    assert_true(clock_mono_ns() - mono >= 5000000);
    assert_true(clock_mono_ms() - ms >= 4);
    int64_t before = (int64_t)time(NULL); /* may be a tick behind */
    int64_t wall = clock_wall_ms() / 1000;
    assert_in_range(wall, before, (int64_t)time(NULL) + 1);
}

static void test_the_clock_of_work_stands_still_in_sleep(void **state) {
    (void)state;
    int64_t cpu = clock_cpu_ms();
    struct timespec t = {.tv_nsec = 300000000};
    (void)nanosleep(&t, NULL);
    assert_in_range(clock_cpu_ms() - cpu, 0, 299);
    for (volatile unsigned i = 0; clock_cpu_ms() - cpu < 2; i++)
        ;
}

static void test_the_work_of_another_process(void **state) {
    (void)state;
    int hold[2];
    assert_int_equal(pipe(hold), 0);
    pid_t child = fork();
    if (child == 0) {
        char c;
        for (volatile unsigned i = 0; clock_cpu_ms() < 3; i++)
            ;
        close(hold[1]);
        _exit(read(hold[0], &c, 1) == 0 ? 0 : 1);
    }
    assert_true(child > 0);
    clockid_t clock;
    struct timespec t = {0};
    assert_int_equal(clock_getcpuclockid(child, &clock), 0);
    while (t.tv_sec == 0 && t.tv_nsec < 3000000)
        assert_int_equal(clock_gettime(clock, &t), 0);
    int64_t known = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    assert_in_range(clock_process_ns(child), known, known + 1000000000); /* the same clock */
    close(hold[0]);
    close(hold[1]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(clock_process_ns(child), 0); /* gone */
    assert_int_equal(clock_process_ns(0), 0);     /* would be our own */
    assert_int_equal(clock_process_ns(-1), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {PLAIN(test_rfc3339),
                                       PLAIN(test_rfc3339_is_read),
                                       PLAIN(test_rfc3339_agrees_with_the_library),
                                       PLAIN(test_what_is_left_of_a_day),
                                       PLAIN(test_clocks_go_on),
                                       PLAIN(test_the_clock_of_work_stands_still_in_sleep),
                                       PLAIN(test_the_work_of_another_process)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
