#pragma once
/* What a script of the demo says at a point of a conversation, as both APIs send it: the first
 * message of the user chooses the script, each further one is a result. */

#include "base/buf.h"
#include "base/json.h"

/* messages may hold anything. */
void play_answer(const json_t *script, const json_t *messages, struct buf *out);
