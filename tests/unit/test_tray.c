/* Memory that two processes share: what one of them writes wrongly is found, whatever it is, and no
 * frame is lost or comes twice. */

#include "unit.h"
#include "wire/tray.h"

#include "base/cleanup.h"
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MEMFD = MFD_CLOEXEC | MFD_ALLOW_SEALING, ROUNDS = 20000, ASLEEP_NS = 500000000 };

static struct tray *facet, *holder;
static struct wire_reader in;

static int setup(void **state) {
    (void)state;
    struct err err;
    _cleanup_(close) int fd = -1;
    assert_int_equal(tray_create(&facet, &fd, &err), 0);
    assert_int_equal(tray_open(&holder, fd, &err), 0);
    wire_reader_init(&in, 65536);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    tray_close(facet);
    tray_close(holder);
    wire_reader_finish(&in);
    return 0;
}

static bool put(struct tray *t, enum tray_side side, uint64_t id, size_t len) {
    static char text[TRAY_SIZE];
    uint8_t head[WIRE_HEAD_SIZE];
    wire_head_encode(head, 7, id, len, 0);
    struct wire_piece frame[] = {{head, sizeof(head)}, {text, len}};
    return tray_put(t, side, frame, 2);
}

/* The id of the frame that is there, 0 if there is none. */
static uint64_t take(struct tray *t, enum tray_side side, bool last) {
    struct err err;
    struct wire_frame f;
    int rc = tray_take(t, side, last, &in, &err);
    assert_true(rc >= 0);
    if (rc == 0)
        return 0;
    assert_int_equal(wire_next(&in, &f, &err), 1);
    return f.id;
}

static void a_frame_needs_somebody_who_watches(void **state) {
    (void)state;
    assert_false(put(holder, TRAY_CALL, 1, 10));
    tray_watch(facet, TRAY_CALL);
    assert_false(tray_wait(facet, TRAY_CALL, 1000));
    assert_true(put(holder, TRAY_CALL, 1, 10));
    assert_true(tray_wait(facet, TRAY_CALL, 0));
    assert_false(put(holder, TRAY_CALL, 2, 10)); /* the place is taken */
    assert_int_equal(take(facet, TRAY_CALL, false), 1);
    assert_int_equal(take(facet, TRAY_CALL, false), 0);
    assert_true(put(holder, TRAY_CALL, 2, 10)); /* it is watched still */
    assert_int_equal(take(facet, TRAY_CALL, true), 2);
    assert_false(put(holder, TRAY_CALL, 3, 10));
    assert_int_equal(take(facet, TRAY_CALL, true), 0);
}

static void one_who_sleeps_watches_too(void **state) {
    (void)state;
    tray_watch(facet, TRAY_CALL);
    assert_false(tray_sleep(facet, TRAY_CALL, 1000));
    assert_true(put(holder, TRAY_CALL, 1, 10));           /* until it says that it does not */
    assert_true(tray_sleep(facet, TRAY_CALL, INT64_MAX)); /* what is there is no reason to sleep */
    assert_int_equal(take(facet, TRAY_CALL, true), 1);
    assert_false(tray_sleep(facet, TRAY_CALL, INT64_MAX)); /* nor is what will not come */
    assert_false(put(holder, TRAY_CALL, 2, 10));
}

static void the_places_are_two(void **state) {
    (void)state;
    tray_watch(facet, TRAY_CALL);
    tray_watch(holder, TRAY_ANSWER);
    assert_true(put(holder, TRAY_CALL, 1, 8000));
    assert_true(put(facet, TRAY_ANSWER, 2, 24000));
    assert_int_equal(take(facet, TRAY_CALL, true), 1);
    assert_int_equal(take(holder, TRAY_ANSWER, true), 2);
    assert_int_equal(tray_where(holder), TRAY_ANYWHERE);
    tray_set_where(facet, TRAY_NOWHERE);
    assert_int_equal(tray_where(holder), TRAY_NOWHERE);
}

static void what_is_too_large_goes_elsewhere(void **state) {
    (void)state;
    tray_watch(facet, TRAY_CALL);
    assert_false(put(holder, TRAY_CALL, 1, TRAY_CALL_MAX));
    assert_true(put(holder, TRAY_CALL, 1, TRAY_CALL_MAX - 64 - WIRE_HEAD_SIZE));
    assert_int_equal(take(facet, TRAY_CALL, false), 1);
    assert_false(put(holder, TRAY_CALL, 1, TRAY_CALL_MAX - 64 - WIRE_HEAD_SIZE + 1));
}

static void a_length_that_lies_is_found(void **state) {
    (void)state;
    static const uint32_t lies[] = {0,         WIRE_HEAD_SIZE - 1, TRAY_CALL_MAX - 64 + 1,
                                    TRAY_SIZE, INT32_MAX,          UINT32_MAX};
    struct err err;
    for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
        tray_watch(facet, TRAY_CALL);
        assert_true(put(holder, TRAY_CALL, 1, 10));
        atomic_store(&holder->call.len, lies[i]);
        assert_int_equal(tray_take(facet, TRAY_CALL, true, &in, &err), -ERR_PROTOCOL);
        assert_int_equal(in.in.len, 0);
    }
}

static void a_state_that_does_not_exist_is_no_frame(void **state) {
    (void)state;
    tray_watch(facet, TRAY_CALL);
    atomic_store(&holder->call.state, 77);
    assert_false(tray_wait(facet, TRAY_CALL, 1000));
    assert_int_equal(take(facet, TRAY_CALL, false), 0);
    assert_false(put(holder, TRAY_CALL, 1, 10));
    assert_int_equal(take(facet, TRAY_CALL, true), 0);
}

static void it_cannot_change_its_size(void **state) {
    (void)state;
    struct err err;
    struct tray *t;
    _cleanup_(close) int fd = -1;
    assert_int_equal(tray_create(&t, &fd, &err), 0);
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(fd, 1 << 20), -1);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    tray_close(t);
}

/* One that shrinks later would kill who reads it. */
static void only_a_sealed_one_of_full_size_is_opened(void **state) {
    (void)state;
    const struct {
        const char *path; /* NULL: a memfd */
        off_t size;
        int seals;
    } bad[] = {
        {NULL, TRAY_SIZE, 0},
        {NULL, TRAY_SIZE, F_SEAL_GROW | F_SEAL_SEAL},
        {NULL, TRAY_SIZE, F_SEAL_SHRINK},
        {NULL, TRAY_SIZE - 4096, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL},
        {NULL, 0, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL},
        {NULL, TRAY_SIZE + 1, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL},
        {NULL, 2 << 20, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL}, /* as of huge pages */
        {"/dev/zero", 0, 0},
        {"/proc/self/exe", 0, 0},
    };
    struct err err;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct tray *t = NULL;
        _cleanup_(close) int fd =
            bad[i].path ? open(bad[i].path, O_RDONLY | O_CLOEXEC) : memfd_create("bad", MEMFD);
        assert_true(fd >= 0);
        if (!bad[i].path) {
            assert_int_equal(ftruncate(fd, bad[i].size), 0);
            assert_int_equal(fcntl(fd, F_ADD_SEALS, bad[i].seals), 0);
        }
        if (tray_open(&t, fd, &err) == 0)
            fail_msg("number %zu was opened", i);
        assert_null(t);
    }
}

/* ---- both at once ---- */

/* The facet of the test: answers each call with its id, watches and leaves as it pleases. What is
 * not put into the tray goes by a pipe, as by the socket. */
struct talk {
    int calls[2], answers[2];
};

static void reply(const struct talk *k, uint64_t id) {
    if (!put(facet, TRAY_ANSWER, id, id % 64) && write(k->answers[1], &id, sizeof(id)) < 0)
        abort(); /* not cmocka's thread */
}

static void *be_facet(void *arg) {
    const struct talk *k = arg;
    struct wire_reader r;
    struct wire_frame f;
    struct err err;
    wire_reader_init(&r, 65536);
    uint64_t id = 0;
    for (unsigned n = 0; id != ROUNDS; n++) {
        bool came = false;
        if (n % 3) {
            tray_watch(facet, TRAY_CALL);
            (void)tray_wait(facet, TRAY_CALL, n % 7 * 1000);
            came = tray_take(facet, TRAY_CALL, true, &r, &err) == 1;
        }
        if (came && wire_next(&r, &f, &err) == 1) {
            reply(k, id = f.id);
        } else if (read(k->calls[0], &id, sizeof(id)) == sizeof(id)) {
            reply(k, id);
        }
    }
    wire_reader_finish(&r);
    return NULL;
}

static uint64_t ask(const struct talk *k, uint64_t id) {
    bool watches = id % 5;
    if (watches)
        tray_watch(holder, TRAY_ANSWER);
    if (!put(holder, TRAY_CALL, id, id % 64))
        assert_int_equal(write(k->calls[1], &id, sizeof(id)), sizeof(id));
    uint64_t got = 0;
    if (watches) {
        /* Asleep for so long that the test would never end if it were not woken. */
        if (id % 3 || !tray_sleep(holder, TRAY_ANSWER, ASLEEP_NS))
            (void)tray_wait(holder, TRAY_ANSWER, (int64_t)(id % 11) * 1000);
        got = take(holder, TRAY_ANSWER, true);
    }
    if (got == 0)
        assert_int_equal(read(k->answers[0], &got, sizeof(got)), sizeof(got));
    return got;
}

static void nothing_is_lost_and_nothing_comes_twice(void **state) {
    (void)state;
    struct talk k;
    pthread_t thread;
    assert_int_equal(pipe2(k.calls, O_CLOEXEC | O_NONBLOCK), 0);
    assert_int_equal(pipe2(k.answers, O_CLOEXEC), 0);
    assert_int_equal(pthread_create(&thread, NULL, be_facet, &k), 0);
    for (uint64_t id = 1; id <= ROUNDS; id++)
        assert_int_equal(ask(&k, id), id);
    assert_int_equal(pthread_join(thread, NULL), 0);
    uint64_t more;
    assert_int_equal(read(k.calls[0], &more, sizeof(more)), -1); /* nobody asked twice */
    for (int i = 0; i < 2; i++) {
        close(k.calls[i]);
        close(k.answers[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(a_frame_needs_somebody_who_watches),
        UNIT(one_who_sleeps_watches_too),
        UNIT(the_places_are_two),
        UNIT(what_is_too_large_goes_elsewhere),
        UNIT(a_length_that_lies_is_found),
        UNIT(a_state_that_does_not_exist_is_no_frame),
        PLAIN(it_cannot_change_its_size),
        PLAIN(only_a_sealed_one_of_full_size_is_opened),
        UNIT(nothing_is_lost_and_nothing_comes_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
