#pragma once
/* The open files that the server may have, and what it does where they are few. */

#include "base/err.h"

struct config;

/* Takes all that this machine gives us. Where they are too few, connections, which any client can
 * open, get half: they must not take those of the work. */
int open_files_raise(struct config *k, struct err *err);
