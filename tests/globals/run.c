/* Runs scripts with the web globals: run <bundle.js> <script.js>... Exit status 1 if a script
 * throws, a timer stays behind or globalThis.testsFailed is true at the end (see harness.js). */

#include "engine.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: run <bundle.js> <script.js>...\n");
        return 2;
    }
    engine_prepare();
    struct engine e = {0};
    engine_create(&e, argv[1]);
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
