/* A model server's response: the same whole and in pieces, bounded, and what came of it is read in
 * both dialects. */

#include "coder/dialect.h"
#include "coder/response.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BODY_MAX = 4096 };

static int read_in(const char *data, size_t size, size_t piece, struct response *r) {
    struct err err;
    int rc = 0;
    response_init(r, BODY_MAX);
    for (size_t at = 0; rc == 0 && at < size; at += piece)
        rc = response_feed(r, data + at, piece < size - at ? piece : size - at, &err);
    if (rc == 0)
        rc = response_end(r, &err);
    if (r->body.len > BODY_MAX || (rc == 0 && (r->status < 200 || r->status > 999)))
        abort();
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const size_t pieces[] = {1, 2, 7};
    struct response whole;
    const char *text = (const char *)data;
    int rc = read_in(text, size, size ? size : 1, &whole);
    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        struct response cut;
        int rc_cut = read_in(text, size, pieces[i], &cut);
        if (rc != rc_cut || whole.status != cut.status || whole.state != cut.state ||
            (rc == 0 &&
             (whole.body.len != cut.body.len ||
              (cut.body.len && memcmp(whole.body.data, cut.body.data, cut.body.len) != 0))))
            abort();
        response_finish(&cut);
    }
    for (int d = 0; rc == 0 && d < DIALECT_COUNT; d++) {
        struct answer a;
        struct err err;
        char said[100];
        const char *body = whole.body.data ? whole.body.data : "";
        if (answer_parse((enum dialect)d, body, whole.body.len, &a, &err) == 0)
            answer_finish(&a);
        answer_error_text(body, whole.body.len, said, sizeof(said));
        if (strlen(said) >= sizeof(said))
            abort();
    }
    response_finish(&whole);
    return 0;
}
