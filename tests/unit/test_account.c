#include "base/cleanup.h"
#include "base/clock.h"
#include "base/mem.h"
#include "front/account/account.h"
#include "front/ledger/backend.h"
#include "unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Accounts on a ledger that answers late, out of order, twice, or not at all. */

enum { ASKS = 256, SPENDS = 64, WAIT_MS = 100, LONG_MS = 100000 };

static uv_loop_t loop;
static struct ledger *ledger;
static struct keyring *keys;
static struct accounts *accounts;
static struct fake_ask {
    uint64_t id;
    enum ledger_op op;
    struct ledger_used used; /* the first; of a reservation its id and owner */
    struct ledger_reserve reserve;
    size_t n;
    struct ledger_used all[SPENDS];
} asked[ASKS];
static size_t nasked;

static void fake_ask(void *backend, uint64_t id, const struct ledger_ask *ask) {
    (void)backend;
    assert_true(nasked < ASKS);
    struct fake_ask *a = &asked[nasked++];
    *a = (struct fake_ask){.id = id, .op = ask->op, .n = 1};
    if (ask->op == LEDGER_SETTLE) {
        a->n = ask->settle.n;
        assert_true(a->n <= SPENDS);
        memcpy(a->all, ask->settle.used, a->n * sizeof(a->all[0]));
        a->used = a->all[0];
    } else if (ask->op == LEDGER_RESERVE) {
        a->reserve = ask->reserve;
        (void)snprintf(a->used.id, sizeof(a->used.id), "%s", ask->reserve.id);
        (void)snprintf(a->used.owner, sizeof(a->used.owner), "%s", ask->reserve.owner);
    } else {
        a->n = ask->reserve_renew.n;
        (void)snprintf(a->used.id, sizeof(a->used.id), "%s", ask->reserve_renew.ids[0]);
    }
}

static void fake_nothing(void *backend) {
    (void)backend;
}

static const struct ledger_backend fake = {fake_ask, fake_nothing, fake_nothing};

static void answer(size_t i, enum err_code code, int64_t nusd, int64_t tokens) {
    struct ledger_answer a = {.op = asked[i].op};
    if (asked[i].op == LEDGER_RESERVE && !code)
        a.reserved = (struct ledger_reserved){.tokens = tokens, .nusd = nusd};
    if (code)
        (void)err_set(&a.err, code, "no");
    ledger_answered(ledger, asked[i].id, &a);
}

static void turn(void) {
    for (int i = 0; i < 3; i++)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
}

static void count_job(const char *owner, const char *kind, bool done, int64_t wall_ms) {
    account_count_job(
        accounts,
        &(struct job_ended){
            .owner = owner, .key = owner, .kind = kind, .done = done, .wall_ms = wall_ms});
}

static struct ledger_key make_key(const char *id, int64_t nusd_per_day) {
    struct ledger_key k = {
        .name = xstrdup("k"), .scope = xstrdup("run"), .limits = {.nusd_per_day = nusd_per_day}};
    (void)snprintf(k.id, sizeof(k.id), "%s", id);
    return k;
}

static void tell_keys(int64_t free_nusd, uint64_t version) {
    struct ledger_watch w = keyring_watch(keys);
    struct ledger_key *list = xcalloc(2, sizeof(*list));
    list[0] = make_key("key_free", free_nusd);
    list[1] = make_key("key_held", 1000000);
    w.on_keys(w.ctx, list, 2, version);
}

static int setup(void **state) {
    (void)state;
    nasked = 0;
    if (uv_loop_init(&loop) != 0)
        return -1;
    keys = keyring_create(clock_mono_ms, clock_wall_ms);
    tell_keys(0, 1);
    ledger = ledger_create(&loop, &fake, NULL);
    ledger_set_wait(ledger, LONG_MS);
    accounts = accounts_create(&(struct accounts_options){
        .loop = &loop, .ledger = ledger, .keys = keys, .dearest = {.output = 7, .known = true}});
    return 0;
}

static int teardown(void **state) {
    (void)state;
    accounts_close(accounts);
    ledger_close(ledger);
    accounts_destroy(accounts);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    keyring_destroy(keys);
    return uv_loop_close(&loop) == 0 ? 0 : -1;
}

struct got {
    int n;
    enum err_code code;
    struct account_grant grant;
};

static void on_held(void *ctx, const struct account_grant *grant, const struct err *err) {
    struct got *g = ctx;
    g->n++;
    g->code = err ? err->code : 0;
    if (grant)
        g->grant = *grant;
}

static const struct model_info model = {.price = {.input = 1, .output = 10, .known = true}};
static const struct model_info unpriced = {.id = "x"};

static struct account_hold *hold(const char *owner, const struct model_info *m, struct got *g) {
    struct account_hold *h = account_hold_call(accounts,
                                               &(struct account_call){.owner = owner,
                                                                      .key = owner,
                                                                      .kind = "sdk",
                                                                      .model = m,
                                                                      .input_bytes = 1000,
                                                                      .max_tokens = 400},
                                               on_held, g);
    assert_int_equal(g->n, 0);
    return h;
}

static const struct model_usage used = {.input_tokens = 3, .output_tokens = 4};

static void test_a_key_without_limits_has_nothing_set_aside(void **state) {
    (void)state;
    struct got g = {0};
    struct account_hold *h = hold("key_free", &model, &g);
    turn();
    assert_int_equal(g.n, 1);
    assert_int_equal(g.grant.max_tokens, 0);
    account_settle(h, &used);
    assert_int_equal(nasked, 0);
    while (nasked == 0) /* within a second */
        (void)uv_run(&loop, UV_RUN_ONCE);
    assert_int_equal(asked[0].op, LEDGER_SETTLE);
    assert_int_equal(asked[0].used.cost_nusd, 43);
    answer(0, 0, 0, 0);
    turn();
}

/* The loop does not turn, so that no second is over. */
static void use(const char *owner) {
    struct got g = {0};
    account_settle(hold(owner, &model, &g), &used);
}

static void test_what_waits_is_told_together_to_who_asks(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++)
        use("key_free");
    use("");
    count_job("key_free", "sdk", true, 9);
    assert_int_equal(nasked, 0);
    accounts_tell(accounts);
    assert_int_equal(nasked, 1);
    assert_int_equal(asked[0].op, LEDGER_SETTLE);
    assert_int_equal(asked[0].n, 2);
    const struct ledger_used *s = asked[0].all;
    assert_string_equal(s[0].owner, "key_free");
    assert_string_equal(s[0].kind, "sdk");
    assert_int_equal(s[0].input_tokens, 9);
    assert_int_equal(s[0].output_tokens, 12);
    assert_int_equal(s[0].charged_nusd, 3 * 43);
    assert_int_equal(s[0].jobs, 1);
    assert_string_equal(s[1].owner, "");
    assert_int_equal(s[1].charged_nusd, 43);
    use("key_free"); /* while the ledger is asked: another row, after that one */
    accounts_tell(accounts);
    assert_int_equal(nasked, 2);
    assert_string_not_equal(asked[1].used.id, asked[0].used.id);
    assert_int_equal(asked[1].used.charged_nusd, 43);
    accounts_tell(accounts); /* nothing is told twice while it may be heard */
    assert_int_equal(nasked, 2);
    answer(1, 0, 0, 0);
    answer(0, 0, 0, 0);
    turn();
    accounts_tell(accounts);
    assert_int_equal(nasked, 2);
}

static void test_what_was_not_heard_is_told_again_as_it_was(void **state) {
    (void)state;
    use("key_free");
    accounts_tell(accounts);
    answer(0, ERR_UNAVAILABLE, 0, 0);
    turn();
    use("key_free");
    while (nasked < 2)
        (void)uv_run(&loop, UV_RUN_ONCE);
    assert_int_equal(nasked, 2); /* what is new waits for it */
    assert_string_equal(asked[1].used.id, asked[0].used.id);
    assert_int_equal(asked[1].used.charged_nusd, 43);
    answer(1, 0, 0, 0);
    while (nasked < 3)
        (void)uv_run(&loop, UV_RUN_ONCE);
    assert_string_not_equal(asked[2].used.id, asked[0].used.id);
    assert_int_equal(asked[2].used.charged_nusd, 43);
    answer(2, 0, 0, 0);
    turn();
}

/* What was charged by asks from the first to this one, each row once. */
static int64_t charged_until(size_t end) {
    int64_t nusd = 0;
    for (size_t i = 0; i < end; i++) {
        bool again = false;
        for (size_t k = 0; k < i; k++)
            again = again || strcmp(asked[k].used.id, asked[i].used.id) == 0;
        if (asked[i].op == LEDGER_SETTLE && !again)
            nusd += asked[i].used.charged_nusd;
    }
    return nusd;
}

/* The ledger does asks in their order: so what waits counts for the limit. */
static void test_a_limit_that_comes_meanwhile_counts_what_waits(void **state) {
    (void)state;
    struct got g[3] = {0};
    use("key_free");
    accounts_tell(accounts);
    answer(0, ERR_UNAVAILABLE, 0, 0);
    turn();
    struct account_hold *free_one = hold("key_free", &model, &g[0]);
    tell_keys(1000000, 2);
    struct account_hold *first = hold("key_free", &model, &g[1]);
    assert_int_equal(asked[nasked - 1].op, LEDGER_RESERVE);
    assert_int_equal(charged_until(nasked - 1), 43);
    assert_string_equal(asked[1].used.id, asked[0].used.id); /* it was not heard */
    account_settle(free_one, &used);                         /* it began without limits */
    struct account_hold *second = hold("key_free", &model, &g[2]);
    assert_int_equal(asked[nasked - 1].op, LEDGER_RESERVE);
    assert_int_equal(charged_until(nasked - 1), 2 * 43);
    account_settle(first, NULL);
    account_settle(second, NULL);
    for (size_t i = 1; i < nasked; i++)
        answer(i, 0, 100000, 0);
    turn();
}

static void test_others_do_not_tell_what_waits(void **state) {
    (void)state;
    struct got g = {0};
    use("key_free");
    struct account_hold *h = hold("key_held", &model, &g);
    assert_int_equal(nasked, 1);
    assert_int_equal(asked[0].op, LEDGER_RESERVE);
    answer(0, 0, 100000, 0);
    turn();
    account_settle(h, &used); /* of a key with limits: at once */
    assert_string_equal(asked[nasked - 1].used.id, asked[0].used.id);
    accounts_tell(accounts);
    for (size_t i = 1; i < nasked; i++)
        answer(i, 0, 0, 0);
    turn();
}

static void test_a_server_that_stops_tells_what_waits(void **state) {
    (void)state;
    use("key_free");
    accounts_close(accounts);
    assert_int_equal(nasked, 1);
    answer(0, 0, 0, 0);
    turn();
}

static void test_the_worst_is_set_aside_and_what_was_used_is_settled(void **state) {
    (void)state;
    struct got g = {0};
    struct account_hold *h = hold("key_held", &model, &g);
    assert_int_equal(nasked, 1);
    assert_int_equal(asked[0].op, LEDGER_RESERVE);
    int64_t input = 1000 / 2 + 64;
    assert_int_equal(asked[0].reserve.nusd, input + 400 * 10);
    assert_int_equal(asked[0].reserve.nusd_least, input + 256 * 10);
    answer(0, 0, input + 300 * 10, 0);
    answer(0, 0, 1, 0); /* twice: the first counts */
    turn();
    assert_int_equal(g.n, 1);
    assert_int_equal(g.grant.max_tokens, 300);
    struct model_usage more = {.output_tokens = 400};
    assert_false(account_is_exceeded(h, &used));
    assert_true(account_is_exceeded(h, &more));
    account_settle(h, &used);
    assert_string_equal(asked[1].used.id, asked[0].used.id);
    assert_int_equal(asked[1].used.charged_nusd, 43);
    answer(1, 0, 0, 0);
    turn();
    assert_int_equal(g.n, 1);
}

static void test_a_price_that_is_not_known_is_the_dearest(void **state) {
    (void)state;
    struct got g = {0};
    struct account_hold *h = hold("key_held", &unpriced, &g);
    answer(0, 0, 10000, 0);
    turn();
    account_settle(h, &used);
    assert_int_equal(asked[1].used.cost_nusd, 0);
    assert_int_equal(asked[1].used.charged_nusd, 4 * 7);
    answer(1, 0, 0, 0);
    turn();
}

static void test_who_leaves_before_the_answer_gives_it_back(void **state) {
    (void)state;
    for (int late = 0; late < 2; late++) {
        struct got g = {0};
        size_t first = nasked;
        account_settle(hold("key_held", &model, &g), NULL);
        assert_int_equal(nasked, first + 2);
        assert_int_equal(asked[first + 1].op, LEDGER_SETTLE);
        assert_int_equal(asked[first + 1].used.charged_nusd, 0);
        answer(late ? first + 1 : first, 0, 5000, 0); /* in either order */
        turn();
        answer(late ? first : first + 1, 0, 5000, 0);
        turn();
        assert_int_equal(g.n, 0);
    }
}

static void test_a_refusal_is_told_and_given_back(void **state) {
    (void)state;
    struct got g = {0};
    (void)hold("key_held", &model, &g);
    answer(0, ERR_QUOTA, 0, 0);
    turn();
    assert_int_equal(g.n, 1);
    assert_int_equal(g.code, ERR_QUOTA);
    assert_int_equal(asked[1].op, LEDGER_SETTLE);
    answer(1, 0, 0, 0);
    turn();
}

/* It may have been done: so it is settled, and that is said until it is heard. */
static void test_a_key_that_was_revoked_spends_nothing(void **state) {
    (void)state;
    struct got g = {0};
    (void)hold("key_gone", &model, &g);
    turn();
    assert_int_equal(g.n, 1);
    assert_int_equal(g.code, ERR_FORBIDDEN);
    struct got left = {0};
    account_settle(hold("key_gone", &model, &left), NULL);
    turn();
    assert_int_equal(left.n, 0);
    assert_int_equal(nasked, 0);
}

static void test_no_answer_is_a_refusal_and_is_told_again(void **state) {
    (void)state;
    struct got g = {0};
    ledger_set_wait(ledger, WAIT_MS);
    (void)hold("key_held", &model, &g);
    while (g.n == 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
    assert_int_equal(g.code, ERR_UNAVAILABLE);
    while (nasked < 4) /* settled, and not heard, twice */
        (void)uv_run(&loop, UV_RUN_ONCE);
    for (size_t i = 1; i < 4; i++) {
        assert_int_equal(asked[i].op, LEDGER_SETTLE);
        assert_string_equal(asked[i].used.id, asked[0].used.id);
    }
    answer(3, 0, 0, 0);
    turn();
    assert_int_equal(g.n, 1);
}

static void test_jobs_are_counted_together(void **state) {
    (void)state;
    for (int i = 0; i < 10; i++)
        count_job("key_free", "run", i % 2, 5);
    count_job("", "run", true, 1);
    while (nasked < 1)
        (void)uv_run(&loop, UV_RUN_ONCE);
    assert_int_equal(asked[0].n, 2);
    assert_int_equal(asked[0].all[0].jobs, 10);
    assert_int_equal(asked[0].all[0].done, 5);
    assert_int_equal(asked[0].all[0].wall_ms, 50);
    assert_int_equal(asked[0].all[1].jobs, 1);
    answer(0, 0, 0, 0);
    turn();
    for (int i = 0; i < 65; i++) { /* one more than there is room for */
        char owner[ID_SIZE];
        (void)snprintf(owner, sizeof(owner), "key_%d", i);
        count_job(owner, "run", true, 1);
    }
    assert_int_equal(nasked, 2);
    assert_int_equal(asked[1].n, 64);
    accounts_tell(accounts);
    answer(1, 0, 0, 0);
    answer(2, 0, 0, 0);
    turn();
}

/* However long the ledger is away, and whoever asks meanwhile what was used. */
static void test_what_waits_for_a_ledger_that_is_away_does_not_grow(void **state) {
    (void)state;
    enum { OWNERS = 100, ROUNDS = 50 };
    for (int i = 0; i < OWNERS * ROUNDS; i++) {
        char owner[ID_SIZE];
        (void)snprintf(owner, sizeof(owner), "key_%d", i % OWNERS);
        count_job(owner, "run", true, 1);
        if (i % 7 == 0)
            accounts_tell(accounts);
        for (size_t told = 0; told < nasked; told++)
            answer(told, ERR_UNAVAILABLE, 0, 0);
        nasked = 0;
        turn();
    }
    int64_t jobs = 0;
    for (size_t told = 0; jobs < (int64_t)OWNERS * ROUNDS; told++) {
        while (nasked <= told) {
            accounts_tell(accounts);
            turn();
        }
        for (size_t i = 0; i < asked[told].n; i++)
            jobs += asked[told].all[i].jobs;
        answer(told, 0, 0, 0);
        turn();
    }
    assert_int_equal(jobs, OWNERS * ROUNDS); /* and none is counted twice */
    assert_true(nasked <= 20);
}

#define ACCOUNT_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        ACCOUNT_TEST(test_a_key_without_limits_has_nothing_set_aside),
        ACCOUNT_TEST(test_what_waits_is_told_together_to_who_asks),
        ACCOUNT_TEST(test_what_was_not_heard_is_told_again_as_it_was),
        ACCOUNT_TEST(test_a_limit_that_comes_meanwhile_counts_what_waits),
        ACCOUNT_TEST(test_others_do_not_tell_what_waits),
        ACCOUNT_TEST(test_a_server_that_stops_tells_what_waits),
        ACCOUNT_TEST(test_the_worst_is_set_aside_and_what_was_used_is_settled),
        ACCOUNT_TEST(test_a_price_that_is_not_known_is_the_dearest),
        ACCOUNT_TEST(test_who_leaves_before_the_answer_gives_it_back),
        ACCOUNT_TEST(test_a_refusal_is_told_and_given_back),
        ACCOUNT_TEST(test_a_key_that_was_revoked_spends_nothing),
        ACCOUNT_TEST(test_no_answer_is_a_refusal_and_is_told_again),
        ACCOUNT_TEST(test_jobs_are_counted_together),
        ACCOUNT_TEST(test_what_waits_for_a_ledger_that_is_away_does_not_grow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
