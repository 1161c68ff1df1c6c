#pragma once
/* A control group of its own for a process, from systemd: the one that runs the machine for root,
 * the one that runs for the user (`systemd --user`) for anybody else. It is asked for a scope with
 * delegation, over its private socket, in the few bytes of D-Bus that this takes. A login shell's
 * group is shared with the rest of the session, and belongs to root: the kernel lets no ordinary
 * user move a process from there into the user's part of the tree. */

#include "base/err.h"

#include <stddef.h>
#include <sys/types.h>

/* Moves this process into a new scope. `path` is the manager's socket (scope_socket()). Takes two
 * seconds at most. `sysroot` is "" but in tests. */
int scope_enter(const char *sysroot, const char *path, struct err *err);
void scope_socket(const char *sysroot, uid_t uid, char *out, size_t size);
