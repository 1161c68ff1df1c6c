#pragma once
/* What an agent is told when something is refused: that it is the policy and no fault, and what it
 * may reach. Agents that do not know it try again, and look for ways round it. */

#include "base/buf.h"
#include "wire/egress.h"

void advice_write(const struct egress_policy *p, struct buf *out);
