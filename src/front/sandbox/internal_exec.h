#pragma once
/* Between the parts of a command: exec.c and exec_input.c. */

#include "front/sandbox/exec.h"

/* There is room in the command's input again, or nobody reads it any more. */
void exec_input_wake(struct exec_input *i);
