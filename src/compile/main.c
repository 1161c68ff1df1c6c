/* cay-compile: modules in, a linked program out, on descriptor 3 (src/wire/compile.h).
 * JavaScriptCore runs our own compiler over source that strangers wrote: that source is parsed,
 * never run. Still the process locks itself down first: no namespace but its own, an empty root, no
 * system call but those that memory and its one socket need. */

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "compile/quick.h"
#include "lock/lock.h"
#include "wire/compile.h"
#include "wire/frame.h"
#include "wire/pack.h"

#include <JavaScriptCore/JavaScript.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum {
    CHANNEL_FD = 3,
    WARM_ROUNDS = 20,   /* before it serves */
    IDLE_ROUNDS = 1500, /* and while nobody asks, until its hot paths are compiled themselves */
    QUIET_MS = 20,
    PACE_MS = 256,            /* between two rounds, while others have work */
    LATE_NS = 600000,         /* to be woken takes less where nobody else runs */
    HELD_NS = 50000,          /* so does whatever interrupts a round there */
    GARBAGE_BYTES = 64 << 20, /* of requests, between two full collections */
};

extern const char compile_js[];

/* What it warms up on. @ becomes the number of the round: names that were never seen take other
 * paths through the engine than known ones. Every fourth program is TypeScript. */
static const char warm_plain[] =
    "{\"mainModule\":\"harness.js\",\"modules\":{\"harness.js\":\"import { WorkerEntrypoint } from "
    "'cloudflare:workers';\\nimport run, { helper as h } from 'user-code.js';\\nexport default "
    "class extends WorkerEntrypoint { verify() {} async run() { return h(await run(this.env)); } "
    "}\\n\",\"user-code.js\":\"export const helper = (x) => x;\\nexport default async function "
    "(env) { const rows@ = await env.db.query(`SELECT ${@}`); let sum@ = 0; for (const r of rows@) "
    "{ sum@ += r.n ?? 0; console.log(r.name, [...rows@].map(({ id, ...rest }) => ({ id, rest }))); "
    "} if (sum@ > @) throw new Error('too many: ' + sum@); try { await f@(rows@?.length); } catch "
    "(e) { console.error(e); } return { sum@, n: rows@?.length }; }\\nfunction f@(n) { return new "
    "Promise((resolve) => setTimeout(resolve, n)); }\\n\"}}";
static const char warm_typed[] =
    "{\"mainModule\":\"main.ts\",\"modules\":{\"main.ts\":\"import { a@ } from './b.ts';\\n"
    "interface Row@ { id: number; name?: string }\\nexport default async function (env: { db: { "
    "query(sql: string): Promise<Row@[]> } }): Promise<number> { const rows@: Row@[] = await "
    "env.db.query(`SELECT ${a@}`); return rows@.map((r) => r.id as number).reduce((x, y) => x + y, "
    "0); }\\n\",\"b.ts\":\"export type T@ = { x: number };\\nexport const a@: number = 1;\\n"
    "export enum E { A, B }\\n\"}}";

/* What the compilation under way may take: js/budget.js asks now and then. */
static struct {
    int64_t until_ns; /* of this process's processor time; 0: no limit */
    bool spent;
} budget;

static int64_t cpu_ns(void) {
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void set_budget(uint32_t ms) {
    budget.until_ns = ms > 0 ? cpu_ns() + (int64_t)ms * 1000000 : 0;
    budget.spent = false;
}

static JSValueRef compile_main_on_is_spent(JSContextRef ctx, JSObjectRef fn,
                                           JSObjectRef this_object, size_t n,
                                           const JSValueRef args[], JSValueRef *exception) {
    (void)fn, (void)this_object, (void)n, (void)args, (void)exception;
    budget.spent = budget.until_ns > 0 && cpu_ns() > budget.until_ns;
    return JSValueMakeBoolean(ctx, budget.spent);
}

/* The engine must stay on one thread: the filter that is loaded later has no clone(). */
static void set_options(void) {
    static const char *const options[][2] = {
        {"TZ", "UTC"},
        {"ICU_TIMEZONE_FILES_DIR", ""},
        {"JSC_useConcurrentJIT", "0"},
        {"JSC_useConcurrentGC", "0"},
        {"JSC_numberOfGCMarkers", "1"},
        {"JSC_useWasm", "0"},
        /* Its last tier compiles for many ms, in the middle of a request, and gains little here. */
        {"JSC_useFTLJIT", "0"},
        {"GIGACAGE_ENABLED", "0"},
    };
    (void)clearenv();
    for (size_t i = 0; i < ARRAY_LEN(options); i++)
        (void)setenv(options[i][0], options[i][1], 1);
}

static char *to_utf8(JSContextRef ctx, JSValueRef v, size_t *ret_len) {
    JSStringRef s = JSValueToStringCopy(ctx, v, NULL);
    if (!s)
        return NULL;
    size_t max = JSStringGetMaximumUTF8CStringSize(s);
    char *out = malloc(max);
    size_t n = out ? JSStringGetUTF8CString(s, out, max) : 0;
    JSStringRelease(s);
    *ret_len = n > 0 ? n - 1 : 0;
    return out;
}

/* The request's text must be a NUL-terminated copy. Returns the response, or NULL if the compiler
 * threw, which it never should. */
static char *compile_main_compile(JSGlobalContextRef ctx, JSObjectRef fn, const char *request,
                                  size_t *ret_len) {
    JSStringRef s = JSStringCreateWithUTF8CString(request);
    JSValueRef arg = JSValueMakeString(ctx, s);
    JSStringRelease(s);
    JSValueRef exception = NULL;
    JSValueRef v = JSObjectCallAsFunction(ctx, fn, NULL, 1, &arg, &exception);
    return exception || !v ? NULL : to_utf8(ctx, v, ret_len);
}

/* Compiles the example of this round. */
static char *compile_main_warm(JSGlobalContextRef ctx, JSObjectRef fn, int round, size_t *ret_len) {
    const char *from = round % 4 == 3 ? warm_typed : warm_plain;
    char name[16];
    (void)snprintf(name, sizeof(name), "%d", 1000 + round);
    _cleanup_(buf) struct buf b;
    buf_init(&b, 65536);
    for (const char *at; (at = strchr(from, '@')); from = at + 1) {
        (void)buf_add(&b, from, (size_t)(at - from));
        (void)buf_add(&b, name, strlen(name));
    }
    (void)buf_add(&b, from, strlen(from));
    return compile_main_compile(ctx, fn, b.data, ret_len);
}

static int start_engine(int rounds, JSGlobalContextRef *ret_ctx, JSObjectRef *ret_fn,
                        struct err *err) {
    void (*disable_scavenger)(void) = NULL;
    *(void **)&disable_scavenger = dlsym(RTLD_DEFAULT, "_ZN3WTF20fastDisableScavengerEv");
    if (disable_scavenger)
        disable_scavenger();
    JSGlobalContextRef ctx = JSGlobalContextCreate(NULL);
    JSValueRef exception = NULL;
    JSStringRef is_spent = JSStringCreateWithUTF8CString("__isSpent");
    JSObjectSetProperty(ctx, JSContextGetGlobalObject(ctx), is_spent,
                        JSObjectMakeFunctionWithCallback(ctx, is_spent, compile_main_on_is_spent),
                        kJSPropertyAttributeNone, NULL);
    JSStringRelease(is_spent);
    JSStringRef source = JSStringCreateWithUTF8CString(compile_js);
    (void)JSEvaluateScript(ctx, source, NULL, NULL, 1, &exception);
    JSStringRelease(source);
    JSStringRef name = JSStringCreateWithUTF8CString("__compile");
    JSValueRef fn = JSObjectGetProperty(ctx, JSContextGetGlobalObject(ctx), name, NULL);
    JSStringRelease(name);
    if (exception || !fn || !JSValueIsObject(ctx, fn))
        return err_set(err, ERR_INTERNAL, "the compiler's bundle does not start");
    *ret_fn = JSValueToObject(ctx, fn, NULL);
    JSValueProtect(ctx, *ret_fn);
    for (int i = 0; i < rounds; i++) {
        size_t len = 0;
        char *out = compile_main_warm(ctx, *ret_fn, i, &len);
        bool ok = out && strncmp(out, "{\"ok\":true", 10) == 0;
        if (!ok)
            (void)err_set(err, ERR_INTERNAL, "the compiler fails on its own example: %.300s",
                          out ? out : "it threw");
        free(out);
        if (!ok)
            return -ERR_INTERNAL;
    }
    if (rounds > 0)
        JSGarbageCollect(ctx);
    *ret_ctx = ctx;
    return 0;
}

/* Open for life: no file can be opened later. */
static int statm_fd = -1;
static uint64_t base_bytes; /* of addresses, when it was ready */

static uint64_t address_space_now(void) {
    char text[64];
    ssize_t n = statm_fd >= 0 ? pread(statm_fd, text, sizeof(text) - 1, 0) : -1;
    text[n > 0 ? n : 0] = 0;
    return strtoull(text, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* The engine traps, or aborts, when it gets no more memory. */
static void compile_on_crash(int sig) {
    (void)sig;
    bool much = address_space_now() > base_bytes + COMPILE_MEMORY_BYTES / 2;
    _exit(base_bytes && much ? COMPILE_EXIT_MEMORY : COMPILE_EXIT_CRASH);
}

/* In the place of libc's, which would send a signal: that is forbidden here, and the kernel would
 * call it a bad system call. */
void abort(void) {
    compile_on_crash(SIGABRT);
    _exit(COMPILE_EXIT_CRASH);
}

static void catch_crashes(void) {
    static char stack[65536];
    static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE, SIGABRT};
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof(stack)};
    struct sigaction sa = {.sa_handler = compile_on_crash, .sa_flags = SA_ONSTACK};
    (void)sigaltstack(&alternate, NULL);
    for (size_t i = 0; i < ARRAY_LEN(signals); i++)
        (void)sigaction(signals[i], &sa, NULL);
}

static int compile_main_answer(uint64_t id, const char *response, size_t len) {
    if (budget.spent)
        return wire_send(CHANNEL_FD, &(struct wire_out){.id = id, .type = COMPILE_SPENT});
    static const char failed[] =
        "{\"name\":\"Error\",\"message\":\"the compiler failed on this source\"}";
    struct wire_out out = {
        .id = id, .type = COMPILE_FAILED, .pieces = {{failed, sizeof(failed) - 1}}};
    static const char ok[] = "{\"ok\":true";
    static const char error[] = "{\"ok\":false,\"error\":";
    if (response && len > sizeof(ok) && memcmp(response, ok, sizeof(ok) - 1) == 0) {
        out.type = COMPILE_PROGRAM;
        out.pieces[0] = (struct wire_piece){response, len};
    } else if (response && len > sizeof(error) && memcmp(response, error, sizeof(error) - 1) == 0) {
        /* What stands behind "error": up to the object's last brace. */
        out.pieces[0] =
            (struct wire_piece){response + sizeof(error) - 1, len - (sizeof(error) - 1) - 1};
    }
    return wire_send(CHANNEL_FD, &out);
}

/* How long others kept this process from running since then. */
static int64_t held_ns(int64_t since_ns, int64_t since_cpu_ns) {
    return clock_mono_ns() - since_ns - (clock_cpu_ns() - since_cpu_ns);
}

/* Waits for a request. Goes on warming up meanwhile, at a walk: a pause between two requests is not
 * enough, and others may have work. Who runs where a round does has to wait for it, for longer than
 * a command takes; so after one that met somebody the next comes late, and then sooner again. */
static void wait_warming_up(JSGlobalContextRef ctx, JSObjectRef fn, int *rounds) {
    struct pollfd p = {.fd = CHANNEL_FD, .events = POLLIN};
    int wait_ms = QUIET_MS;
    while (*rounds > 0) {
        int64_t from = clock_mono_ns(), cpu_from = clock_cpu_ns();
        if (poll(&p, 1, wait_ms) != 0)
            return;
        bool met = held_ns(from, cpu_from) > wait_ms * INT64_C(1000000) + LATE_NS;
        from = clock_mono_ns();
        cpu_from = clock_cpu_ns();
        size_t len = 0;
        free(compile_main_warm(ctx, fn, WARM_ROUNDS + --*rounds, &len));
        met = held_ns(from, cpu_from) > HELD_NS || met;
        wait_ms = met ? PACE_MS : MAX(wait_ms * 3 / 4, 1);
    }
    (void)poll(&p, 1, -1);
}

struct compile_engine {
    JSGlobalContextRef ctx;
    JSObjectRef fn;
    int idle_rounds; /* of the warm-up, still to come */
    size_t garbage;
};

static int compile_main_on_request(struct compile_engine *c, const struct wire_frame *f) {
    struct unpack u;
    unpack_init(&u, f->data, f->len);
    set_budget(unpack_u32(&u));
    if (u.bad)
        return -1;
    size_t len = 0;
    _cleanup_(free) char *response =
        quick_compile((const char *)u.at, (size_t)(u.end - u.at), &len);
    if (!response) {
        _cleanup_(free) char *request = xstrndup((const char *)u.at, (size_t)(u.end - u.at));
        response = compile_main_compile(c->ctx, c->fn, request, &len);
        c->garbage += f->len + len;
    }
    int rc = compile_main_answer(f->id, response, len);
    set_budget(0); /* what it does on its own account has none */
    if (c->garbage > GARBAGE_BYTES) {
        c->garbage = 0;
        JSGarbageCollect(c->ctx);
    }
    return rc;
}

static int compile_main_serve(struct compile_engine *c, struct err *err) {
    struct wire_reader reader;
    wire_reader_init(&reader, COMPILE_HEAD_SIZE + COMPILE_FRAME_MAX);
    int rc = 0;
    while (rc >= 0) {
        struct wire_frame f;
        /* What came along with an earlier request goes first: the socket does not tell of it. */
        rc = wire_next(&reader, &f, err);
        if (rc == 0) {
            wait_warming_up(c->ctx, c->fn, &c->idle_rounds);
            rc = wire_recv(&reader, CHANNEL_FD, err);
        } else if (rc > 0) {
            wire_frame_finish(&f);
            if (f.type == COMPILE_REQUEST && compile_main_on_request(c, &f) < 0)
                break;
        }
    }
    wire_reader_finish(&reader);
    return rc == -ERR_CANCELLED ? 0 : rc;
}

static int compile_main_run(bool cold, struct err *err) {
    struct lock lock;
    JSGlobalContextRef ctx = NULL;
    JSObjectRef fn = NULL;
    int rc = lock_enter(&lock, &(struct lock_options){.sends_messages = true}, err);
    /* The engine says on standard error what its options already say. */
    _cleanup_(close) int error_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 64);
    if (rc == 0) {
        (void)dup2(lock.null_fd, STDERR_FILENO);
        rc = start_engine(cold ? 0 : WARM_ROUNDS, &ctx, &fn, err);
        (void)dup2(error_fd, STDERR_FILENO);
    }
    fd_close(&error_fd);
    base_bytes = address_space_now();
    struct lock_limits limits = {.address_space_bytes = base_bytes + COMPILE_MEMORY_BYTES,
                                 .cpu_s = UINT32_MAX};
    if (rc == 0)
        rc = lock_seal(&lock, err);
    if (rc == 0)
        rc = lock_set_limits(&limits, err);
    if (rc == 0)
        rc = lock_set_filter(&lock, err);
    if (rc < 0)
        return rc;
    (void)wire_send(CHANNEL_FD, &(struct wire_out){.type = COMPILE_READY});
    struct compile_engine c = {.ctx = ctx, .fn = fn, .idle_rounds = cold ? 0 : IDLE_ROUNDS};
    return compile_main_serve(&c, err);
}

int main(int argc, char **argv) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignore, NULL);
    log_init("cay-compile", LOG_LEVEL_INFO);
    set_options();
    statm_fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    catch_crashes();
    struct err err = {0};
    int rc = compile_main_run(argc > 1 && strcmp(argv[1], "--cold") == 0, &err);
    if (rc < 0) {
        log_error("compile.failed", "error", err.message);
        _exit(err_exit_status(err.code));
    }
    _exit(0);
}
