/* The first bytes of a tunnel: read whole they give the same as read byte by byte, and a name that
 * is found is one that is there. */

#include "egress/hello.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char name[HELLO_NAME_MAX + 1];
    char again[HELLO_NAME_MAX + 1];
    /* In memory of its own, so that a byte read too far is seen. */
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    enum hello_result whole = hello_parse(copy, size, name);
    free(copy);
    if (whole == HELLO_OK && (!*name || strlen(name) > HELLO_NAME_MAX))
        abort();
    for (size_t n = size > 600 ? size - 600 : 0; n <= size; n++) {
        enum hello_result r = hello_parse(data, n, again);
        if (r == HELLO_MORE)
            continue;
        if (r != whole || (r == HELLO_OK && strcmp(name, again) != 0))
            abort();
        break;
    }
    return 0;
}
