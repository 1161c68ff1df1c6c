#pragma once
/* AI SDK UIMessages: {"id","role","parts":[...]}, as the clients have them and the history keeps
 * them, and their translation into what a model reads (front/model/model.h). */

#include "base/err.h"
#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>

/* The list as messages for a model. The oldest are left out, with a note in their place, when there
 * are more than max bytes of them; the last one stays in any case. */
json_t *uimessage_to_model(const json_t *list, size_t max);
/* Checks what a client sent: an object of at most max bytes with an id, a role and parts. */
int uimessage_check(const json_t *message, size_t max, struct err *err);

/* What the person said last, at most max bytes of it; the caller frees. NULL: nothing. */
char *uimessage_said(const json_t *list, size_t max);

/* Building an assistant's message. */
json_t *uimessage_new(const char *id);
void uimessage_step(json_t *message);
/* Adds the content of a model's answer: reasoning, text and tool calls. */
void uimessage_add_content(json_t *message, const json_t *content);
/* Gives the tool call its output, or, if it failed, a text that says why. */
void uimessage_set_output(json_t *message, const char *tool_call_id, const json_t *output,
                          bool failed);
/* Tool calls that have no answer get this error: the turn is over. */
void uimessage_settle(json_t *message, const char *error);
/* A note at the end, for turns that did not run to theirs. */
void uimessage_add_note(json_t *message, const char *text);
bool uimessage_is_empty(const json_t *message);
