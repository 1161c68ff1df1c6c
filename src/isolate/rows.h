#pragma once
/* The rows of a facet's answer, {"columns":["a"],"rows":[[1],[2]]}, as the JSON that a program is
 * to see: [{"a":1},{"a":2}]. To parse that takes a tenth of what JavaScript needs to put the
 * objects together. */

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

/* False where the text is anything else, or has a value that JSON lacks (an array stands for it),
 * or does not fit: then out holds nothing of use. What it lets pass need not be valid JSON: it is
 * to be parsed. */
bool rows_to_objects(const char *text, size_t len, struct buf *out);
