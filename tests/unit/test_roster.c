#include "base/cleanup.h"
#include "base/mem.h"
#include "front/ledger/db.h"
#include "front/run/roster.h"
#include "front/store/store.h"
#include "unit/unit.h"

#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The list of deployed workers: in the ledger, told to a copy, taken over from an earlier store. */

static uv_loop_t loop;
static struct ledger_db *db;
static struct ledger *ledger;
static struct roster *roster;
static int64_t now;
static struct err e;

static char dir[] = "/tmp/cay-roster-XXXXXX";
static char store_path[sizeof(dir) + 16];

static int64_t now_ms(void) {
    return now;
}

static void no_keys(void *ctx, struct ledger_key *keys, size_t n, uint64_t version) {
    (void)ctx;
    (void)version;
    for (size_t i = 0; i < n; i++)
        ledger_key_finish(&keys[i]);
    free(keys);
}

static void no_news(void *ctx, uint64_t version) {
    (void)ctx;
    (void)version;
}

static int open_all(void) {
    struct ledger_watch keys = {.on_keys = no_keys, .on_confirmed = no_news};
    if (ledger_db_open(dir, &db, &e) < 0 || uv_loop_init(&loop) != 0 ||
        ledger_open(&loop, db, &keys, &ledger, &e) < 0)
        return -1;
    roster = roster_create(now_ms);
    struct ledger_worker_watch watch = roster_watch(roster);
    return ledger_watch_workers(ledger, &watch, &e);
}

static void close_all(void) {
    ledger_close(ledger);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    ledger_db_close(db);
    roster_destroy(roster);
}

static int setup(void **state) {
    (void)state;
    now = 1000;
    memcpy(dir + sizeof(dir) - 7, "XXXXXX", 6);
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(store_path, sizeof(store_path), "%s/cay.db", dir);
    return open_all();
}

static int teardown(void **state) {
    (void)state;
    static const char *const files[] = {"cay.db", "cay.db-wal", "cay.db-shm", "ledger.db"};
    char path[sizeof(store_path)];
    close_all();
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", dir, files[i]);
        (void)unlink(path);
    }
    return rmdir(dir);
}

static struct ledger_worker named(const char *owner, const char *id) {
    struct ledger_worker w = {0};
    (void)snprintf(w.owner, sizeof(w.owner), "%s", owner);
    (void)snprintf(w.id, sizeof(w.id), "%s", id);
    (void)snprintf(w.label, sizeof(w.label), "%s%s", id, owner);
    return w;
}

static enum ledger_op op;
static enum err_code code;
static int64_t version;
static char message[512];
static char text[64];

static void on_answer(void *ctx, const struct ledger_answer *a) {
    struct ledger_worker found;
    const struct ledger_worker *asked = ctx;
    code = a->err.code;
    const struct ledger_worker *told = op == LEDGER_WORKER_GET   ? a->worker_got.worker
                                       : op == LEDGER_WORKER_PUT ? &a->worker_stored.worker
                                                                 : &a->worker_deleted.worker;
    version = code ? 0 : told->version;
    (void)snprintf(message, sizeof(message), "%s", a->err.message);
    (void)snprintf(text, sizeof(text), "%s", !code && told->code ? told->code : "");
    /* Whoever was answered finds what he has put, and not what he has deleted. */
    int rc = roster_find(roster, asked->owner, asked->id, &found, &e);
    if (code == 0 && op == LEDGER_WORKER_PUT)
        assert_true(rc == 0 && found.version == version);
    if (code == 0 && op == LEDGER_WORKER_DELETE)
        assert_int_equal(rc, -ERR_NOT_FOUND);
}

/* Most: 3 workers of 100 bytes together. */
static enum err_code ask(enum ledger_op what, struct ledger_worker w) {
    op = what;
    code = ERR_INTERNAL;
    struct ledger_ask a = {.op = what};
    if (what == LEDGER_WORKER_PUT)
        a.worker_put = (struct ledger_worker_put){.worker = &w, .workers_max = 3, .bytes_max = 100};
    else if (what == LEDGER_WORKER_GET)
        a.worker_get = (struct ledger_worker_get){.owner = w.owner, .id = w.id};
    else
        a.worker_delete = (struct ledger_worker_delete){.owner = w.owner, .id = w.id};
    ledger_call(ledger, &a, on_answer, &w);
    assert_int_equal(code, ERR_INTERNAL); /* not inside the call */
    while (code == ERR_INTERNAL)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    return code;
}

static enum err_code put(const char *owner, const char *id, const char *json) {
    struct ledger_worker w = named(owner, id);
    w.code = (char *)(uintptr_t)json;
    return ask(LEDGER_WORKER_PUT, w);
}

static void test_what_was_put_is_found_when_it_is_answered(void **state) {
    (void)state;
    struct ledger_worker w;
    assert_int_equal(put("key_a", "one", "{}"), 0);
    int64_t first = version;
    assert_int_equal(put("key_a", "one", "{\"x\":1}"), 0); /* anew */
    assert_int_equal(version, first + 1);
    assert_int_equal(roster_find_label(roster, "onekey_a", &w, &e), 0);
    assert_string_equal(w.owner, "key_a");
    assert_null(w.code);
    assert_int_equal(roster_find(roster, "", "one", &w, &e), -ERR_NOT_FOUND);
    assert_int_equal(ask(LEDGER_WORKER_GET, named("key_a", "one")), 0);
    assert_string_equal(text, "{\"x\":1}");
    assert_int_equal(version, first + 1);
    assert_int_equal(ask(LEDGER_WORKER_DELETE, named("key_b", "one")), ERR_NOT_FOUND);
    assert_int_equal(ask(LEDGER_WORKER_DELETE, named("key_a", "one")), 0);
    assert_int_equal(roster_find_label(roster, "onekey_a", &w, &e), -ERR_NOT_FOUND);
    assert_int_equal(ask(LEDGER_WORKER_DELETE, named("key_a", "one")), ERR_NOT_FOUND);
    assert_int_equal(ask(LEDGER_WORKER_GET, named("key_a", "one")), ERR_NOT_FOUND);
    /* A version that was used is never given again, though the worker is gone. */
    assert_int_equal(put("key_a", "one", "{}"), 0);
    assert_true(version > first + 2);
}

static void test_what_a_key_may_have_is_counted_with_the_put(void **state) {
    (void)state;
    char big[60];
    memset(big, '1', sizeof(big) - 1);
    big[sizeof(big) - 1] = 0;
    assert_int_equal(put("a", "1", big), 0);
    assert_int_equal(put("a", "1", big), 0); /* itself again */
    assert_int_equal(put("a", "2", big), ERR_LIMIT);
    assert_non_null(strstr(message, "\"workers_mb\""));
    assert_int_equal(put("a", "2", "{}"), 0);
    assert_int_equal(put("a", "3", "{}"), 0);
    assert_int_equal(put("a", "4", "{}"), ERR_LIMIT);
    assert_non_null(strstr(message, "\"workers\""));
    assert_int_equal(put("b", "4", "{}"), 0);
    /* What was refused has left nothing behind. */
    struct ledger_worker w;
    assert_int_equal(roster_find(roster, "a", "4", &w, &e), -ERR_NOT_FOUND);
    assert_int_equal(ask(LEDGER_WORKER_GET, named("a", "4")), ERR_NOT_FOUND);
}

static void test_a_host_name_is_of_one_worker(void **state) {
    (void)state;
    struct ledger_worker w;
    assert_int_equal(put("key_a", "one", "{}"), 0);
    assert_int_equal(put("", "onekey_a", "{}"), ERR_CONFLICT);
    assert_non_null(strstr(message, "choose another id"));
    assert_int_equal(roster_find_label(roster, "onekey_a", &w, &e), 0);
    assert_string_equal(w.owner, "key_a");
}

static void test_an_owners_are_listed_by_id(void **state) {
    (void)state;
    struct ledger_worker *const *list;
    size_t n;
    static const char *const owners[] = {"", "key_a", "key_b"};
    for (size_t i = 0; i < ARRAY_LEN(owners); i++) {
        assert_int_equal(put(owners[i], "z", "{}"), 0);
        assert_int_equal(put(owners[i], "a", "{}"), 0);
    }
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < ARRAY_LEN(owners); i++) {
            assert_int_equal(roster_list(roster, owners[i], &list, &n, &e), 0);
            assert_int_equal(n, 2);
            assert_string_equal(list[0]->id, "a");
            assert_string_equal(list[1]->id, "z");
            assert_string_equal(list[1]->owner, owners[i]);
        }
        assert_int_equal(roster_list(roster, "key_c", &list, &n, &e), 0);
        assert_int_equal(n, 0);
        close_all(); /* and once more, as they are told after a start */
        assert_int_equal(open_all(), 0);
    }
}

/* Another process has the file open too. It tells by the file's version. */
static void test_what_another_process_has_put_is_told(void **state) {
    (void)state;
    struct ledger_db *other;
    struct ledger_worker w = named("key_a", "theirs");
    struct ledger_answer a;
    assert_int_equal(put("key_a", "ours", "{}"), 0);
    w.code = (char *)(uintptr_t) "{}";
    assert_int_equal(ledger_db_open(dir, &other, &e), 0);
    ledger_db_do(
        other,
        &(struct ledger_ask){.op = LEDGER_WORKER_PUT,
                             .worker_put = {.worker = &w, .workers_max = 3, .bytes_max = 100}},
        &a);
    assert_int_equal(a.err.code, 0);
    ledger_answer_finish(&a);
    ledger_db_close(other);
    /* A put of ours that comes before we have seen it tells both. */
    assert_int_equal(put("key_a", "next", "{}"), 0);
    assert_int_equal(roster_find(roster, "key_a", "theirs", &w, &e), 0);
    ledger_refresh(ledger);
    assert_int_equal(roster_find(roster, "key_a", "ours", &w, &e), 0);
}

/* --- a ledger that tells late, out of order, twice, or not at all --- */

static struct ledger_worker *list_of(const char *id) {
    struct ledger_worker *list = calloc(1, sizeof(*list));
    list[0] = named("", id);
    return list;
}

static int looks;
static void on_look(void *ctx) {
    (void)ctx;
    looks++;
}

static int changes;
static void on_changed(void *ctx) {
    (void)ctx;
    changes++;
}

static void test_a_silent_ledger_finds_nobody_and_says_so(void **state) {
    (void)state;
    struct roster *r = roster_create(now_ms);
    struct ledger_worker_watch w = roster_watch(r);
    struct ledger_worker found;
    struct ledger_worker *const *list;
    size_t n;
    looks = 0;
    roster_on_stale(r, on_look, NULL);
    assert_int_equal(roster_find(r, "", "a", &found, &e), -ERR_UNAVAILABLE); /* not yet at all */
    assert_int_equal(roster_find_label(r, "a", &found, &e), -ERR_UNAVAILABLE);
    assert_int_equal(roster_list(r, "", &list, &n, &e), -ERR_UNAVAILABLE);
    assert_int_equal(looks, 3);
    w.on_all(w.ctx, list_of("a"), 1, 5);
    assert_int_equal(roster_find(r, "", "a", &found, &e), 0);
    now += LEDGER_STALE_MS;
    w.on_confirmed(w.ctx, 4); /* of something old, which is none */
    assert_int_equal(roster_find(r, "", "a", &found, &e), 0);
    now += 1;
    assert_int_equal(roster_find(r, "", "a", &found, &e), -ERR_UNAVAILABLE);
    w.on_confirmed(w.ctx, 5);
    assert_int_equal(roster_find(r, "", "a", &found, &e), 0);
    roster_destroy(r);
}

static void test_a_process_that_slept_looks_before_it_finds_nobody(void **state) {
    (void)state;
    struct ledger_worker w;
    assert_int_equal(put("", "a", "{}"), 0);
    now += 10 * LEDGER_STALE_MS;
    assert_int_equal(roster_find(roster, "", "a", &w, &e), -ERR_UNAVAILABLE);
    roster_on_stale(roster, ledger_refresh, ledger);
    assert_int_equal(roster_find(roster, "", "a", &w, &e), 0);
}

static void test_what_is_told_late_or_twice_changes_nothing(void **state) {
    (void)state;
    struct roster *r = roster_create(now_ms);
    struct ledger_worker_watch w = roster_watch(r);
    struct ledger_worker found;
    struct ledger_worker a = named("", "a");
    struct ledger_worker b = named("", "b");
    changes = 0;
    roster_on_change(r, on_changed, NULL);
    w.on_change(w.ctx, &b, false, 1); /* before there is a list */
    assert_int_equal(roster_find(r, "", "b", &found, &e), -ERR_UNAVAILABLE);
    w.on_all(w.ctx, list_of("a"), 1, 5);
    w.on_all(w.ctx, list_of("a"), 1, 5);
    w.on_all(w.ctx, list_of("b"), 1, 4);
    assert_int_equal(roster_find(r, "", "b", &found, &e), -ERR_NOT_FOUND);
    w.on_change(w.ctx, &a, true, 6);
    w.on_change(w.ctx, &a, true, 6);
    w.on_change(w.ctx, &a, false, 5); /* its put, after its delete */
    assert_int_equal(roster_find(r, "", "a", &found, &e), -ERR_NOT_FOUND);
    assert_int_equal(changes, 2);
    /* Something is missing between: it is not used, and what is here is not confirmed. */
    w.on_change(w.ctx, &b, false, 8);
    assert_int_equal(roster_find(r, "", "b", &found, &e), -ERR_NOT_FOUND);
    now += LEDGER_STALE_MS + 1;
    w.on_confirmed(w.ctx, 8);
    assert_int_equal(roster_find(r, "", "b", &found, &e), -ERR_UNAVAILABLE);
    w.on_all(w.ctx, list_of("b"), 1, 8);
    assert_int_equal(roster_find(r, "", "b", &found, &e), 0);
    roster_destroy(r);
}

static void test_many_come_and_go_and_all_are_found(void **state) {
    (void)state;
    enum { N = 2000 };
    struct roster *r = roster_create(now_ms);
    struct ledger_worker_watch w = roster_watch(r);
    struct ledger_worker found;
    char id[16];
    uint64_t v = 1;
    w.on_all(w.ctx, NULL, 0, v);
    for (int i = 0; i < N; i++) {
        (void)snprintf(id, sizeof(id), "w%d", i * 7919 % N);
        struct ledger_worker k = named(i % 2 ? "key_a" : "", id);
        k.version = i;
        w.on_change(w.ctx, &k, false, ++v);
        if (i % 3 == 0)
            w.on_change(w.ctx, &k, true, ++v);
    }
    for (int i = 0; i < N; i++) {
        (void)snprintf(id, sizeof(id), "w%d", i * 7919 % N);
        struct ledger_worker k = named(i % 2 ? "key_a" : "", id);
        int want = i % 3 == 0 ? -ERR_NOT_FOUND : 0;
        assert_int_equal(roster_find(r, k.owner, k.id, &found, &e), want);
        assert_int_equal(roster_find_label(r, k.label, &found, &e), want);
        if (want == 0)
            assert_int_equal(found.version, i);
    }
    char far[300];
    memset(far, 'w', sizeof(far) - 1);
    far[sizeof(far) - 1] = 0;
    assert_int_equal(roster_find(r, "", far, &found, &e), -ERR_NOT_FOUND);
    assert_int_equal(roster_find_label(r, far, &found, &e), -ERR_NOT_FOUND);
    roster_destroy(r);
}

/* --- what an earlier cay has in its store --- */

enum { OLD = 3000 };

static int64_t number(const char *path, const char *sql) {
    sqlite3 *h;
    sqlite3_stmt *st;
    assert_int_equal(sqlite3_open(path, &h), SQLITE_OK);
    int64_t n = -1;
    if (sqlite3_prepare_v2(h, sql, -1, &st, NULL) == SQLITE_OK) {
        if (sqlite3_step(st) == SQLITE_ROW)
            n = sqlite3_column_int64(st, 0);
        (void)sqlite3_finalize(st);
    }
    (void)sqlite3_close(h);
    return n;
}

static void make_old_store(void) {
    struct store *store;
    sqlite3 *h;
    assert_int_equal(store_open(store_path, &store, &e), 0);
    store_close(store);
    assert_int_equal(sqlite3_open(store_path, &h), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(h,
                     "CREATE TABLE IF NOT EXISTS workers (owner TEXT NOT NULL, id TEXT NOT NULL,"
                     " label TEXT NOT NULL UNIQUE, updated_ms INTEGER NOT NULL,"
                     " bytes INTEGER NOT NULL DEFAULT 0, code TEXT NOT NULL,"
                     " PRIMARY KEY (owner, id))",
                     NULL, NULL, NULL),
        SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(h,
                     "INSERT INTO workers (owner, id, label, updated_ms, bytes, code)"
                     " WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < "
                     "3000) SELECT CASE i % 2 WHEN 0 THEN '' ELSE 'key_a' END, 'w' || i, 'l' || i,"
                     " i, 9, '{\"code\":\"' || i || '\",\"public\":'"
                     " || CASE i % 3 WHEN 0 THEN 'true' WHEN 1 THEN 'false' ELSE '1' END || '}'"
                     " FROM n",
                     NULL, NULL, NULL),
        SQLITE_OK);
    (void)sqlite3_close(h);
}

static void check_taken(void) {
    struct ledger_worker w;
    char id[16];
    int64_t last = 0;
    assert_int_equal(number(store_path, "SELECT count(*) FROM workers"), -1); /* no such table */
    for (int i = 1; i <= OLD; i++) {
        (void)snprintf(id, sizeof(id), "w%d", i);
        assert_int_equal(roster_find(roster, i % 2 ? "key_a" : "", id, &w, &e), 0);
        assert_int_equal(w.updated_ms, i);
        assert_int_equal(w.public, i % 3 == 0);
        assert_true(w.version > 0);
        last = MAX(last, w.version);
    }
    assert_int_equal(ask(LEDGER_WORKER_GET, named("", "w2000")), 0);
    assert_string_equal(text, "{\"code\":\"2000\",\"public\":1}");
    assert_int_equal(put("key_z", "new", "{}"), 0);
    assert_true(version > last);
}

static void test_the_workers_of_an_earlier_cay_are_taken_over(void **state) {
    (void)state;
    make_old_store();
    struct store *store; /* as a server has it open */
    assert_int_equal(store_open(store_path, &store, &e), 0);
    assert_int_equal(ledger_db_take_workers(db, store_path, &e), 0);
    store_close(store);
    close_all();
    assert_int_equal(open_all(), 0);
    check_taken();
    /* Once only: what was deleted since does not come back, and a store that has none is fine. */
    assert_int_equal(ask(LEDGER_WORKER_DELETE, named("", "w2")), 0);
    assert_int_equal(ledger_db_take_workers(db, store_path, &e), 0);
    assert_int_equal(ask(LEDGER_WORKER_GET, named("", "w2")), ERR_NOT_FOUND);
}

/* As it is when it was killed after the copy and before the old table was gone. */
static void test_what_was_copied_already_is_copied_again(void **state) {
    (void)state;
    make_old_store();
    assert_int_equal(ledger_db_take_workers(db, store_path, &e), 0);
    make_old_store();
    assert_int_equal(ledger_db_take_workers(db, store_path, &e), 0);
    close_all();
    assert_int_equal(open_all(), 0);
    check_taken();
}

/* One that cannot be taken over is left where it is, with all others. */
static void test_what_cannot_be_taken_over_is_not_thrown_away(void **state) {
    (void)state;
    struct ledger_worker w;
    make_old_store();
    assert_int_equal(put("key_other", "x", "{}"), 0);
    sqlite3 *h;
    assert_int_equal(sqlite3_open(store_path, &h), SQLITE_OK);
    assert_int_equal(sqlite3_exec(h, "UPDATE workers SET label = 'xkey_other' WHERE id = 'w7'",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    (void)sqlite3_close(h);
    assert_int_equal(ledger_db_take_workers(db, store_path, &e), -ERR_CONFLICT);
    assert_int_equal(number(store_path, "SELECT count(*) FROM workers"), OLD);
    assert_int_equal(ask(LEDGER_WORKER_GET, named("", "w2")), ERR_NOT_FOUND); /* all or none */
    assert_int_equal(roster_find(roster, "key_other", "x", &w, &e), 0);
}

/* A child that takes them over, killed at some moment. */
static bool take_until_killed(useconds_t after_us) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct ledger_db *own;
        if (ledger_db_open(dir, &own, &e) < 0 || ledger_db_take_workers(own, store_path, &e) < 0)
            _exit(1);
        _exit(0); /* without closing it: nothing is tidied up */
    }
    (void)usleep(after_us);
    (void)kill(pid, SIGKILL);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    return !WIFSIGNALED(status);
}

static void test_none_is_lost_when_it_is_killed_on_the_way(void **state) {
    (void)state;
    char ledger_path[sizeof(store_path)];
    (void)snprintf(ledger_path, sizeof(ledger_path), "%s/ledger.db", dir);
    make_old_store();
    close_all();
    bool done = false;
    for (useconds_t us = 200; !done; us += us / 4) {
        done = take_until_killed(us);
        int64_t there = number(store_path, "SELECT count(*) FROM workers");
        int64_t here = number(ledger_path, "SELECT count(*) FROM workers");
        assert_true(there == OLD || (there == -1 && here == OLD));
        assert_true(here == 0 || here == OLD);
    }
    assert_int_equal(open_all(), 0);
    check_taken();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(test_what_was_put_is_found_when_it_is_answered),
        UNIT(test_what_a_key_may_have_is_counted_with_the_put),
        UNIT(test_a_host_name_is_of_one_worker),
        UNIT(test_an_owners_are_listed_by_id),
        UNIT(test_what_another_process_has_put_is_told),
        UNIT(test_a_silent_ledger_finds_nobody_and_says_so),
        UNIT(test_a_process_that_slept_looks_before_it_finds_nobody),
        UNIT(test_what_is_told_late_or_twice_changes_nothing),
        UNIT(test_many_come_and_go_and_all_are_found),
        UNIT(test_the_workers_of_an_earlier_cay_are_taken_over),
        UNIT(test_what_was_copied_already_is_copied_again),
        UNIT(test_what_cannot_be_taken_over_is_not_thrown_away),
        UNIT(test_none_is_lost_when_it_is_killed_on_the_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
