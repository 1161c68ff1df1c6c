#include "isolate/webhost.h"

#include "isolate/webhost_priv.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rand.h"

/* Private to JSC but exported: NULL if the value is not a Proxy. Without it a Proxy is told from
 * its target by nobody, and structuredClone() copies what it shows. */
typedef JSObjectRef (*proxy_target_fn)(JSObjectRef);
static proxy_target_fn proxy_target;

static double origin_wall_ms;
static double origin_mono_ms;

static double clock_ms(clockid_t id) {
    struct timespec ts;
    clock_gettime(id, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

void webhost_begin(void) {
    origin_wall_ms = clock_ms(CLOCK_REALTIME);
    origin_mono_ms = clock_ms(CLOCK_MONOTONIC);
}

JSValueRef webhost_throw(JSContextRef ctx, JSValueRef *exc, const char *message) {
    JSStringRef s = JSStringCreateWithUTF8CString(message);
    JSValueRef v = JSValueMakeString(ctx, s);
    JSStringRelease(s);
    *exc = JSObjectMakeError(ctx, 1, &v, NULL);
    return JSValueMakeUndefined(ctx);
}

bool webhost_bytes(JSContextRef ctx, size_t argc, const JSValueRef argv[], size_t i,
                   struct bytes *ret_bytes, JSValueRef *exc) {
    if (i >= argc || JSValueGetTypedArrayType(ctx, argv[i], exc) != kJSTypedArrayTypeUint8Array) {
        webhost_throw(ctx, exc, "webhost: a Uint8Array is needed");
        return false;
    }
    JSObjectRef o = (JSObjectRef)argv[i];
    size_t len = JSObjectGetTypedArrayByteLength(ctx, o, exc);
    size_t offset = JSObjectGetTypedArrayByteOffset(ctx, o, exc);
    /* The pointer is the buffer's, not the view's; it is NULL for a detached buffer. */
    uint8_t *base = len ? JSObjectGetTypedArrayBytesPtr(ctx, o, exc) : NULL;
    if (*exc)
        return false;
    if (!base)
        len = 0;
    if (len > WEBHOST_MAX_BYTES) {
        webhost_throw(ctx, exc, "the buffer is too large");
        return false;
    }
    *ret_bytes = (struct bytes){base ? base + offset : (uint8_t *)"", len};
    return true;
}

bool webhost_size(JSContextRef ctx, size_t argc, const JSValueRef argv[], size_t i, size_t max,
                  size_t *ret_n, JSValueRef *exc) {
    double d = i < argc && JSValueIsNumber(ctx, argv[i]) ? JSValueToNumber(ctx, argv[i], exc) : -1;
    if (!(d >= 0 && d <= (double)max && d == floor(d))) {
        webhost_throw(ctx, exc, "webhost: a number is out of range");
        return false;
    }
    *ret_n = (size_t)d;
    return true;
}

static void webhost_on_free(void *data, void *context) {
    (void)context;
    free(data);
}

JSValueRef webhost_take(JSContextRef ctx, uint8_t *data, size_t len, JSValueRef *exc) {
    if (!data)
        return webhost_throw(ctx, exc, "out of memory");
    /* NoCopy and not JSObjectMakeTypedArray: asking JSC for the pointer of its own array would pin
     * the buffer, and a program could not transfer it. */
    JSObjectRef o = JSObjectMakeTypedArrayWithBytesNoCopy(ctx, kJSTypedArrayTypeUint8Array, data,
                                                          len, webhost_on_free, NULL, exc);
    if (!o && !*exc)
        return webhost_throw(ctx, exc, "out of memory");
    return o ? o : JSValueMakeUndefined(ctx);
}

JSValueRef webhost_copy(JSContextRef ctx, const void *data, size_t len, JSValueRef *exc) {
    uint8_t *p = malloc(len ? len : 1);
    if (p)
        memcpy(p, data, len);
    return webhost_take(ctx, p, len, exc);
}

void webhost_define(JSContextRef ctx, JSObjectRef host, const char *name,
                    JSObjectCallAsFunctionCallback fn) {
    JSStringRef s = JSStringCreateWithUTF8CString(name);
    JSObjectSetProperty(ctx, host, s, JSObjectMakeFunctionWithCallback(ctx, s, fn),
                        kJSPropertyAttributeNone, NULL);
    JSStringRelease(s);
}

/* random(n): n bytes from the kernel. */
WEBHOST_FN(fn_random) {
    WEBHOST_UNUSED;
    size_t n;
    if (!webhost_size(ctx, argc, argv, 0, 65536, &n, exc))
        return JSValueMakeUndefined(ctx);
    uint8_t *p = malloc(n ? n : 1);
    if (p)
        rand_bytes(p, n);
    return webhost_take(ctx, p, n, exc);
}

/* now(): milliseconds since the isolate began. */
WEBHOST_FN(fn_now) {
    WEBHOST_UNUSED;
    return JSValueMakeNumber(ctx, clock_ms(CLOCK_MONOTONIC) - origin_mono_ms);
}

WEBHOST_FN(fn_time_origin) {
    WEBHOST_UNUSED;
    return JSValueMakeNumber(ctx, origin_wall_ms);
}

WEBHOST_FN(fn_is_proxy) {
    WEBHOST_UNUSED;
    bool yes =
        argc && JSValueIsObject(ctx, argv[0]) && proxy_target && proxy_target((JSObjectRef)argv[0]);
    return JSValueMakeBoolean(ctx, yes);
}

void webhost_install(JSGlobalContextRef ctx, JSObjectRef host) {
    webhost_begin();
    void *symbol = dlsym(RTLD_DEFAULT, "JSObjectGetProxyTarget");
    memcpy(&proxy_target, &symbol, sizeof symbol);
    webhost_define(ctx, host, "isProxy", fn_is_proxy);
    webhost_define(ctx, host, "random", fn_random);
    webhost_define(ctx, host, "now", fn_now);
    webhost_define(ctx, host, "timeOrigin", fn_time_origin);
    webhost_install_text(ctx, host);
    webhost_install_crypto(ctx, host);
    webhost_install_keys(ctx, host);
    webhost_install_zlib(ctx, host);
}
