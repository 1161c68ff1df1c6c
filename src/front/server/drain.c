#include "front/server/drain.h"

#include "base/clock.h"
#include "base/log.h"
#include "front/agent/agent.h"
#include "front/http/server.h"
#include "front/job/job.h"
#include "front/task/tasks.h"

#include <stdio.h>

/* Looking twenty times a second is simpler than having every room tell when it is done, and the
 * first look is made at once: a server with nothing to do ends without a wait. */
enum { DRAIN_LOOK_MS = 50, DRAIN_TELL_MS = 5000 };

static bool drain_has_work(const struct front *f) {
    return jobs_running(f->jobs) > 0 || tasks_are_busy(f->tasks) || agents_are_busy(f->agents) ||
           http_server_busy(f->http) > 0;
}

/* The service manager ends a unit that takes longer than it was told (TimeoutStopSec). */
static void drain_tell(struct drain *d, int64_t now_ms) {
    char text[64];
    if (now_ms < d->told_ms)
        return;
    d->told_ms = now_ms + DRAIN_TELL_MS;
    (void)snprintf(text, sizeof(text), "EXTEND_TIMEOUT_USEC=%d", 6 * DRAIN_TELL_MS * 1000);
    service_notify(d->service, text);
}

static void drain_on_look(uv_timer_t *t) {
    struct drain *d = t->data;
    int64_t now_ms = clock_mono_ms();
    bool late = now_ms >= d->until_ms;
    if (drain_has_work(d->front) && !late) {
        drain_tell(d, now_ms);
        return;
    }
    if (late)
        log_warn("server.drain", "jobs", (int64_t)jobs_running(d->front->jobs), "requests",
                 (int64_t)http_server_busy(d->front->http), "limit", "drain_timeout_ms");
    uv_close((uv_handle_t *)t, NULL);
    d->on_over(d->ctx, late ? 0 : (unsigned)(d->until_ms - now_ms));
}

void drain_begin(struct drain *d, unsigned timeout_ms, void (*on_over)(void *ctx, unsigned left_ms),
                 void *ctx) {
    struct front *f = d->front;
    d->on_over = on_over;
    d->ctx = ctx;
    d->until_ms = clock_mono_ms() + timeout_ms;
    f->leaving = true;
    agents_refuse(f->agents);
    http_server_leave(f->http);
    (void)uv_timer_init(f->loop, &d->timer);
    d->timer.data = d;
    (void)uv_timer_start(&d->timer, drain_on_look, 0, DRAIN_LOOK_MS);
}
