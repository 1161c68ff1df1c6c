#pragma once
/* Native functions that only the test build has (CAY_ISOLATE_PROBE): they let a test program try
 * system calls that an exploit of the engine would try. */

#include "isolate/engine.h"

/* Flags of CONFIG that the test build knows. */
#define PROBE_CONFIG_NO_FILTER (1u << 31)
#define PROBE_CONFIG_ALLOCATES (1u << 30) /* the zygote, before each fork */

#ifdef CAY_ISOLATE_PROBE
JSValueRef probe_syscall(JSContextRef ctx, JSObjectRef function, JSObjectRef this_object,
                         size_t argc, const JSValueRef argv[], JSValueRef *exception);
#endif
