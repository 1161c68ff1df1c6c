/* The child of the tests of loop/. What it does is its first argument. */

#include "wire/frame.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

extern char **environ;

/* Tells what it was born with, in one frame. */
static int report(void) {
    char text[1000];
    size_t n = 0;
    size_t vars = 0;
    while (environ[vars])
        vars++;
    int death = 0;
    (void)prctl(PR_GET_PDEATHSIG, &death);
    sigset_t blocked;
    (void)sigprocmask(SIG_BLOCK, NULL, &blocked);
    struct sigaction pipe;
    (void)sigaction(SIGPIPE, NULL, &pipe);
    n += (size_t)snprintf(
        text, sizeof(text), "env=%zu death=%d term_blocked=%d pipe_ignored=%d uid=%u fds=", vars,
        death, sigismember(&blocked, SIGTERM), pipe.sa_handler == SIG_IGN, (unsigned)getuid());
    for (int fd = 0; fd < 1024; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            n += (size_t)snprintf(text + n, sizeof(text) - n, "%d,", fd);
    return wire_send(3, &(struct wire_out){.type = 1, .id = 1, .pieces = {{text, n}}});
}

static void wait_for_end(void) {
    char c;
    while (read(3, &c, 1) > 0)
        continue;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "report") == 0)
        return report();
    if (strcmp(what, "exit") == 0)
        return argc > 2 ? (int)strtol(argv[2], NULL, 10) : 0;
    if (strcmp(what, "serve") == 0) { /* a report, then until the end of the channel */
        (void)report();
        wait_for_end();
        return 0;
    }
    if (strcmp(what, "stubborn") == 0) {
        (void)report();
        for (;;)
            (void)pause();
    }
    if (strcmp(what, "stderr") == 0) {
        static const char lines[] = "{\"level\":\"warn\",\"event\":\"help.me\",\"program\":\"x\","
                                    "\"n\":7,\"s\":\"v\",\"b\":true}\n"
                                    "plain words\n"
                                    "{\"level\":\"off\",\"event\":\"sneaky\"}\n"
                                    "no newline at the end";
        (void)!write(2, lines, sizeof(lines) - 1);
        return 0;
    }
    return 9;
}
