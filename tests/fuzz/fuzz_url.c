/* Percent-encoding and queries: what is decoded is UTF-8 without NUL and never longer. */

#include "base/utf8.h"
#include "front/http/url.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    for (int plus = 0; plus < 2; plus++) {
        /* A copy of the exact size, so that a read past it shows. */
        char *copy = malloc(size ? size : 1);
        memcpy(copy, data, size);
        char *v = url_decode(copy, size, plus == 1);
        if (v && !memchr(data, 0, size) && (strlen(v) > size || !utf8_is_valid(v, strlen(v))))
            abort();
        free(v);
        free(copy);
    }
    char *query = malloc(size + 1);
    memcpy(query, data, size);
    query[size] = 0;
    static const char *const names[] = {"limit", "cursor", "a", ""};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct err err;
        char *v = NULL;
        int rc = url_query_get(query, names[i], &v, &err);
        if ((rc == 1) != (v != NULL) || rc > 1)
            abort();
        free(v);
    }
    free(query);
    return 0;
}
