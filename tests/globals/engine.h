#pragma once
/* A JavaScriptCore context made as the zygote makes it, with the web globals in it and the smallest
 * core there can be: timers, queueMicrotask, console.log and print. For the tests and the
 * benchmark. */

#include <JavaScriptCore/JavaScript.h>
#include <stdbool.h>

struct engine {
    JSGlobalContextRef ctx;
    JSObjectRef host; /* protected */
    JSObjectRef web;  /* what the bundle returned; protected */
    JSObjectRef tick; /* runs due timers; protected */
};

/* Reads a whole file; exits with a message if it cannot. The caller frees it. */
char *engine_read(const char *path);
/* Sets the environment that JSC reads; call first. */
void engine_prepare(void);
/* A context with webhost and the core. */
void engine_create(struct engine *e);
/* Evaluates the bundle: now the web globals are there. */
void engine_load(struct engine *e, const char *bundle_path);
/* Evaluates text; prints an exception to standard error. NULL on exception. */
JSValueRef engine_eval(struct engine *e, const char *text, const char *name);
/* Runs timers until none is left or deadline_ms has passed. False on an exception or a timeout. */
bool engine_pump(struct engine *e, int deadline_ms);
