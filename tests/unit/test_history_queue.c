/* Conversations with the thread that writes them: what is seen, what waits, and what is refused. */
#include "base/cleanup.h"
#include "base/mem.h"
#include "front/agent/history.h"
#include "unit/unit.h"

#include <ftw.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

static uv_loop_t loop;
static struct histories *all;
static struct history *h;
static char dir[64];
static char file[100];
static struct err e;

static int setup(void **state) {
    (void)state;
    (void)snprintf(dir, sizeof(dir), "/tmp/cay-unit-XXXXXX");
    if (!mkdtemp(dir) || uv_loop_init(&loop) != 0)
        return -1;
    (void)snprintf(file, sizeof(file), "%s/agent.db", dir);
    all = histories_create(&loop);
    return all ? history_open(all, file, &h, &e) : -1;
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

static int teardown(void **state) {
    (void)state;
    history_close(steal_ptr(&h));
    histories_close(steal_ptr(&all));
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    int rc = uv_loop_close(&loop);
    return nftw(dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS) == 0 ? rc : -1;
}

static int put(const char *id) {
    _cleanup_(free) char *json = xasprintf("{\"id\":\"%s\"}", id);
    return history_put(h, &(struct history_message){id, json, strlen(json)}, 1, &e);
}

static void assert_messages(struct history *of, const char *expected) {
    struct buf b;
    buf_init(&b, 10000);
    assert_int_equal(history_text(of, &b, &e), 0);
    (void)buf_add_char(&b, 0);
    assert_string_equal(b.data, expected);
    buf_finish(&b);
}

/* What a server would find that starts now. */
static void assert_on_disk(const char *expected) {
    struct history *other;
    assert_int_equal(history_open(NULL, file, &other, &e), 0);
    assert_messages(other, expected);
    history_close(other);
}

struct answer {
    struct history_wait wait;
    bool done;
    enum err_code code;
};

static void on_written(void *ctx, const struct err *err) {
    struct answer *a = ctx;
    a->done = true;
    a->code = err ? err->code : 0;
}

static void ask(struct answer *a) {
    *a = (struct answer){0};
    histories_after(all, &a->wait, h, on_written, a);
    assert_false(a->done); /* never in the call itself */
}

static void until_done(const struct answer *a) {
    while (!a->done)
        (void)uv_run(&loop, UV_RUN_ONCE);
}

static enum err_code settle(void) {
    struct answer a;
    ask(&a);
    until_done(&a);
    return a.code;
}

/* Another connection, whose lock keeps the writer still. */
static sqlite3 *lock_beside(void) {
    sqlite3 *db;
    assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    return db;
}

static void turns(int n) {
    for (int i = 0; i < n; i++)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
}

static void a_change_is_seen_before_it_is_written(void **state) {
    (void)state;
    struct answer a;
    char *value = NULL;
    int64_t place = -1;
    assert_int_equal(put("a"), 0);
    assert_int_equal(put("b"), 0);
    assert_int_equal(settle(), 0);
    sqlite3 *db = lock_beside();
    assert_int_equal(put("c"), 0);
    assert_int_equal(history_remove(h, "a", &e), 0);
    assert_int_equal(history_set(h, "key", "v", &e), 0);
    assert_int_equal(history_add_execution(h, "e1", "code", "out", NULL, &e), 0);
    ask(&a);
    turns(20);
    assert_int_equal(put("d"), 0); /* while the thread has the others */
    assert_int_equal(history_move_last(h, "b", &e), 0);
    assert_false(a.done);
    assert_false(history_is_settled(h));
    assert_false(history_rest(h));
    assert_messages(h, "[{\"id\":\"c\"},{\"id\":\"d\"},{\"id\":\"b\"}]");
    assert_int_equal(history_get(h, "key", &value, &e), 0);
    assert_string_equal(value, "v");
    free(value);
    json_t *list = NULL;
    assert_int_equal(history_executions(h, 10, 100, &list, &e), 0);
    assert_int_equal(json_array_size(list), 1);
    json_decref(list);
    assert_on_disk("[{\"id\":\"a\"},{\"id\":\"b\"}]");
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    until_done(&a);
    assert_int_equal(settle(), 0);
    assert_true(history_is_settled(h));
    assert_on_disk("[{\"id\":\"c\"},{\"id\":\"d\"},{\"id\":\"b\"}]");
    assert_int_equal(history_reserve(h, &place, &e), 0);
    assert_true(history_rest(h));
    assert_messages(h, "[{\"id\":\"c\"},{\"id\":\"d\"},{\"id\":\"b\"}]");
}

static void what_changes_nothing_is_written_too(void **state) {
    (void)state;
    struct answer a;
    assert_int_equal(put("a"), 0);
    sqlite3 *db = lock_beside();
    turns(20);
    assert_int_equal(history_remove(h, "nosuch", &e), 0);
    assert_int_equal(history_begin(h, &e), 0);
    assert_int_equal(put("b"), 0);
    assert_int_equal(history_end(h, false, &e), 0);
    ask(&a);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    until_done(&a);
    assert_messages(h, "[{\"id\":\"a\"}]");
    assert_true(history_is_settled(h));
}

/* Nobody waits for what has gone with its folder. */
static void one_that_is_dropped_holds_nobody_up(void **state) {
    (void)state;
    struct answer a;
    assert_int_equal(put("a"), 0);
    ask(&a);
    history_drop(steal_ptr(&h));
    until_done(&a);
    assert_int_equal(a.code, 0);
}

static void what_waits_is_written_at_the_end(void **state) {
    (void)state;
    sqlite3 *db = lock_beside();
    assert_int_equal(put("a"), 0);
    turns(5);
    assert_int_equal(put("b"), 0);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    history_close(steal_ptr(&h));
    histories_close(steal_ptr(&all));
    assert_on_disk("[{\"id\":\"a\"},{\"id\":\"b\"}]");
}

/* Its folder goes while the thread writes to it, and another takes its name. */
static void one_that_is_dropped_leaves_the_next_alone(void **state) {
    (void)state;
    for (int n = 0; n < 6; n++) {
        assert_int_equal(put("old"), 0);
        turns(n);
        history_drop(steal_ptr(&h));
        assert_int_equal(nftw(dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS), 0);
        assert_int_equal(mkdir(dir, 0700), 0);
        assert_int_equal(history_open(all, file, &h, &e), 0);
        assert_messages(h, "[]");
        assert_int_equal(put("new"), 0);
        assert_int_equal(settle(), 0);
        assert_on_disk("[{\"id\":\"new\"}]");
        assert_int_equal(history_remove(h, NULL, &e), 0);
    }
}

/* No file may grow beyond that, as if there was no room. */
static void set_room(rlim_t bytes) {
    struct rlimit r;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &r), 0);
    r.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
}

static void on_a_full_disk_nothing_is_admitted_and_nothing_lost(void **state) {
    (void)state;
    struct stat st;
    char log[120];
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGXFSZ, &ignore, NULL);
    assert_int_equal(put("a"), 0);
    history_make_durable(h);
    assert_int_equal(settle(), 0);
    (void)snprintf(log, sizeof(log), "%s-wal", file);
    assert_int_equal(stat(log, &st), 0);
    set_room((rlim_t)st.st_size);
    assert_int_equal(history_admit(h, &e), 0); /* nobody knows yet */
    for (int id = 'b'; id < 'h'; id++)
        assert_int_equal(put((char[]){(char)id, 0}), 0);
    static char large[100000];
    memset(large, 'x', sizeof(large) - 1);
    assert_int_equal(history_set(h, "large", large, &e), 0);
    assert_int_equal(settle(), ERR_FULL);
    assert_int_equal(history_admit(h, &e), -ERR_FULL);
    assert_int_equal(err_http_status(e.code), 507);
    assert_non_null(strstr(e.message, "the disk is full: make room"));
    assert_int_equal(history_remove(h, "a", &e), 0); /* what ends is taken all the same */
    assert_false(history_is_settled(h));
    assert_on_disk("[{\"id\":\"a\"}]");
    set_room(RLIM_INFINITY);
    while (!history_is_settled(h))
        (void)uv_run(&loop, UV_RUN_ONCE);
    assert_int_equal(history_admit(h, &e), 0);
    assert_on_disk("[{\"id\":\"b\"},{\"id\":\"c\"},{\"id\":\"d\"},{\"id\":\"e\"},{\"id\":\"f\"},"
                   "{\"id\":\"g\"}]");
}

static void more_than_the_queue_holds_is_refused(void **state) {
    (void)state;
    static char large[8 << 20];
    memset(large, 'x', sizeof(large) - 1);
    sqlite3 *db = lock_beside();
    assert_int_equal(put("a"), 0);
    turns(5);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(history_admit(h, &e), 0);
        char key[] = {(char)('0' + i), 0};
        assert_int_equal(history_set(h, key, large, &e), 0);
    }
    assert_int_equal(history_admit(h, &e), -ERR_UNAVAILABLE);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    assert_int_equal(settle(), 0);
    assert_int_equal(history_admit(h, &e), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(a_change_is_seen_before_it_is_written),
        UNIT(what_changes_nothing_is_written_too),
        UNIT(one_that_is_dropped_holds_nobody_up),
        UNIT(what_waits_is_written_at_the_end),
        UNIT(one_that_is_dropped_leaves_the_next_alone),
        UNIT(on_a_full_disk_nothing_is_admitted_and_nothing_lost),
        UNIT(more_than_the_queue_holds_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
