/* The walls around an isolate, tried from inside: with the system-call filter (each forbidden call
 * kills the isolate, and only it), and behind the filter (namespaces, root, privileges, limits). */

#include "kit.h"

#include "base/cleanup.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int start_filtered(void **state) {
    (void)state;
    kit_start("CAY_ISOLATE_PROBE", 0);
    return 0;
}

static int start_unfiltered(void **state) {
    (void)state;
    kit_start("CAY_ISOLATE_PROBE", 1u << 31);
    return 0;
}

/* A zygote that allocates before each fork. */
static int start_allocating(void **state) {
    (void)state;
    kit_start("CAY_ISOLATE_PROBE", 1u << 30);
    return 0;
}

static int stop(void **state) {
    (void)state;
    kit_stop();
    return 0;
}

/* The value of probe(...) in a fresh isolate. */
static const struct kit_result *probe(const char *call) {
    _cleanup_(free) char *body = xasprintf("return %s;", call);
    return kit_main(body);
}

static void a_forbidden_call_kills_the_isolate_alone(void **state) {
    (void)state;
    static const struct {
        const char *name;
        long number;
        const char *args;
    } calls[] = {
        {"open", SYS_open, "'/etc/passwd', 0"},
        {"openat", SYS_openat, "-100, '/etc/passwd', 0"},
        {"openat2", SYS_openat2, "-100, '/etc/passwd', 0, 0"},
        {"stat", SYS_newfstatat, "-100, '/etc', 0, 0"},
        {"socket", SYS_socket, "2, 1, 0"},
        {"socketpair", SYS_socketpair, "1, 1, 0, 0"},
        {"connect", SYS_connect, "3, 0, 0"},
        {"bind", SYS_bind, "3, 0, 0"},
        {"accept", SYS_accept4, "3, 0, 0, 0"},
        {"sendmsg", SYS_sendmsg, "3, 0, 0"},
        {"sendmmsg", SYS_sendmmsg, "3, 0, 0, 0"},
        {"sendto with an address", SYS_sendto, "3, 'x', 1, 0, 'xxxx', 4"},
        {"fork", SYS_fork, "0"},
        {"vfork", SYS_vfork, "0"},
        {"clone", SYS_clone, "17, 0, 0, 0, 0"},
        {"clone3", SYS_clone3, "0, 0"},
        {"execve", SYS_execve, "'/bin/sh', 0, 0"},
        {"execveat", SYS_execveat, "-100, '/bin/sh', 0, 0, 0"},
        {"ptrace", SYS_ptrace, "16, 1, 0, 0"},
        {"process_vm_readv", SYS_process_vm_readv, "1, 0, 0, 0, 0, 0"},
        {"kill", SYS_kill, "1, 0"},
        {"tgkill", SYS_tgkill, "1, 1, 9"},
        {"pidfd_open", SYS_pidfd_open, "1, 0"},
        {"pidfd_getfd", SYS_pidfd_getfd, "3, 3, 0"},
        {"ioctl", SYS_ioctl, "0, 21505, 0"},
        {"fcntl", SYS_fcntl, "0, 1, 0"},
        {"fcntl that seals", SYS_fcntl, "0, 1033, 0"},
        {"dup", SYS_dup, "0"},
        {"memfd_create", SYS_memfd_create, "'x', 0"},
        {"prctl", SYS_prctl, "4, 1, 0, 0, 0"},
        {"seccomp", SYS_seccomp, "0, 0, 0"},
        {"unshare", SYS_unshare, "268435456"},
        {"setns", SYS_setns, "3, 0"},
        {"mount", SYS_mount, "'none', '/', 'tmpfs', 0, 0"},
        {"chroot", SYS_chroot, "'/'"},
        {"io_uring_setup", SYS_io_uring_setup, "1, 0"},
        {"bpf", SYS_bpf, "0, 0, 0"},
        {"perf_event_open", SYS_perf_event_open, "0, 0, 0, 0, 0"},
        {"userfaultfd", SYS_userfaultfd, "0"},
        {"keyctl", SYS_keyctl, "0, 0, 0"},
        {"setuid", SYS_setuid, "0"},
        {"executable mmap", SYS_mmap, "0, 4096, 7, 34, -1, 0"},
        {"executable mprotect", SYS_mprotect, "0, 4096, 5"},
        {"pkey_mprotect", SYS_pkey_mprotect, "0, 4096, 5, -1"},
        {"prlimit of another", SYS_prlimit64, "1, 0, 0, 0"},
        {"shmget", SYS_shmget, "0, 4096, 1023"},
        {"nanosleep", SYS_nanosleep, "0, 0"},
        {"getpid", SYS_getpid, "0"},
        {"x32 getpid", 0x40000000 + SYS_getpid, "0"},
    };
    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        char call[256];
        (void)snprintf(call, sizeof(call), "probe(%ld, %s)", calls[i].number, calls[i].args);
        const struct kit_result *r = probe(call);
        if (r->signal != SIGSYS)
            fail_msg("%s was not killed: signal %d, result %s", calls[i].name, r->signal,
                     r->out.result ? r->out.result : "none");
    }
    kit_expect_alive();
}

static void what_programs_need_is_allowed(void **state) {
    (void)state;
    (void)kit_main(
        "const a = []; for (let i = 0; i < 2e5; i++) a.push({ i, s: 'x' + i });"
        "const re = /(\\d+)-(\\w+)/gu; let n = 0; for (let i = 0; i < 1e4; i++) n += "
        "'12-ab'.replace(re, '$2').length;"
        "const d = new Intl.DateTimeFormat('de-DE', { timeZone: 'Europe/Berlin', dateStyle: "
        "'full', timeStyle: 'long' }).format(new Date(0));"
        "const c = ['z', 'ä', 'a'].sort(new Intl.Collator('sv').compare).join('');"
        "const s = [...new Intl.Segmenter('th', { granularity: 'word' "
        "}).segment('สวัสดีครับ')].length;"
        "const f = new Intl.NumberFormat('en-IN').format(1234567.5);"
        "const l = new Date(0).toLocaleString('ja-JP', { timeZone: 'America/New_York' });"
        "const r = new Intl.RelativeTimeFormat('pt').format(-1, 'day');"
        "const t = new Intl.PluralRules('ar').select(3) + new "
        "Intl.ListFormat('fr').format(['a','b']);"
        "const w = new WeakRef({}), g = new FinalizationRegistry(() => {}); g.register({}, 1);"
        "const b = new Uint8Array(1 << 20).fill(7).toSorted().length;"
        "function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }"
        "return [a.length, n, typeof d, c, s > 0, f, typeof l, typeof r, typeof t, b, fib(27)];");
    kit_expect_result("[200000,20000,\"string\",\"azä\",true,\"12,34,567.5\",\"string\",\"string\","
                      "\"string\",1048576,196418]");
}

static void keys_of_every_kind_are_made(void **state) {
    (void)state;
    (void)kit_main(
        "const s = crypto.subtle, e = new Uint8Array([1, 0, 1]), data = new Uint8Array([1, 2, 3]), "
        "out = [];"
        "for (const n of [1024, 2048, 3072]) { const a = { name: 'RSA-PSS', modulusLength: n, "
        "publicExponent: e, hash: 'SHA-256', saltLength: 32 }; const k = await s.generateKey(a, "
        "true, "
        "['sign', 'verify']); out.push(await s.verify(a, k.publicKey, await s.sign(a, "
        "k.privateKey, "
        "data), data)); }"
        "const o = await s.generateKey({ name: 'RSA-OAEP', modulusLength: 2048, publicExponent: e, "
        "hash: 'SHA-256' }, true, ['encrypt', 'decrypt']); out.push((await s.decrypt('RSA-OAEP', "
        "o.privateKey, await s.encrypt('RSA-OAEP', o.publicKey, data))).byteLength);"
        "for (const c of ['P-256', 'P-384', 'P-521']) { const a = { name: 'ECDSA', namedCurve: c, "
        "hash: 'SHA-256' }; const k = await s.generateKey(a, true, ['sign', 'verify']); "
        "out.push(await "
        "s.verify(a, k.publicKey, await s.sign(a, k.privateKey, data), data)); }"
        "const d = await s.generateKey('Ed25519', true, ['sign', 'verify']); out.push(await "
        "s.verify('Ed25519', d.publicKey, await s.sign('Ed25519', d.privateKey, data), data));"
        "await s.generateKey('X25519', true, ['deriveBits']);"
        "await s.generateKey({ name: 'AES-GCM', length: 256 }, true, ['encrypt']);"
        "await s.generateKey({ name: 'HMAC', hash: 'SHA-512' }, true, ['sign']); return out;");
    kit_expect_result("[true,true,true,3,true,true,true,true]");
}

static void every_corner_of_intl_is_within_reach(void **state) {
    (void)state;
    (void)kit_file("intl.js");
    kit_expect_result("true");
}

static void behind_the_filter_the_root_is_empty(void **state) {
    (void)state;
    char call[512];
    (void)snprintf(
        call, sizeof(call),
        "[probe(%ld, '/etc/passwd', 0), probe(%ld, '/proc/self/status', 0), "
        "probe(%ld, '/x', 66, 511), probe(%ld, '/dir', 511), probe(%ld, '/bin/sh', 0, 0),"
        "probe(%ld, '..', 0) >= 0]",
        (long)SYS_open, (long)SYS_open, (long)SYS_open, (long)SYS_mkdir, (long)SYS_execve,
        (long)SYS_open);
    (void)probe(call);
    char want[128];
    (void)snprintf(want, sizeof(want), "[%d,%d,%d,%d,%d,true]", -ENOENT, -ENOENT, -EROFS, -EROFS,
                   -ENOENT);
    kit_expect_result(want);
}

static void behind_the_filter_no_privilege_is_left(void **state) {
    (void)state;
    char call[512];
    (void)snprintf(
        call, sizeof(call),
        "[probe(%ld), probe(%ld, 'none', '/', 'tmpfs', 0, 0), probe(%ld, 0), "
        "probe(%ld, 'name', 4), probe(%ld, 23, 0), probe(%ld, 39, 0, 0, 0, 0), probe(%ld, '/')]",
        (long)SYS_geteuid, (long)SYS_mount, (long)SYS_setuid, (long)SYS_sethostname,
        (long)SYS_prctl, (long)SYS_prctl, (long)SYS_chroot);
    (void)probe(call);
    /* nobody; EPERM; no capability in the bounding set; no_new_privs is set */
    char want[128];
    (void)snprintf(want, sizeof(want), "[65534,%d,%d,%d,0,1,%d]", -EPERM, -EINVAL, -EPERM, -EPERM);
    kit_expect_result(want);
}

static void behind_the_filter_nobody_else_is_there(void **state) {
    (void)state;
    char call[512];
    /* pid 1 is the isolates' own init; the test's process does not exist; 127.0.0.1 is not up. */
    (void)snprintf(call, sizeof(call),
                   "[probe(%ld, %d, 0), probe(%ld, 1, 0) === 0 || probe(%ld, 1, 0) === -1, "
                   "probe(%ld, probe(%ld, 2, 1, 0), "
                   "'\\u0002\\u0000\\u0000\\u0050\\u007f\\u0000\\u0000\\u0001', 16)]",
                   (long)SYS_kill, (int)getpid() + 100000, (long)SYS_kill, (long)SYS_kill,
                   (long)SYS_connect, (long)SYS_socket);
    (void)probe(call);
    char want[64];
    (void)snprintf(want, sizeof(want), "[%d,true,%d]", -ESRCH, -ENETUNREACH);
    kit_expect_result(want);
}

static void behind_the_filter_limits_hold(void **state) {
    (void)state;
    char call[512];
    (void)snprintf(call, sizeof(call),
                   "[probe(%ld, 17, 0, 0, 0, 0), (() => { let n = 0; while (probe(%ld, 0) >= 0) "
                   "n++; return n < 64; })()]",
                   (long)SYS_clone, (long)SYS_dup);
    (void)probe(call);
    char want[64];
    (void)snprintf(want, sizeof(want), "[%d,true]", -EAGAIN);
    kit_expect_result(want);
}

static void an_isolate_holds_only_its_own_descriptors(void **state) {
    (void)state;
    char call[256];
    /* The descriptors that answer to fcntl(F_GETFD): standard three, channel, statm, the engine's
     * (event, statm, perhaps urandom) and two capabilities. */
    (void)snprintf(call, sizeof(call),
                   "(() => { let n = 0; for (let i = 0; i < 200; i++) if (probe(%ld, i, 1, 0) >= "
                   "0) n++; return n <= 11; })()",
                   (long)SYS_fcntl);
    (void)probe(call);
    kit_expect_result("true");
}

static void features_say_that_every_wall_stands(void **state) {
    (void)state;
    if (!strstr(kit_front()->features, "\"complete\":true"))
        fail_msg("%s", kit_front()->features);
}

/* Two isolates share no open file but what holds no state: an event counter would join them. */
static void siblings_share_no_open_file(void **state) {
    (void)state;
    struct front_isolate a;
    struct front_isolate b;
    front_want(kit_front(), 2);
    front_take(kit_front(), &a);
    front_take(kit_front(), &b);
    int compared = 0;
    for (int fd = 0; fd < 64; fd++) {
        char path[64];
        char target[128] = "";
        (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)a.pid, fd);
        if (readlink(path, target, sizeof(target) - 1) < 0)
            continue;
        if (strstr(target, "/null") || strstr(target, "/urandom"))
            continue;
        long same = syscall(SYS_kcmp, (long)a.pid, (long)b.pid, 0L, (long)fd, (long)fd);
        if (same < 0 && errno == EBADF)
            continue;
        if (same < 0 && geteuid() != 0)
            continue; /* an isolate is closed to its own user */
        compared++;
        if (same == 0)
            fail_msg("descriptor %d (%s) is shared", fd, target);
    }
    assert_true(compared >= 3 || geteuid() != 0);
    front_drop(&a);
    front_drop(&b);
}

/* Where no namespace can be had, isolates run behind fewer walls, and FEATURES says so; a strict
 * configuration is refused. In a process of its own, because there is no way back. */
static void without_namespaces_it_says_so(void **state) {
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        if (unshare(CLONE_NEWUSER) < 0)
            _exit(3);
        int fd = open("/proc/sys/user/max_user_namespaces", O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, "0", 1) != 1)
            _exit(3);
        static struct front f;
        front_start(&f, getenv("CAY_ISOLATE_PROBE"), 0, 0);
        bool said = strstr(f.features, "\"complete\":false") && !strstr(f.features, "\"error\"");
        front_stop(&f);
        front_start(&f, getenv("CAY_ISOLATE_PROBE"), ISOLATE_CONFIG_STRICT, 0);
        bool refused = strstr(f.features, "\"error\"");
        front_stop(&f);
        _exit(!said ? 1 : !refused ? 2 : 0);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 3)
        skip();
    assert_int_equal(status, 0);
}

/* What the zygote allocates between two forks, isolates have too: the test build ends one that is
 * filled with what the engine's memory held before. */
static void an_isolate_has_what_the_zygote_has(void **state) {
    (void)state;
    assert_non_null(strstr(kit_front()->features, "\"populate\":true"));
    for (int i = 0; i < 20; i++) {
        (void)kit_main(
            "console.log({ a: [1, 2] }); return (await env.db.query('SELECT 1')).length;");
        kit_expect_result("2");
    }
}

static void the_channel_protocol_is_checked(void **state) {
    (void)state;
    struct front_isolate iso;
    front_want(kit_front(), 1);
    front_take(kit_front(), &iso);
    struct wire_out out = {.type = 999, .id = 1, .pieces = {{"x", 1}}};
    assert_int_equal(wire_send(iso.channel, &out), 0);
    struct front_exit e = front_wait_exit(kit_front(), iso.number);
    assert_int_equal(e.status, ISOLATE_EXIT_PROTOCOL << 8);
    front_drop(&iso);
    kit_expect_alive();
}

int main(void) {
    const struct CMUnitTest filtered[] = {
        cmocka_unit_test(a_forbidden_call_kills_the_isolate_alone),
        cmocka_unit_test(what_programs_need_is_allowed),
        cmocka_unit_test(keys_of_every_kind_are_made),
        cmocka_unit_test(every_corner_of_intl_is_within_reach),
        cmocka_unit_test(features_say_that_every_wall_stands),
        cmocka_unit_test(siblings_share_no_open_file),
        cmocka_unit_test(without_namespaces_it_says_so),
        cmocka_unit_test(the_channel_protocol_is_checked),
    };
    const struct CMUnitTest unfiltered[] = {
        cmocka_unit_test(behind_the_filter_the_root_is_empty),
        cmocka_unit_test(behind_the_filter_no_privilege_is_left),
        cmocka_unit_test(behind_the_filter_nobody_else_is_there),
        cmocka_unit_test(behind_the_filter_limits_hold),
        cmocka_unit_test(an_isolate_holds_only_its_own_descriptors),
    };
    const struct CMUnitTest allocating[] = {
        cmocka_unit_test(an_isolate_has_what_the_zygote_has),
    };
    int bad = cmocka_run_group_tests_name("filtered", filtered, start_filtered, stop);
    bad += cmocka_run_group_tests_name("allocating", allocating, start_allocating, stop);
    return bad + cmocka_run_group_tests_name("unfiltered", unfiltered, start_unfiltered, stop);
}
