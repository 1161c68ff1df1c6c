#include "base/text.h"

#include "base/cleanup.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

size_t text_vprint(char *out, size_t size, const char *fmt, va_list ap) {
    if (size == 0)
        return 0;
    out[0] = 0;
    (void)vsnprintf(out, size, fmt, ap);
    return utf8_mend(out, strlen(out));
}

size_t text_print(char *out, size_t size, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    size_t n = text_vprint(out, size, fmt, ap);
    va_end(ap);
    return n;
}

char *text_make(const char *fmt, ...) {
    va_list ap;
    va_list again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    size_t size = n < 0 ? 1 : (size_t)n + 1;
    char *out = xmalloc(size);
    (void)text_vprint(out, size, fmt, again);
    va_end(again);
    return out;
}

/* How many letters to add, drop or change to make one of the other. */
static size_t text_distance(const char *a, const char *b) {
    enum { MOST = 64 };
    size_t row[MOST + 1];
    size_t n = strlen(b);
    if (n > MOST)
        return MOST;
    for (size_t k = 0; k <= n; k++)
        row[k] = k;
    for (size_t i = 0; a[i]; i++) {
        size_t corner = row[0];
        row[0] = i + 1;
        for (size_t k = 0; k < n; k++) {
            size_t change = corner + (a[i] != b[k]);
            corner = row[k + 1];
            row[k + 1] = MIN(change, MIN(row[k], row[k + 1]) + 1);
        }
    }
    return row[n];
}

const char *text_nearest(const char *word, const char *const *names) {
    const char *best = NULL;
    size_t least = strlen(word) > 64 ? 0 : MAX(strlen(word) / 3, 1);
    for (const char *const *a = names; *a; a++) {
        size_t d = text_distance(word, *a);
        if (d <= least && (!best || d < least)) {
            best = *a;
            least = d;
        }
    }
    return best;
}
