#pragma once
/* What a facet answers, as people and models read it. */

#include "base/err.h"
#include "base/json.h"

#include <stddef.h>

/* {"columns","rows"} as a list of objects. */
json_t *rows_read(const char *json, size_t len);
/* What its failure says, as a text. json or err may be NULL. */
json_t *rows_error(const char *json, size_t len, const struct err *err);
