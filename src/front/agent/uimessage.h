#pragma once
/* AI SDK UIMessages: {"id","role","parts":[...]}, as the clients have them and the history keeps
 * them, and their translation into what a model reads (front/model/model.h). */

#include "base/err.h"
#include "base/json.h"

#include <stdbool.h>

/* The list as messages for a model. */
json_t *uimessage_to_model(const json_t *list);
/* Checks what a client sent: an object with an id, a role and parts. */
int uimessage_check(const json_t *message, struct err *err);

/* Building an assistant's message. */
json_t *uimessage_new(const char *id);
void uimessage_step(json_t *message);
/* Adds the content of a model's answer: reasoning, text and tool calls. */
void uimessage_add_content(json_t *message, const json_t *content);
/* Gives the tool call its output, or, if error is not NULL, that error. */
void uimessage_set_output(json_t *message, const char *tool_call_id, const json_t *output,
                          const char *error);
/* A note at the end, for turns that did not run to theirs. */
void uimessage_add_note(json_t *message, const char *text);
bool uimessage_is_empty(const json_t *message);
