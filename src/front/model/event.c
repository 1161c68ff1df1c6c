/* Reading the JSON of one event. */

#include "base/cleanup.h"
#include "base/utf8.h"
#include "front/model/internal.h"

#include <ctype.h>

/* The code unit of the escape \uXXXX at text, or -1. */
static int unit_at(const char *text, const char *end) {
    int unit = 0;
    if (end - text < 6 || text[0] != '\\' || text[1] != 'u')
        return -1;
    for (int i = 2; i < 6; i++) {
        int c = tolower((unsigned char)text[i]);
        if (!isxdigit(c))
            return -1;
        unit = unit * 16 + (c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return unit;
}

/* Copies JSON text with every lone surrogate dealt with: one that ends a string is kept for the
 * next event, one that begins a string is joined with the one kept, any other becomes U+FFFD. */
static void mend_surrogates(int *high_half, const char *at, size_t len, struct buf *out) {
    const char *end = at + len;
    const char *begin = at;
    while (at < end) {
        int unit = unit_at(at, end);
        if (unit < 0xd800 || unit > 0xdfff) {
            size_t n = *at == '\\' && end - at > 1 ? 2 : 1;
            (void)buf_add(out, at, n);
            at += n;
            continue;
        }
        int next = unit_at(at + 6, end);
        bool high = unit < 0xdc00;
        if (high && next >= 0xdc00 && next <= 0xdfff) {
            (void)buf_add(out, at, 12);
            at += 6;
        } else if (high && end - at > 6 && at[6] == '"') {
            *high_half = unit;
        } else if (!high && *high_half && at > begin && at[-1] == '"') {
            (void)buf_addf(out, "\\u%04x\\u%04x", (unsigned)*high_half, (unsigned)unit);
            *high_half = 0;
        } else {
            (void)buf_add_str(out, "\\ufffd");
        }
        at += 6;
    }
}

int event_parse(const char *provider, int *high, const char *data, size_t len, json_t **ret_event,
                struct err *err) {
    int rc = json_parse(data, len, "an event of the answer", ret_event, err);
    if (rc < 0) {
        _cleanup_(buf) struct buf mended;
        buf_init(&mended, len + 64);
        mend_surrogates(high, data, len, &mended);
        rc = json_parse(mended.data ? mended.data : "", mended.len, "", ret_event, err);
    }
    return rc < 0 ? err_set(err, ERR_PROTOCOL,
                            "the model server of %s sent something that cannot be read", provider)
                  : 0;
}

json_t *event_piece(const json_t *text, size_t *at) {
    size_t left = json_string_length(text) - *at;
    const char *from = json_string_value(text) + *at;
    if (!json_is_string(text) || left == 0)
        return NULL;
    size_t n = utf8_floor(from, left, MODEL_PIECE_BYTES);
    *at += n;
    return json_stringn_nocheck(from, n);
}
