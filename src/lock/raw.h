#pragma once
/* System calls without libc: no errno, no locks, nothing but registers. For a child that shares
 * its parent's memory while that one goes on: whatever libc remembers is the parent's. Returns what
 * the kernel does, -errno for a failure. */

#include <sys/syscall.h>

#if defined(__x86_64__)
#define RAW_SHARES_MEMORY 1
static inline long raw(long nr, long a, long b, long c, long d) {
    long ret;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = 0; /* prctl() wants one more that is nothing */
    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return ret;
}
#elif defined(__aarch64__)
#define RAW_SHARES_MEMORY 1
static inline long raw(long nr, long a, long b, long c, long d) {
    register long x8 __asm__("x8") = nr;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = 0; /* as above */
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
    return x0;
}
#else
/* The child gets a copy of the memory then, which takes longer. */
#define RAW_SHARES_MEMORY 0
#include <errno.h>
#include <unistd.h>
static inline long raw(long nr, long a, long b, long c, long d) {
    long ret = syscall(nr, a, b, c, d, 0L);
    return ret < 0 ? -errno : ret;
}
#endif
