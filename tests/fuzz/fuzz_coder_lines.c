/* Lines of an agent, which come out of a sandbox. The first byte says how they are read. Whatever
 * they are, what is told is valid and one line, starts with a start (unless it is a failure at
 * once), ends with exactly one end, and does not depend on where the bytes were cut. */

#include "wire/coder.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct told {
    struct buf types; /* a letter each */
    unsigned ends;
};

static bool on_event(void *ctx, const struct coder_event *e) {
    struct told *t = ctx;
    if (t->ends > 0 || !json_is_valid(e->text, e->len) || memchr(e->text, '\n', e->len))
        abort();
    if (e->len > CODER_LINE_MAX || !json_is_object(e->json))
        abort();
    if (t->types.len == 0 && e->type != CODER_START && e->type != CODER_FAILED)
        abort();
    t->ends += e->type == CODER_DONE || e->type == CODER_FAILED;
    (void)buf_add_char(&t->types, (char)('a' + e->type));
    return true;
}

static void read_in(enum coder_lines lines, const char *data, size_t size, size_t piece,
                    struct told *t) {
    struct coder_reader_options opt = {
        .lines = lines, .agent = "a", .max_events = 50, .on_event = on_event, .ctx = t};
    struct coder_exit how = {.exit_code = 0};
    struct err err;
    int rc = 0;
    *t = (struct told){.ends = 0};
    buf_init(&t->types, 1 << 20);
    struct coder_reader *r = coder_reader_create(&opt);
    for (size_t at = 0; rc == 0 && at < size; at += piece)
        rc = coder_reader_feed(r, data + at, piece < size - at ? piece : size - at, &err);
    coder_reader_end(r, &how);
    coder_reader_destroy(r);
    if (t->ends != 1)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct told whole;
    struct told cut;
    if (size == 0)
        return 0;
    enum coder_lines lines = (enum coder_lines)(data[0] % CODER_LINES_COUNT);
    const char *text = (const char *)data + 1;
    read_in(lines, text, size - 1, size, &whole);
    read_in(lines, text, size - 1, 3, &cut);
    if (whole.types.len != cut.types.len ||
        memcmp(whole.types.data, cut.types.data, cut.types.len) != 0)
        abort();
    buf_finish(&whole.types);
    buf_finish(&cut.types);
    return 0;
}
