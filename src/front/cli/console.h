#pragma once
/* Our end of a command that runs in a sandbox: the standard streams, the terminal and the signals
 * of this program are the command's, or its output is recorded for one JSON object at the end. How
 * the command is reached is the transport's affair: a launcher of our own (`cay exec`), or HTTP and
 * a WebSocket to a server (`cay sandbox exec`). */

#include "base/buf.h"
#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct console_transport {
    /* Bytes of standard input; len 0 is its end, reported once. A transport that has enough of them
     * calls console_read(). */
    void (*on_input)(void *ctx, const char *data, size_t len);
    /* All output is written: more may come. */
    void (*on_drained)(void *ctx);
    /* The terminal has another size. Only with tty. */
    void (*on_resize)(void *ctx, uint32_t cols, uint32_t rows);
    /* Passes a signal on. False: there is nobody to hear it. */
    bool (*on_signal)(void *ctx, int signo);
    /* The command is to be left with this status: a signal came that nobody heard, or too often, or
     * nobody reads the output any more. */
    void (*on_leave)(void *ctx, int status);
};

struct console {
    const struct console_transport *transport;
    void *ctx;
    bool tty;      /* the command has a terminal, which is ours */
    bool recorded; /* output is kept for console_add_output() */
    struct stdio *stdio;
    uv_signal_t signals[7];
    int interrupts;
    struct buf out[3]; /* of streams 1 and 2 */
    uint64_t out_bytes[3];
};

/* The caller has set the fields up to `recorded`. */
void console_open(struct console *c, uv_loop_t *loop);
/* Puts the terminal back and closes the handles; what was recorded stays. */
void console_close(struct console *c);
void console_finish(struct console *c);
/* The command takes input from now on. */
void console_start(struct console *c);
/* Whether standard input is read. */
void console_read(struct console *c, bool on);
/* stream is 1 or 2. False: not all of it is out yet, and no more is wanted before on_drained. */
bool console_write(struct console *c, int stream, const char *data, size_t len);
bool console_is_drained(const struct console *c);
/* Sets "stdout" and "stderr"; what is no UTF-8 becomes "stdout_base64", "stderr_base64". */
void console_add_output(const struct console *c, json_t *record);
