/* What a compiler may send, true or not, while keys ask for programs and leave, and while it dies:
 * the real front/run/compiler.c above processes that are made here. The bytes are steps. Who asked
 * is told once, of a program or of an error. */

#include "base/cleanup.h"
#include "base/mem.h"
#include "front/run/compiler.h"
#include "loop/keeper.h"
#include "wire/compile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ASKS_MAX = 32, KEEPERS_MAX = 2, SMALL_BYTES = 8, WAITING_BYTES = 16384, CACHE_BYTES = 4096 };

/* One who asked. */
struct ask {
    struct compiler_ticket *ticket; /* NULL: told, or gone */
    bool told;
};

struct keeper {
    struct keeper_options opt;
    uint64_t asked; /* the id of what was sent to it last */
    bool used;
    bool killed;
    void (*on_stopped)(void *ctx);
    void *stopped_ctx;
};

static struct {
    uv_loop_t loop;
    struct compiler *compiler;
    struct keeper keepers[KEEPERS_MAX];
    struct ask asks[ASKS_MAX];
    size_t nasks;
    bool refuse; /* the channels take no more */
} w;

static const char *at_, *end_;

static uint8_t next_byte(void) {
    return at_ < end_ ? (uint8_t)*at_++ : 0;
}

static size_t next_bytes(const char **ret, size_t want) {
    size_t n = MIN(want, (size_t)(end_ - at_));
    *ret = at_;
    at_ += n;
    return n;
}

/* --- the processes --- */

struct keeper *keeper_create(uv_loop_t *loop, const struct keeper_options *options) {
    (void)loop;
    struct keeper *k = NULL;
    for (size_t i = 0; i < KEEPERS_MAX && !k; i++)
        if (!w.keepers[i].used)
            k = &w.keepers[i];
    if (!k)
        abort(); /* more processes than there should be */
    *k = (struct keeper){.opt = *options, .used = true};
    return k;
}

struct channel *keeper_channel(struct keeper *k) {
    return (struct channel *)k;
}

struct keeper_info keeper_info(const struct keeper *k) {
    return (struct keeper_info){.name = k->opt.name, .ended = "it ended", .wait_status = -1};
}

void keeper_kill(struct keeper *k) {
    k->killed = true;
}

void keeper_hurry(struct keeper *k) {
    (void)k;
}

void keeper_stop(struct keeper *k, void (*on_stopped)(void *ctx), void *ctx) {
    k->on_stopped = on_stopped;
    k->stopped_ctx = ctx;
}

bool channel_send(struct channel *c, const struct wire_out *out) {
    struct keeper *k = (struct keeper *)c;
    if (k->on_stopped || out->type != COMPILE_REQUEST)
        abort();
    if (!w.refuse)
        k->asked = out->id;
    return !w.refuse;
}

static void end_stopped(void) {
    for (size_t i = 0; i < KEEPERS_MAX; i++) {
        struct keeper k = w.keepers[i];
        if (!k.on_stopped)
            continue;
        w.keepers[i] = (struct keeper){0};
        k.on_stopped(k.stopped_ctx);
    }
}

/* --- who asks --- */

static void on_done(void *ctx, struct program *program, const char *error_json,
                    const struct err *err) {
    struct ask *a = ctx;
    if (a->told || !a->ticket || !program == !err || (program && error_json))
        abort();
    a->told = true;
    a->ticket = NULL;
    program_unref(program);
}

static void step_ask(void) {
    if (w.nasks == ASKS_MAX)
        return;
    static const char *const owners[] = {"", "anna", "bert", NULL};
    struct program *known = NULL;
    struct ask *a = &w.asks[w.nasks++];
    struct compiler_request r = {
        .owner = owners[next_byte() % ARRAY_LEN(owners)], .done = on_done, .ctx = a};
    char large[8192] = {0};
    uint8_t n = next_byte();
    r.source_len = next_bytes(&r.source, n & 15);
    if (n & 16) {
        large[0] = (char)n;
        r.source = large;
        r.source_len = sizeof(large);
    }
    a->ticket = compiler_compile(w.compiler, &r, &known);
    if (!a->ticket != !!known)
        abort();
    program_unref(known);
}

static void step_cancel(void) {
    struct ask *a = &w.asks[next_byte() % ASKS_MAX];
    compiler_cancel(a->ticket);
    a->ticket = NULL;
}

static struct keeper *some_keeper(void) {
    struct keeper *k = &w.keepers[next_byte() % KEEPERS_MAX];
    return k->used && !k->on_stopped ? k : NULL;
}

static void say(struct keeper *k, uint16_t type, uint64_t id) {
    const char *data;
    size_t len = next_bytes(&data, next_byte());
    struct wire_frame f = {.type = type, .id = id, .data = (const uint8_t *)data, .len = len};
    if (k)
        k->opt.on_frame(k->opt.ctx, &f);
}

static void step_ready(void) {
    struct keeper *k = some_keeper();
    say(k, COMPILE_READY, next_byte());
}

static void step_answer(void) {
    static const uint16_t types[] = {COMPILE_PROGRAM, COMPILE_FAILED,  COMPILE_SPENT,
                                     COMPILE_PROGRAM, COMPILE_REQUEST, 0xffff};
    struct keeper *k = some_keeper();
    say(k, types[next_byte() % ARRAY_LEN(types)], k ? k->asked : 0);
}

static void step_lie(void) {
    struct keeper *k = some_keeper();
    uint16_t type = (uint16_t)(COMPILE_READY + next_byte() % 5);
    say(k, type, next_byte());
}

static void step_die(void) {
    struct keeper *k = some_keeper();
    if (k)
        k->opt.on_end(k->opt.ctx);
}

static void step_turn(void) {
    (void)uv_run(&w.loop, UV_RUN_NOWAIT);
    end_stopped();
}

static void step_refuse(void) {
    w.refuse = !w.refuse;
}

static void (*const steps[])(void) = {step_ask, step_ask, step_cancel, step_ready,  step_answer,
                                      step_lie, step_die, step_turn,   step_refuse, step_answer};

static void on_stopped(void *ctx) {
    *(bool *)ctx = true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    at_ = (const char *)data;
    end_ = at_ + size;
    memset(&w, 0, sizeof(w));
    if (uv_loop_init(&w.loop) < 0)
        abort();
    w.compiler = compiler_create(&(struct compiler_options){.loop = &w.loop,
                                                            .cache_bytes = CACHE_BYTES,
                                                            .small_bytes = SMALL_BYTES,
                                                            .small_cpu_ms = 3600000,
                                                            .cpu_ms = 3600000,
                                                            .timeout_ms = 3600000,
                                                            .waiting_bytes = WAITING_BYTES,
                                                            .idle_ms = next_byte() & 1});
    while (at_ < end_)
        steps[next_byte() % ARRAY_LEN(steps)]();
    bool stopped = false;
    compiler_stop(w.compiler, on_stopped, &stopped);
    step_turn();
    step_turn();
    if (!stopped)
        abort();
    compiler_destroy(w.compiler);
    (void)uv_run(&w.loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&w.loop) < 0)
        abort();
    return 0;
}
