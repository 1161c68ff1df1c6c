/* A compiler for tests of front/run/compiler.c, on the wire of src/wire/compile.h. What it does
 * with a request is the request's first word; the rest makes requests differ. Its program is that
 * word, with "@large" from the process for large programs. */

#include "wire/compile.h"
#include "wire/frame.h"

#include <poll.h>
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

static void on_request(const struct wire_frame *f, const char *word, bool large) {
    static int requests;
    char program[64];
    requests++;
    (void)snprintf(program, sizeof(program), "%s%s", word, large ? "@large" : "");
    if (strcmp(word, "wrong") == 0)
        answer(f, COMPILE_FAILED, "{\"name\":\"SyntaxError\",\"message\":\"wrong\"}");
    else if (strcmp(word, "die") == 0)
        abort();
    else if (strncmp(word, "killed:", 7) == 0 && (!large || unlink(word + 7) == 0))
        (void)raise(SIGKILL);            /* with the large ones as long as there is that file */
    else if (strcmp(word, "sleep") == 0) /* until the front goes */
        (void)poll(&(struct pollfd){.fd = CHANNEL_FD, .events = POLLRDHUP}, 1, -1);
    else if (strcmp(word, "spin") == 0)
        for (volatile int i = 0;; i = !i)
            continue;
    else if (strcmp(word, "spent") == 0 || (strcmp(word, "slowish") == 0 && !large))
        answer(f, COMPILE_SPENT, "");
    else if (strcmp(word, "liar") == 0) { /* that is not what the contract says */
        struct wire_frame other = {.id = f->id + 1000};
        (void)wire_send(CHANNEL_FD, &(struct wire_out){.type = COMPILE_READY});
        answer(&other, COMPILE_PROGRAM, "a lie");
        answer(f, COMPILE_PROGRAM, program);
        answer(f, COMPILE_PROGRAM, "a lie");
        answer(&other, COMPILE_SPENT, "");
    } else if (strcmp(word, "count") == 0) {
        (void)snprintf(program, sizeof(program), "%d", requests);
        answer(f, COMPILE_PROGRAM, program);
    } else {
        if (strcmp(word, "slow") == 0)
            (void)usleep(200000);
        answer(f, COMPILE_PROGRAM, program);
    }
}

int main(int argc, char **argv) {
    bool large = argc > 1 && strcmp(argv[1], "--cold") == 0;
    struct wire_reader reader;
    struct err err;
    wire_reader_init(&reader, COMPILE_FRAME_MAX);
    (void)wire_send(CHANNEL_FD, &(struct wire_out){.type = COMPILE_READY});
    struct wire_frame f;
    while (wire_read(&reader, CHANNEL_FD, &f, &err) == 1) {
        char word[32] = "";
        for (size_t i = 0; i < sizeof(word) - 1 && COMPILE_HEAD_SIZE + i < f.len &&
                           f.data[COMPILE_HEAD_SIZE + i] != ' ';
             i++)
            word[i] = (char)f.data[COMPILE_HEAD_SIZE + i];
        on_request(&f, word, large);
    }
    return 0;
}
