#include "front/start/listen.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"
#include "front/config/config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static int start_listen_busy(const char *address, struct err *err) {
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
        return start_listen_busy(address, err);
    }
    if (errno == ECONNREFUSED)
        (void)unlink(path);
    mode_t old = umask(0177);
    int rc = bind(fd, (struct sockaddr *)&a, sizeof(a));
    (void)umask(old);
    if (rc < 0)
        return start_listen_busy(address, err);
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

/* host NULL: the address that it is bound to. */
static void listeners_add(struct listeners *l, int fd, const char *host) {
    struct sockaddr_storage bound = {0};
    socklen_t n = sizeof(bound);
    char text[INET6_ADDRSTRLEN] = "";
    (void)getsockname(fd, (struct sockaddr *)&bound, &n);
    const struct sockaddr_in *in = (const struct sockaddr_in *)&bound;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&bound;
    // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): getsockname() filled it
    unsigned port = bound.ss_family == AF_INET ? ntohs(in->sin_port) : ntohs(in6->sin6_port);
    const void *address =
        bound.ss_family == AF_INET ? (const void *)&in->sin_addr : (const void *)&in6->sin6_addr;
    if (!host)
        host = inet_ntop(bound.ss_family, address, text, sizeof(text));
    bool v6 = host && strchr(host, ':') != NULL;
    l->urls[l->n] =
        xasprintf("http://%s%s%s:%u", v6 ? "[" : "", host ? host : "?", v6 ? "]" : "", port);
    l->fds[l->n++] = fd;
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
        return start_listen_busy(address, err);
    }
    if (!is_loopback(list->ai_addr))
        l->beyond_loopback = true;
    freeaddrinfo(list);
    /* Two servers on one port both bind with SO_REUSEADDR; only listen() tells them apart. */
    if (listen(fd, 1) < 0)
        return start_listen_busy(address, err);
    listeners_add(l, steal_fd(&fd), host);
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

static int listeners_adopt_one(struct listeners *l, int fd, struct err *err) {
    struct sockaddr_storage bound = {0};
    const struct sockaddr_un *un = (const struct sockaddr_un *)&bound;
    socklen_t n = sizeof(bound), size = sizeof(int);
    int type = 0, listens = 0;
    if (getsockname(fd, (struct sockaddr *)&bound, &n) < 0 ||
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0 ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) < 0)
        return err_sys(err, "descriptor %d of the service manager", fd);
    sa_family_t family = bound.ss_family;
    if (type != SOCK_STREAM || !listens ||
        (family != AF_INET && family != AF_INET6 && family != AF_UNIX))
        return err_set(err, ERR_BAD_REQUEST,
                       "descriptor %d of the service manager is no listening stream socket: use "
                       "ListenStream= in its socket unit",
                       fd);
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return err_sys(err, "descriptor %d of the service manager", fd);
    if (family == AF_UNIX) {
        l->urls[l->n] = xasprintf("unix:%s", un->sun_path[0] ? un->sun_path : un->sun_path + 1);
        l->fds[l->n++] = fd;
        return 0;
    }
    if (!is_loopback((const struct sockaddr *)&bound))
        l->beyond_loopback = true;
    listeners_add(l, fd, NULL);
    return 0;
}

int listeners_adopt(struct listeners *l, int first_fd, size_t n, struct err *err) {
    l->adopted = true;
    if (n > LISTENERS_MAX)
        return err_set(err, ERR_LIMIT, "the service manager hands over %zu sockets, of at most %d",
                       n, LISTENERS_MAX);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = listeners_adopt_one(l, first_fd + (int)i, err);
    return rc;
}

void listeners_finish(struct listeners *l) {
    for (size_t i = 0; i < l->n; i++) {
        if (!l->adopted && strncmp(l->urls[i], "unix:", 5) == 0)
            (void)unlink(l->urls[i] + 5);
        free(l->urls[i]);
    }
    l->n = 0;
}
