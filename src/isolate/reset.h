#pragma once
/* Puts the memory of an isolate back to what it was before its run, so that one process can serve
 * many runs of one trust domain: about half a millisecond against a fork, its faults and an exit.
 * What the run wrote is undone page by page, by code on a stack of its own, and the mappings are
 * checked to be those of the beginning; if they are not, the process ends instead. Where a run has
 * caused no page fault and changed no mapping, which is so for most after the first few, only pages
 * that were the process's own before can differ, and the kernel is not asked for all. A program
 * cannot reach any of this from JavaScript; one that took over the engine's native code could,
 * which is why a reset isolate never changes hands between trust domains. */

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct reset;

/* Descriptors that a resetting isolate keeps, at fixed numbers for its system-call filter. */
enum { RESET_PAGEMAP_FD = 60, RESET_MAPS_FD = 61, RESET_STATM_FD = 62 };
/* The one ioctl it makes, on the first of them: PAGEMAP_SCAN. */
#define RESET_SCAN_REQUEST 0xc0606610u

/* In the zygote, when it is ready to fork: an image of its memory that all isolates share. */
int reset_create(struct reset **ret_reset, int proc_fd, struct err *err);
/* In an isolate, before the filter. */
int reset_prepare(struct reset *r, int proc_fd, struct err *err);
/* In an isolate: remembers this moment. Returns 0 now, 1 each time that reset_now() came back here,
 * or a negative error. */
int reset_point(struct reset *r, struct err *err);
/* Goes back to reset_point(). Ends the process if the memory cannot be put back. */
void reset_now(struct reset *r) __attribute__((noreturn));
/* Mappings were changed by other means than mmap() and its like. */
void reset_remapped(void);

struct reset_stats {
    uint32_t rounds;
    uint32_t restored; /* pages of the last round */
    uint32_t dropped;
    uint32_t known; /* 1: nothing but known pages had to be looked at */
    uint32_t own;   /* pages that are not shared with the zygote, now */
    uint32_t own_at_point;
    uint64_t private_bytes; /* as noted, 0 before */
};

/* How much the process had of its own at the point: no reset forgets it. */
void reset_note_private(struct reset *r, uint64_t bytes);

struct reset_stats reset_stats(const struct reset *r);
