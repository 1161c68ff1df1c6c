#pragma once
/* The conversation in the neutral shape of model.h, made fit for providers: checked, texts as
 * blocks, empty things gone, every tool call answered right after it, no result without a call. */

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

/* ret_messages and ret_ids (an object whose keys are the ids of all tool calls) are the caller's.
 */
int messages_normalise(const json_t *in, json_t **ret_messages, json_t **ret_ids, struct err *err);
/* Writes a tool result's output as the text that a model reads: strings as they are, else JSON. */
void messages_write_output(struct json_writer *w, const json_t *result);
const char *messages_str(const json_t *obj, const char *key); /* "" if there is none */
