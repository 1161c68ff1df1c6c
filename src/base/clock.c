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

char *clock_rfc3339(int64_t wall_ms, char out[CLOCK_RFC3339_SIZE]) {
    time_t s = (time_t)(wall_ms / 1000);
    struct tm tm;
    (void)gmtime_r(&s, &tm);
    size_t n = strftime(out, CLOCK_RFC3339_SIZE, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(out + n, CLOCK_RFC3339_SIZE - n, ".%03dZ", (int)(wall_ms % 1000));
    return out;
}
