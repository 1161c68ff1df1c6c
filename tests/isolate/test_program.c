/* Programs that mean well: entrypoints, env, bindings, console, timers, errors, warm isolates. */

#include "kit.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

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

static void spec(const char *code, const char *rest) {
    _cleanup_(free) char *text = xasprintf("{" KIT_ENV ",%s}", rest);
    (void)kit_run(&(struct kit_run){.code = code, .spec = text});
}

/* ---- entrypoints ---- */

static void a_default_function_gets_env_and_arguments(void **state) {
    (void)state;
    spec("return { default: async (env, a, b) => [env.WORD.a[1], a, b] };",
         "\"args\":[1,{\"x\":2}]");
    kit_expect_result("[\"two\",1,{\"x\":2}]");
}

static void a_result_of_undefined_is_empty(void **state) {
    (void)state;
    const struct kit_result *r = kit_main("");
    kit_expect_result("");
    assert_true(r->out.done);
}

static void an_object_has_methods(void **state) {
    (void)state;
    const char *code = "return { default: { run(env, a) { return ['run', !!env.db, a]; },"
                       " greet(name, env, ctx) { return [name, !!env.db, ctx.props.p]; } } };";
    spec(code, "\"args\":[7]");
    kit_expect_result("[\"run\",true,7]");
    spec(code, "\"method\":\"greet\",\"args\":[\"Zara\"],\"props\":{\"p\":3}");
    kit_expect_result("[\"Zara\",true,3]");
    spec(code, "\"method\":\"hasOwnProperty\",\"args\":[\"run\"]");
    kit_expect_error("has no method 'hasOwnProperty'");
    spec(code, "\"method\":\"nope\"");
    kit_expect_error("has no method 'nope'");
}

static void a_class_extends_worker_entrypoint(void **state) {
    (void)state;
    const char *code =
        "const { WorkerEntrypoint } = builtins['cloudflare:workers'];"
        "return { default: class extends WorkerEntrypoint { verify() { console.log('verifying'); } "
        "  async run() { console.log('running'); return [await this.env.db.query('x'), "
        "this.ctx.props]; } },"
        "  Admin: class extends WorkerEntrypoint { who(x) { return 'admin ' + x; } #hidden() {} },"
        "};";
    spec(code, "\"verify\":true,\"props\":{\"id\":9}");
    kit_expect_result("[[{\"id\":1,\"name\":\"one\"},{\"id\":2,\"name\":null}],{\"id\":9}]");
    assert_string_equal(kit_logs(), "1 running\n");
    spec(code, "\"entrypoint\":\"Admin\",\"method\":\"who\",\"args\":[1]");
    kit_expect_result("\"admin 1\"");
    spec(code, "\"entrypoint\":\"Admin\",\"method\":\"constructor\"");
    kit_expect_error("has no method 'constructor'");
    spec(code, "\"entrypoint\":\"Admin\",\"method\":\"toString\"");
    kit_expect_error("has no method 'toString'");
    spec(code, "\"entrypoint\":\"Nobody\"");
    kit_expect_error("no export 'Nobody'");
}

static void a_failing_verify_fails_the_run(void **state) {
    (void)state;
    spec("return { default: class { verify() { throw new Error('not today'); } run() { return 1; } "
         "} };",
         "\"verify\":true");
    kit_expect_error("not today");
}

static void a_program_that_cannot_load_says_so(void **state) {
    (void)state;
    (void)kit_run(&(struct kit_run){.code = "throw new TypeError('at load')"});
    kit_expect_error("\"kind\":\"load\"");
    kit_expect_error("TypeError: at load\\n    at ");
    (void)kit_run(&(struct kit_run){.code = "return {"});
    kit_expect_error("SyntaxError");
    (void)kit_run(&(struct kit_run){.code = "return {}"});
    kit_expect_error("no default export");
}

static void wait_until_is_waited_for(void **state) {
    (void)state;
    spec("return { default: { greet(env, ctx) { ctx.waitUntil(new Promise(r => setTimeout(() => {"
         " console.log('late'); r(); }, 30))); return 'now'; } } };",
         "\"method\":\"greet\"");
    kit_expect_result("\"now\"");
    kit_expect_log("late");
    spec("return { default: { greet(env, ctx) { ctx.waitUntil(Promise.reject(new Error('after'))); "
         "return 'now'; } } };",
         "\"method\":\"greet\"");
    kit_expect_error("after");
}

static void wait_until_is_bounded(void **state) {
    (void)state;
    const struct kit_result *r =
        kit_run(&(struct kit_run){.code = "return { default: { greet(env, ctx) { ctx.waitUntil(new "
                                          "Promise(() => setInterval(() => 0, 10))); "
                                          "return 1; } } };",
                                  .spec = "{\"method\":\"greet\"}",
                                  .limits = {.wait_until_ms = 50}});
    kit_expect_result("1");
    kit_expect_log("still pending after 50 ms");
    assert_true(r->out.done);
}

/* ---- bindings ---- */

static void rows_become_objects(void **state) {
    (void)state;
    (void)kit_main(
        "const [r] = await env.db.odd(); return [Object.keys(r), r.id, r.blob instanceof "
        "Uint8Array, [...r.blob], typeof r.big, String(r.big), Object.getPrototypeOf(r) "
        "=== Object.prototype];");
    kit_expect_result("[[\"id\",\"__proto__\",\"blob\",\"big\"],1,true,[1,2,3],\"number\","
                      "\"9007199254740992\",true]");
}

static void arguments_reach_the_facet(void **state) {
    (void)state;
    (void)kit_main(
        "return await env.db.echo('q', 1, null, 5n, new Uint8Array([1, 2]), undefined, new "
        "Date(0), true);");
    kit_expect_result(
        "[\"q\",1,null,[\"i\",\"5\"],[\"b\",\"AQI=\"],null,\"1970-01-01T00:00:00.000Z\",true]");
    (void)kit_main("return await env.db.echo('q', [1, 'x']);");
    kit_expect_result("[\"q\",1,\"x\"]");
    (void)kit_main("try { await env.db.echo(() => 1) } catch (e) { return e.message }");
    kit_expect_result("\"[Function (anonymous)] cannot be sent to a facet\"");
}

static void a_facets_failure_is_an_error(void **state) {
    (void)state;
    (void)kit_main(
        "try { await env.db.fail('x') } catch (e) { return [e instanceof Error, e.name, e.message, "
        "e.code] }");
    kit_expect_result("[true,\"SqliteError\",\"no such table: nope\",\"SQLITE_ERROR\"]");
    (void)kit_main("await env.db.fail('x')");
    kit_expect_error("SqliteError: no such table: nope\\n    at main (user.js:1:");
}

static void an_unknown_method_is_no_function(void **state) {
    (void)state;
    (void)kit_main("return [typeof env.db.nope, Object.keys(env), 'then' in env.db]");
    kit_expect_result("[\"undefined\",[\"db\",\"peer\",\"WORD\"],false]");
}

static void a_worker_binding_carries_every_value(void **state) {
    (void)state;
    (void)kit_main(
        "const v = { u: undefined, d: new Date(5), m: new Map([[1, new Set(['a'])]]), b: 12n, "
        "bytes: new Uint8Array([9]), f: new Float32Array([1.5]), n: [NaN, -0, Infinity], "
        "re: /a+/gi, err: new TypeError('bad', { cause: 1 }), $t: 'mine', nested: { $t: 1 } };"
        "const r = await env.peer.first(v);"
        "return ['u' in r && r.u === undefined, r.d.getTime(), [...r.m.get(1)], String(r.b), "
        "[...r.bytes], r.f.constructor.name, Object.is(r.n[1], -0), r.n[0] !== r.n[0], "
        "r.re.source, r.re.flags, "
        "r.err instanceof TypeError, r.err.message, r.err.cause, r.$t, r.nested.$t];");
    kit_expect_result("[true,5,[\"a\"],\"12\",[9],\"Float32Array\",true,true,\"a+\",\"gi\",true,"
                      "\"bad\",1,\"mine\",1]");
    (void)kit_main(
        "try { await env.peer.raise() } catch (e) { return [e instanceof RangeError, e.message] }");
    kit_expect_result("[true,\"far\"]");
    (void)kit_main(
        "const a = {}; a.a = a; const out = []; for (const v of [a, () => 1, Symbol('s'), "
        "Promise.resolve()]) try { await env.peer.first(v); out.push('sent') } catch (e) { "
        "out.push(e.name) } return out;");
    kit_expect_result(
        "[\"DataCloneError\",\"DataCloneError\",\"DataCloneError\",\"DataCloneError\"]");
}

static void a_call_that_is_too_large_fails_alone(void **state) {
    (void)state;
    (void)kit_main("const out = []; for (const n of [5e6, 4e6, 1e3]) try { out.push((await "
                   "env.db.echo('x'.repeat(n)))[0].length) } catch (e) { out.push(e.name + ': ' + "
                   "e.message) } return out;");
    kit_expect_result(
        "[\"LimitError: env.db.echo: limit of 4194304 bytes for one call exceeded: its "
        "arguments have 5000012\",4000000,1000]");
    /* Newer engines need more memory for such a text than an isolate has. */
    (void)kit_main(
        "try { await env.peer.first('x'.repeat(34e6)) } catch (e) { return [e.message === 'Out of "
        "memory' ? 'LimitError' : e.name, (await env.peer.first('y'.repeat(5e6))).length] }");
    kit_expect_result("[\"LimitError\",5000000]");
}

static void binding_calls_are_counted_and_limited(void **state) {
    (void)state;
    const struct kit_result *r =
        kit_run(&(struct kit_run){.code = "return { default: async env => { let n = 0; try { for "
                                          "(;;) { await env.db.query('x'); n++ } } "
                                          "catch (e) { return [n, e.message] } } };",
                                  .limits = {.binding_calls = 20}});
    kit_expect_result("[20,\"binding call limit of 20 reached\"]");
    assert_int_equal(r->out.binding_calls, 20);
    (void)kit_run(&(struct kit_run){.code = "return { default: env => env.db.query('x') };",
                                    .limits = {.no_binding_calls = true}});
    kit_expect_error("binding call limit of 0 reached");
}

static void a_thousand_calls_at_once_come_back(void **state) {
    (void)state;
    (void)kit_main("const all = await Promise.all(Array.from({ length: 5000 }, (_, i) => "
                   "env.db.echo(i, 'x'.repeat(200))));"
                   "return all.every((r, i) => r[0] === i);");
    kit_expect_result("true");
}

/* ---- console ---- */

static void json_prints_as_json(void **state) {
    (void)state;
    (void)kit_main(
        "console.log('a', 'b c', 1, true, null, { a: [1, 'x'], b: { c: null } }, [1.5, 'y'], [])");
    assert_string_equal(
        kit_logs(), "1 a b c 1 true null {\"a\":[1,\"x\"],\"b\":{\"c\":null}} [1.5,\"y\"] []\n");
}

static void levels_are_kept(void **state) {
    (void)state;
    (void)kit_main("console.debug('a'); console.log('b'); console.info('c'); console.warn('d'); "
                   "console.error('e')");
    assert_string_equal(kit_logs(), "0 a\n1 b\n2 c\n3 d\n4 e\n");
}

static void what_json_lacks_is_inspected(void **state) {
    (void)state;
    (void)kit_main(
        "class Point { constructor() { this.x = 1; this.self = this; } get bad() { throw 1 } }"
        "console.log(undefined, 5n, Symbol('s'), -0, NaN, function foo() {}, class Bar {}, () => "
        "1);"
        "console.log(new Map([['k', { v: 1 }]]), new Set([1, 'a']), new Point(), [undefined, , 3]);"
        "console.log({ get g() { throw new Error('no') }, set s(v) {} }, Object.create(null), new "
        "Uint8Array([1, 2]));"
        "console.log(new Date(0), { d: new Date(0) }, /re/g, [new Date(NaN)], new WeakMap(), "
        "Promise.resolve(1));"
        "console.log(new Proxy({}, { get() { throw 1 }, ownKeys() { throw 2 } }), { p: new "
        "Proxy(() => 1, {}) });"
        "const c = { name: 'c' }; c.me = c; console.log(c); console.log({ toJSON() { throw 1 } }, "
        "{ a: { toJSON: 1 } });"
        "console.log([[[[[[[[[1n]]]]]]]]]);");
    const char *want =
        "1 undefined 5n Symbol(s) -0 NaN [Function: foo] [class Bar] [Function (anonymous)]\n"
        "1 Map(1) { \"k\" => { v: 1 } } Set(2) { 1, \"a\" } Point { x: 1, self: [Circular] } "
        "[ undefined, <1 empty item>, 3 ]\n"
        "1 { g: [Getter], s: [Setter] } {} Uint8Array(2) [ 1, 2 ]\n"
        "1 1970-01-01T00:00:00.000Z {\"d\":\"1970-01-01T00:00:00.000Z\"} /re/g [ Invalid Date ] "
        "WeakMap {} Promise {}\n"
        "1 [Proxy] { p: [Proxy (function)] }\n"
        "1 { name: \"c\", me: [Circular] }\n"
        "1 { toJSON: [Function: toJSON] } { a: { toJSON: 1 } }\n"
        "1 [ [ [ [ [ [ [ [Array] ] ] ] ] ] ] ]\n";
    assert_string_equal(kit_logs(), want);
}

/* Each of these killed the run: by memory, or by time. */
static void big_values_are_looked_at_in_part(void **state) {
    (void)state;
    const struct {
        const char *make;
        const char *shows;
    } big[] = {
        {"new Array(1e6).fill(7)", "7, … 999900 more items ]\n"},
        {"[new Array(1e6).fill(7)]", "7, … 999900 more items ] ]\n"},
        {"new Float64Array(1e6)", "1 Float64Array(1000000) [ 0, 0,"},
        {"new Uint8Array(2e7)", "… 19999900 more items ]\n"},
        {"(() => { const a = []; a[2e8] = 1; return a })()", "1 [ <10000 empty items>, … "},
        {"new Array(4e9)", "1 [ <10000 empty items>, … 3999990000 more items ]\n"},
        {"(() => { const a = []; for (let i = 0; i < 2e6; i += 2) a[i] = i; return a })()",
         "… 1999899 more items ]\n"},
        {"new Map(Array.from({ length: 1e5 }, (_, i) => [i, i]))",
         "1 Map(100000) { 0 => 0, 1 => 1,"},
        {"new Set(Array.from({ length: 1e5 }, (_, i) => i))", "99, … 99900 more items }\n"},
        {"Object.fromEntries(Array.from({ length: 1e5 }, (_, i) => ['k' + i, i]))",
         "k99: 99, … 99900 more keys }\n"},
        {"{ s: 'x'.repeat(2e7) }", "x\"… 19990000 more characters }\n"},
        {"{ ['x'.repeat(2e7)]: 1 }", "x\"… 19990000 more characters: 1 }\n"},
        {"Array.from({ length: 1000 }, () => new Array(1000).fill(0))", "… "},
    };
    for (size_t i = 0; i < ARRAY_LEN(big); i++) {
        _cleanup_(free) char *code =
            xasprintf("return { default: () => { const v = %s; console.log(v); console.table(v); "
                      "return 1; } };",
                      big[i].make);
        const struct kit_result *r = kit_run(
            &(struct kit_run){.code = code, .limits = {.cpu_ms = 3000, .output_bytes = 4 << 20}});
        if (!r->out.result || r->out.error)
            fail_msg("%s: %s", big[i].make, r->out.error ? r->out.error : "no result");
        kit_expect_log(big[i].shows);
    }
    /* What is not big is shown wholly, as before. */
    (void)kit_main("console.log(Array.from({ length: 500 }, (_, i) => ({ id: i, n: 'x' + i })))");
    kit_expect_log(",{\"id\":499,\"n\":\"x499\"}]\n");
}

static void a_format_is_filled_in(void **state) {
    (void)state;
    (void)kit_main(
        "console.log('a %s b', 'x', 'y'); console.log('%d %i %f', '42', 42.9, '1.5z');"
        "console.log('%o %O %j', { a: 1 }, [2], 'q'); console.log('%c red', 'color: red');"
        "console.log('100%', 5); console.log('%s'); console.log('%s %s', 1);"
        "console.log('%% %x %s', 2); console.log(5, '%s', 'x'); console.log('%d', {}, 7n);"
        "console.log('%s %s', Symbol('s'), null); console.error('%s!', 'e');");
    assert_string_equal(kit_logs(), "1 a x b y\n1 42 42 1.5\n1 {\"a\":1} [2] \"q\"\n1  red\n"
                                    "1 100% 5\n1 %s\n1 1 %s\n1 % %x 2\n1 5 %s x\n1 NaN 7n\n"
                                    "1 Symbol(s) null\n4 e!\n");
}

static void lines_that_were_left_out_are_counted(void **state) {
    (void)state;
    const struct kit_result *r = kit_run(&(struct kit_run){
        .code = "return { default: () => { for (let i = 0; i < 5e4; i++) console.log(''); } };"});
    assert_int_equal(r->out.output_bytes, 0);
    kit_expect_log("3 … 33616 lines and 0 bytes left out\n");
}

static void errors_print_their_stack(void **state) {
    (void)state;
    (void)kit_main("function inner() { throw new RangeError('deep') } try { inner() } catch (e) { "
                   "console.log('x', e, { e }) }");
    kit_expect_log("1 x RangeError: deep\n    at inner (user.js:1:");
    kit_expect_log("{ e: RangeError: deep\n    at inner");
}

static void the_rest_of_console_works(void **state) {
    (void)state;
    (void)kit_main(
        "console.count(); console.count('a'); console.count(); console.countReset(); "
        "console.count();"
        "console.group('g'); console.log('in\\nside'); console.groupEnd(); console.log('out');"
        "console.assert(true, 'no'); console.assert(false, 'yes', 1); console.dir({ a: 1 });"
        "console.time('t'); console.timeEnd('t'); console.timeEnd('t'); console.trace('here');"
        "console.table([{ a: 1, b: 'x' }, { a: 22 }]); console.table(5); console.clear(); const { "
        "log } = console; log('free');");
    kit_expect_log(
        "1 default: 1\n1 a: 1\n1 default: 2\n1 default: 1\n1 g\n1   in\n  side\n1 out\n");
    kit_expect_log("4 Assertion failed: yes 1\n1 {\"a\":1}\n1 t: ");
    kit_expect_log("ms\n3 Timer 't' does not exist\n0 Trace: here\n    at main (user.js:1:");
    kit_expect_log("│ (index) │ a  │ b   │");
    kit_expect_log("│ 1       │ 22 │     │");
    kit_expect_log("1 5\n1 free\n");
}

/* ---- timers, errors, ends ---- */

static void timers_run_in_order(void **state) {
    (void)state;
    (void)kit_main("const out = []; const at = (n, ms) => new Promise(r => setTimeout(() => { "
                   "out.push(n); r() }, ms));"
                   "setTimeout(() => { out.push('micro-a'); queueMicrotask(() => "
                   "out.push('micro-b')) }, 0); setTimeout(() => out.push('next'), 0);"
                   "const gone = setTimeout(() => out.push('gone'), 1); clearTimeout(gone); "
                   "clearTimeout(12345); clearTimeout();"
                   "let n = 0; await new Promise(r => { const i = setInterval((x) => { out.push(x "
                   "+ n); if (++n === 3) { clearInterval(i); r() } }, 2, 'i') });"
                   "await Promise.all([at('c', 900), at('a', 5), at('b', 450)]); return out;");
    kit_expect_result("[\"micro-a\",\"micro-b\",\"next\",\"i0\",\"i1\",\"i2\",\"a\",\"b\",\"c\"]");
}

static void a_thrown_error_tells_where(void **state) {
    (void)state;
    (void)kit_main("const x = 1;\nfunction inner() {\n  null.x;\n}\ninner();");
    kit_expect_error("\"kind\":\"error\",\"name\":\"TypeError\"");
    kit_expect_error("\"module\":\"user.js\",\"line\":3,\"column\":");
    kit_expect_error("\\n    at inner (user.js:3:");
    kit_expect_error("\\n    at main (user.js:5:");
}

static void what_is_thrown_need_not_be_an_error(void **state) {
    (void)state;
    (void)kit_main("throw 'text'");
    kit_expect_error("\"message\":\"text\"");
    (void)kit_main("throw { code: 7 }");
    kit_expect_error("{\\\"code\\\":7}");
    (void)kit_main("throw undefined");
    kit_expect_error("\"message\":\"undefined\"");
    (void)kit_main("throw new Proxy(new Error('p'), { get() { throw 1 } })");
    kit_expect_error("[Proxy]");
}

static void names_and_messages_may_be_getters(void **state) {
    (void)state;
    (void)kit_main("throw new DOMException('gone', 'AbortError')");
    kit_expect_error(
        "\"name\":\"AbortError\",\"message\":\"gone\",\"stack\":\"AbortError: gone\\n");
    (void)kit_main("AbortSignal.abort().throwIfAborted()");
    kit_expect_error("\"name\":\"AbortError\"");
    (void)kit_main("class Mine extends Error { get name() { return 'Mine' } get message() { return "
                   "'own' } } throw new Mine()");
    kit_expect_error("\"name\":\"Mine\",\"message\":\"own\"");
    (void)kit_main("class Bad extends Error { get name() { throw 1 } get message() { return {} } } "
                   "throw new Bad()");
    kit_expect_error("\"name\":\"Error\",\"message\":\"\"");
    (void)kit_main("throw Object.assign(new Error('x'), { code: 'E_MINE' })");
    kit_expect_error("\"code\":\"E_MINE\"");
    (void)kit_main("throw Object.assign(new Error('x'), { code: 7 })");
    kit_expect_error("\"code\":7");
    (void)kit_main("await env.db.fail('x')");
    kit_expect_error("\"code\":\"SQLITE_ERROR\"");
}

static void an_unhandled_rejection_fails_the_run(void **state) {
    (void)state;
    (void)kit_main(
        "Promise.reject(new Error('lost')); await new Promise(r => setTimeout(r, 50)); return 1;");
    kit_expect_error("\"kind\":\"unhandled\"");
    kit_expect_error("lost");
    (void)kit_main("setTimeout(() => { throw new Error('in timer') }, 1); await new Promise(r => "
                   "setTimeout(r, 50)); return 1;");
    kit_expect_error("in timer");
    (void)kit_main("queueMicrotask(() => { throw new Error('in microtask') }); await new Promise(r "
                   "=> setTimeout(r, 50)); return 1;");
    kit_expect_error("in microtask");
    (void)kit_main(
        "const p = Promise.reject(new Error('caught later')); p.catch(() => 0); return 1;");
    kit_expect_result("1");
}

static void nothing_that_was_left_behind_is_lost(void **state) {
    (void)state;
    (void)kit_main("Promise.reject(new Error('at once')); return 1;");
    kit_expect_error("\"kind\":\"unhandled\"");
    kit_expect_error("at once");
    (void)kit_main("env.db.fail('x'); return 1;");
    kit_expect_error("\"kind\":\"unhandled\"");
    kit_expect_error("no such table: nope");
    (void)kit_main("return { toJSON() { Promise.reject(new Error('in toJSON')); return 1; } };");
    kit_expect_error("in toJSON");
    const struct kit_result *r =
        kit_main("(async () => { for (let i = 0; i < 3; i++) await env.db.query('x'); "
                 "console.log('all'); })(); return 1;");
    kit_expect_result("1");
    kit_expect_log("all");
    assert_int_equal(r->out.binding_calls, 3);
    r = kit_main("for (let i = 0; i < 100; i++) env.db.query('x').then(() => env.db.query('y'));"
                 "throw new Error('after');");
    kit_expect_error("after");
    assert_true(r->out.done);
    assert_int_equal(r->out.nerrors, 1);
    assert_int_equal(r->out.binding_calls, 100); /* it asks nothing new */
    (void)kit_run(&(struct kit_run){
        .code = "return { default: env => { env.db.hang(); env.db.hang(); env.db.query('x'); "
                "return 1; } };",
        .limits = {.wait_until_ms = 50}});
    kit_expect_result("1");
    kit_expect_log("3 2 binding calls were not answered within 50 ms after the result");
}

static void a_promise_that_cannot_settle_ends_the_run(void **state) {
    (void)state;
    (void)kit_main("await new Promise(() => {})");
    kit_expect_error("\"kind\":\"stuck\"");
    kit_expect_error(
        "the program's promise never settled and nothing is left that could settle it");
}

static void results_that_json_cannot_hold_are_refused(void **state) {
    (void)state;
    (void)kit_main("const a = {}; a.a = a; return a");
    kit_expect_error("\"kind\":\"result\"");
    (void)kit_main("return 5n");
    kit_expect_error("\"kind\":\"result\"");
    (void)kit_main("return () => 1");
    kit_expect_error("which JSON cannot represent");
    (void)kit_main("return 'x'.repeat(2000000)");
    kit_expect_error("the result is larger than 1048576 bytes");
}

static void maps_sets_and_errors_are_results(void **state) {
    (void)state;
    (void)kit_main("return new Map([['a', new Map([[1, 2]])], [{ b: 1 }, new Set([1, [2]])]])");
    kit_expect_result("[[\"a\",[[1,2]]],[{\"b\":1},[1,[2]]]]");
    (void)kit_main(
        "const e = Object.assign(new TypeError('bad', { cause: new Error('deep') }), { code: "
        "'E', extra: [1] }); e.stack = ''; e.cause.stack = ''; return { e }");
    kit_expect_result(
        "{\"e\":{\"name\":\"TypeError\",\"message\":\"bad\",\"code\":\"E\",\"extra\":[1],"
        "\"cause\":{\"name\":\"Error\",\"message\":\"deep\",\"stack\":\"Error: deep\\n    at "
        "user.js:1\"},"
        "\"stack\":\"TypeError: bad\\n    at user.js:1\\nCaused by: Error: deep\\n    at "
        "user.js:1\"}}");
    (void)kit_main("class M extends Map { toJSON() { return 'mine' } } class P { x = 1 } "
                   "return [new M(), new P(), new Date(0), Object.create(null)]");
    kit_expect_result("[\"mine\",{\"x\":1},\"1970-01-01T00:00:00.000Z\",{}]");
    (void)kit_main("const m = new Map(); m.set('me', m); return m");
    kit_expect_error("\"kind\":\"result\"");
    (void)kit_main(
        "Array.prototype.toJSON = () => 'taken'; Object.prototype.toJSON = () => 'taken'; "
        "return new Map([[1, 2]])");
    kit_expect_result("\"taken\"");
}

static void eval_is_off(void **state) {
    (void)state;
    (void)kit_main(
        "const out = []; for (const f of [() => (0, eval)('1'), () => new Function('return 1'), "
        "() => (async () => {}).constructor('return 1'), () => (function* () "
        "{}).constructor('yield 1'), "
        "() => setTimeout('1')]) try { f(); out.push('ran') } catch (e) { out.push(e.name) } "
        "return out;");
    kit_expect_result("[\"EvalError\",\"EvalError\",\"EvalError\",\"EvalError\",\"TypeError\"]");
}

static void random_differs_between_isolates(void **state) {
    (void)state;
    char first[64];
    (void)kit_main("return Math.random()");
    (void)snprintf(first, sizeof(first), "%s", kit_main("return Math.random()")->out.result);
    (void)kit_main("return Math.random()");
    assert_non_null(strstr(first, "0."));
    (void)kit_main(
        "const a = Array.from({ length: 1e5 }, Math.random), m = a.reduce((x, y) => x + y) / 1e5;"
        "return [Math.abs(m - 0.5) < 0.01, a.every(x => x >= 0 && x < 1), new Set(a).size > "
        "99990];");
    kit_expect_result("[true,true,true]");
    (void)kit_main("return Math.random()");
    assert_string_not_equal(first, kit_main("return Math.random()")->out.result);
}

static void globals_are_pristine_in_every_isolate(void **state) {
    (void)state;
    (void)kit_main("globalThis.mark = 1; Array.prototype.mark = 1; return 1");
    (void)kit_main("return [typeof mark, typeof [].mark, setTimeout(() => 0, 5)]");
    kit_expect_result("[\"undefined\",\"undefined\",1]");
}

static void a_warm_isolate_serves_calls(void **state) {
    (void)state;
    struct front_isolate iso;
    front_want(kit_front(), 1);
    front_take(kit_front(), &iso);
    struct front_run run = {.flags = ISOLATE_RUN_WARM,
                            .program = "(async () => { let n = 0; return { default: { add(x) { n "
                                       "+= x; console.log('n', n); return n; }, "
                                       "slow(x) { return new Promise(r => setTimeout(() => r(x), "
                                       "30)) }, bad() { throw new Error('one') } } } })",
                            .spec = "{\"main\":false}"};
    struct front_outcome o;
    front_send_run(&iso, 1, &run);
    front_finish_run(&iso, 1, &run, &o);
    assert_true(o.done);
    front_outcome_finish(&o);
    for (uint64_t id = 2; id < 5; id++) {
        front_send_call(&iso, id, "{\"method\":\"add\",\"args\":[2]}", "");
        front_finish_run(&iso, id, &run, &o);
        char want[8];
        (void)snprintf(want, sizeof(want), "%d", (int)(id - 1) * 2);
        assert_string_equal(o.result, want);
        front_outcome_finish(&o);
    }
    front_send_call(&iso, 10, "{\"method\":\"bad\"}", "");
    front_finish_run(&iso, 10, &run, &o);
    assert_non_null(strstr(o.error, "one"));
    front_outcome_finish(&o);
    /* Two at once: the second answers first. */
    front_send_call(&iso, 11, "{\"method\":\"slow\",\"args\":[\"s\"]}", "");
    front_send_call(&iso, 12, "{\"method\":\"add\",\"args\":[1]}", "");
    front_finish_run(&iso, 12, &run, &o);
    assert_string_equal(o.result, "7");
    front_outcome_finish(&o);
    front_finish_run(&iso, 11, &run, &o);
    assert_string_equal(o.result, "\"s\"");
    front_outcome_finish(&o);
    front_drop(&iso);
}

static void http(struct front_isolate *iso, uint64_t id, const char *rest, const char *body,
                 struct front_outcome *o) {
    _cleanup_(free) char *text =
        xasprintf("{\"http\":{\"url\":\"https://me.example/"
                  "p?q=1\",\"headers\":[[\"x-a\",\"1\"],[\"x-a\",\"2\"]]%s}}",
                  rest);
    front_send_call(iso, id, text, body);
    struct front_run run = {0};
    front_finish_run(iso, id, &run, o);
}

static void a_worker_answers_http(void **state) {
    (void)state;
    struct front_isolate iso;
    front_want(kit_front(), 1);
    front_take(kit_front(), &iso);
    struct front_run run = {
        .flags = ISOLATE_RUN_WARM,
        .program =
            "(async () => ({ default: { async fetch(request, env, ctx) { const u = new "
            "URL(request.url);"
            " if (request.method === 'GET') return Response.json({ path: u.pathname, q: "
            "u.searchParams.get('q'), a: request.headers.get('x-a') }, { status: 201, headers: { "
            "'x-b': '3' } });"
            " if (request.method === 'PUT') return new Response(new ReadableStream({ async "
            "start(c) { for (let i = 0; i < 3; i++) { c.enqueue(new TextEncoder().encode('part' + "
            "i)); await new Promise(r => setTimeout(r, 1)) } c.close() } }));"
            " if (request.method === 'OPTIONS') return Response.error();"
            " if (request.method === 'LONG') return new Response('x', { headers: { 'x-long': "
            "'y'.repeat(+await request.text()) } });"
            " if (request.method === 'DELETE') return 'no response'; if (request.method === "
            "'PATCH') throw new Error('broken');"
            " return new Response((await request.text()).toUpperCase()) } } }))",
        .spec = "{\"main\":false}"};
    struct front_outcome o;
    front_send_run(&iso, 1, &run);
    front_finish_run(&iso, 1, &run, &o);
    assert_true(o.done);
    front_outcome_finish(&o);
    http(&iso, 2, "", "", &o);
    assert_non_null(strstr(o.response.data, "{\"status\":201,"));
    assert_non_null(strstr(o.response.data, "[\"x-b\",\"3\"]"));
    assert_non_null(strstr(o.response.data, "\n{\"path\":\"/p\",\"q\":\"1\",\"a\":\"1, 2\"}"));
    assert_true(o.body_ended && o.done);
    front_outcome_finish(&o);
    http(&iso, 3, ",\"method\":\"POST\"", "shout", &o);
    assert_non_null(strstr(o.response.data, "\nSHOUT"));
    front_outcome_finish(&o);
    http(&iso, 4, ",\"method\":\"PUT\"", "", &o);
    assert_non_null(strstr(o.response.data, "\npart0part1part2"));
    assert_true(o.npieces == 4 && o.body_ended);
    front_outcome_finish(&o);
    http(&iso, 5, ",\"method\":\"DELETE\"", "", &o);
    assert_non_null(strstr(o.error, "not a Response"));
    front_outcome_finish(&o);
    http(&iso, 6, ",\"method\":\"PATCH\"", "", &o);
    assert_non_null(strstr(o.error, "broken"));
    front_outcome_finish(&o);
    http(&iso, 7, ",\"method\":\"OPTIONS\"", "", &o);
    assert_non_null(o.error);
    assert_non_null(strstr(o.error, "Response.error()"));
    front_outcome_finish(&o);
    http(&iso, 8, ",\"method\":\"LONG\"", "61440", &o);
    assert_non_null(o.error);
    assert_non_null(strstr(o.error, "headers of the response have 614"));
    assert_int_equal(o.response.len, 0);
    front_outcome_finish(&o);
    http(&iso, 9, ",\"method\":\"LONG\"", "61000", &o);
    assert_non_null(strstr(o.response.data, "yyyy"));
    front_outcome_finish(&o);
    front_drop(&iso);
}

static void web_globals_are_there_and_closed_in(void **state) {
    (void)state;
    (void)kit_main("const out = [new URL('/a', 'https://x.example').href, atob(btoa('hi')), "
                   "structuredClone(new Map([[1, 2]])).get(1),"
                   " crypto.randomUUID().length, new TextDecoder().decode(new "
                   "TextEncoder().encode('é')), typeof performance.now(), [...new Uint8Array(await "
                   "crypto.subtle.digest('SHA-256', new Uint8Array(1)))].length];"
                   "try { await fetch('https://example.com') } catch (e) { "
                   "out.push(e.constructor.name) } return out;");
    kit_expect_result("[\"https://x.example/a\",\"hi\",2,36,\"é\",\"number\",32,\"TypeError\"]");
    (void)kit_main(
        "reportError(new Error('reported')); await new Promise(r => setTimeout(r, 20)); return 1");
    kit_expect_error("reported");
}

static void a_pair_of_harness_and_user_code_runs(void **state) {
    (void)state;
    _cleanup_(buf) struct buf program;
    buf_init(&program, 1 << 20);
    struct err err;
    assert_int_equal(fd_read_file(AT_FDCWD, getenv("CAY_TEST_HARNESS"), &program, &err), 0);
    (void)kit_run(&(struct kit_run){.linked = program.data,
                                    .spec = "{" KIT_ENV ",\"verify\":true,\"method\":\"run\"}"});
    assert_string_equal(kit_logs(), "1 Gold customers: 2\n1  - one (1)\n1  - null (2)\n");
    kit_expect_error("RangeError: too many: 2\\n    at fail (user-code.js:11:");
    kit_expect_error("user-code.js:7:");
    assert_null(strstr(
        kit_run(&(struct kit_run){.linked = program.data, .spec = "{" KIT_ENV "}"})->out.error,
        "cay:"));
}

static void a_withdrawn_capability_rejects(void **state) {
    (void)state;
    struct front_isolate iso;
    front_want(kit_front(), 1);
    front_take(kit_front(), &iso);
    int ends[2];
    struct err err;
    assert_int_equal(fd_pair(ends, &err), 0);
    struct front_run run = {
        .program =
            "(async () => ({ default: async env => { const out = []; for (let i = 0; i < 2; i++) "
            "try { await env.db.query('x') } catch (e) { out.push(e.message) } return out } }))",
        .spec = "{\"env\":{\"db\":{\"fd\":0,\"kind\":\"facet\",\"methods\":[\"query\"]}}}",
        .fds = {ends[1]},
        .nfds = 1};
    front_send_run(&iso, 1, &run);
    close(ends[1]);
    close(ends[0]);
    run.nfds = 0;
    struct front_outcome o;
    front_finish_run(&iso, 1, &run, &o);
    assert_string_equal(o.result, "[\"env.db was withdrawn\",\"env.db was withdrawn\"]");
    front_outcome_finish(&o);
    front_drop(&iso);
}

static void a_forged_reply_ends_the_capability(void **state) {
    (void)state;
    static const struct {
        uint16_t type;
        uint64_t id;
        const char *json;
    } forged[] = {
        {ISOLATE_BINDING_RESULT, 99, "1"}, {7, 1, "1"}, {ISOLATE_BINDING_RESULT, 1, "{not json"}};
    for (size_t i = 0; i < 3; i++) {
        struct front_isolate iso;
        front_want(kit_front(), 1);
        front_take(kit_front(), &iso);
        int ends[2];
        struct err err;
        assert_int_equal(fd_pair(ends, &err), 0);
        struct front_run run = {
            .program = "(async () => ({ default: async env => { try { await env.db.query('x') } "
                       "catch (e) { return e.message } } }))",
            .spec = "{\"env\":{\"db\":{\"fd\":0,\"kind\":\"facet\",\"methods\":[\"query\"]}}}",
            .fds = {ends[1]},
            .nfds = 1};
        front_send_run(&iso, 1, &run);
        close(ends[1]);
        struct wire_out out = {.type = forged[i].type,
                               .id = forged[i].id,
                               .pieces = {{forged[i].json, strlen(forged[i].json)}}};
        char buf[256];
        assert_true(read(ends[0], buf, sizeof(buf)) > 0);
        assert_int_equal(wire_send(ends[0], &out), 0);
        run.nfds = 0;
        struct front_outcome o;
        front_finish_run(&iso, 1, &run, &o);
        assert_non_null(o.result);
        assert_true(strstr(o.result, "valid reply") || strstr(o.result, "malformed"));
        front_outcome_finish(&o);
        front_drop(&iso);
        close(ends[0]);
    }
}

static long pages_of(const struct front *f) {
    const char *at = strstr(f->features, "\"pages_populated\":");
    return at ? strtol(strchr(at, ':') + 1, NULL, 10) : 0;
}

/* The second of two zygotes puts together what the first saw a run write to. */
static void a_plan_gathers_what_a_run_writes(void **state) {
    (void)state;
    struct front first;
    struct front second;
    front_start(&first, getenv("CAY_ISOLATE"), ISOLATE_CONFIG_LEARN, ISOLATE_LEVER_ALL);
    assert_non_null(strstr(first.features, "\"gather\":false"));
    assert_true(first.plan.len > 400 && first.plan.len % sizeof(uint32_t) == 0);
    front_start_planned(&second, getenv("CAY_ISOLATE"), 0, ISOLATE_LEVER_ALL, &first.plan);
    assert_non_null(strstr(second.features, "\"gather\":true"));
    assert_int_equal(second.plan.len, 0);
    if (pages_of(&second) > pages_of(&first) * 8 / 10)
        fail_msg("%ld pages with a plan, %ld without", pages_of(&second), pages_of(&first));
    struct front_isolate iso;
    front_want(&second, 1);
    front_take(&second, &iso);
    struct front_run run = {.program =
                                "(async () => ({ default: () => [1, 2].map((x) => x + 1) }))"};
    struct front_outcome o;
    front_send_run(&iso, 1, &run);
    front_finish_run(&iso, 1, &run, &o);
    assert_string_equal(o.result, "[2,3]");
    front_outcome_finish(&o);
    front_drop(&iso);
    front_stop(&second);
    /* Switched off, a plan changes nothing. */
    front_start_planned(&second, getenv("CAY_ISOLATE"), 0,
                        ISOLATE_LEVER_ALL & ~(uint32_t)ISOLATE_LEVER_GATHER, &first.plan);
    assert_non_null(strstr(second.features, "\"gather\":false"));
    assert_true(pages_of(&second) > pages_of(&first) * 8 / 10);
    front_stop(&second);
    front_stop(&first);
}

/* One that says nonsense costs room and nothing else. */
static void a_plan_that_does_not_fit_does_no_harm(void **state) {
    (void)state;
    static const uint32_t names[] = {1, 24u << 16 | 5, 24u << 16 | 5, 7, UINT32_MAX, 0};
    struct buf plan = {.data = (char *)(uintptr_t)names, .len = sizeof(names)};
    struct front f;
    front_start_planned(&f, getenv("CAY_ISOLATE"), 0, ISOLATE_LEVER_ALL, &plan);
    struct front_isolate iso;
    front_want(&f, 1);
    front_take(&f, &iso);
    struct front_run run = {.program = "(async () => ({ default: () => 6 }))"};
    struct front_outcome o;
    front_send_run(&iso, 1, &run);
    front_finish_run(&iso, 1, &run, &o);
    assert_string_equal(o.result, "6");
    front_outcome_finish(&o);
    front_drop(&iso);
    front_stop(&f);
}

static void isolates_end_with_the_zygote(void **state) {
    (void)state;
    struct front f;
    front_start(&f, getenv("CAY_ISOLATE"), 0, ISOLATE_LEVER_ALL);
    struct front_isolate iso;
    front_want(&f, 1);
    front_take(&f, &iso);
    assert_int_equal(kill(f.pid, SIGKILL), 0);
    struct front_run run = {0};
    struct front_outcome o;
    front_finish_run(&iso, 1, &run, &o);
    assert_true(o.closed && !o.timeout);
    front_outcome_finish(&o);
    front_drop(&iso);
    front_stop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_default_function_gets_env_and_arguments),
        cmocka_unit_test(a_result_of_undefined_is_empty),
        cmocka_unit_test(an_object_has_methods),
        cmocka_unit_test(a_class_extends_worker_entrypoint),
        cmocka_unit_test(a_failing_verify_fails_the_run),
        cmocka_unit_test(a_program_that_cannot_load_says_so),
        cmocka_unit_test(wait_until_is_waited_for),
        cmocka_unit_test(wait_until_is_bounded),
        cmocka_unit_test(rows_become_objects),
        cmocka_unit_test(arguments_reach_the_facet),
        cmocka_unit_test(a_facets_failure_is_an_error),
        cmocka_unit_test(an_unknown_method_is_no_function),
        cmocka_unit_test(a_worker_binding_carries_every_value),
        cmocka_unit_test(a_call_that_is_too_large_fails_alone),
        cmocka_unit_test(binding_calls_are_counted_and_limited),
        cmocka_unit_test(a_thousand_calls_at_once_come_back),
        cmocka_unit_test(json_prints_as_json),
        cmocka_unit_test(levels_are_kept),
        cmocka_unit_test(what_json_lacks_is_inspected),
        cmocka_unit_test(big_values_are_looked_at_in_part),
        cmocka_unit_test(a_format_is_filled_in),
        cmocka_unit_test(lines_that_were_left_out_are_counted),
        cmocka_unit_test(errors_print_their_stack),
        cmocka_unit_test(the_rest_of_console_works),
        cmocka_unit_test(timers_run_in_order),
        cmocka_unit_test(a_thrown_error_tells_where),
        cmocka_unit_test(what_is_thrown_need_not_be_an_error),
        cmocka_unit_test(names_and_messages_may_be_getters),
        cmocka_unit_test(an_unhandled_rejection_fails_the_run),
        cmocka_unit_test(nothing_that_was_left_behind_is_lost),
        cmocka_unit_test(a_promise_that_cannot_settle_ends_the_run),
        cmocka_unit_test(results_that_json_cannot_hold_are_refused),
        cmocka_unit_test(maps_sets_and_errors_are_results),
        cmocka_unit_test(eval_is_off),
        cmocka_unit_test(random_differs_between_isolates),
        cmocka_unit_test(globals_are_pristine_in_every_isolate),
        cmocka_unit_test(a_warm_isolate_serves_calls),
        cmocka_unit_test(a_worker_answers_http),
        cmocka_unit_test(web_globals_are_there_and_closed_in),
        cmocka_unit_test(a_pair_of_harness_and_user_code_runs),
        cmocka_unit_test(a_withdrawn_capability_rejects),
        cmocka_unit_test(a_forged_reply_ends_the_capability),
        cmocka_unit_test(a_plan_gathers_what_a_run_writes),
        cmocka_unit_test(a_plan_that_does_not_fit_does_no_harm),
        cmocka_unit_test(isolates_end_with_the_zygote),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
