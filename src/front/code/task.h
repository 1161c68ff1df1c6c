#pragma once
/* POST /execute: a task for a coding agent, as a job of the kind "execute". What it may do is held
 * by the sandbox: "plan" reads and has no way to change a file, "acceptEdits" works on its files
 * with its model as the only way out, "bypassPermissions" also has what the operator lets sandboxes
 * reach. */

#include "base/buf.h"
#include "front/code/code.h"
#include "front/job/answer.h"

/* The body of POST /execute, as code_start() takes it. */
int code_task_read(struct codes *all, const json_t *body, const json_t *grants,
                   struct code_request *ret, struct err *err);
/* What it answers when it has ended. */
int code_task_answer(const struct job_asked *ask, struct buf *out, struct job_answered *ret,
                     struct err *err);
/* How long a job with that body may take at most, the clone and what is around it included; the
 * setting that says so. */
int64_t code_task_limit_ms(const struct codes *all, const json_t *body, const char **ret_setting);
/* Adds to a log what a person reads of an event of a coding job. */
void code_task_log(struct buf *log, const char *type, const json_t *event);
/* The HTTP status that tells how a job with this error code ended. */
int code_task_status(const char *error_code);
