/* A model's reply, as text: what is taken for an action is one JSON object with the keys of one,
 * and its arguments can be told. */

#include "coder/reply.h"
#include "wire/coder.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct coder_reply r;
    struct err err;
    const char *text = (const char *)data;
    if (coder_reply_parse(text, size, &r, &err) < 0)
        return 0;
    /* Stricter than the parser in nothing: the text alone is valid JSON. */
    if (!json_is_valid(text, size) || !json_is_object(r.json))
        abort();
    if (r.done ? !json_is_string(r.summary) : !json_is_string(r.tool) || !json_is_object(r.args))
        abort();
    if (!r.done) {
        json_t *args = coder_shorten_args(r.args);
        if (json_dumpb(args, NULL, 0, JSON_COMPACT) > CODER_ARGS_MAX)
            abort();
        json_decref(args);
    }
    json_t *cut = coder_shorten_text(text, size);
    if (json_string_length(cut) > CODER_TEXT_MAX)
        abort();
    json_decref(cut);
    coder_reply_finish(&r);
    return 0;
}
