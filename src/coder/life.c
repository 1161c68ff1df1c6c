#include "coder/life.h"

#include "base/clock.h"
#include "base/fd.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { FDS_MAX = 4, POLL_MAX_MS = 60000 };

int life_init(struct life *l, int64_t timeout_ms) {
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    *l = (struct life){.signal_fd = -1, .begun_ms = clock_mono_ms()};
    l->deadline_ms = l->begun_ms + timeout_ms;
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    if (sigaction(SIGPIPE, &ignore, NULL) < 0 || sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return -1;
    l->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return l->signal_fd < 0 ? -1 : 0;
}

void life_finish(struct life *l) {
    fd_close(&l->signal_fd);
}

void life_forget(void) {
    sigset_t none;
    struct sigaction usual = {.sa_handler = SIG_DFL};
    (void)sigemptyset(&none);
    (void)sigaction(SIGPIPE, &usual, NULL);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

enum life_wait life_wait(struct life *l, struct pollfd *fds, size_t n, int64_t until_ms) {
    assert(n <= FDS_MAX);
    struct pollfd all[FDS_MAX + 1];
    for (size_t i = 0; i < n; i++)
        all[i] = fds[i];
    all[n] = (struct pollfd){.fd = l->signal_fd, .events = POLLIN};
    for (;;) {
        int64_t now = clock_mono_ms();
        if (l->cancelled)
            return LIFE_CANCELLED;
        if (now >= l->deadline_ms)
            return LIFE_TIMEOUT;
        if (now >= until_ms)
            return LIFE_PASSED;
        int64_t left = (until_ms < l->deadline_ms ? until_ms : l->deadline_ms) - now;
        int ready = poll(all, n + 1, (int)(left < POLL_MAX_MS ? left : POLL_MAX_MS));
        if (ready < 0 && errno != EINTR)
            return LIFE_CANCELLED;
        if (ready <= 0)
            continue;
        l->cancelled = all[n].revents != 0;
        for (size_t i = 0; i < n; i++)
            fds[i].revents = all[i].revents;
        return l->cancelled ? LIFE_CANCELLED : LIFE_READY;
    }
}
