#include "base/clock.h"
#include "base/fd.h"
#include "front/store/store.h"
#include "unit/fds.h"
#include "unit/unit.h"

#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64];
static char file[100];
static struct store *store;
static struct err e;

static int setup(void **state) {
    (void)state;
    (void)snprintf(dir, sizeof(dir), "/tmp/cay-unit-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(file, sizeof(file), "%s/cay.db", dir);
    return store_open(file, &store, &e);
}

static int teardown(void **state) {
    (void)state;
    store_close(store);
    store = NULL;
    static const char *const ends[] = {"", "-wal", "-shm", "-link"};
    for (size_t i = 0; i < 4; i++) {
        char path[120];
        (void)snprintf(path, sizeof(path), "%s%s", file, ends[i]);
        (void)unlink(path);
    }
    return rmdir(dir);
}

static void begin(const char *owner, char id[ID_SIZE]) {
    struct store_run r = {
        .kind = (char *)"run", .title = (char *)"t", .created_ms = clock_wall_ms()};
    (void)id_new("run", r.id);
    (void)snprintf(r.owner, sizeof(r.owner), "%s", owner);
    assert_int_equal(store_run_begin(store, &r, &e), 0);
    memcpy(id, r.id, ID_SIZE);
}

static const struct store_scope all = {.all = true};

static void test_a_run_has_a_beginning_and_one_end(void **state) {
    (void)state;
    char id[ID_SIZE];
    begin("", id);
    struct store_run r;
    assert_int_equal(store_run_get(store, id, all, &r, &e), 0);
    assert_string_equal(r.status, "running");
    assert_int_equal(r.finished_ms, 0);
    store_run_finish(&r);
    struct store_run_end end = {.status = "done", .detail = "{\"a\":1}", .detail_len = 7};
    assert_int_equal(store_run_end(store, id, &end, &e), 0);
    assert_int_equal(store_run_end(store, id, &end, &e), -ERR_NOT_FOUND);
    assert_int_equal(store_run_get(store, id, all, &r, &e), 0);
    assert_string_equal(r.status, "done");
    assert_string_equal(r.detail, "{\"a\":1}");
    assert_true(r.finished_ms > 0);
    assert_null(r.error_code);
    store_run_finish(&r);
    store_run_finish(NULL);
}

static void on_run(void *ctx, const struct store_run *r) {
    (void)snprintf((char *)ctx + strlen(ctx), ID_SIZE + 2, "%s ", r->id);
}

static void test_scopes_and_pages(void **state) {
    (void)state;
    char ids[5][ID_SIZE];
    for (int i = 0; i < 5; i++) {
        begin(i % 2 ? "key_b" : "key_a", ids[i]);
        (void)usleep(2000); /* ids sort by milliseconds */
    }
    struct store_run r;
    struct store_scope a = {.owner = "key_a"};
    struct store_scope nobody = {0};
    assert_int_equal(store_run_get(store, ids[0], a, &r, &e), 0);
    store_run_finish(&r);
    assert_int_equal(store_run_get(store, ids[1], a, &r, &e), -ERR_NOT_FOUND);
    assert_int_equal(store_run_get(store, ids[0], nobody, &r, &e), -ERR_NOT_FOUND);
    assert_int_equal(store_run_get(store, "run_x' OR 1=1 --", all, &r, &e), -ERR_NOT_FOUND);
    char got[400] = "";
    char wanted[400];
    assert_int_equal(
        store_run_list(store, &(struct store_run_query){.scope = a, .limit = 10}, on_run, got, &e),
        0);
    (void)snprintf(wanted, sizeof(wanted), "%s %s %s ", ids[4], ids[2], ids[0]);
    assert_string_equal(got, wanted);
    got[0] = 0;
    assert_int_equal(
        store_run_list(store, &(struct store_run_query){.scope = all, .before = ids[3], .limit = 2},
                       on_run, got, &e),
        0);
    (void)snprintf(wanted, sizeof(wanted), "%s %s ", ids[2], ids[1]);
    assert_string_equal(got, wanted);
    got[0] = 0;
    assert_int_equal(
        store_run_list(store, &(struct store_run_query){.scope = all, .kind = "chat", .limit = 9},
                       on_run, got, &e),
        0);
    assert_string_equal(got, "");
}

static void test_what_was_running_is_interrupted(void **state) {
    (void)state;
    char one[ID_SIZE];
    char two[ID_SIZE];
    begin("", one);
    begin("", two);
    assert_int_equal(store_run_end(store, one, &(struct store_run_end){.status = "done"}, &e), 0);
    store_close(store);
    assert_int_equal(store_open(file, &store, &e), 0);
    int64_t n = 0;
    assert_int_equal(store_run_interrupt_all(store, &n, &e), 0);
    assert_int_equal(n, 1);
    struct store_run r;
    assert_int_equal(store_run_get(store, two, all, &r, &e), 0);
    assert_string_equal(r.status, "interrupted");
    assert_string_equal(r.error_code, "interrupted");
    assert_true(r.finished_ms > 0);
    store_run_finish(&r);
    assert_int_equal(store_run_get(store, one, all, &r, &e), 0);
    assert_string_equal(r.status, "done");
    store_run_finish(&r);
}

static void on_event(void *ctx, const struct store_event *ev) {
    (void)snprintf((char *)ctx + strlen(ctx), 100, "%lld:%s:%s ", (long long)ev->seq, ev->type,
                   ev->json);
}

static void test_events_are_numbered_per_run(void **state) {
    (void)state;
    char one[ID_SIZE];
    char two[ID_SIZE];
    begin("", one);
    begin("", two);
    assert_int_equal(store_event_add(store, one, "log", "1", 1, &e), 0);
    assert_int_equal(store_event_add(store, two, "log", "2", 1, &e), 0);
    assert_int_equal(store_event_add(store, one, "log", "34", 1, &e), 0);
    char got[300] = "";
    assert_int_equal(store_event_list(store, one, 0, 10, on_event, got, &e), 0);
    assert_string_equal(got, "1:log:1 2:log:3 ");
    got[0] = 0;
    assert_int_equal(store_event_list(store, one, 1, 10, on_event, got, &e), 0);
    assert_string_equal(got, "2:log:3 ");
    got[0] = 0;
    assert_int_equal(store_event_list(store, two, 0, 0, on_event, got, &e), 0);
    assert_string_equal(got, "");
}

static int get_version(void) {
    sqlite3 *db;
    sqlite3_stmt *st;
    assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    int version = sqlite3_column_int(st, 0);
    (void)sqlite3_finalize(st);
    (void)sqlite3_close(db);
    return version;
}

static void set_version(int version) {
    sqlite3 *db;
    char sql[64];
    (void)snprintf(sql, sizeof(sql), "PRAGMA user_version = %d", version);
    assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    (void)sqlite3_close(db);
}

static void test_databases_of_others_are_left_alone(void **state) {
    (void)state;
    store_close(store);
    store = NULL;
    int version = get_version();
    assert_true(version > 0);
    set_version(1000);
    assert_int_equal(store_open(file, &store, &e), -ERR_IO);
    assert_non_null(strstr(e.message, "newer cay"));
    set_version(-7);
    assert_int_equal(store_open(file, &store, &e), -ERR_IO);
    assert_non_null(strstr(e.message, "not cay's"));
    set_version(version);
    assert_int_equal(store_open(file, &store, &e), 0);
    store_close(store);
    store = NULL;
    char link[120];
    (void)snprintf(link, sizeof(link), "%s-link", file);
    assert_int_equal(symlink(file, link), 0);
    assert_int_equal(store_open(link, &store, &e), -ERR_IO);
    FILE *f = fopen(file, "w");
    (void)fputs("this is no database, but long enough to be taken for one by its size", f);
    (void)fclose(f);
    assert_int_equal(store_open(file, &store, &e), -ERR_IO);
    size_t before = fds_open();
    assert_int_equal(store_open("/nonexistent/x.db", &store, &e), -ERR_IO);
    assert_int_equal(fds_open(), before);
}

static void test_a_database_of_an_earlier_schema_is_brought_up(void **state) {
    (void)state;
    store_close(store);
    store = NULL;
    (void)unlink(file);
    sqlite3 *db;
    assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
    (void)sqlite3_close(db);
    assert_int_equal(store_open(file, &store, &e), 0);
    int64_t n = -1;
    assert_int_equal(store_key_count(store, &n, &e), 0);
    assert_int_equal(n, 0);
}

/* A child that records runs and tells of each that is acknowledged, killed at some moment. */
static int write_until_killed(int out) {
    if (store_open(file, &store, &e) < 0)
        return 1;
    for (int i = 0; i < 100000; i++) {
        struct store_run r = {.kind = (char *)"run", .title = (char *)"t", .created_ms = 1};
        (void)id_new("run", r.id);
        if (store_run_begin(store, &r, &e) < 0 ||
            store_event_add(store, r.id, "log", "{}", 2, &e) < 0 ||
            fd_write_all(out, r.id, ID_SIZE) < 0)
            return 2;
        if (i % 20 == 19)
            store_checkpoint(store);
    }
    return 3;
}

static void test_nothing_acknowledged_is_lost_by_kill_9(void **state) {
    (void)state;
    store_close(store);
    store = NULL;
    size_t total = 0;
    for (int round = 0; round < 100; round++) {
        int p[2];
        assert_int_equal(pipe(p), 0);
        pid_t pid = fork();
        if (pid == 0) {
            close(p[0]);
            _exit(write_until_killed(p[1]));
        }
        close(p[1]);
        static char acked[4000][ID_SIZE];
        size_t n = 0;
        size_t stop = (size_t)(round * 7 % 40) + 1;
        while (n < stop && fd_read_all(p[0], acked[n], ID_SIZE) == ID_SIZE)
            n++;
        (void)kill(pid, SIGKILL);
        while (n < 4000 && fd_read_all(p[0], acked[n], ID_SIZE) == ID_SIZE)
            n++;
        close(p[0]);
        int st;
        assert_int_equal(waitpid(pid, &st, 0), pid);
        assert_true(WIFSIGNALED(st));
        assert_int_equal(store_open(file, &store, &e), 0);
        for (size_t i = 0; i < n; i++) {
            struct store_run r;
            assert_int_equal(store_run_get(store, acked[i], all, &r, &e), 0);
            store_run_finish(&r);
        }
        total += n;
        store_close(store);
        store = NULL;
    }
    assert_true(total >= 1000);
    sqlite3 *db;
    sqlite3_stmt *st;
    assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    assert_string_equal((const char *)sqlite3_column_text(st, 0), "ok");
    (void)sqlite3_finalize(st);
    (void)sqlite3_close(db);
}

static void put_record(const char *kind, int n, const char *owner, const char *parent,
                       int64_t ended_ms) {
    struct store_record r = {.status = (char *)(ended_ms ? "stopped" : "running"),
                             .created_ms = 1000 + n,
                             .ended_ms = ended_ms,
                             .bytes = n,
                             .doc = (char *)"{}"};
    (void)snprintf(r.id, sizeof(r.id), "%s_%03d", kind, n);
    (void)snprintf(r.owner, sizeof(r.owner), "%s", owner);
    (void)snprintf(r.parent, sizeof(r.parent), "%s", parent);
    assert_int_equal(store_record_put(store, kind, &r, &e), 0);
}

static void count(void *ctx, const struct store_record *r) {
    (void)r;
    ++*(int *)ctx;
}

static int old_ones(const char *kind, const char *parent, int64_t before_ms, size_t keep) {
    int n = 0;
    assert_int_equal(store_record_old(store, kind, parent, before_ms, keep, count, &n, &e), 0);
    return n;
}

static void test_records_have_owners_parents_and_an_end(void **state) {
    (void)state;
    struct store_record r;
    for (int i = 0; i < 6; i++)
        put_record("sandbox", i, i % 2 ? "a" : "b", "", i < 4 ? 2000 + i : 0);
    for (int i = 0; i < 3; i++)
        put_record("exec", i, "a", "sandbox_001", i < 2 ? 3000 : 0);
    struct store_scope a = {.owner = "a"};
    assert_int_equal(store_record_get(store, "sandbox", "sandbox_001", NULL, a, &r, &e), 0);
    assert_string_equal(r.status, "stopped");
    store_record_finish(&r);
    assert_int_equal(store_record_get(store, "sandbox", "sandbox_002", NULL, a, &r, &e),
                     -ERR_NOT_FOUND);
    assert_int_equal(store_record_get(store, "exec", "sandbox_001", NULL, a, &r, &e),
                     -ERR_NOT_FOUND);
    assert_int_equal(store_record_get(store, "exec", "exec_000", "sandbox_003", a, &r, &e),
                     -ERR_NOT_FOUND);
    int n = 0;
    assert_int_equal(store_record_list(store, "sandbox",
                                       &(struct store_record_query){.scope = a, .limit = 2}, count,
                                       &n, &e),
                     0);
    assert_int_equal(n, 2);
    /* By number and by age; what lives is never old. */
    assert_int_equal(old_ones("sandbox", NULL, 0, 10), 0);
    assert_int_equal(old_ones("sandbox", NULL, 0, 1), 3);
    assert_int_equal(old_ones("sandbox", NULL, 2002, 10), 2);
    assert_int_equal(old_ones("sandbox", NULL, INT64_MAX, 0), 4);
    assert_int_equal(old_ones("exec", "sandbox_001", 0, 1), 1);
    assert_int_equal(old_ones("exec", "sandbox_003", 0, 0), 0);
    int64_t interrupted = 0;
    assert_int_equal(store_record_interrupt_all(store, &interrupted, &e), 0);
    assert_int_equal(interrupted, 3);
    assert_int_equal(store_record_get(store, "sandbox", "sandbox_005", NULL, all, &r, &e), 0);
    assert_string_equal(r.status, "interrupted");
    assert_true(r.ended_ms > 0);
    store_record_finish(&r);
    int64_t bytes = 0;
    assert_int_equal(store_record_sum(store, "sandbox", &bytes, &e), 0);
    assert_int_equal(bytes, 15);
    assert_int_equal(store_record_delete(store, "sandbox", "sandbox_001", &e), 0);
    assert_int_equal(store_record_get(store, "exec", "exec_000", NULL, all, &r, &e),
                     -ERR_NOT_FOUND);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(test_a_run_has_a_beginning_and_one_end),
        UNIT(test_scopes_and_pages),
        UNIT(test_what_was_running_is_interrupted),
        UNIT(test_events_are_numbered_per_run),
        UNIT(test_databases_of_others_are_left_alone),
        UNIT(test_a_database_of_an_earlier_schema_is_brought_up),
        UNIT(test_nothing_acknowledged_is_lost_by_kill_9),
        UNIT(test_records_have_owners_parents_and_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
