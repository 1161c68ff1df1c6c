#pragma once
/* Shared by the webhost_*.c files: arguments in, typed arrays out, exceptions. */

#include <JavaScriptCore/JavaScript.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* No native call takes or makes more than this at once; JSC's own strings end at 2^31 - 1. */
#define WEBHOST_MAX_BYTES ((size_t)1 << 30)

#define WEBHOST_FN(name)                                                                           \
    static JSValueRef name(JSContextRef ctx, JSObjectRef fn, JSObjectRef self, size_t argc,        \
                           const JSValueRef argv[], JSValueRef *exc)

/* Every WEBHOST_FN uses the same parameters; not all of them need the first two. */
#define WEBHOST_UNUSED ((void)fn, (void)self, (void)argc, (void)argv, (void)exc)

struct bytes {
    uint8_t *data;
    size_t len;
};

/* Throws a RangeError-like Error (what went wrong is in the message) and returns undefined. */
JSValueRef webhost_throw(JSContextRef ctx, JSValueRef *exc, const char *message);
/* The bytes of argument i, which must be a Uint8Array. JSC pins a buffer whose pointer was taken
 * (it can never be transferred again), so the bundle hands over only copies and its own arrays. */
bool webhost_bytes(JSContextRef ctx, size_t argc, const JSValueRef argv[], size_t i,
                   struct bytes *ret_bytes, JSValueRef *exc);
/* Argument i as a number in [0, max]. */
bool webhost_size(JSContextRef ctx, size_t argc, const JSValueRef argv[], size_t i, size_t max,
                  size_t *ret_n, JSValueRef *exc);
/* A new Uint8Array that owns data (from malloc). Frees it on failure. */
JSValueRef webhost_take(JSContextRef ctx, uint8_t *data, size_t len, JSValueRef *exc);
JSValueRef webhost_copy(JSContextRef ctx, const void *data, size_t len, JSValueRef *exc);
void webhost_define(JSContextRef ctx, JSObjectRef host, const char *name,
                    JSObjectCallAsFunctionCallback fn);

void webhost_install_text(JSContextRef ctx, JSObjectRef host);
void webhost_install_crypto(JSContextRef ctx, JSObjectRef host);
void webhost_install_keys(JSContextRef ctx, JSObjectRef host);
void webhost_install_zlib(JSContextRef ctx, JSObjectRef host);
