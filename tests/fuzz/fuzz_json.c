/* Text of clients: what parses is dumped as jansson would, and must parse again to the same; any
 * text written as a JSON string must parse, and be the same text if it was UTF-8. */

#include "base/json.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct err err;
    json_t *j = NULL;
    struct buf b;
    buf_init(&b, size * 8 + 1024);
    if (json_parse((const char *)data, size, "input", &j, &err) == 0) {
        static const char *const known[] = {"a", "b", NULL};
        const char *s = NULL;
        int64_t n = 0;
        bool yes = false;
        (void)json_check_keys(j, "input", known, &err);
        (void)json_get_str(j, "a", &s, &err);
        (void)json_get_int(j, "a", -5, 5, &n, &err);
        (void)json_get_bool(j, "b", &yes, &err);
        json_t *again = NULL;
        if (!json_dump(j, &b) || json_parse(b.data, b.len, "dump", &again, &err) < 0 ||
            !json_equal(j, again))
            abort();
        json_decref(again);
        char *wanted = json_dumps(j, JSON_COMPACT | JSON_ENCODE_ANY);
        if (!wanted || strlen(wanted) != b.len || memcmp(wanted, b.data, b.len) != 0)
            abort();
        free(wanted);
    }
    json_decref(j);
    buf_clear(&b);
    json_write_str(&b, (const char *)data, size);
    if (b.full || json_parse(b.data, b.len, "string", &j, &err) < 0)
        abort();
    if (utf8_is_valid((const char *)data, size) &&
        (json_string_length(j) != size || memcmp(json_string_value(j), data, size) != 0))
        abort();
    json_decref(j);
    buf_finish(&b);
    return 0;
}
