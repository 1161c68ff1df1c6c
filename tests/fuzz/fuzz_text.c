/* Whatever bytes go into an error, a text of a fixed size or a text of any size, what comes out is
 * UTF-8, ends within its place, and can be put into JSON. */

#include "base/err.h"
#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char *text, size_t max) {
    size_t n = strnlen(text, max);
    json_t *j = n < max && utf8_is_valid(text, n) ? json_stringn(text, n) : NULL;
    if (!j)
        abort();
    json_decref(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    size_t room = 1 + data[0] % 40;
    char *in = malloc(size);
    memcpy(in, data + 1, size - 1);
    in[size - 1] = 0;
    struct err err;
    (void)err_set(&err, ERR_IO, "the \"%.64s\" of \"%.*s\": %s", in, (int)room, in, in);
    check(err.message, sizeof(err.message));
    (void)err_wrap(&err, "%.200s", in);
    check(err.message, sizeof(err.message));
    (void)err_sys(&err, "%s", in);
    check(err.message, sizeof(err.message));
    char *place = malloc(room); /* of its exact size, so that a write past it shows */
    if (text_print(place, room, "%s", in) != strlen(place))
        abort();
    check(place, room);
    char *any = text_make("%s%.*s", in, (int)room, in);
    check(any, 2 * size + room);
    size_t cut = utf8_floor(any, strlen(any), room);
    if (cut > room || !utf8_is_valid(any, cut))
        abort();
    free(any);
    free(place);
    free(in);
    return 0;
}
