/* What the web globals cost: bench <bundle.js> [rounds]. Prints the time and memory of evaluating
 * the bundle in the zygote, and for programs that use some global the CPU time, the page faults and
 * the private dirty memory of a forked child, when in the zygote lazy       nothing has run, warm
 * the modules of all globals have run, exercised  web.exercise() has run. */

#include "engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS_MAX = 1000 };

struct program {
    const char *name;
    const char *text;
};

static const struct program programs[] = {
    {"none", "(()=>{let n=0;for(let i=0;i<10;i++)n+=i;return n})()"},
    {"atob/btoa", "atob(btoa('hello'))"},
    {"TextEncoder", "new TextDecoder().decode(new TextEncoder().encode('hé'))"},
    {"structuredClone", "structuredClone({a:[1,new Map([[1,2]])]})"},
    {"URL", "new URL('https://example.com/a/b?c=d').searchParams.get('c')"},
    {"Headers", "new Headers({a:'b'}).get('a')"},
    {"Response text", "new Response('hi').text()"},
    {"Response.json", "Response.json({a:1}).json()"},
    {"Request", "new Request('http://a/',{method:'POST',body:'x'}).text()"},
    {"ReadableStream", "new ReadableStream({start(c){c.enqueue(1);c.close()}}).getReader().read()"},
    {"Response body stream", "new Response('hi').body.getReader().read()"},
    {"AbortController", "new AbortController().abort()"},
    {"Blob", "new Blob(['abc']).text()"},
    {"crypto.randomUUID", "crypto.randomUUID()"},
    {"crypto digest", "crypto.subtle.digest('SHA-256',new Uint8Array(10))"},
    {"crypto HMAC",
     "crypto.subtle.importKey('raw',new Uint8Array(9),{name:'HMAC',hash:'SHA-256'},false,['sign'])"
     ".then(k=>crypto.subtle.sign('HMAC',k,new Uint8Array(3)))"},
    {"CompressionStream",
     "new Response(new Blob(['abc']).stream().pipeThrough(new CompressionStream('gzip'))).bytes()"},
    {"performance.now", "performance.now()"},
    {"URLPattern", "new URLPattern({pathname:'/a/:b'}).test('http://x/a/c')"},
};

struct sample {
    double us, faults, dirty_kb;
};

enum mode { MODE_LAZY, MODE_WARM, MODE_EXERCISED, MODE_COUNT };
static const char *const mode_scripts[MODE_COUNT] = {"1", "web.warm(web.names)", "web.exercise()"};

static double now_us(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

static long memory_kb(const char *key) {
    FILE *f = fopen("/proc/self/smaps_rollup", "re");
    char line[256];
    long kb = 0;
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0)
            kb = strtol(line + strlen(key), NULL, 10);
    if (f)
        fclose(f);
    return kb;
}

static double cpu_us(const struct rusage *r) {
    return (double)(r->ru_utime.tv_sec + r->ru_stime.tv_sec) * 1e6 +
           (double)(r->ru_utime.tv_usec + r->ru_stime.tv_usec);
}

static struct sample measure(struct engine *e, const char *text) {
    int fd[2];
    struct sample s = {0};
    if (pipe(fd) != 0)
        exit(2);
    pid_t pid = fork();
    if (pid == 0) {
        struct rusage before, after;
        long dirty = memory_kb("Private_Dirty:");
        getrusage(RUSAGE_SELF, &before);
        if (!engine_eval(e, text, "program") || !engine_pump(e, 5000))
            _exit(1);
        getrusage(RUSAGE_SELF, &after);
        s.us = cpu_us(&after) - cpu_us(&before);
        s.faults = (double)(after.ru_minflt - before.ru_minflt);
        s.dirty_kb = (double)(memory_kb("Private_Dirty:") - dirty);
        _exit(write(fd[1], &s, sizeof s) == sizeof s ? 0 : 1);
    }
    close(fd[1]);
    int status = 0;
    if (read(fd[0], &s, sizeof s) != sizeof s || waitpid(pid, &status, 0) != pid || status != 0) {
        fprintf(stderr, "a child failed: %s\n", text);
        exit(1);
    }
    close(fd[0]);
    return s;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void median(struct engine *e, const char *text, int rounds) {
    static double us[ROUNDS_MAX], faults[ROUNDS_MAX], dirty[ROUNDS_MAX];
    for (int i = 0; i < rounds; i++) {
        struct sample s = measure(e, text);
        us[i] = s.us;
        faults[i] = s.faults;
        dirty[i] = s.dirty_kb;
    }
    qsort(us, (size_t)rounds, sizeof *us, by_value);
    qsort(faults, (size_t)rounds, sizeof *faults, by_value);
    qsort(dirty, (size_t)rounds, sizeof *dirty, by_value);
    printf(" %8.0f %6.0f %6.0f |", us[rounds / 2], faults[rounds / 2], dirty[rounds / 2]);
}

/* One zygote per program and mode, so that they do not warm one another. */
static void report(const char *bundle, const struct program *p, enum mode mode, int rounds) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        struct engine e = {0};
        engine_create(&e);
        engine_load(&e, bundle);
        JSStringRef key = JSStringCreateWithUTF8CString("web");
        JSObjectSetProperty(e.ctx, JSContextGetGlobalObject(e.ctx), key, e.web, 0, NULL);
        JSStringRelease(key);
        bool ok = engine_eval(&e, mode_scripts[mode], "warm-up") && engine_pump(&e, 5000) &&
                  engine_eval(&e, "delete globalThis.web;1", "warm-up");
        /* A program runs in the real zygote before any fork; so here. */
        for (int i = 0; ok && i < 5; i++)
            ok = engine_eval(&e, "(async()=>{await null;return [1].map(x=>x+1)})()", "warm-up");
        JSGarbageCollect(e.ctx);
        if (ok)
            median(&e, p->text, rounds);
        fflush(stdout);
        _exit(ok ? 0 : 1);
    }
    int status;
    waitpid(pid, &status, 0);
    if (status != 0)
        exit(1);
}

static void report_bundle(const char *bundle) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        struct engine e = {0};
        double t = now_us();
        long rss = memory_kb("Rss:");
        engine_create(&e);
        double create_ms = (now_us() - t) / 1e3;
        long with_context = memory_kb("Rss:");
        t = now_us();
        engine_load(&e, bundle);
        double load_ms = (now_us() - t) / 1e3;
        long with_bundle = memory_kb("Rss:");
        JSStringRef key = JSStringCreateWithUTF8CString("web");
        JSObjectSetProperty(e.ctx, JSContextGetGlobalObject(e.ctx), key, e.web, 0, NULL);
        JSStringRelease(key);
        t = now_us();
        engine_eval(&e, mode_scripts[MODE_EXERCISED], "warm-up");
        engine_pump(&e, 5000);
        printf("engine and webhost %.1f ms, %ld KB; the bundle %.1f ms, %ld KB; web.exercise() "
               "%.1f ms, %ld KB\n",
               create_ms, with_context - rss, load_ms, with_bundle - with_context,
               (now_us() - t) / 1e3, memory_kb("Rss:") - with_bundle);
        fflush(stdout);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: bench <bundle.js> [rounds]\n");
        return 2;
    }
    int rounds = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 31;
    if (rounds < 1 || rounds > ROUNDS_MAX)
        rounds = 31;
    engine_prepare();
    report_bundle(argv[1]);
    printf("%-22s %26s %25s %25s\n", "", "lazy", "warm", "exercised");
    printf("%-22s %8s %6s %6s | %8s %6s %6s | %8s %6s %6s |\n", "program", "cpu us", "faults", "KB",
           "cpu us", "faults", "KB", "us", "faults", "KB");
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        printf("%-22s", programs[i].name);
        for (int mode = 0; mode < MODE_COUNT; mode++)
            report(argv[1], &programs[i], (enum mode)mode, rounds);
        printf("\n");
    }
    return 0;
}
