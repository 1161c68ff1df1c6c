#pragma once
/* Percent-encoding and query strings. */

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* Decodes len bytes; NULL if an escape is malformed or the result holds a NUL or is not UTF-8. The
 * caller frees. `plus` turns "+" into a space, as in queries. */
char *url_decode(const char *text, size_t len, bool plus);
/* Fails unless every name in the query is in the NULL-terminated list. */
int url_query_check(const char *query, const char *const *allowed, struct err *err);
/* 1 and a value that the caller frees, 0 if there is no such name, negative if it is malformed. */
int url_query_get(const char *query, const char *name, char **ret_value, struct err *err);
