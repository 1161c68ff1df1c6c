#pragma once
/* Scope-bound cleanup: `_cleanup_(free) char *p` frees at the end of the scope, so that no function
 * ends in a ladder of frees. steal_ptr() and steal_fd() hand the resource to somebody else. */

#include <stddef.h>
#include <stdlib.h>
#include <sys/param.h> /* MIN, MAX */
#include <unistd.h>

#define _cleanup_(name) __attribute__((cleanup(cleanup_##name)))

static inline void cleanup_free(void *pp) {
    free(*(void **)pp);
}

static inline void cleanup_close(const int *fd) {
    if (*fd >= 0)
        close(*fd);
}

static inline void *steal_ptr_(void **pp) {
    void *p = *pp;
    *pp = NULL;
    return p;
}

#define steal_ptr(pp) ((__typeof__(*(pp)))steal_ptr_((void **)(pp)))

static inline int steal_fd(int *fd) {
    int n = *fd;
    *fd = -1;
    return n;
}

#define ARRAY_LEN(a)                    (sizeof(a) / sizeof((a)[0]))
#define CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
