/* coder-lines KIND [EXIT_CODE [cancelled|timed_out]]: reads an agent's lines from standard input as
 * the front does, and prints the events. A contract that was broken is said on standard error. */

#include "wire/coder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool on_event(void *ctx, const struct coder_event *e) {
    (void)ctx;
    return fwrite(e->text, 1, e->len, stdout) == e->len && putchar('\n') != EOF;
}

int main(int argc, char **argv) {
    struct coder_reader_options opt = {
        .lines = argc > 1 ? coder_lines_find(argv[1]) : CODER_LINES_COUNT,
        .agent = "agent",
        .model = "m",
        .dir = "/work",
        .max_steps = 5,
        .on_event = on_event,
    };
    struct coder_exit how = {.exit_code = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 0,
                             .cancelled = argc > 3 && strcmp(argv[3], "cancelled") == 0,
                             .timed_out = argc > 3 && strcmp(argv[3], "timed_out") == 0};
    if (opt.lines == CODER_LINES_COUNT)
        return 2;
    struct coder_reader *r = coder_reader_create(&opt);
    struct err err = {0};
    char chunk[777];
    ssize_t n;
    int rc = 0;
    while (rc == 0 && (n = read(0, chunk, sizeof(chunk))) > 0)
        rc = coder_reader_feed(r, chunk, (size_t)n, &err);
    if (rc < 0)
        fprintf(stderr, "%s\n", err.message);
    coder_reader_end(r, &how);
    coder_reader_destroy(r);
    return rc < 0 ? 1 : 0;
}
