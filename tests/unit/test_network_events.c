#include "front/store/network_events.h"
#include "front/store/store.h"
#include "unit/unit.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[64];
static char file[100];
static struct store *store;
static struct store_network *events;
static struct err e;

static void open_events(size_t each, size_t total) {
    assert_int_equal(store_open(file, &store, &e), 0);
    events = store_network_create(store, &(struct store_network_limits){each, total});
}

static void close_events(void) {
    store_network_destroy(events);
    store_close(store);
    events = NULL;
    store = NULL;
}

static int setup(void **state) {
    (void)state;
    (void)snprintf(dir, sizeof(dir), "/tmp/cay-unit-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(file, sizeof(file), "%s/cay.db", dir);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    close_events();
    static const char *const ends[] = {"", "-wal", "-shm"};
    for (size_t i = 0; i < 3; i++) {
        char path[120];
        (void)snprintf(path, sizeof(path), "%s%s", file, ends[i]);
        (void)unlink(path);
    }
    return rmdir(dir);
}

static void add(const char *sandbox, bool refused, int n) {
    char json[40];
    (void)snprintf(json, sizeof(json), "{\"n\":%d}", n);
    struct store_network_event one = {(char *)(uintptr_t)sandbox, refused, json};
    assert_int_equal(store_network_add(events, &one, 1, &e), 0);
}

struct seen {
    size_t n;
    int64_t first, last;
    char json[40];
};

static void on_event(void *ctx, int64_t seq, const char *json) {
    struct seen *s = ctx;
    assert_true(seq > s->last);
    if (s->n++ == 0) {
        s->first = seq;
        (void)snprintf(s->json, sizeof(s->json), "%s", json);
    }
    s->last = seq;
}

static struct seen list(const char *sandbox, int64_t after, size_t limit, int64_t *ret_gone) {
    struct seen s = {0};
    int64_t gone = -1;
    assert_int_equal(store_network_list(events,
                                        &(struct store_network_query){sandbox, after, limit},
                                        on_event, &s, &gone, &e),
                     0);
    if (ret_gone)
        *ret_gone = gone;
    return s;
}

static void test_each_sandbox_has_its_numbers(void **state) {
    (void)state;
    open_events(100, 1000);
    for (int i = 1; i <= 5; i++) {
        add("a", i % 2 == 0, i);
        add("b", false, 10 * i);
    }
    struct seen s = list("b", 0, 100, NULL);
    assert_int_equal(s.n, 5);
    assert_int_equal(s.first, 1);
    assert_int_equal(s.last, 5);
    assert_string_equal(s.json, "{\"n\":10}");
    /* The newest, or those behind a number. */
    s = list("a", -1, 2, NULL);
    assert_int_equal(s.first, 4);
    assert_int_equal(s.last, 5);
    s = list("a", 1, 2, NULL);
    assert_int_equal(s.first, 2);
    assert_int_equal(s.last, 3);
    assert_int_equal(list("nobody", -1, 10, NULL).n, 0);
    close_events();
    open_events(100, 1000);
    assert_int_equal(list("a", 0, 100, NULL).n, 5);
    add("a", false, 6);
    assert_int_equal(list("a", -1, 1, NULL).last, 6);
}

static void test_refusals_do_not_push_out_what_was_let_out(void **state) {
    (void)state;
    int64_t gone;
    open_events(10, 100000);
    for (int i = 0; i < 4; i++)
        add("a", false, i);
    for (int i = 0; i < 200; i++)
        add("a", true, i);
    struct seen s = list("a", 0, 1000, &gone);
    assert_int_equal(s.n, 14);
    assert_int_equal(s.first, 1);
    assert_int_equal(s.last, 204);
    assert_int_equal(gone, 190);
    for (int i = 0; i < 20; i++)
        add("a", false, i);
    assert_int_equal(list("a", 0, 1000, &gone).n, 20);
    assert_int_equal(gone, 204);
}

static void test_all_together_are_bounded_refusals_first(void **state) {
    (void)state;
    open_events(1000, 100);
    for (int i = 0; i < 50; i++)
        add("old", false, i);
    for (int i = 0; i < 500; i++)
        add("loud", true, i);
    assert_int_equal(list("old", 0, 1000, NULL).n, 50);
    assert_true(list("loud", 0, 1000, NULL).n <= 61);
    for (int i = 0; i < 300; i++)
        add("new", false, i);
    assert_int_equal(list("loud", 0, 1000, NULL).n, 0);
    assert_int_equal(list("old", 0, 1000, NULL).n, 0);
    struct seen s = list("new", 0, 1000, NULL);
    assert_true(s.n >= 89 && s.n <= 111);
    assert_int_equal(s.last, 300);
}

static void test_they_go_with_the_record_of_their_sandbox(void **state) {
    (void)state;
    open_events(100, 1000);
    struct store_record r = {.status = (char *)"stopped", .doc = (char *)"{}", .ended_ms = 1};
    (void)snprintf(r.id, sizeof(r.id), "a");
    assert_int_equal(store_record_put(store, "sandbox", &r, &e), 0);
    add("a", false, 1);
    add("b", false, 1);
    assert_int_equal(store_record_delete(store, "sandbox", "a", &e), 0);
    assert_int_equal(list("a", 0, 10, NULL).n, 0);
    assert_int_equal(list("b", 0, 10, NULL).n, 1);
}

static void test_a_batch_is_written_whole_or_not_at_all(void **state) {
    (void)state;
    open_events(100, 1000);
    struct store_network_event two[] = {{(char *)"a", false, (char *)"{}"},
                                        {(char *)"a", true, NULL}};
    assert_true(store_network_add(events, two, 2, &e) < 0);
    assert_int_equal(list("a", 0, 10, NULL).n, 0);
    add("a", false, 1);
    assert_int_equal(list("a", 0, 10, NULL).last, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(test_each_sandbox_has_its_numbers),
        UNIT(test_refusals_do_not_push_out_what_was_let_out),
        UNIT(test_all_together_are_bounded_refusals_first),
        UNIT(test_they_go_with_the_record_of_their_sandbox),
        UNIT(test_a_batch_is_written_whole_or_not_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
