#pragma once
/* Programs of plain modules (plain.h), linked without JavaScript. The answer is, byte for byte,
 * what the compiler in js/ says. Takes time and memory in proportion to the request. */

#include <stddef.h>

/* The response for a request (both as in js/compile.js), which the caller frees; NULL: not plain,
 * or not without fault. */
char *quick_compile(const char *request, size_t len, size_t *ret_len);
