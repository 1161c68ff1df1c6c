#include "isolate/isolate.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/rand.h"
#include "isolate/memory.h"
#include "isolate/probe.h"
#include "isolate/quick.h"
#include "isolate/stay.h"
#include "isolate/webhost.h"
#include "wire/facet.h"
#include "wire/isolate.h"
#include "wire/pack.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static struct isolate *self;

enum {
    CRASH_STACK = 65536,
    TRAY_SLEEP_NS = 500000,
    TRAY_TURNS = 32,     /* answers in a tray before the sockets are looked at */
    HELD_MAX_US = 20000, /* of computing */
};
/* Room above the memory limit before the kernel refuses addresses: the check after a collection
 * should find the program first, because it can say what happened. */
#define ADDRESS_SLACK (96u << 20)

static double mono_ms(void) {
    return (double)clock_mono_ns() / 1e6;
}

static uint64_t used_us(const struct rusage *ru) {
    return (uint64_t)ru->ru_utime.tv_sec * 1000000u + (uint64_t)ru->ru_utime.tv_usec +
           (uint64_t)ru->ru_stime.tv_sec * 1000000u + (uint64_t)ru->ru_stime.tv_usec;
}

static uint64_t cpu_us(void) {
    struct rusage ru;
    getrusage(RUSAGE_SELF, &ru);
    return used_us(&ru);
}

/* ---- sending: only send(), so that no system call that passes descriptors is needed ---- */

static bool send_bytes(int fd, const void *data, size_t n) {
    const char *p = data;
    while (n > 0) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

/* Frames that wait for the next ones of the same turn: each send() would wake the front. */
static struct {
    size_t len;
    char data[4096];
} held;

static void send_held(void) {
    size_t n = held.len;
    held.len = 0;
    if (n > 0 && !send_bytes(self->channel, held.data, n))
        _exit(ISOLATE_EXIT_OK); /* the front is gone, or done with us */
}

/* What others follow as a rule waits for them, all else goes out at once. A large frame is not
 * copied. */
static void isolate_send_frame(uint16_t type, uint64_t id, const void *head, size_t head_len,
                               const void *body, size_t body_len) {
    size_t n = WIRE_HEAD_SIZE + head_len + body_len;
    if (n > sizeof(held.data) - held.len)
        send_held();
    bool fits = n <= sizeof(held.data);
    char *at = held.data + held.len;
    wire_head_encode((uint8_t *)at, type, id, head_len + body_len, 0);
    if (head_len > 0)
        memcpy(at + WIRE_HEAD_SIZE, head, head_len);
    if (fits && body_len > 0)
        memcpy(at + WIRE_HEAD_SIZE + head_len, body, body_len);
    held.len += fits ? n : n - body_len;
    bool waits = type == ISOLATE_LOG || type == ISOLATE_RESULT || type == ISOLATE_ERROR;
    if (!fits || !waits)
        send_held();
    if (!fits && !send_bytes(self->channel, body, body_len))
        _exit(ISOLATE_EXIT_OK);
}

static void stop_now(int status) __attribute__((noreturn));

static void sending_begin(void) {
    self->sending = true;
}

static void isolate_tell_used(void);

static void sending_end(void) {
    self->sending = false;
    if (self->stop_pending)
        stop_now(self->stop_pending);
    if (self->tell_pending)
        isolate_tell_used();
}

static void isolate_send_message(uint16_t type, uint64_t id, const void *head, size_t head_len,
                                 const void *body, size_t body_len) {
    sending_begin();
    isolate_send_frame(type, id, head, head_len, body, body_len);
    sending_end();
}

static void emit_line(void *arg, uint8_t level, double time_ms, const char *text, size_t len) {
    const struct isolate_call *call = arg;
    uint8_t head[9] = {level};
    memcpy(head + 1, &time_ms, sizeof(time_ms)); /* little endian, as pack_f64() */
    isolate_send_frame(ISOLATE_LOG, call->id, head, sizeof(head), text, len);
}

static void isolate_send_usage(uint16_t type, const struct isolate_call *call) {
    struct rusage ru;
    getrusage(RUSAGE_SELF, &ru);
    uint64_t turn = call == self->current ? used_us(&ru) - self->turn_us : 0;
    char space[64];
    struct buf b = {.data = space, .cap = sizeof(space), .max = sizeof(space) - 1};
    pack_u64(&b, call->cpu_us + turn);
    pack_u64(&b, MAX(call->peak_bytes, memory_peak()));
    pack_u32(&b, call->binding_calls);
    pack_u64(&b, call->output.written_bytes);
    pack_u64(&b, call->output.dropped_bytes);
    isolate_send_frame(type, call->id, b.data, b.len, NULL, 0);
}

static void send_done(const struct isolate_call *call) {
    isolate_send_usage(ISOLATE_DONE, call);
}

static void isolate_tell_used(void) {
    self->tell_pending = false;
    self->sending = true;
    for (const struct isolate_call *call = self->calls; call; call = call->next)
        isolate_send_usage(ISOLATE_USED, call);
    self->sending = false;
    if (self->stop_pending)
        stop_now(self->stop_pending);
}

/* ---- ends that JavaScript cannot see ---- */

/* What ERROR says. */
static int end_text(char *out, size_t size, int status, const struct isolate_call *call,
                    bool guilty) {
    char why[128] = "the engine failed";
    if (status == ISOLATE_EXIT_MEMORY)
        (void)snprintf(why, sizeof(why), "memory limit of %llu MiB exceeded",
                       (unsigned long long)(self->limits.memory_bytes >> 20));
    else if (status == ISOLATE_EXIT_CPU && guilty)
        (void)snprintf(why, sizeof(why), "processor time limit of %u ms exceeded", call->cpu_ms);
    else if (status == ISOLATE_EXIT_CPU)
        (void)snprintf(why, sizeof(why),
                       "the isolate was ended because another call on it "
                       "exceeded its processor time limit");
    else if (status == ISOLATE_EXIT_ASKED)
        (void)snprintf(why, sizeof(why), "the isolate was ended from outside");
    bool limit = status == ISOLATE_EXIT_MEMORY || status == ISOLATE_EXIT_CPU;
    const char *name = limit ? "LimitError" : "Error";
    return snprintf(out, size,
                    "{\"kind\":\"%s\",\"name\":\"%s\",\"message\":\"%s\",\"stack\":\"%s: %s\"}",
                    limit ? "limit" : "error", name, why, name, why);
}

/* The front is told first that there is nobody to take another call, then what became of each. */
static void stop_now(int status) {
    struct isolate *iso = self;
    if (!iso || iso->channel < 0 || !iso->started)
        _exit(status);
    self->sending = true;
    isolate_send_frame(ISOLATE_ENDING, 0, NULL, 0, NULL, 0);
    for (struct isolate_call *call = iso->calls; call; call = call->next) {
        char text[512];
        int n = end_text(text, sizeof(text), status, call, call == iso->current);
        output_flush(&call->output);
        isolate_send_frame(ISOLATE_ERROR, call->id, NULL, 0, text, (size_t)n);
        send_done(call);
    }
    _exit(status);
}

static void stop_soon(int status) {
    if (self->sending)
        self->stop_pending = status;
    else
        stop_now(status);
}

/* The engine traps when the kernel gives it no more memory. Near the limit that is the program's
 * doing; elsewhere it is a fault of the engine. */
static void isolate_on_crash(int sig) {
    (void)sig;
    if (!self || self->channel < 0)
        _exit(ISOLATE_EXIT_CRASH);
    int status = memory_is_short() ? ISOLATE_EXIT_MEMORY : ISOLATE_EXIT_CRASH;
    if (self->sending)
        _exit(status);
    stop_now(status);
}

/* The front ends a call, and wants to know what it used. */
static void isolate_on_asked(int sig) {
    (void)sig;
    if (!self || self->channel < 0)
        _exit(ISOLATE_EXIT_ASKED);
    stop_soon(ISOLATE_EXIT_ASKED);
}

/* The front does not wait for a call any more, and wants to know what it used. */
static void isolate_on_used_asked(int sig) {
    (void)sig;
    if (!self || self->channel < 0 || !self->started)
        return;
    if (self->sending)
        self->tell_pending = true;
    else
        isolate_tell_used();
}

/* The engine's and its libraries', in the place of libc's, which would send a signal: that is
 * forbidden here. */
void abort(void) {
    isolate_on_crash(SIGABRT);
    _exit(ISOLATE_EXIT_CRASH);
}

static void isolate_on_memory_limit(void) {
    stop_soon(ISOLATE_EXIT_MEMORY);
}

static void after_gc(void *arg) {
    (void)arg;
    memory_collected();
}

/* 0: none. It comes before the limit too: what is held goes out before the isolate waits for
 * anything, but a program may compute for long before it does. */
static void set_cpu_timer(uint64_t left_us) {
    struct itimerval t = {.it_value.tv_usec = (suseconds_t)MIN(left_us, (uint64_t)HELD_MAX_US)};
    (void)setitimer(ITIMER_PROF, &t, NULL);
}

/* From here on processor time is this call's (NULL: nobody's), within what is left of its limit. */
static void isolate_enter(struct isolate *iso, struct isolate_call *call) {
    if (call == iso->current)
        return;
    uint64_t now = cpu_us();
    if (iso->current)
        iso->current->cpu_us += now - iso->turn_us;
    iso->turn_us = now;
    iso->current = call;
    if (iso->statm_fd < 0)
        return; /* a zygote's warm-up has no limit */
    uint64_t limit = call ? (uint64_t)call->cpu_ms * 1000 : 0;
    set_cpu_timer(!call ? 0 : limit > call->cpu_us ? limit - call->cpu_us : 1);
}

/* The timer counts in ticks, and may have been set for the call that had its turn before. */
static void isolate_on_cpu_limit(int sig) {
    (void)sig;
    const struct isolate_call *call = self ? self->current : NULL;
    if (!call)
        return;
    uint64_t used = call->cpu_us + cpu_us() - self->turn_us;
    uint64_t limit = (uint64_t)call->cpu_ms * 1000;
    if (!self->sending)
        send_held();
    memory_glance(); /* not all that a program makes grow comes from malloc() */
    if (used < limit)
        set_cpu_timer(limit - used);
    else
        stop_soon(ISOLATE_EXIT_CPU);
}

struct isolate_call *isolate_find_call(const struct isolate *iso, uint64_t id) {
    struct isolate_call *call = iso->calls;
    while (call && call->id != id)
        call = call->next;
    return call;
}

/* Lowers the walls that the zygote set for every isolate to those of this run. */
static void set_walls(struct isolate *iso) {
    if (iso->statm_fd < 0)
        return;
    rlim_t size = memory_base_size() + iso->limits.memory_bytes + ADDRESS_SLACK;
    struct rlimit now;
    if (getrlimit(RLIMIT_AS, &now) == 0 && now.rlim_max > size) {
        /* A run that comes after a reset may have a higher limit than this one. */
        struct rlimit as = {.rlim_cur = size, .rlim_max = iso->reset ? now.rlim_max : size};
        (void)setrlimit(RLIMIT_AS, &as);
    }
}

/* ---- native functions of the prelude ---- */

static double isolate_number(JSContextRef ctx, JSValueRef v) {
    return JSValueToNumber(ctx, v, NULL);
}

/* evaluate(text, url): the value of a script */
static HOST(host_evaluate) {
    HOST_UNUSED();
    JSStringRef text = JSValueToStringCopy(ctx, argv[0], exception);
    JSStringRef url = JSValueToStringCopy(ctx, argv[1], exception);
    JSValueRef v = NULL;
    if (text && url)
        v = JSEvaluateScript(ctx, text, NULL, url, 1, exception);
    if (text)
        JSStringRelease(text);
    if (url)
        JSStringRelease(url);
    return v;
}

/* log(level, text) */
static HOST(host_log) {
    HOST_UNUSED();
    size_t len;
    char *text = engine_utf8(ctx, argv[1], &len);
    if (text && self->current) {
        sending_begin();
        output_add(&self->current->output, (uint8_t)isolate_number(ctx, argv[0]),
                   (double)clock_wall_ms(), text, len);
        sending_end();
    }
    free(text);
    return JSValueMakeUndefined(ctx);
}

/* send(type, id, text): RESULT or ERROR. False when the text is larger than a result may be. */
static HOST(host_send) {
    HOST_UNUSED();
    size_t len = 0;
    char *text = engine_utf8(ctx, argv[2], &len);
    uint16_t type = (uint16_t)isolate_number(ctx, argv[0]);
    bool fits = text && (type != ISOLATE_RESULT || len <= self->limits.result_bytes);
    if (fits)
        isolate_send_message(type, (uint64_t)isolate_number(ctx, argv[1]), NULL, 0, text, len);
    free(text);
    return JSValueMakeBoolean(ctx, fits);
}

/* body(id, bytes, last, from, count): a piece of a response */
static HOST(host_body) {
    HOST_UNUSED();
    JSObjectRef array = JSValueToObject(ctx, argv[1], NULL);
    size_t len = JSObjectGetTypedArrayByteLength(ctx, array, NULL);
    const void *data = len > 0 ? JSObjectGetTypedArrayBytesPtr(ctx, array, NULL) : NULL;
    uint8_t last = JSValueToBoolean(ctx, argv[2]);
    size_t from = (size_t)isolate_number(ctx, argv[3]);
    size_t count = (size_t)isolate_number(ctx, argv[4]);
    if (!data || from > len || count > len - from)
        from = count = 0;
    isolate_send_message(ISOLATE_BODY, (uint64_t)isolate_number(ctx, argv[0]), &last, 1,
                         count > 0 ? (const char *)data + from : NULL, count);
    return JSValueMakeUndefined(ctx);
}

/* taken(id, bytes): the program has read so much of the request */
static HOST(host_taken) {
    HOST_UNUSED();
    char space[8];
    struct buf b = {.data = space, .cap = sizeof(space), .max = sizeof(space) - 1};
    pack_u32(&b, (uint32_t)isolate_number(ctx, argv[1]));
    isolate_send_message(ISOLATE_TAKEN, (uint64_t)isolate_number(ctx, argv[0]), b.data, b.len, NULL,
                         0);
    return JSValueMakeUndefined(ctx);
}

/* awaits(count): how many promises only the front can settle */
static HOST(host_awaits) {
    HOST_UNUSED();
    self->awaits = (uint32_t)isolate_number(ctx, argv[0]);
    return JSValueMakeUndefined(ctx);
}

/* enter(id): what follows is that call's doing; 0: nobody's */
static HOST(host_enter) {
    HOST_UNUSED();
    isolate_enter(self, isolate_find_call(self, (uint64_t)isolate_number(ctx, argv[0])));
    return JSValueMakeUndefined(ctx);
}

static void isolate_free_call(struct isolate_call *call) {
    output_finish(&call->output);
    free(call);
}

/* done(id): the last word of a call */
static HOST(host_done) {
    HOST_UNUSED();
    struct isolate *iso = self;
    struct isolate_call **at = &iso->calls;
    uint64_t id = (uint64_t)isolate_number(ctx, argv[0]);
    while (*at && (*at)->id != id)
        at = &(*at)->next;
    struct isolate_call *call = *at;
    if (!call)
        return JSValueMakeUndefined(ctx);
    sending_begin();
    output_flush(&call->output);
    send_done(call);
    if (iso->current == call)
        isolate_enter(iso, NULL);
    *at = call->next;
    isolate_free_call(call);
    sending_end();
    return JSValueMakeUndefined(ctx);
}

/* ---- calls on capabilities ---- */

static void isolate_flush(struct isolate_socket *b) {
    while (b->fd >= 0 && b->out.len > 0) {
        ssize_t n = send(b->fd, b->out.data, b->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return; /* full: POLLOUT comes; broken: the reader finds out */
        buf_consume(&b->out, (size_t)n);
    }
}

uint32_t isolate_pending(const struct isolate *iso) {
    uint32_t n = 0;
    for (size_t i = 0; i < iso->nbindings; i++)
        n += iso->bindings[i].pending;
    return n;
}

/* Only if nothing is on its way: answers come in the order of their calls. */
static bool put_in_tray(struct isolate *iso, struct isolate_socket *b, size_t before) {
    if (!b->tray || !stay_is_talking() || before > 0 || isolate_pending(iso) > 0)
        return false;
    b->awaits_tray = true;
    stay_told(tray_where(b->tray));
    tray_watch(b->tray, TRAY_ANSWER);
    struct wire_piece frame = {b->out.data, b->out.len};
    if (tray_put(b->tray, TRAY_CALL, &frame, 1))
        return true;
    stay_missed();
    return false;
}

void isolate_send_call(struct isolate *iso, struct isolate_socket *b, size_t before) {
    if (put_in_tray(iso, b, before))
        buf_clear(&b->out);
    else
        isolate_flush(b);
    b->pending++;
}

/* Why a call of so many bytes does not go out, NULL if it does. */
static const char *refuse_call(const struct isolate_socket *b, size_t payload, bool worker,
                               char *space, size_t size) {
    size_t max = worker ? ISOLATE_FRAME_MAX : LIMIT_FACET_CALL_BYTES;
    if (payload > max)
        (void)snprintf(space, size,
                       "limit of %zu bytes for one call exceeded: its arguments have %zu", max,
                       payload);
    else if (b->out.len + WIRE_HEAD_SIZE + payload > b->out.max)
        (void)snprintf(space, size, "limit of %zu bytes that wait to be sent exceeded: await calls",
                       b->out.max);
    else
        return NULL;
    return space;
}

/* bind(binding, id, method, json, worker): a CALL on a capability socket. An empty text if it was
 * sent, else why not; then the binding is as it was. */
static HOST(host_bind) {
    HOST_UNUSED();
    size_t i = (size_t)isolate_number(ctx, argv[0]);
    struct isolate_socket *b = i < self->nbindings ? &self->bindings[i] : NULL;
    if (!b || b->fd < 0)
        return engine_text(&self->engine, "it is gone", 10);
    _cleanup_(free) char *method = NULL;
    _cleanup_(free) char *json = NULL;
    size_t method_len = 0;
    size_t json_len = 0;
    method = engine_utf8(ctx, argv[2], &method_len);
    json = engine_utf8(ctx, argv[3], &json_len);
    size_t payload = 4 + method_len + json_len;
    char space[160];
    const char *why = !method || !json ? "out of memory"
                                       : refuse_call(b, payload, JSValueToBoolean(ctx, argv[4]),
                                                     space, sizeof(space));
    if (why)
        return engine_text(&self->engine, why, strlen(why));
    uint8_t head[WIRE_HEAD_SIZE];
    wire_head_encode(head, ISOLATE_BINDING_CALL,
                     (uint64_t)isolate_number(ctx, argv[1]) | stay_hint(), payload, 0);
    size_t before = b->out.len;
    (void)buf_add(&b->out, head, sizeof(head));
    pack_bytes(&b->out, method, method_len);
    (void)buf_add(&b->out, json, json_len);
    isolate_send_call(self, b, before);
    if (self->current)
        self->current->binding_calls++;
    return engine_text(&self->engine, "", 0);
}

/* now(): monotonic milliseconds */
static HOST(host_now) {
    HOST_UNUSED();
    return JSValueMakeNumber(ctx, mono_ms());
}

/* arm(at, count): when tick() wants to be called, negative for never; how many timers are the
 * program's own, not the prelude's */
static HOST(host_arm) {
    HOST_UNUSED();
    self->timer_at_ms = isolate_number(ctx, argv[0]);
    self->timers = (uint32_t)isolate_number(ctx, argv[1]);
    return JSValueMakeUndefined(ctx);
}

static HOST(host_is_proxy) {
    HOST_UNUSED();
    return JSValueMakeBoolean(ctx, engine_is_proxy(ctx, argv[0]));
}

/* limit(index): result_bytes, wait_until_ms, MiB of memory, output_bytes of the call, bytes of the
 * headers of a response */
static HOST(host_limit) {
    HOST_UNUSED();
    const struct isolate_limits *l = &self->limits;
    size_t output = self->current ? self->current->output.budget_bytes : l->output_bytes;
    const uint32_t values[] = {
        [ISOLATE_LIMIT_RESULT_BYTES] = l->result_bytes,
        [ISOLATE_LIMIT_WAIT_UNTIL_MS] = l->wait_until_ms,
        [ISOLATE_LIMIT_MEMORY_MIB] = (uint32_t)(l->memory_bytes >> 20),
        [ISOLATE_LIMIT_OUTPUT_BYTES] = (uint32_t)output,
        [ISOLATE_LIMIT_HEAD_BYTES] = LIMIT_RESPONSE_HEAD_BYTES,
    };
    size_t i = (size_t)isolate_number(ctx, argv[0]);
    return JSValueMakeNumber(ctx, i < ARRAY_LEN(values) ? values[i] : 0);
}

static const struct engine_host_function host_functions[] = {
    {"evaluate", host_evaluate},
    {"log", host_log},
    {"send", host_send},
    {"enter", host_enter},
    {"done", host_done},
    {"body", host_body},
    {"taken", host_taken},
    {"awaits", host_awaits},
    {"bind", host_bind},
    {"method", quick_host_method},
    {"ask", quick_host_ask},
    {"answers", quick_host_answers},
    {"drop", quick_host_drop},
    {"settles", quick_host_settles},
    {"now", host_now},
    {"arm", host_arm},
    {"isProxy", host_is_proxy},
    {"limit", host_limit},
#ifdef CAY_ISOLATE_PROBE
    {"probe", probe_syscall},
#endif
    {NULL, NULL},
};

/* ---- frames from the front and from capabilities ---- */

void isolate_prelude(struct isolate *iso, enum engine_function f, size_t n, const JSValueRef args[],
                     JSValueRef *ret_value) {
    if (!engine_call(&iso->engine, f, n, args, ret_value))
        stop_now(ISOLATE_EXIT_CRASH);
}

static uint32_t isolate_or_default(uint32_t v, uint32_t fallback) {
    return v > 0 ? v : fallback;
}

static void isolate_begin_call(struct isolate *iso, uint64_t id, uint32_t cpu_ms,
                               uint32_t output_bytes) {
    if (isolate_find_call(iso, id))
        _exit(ISOLATE_EXIT_PROTOCOL);
    struct isolate_call *call = xcalloc(1, sizeof(*call));
    *call = (struct isolate_call){.id = id, .cpu_ms = cpu_ms};
    output_init(&call->output, output_bytes, emit_line, call);
    for (struct isolate_call *other = iso->calls; other; other = other->next)
        other->peak_bytes = MAX(other->peak_bytes, memory_peak());
    memory_restart();
    sending_begin(); /* the list is read when a limit stops us */
    call->next = iso->calls;
    iso->calls = call;
    isolate_enter(iso, call);
    sending_end();
}

static void take_bindings(struct isolate *iso, struct wire_frame *f) {
    for (size_t i = 0; i < f->nfds; i++) {
        struct isolate_socket *b = &iso->bindings[iso->nbindings++];
        *b = (struct isolate_socket){.fd = wire_frame_take_fd(f, i)};
        wire_reader_init(&b->reader, ISOLATE_FRAME_MAX);
        buf_init(&b->out, WIRE_HEAD_SIZE + ISOLATE_FRAME_MAX);
    }
}

static void isolate_on_run(struct isolate *iso, struct wire_frame *f) {
    struct unpack u;
    unpack_init(&u, f->data, f->len);
    uint32_t flags = unpack_u32(&u);
    struct isolate_limits l = {0};
    l.cpu_ms = isolate_or_default(unpack_u32(&u), ISOLATE_DEFAULT_CPU_MS);
    l.memory_bytes = unpack_u64(&u);
    l.output_bytes = isolate_or_default(unpack_u32(&u), ISOLATE_DEFAULT_OUTPUT_BYTES);
    l.binding_calls = unpack_u32(&u);
    l.result_bytes = isolate_or_default(unpack_u32(&u), ISOLATE_DEFAULT_RESULT_BYTES);
    l.wait_until_ms = isolate_or_default(unpack_u32(&u), ISOLATE_DEFAULT_WAIT_UNTIL_MS);
    if (l.memory_bytes == 0)
        l.memory_bytes = ISOLATE_DEFAULT_MEMORY_BYTES;
    size_t program_len;
    size_t spec_len;
    const char *program = unpack_bytes(&u, &program_len);
    const char *spec = unpack_bytes(&u, &spec_len);
    if (!unpack_ok(&u) || iso->started)
        _exit(ISOLATE_EXIT_PROTOCOL);
    iso->limits = l;
    iso->started = true;
    iso->warm = flags & ISOLATE_RUN_WARM;
    iso->reset = flags & ISOLATE_RUN_RESET;
    take_bindings(iso, f);
    set_walls(iso);
    if (iso->statm_fd >= 0)
        memory_begin(l.memory_bytes, isolate_on_memory_limit);
    isolate_begin_call(iso, f->id, l.cpu_ms, l.output_bytes);
    JSValueRef args[] = {JSValueMakeNumber(iso->engine.ctx, (double)f->id),
                         JSValueMakeNumber(iso->engine.ctx, l.binding_calls),
                         engine_text(&iso->engine, program, program_len),
                         engine_text(&iso->engine, spec, spec_len)};
    isolate_prelude(iso, ENGINE_START, ARRAY_LEN(args), args, NULL);
}

/* The engine does not know of the limit, nor of what is beside its heap: what earlier calls of a
 * warm program left behind goes before it could cost the next one its memory. Not again before
 * there is more of it. */
static void collect_garbage(struct isolate *iso) {
    uint64_t limit = iso->limits.memory_bytes;
    uint64_t own = memory_now();
    if (own < limit / 4 || own < iso->collected_bytes + limit / 8)
        return;
    engine_collect(&iso->engine);
    memory_trim();
    iso->collected_bytes = memory_exact();
}

static void isolate_on_call(struct isolate *iso, struct wire_frame *f) {
    struct unpack u;
    unpack_init(&u, f->data, f->len);
    uint32_t cpu_ms = isolate_or_default(unpack_u32(&u), iso->limits.cpu_ms);
    uint32_t output_bytes = isolate_or_default(unpack_u32(&u), iso->limits.output_bytes);
    uint32_t binding_calls = unpack_u32(&u);
    size_t spec_len;
    size_t body_len;
    const char *spec = unpack_bytes(&u, &spec_len);
    const char *body = unpack_bytes(&u, &body_len);
    if (!unpack_ok(&u) || !iso->started || !iso->warm)
        _exit(ISOLATE_EXIT_PROTOCOL);
    if (!iso->calls)
        collect_garbage(iso);
    isolate_begin_call(iso, f->id, cpu_ms, output_bytes);
    JSValueRef args[] = {JSValueMakeNumber(iso->engine.ctx, (double)f->id),
                         JSValueMakeNumber(iso->engine.ctx, binding_calls),
                         engine_text(&iso->engine, spec, spec_len),
                         engine_bytes(&iso->engine, body, body_len)};
    isolate_prelude(iso, ENGINE_CALL, ARRAY_LEN(args), args, NULL);
}

static void isolate_on_room(struct isolate *iso, const struct wire_frame *f) {
    struct unpack u;
    unpack_init(&u, f->data, f->len);
    uint32_t bytes = unpack_u32(&u);
    if (!unpack_ok(&u))
        _exit(ISOLATE_EXIT_PROTOCOL);
    JSValueRef args[] = {JSValueMakeNumber(iso->engine.ctx, (double)f->id),
                         JSValueMakeNumber(iso->engine.ctx, bytes)};
    isolate_prelude(iso, ENGINE_ROOM, ARRAY_LEN(args), args, NULL);
}

static void isolate_on_input(struct isolate *iso, const struct wire_frame *f) {
    if (f->len == 0)
        _exit(ISOLATE_EXIT_PROTOCOL);
    JSValueRef args[] = {JSValueMakeNumber(iso->engine.ctx, (double)f->id),
                         engine_bytes(&iso->engine, (const char *)f->data + 1, f->len - 1),
                         JSValueMakeBoolean(iso->engine.ctx, f->data[0] != 0)};
    isolate_prelude(iso, ENGINE_INPUT, ARRAY_LEN(args), args, NULL);
}

static void isolate_on_cancel(struct isolate *iso, const struct wire_frame *f) {
    JSValueRef args[] = {JSValueMakeNumber(iso->engine.ctx, (double)f->id)};
    const struct isolate_call *call = isolate_find_call(iso, f->id);
    if (call) {
        sending_begin();
        isolate_send_usage(ISOLATE_USED, call);
        sending_end();
    }
    isolate_prelude(iso, ENGINE_CANCEL, ARRAY_LEN(args), args, NULL);
}

static bool read_channel(struct isolate *iso) {
    struct err err;
    int rc = wire_recv(&iso->reader, iso->channel, &err);
    if (rc == -ERR_CANCELLED)
        return false;
    struct wire_frame f;
    while (rc >= 0 && (rc = wire_next(&iso->reader, &f, &err)) == 1) {
        if (f.type == ISOLATE_RUN)
            isolate_on_run(iso, &f);
        else if (f.type == ISOLATE_CALL)
            isolate_on_call(iso, &f);
        else if (f.type == ISOLATE_ROOM)
            isolate_on_room(iso, &f);
        else if (f.type == ISOLATE_INPUT)
            isolate_on_input(iso, &f);
        else if (f.type == ISOLATE_CANCEL)
            isolate_on_cancel(iso, &f);
        else
            rc = -ERR_PROTOCOL;
        wire_frame_finish(&f);
    }
    if (rc < 0)
        _exit(ISOLATE_EXIT_PROTOCOL);
    return true;
}

static void close_tray(struct isolate_socket *b) {
    tray_close(b->tray);
    b->tray = NULL;
    b->awaits_tray = false;
}

static void binding_gone(struct isolate *iso, size_t i, const char *why) {
    struct isolate_socket *b = &iso->bindings[i];
    fd_close(&b->fd);
    close_tray(b);
    b->pending = 0;
    JSValueRef args[] = {JSValueMakeNumber(iso->engine.ctx, (double)i),
                         engine_text(&iso->engine, why, strlen(why))};
    isolate_prelude(iso, ENGINE_GONE, ARRAY_LEN(args), args, NULL);
    quick_gone(iso, i, why);
}

/* False if nobody asked, or it is no answer. */
static bool take_reply(struct isolate *iso, size_t i, const struct wire_frame *f) {
    uint64_t id = f->id & ~(UINT64_MAX << FACET_NEAR_SHIFT);
    if (quick_is(id))
        return quick_reply(iso, i, id, f);
    JSContextRef ctx = iso->engine.ctx;
    JSValueRef args[] = {JSValueMakeNumber(ctx, (double)i), JSValueMakeNumber(ctx, (double)id),
                         JSValueMakeBoolean(ctx, f->type == ISOLATE_BINDING_RESULT),
                         engine_text(&iso->engine, (const char *)f->data, f->len)};
    JSValueRef known = NULL;
    isolate_prelude(iso, ENGINE_REPLY, ARRAY_LEN(args), args, &known);
    return JSValueToBoolean(ctx, known);
}

/* The facet's offer to talk by memory. One that is not what it should be is no reason to part. */
static int take_tray(struct isolate_socket *b, struct wire_frame *f) {
    struct err err;
    _cleanup_(close) int fd = wire_frame_take_fd(f, 0);
    if (fd < 0 || b->tray || b->pending == 0)
        return -ERR_PROTOCOL;
    (void)tray_open(&b->tray, fd, &err);
    return 0;
}

static int isolate_take_frame(struct isolate *iso, size_t i, struct wire_frame *f) {
    struct isolate_socket *b = &iso->bindings[i];
    if (f->type == FACET_TRAY && f->nfds == 1)
        return take_tray(b, f);
    if ((f->type != ISOLATE_BINDING_RESULT && f->type != ISOLATE_BINDING_FAIL) || b->pending == 0 ||
        f->nfds > 0)
        return -ERR_PROTOCOL;
    b->pending--;
    return take_reply(iso, i, f) ? 0 : -ERR_PROTOCOL;
}

static void take_frames(struct isolate *iso, size_t i, int rc) {
    struct isolate_socket *b = &iso->bindings[i];
    struct err err;
    struct wire_frame f;
    while (rc >= 0 && b->fd >= 0 && (rc = wire_next(&b->reader, &f, &err)) == 1) {
        rc = isolate_take_frame(iso, i, &f);
        wire_frame_finish(&f);
    }
    if (rc < 0)
        binding_gone(iso, i,
                     rc == -ERR_CANCELLED ? "was withdrawn" : "sent what is not a valid reply");
}

static void isolate_read_binding(struct isolate *iso, size_t i) {
    struct err err;
    take_frames(iso, i, wire_recv(&iso->bindings[i].reader, iso->bindings[i].fd, &err));
}

static int isolate_wait_ms(const struct isolate *iso, int max_wait_ms) {
    if (iso->timer_at_ms < 0)
        return max_wait_ms;
    double left = iso->timer_at_ms - mono_ms();
    int ms = left <= 0 ? 0 : left > 1e6 ? 1000000 : (int)left + 1;
    return max_wait_ms >= 0 ? MIN(ms, max_wait_ms) : ms;
}

/* Awake, if the facet does as much; else asleep, but not for long, because only the tray is heard
 * meanwhile. */
static bool await_tray(const struct isolate *iso, struct tray *t) {
    if (!stay_is_talking())
        return tray_wait(t, TRAY_ANSWER, 0);
    int64_t awake_ns = stay_awake_ns();
    bool came = awake_ns > 0 && tray_wait(t, TRAY_ANSWER, awake_ns);
    if (awake_ns > 0)
        stay_waited(!came);
    if (came)
        return true;
    return !stay_is_apart() && isolate_wait_ms(iso, 1) > 0 &&
           tray_sleep(t, TRAY_ANSWER, TRAY_SLEEP_NS);
}

/* Waits for an answer in a tray, if one is due there: true if it came. After this none comes
 * there, so that what the sockets have is later than it. */
static bool isolate_read_trays(struct isolate *iso) {
    struct err err;
    for (size_t i = 0; i < iso->nbindings; i++) {
        struct isolate_socket *b = &iso->bindings[i];
        if (!b->awaits_tray)
            continue;
        if (!await_tray(iso, b->tray))
            stay_missed();
        b->awaits_tray = false;
        int rc = tray_take(b->tray, TRAY_ANSWER, true, &b->reader, &err);
        if (rc == 0)
            continue;
        stay_woke();
        take_frames(iso, i, rc);
        return true;
    }
    return false;
}

/* ---- the event loop ---- */

/* True while something other than the front can move the program on. */
static bool can_progress(const struct isolate *iso) {
    if (iso->timers > 0 || iso->awaits > 0)
        return true;
    for (size_t i = 0; i < iso->nbindings; i++)
        if (iso->bindings[i].pending > 0)
            return true;
    return false;
}

/* Runs timers that are due, one per call, so that each has its microtasks run after it. Bounded, so
 * that timers without end do not keep the channel from being read. */
static void run_timers(struct isolate *iso) {
    for (int i = 0; i < 64 && iso->timer_at_ms >= 0 && iso->timer_at_ms <= mono_ms(); i++)
        isolate_prelude(iso, ENGINE_TICK, 0, NULL, NULL);
}

bool isolate_step(struct isolate *iso, int max_wait_ms) {
    run_timers(iso);
    if (iso->calls && !can_progress(iso))
        isolate_prelude(iso, ENGINE_STUCK, 0, NULL, NULL);
    if (iso->reset && !iso->calls)
        return true; /* nothing is worth waiting for */
    stay_or_leave(iso->calls && !iso->calls->next && isolate_pending(iso) == 1);
    bool came = isolate_read_trays(iso);
    if (came && ++iso->by_tray % TRAY_TURNS != 0)
        return true;
    struct pollfd p[1 + WIRE_FDS_MAX];
    p[0] = (struct pollfd){.fd = iso->channel, .events = POLLIN};
    for (size_t i = 0; i < iso->nbindings; i++) {
        const struct isolate_socket *b = &iso->bindings[i];
        p[1 + i] = (struct pollfd){.fd = b->fd,
                                   .events = (short)(b->out.len > 0 ? POLLIN | POLLOUT : POLLIN)};
    }
    sending_begin();
    send_held();
    sending_end();
    int n = poll(p, 1 + iso->nbindings, came ? 0 : isolate_wait_ms(iso, max_wait_ms));
    stay_woke();
    if (n <= 0)
        return true;
    for (size_t i = 0; i < iso->nbindings; i++) {
        if (p[1 + i].revents & POLLOUT)
            isolate_flush(&iso->bindings[i]);
        if (p[1 + i].revents & (POLLIN | POLLHUP | POLLERR))
            isolate_read_binding(iso, i);
    }
    return p[0].revents == 0 || read_channel(iso);
}

bool isolate_serve(struct isolate *iso) {
    while (isolate_step(iso, -1))
        if (iso->reset && !iso->calls) {
            stay_leave();
            for (size_t i = 0; i < iso->nbindings; i++) {
                close_tray(&iso->bindings[i]);
                fd_close(&iso->bindings[i].fd);
            }
            return true;
        }
    return false;
}

void isolate_reborn(struct isolate *iso, const struct memory_start *memory, uint32_t restored,
                    uint32_t dropped, uint32_t known) {
    isolate_seed(iso);
    webhost_begin();
    memory_open(memory);
    char space[16];
    struct buf b = {.data = space, .cap = sizeof(space), .max = sizeof(space) - 1};
    pack_u32(&b, restored);
    pack_u32(&b, dropped);
    pack_u32(&b, known);
    isolate_send_message(ISOLATE_RESET_READY, 0, b.data, b.len, NULL, 0);
}

void isolate_seed(struct isolate *iso) {
    uint32_t words[4];
    rand_bytes(words, sizeof(words));
    JSValueRef args[4];
    for (size_t i = 0; i < ARRAY_LEN(args); i++)
        args[i] = JSValueMakeNumber(iso->engine.ctx, words[i] | 1u);
    isolate_prelude(iso, ENGINE_SEED, ARRAY_LEN(args), args, NULL);
}

void isolate_open(struct isolate *iso, int channel, const struct memory_start *memory) {
    iso->channel = channel;
    iso->statm_fd = memory->statm_fd;
    iso->timer_at_ms = -1;
    wire_reader_init(&iso->reader, ISOLATE_FRAME_MAX);
    webhost_begin();
    memory_open(memory);
}

void isolate_close(struct isolate *iso) {
    isolate_prelude(iso, ENGINE_CLEAR, 0, NULL, NULL);
    quick_clear(iso);
    wire_reader_finish(&iso->reader);
    for (size_t i = 0; i < iso->nbindings; i++) {
        close_tray(&iso->bindings[i]);
        fd_close(&iso->bindings[i].fd);
        wire_reader_finish(&iso->bindings[i].reader);
        buf_finish(&iso->bindings[i].out);
    }
    while (iso->calls) {
        struct isolate_call *call = iso->calls;
        iso->calls = call->next;
        isolate_free_call(call);
    }
    held.len = 0;
    memory_close();
    struct engine engine = iso->engine;
    *iso = (struct isolate){.engine = engine, .channel = -1, .statm_fd = -1, .timer_at_ms = -1};
}

static void install_handlers(void) {
    static char stack[CRASH_STACK];
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof(stack)};
    (void)sigaltstack(&alternate, NULL);
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE, SIGABRT};
    struct sigaction sa = {.sa_handler = isolate_on_crash, .sa_flags = SA_ONSTACK | SA_NODEFER};
    for (size_t i = 0; i < ARRAY_LEN(crashes); i++)
        (void)sigaction(crashes[i], &sa, NULL);
    sa =
        (struct sigaction){.sa_handler = isolate_on_cpu_limit, .sa_flags = SA_ONSTACK | SA_RESTART};
    /* One waits for the other: both may be in the middle of a frame. */
    (void)sigaddset(&sa.sa_mask, SIGTERM);
    (void)sigaddset(&sa.sa_mask, SIGPROF);
    (void)sigaddset(&sa.sa_mask, SIGUSR2);
    (void)sigaction(SIGPROF, &sa, NULL);
    sa.sa_handler = isolate_on_used_asked;
    (void)sigaction(SIGUSR2, &sa, NULL);
    sa.sa_handler = isolate_on_asked;
    (void)sigaction(SIGTERM, &sa, NULL);
    sa.sa_handler = stay_on_tick;
    (void)sigaction(SIGVTALRM, &sa, NULL);
    sa = (struct sigaction){.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &sa, NULL);
}

int isolate_init(struct isolate *iso, struct err *err) {
    *iso = (struct isolate){.channel = -1, .statm_fd = -1, .timer_at_ms = -1};
    self = iso;
    quick_init(iso);
    int rc = engine_init(&iso->engine, host_functions, err);
    if (rc < 0)
        return rc;
    (void)engine_on_gc(&iso->engine, after_gc, iso);
    install_handlers();
    stay_init();
    return 0;
}
