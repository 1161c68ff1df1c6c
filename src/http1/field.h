#pragma once
/* What is known about header fields and statuses by name alone. */

#include <stdbool.h>

/* True if the field concerns this connection only: it is named by RFC 9110 or by the value of
 * Connection, which may be NULL. */
bool http1_is_hop_by_hop(const char *name, const char *connection);
/* "Not Found". */
const char *http1_phrase(int status);
