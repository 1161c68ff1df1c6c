#pragma once
/* What a program writes to its console, within a budget: the first three quarters go out as they
 * happen, then the last quarter is kept, and at the end comes an honest count of what was left out
 * between them. Knows no descriptors: lines leave through a callback. */

#include <stddef.h>
#include <stdint.h>

struct output_line {
    uint8_t level;
    double time_ms;
    char *text;
    size_t len;
};

typedef void (*output_emit)(void *arg, uint8_t level, double time_ms, const char *text, size_t len);

struct output {
    size_t budget_bytes;
    size_t head_left;
    uint64_t written_bytes; /* by the program, whether they went out or not */
    uint64_t dropped_bytes;
    uint64_t dropped_lines;   /* wholly */
    struct output_line *tail; /* a ring, made when the head is used up */
    size_t tail_cap;
    size_t tail_first;
    size_t tail_count;
    size_t tail_bytes;
    output_emit emit;
    void *arg;
};

void output_init(struct output *o, size_t budget_bytes, output_emit emit, void *arg);
void output_finish(struct output *o);
void output_add(struct output *o, uint8_t level, double time_ms, const char *text, size_t len);
/* Sends what is kept back. Allocates nothing. */
void output_flush(struct output *o);
