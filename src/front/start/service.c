/* The protocol is sd_notify(3) and sd_listen_fds(3): a few variables and one datagram, for which
 * libsystemd would bring a library into the process that holds the keys. */

#include "front/start/service.h"

#include "base/cleanup.h"
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { SERVICE_FIRST_FD = 3, SERVICE_FDS_MAX = 64 };

/* A decimal number of the environment; -1: there is none, or it is something else. */
static int64_t service_env_number(const char *name) {
    const char *text = getenv(name);
    char *end = NULL;
    if (!text || *text < '0' || *text > '9')
        return -1;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    return errno || *end ? -1 : n;
}

/* A variable that names a process names ours, or is meant for another one. */
static bool service_is_for_us(const char *name, bool if_unset) {
    return getenv(name) ? service_env_number(name) == getpid() : if_unset;
}

static int service_connect(const char *path, int *ret_fd, struct err *err) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t len = strlen(path);
    if ((path[0] != '/' && path[0] != '@') || len < 2 || len >= sizeof(a.sun_path))
        return err_set(err, ERR_BAD_REQUEST, "NOTIFY_SOCKET is not the path of a socket");
    memcpy(a.sun_path, path, len);
    if (path[0] == '@')
        a.sun_path[0] = 0; /* the abstract name space */
    _cleanup_(close) int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, size) < 0)
        return err_sys(err, "connect to the service manager at NOTIFY_SOCKET");
    *ret_fd = steal_fd(&fd);
    return 0;
}

int service_open(struct service *s, struct err *err) {
    static const char *const names[] = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID",
                                        "LISTEN_FDS",    "LISTEN_PID",    "LISTEN_FDNAMES"};
    *s = (struct service){.notify_fd = -1, .first_fd = SERVICE_FIRST_FD};
    const char *path = getenv("NOTIFY_SOCKET");
    int rc = path && *path ? service_connect(path, &s->notify_fd, err) : 0;
    if (rc < 0)
        return rc;
    int64_t usec = service_env_number("WATCHDOG_USEC");
    if (usec > 0 && service_is_for_us("WATCHDOG_PID", true))
        s->watchdog_ms = usec / 1000;
    int64_t n = service_env_number("LISTEN_FDS");
    if (n > 0 && service_is_for_us("LISTEN_PID", false)) {
        if (n > SERVICE_FDS_MAX)
            return err_set(err, ERR_LIMIT, "the service manager hands over %lld sockets, of %d",
                           (long long)n, SERVICE_FDS_MAX);
        s->nfds = (size_t)n;
        for (int fd = s->first_fd; fd < s->first_fd + (int)n; fd++)
            (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        (void)unsetenv(names[i]);
    return 0;
}

void service_notify(const struct service *s, const char *lines) {
    if (s->notify_fd >= 0)
        (void)send(s->notify_fd, lines, strlen(lines), MSG_NOSIGNAL);
}

static void service_on_timer(uv_timer_t *t) {
    service_notify(t->data, "WATCHDOG=1");
}

void service_watch(struct service *s, uv_loop_t *loop) {
    if (s->notify_fd < 0 || s->watchdog_ms <= 0)
        return;
    (void)uv_timer_init(loop, &s->timer);
    s->timer.data = s;
    s->timer_used = true;
    uint64_t ms = (uint64_t)(s->watchdog_ms + 2) / 3;
    (void)uv_timer_start(&s->timer, service_on_timer, ms, ms);
    uv_unref((uv_handle_t *)&s->timer);
}

void service_close(struct service *s) {
    if (s->timer_used)
        uv_close((uv_handle_t *)&s->timer, NULL);
    s->timer_used = false;
    fd_close(&s->notify_fd);
}
