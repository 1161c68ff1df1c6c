#pragma once
/* Starts programs through cay-spawn, for a process with a system-call filter that they must not
 * inherit. A loop that has a spawner starts all its children (loop/child) through it; they are this
 * process's children all the same. */

#include "loop/child.h"
#include "loop/exec.h"

struct spawner;

/* Starts cay-spawn and makes it the loop's. The loop must not have one. */
int spawner_start(uv_loop_t *loop, int exec_fd, struct spawner **ret_spawner, struct err *err);
/* Ends it: no child can be started any more. What was started goes on. NULL is allowed. */
void spawner_stop(struct spawner *s);
/* NULL if it has none. */
struct spawner *spawner_of(const uv_loop_t *loop);
/* Waits for the answer, which takes as long as starting a process does. */
int spawner_spawn(struct spawner *s, const struct exec_plan *plan, pid_t *ret_pid, struct err *err);
