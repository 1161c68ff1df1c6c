#include "base/cleanup.h"
#include "base/json.h"
#include "front/ledger/db.h"
#include "unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What keys spend: the ledger's file in memory, with a clock of ours. */

static int64_t now_ms;
static struct ledger_db *db;
static struct err e;

static int64_t tell_now(void) {
    return now_ms;
}

static int setup(void **state) {
    (void)state;
    now_ms = 1800000000000; /* 2027-01-15T08:00:00Z */
    return ledger_db_memory(tell_now, &db, &e);
}

static int teardown(void **state) {
    (void)state;
    ledger_db_close(db);
    return 0;
}

static enum err_code ask(const struct ledger_ask *what, int64_t *ret_nusd) {
    struct ledger_answer a;
    ledger_db_do(db, what, &a);
    enum err_code code = a.err.code;
    e = a.err;
    if (ret_nusd && !code)
        *ret_nusd = a.reserved.nusd;
    ledger_answer_finish(&a);
    return code;
}

static enum err_code reserve(const char *id, int64_t least, int64_t nusd, int64_t limit,
                             int64_t *ret_nusd) {
    return ask(&(struct ledger_ask){.op = LEDGER_RESERVE,
                                    .reserve = {.id = id,
                                                .owner = "prj_a",
                                                .key = "key_a",
                                                .node = LEDGER_HERE,
                                                .nusd_least = least,
                                                .nusd = nusd,
                                                .tokens = 1,
                                                .limits = {.nusd_per_day = limit},
                                                .partial = true}},
               ret_nusd);
}

static enum err_code settle(const char *id, int64_t nusd) {
    struct ledger_used u = {.owner = "prj_a", .key = "key_a", .kind = "sdk", .charged_nusd = nusd};
    (void)snprintf(u.id, sizeof(u.id), "%s", id);
    return ask(&(struct ledger_ask){.op = LEDGER_SETTLE,
                                    .settle = {.node = LEDGER_HERE, .used = &u, .n = 1}},
               NULL);
}

static void begin_node(void) {
    struct ledger_answer a;
    struct ledger_ask begin = {.op = LEDGER_NODE_BEGIN,
                               .node_begin = {.node = LEDGER_HERE, .epoch = -1}};
    ledger_db_do(db, &begin, &a);
    begin.node_begin.epoch = a.node_begun.epoch;
    ledger_answer_finish(&a);
    assert_int_equal(ask(&begin, NULL), 0);
}

/* Of today, in billionths of a dollar. */
static void day(int64_t *ret_spent, int64_t *ret_held) {
    struct ledger_answer a;
    ledger_db_do(db, &(struct ledger_ask){.op = LEDGER_USAGE, .usage.limit = 100}, &a);
    assert_int_equal(a.err.code, 0);
    _cleanup_(json) json_t *list = json_loads(a.usage_report.today, 0, NULL);
    const json_t *row = json_array_get(list, 0);
    *ret_spent = (int64_t)(json_number_value(json_object_get(row, "charged_usd")) * 1e9 + 0.5);
    *ret_held = (int64_t)(json_number_value(json_object_get(row, "held_usd")) * 1e9 + 0.5);
    ledger_answer_finish(&a);
}

static void check_day(int64_t spent, int64_t held) {
    int64_t s;
    int64_t h;
    day(&s, &h);
    assert_int_equal(s, spent);
    assert_int_equal(h, held);
}

static void test_many_at_the_limit_minus_one_admit_one(void **state) {
    (void)state;
    int n = 0;
    assert_int_equal(reserve("r0", 1, 99, 100, NULL), 0);
    for (int i = 0; i < 100; i++) {
        char id[16];
        (void)snprintf(id, sizeof(id), "c%d", i);
        enum err_code code = reserve(id, 1, 1, 100, NULL);
        n += code == 0;
        assert_true(code == 0 || code == ERR_RATE); /* it is held, not spent */
    }
    assert_int_equal(n, 1);
    assert_int_equal(err_http_status(ERR_QUOTA), 429);
    check_day(0, 100);
}

static void test_one_gets_what_is_left_if_that_is_of_use(void **state) {
    (void)state;
    int64_t got = 0;
    assert_int_equal(reserve("a", 10, 80, 100, &got), 0);
    assert_int_equal(got, 80);
    assert_int_equal(reserve("b", 21, 80, 100, &got), ERR_RATE);
    assert_int_equal(reserve("c", 20, 80, 100, &got), 0);
    assert_int_equal(got, 20);
    assert_int_equal(settle("a", 5), 0);
    assert_int_equal(reserve("d", 1, 500, 100, &got), 0);
    assert_int_equal(got, 75);
    check_day(5, 95);
}

static enum err_code reserve_all(const char *id, int64_t nusd, bool probe) {
    return ask(&(struct ledger_ask){.op = LEDGER_RESERVE,
                                    .reserve = {.id = id,
                                                .owner = "prj_a",
                                                .key = "key_a",
                                                .node = LEDGER_HERE,
                                                .nusd_least = 1,
                                                .nusd = nusd,
                                                .tokens = 1,
                                                .limits = {.nusd_per_day = 100},
                                                .probe = probe}},
               NULL);
}

static void test_what_is_held_is_waited_for_and_what_is_spent_is_not(void **state) {
    (void)state;
    assert_int_equal(reserve_all("a", 70, false), 0);
    assert_int_equal(reserve_all("b", 40, false), ERR_RATE); /* when a is settled there may be */
    assert_int_equal(reserve_all("c", 30, false), 0);
    assert_int_equal(reserve_all("p", 1, true), ERR_RATE);
    assert_int_equal(settle("c", 10), 0);
    assert_int_equal(reserve_all("p", 20, true), 0);
    check_day(10, 70); /* to ask takes nothing */
    assert_int_equal(settle("a", 70), 0);
    assert_int_equal(reserve_all("b", 40, false), 0); /* all that the day has left */
    check_day(80, 20);
    assert_int_equal(settle("b", 20), 0);
    assert_int_equal(reserve_all("d", 1, false), ERR_QUOTA);
    assert_int_equal(reserve_all("p", 1, true), ERR_QUOTA);
}

static void test_asked_again_it_is_answered_as_the_first_time(void **state) {
    (void)state;
    int64_t got = 0;
    assert_int_equal(reserve("a", 1, 60, 100, &got), 0);
    assert_int_equal(reserve("a", 1, 60, 100, &got), 0);
    assert_int_equal(got, 60);
    check_day(0, 60);
    for (int i = 0; i < 3; i++)
        assert_int_equal(settle("a", 7), 0);
    check_day(7, 0);
    assert_int_equal(reserve("a", 1, 60, 100, &got), ERR_CONFLICT); /* it came late */
    check_day(7, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(settle("never-reserved", 3), 0);
    check_day(10, 0);
}

static enum err_code renew(const char *id) {
    return ask(
        &(struct ledger_ask){.op = LEDGER_RESERVE_RENEW, .reserve_renew = {.ids = &id, .n = 1}},
        NULL);
}

static void test_what_a_dead_server_held_counts_as_spent(void **state) {
    (void)state;
    assert_int_equal(reserve("a", 1, 60, 100, NULL), 0);
    assert_int_equal(reserve("b", 1, 30, 100, NULL), 0);
    now_ms += LEDGER_LEASE_MS - 1;
    assert_int_equal(renew("a"), 0);
    now_ms += 1;
    assert_int_equal(reserve("c", 1, 5, 100, NULL), 0); /* b is over */
    check_day(30, 65);
    assert_int_equal(reserve("d", 1, 50, 100, NULL), 0); /* the five that are left */
    assert_int_equal(reserve("e", 1, 1, 100, NULL), ERR_RATE);
    begin_node();
    check_day(100, 0);
    for (int i = 0; i < 5; i++) { /* kill -9 does not help */
        assert_int_equal(reserve("f", 1, 1, 100, NULL), ERR_QUOTA);
        begin_node();
    }
    check_day(100, 0);
}

static void prune(void) {
    assert_int_equal(ask(&(struct ledger_ask){.op = LEDGER_TASK_REAP, .task_reap.limit = 1}, NULL),
                     0);
}

static void test_a_server_that_was_only_slow_puts_it_right(void **state) {
    (void)state;
    assert_int_equal(reserve("a", 1, 60, 100, NULL), 0);
    now_ms += LEDGER_LEASE_MS;
    assert_int_equal(reserve("b", 1, 40, 100, NULL), 0);
    check_day(60, 40);
    for (int i = 0; i < 100; i++) { /* it works on for longer than what is settled is kept */
        now_ms += LEDGER_SETTLED_MS / 50;
        assert_int_equal(renew("a"), 0);
        assert_int_equal(renew("b"), 0);
        prune();
    }
    check_day(60, 40);
    for (int i = 0; i < 3; i++)
        assert_int_equal(settle("a", 9), 0);
    check_day(9, 40);
    assert_int_equal(reserve("c", 51, 51, 100, NULL), 0);
}

static void test_what_was_lost_is_shown_as_that(void **state) {
    (void)state;
    assert_int_equal(reserve("a", 1, 60, 100, NULL), 0);
    begin_node();
    struct ledger_answer a;
    ledger_db_do(db, &(struct ledger_ask){.op = LEDGER_USAGE, .usage.limit = 100}, &a);
    _cleanup_(json) json_t *list = json_loads(a.usage_report.jobs, 0, NULL);
    const json_t *row = json_array_get(list, 0);
    assert_string_equal(json_string_value(json_object_get(row, "kind")), "interrupted");
    assert_true(json_number_value(json_object_get(row, "charged_usd")) > 0);
    assert_true(json_number_value(json_object_get(row, "cost_usd")) == 0);
    ledger_answer_finish(&a);
}

static void test_a_day_begins_anew(void **state) {
    (void)state;
    now_ms += 57590000; /* ten seconds before midnight */
    assert_int_equal(settle("x", 60), 0);
    assert_int_equal(reserve("a", 40, 40, 100, NULL), 0);
    assert_int_equal(reserve("b", 1, 1, 100, NULL), ERR_RATE);
    now_ms += 10000;
    assert_int_equal(reserve("b", 1, 100, 100, NULL), 0);
    assert_int_equal(settle("a", 40), 0); /* of the day it was set aside for */
    check_day(0, 100);
}

static void test_tokens_have_a_limit_of_their_own(void **state) {
    (void)state;
    struct ledger_ask what = {.op = LEDGER_RESERVE,
                              .reserve = {.id = "a",
                                          .owner = "prj_a",
                                          .key = "key_a",
                                          .node = LEDGER_HERE,
                                          .tokens_least = 10,
                                          .tokens = 90,
                                          .limits = {.tokens_per_day = 100},
                                          .partial = true}};
    assert_int_equal(ask(&what, NULL), 0);
    what.reserve.id = "b";
    assert_int_equal(ask(&what, NULL), 0); /* the ten that are left */
    what.reserve.id = "c";
    assert_int_equal(ask(&what, NULL), ERR_RATE);
    assert_non_null(strstr(e.message, "hold the tokens"));
    struct ledger_used used = {.id = "a",
                               .owner = "prj_a",
                               .key = "key_a",
                               .kind = "chat",
                               .input_tokens = 3,
                               .output_tokens = 2};
    assert_int_equal(
        ask(&(struct ledger_ask){.op = LEDGER_SETTLE,
                                 .settle = {.node = LEDGER_HERE, .used = &used, .n = 1}},
            NULL),
        0);
    what.reserve.tokens_least = 85;
    assert_int_equal(ask(&what, NULL), 0);
}

/* --- any order of everything --- */

enum { CALLS = 40, LIMIT = 1000 };

struct sim_call {
    int state; /* 0: not asked, 1: asked, 2: settled, 3: dead with its server */
    int64_t held;
};

static unsigned pick(unsigned *seed, unsigned n) {
    *seed = *seed * 1103515245u + 12345u;
    return (*seed >> 16) % n;
}

static void sim_step(struct sim_call *calls, unsigned *seed, int64_t *used) {
    unsigned i = pick(seed, CALLS);
    struct sim_call *c = &calls[i];
    char id[16];
    (void)snprintf(id, sizeof(id), "c%u", i);
    unsigned what = pick(seed, 20);
    if (what < 9 && c->state < 2) {
        int64_t got = 0;
        int64_t most = 1 + pick(seed, 200);
        if (reserve(id, 1, most, LIMIT, &got) == 0 && c->state == 0)
            *c = (struct sim_call){.state = 1, .held = got};
    } else if (what < 16 && c->state == 1) {
        int64_t spent = pick(seed, (unsigned)c->held + 1);
        for (unsigned k = 0; k < 1 + pick(seed, 3); k++)
            assert_int_equal(settle(id, spent), 0);
        *used += spent;
        c->state = 2;
    } else if (what == 16 && c->state == 1) {
        assert_int_equal(renew(id), 0);
    } else if (what == 17) {
        now_ms += 1 + pick(seed, 2) * LEDGER_LEASE_MS;
    } else if (what == 18) { /* kill -9 */
        begin_node();
        for (int k = 0; k < CALLS; k++)
            if (calls[k].state == 1)
                calls[k].state = 3;
    }
}

/* Asks are repeated, answers are lost, servers die between reserving and settling, or only seem to,
 * clocks jump. What was spent and what may have been never exceeds the limit. */
static void run_schedule(unsigned seed) {
    struct sim_call calls[CALLS] = {{0}};
    int64_t used = 0;
    for (int step = 0; step < 300; step++) {
        int64_t s;
        int64_t h;
        int64_t whole = 0;
        sim_step(calls, &seed, &used);
        for (int k = 0; k < CALLS; k++)
            whole += calls[k].state == 1 || calls[k].state == 3 ? calls[k].held : 0;
        day(&s, &h);
        assert_true(h >= 0);
        assert_int_equal(s + h, used + whole);
        assert_true(s + h <= LIMIT);
    }
}

static void test_no_order_of_things_spends_more(void **state) {
    for (unsigned seed = 1; seed <= 150; seed++) {
        (void)teardown(state);
        assert_int_equal(setup(state), 0);
        run_schedule(seed);
    }
}

#define SPEND_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

/* Two keys of a project share what it has for the day; each is held to its own limit besides. */
static void test_a_project_has_a_limit_over_all_its_keys(void **state) {
    (void)state;
    struct ledger_ask what = {.op = LEDGER_RESERVE,
                              .reserve = {.id = "a",
                                          .owner = "prj_p",
                                          .key = "key_1",
                                          .node = LEDGER_HERE,
                                          .nusd_least = 10,
                                          .nusd = 60,
                                          .tokens = 1,
                                          .limits = {.nusd_per_day = 1000},
                                          .project_limits = {.nusd_per_day = 100},
                                          .partial = true}};
    int64_t nusd = 0;
    assert_int_equal(ask(&what, &nusd), 0);
    assert_int_equal(nusd, 60);
    what.reserve.id = "b";
    what.reserve.key = "key_2";
    assert_int_equal(ask(&what, &nusd), 0);
    assert_int_equal(nusd, 40);
    what.reserve.id = "c";
    assert_int_equal(ask(&what, NULL), ERR_RATE); /* the other key holds the rest */
    struct ledger_used used[] = {
        {.id = "a", .owner = "prj_p", .key = "key_1", .kind = "sdk", .charged_nusd = 50},
        {.id = "b", .owner = "prj_p", .key = "key_2", .kind = "sdk", .charged_nusd = 45}};
    assert_int_equal(
        ask(&(struct ledger_ask){.op = LEDGER_SETTLE,
                                 .settle = {.node = LEDGER_HERE, .used = used, .n = 2}},
            NULL),
        0);
    what.reserve.id = "d";
    assert_int_equal(ask(&what, NULL), ERR_QUOTA); /* 5 are left of the project's day */
    what.reserve.project_limits.nusd_per_day = 0;
    what.reserve.limits.nusd_per_day = 60;
    what.reserve.id = "e";
    assert_int_equal(ask(&what, &nusd), 0); /* the key has used 45 itself, not 95 */
    assert_int_equal(nusd, 15);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SPEND_TEST(test_many_at_the_limit_minus_one_admit_one),
        SPEND_TEST(test_one_gets_what_is_left_if_that_is_of_use),
        SPEND_TEST(test_what_is_held_is_waited_for_and_what_is_spent_is_not),
        SPEND_TEST(test_asked_again_it_is_answered_as_the_first_time),
        SPEND_TEST(test_what_a_dead_server_held_counts_as_spent),
        SPEND_TEST(test_a_server_that_was_only_slow_puts_it_right),
        SPEND_TEST(test_what_was_lost_is_shown_as_that),
        SPEND_TEST(test_a_day_begins_anew),
        SPEND_TEST(test_tokens_have_a_limit_of_their_own),
        SPEND_TEST(test_a_project_has_a_limit_over_all_its_keys),
        SPEND_TEST(test_no_order_of_things_spends_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
