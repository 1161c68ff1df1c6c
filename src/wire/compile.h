#pragma once
/* The contract between the front and cay-compile, on descriptor 3 (framed messages):
 *
 *   front -> compile   COMPILE  JSON {"mainModule", "modules", "limits"?}, see src/compile/js
 *   compile -> front   PROGRAM  the linked program, JSON for the isolate's loader; opaque to the
 * front FAILED   JSON {"name","message","module","line","column","excerpt"}
 *
 * with the id of the request, in the order of the requests. The compiler is pure: the same request
 * gives the same program, so the front caches by hash. It has no way to do anything else: a request
 * that takes too long is ended by ending the process. */

enum compile_message {
    COMPILE_REQUEST = 1,
    COMPILE_READY = 16, /* once, when the compiler is warm and locked down; JSON of its locks */
    COMPILE_PROGRAM = 17,
    COMPILE_FAILED = 18,
};

#define COMPILE_FRAME_MAX (32U << 20)
