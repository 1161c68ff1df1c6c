#include "isolate/quick.h"

#include "base/json.h"
#include "base/mem.h"
#include "isolate/rows.h"
#include "isolate/stay.h"
#include "wire/facet.h"
#include "wire/isolate.h"
#include "wire/pack.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SLOTS = ISOLATE_QUICK_SLOTS,
    FIRST_SLOT = ISOLATE_SLOTS - ISOLATE_QUICK_SLOTS,
    NUMBERS = 0xfffffff, /* above the slot: 48 bits together */
    METHODS_MAX = 64,
    ARGS_MAX = 4,
    TEXT_MAX = 16384,
    ANSWER_MAX = 16384,
};

#define EXACT_MAX 9007199254740991.0

struct quick_call {
    uint64_t id; /* 0: free */
    uint64_t call;
    size_t binding;
    bool dropped;
    JSObjectRef resolve, reject;
    JSObjectRef at; /* an error, for its stack: the answer arrives on none */
};

static struct {
    struct isolate *isolate;
    struct {
        char *name;
        size_t len;
    } method[METHODS_MAX];
    size_t nmethods;
    struct quick_call calls[SLOTS];
    uint32_t number;
} quick;

void quick_init(struct isolate *iso) {
    quick.isolate = iso;
}

static double isolate_quick_number(JSContextRef ctx, JSValueRef v) {
    return JSValueToNumber(ctx, v, NULL);
}

HOST(quick_host_method) {
    HOST_UNUSED();
    size_t len;
    char *name = engine_utf8(ctx, argv[0], &len);
    for (size_t i = 0; name && i < quick.nmethods; i++)
        if (quick.method[i].len == len && memcmp(quick.method[i].name, name, len) == 0) {
            free(name);
            return JSValueMakeNumber(ctx, (double)i);
        }
    if (!name || quick.nmethods == METHODS_MAX) {
        free(name);
        return JSValueMakeNumber(ctx, -1);
    }
    quick.method[quick.nmethods].name = name;
    quick.method[quick.nmethods].len = len;
    return JSValueMakeNumber(ctx, (double)quick.nmethods++);
}

/* ---- asking ---- */

/* As many as UTF-16 has for the text. */
static size_t isolate_quick_units(const char *text, size_t len) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        n += (c & 0xc0) != 0x80;
        n += c >= 0xf0;
    }
    return n;
}

/* The engine stops before a lone surrogate, which has no UTF-8: that is the prelude's affair. */
static bool isolate_quick_put_text(JSContextRef ctx, JSValueRef v, struct buf *out) {
    char space[TEXT_MAX];
    JSStringRef s = JSValueToStringCopy(ctx, v, NULL);
    size_t n = 0;
    if (s && JSStringGetMaximumUTF8CStringSize(s) <= sizeof(space))
        n = JSStringGetUTF8CString(s, space, sizeof(space));
    bool whole = n > 0 && isolate_quick_units(space, n - 1) == JSStringGetLength(s);
    if (s)
        JSStringRelease(s);
    if (whole)
        json_write_str(out, space, n - 1);
    return whole;
}

/* A fraction is a fraction however it is written; of whole numbers JavaScript writes only some
 * without an exponent, and the facet tells the two apart. */
static bool isolate_quick_put_number(JSContextRef ctx, JSValueRef v, struct buf *out) {
    double d = isolate_quick_number(ctx, v);
    if (!(fabs(d) <= EXACT_MAX) || (d == 0 && signbit(d)))
        return false;
    return d == trunc(d) ? buf_addf(out, "%lld", (long long)d) : buf_addf(out, "%.17g", d);
}

static bool put_argument(JSContextRef ctx, JSValueRef v, struct buf *out) {
    switch (JSValueGetType(ctx, v)) {
    case kJSTypeString:
        return isolate_quick_put_text(ctx, v, out);
    case kJSTypeNumber:
        return isolate_quick_put_number(ctx, v, out);
    case kJSTypeBoolean:
        return buf_add_str(out, JSValueToBoolean(ctx, v) ? "true" : "false");
    case kJSTypeNull:
    case kJSTypeUndefined:
        return buf_add_str(out, "null");
    default:
        return false;
    }
}

static bool put_arguments(JSContextRef ctx, size_t n, const JSValueRef args[], struct buf *out) {
    (void)buf_add_char(out, '[');
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            (void)buf_add_char(out, ',');
        if (!put_argument(ctx, args[i], out))
            return false;
    }
    (void)buf_add_char(out, ']');
    return !out->full;
}

static struct quick_call *find_free(void) {
    for (size_t i = 0; i < SLOTS; i++)
        if (quick.calls[i].id == 0)
            return &quick.calls[i];
    return NULL;
}

static JSObjectRef make_promise(JSContextRef ctx, struct quick_call *q) {
    JSObjectRef promise = JSObjectMakeDeferredPromise(ctx, &q->resolve, &q->reject, NULL);
    q->at = promise ? JSObjectMakeError(ctx, 0, NULL, NULL) : NULL;
    if (!q->at)
        return NULL;
    JSValueProtect(ctx, q->resolve);
    JSValueProtect(ctx, q->reject);
    JSValueProtect(ctx, q->at);
    return promise;
}

static void isolate_quick_forget(JSContextRef ctx, const struct quick_call *q) {
    JSValueUnprotect(ctx, q->resolve);
    JSValueUnprotect(ctx, q->reject);
    JSValueUnprotect(ctx, q->at);
}

/* The frame of the call is written behind its head: which needs its length. */
static bool isolate_quick_put_call(JSContextRef ctx, struct buf *out, size_t method, size_t n,
                                   const JSValueRef args[]) {
    static const uint8_t head[WIRE_HEAD_SIZE];
    (void)buf_add(out, head, sizeof(head));
    pack_bytes(out, quick.method[method].name, quick.method[method].len);
    return put_arguments(ctx, n, args, out);
}

HOST(quick_host_ask) {
    HOST_UNUSED();
    struct isolate *iso = quick.isolate;
    size_t i = (size_t)isolate_quick_number(ctx, argv[0]);
    size_t method = (size_t)isolate_quick_number(ctx, argv[1]);
    struct isolate_socket *b = i < iso->nbindings ? &iso->bindings[i] : NULL;
    struct quick_call *q = find_free();
    if (!b || b->fd < 0 || b->out.len > 0 || !q || !iso->current || method >= quick.nmethods ||
        argc > 2 + ARGS_MAX)
        return JSValueMakeUndefined(ctx);
    bool ok = isolate_quick_put_call(ctx, &b->out, method, argc - 2, argv + 2);
    JSObjectRef promise = ok ? make_promise(ctx, q) : NULL;
    if (!promise) {
        buf_clear(&b->out);
        return JSValueMakeUndefined(ctx);
    }
    quick.number = quick.number % NUMBERS + 1;
    q->id = (uint64_t)quick.number * ISOLATE_SLOTS + FIRST_SLOT + (uint64_t)(q - quick.calls);
    q->call = iso->current->id;
    q->binding = i;
    q->dropped = false;
    wire_head_encode((uint8_t *)b->out.data, ISOLATE_BINDING_CALL, q->id | stay_hint(),
                     b->out.len - WIRE_HEAD_SIZE, 0);
    isolate_send_call(iso, b, 0);
    iso->current->binding_calls++;
    return promise;
}

/* ---- answers ---- */

/* By the prelude: an error, a value that JSON lacks, a call whose turn it is not. */
static bool isolate_quick_settle(struct isolate *iso, struct quick_call *q, bool ok,
                                 const void *text, size_t len, const char *why) {
    JSContextRef ctx = iso->engine.ctx;
    struct quick_call was = *q;
    q->id = 0;
    JSValueRef args[] = {JSValueMakeNumber(ctx, (double)was.binding),
                         JSValueMakeNumber(ctx, (double)was.call),
                         was.resolve,
                         was.reject,
                         was.at,
                         JSValueMakeBoolean(ctx, ok),
                         engine_text(&iso->engine, text, len),
                         engine_text(&iso->engine, why, strlen(why))};
    JSValueRef good = NULL;
    isolate_prelude(iso, ENGINE_SETTLE, sizeof(args) / sizeof(args[0]), args, &good);
    isolate_quick_forget(ctx, &was);
    return JSValueToBoolean(ctx, good);
}

/* The value of an answer that has nothing to be read with care: rows, or what execute() says. NULL:
 * it has, or is no JSON. */
static JSValueRef plain_value(JSContextRef ctx, const struct wire_frame *f) {
    static const char done[] = "{\"success\":";
    char space[4 * ANSWER_MAX];
    struct buf text = {.data = space, .cap = sizeof(space), .max = sizeof(space) - 1};
    const char *data = (const char *)f->data;
    if (f->type != ISOLATE_BINDING_RESULT || f->len > ANSWER_MAX)
        return NULL;
    bool plain = rows_to_objects(data, f->len, &text);
    if (!plain && f->len > sizeof(done) && memcmp(data, done, sizeof(done) - 1) == 0 &&
        !memchr(data, '[', f->len)) {
        buf_clear(&text);
        plain = buf_add(&text, data, f->len);
    }
    if (!plain || memchr(text.data, 0, text.len))
        return NULL;
    text.data[text.len] = 0;
    JSStringRef s = JSStringCreateWithUTF8CString(text.data);
    JSValueRef value = s ? JSValueMakeFromJSONString(ctx, s) : NULL;
    if (s)
        JSStringRelease(s);
    return value;
}

bool quick_is(uint64_t id) {
    return id % ISOLATE_SLOTS >= FIRST_SLOT;
}

bool quick_reply(struct isolate *iso, size_t binding, uint64_t id, const struct wire_frame *f) {
    JSContextRef ctx = iso->engine.ctx;
    struct quick_call *q = &quick.calls[id % ISOLATE_SLOTS - FIRST_SLOT];
    if (q->id != id || q->binding != binding)
        return false;
    struct isolate_call *call = iso->current;
    bool turn = call && call->id == q->call && !call->settles;
    JSValueRef value = turn && !q->dropped ? plain_value(ctx, f) : NULL;
    if (q->dropped) {
        q->id = 0;
        isolate_quick_forget(ctx, q);
        return true;
    }
    if (!value)
        return isolate_quick_settle(iso, q, f->type == ISOLATE_BINDING_RESULT, f->data, f->len, "");
    struct quick_call was = *q;
    q->id = 0;
    call->answers++;
    (void)JSObjectCallAsFunction(ctx, was.resolve, NULL, 1, &value, NULL);
    isolate_quick_forget(ctx, &was);
    return true;
}

void quick_gone(struct isolate *iso, size_t binding, const char *why) {
    for (size_t i = 0; i < SLOTS; i++) {
        struct quick_call *q = &quick.calls[i];
        if (q->id == 0 || q->binding != binding)
            continue;
        if (!q->dropped) {
            (void)isolate_quick_settle(iso, q, false, "", 0, why);
        } else {
            q->id = 0;
            isolate_quick_forget(iso->engine.ctx, q);
        }
    }
}

/* ---- the call that they belong to ---- */

HOST(quick_host_answers) {
    HOST_UNUSED();
    struct isolate_call *call =
        isolate_find_call(quick.isolate, (uint64_t)isolate_quick_number(ctx, argv[0]));
    uint32_t n = call ? call->answers : 0;
    if (call)
        call->answers = 0;
    return JSValueMakeNumber(ctx, n);
}

HOST(quick_host_drop) {
    HOST_UNUSED();
    uint64_t id = (uint64_t)isolate_quick_number(ctx, argv[0]);
    for (size_t i = 0; i < SLOTS; i++)
        quick.calls[i].dropped = quick.calls[i].dropped || quick.calls[i].call == id;
    return JSValueMakeUndefined(ctx);
}

HOST(quick_host_settles) {
    HOST_UNUSED();
    struct isolate_call *call =
        isolate_find_call(quick.isolate, (uint64_t)isolate_quick_number(ctx, argv[0]));
    if (call)
        call->settles = true;
    return JSValueMakeUndefined(ctx);
}

void quick_clear(struct isolate *iso) {
    for (size_t i = 0; i < SLOTS; i++)
        if (quick.calls[i].id != 0)
            isolate_quick_forget(iso->engine.ctx, &quick.calls[i]);
    for (size_t i = 0; i < quick.nmethods; i++)
        free(quick.method[i].name);
    memset(quick.calls, 0, sizeof(quick.calls));
    quick.nmethods = 0;
    quick.number = 0;
}
