#pragma once
/* A server of a command's own, for when none is named: on a socket that only this user can reach,
 * with data that goes with it. */

#include "base/err.h"

#include <sys/types.h>

struct own_server {
    pid_t pid;
    char *home;
};

/* The address is the caller's. */
int own_server_start(struct own_server *s, char **ret_url, struct err *err);
/* Zeroed memory is allowed. */
void own_server_end(struct own_server *s);
