/* Programs that mean harm, or merely loop: each ends alone, in time, and says why. */

#include "kit.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static int start(void **state) {
    (void)state;
    kit_start("CAY_ISOLATE", ISOLATE_CONFIG_STRICT);
    return 0;
}

static int stop(void **state) {
    (void)state;
    kit_stop();
    return 0;
}

#define MAIN(body) "return { default: async function main(env) { " body "\n} };"

static const struct kit_result *limited(const char *code, uint32_t cpu_ms, uint64_t memory_mib) {
    return kit_run(&(struct kit_run){
        .code = code, .limits = {.cpu_ms = cpu_ms, .memory_bytes = memory_mib << 20}});
}

static void endless_loops_meet_the_processor_limit(void **state) {
    (void)state;
    static const char *const loops[] = {
        MAIN("while (true) {}"),
        MAIN("while (true) await null"),
        MAIN("for (;;) Promise.resolve().then(() => 1)"),
        MAIN("/^(a+)+$/.test('a'.repeat(60) + 'b')"),
        MAIN("'x'.repeat(100000).match(/(x+x+)+y/)"),
        MAIN("const f = () => queueMicrotask(f); f(); await new Promise(() => {})"),
        MAIN("[1, 2].sort(() => { for (;;) {} })"),
        MAIN("console.log({ get a() { return 1 }, b: new Proxy({}, {}) }); for (;;) JSON.parse('[' "
             "+ '1,'.repeat(1e5) + '1]')"),
        MAIN("let b = 3n ** 10000n; for (;;) b = (b * b) % (7n ** 9000n)"),
    };
    for (size_t i = 0; i < sizeof(loops) / sizeof(loops[0]); i++) {
        const struct kit_result *r = limited(loops[i], 300, 0);
        if (r->status != ISOLATE_EXIT_CPU && r->status != ISOLATE_EXIT_MEMORY)
            fail_msg("loop %zu: status %d signal %d timeout %d error %s", i, r->status, r->signal,
                     r->out.timeout, r->out.error ? r->out.error : "-");
        kit_expect_error("limit of");
        assert_true(r->out.done);
        assert_true(r->exit.cpu_us < 5000000);
    }
    kit_expect_alive();
}

static void the_wall_is_the_fronts(void **state) {
    (void)state;
    const struct kit_result *r = kit_run(&(struct kit_run){
        .code = MAIN("await new Promise(r => setTimeout(r, 60000))"), .timeout_ms = 200});
    assert_true(r->out.timeout);
    r = kit_run(&(struct kit_run){.code = MAIN("await env.db.hang()"), .timeout_ms = 200});
    assert_true(r->out.timeout);
    kit_expect_alive();
}

static void memory_bombs_meet_the_memory_limit(void **state) {
    (void)state;
    static const char *const bombs[] = {
        MAIN("const a = []; for (;;) a.push(new Array(1000).fill({}))"),
        MAIN("const a = []; for (;;) a.push(new Uint8Array(1 << 20).fill(1))"),
        MAIN("const a = []; for (;;) a.push(new ArrayBuffer(1 << 16))"),
        MAIN("const a = []; let s = 'x'; for (;;) { s += s.length + 'abcdefgh'.repeat(1000); "
             "a.push(s.replace(/a/g, 'b')) }"),
        MAIN("const m = new Map(); for (let i = 0; ; i++) m.set('k' + i, { i })"),
        MAIN("const f = n => ({ n, next: f }); const a = []; for (let i = 0; ; i++) a.push(f(i), "
             "() => a, Symbol(i))"),
        MAIN("let o = {}; for (;;) o = { o, x: [o, o] }"),
        MAIN("const a = []; for (;;) { a.push(await null, new Promise(() => {}), {}) }"),
        MAIN("const a = []; for (let i = 0; ; i++) a.push(new RegExp('a' + i))"),
    };
    for (size_t i = 0; i < sizeof(bombs) / sizeof(bombs[0]); i++) {
        const struct kit_result *r = limited(bombs[i], 15000, 64);
        /* Stopped by the limit, or by an error of the engine about one allocation too many. */
        if (r->status != ISOLATE_EXIT_MEMORY &&
            !(r->out.error && strstr(r->out.error, "\"kind\":\"limit\"")))
            fail_msg("bomb %zu: status %d signal %d cpu %llu error %s", i, r->status, r->signal,
                     (unsigned long long)r->exit.cpu_us, r->out.error ? r->out.error : "-");
        kit_expect_error("memory limit of 64 MiB exceeded");
        if (r->exit.max_rss_kib > 320 * 1024)
            fail_msg("bomb %zu reached %llu KiB", i, (unsigned long long)r->exit.max_rss_kib);
    }
    kit_expect_alive();
}

static void one_huge_allocation_is_refused(void **state) {
    (void)state;
    (void)limited(MAIN("const out = []; for (const f of [() => new ArrayBuffer(2 ** 33), () => new "
                       "Uint8Array(2 ** 31), "
                       "() => 'x'.repeat(2 ** 30).replace(/x/g, 'yy'), () => new Array(2 ** 32 - "
                       "1).fill(0), () => 'ab'.padEnd(2 ** 31)]) "
                       "try { f(); out.push('made') } catch (e) { out.push(e.name) } return out;"),
                  10000, 128);
    /* Either a catchable error or the limit; never the machine's memory. */
    kit_expect_alive();
}

static void deep_recursion_is_a_range_error(void **state) {
    (void)state;
    (void)kit_main(
        "const f = () => 1 + f(); try { f() } catch (e) { return e instanceof RangeError }");
    kit_expect_result("true");
    (void)kit_main("let o = {}; for (let i = 0; i < 1e5; i++) o = { o }; console.log(o); const a = "
                   "[]; let b = a; "
                   "for (let i = 0; i < 1e5; i++) { const c = []; b.push(c); b = c } "
                   "console.log(a); try { return o } finally { }");
    kit_expect_error("RangeError");
    (void)kit_main(
        "const f = () => { console.log('deep'); f() }; try { f() } catch (e) { return e.name }");
    kit_expect_result("\"RangeError\"");
    (void)kit_main("let o = {}; for (let i = 0; i < 1e5; i++) o = { o }; try { await "
                   "env.db.echo(o) } catch (e) { return e.message }");
    kit_expect_result("\"an argument nested deeper than 50 levels cannot be sent to a facet\"");
}

static void output_is_bounded_and_says_so(void **state) {
    (void)state;
    const struct kit_result *r = kit_main(
        "for (let i = 0; i < 500; i++) console.log(i + ' ' + 'x'.repeat(100000)); return 1");
    kit_expect_result("1");
    assert_true(r->out.output_bytes > 50000000);
    assert_true(r->out.logs.len < 400000);
    assert_true(r->out.dropped_bytes + r->out.logs.len > 50000000 - 100000);
    kit_expect_log("1 0 xxxx");
    kit_expect_log("bytes left out");
    assert_non_null(strstr(kit_logs() + r->out.logs.len - 100010, "xxxxx\n"));

    r = kit_main("for (let i = 0; i < 200000; i++) console.log('line ' + i); return 2");
    kit_expect_result("2");
    assert_true(r->out.logs.len < 400000);
    kit_expect_log("1 line 0\n1 line 1\n");
    kit_expect_log("1 line 199999\n");
    kit_expect_log("bytes left out");

    r = kit_main("console.log('é'.repeat(3e6)); console.log('end'); return 3");
    kit_expect_result("3");
    assert_true(r->out.logs.len < 400000);
    kit_expect_log("1 end\n");
    assert_true(r->out.output_bytes == 6000003);

    r = kit_main("for (let i = 0; i < 300000; i++) console.log(''); return 4");
    kit_expect_result("4");
    assert_true(r->out.logs.len < 400000);
}

static void a_killed_flood_keeps_its_tail(void **state) {
    (void)state;
    (void)limited(MAIN("for (let i = 0; ; i++) console.log('line ' + i)"), 400, 0);
    kit_expect_error("processor time limit of 400 ms exceeded");
    kit_expect_log("1 line 0\n");
    kit_expect_log("bytes left out");
}

/* What is said waits for what follows, but not for the end of a computation. */
static void a_line_comes_while_the_program_computes(void **state) {
    (void)state;
    struct front *front = kit_front();
    struct front_isolate iso;
    front_want(front, 1);
    front_take(front, &iso);
    front_send_run(&iso, 1,
                   &(struct front_run){.program =
                                           "(async function (builtins) { return { default: () => {"
                                           " console.log('here'); for (;;) {} } }; })",
                                       .spec = "{}",
                                       .limits = {.cpu_ms = 20000}});
    struct wire_frame f;
    struct err err;
    assert_int_equal(wire_read(&iso.reader, iso.channel, &f, &err), 1);
    assert_int_equal(f.type, ISOLATE_LOG);
    wire_frame_finish(&f);
    front_drop(&iso);
    /* Long before the limit of its time. */
    assert_true(front_wait_exit(front, iso.number).cpu_us < 15000000);
}

static void replaced_intrinsics_neither_break_nor_hijack(void **state) {
    (void)state;
    (void)kit_main(
        "const seen = []; const trap = n => function () { seen.push(n); throw new Error('hijacked "
        "' + n) };"
        "try { Promise.prototype.constructor = trap('constructor') } catch { } "
        "Promise.prototype.then = trap('then'); Promise.resolve = trap('resolve'); "
        "Promise.prototype.catch = trap('catch');"
        "Array.prototype[Symbol.iterator] = trap('iterator'); Array.prototype.push = trap('push'); "
        "Array.prototype.map = trap('map');"
        "Map.prototype.get = trap('get'); Map.prototype.set = trap('set'); Map.prototype.delete = "
        "trap('delete'); Map.prototype.has = trap('has');"
        "JSON.stringify = trap('stringify'); JSON.parse = trap('parse'); Reflect.apply = "
        "trap('apply'); Reflect.ownKeys = trap('ownKeys');"
        "Function.prototype.call = trap('call'); Function.prototype.bind = trap('bind'); "
        "Function.prototype.apply = trap('fapply');"
        "String.prototype.slice = trap('slice'); String.prototype.split = trap('split'); "
        "String.prototype[Symbol.split] = trap('symsplit');"
        "Object.defineProperty = trap('defineProperty'); Object.keys = trap('keys'); Object.freeze "
        "= trap('freeze'); Object.getPrototypeOf = trap('gpo');"
        "RegExp.prototype.exec = trap('exec'); Uint8Array.fromBase64 = trap('b64'); "
        "globalThis.BigInt = trap('bigint'); globalThis.Error = trap('Error');"
        "for (let i = 0; i < 4; i++) Reflect.defineProperty(Array.prototype, i, { __proto__: null, "
        "set(v) { seen[seen.length] = 'setter' }, configurable: true });"
        "for (const k in { id: 1, name: 1, columns: 1, rows: 1, resolve: 1, reject: 1, value: 1, "
        "at: 1, fn: 1, get: 1 }) "
        "  if (k !== 'get') Reflect.defineProperty(Object.prototype, k, { __proto__: null, get() { "
        "return undefined }, set(v) { seen[seen.length] = 'object setter ' + k }, configurable: "
        "true });"
        "const rows = await env.db.query('SELECT 1'); const odd = await env.db.odd();"
        "console.log('hello', { a: 1 }, rows.length, [1]);"
        "const later = await new Promise(r => setTimeout(r, 1, 'timer'));"
        "return { n: rows.length, name: rows[0].name, big: typeof odd[0].big, later, seen: "
        "seen.length === 0 ? 'none' : seen[0] };");
    kit_expect_result(
        "{\"n\":2,\"name\":\"one\",\"big\":\"number\",\"later\":\"timer\",\"seen\":\"none\"}");
    kit_expect_log("1 hello {\"a\":1} 2 [1]\n");
}

static void polluted_prototypes_stay_the_programs_own(void **state) {
    (void)state;
    (void)kit_main("Object.prototype.toJSON = () => 'json'; Object.prototype.method = 'verify'; "
                   "Object.prototype.tagged = true;"
                   "Object.prototype.fd = 0; Object.prototype.then = undefined; console.log({ a: 1 "
                   "}); return (await env.db.query('x')).length");
    kit_expect_result("2");
}

static void proxies_as_arguments_do_no_harm(void **state) {
    (void)state;
    (void)kit_main(
        "const p = new Proxy([1, 2], { get(t, k) { if (k === 'length') return 2; return t[k] } });"
        "const bad = new Proxy({}, { ownKeys() { throw new Error('trap') } });"
        "const out = [await env.db.echo(p)]; try { await env.db.echo(bad) } catch (e) { "
        "out.push(e.message) }"
        "try { await env.peer.first(bad) } catch (e) { out.push(e.message) } return out;");
    kit_expect_result("[[[1,2]],\"trap\",\"trap\"]");
}

static void timers_without_end_or_number_are_served(void **state) {
    (void)state;
    const struct kit_result *r = kit_run(
        &(struct kit_run){.code = MAIN("setInterval(() => 0, 0); const f = () => setTimeout(f, 0); "
                                       "f(); await new Promise(() => {})"),
                          .timeout_ms = 500});
    assert_true(r->out.timeout);
    (void)kit_main("let n = 0; await new Promise(r => { for (let i = 0; i < 100000; i++) "
                   "setTimeout(() => { if (++n === 100000) r() }, i % 50) }); return n");
    kit_expect_result("100000");
    (void)kit_main("const ids = []; for (let i = 0; i < 100000; i++) ids.push(setTimeout(() => { "
                   "throw 1 }, 5)); ids.forEach(clearTimeout); "
                   "await new Promise(r => setTimeout(r, 20)); return 'quiet'");
    kit_expect_result("\"quiet\"");
}

static void a_flood_of_calls_is_bounded(void **state) {
    (void)state;
    const struct kit_result *r = kit_run(&(struct kit_run){
        .code = MAIN("let lost = 0, big = 'x'.repeat(1 << 20); const all = []; for (let i = 0; i < "
                     "200; i++) all.push(env.db.hang(big).catch(e => { lost++ })); "
                     "await new Promise(r => setTimeout(r, 50)); return lost > 0"),
        .limits = {.wait_until_ms = 100}});
    assert_true(r->out.result || r->out.error);
    kit_expect_alive();
}

static void hostile_errors_are_reported(void **state) {
    (void)state;
    (void)kit_main("const e = new Error('x'); Object.defineProperty(e, 'stack', { get() { throw 1 "
                   "} }); Object.defineProperty(e, 'message', { get() { throw 2 } }); throw e");
    kit_expect_error("\"kind\":\"error\"");
    (void)kit_main("const e = new Error('y'.repeat(1e6)); e.stack = 'z'.repeat(1e6); throw e");
    kit_expect_error("yyyy");
    assert_true(strlen(kit_main("const e = new Error('y'.repeat(5e6)); throw e")->out.error) <
                200000);
    (void)kit_main("class E extends Error { get name() { return { toString() { throw 1 } } } } "
                   "throw new E('odd')");
    kit_expect_error("odd");
    (void)kit_main("throw Object.create(new Error('inherited'))");
    kit_expect_error("\"kind\":\"error\"");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(endless_loops_meet_the_processor_limit),
        cmocka_unit_test(the_wall_is_the_fronts),
        cmocka_unit_test(memory_bombs_meet_the_memory_limit),
        cmocka_unit_test(one_huge_allocation_is_refused),
        cmocka_unit_test(deep_recursion_is_a_range_error),
        cmocka_unit_test(output_is_bounded_and_says_so),
        cmocka_unit_test(a_killed_flood_keeps_its_tail),
        cmocka_unit_test(a_line_comes_while_the_program_computes),
        cmocka_unit_test(replaced_intrinsics_neither_break_nor_hijack),
        cmocka_unit_test(polluted_prototypes_stay_the_programs_own),
        cmocka_unit_test(proxies_as_arguments_do_no_harm),
        cmocka_unit_test(timers_without_end_or_number_are_served),
        cmocka_unit_test(a_flood_of_calls_is_bounded),
        cmocka_unit_test(hostile_errors_are_reported),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
