#pragma once
/* The assistant's UIMessage while it comes. Each part is kept as JSON text: what is long is written
 * once, when it comes, and every save puts the message together from that. So the end of a long
 * answer is a copy of its bytes, and no tree of it is walked on the loop. */

#include "base/buf.h"
#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>

struct draft;

/* id: borrowed. */
struct draft *draft_create(const char *id);
void draft_destroy(struct draft *d);

void draft_step(struct draft *d);
/* The stream begins a text, or reasoning, ... */
void draft_begin_text(struct draft *d, bool reasoning);
/* ...and says a piece of it, given as it stands between the quotes of a JSON string. */
void draft_add_text(struct draft *d, const char *json, size_t len);
/* A call with its input, as JSON. */
void draft_add_call(struct draft *d, const char *id, const char *name, const char *json,
                    size_t len);
/* The answer is there: what the stream has said of it is put into the answer's order, with what
 * only the answer has. */
void draft_take_answer(struct draft *d, const json_t *content);
/* Gives a call its output, as JSON; failed: a text that says why. */
void draft_set_output(struct draft *d, const char *id, const char *json, size_t len, bool failed);
/* No answer will come any more: what was said stays, and open calls get this error. */
void draft_settle(struct draft *d, const char *error);
/* Its members stand beside those that are there. Takes them. */
void draft_add_metadata(struct draft *d, json_t *members);

/* True while there is nothing in it but the beginnings of steps. */
bool draft_is_empty(const struct draft *d);
/* Appends the message, as JSON. */
void draft_write(const struct draft *d, struct buf *out);
