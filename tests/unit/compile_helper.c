/* A compiler for tests of front/run/compiler.c, on the wire of src/wire/compile.h. What it does
 * with a request is the request's first word; the rest makes requests differ. */

#include "wire/compile.h"
#include "wire/frame.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHANNEL_FD = 3 };

static void answer(const struct wire_frame *f, enum compile_message type, const char *text) {
    (void)wire_send(
        CHANNEL_FD,
        &(struct wire_out){.type = (uint16_t)type, .id = f->id, .pieces = {{text, strlen(text)}}});
}

static void on_request(const struct wire_frame *f, const char *word) {
    if (strcmp(word, "wrong") == 0)
        answer(f, COMPILE_FAILED, "{\"name\":\"SyntaxError\",\"message\":\"wrong\"}");
    else if (strcmp(word, "die") == 0)
        abort();
    else if (strcmp(word, "sleep") == 0)
        (void)pause();
    else
        answer(f, COMPILE_PROGRAM, word);
}

int main(void) {
    struct wire_reader reader;
    struct err err;
    wire_reader_init(&reader, COMPILE_FRAME_MAX);
    (void)wire_send(CHANNEL_FD, &(struct wire_out){.type = COMPILE_READY});
    struct wire_frame f;
    while (wire_read(&reader, CHANNEL_FD, &f, &err) == 1) {
        char word[32] = "";
        for (size_t i = 0; i < sizeof(word) - 1 && i < f.len && f.data[i] != ' '; i++)
            word[i] = (char)f.data[i];
        on_request(&f, word);
    }
    return 0;
}
