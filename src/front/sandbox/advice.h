#pragma once
/* What this machine offers to sandboxes, and what to do about what it lacks: one wording for `cay
 * doctor`, the lines at the start of `cay serve`, and /v1/status. */

#include "base/err.h"
#include "front/common/features.h"
#include "wire/sandbox.h"

/* Both fill the detail and the advice; the first one sets the status to ok if nothing is missing.
 */
void sandbox_advise_limits(const struct sandbox_features *f, struct feature *ret);
void sandbox_advise_refusal(const struct err *err, struct feature *ret);
