/* The events of a stream do not depend on where it is cut: fed whole and in pieces, the same events
 * come in the same order. */

#include "base/buf.h"
#include "base/sse.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool on_event(void *ctx, const char *event, const char *data, size_t len) {
    struct buf *out = ctx;
    if (data[len] != 0)
        abort();
    (void)buf_add_str(out, event);
    (void)buf_add(out, "\0", 1);
    (void)buf_add(out, data, len);
    (void)buf_add(out, "\0", 1);
    return true;
}

static int read_in(const char *data, size_t size, size_t piece, struct buf *out) {
    struct sse s;
    struct err err;
    int rc = 0;
    buf_init(out, 1 << 20);
    sse_init(&s, 4096, on_event, out);
    for (size_t at = 0; rc == 0 && at < size; at += piece)
        rc = sse_feed(&s, data + at, piece < size - at ? piece : size - at, &err);
    sse_finish(&s);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const size_t pieces[] = {1, 2, 7, 64};
    struct buf whole;
    const char *text = (const char *)data;
    int rc = read_in(text, size, size ? size : 1, &whole);
    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        struct buf cut;
        int rc_cut = read_in(text, size, pieces[i], &cut);
        /* A line that is too long is seen earlier when it comes in pieces: then fewer events. */
        if (rc == 0 && rc_cut == 0 &&
            (whole.len != cut.len || (cut.len && memcmp(whole.data, cut.data, cut.len) != 0)))
            abort();
        buf_finish(&cut);
    }
    buf_finish(&whole);
    return 0;
}
