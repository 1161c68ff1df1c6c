/* What an isolate may send, true or not, in any order, while clients call, cancel and leave: the
 * real front/run/guest.c between a compiler and a pool that are made here. The bytes are steps. A
 * call ends once, nothing is told of it after that, and never more than it asked for. */

#include "base/cleanup.h"
#include "base/mem.h"
#include "front/run/guest.h"
#include "wire/isolate.h"
#include "wire/pack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CALLS_MAX = 16, OUTPUT_BYTES = 4096 };

struct caller {
    struct guest_call *call;
    size_t body;   /* bytes that came and were not passed on */
    size_t output; /* bytes of its console */
    bool done;
};

/* The world around one guest. */
static struct {
    uv_loop_t loop;
    struct runner runner;
    struct guest *guest;
    struct caller callers[CALLS_MAX];
    size_t ncallers;
    bool warm;
    /* The compiler. */
    compiler_done compiled;
    void *compile_ctx;
    bool compile_later;
    /* The pool. */
    const struct pool_isolate_callbacks *watch;
    void *watch_ctx;
    pool_taken taken;
    void *taken_ctx;
    bool take_later;
    bool killed;
    bool isolate_out;
    bool refuse; /* the isolate's channel takes no more */
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

/* --- the compiler --- */

struct compiler_ticket *compiler_compile(struct compiler *c, const struct compiler_request *request,
                                         struct program **ret_program) {
    (void)c;
    *ret_program = w.compile_later ? NULL : program_create("{}", 2);
    w.compiled = w.compile_later ? request->done : NULL;
    w.compile_ctx = request->ctx;
    return w.compile_later ? (struct compiler_ticket *)&w : NULL;
}

void compiler_cancel(struct compiler_ticket *t) {
    if (t)
        w.compiled = NULL;
}

/* --- the pool: one isolate --- */

struct pool *runner_reset_pool(struct runner *r) {
    return (struct pool *)r;
}

static struct pool_isolate *isolate(void) {
    return (struct pool_isolate *)&w.watch;
}

static void wait_for(const struct pool_want *want, struct pool_ticket **ret_ticket) {
    w.taken = want->taken;
    w.taken_ctx = want->ctx;
    *ret_ticket = (struct pool_ticket *)&w.taken;
}

int pool_take(struct pool *p, const struct pool_want *want, struct pool_isolate **ret_isolate,
              struct pool_ticket **ret_ticket, struct err *err) {
    (void)p;
    *ret_isolate = NULL;
    *ret_ticket = NULL;
    if (w.isolate_out)
        return err_set(err, ERR_RATE, "none is left");
    w.isolate_out = !w.take_later;
    if (w.take_later)
        wait_for(want, ret_ticket);
    else
        *ret_isolate = isolate();
    return 0;
}

void pool_cancel(struct pool_ticket *t) {
    if (t)
        w.taken = NULL;
}

void pool_isolate_watch(struct pool_isolate *i, const struct pool_isolate_callbacks *callbacks,
                        void *ctx) {
    (void)i;
    w.watch = callbacks;
    w.watch_ctx = ctx;
}

bool pool_isolate_send(struct pool_isolate *i, const struct wire_out *out) {
    (void)out;
    if (!i || !w.watch)
        abort(); /* to one that it has not, or has given back */
    return !w.refuse;
}

void pool_isolate_idle(struct pool_isolate *i) {
    (void)i;
}

int pool_isolate_work(struct pool_isolate *i, const struct pool_want *want,
                      struct pool_ticket **ret_ticket, struct err *err) {
    (void)i;
    if (w.refuse)
        return err_set(err, ERR_RATE, "too many wait");
    *ret_ticket = NULL;
    if (w.take_later)
        wait_for(want, ret_ticket);
    return 0;
}

int64_t pool_isolate_cpu_ns(const struct pool_isolate *i) {
    (void)i;
    return 1000;
}

int64_t pool_isolate_allow(struct pool_isolate *i, size_t calls) {
    (void)i;
    (void)calls;
    return 0;
}

void pool_isolate_end(struct pool_isolate *i) {
    if (!i)
        abort();
}

void pool_isolate_ask(struct pool_isolate *i) {
    (void)i;
}

void pool_isolate_kill(struct pool_isolate *i) {
    if (!i)
        abort();
    w.killed = true;
}

void pool_isolate_release(struct pool_isolate *i) {
    if (!i || !w.isolate_out)
        abort(); /* twice */
    w.watch = NULL;
    w.isolate_out = false;
}

void pool_isolate_rest(struct pool_isolate *i) {
    pool_isolate_release(i);
}

struct facet_op *facets_grant(struct facets *all, const struct facet_ref *ref,
                              const struct facet_grant *grant, facet_granted done, void *ctx,
                              struct err *err) {
    (void)all, (void)ref, (void)grant, (void)done, (void)ctx;
    (void)err_set(err, ERR_INTERNAL, "there are none");
    return NULL;
}

int facets_grant_now(struct facets *all, const struct facet_ref *ref,
                     const struct facet_grant *grant, uint64_t *ret_life) {
    (void)all, (void)ref, (void)grant, (void)ret_life;
    return -1;
}

void facet_op_cancel(struct facet_op *op) {
    (void)op;
}

uint64_t facet_op_life(const struct facet_op *op) {
    (void)op;
    return 0;
}

bool facets_is_lost(const struct facets *all, uint64_t life) {
    (void)all, (void)life;
    return false;
}

bool facets_is_over(const struct facets *all, uint64_t life) {
    (void)all, (void)life;
    return false;
}

/* --- who calls --- */

static struct caller *living(void *ctx) {
    struct caller *c = ctx;
    if (c->done)
        abort(); /* it was told that it is over */
    return c;
}

static void on_log(void *ctx, int level, double time_ms, const char *text, size_t len) {
    struct caller *c = living(ctx);
    (void)level, (void)time_ms, (void)text;
    c->output += len;
    if (c->output > 2 * OUTPUT_BYTES + 65536)
        abort();
}

static void on_result(void *ctx, const char *json, size_t len) {
    (void)living(ctx);
    if (len > 0 && !json_is_valid(json, len))
        abort();
}

static void on_object(void *ctx, const json_t *j) {
    (void)living(ctx);
    if (!json_is_object(j))
        abort();
}

static void on_body(void *ctx, const char *data, size_t len, bool last) {
    struct caller *c = living(ctx);
    (void)data, (void)last;
    c->body += len;
    if (c->body > ISOLATE_BODY_WINDOW)
        abort();
}

static void on_room(void *ctx) {
    (void)living(ctx);
}

static void on_done(void *ctx, const struct guest_usage *usage, const struct err *err) {
    struct caller *c = living(ctx);
    if (usage->wall_us < 0 || (err && !err->code))
        abort();
    c->done = true;
}

static void on_guest_end(void *ctx) {
    (void)ctx;
    w.guest = NULL;
}

static struct guest_request request_of(struct caller *c) {
    static const char spec[] = "{\"method\":\"run\"}";
    const char *body;
    size_t body_len = next_bytes(&body, next_byte() & 7);
    return (struct guest_request){
        .spec = spec,
        .spec_len = sizeof(spec) - 1,
        .body = body,
        .body_len = body_len,
        .wall_ms = 3600000,
        .callbacks = {on_log, on_result, on_object, on_body, on_room, on_object, on_done},
        .ctx = c};
}

/* --- steps --- */

static struct caller *some_caller(void) {
    struct caller *c = &w.callers[next_byte() % CALLS_MAX];
    return c < w.callers + w.ncallers && !c->done ? c : NULL;
}

static void say(uint16_t type, uint64_t id, const void *data, size_t len) {
    struct wire_frame f = {.type = type, .id = id, .data = data, .len = len};
    if (w.watch)
        w.watch->on_frame(w.watch_ctx, &f);
}

static void step_frame(void) {
    static const uint16_t types[] = {
        ISOLATE_LOG,         ISOLATE_RESULT, ISOLATE_ERROR,  ISOLATE_DONE,  ISOLATE_RESPONSE,
        ISOLATE_RESET_READY, ISOLATE_BODY,   ISOLATE_ENDING, ISOLATE_TAKEN, ISOLATE_RUN,
        ISOLATE_CALL,        0xffff,         ISOLATE_USED};
    const char *data;
    uint16_t type = types[next_byte() % ARRAY_LEN(types)];
    uint64_t id = next_byte();
    size_t len = next_bytes(&data, next_byte());
    say(type, id, data, len);
}

/* More than the fuzzer would write. */
static void step_large(void) {
    static char zeros[ISOLATE_BODY_WINDOW + 2];
    uint16_t type = next_byte() & 1 ? ISOLATE_BODY : ISOLATE_LOG;
    uint64_t id = next_byte();
    say(type, id, zeros, (size_t)next_byte() * (sizeof(zeros) / 255));
}

static void step_done(void) {
    struct buf b;
    buf_init(&b, 64);
    pack_u64(&b, UINT64_MAX);
    pack_u64(&b, next_byte());
    pack_u32(&b, UINT32_MAX);
    pack_u64(&b, 1);
    pack_u64(&b, UINT64_MAX);
    say(ISOLATE_DONE, next_byte(), b.data, b.len);
    buf_finish(&b);
}

static void step_call(void) {
    if (!w.warm || !w.guest || !guest_takes_calls(w.guest) || w.ncallers == CALLS_MAX)
        return;
    struct caller *c = &w.callers[w.ncallers++];
    struct guest_request r = request_of(c);
    c->call = guest_call(w.guest, &r);
}

static void step_cancel(void) {
    struct caller *c = some_caller();
    if (c)
        guest_call_cancel(c->call);
}

static void step_passed(void) {
    struct caller *c = some_caller();
    if (!c)
        return;
    size_t bytes = c->body;
    c->body = 0;
    guest_call_passed(c->call, bytes);
}

static void step_input(void) {
    struct caller *c = some_caller();
    const char *data;
    size_t len = next_bytes(&data, next_byte());
    if (c)
        (void)guest_call_input(c->call, data, len, len & 1);
}

static void step_end(void) {
    struct pool_isolate_end end = {
        .known = next_byte() & 1, .wait_status = next_byte() << 8 | next_byte(), .own_kib = 7};
    if (w.watch)
        w.watch->on_end(w.watch_ctx, &end);
}

static struct guest_spec spec_of(const struct env *env) {
    return (struct guest_spec){.source = "{}",
                               .source_len = 2,
                               .env = env,
                               .limits = {.output_bytes = OUTPUT_BYTES, .cpu_ms = 1000}};
}

/* What it awaits comes, or does not. */
static void load(bool comes) {
    struct env env = {0};
    struct guest_spec spec = spec_of(&env);
    struct err err;
    (void)err_set(&err, ERR_NOT_FOUND, "there is none");
    if (comes)
        guest_load(w.guest, &spec);
    else
        guest_refuse(w.guest, &err);
}

static void step_compiled(void) {
    const char *json;
    struct err err;
    compiler_done done = w.compiled;
    uint8_t how = next_byte();
    w.compiled = NULL;
    if (w.guest && guest_awaits(w.guest))
        load(how & 3);
    if (!done)
        return;
    (void)err_set(&err, ERR_BAD_REQUEST, "the program does not compile");
    size_t len = how & 1 ? next_bytes(&json, next_byte()) : 0;
    char *text = how & 1 ? xstrndup(json, len) : NULL;
    done(w.compile_ctx, how & 2 ? program_create("{}", 2) : NULL, text, &err);
    free(text);
}

static void step_taken(void) {
    pool_taken taken = w.taken;
    struct err err;
    w.taken = NULL;
    if (!taken)
        return;
    (void)err_set(&err, ERR_RATE, "none got free");
    bool has = next_byte() & 1;
    w.isolate_out = w.isolate_out || has;
    taken(w.taken_ctx, has ? isolate() : NULL, &err);
}

static void step_turn(void) {
    (void)uv_run(&w.loop, UV_RUN_NOWAIT);
}

static void step_refuse(void) {
    w.refuse = !w.refuse;
}

static void step_destroy(void) {
    guest_destroy(w.guest);
    w.guest = NULL;
}

static void (*const steps[])(void) = {step_frame, step_frame, step_large,    step_done,
                                      step_call,  step_call,  step_cancel,   step_passed,
                                      step_input, step_end,   step_compiled, step_taken,
                                      step_turn,  step_turn,  step_refuse,   step_destroy};

static void begin(void) {
    uint8_t how = next_byte();
    w.compile_later = how & 1;
    w.take_later = how & 2;
    w.warm = how & 4;
    struct env env = {0};
    struct guest_spec spec = spec_of(&env);
    spec.warm = w.warm;
    spec.domain = how & 8 ? "domain" : NULL;
    struct caller *c = &w.callers[w.ncallers++];
    struct guest_request r = request_of(c);
    w.warm = w.warm || how & 16;
    w.guest =
        (how & 16 ? guest_await : guest_start)(&w.runner, &spec, &r, on_guest_end, NULL, &c->call);
}

static void on_closed(uv_handle_t *h) {
    (void)h;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    at_ = (const char *)data;
    end_ = at_ + size;
    memset(&w, 0, sizeof(w));
    if (uv_loop_init(&w.loop) < 0)
        abort();
    w.runner.loop = &w.loop;
    later_queue_init(&w.runner.later, &w.loop);
    begin();
    while (at_ < end_)
        steps[next_byte() % ARRAY_LEN(steps)]();
    step_turn(); /* one that has ended is told, and gone */
    step_destroy();
    step_turn();
    for (size_t i = 0; i < w.ncallers; i++)
        if (!w.callers[i].done)
            abort(); /* nobody waits for ever */
    if (w.isolate_out)
        abort();
    later_queue_close(&w.runner.later, on_closed, NULL);
    (void)uv_run(&w.loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&w.loop) < 0)
        abort();
    return 0;
}
