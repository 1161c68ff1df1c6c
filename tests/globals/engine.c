#include "engine.h"

#include "isolate/webhost.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void disable_scavenger(void) __asm__("_ZN3WTF20fastDisableScavengerEv");

static const char core_text[] =
    "(function(host){'use strict';const{print,now}=host;delete host.print;let id=0;"
    "const timers=new Map();"
    "globalThis.setTimeout=(f,ms=0,...a)=>{timers.set(++id,{t:now()+Math.max(0,+ms||0),f,a});"
    "return id};globalThis.clearTimeout=i=>{timers.delete(i)};"
    "globalThis.queueMicrotask=f=>{Promise.resolve().then(f)};globalThis.print=print;"
    "globalThis.console={log:(...a)=>print(a.join(' ')),error:(...a)=>print(a.join(' '))};"
    /* tick(true) runs what is due; tick() says in how many milliseconds the next timer is, or -1 */
    "return run=>{const n=now();if(run)for(const[k,x]of[...timers])if(x.t<=n&&timers.delete(k))"
    "x.f(...x.a);let b=-1;for(const x of timers.values())if(b<0||x.t<b)b=x.t;"
    "return b<0?-1:Math.max(0,b-now())}})";

char *engine_read(const char *path) {
    FILE *f = fopen(path, "re");
    if (!f || fseek(f, 0, SEEK_END) != 0) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(2);
    }
    long n = ftell(f);
    rewind(f);
    char *text = n >= 0 ? calloc(1, (size_t)n + 1) : NULL;
    if (!text || fread(text, 1, (size_t)n, f) != (size_t)n) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(2);
    }
    fclose(f);
    return text;
}

static char *text_of(JSContextRef ctx, JSValueRef v) {
    JSStringRef s = JSValueToStringCopy(ctx, v, NULL);
    if (!s)
        return strdup("(no text)");
    size_t max = JSStringGetMaximumUTF8CStringSize(s);
    char *out = calloc(1, max + 1);
    if (!out)
        abort();
    JSStringGetUTF8CString(s, out, max);
    JSStringRelease(s);
    return out;
}

static void complain(JSContextRef ctx, JSValueRef e) {
    char *what = text_of(ctx, e);
    JSStringRef key = JSStringCreateWithUTF8CString("stack");
    char *stack = JSValueIsObject(ctx, e)
                      ? text_of(ctx, JSObjectGetProperty(ctx, (JSObjectRef)e, key, NULL))
                      : strdup("");
    JSStringRelease(key);
    fprintf(stderr, "exception: %s\n%s\n", what, stack);
    free(what);
    free(stack);
}

static JSValueRef fn_print(JSContextRef ctx, JSObjectRef fn, JSObjectRef self, size_t argc,
                           const JSValueRef argv[], JSValueRef *exc) {
    (void)fn, (void)self, (void)exc;
    char *text = argc ? text_of(ctx, argv[0]) : strdup("");
    puts(text);
    free(text);
    return JSValueMakeUndefined(ctx);
}

void engine_prepare(void) {
    setenv("TZ", "UTC", 1);
    setenv("GIGACAGE_ENABLED", "0", 1);
    setenv("JSC_useConcurrentJIT", "0", 1);
    setenv("JSC_useConcurrentGC", "0", 1);
    setenv("JSC_numberOfGCMarkers", "1", 1);
    setenv("JSC_useWasm", "0", 1);
    setenv("JSC_thresholdForJITAfterWarmUp", "5000", 1);
    disable_scavenger();
}

JSValueRef engine_eval(struct engine *e, const char *text, const char *name) {
    JSValueRef exc = NULL;
    JSStringRef s = JSStringCreateWithUTF8CString(text);
    JSStringRef url = JSStringCreateWithUTF8CString(name);
    JSValueRef v = JSEvaluateScript(e->ctx, s, NULL, url, 1, &exc);
    JSStringRelease(s);
    JSStringRelease(url);
    if (exc)
        complain(e->ctx, exc);
    return exc ? NULL : v;
}

static JSObjectRef call(struct engine *e, JSValueRef fn, JSValueRef arg) {
    JSValueRef exc = NULL;
    JSValueRef v = fn ? JSObjectCallAsFunction(e->ctx, (JSObjectRef)fn, NULL, 1, &arg, &exc) : NULL;
    if (exc)
        complain(e->ctx, exc);
    if (!v || exc)
        exit(2);
    JSValueProtect(e->ctx, v);
    return (JSObjectRef)v;
}

void engine_create(struct engine *e) {
    e->ctx = JSGlobalContextCreate(NULL);
    e->host = JSObjectMake(e->ctx, NULL, NULL);
    JSValueProtect(e->ctx, e->host);
    webhost_install(e->ctx, e->host);
    JSStringRef name = JSStringCreateWithUTF8CString("print");
    JSObjectSetProperty(e->ctx, e->host, name,
                        JSObjectMakeFunctionWithCallback(e->ctx, name, fn_print), 0, NULL);
    JSStringRelease(name);
    e->tick = call(e, engine_eval(e, core_text, "core"), e->host);
}

void engine_load(struct engine *e, const char *bundle_path) {
    char *bundle = engine_read(bundle_path);
    e->web = call(e, engine_eval(e, bundle, "cay:web"), e->host);
    free(bundle);
}

static long now_ms(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

bool engine_pump(struct engine *e, int deadline_ms) {
    long end = now_ms() + deadline_ms;
    while (now_ms() < end) {
        JSValueRef exc = NULL;
        JSValueRef run = JSValueMakeBoolean(e->ctx, true);
        JSObjectCallAsFunction(e->ctx, e->tick, NULL, 1, &run, &exc);
        if (exc) {
            complain(e->ctx, exc);
            return false;
        }
        /* In a call of its own: microtasks run when the call above returns, and may set timers. */
        JSValueRef next = JSObjectCallAsFunction(e->ctx, e->tick, NULL, 0, NULL, NULL);
        double wait = next ? JSValueToNumber(e->ctx, next, NULL) : -1;
        if (wait < 0)
            return true;
        poll(NULL, 0, (int)wait + (wait > 0));
    }
    fprintf(stderr, "timers were still pending after %d ms\n", deadline_ms);
    return false;
}
