#include "base/rand.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* The system call, not the C library's function: that one (glibc 2.41, Linux 6.11) keeps the state
 * of a generator in this process's memory, which is put back to an earlier state after each run
 * where isolates are reset. The next run would get the same numbers. */
void rand_bytes(void *out, size_t n) {
    char *p = out;
    while (n > 0) {
        ssize_t k = syscall(SYS_getrandom, p, n, 0);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            abort();
        p += k;
        n -= (size_t)k;
    }
}

uint64_t rand_u64(void) {
    uint64_t v;
    rand_bytes(&v, sizeof(v));
    return v;
}
