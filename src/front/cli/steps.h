#pragma once
/* What a person reads of a coding job's events, as they come. */

#include "base/json.h"

#include <stdbool.h>

struct steps {
    bool open; /* output that has not ended its line */
};

void steps_show(struct steps *s, const char *type, const json_t *j);
