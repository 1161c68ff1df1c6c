#pragma once
/* The wall around the front itself: it holds the keys, reads what anybody sends, and starts no
 * program (cay-spawn does). So it has a system-call filter: no processes, no exec, no mounts,
 * namespaces, tracing or kernel interfaces that it does not use. */

#include "base/err.h"

/* For this and all other threads, for good. No effect in a build with a sanitizer. */
int front_lock_calls(struct err *err);
