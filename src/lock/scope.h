#pragma once
/* A control group of its own for an ordinary user's process, from the manager that systemd runs for
 * each user (`systemd --user`): asked for a scope with delegation, over its private socket, in the
 * few bytes of D-Bus that this takes. A login shell's own group belongs to root, and the kernel
 * lets nobody but root move a process from there into the user's part of the tree. */

#include "base/err.h"

#include <stddef.h>
#include <sys/types.h>

/* Moves this process into a new scope. `path` is the manager's socket (scope_socket()). Takes two
 * seconds at most. */
int scope_enter(const char *path, struct err *err);
void scope_socket(uid_t uid, char *out, size_t size);
