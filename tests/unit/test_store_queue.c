/* The store with its writer thread: what waits, what is refused, and what readers see. */
#include "base/clock.h"
#include "base/mem.h"
#include "front/store/internal.h"
#include "until.h"

#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const struct store_scope all = {.all = true};
static uv_loop_t loop;
static struct store *store;
static char folder[64];
static char file[128];
static struct err e;

static int setup(void **state) {
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/tmp/cay-queue-XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(file, sizeof(file), "%s/cay.db", folder);
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(store_open(file, &store, &e), 0);
    assert_int_equal(store_start_writer(store, &loop, &e), 0);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    store_stop_writer(store);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    store_close(store);
    assert_int_equal(uv_loop_close(&loop), 0);
    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
        char path[160];
        (void)snprintf(path, sizeof(path), "%s%s", file, suffixes[i]);
        (void)unlink(path);
    }
    (void)rmdir(folder);
    return 0;
}

static void on_flag(void *ctx) {
    *(bool *)ctx = true;
}

/* Runs the loop until all that was submitted is written, or cannot be. */
static void settle(void) {
    struct store_wait w = {0};
    bool done = false;
    store_after(store, &w, on_flag, &done);
    assert_false(done); /* never in the call itself */
    while (!done)
        (void)uv_run(&loop, UV_RUN_ONCE);
}

static int begin(const char *id) {
    struct store_run r = {.kind = (char *)"run", .title = (char *)"t", .detail = (char *)"[1]"};
    (void)snprintf(r.id, sizeof(r.id), "%s", id);
    return store_run_begin(store, &r, &e);
}

static int end(const char *id, enum job_status status) {
    return store_run_end(store, id, &(struct store_run_end){.status = status}, &e);
}

static bool has_status(const char *id, enum job_status status) {
    struct store_run r;
    if (store_run_get(store, id, all, &r, &e) < 0)
        return false;
    bool same = r.status == status;
    store_run_finish(&r);
    return same;
}

static int64_t number(const char *query) {
    sqlite3_stmt *st;
    assert_int_equal(sqlite3_prepare_v2(store->read_db, query, -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(st, 0);
    (void)sqlite3_finalize(st);
    return n;
}

/* Another connection, whose lock keeps the writer still. */
static sqlite3 *lock_beside(void) {
    sqlite3 *db;
    assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    return db;
}

static void exec_beside(const char *sql) {
    sqlite3 *db;
    assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void test_a_reader_waits_for_what_was_queued_before_it(void **state) {
    (void)state;
    sqlite3 *beside = lock_beside();
    struct store_wait w = {0};
    bool done = false;
    assert_int_equal(begin("run_1"), 0);
    int64_t ticket = store_submitted(store);
    assert_false(store_has_written(store, ticket));
    store_after(store, &w, on_flag, &done);
    for (int i = 0; i < 20; i++) {
        (void)uv_run(&loop, UV_RUN_NOWAIT);
        (void)usleep(1000);
    }
    assert_false(done); /* the writer has it, and cannot write */
    assert_false(has_status("run_1", JOB_RUNNING));
    assert_int_equal(sqlite3_close(beside), SQLITE_OK);
    while (!done)
        (void)uv_run(&loop, UV_RUN_ONCE);
    assert_true(store_has_written(store, ticket));
    assert_true(has_status("run_1", JOB_RUNNING));
}

static void test_one_who_does_not_wait_any_more_is_not_called(void **state) {
    (void)state;
    struct store_wait gone = {0};
    bool called = false;
    assert_int_equal(begin("run_1"), 0);
    store_after(store, &gone, on_flag, &called);
    store_wait_cancel(&gone);
    store_wait_cancel(&gone);
    settle();
    assert_false(called);
}

static void test_nobody_has_to_ask_for_a_write(void **state) {
    (void)state;
    assert_int_equal(begin("run_1"), 0);
    int64_t ticket = store_submitted(store);
    while (store->queue.written < ticket)
        (void)uv_run(&loop, UV_RUN_ONCE);
    assert_true(has_status("run_1", JOB_RUNNING));
}

static void test_what_begins_and_ends_at_once_is_written_once(void **state) {
    (void)state;
    assert_int_equal(begin("run_1"), 0);
    assert_int_equal(begin("run_2"), 0);
    int64_t ticket = store_submitted(store);
    assert_int_equal(end("run_1", JOB_DONE), 0);
    assert_int_equal(store_submitted(store), ticket);
    settle();
    assert_true(has_status("run_1", JOB_DONE));
    assert_true(has_status("run_2", JOB_RUNNING));
    assert_int_equal(end("run_2", JOB_FAILED), 0);
    settle();
    assert_true(has_status("run_2", JOB_FAILED));
    assert_int_equal(number("SELECT count(*) FROM runs WHERE detail = '[1]'"), 2);
    assert_int_equal(number("SELECT runs FROM run_sums"), 2);
}

static void put(const char *kind, const char *id, const char *doc, int64_t ended_ms) {
    struct store_record r = {
        .status = (char *)"running", .doc = (char *)(uintptr_t)doc, .ended_ms = ended_ms};
    (void)snprintf(r.id, sizeof(r.id), "%s", id);
    assert_int_equal(store_record_put(store, kind, &r, &e), 0);
}

static void test_a_record_that_is_deleted_and_made_again_is_the_new_one(void **state) {
    (void)state;
    struct store_record r;
    put("sandbox", "sbx_1", "{\"n\":1}", 0);
    put("sandbox", "sbx_1", "{\"n\":2}", 0);
    assert_int_equal(store_submitted(store), 1);
    assert_int_equal(store_record_delete(store, "sandbox", "sbx_1", &e), 0);
    put("sandbox", "sbx_1", "{\"n\":3}", 0);
    assert_int_equal(store_submitted(store), 3);
    settle();
    assert_int_equal(store_record_get(store, "sandbox", "sbx_1", NULL, all, &r, &e), 0);
    assert_string_equal(r.doc, "{\"n\":3}");
    store_record_finish(&r);
    assert_int_equal(store_record_delete(store, "sandbox", "sbx_1", &e), 0);
    settle();
    assert_int_equal(store_record_get(store, "sandbox", "sbx_1", NULL, all, &r, &e),
                     -ERR_NOT_FOUND);
}

struct listed {
    char ids[200];
};

static void on_listed(void *ctx, const struct store_record *r) {
    struct listed *l = ctx;
    size_t n = strlen(l->ids);
    (void)snprintf(l->ids + n, sizeof(l->ids) - n, "%s %s, ", r->id, r->doc);
}

static void check_list(const struct store_record_query *q, const char *expected) {
    struct listed l = {""};
    assert_int_equal(store_record_list(store, "vercel", q, on_listed, &l, &e), 0);
    assert_string_equal(l.ids, expected);
}

/* Two creates of one name at the same time: the second must find the first. */
static void test_a_list_has_what_waits_to_be_written(void **state) {
    (void)state;
    put("vercel", "v_1", "1", 0);
    put("vercel", "v_3", "3", 0);
    put("vercel", "v_5", "5", 0);
    settle();
    sqlite3 *beside = lock_beside();
    put("vercel", "v_3", "3b", 0);
    put("vercel", "v_6", "6", 0);
    assert_false(store_has_written(store, store_submitted(store))); /* the thread has these */
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    put("vercel", "v_4", "4", 0);
    assert_int_equal(store_record_delete(store, "vercel", "v_5", &e), 0);
    put("sandbox", "v_2", "another kind", 0);
    check_list(&(struct store_record_query){.scope = all, .limit = 10},
               "v_6 6, v_4 4, v_3 3b, v_1 1, ");
    check_list(&(struct store_record_query){.scope = all, .limit = 2}, "v_6 6, v_4 4, ");
    check_list(&(struct store_record_query){.scope = all, .limit = 10, .before = "v_4"},
               "v_3 3b, v_1 1, ");
    check_list(&(struct store_record_query){.scope = {.owner = "other"}, .limit = 10}, "");
    struct store_record r;
    assert_int_equal(store_record_get(store, "vercel", "v_5", NULL, all, &r, &e), -ERR_NOT_FOUND);
    assert_int_equal(store_record_get(store, "vercel", "v_6", NULL, all, &r, &e), 0);
    store_record_finish(&r);
    assert_int_equal(sqlite3_close(beside), SQLITE_OK);
    settle();
    check_list(&(struct store_record_query){.scope = all, .limit = 10},
               "v_6 6, v_4 4, v_3 3b, v_1 1, ");
}

static void test_one_that_cannot_be_written_keeps_no_other_from_it(void **state) {
    (void)state;
    assert_int_equal(begin("run_1"), 0);
    assert_int_equal(begin("run_1"), 0); /* there can be one only */
    assert_int_equal(store_event_add(store, "run_none", "log", "{}", 2, &e), 0);
    assert_int_equal(end("run_none", JOB_DONE), 0);
    assert_int_equal(begin("run_2"), 0);
    settle();
    assert_false(store->queue.blocked);
    assert_true(has_status("run_1", JOB_RUNNING));
    assert_true(has_status("run_2", JOB_RUNNING));
    assert_int_equal(number("SELECT count(*) FROM events"), 0);
    assert_int_equal(store->queue.bytes, 0);
}

/* The run need not be written when somebody names it. */
static void test_an_event_finds_a_run_that_has_just_begun_and_is_theirs(void **state) {
    (void)state;
    assert_int_equal(begin("run_1"), 0);
    assert_int_equal(store_event_send(store, "run_1", (struct store_scope){.owner = "other"},
                                      "tail", "{}", 2, &e),
                     0);
    assert_int_equal(
        store_event_send(store, "run_1", (struct store_scope){.owner = ""}, "tail", "{}", 2, &e),
        0);
    settle();
    assert_int_equal(number("SELECT count(*) FROM events"), 1);
}

/* --- a full disk --- */

/* No file may grow beyond that, as if there was no room. */
static void set_room(rlim_t bytes) {
    struct rlimit r;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &r), 0);
    r.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
}

static rlim_t log_bytes(void) {
    struct stat st;
    char path[160];
    (void)snprintf(path, sizeof(path), "%s-wal", file);
    assert_int_equal(stat(path, &st), 0);
    return (rlim_t)st.st_size;
}

static void test_on_a_full_disk_nothing_begins_and_nothing_is_lost(void **state) {
    (void)state;
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGXFSZ, &ignore, NULL);
    assert_int_equal(begin("run_1"), 0);
    put("exec", "exec_1", "{}", 0);
    settle();
    set_room(log_bytes());
    assert_int_equal(begin("run_2"), 0); /* nobody knows yet */
    settle();
    assert_true(store->queue.blocked);
    assert_false(has_status("run_2", JOB_RUNNING));
    assert_int_equal(begin("run_3"), -ERR_FULL);
    assert_int_equal(err_http_status(e.code), 507);
    assert_non_null(strstr(e.message, "the disk is full: make room"));
    assert_int_equal(store_event_add(store, "run_1", "log", "{}", 2, &e), -ERR_FULL);
    assert_int_equal(end("run_1", JOB_DONE), 0);
    put("exec", "exec_1", "{\"n\":1}", 5);
    settle(); /* who reads does not wait for room */
    assert_true(has_status("run_1", JOB_RUNNING));
    set_room(RLIM_INFINITY);
    while (store->queue.blocked)
        (void)uv_run(&loop, UV_RUN_ONCE);
    settle();
    assert_true(has_status("run_1", JOB_DONE));
    assert_true(has_status("run_2", JOB_RUNNING));
    assert_false(has_status("run_3", JOB_RUNNING));
    struct store_record r;
    assert_int_equal(store_record_get(store, "exec", "exec_1", NULL, all, &r, &e), 0);
    assert_int_equal(r.ended_ms, 5);
    store_record_finish(&r);
    assert_int_equal(begin("run_3"), 0);
}

static void test_what_waits_is_bounded(void **state) {
    (void)state;
    static char big[1 << 20];
    memset(big, '1', sizeof(big));
    sqlite3 *beside = lock_beside();
    assert_int_equal(begin("run_1"), 0);
    int rc = 0;
    int n = 0;
    while (rc == 0 && n++ < 100)
        rc = store_event_add(store, "run_1", "log", big, sizeof(big), &e);
    assert_int_equal(rc, -ERR_UNAVAILABLE);
    assert_in_range(n, 60, 65);
    assert_int_equal(begin("run_2"), 0); /* a small one still fits */
    assert_int_equal(end("run_1", JOB_DONE), 0);
    assert_int_equal(sqlite3_close(beside), SQLITE_OK);
    settle();
    assert_true(has_status("run_1", JOB_DONE));
    assert_int_equal(store->queue.bytes, 0);
}

static void test_the_last_writes_are_written_when_it_stops(void **state) {
    (void)state;
    struct store_wait w = {0};
    bool told = false;
    exec_beside("SELECT 1");
    assert_int_equal(begin("run_1"), 0);
    settle();
    assert_int_equal(end("run_1", JOB_DONE), 0);
    assert_int_equal(begin("run_2"), 0);
    store_after(store, &w, on_flag, &told);
    store_stop_writer(store);
    assert_true(told);
    assert_true(has_status("run_1", JOB_DONE));
    assert_true(has_status("run_2", JOB_RUNNING));
    assert_int_equal(end("run_2", JOB_DONE), 0); /* at once, from now on */
    assert_true(has_status("run_2", JOB_DONE));
}

#define UNIT(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(test_a_reader_waits_for_what_was_queued_before_it),
        UNIT(test_one_who_does_not_wait_any_more_is_not_called),
        UNIT(test_nobody_has_to_ask_for_a_write),
        UNIT(test_what_begins_and_ends_at_once_is_written_once),
        UNIT(test_a_record_that_is_deleted_and_made_again_is_the_new_one),
        UNIT(test_a_list_has_what_waits_to_be_written),
        UNIT(test_an_event_finds_a_run_that_has_just_begun_and_is_theirs),
        UNIT(test_one_that_cannot_be_written_keeps_no_other_from_it),
        UNIT(test_on_a_full_disk_nothing_begins_and_nothing_is_lost),
        UNIT(test_what_waits_is_bounded),
        UNIT(test_the_last_writes_are_written_when_it_stops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
