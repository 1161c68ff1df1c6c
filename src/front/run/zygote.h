#pragma once
/* A life of cay-isolate as the front starts it: for the pool, which has it fork, and for the scout.
 * The contract is src/wire/isolate.h. */

#include "base/buf.h"
#include "loop/keeper.h"

#include <stdbool.h>
#include <stdint.h>

struct zygote_options {
    uv_loop_t *loop;
    int exec_fd;
    const int *joins; /* control groups of the zygotes and isolates; borrowed */
    size_t njoins;
    uint64_t memory_max_bytes;
    uint32_t cpu_max_s;
    uint32_t levers;
};

/* As of struct keeper_options. */
struct zygote_callbacks {
    void (*on_start)(void *ctx, struct channel *channel);
    void (*on_frame)(void *ctx, struct wire_frame *frame);
    void (*on_end)(void *ctx);
    void *ctx;
};

struct keeper *zygote_keep(const struct zygote_options *o, const struct zygote_callbacks *cb);
/* The first message of a life. plan: of a scout, NULL or empty without one. */
void zygote_configure(struct channel *channel, const struct zygote_options *o, uint32_t flags,
                      const struct buf *plan);
