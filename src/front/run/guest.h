#pragma once
/* A guest: one isolate with one program and its env, and the calls that are made on it. A one-shot
 * guest has one call and ends with it; a warm one stays. What comes from the isolate is not
 * trusted: texts may hold anything, JSON is checked before it is passed on.
 *
 * Every callback comes from the loop, never inside a function of this header. */

#include "front/run/runner.h"

struct guest;
struct guest_call;

struct guest_usage {
    int64_t wall_us;
    uint64_t cpu_us;
    uint64_t peak_memory_bytes;
    uint32_t binding_calls;
    uint64_t output_bytes;
    uint64_t output_dropped_bytes;
    bool lost_binding; /* a database of its env was cut off, not by the program */
    /* Where the time went, from the start of the call. */
    int64_t compiled_us, granted_us, taken_us;
};

struct guest_callbacks {
    void (*on_log)(void *ctx, int level, double time_ms, const char *text, size_t len);
    /* Valid JSON, or len 0 for undefined. */
    void (*on_result)(void *ctx, const char *json, size_t len);
    /* The answer of a "http" call: its head, then its body in pieces. */
    void (*on_response)(void *ctx, const json_t *head);
    /* Who passes them on says so by guest_call_passed(): no more than a window of them comes before
     * that. on_body NULL throws them away. */
    void (*on_body)(void *ctx, const char *data, size_t len, bool last);
    /* guest_call_input() may be given more. */
    void (*on_room)(void *ctx);
    /* {"name","message","stack","module","line","column","kind"}; strings of the program's making.
     */
    void (*on_error)(void *ctx, const json_t *error);
    /* The last callback, and one that always comes; err NULL: the call ran to its end (which may be
     * an on_error). The call's pointer is dead afterwards. */
    void (*on_done)(void *ctx, const struct guest_usage *usage, const struct err *err);
};

struct guest_spec {
    const char *source; /* the compile request: JSON text */
    size_t source_len;
    const unsigned char *source_hash; /* if it is known; or NULL */
    const struct env
        *env; /* borrowed until the guest has started; facets and descriptors are taken */
    struct run_limits limits;
    bool warm;
    const char *owner; /* the key whose share and turn it takes; NULL: the operator's */
    const char *label; /* for the facets' audit */
    /* Not NULL: take an isolate that served this trust domain before and put its memory back. */
    const char *domain;
};

struct guest_request {
    const char *spec; /* JSON of src/wire/isolate.h without "env" and "main" */
    size_t spec_len;
    struct buf *own_spec; /* where it is, if it may be taken instead of copied; or NULL */
    const void *body;
    size_t body_len;
    uint32_t wall_ms;
    const struct run_limits *limits; /* of this call; NULL: the guest's. Memory is the guest's */
    struct guest_callbacks callbacks;
    void *ctx;
};

/* Starts a guest with a first call. on_end (may be NULL) is called when it is of no more use: the
 * pointer is dead afterwards. Whatever keeps it from starting is told by the call's on_done. */
struct guest *guest_start(struct runner *r, const struct guest_spec *spec,
                          const struct guest_request *first, void (*on_end)(void *ctx), void *ctx,
                          struct guest_call **ret_call);
/* The same, for a warm guest whose program has to be got first: until guest_load() or
 * guest_refuse() it takes calls, which wait. Of the spec only owner and label are read. */
struct guest *guest_await(struct runner *r, const struct guest_spec *spec,
                          const struct guest_request *first, void (*on_end)(void *ctx), void *ctx,
                          struct guest_call **ret_call);
bool guest_awaits(const struct guest *g);
/* Here is what it awaits; owner and label are not read again. */
void guest_load(struct guest *g, const struct guest_spec *spec);
/* It will not get it: its calls end with the error, and so does the guest. */
void guest_refuse(struct guest *g, const struct err *err);
/* False when it is about to end: then it should be let go, and another one started. */
bool guest_takes_calls(const struct guest *g);
struct guest_call *guest_call(struct guest *g, const struct guest_request *request);
/* So much of what on_body gave has gone on its way. */
void guest_call_passed(struct guest_call *c, size_t bytes);
/* A piece of the request's body, for a call whose spec says {"http": {"stream": true}}. False: no
 * more until on_room. */
bool guest_call_input(struct guest_call *c, const void *data, size_t len, bool last);
/* Ends the call: its on_done comes with ERR_CANCELLED. A one-shot guest ends with it. */
void guest_call_cancel(struct guest_call *c);
size_t guest_active_calls(const struct guest *g);
/* A database of its env has ended: what it calls there fails, until it is started again. */
bool guest_lacks_database(const struct guest *g);
/* Forgets one that takes no more calls: it ends by itself, and on_end is not called. */
void guest_let_go(struct guest *g);
/* Ends a guest; its calls fail. on_end is not called, and the pointer is dead. */
void guest_destroy(struct guest *g);
