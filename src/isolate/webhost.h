#pragma once
/* The native half of the web globals (js/web/): text, base64, random numbers, the clock, domain
 * names, hashes, ciphers, keys and compression, as functions on one host object that the bundle
 * keeps to itself. Everything a call needs later is opened here, in the zygote: an isolate may call
 * no system call but those of its filter. Sizes, types and detached buffers are checked in every
 * function; what a program can do wrong is an exception, never a crash. */

#include <JavaScriptCore/JavaScript.h>

/* Adds the functions to host. Call once per process, in the zygote. Aborts if libcrypto or ICU
 * cannot be initialised: there is no isolate without them. */
void webhost_install(JSGlobalContextRef ctx, JSObjectRef host);

/* The isolate's time begins now: performance.timeOrigin, performance.now() === 0. Call in the
 * forked child (and again when an isolate is reset). */
void webhost_begin(void);
