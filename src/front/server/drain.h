#pragma once
/* The first part of an orderly end. From SIGTERM on the server still listens, /ready says that it
 * is leaving, and the guard refuses new work (503). When everything that was accepted is answered
 * and no job is left, or the time is over, the server ends. */

#include "front/server/front.h"
#include "front/start/service.h"

struct drain {
    struct front *front;
    const struct service *service;
    uv_timer_t timer;
    int64_t until_ms; /* monotonic */
    int64_t told_ms;
    void (*on_over)(void *ctx, unsigned left_ms);
    void *ctx;
};

/* on_over is called from the loop, once. The memory is the caller's, until the loop has ended. */
void drain_begin(struct drain *d, unsigned timeout_ms, void (*on_over)(void *ctx, unsigned left_ms),
                 void *ctx);
