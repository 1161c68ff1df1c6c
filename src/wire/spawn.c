#include "wire/spawn.h"

#include <string.h>

bool spawn_request_add_arg(struct spawn_request *q, const char *arg) {
    size_t n = strlen(arg) + 1;
    if (q->nargs == SPAWN_ARGS_MAX || n > SPAWN_TEXT_MAX - q->text_len)
        return false;
    memcpy(q->text + q->text_len, arg, n);
    q->text_len += (uint32_t)n;
    q->nargs++;
    return true;
}

static bool split_args(const struct spawn_request *q, char *argv[SPAWN_ARGS_MAX + 1]) {
    size_t at = 0;
    for (uint32_t i = 0; i < q->nargs; i++) {
        const char *end = at < q->text_len ? memchr(q->text + at, 0, q->text_len - at) : NULL;
        if (!end)
            return false;
        argv[i] = (char *)(uintptr_t)(q->text + at);
        at = (size_t)(end - q->text) + 1;
    }
    argv[q->nargs] = NULL;
    return at == q->text_len;
}

bool spawn_request_read(const struct spawn_request *q, size_t nfds,
                        char *argv[SPAWN_ARGS_MAX + 1]) {
    return q->nargs > 0 && q->nargs <= SPAWN_ARGS_MAX && q->text_len <= SPAWN_TEXT_MAX &&
           q->nfds <= SPAWN_GIVEN_MAX && q->njoins <= SPAWN_JOINS_MAX && q->given >> q->nfds == 0 &&
           nfds == 2 + (size_t)__builtin_popcount(q->given) + q->njoins && split_args(q, argv);
}
