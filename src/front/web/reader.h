#pragma once
/* Reads pages: HTML in, Markdown out. The work is done by a program in an isolate that stays warm
 * (js/read.js), one page at a time, with a limit of processor time; keys take turns. A page that is
 * too much for it, or that would wait behind too many, is read by the stripper, so that there
 * always is a text. */

#include "front/run/runner.h"

#include <stddef.h>

struct reader;
struct reader_call;

/* cut: the parser could not, and the text has lost its form. */
typedef void (*reader_done)(void *ctx, const char *text, size_t len, bool cut);

struct reader *reader_create(struct runner *runner);
/* Nothing is told any more. Before the runner stops. */
void reader_close(struct reader *r);
struct reader_page {
    const char *owner; /* the key whose turn it takes */
    const char *url;
    const char *html; /* UTF-8 */
    size_t len;
};
/* The page is copied. done comes from the loop. */
struct reader_call *reader_read(struct reader *r, const struct reader_page *page, reader_done done,
                                void *ctx);
/* NULL is allowed. */
void reader_call_cancel(struct reader_call *g);
