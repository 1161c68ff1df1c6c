#include "base/cleanup.h"
#include "front/ledger/db.h"
#include "front/ledger/internal.h"
#include "unit/unit.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The queue of tasks and the messages to webhooks: the ledger's file in memory, with a clock of
 * ours. */

#define QUEUE_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

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

static void ask(const struct ledger_ask *what, struct ledger_answer *ret) {
    ledger_db_do(db, what, ret);
    if (ret->err.code)
        print_error("%s\n", ret->err.message);
    assert_int_equal(ret->err.code, 0);
}

static void do_sql(const char *sql) {
    assert_int_equal(sqlite3_exec(db->db, sql, NULL, NULL, NULL), SQLITE_OK);
}

/* The first column of the only row, as text. */
static void check_text(const char *sql, const char *expected) {
    sqlite3_stmt *st = NULL;
    assert_int_equal(sqlite3_prepare_v2(db->db, sql, -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    const char *text = (const char *)sqlite3_column_text(st, 0);
    assert_string_equal(text ? text : "(null)", expected);
    (void)sqlite3_finalize(st);
}

static int64_t number_of(const char *sql) {
    sqlite3_stmt *st = NULL;
    assert_int_equal(sqlite3_prepare_v2(db->db, sql, -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(st, 0);
    (void)sqlite3_finalize(st);
    return n;
}

static void submit(const char *id, const char *webhook) {
    struct ledger_answer a;
    ask(&(struct ledger_ask){.op = LEDGER_TASK_SUBMIT,
                             .task_submit = {.id = id,
                                             .owner = "key_a",
                                             .type = "run",
                                             .body = "{}",
                                             .webhook = webhook,
                                             .max_attempts = 1,
                                             .waiting_max = 9999}},
        &a);
    ledger_answer_finish(&a);
}

static int64_t begin_node(void) {
    struct ledger_answer a;
    ask(&(struct ledger_ask){.op = LEDGER_NODE_BEGIN, .node_begin.node = LEDGER_HERE}, &a);
    int64_t epoch = a.node_begun.epoch;
    ledger_answer_finish(&a);
    return epoch;
}

static void claim_all(int64_t epoch) {
    struct ledger_answer a;
    ask(
        &(struct ledger_ask){
            .op = LEDGER_TASK_CLAIM,
            .task_claim = {.node = LEDGER_HERE, .epoch = epoch, .limit = 9999, .per_key = 9999}},
        &a);
    ledger_answer_finish(&a);
}

static void reap(size_t limit, int64_t expected) {
    struct ledger_answer a;
    ask(&(struct ledger_ask){.op = LEDGER_TASK_REAP, .task_reap.limit = limit}, &a);
    assert_int_equal(a.task_reaped.lapsed, expected);
    ledger_answer_finish(&a);
}

static void test_an_attempt_that_cannot_be_ended_holds_up_no_other(void **state) {
    (void)state;
    submit("task_1", NULL);
    submit("task_2", NULL);
    submit("task_3", NULL);
    claim_all(begin_node());
    do_sql("CREATE TRIGGER spoil BEFORE UPDATE ON tasks WHEN old.id = 'task_1' BEGIN"
           " SELECT raise(ABORT, 'damaged'); END");
    now_ms += LEDGER_LEASE_MS + 1;
    reap(1, 1); /* the damaged one is first: it makes room for those after it */
    reap(1, 1);
    reap(64, 1);
    check_text("SELECT group_concat(state) FROM tasks", "1,5,5");
    check_text("SELECT group_concat(task) FROM leases", "task_1");
    reap(64, 0);
    /* It is tried again, and ends when it can. */
    now_ms += LEDGER_LEASE_MS + 1;
    reap(64, 1);
    check_text("SELECT outcome FROM task_attempts WHERE task = 'task_1'", "(null)");
    do_sql("DROP TRIGGER spoil");
    now_ms += LEDGER_LEASE_MS + 1;
    reap(64, 1);
    check_text("SELECT state FROM tasks WHERE id = 'task_1'", "5");
    check_text("SELECT count(*) FROM leases", "0");
}

static void test_a_message_that_cannot_be_written_does_not_hold_up_the_end(void **state) {
    (void)state;
    submit("task_1", "http://h/");
    submit("task_2", NULL);
    claim_all(begin_node());
    do_sql("CREATE TRIGGER spoil BEFORE INSERT ON outbox BEGIN"
           " SELECT raise(ABORT, 'damaged'); END");
    struct ledger_answer a;
    ask(&(struct ledger_ask){.op = LEDGER_TASK_END,
                             .task_end = {.id = "task_1", .attempt = 1, .state = TASK_DONE}},
        &a);
    ledger_answer_finish(&a);
    check_text("SELECT state || hook_state || hook_error FROM tasks WHERE id = 'task_1'",
               "2failedthe message could not be written");
    check_text("SELECT group_concat(task) FROM leases", "task_2");
}

/* --- messages --- */

enum { PER_KEY = 12, ROUNDS = 40 };

/* Of tasks that have ended: each is due at once. */
static void add_messages(const char *url, int times) {
    static int number;
    for (int i = 0; i < times; i++) {
        char id[ID_SIZE];
        struct ledger_answer a;
        (void)snprintf(id, sizeof(id), "task_%05d", number++);
        submit(id, url);
        ask(&(struct ledger_ask){.op = LEDGER_TASK_CANCEL, .task_cancel.id = id}, &a);
        ledger_answer_finish(&a);
        now_ms++;
    }
}

static void end_message(const struct ledger_hook *h, bool delivered) {
    struct ledger_answer a;
    ask(&(struct ledger_ask){.op = LEDGER_HOOK_END,
                             .hook_end = {.seq = h->seq,
                                          .tries = h->tries,
                                          .outcome =
                                              delivered ? LEDGER_HOOK_DELIVERED : LEDGER_HOOK_RETRY,
                                          .retry_ms = 1,
                                          .error = "no answer"}},
        &a);
    ledger_answer_finish(&a);
}

/* Sends what may be sent, and counts how many of it go to the one that answers. */
static size_t claim_messages(struct ledger_answer *ret) {
    size_t good = 0;
    ask(&(struct ledger_ask){.op = LEDGER_HOOK_CLAIM,
                             .hook_claim = {.limit = 64, .per_key = PER_KEY}},
        ret);
    for (size_t i = 0; i < ret->hook_claimed.n; i++)
        good += strncmp(ret->hook_claimed.hooks[i].url, "http://good/", 12) == 0;
    return good;
}

static void end_messages(struct ledger_answer *a) {
    for (size_t i = 0; i < a->hook_claimed.n; i++)
        end_message(&a->hook_claimed.hooks[i],
                    strncmp(a->hook_claimed.hooks[i].url, "http://good/", 12) == 0);
    ledger_answer_finish(a);
    now_ms += 2;
}

static void test_dead_receivers_leave_places_for_others_of_their_key(void **state) {
    (void)state;
    struct ledger_answer a;
    for (int i = 0; i < 3; i++)
        add_messages(i == 0   ? "http://dead:1/"
                     : i == 1 ? "http://dead:2/x"
                              : "http://dead:3?x",
                     30);
    add_messages("http://good/", 20);
    /* Nobody knows yet which are dead: a place is left for one that has none. */
    assert_true(claim_messages(&a) >= 1);
    assert_int_equal(a.hook_claimed.n, PER_KEY - PER_KEY / 3);
    end_messages(&a);
    /* Now they are known: those that answer have all but one place of each. */
    size_t good = claim_messages(&a);
    assert_int_equal(good, PER_KEY / 3);
    assert_int_equal(a.hook_claimed.n - good, 3);
    /* While the dead ones hold theirs, the others go on. */
    for (size_t i = 0; i < a.hook_claimed.n; i++)
        if (strncmp(a.hook_claimed.hooks[i].url, "http://good/", 12) == 0)
            end_message(&a.hook_claimed.hooks[i], true);
    struct ledger_answer more;
    assert_int_equal(claim_messages(&more), PER_KEY / 3);
    assert_int_equal(more.hook_claimed.n, PER_KEY / 3);
    end_messages(&more);
    ledger_answer_finish(&a);
}

static void test_many_dead_receivers_get_a_third_together(void **state) {
    (void)state;
    struct ledger_answer a;
    char url[64];
    for (int i = 0; i < 40; i++) {
        (void)snprintf(url, sizeof(url), "http://dead:%d/", i + 1);
        add_messages(url, 1);
    }
    for (int i = 0; i < ROUNDS && number_of("SELECT count(*) FROM outbox WHERE tries = 0") > 0;
         i++) {
        (void)claim_messages(&a);
        assert_true(a.hook_claimed.n <= PER_KEY);
        end_messages(&a);
    }
    add_messages("http://good/", 4);
    assert_int_equal(claim_messages(&a), PER_KEY / 3);
    assert_int_equal(a.hook_claimed.n, PER_KEY / 3 * 2);
    end_messages(&a);
    /* Each of them has its turn. */
    do_sql("UPDATE outbox SET tries = 1, next_ms = 0");
    for (int i = 0; i < 10; i++) {
        (void)claim_messages(&a);
        assert_int_equal(a.hook_claimed.n, PER_KEY / 3);
        end_messages(&a);
    }
    assert_int_equal(number_of("SELECT count(*) FROM outbox WHERE tries = 2"), 40);
}

static void test_messages_to_a_dead_receiver_hide_no_other(void **state) {
    (void)state;
    struct ledger_answer a;
    add_messages("http://dead/", 400); /* all of them are older */
    add_messages("http://good/", 1);
    assert_int_equal(claim_messages(&a), 1);
    end_messages(&a);
    add_messages("http://good/", 1);
    assert_int_equal(claim_messages(&a), 1);
    assert_int_equal(a.hook_claimed.n, 2);
    end_messages(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        QUEUE_TEST(test_an_attempt_that_cannot_be_ended_holds_up_no_other),
        QUEUE_TEST(test_a_message_that_cannot_be_written_does_not_hold_up_the_end),
        QUEUE_TEST(test_dead_receivers_leave_places_for_others_of_their_key),
        QUEUE_TEST(test_many_dead_receivers_get_a_third_together),
        QUEUE_TEST(test_messages_to_a_dead_receiver_hide_no_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
