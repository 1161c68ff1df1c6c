#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static int64_t read_ns(clockid_t id) {
    struct timespec t;
    (void)clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t clock_mono_ns(void) {
    return read_ns(CLOCK_MONOTONIC);
}

int64_t clock_mono_ms(void) {
    return read_ns(CLOCK_MONOTONIC) / 1000000;
}

int64_t clock_wall_ms(void) {
    return read_ns(CLOCK_REALTIME) / 1000000;
}

int64_t clock_cpu_ns(void) {
    return read_ns(CLOCK_THREAD_CPUTIME_ID);
}

int64_t clock_cpu_ms(void) {
    return clock_cpu_ns() / 1000000;
}

/* What clock_getcpuclockid() would say, which asks the kernel first whether the process is there:
 * it is asked for every run, and clock_gettime() tells it too. */
static clockid_t process_clock(pid_t pid) {
    enum { CLOCK_BITS = 3, CLOCK_SCHED = 2 };
    return (clockid_t)(~(unsigned)pid << CLOCK_BITS | CLOCK_SCHED);
}

int64_t clock_process_ns(pid_t pid) {
    struct timespec t;
    if (pid <= 0 || clock_gettime(process_clock(pid), &t) < 0)
        return 0;
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t clock_day_left_s(int64_t wall_ms) {
    const int64_t day_s = 86400;
    int64_t in_day = ((wall_ms / 1000 % day_s) + day_s) % day_s;
    return day_s - in_day;
}

static char *clock_digits(char *p, int64_t v, int n) {
    for (int i = n - 1; i >= 0; i--, v /= 10)
        p[i] = (char)('0' + v % 10);
    return p + n;
}

/* By hand, since every health check asks for it and strftime() is slow. The date is the one of the
 * proleptic Gregorian calendar, counted in years that begin in March so that a leap day comes last.
 */
char *clock_rfc3339(int64_t wall_ms, char out[CLOCK_RFC3339_SIZE]) {
    const int64_t day_ms = 86400000;
    int64_t in_day = ((wall_ms % day_ms) + day_ms) % day_ms;
    int64_t day = (wall_ms - in_day) / day_ms + 719468; /* since 1 March of the year 0 */
    int64_t era = (day >= 0 ? day : day - 146096) / 146097;
    int64_t of_era = day - era * 146097;
    int64_t year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int64_t of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t march = (5 * of_year + 2) / 153; /* months since March */
    int64_t month = march < 10 ? march + 3 : march - 9;
    int64_t year = year_of_era + era * 400 + (month <= 2);
    if (year < 0 || year > 9999) {
        out[0] = 0; /* not a time that we make */
        return out;
    }
    char *p = clock_digits(out, year, 4);
    *p++ = '-';
    p = clock_digits(p, month, 2);
    *p++ = '-';
    p = clock_digits(p, of_year - (153 * march + 2) / 5 + 1, 2);
    *p++ = 'T';
    p = clock_digits(p, in_day / 3600000, 2);
    *p++ = ':';
    p = clock_digits(p, in_day / 60000 % 60, 2);
    *p++ = ':';
    p = clock_digits(p, in_day / 1000 % 60, 2);
    *p++ = '.';
    p = clock_digits(p, in_day % 1000, 3);
    *p++ = 'Z';
    *p = 0;
    return out;
}

/* So many digits, or -1. */
static int clock_number(const char **p, int n) {
    int v = 0;
    for (int i = 0; i < n; i++, (*p)++) {
        if (**p < '0' || **p > '9')
            return -1;
        v = v * 10 + (**p - '0');
    }
    return v;
}

static bool clock_passed(const char **p, const char *any_of) {
    if (!**p || !strchr(any_of, **p))
        return false;
    (*p)++;
    return true;
}

/* Milliseconds of ".123456", of which the first three digits count. */
static bool read_fraction(const char **p, int *ret_ms) {
    int ms = 0;
    int n = 0;
    if (!clock_passed(p, "."))
        return true;
    for (; **p >= '0' && **p <= '9'; (*p)++, n++)
        if (n < 3)
            ms = ms * 10 + (**p - '0');
    for (int i = n; i < 3; i++)
        ms *= 10;
    *ret_ms = ms;
    return n > 0 && n <= 9;
}

static bool read_offset(const char **p, int64_t *ret_minutes) {
    bool west = **p == '-';
    if (clock_passed(p, "Zz"))
        return true;
    if (!clock_passed(p, "+-"))
        return false;
    int h = clock_number(p, 2);
    int m = clock_passed(p, ":") ? clock_number(p, 2) : -1;
    if (h < 0 || h > 23 || m < 0 || m > 59)
        return false;
    *ret_minutes = (west ? -1 : 1) * (h * 60 + m);
    return true;
}

bool clock_parse_rfc3339(const char *text, int64_t *ret_wall_ms) {
    static const struct {
        int digits;
        int min;
        int max;
        const char *after;
    } parts[] = {{4, 1970, 9999, "-"}, {2, 1, 12, "-"}, {2, 1, 31, "Tt"},
                 {2, 0, 23, ":"},      {2, 0, 59, ":"}, {2, 0, 59, NULL}};
    const char *p = text;
    int v[6];
    int ms = 0;
    int64_t minutes = 0;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        v[i] = clock_number(&p, parts[i].digits);
        if (v[i] < parts[i].min || v[i] > parts[i].max ||
            (parts[i].after && !clock_passed(&p, parts[i].after)))
            return false;
    }
    if (!read_fraction(&p, &ms) || !read_offset(&p, &minutes) || *p)
        return false;
    struct tm tm = {.tm_year = v[0] - 1900,
                    .tm_mon = v[1] - 1,
                    .tm_mday = v[2],
                    .tm_hour = v[3],
                    .tm_min = v[4],
                    .tm_sec = v[5]};
    time_t t = timegm(&tm);
    if (tm.tm_mday != v[2]) /* the 31st of June */
        return false;
    *ret_wall_ms = ((int64_t)t - minutes * 60) * 1000 + ms;
    return true;
}
