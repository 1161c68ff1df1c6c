#pragma once
/* Text of strangers on the operator's terminal: control characters are shown, not obeyed. */

#include <stddef.h>
#include <stdio.h>

/* Writes the text; on a terminal, escape sequences and other control characters but newline and tab
 * are made visible. NULL is allowed. */
void terminal_print(FILE *out, const char *text, size_t len);
