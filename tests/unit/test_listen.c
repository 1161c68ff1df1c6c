#include "base/cleanup.h"
#include "base/mem.h"
#include "front/agent/history_queue.h"
#include "front/agent/internal.h"
#include "unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Who hears what of an instance, and when: what is large is told to one after the other, and nobody
 * hears anything twice, or before what happened earlier. */

enum { N = 9, LARGE = 300 << 10 };

static uv_loop_t loop;
static struct agents agents;
static struct agent a;
static struct agent_listener listeners[N];
static char heard[N][64]; /* "S" a state, "c1" a chunk */

static void put_down(char *to, const char *what) {
    size_t n = strlen(to);
    (void)snprintf(to + n, sizeof(heard[0]) - n, "%s", what);
}

static void on_state(void *ctx, json_t *text) {
    (void)text;
    put_down(ctx, "S");
}

static void on_chunk(void *ctx, const char *turn, size_t seq, const char *json, size_t len) {
    char text[24];
    (void)turn;
    (void)json;
    (void)len;
    (void)snprintf(text, sizeof(text), "c%zu", seq);
    put_down(ctx, text);
}

static const struct agent_events events = {.on_state = on_state, .on_chunk = on_chunk};

static json_t *text_of(size_t len) {
    _cleanup_(free) char *text = xmalloc(len);
    memset(text, 'x', len);
    return json_stringn(text, len);
}

static int setup(void **state) {
    (void)state;
    memset(heard, 0, sizeof(heard));
    memset(listeners, 0, sizeof(listeners));
    a = (struct agent){.agents = &agents, .state = text_of(LARGE)};
    (void)uv_loop_init(&loop);
    later_queue_init(&agents.later, &loop);
    agents.histories = histories_create(&loop);
    for (size_t i = 0; i < N; i++) {
        listeners[i] = (struct agent_listener){.events = &events, .ctx = heard[i]};
        agent_listen(&a, &listeners[i]);
    }
    return 0;
}

static int teardown(void **state) {
    (void)state;
    agent_tell_now(&a);
    while (a.listeners)
        agent_unlisten(a.listeners);
    histories_close(agents.histories);
    later_queue_close(&agents.later, NULL, NULL);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    json_decref(a.state);
    return uv_loop_close(&loop);
}

static size_t count(const char *what) {
    size_t n = 0;
    for (size_t i = 0; i < N; i++)
        n += strcmp(heard[i], what) == 0;
    return n;
}

static void turn_until_told(void) {
    while (a.notices)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
}

static void test_what_is_large_is_told_over_turns_of_the_loop(void **state) {
    (void)state;
    agent_tell_state(&a, &listeners[3]);
    assert_int_equal(count(""), N); /* from the loop */
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    assert_in_range(count("S"), 1, N - 3);
    turn_until_told();
    assert_int_equal(count("S"), N - 1);
    assert_string_equal(heard[3], "");
}

static void test_what_is_small_is_told_at_once(void **state) {
    (void)state;
    json_decref(a.state);
    a.state = text_of(100);
    agent_tell_state(&a, NULL);
    agent_tell_chunk(&a, "t", 1, "x", 1);
    assert_int_equal(count("Sc1"), N);
}

static void test_a_chunk_waits_for_what_came_before_it(void **state) {
    (void)state;
    listeners[2].waiting = true;
    agent_tell_state(&a, NULL);
    agent_tell_chunk(&a, "t", 1, "x", 1);
    assert_int_equal(count("c1"), 0);
    agent_tell_chunk(&a, "t", 2, "x", 1);
    turn_until_told();
    assert_int_equal(count("Sc1c2"), N - 1);
    assert_string_equal(heard[2], "S");
}

/* It reads the whole stream of the turn now, in which those chunks are. */
static void test_who_catches_up_hears_no_chunk_twice(void **state) {
    (void)state;
    listeners[2].waiting = true;
    agent_tell_state(&a, NULL);
    agent_tell_chunk(&a, "t", 1, "x", 1);
    agent_catch_up(&listeners[2]);
    listeners[2].waiting = false;
    assert_string_equal(heard[2], "S");
    turn_until_told();
    assert_string_equal(heard[2], "S");
    agent_tell_chunk(&a, "t", 2, "x", 1);
    assert_string_equal(heard[2], "Sc2");
    assert_int_equal(count("Sc1c2"), N - 1);
}

static void test_who_comes_or_leaves_meanwhile(void **state) {
    (void)state;
    agent_unlisten(&listeners[0]);
    agent_tell_state(&a, NULL);
    agent_listen(&a, &listeners[0]); /* it is greeted in another way */
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    for (size_t i = 1; i < N; i++)
        if (!*heard[i])
            agent_unlisten(&listeners[i]);
    turn_until_told();
    assert_string_equal(heard[0], "");
    assert_in_range(count("S"), 1, N - 3);
    agent_tell_chunk(&a, "t", 1, "x", 1);
    assert_string_equal(heard[0], "c1");
}

/* Megabytes that come faster than they are told are not kept for everybody. */
static void test_how_much_is_kept_is_bounded(void **state) {
    (void)state;
    for (int i = 0; i < 9; i++)
        agent_tell_state(&a, NULL);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    assert_null(a.notices);
    assert_int_equal(count("SSSSSSSSS"), N);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(test_what_is_large_is_told_over_turns_of_the_loop),
        UNIT(test_what_is_small_is_told_at_once),
        UNIT(test_a_chunk_waits_for_what_came_before_it),
        UNIT(test_who_catches_up_hears_no_chunk_twice),
        UNIT(test_who_comes_or_leaves_meanwhile),
        UNIT(test_how_much_is_kept_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
