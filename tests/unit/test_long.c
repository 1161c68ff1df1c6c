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

/* Texts of megabytes in the ledger: in pieces, over turns of the loop, whole or not at all. */

enum { LEN = 5 * PIECES_BYTES + 12345, TURNS = 100000, WORKERS_BYTES = 4 << 20, WAIT_MS = 300 };

static char dir[] = "/tmp/cay-long-XXXXXX";
static uv_loop_t loop;
static struct ledger_db *db;
static struct ledger *ledger;

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
}

static void close_ledger(void) {
    ledger_close(ledger);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
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

struct got {
    int n;
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
    g->err = a->err;
    g->repeated = a->repeated;
    g->ntasks = a->ntasks;
    if (a->ntasks > 0) {
        g->text = a->tasks[0].body ? xstrdup(a->tasks[0].body) : NULL;
        g->len = a->tasks[0].body_len;
        g->attempt = a->tasks[0].attempt;
        g->cancel = a->tasks[0].cancel;
        memcpy(g->id, a->tasks[0].id, ID_SIZE);
    }
    if (a->nworkers > 0) {
        g->text = a->workers[0].code ? xstrdup(a->workers[0].code) : NULL;
        g->len = a->workers[0].code_len;
    }
}

/* Turns of the loop until all are answered. */
static int turns_until(const struct got *g, size_t n) {
    for (int t = 1; t < TURNS; t++) {
        size_t have = 0;
        (void)uv_run(&loop, UV_RUN_ONCE);
        for (size_t i = 0; i < n; i++)
            have += g[i].n == 1;
        if (have == n)
            return t;
    }
    fail_msg("no answer");
    return 0;
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
    struct ledger_task t = {.type = (char *)(uintptr_t) "run",
                            .body = body,
                            .body_len = len,
                            .max_attempts = 3,
                            .idem = (char *)(uintptr_t)idem,
                            .idem_hash = (char *)(uintptr_t)(idem ? "hash" : NULL)};
    (void)snprintf(t.id, sizeof(t.id), "%s", id);
    (void)snprintf(t.owner, sizeof(t.owner), "%s", owner);
    ledger_call(ledger,
                &(struct ledger_ask){.op = LEDGER_TASK_SUBMIT,
                                     .task = &t,
                                     .own_text = &body,
                                     .per_key = 100,
                                     .body_bytes = (int64_t)LIMIT_READ_BYTES},
                on_answer, g);
    free(body);
}

static int64_t number(const char *sql) {
    sqlite3_stmt *st = NULL;
    assert_int_equal(sqlite3_prepare_v2(db->db, sql, -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(st, 0);
    (void)sqlite3_finalize(st);
    return n;
}

static int64_t texts(void) {
    return number("SELECT count(*) FROM texts") + number("SELECT count(*) FROM text_pieces");
}

/* That were ever begun. */
static int64_t texts_begun(void) {
    return number("SELECT coalesce(sum(seq), 0) FROM sqlite_sequence WHERE name = 'texts'");
}

static void change(const char *sql) {
    assert_int_equal(sqlite3_exec(db->db, sql, NULL, NULL, NULL), SQLITE_OK);
}

/* Until so many rows are left of texts and pieces. */
static void turn_until_left(int64_t left) {
    for (int t = 0; texts() > left; t++) {
        int64_t before = texts();
        assert_true(t < TURNS);
        (void)uv_run(&loop, UV_RUN_NOWAIT);
        assert_true(texts() >= before - 1); /* one a turn */
    }
}

static void turn_until_swept(void) {
    turn_until_left(0);
}

static void begin_node(void) {
    struct got g = {0};
    ledger_call(ledger, &(struct ledger_ask){.op = LEDGER_NODE_BEGIN, .node = "n"}, on_answer, &g);
    (void)turns_until(&g, 1);
    assert_int_equal(g.err.code, 0);
}

static void claim(struct got *g) {
    ledger_call(ledger,
                &(struct ledger_ask){
                    .op = LEDGER_TASK_CLAIM, .node = "n", .epoch = 1, .limit = 3, .per_key = 8},
                on_answer, g);
}

static void finish(const struct got *claimed) {
    struct got g = {0};
    struct ledger_task t = {.attempt = claimed->attempt, .state = TASK_DONE};
    memcpy(t.id, claimed->id, ID_SIZE);
    ledger_call(ledger, &(struct ledger_ask){.op = LEDGER_TASK_FINISH, .task = &t}, on_answer, &g);
    (void)turns_until(&g, 1);
    assert_int_equal(g.err.code, 0);
}

static void task_call(struct got *g, enum ledger_op op, const char *id) {
    struct ledger_task t = {0};
    (void)snprintf(t.id, sizeof(t.id), "%s", id);
    ledger_call(ledger, &(struct ledger_ask){.op = op, .task = &t, .limit = 10}, on_answer, g);
}

static void check_body(struct got *g, const char *id) {
    _cleanup_(free) char *want = body_of(id, LEN);
    assert_int_equal(g->err.code, 0);
    assert_int_equal(g->ntasks, 1);
    assert_string_equal(g->id, id);
    assert_int_equal(g->len, LEN);
    assert_string_equal(g->text, want);
    free(g->text);
}

static void test_a_long_body_comes_back_whole_and_goes_at_the_end(void **state) {
    (void)state;
    struct got g = {0};
    submit_as(&g, "task_1", "key", NULL, LEN);
    assert_true(turns_until(&g, 1) >= LEN / PIECES_BYTES); /* one piece a turn */
    assert_int_equal(g.err.code, 0);
    assert_null(g.text);
    free(g.text);
    struct got c = {0};
    begin_node();
    claim(&c);
    assert_true(turns_until(&c, 1) >= LEN / PIECES_BYTES);
    check_body(&c, "task_1");
    assert_true(texts() > 0);
    finish(&c);
    turn_until_swept();
}

static void test_others_are_answered_between_two_pieces(void **state) {
    (void)state;
    struct got g[2] = {0};
    submit_as(&g[0], "task_1", "key", NULL, LEN);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    submit_as(&g[1], "task_2", "key", NULL, 10);
    assert_true(turns_until(&g[1], 1) <= 2);
    assert_int_equal(g[0].n, 0);
    (void)turns_until(g, 2);
    free(g[1].text);
}

static void test_what_was_cut_off_is_nothing(void **state) {
    (void)state;
    struct got g = {0};
    submit_as(&g, "task_1", "key", NULL, LEN);
    for (int i = 0; i < 4; i++)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    assert_int_equal(g.n, 0);
    assert_true(texts() > 1);
    close_ledger();
    assert_int_equal(g.err.code, ERR_CANCELLED);
    open_ledger();
    assert_int_equal(number("SELECT count(*) FROM tasks"), 0);
    turn_until_swept();
}

/* `cay key` opens the file beside the server. */
static void test_another_process_leaves_what_is_being_written(void **state) {
    (void)state;
    struct got g = {0};
    struct ledger_db *beside;
    struct err err;
    submit_as(&g, "task_1", "key", NULL, LEN);
    for (int i = 0; i < 4; i++)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    assert_int_equal(ledger_db_open(dir, &beside, &err), 0);
    ledger_db_close(beside);
    assert_int_equal(number("SELECT state FROM texts"), 0);
    (void)turns_until(&g, 1);
    assert_int_equal(g.err.code, 0);
    assert_int_equal(number("SELECT state FROM texts"), 1);
}

static void test_one_that_is_cancelled_while_it_is_claimed_says_so(void **state) {
    (void)state;
    struct got g[3] = {0};
    submit_as(&g[0], "task_1", "key", NULL, LEN);
    (void)turns_until(&g[0], 1);
    begin_node();
    claim(&g[1]);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    task_call(&g[2], LEDGER_TASK_CANCEL, "task_1");
    (void)turns_until(g, 3);
    assert_int_equal(g[2].err.code, 0);
    assert_true(g[1].cancel);
    check_body(&g[1], "task_1");
}

static void test_two_with_one_idempotency_key_are_one(void **state) {
    (void)state;
    struct got g[2] = {0};
    submit_as(&g[0], "task_1", "key", "same", LEN);
    submit_as(&g[1], "task_2", "key", "same", LEN);
    (void)turns_until(g, 2);
    assert_true(g[0].err.code == 0 && g[1].err.code == 0);
    assert_true(!g[0].repeated && g[1].repeated);
    assert_string_equal(g[1].id, "task_1");
    struct got late = {0};
    int64_t begun = texts_begun();
    submit_as(&late, "task_3", "key", "same", LEN);
    (void)turns_until(&late, 1);
    assert_true(late.repeated && texts_begun() == begun); /* nothing was written for it */
    struct got c = {0};
    begin_node();
    claim(&c);
    (void)turns_until(&c, 1);
    check_body(&c, "task_1");
    finish(&c);
    turn_until_swept();
}

static void test_what_was_kept_outlives_a_restart(void **state) {
    (void)state;
    struct got g = {0};
    struct got c = {0};
    submit_as(&g, "task_1", "key", NULL, LEN);
    (void)turns_until(&g, 1);
    close_ledger();
    open_ledger();
    begin_node();
    claim(&c);
    (void)turns_until(&c, 1);
    check_body(&c, "task_1");
}

static void test_one_that_is_cancelled_goes_in_pieces_and_leaves_others(void **state) {
    (void)state;
    struct got g[4] = {0};
    submit_as(&g[0], "task_1", "key", NULL, LEN);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    task_call(&g[3], LEDGER_TASK_CANCEL, "task_1");
    (void)turns_until(&g[3], 1);
    assert_int_equal(g[3].err.code, ERR_NOT_FOUND); /* it is none before it is all there */
    (void)turns_until(g, 1);
    int64_t one = texts();
    submit_as(&g[1], "task_2", "key", NULL, LEN);
    (void)turns_until(g, 2);
    task_call(&g[2], LEDGER_TASK_CANCEL, "task_1");
    turn_until_left(one);
    (void)turns_until(g, 3);
    struct got c = {0};
    begin_node();
    claim(&c);
    (void)turns_until(&c, 1);
    check_body(&c, "task_2");
}

static void test_one_whose_last_lease_is_over_goes(void **state) {
    (void)state;
    struct got g[3] = {0};
    submit_as(&g[0], "task_1", "key", NULL, LEN);
    (void)turns_until(&g[0], 1);
    begin_node();
    claim(&g[1]);
    (void)turns_until(g, 2);
    check_body(&g[1], "task_1");
    change("UPDATE tasks SET max_attempts = 1; UPDATE leases SET until_ms = 0");
    task_call(&g[2], LEDGER_TASK_REAP, "");
    (void)turns_until(g, 3);
    turn_until_swept();
}

static void test_one_that_ends_while_it_is_claimed_is_left_out(void **state) {
    (void)state;
    struct got g[3] = {0};
    submit_as(&g[0], "task_1", "key", NULL, LEN);
    submit_as(&g[1], "task_2", "key", NULL, LEN);
    (void)turns_until(g, 2);
    begin_node();
    claim(&g[2]);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    finish(&(struct got){.id = "task_1", .attempt = 1});
    (void)turns_until(g, 3);
    check_body(&g[2], "task_2");
}

static void test_what_cannot_be_written_is_answered_and_goes(void **state) {
    (void)state;
    struct got g = {0};
    _cleanup_(free) char *sql =
        xasprintf("INSERT INTO text_pieces VALUES (%d, x'00')", PIECES_MAX + 3);
    change(sql); /* where its fourth piece would be */
    submit_as(&g, "task_1", "key", NULL, LEN);
    (void)turns_until(&g, 1);
    assert_int_not_equal(g.err.code, 0);
    assert_int_equal(number("SELECT count(*) FROM tasks"), 0);
    turn_until_swept();
}

/* It fails alone: those that were claimed with it are told of. */
static void test_a_damaged_body_is_not_given_out(void **state) {
    (void)state;
    struct got g[5] = {0};
    static const char *const ids[] = {"task_1", "task_2", "task_3"};
    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        submit_as(&g[i], ids[i], "key", NULL, LEN);
        (void)turns_until(g, i + 1);
    }
    _cleanup_(free) char *damage =
        xasprintf("UPDATE text_pieces SET piece = zeroblob(10) WHERE id / %d = (SELECT id FROM "
                  "texts ORDER BY id LIMIT 1 OFFSET 1)",
                  PIECES_MAX);
    change(damage);
    begin_node();
    claim(&g[3]);
    (void)turns_until(g, 4);
    assert_int_equal(g[3].err.code, 0);
    assert_int_equal(g[3].ntasks, 2);
    assert_string_equal(g[3].id, "task_1");
    free(g[3].text);
    assert_int_equal(number("SELECT count(*) FROM leases"), 2);
    assert_int_equal(number("SELECT count(*) FROM tasks WHERE id = 'task_2' AND finished_ms > 0"
                            " AND error_message LIKE '%damaged%'"),
                     1);
    turn_until_left(2 * (1 + 6)); /* and its text goes */
}

/* The deadline of the call was that of one that gives no sign. */
static void test_what_goes_on_is_waited_for(void **state) {
    (void)state;
    struct got g[2] = {0};
    begin_node();
    for (int i = 0; i < 2; i++) {
        ledger_set_wait(ledger, WAIT_MS);
        if (i == 0)
            submit_as(&g[0], "task_1", "key", NULL, LEN);
        else
            claim(&g[1]);
        ledger_set_wait(ledger, 3600 * 1000);
        for (int k = 0; k < 3; k++)
            (void)uv_run(&loop, UV_RUN_NOWAIT);
        assert_int_equal(g[i].n, 0);
        (void)usleep((WAIT_MS + 20) * 1000);
        (void)turns_until(g, (size_t)i + 1);
        assert_int_equal(g[i].err.code, 0);
    }
    check_body(&g[1], "task_1");
}

static void on_prepare(uv_prepare_t *h) {
    unsigned *most = h->data;
    *most = MAX(*most, h->loop->active_reqs.count);
}

/* Between the turn of the text and the poll no thread can have told of its end. */
static void test_a_thread_frees_the_text(void **state) {
    (void)state;
    struct got g = {0};
    unsigned most = 0;
    uv_prepare_t prepare = {.data = &most};
    assert_int_equal(uv_prepare_init(&loop, &prepare), 0);
    assert_int_equal(uv_prepare_start(&prepare, on_prepare), 0);
    submit_as(&g, "task_1", "key", NULL, LEN);
    (void)turns_until(&g, 1);
    uv_close((uv_handle_t *)&prepare, NULL);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    assert_int_equal(most, 1);
}

static void test_how_much_waits_is_bounded(void **state) {
    (void)state;
    enum { EACH = 12 << 20, N = 6 };
    struct got g[N] = {0};
    char id[16];
    for (int i = 0; i < N; i++) {
        (void)snprintf(id, sizeof(id), "task_%d", i);
        submit_as(&g[i], id, i == N - 1 ? "other" : "key", NULL, EACH);
    }
    (void)turns_until(g, N);
    for (int i = 0; i < 4; i++)
        assert_int_equal(g[i].err.code, 0);
    assert_int_equal(g[4].err.code, ERR_RATE); /* three quarters of 64 MB are a key's */
    assert_int_equal(g[5].err.code, 0);
    /* And what its key may not have is refused before it is written. */
    struct got last = {0};
    int64_t before = number("SELECT count(*) FROM text_pieces");
    submit_as(&last, "task_9", "key", NULL, 20 << 20);
    (void)turns_until(&last, 1);
    assert_int_equal(last.err.code, ERR_RATE);
    assert_non_null(strstr(last.err.message, "waiting_mb_per_key")); /* none waits any more */
    assert_int_equal(number("SELECT count(*) FROM text_pieces"), before);
}

static void test_how_much_waits_of_all_is_bounded(void **state) {
    (void)state;
    static const struct {
        const char *owner;
        size_t len;
        enum err_code code;
    } asks[] = {
        {"alone", LIMIT_READ_BYTES + 1, ERR_RATE}, /* by its key: see below */
        {"first", 1 << 20, ERR_CANCELLED},
        {"large", 50 << 20, ERR_CANCELLED}, /* more than a share, but its only one */
        {"third", 14 << 20, ERR_RATE},
        {"third", 12 << 20, ERR_CANCELLED},
    };
    struct got g[ARRAY_LEN(asks)] = {0};
    for (size_t i = 0; i < ARRAY_LEN(asks); i++) {
        char id[16];
        (void)snprintf(id, sizeof(id), "task_%zu", i);
        submit_as(&g[i], id, asks[i].owner, NULL, asks[i].len);
        for (int k = 0; i == 0 && k < 3; k++)
            (void)uv_run(&loop, UV_RUN_NOWAIT);
    }
    for (size_t k = 0; k < ARRAY_LEN(asks) + 1; k++)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    close_ledger();
    open_ledger();
    for (size_t i = 0; i < ARRAY_LEN(asks); i++)
        assert_int_equal(g[i].err.code, asks[i].code);
    assert_non_null(strstr(g[0].err.message, "waiting_mb_per_key"));
    assert_non_null(strstr(g[3].err.message, "wait to be written"));
}

static void put(struct got *g, char c, size_t len) {
    char *code = text_of(c, len);
    struct ledger_worker w = {.owner = "key", .id = "w", .label = "w", .code_len = len};
    w.code = code;
    ledger_call(ledger,
                &(struct ledger_ask){.op = LEDGER_WORKER_PUT,
                                     .worker = &w,
                                     .own_text = &code,
                                     .limit = 3,
                                     .limit_bytes = WORKERS_BYTES},
                on_answer, g);
    free(code);
}

static void get(struct got *g) {
    struct ledger_worker w = {.owner = "key", .id = "w"};
    ledger_call(ledger, &(struct ledger_ask){.op = LEDGER_WORKER_GET, .worker = &w}, on_answer, g);
}

static void check_code(struct got *g, char c, size_t len) {
    _cleanup_(free) char *want = text_of(c, len);
    (void)turns_until(g, 1);
    assert_int_equal(g->err.code, 0);
    assert_int_equal(g->len, len);
    assert_string_equal(g->text, want);
    free(g->text);
}

static void test_a_worker_that_is_put_anew_while_it_is_got(void **state) {
    (void)state;
    struct got puts[3] = {0};
    struct got gets[3] = {0};
    put(&puts[0], 'a', LEN);
    (void)turns_until(&puts[0], 1);
    get(&gets[0]);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    put(&puts[1], 'b', 100); /* at once: what is got is being removed */
    check_code(&gets[0], 'b', 100);
    put(&puts[2], 'c', 2 * LEN);
    (void)turns_until(puts, 3);
    get(&gets[1]);
    check_code(&gets[1], 'c', 2 * LEN);
    struct ledger_worker w = {.owner = "key", .id = "w"};
    struct got d = {0};
    ledger_call(ledger, &(struct ledger_ask){.op = LEDGER_WORKER_DELETE, .worker = &w}, on_answer,
                &d);
    get(&gets[2]);
    (void)turns_until(&gets[2], 1);
    assert_int_equal(gets[2].err.code, ERR_NOT_FOUND);
    turn_until_swept();
}

static void test_a_worker_outlives_a_restart_and_its_text_goes_with_a_short_one(void **state) {
    (void)state;
    struct got puts[3] = {0};
    struct got g = {0};
    put(&puts[0], 'a', LEN);
    (void)turns_until(&puts[0], 1);
    close_ledger();
    open_ledger();
    get(&g);
    check_code(&g, 'a', LEN);
    put(&puts[1], 'b', WORKERS_BYTES + 1);
    (void)turns_until(puts, 2);
    assert_int_equal(puts[1].err.code, ERR_LIMIT);
    assert_int_equal(texts_begun(), 1); /* it was refused before it was written */
    put(&puts[2], 'c', 100);
    (void)turns_until(puts, 3);
    turn_until_swept();
}

static void test_a_worker_with_a_piece_lost_is_not_looked_for_for_ever(void **state) {
    (void)state;
    struct got p = {0};
    struct got g = {0};
    put(&p, 'a', LEN);
    (void)turns_until(&p, 1);
    change("DELETE FROM text_pieces WHERE id = (SELECT max(id) FROM text_pieces)");
    get(&g);
    (void)turns_until(&g, 1);
    assert_int_equal(g.err.code, ERR_INTERNAL);
}

/* --- the pieces alone --- */

static void test_a_text_has_its_bounds(void **state) {
    (void)state;
    static char out[PIECES_BYTES + 1];
    struct err err;
    int64_t text;
    int64_t next;
    size_t len;
    assert_int_equal(pieces_begin(db->pieces, &text, &err), 0);
    assert_int_equal(pieces_begin(db->pieces, &next, &err), 0);
    assert_int_equal(pieces_add(db->pieces, text, PIECES_MAX, "x", 1, &err), -ERR_TOO_LARGE);
    assert_int_equal(pieces_add(db->pieces, next, 0, "x", 1, &err), 0);
    assert_int_equal(pieces_read(db->pieces, text, PIECES_MAX, out, &len, &err), -ERR_NOT_FOUND);
    _cleanup_(free) char *sql =
        xasprintf("UPDATE text_pieces SET piece = zeroblob(%d)", PIECES_BYTES + 1);
    change(sql);
    memset(out, 'x', sizeof(out));
    assert_int_equal(pieces_read(db->pieces, next, 0, out, &len, &err), 0);
    assert_int_equal(len, PIECES_BYTES);
    assert_true(out[PIECES_BYTES - 1] == 0 && out[PIECES_BYTES] == 'x');
}

static void test_a_number_is_never_given_again(void **state) {
    (void)state;
    struct err err;
    int64_t text;
    int64_t next;
    assert_int_equal(pieces_begin(db->pieces, &text, &err), 0);
    assert_int_equal(pieces_drop(db->pieces, text, &err), 0);
    while (pieces_sweep(db->pieces))
        ;
    assert_int_equal(pieces_begin(db->pieces, &next, &err), 0);
    assert_true(next > text);
}

/* 45 MB: more than the log may have before it is moved, and nobody is kept out for its last pages.
 */
static void test_the_log_does_not_outgrow_the_disk(void **state) {
    (void)state;
    enum { N = 3, BIG = 15 << 20, MOST_PAGES = 8000 + 2 * PIECES_BYTES / 4096 };
    static const char *const owners[N] = {"key_a", "key_b", "key_c"};
    struct got g[N] = {0};
    int most = 0;
    for (size_t i = 0; i < N; i++) {
        char id[ID_SIZE];
        (void)snprintf(id, sizeof(id), "task_%zu", i);
        submit_as(&g[i], id, owners[i], NULL, BIG);
    }
    while (g[0].n + g[1].n + g[2].n < N) {
        (void)uv_run(&loop, UV_RUN_ONCE);
        most = MAX(most, db->log_pages);
    }
    for (size_t i = 0; i < N; i++)
        assert_int_equal(g[i].err.code, 0);
    assert_in_range(most, 8000, MOST_PAGES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(test_a_long_body_comes_back_whole_and_goes_at_the_end),
        UNIT(test_others_are_answered_between_two_pieces),
        UNIT(test_what_was_cut_off_is_nothing),
        UNIT(test_another_process_leaves_what_is_being_written),
        UNIT(test_one_that_is_cancelled_while_it_is_claimed_says_so),
        UNIT(test_two_with_one_idempotency_key_are_one),
        UNIT(test_what_was_kept_outlives_a_restart),
        UNIT(test_one_that_is_cancelled_goes_in_pieces_and_leaves_others),
        UNIT(test_one_whose_last_lease_is_over_goes),
        UNIT(test_one_that_ends_while_it_is_claimed_is_left_out),
        UNIT(test_what_cannot_be_written_is_answered_and_goes),
        UNIT(test_a_damaged_body_is_not_given_out),
        UNIT(test_what_goes_on_is_waited_for),
        UNIT(test_a_thread_frees_the_text),
        UNIT(test_how_much_waits_is_bounded),
        UNIT(test_how_much_waits_of_all_is_bounded),
        UNIT(test_a_worker_that_is_put_anew_while_it_is_got),
        UNIT(test_a_worker_outlives_a_restart_and_its_text_goes_with_a_short_one),
        UNIT(test_a_worker_with_a_piece_lost_is_not_looked_for_for_ever),
        UNIT(test_a_text_has_its_bounds),
        UNIT(test_a_number_is_never_given_again),
        UNIT(test_the_log_does_not_outgrow_the_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
