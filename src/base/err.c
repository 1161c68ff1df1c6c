#include "base/err.h"

#include "base/text.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#undef err_set
#undef err_sys
#undef err_wrap

static const struct {
    const char *name;
    int http_status;
    int exit_status;
} table[ERR_CODE_COUNT] = {
    [0] = {"ok", 200, 0},
    [ERR_BAD_REQUEST] = {"bad_request", 400, 2},
    [ERR_UNAUTHORIZED] = {"unauthorized", 401, 77},
    [ERR_FORBIDDEN] = {"forbidden", 403, 77},
    [ERR_NOT_FOUND] = {"not_found", 404, 66},
    [ERR_METHOD] = {"method_not_allowed", 405, 2},
    [ERR_CONFLICT] = {"conflict", 409, 75},
    [ERR_TOO_LARGE] = {"too_large", 413, 65},
    [ERR_LIMIT] = {"limit_exceeded", 422, 1},
    [ERR_RATE] = {"rate_limited", 429, 75},
    [ERR_QUOTA] = {"quota_exceeded", 429, 75},
    [ERR_TIMEOUT] = {"timeout", 408, 124},
    [ERR_MISDIRECTED] = {"misdirected", 421, 77},
    [ERR_UNSUPPORTED] = {"unsupported", 501, 69},
    [ERR_UNAVAILABLE] = {"unavailable", 503, 69},
    [ERR_UPSTREAM] = {"upstream_error", 502, 69},
    [ERR_PROTOCOL] = {"protocol_error", 502, 76},
    [ERR_CANCELLED] = {"cancelled", 499, 130},
    [ERR_IO] = {"io_error", 500, 74},
    [ERR_INTERNAL] = {"internal_error", 500, 70},
    [ERR_FULL] = {"disk_full", 507, 73},
};

__attribute__((format(printf, 4, 0))) static void err_fill(struct err *err, enum err_code code,
                                                           int sys, const char *fmt, va_list ap) {
    err->code = code;
    err->sys = sys;
    (void)text_vprint(err->message, sizeof(err->message), fmt, ap);
}

int err_set(struct err *err, enum err_code code, const char *fmt, ...) {
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        err_fill(err, code, 0, fmt, ap);
        va_end(ap);
    }
    return -(int)code;
}

int err_sys(struct err *err, const char *fmt, ...) {
    int sys = errno;
    enum err_code code = sys == ENOSPC || sys == EDQUOT ? ERR_FULL : ERR_IO;
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        err_fill(err, code, sys, fmt, ap);
        va_end(ap);
        size_t n = strlen(err->message);
        char text[128];
        (void)text_print(err->message + n, sizeof(err->message) - n, ": %s",
                         strerror_r(sys, text, sizeof(text)));
    }
    return -(int)code;
}

int err_wrap(struct err *err, const char *fmt, ...) {
    if (!err)
        return -(int)ERR_INTERNAL;
    char context[256];
    va_list ap;
    va_start(ap, fmt);
    (void)text_vprint(context, sizeof(context), fmt, ap);
    va_end(ap);
    char old[sizeof(err->message)];
    memcpy(old, err->message, sizeof(old));
    (void)text_print(err->message, sizeof(err->message), "%s: %s", context, old);
    return -(int)err->code;
}

bool err_is_fault(enum err_code code) {
    return code == ERR_UNAVAILABLE || code == ERR_RATE || code == ERR_IO || code == ERR_FULL;
}

const char *err_name(enum err_code code) {
    return (unsigned)code < ERR_CODE_COUNT ? table[code].name : "internal_error";
}

int err_http_status(enum err_code code) {
    return (unsigned)code < ERR_CODE_COUNT ? table[code].http_status : 500;
}

int err_exit_status(enum err_code code) {
    return (unsigned)code < ERR_CODE_COUNT ? table[code].exit_status : 70;
}
