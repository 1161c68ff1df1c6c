#include "base/cleanup.h"
#include "base/mem.h"
#include "front/ledger/backend.h"
#include "front/run/workers.h"
#include "unit/unit.h"
#include "wire/isolate.h"
#include "wire/pack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Calls of deployed workers on a ledger that answers late, out of order, twice, or not at all: the
 * real front/run/workers.c and guest.c, between a compiler, a pool and a ledger that are made here.
 */

enum { ASKS = 1024, ISOLATES = 8, WAIT_MS = 150, LONG_MS = 100000, SENT = 16 };

static uv_loop_t loop;
static struct runner runner;
static struct workers *workers;
static struct ledger *ledger;
static struct ledger_worker_watch watch;
static struct fake_ask {
    uint64_t id;
    enum ledger_op op;
    char worker[LEDGER_WORKER_NAME_SIZE];
} asked[ASKS];
static size_t nasked;
static uint64_t version; /* of the list */
static bool inside;      /* a call of ours is on the stack */
static struct err e;

/* --- the ledger --- */

static void fake_ask(void *backend, uint64_t id, const struct ledger_ask *ask) {
    (void)backend;
    assert_true(nasked < ASKS);
    asked[nasked] = (struct fake_ask){.id = id, .op = ask->op};
    (void)snprintf(asked[nasked++].worker, LEDGER_WORKER_NAME_SIZE, "%s", ask->worker_get.id);
}

static void fake_nothing(void *backend) {
    (void)backend;
}

static int fake_watch(void *backend, const struct ledger_worker_watch *w, struct err *err) {
    (void)backend;
    (void)err;
    watch = w ? *w : (struct ledger_worker_watch){0};
    return 0;
}

static const struct ledger_backend fake = {fake_ask, fake_nothing, fake_nothing, fake_watch};

static struct ledger_worker named(const char *id, int64_t v) {
    struct ledger_worker w = {.version = v};
    (void)snprintf(w.owner, sizeof(w.owner), "key_a");
    (void)snprintf(w.id, sizeof(w.id), "%s", id);
    (void)snprintf(w.label, sizeof(w.label), "%s", id);
    return w;
}

/* The list says that it was put. Returns its version. */
static int64_t put(const char *id) {
    struct ledger_worker w = named(id, (int64_t)++version);
    watch.on_change(watch.ctx, &w, false, version);
    return w.version;
}

static void delete_worker(const char *id) {
    struct ledger_worker w = named(id, 0);
    watch.on_change(watch.ctx, &w, true, ++version);
}

static void answer(size_t i, const char *id, int64_t v) {
    struct ledger_worker *k = xmalloc(sizeof(*k));
    *k = named(id, v);
    k->code = xasprintf("{\"code\":\"export default %lld\"}", (long long)v);
    k->code_len = strlen(k->code);
    struct ledger_answer a = {.op = LEDGER_WORKER_GET, .worker_got.worker = k};
    ledger_answered(ledger, asked[i].id, &a);
}

static void answer_err(size_t i, enum err_code code) {
    struct ledger_answer a = {.op = LEDGER_WORKER_GET};
    (void)err_set(&a.err, code, "there is no worker");
    ledger_answered(ledger, asked[i].id, &a);
}

static void turn(void) {
    for (int i = 0; i < 4; i++)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
}

/* --- the compiler: its program is its request --- */

static size_t compiled;
static char source[256]; /* the last */

struct compiler_ticket *compiler_compile(struct compiler *c, const struct compiler_request *request,
                                         struct program **ret_program) {
    (void)c;
    compiled++;
    (void)snprintf(source, sizeof(source), "%.*s", (int)request->source_len, request->source);
    *ret_program = program_create(request->source, request->source_len);
    return NULL;
}

void compiler_cancel(struct compiler_ticket *t) {
    assert_null(t);
}

/* --- the pool --- */

static struct fake_isolate {
    const struct pool_isolate_callbacks *callbacks;
    void *ctx;
    uint64_t sent[SENT]; /* ids of calls */
    size_t nsent;
    bool out;
} isolates[ISOLATES];

static struct fake_isolate *of(struct pool_isolate *i) {
    return (struct fake_isolate *)i;
}

struct pool *runner_reset_pool(struct runner *r) {
    return (struct pool *)r;
}

int pool_take(struct pool *p, const struct pool_want *want, struct pool_isolate **ret_isolate,
              struct pool_ticket **ret_ticket, struct err *err) {
    (void)p, (void)want;
    *ret_ticket = NULL;
    for (size_t i = 0; i < ISOLATES; i++)
        if (!isolates[i].out) {
            isolates[i] = (struct fake_isolate){.out = true};
            *ret_isolate = (struct pool_isolate *)&isolates[i];
            return 0;
        }
    return err_set(err, ERR_RATE, "none is left");
}

void pool_cancel(struct pool_ticket *t) {
    assert_null(t);
}

void pool_isolate_watch(struct pool_isolate *i, const struct pool_isolate_callbacks *callbacks,
                        void *ctx) {
    of(i)->callbacks = callbacks;
    of(i)->ctx = ctx;
}

bool pool_isolate_send(struct pool_isolate *i, const struct wire_out *out) {
    if (out->type == ISOLATE_RUN || out->type == ISOLATE_CALL)
        of(i)->sent[of(i)->nsent++] = out->id;
    return true;
}

void pool_isolate_idle(struct pool_isolate *i) {
    (void)i;
}

int pool_isolate_work(struct pool_isolate *i, const struct pool_want *want,
                      struct pool_ticket **ret_ticket, struct err *err) {
    (void)i, (void)want, (void)err;
    *ret_ticket = NULL;
    return 0;
}

int64_t pool_isolate_cpu_ns(const struct pool_isolate *i) {
    (void)i;
    return 0;
}

int64_t pool_isolate_allow(struct pool_isolate *i, size_t calls) {
    (void)i, (void)calls;
    return 0;
}

void pool_isolate_end(struct pool_isolate *i) {
    (void)i;
}

void pool_isolate_ask(struct pool_isolate *i) {
    (void)i;
}

void pool_isolate_kill(struct pool_isolate *i) {
    (void)i;
}

void pool_isolate_release(struct pool_isolate *i) {
    assert_true(of(i)->out);
    of(i)->out = false;
}

void pool_isolate_rest(struct pool_isolate *i) {
    pool_isolate_release(i);
}

static size_t isolates_out(void) {
    size_t n = 0;
    for (size_t i = 0; i < ISOLATES; i++)
        n += isolates[i].out;
    return n;
}

/* The isolate has done all that it was sent. */
static void finish_calls(struct fake_isolate *i) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, 64);
    for (int k = 0; k < 9; k++)
        pack_u32(&b, 0);
    for (size_t k = 0; k < i->nsent; k++) {
        struct wire_frame f = {
            .type = ISOLATE_DONE, .id = i->sent[k], .data = (uint8_t *)b.data, .len = b.len};
        i->callbacks->on_frame(i->ctx, &f);
    }
    i->nsent = 0;
}

/* --- nobody has a facet --- */

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
    assert_null(op);
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

void env_finish(struct env *env) {
    assert_int_equal(env->n, 0);
}

/* --- who calls --- */

struct caller {
    struct guest_call *call;
    int done;
    enum err_code code;
};

static void on_done(void *ctx, const struct guest_usage *usage, const struct err *err) {
    struct caller *c = ctx;
    (void)usage;
    assert_false(inside); /* never in the stack of who called */
    c->done++;
    c->code = err ? err->code : 0;
}

static int call_for(struct caller *c, const char *label, uint32_t wall_ms) {
    *c = (struct caller){0};
    inside = true;
    int rc = workers_call_label(workers,
                                &(struct workers_fetch){.label = label, .caller = "", .all = true},
                                &(struct guest_request){.spec = "{}",
                                                        .spec_len = 2,
                                                        .wall_ms = wall_ms,
                                                        .callbacks = {.on_done = on_done},
                                                        .ctx = c},
                                &c->call, &e);
    inside = false;
    return rc;
}

static int call(struct caller *c, const char *label) {
    return call_for(c, label, 60000);
}

static int setup(void **state) {
    (void)state;
    nasked = compiled = 0;
    version = 0;
    *source = 0;
    memset(isolates, 0, sizeof(isolates));
    if (uv_loop_init(&loop) != 0)
        return -1;
    runner = (struct runner){.loop = &loop};
    runner.config = (struct runner_config){
        .limits = {.wall_ms = 60000, .cpu_ms = 1000, .module_bytes = 1 << 20, .output_bytes = 4096},
        .warm_workers = 4,
        .warm_idle_ms = 60000,
        .worker_cache_bytes = 4096};
    later_queue_init(&runner.later, &loop);
    ledger = ledger_create(&loop, &fake, NULL);
    ledger_set_wait(ledger, LONG_MS);
    if (workers_create(&(struct workers_options){.runner = &runner,
                                                 .ledger = ledger,
                                                 .data_dir = "/nonexistent"},
                       &workers, &e) < 0)
        return -1;
    watch.on_all(watch.ctx, NULL, 0, ++version);
    return 0;
}

static void stop(void) {
    workers_destroy(workers);
    workers = NULL;
    turn();
    ledger_close(ledger); /* answers what was asked: after the workers are gone */
    later_queue_close(&runner.later, NULL, NULL);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
}

static int teardown(void **state) {
    (void)state;
    if (workers)
        stop();
    return uv_loop_close(&loop) == 0 && isolates_out() == 0 && !watch.ctx ? 0 : -1;
}

static void test_calls_wait_for_the_code_and_it_is_asked_for_once(void **state) {
    (void)state;
    static struct caller c[3];
    assert_int_equal(call(&c[0], "a"), -ERR_NOT_FOUND);
    int64_t v = put("a");
    for (int i = 0; i < 3; i++)
        assert_int_equal(call(&c[i], "a"), 0);
    turn();
    assert_int_equal(nasked, 1);
    assert_int_equal(asked[0].op, LEDGER_WORKER_GET);
    assert_int_equal(compiled, 0);
    answer(0, "a", v);
    assert_int_equal(compiled, 0); /* from the loop */
    turn();
    assert_int_equal(compiled, 1);
    assert_int_equal(isolates[0].nsent, 3);
    answer(0, "a", v); /* twice */
    finish_calls(&isolates[0]);
    turn();
    for (int i = 0; i < 3; i++)
        assert_true(c[i].done == 1 && c[i].code == 0);
    /* Warm: nobody is asked. */
    assert_int_equal(call(&c[0], "a"), 0);
    assert_int_equal(isolates[0].nsent, 1);
    finish_calls(&isolates[0]);
    turn();
    assert_int_equal(c[0].done, 1);
    assert_int_equal(nasked, 1);
    assert_int_equal(compiled, 1);
}

static void test_a_code_that_is_at_hand_is_not_asked_for(void **state) {
    (void)state;
    static struct caller c;
    int64_t v = put("a");
    assert_int_equal(call(&c, "a"), 0);
    guest_call_cancel(c.call); /* the client left */
    turn();
    assert_true(c.done == 1 && c.code == ERR_CANCELLED);
    assert_int_equal(workers_warm(workers), 0);
    answer(0, "a", v); /* late: nobody waits, but somebody may come */
    turn();
    assert_int_equal(compiled, 0);
    assert_int_equal(call(&c, "a"), 0);
    assert_int_equal(nasked, 1);
    assert_int_equal(compiled, 1);
    finish_calls(&isolates[0]);
    turn();
    assert_true(c.done == 1 && c.code == 0);
    /* Of another version it is not. */
    (void)put("a");
    assert_int_equal(call(&c, "a"), 0);
    assert_int_equal(nasked, 2);
    turn();
}

static void test_one_who_left_and_one_who_came_share_an_ask(void **state) {
    (void)state;
    static struct caller gone;
    static struct caller c;
    int64_t v = put("a");
    assert_int_equal(call(&gone, "a"), 0);
    guest_call_cancel(gone.call);
    turn();
    assert_int_equal(call(&c, "a"), 0);
    assert_int_equal(nasked, 1);
    answer(0, "a", v);
    turn();
    finish_calls(&isolates[0]);
    turn();
    assert_true(gone.done == 1 && gone.code == ERR_CANCELLED);
    assert_true(c.done == 1 && c.code == 0);
}

static void test_no_answer_is_503_in_time_and_asked_for_again(void **state) {
    (void)state;
    static struct caller c;
    int64_t v = put("a");
    ledger_set_wait(ledger, WAIT_MS);
    assert_int_equal(call(&c, "a"), 0);
    while (!c.done)
        (void)uv_run(&loop, UV_RUN_ONCE);
    assert_int_equal(c.code, ERR_UNAVAILABLE);
    ledger_set_wait(ledger, LONG_MS);
    assert_int_equal(err_http_status(c.code), 503);
    turn();
    assert_int_equal(workers_warm(workers), 0);
    assert_int_equal(call(&c, "a"), 0);
    assert_int_equal(nasked, 2);
    answer(0, "a", v); /* of the first, given up already */
    turn();
    assert_int_equal(compiled, 0);
    answer(1, "a", v);
    turn();
    assert_int_equal(compiled, 1);
}

static void test_a_call_that_waits_has_its_time_limit(void **state) {
    (void)state;
    static struct caller c;
    (void)put("a");
    assert_int_equal(call_for(&c, "a", 20), 0);
    while (!c.done)
        (void)uv_run(&loop, UV_RUN_ONCE);
    assert_int_equal(c.code, ERR_LIMIT);
    turn();
    assert_int_equal(workers_warm(workers), 0);
}

static void test_put_anew_while_it_is_waited_for_the_new_one_comes(void **state) {
    (void)state;
    static struct caller c;
    int64_t old = put("a");
    assert_int_equal(call(&c, "a"), 0);
    int64_t new = put("a");
    answer(0, "a", old); /* it was done before the put */
    turn();
    assert_int_equal(compiled, 0);
    assert_int_equal(nasked, 2);
    answer_err(1, ERR_NOT_FOUND); /* it was deleted and put once more between: ask again */
    new = put("a");
    turn();
    assert_int_equal(nasked, 3);
    assert_int_equal(c.done, 0);
    answer(2, "a", new);
    turn();
    assert_int_equal(compiled, 1);
    char want[32];
    (void)snprintf(want, sizeof(want), "default %lld", (long long)new);
    assert_non_null(strstr(source, want));
    finish_calls(&isolates[0]);
    turn();
    assert_true(c.done == 1 && c.code == 0);
}

static void test_an_answer_newer_than_the_list_is_used(void **state) {
    (void)state;
    static struct caller c;
    int64_t v = put("a");
    assert_int_equal(call(&c, "a"), 0);
    answer(0, "a", v + 2); /* another server has put it, and that is not told yet */
    turn();
    assert_int_equal(compiled, 1);
    (void)put("b");
    assert_int_equal(put("a"), v + 2);
    turn();
    assert_int_equal(c.done, 0); /* what runs is that one */
    finish_calls(&isolates[0]);
    turn();
    assert_true(c.done == 1 && c.code == 0);
    (void)put("a");
    turn();
    assert_int_equal(workers_warm(workers), 0);
}

static void test_deleted_while_it_is_waited_for_is_404(void **state) {
    (void)state;
    static struct caller c;
    int64_t v = put("a");
    assert_int_equal(call(&c, "a"), 0);
    delete_worker("a");
    assert_int_equal(c.done, 0);
    turn();
    assert_true(c.done == 1 && c.code == ERR_NOT_FOUND);
    assert_int_equal(call(&c, "a"), -ERR_NOT_FOUND);
    answer(0, "a", v);
    turn();
    assert_int_equal(compiled, 0);
    /* Deleted elsewhere, and the list does not say so yet. */
    (void)put("b");
    assert_int_equal(call(&c, "b"), 0);
    answer_err(1, ERR_NOT_FOUND);
    turn();
    assert_true(c.done == 1 && c.code == ERR_NOT_FOUND);
}

static void test_what_was_put_anew_or_deleted_is_not_served_by_what_was_warm(void **state) {
    (void)state;
    static struct caller c;
    for (int i = 0; i < 2; i++) {
        int64_t v = put("a");
        assert_int_equal(call(&c, "a"), 0);
        answer(nasked - 1, "a", v);
        turn();
        assert_int_equal(isolates_out(), 1);
        if (i)
            delete_worker("a");
        else
            (void)put("a");
        turn();
        assert_true(c.done == 1 && c.code == ERR_CANCELLED);
        assert_int_equal(isolates_out(), 0);
    }
    assert_int_equal(compiled, 2);
}

static void test_a_body_may_come_while_its_call_waits(void **state) {
    (void)state;
    static struct caller c;
    static char piece[ISOLATE_BODY_WINDOW / 2];
    int64_t v = put("a");
    assert_int_equal(call(&c, "a"), 0);
    assert_true(guest_call_input(c.call, piece, sizeof(piece), false));
    assert_false(guest_call_input(c.call, piece, sizeof(piece), false)); /* no more, please */
    answer(0, "a", v);
    turn();
    finish_calls(&isolates[0]);
    turn();
    assert_true(c.done == 1 && c.code == 0);
}

static void test_a_code_that_is_none_ends_its_calls(void **state) {
    (void)state;
    static struct caller c;
    (void)put("a");
    assert_int_equal(call(&c, "a"), 0);
    struct ledger_answer a = {.op = LEDGER_WORKER_GET};
    a.worker_got.worker = xmalloc(sizeof(*a.worker_got.worker));
    *a.worker_got.worker = named("a", (int64_t)version);
    a.worker_got.worker->code = xstrdup("{\"code\":");
    ledger_answered(ledger, asked[0].id, &a);
    turn();
    assert_int_equal(c.done, 1);
    assert_int_not_equal(c.code, 0);
    assert_int_equal(workers_warm(workers), 0);
}

/* Of one key, while the ledger is silent: those who leave make no room for more asks. */
static void test_how_many_are_asked_for_is_bounded(void **state) {
    (void)state;
    static struct caller c;
    char id[16];
    size_t refused = 0;
    for (int i = 0; i < 400; i++) {
        (void)snprintf(id, sizeof(id), "w%d", i);
        (void)put(id);
        assert_int_equal(call(&c, id), 0);
        guest_call_cancel(c.call);
        turn();
        assert_int_equal(c.done, 1);
        refused += c.code == ERR_RATE;
    }
    assert_int_equal(nasked, 192); /* three quarters of 256 */
    assert_int_equal(refused, 400 - 192);
    for (size_t i = 0; i < nasked; i++)
        answer_err(i, ERR_UNAVAILABLE);
    turn();
    assert_int_equal(call(&c, "w399"), 0); /* there is room again */
    assert_int_equal(nasked, 193);
}

static void test_the_server_stops_while_calls_wait(void **state) {
    (void)state;
    static struct caller c[2];
    (void)put("a");
    (void)put("b");
    assert_int_equal(call(&c[0], "a"), 0);
    assert_int_equal(call(&c[1], "b"), 0);
    answer(0, "a", 2); /* and one answer is on its way */
    stop();
    for (int i = 0; i < 2; i++)
        assert_true(c[i].done == 1 && c[i].code == ERR_CANCELLED);
    assert_int_equal(compiled, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(test_calls_wait_for_the_code_and_it_is_asked_for_once),
        UNIT(test_a_code_that_is_at_hand_is_not_asked_for),
        UNIT(test_one_who_left_and_one_who_came_share_an_ask),
        UNIT(test_no_answer_is_503_in_time_and_asked_for_again),
        UNIT(test_a_call_that_waits_has_its_time_limit),
        UNIT(test_put_anew_while_it_is_waited_for_the_new_one_comes),
        UNIT(test_an_answer_newer_than_the_list_is_used),
        UNIT(test_deleted_while_it_is_waited_for_is_404),
        UNIT(test_what_was_put_anew_or_deleted_is_not_served_by_what_was_warm),
        UNIT(test_a_body_may_come_while_its_call_waits),
        UNIT(test_a_code_that_is_none_ends_its_calls),
        UNIT(test_how_many_are_asked_for_is_bounded),
        UNIT(test_the_server_stops_while_calls_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
