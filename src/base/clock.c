#include "base/clock.h"

#include <stdio.h>
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

static char *digits(char *p, int64_t v, int n) {
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
    char *p = digits(out, year, 4);
    *p++ = '-';
    p = digits(p, month, 2);
    *p++ = '-';
    p = digits(p, of_year - (153 * march + 2) / 5 + 1, 2);
    *p++ = 'T';
    p = digits(p, in_day / 3600000, 2);
    *p++ = ':';
    p = digits(p, in_day / 60000 % 60, 2);
    *p++ = ':';
    p = digits(p, in_day / 1000 % 60, 2);
    *p++ = '.';
    p = digits(p, in_day % 1000, 3);
    *p++ = 'Z';
    *p = 0;
    return out;
}
