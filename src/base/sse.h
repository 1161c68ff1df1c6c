#pragma once
/* Server-sent events as the HTML standard reads them: lines end in LF, CR or CRLF, which may be
 * split anywhere between two feeds; a byte order mark at the start is skipped; an event that the
 * stream ends in the middle of is dropped. `id` and `retry` are ignored: nothing here reconnects.
 * The bytes of one event are bounded. */

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* The event's name ("message" if it has none) and its data, NUL-terminated but not counting the
 * NUL. False stops the feed. */
typedef bool sse_on_event(void *ctx, const char *event, const char *data, size_t len);

struct sse {
    struct buf line; /* the beginning of a line whose end has not come */
    struct buf data;
    struct buf event;
    size_t max_bytes;
    sse_on_event *on_event;
    void *ctx;
    bool has_data;
    bool skip_lf; /* the last byte was a CR */
    bool begun;   /* past the byte order mark */
    size_t taken; /* bytes of the last feed; fewer than it had if the callback stopped it */
};

void sse_init(struct sse *s, size_t max_event_bytes, sse_on_event *on_event, void *ctx);
void sse_finish(struct sse *s);
/* 0, also when the callback stopped it; ERR_LIMIT when an event is too large. */
int sse_feed(struct sse *s, const char *data, size_t len, struct err *err);
