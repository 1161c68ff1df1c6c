#include "front/run/scout.h"

#include "base/cleanup.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sm.h"
#include "wire/isolate.h"

#include <stdlib.h>

enum { PLAN_BYTES = 1 << 14 };

enum scout_state {
    SCOUT_HOME, /* it was not sent */
    SCOUT_OUT,
    SCOUT_LEAVING, /* its process is about to end */
    SCOUT_BACK,    /* with a plan or without: it does not go again */
};

static const struct sm_state states[] = {
    [SCOUT_HOME] = {"home", SM_TO(SCOUT_OUT) | SM_TO(SCOUT_BACK)},
    [SCOUT_OUT] = {"out", SM_TO(SCOUT_LEAVING)},
    [SCOUT_LEAVING] = {"leaving", SM_TO(SCOUT_BACK)},
    [SCOUT_BACK] = {"back", 0},
};
static const struct sm scout_sm = {"scout", states, ARRAY_LEN(states)};

struct scout {
    struct zygote_options opt;
    struct later_queue *later;
    enum scout_state state;
    struct keeper *keeper;
    struct later leaves;
    struct buf plan;
    void (*on_stopped)(void *ctx);
    void *stopped_ctx;
};

static void scout_move(struct scout *s, enum scout_state to) {
    s->state = (enum scout_state)sm_next(&scout_sm, s->state, to);
}

static void scout_destroy(void *ctx) {
    struct scout *s = ctx;
    buf_finish(&s->plan);
    s->on_stopped(s->stopped_ctx);
    free(s);
}

static void scout_on_gone(void *ctx) {
    struct scout *s = ctx;
    scout_move(s, SCOUT_BACK);
    if (s->on_stopped)
        scout_destroy(s);
}

static void scout_leave(struct scout *s) {
    if (s->state != SCOUT_OUT)
        return;
    scout_move(s, SCOUT_LEAVING);
    later_cancel(&s->leaves);
    keeper_stop(steal_ptr(&s->keeper), scout_on_gone, s);
}

static void scout_on_leave(void *ctx) {
    scout_leave(ctx);
}

static void scout_on_start(void *ctx, struct channel *channel) {
    struct scout *s = ctx;
    zygote_configure(channel, &s->opt, ISOLATE_CONFIG_LEARN, NULL);
}

static void scout_on_frame(void *ctx, struct wire_frame *f) {
    struct scout *s = ctx;
    if (f->type == ISOLATE_PLAN && s->plan.len == 0)
        (void)buf_add(&s->plan, f->data, f->len);
    if (f->type != ISOLATE_FEATURES)
        return;
    log_debug("isolate.scouted", "plan_bytes", (int64_t)s->plan.len);
    scout_leave(s);
}

/* From the loop: its keeper calls this while it looks after the end. */
static void scout_on_end(void *ctx) {
    struct scout *s = ctx;
    later_post(s->later, &s->leaves, scout_on_leave, s);
}

struct scout *scout_create(const struct zygote_options *options, struct later_queue *later) {
    struct scout *s = xcalloc(1, sizeof(*s));
    s->opt = *options;
    s->later = later;
    buf_init(&s->plan, PLAN_BYTES);
    if (!(options->levers & ISOLATE_LEVER_GATHER))
        scout_move(s, SCOUT_BACK);
    return s;
}

void scout_send(struct scout *s) {
    if (s->state != SCOUT_HOME)
        return;
    scout_move(s, SCOUT_OUT);
    s->keeper = zygote_keep(
        &s->opt, &(struct zygote_callbacks){scout_on_start, scout_on_frame, scout_on_end, s});
}

const struct buf *scout_plan(const struct scout *s) {
    return &s->plan;
}

void scout_forget(struct scout *s) {
    buf_clear(&s->plan);
}

void scout_stop(struct scout *s, void (*on_stopped)(void *ctx), void *ctx) {
    s->on_stopped = on_stopped;
    s->stopped_ctx = ctx;
    if (s->state == SCOUT_OUT)
        scout_leave(s);
    else if (s->state != SCOUT_LEAVING)
        later_post(s->later, &s->leaves, scout_destroy, s);
}
