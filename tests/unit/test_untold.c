#include "base/clock.h"
#include "base/fd.h"
#include "front/store/artifacts.h"
#include "front/store/internal.h"
#include "unit/unit.h"

#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* What was told to nobody yet: written later, but before anybody can hear of it. */

static char dir[64];
static char file[100];
static struct store *store;
static sqlite3 *other; /* what another process sees of the file */
static struct err e;
static const struct store_scope all = {.all = true};

static int setup(void **state) {
    (void)state;
    (void)snprintf(dir, sizeof(dir), "/tmp/cay-unit-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(file, sizeof(file), "%s/cay.db", dir);
    if (store_open(file, &store, &e) < 0)
        return -1;
    return sqlite3_open(file, &other) == SQLITE_OK ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    char command[128];
    store_close(store);
    store = NULL;
    (void)sqlite3_close(other);
    other = NULL;
    (void)snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command); // NOLINT(cert-env33-c): a folder of our own
}

static int64_t number(const char *text) {
    sqlite3_stmt *st;
    assert_int_equal(sqlite3_prepare_v2(other, text, -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(st, 0);
    (void)sqlite3_finalize(st);
    return n;
}

static int64_t count(const char *where) {
    char text[200];
    (void)snprintf(text, sizeof(text), "SELECT count(*) FROM %s", where);
    return number(text);
}

static int begin_as(const char *owner, const char *detail, char id[ID_SIZE]) {
    struct store_run r = {.kind = (char *)"run",
                          .title = (char *)"t",
                          .detail = (char *)(uintptr_t)detail,
                          .created_ms = clock_wall_ms()};
    (void)id_new("run", r.id);
    (void)snprintf(r.owner, sizeof(r.owner), "%s", owner);
    memcpy(id, r.id, ID_SIZE);
    return store_run_begin_untold(store, &r, &e);
}

static void begin(char id[ID_SIZE]) {
    assert_int_equal(begin_as("", NULL, id), 0);
}

static int end(const char *id) {
    return store_run_end(store, id, &(struct store_run_end){.status = "done"}, &e);
}

static void check_status(const char *id, const char *status) {
    struct store_run r;
    assert_int_equal(store_run_get(store, id, all, &r, &e), 0);
    assert_string_equal(r.status, status);
    store_run_finish(&r);
}

static void test_who_asks_the_store_finds_it_written(void **state) {
    (void)state;
    char id[ID_SIZE];
    assert_int_equal(store_untold_due_ms(store), -1);
    begin(id);
    assert_in_range(store_untold_due_ms(store), 0, 10);
    assert_int_equal(count("runs"), 0);
    check_status(id, "running");
    assert_int_equal(count("runs WHERE status = 'running' AND finished_ms = 0"), 1);
    assert_int_equal(store_untold_due_ms(store), -1);
    assert_int_equal(end(id), 0);
    assert_int_equal(end(id), -ERR_NOT_FOUND);
    check_status(id, "done");
    begin(id);
    assert_int_equal(store_event_add(store, id, "log", "{}", 2, &e), 0);
    assert_int_equal(count("runs"), 2);
    begin(id);
    assert_int_equal(store_untold_write(store, &e), 0);
    assert_int_equal(count("runs"), 3);
}

static void on_run(void *ctx, const struct store_run *r) {
    (void)snprintf((char *)ctx + strlen(ctx), ID_SIZE + 2, "%s ", r->id);
}

static void test_it_ends_in_one_piece_and_keeps_its_place(void **state) {
    (void)state;
    char ids[4][ID_SIZE];
    for (int i = 0; i < 4; i++)
        begin(ids[i]);
    assert_int_equal(end(ids[2]), 0); /* with those that began before it */
    assert_int_equal(count("runs"), 3);
    assert_int_equal(count("runs WHERE status = 'done' AND finished_ms > 0"), 1);
    assert_int_equal(end(ids[3]), 0);
    assert_int_equal(end(ids[0]), 0);
    assert_int_equal(end(ids[1]), 0);
    char got[300] = "";
    char wanted[300];
    char next[ID_SIZE];
    assert_int_equal(store_run_list(store, &(struct store_run_query){.scope = all, .limit = 9},
                                    on_run, got, next, &e),
                     0);
    (void)snprintf(wanted, sizeof(wanted), "%s %s %s %s ", ids[3], ids[2], ids[1], ids[0]);
    assert_string_equal(got, wanted);
}

/* Both ways in: what can be told of the run afterwards is the same. */
static void check_whole(const char *id, const char *owner) {
    struct store_run r;
    assert_int_equal(store_run_get(store, id, (struct store_scope){.owner = owner}, &r, &e), 0);
    assert_string_equal(r.kind, "run");
    assert_string_equal(r.title, "t");
    assert_string_equal(r.status, "failed");
    assert_string_equal(r.error_code, "E");
    assert_string_equal(r.error_message, "m");
    assert_string_equal(r.detail, "[789]");
    assert_true(r.created_ms > 0 && r.finished_ms >= r.created_ms);
    assert_true(r.has_usage);
    assert_int_equal(r.usage.output_tokens, 3);
    store_run_finish(&r);
}

static const struct store_run_end failed = {.status = "failed",
                                            .error_code = "E",
                                            .error_message = "m",
                                            .detail = "[789]",
                                            .detail_len = 5,
                                            .usage = {.output_tokens = 3}};

static void test_it_is_the_same_record_and_counts_as_much(void **state) {
    (void)state;
    char one[ID_SIZE];
    char two[ID_SIZE];
    assert_int_equal(begin_as("key_a", "[1]", one), 0);
    assert_int_equal(store_run_end(store, one, &failed, &e), 0);
    assert_int_equal(begin_as("key_b", "[1]", two), 0);
    check_status(two, "running");
    assert_int_equal(store_run_end(store, two, &failed, &e), 0);
    check_whole(one, "key_a");
    check_whole(two, "key_b");
    assert_int_equal(count("run_sums WHERE runs = 1"), 2);
    assert_int_equal(number("SELECT count(DISTINCT bytes) FROM run_sums"), 1);
    assert_int_equal(number("SELECT count(DISTINCT bytes) FROM runs"), 1);
    char kept[ID_SIZE]; /* an end without a detail leaves the first one */
    assert_int_equal(begin_as("", "[1]", kept), 0);
    assert_int_equal(end(kept), 0);
    assert_int_equal(count("runs WHERE detail = '[1]' AND status = 'done'"), 1);
}

static void test_nothing_is_forgotten_at_the_end_nor_kept_without_bound(void **state) {
    (void)state;
    char id[ID_SIZE];
    for (int i = 0; i < 1000; i++)
        begin(id);
    assert_in_range(count("runs"), 700, 999);
    static char big[3 << 20];
    memset(big, '1', sizeof(big) - 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(begin_as("", big, id), 0);
    assert_in_range(count("runs"), 1001, 1002);
    assert_int_equal(number("SELECT max(rowid) FROM runs"), count("runs"));
    store_close(store);
    store = NULL;
    assert_int_equal(count("runs WHERE status = 'running'"), 1003);
}

static struct store_record record(const char *id, const char *status, int64_t ended_ms) {
    struct store_record r = {.parent = "sbx_1",
                             .status = (char *)(uintptr_t)status,
                             .created_ms = 1,
                             .ended_ms = ended_ms,
                             .doc = (char *)"{}"};
    (void)snprintf(r.id, sizeof(r.id), "%s", id);
    return r;
}

static void put(const char *id, const char *status, int64_t ended_ms, bool untold) {
    struct store_record r = record(id, status, ended_ms);
    assert_int_equal(untold ? store_record_put_untold(store, "exec", &r, &e)
                            : store_record_put(store, "exec", &r, &e),
                     0);
}

static void on_record(void *ctx, const struct store_record *r) {
    (void)snprintf((char *)ctx + strlen(ctx), ID_SIZE + 20, "%s:%s ", r->id, r->status);
}

static void test_records_wait_too(void **state) {
    (void)state;
    char run[ID_SIZE];
    put("exec_1", "running", 0, true);
    put("exec_2", "running", 0, true);
    begin(run);
    assert_int_equal(count("records"), 0);
    put("exec_1", "exited", 5, false);
    assert_int_equal(count("records"), 1); /* the other has no part in that */
    put("exec_2", "paused", 0, true);
    assert_int_equal(count("records"), 1);
    char got[300] = "";
    struct store_record_query q = {.scope = all, .parent = "sbx_1", .limit = 9};
    assert_int_equal(store_record_list(store, "exec", &q, on_record, got, &e), 0);
    assert_string_equal(got, "exec_2:paused exec_1:exited ");
    assert_int_equal(count("runs"), 1);
    put("exec_3", "running", 0, true);
    assert_int_equal(store_record_delete(store, "exec", "sbx_1", &e), 0);
    assert_int_equal(store_untold_write(store, &e), 0);
    assert_int_equal(count("records"), 0);
}

/* --- a full disk --- */

static void set_room(rlim_t bytes) {
    struct rlimit r;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &r), 0);
    r.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
}

static rlim_t log_bytes(void) {
    char path[120];
    struct stat st;
    (void)snprintf(path, sizeof(path), "%s-wal", file);
    assert_int_equal(stat(path, &st), 0);
    return (rlim_t)st.st_size;
}

static void test_on_a_full_disk_the_first_is_kept_and_the_next_refused(void **state) {
    (void)state;
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGXFSZ, &ignore, NULL);
    char running[ID_SIZE];
    char ended[ID_SIZE];
    char next[ID_SIZE];
    begin(next);
    assert_int_equal(end(next), 0);
    set_room(log_bytes());
    begin(running);
    assert_int_equal(begin_as("key_a", "[1]", ended), 0);
    assert_int_equal(store_run_end(store, ended, &failed, &e), -ERR_FULL);
    assert_int_equal(begin_as("", NULL, next), -ERR_FULL);
    assert_int_equal(err_http_status(e.code), 507);
    struct store_record r = record("exec_1", "running", 0);
    assert_int_equal(store_record_put_untold(store, "exec", &r, &e), -ERR_FULL);
    struct store_run got;
    assert_int_equal(store_run_get(store, running, all, &got, &e), -ERR_NOT_FOUND);
    assert_true(store_untold_due_ms(store) > 100); /* it is not tried again and again */
    store_settle(store);
    assert_int_equal(count("runs"), 1);
    set_room(RLIM_INFINITY);
    store_settle(store);
    check_whole(ended, "key_a");
    check_status(running, "running");
    assert_int_equal(end(running), 0);
    begin(next);
    assert_int_equal(count("runs"), 3); /* it may wait again */
    assert_int_equal(end(next), 0);
    assert_int_equal(count("runs"), 4);
    assert_int_equal(number("SELECT sum(runs) FROM run_sums"), 4);
}

static void test_nothing_waits_where_others_could_not_be_written(void **state) {
    (void)state;
    char id[ID_SIZE];
    struct store_record r = record("exec_1", "running", 0);
    assert_int_equal(sqlite3_exec(other,
                                  "CREATE TRIGGER no_record BEFORE INSERT ON records BEGIN"
                                  " SELECT RAISE(FAIL, 'no room'); END",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    assert_int_equal(store_record_put(store, "exec", &r, &e), -ERR_IO);
    assert_int_equal(store_record_put_untold(store, "exec", &r, &e), -ERR_IO);
    assert_int_equal(begin_as("", NULL, id), 0); /* written at once: that works */
    assert_int_equal(count("runs"), 1);
    begin(id);
    assert_int_equal(count("runs"), 1); /* and the next may wait */
    struct store_run run = {.kind = (char *)"run", .title = (char *)""};
    memcpy(run.id, id, sizeof(run.id));
    assert_int_equal(store_run_begin(store, &run, &e), -ERR_IO); /* there is one of that id */
    begin(id);
    assert_int_equal(count("runs"), 3); /* after such a failure it is written at once */
}

/* --- kill -9 --- */

static int tell(int out, const char *id) {
    return fd_write_all(out, id, ID_SIZE) < 0 ? -1 : 0;
}

static void on_listed(void *ctx, const struct store_run *r) {
    memcpy(ctx, r->id, ID_SIZE);
}

/* Tells of each run that has ended, and of the newest of a list that was asked for. */
static int write_until_killed(int out, bool ends) {
    if (store_open(file, &store, &e) < 0 || (ends && store_ends_open(store, &e) < 0))
        return 1;
    for (int i = 0; i < 100000; i++) {
        char ids[3][ID_SIZE];
        char listed[ID_SIZE];
        char next[ID_SIZE];
        for (int k = 0; k < 3; k++)
            if (begin_as("", NULL, ids[k]) < 0)
                return 2;
        if (end(ids[i % 3]) < 0 || tell(out, ids[i % 3]) < 0)
            return 3;
        if (i % 4 == 0 &&
            (store_run_list(store, &(struct store_run_query){.scope = all, .limit = 1}, on_listed,
                            listed, next, &e) < 0 ||
             tell(out, listed) < 0))
            return 4;
    }
    return 5;
}

static void check_kill_9(bool ends) {
    store_close(store);
    store = NULL;
    (void)sqlite3_close(other); /* SQLite does not outlive a fork */
    other = NULL;
    size_t total = 0;
    for (int round = 0; round < 50; round++) {
        int p[2];
        static char told[20000][ID_SIZE];
        size_t n = 0;
        size_t stop = (size_t)(round * 7 % 40) + 1;
        assert_int_equal(pipe(p), 0);
        pid_t pid = fork();
        if (pid == 0) {
            close(p[0]);
            _exit(write_until_killed(p[1], ends));
        }
        close(p[1]);
        while (n < stop && fd_read_all(p[0], told[n], ID_SIZE) == ID_SIZE)
            n++;
        (void)kill(pid, SIGKILL);
        while (n < 20000 && fd_read_all(p[0], told[n], ID_SIZE) == ID_SIZE)
            n++;
        close(p[0]);
        int st;
        assert_int_equal(waitpid(pid, &st, 0), pid);
        assert_true(WIFSIGNALED(st));
        assert_int_equal(store_open(file, &store, &e), 0);
        if (ends)
            assert_int_equal(store_ends_open(store, &e), 0);
        for (size_t i = 0; i < n; i++) {
            struct store_run r;
            assert_int_equal(store_run_get(store, told[i], all, &r, &e), 0);
            store_run_finish(&r);
        }
        total += n;
        store_close(store);
        store = NULL;
    }
    assert_true(total >= 900);
}

static void test_what_was_told_is_there_after_kill_9(void **state) {
    (void)state;
    check_kill_9(false);
}

static void test_what_only_the_file_of_ends_has_is_there_after_kill_9(void **state) {
    (void)state;
    check_kill_9(true);
}

/* --- the file of ends --- */

static int setup_ends(void **state) {
    return setup(state) == 0 && store_ends_open(store, &e) == 0 ? 0 : -1;
}

static void open_again(void) {
    assert_int_equal(store_open(file, &store, &e), 0);
    assert_int_equal(store_ends_open(store, &e), 0);
}

/* What is in the file of ends; the caller frees it. */
static char *read_ends(size_t *ret_len) {
    char path[120];
    static char space[1 << 20];
    (void)snprintf(path, sizeof(path), "%s-ends", file);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    *ret_len = fread(space, 1, sizeof(space), f);
    (void)fclose(f);
    char *out = malloc(*ret_len + 1);
    memcpy(out, space, *ret_len);
    return out;
}

static void write_ends(const char *data, size_t len) {
    char path[120];
    (void)snprintf(path, sizeof(path), "%s-ends", file);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static void test_ends_are_written_together_and_before_anybody_hears_of_them(void **state) {
    (void)state;
    char ids[4][ID_SIZE];
    for (int i = 0; i < 4; i++)
        begin(ids[i]);
    assert_int_equal(end(ids[2]), 0);
    assert_int_equal(end(ids[0]), 0);
    assert_int_equal(count("runs"), 0);
    assert_in_range(store_untold_due_ms(store), 0, 10);
    check_status(ids[3], "running");
    assert_int_equal(count("runs WHERE status = 'done' AND finished_ms > 0"), 2);
    assert_int_equal(count("runs"), 4);
    assert_int_equal(end(ids[2]), -ERR_NOT_FOUND);
    assert_int_equal(end(ids[1]), 0);
    char got[300] = "";
    char wanted[300];
    char next[ID_SIZE];
    assert_int_equal(store_run_list(store, &(struct store_run_query){.scope = all, .limit = 9},
                                    on_run, got, next, &e),
                     0);
    (void)snprintf(wanted, sizeof(wanted), "%s %s %s %s ", ids[3], ids[2], ids[1], ids[0]);
    assert_string_equal(got, wanted);
    begin(ids[0]);
    assert_int_equal(end(ids[0]), 0);
    assert_int_equal(end(ids[0]), -ERR_NOT_FOUND); /* twice, while only the file has it */
    assert_int_equal(store_untold_write(store, &e), 0);
    assert_int_equal(number("SELECT sum(runs) FROM run_sums"), 4);
}

static void test_what_began_of_late_waits_for_its_end(void **state) {
    (void)state;
    char ids[5][ID_SIZE];
    char got[300] = "";
    char wanted[300];
    char next[ID_SIZE];
    int64_t early = clock_mono_ms(); /* nobody's time has come then */
    assert_int_equal(store_untold_write_due(store, early, &e), 0);
    begin(ids[0]);
    begin(ids[1]);
    assert_int_equal(end(ids[1]), 0);
    begin(ids[2]);
    assert_int_equal(store_untold_write_due(store, early, &e), 0);
    /* In the order in which they began; none of the ended is left to wait. */
    assert_int_equal(count("runs"), 2);
    assert_int_equal(count("runs WHERE status = 'running'"), 1);
    assert_in_range(store_untold_due_ms(store), 0, 10);
    assert_int_equal(store_untold_write_due(store, early, &e), 0);
    assert_int_equal(count("runs"), 2);
    assert_int_equal(end(ids[2]), 0); /* once, by the file */
    assert_int_equal(count("runs"), 2);
    assert_int_equal(end(ids[0]), 0); /* was written, so it is again */
    begin(ids[3]);
    assert_int_equal(store_untold_write_due(store, early, &e), 0);
    assert_int_equal(count("runs"), 3);
    /* Who does not end is written too, when his time has come, and all others with him. */
    begin(ids[4]);
    assert_int_equal(store_untold_write_due(store, clock_mono_ms() + 10, &e), 0);
    assert_int_equal(count("runs"), 5);
    assert_int_equal(store_untold_due_ms(store), -1);
    assert_int_equal(store_run_list(store, &(struct store_run_query){.scope = all, .limit = 9},
                                    on_run, got, next, &e),
                     0);
    (void)snprintf(wanted, sizeof(wanted), "%s %s %s %s %s ", ids[4], ids[3], ids[2], ids[1],
                   ids[0]);
    assert_string_equal(got, wanted);
    assert_int_equal(count("runs WHERE status = 'done' AND finished_ms > 0"), 3);
}

/* A process that dies after such a write: what had ended is there, once. */
static void test_no_end_is_lost_or_doubled_where_others_wait_on(void **state) {
    (void)state;
    char ids[3][ID_SIZE];
    size_t len;
    int64_t early = clock_mono_ms();
    begin(ids[0]);
    assert_int_equal(end(ids[0]), 0);
    begin(ids[1]);
    assert_int_equal(store_untold_write_due(store, early, &e), 0);
    assert_int_equal(end(ids[1]), 0);
    begin(ids[2]);
    char *ends = read_ends(&len);
    store_close(store); /* writes all; the file is put back as kill -9 would have left it */
    assert_int_equal(
        sqlite3_exec(other, "DELETE FROM runs WHERE status = 'running'", NULL, NULL, NULL),
        SQLITE_OK);
    char text[200];
    (void)snprintf(text, sizeof(text), "DELETE FROM runs WHERE id = '%s'", ids[1]);
    assert_int_equal(sqlite3_exec(other, text, NULL, NULL, NULL), SQLITE_OK);
    write_ends(ends, len);
    open_again();
    free(ends);
    assert_int_equal(count("runs"), 2);
    check_status(ids[0], "done");
    check_status(ids[1], "done");
}

/* As if the process had died when the file was so: what is there then is the file's. */
static void die_with(const char *ends, size_t len) {
    store_close(store);
    write_ends(ends, len);
    open_again();
}

static void test_a_server_takes_over_what_the_last_one_left(void **state) {
    (void)state;
    char one[ID_SIZE];
    char two[ID_SIZE];
    size_t len;
    assert_int_equal(begin_as("key_a", "[1]", one), 0);
    assert_int_equal(store_run_end(store, one, &failed, &e), 0);
    assert_int_equal(begin_as("key_b", "[1]", two), 0);
    assert_int_equal(store_run_end(store, two, &failed, &e), 0);
    char *ends = read_ends(&len);
    assert_int_equal(store_untold_write(store, &e), 0);
    assert_int_equal(count("runs"), 2);
    /* Between the commit and the clearing: they are there once. */
    die_with(ends, len);
    assert_int_equal(count("runs"), 2);
    assert_int_equal(count("run_sums WHERE runs = 1"), 2);
    /* Before the commit: they come from the file, whole, and count as others do. */
    assert_int_equal(
        sqlite3_exec(other, "DELETE FROM runs; DELETE FROM run_sums", NULL, NULL, NULL), SQLITE_OK);
    die_with(ends, len);
    check_whole(one, "key_a");
    check_whole(two, "key_b");
    assert_int_equal(count("run_sums WHERE runs = 1"), 2);
    /* What the database has is taken back: what is deleted later stays so. */
    begin(one);
    assert_int_equal(end(one), 0);
    assert_int_equal(store_untold_write(store, &e), 0);
    free(ends);
    ends = read_ends(&len);
    assert_int_equal(sqlite3_exec(other, "DELETE FROM runs", NULL, NULL, NULL), SQLITE_OK);
    die_with(ends, len);
    assert_int_equal(count("runs"), 0);
    free(ends);
}

static void test_what_was_cut_off_or_is_old_is_not_taken(void **state) {
    (void)state;
    char ids[3][ID_SIZE];
    size_t sizes[3];
    char *ends = NULL;
    for (int i = 0; i < 3; i++) {
        begin(ids[i]);
        assert_int_equal(end(ids[i]), 0);
        free(ends);
        ends = read_ends(&sizes[i]);
    }
    assert_int_equal(sizes[2], 3 * sizes[0]);
    assert_int_equal(store_untold_write(store, &e), 0);
    for (size_t len = sizes[1]; len < sizes[2]; len++) {
        assert_int_equal(sqlite3_exec(other, "DELETE FROM runs", NULL, NULL, NULL), SQLITE_OK);
        die_with(ends, len);
        assert_int_equal(count("runs"), 2);
    }
    for (size_t at = sizes[0]; at < sizes[1]; at++) {
        assert_int_equal(sqlite3_exec(other, "DELETE FROM runs", NULL, NULL, NULL), SQLITE_OK);
        ends[at] ^= 4;
        die_with(ends, sizes[2]);
        ends[at] ^= 4;
        assert_int_equal(count("runs"), 1);
    }
    /* The next time writes over the first of the last one, and leaves the others behind it. */
    assert_int_equal(sqlite3_exec(other, "DELETE FROM runs", NULL, NULL, NULL), SQLITE_OK);
    for (int i = 0; i < 3; i++) {
        begin(ids[i]);
        assert_int_equal(end(ids[i]), 0);
    }
    assert_int_equal(store_untold_write(store, &e), 0);
    begin(ids[0]);
    assert_int_equal(end(ids[0]), 0);
    free(ends);
    ends = read_ends(&sizes[2]);
    assert_int_equal(sizes[2], 3 * sizes[0]);
    assert_int_equal(store_untold_write(store, &e), 0);
    assert_int_equal(sqlite3_exec(other, "DELETE FROM runs", NULL, NULL, NULL), SQLITE_OK);
    die_with(ends, sizes[2]);
    check_status(ids[0], "done");
    assert_int_equal(count("runs"), 1);
    free(ends);
}

static void test_what_the_file_does_not_take_is_written_as_before(void **state) {
    (void)state;
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGXFSZ, &ignore, NULL);
    char id[ID_SIZE];
    char first[ID_SIZE];
    static char big[100 << 10];
    memset(big, '1', sizeof(big) - 1);
    begin(first);
    assert_int_equal(end(first), 0);
    assert_int_equal(begin_as("", big, id), 0);
    assert_int_equal(end(id), 0); /* too big: with those before it */
    assert_int_equal(count("runs WHERE status = 'done'"), 2);
    begin(first);
    assert_int_equal(end(first), 0);
    assert_int_equal(count("runs"), 2);
    assert_int_equal(begin_as("key_a", "[1]", id), 0);
    set_room(0); /* the file of ends is full, and so is the log */
    assert_int_equal(store_run_end(store, id, &failed, &e), -ERR_FULL);
    assert_int_equal(begin_as("", NULL, id), -ERR_FULL);
    set_room(RLIM_INFINITY);
    store_settle(store);
    check_status(first, "done");
    assert_int_equal(count("runs"), 4);
    assert_int_equal(count("runs WHERE owner = 'key_a' AND status = 'failed'"), 1);
}

static void check_record(const char *id, const char *status) {
    struct store_record r;
    assert_int_equal(store_record_get(store, "exec", id, NULL, all, &r, &e), 0);
    assert_string_equal(r.status, status);
    assert_string_equal(r.parent, "sbx_1");
    assert_string_equal(r.doc, "{}");
    store_record_finish(&r);
}

static void test_the_end_of_a_record_is_in_the_file_until_the_database_has_it(void **state) {
    (void)state;
    size_t len;
    put("exec_1", "running", 0, false);
    put("exec_2", "running", 0, true);
    assert_int_equal(count("records"), 1);
    put("exec_1", "exited", 5, false);
    put("exec_2", "exited", 5, false);
    assert_int_equal(count("records WHERE status = 'running'"), 1);
    assert_int_equal(count("records"), 1);
    assert_in_range(store_untold_due_ms(store), 0, 10);
    char *ends = read_ends(&len);
    check_record("exec_1", "exited"); /* who asks finds it written */
    assert_int_equal(count("records WHERE status = 'exited' AND ended_ms = 5"), 2);
    /* Before the commit, and between that and the clearing. */
    assert_int_equal(sqlite3_exec(other,
                                  "DELETE FROM records WHERE id = 'exec_2';"
                                  "UPDATE records SET status = 'running', ended_ms = 0",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    for (int i = 0; i < 2; i++) {
        die_with(ends, len);
        check_record("exec_1", "exited");
        check_record("exec_2", "exited");
        assert_int_equal(count("records WHERE ended_ms = 5 AND created_ms = 1"), 2);
    }
    free(ends);
    /* What is deleted does not come back from there, by itself or with its parent. */
    put("exec_3", "exited", 6, false);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            store_record_delete(store, i ? "sandbox" : "exec", i ? "sbx_1" : "exec_3", &e), 0);
        ends = read_ends(&len);
        die_with(ends, len);
        free(ends);
        assert_int_equal(count("records"), i ? 0 : 2);
        put("exec_1", "exited", 6, false);
    }
}

static void test_a_record_that_the_file_does_not_take_is_written_at_once(void **state) {
    (void)state;
    size_t len;
    static char big[100 << 10];
    memset(big, ' ', sizeof(big) - 1);
    struct store_record r = record("exec_1", "failed", 6);
    put("exec_1", "exited", 5, false);
    r.doc = big;
    assert_int_equal(store_record_put(store, "exec", &r, &e), 0);
    assert_int_equal(count("records WHERE status = 'failed'"), 1);
    char *ends = read_ends(&len); /* and what is older of it does not come after it */
    die_with(ends, len);
    free(ends);
    assert_int_equal(count("records WHERE status = 'failed'"), 1);
}

static void test_an_artifact_of_it_finds_it(void **state) {
    (void)state;
    char id[ID_SIZE];
    char later[ID_SIZE];
    struct artifact_writer *w = NULL;
    begin(id);
    assert_int_equal(artifact_begin(store, id, "a.txt", "text/plain", &w, &e), 0);
    assert_int_equal(artifact_write(w, "abc", 3, &e), 0);
    begin(later);
    assert_int_equal(artifact_commit(w, &e), 0);
    assert_int_equal(count("artifacts"), 1);
    check_status(later, "running");
}

/* What somebody put in the place of the file of ends: an error, and never a wait. */
static void test_what_is_no_file_of_ends(void **state) {
    (void)state;
    char path[120];
    (void)snprintf(path, sizeof(path), "%s-ends", file);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(store_ends_open(store, &e), -ERR_IO);
    assert_non_null(strstr(e.message, "is not a file"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_true(store_ends_open(store, &e) < 0);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(symlink("elsewhere", path), 0);
    assert_true(store_ends_open(store, &e) < 0);
    assert_int_equal(unlink(path), 0);
    static char much[1 << 20];
    for (int fill = 0; fill < 3; fill++) { /* garbage, and of lengths that lie */
        memset(much, fill == 0 ? 0 : fill == 1 ? 0xff : 1, sizeof(much));
        write_ends(much, sizeof(much));
        assert_int_equal(store_ends_open(store, &e), 0);
        fd_close(&store->ends_fd);
    }
    assert_int_equal(truncate(path, 1LL << 40), 0);
    assert_true(store_ends_open(store, &e) < 0);
    assert_non_null(strstr(e.message, "larger than"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(store_ends_open(store, &e), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_who_asks_the_store_finds_it_written, setup, teardown),
        cmocka_unit_test_setup_teardown(test_it_ends_in_one_piece_and_keeps_its_place, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_it_is_the_same_record_and_counts_as_much, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_nothing_is_forgotten_at_the_end_nor_kept_without_bound,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_records_wait_too, setup, teardown),
        cmocka_unit_test_setup_teardown(test_on_a_full_disk_the_first_is_kept_and_the_next_refused,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing_waits_where_others_could_not_be_written, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_an_artifact_of_it_finds_it, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_was_told_is_there_after_kill_9, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_only_the_file_of_ends_has_is_there_after_kill_9,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_ends_are_written_together_and_before_anybody_hears_of_them, setup_ends, teardown),
        cmocka_unit_test_setup_teardown(test_what_began_of_late_waits_for_its_end, setup_ends,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_no_end_is_lost_or_doubled_where_others_wait_on,
                                        setup_ends, teardown),
        cmocka_unit_test_setup_teardown(test_a_server_takes_over_what_the_last_one_left, setup_ends,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_what_was_cut_off_or_is_old_is_not_taken, setup_ends,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_what_the_file_does_not_take_is_written_as_before,
                                        setup_ends, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_no_file_of_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_the_end_of_a_record_is_in_the_file_until_the_database_has_it, setup_ends,
            teardown),
        cmocka_unit_test_setup_teardown(
            test_a_record_that_the_file_does_not_take_is_written_at_once, setup_ends, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
