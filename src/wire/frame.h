#pragma once
/* Framed messages between our programs over a stream socket: a 16-byte head (payload length, type,
 * number of descriptors, request id; little endian), the payload, and up to 8 passed descriptors
 * that travel with the first byte. A peer that breaks the contract gives ERR_PROTOCOL, after which
 * the channel is of no use. Every received descriptor has an owner at all times: the reader until
 * wire_next() hands it out, then the frame, until the caller takes it or calls wire_frame_finish().
 */

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define WIRE_HEAD_SIZE 16
#define WIRE_FDS_MAX   8

struct wire_frame {
    uint16_t type;
    uint16_t nfds;
    uint64_t id;
    const uint8_t *data; /* borrowed from the reader until its next call */
    size_t len;
    int fds[WIRE_FDS_MAX];
};

struct wire_reader {
    bool drained; /* the last read took all that was there */
    struct buf in;
    size_t used;      /* bytes of `in` that were handed out already */
    size_t max_bytes; /* the largest payload that is accepted */
    int fds[2 * WIRE_FDS_MAX];
    size_t nfds;
};

void wire_reader_init(struct wire_reader *r, size_t max_bytes);
/* Closes descriptors that nobody took. */
void wire_reader_finish(struct wire_reader *r);
/* Reads what the socket has. Returns 1 if something came, 0 if it would block, -ERR_CANCELLED at
 * the end of the stream, or another negative code. */
int wire_recv(struct wire_reader *r, int fd, struct err *err);
/* Bytes and descriptors that came by other means (tests, fuzzing). The reader owns fds from here.
 */
int wire_feed(struct wire_reader *r, const void *data, size_t len, const int *fds, size_t nfds,
              struct err *err);
/* Takes the next whole frame: 1, 0 if more bytes are needed, or negative. */
int wire_next(struct wire_reader *r, struct wire_frame *ret_frame, struct err *err);
/* Closes the descriptors that are left in the frame. */
void wire_frame_finish(struct wire_frame *f);
/* Takes descriptor i out of the frame: the caller owns it. -1 if there is none. */
int wire_frame_take_fd(struct wire_frame *f, size_t i);

/* Blocking: waits until a whole frame is there. 1, -ERR_CANCELLED at the end, or negative. */
int wire_read(struct wire_reader *r, int fd, struct wire_frame *ret_frame, struct err *err);

void wire_head_encode(uint8_t out[WIRE_HEAD_SIZE], uint16_t type, uint64_t id, size_t len,
                      size_t nfds);
uint64_t wire_head_id(const uint8_t head[WIRE_HEAD_SIZE]);

/* One piece of a payload: pieces are gathered, so that a head need not be copied before a body. */
struct wire_piece {
    const void *data;
    size_t len;
};

struct wire_out {
    uint16_t type;
    uint64_t id;
    struct wire_piece pieces[6];
    const int *fds; /* stay the caller's */
    size_t nfds;
};

/* Sends a whole frame on a blocking socket. SIGPIPE is never raised. 0, or -1 with errno. */
int wire_send(int fd, const struct wire_out *out);
/* Tries to send on a non-blocking socket. Returns the number of bytes (head included) that went
 * out; the descriptors went with the first of them. -1 with errno (EAGAIN: nothing went). */
ssize_t wire_try_send(int fd, const struct wire_out *out);
size_t wire_out_size(const struct wire_out *out);
