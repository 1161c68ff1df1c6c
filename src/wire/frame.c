#include "wire/frame.h"

#include "base/cleanup.h"
#include "base/fd.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

struct head {
    uint32_t len;
    uint16_t type;
    uint16_t nfds;
    uint64_t id;
};
_Static_assert(sizeof(struct head) == WIRE_HEAD_SIZE, "the head has no padding");

enum { RECV_CHUNK = 65536, FD_QUEUE_MAX = 2 * WIRE_FDS_MAX };

void wire_reader_init(struct wire_reader *r, size_t max_bytes) {
    *r = (struct wire_reader){.max_bytes = max_bytes};
    /* A frame in flight plus one chunk that may hold the beginning of the next. */
    buf_init(&r->in, max_bytes + WIRE_HEAD_SIZE + RECV_CHUNK);
}

void wire_reader_finish(struct wire_reader *r) {
    if (!r)
        return;
    for (size_t i = 0; i < r->nfds; i++)
        fd_close(&r->fds[i]);
    r->nfds = 0;
    buf_finish(&r->in);
}

static void wire_frame_compact(struct wire_reader *r) {
    if (r->used > 0) {
        buf_consume(&r->in, r->used);
        r->used = 0;
    }
}

static int keep_fds(struct wire_reader *r, const int *fds, size_t nfds, struct err *err) {
    int rc = 0;
    for (size_t i = 0; i < nfds; i++) {
        if (r->nfds < FD_QUEUE_MAX) {
            r->fds[r->nfds++] = fds[i];
        } else {
            int fd = fds[i];
            fd_close(&fd);
            rc = err_set(err, ERR_PROTOCOL, "peer sent more than %d descriptors ahead",
                         FD_QUEUE_MAX);
        }
    }
    return rc;
}

int wire_feed(struct wire_reader *r, const void *data, size_t len, const int *fds, size_t nfds,
              struct err *err) {
    wire_frame_compact(r);
    int rc = keep_fds(r, fds, nfds, err);
    if (rc < 0)
        return rc;
    if (!buf_add(&r->in, data, len))
        return err_set(err, ERR_PROTOCOL, "frame exceeds %zu bytes", r->max_bytes);
    return 0;
}

/* Room for what is still missing of a frame whose head is known, else for one chunk: a large frame
 * is read in few calls and a small one costs no large buffer. */
static size_t wire_frame_want(const struct wire_reader *r) {
    if (r->in.len < WIRE_HEAD_SIZE)
        return 4096;
    struct head h;
    memcpy(&h, r->in.data, sizeof(h));
    size_t total = WIRE_HEAD_SIZE + (size_t)le32toh(h.len);
    if (total <= r->in.len || total > r->max_bytes + WIRE_HEAD_SIZE)
        return 4096;
    return MIN(total - r->in.len, (size_t)1 << 20);
}

int wire_recv(struct wire_reader *r, int fd, struct err *err) {
    wire_frame_compact(r);
    size_t room = MIN(wire_frame_want(r), r->in.max - r->in.len);
    char *at = room > 0 ? buf_reserve(&r->in, room) : NULL;
    if (!at)
        return err_set(err, ERR_PROTOCOL, "frame exceeds %zu bytes", r->max_bytes);
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int) * WIRE_FDS_MAX)];
    } control;
    struct iovec iov = {.iov_base = at, .iov_len = room};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof(control)};
    ssize_t n;
    do
        n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    if (n < 0 && errno == ECONNRESET)
        return err_set(err, ERR_CANCELLED, "peer closed the channel");
    if (n < 0)
        return err_sys(err, "receive");
    r->drained = (size_t)n < room && msg.msg_controllen == 0; /* descriptors end a read early */
    int rc = 0;
    size_t nfds = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            int got[WIRE_FDS_MAX];
            size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            memcpy(got, CMSG_DATA(c), count * sizeof(int));
            rc = keep_fds(r, got, count, err);
            nfds += count;
        }
    /* Cut off with room left in the list: this process has no free number for them. */
    if (rc == 0 && (msg.msg_flags & MSG_CTRUNC) && nfds < WIRE_FDS_MAX)
        rc = err_set(err, ERR_LIMIT,
                     "the limit of open files of this process is reached: raise it (ulimit -n)");
    if (rc == 0 && (msg.msg_flags & MSG_CTRUNC))
        rc = err_set(err, ERR_PROTOCOL, "peer sent more than %d descriptors in one piece",
                     WIRE_FDS_MAX);
    if (rc < 0)
        return rc;
    if (n == 0)
        return err_set(err, ERR_CANCELLED, "peer closed the channel");
    buf_claim(&r->in, (size_t)n);
    return 1;
}

int wire_next(struct wire_reader *r, struct wire_frame *ret_frame, struct err *err) {
    size_t have = r->in.len - r->used;
    /* Descriptors come with a byte of their frame: with no byte left, nobody promised these, and
     * they would be taken for those of a later frame. */
    if (have == 0 && r->nfds > 0)
        return err_set(err, ERR_PROTOCOL, "%zu descriptors came that no frame promised", r->nfds);
    if (have < WIRE_HEAD_SIZE)
        return 0;
    struct head h;
    memcpy(&h, r->in.data + r->used, sizeof(h));
    size_t len = le32toh(h.len);
    size_t nfds = le16toh(h.nfds);
    if (len > r->max_bytes)
        return err_set(err, ERR_PROTOCOL, "frame of %zu bytes exceeds %zu", len, r->max_bytes);
    if (nfds > WIRE_FDS_MAX)
        return err_set(err, ERR_PROTOCOL, "frame with %zu descriptors exceeds %d", nfds,
                       WIRE_FDS_MAX);
    if (have < WIRE_HEAD_SIZE + len)
        return 0;
    /* Descriptors travel with the first byte of their frame, so they are here if they were sent. */
    if (nfds > r->nfds)
        return err_set(err, ERR_PROTOCOL, "frame promises %zu descriptors, %zu came", nfds,
                       r->nfds);
    struct wire_frame f = {.type = le16toh(h.type),
                           .nfds = (uint16_t)nfds,
                           .id = le64toh(h.id),
                           .data = (const uint8_t *)r->in.data + r->used + WIRE_HEAD_SIZE,
                           .len = len};
    memcpy(f.fds, r->fds, nfds * sizeof(int));
    r->nfds -= nfds;
    memmove(r->fds, r->fds + nfds, r->nfds * sizeof(int));
    r->used += WIRE_HEAD_SIZE + len;
    *ret_frame = f;
    return 1;
}

void wire_frame_finish(struct wire_frame *f) {
    for (size_t i = 0; f && i < f->nfds; i++)
        fd_close(&f->fds[i]);
}

int wire_frame_take_fd(struct wire_frame *f, size_t i) {
    return i < f->nfds ? steal_fd(&f->fds[i]) : -1;
}

int wire_read(struct wire_reader *r, int fd, struct wire_frame *ret_frame, struct err *err) {
    for (;;) {
        int rc = wire_next(r, ret_frame, err);
        if (rc != 0)
            return rc;
        rc = wire_recv(r, fd, err);
        if (rc < 0)
            return rc;
        if (rc == 0) {
            struct pollfd p = {.fd = fd, .events = POLLIN};
            if (poll(&p, 1, -1) < 0 && errno != EINTR)
                return err_sys(err, "poll");
        }
    }
}

void wire_head_encode(uint8_t out[WIRE_HEAD_SIZE], uint16_t type, uint64_t id, size_t len,
                      size_t nfds) {
    struct head h = {.len = htole32((uint32_t)len),
                     .type = htole16(type),
                     .nfds = htole16((uint16_t)nfds),
                     .id = htole64(id)};
    memcpy(out, &h, sizeof(h));
}

uint64_t wire_head_id(const uint8_t head[WIRE_HEAD_SIZE]) {
    struct head h;
    memcpy(&h, head, sizeof(h));
    return le64toh(h.id);
}

size_t wire_out_size(const struct wire_out *out) {
    size_t n = WIRE_HEAD_SIZE;
    for (size_t i = 0; i < ARRAY_LEN(out->pieces); i++)
        n += out->pieces[i].len;
    return n;
}

ssize_t wire_try_send(int fd, const struct wire_out *out) {
    uint8_t head[WIRE_HEAD_SIZE];
    size_t len = wire_out_size(out) - WIRE_HEAD_SIZE;
    if (len > UINT32_MAX || out->nfds > WIRE_FDS_MAX) {
        errno = EMSGSIZE;
        return -1;
    }
    wire_head_encode(head, out->type, out->id, len, out->nfds);
    struct iovec iov[1 + ARRAY_LEN(out->pieces)] = {{.iov_base = head, .iov_len = sizeof(head)}};
    size_t niov = 1;
    for (size_t i = 0; i < ARRAY_LEN(out->pieces); i++)
        if (out->pieces[i].len > 0)
            iov[niov++] = (struct iovec){.iov_base = (void *)(uintptr_t)out->pieces[i].data,
                                         .iov_len = out->pieces[i].len};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = niov};
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int) * WIRE_FDS_MAX)];
    } control;
    if (out->nfds > 0) {
        memset(&control, 0, sizeof(control));
        msg.msg_control = &control;
        msg.msg_controllen = CMSG_SPACE(sizeof(int) * out->nfds);
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * out->nfds);
        memcpy(CMSG_DATA(c), out->fds, sizeof(int) * out->nfds);
    }
    ssize_t n;
    do
        n = sendmsg(fd, &msg, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n;
}

/* Sends the bytes of the frame from offset `at` on. */
static int send_rest(int fd, const struct wire_out *out, size_t at) {
    uint8_t head[WIRE_HEAD_SIZE];
    wire_head_encode(head, out->type, out->id, wire_out_size(out) - WIRE_HEAD_SIZE, out->nfds);
    struct wire_piece all[1 + ARRAY_LEN(out->pieces)] = {{head, sizeof(head)}};
    memcpy(all + 1, out->pieces, sizeof(out->pieces));
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        const char *p = all[i].data;
        size_t n = all[i].len;
        size_t skip = MIN(at, n);
        at -= skip;
        for (size_t done = skip; done < n;) {
            ssize_t k = send(fd, p + done, n - done, MSG_NOSIGNAL);
            if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
                struct pollfd w = {.fd = fd, .events = POLLOUT};
                (void)poll(&w, 1, -1);
            } else if (k < 0 && errno != EINTR) {
                return -1;
            } else if (k > 0) {
                done += (size_t)k;
            }
        }
    }
    return 0;
}

/* The kernel counts the descriptors that are on their way, of all processes of a user, against the
 * sender's own limit: that passes when others have read theirs. */
enum { ON_THEIR_WAY_MS = 10000 };

int wire_send(int fd, const struct wire_out *out) {
    ssize_t n = wire_try_send(fd, out);
    for (int waited = 0; n < 0;) {
        struct pollfd w = {.fd = fd, .events = POLLOUT};
        if (errno == EAGAIN || errno == EWOULDBLOCK)
            (void)poll(&w, 1, -1);
        else if (errno == ETOOMANYREFS && waited++ < ON_THEIR_WAY_MS)
            (void)poll(NULL, 0, 1);
        else
            break;
        n = wire_try_send(fd, out);
    }
    if (n < 0)
        return -1;
    if ((size_t)n == wire_out_size(out))
        return 0;
    return send_rest(fd, out, (size_t)n);
}
