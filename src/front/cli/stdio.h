#pragma once
/* The standard streams of this program, on the loop. They are shared with whoever started it, so
 * they are never made non-blocking: an epoll descriptor of our own tells when they are ready. Also
 * the terminal that they may be: its size, and raw mode, which is taken back at the end. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct stdio;

struct stdio_callbacks {
    /* Bytes of standard input; len 0 is its end, told once. */
    void (*on_input)(void *ctx, const char *data, size_t len);
    /* All that was written is out: more may be. */
    void (*on_drained)(void *ctx);
    /* Nobody reads descriptor fd (1 or 2) any more; what is written to it is dropped. */
    void (*on_closed)(void *ctx, int fd);
};

struct stdio *stdio_create(uv_loop_t *loop, const struct stdio_callbacks *callbacks, void *ctx);
/* Puts the terminal back and closes the handles. NULL is allowed; no callback comes after this. */
void stdio_destroy(struct stdio *s);
/* Whether standard input is read. */
void stdio_read(struct stdio *s, bool on);
/* fd is 1 or 2. False: not all of it is out yet, and no more is to be written before on_drained. */
bool stdio_write(struct stdio *s, int fd, const char *data, size_t len);
bool stdio_is_drained(const struct stdio *s);
/* Every key goes to the other side, Ctrl-C too. Does nothing where standard input is no terminal.
 */
void stdio_raw(struct stdio *s);
/* False, and 80x24, where there is no terminal. */
bool stdio_size(uint32_t *ret_cols, uint32_t *ret_rows);
