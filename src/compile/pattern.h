#pragma once
/* Regular expressions that are valid beyond doubt: no flag u or v, no names, no escapes with digits
 * or letters but the common ones. */

#include <stdbool.h>
#include <stddef.h>

/* The text between the slashes. */
bool pattern_is_plain(const char *text, size_t len);
