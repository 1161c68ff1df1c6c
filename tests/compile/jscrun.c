/* Test runner: evaluates scripts in bare JavaScriptCore, the engine that matters.
 *
 *   jscrun a.js b.js ...          one fresh context, files in order, prints what they print
 *   jscrun --serve P... -- F...   jobs on stdin, answers on stdout, until end of file
 *
 * A job is "<kind> <bytes>\n<source>"; the answer is "<bytes>\n<text printed>". Kind P runs in one
 * persistent context that has loaded the files before "--", kind F in a context of its own that has
 * loaded the files after it. Scripts see print(), evalScript(code, url), readFile(path) and cpuUs()
 * (processor time: the machine may be busy with other things). */
#include <JavaScriptCore/JavaScript.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FILES_MAX     16
#define JOB_MAX_BYTES (64u << 20)

struct text {
    char *data;
    size_t len, cap;
};

static struct text out;

static void die(const char *what) {
    fprintf(stderr, "jscrun: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void text_add(struct text *t, const char *s, size_t n) {
    if (t->len + n + 1 > t->cap) {
        t->cap = (t->len + n + 1) * 2;
        t->data = realloc(t->data, t->cap);
        if (!t->data)
            die("realloc");
    }
    memcpy(t->data + t->len, s, n);
    t->len += n;
    t->data[t->len] = 0;
}

static char *utf8_of(JSContextRef ctx, JSValueRef v, size_t *ret_len) {
    JSStringRef s = JSValueToStringCopy(ctx, v, NULL);
    if (!s)
        s = JSStringCreateWithUTF8CString("<no string>");
    size_t cap = JSStringGetMaximumUTF8CStringSize(s);
    char *b = malloc(cap);
    if (!b)
        die("malloc");
    size_t n = JSStringGetUTF8CString(s, b, cap);
    JSStringRelease(s);
    *ret_len = n ? n - 1 : 0;
    return b;
}

static JSValueRef js_string(JSContextRef ctx, const char *text) {
    JSStringRef s = JSStringCreateWithUTF8CString(text);
    JSValueRef v = JSValueMakeString(ctx, s);
    JSStringRelease(s);
    return v;
}

static JSValueRef on_print(JSContextRef ctx, JSObjectRef f, JSObjectRef self, size_t n,
                           const JSValueRef args[], JSValueRef *exc) {
    (void)f, (void)self, (void)exc;
    for (size_t i = 0; i < n; i++) {
        size_t len;
        char *b = utf8_of(ctx, args[i], &len);
        if (i)
            text_add(&out, " ", 1);
        text_add(&out, b, len);
        free(b);
    }
    text_add(&out, "\n", 1);
    return JSValueMakeUndefined(ctx);
}

static JSValueRef on_eval_script(JSContextRef ctx, JSObjectRef f, JSObjectRef self, size_t n,
                                 const JSValueRef args[], JSValueRef *exc) {
    (void)f, (void)self;
    if (n < 2)
        return JSValueMakeUndefined(ctx);
    JSStringRef code = JSValueToStringCopy(ctx, args[0], exc);
    JSStringRef url = JSValueToStringCopy(ctx, args[1], exc);
    JSValueRef r = code && url ? JSEvaluateScript(ctx, code, NULL, url, 1, exc) : NULL;
    if (code)
        JSStringRelease(code);
    if (url)
        JSStringRelease(url);
    return r ? r : JSValueMakeUndefined(ctx);
}

static char *slurp(const char *path) {
    FILE *f = fopen(path, "rbe");
    if (!f)
        die(path);
    struct text t = {0};
    char b[65536];
    size_t n;
    while ((n = fread(b, 1, sizeof b, f)) > 0)
        text_add(&t, b, n);
    if (ferror(f))
        die(path);
    fclose(f);
    text_add(&t, "", 0);
    return t.data;
}

static JSValueRef on_read_file(JSContextRef ctx, JSObjectRef f, JSObjectRef self, size_t n,
                               const JSValueRef args[], JSValueRef *exc) {
    (void)f, (void)self, (void)exc;
    if (n < 1)
        return JSValueMakeUndefined(ctx);
    size_t len;
    char *path = utf8_of(ctx, args[0], &len);
    char *data = slurp(path);
    JSValueRef v = js_string(ctx, data);
    free(data);
    free(path);
    return v;
}

static JSValueRef on_cpu(JSContextRef ctx, JSObjectRef f, JSObjectRef self, size_t n,
                         const JSValueRef args[], JSValueRef *exc) {
    (void)f, (void)self, (void)n, (void)args, (void)exc;
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return JSValueMakeNumber(ctx, (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3);
}

static void define(JSGlobalContextRef ctx, const char *name, JSObjectCallAsFunctionCallback fn) {
    JSStringRef s = JSStringCreateWithUTF8CString(name);
    JSObjectSetProperty(ctx, JSContextGetGlobalObject(ctx), s,
                        JSObjectMakeFunctionWithCallback(ctx, s, fn), kJSPropertyAttributeDontEnum,
                        NULL);
    JSStringRelease(s);
}

/* Prints an exception as "UNCAUGHT <text>\n<stack>"; returns false when there was one. */
static bool run(JSGlobalContextRef ctx, const char *code, const char *url) {
    JSStringRef s = JSStringCreateWithUTF8CString(code), u = JSStringCreateWithUTF8CString(url);
    JSValueRef exc = NULL;
    JSEvaluateScript(ctx, s, NULL, u, 1, &exc);
    JSStringRelease(s);
    JSStringRelease(u);
    if (!exc)
        return true;
    size_t len;
    char *b = utf8_of(ctx, exc, &len);
    text_add(&out, "UNCAUGHT ", 9);
    text_add(&out, b, len);
    free(b);
    if (JSValueIsObject(ctx, exc)) {
        JSStringRef k = JSStringCreateWithUTF8CString("stack");
        JSValueRef st = JSObjectGetProperty(ctx, (JSObjectRef)exc, k, NULL);
        JSStringRelease(k);
        if (st && JSValueIsString(ctx, st)) {
            b = utf8_of(ctx, st, &len);
            text_add(&out, "\n", 1);
            text_add(&out, b, len);
            free(b);
        }
    }
    text_add(&out, "\n", 1);
    return false;
}

static JSGlobalContextRef context_create(char *const files[], char *const codes[], int n) {
    JSGlobalContextRef ctx = JSGlobalContextCreate(NULL);
    define(ctx, "print", on_print);
    define(ctx, "evalScript", on_eval_script);
    define(ctx, "readFile", on_read_file);
    define(ctx, "cpuUs", on_cpu);
    for (int i = 0; i < n; i++)
        if (!run(ctx, codes[i], files[i]))
            break;
    return ctx;
}

static void flush_out(bool framed) {
    if (framed)
        printf("%zu\n", out.len);
    fwrite(out.data ? out.data : "", 1, out.len, stdout);
    fflush(stdout);
    out.len = 0;
}

static int serve(int argc, char **argv) {
    char *files[FILES_MAX], *codes[FILES_MAX];
    int n = 0, persistent = -1;
    for (int i = 0; i < argc && n < FILES_MAX; i++) {
        if (!strcmp(argv[i], "--")) {
            persistent = n;
            continue;
        }
        files[n] = argv[i];
        codes[n++] = slurp(argv[i]);
    }
    if (persistent < 0)
        persistent = n;
    JSGlobalContextRef keep = context_create(files, codes, persistent);
    if (out.len) {
        flush_out(false);
        return 1;
    }
    char kind;
    unsigned len;
    while (scanf("%c %u", &kind, &len) == 2 && len <= JOB_MAX_BYTES && getchar() == '\n') {
        char *job = malloc(len + 1u);
        if (!job || fread(job, 1, len, stdin) != len)
            die("job");
        job[len] = 0;
        if (kind == 'P') {
            run(keep, job, "job.js");
        } else {
            JSGlobalContextRef ctx =
                context_create(files + persistent, codes + persistent, n - persistent);
            run(ctx, job, "job.js");
            JSGlobalContextRelease(ctx);
        }
        free(job);
        flush_out(true);
    }
    JSGlobalContextRelease(keep);
    return 0;
}

int main(int argc, char **argv) {
    static const char *const env[][2] = {
        {"JSC_useConcurrentJIT", "0"},
        {"JSC_useConcurrentGC", "0"},
        {"JSC_numberOfGCMarkers", "1"},
        {"JSC_useWasm", "0"},
        {"TZ", "UTC"},
        {"JSC_useTailCalls", "0"}, /* proper tail calls take the callers out of stacks */
    };
    for (size_t i = 0; i < sizeof env / sizeof *env; i++)
        setenv(env[i][0], env[i][1], 1);
    if (argc > 1 && !strcmp(argv[1], "--serve"))
        return serve(argc - 2, argv + 2);
    JSGlobalContextRef ctx = context_create(NULL, NULL, 0);
    bool ok = true;
    for (int i = 1; i < argc && ok; i++) {
        char *code = slurp(argv[i]);
        ok = run(ctx, code, argv[i]);
        free(code);
    }
    flush_out(false);
    JSGlobalContextRelease(ctx);
    return ok ? 0 : 1;
}
