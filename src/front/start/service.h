#pragma once
/* The service manager that started us, if one did: systemd, by its documented protocol of
 * environment variables and datagrams. It hands over listening sockets (socket activation), is told
 * when the server is ready, reloads or stops, and hears from it regularly (the watchdog). Without a
 * manager every call does nothing. */

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct service {
    int notify_fd;       /* -1: nobody listens */
    int64_t watchdog_ms; /* it wants to hear from us within this time; 0: it does not */
    int first_fd;        /* of the sockets that it handed over */
    size_t nfds;
    uv_timer_t timer;
    bool timer_used;
};

/* Reads the environment and removes the variables, so that no child takes them for its own. Called
 * once, before privileges are dropped: the manager's socket may be out of reach afterwards. */
int service_open(struct service *s, struct err *err);
/* Lines of "NAME=value". Nothing waits for the manager. */
void service_notify(const struct service *s, const char *lines);
/* Begins to report that the loop is alive. */
void service_watch(struct service *s, uv_loop_t *loop);
/* The timer goes from the loop. Zeroed memory with notify_fd -1 is allowed. */
void service_close(struct service *s);
