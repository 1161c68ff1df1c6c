#pragma once
/* The one error contract: a function that can fail for more than one cause returns 0 or a negative
 * enum err_code and fills a struct err. The struct is a value: nothing to free. One table maps each
 * code to its public name, HTTP status and exit status. */

#include <stdbool.h>

enum err_code {
    ERR_BAD_REQUEST = 1, /* the input is malformed */
    ERR_UNAUTHORIZED,    /* no key, or not a valid one */
    ERR_FORBIDDEN,       /* known, but not allowed */
    ERR_NOT_FOUND,
    ERR_METHOD,      /* the resource exists, the method does not fit */
    ERR_CONFLICT,    /* the state of the resource does not allow it */
    ERR_TOO_LARGE,   /* an input exceeds a limit */
    ERR_LIMIT,       /* a resource limit was reached while running */
    ERR_RATE,        /* too many requests */
    ERR_QUOTA,       /* a key has used up what it may spend in a day */
    ERR_TIMEOUT,     /* a deadline passed */
    ERR_MISDIRECTED, /* this server does not answer for that host name */
    ERR_UNSUPPORTED, /* not available here, or not supported at all */
    ERR_UNAVAILABLE, /* a program or an upstream that is needed is not there now */
    ERR_UPSTREAM,    /* an upstream answered with an error */
    ERR_PROTOCOL,    /* a peer program broke the wire contract */
    ERR_CANCELLED,
    ERR_IO, /* a system call failed; err.sys has errno */
    ERR_INTERNAL,
    ERR_FULL, /* no room on a disk */
    ERR_CODE_COUNT,
};

struct err {
    enum err_code code;
    int sys; /* errno, or 0 */
    char message[512];
};

/* Messages are always UTF-8 (base/text.h), whatever was printed into them.
 * Sets the error and returns -code, so that a caller can `return err_set(...)`. err may be NULL. */
int err_set(struct err *err, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* As err_set(ERR_IO, ...) with ": strerror(errno)" added; ERR_FULL if that is about a full disk. */
int err_sys(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Puts "context: " before the message and returns -code. */
int err_wrap(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#ifdef __clang_analyzer__
/* It does not see into err.c, takes 0 for a possible answer, and then finds outputs unset "on
 * success". */
static inline int err_is_negative(int rc) {
    if (rc >= 0)
        __builtin_unreachable();
    return rc;
}
#define err_set(...)  err_is_negative(err_set(__VA_ARGS__))
#define err_sys(...)  err_is_negative(err_sys(__VA_ARGS__))
#define err_wrap(...) err_is_negative(err_wrap(__VA_ARGS__))
#endif

/* Whether it is about this machine as it is now, not about what was asked: it may go well another
 * time. */
bool err_is_fault(enum err_code code);
const char *err_name(enum err_code code);
int err_http_status(enum err_code code);
int err_exit_status(enum err_code code);

/* The exit statuses that stand for no error code. The manual lists these and those of the table. */
enum exit_status {
    EXIT_STATUS_NOT_ALL =
        3, /* done, but not all of the result was shown or written: it was named */
    EXIT_STATUS_NOT_EXECUTABLE = 126,
    EXIT_STATUS_NOT_FOUND = 127, /* a command */
    EXIT_STATUS_PIPE = 141,      /* the reader of the output left: 128 + SIGPIPE */
};
