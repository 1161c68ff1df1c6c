#pragma once
/* POST /execute: a task for a coding agent, as a job of the kind "execute". What it may do is held
 * by the sandbox: "plan" reads and has no way to change a file, "acceptEdits" works on its files
 * with its model as the only way out, "bypassPermissions" also has what the operator lets sandboxes
 * reach. */

#include "base/buf.h"
#include "front/code/code.h"

/* Whether one can be begun with that body, as far as can be said before. */
int code_task_check(struct codes *all, const json_t *body, struct err *err);
/* ask.body is that of POST /execute. */
int code_task_start(struct codes *all, const struct code_ask *ask, char ret_id[ID_SIZE],
                    struct err *err);
/* Adds to a log what a person reads of an event of a coding job. */
void code_task_log(struct buf *log, const char *type, const json_t *event);
/* The HTTP status that tells how a job with this error code ended. */
int code_task_status(const char *error_code);
