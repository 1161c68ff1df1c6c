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

enum { SMALL_BYTES = 1000, WAITING_BYTES = 400000 };

static uv_loop_t loop;
static int helper;
static size_t before;
static struct compiler *compiler;
static int finished;
static unsigned restarts;
static unsigned processes;

/* One compilation of a test, and how it ended. */
struct job {
    struct compiler_ticket *ticket;
    int done;
    int place; /* among those that finished */
    char program[64];
    char error[64];
    struct err err;
};

static void begin(const char *path, unsigned timeout_ms) {
    helper = open(path ? path : "", O_PATH | O_CLOEXEC);
    assert_true(helper >= 0);
    compiler = compiler_create(&(struct compiler_options){.loop = &loop,
                                                          .exec_fd = helper,
                                                          .cache_bytes = 1 << 20,
                                                          .small_bytes = SMALL_BYTES,
                                                          .small_cpu_ms = 20,
                                                          .cpu_ms = 40,
                                                          .timeout_ms = timeout_ms,
                                                          .idle_ms = 1500,
                                                          .waiting_bytes = WAITING_BYTES});
}

static int setup(void **state) {
    (void)state;
    log_init("test", LOG_LEVEL_OFF);
    before = fds_open();
    finished = 0;
    if (uv_loop_init(&loop) < 0)
        return -1;
    begin(getenv("COMPILE_HELPER"), 20000);
    return 0;
}

static void on_stopped(void *ctx) {
    compiler_destroy(ctx);
}

static void end(void) {
    compiler_stop(compiler, on_stopped, compiler);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    fd_close(&helper);
}

static int teardown(void **state) {
    (void)state;
    end();
    return uv_loop_close(&loop) == 0 && fds_open() == before ? 0 : -1;
}

static void on_done(void *ctx, struct program *program, const char *error_json,
                    const struct err *err) {
    struct job *j = ctx;
    assert_true((program == NULL) == (err != NULL));
    j->done++;
    j->place = ++finished;
    j->ticket = NULL;
    if (program)
        (void)snprintf(j->program, sizeof(j->program), "%.*s", (int)program->len, program->data);
    if (error_json)
        (void)snprintf(j->error, sizeof(j->error), "%s", error_json);
    if (err)
        j->err = *err;
    program_unref(program);
}

/* "word n" filled up to a length. Returns the program if it was there already. */
static struct program *compile_as(struct job *j, const char *owner, const char *word, int n,
                                  size_t len) {
    struct program *program = NULL;
    char *source = xmalloc(len + 64);
    int used = snprintf(source, 64, "%s %d ", word, n);
    if (len > (size_t)used)
        memset(source + used, '.', len - (size_t)used);
    *j = (struct job){0};
    j->ticket = compiler_compile(
        compiler,
        &(struct compiler_request){.source = source,
                                   .source_len = len > (size_t)used ? len : (size_t)used,
                                   .owner = owner,
                                   .done = on_done,
                                   .ctx = j},
        &program);
    free(source);
    assert_true((j->ticket == NULL) == (program != NULL));
    assert_int_equal(j->done, 0);
    return program;
}

static void compile(struct job *j, const char *word, int n) {
    assert_null(compile_as(j, "", word, n, 0));
}

static void compile_large(struct job *j, const char *word, int n) {
    assert_null(compile_as(j, "", word, n, SMALL_BYTES + 1));
}

static void finish(const struct job *j) {
    int64_t until = clock_mono_ms() + 100000;
    while (j->done == 0 && clock_mono_ms() < until)
        (void)uv_run(&loop, UV_RUN_ONCE);
    assert_int_equal(j->done, 1);
}

static void count_child(void *ctx, const struct keeper_info *info) {
    (void)ctx;
    processes++;
    restarts += info->restarts;
}

static void count_children(void) {
    processes = restarts = 0;
    compiler_children(compiler, count_child, NULL);
}

static void test_a_program_comes_from_the_loop_and_then_from_the_cache(void **state) {
    (void)state;
    struct job j;
    compile(&j, "a", 1);
    finish(&j);
    assert_string_equal(j.program, "a");
    struct program *hit = compile_as(&j, "", "a", 1, 0);
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
        compile(&j, "wrong", 1);
        finish(&j);
        assert_string_equal(j.program, "");
        assert_non_null(strstr(j.error, "SyntaxError"));
        assert_int_equal(j.err.code, ERR_BAD_REQUEST);
    }
}

static void test_what_is_cancelled_is_not_called_back(void **state) {
    (void)state;
    struct job sent;
    struct job waiting;
    struct job settled;
    struct job next;
    compile(&next, "a", 1);
    finish(&next);
    compile(&sent, "slow", 1);
    compile(&waiting, "b", 1);
    assert_null(compile_as(&settled, "", "c", 1, WAITING_BYTES));
    compiler_cancel(sent.ticket);
    compiler_cancel(waiting.ticket);
    compiler_cancel(settled.ticket);
    compiler_cancel(NULL);
    /* Of another key: what this one may have wait is used up until the loop turns. */
    assert_null(compile_as(&next, "other", "d", 1, 0));
    finish(&next);
    assert_string_equal(next.program, "d"); /* behind "slow", which has been answered then */
    assert_int_equal(sent.done + waiting.done + settled.done, 0);
    /* What was compiled all the same is there, what had not begun is not. */
    struct program *hit = compile_as(&sent, "", "slow", 1, 0);
    assert_non_null(hit);
    program_unref(hit);
    compile(&waiting, "b", 1);
    finish(&waiting);
}

static void test_the_same_program_is_compiled_once(void **state) {
    (void)state;
    struct job first;
    struct job same[4];
    struct job other;
    compile(&first, "slow", 1);
    for (int i = 0; i < 4; i++)
        compile(&same[i], "count", 1);
    compile(&other, "count", 2);
    for (int i = 0; i < 4; i++) {
        finish(&same[i]);
        assert_string_equal(same[i].program, "2");
    }
    finish(&other);
    assert_string_equal(other.program, "3");
}

static void test_small_programs_do_not_wait_for_large_ones(void **state) {
    (void)state;
    struct job large;
    struct job small;
    count_children();
    assert_int_equal(processes, 1); /* the second comes when it is needed */
    compile_large(&large, "sleep", 1);
    for (int i = 0; i < 20; i++) {
        compile(&small, "a", i);
        finish(&small);
        assert_string_equal(small.program, "a");
    }
    assert_int_equal(large.done, 0);
    count_children();
    assert_int_equal(processes, 2);
}

static void test_the_process_for_large_programs_goes_when_it_has_nothing_to_do(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct job large;
        compile_large(&large, "a", i);
        finish(&large);
        assert_string_equal(large.program, "a@large");
        count_children();
        assert_int_equal(processes, 2);
        int64_t until = clock_mono_ms() + 60000;
        while (processes > 1 && clock_mono_ms() < until) {
            (void)uv_run(&loop, UV_RUN_ONCE);
            count_children();
        }
        assert_int_equal(processes, 1);
    }
}

static void test_keys_take_turns(void **state) {
    (void)state;
    struct job first;
    struct job greedy[20];
    struct job modest[2];
    compile(&first, "a", 100);
    finish(&first);
    finished = 0;
    assert_null(compile_as(&first, "greedy", "slow", 0, 0));
    for (int i = 0; i < 20; i++)
        assert_null(compile_as(&greedy[i], "greedy", "a", i, 0));
    for (int i = 0; i < 2; i++)
        assert_null(compile_as(&modest[i], "modest", "b", i, 0));
    finish(&greedy[19]);
    assert_int_equal(first.place, 1);
    assert_int_equal(modest[0].place, 3);
    assert_int_equal(modest[1].place, 5);
    assert_int_equal(greedy[19].place, 23);
}

static void test_a_key_cannot_cut_in_by_coming_back(void **state) {
    (void)state;
    struct job first;
    struct job patient[3];
    struct job again;
    assert_null(compile_as(&first, "x", "slow", 0, 0));
    for (int i = 0; i < 3; i++)
        assert_null(compile_as(&patient[i], "patient", "a", i, 0));
    /* Whoever always comes anew is behind those who wait, each time. */
    for (int i = 0; i < 3; i++) {
        assert_null(compile_as(&again, "again", "b", i, 0));
        finish(&again);
        assert_int_equal(patient[i].done, 1);
    }
}

static void test_a_small_program_that_is_slow_moves_to_the_large_ones(void **state) {
    (void)state;
    struct job slow;
    struct job next;
    compile(&slow, "slowish", 1);
    compile(&next, "a", 1);
    finish(&slow);
    finish(&next);
    assert_string_equal(slow.program, "slowish@large");
    assert_string_equal(next.program, "a");
    count_children();
    assert_int_equal(restarts, 0);
}

static void test_time_that_is_spent_names_its_limit(void **state) {
    (void)state;
    struct job j;
    compile(&j, "spent", 1);
    finish(&j);
    assert_int_equal(j.err.code, ERR_LIMIT);
    assert_non_null(strstr(j.err.message, "40 ms of processor time (limit compile_cpu_ms)"));
    count_children();
    assert_int_equal(restarts, 0);
}

static void test_one_that_does_not_keep_to_its_time_is_ended(void **state) {
    (void)state;
    struct job j;
    struct job neighbours[5];
    compile(&j, "spin", 1);
    for (int i = 0; i < 5; i++)
        compile(&neighbours[i], "a", i);
    for (int i = 0; i < 5; i++) {
        finish(&neighbours[i]);
        assert_string_equal(neighbours[i].program, "a");
    }
    finish(&j);
    assert_int_equal(j.err.code, ERR_LIMIT);
    assert_non_null(strstr(j.err.message, "processor time"));
    for (int i = 0; i < 20; i++)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    count_children();
    assert_int_equal(restarts, 2); /* once with the small, once with the large */
}

static void test_a_death_is_the_fault_of_one_and_is_not_held_against_the_rest(void **state) {
    (void)state;
    enum { N = 10 };
    struct job bad[N];
    struct job good[N];
    struct job large[N];
    for (int i = 0; i < N; i++) {
        compile(&bad[i], "die", i);
        assert_null(compile_as(&good[i], "other", "a", i, 0));
        assert_null(compile_as(&large[i], "other", "b", i, SMALL_BYTES + 1));
    }
    int64_t start = clock_mono_ms();
    for (int i = 0; i < N; i++) {
        finish(&good[i]);
        assert_string_equal(good[i].program, "a");
        finish(&large[i]);
        assert_string_equal(large[i].program, "b@large");
        finish(&bad[i]);
        assert_int_equal(bad[i].err.code, ERR_LIMIT);
        assert_non_null(strstr(bad[i].err.message, "fails at this program (signal 6"));
    }
    /* With the pauses that a keeper makes between lives it would be 40 s. */
    assert_true(clock_mono_ms() - start < 30000);
    count_children();
    assert_in_range(restarts, 2 * N - 1, 2 * N);
}

static void test_who_kills_both_processes_costs_nobody_a_program(void **state) {
    (void)state;
    char word[] = "killed:/tmp/cayXXXXXX";
    int fd = mkstemp(word + strlen("killed:"));
    assert_true(fd >= 0);
    fd_close(&fd);
    struct job j;
    compile(&j, word, 1);
    finish(&j);
    assert_int_equal(unlink(word + strlen("killed:")), -1);
    assert_non_null(strstr(j.program, "@large"));
    count_children();
    assert_int_equal(restarts, 2);
}

static void test_answers_that_nobody_asked_for_mean_nothing(void **state) {
    (void)state;
    struct job jobs[6];
    for (int i = 0; i < 6; i++)
        compile(&jobs[i], i % 2 ? "slow" : "liar", i);
    for (int i = 0; i < 6; i++) {
        finish(&jobs[i]);
        assert_string_equal(jobs[i].program, i % 2 ? "slow" : "liar");
    }
}

static void test_one_that_does_not_answer_is_stuck(void **state) {
    (void)state;
    struct job j;
    struct job next;
    end();
    begin(getenv("COMPILE_HELPER"), 1000);
    compile(&j, "sleep", 1);
    compile(&next, "a", 1);
    finish(&next);
    assert_string_equal(next.program, "a");
    finish(&j);
    assert_int_equal(j.err.code, ERR_TIMEOUT);
    assert_non_null(strstr(j.err.message, "1000 ms (limit compile_timeout_ms)"));
}

static void test_a_compiler_that_does_not_start_is_said_to_be_so(void **state) {
    (void)state;
    struct job small;
    struct job large;
    end();
    begin("/bin/false", 20000);
    compile(&small, "a", 1);
    compile_large(&large, "a", 1);
    finish(&small);
    finish(&large);
    assert_int_equal(small.err.code, ERR_UNAVAILABLE);
    assert_int_equal(large.err.code, ERR_UNAVAILABLE);
    assert_non_null(strstr(small.err.message, "does not start (exit status 1)"));
}

static void test_what_waits_is_bounded_and_each_key_has_its_share(void **state) {
    (void)state;
    struct job first;
    struct job greedy[4];
    struct job others[8];
    /* One process is kept busy; each of these counts a bit more than its text. */
    assert_null(compile_as(&first, "greedy", "sleep", 0, 30000));
    for (int i = 0; i < 4; i++)
        assert_null(compile_as(&greedy[i], "greedy", "a", i, 30000));
    /* A key alone may have 100,000 bytes; whatever the others have, one program. */
    for (int i = 0; i < 8; i++) {
        char name[8];
        (void)snprintf(name, sizeof(name), "k%d", i);
        assert_null(compile_as(&others[i], name, "b", i, 50000));
    }
    finish(&greedy[2]);
    assert_int_equal(greedy[2].err.code, ERR_RATE);
    assert_non_null(strstr(greedy[2].err.message, "limit compile_waiting_bytes"));
    assert_int_equal(greedy[0].done + greedy[1].done, 0);
    assert_int_equal(greedy[3].done, 1);
    for (int i = 0; i < 8; i++)
        assert_int_equal(others[i].done, 0);
    /* All together have more than 400,000 now: nobody may have a second. */
    struct job second;
    assert_null(compile_as(&second, "k0", "c", 0, 2000));
    finish(&second);
    assert_int_equal(second.err.code, ERR_RATE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(test_a_program_comes_from_the_loop_and_then_from_the_cache),
        UNIT(test_what_does_not_compile_says_why_and_is_not_kept),
        UNIT(test_what_is_cancelled_is_not_called_back),
        UNIT(test_the_same_program_is_compiled_once),
        UNIT(test_small_programs_do_not_wait_for_large_ones),
        UNIT(test_the_process_for_large_programs_goes_when_it_has_nothing_to_do),
        UNIT(test_keys_take_turns),
        UNIT(test_a_key_cannot_cut_in_by_coming_back),
        UNIT(test_a_small_program_that_is_slow_moves_to_the_large_ones),
        UNIT(test_time_that_is_spent_names_its_limit),
        UNIT(test_one_that_does_not_keep_to_its_time_is_ended),
        UNIT(test_a_death_is_the_fault_of_one_and_is_not_held_against_the_rest),
        UNIT(test_who_kills_both_processes_costs_nobody_a_program),
        UNIT(test_answers_that_nobody_asked_for_mean_nothing),
        UNIT(test_one_that_does_not_answer_is_stuck),
        UNIT(test_a_compiler_that_does_not_start_is_said_to_be_so),
        UNIT(test_what_waits_is_bounded_and_each_key_has_its_share),
    };
    /* The first loop of a process opens descriptors that stay. */
    (void)uv_loop_init(&loop);
    (void)uv_loop_close(&loop);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
