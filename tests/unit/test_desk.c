#include "base/cleanup.h"
#include "front/ledger/ask.h"
#include "front/ledger/db.h"
#include "front/ledger/internal.h"
#include "front/task/desk.h"
#include "unit/unit.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Several servers, one ledger, and everything that can go wrong between them: asks and answers are
 * late, lost, done twice and out of order; servers die at any step and come back, sleep, and are
 * cut off; the ledger's clock jumps. Each schedule is made from its seed alone, so that one that
 * fails can be run again: SEED=n test_desk (SEEDS=n for more of them). After every step what must
 * always hold is checked, and when the trouble is over, that everything came to its end once. */

enum {
    SERVERS = 3,
    SLOTS = 3,
    PER_KEY = 2,
    TASKS = 8,
    STEPS = 260,
    MESSAGES = 256,
    JOBS = 64,
    SEEDS = 1500,
};

struct job {
    bool there;
    bool stopping;
    char task[ID_SIZE];
    int64_t attempt;
};

struct server {
    struct desk *desk;
    char node[8];
    uint64_t life; /* which one of its lives */
    int64_t asleep_until;
    int64_t cut_until; /* off from the ledger */
    struct job jobs[JOBS];
};

struct message {
    bool there;
    bool asked;    /* the ledger has done it */
    bool answered; /* or given up: the server has had its answer */
    int server;
    uint64_t life;
    int64_t due;
    int64_t give_up;
    struct ledger_ask_copy copy;
    struct ledger_answer answer;
    ledger_on_answer on_answer;
    void *ctx;
};

struct seen {
    char id[ID_SIZE];
    enum task_state state;
    bool over;
    bool acknowledged; /* a server was told that its end counts */
    enum task_state acknowledged_as;
};

static struct world {
    uint64_t rng;
    int64_t now;  /* of everybody */
    int64_t skew; /* of the ledger's clock */
    bool jumps;
    bool sleeps;
    bool calm;
    bool changed; /* the ledger has written */
    struct ledger_db *db;
    struct server servers[SERVERS];
    struct message messages[MESSAGES];
    struct seen seen[TASKS];
    int submitted;
    unsigned seed;
} w;

static uint32_t dice(uint32_t n) {
    w.rng ^= w.rng << 13;
    w.rng ^= w.rng >> 7;
    w.rng ^= w.rng << 17;
    return (uint32_t)(w.rng >> 32) % n;
}

static bool chance(uint32_t percent) {
    return !w.calm && dice(100) < percent;
}

static void check(bool ok, const char *what) {
    if (ok)
        return;
    print_error("seed %u: %s\n", w.seed, what);
    fail();
}

static int64_t ledger_now(void) {
    return 1000000000 + w.now + w.skew;
}

/* No jump changes it. */
static int64_t ledger_mono(void) {
    return w.now;
}

/* Each text is a constant: it is prepared once. */
static struct {
    const char *sql;
    sqlite3_stmt *st;
} prepared[32];

static sqlite3_stmt *prepare(const char *sql) {
    size_t i = 0;
    while (prepared[i].sql && prepared[i].sql != sql)
        i++;
    assert_true(i < ARRAY_LEN(prepared) - 1);
    if (!prepared[i].sql) {
        prepared[i].sql = sql;
        assert_int_equal(sqlite3_prepare_v2(w.db->db, sql, -1, &prepared[i].st, NULL), SQLITE_OK);
    }
    return prepared[i].st;
}

static void drop_prepared(void) {
    for (size_t i = 0; prepared[i].sql; i++)
        (void)sqlite3_finalize(prepared[i].st);
    memset(prepared, 0, sizeof(prepared));
}

static int64_t number(const char *sql) {
    sqlite3_stmt *st = prepare(sql);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(st, 0);
    (void)sqlite3_reset(st);
    return n;
}

/* --- the servers' side --- */

static struct server *server_of(void *ctx) {
    return ctx;
}

static int64_t server_now(void *ctx) {
    (void)ctx;
    return w.now;
}

static void server_ask(void *ctx, const struct ledger_ask *ask, ledger_on_answer on_answer,
                       void *answer_ctx) {
    struct server *s = server_of(ctx);
    struct message *m = w.messages;
    while (m < w.messages + MESSAGES && m->there)
        m++;
    assert_true(m < w.messages + MESSAGES);
    *m = (struct message){.there = true,
                          .server = (int)(s - w.servers),
                          .life = s->life,
                          .due = w.now + (chance(20) ? dice(20000) : dice(30)),
                          .give_up = w.now + LEDGER_WAIT_MS,
                          .on_answer = on_answer,
                          .ctx = answer_ctx};
    ledger_ask_copy(ask, &m->copy);
    assert_true(ask->op != LEDGER_TASK_RENEW || ask->task_renew.n <= SLOTS + 2);
}

static struct job *job_of(struct server *s, const char *task, int64_t attempt) {
    for (struct job *j = s->jobs; j < s->jobs + JOBS; j++)
        if (j->there && j->attempt == attempt && strcmp(j->task, task) == 0)
            return j;
    return NULL;
}

/* Whether anybody works on it who was not asked to stop. */
static int working_on(const char *task) {
    int n = 0;
    for (int i = 0; i < SERVERS; i++)
        for (const struct job *j = w.servers[i].jobs; j < w.servers[i].jobs + JOBS; j++)
            n += j->there && !j->stopping && strcmp(j->task, task) == 0;
    return n;
}

static struct seen *seen_of(const char *id) {
    for (int i = 0; i < TASKS; i++)
        if (strcmp(w.seen[i].id, id) == 0)
            return &w.seen[i];
    fail();
    return NULL;
}

static int server_start(void *ctx, struct ledger_task *t, struct err *err) {
    struct server *s = server_of(ctx);
    check(t->body && strcmp(t->body, "{}") == 0, "a claimed task has its body");
    /* A lease is what it says, also while the ledger's clock jumps. */
    check(!seen_of(t->id)->over, "what was acknowledged is not begun again");
    if (!w.sleeps)
        check(working_on(t->id) == 0, "nobody else works on it");
    if (chance(5))
        return err_set(err, chance(50) ? ERR_UNAVAILABLE : ERR_BAD_REQUEST, "it cannot be begun");
    struct job *j = s->jobs;
    while (j->there)
        j++;
    assert_true(j < s->jobs + JOBS);
    *j = (struct job){.there = true, .attempt = t->attempt};
    memcpy(j->task, t->id, sizeof(j->task));
    return 0;
}

static void server_stop(void *ctx, const char *task, int64_t attempt) {
    struct job *j = job_of(server_of(ctx), task, attempt);
    check(j != NULL, "only what runs is stopped");
    check(!j->stopping, "it is asked once");
    j->stopping = true;
}

static void server_wake(void *ctx, int64_t after_ms) {
    (void)ctx;
    check(after_ms >= 0, "time goes on");
}

static void server_begin(int i) {
    struct server *s = &w.servers[i];
    s->life++;
    (void)snprintf(s->node, sizeof(s->node), "n%d", i);
    s->desk = desk_create(&(struct desk_options){.node = s->node,
                                                 .slots = SLOTS,
                                                 .per_key = PER_KEY,
                                                 .now_ms = server_now,
                                                 .ask = server_ask,
                                                 .start = server_start,
                                                 .stop = server_stop,
                                                 .wake = server_wake,
                                                 .ctx = s});
}

/* kill -9: its work is gone, what it had sent may arrive still. */
static void server_die(int i) {
    struct server *s = &w.servers[i];
    desk_destroy(s->desk);
    s->desk = NULL;
    memset(s->jobs, 0, sizeof(s->jobs));
}

static bool is_awake(const struct server *s) {
    return s->desk && s->asleep_until <= w.now;
}

static void job_end(struct server *s, struct job *j) {
    struct desk_end e = {.state = TASK_DONE, .result = "1"};
    uint32_t how = dice(10);
    if (j->stopping)
        e = (struct desk_end){.state = TASK_CANCELLED};
    else if (how < 2 && !w.calm)
        e = (struct desk_end){.fault = true, .error_code = "unavailable"};
    else if (how < 4)
        e = (struct desk_end){.state = TASK_FAILED, .error_code = "Error"};
    struct job ended = *j;
    j->there = false;
    desk_ended(s->desk, ended.task, ended.attempt, &e);
}

/* --- the way to the ledger and back --- */

static void message_free(struct message *m) {
    ledger_answer_finish(&m->answer);
    ledger_ask_copy_finish(&m->copy);
    *m = (struct message){0};
}

static void look_at_ends(void);

static void note_acknowledged(const struct message *m, const struct ledger_answer *a) {
    const struct ledger_task_end *end = &m->copy.ask.task_end;
    if (m->copy.ask.op != LEDGER_TASK_END || a->err.code || end->fault)
        return;
    struct seen *s = seen_of(end->id);
    check(!s->acknowledged || s->acknowledged_as == end->state, "one end is acknowledged");
    s->acknowledged = true;
    s->acknowledged_as = end->state;
}

static void ledger_does(struct message *m) {
    const struct ledger_ask *ask = &m->copy.ask;
    int times = chance(10) ? 2 : 1; /* sent again below us */
    for (int i = 0; i < times; i++) {
        ledger_answer_finish(&m->answer);
        ledger_db_do(w.db, ask, &m->answer);
        w.changed |= ask->op != LEDGER_TASK_RENEW;
        note_acknowledged(m, &m->answer);
        if (ask->op == LEDGER_TASK_CLAIM)
            break; /* a claim that is done twice gives two sets: the first is lost, below */
    }
    m->asked = true;
    m->due = w.now + (chance(20) ? dice(20000) : dice(30));
    look_at_ends();
}

static void answer(struct message *m, const struct ledger_answer *a) {
    struct server *s = &w.servers[m->server];
    m->answered = true;
    if (s->desk && s->life == m->life)
        m->on_answer(m->ctx, a);
}

/* The answers of one who is asleep wait for it. */
static void message_step(struct message *m) {
    const struct server *s = &w.servers[m->server];
    bool alive = s->desk && s->life == m->life;
    bool cut = s->cut_until > w.now;
    if (!m->asked && !cut && w.now >= m->due) {
        if (chance(10)) { /* it is lost on its way */
            m->asked = true;
            m->due = INT64_MAX;
        } else {
            ledger_does(m);
            if (chance(10))
                m->due = INT64_MAX; /* the answer is lost */
        }
    }
    if (alive && !m->answered && is_awake(s)) {
        struct ledger_answer late = {.op = m->copy.ask.op};
        (void)err_set(&late.err, ERR_UNAVAILABLE, "no answer");
        if (m->asked && !cut && w.now >= m->due)
            answer(m, &m->answer);
        else if (w.now >= m->give_up)
            answer(m, &late);
    }
    if (m->asked && (m->answered || !alive))
        message_free(m);
}

/* --- what must always hold --- */

static void on_row(sqlite3_stmt *st) {
    char id[ID_SIZE];
    store_column_id(st, 0, id);
    struct seen *s = seen_of(id);
    enum task_state state = (enum task_state)sqlite3_column_int(st, 1);
    bool over = state >= TASK_DONE;
    check(!s->over || state == s->state, "an end stays as it is");
    check(!s->acknowledged || !over || state == s->acknowledged_as,
          "what was acknowledged is what is kept");
    s->over = over;
    s->state = state;
}

static void look_at_ends(void) {
    sqlite3_stmt *st = prepare("SELECT id, state FROM tasks");
    while (sqlite3_step(st) == SQLITE_ROW)
        on_row(st);
    (void)sqlite3_reset(st);
}

static void look_at_all(void) {
    if (!w.changed)
        return;
    w.changed = false;
    look_at_ends();
    check(
        number("SELECT coalesce(max(n), 0) FROM (SELECT count(*) n FROM leases GROUP BY owner)") <=
            PER_KEY,
        "a key has no more at work than it may");
    check(number("SELECT count(*) FROM tasks t WHERE (state = 0) <> (EXISTS (SELECT 1 FROM queue"
                 " WHERE task = t.id) OR EXISTS (SELECT 1 FROM scheduled WHERE task = t.id))") == 0,
          "what is queued waits, and nothing else");
    check(number("SELECT count(*) FROM tasks t WHERE (state = 1) <> EXISTS (SELECT 1 FROM leases"
                 " WHERE task = t.id AND attempt = t.attempt)") == 0,
          "what runs has the lease of its attempt, and nothing else has");
    check(number("SELECT count(*) FROM tasks t WHERE (state > 1) <> EXISTS (SELECT 1 FROM outbox"
                 " WHERE task = t.id)") == 0,
          "what has ended has its message, and nothing else");
    check(number("SELECT count(*) FROM tasks WHERE state > 1") ==
              number("SELECT coalesce(sum(tasks), 0) FROM usage"),
          "what has ended is accounted for");
    check(number("SELECT coalesce(sum(tasks), 0) FROM waiting") ==
              number("SELECT (SELECT count(*) FROM queue) + (SELECT count(*) FROM scheduled)"),
          "the count of those that wait is right");
    check(number("SELECT count(*) FROM tasks WHERE attempt > max_attempts") == 0,
          "none is tried more often than it may be");
}

/* --- a schedule --- */

static void submit(void) {
    struct seen *s = &w.seen[w.submitted];
    struct ledger_task_submit t = {.id = s->id,
                                   .type = "run",
                                   .body = "{}",
                                   .webhook = "http://h/",
                                   .priority = dice(3),
                                   .max_attempts = 3,
                                   .timeout_ms = chance(20) ? 5000 : 600000,
                                   .run_at_ms = chance(20) ? ledger_now() + dice(20000) : 0,
                                   .waiting_max = 99};
    (void)snprintf(s->id, sizeof(s->id), "task_%d", w.submitted++);
    t.owner = dice(2) ? "key_1" : "key_0";
    for (int again = 0; again < 2; again++) { /* the answer to the first was lost, perhaps */
        struct ledger_answer a;
        ledger_db_do(w.db, &(struct ledger_ask){.op = LEDGER_TASK_SUBMIT, .task_submit = t}, &a);
        check(a.err.code == 0 && strcmp(a.task_submitted.task.id, s->id) == 0 &&
                  a.task_submitted.repeated == (again == 1),
              "it is queued once");
        ledger_answer_finish(&a);
    }
    w.changed = true;
    desk_hint(w.servers[0].desk);
}

static void cancel(void) {
    if (w.submitted == 0)
        return;
    char id[ID_SIZE];
    (void)snprintf(id, sizeof(id), "task_%u", dice((uint32_t)w.submitted));
    struct ledger_answer a;
    bool over = seen_of(id)->over;
    ledger_db_do(w.db, &(struct ledger_ask){.op = LEDGER_TASK_CANCEL, .task_cancel.id = id}, &a);
    check((a.err.code == ERR_CONFLICT) == over, "what has ended cannot be cancelled");
    ledger_answer_finish(&a);
    w.changed = true;
    look_at_all();
}

static void trouble(void) {
    int i = (int)dice(SERVERS);
    struct server *s = &w.servers[i];
    if (chance(4) && s->desk)
        server_die(i);
    if (chance(30) && !s->desk)
        server_begin(i);
    if (w.sleeps && chance(3))
        s->asleep_until = w.now + dice(90000);
    if (chance(3))
        s->cut_until = w.now + dice(90000);
    if (w.jumps && chance(3))
        w.skew += chance(50) ? (int64_t)dice(120000) - 60000 : (int64_t)dice(7200000) - 3600000;
    if (chance(4))
        cancel();
}

static void step(void) {
    w.now += dice(w.calm ? 500 : 1500);
    if (w.submitted < TASKS && dice(8) == 0 && w.servers[0].desk)
        submit();
    trouble();
    for (int k = 0; k < MESSAGES; k++) {
        struct message *m = &w.messages[(size_t)(k * 37 + (int)dice(4)) % MESSAGES];
        if (m->there)
            message_step(m);
    }
    for (int i = 0; i < SERVERS; i++) {
        struct server *s = &w.servers[i];
        if (!is_awake(s))
            continue;
        desk_tick(s->desk);
        for (struct job *j = s->jobs; j < s->jobs + JOBS; j++)
            if (j->there && dice(w.calm ? 4 : 25) == 0)
                job_end(s, j);
    }
    look_at_all();
}

static bool is_over(void) {
    return w.submitted == TASKS && number("SELECT count(*) FROM tasks WHERE state <= 1") == 0 &&
           number("SELECT count(*) FROM leases") == 0;
}

static void calm_down(void) {
    w.calm = true;
    if (w.jumps)
        w.skew += 100 * (int64_t)3600000; /* "run_at" is meant by the clock, however it was set */
    for (int i = 0; i < SERVERS; i++) {
        w.servers[i].asleep_until = w.servers[i].cut_until = 0;
        if (!w.servers[i].desk)
            server_begin(i);
    }
    for (int i = 0; i < 3000 && !is_over(); i++)
        step();
    check(is_over(), "in the end everything has ended");
    check(number("SELECT count(*) FROM outbox") == TASKS, "with one message each");
    check(number("SELECT count(*) FROM task_bodies") == 0, "and no body is left");
}

static void run_schedule(unsigned seed) {
    struct err e;
    struct ledger_db *db = w.db;
    memset(&w, 0, sizeof(w));
    w.db = db;
    w.seed = seed;
    w.rng = seed * 0x9e3779b97f4a7c15ULL + 1;
    w.jumps = seed % 4 == 1;
    w.sleeps = seed % 4 >= 2;
    w.now = 1000;
    if (!w.db) {
        assert_int_equal(ledger_db_memory(ledger_now, &w.db, &e), 0);
        w.db->mono_ms = ledger_mono;
    }
    assert_int_equal(sqlite3_exec(w.db->db,
                                  "DELETE FROM tasks; DELETE FROM queue; DELETE FROM scheduled;"
                                  "DELETE FROM leases; DELETE FROM outbox; DELETE FROM usage;"
                                  "DELETE FROM nodes; DELETE FROM waiting",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    for (int i = 0; i < SERVERS; i++)
        server_begin(i);
    for (int i = 0; i < STEPS; i++)
        step();
    calm_down();
    for (int i = 0; i < SERVERS; i++)
        server_die(i);
    for (int i = 0; i < MESSAGES; i++)
        if (w.messages[i].there)
            message_free(&w.messages[i]);
}

static void test_whatever_goes_wrong_each_task_ends_once(void **state) {
    (void)state;
    const char *one = getenv("SEED");
    const char *many = getenv("SEEDS");
    unsigned seeds = many ? (unsigned)strtoul(many, NULL, 10) : SEEDS;
    if (one) {
        run_schedule((unsigned)strtoul(one, NULL, 10));
    } else {
        for (unsigned seed = 1; seed <= seeds; seed++)
            run_schedule(seed);
    }
    drop_prepared();
    ledger_db_close(w.db);
    w.db = NULL;
}

/* --- one desk and a ledger that says what the test wants --- */

static struct lone {
    int64_t now;
    struct desk *desk;
    int claims;   /* tasks that a claim gives out */
    int given;    /* so far */
    int finishes; /* asked for */
    int begun;
    enum err_code refusal; /* of every end; 0: none */
    char said[600];        /* the last end's message */
    char code[64];
    bool with_result;
} lone;

static int64_t lone_now(void *ctx) {
    (void)ctx;
    return lone.now;
}

static void lone_ask(void *ctx, const struct ledger_ask *ask, ledger_on_answer on_answer,
                     void *answer_ctx) {
    (void)ctx;
    struct ledger_answer a = {.op = ask->op};
    if (ask->op == LEDGER_NODE_BEGIN)
        a.node_begun = (struct ledger_node_begun){.epoch = 1, .begun = true};
    if (ask->op == LEDGER_TASK_CLAIM)
        a.task_claimed.next_ms = -1;
    if (ask->op == LEDGER_TASK_CLAIM && ask->task_claim.limit > 0 && lone.given < lone.claims) {
        struct ledger_task *t = calloc(1, sizeof(*t));
        a.task_claimed.tasks = t;
        a.task_claimed.n = 1;
        t->attempt = 1;
        (void)snprintf(t->id, sizeof(t->id), "task_%d", lone.given++);
    }
    if (ask->op == LEDGER_TASK_RENEW) {
        a.task_renewed.n = ask->task_renew.n;
        a.task_renewed.leases = calloc(ask->task_renew.n, sizeof(*a.task_renewed.leases));
        for (size_t i = 0; i < ask->task_renew.n; i++)
            a.task_renewed.leases[i].lease = ask->task_renew.leases[i];
    }
    if (ask->op == LEDGER_TASK_END) {
        const struct ledger_task_end *t = &ask->task_end;
        lone.finishes++;
        lone.with_result = t->result != NULL;
        (void)snprintf(lone.said, sizeof(lone.said), "%s",
                       t->error_message ? t->error_message : "");
        (void)snprintf(lone.code, sizeof(lone.code), "%s", t->error_code ? t->error_code : "");
        if (lone.refusal)
            (void)err_set(&a.err, lone.refusal, "it cannot be written");
    }
    on_answer(answer_ctx, &a);
    ledger_answer_finish(&a);
}

static int lone_start(void *ctx, struct ledger_task *t, struct err *err) {
    (void)ctx;
    (void)t;
    (void)err;
    lone.begun++;
    return 0;
}

static void lone_stop(void *ctx, const char *task, int64_t attempt) {
    (void)ctx;
    (void)task;
    (void)attempt;
}

static void lone_wake(void *ctx, int64_t after_ms) {
    (void)ctx;
    (void)after_ms;
}

static void lone_begin(int claims) {
    lone = (struct lone){.now = 1000, .claims = claims};
    lone.desk = desk_create(&(struct desk_options){.node = "n",
                                                   .slots = 1,
                                                   .per_key = 1,
                                                   .now_ms = lone_now,
                                                   .ask = lone_ask,
                                                   .start = lone_start,
                                                   .stop = lone_stop,
                                                   .wake = lone_wake});
}

static void lone_pass(int64_t ms) {
    for (int64_t until = lone.now + ms; lone.now < until; lone.now += 100)
        desk_tick(lone.desk);
}

static void test_an_end_that_cannot_be_written_gives_its_place_back(void **state) {
    (void)state;
    lone_begin(2);
    lone_pass(500);
    assert_int_equal(lone.begun, 1);
    lone.refusal = ERR_INTERNAL;
    desk_ended(lone.desk, "task_0", 1, &(struct desk_end){.state = TASK_DONE, .result = "1"});
    assert_true(lone.with_result);
    lone_pass(60000);
    assert_string_equal(lone.code, "internal_error"); /* a plain end, which can be written */
    assert_string_equal(lone.said, DESK_PLAIN_END);
    assert_false(lone.with_result);
    lone_pass(60000);
    assert_int_equal(lone.finishes, 2 * DESK_REFUSALS);
    assert_int_equal(lone.begun, 2); /* the next one has its place */
    desk_destroy(lone.desk);
}

static void test_an_end_waits_for_a_ledger_that_is_away(void **state) {
    (void)state;
    static const enum err_code away[] = {ERR_UNAVAILABLE, ERR_FULL};
    for (size_t i = 0; i < ARRAY_LEN(away); i++) {
        lone_begin(1);
        lone_pass(500);
        lone.refusal = away[i];
        desk_ended(lone.desk, "task_0", 1, &(struct desk_end){.state = TASK_DONE, .result = "1"});
        lone_pass(3600000);
        assert_true(lone.with_result);
        lone.refusal = 0;
        lone.finishes = 0;
        lone_pass(2000);
        assert_int_equal(lone.finishes, 1);
        assert_true(lone.with_result);
        desk_destroy(lone.desk);
    }
}

static void test_texts_of_an_end_are_whole_and_bounded(void **state) {
    (void)state;
    char text[2 * DESK_ERROR_BYTES];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    lone_begin(2);
    lone_pass(500);
    desk_ended(lone.desk, "task_0", 1,
               &(struct desk_end){.state = TASK_FAILED,
                                  .error_code = "Error",
                                  .error_message = "caf\xc3\xa9 \xc3"});
    assert_string_equal(lone.said, "caf\xc3\xa9 ");
    lone_pass(500);
    desk_ended(lone.desk, "task_1", 1,
               &(struct desk_end){.state = TASK_FAILED, .error_code = text, .error_message = "m"});
    assert_int_equal(lone.finishes, 2);
    desk_destroy(lone.desk);
}

/* --- one desk, and keys that have long tasks --- */

enum { FAIR_SLOTS = 16, FAIR_PER_KEY = 8, FAIR_KEYS = 40 };

static struct fair {
    int64_t now;
    struct desk *desk;
    struct ledger_db *db;
    int64_t skew; /* of the wall clock */
    int submitted;
    bool closes; /* while the answer to a claim is on its way */
    struct {
        char task[ID_SIZE];
        int64_t attempt;
    } at_work[FAIR_SLOTS];
    size_t n;
} fair;

static int64_t fair_now(void *ctx) {
    (void)ctx;
    return fair.now;
}

static int64_t fair_ledger_now(void) {
    return 1000000000 + fair.now + fair.skew;
}

static int64_t fair_mono(void) {
    return fair.now;
}

static void fair_ask(void *ctx, const struct ledger_ask *ask, ledger_on_answer on_answer,
                     void *answer_ctx) {
    (void)ctx;
    struct ledger_answer a;
    ledger_db_do(fair.db, ask, &a);
    if (fair.closes && ask->op == LEDGER_TASK_CLAIM)
        desk_close(fair.desk);
    on_answer(answer_ctx, &a);
    ledger_answer_finish(&a);
}

static int fair_start(void *ctx, struct ledger_task *t, struct err *err) {
    (void)ctx;
    (void)err;
    assert_true(fair.n < FAIR_SLOTS);
    memcpy(fair.at_work[fair.n].task, t->id, sizeof(t->id));
    fair.at_work[fair.n++].attempt = t->attempt;
    return 0;
}

static void fair_pass(int64_t ms) {
    for (int64_t until = fair.now + ms; fair.now < until; fair.now += 100)
        desk_tick(fair.desk);
}

static void fair_desk_of(size_t slots, size_t per_key) {
    fair.desk = desk_create(&(struct desk_options){.node = "n",
                                                   .slots = slots,
                                                   .per_key = per_key,
                                                   .now_ms = fair_now,
                                                   .ask = fair_ask,
                                                   .start = fair_start,
                                                   .stop = lone_stop,
                                                   .wake = lone_wake});
}

static void fair_desk(size_t per_key) {
    fair_desk_of(FAIR_SLOTS, per_key);
}

static void fair_begin(void) {
    struct err e;
    fair = (struct fair){.now = 1000};
    assert_int_equal(ledger_db_memory(fair_ledger_now, &fair.db, &e), 0);
    fair.db->mono_ms = fair_mono;
    fair_desk(FAIR_PER_KEY);
}

static void fair_end(void) {
    desk_destroy(fair.desk);
    ledger_db_close(fair.db);
}

static void fair_submit(const char *owner, int times) {
    for (int i = 0; i < times; i++) {
        char id[ID_SIZE];
        struct ledger_answer a;
        (void)snprintf(id, sizeof(id), "task_%s_%03d", owner, fair.submitted++);
        ledger_db_do(fair.db,
                     &(struct ledger_ask){.op = LEDGER_TASK_SUBMIT,
                                          .task_submit = {.id = id,
                                                          .owner = owner,
                                                          .type = "run",
                                                          .body = "{}",
                                                          .max_attempts = 3,
                                                          .waiting_max = 999}},
                     &a);
        assert_int_equal(a.err.code, 0);
        ledger_answer_finish(&a);
    }
    desk_hint(fair.desk);
    fair_pass(2000);
}

static size_t fair_held(const char *owner) {
    size_t n = 0;
    char name[ID_SIZE];
    (void)snprintf(name, sizeof(name), "task_%s_", owner);
    for (size_t i = 0; i < fair.n; i++)
        n += strncmp(fair.at_work[i].task, name, strlen(name)) == 0;
    return n;
}

static void fair_end_oldest(const struct desk_end *how) {
    char task[ID_SIZE];
    memcpy(task, fair.at_work[0].task, sizeof(task));
    int64_t attempt = fair.at_work[0].attempt;
    memmove(fair.at_work, fair.at_work + 1, --fair.n * sizeof(fair.at_work[0]));
    desk_ended(fair.desk, task, attempt, how);
    fair_pass(300);
}

static void fair_finish_oldest(void) {
    fair_end_oldest(&(struct desk_end){.state = TASK_DONE});
}

static void test_long_tasks_of_some_keys_leave_slots_for_others(void **state) {
    (void)state;
    fair_begin();
    fair_submit("a", 100);
    assert_int_equal(fair_held("a"), FAIR_PER_KEY);
    fair_submit("b", 100);
    assert_int_equal(fair_held("b"), 4);
    fair_pass(3600000); /* none of them ends */
    assert_int_equal(fair.n, 12);
    static const char *const others[] = {"c", "d", "e", "f"};
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        fair_submit(others[i], 100);
        assert_int_equal(fair_held(others[i]), 1); /* at once */
    }
    fair_end();
}

/* Of few slots a quarter is one: the second key would take it, and a third wait for both. */
static void test_two_keys_leave_a_slot_for_a_third_however_few_there_are(void **state) {
    (void)state;
    for (size_t slots = 3; slots <= FAIR_SLOTS; slots++) {
        fair_begin();
        desk_destroy(fair.desk);
        fair_desk_of(slots, slots);
        fair_submit("a", 100);
        assert_int_equal(fair_held("a"), slots - MAX(slots / 4, (size_t)2));
        fair_submit("b", 100);
        assert_int_equal(fair_held("b"), 1);
        fair_pass(3600000); /* none of them ends */
        fair_submit("c", 1);
        assert_int_equal(fair_held("c"), 1); /* at once */
        fair_end();
    }
}

static void test_a_share_shrinks_while_others_wait(void **state) {
    (void)state;
    fair_begin();
    fair_submit("a", 100);
    fair_submit("b", 100);
    for (int i = 0; i < 40; i++)
        fair_finish_oldest();
    assert_int_equal(fair_held("a"), 6); /* of the twelve that are not kept */
    assert_int_equal(fair_held("b"), 6);
    fair_submit("c", 20);
    for (int i = 0; i < 24; i++)
        fair_finish_oldest();
    assert_int_equal(fair_held("a"), 4);
    assert_int_equal(fair_held("b"), 4);
    assert_int_equal(fair_held("c"), 4);
    for (int i = 0; i < 70; i++) /* c has nothing more then */
        fair_finish_oldest();
    assert_int_equal(fair_held("a"), 6);
    assert_int_equal(fair_held("b"), 6);
    assert_int_equal(fair_held("c"), 0);
    fair_end();
}

static void test_every_key_gets_its_turn_among_many(void **state) {
    (void)state;
    bool served[FAIR_KEYS] = {0};
    char owner[8];
    fair_begin();
    for (int i = 0; i < FAIR_KEYS; i++) {
        (void)snprintf(owner, sizeof(owner), "k%02d", i);
        fair_submit(owner, 20);
    }
    assert_int_equal(fair.n, FAIR_SLOTS);
    for (int i = 0; i < 3 * FAIR_KEYS; i++) {
        fair_finish_oldest();
        for (int k = 0; k < FAIR_KEYS; k++) {
            (void)snprintf(owner, sizeof(owner), "k%02d", k);
            served[k] |= fair_held(owner) > 0;
        }
    }
    for (int k = 0; k < FAIR_KEYS; k++)
        assert_true(served[k]);
    fair_end();
}

static void test_leases_and_retries_do_not_see_jumps_of_the_clock(void **state) {
    (void)state;
    static const int64_t jumps[] = {3600000, -3600000, 86400000, -86400000};
    for (size_t i = 0; i < ARRAY_LEN(jumps); i++) {
        fair_begin();
        fair_submit("a", 1);
        assert_int_equal(fair.n, 1);
        fair.skew += jumps[i];
        fair_pass(60000);
        assert_int_equal(fair.n, 1); /* it was not begun again */
        fair_end_oldest(&(struct desk_end){.fault = true, .error_code = "unavailable"});
        assert_int_equal(fair.n, 0); /* another try comes in a second */
        fair.skew += jumps[i];
        fair_pass(400);
        assert_int_equal(fair.n, 0); /* not earlier */
        fair_pass(2000);
        assert_int_equal(fair.n, 1); /* not later */
        assert_int_equal(fair.at_work[0].attempt, 2);
        fair_end();
    }
}

static void test_what_is_claimed_while_the_server_stops_is_handed_back(void **state) {
    (void)state;
    fair_begin();
    fair_pass(1000);
    fair.closes = true;
    fair_submit("a", 1);
    for (int i = 0; i < 5; i++) { /* more often than it may be tried */
        assert_int_equal(fair.n, 0);
        assert_false(desk_is_busy(fair.desk));
        desk_destroy(fair.desk);
        fair_desk(FAIR_PER_KEY);
        fair_pass(300000); /* longer than it waits before the next attempt */
    }
    desk_destroy(fair.desk);
    fair.closes = false;
    fair_desk(FAIR_PER_KEY);
    fair_pass(300000);
    assert_int_equal(fair.n, 1);
    assert_true(desk_is_busy(fair.desk));
    fair_end();
}

/* The clock was set back while no server ran. */
static void test_a_server_that_begins_holds_retries_to_their_longest_wait(void **state) {
    (void)state;
    fair_begin();
    fair_submit("a", 1);
    fair_end_oldest(&(struct desk_end){.fault = true, .error_code = "unavailable"});
    desk_destroy(fair.desk);
    fair.db->follows_clock = false; /* as in a new process */
    fair.skew = -86400000;
    fair_desk(FAIR_PER_KEY);
    fair_pass(80000);
    assert_int_equal(fair.n, 1);
    fair_end();
}

static void test_the_operator_has_all_slots(void **state) {
    (void)state;
    fair_begin();
    desk_destroy(fair.desk);
    fair_desk(FAIR_SLOTS);
    fair_submit("", 100);
    assert_int_equal(fair.n, FAIR_SLOTS);
    fair_end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PLAIN(test_whatever_goes_wrong_each_task_ends_once),
        PLAIN(test_an_end_that_cannot_be_written_gives_its_place_back),
        PLAIN(test_an_end_waits_for_a_ledger_that_is_away),
        PLAIN(test_texts_of_an_end_are_whole_and_bounded),
        PLAIN(test_long_tasks_of_some_keys_leave_slots_for_others),
        PLAIN(test_two_keys_leave_a_slot_for_a_third_however_few_there_are),
        PLAIN(test_a_share_shrinks_while_others_wait),
        PLAIN(test_every_key_gets_its_turn_among_many),
        PLAIN(test_the_operator_has_all_slots),
        PLAIN(test_leases_and_retries_do_not_see_jumps_of_the_clock),
        PLAIN(test_what_is_claimed_while_the_server_stops_is_handed_back),
        PLAIN(test_a_server_that_begins_holds_retries_to_their_longest_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
