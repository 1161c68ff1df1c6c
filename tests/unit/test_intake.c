#include "base/limits.h"
#include "base/mem.h"
#include "front/common/intake.h"
#include "front/common/share.h"
#include "front/run/ask.h"
#include "unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a thread does for the loop: in which order, for how many, and of who leaves. */

static uv_loop_t loop;
static struct intake *intake;
static char told[1024]; /* names of those that were told, "-" after one that was freed instead */
static struct err e;

static int setup(void **state) {
    (void)state;
    told[0] = 0;
    intake = intake_create(&loop);
    return uv_loop_init(&loop);
}

static int teardown(void **state) {
    (void)state;
    intake_destroy(intake);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop);
}

struct piece {
    const char *name;
    bool worked;
};

static void tell(struct piece *p, const char *how) {
    size_t n = strlen(told);
    (void)snprintf(told + n, sizeof(told) - n, "%s%s ", p->name, how);
    free(p);
}

static void work(void *ctx) {
    ((struct piece *)ctx)->worked = true;
}

static void on_done(void *ctx) {
    assert_true(((struct piece *)ctx)->worked);
    tell(ctx, "");
}

static void on_free(void *ctx) {
    tell(ctx, "-");
}

static struct intake_item *start_with(const char *owner, const char *name, size_t bytes,
                                      bool waits) {
    struct piece *p = xcalloc(1, sizeof(*p));
    p->name = name;
    size_t n = strlen(told);
    struct intake_item *i = intake_start(intake,
                                         &(struct intake_ask){.owner = owner,
                                                              .bytes = bytes,
                                                              .waits = waits,
                                                              .work = work,
                                                              .on_done = on_done,
                                                              .free = on_free,
                                                              .ctx = p},
                                         &e);
    assert_int_equal(strlen(told), n); /* nobody is told inside the call */
    if (!i)
        free(p);
    return i;
}

static struct intake_item *start(const char *owner, const char *name) {
    return start_with(owner, name, 1, false);
}

static void test_owners_take_turns(void **state) {
    (void)state;
    static const char *const names[] = {"a1", "a2", "a3"};
    for (int i = 0; i < 3; i++)
        assert_non_null(start("key_a", names[i]));
    assert_non_null(start("key_b", "b1"));
    assert_non_null(start("key_b", "b2"));
    assert_non_null(start("key_c", "c1")); /* the last to come waits for one of each */
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_string_equal(told, "a1 b1 c1 a2 b2 a3 ");
}

static void test_so_many_wait_and_a_key_has_its_share(void **state) {
    (void)state;
    size_t share = share_of("key_a", LIMIT_READ_BODIES);
    assert_true(share < LIMIT_READ_BODIES);
    for (size_t i = 0; i < share; i++)
        assert_non_null(start("key_a", ""));
    assert_null(start("key_a", ""));
    assert_int_equal(e.code, ERR_RATE);
    for (size_t i = share; i < LIMIT_READ_BODIES; i++)
        assert_non_null(start("key_b", ""));
    assert_null(start("", ""));
    assert_int_equal(e.code, ERR_RATE);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_non_null(start("key_a", "")); /* there is room again */
    (void)uv_run(&loop, UV_RUN_DEFAULT);
}

static void test_so_many_bytes_wait_and_a_key_has_its_share(void **state) {
    (void)state;
    size_t share = share_of("key_a", LIMIT_READ_BYTES);
    assert_non_null(start_with("key_a", "a", share - 1, false));
    assert_non_null(start_with("key_a", "a", 1, false));
    assert_null(start_with("key_a", "a", 1, false));
    assert_int_equal(e.code, ERR_RATE);
    assert_non_null(start_with("key_b", "b", LIMIT_READ_BYTES - share, false));
    assert_null(start_with("key_c", "c", 1, false));
    assert_int_equal(e.code, ERR_RATE);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_string_equal(told, "a b a ");
    assert_non_null(start_with("key_a", "large", LIMIT_READ_BYTES * 2UL, false)); /* alone */
    (void)uv_run(&loop, UV_RUN_DEFAULT);
}

static void test_who_waits_by_himself_is_not_refused_and_takes_no_place(void **state) {
    (void)state;
    for (size_t i = 0; i < LIMIT_READ_BODIES; i++)
        assert_non_null(start("", ""));
    assert_non_null(start_with("key_a", "w", LIMIT_READ_BYTES, true));
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_non_null(strstr(told, "w "));
    assert_non_null(start_with("key_a", "w", LIMIT_READ_BYTES, true));
    assert_non_null(start_with("", "", 2, false));
    assert_non_null(start_with("", "", 2, false));
    (void)uv_run(&loop, UV_RUN_DEFAULT);
}

static void test_who_leaves_is_not_told(void **state) {
    (void)state;
    struct intake_item *read = start("", "read");
    struct intake_item *waits = start("", "waits");
    assert_non_null(start("", "stays"));
    intake_cancel(waits);
    intake_cancel(read);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_string_equal(told, "waits- read- stays ");
}

static void test_an_end_in_the_middle_tells_nobody(void **state) {
    (void)state;
    assert_non_null(start("", "read"));
    assert_non_null(start("", "waits"));
    intake_destroy(intake);
    intake = NULL;
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_string_equal(told, "waits- read- ");
}

static void free_tree(void *p) {
    json_decref(p);
}

static void test_what_others_hold_stays_when_the_rest_is_disposed_of(void **state) {
    (void)state;
    json_t *tree = json_pack("{s:[i,i],s:s}", "kept", 1, 2, "gone", "x");
    json_t *kept = json_incref(json_object_get(tree, "kept"));
    intake_dispose(intake, free_tree, tree);
    intake_destroy(intake);
    intake = NULL;
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(json_array_size(kept), 2);
    json_decref(kept);
    intake_dispose(NULL, free_tree, json_object());
}

#define GOOD "{\"code\":\"export default () => 1\",\"args\":[1,2],\"title\":\"t\"}"

static void test_a_body_becomes_code(void **state) {
    (void)state;
    struct run_limits max = runner_config_default().limits;
    struct run_asked *asked;
    assert_int_equal(run_ask_read(GOOD, strlen(GOOD), &max, &asked, &e), 0);
    assert_string_equal(asked->code.spec.data, "{\"args\":[1,2]}");
    assert_string_equal(asked->code.title, "t");
    assert_string_equal(asked->code.main_code, "export default () => 1");
    assert_null(json_object_get(asked->body, "args"));
    run_asked_destroy(asked);
}

#define INTAKE_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        INTAKE_TEST(test_owners_take_turns),
        INTAKE_TEST(test_so_many_wait_and_a_key_has_its_share),
        INTAKE_TEST(test_so_many_bytes_wait_and_a_key_has_its_share),
        INTAKE_TEST(test_who_waits_by_himself_is_not_refused_and_takes_no_place),
        INTAKE_TEST(test_who_leaves_is_not_told),
        INTAKE_TEST(test_an_end_in_the_middle_tells_nobody),
        INTAKE_TEST(test_what_others_hold_stays_when_the_rest_is_disposed_of),
        INTAKE_TEST(test_a_body_becomes_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
