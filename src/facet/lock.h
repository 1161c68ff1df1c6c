#pragma once
/* The process gives away what it does not need, in this order: limits and privileges, the file
 * system but for one folder, then system calls in two steps. Before the database is open it may
 * still name files; afterwards nothing can be opened any more. A system call that is not on the
 * list ends the process. */

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* True in a build with a sanitizer: its own memory and system calls do not fit under the limits and
 * filters, which are left out then. */
bool facet_lock_is_relaxed(void);

/* Dies with its parent, leaves no core, cannot be traced by its user, has no capabilities. */
int facet_lock_process(struct err *err);
/* Memory, file size and descriptors. */
int facet_lock_limits(uint64_t memory_bytes, uint64_t file_bytes, struct err *err);
/* Only files in the folder can be opened. *ret_abi is Landlock's version, 0 if the kernel has none.
 */
int facet_lock_folder(int dirfd, uint32_t *ret_abi, struct err *err);
int facet_lock_calls_while_opening(struct err *err);
int facet_lock_calls(struct err *err);
