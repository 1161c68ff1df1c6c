#include "isolate/probe.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* probe(number, argument...): a raw system call; a string argument becomes a pointer to its text.
 * Returns the result, or -errno. Number -1 is madvise() as the engine calls it. */
JSValueRef probe_syscall(JSContextRef ctx, JSObjectRef function, JSObjectRef this_object,
                         size_t argc, const JSValueRef argv[], JSValueRef *exception) {
    (void)function;
    (void)this_object;
    static char texts[6][256];
    long v[7] = {0};
    for (size_t i = 0; i < argc && i < 7; i++) {
        if (i > 0 && JSValueIsString(ctx, argv[i])) {
            JSStringRef s = JSValueToStringCopy(ctx, argv[i], exception);
            (void)JSStringGetUTF8CString(s, texts[i - 1], sizeof(texts[i - 1]));
            JSStringRelease(s);
            v[i] = (long)(intptr_t)texts[i - 1];
        } else {
            v[i] = (long)JSValueToNumber(ctx, argv[i], exception);
        }
    }
    long r = v[0] == -1 ? madvise((void *)v[1], (size_t)v[2], (int)v[3])
                        : syscall(v[0], v[1], v[2], v[3], v[4], v[5], v[6]);
    return JSValueMakeNumber(ctx, (double)(r < 0 ? -errno : r));
}
