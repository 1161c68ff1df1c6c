#include "front/job/job.h"
#include "unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uv_loop_t loop;
static struct store *store;
static struct jobs *jobs;
static struct err e;
static char dir[] = "/tmp/cay-job-XXXXXX";
static char path[sizeof(dir) + 8];
static int cancelled;

static int setup(void **state) {
    (void)state;
    memcpy(dir + sizeof(dir) - 7, "XXXXXX", 6);
    if (!mkdtemp(dir) || uv_loop_init(&loop) != 0)
        return -1;
    (void)snprintf(path, sizeof(path), "%s/cay.db", dir);
    cancelled = 0;
    int rc = store_open(path, &store, &e);
    if (rc == 0)
        rc = store_start_writer(store, &loop, &e);
    jobs = jobs_create(&loop, store);
    return rc;
}

static int teardown(void **state) {
    (void)state;
    store_stop_writer(store);
    jobs_destroy(jobs);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    store_close(store);
    return uv_loop_close(&loop) == 0 && unlink(path) == 0 && rmdir(dir) == 0 ? 0 : -1;
}

static void on_cancel(void *ctx) {
    (void)ctx;
    cancelled++;
}

static struct job *begin(bool stored, bool can_cancel) {
    struct job *j = NULL;
    struct job_spec spec = {.kind = "code",
                            .owner = "key_a",
                            .title = "title",
                            .stores_events = stored,
                            .cancel = can_cancel ? on_cancel : NULL};
    assert_int_equal(job_begin(jobs, &spec, &j, &e), 0);
    return j;
}

static void event(struct job *j, int n) {
    char text[16];
    int len = snprintf(text, sizeof(text), "%d", n);
    job_event(j, "step", text, (size_t)len);
}

static void end(struct job *j) {
    job_end(j, &(struct store_run_end){.status = JOB_DONE});
}

/* One who follows: takes `room` events each time, and notes them. */
struct reader {
    struct job_follow *follow;
    char got[64];
    size_t room;
    bool over;
};

static bool on_event(void *ctx, const struct job_event *ev) {
    struct reader *r = ctx;
    assert_string_equal(ev->type, "step");
    assert_true(ev->seq > 0 && ev->time_ms > 0);
    size_t n = strlen(r->got);
    (void)snprintf(r->got + n, sizeof(r->got) - n, "%.*s,", (int)ev->len, ev->json);
    return --r->room > 0;
}

static void on_more(void *ctx) {
    struct reader *r = ctx;
    if (r->room > 0)
        r->over = !job_read(r->follow, on_event, r);
}

static struct store_scope all = {.all = true};

static void follow(struct reader *r, const char *id, int64_t after, size_t room) {
    *r = (struct reader){.room = room};
    assert_int_equal(job_follow(jobs, id, all, after, on_more, r, &r->follow, &e), 0);
    assert_string_equal(r->got, ""); /* not before the loop */
}

static void on_written(void *ctx) {
    *(bool *)ctx = true;
}

/* Until everything is written and told. */
static void turn(void) {
    struct store_wait w = {0};
    bool written = false;
    store_after(store, &w, on_written, &written);
    while (!written)
        (void)uv_run(&loop, UV_RUN_ONCE);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
}

static void check_following(bool stored) {
    struct job *j = begin(stored, true);
    struct reader early;
    struct reader late;
    event(j, 1);
    event(j, 2);
    follow(&early, job_id(j), 0, 100);
    turn();
    assert_string_equal(early.got, "1,2,");
    event(j, 3);
    follow(&late, job_id(j), 2, 100);
    turn();
    assert_string_equal(early.got, "1,2,3,");
    assert_string_equal(late.got, "3,");
    assert_false(early.over);
    event(j, 4);
    end(j); /* before they have read it */
    turn();
    assert_string_equal(early.got, "1,2,3,4,");
    assert_string_equal(late.got, "3,4,");
    assert_true(early.over && late.over);
    job_unfollow(early.follow);
    job_unfollow(late.follow);
}

static void stored_events_can_be_followed_from_any_number(void **state) {
    (void)state;
    check_following(true);
}

static void kept_events_can_be_followed_from_any_number(void **state) {
    (void)state;
    check_following(false);
}

/* The ledger may name a job whose beginning and end still wait to be written. */
static void a_known_job_that_has_just_ended_can_be_followed(void **state) {
    (void)state;
    struct reader r = {.room = 100};
    struct job *j = begin(true, true);
    char id[ID_SIZE];
    (void)snprintf(id, sizeof(id), "%s", job_id(j));
    assert_true(job_is_running(jobs, id));
    event(j, 1);
    end(j);
    assert_false(job_is_running(jobs, id));
    r.follow = job_follow_known(jobs, id, 0, on_more, &r);
    turn();
    assert_string_equal(r.got, "1,");
    assert_true(r.over);
    job_unfollow(r.follow);
}

static void one_who_reads_slowly_misses_nothing(void **state) {
    (void)state;
    for (int stored = 0; stored < 2; stored++) {
        struct job *j = begin(stored, true);
        struct reader r;
        follow(&r, job_id(j), 0, 2);
        for (int i = 1; i <= 5; i++)
            event(j, i);
        end(j);
        turn();
        assert_string_equal(r.got, "1,2,");
        assert_false(r.over);
        r.room = 2;
        on_more(&r);
        assert_string_equal(r.got, "1,2,3,4,");
        r.room = 2;
        on_more(&r);
        assert_string_equal(r.got, "1,2,3,4,5,");
        assert_true(r.over);
        job_unfollow(r.follow);
    }
}

static void many_events_come_in_pages(void **state) {
    (void)state;
    struct job *j = begin(true, true);
    for (int i = 0; i < 300; i++)
        job_event(j, "step", "7", 1);
    struct reader r;
    follow(&r, job_id(j), 0, 1000);
    turn();
    assert_int_equal(r.room, 700);
    assert_false(r.over);
    end(j);
    turn();
    assert_true(r.over);
    job_unfollow(r.follow);
}

static void a_job_that_has_ended_is_followed_in_the_store(void **state) {
    (void)state;
    struct job *j = begin(true, true);
    char id[ID_SIZE];
    (void)snprintf(id, sizeof(id), "%s", job_id(j));
    event(j, 1);
    end(j);
    turn();
    struct reader r;
    follow(&r, id, 0, 100);
    turn();
    assert_string_equal(r.got, "1,");
    assert_true(r.over);
    job_unfollow(r.follow);
}

static void one_who_leaves_hears_nothing(void **state) {
    (void)state;
    struct job *j = begin(true, true);
    struct reader r;
    event(j, 1);
    follow(&r, job_id(j), 0, 100);
    job_unfollow(r.follow);
    turn();
    assert_string_equal(r.got, "");
    end(j);
}

static void what_is_kept_has_a_bound(void **state) {
    (void)state;
    struct job *j = begin(false, true);
    char *big = calloc(1, 400000);
    assert_non_null(big);
    memset(big, '1', 399999);
    for (int i = 0; i < 5; i++)
        job_event(j, "step", big, 399999);
    free(big);
    struct reader r;
    follow(&r, job_id(j), 0, 100);
    turn();
    assert_int_equal(r.room, 98); /* two of them fit */
    job_unfollow(r.follow);
    end(j);
}

static void only_who_may_see_a_job_can_follow_and_cancel_it(void **state) {
    (void)state;
    struct job *j = begin(true, true);
    struct job *firm = begin(true, false);
    struct job_follow *f;
    struct store_scope other = {.owner = "key_b"};
    struct store_scope own = {.owner = "key_a"};
    char id[ID_SIZE];
    (void)snprintf(id, sizeof(id), "%s", job_id(j));
    assert_int_equal(job_follow(jobs, id, other, 0, on_more, NULL, &f, &e), -ERR_NOT_FOUND);
    assert_int_equal(job_cancel(jobs, id, other, &e), -ERR_NOT_FOUND);
    assert_int_equal(job_cancel(jobs, "run_nothing", all, &e), -ERR_NOT_FOUND);
    assert_int_equal(job_cancel(jobs, job_id(firm), own, &e), -ERR_UNSUPPORTED);
    assert_int_equal(cancelled, 0);
    assert_int_equal(job_cancel(jobs, id, own, &e), 0);
    assert_int_equal(cancelled, 1);
    end(j);
    end(firm);
    turn();
    assert_int_equal(job_cancel(jobs, id, own, &e), -ERR_CONFLICT);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(stored_events_can_be_followed_from_any_number),
        TEST(kept_events_can_be_followed_from_any_number),
        TEST(a_known_job_that_has_just_ended_can_be_followed),
        TEST(one_who_reads_slowly_misses_nothing),
        TEST(many_events_come_in_pages),
        TEST(a_job_that_has_ended_is_followed_in_the_store),
        TEST(one_who_leaves_hears_nothing),
        TEST(what_is_kept_has_a_bound),
        TEST(only_who_may_see_a_job_can_follow_and_cancel_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
