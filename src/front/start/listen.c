#include "front/start/listen.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"
#include "front/config/config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static int busy(const char *address, struct err *err) {
    if (errno == EADDRINUSE)
        return err_set(err, ERR_CONFLICT,
                       "%s is in use: stop the program that listens there, or choose another "
                       "address with --listen",
                       address);
    return err_sys(err, "listen on %s", address);
}

static int listen_unix(struct listeners *l, const char *address, const struct server_user *user,
                       struct err *err) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const char *path = address + 5;
    if (strlen(path) >= sizeof(a.sun_path))
        return err_set(err, ERR_BAD_REQUEST, "%s: the path is too long", address);
    memcpy(a.sun_path, path, strlen(path) + 1);
    _cleanup_(close) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    _cleanup_(close) int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || probe < 0)
        return err_sys(err, "listen on %s", address);
    /* A socket that a dead server left is taken away; a live one is not. */
    if (connect(probe, (struct sockaddr *)&a, sizeof(a)) == 0) {
        errno = EADDRINUSE;
        return busy(address, err);
    }
    if (errno == ECONNREFUSED)
        (void)unlink(path);
    mode_t old = umask(0177);
    int rc = bind(fd, (struct sockaddr *)&a, sizeof(a));
    (void)umask(old);
    if (rc < 0)
        return busy(address, err);
    if (user->change && chown(path, user->uid, user->gid) < 0)
        return err_sys(err, "listen on %s", address);
    l->urls[l->n] = xstrdup(address);
    l->fds[l->n++] = steal_fd(&fd);
    return 0;
}

static bool is_loopback(const struct sockaddr *a) {
    if (a->sa_family == AF_INET)
        return (ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24) == 127;
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

static int listen_tcp(struct listeners *l, const char *address, struct err *err) {
    char host[256];
    unsigned port;
    int rc = config_parse_address(address, host, sizeof(host), &port, err);
    if (rc < 0)
        return rc;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list = NULL;
    char service[8];
    (void)snprintf(service, sizeof(service), "%u", port);
    int e = getaddrinfo(host, service, &hints, &list);
    if (e != 0)
        return err_set(err, ERR_BAD_REQUEST, "listen on %s: %s", address, gai_strerror(e));
    _cleanup_(close) int fd =
        socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int one = 1;
    if (fd >= 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (fd < 0 || bind(fd, list->ai_addr, list->ai_addrlen) < 0) {
        freeaddrinfo(list);
        return busy(address, err);
    }
    if (!is_loopback(list->ai_addr))
        l->beyond_loopback = true;
    freeaddrinfo(list);
    /* Two servers on one port both bind with SO_REUSEADDR; only listen() tells them apart. */
    if (listen(fd, 1) < 0)
        return busy(address, err);
    struct sockaddr_storage bound = {0};
    socklen_t n = sizeof(bound);
    (void)getsockname(fd, (struct sockaddr *)&bound, &n);
    const struct sockaddr_in *in = (const struct sockaddr_in *)&bound;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&bound;
    // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): getsockname() filled it
    unsigned got = bound.ss_family == AF_INET ? ntohs(in->sin_port) : ntohs(in6->sin6_port);
    bool v6 = strchr(host, ':') != NULL;
    l->urls[l->n] = xasprintf("http://%s%s%s:%u", v6 ? "[" : "", host, v6 ? "]" : "", got);
    l->fds[l->n++] = steal_fd(&fd);
    return 0;
}

int listeners_bind(struct listeners *l, char *const *addresses, size_t n,
                   const struct server_user *user, struct err *err) {
    for (size_t i = 0; i < n; i++) {
        if (l->n == LISTENERS_MAX)
            return err_set(err, ERR_BAD_REQUEST, "at most %d addresses to listen on",
                           LISTENERS_MAX);
        int rc = strncmp(addresses[i], "unix:", 5) == 0 ? listen_unix(l, addresses[i], user, err)
                                                        : listen_tcp(l, addresses[i], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

void listeners_finish(struct listeners *l) {
    for (size_t i = 0; i < l->n; i++) {
        if (strncmp(l->urls[i], "unix:", 5) == 0)
            (void)unlink(l->urls[i] + 5);
        free(l->urls[i]);
    }
    l->n = 0;
}
