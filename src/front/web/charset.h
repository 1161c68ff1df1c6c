#pragma once
/* Pages in UTF-8, whatever they were written in: the charset is that of the Content-Type, else of a
 * byte order mark, else of a <meta> in the first 1024 bytes, else UTF-8 if it is that, else
 * windows-1252. Only the charsets of the Web that need no state are known. */

#include "base/buf.h"

#include <stddef.h>

/* Before the server locks itself. */
void charset_prepare(void);
/* type may be NULL. Appends until out is full; what cannot be read becomes U+FFFD. */
void charset_to_utf8(const char *type, const char *data, size_t len, struct buf *out);
