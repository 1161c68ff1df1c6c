/* Talking with the real cay-facet by a tray: honestly, and as an isolate would that was taken over.
 * It is up to the facet whether it watches (processors may be short); what is asked is answered
 * either way. */

#include "base/cleanup.h"
#include "base/clock.h"
#include "client.h"
#include "unit.h"
#include "wire/tray.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    TRIES = 40,
    TRY_MS = 500,
    LIE_MS = 20000,
    TALK_NS = 100000,
    SCRIBBLES = 200000,
    TALK_CALLS = 16, /* of one who talks, before the facet looks at its sockets */
    PUT_NS = 100000000,
    BESIDE = 100,
    STEPS_MIN = 8000,
    STEPS_MAX = 512000,
    TALKERS = 4,
    TALKER_CALLS = 1500,
    TALKER_MS = 20000,
    CALL_MS = 60000, /* a call is as slow as the machine */
};

/* Takes a while, so that the next call is in the tray before it is done: longer at each try, since
 * who puts it there may have to wait for a processor. */
#define COUNT                                                                                      \
    "UPDATE t SET x = x + 1 + 0 * (WITH RECURSIVE c(i) AS (VALUES (1) UNION ALL SELECT i + 1 "     \
    "FROM c WHERE i < %u) SELECT count(*) FROM c)"
#define ONE "{\"columns\":[\"x\"],\"rows\":[[1]]}"

struct counter {
    volatile bool *over;
    struct wire_piece call;
};

static unsigned steps;
static struct client c;
static struct holder h;
static struct tray *tray;

static int setup(void **state) {
    (void)state;
    struct facet_open o = {.file = (char *)"test.db",
                           .schema = (char *)"CREATE TABLE t(x); INSERT INTO t VALUES (1)",
                           .limits.time_ms = CALL_MS};
    client_init(&c);
    if (client_open(&c, &o) < 0 || client_grant(&c, NULL, 0, &h) < 0)
        fail_msg("%s", c.err.message);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    tray_close(tray);
    tray = NULL;
    holder_finish(&h);
    client_finish(&c);
    return 0;
}

static bool one_processor(void) {
    cpu_set_t all;
    return sched_getaffinity(0, sizeof(all), &all) < 0 || CPU_COUNT(&all) < 2;
}

/* The frame of a call, with the hint that a talking holder gives. */
static struct wire_piece call(const char *method, const char *sql, uint64_t hint) {
    static uint8_t frame[512];
    char args[400];
    int n = snprintf(args, sizeof(args), "[\"%s\"]", sql);
    struct buf *b = &h.out;
    buf_clear(b);
    facet_call_encode(b, method, args, (size_t)n);
    wire_head_encode(frame, FACET_CALL, ++h.id | hint << FACET_NEAR_SHIFT, b->len, 0);
    memcpy(frame + WIRE_HEAD_SIZE, b->data, b->len);
    return (struct wire_piece){frame, WIRE_HEAD_SIZE + b->len};
}

static struct wire_piece count(uint64_t hint) {
    char sql[200];
    (void)snprintf(sql, sizeof(sql), COUNT, steps);
    return call("execute", sql, hint);
}

static struct wire_piece query(uint64_t hint) {
    return call("query", "SELECT x FROM t", hint);
}

static uint64_t apart(void) {
    return ((uint64_t)sched_getcpu() + 1) | FACET_APART;
}

static void send_piece(struct wire_piece p) {
    assert_int_equal(send(h.fd, p.data, p.len, MSG_NOSIGNAL), (ssize_t)p.len);
}

/* The next frame; a tray on the way is opened. */
static void read_answer(struct wire_frame *f) {
    struct err err;
    for (;;) {
        if (wire_read(&h.in, h.fd, f, &err) != 1)
            fail_msg("no answer: %s", err.message);
        if (f->type != FACET_TRAY)
            return;
        _cleanup_(close) int fd = wire_frame_take_fd(f, 0);
        assert_null(tray); /* one for a holder */
        assert_int_equal(tray_open(&tray, fd, &err), 0);
    }
}

static void expect_one(const struct wire_frame *f) {
    assert_int_equal(f->type, FACET_RESULT);
    assert_int_equal(f->id & 0xffffffff, h.id);
    assert_int_equal(f->len, strlen(ONE));
    assert_memory_equal(f->data, ONE, f->len);
}

/* A facet waits for a front that does not read what it reports. */
static void hear_reports(void) {
    struct wire_frame f;
    (void)client_expect(&c, FACET_IDLE, 0, &f);
}

/* Asks once, by the tray if it is watched: true if the answer came by it too. */
static bool talk(bool *ret_asked_by_tray) {
    struct err err;
    struct wire_frame f;
    struct wire_piece p = query(apart());
    if (tray)
        tray_watch(tray, TRAY_ANSWER);
    *ret_asked_by_tray = tray && tray_put(tray, TRAY_CALL, &p, 1);
    if (!*ret_asked_by_tray)
        send_piece(p);
    bool came = false;
    if (tray) {
        (void)tray_wait(tray, TRAY_ANSWER, TALK_NS);
        came = tray_take(tray, TRAY_ANSWER, true, &h.in, &err) == 1;
    }
    if (came)
        assert_int_equal(wire_next(&h.in, &f, &err), 1);
    else
        read_answer(&f);
    expect_one(&f);
    return came;
}

/* Talks for a while: how often the facet watched. */
static unsigned talk_often(unsigned want) {
    int64_t until = clock_mono_ms() + TRY_MS;
    unsigned n = 0;
    while (n < want && clock_mono_ms() < until) {
        bool asked;
        bool came = talk(&asked);
        n += asked && came;
        if (h.id % 32 == 0)
            hear_reports();
    }
    return n;
}

/* A facet that has found processors short keeps to its socket for a time; a new one tries. */
static void need_tray(void) {
    if (one_processor())
        skip();
    for (int i = 0; i < TRIES; i++) {
        if (talk_often(1) > 0)
            return;
        (void)teardown(NULL);
        (void)setup(NULL);
    }
    fail_msg("the facet did not watch its tray");
}

static void answers_are_the_same_by_either_way(void **state) {
    (void)state;
    need_tray();
    (void)talk_often(300);
    struct wire_frame f;
    struct facet_stats st;
    assert_int_equal(client_request(&c, FACET_STATS, NULL, -1, &f), 1);
    assert_int_equal(facet_stats_decode(f.data, f.len, &st, &c.err), 0);
    assert_int_equal(st.calls, h.id); /* each call once */
    assert_int_equal(st.failed, 0);
}

static void who_does_not_ask_gets_no_tray(void **state) {
    (void)state;
    struct wire_frame f;
    for (int i = 0; i < 200; i++) {
        send_piece(query(i % 2 ? (uint64_t)sched_getcpu() + 1 : 0));
        read_answer(&f);
        expect_one(&f);
    }
    /* Processors that are not there. */
    for (unsigned cpu = 0; cpu < 4; cpu++) {
        static const uint64_t no[] = {FACET_APART, FACET_APART | 0x7fff, 0x7fff, 0x4001};
        send_piece(query(no[cpu]));
        read_answer(&f);
        expect_one(&f);
    }
    assert_null(tray);
}

/* The number that a query of x brought. */
static long count_of(const char *json) {
    static const char before[] = "\"rows\":[[";
    const char *at = strstr(json, before);
    if (!at)
        fail_msg("no row: %s", json);
    return strtol(at + sizeof(before) - 1, NULL, 10);
}

/* Waits until the place of a call is free, while one is there or may be watched soon: true if a
 * call is put there then. */
static bool put_soon(struct wire_piece p) {
    for (int64_t until = clock_mono_ns() + PUT_NS; clock_mono_ns() < until;) {
        if (tray_put(tray, TRAY_CALL, &p, 1))
            return true;
        if (atomic_load(&tray->call.state) == 2)
            until = clock_mono_ns() + PUT_NS;
    }
    return false;
}

/* While the facet is at work it watches. Keeps one call ahead of it, then sends a query by the
 * socket behind the last of them. True if all between went by the tray. */
static bool count_and_ask(unsigned calls) {
    unsigned put = 0;
    send_piece(count(apart()));
    for (unsigned i = 0; i < calls; i++) {
        struct wire_piece p = count(apart());
        bool in_tray = put == i && put_soon(p); /* none behind one on the socket */
        put += in_tray;
        if (!in_tray)
            send_piece(p);
    }
    send_piece(query(apart()));
    return put == calls;
}

/* The number that the last of so many answers brought. */
static long read_count(unsigned answers) {
    long x = 0;
    for (unsigned i = 0; i < answers; i++) {
        struct wire_frame f;
        read_answer(&f);
        assert_int_equal(f.type, FACET_RESULT);
        if ((f.id & UINT32_MAX) == h.id)
            x = count_of((const char *)f.data);
    }
    hear_reports();
    return x;
}

/* Where the facet looks at its sockets in the middle of a talk, while it has a call in the tray, it
 * finds what was sent behind that. */
static void a_call_in_the_tray_comes_before_what_the_socket_has(void **state) {
    (void)state;
    unsigned reached = 0;
    for (steps = STEPS_MIN; reached < 2 && steps <= STEPS_MAX; steps *= 2) {
        need_tray();
        long x = count_of(holder_query(&h, "SELECT x FROM t"));
        for (int round = 0; round < 3; round++) {
            (void)usleep(1000); /* the talk is over */
            reached += count_and_ask(TALK_CALLS + 1);
            x += TALK_CALLS + 2;
            assert_int_equal(read_count(TALK_CALLS + 3), x);
        }
        (void)teardown(NULL);
        (void)setup(NULL);
    }
    assert_true(reached > 0);
}

/* A holder that has much to read is no worse off for asking for a tray. */
static void a_tray_that_does_not_get_through_costs_nothing(void **state) {
    (void)state;
    for (int n = 1; n < 40; n++) {
        for (int i = 0; i < n; i++)
            send_piece(call("query", "SELECT printf('%.*c', 10000, 'a')", 0));
        send_piece(query(apart()));
        /* It has done what it could before anything is read. */
        struct facet_stats st = {0};
        for (uint64_t calls = 1; calls != st.calls;) {
            struct wire_frame f;
            calls = st.calls;
            assert_int_equal(client_request(&c, FACET_STATS, NULL, -1, &f), 1);
            assert_int_equal(facet_stats_decode(f.data, f.len, &st, &c.err), 0);
        }
        for (int i = 0; i <= n; i++) {
            struct wire_frame f;
            read_answer(&f);
            assert_int_equal(f.type, FACET_RESULT);
        }
        (void)teardown(NULL);
        (void)setup(NULL);
    }
}

/* ---- lies ---- */

static void put_lie(uint32_t len, const char *frame, size_t n) {
    memcpy(tray->call_frame, frame, n);
    atomic_store(&tray->call.len, len);
    atomic_store(&tray->call.state, 2); /* full, whether it is watched or not */
}

/* The facet hangs up on this holder, and serves another. */
static void expect_cut(void) {
    struct wire_frame f;
    struct err err;
    int rc;
    while ((rc = wire_read(&h.in, h.fd, &f, &err)) == 1)
        wire_frame_finish(&f);
    assert_int_equal(rc, -ERR_CANCELLED);
    struct holder other;
    assert_int_equal(client_grant(&c, NULL, 0, &other), 0);
    assert_string_equal(holder_query(&other, "SELECT x FROM t"), ONE);
    holder_finish(&other);
}

/* Repeats the lie while it talks, since it is heard only by one who watches. */
static void lie(uint32_t len, const char *frame, size_t n) {
    need_tray();
    struct wire_frame f;
    struct err err;
    int64_t until = clock_mono_ms() + LIE_MS;
    do {
        struct wire_piece p = query(apart());
        if (send(h.fd, p.data, p.len, MSG_NOSIGNAL) < 0)
            break;
        for (int64_t end = clock_mono_ns() + TALK_NS; clock_mono_ns() < end;)
            put_lie(len, frame, n);
        hear_reports();
    } while (wire_read(&h.in, h.fd, &f, &err) == 1 && clock_mono_ms() < until);
    expect_cut();
}

static void a_length_beyond_the_place_is_cut_off(void **state) {
    (void)state;
    lie(TRAY_SIZE, "", 0);
}

/* Work that is not counted as a call. */
static void a_frame_of_nothing_is_cut_off(void **state) {
    (void)state;
    lie(0, "", 0);
}

static void a_frame_that_is_no_call_is_cut_off(void **state) {
    (void)state;
    uint8_t head[WIRE_HEAD_SIZE];
    wire_head_encode(head, FACET_OPEN, 1, 0, 0);
    lie(sizeof(head), (const char *)head, sizeof(head));
}

static void a_frame_that_promises_too_much_is_cut_off(void **state) {
    (void)state;
    uint8_t head[WIRE_HEAD_SIZE];
    wire_head_encode(head, FACET_CALL, 1, UINT32_MAX, 0);
    lie(sizeof(head), (const char *)head, sizeof(head));
}

static void *scribble(void *arg) {
    (void)arg;
    unsigned seed = 1;
    for (int i = 0; i < SCRIBBLES; i++) {
        seed = seed * 1664525 + 1013904223;
        atomic_store(&tray->call.state, seed >> 30);
        atomic_store(&tray->call.len, seed >> 24 & 1 ? seed >> 8 : seed >> 18);
        memset(tray->call_frame + (seed >> 20), (int)(seed >> 12 & 0xff), seed >> 8 & 63);
        tray_set_where(tray, seed & 4096);
    }
    return NULL;
}

/* While one holder writes whatever it likes, another is served. */
static void what_a_holder_scribbles_hurts_no_other(void **state) {
    (void)state;
    need_tray();
    struct holder other;
    pthread_t thread;
    assert_int_equal(client_grant(&c, NULL, 0, &other), 0);
    assert_int_equal(pthread_create(&thread, NULL, scribble, NULL), 0);
    for (int i = 0; i < 500; i++) {
        struct wire_piece p = query(apart());
        if (send(h.fd, p.data, p.len, MSG_NOSIGNAL) < 0)
            i = 500; /* it was cut off, as it deserves */
        assert_string_equal(holder_query(&other, "SELECT x FROM t"), ONE);
        hear_reports();
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(holder_query(&other, "SELECT x FROM t"), ONE);
    holder_finish(&other);
}

/* The next call is there before the answer to the last is read. */
static void *keep_talking(void *arg) {
    volatile bool *over = arg;
    static uint8_t frame[512];
    struct wire_piece p = query(apart());
    memcpy(frame, p.data, p.len);
    p.data = frame;
    while (!*over) {
        tray_watch(tray, TRAY_ANSWER);
        put_lie((uint32_t)p.len, p.data, p.len);
    }
    return NULL;
}

/* A holder that never lets the facet rest cannot keep the front out. */
static void one_that_talks_without_end_is_revoked(void **state) {
    (void)state;
    need_tray();
    volatile bool over = false;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, keep_talking, (void *)&over), 0);
    for (int i = 0; i < 20; i++) {
        struct wire_piece p = query(apart());
        (void)send(h.fd, p.data, p.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        hear_reports();
    }
    struct buf b;
    struct wire_frame f;
    buf_init(&b, 64);
    pack_u64(&b, h.grant);
    assert_int_equal(client_request(&c, FACET_REVOKE, &b, -1, &f), 1);
    buf_finish(&b);
    over = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    expect_cut();
}

static void *count_without_end(void *arg) {
    const struct counter *k = arg;
    while (!*k->over) {
        tray_watch(tray, TRAY_ANSWER);
        put_lie((uint32_t)k->call.len, k->call.data, k->call.len);
        (void)usleep(50);
    }
    return NULL;
}

/* Asks so much at once that it takes several turns: how many calls of the one that talks came
 * between two answers, at most. */
static long ask_beside(struct holder *other) {
    long last = -1, most = 0;
    send_piece(query(apart()));
    for (int i = 0; i < BESIDE; i++)
        holder_send(other, "query", "[\"SELECT x FROM t\"]");
    for (int i = 0; i < BESIDE; i++) {
        assert_true(holder_read(other, LIE_MS));
        long x = count_of(other->json);
        most = last < 0 ? most : MAX(most, x - last);
        last = x;
    }
    hear_reports();
    return most;
}

/* The facet turns to the others however much one has to say. */
static void others_are_served_while_one_talks_without_end(void **state) {
    (void)state;
    long most = 0;
    for (steps = STEPS_MIN; most < TALK_CALLS && steps <= STEPS_MAX; steps *= 2) {
        need_tray();
        struct holder other;
        pthread_t thread;
        uint8_t frame[512];
        volatile bool over = false;
        struct wire_piece p = count(apart());
        struct counter k = {.over = &over, .call = {memcpy(frame, p.data, p.len), p.len}};
        assert_int_equal(client_grant(&c, NULL, 0, &other), 0);
        assert_int_equal(pthread_create(&thread, NULL, count_without_end, &k), 0);
        for (int n = 0; n < 4 && most < TALK_CALLS; n++)
            most = MAX(most, ask_beside(&other));
        over = true;
        assert_int_equal(pthread_join(thread, NULL), 0);
        holder_finish(&other);
        (void)teardown(NULL);
        (void)setup(NULL);
    }
    /* The last of a talk may be taken when it ends. */
    assert_in_range(most, 0, TALK_CALLS + 1);
    assert_true(most >= TALK_CALLS);
}

/* ---- several at once ---- */

struct talker {
    struct holder h;
    struct tray *tray;
    unsigned by_tray;
    bool ok;
    pthread_t thread;
};

static struct wire_piece talker_call(struct talker *t) {
    static const char args[] = "[\"UPDATE t SET x = x + 1\"]";
    uint8_t head[WIRE_HEAD_SIZE];
    struct buf *b = &t->h.out;
    buf_clear(b);
    (void)buf_add(b, head, sizeof(head));
    facet_call_encode(b, "execute", args, sizeof(args) - 1);
    wire_head_encode((uint8_t *)b->data, FACET_CALL, ++t->h.id | apart() << FACET_NEAR_SHIFT,
                     b->len - WIRE_HEAD_SIZE, 0);
    return (struct wire_piece){b->data, b->len};
}

/* The next frame that is no tray: 1. */
static int talker_read(struct talker *t, struct wire_frame *f) {
    struct err err;
    for (;;) {
        int rc = wire_next(&t->h.in, f, &err);
        if (rc == 1 && f->type != FACET_TRAY)
            return 1;
        struct pollfd p = {.fd = t->h.fd, .events = POLLIN};
        if (rc == 1) {
            _cleanup_(close) int fd = wire_frame_take_fd(f, 0);
            rc = tray_open(&t->tray, fd, &err);
        } else if (rc == 0) {
            rc = poll(&p, 1, TALKER_MS) == 1 ? wire_recv(&t->h.in, t->h.fd, &err) : -1;
        }
        if (rc < 0)
            return rc;
    }
}

static bool talker_ask(struct talker *t) {
    struct err err;
    struct wire_frame f;
    struct wire_piece p = talker_call(t);
    if (t->tray)
        tray_watch(t->tray, TRAY_ANSWER);
    bool put = t->tray && tray_put(t->tray, TRAY_CALL, &p, 1);
    t->by_tray += put;
    if (!put && send(t->h.fd, p.data, p.len, MSG_NOSIGNAL) != (ssize_t)p.len)
        return false;
    if (t->tray) {
        (void)tray_sleep(t->tray, TRAY_ANSWER, TALK_NS);
        if (tray_take(t->tray, TRAY_ANSWER, true, &t->h.in, &err) < 0)
            return false;
    }
    return talker_read(t, &f) == 1 && f.type == FACET_RESULT && (f.id & UINT32_MAX) == t->h.id;
}

static void *be_talker(void *arg) {
    struct talker *t = arg;
    t->ok = true;
    while (t->ok && t->h.id < TALKER_CALLS)
        t->ok = talker_ask(t);
    return NULL;
}

/* Each call is done once and answered once, whether its holder or the facet was asleep. */
static void several_talk_at_once(void **state) {
    (void)state;
    static struct talker all[TALKERS];
    memset(all, 0, sizeof(all));
    for (int i = 0; i < TALKERS; i++) {
        assert_int_equal(client_grant(&c, NULL, 0, &all[i].h), 0);
        assert_int_equal(pthread_create(&all[i].thread, NULL, be_talker, &all[i]), 0);
    }
    struct wire_frame f;
    for (int i = 0; i < TALKERS; i++)
        while (pthread_tryjoin_np(all[i].thread, NULL) != 0)
            (void)client_expect(&c, FACET_IDLE, 10, &f); /* hears the reports meanwhile */
    assert_int_equal(count_of(holder_query(&h, "SELECT x FROM t")), 1 + TALKERS * TALKER_CALLS);
    for (int i = 0; i < TALKERS; i++) {
        assert_true(all[i].ok);
        assert_true(one_processor() || all[i].by_tray > 0);
        tray_close(all[i].tray);
        holder_finish(&all[i].h);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(answers_are_the_same_by_either_way),
        UNIT(who_does_not_ask_gets_no_tray),
        UNIT(a_call_in_the_tray_comes_before_what_the_socket_has),
        UNIT(a_tray_that_does_not_get_through_costs_nothing),
        UNIT(a_length_beyond_the_place_is_cut_off),
        UNIT(a_frame_of_nothing_is_cut_off),
        UNIT(a_frame_that_is_no_call_is_cut_off),
        UNIT(a_frame_that_promises_too_much_is_cut_off),
        UNIT(what_a_holder_scribbles_hurts_no_other),
        UNIT(one_that_talks_without_end_is_revoked),
        UNIT(others_are_served_while_one_talks_without_end),
        UNIT(several_talk_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
