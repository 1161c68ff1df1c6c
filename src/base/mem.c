#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *mem_need(void *p) {
    if (!p)
        abort();
    return p;
}

void *xmalloc(size_t n) {
    return mem_need(malloc(n ? n : 1));
}

void *xcalloc(size_t count, size_t size) {
    return mem_need(calloc(count ? count : 1, size ? size : 1));
}

void *xrealloc(void *p, size_t n) {
    return mem_need(realloc(p, n ? n : 1));
}

char *xstrdup(const char *s) {
    return mem_need(strdup(s));
}

char *xstrndup(const char *s, size_t n) {
    char *p = xmalloc(n + 1);
    if (n)
        memcpy(p, s, n);
    p[n] = 0;
    return p;
}

char *xasprintf(const char *fmt, ...) {
    char *out = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&out, fmt, ap);
    va_end(ap);
    if (n < 0)
        abort();
    return mem_need(out);
}

void mem_wipe(void *p, size_t n) {
    explicit_bzero(p, n);
}
