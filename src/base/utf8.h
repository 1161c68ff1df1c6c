#pragma once
/* UTF-8 as RFC 3629 has it: no surrogates, no overlong forms, nothing past U+10FFFF. */

#include <stdbool.h>
#include <stddef.h>

/* Length of the valid sequence at s (1 to 4), or 0 if there is none. */
size_t utf8_sequence(const char *s, size_t len);
bool utf8_is_valid(const char *s, size_t len);
/* The largest n <= max such that s[0..n) does not end inside a sequence, also if s itself does. */
size_t utf8_floor(const char *s, size_t len, size_t max);
/* Makes len bytes, followed by a NUL, valid in place, and returns how many are left. A sequence
 * that was cut goes; any other byte that belongs to none becomes "?". */
size_t utf8_mend(char *s, size_t len);
