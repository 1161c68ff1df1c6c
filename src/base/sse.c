#include "base/sse.h"

#include <string.h>

static const char bom[] = "\xef\xbb\xbf";
enum { BOM_LEN = 3 };

void sse_init(struct sse *s, size_t max_event_bytes, sse_on_event *on_event, void *ctx) {
    *s = (struct sse){.max_bytes = max_event_bytes, .on_event = on_event, .ctx = ctx};
    buf_init(&s->line, max_event_bytes);
    buf_init(&s->data, max_event_bytes);
    buf_init(&s->event, max_event_bytes);
}

void sse_finish(struct sse *s) {
    buf_finish(&s->line);
    buf_finish(&s->data);
    buf_finish(&s->event);
}

static bool sse_dispatch(struct sse *s) {
    bool go_on = true;
    if (s->has_data) {
        s->data.data[--s->data.len] = 0; /* the last line feed */
        go_on = s->on_event(s->ctx, s->event.len > 0 ? s->event.data : "message", s->data.data,
                            s->data.len);
    }
    buf_clear(&s->data);
    buf_clear(&s->event);
    s->has_data = false;
    return go_on;
}

static bool field_is(const char *line, size_t len, const char *name) {
    return strlen(name) == len && memcmp(line, name, len) == 0;
}

/* One whole line without its end. False when the callback stops it. */
static bool take_line(struct sse *s, const char *line, size_t len) {
    if (!s->begun) {
        s->begun = true;
        if (len >= BOM_LEN && memcmp(line, bom, BOM_LEN) == 0) {
            line += BOM_LEN;
            len -= BOM_LEN;
        }
    }
    if (len == 0)
        return sse_dispatch(s);
    const char *colon = memchr(line, ':', len);
    size_t name = colon ? (size_t)(colon - line) : len;
    const char *value = line + name + (colon ? 1 : 0);
    size_t n = len - (size_t)(value - line);
    if (n > 0 && *value == ' ') {
        value++;
        n--;
    }
    if (field_is(line, name, "data")) {
        (void)buf_add(&s->data, value, n);
        (void)buf_add_char(&s->data, '\n');
        s->has_data = true;
    } else if (field_is(line, name, "event")) {
        buf_clear(&s->event);
        (void)buf_add(&s->event, value, n);
    }
    return true;
}

static const char *find_end(const char *at, size_t len) {
    const char *lf = memchr(at, '\n', len);
    const char *cr = memchr(at, '\r', lf ? (size_t)(lf - at) : len);
    return cr ? cr : lf;
}

int sse_feed(struct sse *s, const char *data, size_t len, struct err *err) {
    const char *begin = data;
    const char *end = data + len;
    s->taken = len;
    while (data < end) {
        if (s->skip_lf) {
            s->skip_lf = false;
            if (*data == '\n') {
                data++;
                continue;
            }
        }
        const char *stop = find_end(data, (size_t)(end - data));
        size_t n = (size_t)((stop ? stop : end) - data);
        bool go_on = true;
        if (!stop || s->line.len > 0)
            (void)buf_add(&s->line, data, n);
        if (!s->line.full && stop) {
            if (s->line.len > 0)
                go_on = take_line(s, s->line.data, s->line.len);
            else
                go_on = take_line(s, data, n);
            buf_clear(&s->line);
        }
        if (s->line.full || s->data.full || s->event.full)
            return err_set(err, ERR_LIMIT, "an event of the stream exceeds %zu bytes",
                           s->max_bytes);
        if (!stop)
            return 0;
        s->skip_lf = *stop == '\r';
        data = stop + 1;
        if (!go_on) {
            s->taken = (size_t)(data - begin);
            return 0;
        }
    }
    return 0;
}
