#pragma once
/* What a program takes of memory: pages that this process has of its own since the program began,
 * those included that it shared with the zygote until it wrote to them. The kernel knows how many
 * there are, and the most there ever were, but forgets no peak when another call begins. So we look
 * whenever a megabyte more was allocated (the engine takes all of its memory from malloc(), which
 * is replaced here), before much is freed, and when a call ends.
 *
 * The same look holds the limit: a large block that would pass it is refused, which the engine
 * tells the program; anything else that passes it ends the isolate. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In the zygote: bytes that its isolates share with it until they write to them. */
uint64_t memory_writable(int proc_fd);
/* Bytes of pages that this process has of its own, by a descriptor of /proc/self/smaps, or of
 * smaps_rollup where it maps no memory that others share. 0: not known. */
uint64_t memory_private(int pages_fd);

struct memory_start {
    int statm_fd;
    int pages_fd;           /* as memory_private(), -1: none */
    uint64_t shared_bytes;  /* it may come to own this many by writing to them */
    uint64_t private_bytes; /* that it owns already; 0: it was just forked */
};

/* This process is at its beginning. */
void memory_open(const struct memory_start *start);
/* A program begins. It is called, once, when it has more than its limit. */
void memory_begin(uint64_t limit_bytes, void (*exceeded)(void));
/* No program runs here: nothing is counted. */
void memory_close(void);
/* Size of the address space when it was opened. */
uint64_t memory_base_size(void);
/* Resident bytes then. */
uint64_t memory_base_resident(void);
/* Looks how much there is; the limit holds. Not in a signal handler. */
void memory_look(void);
/* The same, in a signal handler: what is a little over the limit is left to the next look. */
void memory_glance(void);
/* Looks as the engine has collected garbage. */
void memory_collected(void);
/* Memory went back to the kernel, or soon will. */
void memory_returned(void);
/* Gives what is free back to the kernel. */
void memory_trim(void);
/* How much there is now, and the same as exactly as the kernel knows it. */
uint64_t memory_now(void);
uint64_t memory_exact(void);
/* The most that was seen since the last memory_restart(), this moment included. Never 0. */
uint64_t memory_peak(void);
/* From here on peaks are another call's. */
void memory_restart(void);
/* The engine was refused memory, or has nearly all that it may have: a crash is the program's. */
bool memory_is_short(void);

/* ---- for those who allocate ---- */

extern int64_t memory_left; /* bytes until the next look */
/* False: a block of so many bytes is refused. */
bool memory_check(size_t coming);

static inline bool memory_allow(size_t coming) {
    memory_left -= coming < (size_t)1 << 40 ? (int64_t)coming : (int64_t)1 << 40;
    return memory_left > 0 || memory_check(coming);
}

/* A large block goes back to the kernel at once: it is seen before. */
void memory_before_free(const void *block);
/* A large block that will be used in part, and freed soon: only that part counts. free() frees it.
 */
void *memory_sparse(size_t size, size_t used);
