#pragma once
/* Time: a monotonic clock for durations, the wall clock for records, RFC 3339 text for people. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CLOCK_RFC3339_SIZE 32

int64_t clock_mono_ns(void);
int64_t clock_mono_ms(void);
int64_t clock_wall_ms(void);
/* How long this thread has run: it stands still while others have the processors. */
int64_t clock_cpu_ns(void);
int64_t clock_cpu_ms(void);
/* How long another process has run, all its threads together; 0 if it cannot be told. */
int64_t clock_process_ns(pid_t pid);
/* Writes "2025-01-01T00:00:00.000Z" and returns out. */
char *clock_rfc3339(int64_t wall_ms, char out[CLOCK_RFC3339_SIZE]);
/* Whole seconds until the next day of UTC begins, 1 at least. */
int64_t clock_day_left_s(int64_t wall_ms);
/* Reads RFC 3339, with or without a fraction, with "Z" or an offset. False: it is none. */
bool clock_parse_rfc3339(const char *text, int64_t *ret_wall_ms);
