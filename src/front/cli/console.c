#include "front/cli/console.h"

#include "base/base64.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/mem.h"
#include "front/cli/stdio.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { INTERRUPTS_MAX = 3, RECORDED_MAX_BYTES = 16 << 20 };

static void console_on_input(void *ctx, const char *data, size_t len) {
    const struct console *c = ctx;
    c->transport->on_input(c->ctx, data, len);
}

static void console_on_drained(void *ctx) {
    const struct console *c = ctx;
    c->transport->on_drained(c->ctx);
}

static void console_on_closed(void *ctx, int fd) {
    const struct console *c = ctx;
    if (fd == STDOUT_FILENO) /* `| head` has seen enough */
        c->transport->on_leave(c->ctx, EXIT_STATUS_PIPE);
}

/* The third Ctrl-C ends it, whatever it does; a SIGTERM or SIGHUP counts for two. */
static void console_on_signal(uv_signal_t *h, int signo) {
    struct console *c = h->data;
    uint32_t cols;
    uint32_t rows;
    if (signo == SIGWINCH) {
        if (c->tty && stdio_size(&cols, &rows))
            c->transport->on_resize(c->ctx, cols, rows);
        return;
    }
    c->interrupts += signo == SIGINT ? 1 : signo == SIGTERM || signo == SIGHUP ? 2 : 0;
    bool heard = c->transport->on_signal(c->ctx, signo);
    if (!heard || c->interrupts >= INTERRUPTS_MAX)
        c->transport->on_leave(c->ctx, 128 + signo);
}

void console_open(struct console *c, uv_loop_t *loop) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH};
    static const struct stdio_callbacks streams = {.on_input = console_on_input,
                                                   .on_drained = console_on_drained,
                                                   .on_closed = console_on_closed};
    _Static_assert(ARRAY_LEN(signals) == ARRAY_LEN(c->signals), "a handle each");
    for (int i = 1; i < 3; i++)
        buf_init(&c->out[i], RECORDED_MAX_BYTES);
    c->stdio = stdio_create(loop, &streams, c);
    for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
        (void)uv_signal_init(loop, &c->signals[i]);
        c->signals[i].data = c;
        (void)uv_signal_start(&c->signals[i], console_on_signal, signals[i]);
    }
}

void console_close(struct console *c) {
    stdio_destroy(c->stdio);
    c->stdio = NULL;
    for (size_t i = 0; i < ARRAY_LEN(c->signals); i++)
        uv_close((uv_handle_t *)&c->signals[i], NULL);
}

void console_finish(struct console *c) {
    for (int i = 1; i < 3; i++)
        buf_finish(&c->out[i]);
}

void console_start(struct console *c) {
    if (c->tty)
        stdio_raw(c->stdio);
    stdio_read(c->stdio, true);
}

void console_read(struct console *c, bool on) {
    stdio_read(c->stdio, on);
}

bool console_write(struct console *c, int stream, const char *data, size_t len) {
    c->out_bytes[stream] += len;
    if (!c->recorded)
        return stdio_write(c->stdio, stream, data, len);
    size_t room = c->out[stream].max - c->out[stream].len;
    (void)buf_add(&c->out[stream], data, MIN(len, room));
    return true;
}

bool console_is_drained(const struct console *c) {
    return stdio_is_drained(c->stdio);
}

void console_add_output(const struct console *c, json_t *record) {
    static const char *const names[][2] = {
        {NULL}, {"stdout", "stdout_base64"}, {"stderr", "stderr_base64"}};
    for (int i = 1; i < 3; i++) {
        const char *data = c->out[i].data ? c->out[i].data : "";
        size_t len = c->out[i].len;
        json_t *text = json_stringn(data, len); /* NULL: it is no UTF-8 */
        _cleanup_(free) char *coded = text ? NULL : xmalloc(BASE64_SIZE(len) + 1);
        if (coded) {
            base64_encode(coded, data, len);
            text = json_stringn(coded, BASE64_SIZE(len));
        }
        (void)json_object_set_new(record, names[i][coded != NULL], text);
    }
}
