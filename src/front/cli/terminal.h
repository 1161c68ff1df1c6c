#pragma once
/* Text of strangers (guests, models, servers, file names) on the operator's terminal. It is shown
 * and not obeyed: control characters, escape sequences, and characters that turn the order of
 * others around or hide them stand there as their numbers. Every command that prints such text
 * prints it by terminal_print(). What a program in a sandbox writes to a terminal that it was given
 * (`cay exec`, `cay sandbox exec`) is passed on as it is: that is what was asked for. */

#include "base/buf.h"
#include "base/json.h"

#include <stddef.h>
#include <stdio.h>

/* Writes the text; if out is a terminal, as terminal_clean() makes it. NULL is allowed. */
void terminal_print(FILE *out, const char *text, size_t len);
/* The same of a NUL-terminated text, and a newline. */
void terminal_line(FILE *out, const char *text);
/* The same after words of our own: terminal_say(stderr, "cay: ", err.message). */
void terminal_say(FILE *out, const char *before, const char *text);
/* A value as indented JSON, and a newline, to standard output. NULL is null. */
void terminal_json(const json_t *j);
/* Adds the text as it can be shown. Newlines and tabs stay. */
void terminal_clean(struct buf *out, const char *text, size_t len);
