#pragma once
/* Between the parts of a command: exec.c, exec_input.c and exec_request.c. */

#include "front/sandbox/exec.h"

/* There is room in the command's input again, or nobody reads it any more. */
void exec_input_wake(struct exec_input *i);

/* Checks the request and says it to the launcher; the caller finishes what comes back. */
int exec_request_resolve(const struct exec_request *r, const struct sandbox *s,
                         struct sandbox_exec *ret, struct err *err);
/* What is kept and shown of it; a new reference. */
json_t *exec_request_doc(const struct exec_request *r);
