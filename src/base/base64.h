#pragma once
/* Base 64 of RFC 4648 with the standard alphabet and padding. Decoding is strict: no white space,
 * no missing padding, no stray bits in the last character. */

#include <stdbool.h>
#include <stddef.h>

#define BASE64_SIZE(n) (((n) + 2) / 3 * 4)

/* Writes BASE64_SIZE(len) characters and no NUL. */
void base64_encode(char *out, const void *data, size_t len);
/* Writes at most len / 4 * 3 bytes; out may be the text itself. False if the text is not base 64.
 */
bool base64_decode(void *out, const char *text, size_t len, size_t *ret_len);
