#pragma once
/* What a person reads of a coding job's events, as they come. */

#include "base/json.h"

void steps_show(const char *type, const json_t *j);
