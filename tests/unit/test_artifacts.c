#include "base/clock.h"
#include "base/fd.h"
#include "front/store/artifacts.h"
#include "front/store/internal.h"
#include "unit/unit.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64];
static char file[128];
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
    char command[128];
    store_close(store);
    store = NULL;
    (void)snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command); // NOLINT(cert-env33-c): a folder of our own
}

static void begin_run(char id[ID_SIZE]) {
    struct store_run r = {
        .kind = (char *)"code", .title = (char *)"t", .created_ms = clock_wall_ms()};
    (void)id_new("run", r.id);
    memcpy(id, r.id, ID_SIZE);
    assert_int_equal(store_run_begin(store, &r, &e), 0);
}

static void end_run(const char *id) {
    assert_int_equal(store_run_end(store, id, &(struct store_run_end){.status = JOB_DONE}, &e), 0);
}

static int put(const char *run, const char *name, const char *text) {
    struct artifact_writer *w;
    int rc = artifact_begin(store, run, name, "text/plain", &w, &e);
    if (rc < 0)
        return rc;
    size_t half = strlen(text) / 2;
    assert_int_equal(artifact_write(w, text, half, &e), 0);
    assert_int_equal(artifact_write(w, text + half, strlen(text) - half, &e), 0);
    return artifact_commit(w, &e);
}

static int64_t number(const char *sql) {
    sqlite3_stmt *st;
    assert_int_equal(sqlite3_prepare_v2(store->db, sql, -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(st, 0);
    (void)sqlite3_finalize(st);
    return n;
}

/* Files below the folder of artifacts. */
static int files(void) {
    char command[160];
    char text[32] = "";
    (void)snprintf(command, sizeof(command), "find %s/artifacts -type f | wc -l", dir);
    FILE *f = popen(command, "r"); // NOLINT(cert-env33-c)
    assert_non_null(fgets(text, sizeof(text), f));
    (void)pclose(f);
    return atoi(text); // NOLINT(cert-err34-c)
}

static void check_sums(void) {
    assert_int_equal(number("SELECT count(*) FROM (SELECT owner, sum(bytes + coalesce((SELECT"
                            " sum(bytes) FROM artifacts WHERE run_id = runs.id), 0)) AS b FROM runs"
                            " WHERE status <> 'running' GROUP BY owner) AS a"
                            " JOIN run_sums USING (owner) WHERE a.b <> run_sums.bytes"),
                     0);
}

static void read_all(const char *run, const char *name, const char *text) {
    struct artifact_reader *r;
    char got[1000] = "";
    size_t n = 0;
    assert_int_equal(artifact_open(store, run, name, &r, &e), 0);
    assert_int_equal(artifact_of(r)->bytes, strlen(text));
    for (ssize_t k = 1; k > 0; n += (size_t)k) {
        k = artifact_read(r, got + n, 7, &e);
        assert_true(k >= 0);
    }
    artifact_close(r);
    assert_string_equal(got, text);
}

static void on_artifact(void *ctx, const struct artifact *a) {
    char *out = ctx;
    (void)snprintf(out + strlen(out), 200 - strlen(out), "%s:%lld:%.8s ", a->name,
                   (long long)a->bytes, a->hash);
}

static void test_what_was_put_is_read(void **state) {
    (void)state;
    char run[ID_SIZE];
    char list[200] = "";
    begin_run(run);
    assert_int_equal(put(run, "a.diff", "the first"), 0);
    assert_int_equal(put(run, "empty", ""), 0);
    assert_int_equal(put(run, "b.log", "hello"), 0);
    read_all(run, "a.diff", "the first");
    read_all(run, "empty", "");
    assert_int_equal(artifact_list(store, run, on_artifact, list, &e), 0);
    assert_string_equal(list, "a.diff:9:6fa2c9ea b.log:5:2cf24dba empty:0:e3b0c442 ");
    end_run(run);
    check_sums();
    assert_int_equal(put(run, "b.log", "after the end"), 0); /* instead of the other */
    read_all(run, "b.log", "after the end");
    check_sums();
    assert_int_equal(number("SELECT count(*) FROM blobs WHERE uses = 0"), 1);
    struct artifact_reader *r;
    assert_int_equal(artifact_open(store, run, "c", &r, &e), -ERR_NOT_FOUND);
    assert_int_equal(put("run_none", "a", "x"), -ERR_NOT_FOUND);
    assert_int_equal(store_care(store, &e), 0);
    assert_int_equal(files(), 3);
}

static void test_names_and_bounds(void **state) {
    (void)state;
    static const char *const bad[] = {"", ".", "..", ".hidden", "a/b", "a b", "\xc3\xa4"};
    char run[ID_SIZE];
    begin_run(run);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(put(run, bad[i], "x"), -ERR_BAD_REQUEST);
    struct store_settings settings = store_settings_default();
    settings.artifacts = 2;
    settings.artifact_mb = 1;
    store_configure(store, &settings);
    struct artifact_writer *w;
    assert_int_equal(artifact_begin(store, run, "big", "text/plain", &w, &e), 0);
    char *mb = calloc(1, 1 << 20);
    assert_int_equal(artifact_write(w, mb, 1 << 20, &e), 0);
    assert_int_equal(artifact_write(w, mb, 1, &e), -ERR_LIMIT);
    free(mb);
    artifact_cancel(w);
    assert_int_equal(files(), 0);
    assert_int_equal(put(run, "a", "1"), 0);
    assert_int_equal(put(run, "b", "2"), 0);
    assert_int_equal(put(run, "c", "3"), -ERR_LIMIT);
}

static void test_equal_bytes_lie_there_once_and_go_with_the_last(void **state) {
    (void)state;
    char runs[3][ID_SIZE];
    for (int i = 0; i < 3; i++) {
        begin_run(runs[i]);
        assert_int_equal(put(runs[i], "same", "the same bytes"), 0);
        end_run(runs[i]);
    }
    assert_int_equal(files(), 1);
    struct store_settings settings = store_settings_default();
    settings.keep_runs = 2;
    store_configure(store, &settings);
    assert_int_equal(store_care(store, &e), 0);
    check_sums();
    assert_int_equal(files(), 1);
    read_all(runs[2], "same", "the same bytes");
    assert_int_equal(number("SELECT uses FROM blobs"), 2);
    assert_int_equal(sqlite3_exec(store->db, "DELETE FROM runs", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(store_care(store, &e), 0);
    assert_int_equal(files(), 0);
    assert_int_equal(number("SELECT count(*) FROM blobs"), 0);
}

static void test_what_is_damaged_is_not_given_whole(void **state) {
    (void)state;
    char run[ID_SIZE];
    char path[200];
    char got[100];
    struct artifact_reader *r;
    begin_run(run);
    assert_int_equal(put(run, "a", "some bytes that will change"), 0);
    assert_int_equal(artifact_open(store, run, "a", &r, &e), 0);
    const char *hash = artifact_of(r)->hash;
    (void)snprintf(path, sizeof(path), "%s/artifacts/%.2s/%s", dir, hash, hash);
    artifact_close(r);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "X", 1, 3), 1);
    close(fd);
    assert_int_equal(artifact_open(store, run, "a", &r, &e), 0);
    assert_int_equal(artifact_read(r, got, 20, &e), 20);
    assert_int_equal(artifact_read(r, got, 20, &e), -ERR_IO);
    artifact_close(r);
    assert_int_equal(truncate(path, 5), 0);
    assert_int_equal(artifact_open(store, run, "a", &r, &e), 0);
    assert_int_equal(artifact_read(r, got, 100, &e), -ERR_IO);
    artifact_close(r);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(artifact_open(store, run, "a", &r, &e), 0);
    assert_false(artifact_find_file(r));
    assert_int_equal(artifact_read(r, got, 100, &e), -ERR_IO);
    artifact_close(r);
}

static void test_one_that_was_lost_is_written_anew(void **state) {
    (void)state;
    char run[ID_SIZE];
    char path[200];
    char got[100];
    struct artifact_reader *r;
    struct artifact_writer *w;
    begin_run(run);
    assert_int_equal(put(run, "a", "some bytes"), 0);
    assert_int_equal(artifact_open(store, run, "a", &r, &e), 0);
    (void)snprintf(path, sizeof(path), "%s/artifacts/%.2s/%s", dir, artifact_of(r)->hash,
                   artifact_of(r)->hash);
    artifact_drop_file(r);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(artifact_restore_begin(store, &w, &e), 0);
    assert_int_equal(artifact_write(w, "other bytes", 11, &e), 0);
    assert_int_equal(artifact_restore_commit(w, artifact_of(r)->hash, &e), -ERR_IO);
    assert_false(artifact_find_file(r));
    assert_int_equal(artifact_restore_begin(store, &w, &e), 0);
    assert_int_equal(artifact_write(w, "some bytes", 10, &e), 0);
    assert_int_equal(artifact_restore_commit(w, artifact_of(r)->hash, &e), 0);
    assert_true(artifact_find_file(r));
    assert_int_equal(artifact_read(r, got, 100, &e), 10);
    artifact_close(r);
}

static void test_what_a_crash_left_goes(void **state) {
    (void)state;
    char run[ID_SIZE];
    char path[200];
    struct artifact_writer *w;
    begin_run(run);
    assert_int_equal(put(run, "a", "kept"), 0);
    assert_int_equal(artifact_begin(store, run, "b", "text/plain", &w, &e), 0);
    assert_int_equal(artifact_write(w, "half", 4, &e), 0);
    (void)snprintf(path, sizeof(path), "%s/artifacts/ab", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    (void)snprintf(path, sizeof(path), "%s/artifacts/ab/ab%062d", dir, 7);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600); /* renamed, not recorded */
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(files(), 3);
    struct store *old = store; /* as a crash leaves it: nothing is finished */
    assert_int_equal(store_open(file, &store, &e), 0);
    assert_int_equal(files(), 3); /* another program may look, while the server writes */
    int64_t n = 0;
    assert_int_equal(store_run_interrupt_all(store, &n, &e), 0);
    assert_int_equal(files(), 2);
    for (int i = 0; i < 256; i++)
        assert_int_equal(store_care(store, &e), 0);
    assert_int_equal(files(), 1);
    read_all(run, "a", "kept");
    artifact_cancel(w);
    store_close(old);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(test_what_was_put_is_read),
        UNIT(test_names_and_bounds),
        UNIT(test_equal_bytes_lie_there_once_and_go_with_the_last),
        UNIT(test_what_is_damaged_is_not_given_whole),
        UNIT(test_one_that_was_lost_is_written_anew),
        UNIT(test_what_a_crash_left_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
