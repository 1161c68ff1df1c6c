#pragma once
/* cay and cay-spawn, which starts programs for a front that may not: one SOCK_SEQPACKET message of
 * this form for each, with its descriptors in this order: where the answer goes, the program, then
 * those that become its 0, 1, 2, ... (`given` says which bits of these there are; the others are
 * /dev/null), then the files of control groups that it joins. The new process is the front's child,
 * not the spawner's. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPAWN_SOCKET_FD 4

enum {
    SPAWN_TEXT_MAX = 1024,
    SPAWN_ARGS_MAX = 16,
    SPAWN_GIVEN_MAX = 8,
    SPAWN_JOINS_MAX = 8,
    SPAWN_FDS_MAX = 2 + SPAWN_GIVEN_MAX + SPAWN_JOINS_MAX,
};

struct spawn_request {
    uint32_t nargs;
    uint32_t text_len; /* of all arguments, each with its NUL */
    uint32_t nfds;     /* that the program begins with */
    uint32_t given;
    uint32_t njoins;
    int32_t parent; /* the front's pid: it must not have died meanwhile */
    char text[SPAWN_TEXT_MAX];
};

struct spawn_answer {
    int32_t pid;
    int32_t error; /* errno, if there is no pid */
};

/* False: it does not fit. */
bool spawn_request_add_arg(struct spawn_request *q, const char *arg);
/* Whether it is of one piece and goes with so many descriptors; then argv leads into it. */
bool spawn_request_read(const struct spawn_request *q, size_t nfds, char *argv[SPAWN_ARGS_MAX + 1]);
