/* What a facet says of its rows: if the text is JSON, the objects that are made of it are, and have
 * the same values; of what is no JSON none is made, but where no row is left of it. */

#include "base/json.h"
#include "isolate/rows.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok) {
    if (!ok)
        abort();
}

/* Each value by the name of its column; with two columns of one name the last counts. */
static void compare(const json_t *from, const json_t *to) {
    const json_t *columns = json_object_get(from, "columns");
    const json_t *rows = json_object_get(from, "rows");
    check(json_array_size(rows) == json_array_size(to));
    for (size_t r = 0; r < json_array_size(rows); r++)
        for (size_t c = 0; c < json_array_size(columns); c++) {
            const char *name = json_string_value(json_array_get(columns, c));
            bool last = true;
            for (size_t k = c + 1; k < json_array_size(columns); k++)
                last = last && strcmp(name, json_string_value(json_array_get(columns, k))) != 0;
            check(!last || json_equal(json_object_get(json_array_get(to, r), name),
                                      json_array_get(json_array_get(rows, r), c)));
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data;
    struct buf out;
    struct err err;
    buf_init(&out, 4 * size + 64);
    if (rows_to_objects(text, size, &out)) {
        json_t *from = NULL;
        json_t *to = NULL;
        bool valid = json_is_valid(out.data, out.len);
        check(valid || !json_is_valid(text, size));
        check(!valid || out.len == 2 || json_is_valid(text, size));
        if (json_parse(text, size, "rows", &from, &err) == 0 &&
            json_parse(out.data, out.len, "objects", &to, &err) == 0)
            compare(from, to);
        json_decref(from);
        json_decref(to);
    }
    buf_finish(&out);
    return 0;
}
