#include "base/clock.h"
#include "base/fd.h"
#include "base/limits.h"
#include "front/store/internal.h"
#include "unit/fds.h"
#include "unit/unit.h"

#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
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
    assert_int_equal(r.status, JOB_RUNNING);
    assert_int_equal(r.finished_ms, 0);
    store_run_finish(&r);
    struct store_run_end end = {.status = JOB_DONE, .detail = "{\"a\":1}", .detail_len = 7};
    assert_int_equal(store_run_end(store, id, &end, &e), 0);
    assert_int_equal(store_run_end(store, id, &end, &e), -ERR_NOT_FOUND);
    assert_int_equal(store_run_get(store, id, all, &r, &e), 0);
    assert_int_equal(r.status, JOB_DONE);
    assert_string_equal(r.detail, "{\"a\":1}");
    assert_true(r.finished_ms > 0);
    assert_null(r.error_code);
    store_run_finish(&r);
    store_run_finish(NULL);
}

static char next_page[ID_SIZE]; /* of the last list */

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
    assert_int_equal(store_run_list(store, &(struct store_run_query){.scope = a, .limit = 10},
                                    on_run, got, next_page, &e),
                     0);
    (void)snprintf(wanted, sizeof(wanted), "%s %s %s ", ids[4], ids[2], ids[0]);
    assert_string_equal(got, wanted);
    got[0] = 0;
    assert_int_equal(
        store_run_list(store, &(struct store_run_query){.scope = all, .before = ids[3], .limit = 2},
                       on_run, got, next_page, &e),
        0);
    (void)snprintf(wanted, sizeof(wanted), "%s %s ", ids[2], ids[1]);
    assert_string_equal(got, wanted);
    got[0] = 0;
    assert_int_equal(
        store_run_list(store, &(struct store_run_query){.scope = all, .kind = "chat", .limit = 9},
                       on_run, got, next_page, &e),
        0);
    assert_string_equal(got, "");
}

static void test_a_run_ends_with_what_it_used_or_not_at_all(void **state) {
    (void)state;
    char id[ID_SIZE];
    struct store_run r;
    struct store_run_end end = {.status = JOB_DONE, .usage = {.input_tokens = 5, .cost_nusd = 7}};
    begin("", id);
    assert_int_equal(store_run_end(store, id, &end, &e), 0);
    end.usage.input_tokens = 6;
    assert_int_equal(store_run_end(store, id, &end, &e), -ERR_NOT_FOUND);
    assert_int_equal(store_run_get(store, id, all, &r, &e), 0);
    assert_true(r.has_usage);
    assert_int_equal(r.usage.input_tokens, 5);
    assert_int_equal(r.usage.cost_nusd, 7);
    store_run_finish(&r);
    begin("", id); /* nothing was left open */
    assert_int_equal(store_run_end(store, id, &end, &e), 0);
    store_close(store);
    assert_int_equal(store_open(file, &store, &e), 0);
    assert_int_equal(store_run_get(store, id, all, &r, &e), 0);
    assert_int_equal(r.usage.input_tokens, 6);
    store_run_finish(&r);
}

static void test_what_was_running_is_interrupted(void **state) {
    (void)state;
    char one[ID_SIZE];
    char two[ID_SIZE];
    begin("", one);
    begin("", two);
    assert_int_equal(store_run_end(store, one, &(struct store_run_end){.status = JOB_DONE}, &e), 0);
    store_close(store);
    assert_int_equal(store_open(file, &store, &e), 0);
    int64_t n = 0;
    assert_int_equal(store_run_interrupt_all(store, &n, &e), 0);
    assert_int_equal(n, 1);
    struct store_run r;
    assert_int_equal(store_run_get(store, two, all, &r, &e), 0);
    assert_int_equal(r.status, JOB_INTERRUPTED);
    assert_string_equal(r.error_code, "interrupted");
    assert_true(r.finished_ms > 0);
    store_run_finish(&r);
    assert_int_equal(store_run_get(store, one, all, &r, &e), 0);
    assert_int_equal(r.status, JOB_DONE);
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

/* The database as a server left it that knew so many migrations. */
static void go_back_to(int version, const char *rows) {
    store_close(store);
    store = NULL;
    (void)unlink(file);
    sqlite3 *db;
    assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
    for (int i = 0; i < version; i++)
        assert_int_equal(sqlite3_exec(db, store_migrations[i], NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, rows, NULL, NULL, NULL), SQLITE_OK);
    (void)sqlite3_close(db);
    set_version(version);
    assert_int_equal(store_open(file, &store, &e), 0);
    assert_int_equal(get_version(), store_migration_count);
}

static int64_t number(const char *text) {
    sqlite3_stmt *st;
    assert_int_equal(sqlite3_prepare_v2(store->db, text, -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(st, 0);
    (void)sqlite3_finalize(st);
    return n;
}

static void test_a_database_of_an_earlier_schema_is_brought_up(void **state) {
    (void)state;
    go_back_to(0, "");
    int64_t n = -1;
    assert_int_equal(store_run_interrupt_all(store, &n, &e), 0);
    assert_int_equal(n, 0);
    go_back_to(3,
               "INSERT INTO runs VALUES ('run_2', 'key_a', 'chat', 'failed', 'two', '{\"d\":2}',"
               " 'Error', 'no', 20, 22), ('run_1', '', 'run', 'running', 'one', NULL, NULL, NULL,"
               " 10, 0);"
               "INSERT INTO events VALUES ('run_2', 1, 21, 'log', '\"x\"');"
               "INSERT INTO workers VALUES ('key_a', 'w', 'w-a', '{}', 5);"
               "INSERT INTO records VALUES ('sandbox', 'sbx_1', '', '', 'stopped', 1, 2, 0, '{}')");
    struct store_run r;
    assert_int_equal(store_run_get(store, "run_2", all, &r, &e), 0);
    assert_string_equal(r.owner, "key_a");
    assert_string_equal(r.kind, "chat");
    assert_int_equal(r.status, JOB_FAILED);
    assert_string_equal(r.title, "two");
    assert_string_equal(r.detail, "{\"d\":2}");
    assert_string_equal(r.error_code, "Error");
    assert_string_equal(r.error_message, "no");
    assert_int_equal(r.created_ms, 20);
    assert_int_equal(r.finished_ms, 22);
    store_run_finish(&r);
    char got[300] = "";
    assert_int_equal(store_event_list(store, "run_2", 0, 10, on_event, got, &e), 0);
    assert_string_equal(got, "1:log:\"x\" ");
    assert_int_equal(store_run_interrupt_all(store, &n, &e), 0);
    assert_int_equal(n, 1);
    /* which the ledger takes from here */
    assert_int_equal(number("SELECT count(*) FROM workers WHERE label = 'w-a' AND bytes = 2"), 1);
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
            (void)store_care(store, &e);
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
    assert_int_equal(store_record_sum(store, "sandbox", NULL, &bytes, &e), 0);
    assert_int_equal(bytes, 15);
    assert_int_equal(store_record_sum(store, "sandbox", "nobody", &bytes, &e), 0);
    assert_int_equal(bytes, 0);
    assert_int_equal(store_record_delete(store, "sandbox", "sandbox_001", &e), 0);
    assert_int_equal(store_record_get(store, "exec", "exec_000", NULL, all, &r, &e),
                     -ERR_NOT_FOUND);
}

/* --- what a call costs --- */

static void sql(const char *text) {
    char *message = NULL;
    if (sqlite3_exec(store->db, text, NULL, NULL, &message) != SQLITE_OK)
        fail_msg("%s: %s", text, message);
}

/* Lists that are wanted whole, of a table that only the operator makes grow. */
static bool is_whole_list(const char *text) {
    return strstr(text, "FROM keys ORDER BY") || strstr(text, "count(*) FROM keys") ||
           strstr(text, "FROM run_sums");
}

/* The few kinds that an owner has, and the newest or oldest of each. */
static bool is_by_kinds(const char *text, const char *plan) {
    return strstr(text, "RECURSIVE kinds") &&
           (strcmp(plan, "SCAN kinds") == 0 || strstr(plan, "TEMP B-TREE"));
}

static void test_no_statement_scans_a_table_or_sorts(void **state) {
    (void)state;
    size_t seen = 0;
    for (int i = 0; i < STORE_SUBJECTS; i++)
        for (size_t k = 0; k < store_statements[i]->n; k++) {
            const char *text = store_statements[i]->sql[k];
            char *explain = sqlite3_mprintf("EXPLAIN QUERY PLAN %s", text);
            sqlite3_stmt *st;
            assert_int_equal(sqlite3_prepare_v2(store->db, explain, -1, &st, NULL), SQLITE_OK);
            while (sqlite3_step(st) == SQLITE_ROW) {
                const char *plan = (const char *)sqlite3_column_text(st, 3);
                bool scans =
                    strncmp(plan, "SCAN ", 5) == 0 && strcmp(plan, "SCAN CONSTANT ROW") != 0;
                if ((scans || strstr(plan, "TEMP B-TREE")) && !is_whole_list(text) &&
                    !is_by_kinds(text, plan))
                    fail_msg("%s: %s", text, plan);
                seen++;
            }
            (void)sqlite3_finalize(st);
            sqlite3_free(explain);
        }
    assert_true(seen > 10);
}

/* Steps of SQLite's machine since the last call: they do not depend on how busy this computer is.
 */
static long steps(void) {
    long n = 0;
    for (int i = 0; i < STORE_SUBJECTS; i++)
        for (size_t k = 0; k < store_statements[i]->n; k++)
            for (int w = 0; w < (i == STORE_CARE ? 1 : 2); w++)
                n += sqlite3_stmt_status(
                    (w ? store->write_statements : store->read_statements)[i][k],
                    SQLITE_STMTSTATUS_VM_STEP, 1);
    return n;
}

static void none(void *ctx, const struct store_run *r) {
    (void)ctx;
    (void)r;
}

/* 20,000 runs, and as many commands, of key_big; a few of key_few, the oldest and the newest. */
static void fill(void) {
    sql("INSERT INTO runs (id, owner, kind, status, title, created_ms, finished_ms)"
        " WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)"
        " SELECT printf('run_%026d', i), CASE WHEN i % 10000 < 3 THEN 'key_few' ELSE 'key_big' END,"
        " CASE WHEN i = 77 THEN 'chat' ELSE 'run' END, 'done', 't', i, i FROM n");
    sql("INSERT INTO records (kind, id, owner, parent, status, created_ms, ended_ms, doc)"
        " WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)"
        " SELECT 'exec', printf('exec_%026d', i), 'key_big',"
        " CASE WHEN i < 20 THEN 'sbx_few' ELSE 'sbx_big' END, 'exited', i, i, '{}' FROM n");
}

static void keep(int64_t runs, int64_t seconds, int64_t mb);

static void test_what_others_keep_does_not_make_a_call_dearer(void **state) {
    (void)state;
    fill();
    keep(1000000, 3000000000, 1000);
    struct store_scope few = {.owner = "key_few"};
    struct store_scope big = {.owner = "key_big"};
    const struct store_run_query lists[] = {
        {.scope = all, .limit = 20},
        {.scope = few, .limit = 20},
        {.scope = big, .limit = 20},
        {.scope = all, .limit = 20, .kind = "chat"},
        {.scope = big, .limit = 20, .kind = "chat"},
        {.scope = few, .limit = 20, .kind = "chat"},
        {.scope = all, .limit = 20, .before = "run_00000000000000000000010000"},
        {.scope = big, .limit = 20, .kind = "run", .before = "run_00000000000000000000010000"},
    };
    /* Those that have no index of their own look at so many rows, and no more. */
    const struct store_run_query picks[] = {
        {.scope = all, .limit = 20, .status = JOB_FAILED},
        {.scope = big, .limit = 20, .text = "no such"},
        {.scope = big, .limit = 20, .text = "no such", .kind = "run"},
        {.scope = all, .limit = 20, .since_ms = 1},
    };
    (void)steps();
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        assert_int_equal(store_run_list(store, &lists[i], none, NULL, next_page, &e), 0);
        assert_in_range(steps(), 1, 2000);
    }
    for (size_t i = 0; i < ARRAY_LEN(picks); i++) {
        assert_int_equal(store_run_list(store, &picks[i], none, NULL, next_page, &e), 0);
        assert_in_range(steps(), 1, 60L * STORE_RUNS_LOOK);
    }
    int n = 0;
    const struct store_record_query asked[] = {
        {.scope = all, .limit = 20},
        {.scope = few, .limit = 20},
        {.scope = all, .parent = "sbx_few", .limit = 20},
        {.scope = big,
         .parent = "sbx_few",
         .limit = 20,
         .before = "exec_00000000000000000000000010"},
    };
    for (size_t i = 0; i < ARRAY_LEN(asked); i++) {
        assert_int_equal(store_record_list(store, "exec", &asked[i], count, &n, &e), 0);
        assert_in_range(steps(), 1, 2000);
    }
    assert_int_equal(n, 20 + 0 + 19 + 9);
    assert_int_equal(old_ones("exec", "sbx_few", 0, 10), 9);
    assert_in_range(steps(), 1, 2000);
    int64_t total = 0;
    assert_int_equal(store_record_sum(store, "exec", NULL, &total, &e), 0);
    assert_in_range(steps(), 1, 2000);
    assert_int_equal(store_run_interrupt_all(store, &total, &e), 0);
    assert_int_equal(store_record_interrupt_all(store, &total, &e), 0);
    assert_in_range(steps(), 1, 2000);
}

static int pages_read(void) {
    int sum = 0;
    static const int ops[] = {SQLITE_DBSTATUS_CACHE_HIT, SQLITE_DBSTATUS_CACHE_MISS};
    for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
        int now = 0;
        int high;
        assert_int_equal(sqlite3_db_status(store->read_db, ops[i], &now, &high, 1), SQLITE_OK);
        sum += now;
    }
    return sum;
}

static void test_a_list_does_not_read_what_the_runs_hold(void **state) {
    (void)state;
    for (int i = 0; i < 10; i++) {
        char id[ID_SIZE];
        begin("key_a", id);
    }
    sql("UPDATE runs SET detail = printf('%.*c', 1000000, 'x')");
    struct store_scope a = {.owner = "key_a"};
    char got[400] = "";
    (void)pages_read();
    assert_int_equal(store_run_list(store, &(struct store_run_query){.scope = a, .limit = 9},
                                    on_run, got, next_page, &e),
                     0);
    assert_in_range(pages_read(), 1, 200); /* 9 of them have 2,200 */
    assert_int_equal(strlen(got), 9 * 31);
}

/* --- care --- */

static atomic_bool caring;

static void *take_care(void *arg) {
    struct err own;
    while (atomic_load(&caring)) {
        assert_int_equal(store_care(arg, &own), 0);
        (void)usleep(10000);
    }
    return NULL;
}

static off_t log_bytes(void) {
    char path[120];
    struct stat st;
    (void)snprintf(path, sizeof(path), "%s-wal", file);
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

static void test_the_log_stays_short_while_runs_come_without_a_pause(void **state) {
    (void)state;
    static char detail[8000];
    memset(detail, 'x', sizeof(detail));
    pthread_t thread;
    atomic_store(&caring, true);
    assert_int_equal(pthread_create(&thread, NULL, take_care, store), 0);
    off_t most = 0;
    for (int i = 0; i < 5000; i++) {
        char id[ID_SIZE];
        begin("", id);
        struct store_run_end end = {
            .status = JOB_DONE, .detail = detail, .detail_len = sizeof(detail)};
        assert_int_equal(store_run_end(store, id, &end, &e), 0);
        off_t now = i % 10 ? 0 : log_bytes();
        most = now > most ? now : most;
    }
    atomic_store(&caring, false);
    (void)pthread_join(thread, NULL);
    assert_true(most > 0);
    assert_in_range(most, 1, LIMIT_STORE_LOG_BYTES);
}

static void write_runs(int n) {
    static char detail[60000];
    memset(detail, 'x', sizeof(detail));
    for (int i = 0; i < n; i++) {
        char id[ID_SIZE];
        begin("", id);
        struct store_run_end end = {
            .status = JOB_DONE, .detail = detail, .detail_len = sizeof(detail)};
        assert_int_equal(store_run_end(store, id, &end, &e), 0);
    }
}

static void test_a_reader_that_does_not_end_is_told_of_and_outlived(void **state) {
    (void)state;
    sqlite3 *other;
    write_runs(1);
    assert_int_equal(sqlite3_open(file, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN; SELECT * FROM runs", NULL, NULL, NULL), SQLITE_OK);
    write_runs(1000);
    assert_true(store_wants_care(store));
    assert_int_equal(store_care(store, &e), 0);
    assert_false(store_wants_care(store)); /* or it would be tried all the time, in vain */
    write_runs(1);
    assert_true(store_log_is_stuck(store));
    assert_int_equal(sqlite3_exec(other, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    (void)sqlite3_close(other);
    assert_int_equal(store_care(store, &e), 0);
    write_runs(1);
    assert_false(store_log_is_stuck(store));
    assert_in_range(log_bytes(), 1, LIMIT_STORE_LOG_BYTES);
}

/* The sums are of what is there. */
static void check_sums(void) {
    assert_int_equal(
        number(
            "SELECT count(*) FROM (SELECT owner, count(*) AS n, sum(bytes + coalesce((SELECT"
            " total_bytes FROM events WHERE run_id = runs.id ORDER BY seq DESC LIMIT 1), 0)) AS b"
            " FROM runs WHERE status <> 'running' GROUP BY owner)"
            " AS a FULL JOIN (SELECT * FROM run_sums WHERE runs > 0 OR bytes <> 0) AS s"
            " ON a.owner = s.owner AND a.n = s.runs AND a.b = s.bytes"
            " WHERE a.owner IS NULL OR s.owner IS NULL"),
        0);
}

static void keep(int64_t runs, int64_t seconds, int64_t mb) {
    struct store_settings settings = store_settings_default();
    settings.keep_runs = runs;
    settings.keep_s = seconds;
    settings.keep_mb = mb;
    store_configure(store, &settings);
    assert_int_equal(store_care(store, &e), 0);
    check_sums();
}

/* So many ended runs, made so long ago, each an hour before the next, with that many bytes. */
static void add_runs(const char *owner, int n, int64_t hours_ago, size_t bytes) {
    char *detail = calloc(1, bytes + 1);
    memset(detail, 'd', bytes);
    for (int i = 0; i < n; i++) {
        struct store_run r = {.kind = (char *)"run", .title = (char *)owner};
        struct store_run_end end = {.status = JOB_DONE, .detail = detail, .detail_len = bytes};
        r.created_ms = clock_wall_ms() - (hours_ago + n - i) * 3600000;
        (void)id_floor("run", r.created_ms + (int64_t)strlen(owner), r.id);
        (void)snprintf(r.owner, sizeof(r.owner), "%s", owner);
        assert_int_equal(store_run_begin(store, &r, &e), 0);
        assert_int_equal(store_event_add(store, r.id, "log", "{}", 2, &e), 0);
        assert_int_equal(store_run_end(store, r.id, &end, &e), 0);
        assert_int_equal(store_event_add(store, r.id, "tail", "[1]", 3, &e), 0);
    }
    free(detail);
}

static void test_the_oldest_runs_go_by_age_and_what_runs_stays(void **state) {
    (void)state;
    struct store_run r = {.kind = (char *)"chat", .title = (char *)"", .created_ms = 1};
    (void)id_floor("run", 1, r.id);
    assert_int_equal(store_run_begin(store, &r, &e), 0);
    add_runs("key_a", 100, 0, 100);
    keep(1000, 10 * 3600 + 60, 1000);
    assert_int_equal(number("SELECT count(*) FROM runs"), 11);
    assert_int_equal(number("SELECT count(*) FROM events"), 20);
    assert_int_equal(number("SELECT count(*) FROM runs WHERE status = 'running'"), 1);
    /* Nothing is written about a run that is gone. */
    char gone[ID_SIZE];
    (void)id_floor("run", clock_wall_ms() - 90 * 3600000LL + 5, gone);
    assert_int_equal(store_event_add(store, gone, "log", "{}", 2, &e), -ERR_NOT_FOUND);
    assert_int_equal(number("SELECT count(*) FROM events"), 20);
}

static void test_too_many_runs_go_from_who_has_the_most(void **state) {
    (void)state;
    add_runs("key_few", 5, 1000, 100);
    add_runs("key_many", 200, 0, 100);
    keep(50, 1000000000, 1000);
    assert_int_equal(number("SELECT count(*) FROM runs WHERE owner = 'key_few'"), 5);
    assert_int_equal(number("SELECT count(*) FROM runs WHERE owner = 'key_many'"), 45);
    int64_t hours = number("SELECT min(created_ms) FROM runs WHERE owner = 'key_many'");
    assert_true(hours > clock_wall_ms() - 46 * 3600000LL); /* the newest were kept */
}

static void test_too_many_bytes_go_from_who_has_the_most(void **state) {
    (void)state;
    add_runs("key_few", 300, 1000, 100);
    add_runs("key_big", 60, 0, 100000);
    keep(1000000, 1000000000, 4);
    assert_int_equal(number("SELECT count(*) FROM runs WHERE owner = 'key_few'"), 300);
    int64_t left = number("SELECT count(*) FROM runs WHERE owner = 'key_big'");
    assert_in_range(left, 25, 41);
    assert_in_range(number("SELECT sum(bytes) FROM run_sums"), 2 << 20, 4 << 20);
}

struct commits {
    int before;
    int most;
    int n;
};

static int on_commit(void *ctx) {
    struct commits *c = ctx;
    int now = sqlite3_total_changes(store->care_db);
    c->most = now - c->before > c->most ? now - c->before : c->most;
    c->before = now;
    c->n++;
    return 0;
}

static void test_runs_are_deleted_a_few_at_a_time(void **state) {
    (void)state;
    add_runs("key_a", 400, 0, 10);
    struct commits c = {.before = sqlite3_total_changes(store->care_db)};
    (void)sqlite3_commit_hook(store->care_db, on_commit, &c);
    keep(1, 1000000000, 1000);
    assert_in_range(c.n, 12, 100);
    assert_in_range(c.most, 1, 32 * 4 + 1); /* a run, its sum, two events; once what is watched */
    /* Big ones fewer. */
    add_runs("key_a", 12, 0, 900000);
    c = (struct commits){.before = sqlite3_total_changes(store->care_db)};
    keep(1, 1000000000, 1000);
    assert_in_range(c.n, 6, 12);
    (void)sqlite3_commit_hook(store->care_db, NULL, NULL);
}

/* Runs begin and end between the times of care, and records go: after a crash those that ran are
 * known, and no others. */
static void test_what_ran_is_known_after_a_crash(void **state) {
    (void)state;
    char ids[60][ID_SIZE];
    struct store_run_end end = {.status = JOB_DONE};
    for (int i = 0; i < 60; i++) {
        begin(i % 2 ? "key_a" : "", ids[i]);
        if (i >= 3 && i % 5) /* 0, 5, 10 ... go on, the others end a little later */
            assert_int_equal(store_run_end(store, ids[i % 5 == 1 ? i : i - 1], &end, &e),
                             i % 5 == 2 ? -ERR_NOT_FOUND : 0);
        if (i % 7 == 0)
            keep(i % 2 ? 1 : 5, 1000000000, 1000);
    }
    int64_t running = number("SELECT count(*) FROM runs WHERE status = 'running'");
    assert_in_range(running, 12, 30);
    assert_in_range(number("SELECT count(*) FROM run_watch"), 1, running + 1);
    int64_t n = 0;
    assert_int_equal(store_run_interrupt_all(store, &n, &e), 0);
    assert_int_equal(n, running);
    assert_int_equal(number("SELECT count(*) FROM runs WHERE status = 'running'"), 0);
    /* All gone but the newest: what begins then is not taken for one that was seen. */
    keep(1, 0, 1);
    assert_int_equal(number("SELECT count(*) FROM runs"), 1);
    begin("", ids[0]);
    assert_int_equal(store_run_interrupt_all(store, &n, &e), 0);
    assert_int_equal(n, 1);
    keep(1000, 1000000000, 1000);
    assert_int_equal(number("SELECT count(*) FROM run_watch"), 1);
}

struct listed {
    char ids[100][ID_SIZE];
    size_t n;
};

static void on_listed(void *ctx, const struct store_run *r) {
    struct listed *l = ctx;
    memcpy(l->ids[l->n++], r->id, ID_SIZE);
}

static void test_a_key_lists_its_runs_of_every_kind_in_order(void **state) {
    (void)state;
    static const char *const kinds[] = {"run", "chat", "code"};
    char mine[60][ID_SIZE];
    size_t n = 0;
    for (int i = 0; i < 90; i++) {
        struct store_run r = {.kind = (char *)kinds[i * 7 % 11 % 3],
                              .title = (char *)"t",
                              .created_ms = clock_wall_ms()};
        bool is_mine = i % 3 != 0;
        (void)id_floor("run", 1000 + i, r.id);
        (void)snprintf(r.owner, sizeof(r.owner), "%s", is_mine ? "key_a" : "key_b");
        assert_int_equal(store_run_begin(store, &r, &e), 0);
        if (is_mine)
            memcpy(mine[n++], r.id, ID_SIZE);
    }
    struct listed l = {.n = 0};
    struct store_run_query q = {.scope = {.owner = "key_a"}, .limit = 7};
    for (size_t before = SIZE_MAX; l.n != before;) {
        before = l.n;
        assert_int_equal(store_run_list(store, &q, on_listed, &l, next_page, &e), 0);
        q.before = l.ids[l.n - 1];
        if (l.n == 21) { /* the place is kept when its run goes */
            char text[200];
            (void)snprintf(text, sizeof(text), "DELETE FROM runs WHERE id = '%s'", q.before);
            sql(text);
        }
    }
    assert_int_equal(l.n, 60);
    for (size_t i = 0; i < 60; i++)
        assert_string_equal(l.ids[i], mine[59 - i]);
    l.n = 0;
    q.before = "00000000-0000-4000-8000-000000000000"; /* there is none, and no place for it */
    assert_int_equal(store_run_list(store, &q, on_listed, &l, next_page, &e), 0);
    assert_int_equal(l.n, 0);
}

/* A run every second, from 1,000 s on. */
static void add_timed(size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct store_run r = {.kind = (char *)(i % 2 ? "chat" : "run"),
                              .title = (char *)(i % 5 ? "plain" : "The Needle"),
                              .created_ms = (int64_t)(1000 + i) * 1000};
        (void)id_floor("run", r.created_ms, r.id);
        (void)snprintf(r.owner, sizeof(r.owner), "%s", i % 3 ? "key_a" : "key_b");
        assert_int_equal(store_run_begin(store, &r, &e), 0);
        struct store_run_end end = {.status = i % 4 ? JOB_DONE : JOB_FAILED,
                                    .error_message = i % 4 ? NULL : "out of HAY"};
        assert_int_equal(store_run_end(store, r.id, &end, &e), 0);
    }
}

static size_t count_picked(struct store_run_query q) {
    struct listed l = {.n = 0};
    size_t calls = 0;
    char at[ID_SIZE];
    do {
        size_t before = l.n;
        assert_int_equal(store_run_list(store, &q, on_listed, &l, next_page, &e), 0);
        assert_true(l.n - before <= q.limit);
        memcpy(at, next_page, sizeof(at));
        q.before = at;
    } while (*at && ++calls < 1000);
    assert_false(*at);
    for (size_t i = 1; i < l.n; i++)
        assert_true(strcmp(l.ids[i - 1], l.ids[i]) > 0);
    return l.n;
}

static void test_every_status_has_a_name_of_its_own(void **state) {
    (void)state;
    enum job_status got;
    for (int i = JOB_RUNNING; i < JOB_STATUSES; i++) {
        got = JOB_NO_STATUS;
        assert_true(job_status_parse(job_status_name((enum job_status)i), &got));
        assert_int_equal(got, i);
    }
    got = JOB_DONE;
    assert_false(job_status_parse(job_status_name(JOB_NO_STATUS), &got));
    assert_false(job_status_parse("Done", &got));
    assert_int_equal(got, JOB_DONE);
}

static void test_runs_are_picked_by_time_status_and_text(void **state) {
    (void)state;
    add_timed(60);
    struct store_scope a = {.owner = "key_a"};
    for (size_t limit = 1; limit < 70; limit += 11) {
        assert_int_equal(count_picked((struct store_run_query){.scope = all, .limit = limit}), 60);
        const struct {
            struct store_run_query q;
            size_t n;
        } cases[] = {
            {{.since_ms = 1050000}, 10},
            {{.since_ms = 1050001}, 9},
            {{.since_ms = 1060000}, 0},
            {{.until_ms = 1010000}, 10},
            {{.until_ms = 1000000}, 0},
            {{.until_ms = 9000000}, 60},
            {{.since_ms = 1010000, .until_ms = 1020000}, 10},
            {{.since_ms = 1020000, .until_ms = 1010000}, 0},
            {{.status = JOB_FAILED}, 15},
            {{.status = JOB_RUNNING}, 0},
            {{.text = "nEEdle"}, 12},
            {{.text = "hay"}, 15},
            {{.text = "%"}, 0},
            {{.text = "needle", .status = JOB_FAILED, .kind = "run"}, 3},
            {{.scope = a, .text = "needle"}, 8},
            {{.scope = a, .kind = "chat", .since_ms = 1030000}, 10},
        };
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
            struct store_run_query q = cases[i].q;
            q.limit = limit;
            if (!q.scope.owner)
                q.scope = all;
            assert_int_equal(count_picked(q), cases[i].n);
        }
    }
}

static void test_a_page_ends_where_a_call_has_looked_enough(void **state) {
    (void)state;
    fill();
    struct listed l = {.n = 0};
    struct store_run_query q = {.scope = all, .limit = 20, .kind = "run", .text = "id_00000000"};
    assert_int_equal(store_run_list(store, &q, on_listed, &l, next_page, &e), 0);
    assert_int_equal(l.n, 0);
    assert_string_equal(next_page, "run_00000000000000000000018001");
    q = (struct store_run_query){
        .scope = all, .limit = 20, .text = "run_00000000000000000000000001"};
    assert_int_equal(count_picked(q), 1);
}

static void test_care_ends_when_it_is_asked_to(void **state) {
    (void)state;
    add_runs("key_a", 100, 0, 10);
    store_care_end(store);
    keep(1, 1000000000, 1000);
    assert_int_equal(number("SELECT count(*) FROM runs"), 100);
}

static void test_a_run_can_have_its_fill(void **state) {
    (void)state;
    struct store_settings settings = store_settings_default();
    settings.run_events = 3;
    settings.run_events_mb = 1;
    store_configure(store, &settings);
    char id[ID_SIZE];
    begin("", id);
    for (int i = 0; i < 3; i++)
        assert_int_equal(store_event_add(store, id, "log", "{}", 2, &e), 0);
    assert_int_equal(store_event_add(store, id, "log", "{}", 2, &e), -ERR_LIMIT);
    assert_non_null(strstr(e.message, "\"run_events\""));
    begin("", id);
    static char big[600000];
    memset(big, '1', sizeof(big) - 1);
    assert_int_equal(store_event_add(store, id, "log", big, sizeof(big) - 1, &e), 0);
    assert_int_equal(store_event_add(store, id, "log", big, sizeof(big) - 1, &e), -ERR_LIMIT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(test_a_run_has_a_beginning_and_one_end),
        UNIT(test_scopes_and_pages),
        UNIT(test_a_run_ends_with_what_it_used_or_not_at_all),
        UNIT(test_what_was_running_is_interrupted),
        UNIT(test_events_are_numbered_per_run),
        UNIT(test_databases_of_others_are_left_alone),
        UNIT(test_a_database_of_an_earlier_schema_is_brought_up),
        UNIT(test_nothing_acknowledged_is_lost_by_kill_9),
        UNIT(test_records_have_owners_parents_and_an_end),
        UNIT(test_no_statement_scans_a_table_or_sorts),
        UNIT(test_what_others_keep_does_not_make_a_call_dearer),
        UNIT(test_a_list_does_not_read_what_the_runs_hold),
        UNIT(test_the_log_stays_short_while_runs_come_without_a_pause),
        UNIT(test_a_reader_that_does_not_end_is_told_of_and_outlived),
        UNIT(test_the_oldest_runs_go_by_age_and_what_runs_stays),
        UNIT(test_too_many_runs_go_from_who_has_the_most),
        UNIT(test_too_many_bytes_go_from_who_has_the_most),
        UNIT(test_runs_are_deleted_a_few_at_a_time),
        UNIT(test_what_ran_is_known_after_a_crash),
        UNIT(test_a_key_lists_its_runs_of_every_kind_in_order),
        UNIT(test_every_status_has_a_name_of_its_own),
        UNIT(test_runs_are_picked_by_time_status_and_text),
        UNIT(test_a_page_ends_where_a_call_has_looked_enough),
        UNIT(test_care_ends_when_it_is_asked_to),
        UNIT(test_a_run_can_have_its_fill),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
