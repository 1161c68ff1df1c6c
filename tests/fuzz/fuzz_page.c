/* Pages of strangers, without a parser: never longer than it may be, and text that was UTF-8 stays
 * it. */

#include "base/buf.h"
#include "base/utf8.h"
#include "front/web/charset.h"
#include "front/web/strip.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const types[] = {"", "text/html; charset=shift_jis", "text/html;charset=gbk",
                                        "text/html; charset=\"utf-16\"", "charset="};
    if (size == 0)
        return 0;
    /* A copy of the exact size, so that a read past it shows. */
    char *copy = malloc(size);
    memcpy(copy, data, size);
    struct buf text;
    struct buf lean;
    struct buf plain;
    buf_init(&text, 3 * size);
    buf_init(&lean, size);
    buf_init(&plain, 3 * size + 8);
    charset_to_utf8(types[data[0] % 5], copy, size, &text);
    if (!utf8_is_valid(text.data ? text.data : "", text.len))
        abort();
    char *page = malloc(text.len ? text.len : 1);
    if (text.len)
        memcpy(page, text.data, text.len);
    strip_unseen(page, text.len, &lean);
    if (lean.len > size || lean.len > text.len)
        abort();
    strip_tags(page, text.len, &plain);
    if (!plain.full && !utf8_is_valid(plain.data ? plain.data : "", plain.len))
        abort();
    strip_tags(copy, size, &plain);
    buf_finish(&text);
    buf_finish(&lean);
    buf_finish(&plain);
    free(page);
    free(copy);
    return 0;
}
