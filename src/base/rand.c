#include "base/rand.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/types.h>

void rand_bytes(void *out, size_t n) {
    char *p = out;
    while (n > 0) {
        ssize_t k = getrandom(p, n, 0);
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
