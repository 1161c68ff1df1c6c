#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "front/run/compiler.h"
#include "loop/keeper.h"
#include "unit/fds.h"
#include "unit/unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uv_loop_t loop;
static int helper;
static size_t before;
static struct compiler *compiler;

/* One compilation of a test, and how it ended. */
struct job {
    struct compiler_ticket *ticket;
    int done;
    char program[64];
    char error[64];
    struct err err;
};

static int setup(void **state) {
    (void)state;
    log_init("test", LOG_LEVEL_OFF);
    before = fds_open();
    const char *path = getenv("COMPILE_HELPER");
    helper = open(path ? path : "", O_PATH | O_CLOEXEC);
    if (helper < 0 || uv_loop_init(&loop) < 0)
        return -1;
    compiler = compiler_create(&(struct compiler_options){
        .loop = &loop, .exec_fd = helper, .cache_bytes = 1 << 20, .timeout_ms = 20000});
    return 0;
}

static void on_stopped(void *ctx) {
    compiler_destroy(ctx);
}

static int teardown(void **state) {
    (void)state;
    keeper_stop(compiler_keeper(compiler), on_stopped, compiler);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    fd_close(&helper);
    return uv_loop_close(&loop) == 0 && fds_open() == before ? 0 : -1;
}

static void on_done(void *ctx, struct program *program, const char *error_json,
                    const struct err *err) {
    struct job *j = ctx;
    j->done++;
    j->ticket = NULL;
    if (program)
        (void)snprintf(j->program, sizeof(j->program), "%.*s", (int)program->len, program->data);
    if (error_json)
        (void)snprintf(j->error, sizeof(j->error), "%s", error_json);
    if (err)
        j->err = *err;
    program_unref(program);
}

/* Returns the program if it was there already. */
static struct program *compile(struct job *j, const char *source) {
    struct program *program = NULL;
    *j = (struct job){0};
    j->ticket = compiler_compile(
        compiler,
        &(struct compiler_request){
            .source = source, .source_len = strlen(source), .done = on_done, .ctx = j},
        &program);
    assert_true((j->ticket == NULL) == (program != NULL));
    assert_int_equal(j->done, 0);
    return program;
}

static void finish(const struct job *j) {
    int64_t end = clock_mono_ms() + 20000;
    while (j->done == 0 && clock_mono_ms() < end)
        (void)uv_run(&loop, UV_RUN_ONCE);
    assert_int_equal(j->done, 1);
}

static void test_a_program_comes_from_the_loop_and_then_from_the_cache(void **state) {
    (void)state;
    struct job j;
    assert_null(compile(&j, "a 1"));
    finish(&j);
    assert_string_equal(j.program, "a");
    struct program *hit = compile(&j, "a 1");
    assert_non_null(hit);
    assert_memory_equal(hit->data, "a", 1);
    program_unref(hit);
    for (int i = 0; i < 5; i++)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    assert_int_equal(j.done, 0);
    assert_int_equal(compiler_stats(compiler).hits, 1);
    assert_int_equal(compiler_stats(compiler).misses, 1);
}

static void test_what_does_not_compile_says_why_and_is_not_kept(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct job j;
        assert_null(compile(&j, "wrong"));
        finish(&j);
        assert_string_equal(j.program, "");
        assert_non_null(strstr(j.error, "SyntaxError"));
        assert_int_equal(j.err.code, ERR_BAD_REQUEST);
    }
}

static void test_what_is_cancelled_is_not_called_back(void **state) {
    (void)state;
    struct job j;
    struct job next;
    assert_null(compile(&j, "a 1"));
    compiler_cancel(j.ticket);
    assert_null(compile(&next, "b 1"));
    finish(&next);
    assert_int_equal(j.done, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(test_a_program_comes_from_the_loop_and_then_from_the_cache),
        UNIT(test_what_does_not_compile_says_why_and_is_not_kept),
        UNIT(test_what_is_cancelled_is_not_called_back),
    };
    /* The first loop of a process opens descriptors that stay. */
    (void)uv_loop_init(&loop);
    (void)uv_loop_close(&loop);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
