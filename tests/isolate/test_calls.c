/* Calls on an isolate that stays: each has its own limits, lines, errors and end. */

#include "kit.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int start(void **state) {
    (void)state;
    kit_start("CAY_ISOLATE", 0);
    return 0;
}

static int stop(void **state) {
    (void)state;
    kit_stop();
    return 0;
}

static const char program[] =
    "(async () => { const sleep = ms => new Promise(r => setTimeout(r, ms));"
    " const burn = ms => { const until = Date.now() + ms; while (Date.now() < until); };"
    " const hold = () => new Promise(r => { release = () => r('held'); setTimeout(r, 60000); });"
    " let kept, release, ticks = 0; return { default: {"
    " burn(ms) { burn(ms); return 'burnt'; }, forever() { for (;;); },"
    " async nap(ms) { await sleep(ms); return 'slept'; },"
    " hold, release() { release(); },"
    " async say(word, ms) { console.log(word + 1); await sleep(ms);"
    "   console.log(word + 2);"
    "   await new Promise(r => { kept = r; setTimeout(r, 1); }); console.log(word + 3); },"
    " async ask(n, env) { const out = []; for (let i = 0; i < n; i++)"
    "   try { await env.db.query('x'); out.push('ok'); } catch (e) { out.push(e.message); }"
    "   return out; },"
    " lose(ms) { setTimeout(() => { throw new Error('lost by ' + ms); }, ms); return sleep(2 * "
    "ms); },"
    " tick() { setInterval(() => { ticks++; }, 1); setTimeout(() => 0, 1e9); return ticks; },"
    " ticks() { return ticks; },"
    " group() { console.group('g'); console.log('in'); return sleep(500); },"
    " plain() { console.log('plain'); }, never() { return new Promise(() => {}); },"
    " fetch(request) { request.text().catch(() => { for (;;); }); return new Response('x'); }"
    "} } })";

struct warm {
    struct front_isolate iso;
    struct front_run run;
    uint64_t id;
};

/* An isolate of f with the program loaded, and env.db as the kit answers it. */
static void load(struct warm *w, struct front *f) {
    front_want(f, 1);
    front_take(f, &w->iso);
    struct err err;
    int ends[2];
    assert_int_equal(fd_pair(ends, &err), 0);
    w->run = (struct front_run){
        .flags = ISOLATE_RUN_WARM,
        .program = program,
        .spec = "{\"main\":false,\"env\":{\"db\":{\"fd\":0,\"kind\":\"facet\",\"methods\":["
                "\"query\",\"hang\"]}}}",
        .fds = {ends[1]},
        .facets = {ends[0]},
        .nfds = 1,
        .answer = kit_answer};
    w->id = 1;
    front_send_run(&w->iso, 1, &w->run);
    close(ends[1]);
    struct front_outcome o;
    front_finish_run(&w->iso, 1, &w->run, &o);
    assert_true(o.done);
    front_outcome_finish(&o);
}

static void unload(struct warm *w) {
    front_drop(&w->iso);
    close(w->run.facets[0]);
}

static uint64_t call(struct warm *w, const char *method, const char *args,
                     struct isolate_run_limits limits) {
    char spec[256];
    (void)snprintf(spec, sizeof(spec), "{\"method\":\"%s\",\"args\":[%s]}", method, args);
    front_send_call_limited(&w->iso, ++w->id, spec, &limits);
    return w->id;
}

static void finish(struct warm *w, uint64_t id, struct front_outcome *o) {
    front_finish_run(&w->iso, id, &w->run, o);
}

static void expect(struct warm *w, uint64_t id, const char *result) {
    struct front_outcome o;
    finish(w, id, &o);
    if (!o.result || strcmp(o.result, result) != 0)
        fail_msg("result %s, error %s", o.result ? o.result : "-", o.error ? o.error : "-");
    assert_false(o.ending);
    front_outcome_finish(&o);
}

static void expect_error(struct warm *w, uint64_t id, const char *part, bool ending) {
    struct front_outcome o;
    finish(w, id, &o);
    if (!o.error || !strstr(o.error, part))
        fail_msg("error %s, result %s", o.error ? o.error : "-", o.result ? o.result : "-");
    assert_true(o.done);
    assert_int_equal(o.nerrors, 1);
    assert_int_equal(o.ending, ending);
    front_outcome_finish(&o);
}

#define LIMITS(...)                                                                                \
    (struct isolate_run_limits) {                                                                  \
        __VA_ARGS__                                                                                \
    }
#define NO_LIMITS LIMITS(.cpu_ms = 0)

static int exit_status(struct front *f, const struct warm *w) {
    return front_wait_exit(f, w->iso.number).status;
}

/* ---- processor time ---- */

static void processor_time_is_per_call(void **state) {
    (void)state;
    struct warm w;
    load(&w, kit_front());
    for (int i = 0; i < 4; i++) /* together more than one may use */
        expect(&w, call(&w, "burn", "120", LIMITS(.cpu_ms = 300)), "\"burnt\"");
    expect_error(&w, call(&w, "forever", "", LIMITS(.cpu_ms = 100)),
                 "processor time limit of 100 ms exceeded", true);
    assert_int_equal(exit_status(kit_front(), &w), ISOLATE_EXIT_CPU << 8);
    unload(&w);
}

static void a_call_that_waits_is_not_charged_for_others(void **state) {
    (void)state;
    struct warm w;
    load(&w, kit_front());
    uint64_t waits = call(&w, "hold", "", LIMITS(.cpu_ms = 100));
    for (int i = 0; i < 2; i++)
        expect(&w, call(&w, "burn", "150", LIMITS(.cpu_ms = 300)), "\"burnt\"");
    (void)call(&w, "release", "", NO_LIMITS);
    expect(&w, waits, "\"held\"");
    unload(&w);
}

static void a_limit_names_the_call_that_exceeded_it(void **state) {
    (void)state;
    struct warm w;
    load(&w, kit_front());
    uint64_t innocent = call(&w, "nap", "60000", NO_LIMITS);
    uint64_t guilty = call(&w, "forever", "", LIMITS(.cpu_ms = 100));
    expect_error(&w, guilty, "processor time limit of 100 ms exceeded", true);
    expect_error(&w, innocent, "another call on it exceeded", false);
    unload(&w);
}

/* What the zygote counts, for an isolate whose own timer does not stop it. */
static void an_isolate_that_ignores_its_limit_is_killed(void **state) {
    (void)state;
    static struct front f;
    struct buf none;
    buf_init(&none, 0);
    front_start_with(&f, getenv("CAY_ISOLATE"), 0, ISOLATE_LEVER_ALL, 1, &none);
    struct warm w;
    load(&w, &f);
    /* Each call may use a second, as often as it is allowed. */
    for (int i = 0; i < 4; i++) {
        front_allow(&f, &w.iso);
        expect(&w, call(&w, "burn", "400", LIMITS(.cpu_ms = 60000)), "\"burnt\"");
    }
    struct front_outcome o;
    finish(&w, call(&w, "forever", "", LIMITS(.cpu_ms = 60000)), &o);
    assert_true(o.closed && !o.done && !o.timeout);
    front_outcome_finish(&o);
    assert_int_equal(exit_status(&f, &w), ISOLATE_EXIT_CPU << 8);
    unload(&w);
    front_stop(&f);
}

/* ---- what belongs to a call ---- */

static void lines_go_to_the_call_that_printed_them(void **state) {
    (void)state;
    struct warm w;
    load(&w, kit_front());
    uint64_t a = call(&w, "say", "\"a\",2000", NO_LIMITS);
    uint64_t b = call(&w, "say", "\"b\",5", NO_LIMITS);
    /* b ends first; what a printed until then is not b's. */
    struct front_outcome o;
    finish(&w, b, &o);
    assert_string_equal(o.logs.data, "1 b1\n1 b2\n1 b3\n");
    front_outcome_finish(&o);
    finish(&w, a, &o);
    assert_string_equal(o.logs.data, "1 a2\n1 a3\n"); /* a1 was read past above */
    front_outcome_finish(&o);
    uint64_t grouped = call(&w, "group", "", NO_LIMITS);
    finish(&w, call(&w, "plain", "", NO_LIMITS), &o);
    assert_string_equal(o.logs.data, "1 plain\n");
    front_outcome_finish(&o);
    finish(&w, grouped, &o);
    front_outcome_finish(&o);
    unload(&w);
}

static void output_is_limited_per_call(void **state) {
    (void)state;
    struct warm w;
    load(&w, kit_front());
    struct front_outcome o;
    finish(&w, call(&w, "plain", "", LIMITS(.output_bytes = 16)), &o);
    assert_int_equal(o.output_bytes, 5);
    assert_true(o.dropped_bytes > 0);
    front_outcome_finish(&o);
    finish(&w, call(&w, "plain", "", NO_LIMITS), &o);
    assert_string_equal(o.logs.data, "1 plain\n");
    assert_int_equal(o.output_bytes, 5);
    front_outcome_finish(&o);
    unload(&w);
}

static void binding_calls_are_limited_per_call(void **state) {
    (void)state;
    struct warm w;
    load(&w, kit_front());
    expect(&w, call(&w, "ask", "3", LIMITS(.binding_calls = 2)),
           "[\"ok\",\"ok\",\"binding call limit of 2 reached\"]");
    expect(&w, call(&w, "ask", "2", LIMITS(.binding_calls = 2)), "[\"ok\",\"ok\"]");
    expect(&w, call(&w, "ask", "1", LIMITS(.no_binding_calls = true)),
           "[\"binding call limit of 0 reached\"]");
    unload(&w);
}

static void an_error_that_nobody_caught_fails_its_own_call(void **state) {
    (void)state;
    struct warm w;
    load(&w, kit_front());
    uint64_t other = call(&w, "hold", "", NO_LIMITS);
    expect_error(&w, call(&w, "lose", "10", NO_LIMITS), "lost by 10", false);
    (void)call(&w, "release", "", NO_LIMITS);
    expect(&w, other, "\"held\"");
    unload(&w);
}

/* Nothing runs between calls, where nobody pays for it. */
static void timers_end_with_their_call(void **state) {
    (void)state;
    struct warm w;
    load(&w, kit_front());
    expect(&w, call(&w, "tick", "", NO_LIMITS), "0");
    expect(&w, call(&w, "nap", "30", NO_LIMITS), "\"slept\"");
    expect(&w, call(&w, "ticks", "", NO_LIMITS), "0");
    unload(&w);
}

/* A body that nobody reads to its end does not wake the program when the call is over. */
static void nothing_of_a_call_runs_after_its_end(void **state) {
    (void)state;
    struct warm w;
    load(&w, kit_front());
    front_send_call(&w.iso, ++w.id,
                    "{\"http\":{\"url\":\"http://x/\",\"method\":\"POST\",\"stream\":true}}", "");
    struct front_outcome o;
    finish(&w, w.id, &o);
    assert_true(o.done && o.body_ended);
    front_outcome_finish(&o);
    expect(&w, call(&w, "burn", "1", NO_LIMITS), "\"burnt\"");
    /* and it is not counted as something that could still move a call */
    front_send_call(&w.iso, ++w.id, "{\"method\":\"never\"}", "");
    expect_error(&w, w.id, "never settled", false);
    unload(&w);
}

static void a_call_with_a_number_in_use_breaks_the_contract(void **state) {
    (void)state;
    struct warm w;
    load(&w, kit_front());
    (void)call(&w, "nap", "60000", NO_LIMITS);
    w.id--;
    (void)call(&w, "nap", "60000", NO_LIMITS);
    assert_int_equal(exit_status(kit_front(), &w), ISOLATE_EXIT_PROTOCOL << 8);
    unload(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processor_time_is_per_call),
        cmocka_unit_test(a_call_that_waits_is_not_charged_for_others),
        cmocka_unit_test(a_limit_names_the_call_that_exceeded_it),
        cmocka_unit_test(an_isolate_that_ignores_its_limit_is_killed),
        cmocka_unit_test(lines_go_to_the_call_that_printed_them),
        cmocka_unit_test(output_is_limited_per_call),
        cmocka_unit_test(binding_calls_are_limited_per_call),
        cmocka_unit_test(an_error_that_nobody_caught_fails_its_own_call),
        cmocka_unit_test(timers_end_with_their_call),
        cmocka_unit_test(nothing_of_a_call_runs_after_its_end),
        cmocka_unit_test(a_call_with_a_number_in_use_breaks_the_contract),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
