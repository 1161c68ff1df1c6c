#pragma once
/* JavaScriptCore, brought up once per zygote with exactly one thread, so that fork is right. The
 * engine holds the context and the functions of the prelude that the event loop calls. There is
 * one per process. */

#include "base/err.h"

#include <JavaScriptCore/JavaScript.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum engine_function {
    ENGINE_START,  /* (id, binding_calls, program, spec) */
    ENGINE_CALL,   /* (id, binding_calls, spec, body) */
    ENGINE_ROOM,   /* (id, bytes) */
    ENGINE_INPUT,  /* (id, bytes, last) */
    ENGINE_CANCEL, /* (id) */
    ENGINE_REPLY,  /* (binding, id, ok, text) */
    ENGINE_SETTLE, /* (binding, call, resolve, reject, at, ok, text, why): a call that C made */
    ENGINE_GONE,   /* (binding, reason) */
    ENGINE_TICK,   /* () runs one timer that is due */
    ENGINE_STUCK,  /* () nothing is left that could settle the active calls */
    ENGINE_SEED,   /* (a, b, c, d) of Math.random */
    ENGINE_CLEAR,  /* () forgets the run: what a warm-up leaves */
    ENGINE_FUNCTION_COUNT,
};

struct engine {
    JSGlobalContextRef ctx;
    JSObjectRef functions[ENGINE_FUNCTION_COUNT];
};

struct engine_host_function {
    const char *name;
    JSObjectCallAsFunctionCallback call;
};

/* A native function of the prelude, which gives it as many arguments as it is to have. */
#define HOST(name)                                                                                 \
    JSValueRef name(JSContextRef ctx, JSObjectRef function, JSObjectRef this_object, size_t argc,  \
                    const JSValueRef argv[], JSValueRef *exception)
#define HOST_UNUSED()                                                                              \
    do {                                                                                           \
        (void)function;                                                                            \
        (void)this_object;                                                                         \
        (void)argc;                                                                                \
        (void)argv;                                                                                \
        (void)exception;                                                                           \
    } while (0)

/* Sets the engine's options in the environment: before the first engine_init(), at start. */
void engine_options(bool short_runs_do_not_compile, uint64_t memory_max_bytes);
/* host: a NULL-terminated table of native functions, handed to the prelude. */
int engine_init(struct engine *e, const struct engine_host_function *host, struct err *err);
/* Calls a function of the prelude. False if it threw, which the prelude never does: the caller
 * gives up. */
bool engine_call(struct engine *e, enum engine_function f, size_t n, const JSValueRef args[],
                 JSValueRef *ret_value);

JSValueRef engine_text(const struct engine *e, const char *text, size_t len);
/* A Uint8Array of its own. */
JSValueRef engine_bytes(const struct engine *e, const void *data, size_t len);
/* UTF-8 text of a value that is a string; the caller frees. NULL if memory is gone. */
char *engine_utf8(JSContextRef ctx, JSValueRef value, size_t *ret_len);
/* True where the value is a Proxy: what it shows is its own invention. */
bool engine_is_proxy(JSContextRef ctx, JSValueRef value);
/* Collects all garbage, now. */
void engine_collect(struct engine *e);
typedef void (*engine_after_gc)(void *arg);
/* Calls cb after each collection, where no JavaScript may run. False if the engine cannot. */
bool engine_on_gc(struct engine *e, engine_after_gc cb, void *arg);
