#pragma once
/* What a process may do for being who it is: capabilities, and what it can get back. */

#include "base/err.h"

#include <stdint.h>

/* Sets all three sets. Also for a child that shares its parent's memory: returns 0 or -errno and
 * leaves errno alone. */
int privileges_set_caps(uint64_t keep);
/* Empties the bounding and ambient sets. Needs CAP_SETPCAP: who has nothing to lose ignores that it
 * fails. */
int privileges_empty_bounding(struct err *err);
/* Dies with its parent, cannot be traced or dumped by its user, gets no privileges by exec, has no
 * capability, leaves no core. */
int privileges_leave(struct err *err);
