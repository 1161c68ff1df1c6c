/* What a zygote and its isolates may say, true or not, in any order, while isolates are taken, put
 * to work and given back: the real front/run/pool.c above processes that are made here. The bytes
 * are steps. Who has an isolate is told of its end once, and of nothing after he gave it back. */

#include "base/cleanup.h"
#include "base/mem.h"
#include "front/run/pool.h"
#include "front/run/scout.h"
#include "front/run/zygote.h"
#include "wire/isolate.h"
#include "wire/pack.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { KEEPERS_MAX = 64, CHANNELS_MAX = 64, USERS_MAX = 16, READY = 2, AT_WORK = 4 };

struct keeper {
    struct zygote_callbacks cb;
    void (*on_stopped)(void *ctx);
    void *stopped_ctx;
    bool used;
};

struct channel {
    struct channel_options opt;
    bool open;
};

/* Somebody who wants an isolate, or has one. */
struct user {
    struct pool_isolate *isolate;
    struct pool_ticket *ticket;
    bool idle;
    bool ended; /* he was told so: he may give it back, and nothing else */
};

static struct {
    uv_loop_t loop;
    struct later_queue later;
    struct pool *pool;
    struct keeper keepers[KEEPERS_MAX];
    struct channel channels[CHANNELS_MAX];
    size_t nkeepers, nchannels;
    struct user users[USERS_MAX];
    bool reset;
} w;

static const char *at_, *end_;

static uint8_t next_byte(void) {
    return at_ < end_ ? (uint8_t)*at_++ : 0;
}

/* --- the zygotes, the scout and the channels --- */

struct keeper *zygote_keep(const struct zygote_options *o, const struct zygote_callbacks *cb) {
    (void)o;
    if (w.nkeepers == KEEPERS_MAX)
        abort(); /* one life is one keeper: steps cannot need so many */
    struct keeper *k = &w.keepers[w.nkeepers++];
    *k = (struct keeper){.cb = *cb, .used = true};
    return k;
}

void zygote_configure(struct channel *channel, const struct zygote_options *o, uint32_t flags,
                      const struct buf *plan) {
    (void)channel, (void)o, (void)flags, (void)plan;
}

void scout_send(struct scout *s) {
    (void)s;
}

void scout_forget(struct scout *s) {
    (void)s;
}

const struct buf *scout_plan(const struct scout *s) {
    static struct buf none;
    (void)s;
    return &none;
}

struct channel *keeper_channel(struct keeper *k) {
    return (struct channel *)k;
}

struct keeper_info keeper_info(const struct keeper *k) {
    (void)k;
    return (struct keeper_info){.name = "cay-isolate", .ended = ""};
}

void keeper_stop(struct keeper *k, void (*on_stopped)(void *ctx), void *ctx) {
    if (!k->used || k->on_stopped)
        abort();
    k->on_stopped = on_stopped;
    k->stopped_ctx = ctx;
}

int channel_create(uv_loop_t *loop, int fd, const struct channel_options *options,
                   struct channel **ret_channel, struct err *err) {
    (void)loop;
    (void)close(fd);
    if (w.nchannels == CHANNELS_MAX)
        return err_set(err, ERR_LIMIT, "there are no more");
    struct channel *c = &w.channels[w.nchannels++];
    *c = (struct channel){.opt = *options, .open = true};
    *ret_channel = c;
    return 0;
}

bool channel_send(struct channel *c, const struct wire_out *out) {
    (void)c, (void)out;
    return true;
}

void channel_close(struct channel *c) {
    if (c)
        c->open = false;
}

static void end_stopped(void) {
    for (size_t i = 0; i < w.nkeepers; i++) {
        struct keeper *k = &w.keepers[i];
        void (*on_stopped)(void *ctx) = k->on_stopped;
        if (!on_stopped)
            continue;
        k->on_stopped = NULL;
        k->used = false;
        on_stopped(k->stopped_ctx);
    }
}

/* --- who takes isolates --- */

static void on_frame(void *ctx, struct wire_frame *frame) {
    const struct user *u = ctx;
    (void)frame;
    if (!u->isolate || u->ended)
        abort();
}

static void on_end(void *ctx, const struct pool_isolate_end *end) {
    struct user *u = ctx;
    (void)end;
    if (!u->isolate || u->ended)
        abort();
    u->ended = true;
}

static void own(struct user *u, struct pool_isolate *isolate) {
    static const struct pool_isolate_callbacks callbacks = {.on_frame = on_frame, .on_end = on_end};
    u->isolate = isolate;
    u->idle = false;
    pool_isolate_watch(isolate, &callbacks, u);
}

static void on_taken(void *ctx, struct pool_isolate *isolate, const struct err *err) {
    struct user *u = ctx;
    if (!u->ticket || (!isolate && !err->code))
        abort();
    u->ticket = NULL;
    if (isolate && u->isolate)
        u->idle = false; /* it works again */
    else if (isolate)
        own(u, isolate);
}

static struct pool_want want_of(struct user *u) {
    static const char *const owners[] = {"", "anna", "bert"};
    const char *owner = owners[next_byte() % ARRAY_LEN(owners)];
    return (struct pool_want){
        .owner = owner, .domain = w.reset ? "domain" : NULL, .taken = on_taken, .ctx = u};
}

static struct user *some_user(void) {
    return &w.users[next_byte() % USERS_MAX];
}

/* --- steps --- */

static void step_take(void) {
    struct user *u = some_user();
    struct pool_isolate *isolate = NULL;
    struct err err;
    if (u->isolate || u->ticket)
        return;
    *u = (struct user){0};
    struct pool_want want = want_of(u);
    if (pool_take(w.pool, &want, &isolate, &u->ticket, &err) == 0 && isolate)
        own(u, isolate);
}

static void step_cancel(void) {
    struct user *u = some_user();
    if (!u->ticket)
        return;
    pool_cancel(u->ticket);
    u->ticket = NULL;
}

static void step_idle(void) {
    struct user *u = some_user();
    if (!u->isolate || u->ended || u->idle || u->ticket || w.reset)
        return;
    pool_isolate_idle(u->isolate);
    u->idle = true;
}

static void step_work(void) {
    struct user *u = some_user();
    struct err err;
    if (!u->isolate || u->ended || !u->idle || u->ticket)
        return;
    struct pool_want want = want_of(u);
    if (pool_isolate_work(u->isolate, &want, &u->ticket, &err) == 0 && !u->ticket)
        u->idle = false;
}

static void let_go(struct user *u, void (*give)(struct pool_isolate *i)) {
    pool_cancel(u->ticket);
    u->ticket = NULL;
    struct pool_isolate *i = steal_ptr(&u->isolate);
    if (i)
        give(i);
}

static void step_release(void) {
    let_go(some_user(), pool_isolate_release);
}

static void step_rest(void) {
    struct user *u = some_user();
    if (w.reset && !u->ended)
        let_go(u, pool_isolate_rest);
}

static void step_kill(void) {
    struct user *u = some_user();
    if (u->isolate && !u->ended)
        pool_isolate_kill(u->isolate);
}

static struct keeper *some_keeper(void) {
    struct keeper *k = &w.keepers[next_byte() % 4];
    return k->used && !k->on_stopped ? k : NULL;
}

static void say(const struct keeper *k, uint16_t type, struct buf *b, bool fds) {
    struct wire_frame f = {.type = type, .data = (const uint8_t *)b->data, .len = b->len};
    for (; fds && f.nfds < 2; f.nfds++)
        f.fds[f.nfds] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (k)
        k->cb.on_frame(k->cb.ctx, &f);
    wire_frame_finish(&f);
    buf_finish(b);
}

static void step_features(void) {
    struct buf b;
    buf_init(&b, 16);
    (void)buf_add_str(&b, "{}");
    say(some_keeper(), ISOLATE_FEATURES, &b, false);
}

static void step_ready(void) {
    const struct keeper *k = some_keeper();
    struct buf b;
    uint8_t how = next_byte();
    buf_init(&b, 64);
    pack_u32(&b, how & 15);
    pack_u32(&b, 0);
    if (how & 16)
        pack_u8(&b, 0);
    say(k, ISOLATE_READY, &b, !(how & 32));
}

static void step_exited(void) {
    const struct keeper *k = some_keeper();
    struct buf b;
    uint8_t how = next_byte();
    buf_init(&b, 64);
    pack_u32(&b, how & 15);
    pack_u32(&b, how);
    for (int i = 0; i < (how & 16 ? 5 : 6); i++)
        pack_u64(&b, UINT64_MAX - how);
    say(k, ISOLATE_EXITED, &b, false);
}

static void step_restart(void) {
    struct keeper *k = some_keeper();
    if (!k)
        return;
    k->cb.on_end(k->cb.ctx);
    if (k->used && !k->on_stopped)
        k->cb.on_start(k->cb.ctx, (struct channel *)k);
}

static void step_frame(void) {
    static const uint16_t types[] = {ISOLATE_RESET_READY, ISOLATE_DONE, ISOLATE_ENDING, 0xffff};
    struct channel *c = &w.channels[next_byte() % CHANNELS_MAX];
    struct wire_frame f = {.type = types[next_byte() % ARRAY_LEN(types)], .id = next_byte()};
    if (c->open)
        c->opt.on_frame(c->opt.ctx, &f);
}

static void step_hang_up(void) {
    struct channel *c = &w.channels[next_byte() % CHANNELS_MAX];
    struct err err;
    (void)err_set(&err, ERR_CANCELLED, "it hung up");
    if (c->open)
        c->opt.on_end(c->opt.ctx, &err);
}

static void step_turn(void) {
    (void)uv_run(&w.loop, UV_RUN_NOWAIT);
    end_stopped();
}

static void (*const steps[])(void) = {
    step_take,  step_take,    step_cancel, step_idle,     step_work,  step_release,
    step_rest,  step_kill,    step_ready,  step_ready,    step_ready, step_exited,
    step_frame, step_restart, step_turn,   step_features, step_turn,  step_hang_up};

static void on_stopped(void *ctx) {
    *(bool *)ctx = true;
}

static void on_closed(uv_handle_t *h) {
    (void)h;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > 400)
        return 0;
    at_ = (const char *)data;
    end_ = at_ + size;
    memset(&w, 0, sizeof(w));
    if (uv_loop_init(&w.loop) < 0)
        abort();
    later_queue_init(&w.later, &w.loop);
    w.reset = next_byte() & 1;
    w.pool = pool_create(&(struct pool_options){.zygote = {.loop = &w.loop},
                                                .later = &w.later,
                                                .ready = READY,
                                                .max = AT_WORK,
                                                .max_waiting = 3,
                                                .wait_ms = 3600000,
                                                .retire_forks = 8,
                                                .reset = w.reset});
    while (at_ < end_)
        steps[next_byte() % ARRAY_LEN(steps)]();
    for (size_t i = 0; i < USERS_MAX; i++)
        let_go(&w.users[i], pool_isolate_release);
    bool stopped = false;
    pool_stop(w.pool, on_stopped, &stopped);
    for (int i = 0; i < 8 && !stopped; i++)
        step_turn();
    if (!stopped)
        abort();
    later_queue_close(&w.later, on_closed, NULL);
    (void)uv_run(&w.loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&w.loop) < 0)
        abort();
    return 0;
}
