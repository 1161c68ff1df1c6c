#pragma once
/* What the model says to do next: exactly one JSON object, {"tool", "args"} or {"done": true,
 * "summary"}, each with an optional "thought". Nothing around it: an action is never looked for
 * inside prose, since prose may quote what somebody else wrote. */

#include "base/err.h"
#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>

struct coder_reply {
    json_t *json; /* owns the rest */
    bool done;
    const json_t *thought; /* a string, or NULL */
    const json_t *tool;    /* a string */
    const json_t *args;    /* an object */
    const json_t *summary; /* a string */
};

/* ERR_BAD_REQUEST with words for the model. */
int coder_reply_parse(const char *text, size_t len, struct coder_reply *ret, struct err *err);
void coder_reply_finish(struct coder_reply *r);
