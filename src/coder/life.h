#pragma once
/* What may end the agent from outside: a signal, or its time. Every wait of the program goes
 * through here, so that none of them outlives either. */

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum life_wait {
    LIFE_READY,     /* a descriptor has something */
    LIFE_PASSED,    /* the time that was asked for has passed */
    LIFE_TIMEOUT,   /* the run's time is up */
    LIFE_CANCELLED, /* SIGTERM, SIGINT or SIGHUP, or nobody reads what we write */
};

struct life {
    int signal_fd;
    bool cancelled;
    int64_t begun_ms;
    int64_t deadline_ms; /* of the monotonic clock */
};

#define LIFE_NEVER INT64_MAX

/* Blocks the signals: from now on they are seen by life_wait() alone. 0, or -1 with errno. */
int life_init(struct life *l, int64_t timeout_ms);
void life_finish(struct life *l);
/* Waits for one of at most four descriptors, until a moment of the monotonic clock. */
enum life_wait life_wait(struct life *l, struct pollfd *fds, size_t n, int64_t until_ms);
/* In a child, before exec: the signals as they were before life_init(). */
void life_forget(void);
