/* What the front does with an init that breaks the contract: it never uses what it was given, and
 * ends the sandbox.
 *
 *   test-contract EVIL-LAUNCHER */

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "front/sandbox/launcher.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { DEADLINE_MS = 60000, ANSWER_MS = 200 };

static int program;
static uv_loop_t loop;
static struct sandbox_launcher *host;

struct seen {
    bool ready, over, asked, answered, started, ended;
    struct err err, answer;
    struct sandbox_exit exit;
};

static void on_ready(void *ctx, int listener) {
    struct seen *s = ctx;
    s->ready = true;
    assert_int_equal(listener, -1);
}

static void on_failed(void *ctx, const struct err *err) {
    struct seen *s = ctx;
    s->over = true;
    s->err = *err;
}

static void on_exited(void *ctx, const struct sandbox_stats *stats, const struct err *err) {
    struct seen *s = ctx;
    (void)stats;
    s->over = true;
    if (err)
        s->err = *err;
}

static void on_answer(void *ctx, struct sandbox_reply *reply, const struct err *err) {
    struct seen *s = ctx;
    s->answered = true;
    assert_true(!reply == !!err);
    if (err)
        s->answer = *err;
}

static void on_started(void *ctx) {
    struct seen *s = ctx;
    s->started = true;
}

static void on_output(void *ctx, int stream, const char *data, size_t len) {
    (void)ctx;
    (void)stream;
    (void)data;
    (void)len;
}

static void on_job_end(void *ctx, const struct sandbox_exit *status, const struct err *err) {
    struct seen *s = ctx;
    s->answered = true;
    if (err)
        s->answer = *err;
    if (status)
        s->exit = *status;
}

static void on_wake(uv_timer_t *t) {
    (void)t;
}

static void on_late(uv_timer_t *t) {
    *(bool *)t->data = true;
}

static void turn(const bool *a, const bool *b) {
    int64_t end = clock_mono_ms() + DEADLINE_MS;
    uv_timer_t tick;
    (void)uv_timer_init(&loop, &tick);
    (void)uv_timer_start(&tick, on_wake, 100, 100);
    while (!*a && !*b && clock_mono_ms() < end)
        (void)uv_run(&loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&tick, NULL);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    assert_true(*a || *b);
}

static int setup(void **state) {
    (void)state;
    struct sandbox_config config = {.max = 4, .state_dir = (char *)""};
    (void)uv_loop_init(&loop);
    host = sandbox_launcher_create(&(struct sandbox_launcher_options){
        .loop = &loop, .exec_fd = program, .starter = -1, .config = &config});
    return 0;
}

static int teardown(void **state) {
    (void)state;
    sandbox_launcher_stop(host, NULL, NULL);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop);
}

static struct sandbox_box *make(struct seen *s, const char *how) {
    static const struct sandbox_box_callbacks callbacks = {
        .on_ready = on_ready, .on_failed = on_failed, .on_exited = on_exited};
    struct sandbox_spec spec = {.id = (char *)(uintptr_t)how};
    struct err err;
    *s = (struct seen){0};
    struct sandbox_box *b = sandbox_box_create(host, &spec, NULL, &callbacks, s, &err);
    assert_non_null(b);
    turn(&s->ready, &s->over);
    return b;
}

static void must_break(const char *how, struct seen *s) {
    turn(&s->over, &s->over);
    if (s->err.code != ERR_PROTOCOL)
        fail_msg("%s: %s", how, s->err.message);
}

static void greetings_that_are_none(void **state) {
    (void)state;
    static const char *const how[] = {"ready-with-file", "ready-with-socket", "no-greeting", "junk",
                                      "unasked"};
    for (size_t i = 0; i < ARRAY_LEN(how); i++) {
        struct seen s;
        (void)make(&s, how[i]);
        must_break(how[i], &s);
    }
}

static void files_that_are_none(void **state) {
    (void)state;
    static const char *const how[] = {"file-none", "file-proc", "file-dir",
                                      "file-null", "kind",      "wrong-type"};
    for (size_t i = 0; i < ARRAY_LEN(how); i++) {
        struct seen s;
        struct sandbox_box *b = make(&s, how[i]);
        assert_non_null(sandbox_box_read(b, "/x", on_answer, &s));
        must_break(how[i], &s);
        assert_true(s.answered);
        assert_int_equal(s.answer.code, ERR_PROTOCOL);
    }
    struct seen s; /* the same, without a lie */
    struct sandbox_box *b = make(&s, "honest");
    assert_non_null(sandbox_box_read(b, "/x", on_answer, &s));
    turn(&s.answered, &s.over);
    assert_int_equal(s.answer.code, 0);
    sandbox_box_destroy(b);
    turn(&s.over, &s.over);
    assert_int_equal(s.err.code, 0);
}

static void sockets_and_lists_that_are_none(void **state) {
    (void)state;
    struct seen s;
    struct sandbox_box *b = make(&s, "port-unix");
    assert_non_null(sandbox_box_port(b, 80, on_answer, &s));
    must_break("port-unix", &s);
    static const char *const how[] = {"entries-many", "entries-up", "entries-slash"};
    for (size_t i = 0; i < ARRAY_LEN(how); i++) {
        b = make(&s, how[i]);
        assert_non_null(sandbox_box_list(b, "/", 0, on_answer, &s));
        must_break(how[i], &s);
        assert_int_equal(s.answer.code, ERR_PROTOCOL);
    }
}

static void commands_that_end_as_none_can(void **state) {
    (void)state;
    static const char *const how[] = {"exit-code", "exit-first", "twice", "tty-null"};
    for (size_t i = 0; i < ARRAY_LEN(how); i++) {
        struct seen s;
        struct err err;
        char *argv[] = {(char *)"x", NULL};
        struct sandbox_exec e = {.argv = {argv, 1}, .tty = strcmp(how[i], "tty-null") == 0};
        struct sandbox_box *b = make(&s, how[i]);
        assert_non_null(
            sandbox_command_start(b,
                                  &(struct sandbox_command_options){
                                      .exec = &e,
                                      .callbacks = {.on_output = on_output, .on_exit = on_job_end},
                                      .ctx = &s},
                                  &err));
        must_break(how[i], &s);
        assert_true(s.answered);
        assert_int_equal(s.answer.code, ERR_PROTOCOL);
    }
}

/* It shares the terminal's open file, and with it the flag that keeps us from waiting. */
static void a_terminal_that_is_made_to_block_holds_up_nobody(void **state) {
    (void)state;
    struct seen s;
    struct err err;
    static char text[SANDBOX_INPUT_MAX];
    char *argv[] = {(char *)"x", NULL};
    struct sandbox_exec e = {.argv = {argv, 1}, .tty = true};
    struct sandbox_box *b = make(&s, "tty-blocks");
    struct sandbox_command *j = sandbox_command_start(
        b,
        &(struct sandbox_command_options){
            .exec = &e,
            .callbacks = {.on_started = on_started, .on_output = on_output, .on_exit = on_job_end},
            .ctx = &s},
        &err);
    assert_non_null(j);
    turn(&s.started, &s.over);
    /* Its answer comes when it has undone the flag. */
    assert_non_null(sandbox_box_read(b, "/x", on_answer, &s));
    turn(&s.answered, &s.over);
    (void)alarm(DEADLINE_MS / 1000); /* ends the test if it blocks */
    assert_true(sandbox_command_write(j, text, sizeof(text)));
    for (int i = 0; i < 50; i++)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    (void)alarm(0);
    assert_true(sandbox_command_input_queued(j) > 0);
    assert_true(sandbox_command_input_queued(j) < sizeof(text));
    sandbox_box_destroy(b);
    turn(&s.over, &s.over);
}

static void on_paused_end(void *ctx, const struct sandbox_exit *status, const struct err *err) {
    struct seen *s = ctx;
    assert_non_null(status);
    assert_null(err);
    s->ended = true;
}

/* Who has an end of a pipe can open it: the rest that is waited for may never come. */
static void output_that_somebody_else_reads_is_not_waited_for(void **state) {
    (void)state;
    static struct seen s; /* outlives the test if that fails */
    struct err err;
    char *argv[] = {(char *)"x", NULL};
    struct sandbox_exec e = {.argv = {argv, 1}};
    struct sandbox_box *b = make(&s, "thief");
    struct sandbox_command *j = sandbox_command_start(
        b,
        &(struct sandbox_command_options){
            .exec = &e, .callbacks = {.on_output = on_output, .on_exit = on_paused_end}, .ctx = &s},
        &err);
    assert_non_null(j);
    sandbox_command_pause(j, true);
    for (int i = 0; i < 2;
         i++) { /* the end is known with the first answer, the theft done with the second */
        s.answered = false;
        assert_non_null(sandbox_box_read(b, "/x", on_answer, &s));
        turn(&s.answered, &s.over);
    }
    assert_false(s.ended);
    sandbox_command_pause(j, false);
    turn(&s.ended, &s.over);
    assert_true(s.ended);
    sandbox_box_destroy(b);
    turn(&s.over, &s.over);
}

static struct sandbox_call *ask_for(struct sandbox_box *b, int what, struct seen *s) {
    struct sandbox_put put = {.path = "/x", .data = "x", .len = 1, .fd = -1};
    switch (what) {
    case 0:
        return sandbox_box_read(b, "/x", on_answer, s);
    case 1:
        return sandbox_box_write(b, &put, on_answer, s);
    case 2:
        return sandbox_box_stat(b, "/x", true, on_answer, s);
    case 3:
        return sandbox_box_list(b, "/x", 0, on_answer, s);
    case 4:
        return sandbox_box_mkdir(b, "/x", 0755, true, on_answer, s);
    case 5:
        return sandbox_box_move(b, "/x", "/y", on_answer, s);
    case 6:
        return sandbox_box_delete(b, "/x", true, on_answer, s);
    case 7:
        return sandbox_box_port(b, 80, on_answer, s);
    case 8:
        return sandbox_box_signal(b, NULL, SIGTERM, true, on_answer, s);
    default:
        return NULL;
    }
}

static void must_be_ended(struct seen *s, int what) {
    turn(&s->over, &s->over);
    if (s->err.code != ERR_TIMEOUT || !strstr(s->err.message, "did not answer"))
        fail_msg("%d: %s", what, s->err.message);
}

/* It has all the time to be made, and little for what it is asked. */
static struct sandbox_box *make_silent(struct seen *s) {
    sandbox_launcher_answer_within(host, DEADLINE_MS);
    struct sandbox_box *b = make(s, "silent");
    sandbox_launcher_answer_within(host, ANSWER_MS);
    return b;
}

/* Whatever was asked for: its answer comes in time, or the sandbox ends and says why. */
static void an_init_that_does_not_answer_is_ended(void **state) {
    (void)state;
    struct seen s;
    for (int what = 0; what < 9; what++) {
        struct sandbox_box *b = make_silent(&s);
        assert_non_null(ask_for(b, what, &s));
        must_be_ended(&s, what);
        assert_true(s.answered);
        assert_int_equal(s.answer.code, ERR_TIMEOUT);
    }
    char *argv[] = {(char *)"x", NULL};
    struct sandbox_exec e = {.argv = {argv, 1}};
    struct err err;
    struct sandbox_box *b = make_silent(&s);
    assert_non_null(sandbox_command_start(
        b,
        &(struct sandbox_command_options){
            .exec = &e, .callbacks = {.on_output = on_output, .on_exit = on_job_end}, .ctx = &s},
        &err));
    must_be_ended(&s, 9);
    assert_int_equal(s.answer.code, ERR_TIMEOUT);
    static const struct sandbox_box_callbacks callbacks = {
        .on_ready = on_ready, .on_failed = on_failed, .on_exited = on_exited};
    struct sandbox_spec spec = {.id = (char *)"mute"}; /* not even a greeting */
    s = (struct seen){0};
    assert_non_null(sandbox_box_create(host, &spec, NULL, &callbacks, &s, &err));
    must_be_ended(&s, 10);
    assert_false(s.ready);
}

/* A frozen one cannot answer; this one does all the same. */
static void an_init_that_is_frozen_or_has_answered_is_left_alone(void **state) {
    (void)state;
    struct seen s;
    struct sandbox_box *b = make(&s, "honest");
    sandbox_launcher_answer_within(host, ANSWER_MS);
    assert_non_null(sandbox_box_pause(b, NULL, NULL));
    assert_non_null(sandbox_box_read(b, "/x", on_answer, &s));
    turn(&s.answered, &s.over);
    assert_non_null(sandbox_box_resume(b, NULL, NULL));
    bool late = false;
    uv_timer_t t;
    (void)uv_timer_init(&loop, &t);
    t.data = &late;
    (void)uv_timer_start(&t, on_late, 3 * ANSWER_MS, 0);
    turn(&late, &s.over);
    assert_false(s.over);
    sandbox_box_destroy(b);
    turn(&s.over, &s.over);
    b = make_silent(&s);
    assert_non_null(sandbox_box_pause(b, NULL, NULL));
    assert_non_null(ask_for(b, 2, &s));
    late = false;
    (void)uv_timer_start(&t, on_late, 3 * ANSWER_MS, 0);
    turn(&late, &s.over);
    assert_false(s.over);
    assert_non_null(sandbox_box_resume(b, NULL, NULL));
    must_be_ended(&s, 0);
    uv_close((uv_handle_t *)&t, NULL);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
}

/* "You are not known here" is for us to say, to clients of ours. */
static void errors_have_codes_for_guests(void **state) {
    (void)state;
    struct seen s;
    struct sandbox_box *b = make(&s, "error-code");
    assert_non_null(sandbox_box_read(b, "/x", on_answer, &s));
    turn(&s.answered, &s.over);
    assert_int_equal(s.answer.code, ERR_IO);
    sandbox_box_destroy(b);
    turn(&s.over, &s.over);
}

static void why_it_failed_is_heard_though_its_end_comes_first(void **state) {
    (void)state;
    static const struct sandbox_box_callbacks callbacks = {
        .on_ready = on_ready, .on_failed = on_failed, .on_exited = on_exited};
    struct seen first;
    sandbox_box_destroy(make(&first, "fine")); /* it listens */
    turn(&first.over, &first.over);
    struct sandbox_spec spec = {.id = (char *)"fail-at-once"};
    struct seen s = {0};
    struct err err;
    assert_non_null(sandbox_box_create(host, &spec, NULL, &callbacks, &s, &err));
    (void)usleep(200000); /* so that all of it is there */
    turn(&s.over, &s.over);
    assert_string_equal(s.err.message, "for a reason");
}

int main(int argc, char **argv) {
    if (argc < 2)
        return 2;
    log_init("test", LOG_LEVEL_OFF);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignore, NULL);
    program = open(argv[1], O_PATH | O_CLOEXEC);
    if (program < 0)
        return 2;
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(greetings_that_are_none),
        T(files_that_are_none),
        T(sockets_and_lists_that_are_none),
        T(commands_that_end_as_none_can),
        T(errors_have_codes_for_guests),
        T(why_it_failed_is_heard_though_its_end_comes_first),
        T(a_terminal_that_is_made_to_block_holds_up_nobody),
        T(output_that_somebody_else_reads_is_not_waited_for),
        T(an_init_that_does_not_answer_is_ended),
        T(an_init_that_is_frozen_or_has_answered_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
