#pragma once
/* The contract between the front and cay-compile, on descriptor 3 (framed messages):
 *
 *   front -> compile   REQUEST  u32 processor time in ms that it may take (0: as long as it takes),
 *                               then JSON {"mainModule", "modules", "limits"?}, see src/compile/js
 *   compile -> front   READY    once, when the compiler is warm and locked down
 *                      PROGRAM  the linked program, JSON for the isolate's loader; opaque to the
 *                               front
 *                      FAILED   JSON {"name","message","module","line","column","excerpt"}
 *                      SPENT    the time was up first
 *
 * with the id of the request, in the order of the requests. The compiler is pure: the same request
 * gives the same program, so the front caches by hash. It has no way to do anything else. It keeps
 * to its time as well as it can; the front looks at its processor time, and ends the process of one
 * that does not. */

enum compile_message {
    COMPILE_REQUEST = 1,
    COMPILE_READY = 16,
    COMPILE_PROGRAM = 17,
    COMPILE_FAILED = 18,
    COMPILE_SPENT = 19,
};

#define COMPILE_HEAD_SIZE 4
#define COMPILE_FRAME_MAX (32U << 20) /* without that head */

/* What it may take of memory for one program, and how it ends when that is not enough, or when it
 * fails: a signal would say nothing. */
#define COMPILE_MEMORY_BYTES (1U << 30)
enum compile_exit { COMPILE_EXIT_MEMORY = 81, COMPILE_EXIT_CRASH = 82 };
