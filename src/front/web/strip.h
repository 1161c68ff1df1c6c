#pragma once
/* HTML without a parser, in one pass over it whatever it holds: for what is too hostile, or too
 * long, for one. */

#include "base/buf.h"

#include <stddef.h>

/* A copy without what no reader sees: comments, and what is in script, style, svg, template and
 * noscript. Until out is full. */
void strip_unseen(const char *s, size_t len, struct buf *out);
/* Its text: tags are dropped, blocks end a line, common character references are undone. */
void strip_tags(const char *s, size_t len, struct buf *out);
