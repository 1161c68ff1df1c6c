#pragma once
/* Text for people, JSON and logs, printed into a place of a fixed size. The result is always whole
 * UTF-8, whatever bytes a client, a model or a guest put into it: text that does not fit is cut
 * between two characters, and so is text that a precision ("%.64s") cut inside of one. Text that is
 * kept or sent is cut by these or by utf8_floor(); snprintf() is for numbers, names and paths. */

#include <stdarg.h>
#include <stddef.h>

/* Both return the length of what stands in out, which is less than size. */
size_t text_print(char *out, size_t size, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
size_t text_vprint(char *out, size_t size, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0)));
/* The same as a text of any length that the caller frees. */
char *text_make(const char *fmt, ...) __attribute__((format(printf, 1, 2), returns_nonnull));
/* Which of the names (the last is NULL) may have been meant by the word; NULL: nothing is like it.
 */
const char *text_nearest(const char *word, const char *const *names);
