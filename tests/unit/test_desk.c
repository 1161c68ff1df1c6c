#include "base/cleanup.h"
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
    struct ledger_ask ask;
    struct ledger_task task;
    struct ledger_hold holds[SLOTS + 2];
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
                          .ask = *ask,
                          .on_answer = on_answer,
                          .ctx = answer_ctx};
    if (ask->task) {
        m->task = *ask->task;
        m->task.result = ask->task->result ? strdup(ask->task->result) : NULL;
        m->task.error_code = ask->task->error_code ? strdup(ask->task->error_code) : NULL;
        m->task.error_message = ask->task->error_message ? strdup(ask->task->error_message) : NULL;
        m->ask.task = &m->task;
    }
    assert_true(ask->nholds <= ARRAY_LEN(m->holds));
    if (ask->nholds > 0)
        memcpy(m->holds, ask->holds, ask->nholds * sizeof(*ask->holds));
    m->ask.holds = m->holds;
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
    /* Without jumps of the clock a lease is what it says. */
    if (!w.jumps) {
        check(!seen_of(t->id)->over, "what was acknowledged is not begun again");
        if (!w.sleeps)
            check(working_on(t->id) == 0, "nobody else works on it");
    }
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
    free(m->task.result);
    free(m->task.error_code);
    free(m->task.error_message);
    *m = (struct message){0};
}

static void look_at_ends(void);

static void note_acknowledged(const struct message *m, const struct ledger_answer *a) {
    if (m->ask.op != LEDGER_TASK_FINISH || a->err.code || m->ask.fault)
        return;
    struct seen *s = seen_of(m->task.id);
    check(!s->acknowledged || s->acknowledged_as == m->task.state, "one end is acknowledged");
    s->acknowledged = true;
    s->acknowledged_as = m->task.state;
}

static void ledger_does(struct message *m) {
    int times = chance(10) ? 2 : 1; /* sent again below us */
    for (int i = 0; i < times; i++) {
        ledger_answer_finish(&m->answer);
        ledger_db_do(w.db, &m->ask, &m->answer);
        w.changed |= m->ask.op != LEDGER_TASK_RENEW;
        note_acknowledged(m, &m->answer);
        if (m->ask.op == LEDGER_TASK_CLAIM)
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
        struct ledger_answer late = {.next_ms = -1};
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
    struct ledger_task t = {.type = (char *)(uintptr_t) "run",
                            .body = (char *)(uintptr_t) "{}",
                            .webhook = (char *)(uintptr_t) "http://h/",
                            .priority = dice(3),
                            .max_attempts = 3,
                            .timeout_ms = chance(20) ? 5000 : 600000,
                            .run_at_ms = chance(20) ? ledger_now() + dice(20000) : 0};
    (void)snprintf(t.id, sizeof(t.id), "task_%d", w.submitted++);
    (void)snprintf(t.owner, sizeof(t.owner), "key_%u", dice(2));
    memcpy(s->id, t.id, sizeof(s->id));
    for (int again = 0; again < 2; again++) { /* the answer to the first was lost, perhaps */
        struct ledger_answer a;
        ledger_db_do(w.db,
                     &(struct ledger_ask){.op = LEDGER_TASK_SUBMIT, .task = &t, .per_key = 99}, &a);
        check(a.err.code == 0 && a.ntasks == 1 && a.repeated == (again == 1), "it is queued once");
        ledger_answer_finish(&a);
    }
    w.changed = true;
    desk_hint(w.servers[0].desk);
}

static void cancel(void) {
    if (w.submitted == 0)
        return;
    struct ledger_task t = {0};
    (void)snprintf(t.id, sizeof(t.id), "task_%u", dice((uint32_t)w.submitted));
    struct ledger_answer a;
    bool over = seen_of(t.id)->over;
    ledger_db_do(w.db, &(struct ledger_ask){.op = LEDGER_TASK_CANCEL, .task = &t}, &a);
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
        w.skew += (int64_t)dice(120000) - 60000;
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
    if (!w.db)
        assert_int_equal(ledger_db_memory(ledger_now, &w.db, &e), 0);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        PLAIN(test_whatever_goes_wrong_each_task_ends_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
