#pragma once
/* A framed channel to another of our programs, on the loop: frames come by callback, frames that
 * the socket does not take at once are queued up to a bound. */

#include "base/err.h"
#include "wire/frame.h"

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

struct channel;

struct channel_options {
    size_t max_frame_bytes;
    size_t max_queue_bytes;
    /* The frame is borrowed; descriptors that are not taken are closed. */
    void (*on_frame)(void *ctx, struct wire_frame *frame);
    /* Called once: the peer is gone or broke the contract. The channel can only be closed then. */
    void (*on_end)(void *ctx, const struct err *err);
    void *ctx;
};

/* Owns fd from here, also when it fails. */
int channel_create(uv_loop_t *loop, int fd, const struct channel_options *options,
                   struct channel **ret_channel, struct err *err);
/* False when the queue is full or the channel has ended; nothing was sent then. Descriptors stay
 * the caller's: they are duplicated if they have to wait. */
bool channel_send(struct channel *c, const struct wire_out *out);
/* Whether the peer has let go of it, also if that was not told yet. */
bool channel_peer_is_gone(const struct channel *c);
/* Takes what the peer has sent until now, and its end: frames come before this returns. For one
 * that is known to be gone by other means. NULL is allowed. */
void channel_drain(struct channel *c);
/* No callback comes after this. NULL is allowed. */
void channel_close(struct channel *c);
