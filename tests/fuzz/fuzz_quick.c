/* What a client may send to be compiled: a request, or else the source of a module. An answer is
 * JSON and says that it is good. */

#include "base/cleanup.h"
#include "base/json.h"
#include "compile/quick.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void compile(const char *request, size_t len) {
    static const char good[] = "{\"ok\":true,";
    size_t n = 0;
    _cleanup_(free) char *response = quick_compile(request, len, &n);
    if (response && (n < sizeof(good) || memcmp(response, good, sizeof(good) - 1) != 0 ||
                     !json_is_valid(response, n)))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data;
    compile(text, size);
    _cleanup_(buf) struct buf request;
    buf_init(&request, 8 * size + 256);
    (void)buf_add_str(&request, "{\"mainModule\":\"a.js\",\"modules\":{\"a.js\":");
    json_write_str(&request, text, size);
    (void)buf_add_str(&request, ",\"b.js\":\"export const b = 1; export default class {}\"}}");
    compile(request.data, request.len);
    return 0;
}
