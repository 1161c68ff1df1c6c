#include "base/limits.h"
#include "front/run/intake.h"
#include "front/share.h"
#include "unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bodies that a thread reads: what comes of them, in which order, and of who leaves. */

static uv_loop_t loop;
static struct intake *intake;
static struct run_limits max;
static char told[256]; /* names of those that were told, "!" after one that failed */
static struct err e;

static int setup(void **state) {
    (void)state;
    told[0] = 0;
    max = runner_config_default().limits;
    intake = intake_create(&loop);
    return uv_loop_init(&loop);
}

static int teardown(void **state) {
    (void)state;
    intake_destroy(intake);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop);
}

static void on_read(void *ctx, struct run_asked *asked, const struct err *err) {
    size_t n = strlen(told);
    (void)snprintf(told + n, sizeof(told) - n, "%s%s ", (const char *)ctx, err ? "!" : "");
    assert_true(asked ? !err : err != NULL);
    if (asked)
        run_asked_finish(asked);
}

static struct buf text(const char *s) {
    struct buf b;
    buf_init(&b, 1 << 20);
    (void)buf_add_str(&b, s);
    return b;
}

static struct intake_item *start(const char *owner, const char *name, const char *body) {
    struct buf b = text(body);
    struct intake_item *i =
        intake_start(intake, &(struct intake_ask){.owner = owner, .body = &b, .max = &max}, on_read,
                     (void *)(uintptr_t)name, &e);
    assert_true(i ? b.data == NULL : b.data != NULL);
    buf_finish(&b);
    return i;
}

#define GOOD "{\"code\":\"export default () => 1\",\"args\":[1,2],\"title\":\"t\"}"

static void on_code(void *ctx, struct run_asked *asked, const struct err *err) {
    *(bool *)ctx = true;
    assert_null(err);
    assert_string_equal(asked->code.spec.data, "{\"args\":[1,2]}");
    assert_string_equal(asked->code.title, "t");
    assert_string_equal(asked->code.main_code, "export default () => 1");
    assert_null(json_object_get(asked->body, "args"));
    run_asked_finish(asked);
}

static void test_a_body_becomes_code(void **state) {
    (void)state;
    struct buf b = text(GOOD);
    bool done = false;
    assert_non_null(intake_start(intake, &(struct intake_ask){.owner = "", .body = &b, .max = &max},
                                 on_code, &done, &e));
    assert_false(done);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_true(done);
}

static void test_owners_take_turns_and_errors_are_told(void **state) {
    (void)state;
    static const char *const names[] = {"a1", "a2", "a3"};
    for (int i = 0; i < 3; i++)
        assert_non_null(start("key_a", names[i], i == 1 ? "{\"code\":" : GOOD));
    assert_non_null(start("key_b", "b1", GOOD));
    assert_non_null(start("key_b", "b2", "{\"code\":1}"));
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_string_equal(told, "a1 b1 a2! b2! a3 ");
}

static void test_so_many_wait_and_a_key_has_its_share(void **state) {
    (void)state;
    size_t share = share_of("key_a", LIMIT_RUN_BODIES);
    assert_true(share < LIMIT_RUN_BODIES);
    for (size_t i = 0; i < share; i++)
        assert_non_null(start("key_a", "a", GOOD));
    assert_null(start("key_a", "a", GOOD));
    assert_int_equal(e.code, ERR_RATE);
    for (size_t i = share; i < LIMIT_RUN_BODIES; i++)
        assert_non_null(start("key_b", "b", GOOD));
    assert_null(start("", "o", GOOD));
    assert_int_equal(e.code, ERR_RATE);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_non_null(start("key_a", "a", GOOD)); /* there is room again */
    (void)uv_run(&loop, UV_RUN_DEFAULT);
}

static void test_who_leaves_is_not_told(void **state) {
    (void)state;
    struct intake_item *read = start("", "read", GOOD);
    struct intake_item *waits = start("", "waits", GOOD);
    assert_non_null(start("", "stays", GOOD));
    intake_cancel(waits);
    intake_cancel(read);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_string_equal(told, "stays ");
}

static void test_an_end_in_the_middle_tells_nobody(void **state) {
    (void)state;
    assert_non_null(start("", "read", GOOD));
    assert_non_null(start("", "waits", GOOD));
    intake_destroy(intake);
    intake = NULL;
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_string_equal(told, "");
}

#define INTAKE_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        INTAKE_TEST(test_a_body_becomes_code),
        INTAKE_TEST(test_owners_take_turns_and_errors_are_told),
        INTAKE_TEST(test_so_many_wait_and_a_key_has_its_share),
        INTAKE_TEST(test_who_leaves_is_not_told),
        INTAKE_TEST(test_an_end_in_the_middle_tells_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
