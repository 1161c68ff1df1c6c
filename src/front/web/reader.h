#pragma once
/* Reads pages: HTML in, Markdown out. The work is done by a program in an isolate that stays warm
 * (js/read.js), one page at a time, with a limit of processor time. A page that is too much for it
 * is read by the stripper, so that there always is a text. */

#include "front/run/runner.h"

#include <stddef.h>

struct reader;
struct reader_call;

/* cut: the parser could not, and the text has lost its form. */
typedef void (*reader_done)(void *ctx, const char *text, size_t len, bool cut);

struct reader *reader_create(struct runner *runner);
/* Nothing is told any more. Before the runner stops. */
void reader_close(struct reader *r);
/* html: UTF-8; copied. done comes from the loop. */
struct reader_call *reader_read(struct reader *r, const char *html, size_t len, const char *url,
                                reader_done done, void *ctx);
/* NULL is allowed. */
void reader_call_cancel(struct reader_call *g);
