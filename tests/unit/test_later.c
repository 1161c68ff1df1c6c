#include "loop/later.h"
#include "unit/unit.h"

#include <string.h>

static uv_loop_t loop;
static struct later_queue queue;
static char order[16];
static size_t count;
static bool closed;

struct item {
    struct later later;
    char name;
    struct item *posts;   /* another, when it runs */
    struct item *cancels; /* another, when it runs */
};

static void on_run(void *ctx) {
    struct item *i = ctx;
    if (count < sizeof(order) - 1)
        order[count++] = i->name;
    if (i->posts)
        later_post(&queue, &i->posts->later, on_run, i->posts);
    if (i->cancels)
        later_cancel(&i->cancels->later);
}

static void post(struct item *i) {
    later_post(&queue, &i->later, on_run, i);
}

static void on_closed(uv_handle_t *h) {
    closed = h->data == &order;
}

static int setup(void **state) {
    (void)state;
    count = 0;
    closed = false;
    memset(order, 0, sizeof(order));
    if (uv_loop_init(&loop) != 0)
        return -1;
    later_queue_init(&queue, &loop);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    later_queue_close(&queue, on_closed, &order);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    return closed && uv_loop_close(&loop) == 0 ? 0 : -1;
}

static void items_run_from_the_loop_in_order_and_once(void **state) {
    (void)state;
    struct item a = {.name = 'a'};
    struct item b = {.name = 'b'};
    post(&a);
    post(&b);
    post(&a);
    assert_string_equal(order, "");
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_string_equal(order, "ab");
}

static void an_item_that_posts_itself_lets_the_loop_go_on(void **state) {
    (void)state;
    struct item a = {.name = 'a', .posts = &a};
    post(&a);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    assert_string_equal(order, "aaaa");
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    assert_string_equal(order, "aaaaaaaa");
    later_cancel(&a.later);
}

static void a_cancelled_item_does_not_run(void **state) {
    (void)state;
    struct item c = {.name = 'c'};
    struct item b = {.name = 'b'};
    struct item a = {.name = 'a', .cancels = &c};
    post(&a);
    post(&b);
    post(&c);
    later_cancel(&b.later);
    later_cancel(&b.later);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_string_equal(order, "a");
    post(&b);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_string_equal(order, "ab");
}

static void closing_runs_what_is_left(void **state) {
    (void)state;
    struct later_queue q;
    struct item b = {.name = 'b'};
    struct item a = {.name = 'a'};
    later_queue_init(&q, &loop);
    later_post(&q, &a.later, on_run, &a);
    later_post(&q, &b.later, on_run, &b);
    later_queue_close(&q, on_closed, &order);
    assert_string_equal(order, "ab");
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_true(closed);
}

static struct later_queue *inner;

static void on_close_it(void *ctx) {
    (void)ctx;
    later_queue_close(inner, on_closed, &order);
}

static void a_queue_can_be_closed_by_one_of_its_items(void **state) {
    (void)state;
    struct later_queue q;
    struct later first = {0};
    struct item b = {.name = 'b'};
    inner = &q;
    later_queue_init(&q, &loop);
    later_post(&q, &first, on_close_it, NULL);
    later_post(&q, &b.later, on_run, &b);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_string_equal(order, "b");
    assert_true(closed);
}

static struct later again;

static void on_again(void *ctx) {
    order[count++] = 'n';
    later_post(ctx, &again, on_again, ctx);
}

/* It runs when the loop has looked at its descriptors, so behind what was posted elsewhere, and
 * once in a turn even if it is posted again. */
static void what_is_for_the_next_turn_waits_for_it(void **state) {
    (void)state;
    struct later_queue q;
    struct item b = {.name = 'b'};
    struct item a = {.name = 'a', .posts = &b};
    later_queue_init_next(&q, &loop);
    later_post(&q, &again, on_again, &q);
    post(&a);
    for (int i = 0; i < 3; i++)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    assert_string_equal(order, "abnnn");
    later_cancel(&again);
    (void)uv_run(&loop, UV_RUN_DEFAULT); /* nothing keeps it awake */
    assert_string_equal(order, "abnnn");
    later_queue_close(&q, on_closed, &order);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
}

static void what_goes_last_waits_for_what_is_due(void **state) {
    (void)state;
    struct later_queue q;
    struct item z = {.name = 'z'};
    struct item b = {.name = 'b'};
    struct item a = {.name = 'a', .posts = &b};
    later_queue_init_last(&q, &loop);
    later_post(&q, &z.later, on_run, &z);
    post(&a);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_string_equal(order, "abz");
    later_queue_close(&q, on_closed, &order);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
}

static void what_goes_last_does_not_wait_for_ever(void **state) {
    (void)state;
    struct later_queue q;
    struct item z = {.name = 'z'};
    struct item a = {.name = 'a', .posts = &a};
    later_queue_init_last(&q, &loop);
    later_post(&q, &z.later, on_run, &z);
    post(&a);
    for (int i = 0; i < 3; i++)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    assert_string_equal(order, "aaaaaaaaaaaa");
    count = 0;
    for (int i = 0; i < 2; i++)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    assert_non_null(strchr(order, 'z'));
    later_cancel(&a.later);
    later_queue_close(&q, on_closed, &order);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
}

static struct later_queue second;
static struct later second_item;
static int ran; /* of the second; -1: the loop has slept before */

static void on_second(void *ctx) {
    (void)ctx;
    ran = ran == 0;
}

static void on_first(void *ctx) {
    (void)ctx;
    later_post(&second, &second_item, on_second, NULL);
}

static void on_slept(uv_timer_t *h) {
    (void)h;
    ran = ran == 0 ? -1 : ran;
}

static void the_loop_does_not_sleep_before_what_goes_last(void **state) {
    (void)state;
    struct later_queue first;
    struct later item = {0};
    uv_timer_t timer;
    ran = 0;
    later_queue_init_last(&first, &loop);
    later_queue_init_last(&second, &loop);
    (void)uv_timer_init(&loop, &timer);
    (void)uv_timer_start(&timer, on_slept, 5000, 0);
    later_post(&first, &item, on_first, NULL);
    while (ran == 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
    assert_int_equal(ran, 1);
    /* And then it sleeps: nothing of theirs keeps it awake. */
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    assert_int_not_equal(uv_backend_timeout(&loop), 0);
    uv_close((uv_handle_t *)&timer, NULL);
    later_queue_close(&first, on_closed, &order);
    later_queue_close(&second, on_closed, &order);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(items_run_from_the_loop_in_order_and_once, setup, teardown),
        cmocka_unit_test_setup_teardown(an_item_that_posts_itself_lets_the_loop_go_on, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_cancelled_item_does_not_run, setup, teardown),
        cmocka_unit_test_setup_teardown(closing_runs_what_is_left, setup, teardown),
        cmocka_unit_test_setup_teardown(a_queue_can_be_closed_by_one_of_its_items, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_for_the_next_turn_waits_for_it, setup, teardown),
        cmocka_unit_test_setup_teardown(what_goes_last_waits_for_what_is_due, setup, teardown),
        cmocka_unit_test_setup_teardown(what_goes_last_does_not_wait_for_ever, setup, teardown),
        cmocka_unit_test_setup_teardown(the_loop_does_not_sleep_before_what_goes_last, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
