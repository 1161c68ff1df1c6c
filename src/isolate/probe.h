#pragma once
/* Native functions that only the test build has (CAY_ISOLATE_PROBE): they let a test program try
 * system calls that an exploit of the engine would try. */

#include "isolate/engine.h"

#ifdef CAY_ISOLATE_PROBE
JSValueRef probe_syscall(JSContextRef ctx, JSObjectRef function, JSObjectRef this_object,
                         size_t argc, const JSValueRef argv[], JSValueRef *exception);
#define PROBE_HOST_FUNCTIONS {"probe", probe_syscall},
#else
#define PROBE_HOST_FUNCTIONS
#endif
