/* kill -9 in the middle of writes: what was acknowledged is there, and the database is whole. */

#include "base/cleanup.h"
#include "client.h"

#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { ROUNDS = 100, BATCH = 20 };

static int64_t ask(sqlite3 *db, const char *sql, char *text, size_t size) {
    sqlite3_stmt *s = NULL;
    if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) != SQLITE_OK || sqlite3_step(s) != SQLITE_ROW)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    int64_t n = sqlite3_column_int64(s, 0);
    if (text)
        (void)snprintf(text, size, "%s", (const char *)sqlite3_column_text(s, 0));
    sqlite3_finalize(s);
    return n;
}

/* Looks at the files as another program finds them. */
static void check(const struct client *c, int64_t acknowledged, int64_t batches) {
    char path[128];
    char text[200];
    sqlite3 *db;
    (void)snprintf(path, sizeof(path), "%s/test.db", c->folder);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    (void)ask(db, "PRAGMA integrity_check", text, sizeof(text));
    assert_string_equal(text, "ok");
    /* One call may have been committed and not answered. */
    int64_t n = ask(db, "SELECT count(*) FROM one", NULL, 0);
    assert_in_range(n, acknowledged, acknowledged + 1);
    assert_int_equal(ask(db, "SELECT coalesce(max(n),0) FROM one", NULL, 0), n);
    n = ask(db, "SELECT count(DISTINCT b) FROM many", NULL, 0);
    assert_in_range(n, batches, batches + 1);
    assert_int_equal(ask(db, "SELECT count(*) FROM many", NULL, 0), n * BATCH);
    sqlite3_close(db);
}

static bool insert_one(struct holder *h, int64_t n) {
    char args[700];
    (void)snprintf(args, sizeof(args), "[\"INSERT INTO one VALUES (?, ?)\",%lld,\"%0400d\"]",
                   (long long)n, (int)n);
    return holder_call(h, "execute", args) && h->ok;
}

static bool insert_many(struct holder *h, int64_t b) {
    char args[4096] = "[[";
    size_t at = 2;
    for (int i = 0; i < BATCH; i++)
        at += (size_t)snprintf(args + at, sizeof(args) - at,
                               "%s[\"INSERT INTO many VALUES (?, %d)\",%lld]", i ? "," : "", i,
                               (long long)b);
    (void)snprintf(args + at, sizeof(args) - at, "]]");
    return holder_call(h, "batch", args) && h->ok;
}

static void nothing_acknowledged_is_lost(void **state) {
    (void)state;
    struct client c;
    int64_t one = 0;
    int64_t many = 0;
    client_init(&c);
    srandom(1);
    for (int round = 0; round < ROUNDS; round++) {
        struct holder h;
        if (client_open_schema(&c, "CREATE TABLE IF NOT EXISTS one(n INTEGER PRIMARY KEY, x);"
                                   "CREATE TABLE IF NOT EXISTS many(b, i);"
                                   "CREATE INDEX IF NOT EXISTS m ON many(b)") < 0)
            fail_msg("round %d: %s", round, c.err.message);
        assert_int_equal(client_grant(&c, NULL, 0, &h), 0);
        /* What the killed process had committed without an answer counts from now on. */
        if (holder_query(&h, "SELECT (SELECT coalesce(max(n),0) FROM one), (SELECT "
                             "coalesce(max(b),0) FROM many)"))
            assert_int_equal(sscanf(strstr(h.json, "[["), "[[%ld,%ld]]", &one, &many), 2);
        /* The killer is another process, so that it strikes at any moment. */
        long after_us = 500 + random() % 20000;
        pid_t victim = c.pid;
        pid_t killer = fork();
        if (killer == 0) {
            struct timespec t = {.tv_nsec = after_us * 1000};
            (void)nanosleep(&t, NULL);
            (void)kill(victim, SIGKILL);
            _exit(0);
        }
        for (int i = 0; i < 100000; i++) {
            bool ok = i % 10 == 9 ? insert_many(&h, many + 1) : insert_one(&h, one + 1);
            if (!ok)
                break;
            one += i % 10 != 9;
            many += i % 10 == 9;
        }
        holder_finish(&h);
        int status = client_wait(&c, CLIENT_ANSWER_MS);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        (void)waitpid(killer, NULL, 0);
        /* Every few rounds somebody else looks; in between the facet itself must recover. */
        if (round % 4 == 0)
            check(&c, one, many);
    }
    check(&c, one, many);
    assert_true(one > ROUNDS);
    (void)fprintf(stderr, "%d kills, %ld rows and %ld batches acknowledged\n", ROUNDS, one, many);
    client_finish(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_acknowledged_is_lost)};
    return cmocka_run_group_tests_name("facet kill", tests, NULL, NULL);
}
