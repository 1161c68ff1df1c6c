#include "base/cleanup.h"
#include "base/clock.h"
#include "base/path.h"
#include "front/ledger/ask.h"
#include "front/ledger/backend.h"
#include "front/ledger/db.h"
#include "unit/unit.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* A ledger that does what it is told to do: it answers late, out of order, twice, or not at all. */

enum { ASKS = 8192, WAIT_MS = 200, LONG_MS = 100000 };

static uv_loop_t loop;
static struct ledger *ledger;
static uint64_t asked[ASKS];
static size_t nasked;
static bool at_once; /* inside the ask */
static bool inside;  /* a call of ours is on the stack */
static int closed;

static void answer(uint64_t id, int64_t count) {
    struct ledger_answer a = {.op = LEDGER_TASK_GET};
    a.task_got.task = (struct ledger_task){.type = strdup("run"), .priority = count};
    ledger_answered(ledger, id, &a);
}

static void fake_ask(void *backend, uint64_t id, const struct ledger_ask *ask) {
    (void)backend;
    (void)ask;
    asked[nasked++ % ASKS] = id;
    if (at_once)
        answer(id, (int64_t)id);
}

static void fake_refresh(void *backend) {
    (void)backend;
}

static void fake_close(void *backend) {
    (void)backend;
    closed++;
}

static const struct ledger_backend fake = {fake_ask, fake_refresh, fake_close};

struct got {
    int n;
    enum err_code code;
    int64_t count;
};

static void on_answer(void *ctx, const struct ledger_answer *a) {
    struct got *g = ctx;
    assert_false(inside); /* never in the stack of who asked, or who answered */
    g->n++;
    g->code = a->err.code;
    if (a->err.code)
        return;
    g->count = a->task_got.task.priority;
    assert_string_equal(a->task_got.task.type, "run");
}

static void call(struct got *g) {
    inside = true;
    ledger_call(ledger, &(struct ledger_ask){.op = LEDGER_TASK_GET}, on_answer, g);
    inside = false;
}

static void give(size_t which, int64_t count) {
    inside = true;
    answer(asked[which], count);
    inside = false;
}

static void turn(void) {
    for (int i = 0; i < 3; i++)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
}

static int setup(void **state) {
    (void)state;
    nasked = 0;
    at_once = false;
    closed = 0;
    if (uv_loop_init(&loop) != 0)
        return -1;
    ledger = ledger_create(&loop, &fake, NULL);
    ledger_set_wait(ledger, LONG_MS);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    ledger_close(ledger);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop) == 0 && closed == 1 ? 0 : -1;
}

static void test_an_answer_comes_from_the_loop(void **state) {
    (void)state;
    struct got g = {0};
    at_once = true;
    call(&g);
    assert_int_equal(g.n, 0);
    turn();
    assert_int_equal(g.n, 1);
    assert_int_equal(g.code, 0);
}

static void test_answers_out_of_order_find_who_asked(void **state) {
    (void)state;
    struct got g[3] = {0};
    for (int i = 0; i < 3; i++)
        call(&g[i]);
    give(2, 12);
    give(0, 10);
    give(1, 11);
    turn();
    for (int i = 0; i < 3; i++) {
        assert_int_equal(g[i].n, 1);
        assert_int_equal(g[i].count, 10 + i);
    }
}

static void test_an_answer_that_comes_twice_counts_once(void **state) {
    (void)state;
    struct got g = {0};
    call(&g);
    give(0, 1);
    give(0, 2); /* before it was told */
    turn();
    give(0, 3);       /* and after */
    answer(99999, 4); /* and one that nobody asked for */
    turn();
    assert_int_equal(g.n, 1);
    assert_int_equal(g.count, 1);
}

static void test_no_answer_is_an_answer_in_time_and_a_late_one_is_dropped(void **state) {
    (void)state;
    struct got g = {0};
    ledger_set_wait(ledger, WAIT_MS);
    int64_t begun = clock_mono_ms();
    call(&g);
    while (g.n == 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
    assert_int_equal(g.code, ERR_UNAVAILABLE);
    assert_int_equal(err_http_status(g.code), 503);
    assert_true(clock_mono_ms() - begun >= WAIT_MS);
    give(0, 1);
    turn();
    assert_int_equal(g.n, 1);
}

static void test_how_many_wait_is_bounded(void **state) {
    (void)state;
    struct got g = {0};
    struct got last = {0};
    for (int i = 0; i < LEDGER_ASKS_MAX; i++)
        call(&g);
    call(&last);
    turn();
    assert_int_equal(nasked, LEDGER_ASKS_MAX); /* the last was not passed on */
    assert_int_equal(last.code, ERR_UNAVAILABLE);
    assert_int_equal(g.n, 0);
    give(0, 1);
    turn();
    call(&last); /* there is room again */
    turn();
    assert_int_equal(nasked, LEDGER_ASKS_MAX + 1);
    assert_int_equal(last.n, 1);
    ledger_close(ledger); /* who waits is told */
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(g.n, LEDGER_ASKS_MAX);
    assert_int_equal(last.n, 2);
    assert_int_equal(last.code, ERR_CANCELLED);
    closed = 0;
    ledger = ledger_create(&loop, &fake, NULL); /* for teardown */
}

/* --- what the SQLite one does, where the desk does not come --- */

static int64_t now;
static int64_t now_ms(void) {
    return now;
}

static struct ledger_db *db;

static void ask(const struct ledger_ask *a, struct ledger_answer *ret) {
    ledger_db_do(db, a, ret);
}

static enum err_code submit(const char *id, const char *owner, const char *idem, const char *hash,
                            size_t most) {
    struct ledger_answer a;
    ask(&(struct ledger_ask){.op = LEDGER_TASK_SUBMIT,
                             .task_submit = {.id = id,
                                             .owner = owner,
                                             .type = "run",
                                             .body = "{}",
                                             .idem = idem,
                                             .idem_hash = hash,
                                             .max_attempts = 1,
                                             .waiting_max = most}},
        &a);
    enum err_code code = a.err.code;
    ledger_answer_finish(&a);
    return code;
}

static size_t count_of(const char *owner, enum task_state state, size_t limit) {
    struct ledger_answer a;
    ask(&(struct ledger_ask){.op = LEDGER_TASK_LIST,
                             .task_list = {.owner = owner, .state = state, .limit = limit}},
        &a);
    size_t n = a.task_listed.n;
    ledger_answer_finish(&a);
    return n;
}

static void finish(const char *id, int64_t attempt) {
    struct ledger_answer a;
    ask(&(struct ledger_ask){.op = LEDGER_TASK_END,
                             .task_end = {.id = id, .attempt = attempt, .state = TASK_DONE}},
        &a);
    assert_int_equal(a.err.code, 0);
    ledger_answer_finish(&a);
}

static void test_tasks_in_sqlite(void **state) {
    (void)state;
    struct err e;
    struct ledger_answer a;
    now = 1000000;
    assert_int_equal(ledger_db_memory(now_ms, &db, &e), 0);
    /* keys of idempotency are of one owner */
    assert_int_equal(submit("task_1", "a", "k", "h1", 3), 0);
    assert_int_equal(submit("task_2", "a", "k", "h1", 3), 0);
    assert_int_equal(submit("task_3", "a", "k", "h2", 3), ERR_CONFLICT);
    assert_int_equal(submit("task_4", "b", "k", "h2", 3), 0);
    assert_int_equal(count_of(NULL, TASK_STATES, 10), 2);
    assert_int_equal(count_of("a", TASK_QUEUED, 10), 1);
    assert_int_equal(count_of("b", TASK_DONE, 10), 0);
    /* so many may wait */
    assert_int_equal(submit("task_5", "a", NULL, NULL, 3), 0);
    assert_int_equal(submit("task_6", "a", NULL, NULL, 3), 0);
    assert_int_equal(submit("task_7", "a", NULL, NULL, 3), ERR_RATE);
    /* keys take turns, and a claim needs an epoch */
    struct ledger_ask claim = {.op = LEDGER_TASK_CLAIM,
                               .task_claim = {.node = "n", .epoch = 1, .limit = 3, .per_key = 8}};
    ask(&claim, &a);
    assert_int_equal(a.err.code, ERR_CONFLICT);
    ledger_answer_finish(&a);
    ask(&(struct ledger_ask){.op = LEDGER_NODE_BEGIN, .node_begin.node = "n"}, &a);
    assert_int_equal(a.node_begun.epoch, 1);
    assert_true(a.node_begun.begun);
    ledger_answer_finish(&a);
    ask(&claim, &a);
    assert_int_equal(a.task_claimed.n, 3);
    assert_string_equal(a.task_claimed.tasks[0].owner, "a");
    assert_string_equal(a.task_claimed.tasks[1].owner, "b");
    assert_string_equal(a.task_claimed.tasks[2].owner, "a");
    assert_string_equal(a.task_claimed.tasks[0].body, "{}");
    ledger_answer_finish(&a);
    finish("task_1", 1);
    finish("task_4", 1);
    finish("task_1", 1); /* again: the answer was lost */
    /* a lease that is over, of one that may be tried once */
    now += LEDGER_LEASE_MS;
    ask(&(struct ledger_ask){.op = LEDGER_TASK_REAP, .task_reap.limit = 10}, &a);
    assert_int_equal(a.task_reaped.lapsed, 1);
    ledger_answer_finish(&a);
    assert_int_equal(count_of("a", TASK_INTERRUPTED, 10), 1);
    /* and what is old goes, with all that hangs on it */
    now += 100000;
    ask(&(struct ledger_ask){.op = LEDGER_TASK_REAP, .task_reap = {.limit = 10, .keep_ms = 99999}},
        &a);
    ledger_answer_finish(&a);
    assert_int_equal(count_of(NULL, TASK_STATES, 10), 1);
    assert_int_equal(submit("task_8", "a", "k", "h3", 3), 0); /* its key is free again */
    ledger_db_close(db);
}

/* --- how much of it tasks take --- */

static enum err_code submit_big(const char *id, const char *owner, size_t bytes, int64_t most) {
    struct ledger_answer a;
    _cleanup_(free) char *body = calloc(1, bytes + 1);
    memset(body, ' ', bytes);
    ask(&(struct ledger_ask){.op = LEDGER_TASK_SUBMIT,
                             .task_submit = {.id = id,
                                             .owner = owner,
                                             .type = "run",
                                             .body = body,
                                             .timeout_ms = 1000,
                                             .max_attempts = 1,
                                             .waiting_max = 100,
                                             .bytes_max = most}},
        &a);
    enum err_code code = a.err.code;
    ledger_answer_finish(&a);
    return code;
}

/* Claims one, and ends it with a result of so many bytes. */
static void end_one(size_t bytes) {
    struct ledger_answer a;
    ask(&(struct ledger_ask){.op = LEDGER_TASK_CLAIM,
                             .task_claim = {.node = "n", .epoch = 1, .limit = 1, .per_key = 8}},
        &a);
    assert_int_equal(a.task_claimed.n, 1);
    char id[ID_SIZE];
    memcpy(id, a.task_claimed.tasks[0].id, sizeof(id));
    ledger_answer_finish(&a);
    _cleanup_(free) char *result = calloc(1, bytes + 1);
    memset(result, '1', bytes);
    ask(
        &(struct ledger_ask){
            .op = LEDGER_TASK_END,
            .task_end = {.id = id, .attempt = 1, .state = TASK_DONE, .result = result}},
        &a);
    assert_int_equal(a.err.code, 0);
    ledger_answer_finish(&a);
}

static bool has_result(const char *id) {
    struct ledger_answer a;
    ask(&(struct ledger_ask){.op = LEDGER_TASK_GET, .task_get.id = id}, &a);
    assert_int_equal(a.err.code, 0); /* the task itself stays */
    bool has = a.task_got.task.result != NULL;
    ledger_answer_finish(&a);
    return has;
}

static bool reap(int64_t keep_tasks, int64_t keep_bytes) {
    struct ledger_answer a;
    ask(
        &(struct ledger_ask){
            .op = LEDGER_TASK_REAP,
            .task_reap = {.limit = 1, .keep_tasks = keep_tasks, .keep_bytes = keep_bytes}},
        &a);
    assert_int_equal(a.err.code, 0);
    bool more = a.task_reaped.more;
    ledger_answer_finish(&a);
    return more;
}

static void test_what_tasks_take_is_bounded(void **state) {
    (void)state;
    struct ledger_answer a;
    struct err err;
    now = 1800000000000;
    assert_int_equal(ledger_db_memory(now_ms, &db, &err), 0);
    ask(&(struct ledger_ask){.op = LEDGER_NODE_BEGIN, .node_begin.node = "n"}, &a);
    ledger_answer_finish(&a);
    assert_int_equal(submit_big("task_1", "a", 600, 1000), 0);
    assert_int_equal(submit_big("task_2", "a", 401, 1000), ERR_RATE);
    assert_int_equal(submit_big("task_2", "b", 401, 1000), 0);
    assert_int_equal(submit_big("task_3", "a", 400, 1000), 0);
    end_one(10);                                               /* 1 */
    end_one(10);                                               /* 2 */
    assert_int_equal(submit_big("task_4", "a", 600, 1000), 0); /* there is room again */
    assert_int_equal(submit_big("task_5", "a", 1, 1000), ERR_RATE);
    end_one(10); /* 3 */
    end_one(10); /* 4 */
    /* The oldest of who has the most. */
    assert_false(reap(0, 25));
    assert_false(has_result("task_1"));
    assert_false(has_result("task_3"));
    assert_true(has_result("task_2") && has_result("task_4"));
    assert_false(reap(0, 20));
    assert_true(has_result("task_2") && has_result("task_4"));
    assert_false(reap(2, 0));
    assert_int_equal(count_of("a", TASK_STATES, 10), 1);
    assert_int_equal(count_of("b", TASK_STATES, 10), 1);
    assert_true(has_result("task_4"));
    /* What is much goes in steps. */
    for (int i = 0; i < 50; i++) {
        char id[16];
        (void)snprintf(id, sizeof(id), "task_x%02d", i);
        assert_int_equal(submit_big(id, "c", 5, 1000), 0);
        end_one(5);
    }
    int steps = 1;
    while (reap(0, 45))
        steps++;
    assert_int_equal(steps, 3);
    assert_true(has_result("task_2") && has_result("task_x49"));
    ledger_db_close(db);
}

/* --- copies --- */

/* What was asked is gone when the ledger comes to it: the copy has all of it. */
static void test_a_copy_outlives_what_was_asked(void **state) {
    (void)state;
    char text[] = "text";
    char *own = strdup("body");
    const char *id = text;
    struct ledger_used used = {.id = "hold_1", .kind = text};
    struct ledger_key key = {.id = "key_1", .name = text, .scope = text};
    struct ledger_worker worker = {.id = "w", .code = text};
    struct ledger_lease lease = {.task = "task_1", .attempt = 3};
    const struct ledger_ask asks[] = {
        {.op = LEDGER_TASK_SUBMIT, .task_submit = {.id = text, .secret = text, .own_body = &own}},
        {.op = LEDGER_TASK_RENEW, .task_renew = {.node = text, .leases = &lease, .n = 1}},
        {.op = LEDGER_TASK_END, .task_end = {.id = text, .result = text}},
        {.op = LEDGER_RESERVE_RENEW, .reserve_renew = {.ids = &id, .n = 1}},
        {.op = LEDGER_SETTLE, .settle = {.node = text, .used = &used, .n = 1}},
        {.op = LEDGER_KEY_ADD, .key_add = {.key = &key}},
        {.op = LEDGER_WORKER_PUT, .worker_put = {.worker = &worker}},
    };
    struct ledger_ask_copy c[ARRAY_LEN(asks)];
    for (size_t i = 0; i < ARRAY_LEN(asks); i++)
        ledger_ask_copy(&asks[i], &c[i]);
    assert_null(own); /* it was taken */
    memset(text, '-', sizeof(text) - 1);
    id = NULL;
    lease = (struct ledger_lease){0};
    used = (struct ledger_used){0};
    key = (struct ledger_key){0};
    worker = (struct ledger_worker){0};
    assert_string_equal(c[0].ask.task_submit.id, "text");
    assert_string_equal(c[0].ask.task_submit.secret, "text");
    assert_string_equal(c[0].ask.task_submit.body, "body");
    assert_null(c[0].ask.task_submit.title);
    assert_string_equal(c[1].ask.task_renew.node, "text");
    assert_int_equal(c[1].ask.task_renew.leases[0].attempt, 3);
    assert_string_equal(c[2].ask.task_end.result, "text");
    assert_string_equal(c[3].ask.reserve_renew.ids[0], "text");
    assert_string_equal(c[4].ask.settle.node, "text");
    assert_string_equal(c[4].ask.settle.used[0].kind, "text");
    assert_string_equal(c[4].ask.settle.used[0].id, "hold_1");
    assert_string_equal(c[5].ask.key_add.key->scope, "text");
    assert_null(c[5].ask.key_add.key->grants);
    assert_string_equal(c[6].ask.worker_put.worker->code, "text");
    assert_string_equal(c[6].ask.worker_put.worker->id, "w");
    for (size_t i = 0; i < ARRAY_LEN(asks); i++)
        ledger_ask_copy_finish(&c[i]);
}

/* The first start on a full disk: its file must not be taken for a ledger that was lost. */
static void test_a_ledger_that_cannot_be_made_leaves_no_empty_file(void **state) {
    (void)state;
    char dir[] = "/tmp/cay-ledger-XXXXXX";
    struct ledger_db *none = NULL;
    struct err err;
    struct rlimit was;
    assert_non_null(mkdtemp(dir));
    _cleanup_(free) char *path = path_join(dir, "ledger.db");
    _cleanup_(free) char *store = path_join(dir, "cay.db");
    FILE *f = fopen(store, "w"); /* the folder has been in use */
    assert_non_null(f);
    assert_true(fputs("x", f) >= 0 && fclose(f) == 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, was.rlim_max}), 0);
    assert_int_equal(ledger_db_open(dir, &none, &err), -ERR_FULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    (void)signal(SIGXFSZ, before);
    assert_int_equal(faccessat(AT_FDCWD, path, F_OK, 0), -1);
    f = fopen(path, "w"); /* one that was lost is left alone, and refused */
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(ledger_db_open(dir, &none, &err), -ERR_IO);
    assert_non_null(strstr(err.message, "is empty"));
    assert_int_equal(unlink(path) | unlink(store) | rmdir(dir), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(test_an_answer_comes_from_the_loop),
        UNIT(test_answers_out_of_order_find_who_asked),
        UNIT(test_an_answer_that_comes_twice_counts_once),
        UNIT(test_no_answer_is_an_answer_in_time_and_a_late_one_is_dropped),
        UNIT(test_how_many_wait_is_bounded),
        PLAIN(test_tasks_in_sqlite),
        PLAIN(test_what_tasks_take_is_bounded),
        PLAIN(test_a_copy_outlives_what_was_asked),
        PLAIN(test_a_ledger_that_cannot_be_made_leaves_no_empty_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
