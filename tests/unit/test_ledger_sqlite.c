#include "base/cleanup.h"
#include "base/limits.h"
#include "base/mem.h"
#include "front/ledger/backend.h"
#include "front/ledger/db.h"
#include "front/ledger/internal.h"
#include "unit/unit.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The ledger on SQLite as the server has it: a thread that writes, in order, together what came
 * together; texts of megabytes; what is accepted is done before it closes. */

enum { LEN = 1300000, TURNS = 100000, WORKERS_BYTES = 4 << 20 };

static char dir[] = "/tmp/cay-ledger-XXXXXX";
static uv_loop_t loop;
static struct ledger_db *db;
static struct ledger *ledger;
static sqlite3 *other; /* of another process, as it were */

static void on_keys(void *ctx, struct ledger_key *keys, size_t n, uint64_t version) {
    (void)ctx;
    (void)version;
    for (size_t i = 0; i < n; i++)
        ledger_key_finish(&keys[i]);
    free(keys);
}

static void on_confirmed(void *ctx, uint64_t version) {
    (void)ctx;
    (void)version;
}

static void open_ledger(void) {
    struct err err;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(ledger_db_open(dir, &db, &err), 0);
    assert_int_equal(
        ledger_open(&loop, db,
                    &(struct ledger_watch){.on_keys = on_keys, .on_confirmed = on_confirmed},
                    &ledger, &err),
        0);
    assert_int_equal(sqlite3_open(ledger_db_path(db), &other), SQLITE_OK);
    assert_int_equal(sqlite3_busy_timeout(other, 60000), SQLITE_OK); /* the thread may be writing */
}

static void close_ledger(void) {
    ledger_close(ledger);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    (void)sqlite3_close(other);
    ledger_db_close(db);
}

static int setup(void **state) {
    (void)state;
    memcpy(dir + strlen(dir) - 6, "XXXXXX", 6);
    if (!mkdtemp(dir))
        return -1;
    open_ledger();
    return 0;
}

static int teardown(void **state) {
    (void)state;
    close_ledger();
    static const char *const files[] = {"ledger.db", "ledger.db-wal", "ledger.db-shm"};
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        _cleanup_(free) char *path = xasprintf("%s/%s", dir, files[i]);
        (void)unlink(path);
    }
    return rmdir(dir);
}

static int order; /* of answers */

struct got {
    int n;
    int place; /* among all answers */
    struct err err;
    bool repeated;
    size_t ntasks;
    char *text; /* of the first task or worker */
    size_t len;
    char id[ID_SIZE];
    int64_t attempt;
    bool cancel;
};

static void on_answer(void *ctx, const struct ledger_answer *a) {
    struct got *g = ctx;
    g->n++;
    g->place = ++order;
    g->err = a->err;
    if (a->err.code)
        return;
    g->repeated = a->op == LEDGER_TASK_SUBMIT && a->task_submitted.repeated;
    g->ntasks = a->op == LEDGER_TASK_CLAIM ? a->task_claimed.n : 0;
    const struct ledger_task *t = a->op == LEDGER_TASK_SUBMIT   ? &a->task_submitted.task
                                  : a->op == LEDGER_TASK_GET    ? &a->task_got.task
                                  : a->op == LEDGER_TASK_CANCEL ? &a->task_cancelled.task
                                  : g->ntasks > 0               ? a->task_claimed.tasks
                                                                : NULL;
    if (t) {
        g->text = t->body ? xstrdup(t->body) : NULL;
        g->len = t->body_len;
        g->attempt = t->attempt;
        g->cancel = t->cancel;
        memcpy(g->id, t->id, ID_SIZE);
    }
    const struct ledger_worker *w = a->op == LEDGER_WORKER_GET ? a->worker_got.worker : NULL;
    if (w) {
        g->text = w->code ? xstrdup(w->code) : NULL;
        g->len = w->code_len;
    }
}

/* Turns the loop until all are answered. */
static void wait_for(const struct got *g, size_t n) {
    for (int t = 1; t < TURNS; t++) {
        size_t have = 0;
        (void)uv_run(&loop, UV_RUN_ONCE);
        for (size_t i = 0; i < n; i++)
            have += g[i].n == 1;
        if (have == n)
            return;
    }
    fail_msg("no answer");
}

static char *text_of(char c, size_t len) {
    char *t = xmalloc(len + 1);
    for (size_t i = 0; i < len; i++)
        t[i] = (char)(c + (char)(i / 1000 % 20));
    t[len] = 0;
    return t;
}

/* Of each task another one. */
static char *body_of(const char *id, size_t len) {
    return text_of(id[strlen(id) - 1], len);
}

static void submit_as(struct got *g, const char *id, const char *owner, const char *idem,
                      size_t len) {
    char *body = body_of(id, len);
    ledger_call(ledger,
                &(struct ledger_ask){.op = LEDGER_TASK_SUBMIT,
                                     .task_submit = {.id = id,
                                                     .owner = owner,
                                                     .type = "run",
                                                     .body = body,
                                                     .own_body = &body,
                                                     .max_attempts = 3,
                                                     .idem = idem,
                                                     .idem_hash = idem ? "hash" : NULL,
                                                     .waiting_max = 1000,
                                                     .bytes_max = (int64_t)LIMIT_READ_BYTES}},
                on_answer, g);
    free(body);
}

static void submit(struct got *g, const char *id, size_t len) {
    submit_as(g, id, "key", NULL, len);
}

static int64_t number(const char *sql) {
    sqlite3_stmt *st = NULL;
    assert_int_equal(sqlite3_prepare_v2(other, sql, -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(st, 0);
    (void)sqlite3_finalize(st);
    return n;
}

static void change(const char *sql) {
    assert_int_equal(sqlite3_exec(other, sql, NULL, NULL, NULL), SQLITE_OK);
}

/* The thread waits for this lock: it stands still. */
static void hold_writer(void) {
    change("BEGIN IMMEDIATE");
}

static void release_writer(void) {
    change("COMMIT");
}

static void begin_node(void) {
    struct got g = {0};
    ledger_call(ledger, &(struct ledger_ask){.op = LEDGER_NODE_BEGIN, .node_begin.node = "n"},
                on_answer, &g);
    wait_for(&g, 1);
    assert_int_equal(g.err.code, 0);
}

static void claim(struct got *g) {
    ledger_call(
        ledger,
        &(struct ledger_ask){.op = LEDGER_TASK_CLAIM,
                             .task_claim = {.node = "n", .epoch = 1, .limit = 3, .per_key = 8}},
        on_answer, g);
}

static void get_task(struct got *g, const char *id) {
    ledger_call(ledger, &(struct ledger_ask){.op = LEDGER_TASK_GET, .task_get.id = id}, on_answer,
                g);
}

static void check_body(struct got *g, const char *id) {
    _cleanup_(free) char *want = body_of(id, LEN);
    assert_int_equal(g->err.code, 0);
    assert_string_equal(g->id, id);
    assert_int_equal(g->len, LEN);
    assert_string_equal(g->text, want);
    free(g->text);
}

static void test_a_long_body_comes_back_whole_and_goes_at_the_end(void **state) {
    (void)state;
    struct got g[3] = {0};
    submit(&g[0], "task_1", LEN);
    wait_for(g, 1);
    assert_int_equal(g[0].err.code, 0);
    assert_null(g[0].text);
    begin_node();
    claim(&g[1]);
    wait_for(g, 2);
    check_body(&g[1], "task_1");
    ledger_call(ledger,
                &(struct ledger_ask){
                    .op = LEDGER_TASK_END,
                    .task_end = {.id = g[1].id, .attempt = g[1].attempt, .state = TASK_DONE}},
                on_answer, &g[2]);
    wait_for(g, 3);
    assert_int_equal(g[2].err.code, 0);
    assert_int_equal(number("SELECT count(*) FROM task_bodies"), 0);
}

static void test_what_was_kept_outlives_a_restart(void **state) {
    (void)state;
    struct got g[2] = {0};
    submit(&g[0], "task_1", LEN);
    wait_for(g, 1);
    close_ledger();
    open_ledger();
    begin_node();
    claim(&g[1]);
    wait_for(g, 2);
    check_body(&g[1], "task_1");
}

/* The loop goes on while the thread waits for a lock, and a read sees what was asked before it. */
static void test_a_read_waits_for_what_was_asked_before_it(void **state) {
    (void)state;
    struct got g[4] = {0};
    hold_writer();
    submit(&g[0], "task_1", 10);
    get_task(&g[1], "task_1");
    ledger_call(ledger, &(struct ledger_ask){.op = LEDGER_TASK_CANCEL, .task_cancel.id = "task_1"},
                on_answer, &g[2]);
    get_task(&g[3], "task_1");
    for (int i = 0; i < 20; i++)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    for (int i = 0; i < 4; i++)
        assert_int_equal(g[i].n, 0);
    release_writer();
    wait_for(g, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(g[i].err.code, 0);
        assert_int_equal(g[i].place, g[0].place + i);
        assert_string_equal(g[i].id, "task_1");
    }
    assert_int_equal(number("SELECT count(*) FROM tasks WHERE state = 4"), 1);
}

static int commits;

static int on_commit(void *ctx, sqlite3 *handle, const char *name, int pages) {
    (void)ctx;
    (void)handle;
    (void)name;
    (void)pages;
    commits++;
    return SQLITE_OK;
}

/* All that came while the thread was busy is one flush of the disk. */
static void test_what_comes_together_is_written_together(void **state) {
    (void)state;
    enum { N = 60 };
    struct got g[N] = {0};
    commits = 0;
    (void)sqlite3_wal_hook(db->db, on_commit, NULL);
    hold_writer();
    for (int i = 0; i < N; i++) {
        char id[16];
        (void)snprintf(id, sizeof(id), "task_%d", i);
        submit(&g[i], id, 10);
    }
    release_writer();
    wait_for(g, N);
    assert_int_equal(number("SELECT count(*) FROM tasks"), N);
    assert_int_equal(commits, 2); /* the first alone, then all the others */
}

/* One that fails after it has written something costs the others nothing. */
static void test_one_that_fails_halfway_fails_alone(void **state) {
    (void)state;
    struct got g[4] = {0};
    change("CREATE TRIGGER no_queue BEFORE INSERT ON queue WHEN new.task = 'task_2' BEGIN"
           " SELECT raise(ABORT, 'not this one'); END");
    hold_writer();
    for (int i = 0; i < 4; i++) {
        char id[16];
        (void)snprintf(id, sizeof(id), "task_%d", i);
        submit(&g[i], id, 10);
    }
    release_writer();
    wait_for(g, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(g[i].err.code, i == 2 ? ERR_IO : 0);
    assert_int_equal(number("SELECT count(*) FROM tasks"), 3);
    assert_int_equal(number("SELECT count(*) FROM tasks WHERE id = 'task_2'"), 0);
}

/* SQLite may roll a transaction back by itself: nothing of it is acknowledged. */
static void test_one_that_rolls_back_all_takes_none_with_it(void **state) {
    (void)state;
    struct got g[4] = {0};
    change("CREATE TRIGGER no_queue BEFORE INSERT ON queue WHEN new.task = 'task_2' BEGIN"
           " SELECT raise(ROLLBACK, 'nor what came before'); END");
    hold_writer();
    for (int i = 0; i < 4; i++) {
        char id[16];
        (void)snprintf(id, sizeof(id), "task_%d", i);
        submit(&g[i], id, 10);
    }
    release_writer();
    wait_for(g, 4);
    for (int i = 0; i < 4; i++)
        assert_true(g[i].err.code == (i == 2 ? ERR_IO : 0) && !g[i].repeated);
    assert_int_equal(number("SELECT count(*) FROM tasks"), 3);
}

static int on_busy(void *ctx, int times) {
    (void)times;
    ++*(int *)ctx;
    return 0; /* waits no longer */
}

/* Those who ask know by the code that the ledger is away, and ask again: nothing is lost, and no
 * task fails for it. Together they wait once. */
static void test_a_lock_of_another_program_is_the_ledger_away(void **state) {
    (void)state;
    struct ledger_used used[2] = {{.id = "hold_1", .owner = "key", .kind = "chat", .jobs = 1},
                                  {.id = "hold_2", .owner = "key", .kind = "chat", .jobs = 1}};
    struct ledger_ask asks[2];
    struct ledger_item items[2] = {0};
    int waits = 0;
    assert_int_equal(sqlite3_busy_handler(db->db, on_busy, &waits), SQLITE_OK);
    for (int i = 0; i < 2; i++) {
        asks[i] = (struct ledger_ask){.op = LEDGER_SETTLE,
                                      .settle = {.node = "n", .used = &used[i], .n = 1}};
        items[i].ask = &asks[i];
    }
    hold_writer();
    ledger_db_group(db, items, 2);
    release_writer();
    for (int i = 0; i < 2; i++)
        assert_int_equal(items[i].answer.err.code, ERR_UNAVAILABLE);
    assert_int_equal(waits, 1);
    ledger_db_group(db, items, 2);
    for (int i = 0; i < 2; i++)
        assert_int_equal(items[i].answer.err.code, 0);
    assert_int_equal(number("SELECT jobs FROM job_usage"), 2);
}

/* Who was told that the ledger is away may ask again: it must not be done twice. */
static void test_what_was_given_up_before_it_began_is_not_done(void **state) {
    (void)state;
    struct got g[3] = {0};
    hold_writer();
    submit(&g[0], "task_0", 10); /* the thread has it */
    ledger_set_wait(ledger, 100);
    submit(&g[1], "task_1", 10);
    ledger_set_wait(ledger, LEDGER_WAIT_MS);
    wait_for(&g[1], 1);
    assert_int_equal(g[1].err.code, ERR_UNAVAILABLE);
    assert_int_equal(g[0].n, 0);
    release_writer();
    wait_for(&g[0], 1);
    submit(&g[2], "task_2", 10);
    wait_for(&g[2], 1);
    assert_int_equal(g[0].err.code, 0);
    assert_int_equal(number("SELECT count(*) FROM tasks"), 2);
    assert_int_equal(number("SELECT count(*) FROM tasks WHERE id = 'task_1'"), 0);
}

static void test_what_was_asked_is_done_before_it_closes(void **state) {
    (void)state;
    enum { N = 200 };
    struct got g[N] = {0};
    for (int i = 0; i < N; i++) {
        char id[16];
        (void)snprintf(id, sizeof(id), "task_%d", i);
        submit(&g[i], id, 10);
    }
    close_ledger();
    open_ledger();
    for (int i = 0; i < N; i++) {
        assert_int_equal(g[i].n, 1);
        assert_int_equal(g[i].err.code, 0);
    }
    assert_int_equal(number("SELECT count(*) FROM tasks"), N);
}

static void test_two_with_one_idempotency_key_are_one(void **state) {
    (void)state;
    struct got g[3] = {0};
    submit_as(&g[0], "task_1", "key", "same", LEN);
    submit_as(&g[1], "task_2", "key", "same", LEN);
    wait_for(g, 2);
    assert_true(g[0].err.code == 0 && g[1].err.code == 0);
    assert_true(!g[0].repeated && g[1].repeated);
    assert_string_equal(g[1].id, "task_1");
    begin_node();
    claim(&g[2]);
    wait_for(g, 3);
    assert_int_equal(g[2].ntasks, 1);
    check_body(&g[2], "task_1");
}

/* It fails alone: those that were claimed with it are passed on. */
static void test_a_damaged_body_is_not_given_out(void **state) {
    (void)state;
    struct got g[4] = {0};
    submit(&g[0], "task_1", LEN);
    submit(&g[1], "task_2", LEN);
    submit(&g[2], "task_3", LEN);
    wait_for(g, 3);
    change("DELETE FROM task_bodies WHERE task = 'task_2'");
    begin_node();
    claim(&g[3]);
    wait_for(g, 4);
    assert_int_equal(g[3].ntasks, 2);
    check_body(&g[3], "task_1");
    assert_int_equal(number("SELECT count(*) FROM leases"), 2);
    assert_int_equal(number("SELECT count(*) FROM tasks WHERE id = 'task_2' AND state = 3"
                            " AND error_message LIKE '%damaged%'"),
                     1);
}

static void test_how_much_waits_is_bounded(void **state) {
    (void)state;
    static const struct {
        const char *owner;
        size_t len;
        enum err_code code;
    } asks[] = {
        {"first", 1 << 20, 0},
        {"large", 50 << 20, 0}, /* more than a share, but its only one */
        {"third", 14 << 20, ERR_RATE},
        {"third", 12 << 20, 0},
        {"fourth", 1000, 0}, /* short ones do not count */
    };
    struct got g[ARRAY_LEN(asks)] = {0};
    hold_writer();
    for (size_t i = 0; i < ARRAY_LEN(asks); i++) {
        char id[16];
        (void)snprintf(id, sizeof(id), "task_%zu", i);
        submit_as(&g[i], id, asks[i].owner, NULL, asks[i].len);
    }
    release_writer();
    wait_for(g, ARRAY_LEN(asks));
    for (size_t i = 0; i < ARRAY_LEN(asks); i++)
        assert_int_equal(g[i].err.code, asks[i].code);
    assert_non_null(strstr(g[2].err.message, "wait to be written"));
    /* A key has three quarters of it. */
    struct got k[5] = {0};
    hold_writer();
    for (size_t i = 0; i < 5; i++) {
        char id[16];
        (void)snprintf(id, sizeof(id), "task_k%zu", i);
        submit_as(&k[i], id, "fifth", NULL, 12 << 20);
    }
    release_writer();
    wait_for(k, 5);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(k[i].err.code, i == 4 ? ERR_RATE : 0);
}

static void put(struct got *g, char c, size_t len) {
    char *code = text_of(c, len);
    struct ledger_worker w = {.owner = "key", .id = "w", .label = "w", .code_len = len};
    w.code = code;
    ledger_call(ledger,
                &(struct ledger_ask){.op = LEDGER_WORKER_PUT,
                                     .worker_put = {.worker = &w,
                                                    .own_code = &code,
                                                    .workers_max = 3,
                                                    .bytes_max = WORKERS_BYTES}},
                on_answer, g);
    free(code);
}

static void get(struct got *g) {
    ledger_call(
        ledger,
        &(struct ledger_ask){.op = LEDGER_WORKER_GET, .worker_get = {.owner = "key", .id = "w"}},
        on_answer, g);
}

static void check_code(struct got *g, char c, size_t len) {
    _cleanup_(free) char *want = text_of(c, len);
    assert_int_equal(g->err.code, 0);
    assert_int_equal(g->len, len);
    assert_string_equal(g->text, want);
    free(g->text);
}

static void test_a_worker_is_got_as_it_was_put_last(void **state) {
    (void)state;
    struct got g[7] = {0};
    hold_writer();
    put(&g[0], 'a', LEN);
    get(&g[1]);
    put(&g[2], 'b', 100);
    get(&g[3]);
    put(&g[4], 'c', WORKERS_BYTES + 1);
    release_writer();
    wait_for(g, 5);
    check_code(&g[1], 'a', LEN);
    check_code(&g[3], 'b', 100);
    assert_int_equal(g[4].err.code, ERR_LIMIT);
    ledger_call(ledger,
                &(struct ledger_ask){.op = LEDGER_WORKER_DELETE,
                                     .worker_delete = {.owner = "key", .id = "w"}},
                on_answer, &g[5]);
    get(&g[6]);
    wait_for(g, 7);
    assert_int_equal(g[6].err.code, ERR_NOT_FOUND);
}

/* What an earlier cay has written in pieces is whole again, in its order. */
/* Takes back what the eleventh migration made. */
#define BEFORE_PROJECTS                                                                            \
    "DROP TRIGGER key_use_out; DROP TABLE key_uses; DROP TABLE projects; DROP TABLE key_days;"     \
    "DROP INDEX keys_project; ALTER TABLE keys DROP COLUMN project;"                               \
    "ALTER TABLE keys DROP COLUMN server; ALTER TABLE keys DROP COLUMN old_hash;"                  \
    "ALTER TABLE keys DROP COLUMN old_until_ms; ALTER TABLE keys DROP COLUMN expires_ms;"          \
    "ALTER TABLE tasks DROP COLUMN key; ALTER TABLE workers DROP COLUMN key;"                      \
    "ALTER TABLE reserves DROP COLUMN key;"                                                        \
    "DROP TABLE usage; CREATE TABLE usage (owner, day, type, state, tasks, attempts, wall_ms);"    \
    "DROP TABLE job_usage; CREATE TABLE job_usage (day, owner, kind, jobs, done, wall_ms,"         \
    " input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_nusd,"              \
    " charged_nusd);"

static void test_texts_in_pieces_are_taken_over(void **state) {
    (void)state;
    struct got g[3] = {0};
    submit(&g[0], "task_1", 10);
    put(&g[1], 'a', 10);
    wait_for(g, 2);
    change(
        BEFORE_PROJECTS
        "DROP INDEX outbox_receiver; DROP INDEX outbox_failing;"
        "ALTER TABLE outbox DROP COLUMN receiver;"
        "INSERT INTO outbox (event, task, url, secret, next_ms, body) VALUES"
        " ('1', 't', 'https://a:8443/x?y', '', 0, ''), ('2', 't', 'http://b?x/y', '', 0, ''),"
        " ('3', 't', 'http://c', '', 0, '');"
        "CREATE TABLE texts (id INTEGER PRIMARY KEY AUTOINCREMENT, state INTEGER NOT NULL);"
        "CREATE TABLE text_pieces (id INTEGER PRIMARY KEY, piece BLOB NOT NULL);"
        "ALTER TABLE task_bodies ADD COLUMN text INTEGER;"
        "ALTER TABLE workers ADD COLUMN text INTEGER;"
        "CREATE TRIGGER task_text_out AFTER DELETE ON task_bodies BEGIN SELECT 1; END;"
        "CREATE TRIGGER worker_text_out AFTER DELETE ON workers BEGIN SELECT 1; END;"
        "CREATE TRIGGER worker_text_new AFTER UPDATE OF text ON workers BEGIN SELECT 1; END;"
        "DROP TABLE key_version; DROP TRIGGER key_in; DROP TRIGGER key_changed;"
        "DROP TRIGGER key_out;"
        "INSERT INTO texts VALUES (1, 1), (2, 1), (3, 0);"
        "INSERT INTO text_pieces VALUES (1025, '\"second\xc3'), (1024, 'first '), (1026, '\xa9'),"
        " (2048, 'code'), (3072, 'cut off');"
        "UPDATE task_bodies SET body = '', text = 1; UPDATE workers SET code = '', text = 2;"
        "PRAGMA user_version = 8");
    close_ledger();
    open_ledger();
    begin_node();
    claim(&g[2]);
    wait_for(g, 3);
    assert_string_equal(g[2].text, "first \"second\xc3\xa9");
    free(g[2].text);
    struct got w = {0};
    get(&w);
    wait_for(&w, 1);
    assert_string_equal(w.text, "code");
    free(w.text);
    assert_int_equal(number("SELECT count(*) FROM sqlite_schema WHERE name LIKE 'text%'"), 0);
    assert_int_equal(number("SELECT count(*) FROM outbox WHERE receiver IN"
                            " ('https://a:8443', 'http://b', 'http://c')"),
                     3);
}

/* Each key of before, revoked ones too, is a project now, under its id: so it has what it had. */
static void test_keys_of_before_become_projects(void **state) {
    (void)state;
    struct got g[3] = {0};
    submit(&g[0], "task_1", 10);
    put(&g[1], 'a', 10);
    wait_for(g, 2);
    change(BEFORE_PROJECTS
           "INSERT INTO keys (id, name, scope, hash, created_ms, revoked_ms, nusd_per_day) VALUES"
           " ('key_1', 'one', 'run', zeroblob(32), 5, 0, 700),"
           " ('key_2', 'same', 'admin', zeroblob(32), 6, 0, 0),"
           " ('key_3', 'same', 'run', zeroblob(32), 7, 8, 0),"
           " ('key_4', 'default', 'run', zeroblob(32), 8, 0, 0);"
           "UPDATE tasks SET owner = 'key_1'; UPDATE workers SET owner = 'key_3';"
           "INSERT INTO spend_days VALUES ('key_1', '2026-01-01', 3, 4, 1, 2);"
           "INSERT INTO reserves (id, owner, day, tokens, nusd, node, until_ms)"
           " VALUES ('r', 'key_1', '2026-01-01', 1, 2, 'here', 1);"
           "INSERT INTO usage VALUES ('key_1', '2026-01-01', 'run', 2, 5, 6, 7);"
           "INSERT INTO job_usage VALUES ('2026-01-01', 'key_1', 'run', 1,2,3,4,5,6,7,8,9);"
           "PRAGMA user_version = 10");
    close_ledger();
    open_ledger();
    assert_int_equal(number("SELECT count(*) FROM keys WHERE project = id"), 4);
    assert_int_equal(number("SELECT count(*) FROM keys WHERE server"), 1);
    assert_int_equal(number("SELECT count(*) FROM projects WHERE (id, name) IN (VALUES ('',"
                            " 'default'), ('key_1', 'one'), ('key_2', 'key_2'), ('key_3', 'key_3'),"
                            " ('key_4', 'key_4'))"),
                     5);
    assert_int_equal(number("SELECT count(*) FROM projects"), 5);
    assert_int_equal(number("SELECT count(*) FROM tasks WHERE owner = 'key_1' AND key = owner"), 1);
    assert_int_equal(number("SELECT count(*) FROM workers WHERE owner = 'key_3' AND key = owner"),
                     1);
    assert_int_equal(number("SELECT count(*) FROM reserves WHERE key = 'key_1'"), 1);
    assert_int_equal(number("SELECT tokens + nusd + held_tokens + held_nusd FROM key_days"), 10);
    assert_int_equal(number("SELECT tokens + nusd + held_tokens + held_nusd FROM spend_days"), 10);
    assert_int_equal(number("SELECT tasks + attempts + wall_ms FROM usage WHERE key = 'key_1'"),
                     18);
    assert_int_equal(number("SELECT sum(jobs + done + wall_ms + input_tokens + output_tokens +"
                            " cache_read_tokens + cache_write_tokens + cost_nusd + charged_nusd)"
                            " FROM job_usage WHERE key = 'key_1'"),
                     45);
}

static void test_commits_are_flushed_to_the_disk(void **state) {
    (void)state;
    sqlite3_stmt *st = NULL;
    assert_int_equal(sqlite3_prepare_v2(db->db, "PRAGMA synchronous", -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    assert_int_equal(sqlite3_column_int(st, 0), 2); /* FULL */
    (void)sqlite3_finalize(st);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(test_a_long_body_comes_back_whole_and_goes_at_the_end),
        UNIT(test_what_was_kept_outlives_a_restart),
        UNIT(test_a_read_waits_for_what_was_asked_before_it),
        UNIT(test_what_comes_together_is_written_together),
        UNIT(test_one_that_fails_halfway_fails_alone),
        UNIT(test_one_that_rolls_back_all_takes_none_with_it),
        UNIT(test_a_lock_of_another_program_is_the_ledger_away),
        UNIT(test_what_was_given_up_before_it_began_is_not_done),
        UNIT(test_what_was_asked_is_done_before_it_closes),
        UNIT(test_two_with_one_idempotency_key_are_one),
        UNIT(test_a_damaged_body_is_not_given_out),
        UNIT(test_how_much_waits_is_bounded),
        UNIT(test_a_worker_is_got_as_it_was_put_last),
        UNIT(test_texts_in_pieces_are_taken_over),
        UNIT(test_keys_of_before_become_projects),
        UNIT(test_commits_are_flushed_to_the_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
