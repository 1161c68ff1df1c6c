#pragma once
/* A loop for a process that will be locked. Since 1.45 (Debian 13) libuv makes a ring of io_uring
 * for each loop. What a ring does passes by the system-call filter, and libuv ends the process when
 * the filter refuses to run one. */

#include <uv.h>

/* uv_loop_init() where no ring can be made. */
int loop_init(uv_loop_t *loop);
