#include "loop/channel.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* A frame, or the rest of one, that waits for the socket. */
struct pending {
    struct pending *next;
    int fds[WIRE_FDS_MAX];
    size_t nfds;
    size_t at;
    size_t len;
    char data[];
};

struct channel {
    uv_poll_t poll;
    int armed; /* the events that the loop waits for */
    int fd;
    struct channel_options opt;
    struct wire_reader reader;
    struct pending *first;
    struct pending **last;
    size_t queued;
    bool broken; /* the socket takes no more; its reading side will tell the end */
    bool ended;
    bool closing;
};

enum { READS_PER_TURN = 16 };

static void channel_on_poll(uv_poll_t *p, int status, int events);

static void drop_pending(struct pending *p) {
    for (size_t i = 0; i < p->nfds; i++)
        fd_close(&p->fds[i]);
    free(p);
}

static void channel_arm(struct channel *c) {
    int events = (c->ended ? 0 : UV_READABLE) | (c->first ? UV_WRITABLE : 0);
    if (c->closing || events == c->armed) /* to start it again would be two system calls */
        return;
    c->armed = events;
    if (events)
        (void)uv_poll_start(&c->poll, events, channel_on_poll);
    else
        (void)uv_poll_stop(&c->poll);
}

static void channel_end(struct channel *c, const struct err *err) {
    if (c->ended || c->closing)
        return;
    c->ended = true;
    channel_arm(c);
    c->opt.on_end(c->opt.ctx, err);
}

static ssize_t send_pending(struct channel *c, struct pending *p) {
    struct iovec iov = {.iov_base = p->data + p->at, .iov_len = p->len - p->at};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int) * WIRE_FDS_MAX)];
    } control;
    if (p->nfds > 0) {
        memset(&control, 0, sizeof(control));
        msg.msg_control = &control;
        msg.msg_controllen = CMSG_SPACE(sizeof(int) * p->nfds);
        struct cmsghdr *h = CMSG_FIRSTHDR(&msg);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(sizeof(int) * p->nfds);
        memcpy(CMSG_DATA(h), p->fds, sizeof(int) * p->nfds);
    }
    return sendmsg(c->fd, &msg, MSG_NOSIGNAL);
}

static void drop_queue(struct channel *c) {
    while (c->first) {
        struct pending *p = c->first;
        c->first = p->next;
        drop_pending(p);
    }
    c->last = &c->first;
    c->queued = 0;
}

static void channel_flush(struct channel *c) {
    while (c->first) {
        struct pending *p = c->first;
        ssize_t n = send_pending(c, p);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) {
            /* What the peer sent before it went is still to be read. */
            c->broken = true;
            drop_queue(c);
            return;
        }
        if (n < 0) {
            struct err err;
            (void)err_sys(&err, "send");
            channel_end(c, &err);
            return;
        }
        for (size_t i = 0; i < p->nfds; i++)
            fd_close(&p->fds[i]);
        p->nfds = 0;
        p->at += (size_t)n;
        c->queued -= (size_t)n;
        if (p->at < p->len)
            return;
        c->first = p->next;
        if (!c->first)
            c->last = &c->first;
        drop_pending(p);
    }
}

/* Takes frames until none is left, the channel was closed, or others should have a turn: that is
 * only between reads, since no event comes for frames that have been read. False: there are none
 * for now. */
static bool channel_receive(struct channel *c) {
    struct err err;
    int reads = 0;
    while (!c->closing && !c->ended) {
        struct wire_frame f;
        int rc = wire_next(&c->reader, &f, &err);
        if (rc == 0) {
            if (reads > 0 && (c->reader.drained || reads == READS_PER_TURN))
                return true;
            reads++;
            rc = wire_recv(&c->reader, c->fd, &err);
            if (rc == 0)
                return false;
            if (rc > 0)
                continue;
        }
        if (rc < 0) {
            channel_end(c, &err);
            return false;
        }
        c->opt.on_frame(c->opt.ctx, &f);
        wire_frame_finish(&f);
    }
    return false;
}

void channel_drain(struct channel *c) {
    if (!c)
        return;
    while (channel_receive(c))
        ;
    channel_arm(c);
}

static void channel_on_poll(uv_poll_t *p, int status, int events) {
    struct channel *c = p->data;
    /* A hang-up counts as readable: what came before it is read first, then its end. */
    if (status < 0) {
        events = UV_READABLE | UV_WRITABLE;
        c->armed = 0; /* the loop has stopped waiting by itself */
    }
    if (events & UV_WRITABLE)
        channel_flush(c);
    if (events & UV_READABLE)
        (void)channel_receive(c);
    channel_arm(c);
}

int channel_create(uv_loop_t *loop, int fd, const struct channel_options *options,
                   struct channel **ret_channel, struct err *err) {
    struct channel *c = xcalloc(1, sizeof(*c));
    c->fd = fd;
    c->opt = *options;
    c->last = &c->first;
    c->poll.data = c;
    wire_reader_init(&c->reader, options->max_frame_bytes);
    int rc = fd_set_nonblock(fd, true) < 0 ? UV_EIO : uv_poll_init(loop, &c->poll, fd);
    if (rc < 0) {
        fd_close(&fd);
        free(c);
        return err_set(err, ERR_IO, "watch a channel: %s", uv_strerror(rc));
    }
    channel_arm(c);
    *ret_channel = c;
    return 0;
}

bool channel_send(struct channel *c, const struct wire_out *out) {
    if (c->ended || c->closing || c->broken)
        return false;
    size_t total = wire_out_size(out);
    size_t sent = 0;
    if (!c->first) {
        ssize_t n = wire_try_send(c->fd, out);
        if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
            return false; /* the reading side sees the end and tells */
        sent = n > 0 ? (size_t)n : 0;
        if (sent == total)
            return true;
    }
    /* A frame that has begun must be finished, whatever the bound says. */
    if (sent == 0 && c->queued + total > c->opt.max_queue_bytes)
        return false;
    struct pending *p = xmalloc(sizeof(*p) + total);
    *p = (struct pending){.at = sent, .len = total};
    wire_head_encode((uint8_t *)p->data, out->type, out->id, total - WIRE_HEAD_SIZE, out->nfds);
    size_t at = WIRE_HEAD_SIZE;
    for (size_t i = 0; i < ARRAY_LEN(out->pieces); i++) {
        if (out->pieces[i].len > 0)
            memcpy(p->data + at, out->pieces[i].data, out->pieces[i].len);
        at += out->pieces[i].len;
    }
    for (size_t i = 0; sent == 0 && i < out->nfds; i++) {
        p->fds[i] = fcntl(out->fds[i], F_DUPFD_CLOEXEC, 3);
        if (p->fds[i] < 0) {
            drop_pending(p);
            return false;
        }
        p->nfds++;
    }
    *c->last = p;
    c->last = &p->next;
    c->queued += total - sent;
    channel_arm(c);
    return true;
}

static void channel_on_closed(uv_handle_t *h) {
    struct channel *c = h->data;
    wire_reader_finish(&c->reader);
    drop_queue(c);
    fd_close(&c->fd);
    free(c);
}

bool channel_peer_is_gone(const struct channel *c) {
    struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};
    return poll(&p, 1, 0) == 1 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void channel_close(struct channel *c) {
    if (!c || c->closing)
        return;
    c->closing = true;
    (void)uv_poll_stop(&c->poll);
    uv_close((uv_handle_t *)&c->poll, channel_on_closed);
}
