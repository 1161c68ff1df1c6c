/* Isolates that put their memory back: every round begins as the first did. */

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

static int start(void **state) {
    (void)state;
    kit_start("CAY_ISOLATE_PROBE", ISOLATE_CONFIG_RESET);
    if (!strstr(kit_front()->features, "\"reset\":true"))
        skip();
    return 0;
}

static int stop(void **state) {
    (void)state;
    kit_round_end();
    kit_stop();
    return 0;
}

static const struct kit_result *body(const char *text) {
    _cleanup_(free) char *code =
        xasprintf("return { default: async function main(env) { %s\n} };", text);
    return kit_round(&(struct kit_run){.code = code});
}

static long status_kib(const char *key) {
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)kit_round_pid());
    _cleanup_(buf) struct buf b;
    buf_init(&b, 65536);
    struct err err;
    if (fd_read_file(AT_FDCWD, path, &b, &err) < 0)
        return -1;
    const char *p = strstr(b.data, key);
    return p ? strtol(p + strlen(key), NULL, 10) : -1;
}

static void expect_reset(const struct kit_result *r) {
    if (!r->out.reset_ready)
        fail_msg("no reset: status %d signal %d error %s", r->status, r->signal,
                 r->out.error ? r->out.error : "-");
    assert_true(r->out.done);
    assert_int_equal(r->held, 0);
}

/* What the zygote shares with an isolate, it shares with all of them: no isolate may write to it,
 * also not one that was taken over and calls mprotect(). */
static void what_isolates_share_none_can_write_to(void **state) {
    (void)state;
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/smaps", (int)kit_front()->pid);
    _cleanup_(buf) struct buf b;
    buf_init(&b, 4 << 20);
    struct err err;
    int rc = fd_read_file(AT_FDCWD, path, &b, &err);
    if (rc < 0 && geteuid() != 0) {
        print_message("only root may look at the zygote's memory\n");
        skip();
    }
    assert_int_equal(rc, 0);
    size_t shared = 0;
    char *rest = NULL;
    char head[256] = "";
    for (char *line = strtok_r(b.data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char mode[8];
        if (sscanf(line, "%*x-%*x %7s", mode) == 1)
            (void)snprintf(head, sizeof(head), "%s", mode[3] == 's' ? line : "");
        if (!head[0] || strncmp(line, "VmFlags:", 8) != 0)
            continue;
        shared++;
        if (strstr(line, " wr") || strstr(line, " mw"))
            fail_msg("every isolate can write to %s (%s)", head, line);
    }
    assert_int_equal(shared, 2); /* the image of the zygote */
}

static void nothing_of_a_run_is_left(void **state) {
    (void)state;
    const char *look = "return [typeof globalThis.mark, typeof [].mark, typeof Object.prototype.x, "
                       "Math.max(1, 2), setTimeout(() => 0, 1), "
                       "typeof fetch, JSON.stringify({ a: 1 }), (console.count(), 1), "
                       "env.WORD.a.length, typeof mark2, Object.isFrozen(Array.prototype)]";
    const char *want = "[\"undefined\",\"undefined\",\"undefined\",2,1,\"function\",\"{\\\"a\\\":1}"
                       "\",1,2,\"undefined\",false]";
    expect_reset(body(look));
    kit_expect_result(want);
    expect_reset(body("globalThis.mark = new Map(); Array.prototype.mark = 1; Object.prototype.x = "
                      "1; Math.max = () => 7; globalThis.mark2 = 1;"
                      "JSON.stringify = () => 'x'; console.count(); console.group(); "
                      "setInterval(() => 0, 1); globalThis.fetch = 1; env.WORD.a.push(1);"
                      "Object.freeze(Array.prototype); Promise.prototype.then = 1; new Promise(() "
                      "=> {}); return 1"));
    expect_reset(body(look));
    kit_expect_result(want);
    kit_expect_log("1 default: 1\n");
}

/* After a few rounds a run needs no page that the process does not have: then the kernel is not
 * asked, and still nothing is left. */
static void known_pages_are_put_back(void **state) {
    (void)state;
    int known = 0;
    for (int i = 0; i < 12; i++) {
        const struct kit_result *r = body(
            "if (globalThis.mark || [].mark || Math.max(1, 2) !== 2 || console.x) return 'left'; "
            "globalThis.mark = new Map([[1, 2]]); Array.prototype.mark = 1; Math.max = () => 7; "
            "console.x = 1; return (await env.db.query('x')).length");
        expect_reset(r);
        kit_expect_result("2");
        known += r->out.reset_known > 0;
    }
    assert_true(known >= 4);
}

/* Programs that take and give back memory in every way, among those that take none. */
static void what_is_known_is_known_anew(void **state) {
    (void)state;
    static const char *const ways[] = {
        "",
        "const a = []; for (let i = 0; i < 3000 + n * 50; i++) a.push({ i, s: 'x' + i });",
        "const a = new Uint8Array(1 << 14 + n % 9); a[a.length - 1] = 7;",
        "let s = 'ab'; for (let i = 0; i < 10 + n % 7; i++) s += s; s.split('a').join('c');",
        "const a = []; for (let i = 0; i < 2e4; i++) a[i] = n; a.length = 9; a.sort();",
        "let a = new ArrayBuffer(1e5, { maxByteLength: 4e6 }); a.resize(2e6); a.resize(5e4);",
        "JSON.parse(JSON.stringify(Array.from({ length: 900 + n }, (_, i) => [i, 'k' + i])));",
        "(function f(k) { return k ? 1 + f(k - 1) : 0 })(500 + n);",
        "new TextEncoder().encode('é'.repeat(50000 + n)); structuredClone(new Map([[n, [n]]]));",
    };
    int known = 0;
    uint32_t seed = 7;
    for (int i = 0; i < 150; i++) {
        seed = seed * 1664525 + 1013904223;
        size_t way = i % 3 ? 0 : (seed >> 16) % ARRAY_LEN(ways);
        _cleanup_(free) char *text = xasprintf(
            "const n = %d; if (typeof mark !== 'undefined' || [].mark || 'x' in {}) return 'left'; "
            "globalThis.mark = n; Array.prototype.mark = [n]; Object.prototype.x = n; %s return n",
            i, ways[way]);
        char want[16];
        (void)snprintf(want, sizeof(want), "%d", i);
        const struct kit_result *r = body(text);
        expect_reset(r);
        kit_expect_result(want);
        known += r->out.reset_known > 0;
    }
    assert_true(known > 10 && known < 150);
}

/* As often as it takes until a run causes no fault, and some more. How many times only known pages
 * were looked at. */
static int known_rounds(const char *text, const char *want) {
    int known = 0;
    for (int i = 0; i < 10; i++) {
        const struct kit_result *r = body(text);
        expect_reset(r);
        kit_expect_result(want);
        known += r->out.reset_known > 0;
    }
    return known;
}

/* What no fault tells of: each of the guards has to see it by itself. */
static void changes_without_a_fault_are_seen(void **state) {
    (void)state;
    char text[512];
    assert_true(known_rounds("return probe(-1, 0, 0, 3)", "0") > 0);
    assert_int_equal(known_rounds("return probe(-1, 0, 0, 4)", "0"), 0); /* MADV_DONTNEED */
    long size = status_kib("VmSize:");
    (void)snprintf(text, sizeof(text), "return probe(%ld, 0, 8192, 3, 34, -1, 0) > 0",
                   (long)SYS_mmap);
    assert_int_equal(known_rounds(text, "true"), 0);
    assert_int_equal(status_kib("VmSize:"), size);
    (void)snprintf(text, sizeof(text),
                   "const b = probe(%ld, 0); probe(%ld, b - 16); return b %% 4096", (long)SYS_brk,
                   (long)SYS_brk);
    assert_int_equal(known_rounds(text, "0"), 0);
}

/* A page that a run was the first to write to is zero again, however often. Its futex tells. */
static void new_pages_are_zero_again(void **state) {
    (void)state;
    char text[512];
    (void)snprintf(text, sizeof(text),
                   "const at = probe(%ld, 0) - 4096; const was = probe(%ld, at, 4, 0, 0, at + 4, "
                   "0); probe(%ld, at, 4096, 0); return was",
                   (long)SYS_brk, (long)SYS_futex, (long)SYS_getrandom);
    assert_true(known_rounds(text, "0") > 0);
}

static void random_differs_between_rounds(void **state) {
    (void)state;
    char seen[20][40];
    for (size_t i = 0; i < 20; i++) {
        expect_reset(body("return Math.random() + crypto.randomUUID()"));
        (void)snprintf(
            seen[i], sizeof(seen[i]), "%.39s",
            kit_round_pid() ? body("return crypto.randomUUID() + Math.random()")->out.result : "");
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(seen[i], seen[k]);
    }
}

static void keys_differ_between_rounds(void **state) {
    (void)state;
    char seen[3][400];
    for (size_t i = 0; i < 3; i++) {
        const struct kit_result *r = body(
            "const k = await crypto.subtle.generateKey({ name: 'RSA-PSS', modulusLength: 2048, "
            "publicExponent: new Uint8Array([1, 0, 1]), hash: 'SHA-256' }, true, ['sign', "
            "'verify']); "
            "return (await crypto.subtle.exportKey('jwk', k.publicKey)).n");
        expect_reset(r);
        (void)snprintf(seen[i], sizeof(seen[i]), "%s", r->out.result);
        assert_int_equal(strlen(seen[i]), 344); /* 2048 bits and two quotes */
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(seen[i], seen[k]);
    }
}

static void rounds_leave_no_memory_behind(void **state) {
    (void)state;
    pid_t pid = 0;
    long before = 0;
    for (int i = 0; i < 400; i++) {
        expect_reset(
            body("const rows = await env.db.query('x'); const m = new Map(); for (let i = 0; i < "
                 "2000; i++) m.set(i, { i, s: 'x'.repeat(i % 50) });"
                 "await new Promise(r => setTimeout(r, 0)); return [rows.length, m.size]"));
        kit_expect_result("[2,2000]");
        if (i == 20) {
            pid = kit_round_pid();
            before = status_kib("VmRSS:");
        }
    }
    assert_int_equal(pid, kit_round_pid());
    long after = status_kib("VmRSS:");
    if (after > before + 2048)
        fail_msg("resident memory grew from %ld to %ld KiB", before, after);
}

static void large_runs_are_undone(void **state) {
    (void)state;
    expect_reset(body("return 1"));
    pid_t pid = kit_round_pid();
    long before = status_kib("VmRSS:");
    expect_reset(body("const a = []; for (let i = 0; i < 60; i++) a.push(new Uint8Array(1 << "
                      "20).fill(i)); const o = []; for (let i = 0; i < 1e5; i++) o.push({ i, t: "
                      "'k' + i }); return [a.length, o.length]"));
    kit_expect_result("[60,100000]");
    expect_reset(body("const f = n => n === 0 ? 0 : 1 + f(n - 1); let d = 0; try { (function g() { "
                      "d++; g() })() } catch { } return d > 1000 && f(1000)"));
    kit_expect_result("1000");
    expect_reset(body("function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2) } let s = 0; "
                      "for (let i = 0; i < 5; i++) s += fib(24); return [s, 'aXbX'.replace(/X/g, "
                      "'y'), [3, 1, 2].sort().join('')]"));
    kit_expect_result("[231840,\"ayby\",\"123\"]");
    expect_reset(body("return (await env.db.query('x')).length"));
    kit_expect_result("2");
    assert_int_equal(pid, kit_round_pid());
    long after = status_kib("VmRSS:");
    if (after > before + 8192)
        fail_msg("resident memory grew from %ld to %ld KiB", before, after);
}

static void failed_runs_reset_too(void **state) {
    (void)state;
    expect_reset(body("throw new Error('one')"));
    kit_expect_error("one");
    expect_reset(body("await new Promise(() => {})"));
    kit_expect_error("never settled");
    expect_reset(
        body("Promise.reject(new Error('two')); await new Promise(r => setTimeout(r, 20))"));
    kit_expect_error("two");
    expect_reset(kit_round(&(struct kit_run){
        .code = "return { default: env => { env.db.hang(); for (let i = 0; i < 1e5; i++) "
                "console.log('flood ' + i); return 1 } };",
        .limits = {.wait_until_ms = 50}}));
    expect_reset(body("return 'well'"));
    kit_expect_result("\"well\"");
    assert_string_equal(kit_logs(), "");
}

static void a_runaway_ends_the_isolate(void **state) {
    (void)state;
    const struct kit_result *r = kit_round(&(struct kit_run){
        .code = "return { default: () => { for (;;) {} } };", .limits = {.cpu_ms = 100}});
    assert_false(r->out.reset_ready);
    kit_expect_error("processor time limit");
    r = kit_round(&(struct kit_run){.code = "return { default: () => { const a = []; for (;;) "
                                            "a.push(new Uint8Array(1 << 20).fill(1)) } };",
                                    .limits = {.memory_bytes = 64 << 20}});
    assert_false(r->out.reset_ready);
    kit_expect_error("memory limit");
    expect_reset(body("return 2"));
    kit_expect_result("2");
}

static void limits_are_per_round(void **state) {
    (void)state;
    expect_reset(kit_round(&(struct kit_run){.code = "return { default: () => 1 };",
                                             .limits = {.memory_bytes = 16 << 20}}));
    expect_reset(body("const a = []; for (let i = 0; i < 80; i++) a.push(new Uint8Array(1 << "
                      "20).fill(i)); return a.length"));
    kit_expect_result("80");
}

static void the_filter_allows_one_ioctl_only(void **state) {
    (void)state;
    char text[128];
    (void)snprintf(text, sizeof(text), "return probe(%ld, 0, 21505, 0)", (long)SYS_ioctl);
    assert_int_equal(body(text)->signal, SIGSYS);
    (void)snprintf(text, sizeof(text), "return probe(%ld, 60, 21505, 0)", (long)SYS_ioctl);
    assert_int_equal(body(text)->signal, SIGSYS);
    (void)snprintf(text, sizeof(text), "return probe(%ld, '/etc/passwd', 0)", (long)SYS_open);
    assert_int_equal(body(text)->signal, SIGSYS);
}

/* Native code that changes the layout behind the reset's back: the process must not go on. */
static void a_changed_layout_ends_the_isolate(void **state) {
    (void)state;
    char text[256];
    (void)snprintf(text, sizeof(text), "const a = probe(%ld, 0, 8192, 3, 34, -1, 0); return a > 0",
                   (long)SYS_mmap);
    expect_reset(body(text)); /* a new mapping is simply removed */
    kit_expect_result("true");
    (void)snprintf(
        text, sizeof(text),
        "const b = probe(%ld, 0); return probe(%ld, Math.floor(b / 4096) * 4096 - 4096, 4096, 1)",
        (long)SYS_brk, (long)SYS_mprotect);
    const struct kit_result *r = body(text);
    assert_false(r->out.reset_ready);
    assert_int_equal(r->status, ISOLATE_EXIT_RESET);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_isolates_share_none_can_write_to),
        cmocka_unit_test(nothing_of_a_run_is_left),
        cmocka_unit_test(known_pages_are_put_back),
        cmocka_unit_test(what_is_known_is_known_anew),
        cmocka_unit_test(changes_without_a_fault_are_seen),
        cmocka_unit_test(new_pages_are_zero_again),
        cmocka_unit_test(random_differs_between_rounds),
        cmocka_unit_test(keys_differ_between_rounds),
        cmocka_unit_test(rounds_leave_no_memory_behind),
        cmocka_unit_test(large_runs_are_undone),
        cmocka_unit_test(failed_runs_reset_too),
        cmocka_unit_test(a_runaway_ends_the_isolate),
        cmocka_unit_test(limits_are_per_round),
        cmocka_unit_test(the_filter_allows_one_ioctl_only),
        cmocka_unit_test(a_changed_layout_ends_the_isolate),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
