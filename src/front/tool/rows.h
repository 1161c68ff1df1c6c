#pragma once
/* What a facet answers, as people and models read it. */

#include "base/err.h"
#include "base/json.h"

#include <stddef.h>

/* {"columns","rows"} as a list of objects. */
json_t *rows_read(const char *json, size_t len);
/* The same as JSON text, of at most about max_bytes; ret_all and ret_kept say how many rows there
 * are, and how many of them it has. In any thread. */
char *rows_text(const char *json, size_t len, size_t max_bytes, size_t *ret_len, size_t *ret_all,
                size_t *ret_kept);
/* What its failure says, as a text. json or err may be NULL. */
json_t *rows_error(const char *json, size_t len, const struct err *err);
