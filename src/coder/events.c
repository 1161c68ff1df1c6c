#include "coder/events.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <unistd.h>

enum { GRACE_MS = 1000 };

/* A piece that a pipe with room takes whole, so that a signal is seen also while nobody reads. */
static int coder_events_write_some(struct events *e, const char *data, size_t len) {
    struct pollfd p = {.fd = e->fd, .events = POLLOUT};
    bool over = e->life->cancelled;
    if (!over)
        over = life_wait(e->life, &p, 1, LIFE_NEVER) != LIFE_READY;
    if (over && poll(&p, 1, GRACE_MS) <= 0)
        return -1;
    ssize_t n = write(e->fd, data, len < PIPE_BUF ? len : PIPE_BUF);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    return (int)n;
}

void events_tell(struct events *e, enum coder_type type, json_t *fields) {
    _cleanup_(json) json_t *given = fields;
    _cleanup_(json) json_t *line = json_pack("{s:s,s:I}", "type", coder_type_name(type), "at",
                                             (json_int_t)(clock_mono_ms() - e->life->begun_ms));
    _cleanup_(buf) struct buf out;
    buf_init(&out, CODER_LINE_MAX);
    if (e->fd < 0 || !given || json_object_update(line, given) < 0 || !json_dump(line, &out) ||
        !buf_add_char(&out, '\n'))
        return;
    for (size_t at = 0; at < out.len;) {
        int n = coder_events_write_some(e, out.data + at, out.len - at);
        if (n < 0) {
            e->life->cancelled = true;
            e->fd = -1;
            return;
        }
        at += (size_t)n;
    }
}
