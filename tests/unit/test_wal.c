#include "front/store/wal.h"

#include "base/fd.h"
#include "unit/unit.h"

#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* The log as the front writes it is read by SQLite's own files, after every commit: that is what
 * is found after a kill. */

static char dir[64];
static char file[100];
static char twin[100]; /* of the files, as they are at some moment */
static sqlite3 *db;

static void run(sqlite3 *on, const char *sql) {
    char *why = NULL;
    if (sqlite3_exec(on, sql, NULL, NULL, &why) != SQLITE_OK)
        fail_msg("%s: %s", sql, why);
}

static sqlite3 *open_db(const char *path, const char *vfs) {
    sqlite3 *d = NULL;
    assert_int_equal(sqlite3_open_v2(path, &d, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, vfs),
                     SQLITE_OK);
    return d;
}

static int setup(void **state) {
    (void)state;
    (void)snprintf(dir, sizeof(dir), "/tmp/cay-unit-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(file, sizeof(file), "%s/a.db", dir);
    (void)snprintf(twin, sizeof(twin), "%s/b.db", dir);
    assert_non_null(store_wal_vfs());
    db = open_db(file, store_wal_vfs());
    run(db, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0;"
            "CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT); CREATE INDEX i ON t (v)");
    return 0;
}

static int teardown(void **state) {
    (void)state;
    char command[128];
    (void)sqlite3_close(db);
    db = NULL;
    (void)snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command); // NOLINT(cert-env33-c): a folder of our own
}

static void copy_file(const char *end) {
    static char data[32 << 20];
    char from[120];
    char to[120];
    (void)snprintf(from, sizeof(from), "%s%s", file, end);
    (void)snprintf(to, sizeof(to), "%s%s", twin, end);
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ssize_t n = read(in, data, sizeof(data));
    assert_in_range(n, 0, sizeof(data) - 1);
    assert_int_equal(fd_write_all(out, data, (size_t)n), 0);
    close(in);
    close(out);
}

static int64_t number(sqlite3 *on, const char *sql) {
    sqlite3_stmt *st;
    assert_int_equal(sqlite3_prepare_v2(on, sql, -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(st, 0);
    (void)sqlite3_finalize(st);
    return n;
}

#define SUM   "SELECT coalesce(sum(k * 31 + length(v) * 7 + unicode(v)), 0) FROM t"
#define WHOLE "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'"

static void check_twin(void) {
    char shm[120];
    copy_file("");
    copy_file("-wal");
    (void)snprintf(shm, sizeof(shm), "%s-shm", twin);
    (void)unlink(shm);
    sqlite3 *other = open_db(twin, NULL);
    assert_int_equal(number(other, SUM), number(db, SUM));
    assert_int_equal(number(other, WHOLE), 1);
    (void)sqlite3_close(other);
}

static uint32_t seed;

static uint32_t any(uint32_t below) {
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % below;
}

static void change_some(void) {
    char sql[200];
    uint32_t which = any(10);
    uint32_t k = any(500);
    if (which < 8)
        (void)snprintf(sql, sizeof(sql),
                       "INSERT OR REPLACE INTO t VALUES (%u, printf('%%.*c', %u, char(%u)))", k,
                       1 + any(3000), 65 + any(26));
    else if (which == 8)
        (void)snprintf(sql, sizeof(sql), "UPDATE t SET v = substr(v || 'u%u', 3) WHERE k %% 7 = %u",
                       k, k % 7);
    else
        (void)snprintf(sql, sizeof(sql), "DELETE FROM t WHERE k %% 31 = %u", k % 31);
    run(db, sql);
}

static void fill(void) {
    seed = 1;
    for (int i = 0; i < 300; i++)
        change_some();
    run(db, "PRAGMA wal_checkpoint(TRUNCATE)");
}

static void checkpoint_sometimes(void) {
    if (any(12) == 0)
        run(db, any(2) ? "PRAGMA wal_checkpoint(RESTART)" : "PRAGMA wal_checkpoint(TRUNCATE)");
}

/* With little memory SQLite writes pages before the commit, writes some of them again, and puts
 * their sums right. (It takes no rollback together with that: 3.40 itself gets the sums wrong.) */
static void test_large_transactions_are_in_the_file_as_sqlite_reads_it(void **state) {
    (void)state;
    run(db, "PRAGMA cache_size = 10");
    fill();
    for (int round = 0; round < 60; round++) {
        run(db, "BEGIN IMMEDIATE");
        for (uint32_t n = any(round % 10 ? 20 : 150) + 1; n > 0; n--)
            change_some();
        run(db, "COMMIT");
        check_twin();
        checkpoint_sometimes();
    }
    assert_int_equal(number(db, WHOLE), 1);
}

static void test_small_ones_and_what_was_taken_back(void **state) {
    (void)state;
    fill();
    for (int round = 0; round < 120; round++) {
        run(db, "BEGIN IMMEDIATE");
        for (uint32_t n = any(6) + 1; n > 0; n--) {
            change_some();
            run(db, "SAVEPOINT s");
            change_some();
            run(db, any(2) ? "ROLLBACK TO s; RELEASE s" : "RELEASE s");
        }
        run(db, any(5) ? "COMMIT" : "ROLLBACK");
        check_twin();
        checkpoint_sometimes();
    }
    assert_int_equal(number(db, WHOLE), 1);
}

static void test_two_connections_take_turns(void **state) {
    (void)state;
    sqlite3 *other = open_db(file, store_wal_vfs());
    for (int i = 0; i < 200; i++) {
        char sql[100];
        sqlite3 *one = i % 3 ? db : other;
        (void)snprintf(sql, sizeof(sql), "INSERT INTO t VALUES (%d, 'abc'); UPDATE t SET v = 'x'",
                       i);
        run(one, sql);
        assert_int_equal(number(i % 2 ? db : other, "SELECT count(*) FROM t WHERE v = 'x'"), i + 1);
        if (i % 17 == 0)
            run(other, "PRAGMA wal_checkpoint(RESTART)");
        if (i % 10 == 0)
            check_twin();
    }
    (void)sqlite3_close(other);
}

/* Calls of the process that write. */
static int64_t writes(void) {
    char line[100];
    int64_t n = -1;
    FILE *f = fopen("/proc/self/io", "r");
    while (f && fgets(line, sizeof(line), f))
        if (strncmp(line, "syscw: ", 7) == 0)
            n = strtoll(line + 7, NULL, 10);
    if (f)
        (void)fclose(f);
    return n;
}

static void test_a_transaction_is_one_write(void **state) {
    (void)state;
    int64_t before = writes();
    if (before < 0) {
        print_message("the kernel does not count writes (/proc/self/io)\n");
        skip();
    }
    for (int i = 0; i < 10; i++)
        run(db, "INSERT INTO t (v) VALUES (hex(randomblob(3000)))"); /* some pages each */
    assert_int_equal(writes() - before, 10);
}

static void test_what_does_not_fit_is_not_there(void **state) {
    (void)state;
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct rlimit r;
    struct stat st;
    char log[120];
    (void)sigaction(SIGXFSZ, &ignore, NULL);
    run(db, "INSERT INTO t VALUES (1, 'a')");
    (void)snprintf(log, sizeof(log), "%s-wal", file);
    assert_int_equal(stat(log, &st), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &r), 0);
    r.rlim_cur = (rlim_t)st.st_size + 6000; /* a frame, and a part of the next */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
    assert_int_not_equal(
        sqlite3_exec(db, "INSERT INTO t VALUES (2, hex(randomblob(9000)))", NULL, NULL, NULL),
        SQLITE_OK);
    r.rlim_cur = RLIM_INFINITY;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
    assert_int_equal(number(db, "SELECT count(*) FROM t"), 1);
    check_twin();
    run(db, "INSERT INTO t VALUES (2, hex(randomblob(9000)))");
    check_twin();
    assert_int_equal(number(db, "SELECT count(*) FROM t"), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_large_transactions_are_in_the_file_as_sqlite_reads_it,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_small_ones_and_what_was_taken_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_two_connections_take_turns, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_transaction_is_one_write, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_does_not_fit_is_not_there, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
