#pragma once
/* Counters for GET /metrics. */

#include "base/buf.h"

#include <stddef.h>
#include <stdint.h>

struct metrics;

struct metrics *metrics_create(void);
void metrics_destroy(struct metrics *m);
/* The route's text is borrowed: a pattern of the route table. */
void metrics_request(struct metrics *m, const char *route, int status, int64_t duration_us);
/* How long the turns of the loop take, from here until metrics_unwatch(), after which the loop runs
 * once more. */
struct uv_loop_s;
void metrics_watch(struct metrics *m, struct uv_loop_s *loop);
void metrics_unwatch(struct metrics *m);
/* Prometheus text of what was counted, appended. */
void metrics_write(const struct metrics *m, struct buf *out);
/* Resident memory of a process in bytes, 0 if it cannot be read. */
int64_t metrics_process_memory(int pid);
