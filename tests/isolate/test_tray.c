/* An isolate and the tray that a facet gives it (wire/tray.h): honestly, and with a facet that was
 * taken over. It breaks nothing but its own calls. */

#include "kit.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "wire/facet.h"
#include "wire/tray.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ENOUGH = 20, LATER = 300, WALL_MS = 100000, SCRIBBLE_NS = 200000000 };

/* Asks until it is told to stop. */
#define TALK                                                                                       \
    "return { default: async function main(env) { const t = Date.now(); for (;;) { "               \
    "const [r] = await env.db.query('SELECT'); if (r.id === 2) return 'told'; "                    \
    "if (Date.now() - t > 80000) return 'late'; } } };"

enum lie { NONE, LENGTH, KIND, ID, SCRIBBLE, PLACE, MUTE };

static struct {
    enum lie lie;
    int (*descriptor)(void); /* in place of a tray */
    unsigned copies;         /* of the offer */
    bool bare;               /* without its descriptor */
    bool offered;
    uint64_t hint;  /* then */
    unsigned after; /* calls since */
    struct tray *tray;
    pthread_t thread;
    atomic_uint taken; /* calls that came by it */
    atomic_bool over;
} facet;

static int start(void **state) {
    (void)state;
    kit_start("CAY_ISOLATE", ISOLATE_CONFIG_STRICT | ISOLATE_CONFIG_RESET);
    return 0;
}

static int stop(void **state) {
    (void)state;
    kit_stop();
    return 0;
}

static bool one_processor(void) {
    cpu_set_t all;
    return sched_getaffinity(0, sizeof(all), &all) < 0 || CPU_COUNT(&all) < 2;
}

static const char *rows(void) {
    bool enough = facet.taken >= ENOUGH || facet.after > LATER;
    return enough ? "{\"columns\":[\"id\"],\"rows\":[[2]]}"
                  : "{\"columns\":[\"id\"],\"rows\":[[1]]}";
}

/* ---- the facet's side ---- */

static void reply(uint16_t type, uint64_t id) {
    const char *json = rows();
    uint8_t head[WIRE_HEAD_SIZE];
    wire_head_encode(head, type, id, strlen(json), 0);
    struct wire_piece frame[] = {{head, sizeof(head)}, {json, strlen(json)}};
    struct wire_out out = {.type = type, .id = id, .pieces = {{json, strlen(json)}}};
    if (!tray_put(facet.tray, TRAY_ANSWER, frame, 2))
        (void)wire_send(kit_facet(0), &out);
}

static void scribble(void) {
    unsigned seed = 1;
    for (int64_t end = clock_mono_ns() + SCRIBBLE_NS; clock_mono_ns() < end;) {
        seed = seed * 1664525 + 1013904223;
        atomic_store(&facet.tray->answer.state, seed >> 30);
        atomic_store(&facet.tray->answer.len, seed >> 24 & 1 ? seed >> 8 : seed >> 17);
        memset(facet.tray->answer_frame + (seed >> 19), (int)(seed >> 12), seed >> 8 & 63);
        atomic_store(&facet.tray->call.state, seed >> 26 & 3);
        tray_set_where(facet.tray, seed >> 14);
    }
}

/* Says that it runs anywhere, wants it for itself, is short, all in turns and beyond. */
static void lie_about_place(void) {
    static const uint32_t words[] = {
        TRAY_ANYWHERE,
        TRAY_CROWD | 1,
        TRAY_CROWD | TRAY_KEEP_OFF | 1,
        TRAY_CROWD | TRAY_KEEP_OFF | 2,
        TRAY_CROWD | TRAY_KEEP_OFF,
        TRAY_CROWD | TRAY_KEEP_OFF | 0xfffe,
        TRAY_KEEP_OFF | 1,
        TRAY_NOWHERE,
        UINT32_MAX,
    };
    tray_set_where(facet.tray, words[facet.taken % ARRAY_LEN(words)]);
}

/* The answer is there, but who sleeps is not woken. */
static void answer_mutely(uint64_t id) {
    struct tray *t = facet.tray;
    const char *json = rows();
    wire_head_encode((uint8_t *)t->answer_frame, FACET_RESULT, id, strlen(json), 0);
    memcpy(t->answer_frame + WIRE_HEAD_SIZE, json, strlen(json));
    atomic_store(&t->answer.len, (uint32_t)(WIRE_HEAD_SIZE + strlen(json)));
    while (atomic_load(&t->answer.state) == 1)
        (void)usleep(50); /* until it sleeps, if it does */
    uint32_t asleep = 3;
    if (!atomic_compare_exchange_strong(&t->answer.state, &asleep, 2))
        reply(FACET_RESULT, id);
}

static void answer_by_tray(uint64_t id) {
    struct tray *t = facet.tray;
    facet.taken++;
    if (facet.lie == PLACE)
        lie_about_place();
    uint32_t watched = 1;
    if (facet.lie == LENGTH) {
        atomic_store(&t->answer.len, TRAY_ANSWER_MAX - 64 + 1);
        if (!atomic_compare_exchange_strong(&t->answer.state, &watched, 2))
            reply(FACET_RESULT, id); /* nobody looks: again */
    } else if (facet.lie == SCRIBBLE) {
        scribble();
    } else if (facet.lie == MUTE) {
        answer_mutely(id);
    } else {
        reply(facet.lie == KIND ? FACET_CALL : FACET_RESULT, facet.lie == ID ? id + 1 : id);
    }
}

/* Not where the isolate waits. */
static void go_apart(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) < 0)
        return;
    CPU_CLR((facet.hint & ~(uint64_t)FACET_APART) - 1, &set);
    (void)sched_setaffinity(0, sizeof(set), &set);
}

static void *watch(void *arg) {
    (void)arg;
    go_apart();
    struct wire_reader in;
    struct wire_frame f;
    struct err err;
    wire_reader_init(&in, TRAY_SIZE);
    tray_watch(facet.tray, TRAY_CALL);
    while (!facet.over) {
        if (tray_wait(facet.tray, TRAY_CALL, 1000000) &&
            tray_take(facet.tray, TRAY_CALL, false, &in, &err) == 1 &&
            wire_next(&in, &f, &err) == 1)
            answer_by_tray(f.id);
    }
    wire_reader_finish(&in);
    return NULL;
}

static void offer(void) {
    struct err err;
    _cleanup_(close) int fd = facet.descriptor ? facet.descriptor() : -1;
    if (!facet.descriptor)
        assert_int_equal(tray_create(&facet.tray, &fd, &err), 0);
    struct wire_out out = {.type = FACET_TRAY, .fds = &fd, .nfds = facet.bare ? 0 : 1};
    for (unsigned i = 0; i < 1 + facet.copies; i++)
        (void)wire_send(kit_facet(0), &out);
    if (facet.tray)
        assert_int_equal(pthread_create(&facet.thread, NULL, watch, NULL), 0);
    facet.offered = true;
}

static uint16_t on_call(void *arg, size_t i, const char *method, const char *args, uint64_t id,
                        const char **ret_json) {
    (void)arg;
    (void)i;
    (void)method;
    (void)args;
    if (!facet.offered && id >> FACET_NEAR_SHIFT & FACET_APART) {
        facet.hint = id >> FACET_NEAR_SHIFT;
        offer();
    }
    facet.after += facet.offered && !facet.tray;
    *ret_json = rows();
    return FACET_RESULT;
}

/* ---- runs ---- */

static const struct kit_result *run(bool reset) {
    struct kit_run r = {.code = TALK, .timeout_ms = WALL_MS, .answer = on_call};
    if (facet.lie == SCRIBBLE)
        r.timeout_ms = 4000; /* an answer that was overwritten never comes */
    r.limits.cpu_ms = WALL_MS;
    r.limits.binding_calls = 100000000;
    const struct kit_result *result = reset ? kit_round(&r) : kit_run(&r);
    facet.over = true;
    if (facet.tray)
        (void)pthread_join(facet.thread, NULL);
    tray_close(facet.tray);
    if (!facet.offered && !result->out.timeout)
        fail_msg("the isolate did not ask for a tray: %s",
                 result->out.result ? result->out.result : result->out.error);
    return result;
}

#define FACET(...)                                                                                 \
    do {                                                                                           \
        if (one_processor())                                                                       \
            skip();                                                                                \
        memset(&facet, 0, sizeof(facet));                                                          \
        __VA_ARGS__;                                                                               \
    } while (0)

static void it_talks_by_a_tray(void **state) {
    (void)state;
    FACET();
    (void)run(false);
    kit_expect_result("\"told\"");
    assert_true(facet.taken >= ENOUGH);
}

static void a_reset_lets_go_of_it(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        FACET();
        const struct kit_result *r = run(true);
        kit_expect_result("\"told\"");
        assert_true(facet.taken >= ENOUGH);
        assert_true(r->out.reset_ready);
        assert_int_equal(r->held, 0);
    }
    kit_round_end();
}

static void a_lie_in_it_ends_the_binding(void **state) {
    (void)state;
    for (enum lie l = LENGTH; l <= ID; l++) {
        FACET(facet.lie = l);
        const struct kit_result *r = run(false);
        kit_expect_error("env.db sent what is not a valid reply");
        assert_int_equal(r->signal, 0);
    }
    kit_expect_alive();
}

static void what_a_facet_scribbles_breaks_its_calls_alone(void **state) {
    (void)state;
    FACET(facet.lie = SCRIBBLE);
    const struct kit_result *r = run(false);
    assert_true(r->signal == 0 || r->out.timeout);
    assert_int_not_equal(r->status, ISOLATE_EXIT_CRASH);
    kit_expect_alive();
}

/* Where a facet says that it runs is advice: the program goes on whatever it is told. */
static void a_facet_that_lies_about_its_place_is_answered(void **state) {
    (void)state;
    FACET(facet.lie = PLACE);
    (void)run(false);
    kit_expect_result("\"told\"");
    assert_true(facet.taken >= ENOUGH);
}

/* It wakes by itself, soon: the front may have something to say. */
static void one_that_is_not_woken_finds_its_answer(void **state) {
    (void)state;
    FACET(facet.lie = MUTE);
    (void)run(false);
    kit_expect_result("\"told\"");
    assert_true(facet.taken >= ENOUGH);
}

/* ---- offers that are none ---- */

static int memory(off_t size, int seals) {
    int fd = memfd_create("bad", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, size), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static int unsealed(void) {
    return memory(TRAY_SIZE, 0);
}

static int too_short(void) {
    return memory(4096, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
}

static int no_memory(void) {
    return open("/dev/null", O_RDWR | O_CLOEXEC);
}

static void what_is_no_tray_is_left_alone(void **state) {
    (void)state;
    int (*const bad[])(void) = {unsealed, too_short, no_memory};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        FACET(facet.descriptor = bad[i]);
        (void)run(false);
        kit_expect_result("\"told\"");
    }
}

static void an_offer_comes_once_and_with_its_descriptor(void **state) {
    (void)state;
    FACET(facet.copies = 1);
    (void)run(false);
    kit_expect_error("env.db sent what is not a valid reply");
    FACET(facet.descriptor = unsealed, facet.bare = true);
    (void)run(false);
    kit_expect_error("env.db sent what is not a valid reply");
    kit_expect_alive();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_talks_by_a_tray),
        cmocka_unit_test(a_reset_lets_go_of_it),
        cmocka_unit_test(a_lie_in_it_ends_the_binding),
        cmocka_unit_test(what_a_facet_scribbles_breaks_its_calls_alone),
        cmocka_unit_test(a_facet_that_lies_about_its_place_is_answered),
        cmocka_unit_test(one_that_is_not_woken_finds_its_answer),
        cmocka_unit_test(what_is_no_tray_is_left_alone),
        cmocka_unit_test(an_offer_comes_once_and_with_its_descriptor),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
