/* The list of what a coding job changed, from a guest: whatever comes, a record that is given out
 * is sound, contents have the length that was announced, and reading it in other pieces gives the
 * same. */
#include "wire/changes.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t read_all(const uint8_t *data, size_t size, size_t piece, bool base) {
    static struct changes_record r;
    struct changes_reader reader;
    struct err err;
    uint64_t sum = 0;
    uint64_t announced = 0;
    int rc = 0;
    changes_reader_init(&reader, base);
    for (size_t at = 0; at < size && rc == 0; at += piece) {
        rc = changes_reader_feed(&reader, data + at, size - at < piece ? size - at : piece, &err);
        while (rc == 0 && (rc = changes_reader_next(&reader, &r, &err)) > 0) {
            rc = 0;
            sum = sum * 31 + (uint64_t)r.kind + r.len;
            if (r.kind == CHANGES_CHANGE || r.kind == CHANGES_ENTRY) {
                if (!changes_path_is_sound(r.path) || (r.mode & 07000))
                    abort();
                announced = r.has_content ? r.size : 0;
            }
            if (r.kind == CHANGES_CONTENT) {
                if (r.len > announced)
                    abort();
                announced -= r.len;
            }
        }
    }
    changes_reader_finish(&reader);
    return rc < 0 ? 0 : sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1)
        return 0;
    bool base = data[0] & 1;
    size_t piece = (size_t)data[0] / 2 + 1;
    if (read_all(data + 1, size - 1, piece, base) != read_all(data + 1, size - 1, 4096, base))
        abort();
    return 0;
}
