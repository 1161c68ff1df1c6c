#pragma once
/* The data folder: there, owned by the server's user, and used by one server at a time. */

#include "base/err.h"
#include "front/start/user.h"

/* What root made in it (with `cay key create`, say) becomes the user's. */
int data_dir_make(const char *dir, const struct server_user *user, struct err *err);
/* Locked as long as the descriptor is open. */
int data_dir_lock(const char *dir, int *ret_fd, struct err *err);
