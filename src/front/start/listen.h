#pragma once
/* The sockets that the server listens on. They are bound at the start, as root if it is, or taken
 * over from the service manager, and handed to the HTTP server when all else works. */

#include "base/err.h"
#include "front/start/user.h"

#include <stdbool.h>
#include <stddef.h>

enum { LISTENERS_MAX = 8 };

struct listeners {
    int fds[LISTENERS_MAX];
    char *urls[LISTENERS_MAX]; /* as a person would type them */
    size_t n;
    bool beyond_loopback; /* one of them can be reached from another machine */
    bool adopted;         /* they are the service manager's, and so are their paths */
};

/* "HOST:PORT" or "unix:PATH" each; a path is given to the user. */
int listeners_bind(struct listeners *l, char *const *addresses, size_t n,
                   const struct server_user *user, struct err *err);
/* Takes over n sockets, from first_fd on, that somebody else has bound. */
int listeners_adopt(struct listeners *l, int first_fd, size_t n, struct err *err);
/* Removes the paths that listeners_bind() made. Descriptors belong to the HTTP server by now. */
void listeners_finish(struct listeners *l);
