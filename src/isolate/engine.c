#include "isolate/engine.h"

#include "base/cleanup.h"
#include "base/mem.h"
#include "isolate/embed.h"
#include "isolate/memory.h"
#include "isolate/webhost.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Exported by the library, declared in no header that is shipped. Looked up by name, so that a
 * version without one of them degrades instead of failing to start. */
typedef void (*eval_enabled_fn)(JSGlobalContextRef, bool, JSStringRef);
typedef void (*rejection_fn)(JSGlobalContextRef, JSObjectRef, JSValueRef *);
typedef JSObjectRef (*proxy_target_fn)(JSObjectRef);
typedef void (*heap_finalizer)(JSContextGroupRef, void *);
typedef void (*add_heap_finalizer_fn)(JSContextGroupRef, heap_finalizer, void *);
typedef void (*void_fn)(void);
typedef void (*switch_fn)(JSGlobalContextRef, bool);

/* Never in an isolate: the dynamic linker would walk libraries that are not forked along. */
static void *engine_symbol(const char *name) {
    return dlsym(RTLD_DEFAULT, name);
}

static proxy_target_fn proxy_target;

static const char *const function_names[ENGINE_FUNCTION_COUNT] = {
    [ENGINE_START] = "start", [ENGINE_CALL] = "call",   [ENGINE_REPLY] = "reply",
    [ENGINE_ROOM] = "room",   [ENGINE_INPUT] = "input", [ENGINE_CANCEL] = "cancel",
    [ENGINE_GONE] = "gone",   [ENGINE_TICK] = "tick",   [ENGINE_STUCK] = "stuck",
    [ENGINE_SEED] = "seed",   [ENGINE_CLEAR] = "clear", [ENGINE_SETTLE] = "settle",
};

void engine_options(bool short_runs_do_not_compile, uint64_t memory_max_bytes) {
    static const char *const options[][2] = {
        {"TZ", "UTC"},
        /* ICU would look for newer time-zone files on a disk that isolates cannot see. */
        {"ICU_TIMEZONE_FILES_DIR", ""},
        /* Threads do not survive fork: compile and collect on the one thread there is. */
        {"JSC_useConcurrentJIT", "0"},
        {"JSC_useConcurrentGC", "0"},
        {"JSC_numberOfGCMarkers", "1"},
        {"JSC_useWasm", "0"},
        /* A tail call would drop its caller from the stack that an error shows. */
        {"JSC_useTailCalls", "0"},
        /* With the cage 72 GB of addresses are reserved and buffers escape RLIMIT_AS. */
        {"GIGACAGE_ENABLED", "0"},
        /* libc's heap lies closer together than the engine's own, which keeps types apart: a run
         * writes 40 pages less of it. */
        {"Malloc", "1"},
    };
    (void)clearenv();
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        (void)setenv(options[i][0], options[i][1], 1);
    /* The engine lets garbage grow with the machine's memory, of which a program has little. */
    char ram[24];
    (void)snprintf(ram, sizeof(ram), "%llu", (unsigned long long)memory_max_bytes);
    (void)setenv("JSC_forceRAMSize", ram, 1);
    if (short_runs_do_not_compile)
        (void)setenv("JSC_thresholdForJITAfterWarmUp", "60000", 1);
}

static JSObjectRef host_object(JSContextRef ctx, const struct engine_host_function *host) {
    JSObjectRef object = JSObjectMake(ctx, NULL, NULL);
    for (; host->name; host++) {
        JSStringRef name = JSStringCreateWithUTF8CString(host->name);
        JSObjectRef f = JSObjectMakeFunctionWithCallback(ctx, name, host->call);
        JSObjectSetProperty(ctx, object, name, f, 0, NULL);
        JSStringRelease(name);
    }
    return object;
}

static int engine_thrown(JSContextRef ctx, JSValueRef exception, const char *what,
                         struct err *err) {
    size_t len;
    char *text = engine_utf8(ctx, exception, &len);
    int rc = err_set(err, ERR_INTERNAL, "%s: %s", what, text ? text : "unknown");
    free(text);
    return rc;
}

static JSObjectRef get_function(JSContextRef ctx, JSObjectRef object, const char *key) {
    JSStringRef name = JSStringCreateWithUTF8CString(key);
    JSValueRef v = JSObjectGetProperty(ctx, object, name, NULL);
    JSStringRelease(name);
    if (!v || !JSValueIsObject(ctx, v))
        return NULL;
    JSObjectRef f = JSValueToObject(ctx, v, NULL);
    return f && JSObjectIsFunction(ctx, f) ? f : NULL;
}

static void set_policies(JSGlobalContextRef ctx, JSObjectRef on_rejection) {
    eval_enabled_fn eval_enabled = (eval_enabled_fn)engine_symbol("JSGlobalContextSetEvalEnabled");
    if (eval_enabled) {
        JSStringRef why = JSStringCreateWithUTF8CString(
            "eval and new Function are not available here: write the code as a module");
        eval_enabled(ctx, false, why);
        JSStringRelease(why);
    }
    /* No native stacks and no inspector: an exception would be reported to nobody at some cost. */
    static const char *const off[] = {
        "JSGlobalContextSetIncludesNativeCallStackWhenReportingExceptions",
        "JSGlobalContextSetRemoteInspectionEnabled"};
    for (size_t i = 0; i < ARRAY_LEN(off); i++) {
        switch_fn set = (switch_fn)engine_symbol(off[i]);
        if (set)
            set(ctx, false);
    }
    rejection_fn rejection =
        (rejection_fn)engine_symbol("JSGlobalContextSetUnhandledRejectionCallback");
    if (rejection && on_rejection)
        rejection(ctx, on_rejection, NULL);
}

static JSValueRef engine_evaluate(JSContextRef ctx, const char *text, const char *name,
                                  JSValueRef *exception) {
    JSStringRef source = JSStringCreateWithUTF8CString(text);
    JSStringRef url = JSStringCreateWithUTF8CString(name);
    JSValueRef v = JSEvaluateScript(ctx, source, NULL, url, 1, exception);
    JSStringRelease(source);
    JSStringRelease(url);
    return v;
}

/* The prelude: its functions for the event loop. */
static JSObjectRef make_prelude(JSGlobalContextRef ctx, const struct engine_host_function *host,
                                JSValueRef *exception) {
    JSValueRef loader = engine_evaluate(ctx, isolate_loader_js, "cay:loader", exception);
    JSValueRef core =
        *exception ? NULL : engine_evaluate(ctx, isolate_core_js, "cay:core", exception);
    if (*exception)
        return NULL;
    JSValueRef web = engine_evaluate(ctx, isolate_web_js, "cay:web", exception);
    if (*exception)
        return NULL;
    JSObjectRef web_host = JSObjectMake(ctx, NULL, NULL);
    webhost_install(ctx, web_host);
    JSValueRef args[] = {host_object(ctx, host), loader, web, web_host};
    JSObjectRef make = JSValueToObject(ctx, core, exception);
    JSValueRef made = make ? JSObjectCallAsFunction(ctx, make, NULL, 4, args, exception) : NULL;
    return *exception ? NULL : JSValueToObject(ctx, made, exception);
}

int engine_init(struct engine *e, const struct engine_host_function *host, struct err *err) {
    void_fn disable_scavenger = (void_fn)engine_symbol("_ZN3WTF20fastDisableScavengerEv");
    if (disable_scavenger)
        disable_scavenger();
    /* libc loads its unwinder at the first use, which must not come in an isolate. */
    void *frame[1];
    (void)backtrace(frame, 1);
    proxy_target = (proxy_target_fn)engine_symbol("JSObjectGetProxyTarget");
    JSGlobalContextRef ctx = JSGlobalContextCreate(NULL);
    JSValueRef exception = NULL;
    JSObjectRef table = make_prelude(ctx, host, &exception);
    if (!table)
        return engine_thrown(ctx, exception, "prelude", err);
    for (size_t i = 0; i < ENGINE_FUNCTION_COUNT; i++) {
        e->functions[i] = get_function(ctx, table, function_names[i]);
        if (!e->functions[i])
            return err_set(err, ERR_INTERNAL, "prelude has no %s()", function_names[i]);
        JSValueProtect(ctx, e->functions[i]);
    }
    set_policies(ctx, get_function(ctx, table, "rejected"));
    e->ctx = ctx;
    return 0;
}

bool engine_call(struct engine *e, enum engine_function f, size_t n, const JSValueRef args[],
                 JSValueRef *ret_value) {
    JSValueRef exception = NULL;
    JSValueRef v = JSObjectCallAsFunction(e->ctx, e->functions[f], NULL, n, args, &exception);
    if (exception)
        return false;
    if (ret_value)
        *ret_value = v;
    return true;
}

/* UTF-16 of UTF-8 text that may hold NUL characters; what is not UTF-8 becomes U+FFFD. */
static JSStringRef wide_string(const char *text, size_t len) {
    JSChar *out = xmalloc((len + 1) * sizeof(*out));
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        uint8_t c = (uint8_t)text[i];
        size_t need = c < 0x80 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 0;
        uint32_t cp = need == 1 ? c : need == 2 ? c & 0x1f : need == 3 ? c & 0x0f : c & 0x07;
        bool good = need > 0 && i + need <= len;
        for (size_t k = 1; good && k < need; k++) {
            good = ((uint8_t)text[i + k] & 0xc0) == 0x80;
            cp = cp << 6 | ((uint8_t)text[i + k] & 0x3f);
        }
        if (!good || cp > 0x10ffff) {
            out[n++] = 0xfffd;
            i++;
            continue;
        }
        i += need;
        if (cp >= 0x10000) {
            out[n++] = (JSChar)(0xd800 + ((cp - 0x10000) >> 10));
            out[n++] = (JSChar)(0xdc00 + ((cp - 0x10000) & 0x3ff));
        } else {
            out[n++] = (JSChar)cp;
        }
    }
    JSStringRef s = JSStringCreateWithCharacters(out, n);
    free(out);
    return s;
}

JSValueRef engine_text(const struct engine *e, const char *text, size_t len) {
    bool narrow = true;
    for (size_t i = 0; i < len && narrow; i++)
        narrow = text[i] > 0;
    JSStringRef s;
    if (narrow) {
        char *copy = xstrndup(text, len);
        s = JSStringCreateWithUTF8CString(copy);
        free(copy);
    } else {
        s = wide_string(text, len);
    }
    JSValueRef v = JSValueMakeString(e->ctx, s);
    JSStringRelease(s);
    return v;
}

static void free_bytes(void *bytes, void *arg) {
    (void)arg;
    free(bytes);
}

JSValueRef engine_bytes(const struct engine *e, const void *data, size_t len) {
    void *copy = xmalloc(len + 1);
    memcpy(copy, data, len);
    return JSObjectMakeTypedArrayWithBytesNoCopy(e->ctx, kJSTypedArrayTypeUint8Array, copy, len,
                                                 free_bytes, NULL, NULL);
}

/* JSGarbageCollect() only makes a collection come sooner: in the first isolates, each of which
 * would then write to the whole heap. */
typedef void (*collect_fn)(JSContextRef);
static collect_fn collect; /* looked up by the zygote, which collects first */

void engine_collect(struct engine *e) {
    static bool looked;
    if (!looked)
        collect = (collect_fn)engine_symbol("JSSynchronousGarbageCollectForDebugging");
    looked = true;
    if (collect)
        collect(e->ctx);
    else
        JSGarbageCollect(e->ctx);
}

enum { SPARSE_MIN = 1 << 20 };

char *engine_utf8(JSContextRef ctx, JSValueRef value, size_t *ret_len) {
    JSStringRef s = JSValueToStringCopy(ctx, value, NULL);
    if (!s)
        return NULL;
    size_t size = JSStringGetMaximumUTF8CStringSize(s);
    /* Three bytes for a character, of which most texts need one. */
    char *out = size < SPARSE_MIN ? malloc(size) : memory_sparse(size, size / 3);
    size_t n = out ? JSStringGetUTF8CString(s, out, size) : 0;
    JSStringRelease(s);
    if (n == 0) {
        free(out);
        return NULL;
    }
    *ret_len = n - 1;
    return out;
}

bool engine_is_proxy(JSContextRef ctx, JSValueRef value) {
    if (!proxy_target || !JSValueIsObject(ctx, value))
        return false;
    JSObjectRef object = JSValueToObject(ctx, value, NULL);
    return object && proxy_target(object) != NULL;
}

static engine_after_gc after_gc;

static void isolate_engine_on_gc(JSContextGroupRef group, void *arg) {
    (void)group;
    after_gc(arg);
}

bool engine_on_gc(struct engine *e, engine_after_gc cb, void *arg) {
    add_heap_finalizer_fn add =
        (add_heap_finalizer_fn)engine_symbol("JSContextGroupAddHeapFinalizer");
    if (!add)
        return false;
    after_gc = cb;
    add(JSContextGetGroup(e->ctx), isolate_engine_on_gc, arg);
    return true;
}
