#pragma once
/* The walls around the program that holds credentials and talks to guests and servers: it can open
 * sockets and read what resolving and TLS need, and nothing else. */

#include "base/err.h"

/* Before anything is read: not dumpable, no privileges, no core. */
int egress_lock_process(struct err *err);
/* When it is known where the certificates are ("" the system's): files are only read, and only in
 * those folders; system calls are those of a client of the network. */
int egress_lock_world(const char *ca_file, struct err *err);
