#pragma once
/* demo.json: what the built-in demo model says and does for one agent. It is data, so that an
 * operator can give an agent a demo without touching C.
 *
 *   {"preface": "I am a script. ",            said first in each turn; there is a built-in one
 *    "preface_as": "think",                  it is reasoning then, and no part of the answer's text
 *    "fallback": "... {{user}} {{examples}}", said when nothing matches; there is a built-in one
 *    "scripts": [
 *      {"when": "count.*by +(tier|region)",   POSIX extended regular expression, any case, searched
 *                                             in the last message of the user
 *       "example": "Count customers by tier", shown by {{examples}}; may be left out
 *       "steps": [STEP, ...]}]}
 *
 * The first script that matches is taken; its first step answers the user, the next one the tool's
 * result, and so on. A STEP is an object, or a list of objects of which the first is taken whose
 * "if" holds:
 *
 *   "if": "result.error"   a path that must be there and not null, false, 0 or empty
 *   "think": "..."         reasoning before the answer
 *   "say": "..."           text
 *   "repeat": 3            says it so many times; {{n}} counts from 1
 *   "call": {"tool": "executeCode", "input": {...}}   one call, or a list of calls
 *   "fail": "..."          the stream ends with this error
 *
 * All strings of a step are templates: {{path}} or {{path|filter}}. Paths: 0 to 9 (the match and
 * its groups), user (the last message), result and result.key.key (the output of the last tool
 * call), results.N.key (of the Nth in this turn, from 0), tools, examples, n. A path that leads
 * nowhere is empty. Filters: json (as a JSON literal), lower, sql (quotes doubled), fence (a block
 * of code), head (its first words), calc ("2 + 3" as 5), table (a list of objects as a markdown
 * table), count. */

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

#include <regex.h>
#include <stdbool.h>
#include <stddef.h>

enum { SCRIPT_GROUPS = 10 };

/* What templates can refer to; all borrowed. */
struct script_scope {
    const json_t *script; /* demo.json or NULL */
    const json_t *tools;
    const char *user;
    const json_t *results; /* outputs of this turn's tool calls, in order */
    regmatch_t groups[SCRIPT_GROUPS];
    unsigned n;
};

/* ERR_BAD_REQUEST with a message that names the place, if it is no such file. */
int script_check(const json_t *script, struct err *err);
/* The step for that many answers given in this turn, or NULL; fills scope->groups. ret_matched:
 * some script matches. */
const json_t *script_step(struct script_scope *scope, size_t answers, bool *ret_matched);
void script_render(const struct script_scope *scope, const char *text, struct buf *out);
/* A copy of the value with each string rendered; NULL when it grows too large. */
json_t *script_render_json(const struct script_scope *scope, const json_t *value);
