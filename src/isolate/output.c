#include "isolate/output.h"

#include "base/cleanup.h"
#include "base/mem.h"
#include "wire/isolate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a line costs besides its text, so that empty lines are bounded too. */
enum { LINE_COST = 16 };

void output_init(struct output *o, size_t budget_bytes, output_emit emit, void *arg) {
    *o = (struct output){.budget_bytes = budget_bytes,
                         .head_left = budget_bytes - budget_bytes / 4,
                         .emit = emit,
                         .arg = arg};
}

static struct output_line *tail_at(struct output *o, size_t i) {
    return &o->tail[(o->tail_first + i) % o->tail_cap];
}

void output_finish(struct output *o) {
    if (!o)
        return;
    for (size_t i = 0; i < o->tail_count; i++)
        free(tail_at(o, i)->text);
    free(o->tail);
    o->tail = NULL;
    o->tail_count = 0;
}

/* The largest n' <= n that does not cut a UTF-8 sequence. */
static size_t whole_prefix(const char *text, size_t n) {
    while (n > 0 && ((uint8_t)text[n] & 0xc0) == 0x80)
        n--;
    return n;
}

static void output_drop_first(struct output *o) {
    struct output_line *line = tail_at(o, 0);
    o->dropped_bytes += line->len;
    o->dropped_lines++;
    o->tail_bytes -= line->len + LINE_COST;
    free(line->text);
    o->tail_first = (o->tail_first + 1) % o->tail_cap;
    o->tail_count--;
}

static void output_keep(struct output *o, uint8_t level, double time_ms, const char *text,
                        size_t len) {
    size_t max = o->budget_bytes / 4;
    if (!o->tail) {
        o->tail_cap = max / LINE_COST + 1;
        o->tail = xcalloc(o->tail_cap, sizeof(*o->tail));
    }
    if (max <= LINE_COST) {
        o->dropped_bytes += len;
        o->dropped_lines++;
        return;
    }
    if (len > max - LINE_COST) {
        size_t cut = len - (max - LINE_COST);
        while (cut < len && ((uint8_t)text[cut] & 0xc0) == 0x80)
            cut++;
        o->dropped_bytes += cut;
        text += cut;
        len -= cut;
    }
    while (o->tail_count > 0 && o->tail_bytes + len + LINE_COST > max)
        output_drop_first(o);
    *tail_at(o, o->tail_count++) = (struct output_line){
        .level = level, .time_ms = time_ms, .text = xstrndup(text, len), .len = len};
    o->tail_bytes += len + LINE_COST;
}

void output_add(struct output *o, uint8_t level, double time_ms, const char *text, size_t len) {
    o->written_bytes += len;
    if (!o->tail && len + LINE_COST <= o->head_left) {
        o->head_left -= len + LINE_COST;
        o->emit(o->arg, level, time_ms, text, len);
        return;
    }
    size_t fits = 0;
    if (!o->tail && o->head_left > LINE_COST) {
        fits = whole_prefix(text, MIN(len, o->head_left - LINE_COST));
        if (fits > 0)
            o->emit(o->arg, level, time_ms, text, fits);
        o->head_left = 0;
    }
    output_keep(o, level, time_ms, text + fits, len - fits);
}

void output_flush(struct output *o) {
    if (o->dropped_bytes > 0 || o->dropped_lines > 0) {
        char note[96];
        int n =
            snprintf(note, sizeof(note), "\xe2\x80\xa6 %llu lines and %llu bytes left out",
                     (unsigned long long)o->dropped_lines, (unsigned long long)o->dropped_bytes);
        double time_ms = o->tail_count > 0 ? tail_at(o, 0)->time_ms : 0;
        o->emit(o->arg, ISOLATE_LOG_WARN, time_ms, note, (size_t)n);
    }
    for (size_t i = 0; i < o->tail_count; i++) {
        const struct output_line *line = tail_at(o, i);
        o->emit(o->arg, line->level, line->time_ms, line->text, line->len);
    }
}
