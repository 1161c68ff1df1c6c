#pragma once
/* One isolate: its channel to the front, the capability sockets of its env, its limits and its
 * event loop. Lives in the forked, locked-down process; the zygote uses the same code once to warm
 * itself up. There is one per process, because the engine's callbacks carry no pointer. */

#include "isolate/engine.h"
#include "isolate/memory.h"
#include "isolate/output.h"
#include "wire/frame.h"
#include "wire/tray.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct isolate_socket {
    int fd;
    uint32_t pending;
    struct wire_reader reader;
    struct buf out;    /* what the socket did not take yet */
    struct tray *tray; /* NULL: the facet offered none */
    bool awaits_tray;  /* the answer may come there */
};

struct isolate_limits {
    uint32_t cpu_ms;
    uint64_t memory_bytes;
    uint32_t output_bytes;
    uint32_t binding_calls;
    uint32_t result_bytes;
    uint32_t wait_until_ms;
};

/* A call that is not done. What runs, prints and asks is put down to the call whose event it came
 * from: its frame, a timer that it set, a reply that it asked for. */
struct isolate_call {
    struct isolate_call *next;
    uint64_t id;
    uint32_t cpu_ms;     /* its limit */
    uint64_t cpu_us;     /* used in turns that are over */
    uint64_t peak_bytes; /* of memory, until another call began beside it */
    uint32_t binding_calls;
    uint32_t answers; /* to calls of quick.h, that the prelude was not told */
    bool settles;     /* it has its result: each answer is to be told */
    struct output output;
};

/* What the prelude asks host.limit() for; js/core/build.mjs reads the numbers here. */
enum isolate_limit {
    ISOLATE_LIMIT_RESULT_BYTES,
    ISOLATE_LIMIT_WAIT_UNTIL_MS,
    ISOLATE_LIMIT_MEMORY_MIB,
    ISOLATE_LIMIT_OUTPUT_BYTES,
    ISOLATE_LIMIT_HEAD_BYTES,
};

/* The slot of a call on a binding, the lower bits of its id: the upper ones are those of quick.h.
 */
enum isolate_slot {
    ISOLATE_SLOTS = 0x100000,
    ISOLATE_QUICK_SLOTS = 64,
};

struct isolate {
    struct engine engine;
    int channel;
    int statm_fd; /* this process's own, -1 in a zygote */
    struct wire_reader reader;
    struct isolate_socket bindings[WIRE_FDS_MAX];
    size_t nbindings;
    uint32_t by_tray;             /* answers that came so */
    struct isolate_limits limits; /* of RUN; a CALL may have others */
    double timer_at_ms;           /* monotonic; negative: no timer */
    uint32_t timers;              /* of the program */
    struct isolate_call *calls;
    uint32_t awaits;              /* promises that only the front can settle */
    struct isolate_call *current; /* whose turn it is, NULL: nobody's */
    uint64_t turn_us;             /* processor time when its turn began */
    bool started;
    bool warm;
    bool reset;               /* of this run */
    uint64_t collected_bytes; /* of memory, when garbage was last collected for the next call */
    /* A signal must not write into the middle of a frame. */
    volatile bool sending;
    volatile int stop_pending;  /* an enum isolate_exit that waits for `sending` */
    volatile bool tell_pending; /* as that: what was used */
};

/* Brings the engine up. Call once per process. */
int isolate_init(struct isolate *iso, struct err *err);
/* Ready for RUN on this channel, which stays the caller's. */
void isolate_open(struct isolate *iso, int channel, const struct memory_start *memory);
/* Forgets everything a run left here, so that isolate_open() may follow (warm-up only). */
void isolate_close(struct isolate *iso);
/* Seeds Math.random from the kernel. */
void isolate_seed(struct isolate *iso);
/* One round of the event loop: waits at most max_wait_ms (negative: for ever), then handles what is
 * due. False when the channel closed. Ends the process on a broken frame. */
bool isolate_step(struct isolate *iso, int max_wait_ms);
/* Serves until the channel closes, or until a run that asked for a reset is done (true). */
bool isolate_serve(struct isolate *iso);
/* After a reset, at its point: a new beginning for what is not memory. */
void isolate_reborn(struct isolate *iso, const struct memory_start *memory, uint32_t restored,
                    uint32_t dropped, uint32_t known);

/* For quick.c. */
struct isolate_call *isolate_find_call(const struct isolate *iso, uint64_t id);
/* Calls that wait for their answers. */
uint32_t isolate_pending(const struct isolate *iso);
/* Sends the call that was added to b->out behind so many bytes, or as much as the socket takes. */
void isolate_send_call(struct isolate *iso, struct isolate_socket *b, size_t before);
/* Calls a function of the prelude; one that throws ends the isolate. */
void isolate_prelude(struct isolate *iso, enum engine_function f, size_t n, const JSValueRef args[],
                     JSValueRef *ret_value);
