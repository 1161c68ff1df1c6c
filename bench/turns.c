/* Preloaded into cay by large.bench.mjs: how much processor time its loop takes between two waits,
 * the longest so far, in a file that the benchmark reads (TURNS_FILE: one double, milliseconds).
 * The server's own figure is by the clock, and has in it what a turn waited for a processor. */

#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static double *longest;
static double since;

static double now_ms(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

__attribute__((constructor)) static void open_file(void) {
    const char *path = getenv("TURNS_FILE");
    int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd < 0 || ftruncate(fd, sizeof(double)) < 0)
        return;
    void *m = mmap(NULL, sizeof(double), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    longest = m == MAP_FAILED ? NULL : m;
}

/* libuv's loop; its threads do not wait by this. */
int epoll_wait(int epfd, struct epoll_event *events, int max, int timeout_ms) {
    static int (*real)(int, struct epoll_event *, int, int);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "epoll_wait");
    if (!longest || gettid() != getpid())
        return real(epfd, events, max, timeout_ms);
    double took = now_ms() - since;
    if (since > 0 && took > *longest)
        *longest = took;
    int n = real(epfd, events, max, timeout_ms);
    since = now_ms();
    return n;
}
