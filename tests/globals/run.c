/* Runs scripts with the web globals: run [--host] <bundle.js> <script.js>... With --host the native
 * functions themselves are in globalThis.webhost. Exit status 1 if a script
 * throws, a timer stays behind or globalThis.testsFailed is true at the end (see harness.js). */

#include "engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    bool host = argc > 1 && strcmp(argv[1], "--host") == 0;
    argc -= host;
    argv += host;
    if (argc < 3) {
        fprintf(stderr, "usage: run [--host] <bundle.js> <script.js>...\n");
        return 2;
    }
    engine_prepare();
    struct engine e = {0};
    engine_create(&e);
    engine_load(&e, argv[1]);
    if (host) {
        JSStringRef name = JSStringCreateWithUTF8CString("webhost");
        JSObjectSetProperty(e.ctx, JSContextGetGlobalObject(e.ctx), name, e.host, 0, NULL);
        JSStringRelease(name);
    }
    for (int i = 2; i < argc; i++) {
        char *text = engine_read(argv[i]);
        bool ok = engine_eval(&e, text, argv[i]) != NULL;
        free(text);
        if (!ok)
            return 1;
    }
    if (!engine_pump(&e, 60000))
        return 1;
    JSValueRef failed = engine_eval(&e, "globalThis.testsFailed === true", "end");
    return failed && !JSValueToBoolean(e.ctx, failed) ? 0 : 1;
}
