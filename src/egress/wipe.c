/* What is freed is overwritten first, whoever held it: credentials pass through libraries, whose
 * buffers are not ours to wipe. (glibc's M_PERTURB would do, but passes over small pieces.) Left
 * out where a sanitizer has its own allocator. */

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

#if !defined(__SANITIZE_ADDRESS__) && !defined(SANITIZED)

void __libc_free(void *p); // NOLINT(bugprone-reserved-identifier): glibc's own free()

// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): theirs are reserved
void free(void *p) {
    if (p)
        explicit_bzero(p, malloc_usable_size(p));
    __libc_free(p);
}

/* glibc's would leave the old place behind as it was. */
// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): theirs are reserved
void *realloc(void *p, size_t n) {
    if (!p)
        return malloc(n);
    if (n == 0) {
        free(p);
        return NULL;
    }
    size_t had = malloc_usable_size(p);
    if (n <= had && n >= had / 2)
        return p;
    void *q = malloc(n);
    if (!q)
        return NULL;
    memcpy(q, p, had < n ? had : n);
    free(p);
    return q;
}

#endif
