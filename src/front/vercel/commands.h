#pragma once
/* Commands of the Vercel wire. */

#include "base/json.h"

#include <stddef.h>

enum { COMMAND_NOT_STARTED = 127 }; /* the exit code of one that could not be */

/* Where a command's own words begin in what was run for it. */
size_t vercel_command_first_word(const json_t *argv);
