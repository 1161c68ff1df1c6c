#pragma once
/* Whom the server works as: started as root, it changes to an ordinary user for good. */

#include "base/err.h"

#include <stdbool.h>
#include <sys/types.h>

struct server_user {
    uid_t uid;
    gid_t gid;
    bool change; /* we are root, and will not be */
};

/* name NULL: "cay", or an unused number if there is no such user. */
void server_user_find(struct server_user *u, const char *name);
int server_user_become(const struct server_user *u, struct err *err);
