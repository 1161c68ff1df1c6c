#include "front/run/guest.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/sm.h"
#include "front/common/intake.h"
#include "wire/isolate.h"
#include "wire/pack.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum {
    TAKEN_MIN_BYTES = 64 << 10,
    END_MS = 250, /* for an isolate to say what it used */
};

/* A guest that works has a place among those at work in the pool; an idle one has not. */
enum guest_state {
    GUEST_AWAITING,  /* warm: its program is not known yet */
    GUEST_PREPARING, /* compiling, getting capabilities, waiting for an isolate */
    GUEST_WAITING,   /* warm: calls have come, a place is waited for */
    GUEST_RUNNING,
    GUEST_IDLE,  /* warm, without a call */
    GUEST_DYING, /* its isolate is about to end: it takes no more calls */
    GUEST_ENDED, /* it is freed in the next turn of the loop */
};

static const struct sm_state states[] = {
    [GUEST_AWAITING] = {"awaiting", SM_TO(GUEST_PREPARING) | SM_TO(GUEST_ENDED)},
    [GUEST_PREPARING] = {"preparing", SM_TO(GUEST_RUNNING) | SM_TO(GUEST_ENDED)},
    [GUEST_WAITING] = {"waiting", SM_TO(GUEST_RUNNING) | SM_TO(GUEST_IDLE) | SM_TO(GUEST_ENDED)},
    [GUEST_RUNNING] = {"running", SM_TO(GUEST_IDLE) | SM_TO(GUEST_DYING) | SM_TO(GUEST_ENDED)},
    [GUEST_IDLE] = {"idle", SM_TO(GUEST_RUNNING) | SM_TO(GUEST_WAITING) | SM_TO(GUEST_ENDED)},
    [GUEST_DYING] = {"dying", SM_TO(GUEST_ENDED)},
    [GUEST_ENDED] = {"ended", 0},
};
static const struct sm guest_sm = {"guest", states, ARRAY_LEN(states)};

struct guest_call {
    struct guest_call *next;
    struct guest *guest;
    uint64_t id;
    struct guest_callbacks cb;
    void *ctx;
    uv_timer_t timer;
    uint32_t wall_ms;
    struct run_limits limits;
    bool own_limits; /* not the guest's */
    int64_t start_ns;
    int64_t cpu_from_ns; /* what the isolate had used before */
    size_t output_seen;
    struct guest_usage usage;
    struct buf spec; /* until it is sent */
    struct buf body;
    bool sent;
    bool leaves; /* nobody waits for it; the isolate is asked what it used */
    /* The window of the response's body: what may still come, and what was passed on since that was
     * told. */
    size_t room;
    size_t passed;
    /* The window of the request's: what the program has not read, and what waits for `sent`. */
    size_t unread;
    struct buf input;
    bool input_whole;
    bool input_full; /* on_room is owed */
    /* How it ended; told in the next turn of the loop. */
    struct later over;
    struct err err; /* code 0: it ran to its end */
    json_t *error;  /* a compile error */
};

/* A capability that the guest's env needs. */
struct binding {
    struct guest *guest;
    struct facet_op *op;
    uint64_t life; /* of the facet; 0: it is none */
    int fd;
};

struct guest {
    struct runner *runner;
    enum guest_state state;
    struct guest_call *calls;
    uint64_t next_id;
    struct run_limits limits;
    bool warm;
    char owner[ID_SIZE];
    char *label;
    char *domain;
    struct program *program;
    struct compiler_ticket *compile;
    struct pool_ticket *ticket;
    struct pool_isolate *isolate;
    struct binding bindings[ENV_BINDINGS_MAX];
    size_t nbindings;
    size_t granting; /* bindings that are not there yet */
    /* JSON of the env for the isolate: of its plain values the largest text is not copied. */
    struct buf env;
    struct buf env_text;
    struct buf env_rest;
    bool told_ending;    /* its isolate has said that it ends */
    uint64_t culprit;    /* the call for whose sake it dies, 0: none */
    struct err sentence; /* what is told to that call */
    void (*on_end)(void *ctx);
    void *end_ctx;
    struct later over;
};

static void check_prepared(struct guest *g);
static void end_guest(struct guest *g, const struct err *err);

static void guest_move(struct guest *g, enum guest_state to) {
    g->state = (enum guest_state)sm_next(&guest_sm, g->state, to);
}

/* --- calls --- */

static void guest_on_call_closed(uv_handle_t *h) {
    struct guest_call *c = h->data;
    buf_finish(&c->spec);
    buf_finish(&c->body);
    buf_finish(&c->input);
    json_decref(c->error);
    free(c);
}

static void guest_on_call_over(void *ctx) {
    struct guest_call *c = ctx;
    if (c->error && c->cb.on_error)
        c->cb.on_error(c->ctx, c->error);
    c->cb.on_done(c->ctx, &c->usage, c->err.code && !c->error ? &c->err : NULL);
    uv_close((uv_handle_t *)&c->timer, guest_on_call_closed);
}

static const struct err guest_cancelled = {.code = ERR_CANCELLED,
                                           .message = "the call was cancelled"};

/* The call is over, err NULL: it ran to its end. Whoever waits for it is told by the loop. */
static void guest_finish_call(struct guest_call *c, const struct err *err) {
    struct guest *g = c->guest;
    if (c->leaves)
        err = &guest_cancelled;
    struct guest_call **at = &g->calls;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    c->usage.wall_us = (clock_mono_ns() - c->start_ns) / 1000;
    for (size_t i = 0; i < g->nbindings; i++)
        c->usage.lost_binding |= facets_is_lost(g->runner->facets, g->bindings[i].life);
    if (err)
        c->err = *err;
    (void)uv_timer_stop(&c->timer);
    later_post(&g->runner->later, &c->over, guest_on_call_over, c);
}

static void guest_on_wall(uv_timer_t *t);

/* The isolate is asked what a call used, and may not answer: at most this. */
static void guest_note_cpu(struct guest_call *c) {
    int64_t used_ns = pool_isolate_cpu_ns(c->guest->isolate) - c->cpu_from_ns;
    c->usage.cpu_us = used_ns > 0 ? (uint64_t)used_ns / 1000 : 0;
}

/* What runs in an isolate cannot be stopped but by ending it. The calls are told when it has. */
static void guest_condemn(struct guest *g, struct guest_call *c, const struct err *err) {
    if (g->state != GUEST_RUNNING)
        return;
    guest_note_cpu(c);
    g->culprit = c->id;
    g->sentence = *err;
    guest_move(g, GUEST_DYING);
    pool_isolate_end(g->isolate);
    (void)uv_timer_start(&c->timer, guest_on_wall, END_MS, 0);
}

/* No call is left. */
static void guest_rest(struct guest *g) {
    if (g->state == GUEST_RUNNING && g->warm) {
        pool_isolate_idle(g->isolate);
        guest_move(g, GUEST_IDLE);
    } else if (g->state == GUEST_WAITING) {
        pool_cancel(g->ticket);
        g->ticket = NULL;
        guest_move(g, GUEST_IDLE);
    } else {
        end_guest(g, NULL);
    }
}

static void guest_on_wall(uv_timer_t *t) {
    struct guest_call *c = t->data;
    struct guest *g = c->guest;
    struct err err;
    (void)err_set(&err, ERR_LIMIT, "time limit of %u ms exceeded", c->wall_ms);
    if (g->state == GUEST_RUNNING) {
        guest_condemn(g, c, &err);
    } else if (g->state == GUEST_DYING) {
        if (!g->culprit || g->culprit == c->id)
            pool_isolate_kill(
                g->isolate); /* it said that it would end, or was asked to, and has not */
    } else {                 /* it was never begun */
        guest_finish_call(c, &err);
        if (!g->calls)
            guest_rest(g);
    }
}

static struct guest_call *guest_add_call(struct guest *g, const struct guest_request *r) {
    struct guest_call *c = xcalloc(1, sizeof(*c));
    c->guest = g;
    c->id = ++g->next_id;
    c->cb = r->callbacks;
    c->ctx = r->ctx;
    c->wall_ms = r->wall_ms;
    c->own_limits = r->limits != NULL;
    c->limits = r->limits ? *r->limits : g->limits;
    c->start_ns = clock_mono_ns();
    buf_init(&c->spec, ISOLATE_FRAME_MAX);
    buf_init(&c->body, ISOLATE_FRAME_MAX);
    buf_init(&c->input, ISOLATE_FRAME_MAX);
    c->room = ISOLATE_BODY_WINDOW;
    (void)uv_timer_init(g->runner->loop, &c->timer);
    c->timer.data = c;
    uv_update_time(g->runner->loop); /* the loop's clock may be old: the time begins now */
    (void)uv_timer_start(&c->timer, guest_on_wall, r->wall_ms, 0);
    struct guest_call **at = &g->calls;
    while (*at)
        at = &(*at)->next;
    *at = c;
    return c;
}

static struct guest_call *find_call(struct guest *g, uint64_t id) {
    struct guest_call *c = g->calls;
    while (c && c->id != id)
        c = c->next;
    return c;
}

static bool guest_send_input(struct guest *g, const struct guest_call *c, const void *data,
                             size_t len, bool last) {
    uint8_t head = last;
    return pool_isolate_send(g->isolate, &(struct wire_out){.type = ISOLATE_INPUT,
                                                            .id = c->id,
                                                            .pieces = {{&head, 1}, {data, len}}});
}

/* The call has gone to the isolate, and what came of its body follows. */
static bool call_sent(struct guest *g, struct guest_call *c) {
    c->sent = true;
    buf_finish(&c->spec);
    buf_finish(&c->body);
    bool ok = c->input.len == 0 && !c->input_whole;
    if (!ok)
        ok = guest_send_input(g, c, c->input.data, c->input.len, c->input_whole);
    buf_finish(&c->input);
    return ok;
}

static bool send_call(struct guest *g, struct guest_call *c) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, ISOLATE_FRAME_MAX);
    pack_u32(&b, c->limits.cpu_ms);
    pack_u32(&b, c->limits.output_bytes);
    pack_u32(&b, c->limits.binding_calls);
    pack_bytes(&b, c->spec.data, c->spec.len);
    pack_bytes(&b, c->body.data, c->body.len);
    c->cpu_from_ns = pool_isolate_allow(g->isolate, guest_active_calls(g));
    return !b.full &&
           pool_isolate_send(g->isolate, &(struct wire_out){.type = ISOLATE_CALL,
                                                            .id = c->id,
                                                            .pieces = {{b.data, b.len}}}) &&
           call_sent(g, c);
}

/* Calls that came while it could not take them, from c on. */
static void send_calls(struct guest *g, struct guest_call *c) {
    bool sent = true;
    for (; c && sent; c = c->next)
        sent = send_call(g, c);
    if (sent)
        return;
    struct err err;
    (void)err_set(&err, ERR_UNAVAILABLE, "the isolate did not take the call; run it again");
    end_guest(g, &err);
}

/* --- what the isolate says --- */

static void guest_on_log(struct guest *g, struct guest_call *c, const struct wire_frame *f) {
    struct unpack u;
    unpack_init(&u, f->data, f->len);
    int level = unpack_u8(&u);
    double time = unpack_f64(&u);
    if (u.bad)
        return;
    size_t len = (size_t)(u.end - u.at);
    /* The isolate keeps to its budget; one that does not is not ours any more. */
    c->output_seen += len;
    if (c->output_seen > 2 * (size_t)c->limits.output_bytes + 65536) {
        struct err err;
        (void)err_set(&err, ERR_LIMIT, "output limit of %u bytes exceeded", c->limits.output_bytes);
        guest_condemn(g, c, &err);
        return;
    }
    if (c->cb.on_log)
        c->cb.on_log(c->ctx, level, time, (const char *)u.at, len);
}

static void protocol_error(struct guest *g, const char *what) {
    struct err err;
    (void)err_set(&err, ERR_PROTOCOL, "the isolate sent a malformed %s", what);
    end_guest(g, &err);
}

static void guest_on_response(struct guest *g, struct guest_call *c, const struct wire_frame *f) {
    _cleanup_(json) json_t *j = NULL;
    if (json_parse((const char *)f->data, f->len, "head", &j, NULL) < 0 || !json_is_object(j))
        protocol_error(g, "response");
    else if (c->cb.on_response)
        c->cb.on_response(c->ctx, j);
}

static void guest_on_body(struct guest *g, struct guest_call *c, const struct wire_frame *f) {
    size_t len = f->len - 1;
    if (f->len == 0 || len > c->room) {
        protocol_error(g, "body");
        return;
    }
    c->room -= len;
    if (c->cb.on_body)
        c->cb.on_body(c->ctx, (const char *)f->data + 1, len, f->data[0] != 0);
    else
        guest_call_passed(c, len);
}

static void guest_on_taken_input(struct guest *g, struct guest_call *c,
                                 const struct wire_frame *f) {
    struct unpack u;
    unpack_init(&u, f->data, f->len);
    uint32_t bytes = unpack_u32(&u);
    if (!unpack_ok(&u) || bytes > c->unread) {
        protocol_error(g, "size of what was read");
        return;
    }
    c->unread -= bytes;
    if (!c->input_full || c->unread > ISOLATE_BODY_WINDOW / 2)
        return;
    c->input_full = false;
    if (c->cb.on_room)
        c->cb.on_room(c->ctx);
}

static bool guest_read_usage(struct guest_call *c, const struct wire_frame *f) {
    struct unpack u;
    struct guest_usage used = c->usage;
    unpack_init(&u, f->data, f->len);
    used.cpu_us = unpack_u64(&u);
    used.peak_memory_bytes = unpack_u64(&u);
    used.binding_calls = unpack_u32(&u);
    used.output_bytes = unpack_u64(&u);
    used.output_dropped_bytes = unpack_u64(&u);
    if (unpack_ok(&u))
        c->usage = used;
    return unpack_ok(&u);
}

static void guest_leave(struct guest_call *c);

static void guest_on_used(struct guest *g, struct guest_call *c, const struct wire_frame *f) {
    if (guest_read_usage(c, f))
        guest_leave(c);
    else
        protocol_error(g, "use of a call");
}

static void guest_on_call_done(struct guest *g, struct guest_call *c, const struct wire_frame *f) {
    if (!guest_read_usage(c, f)) {
        protocol_error(g, "end of a call");
        return;
    }
    guest_finish_call(c, NULL);
    if (g->domain && g->state == GUEST_RUNNING) {
        struct pool_isolate *i = steal_ptr(&g->isolate);
        pool_isolate_rest(i);
    }
    if (!g->calls)
        guest_rest(g);
}

static void guest_on_frame(void *ctx, struct wire_frame *f) {
    struct guest *g = ctx;
    if (f->type == ISOLATE_ENDING) {
        g->told_ending = true;
        if (g->state == GUEST_RUNNING)
            guest_move(g, GUEST_DYING);
    }
    struct guest_call *c = find_call(g, f->id);
    if (c && c->leaves && f->type == ISOLATE_USED) {
        guest_on_used(g, c, f);
        return;
    }
    if (c && g->sentence.code && f->type == ISOLATE_DONE)
        (void)guest_read_usage(c, f); /* that is what it was asked for */
    if (!c || g->sentence.code || f->type == ISOLATE_USED)
        return;
    switch (f->type) {
    case ISOLATE_LOG:
        guest_on_log(g, c, f);
        break;
    case ISOLATE_RESULT:
        if (f->len > 0 && !json_is_valid((const char *)f->data, f->len))
            protocol_error(g, "result");
        else if (c->cb.on_result)
            c->cb.on_result(c->ctx, (const char *)f->data, f->len);
        break;
    case ISOLATE_RESPONSE:
        guest_on_response(g, c, f);
        break;
    case ISOLATE_BODY:
        guest_on_body(g, c, f);
        break;
    case ISOLATE_TAKEN:
        guest_on_taken_input(g, c, f);
        break;
    case ISOLATE_ERROR: {
        _cleanup_(json) json_t *j = NULL;
        if (json_parse((const char *)f->data, f->len, "error", &j, NULL) < 0 || !json_is_object(j))
            protocol_error(g, "error");
        else if (c->cb.on_error)
            c->cb.on_error(c->ctx, j);
        break;
    }
    case ISOLATE_DONE:
        guest_on_call_done(g, c, f);
        break;
    default:
        break;
    }
}

/* Why an isolate ended that nobody ended, in words. */
static void explain_end(const struct guest *g, const struct pool_isolate_end *end,
                        struct err *err) {
    int st = end->wait_status;
    if (!end->known)
        (void)err_set(err, ERR_UNAVAILABLE, "the isolates' process ended; run it again");
    else if (WIFEXITED(st) && WEXITSTATUS(st) == ISOLATE_EXIT_MEMORY)
        (void)err_set(err, ERR_LIMIT, "memory limit of %llu MiB exceeded",
                      (unsigned long long)(g->limits.memory_bytes >> 20));
    else if ((WIFEXITED(st) && WEXITSTATUS(st) == ISOLATE_EXIT_CPU) ||
             (WIFSIGNALED(st) && WTERMSIG(st) == SIGXCPU))
        (void)err_set(err, ERR_LIMIT, "processor time limit of %u ms exceeded", g->limits.cpu_ms);
    else if (WIFSIGNALED(st) && WTERMSIG(st) == SIGSYS)
        (void)err_set(err, ERR_FORBIDDEN, "the isolate was killed at a forbidden system call");
    else if (WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL)
        (void)err_set(err, ERR_UNAVAILABLE,
                      "the isolate was killed from outside, as when all isolates together "
                      "(isolates_memory_bytes) or the machine run out of memory");
    else if (WIFSIGNALED(st))
        (void)err_set(err, ERR_INTERNAL, "the isolate was killed by signal %d (%s)", WTERMSIG(st),
                      strsignal(WTERMSIG(st)));
    else
        (void)err_set(err, ERR_INTERNAL, "the isolate ended unexpectedly (status %d)",
                      WEXITSTATUS(st));
}

static void guest_on_isolate_end(void *ctx, const struct pool_isolate_end *end) {
    struct guest *g = ctx;
    struct err err;
    struct guest_call *c = g->culprit ? find_call(g, g->culprit) : NULL;
    for (struct guest_call *x = g->calls; x; x = x->next)
        if (x->usage.peak_memory_bytes == 0) /* it could not say itself: at most this */
            x->usage.peak_memory_bytes = end->own_kib * 1024;
    if (c && g->sentence.code)
        guest_finish_call(c, &g->sentence);
    /* An isolate that ends at a limit says of each call that it has begun what becomes of it, and
     * whose fault it was. What is left now had not begun: it is to blame for nothing. */
    if (g->culprit || g->told_ending)
        (void)err_set(&err, ERR_UNAVAILABLE,
                      "the isolate was ended because another call on it exceeded its limits; try "
                      "again");
    else
        explain_end(g, end, &err);
    end_guest(g, &err);
}

/* --- preparing: program, capabilities, isolate --- */

static void release_parts(struct guest *g) {
    compiler_cancel(g->compile);
    g->compile = NULL;
    pool_cancel(g->ticket);
    g->ticket = NULL;
    for (size_t i = 0; i < g->nbindings; i++) {
        facet_op_cancel(g->bindings[i].op);
        g->bindings[i].op = NULL;
        fd_close(&g->bindings[i].fd);
    }
    g->nbindings = 0;
    program_unref(g->program);
    g->program = NULL;
    if (g->isolate) {
        struct pool_isolate *i = g->isolate;
        g->isolate = NULL;
        pool_isolate_release(i);
    }
}

/* The large text was made by a thread, beside a tree that the thread freed in 190,000 parts: to
 * free it here would make malloc put these together, which takes 2 ms and more. */
static void drop_env(struct guest *g) {
    buf_finish(&g->env);
    if (g->env_text.data)
        intake_dispose_on(g->runner->loop, free, buf_steal(&g->env_text, NULL));
    buf_finish(&g->env_rest);
}

static void guest_on_over(void *ctx) {
    struct guest *g = ctx;
    if (g->on_end)
        g->on_end(g->end_ctx);
    drop_env(g);
    free(g->label);
    free(g->domain);
    free(g);
}

/* Ends everything; err NULL: all calls are over already. */
static void end_guest(struct guest *g, const struct err *err) {
    if (g->state == GUEST_ENDED)
        return;
    guest_move(g, GUEST_ENDED);
    release_parts(g);
    while (g->calls)
        guest_finish_call(g->calls, err);
    later_post(&g->runner->later, &g->over, guest_on_over, g);
}

static int64_t guest_since(const struct guest_call *c) {
    return (clock_mono_ns() - c->start_ns) / 1000;
}

static void guest_on_compiled(void *ctx, struct program *program, const char *error_json,
                              const struct err *err) {
    struct guest *g = ctx;
    g->compile = NULL;
    if (program) {
        g->program = program;
        if (g->calls)
            g->calls->usage.compiled_us = guest_since(g->calls);
        check_prepared(g);
        return;
    }
    _cleanup_(json) json_t *error = NULL;
    if (error_json)
        (void)json_parse(error_json, strlen(error_json), "", &error, NULL);
    if (json_is_object(error)) {
        (void)json_object_set_new(error, "kind", json_string("load"));
        for (struct guest_call *c = g->calls; c; c = c->next)
            c->error = json_incref(error);
    }
    end_guest(g, err);
}

static void guest_on_granted(void *ctx, int fd, const struct err *err) {
    struct binding *b = ctx;
    struct guest *g = b->guest;
    b->op = NULL;
    if (fd < 0) {
        end_guest(g, err);
        return;
    }
    b->fd = fd;
    g->granting--;
    if (g->calls)
        g->calls->usage.granted_us = guest_since(g->calls);
    check_prepared(g);
}

static void start_running(struct guest *g);

static void guest_own(struct guest *g, struct pool_isolate *isolate) {
    static const struct pool_isolate_callbacks callbacks = {.on_frame = guest_on_frame,
                                                            .on_end = guest_on_isolate_end};
    g->isolate = isolate;
    pool_isolate_watch(isolate, &callbacks, g);
    if (g->calls)
        g->calls->usage.taken_us = guest_since(g->calls);
    start_running(g);
}

static void guest_on_taken(void *ctx, struct pool_isolate *isolate, const struct err *err) {
    struct guest *g = ctx;
    g->ticket = NULL;
    if (!isolate && g->state == GUEST_WAITING) {
        while (g->calls)
            guest_finish_call(g->calls, err);
        guest_move(g, GUEST_IDLE);
    } else if (!isolate) {
        end_guest(g, err);
    } else if (g->state == GUEST_WAITING) {
        guest_move(g, GUEST_RUNNING);
        send_calls(g, g->calls);
    } else {
        guest_own(g, isolate);
    }
}

/* "{...}" of the first call with the env put before it; NULL: the program is only loaded. What may
 * be large, a text of the env and the rest of the call's own, is not copied: these are pieces of
 * the frame. Returns their length. */
static size_t write_run_spec(struct guest *g, const struct guest_call *c, struct buf *out,
                             struct wire_piece pieces[4]) {
    struct wire_piece rest = {NULL, 0};
    if (c && c->spec.len > 2)
        rest = (struct wire_piece){c->spec.data + 1, c->spec.len - 1};
    static const char begin[] = "{\"env\":";
    (void)buf_add_str(&g->env_rest, !c ? ",\"main\":false}" : rest.len > 0 ? "," : "}");
    size_t len = strlen(begin) + g->env.len + g->env_text.len + g->env_rest.len + rest.len;
    pack_u32(out, (uint32_t)len);
    (void)buf_add_str(out, begin);
    (void)buf_add(out, g->env.data, g->env.len);
    pieces[0] = (struct wire_piece){out->data, out->len};
    pieces[1] = (struct wire_piece){g->env_text.data, g->env_text.len};
    pieces[2] = (struct wire_piece){g->env_rest.data, g->env_rest.len};
    pieces[3] = rest;
    return len;
}

static void start_running(struct guest *g) {
    /* RUN has no place for a body: such a call follows the loading. */
    struct guest_call *first = g->calls && g->calls->body.len > 0 ? NULL : g->calls;
    _cleanup_(buf) struct buf head;
    _cleanup_(buf) struct buf tail;
    buf_init(&head, 256);
    buf_init(&tail, ISOLATE_FRAME_MAX);
    struct wire_piece spec[4];
    size_t spec_len = write_run_spec(g, first, &tail, spec);
    pack_u32(&head, g->warm ? ISOLATE_RUN_WARM : g->domain ? ISOLATE_RUN_RESET : 0);
    pack_u32(&head, g->limits.cpu_ms);
    pack_u64(&head, g->limits.memory_bytes);
    pack_u32(&head, g->limits.output_bytes);
    pack_u32(&head, g->limits.binding_calls);
    pack_u32(&head, 0);
    pack_u32(&head, 0);
    pack_u32(&head, (uint32_t)g->program->len);
    int fds[ENV_BINDINGS_MAX];
    for (size_t i = 0; i < g->nbindings; i++)
        fds[i] = g->bindings[i].fd;
    struct wire_out out = {.type = ISOLATE_RUN,
                           .id = first ? first->id : 0,
                           .pieces = {{head.data, head.len},
                                      {g->program->data, g->program->len},
                                      spec[0],
                                      spec[1],
                                      spec[2],
                                      spec[3]},
                           .fds = fds,
                           .nfds = g->nbindings};
    guest_move(g, GUEST_RUNNING);
    int64_t cpu_from_ns = pool_isolate_allow(g->isolate, 1);
    if (first)
        first->cpu_from_ns = cpu_from_ns;
    bool fits = !tail.full && !g->env.full && !g->env_rest.full && spec_len <= ISOLATE_FRAME_MAX;
    bool sent = fits && pool_isolate_send(g->isolate, &out);
    for (size_t i = 0; i < g->nbindings; i++)
        fd_close(&g->bindings[i].fd);
    program_unref(g->program);
    g->program = NULL;
    drop_env(g);
    if (sent && first)
        sent = call_sent(g, first);
    if (!sent) {
        struct err err;
        (void)err_set(&err, ERR_UNAVAILABLE, "the isolate did not take the program; run it again");
        end_guest(g, &err);
        return;
    }
    send_calls(g, first ? first->next : g->calls);
}

/* The isolate is taken last: it should not sit idle while the rest is prepared. */
static void check_prepared(struct guest *g) {
    if (g->state != GUEST_PREPARING || !g->program || g->granting > 0)
        return;
    struct pool *pool = g->domain ? runner_reset_pool(g->runner) : g->runner->pool;
    struct pool_want want = {
        .owner = g->owner, .domain = g->domain, .taken = guest_on_taken, .ctx = g};
    struct pool_isolate *isolate;
    struct err err;
    if (pool_take(pool, &want, &isolate, &g->ticket, &err) < 0)
        end_guest(g, &err);
    else if (isolate)
        guest_own(g, isolate);
}

/* The largest text, if it is worth it. */
static const struct env_item *to_take(const struct env *env) {
    const struct env_item *most = NULL;
    for (size_t i = 0; i < env->n; i++)
        if (env->items[i].kind == ENV_TEXT && env->items[i].text->len > TAKEN_MIN_BYTES &&
            (!most || env->items[i].text->len > most->text->len))
            most = &env->items[i];
    return most;
}

static int start_bindings(struct guest *g, const struct env *env, struct err *err) {
    const struct env_item *taken = to_take(env);
    struct json_writer w;
    json_writer_init(&w, taken ? &g->env : &g->env_rest);
    json_writer_object_begin(&w);
    for (size_t i = 0; i < env->n; i++) {
        struct env_item *item = &env->items[i];
        if (item == taken) {
            json_writer_raw(&w, "", 0); /* the comma */
            g->env_text = *item->text;
            *item->text = (struct buf){0};
            w.out = &g->env_rest;
            continue;
        }
        if (item->kind == ENV_TEXT) {
            json_writer_raw(&w, item->text->data, item->text->len);
            continue;
        }
        json_put_object_begin(&w, item->name);
        if (item->kind == ENV_JSON) {
            json_put_tree(&w, "json", item->json);
            json_writer_object_end(&w);
            continue;
        }
        size_t k = g->nbindings++;
        struct binding *b = &g->bindings[k];
        *b = (struct binding){.guest = g, .fd = -1};
        json_put_int(&w, "fd", (int64_t)k);
        json_put_str(&w, "kind", item->kind == ENV_FACET ? "facet" : "worker");
        size_t nmethods = 0;
        if (item->methods) {
            json_put_array_begin(&w, "methods");
            for (; item->methods[nmethods]; nmethods++)
                json_writer_str(&w, item->methods[nmethods]);
            json_writer_array_end(&w);
        }
        json_writer_object_end(&w);
        if (item->kind == ENV_WORKER) {
            b->fd = steal_fd(&item->fd);
            continue;
        }
        struct facet_ref ref = {.dir = item->facet_dir,
                                .owner = g->owner,
                                .open = item->facet_open ? item->facet_open : env->facet_open};
        struct facet_grant grant = {.label = g->label,
                                    .all = item->methods == NULL,
                                    .methods = item->methods,
                                    .nmethods = nmethods};
        b->fd = facets_grant_now(g->runner->facets, &ref, &grant, &b->life);
        if (b->fd >= 0)
            continue;
        g->granting++;
        b->op = facets_grant(g->runner->facets, &ref, &grant, guest_on_granted, b, err);
        if (!b->op)
            return -(int)err->code;
        b->life = facet_op_life(b->op);
    }
    json_writer_object_end(&w);
    return 0;
}

static void guest_keep(struct guest_call *c, const struct guest_request *r) {
    if (r->own_spec) {
        buf_finish(&c->spec);
        c->spec = *r->own_spec;
        *r->own_spec = (struct buf){0};
    } else {
        (void)buf_add(&c->spec, r->spec, r->spec_len);
    }
    (void)buf_add(&c->body, r->body, r->body_len);
}

static struct guest *guest_create(struct runner *r, const struct guest_spec *spec,
                                  void (*on_end)(void *ctx), void *ctx) {
    struct guest *g = xcalloc(1, sizeof(*g));
    g->runner = r;
    g->warm = spec->warm;
    (void)snprintf(g->owner, sizeof(g->owner), "%s", spec->owner ? spec->owner : "");
    g->label = xstrdup(spec->label ? spec->label : "run");
    g->domain = spec->domain && !spec->warm ? xstrdup(spec->domain) : NULL;
    g->on_end = on_end;
    g->end_ctx = ctx;
    buf_init(&g->env, ISOLATE_FRAME_MAX);
    buf_init(&g->env_rest, ISOLATE_FRAME_MAX);
    return g;
}

struct guest *guest_await(struct runner *r, const struct guest_spec *spec,
                          const struct guest_request *first, void (*on_end)(void *ctx), void *ctx,
                          struct guest_call **ret_call) {
    struct guest *g = guest_create(
        r, &(struct guest_spec){.owner = spec->owner, .label = spec->label, .warm = true}, on_end,
        ctx);
    *ret_call = guest_add_call(g, first);
    guest_keep(*ret_call, first);
    return g;
}

bool guest_awaits(const struct guest *g) {
    return g->state == GUEST_AWAITING;
}

void guest_load(struct guest *g, const struct guest_spec *spec) {
    guest_move(g, GUEST_PREPARING);
    g->limits = spec->limits;
    for (struct guest_call *c = g->calls; c; c = c->next)
        if (!c->own_limits)
            c->limits = g->limits;
    g->granting = 1; /* keeps it from starting before all is asked for */
    g->compile = compiler_compile(g->runner->compiler,
                                  &(struct compiler_request){.source = spec->source,
                                                             .hash = spec->source_hash,
                                                             .source_len = spec->source_len,
                                                             .owner = g->owner,
                                                             .done = guest_on_compiled,
                                                             .ctx = g},
                                  &g->program);
    if (g->program && g->calls)
        g->calls->usage.compiled_us = guest_since(g->calls);
    struct err err;
    if (start_bindings(g, spec->env, &err) < 0) {
        end_guest(g, &err);
        return;
    }
    g->granting--;
    check_prepared(g);
}

void guest_refuse(struct guest *g, const struct err *err) {
    end_guest(g, err);
}

struct guest *guest_start(struct runner *r, const struct guest_spec *spec,
                          const struct guest_request *first, void (*on_end)(void *ctx), void *ctx,
                          struct guest_call **ret_call) {
    struct guest *g = guest_create(r, spec, on_end, ctx);
    *ret_call = guest_add_call(g, first);
    guest_keep(*ret_call, first);
    guest_load(g, spec);
    return g;
}

bool guest_takes_calls(const struct guest *g) {
    return g->state < GUEST_DYING;
}

struct guest_call *guest_call(struct guest *g, const struct guest_request *request) {
    struct guest_call *c = guest_add_call(g, request);
    struct err err;
    guest_keep(c, request);
    if (g->state == GUEST_IDLE) {
        struct pool_want want = {.owner = g->owner, .taken = guest_on_taken, .ctx = g};
        if (pool_isolate_work(g->isolate, &want, &g->ticket, &err) < 0) {
            guest_finish_call(c, &err);
            return c;
        }
        guest_move(g, g->ticket ? GUEST_WAITING : GUEST_RUNNING);
    }
    if (g->state == GUEST_RUNNING) {
        send_calls(g, c);
    } else if (!guest_takes_calls(g)) {
        (void)err_set(&err, ERR_UNAVAILABLE, "the isolate does not take calls any more");
        guest_finish_call(c, &err);
    }
    return c;
}

static void guest_on_nobody(void *ctx, const struct guest_usage *usage, const struct err *err) {
    (void)ctx;
    (void)usage;
    (void)err;
}

/* Nobody waits for the call any more, but a warm isolate goes on with it, within its time: what the
 * worker keeps in memory is not lost because a client has left. */
static void guest_abandon(struct guest *g, const struct guest_call *c) {
    int64_t left_ms = c->wall_ms - (clock_mono_ns() - c->start_ns) / 1000000;
    struct guest_call *ghost =
        guest_add_call(g, &(struct guest_request){.wall_ms = (uint32_t)MAX(left_ms, 1),
                                                  .callbacks = {.on_done = guest_on_nobody}});
    ghost->id = c->id;
    ghost->room = c->room;
    ghost->unread = c->unread;
    ghost->cpu_from_ns = c->cpu_from_ns;
    ghost->sent = true;
}

static void guest_leave(struct guest_call *c) {
    struct guest *g = c->guest;
    if (g->state == GUEST_RUNNING)
        guest_abandon(g, c);
    guest_finish_call(c, &guest_cancelled);
    if (!g->calls)
        guest_rest(g);
}

static void guest_on_left(uv_timer_t *t) {
    guest_leave(t->data);
}

/* What a call has used goes into its record, also when nobody waits for its end. A program that
 * computes reads no frame, so it gets a signal too. */
static void guest_leave_soon(struct guest *g, struct guest_call *c) {
    c->leaves = true;
    c->cb = (struct guest_callbacks){.on_done = c->cb.on_done};
    guest_note_cpu(c);
    (void)pool_isolate_send(g->isolate, &(struct wire_out){.type = ISOLATE_CANCEL, .id = c->id});
    pool_isolate_ask(g->isolate);
    (void)uv_timer_start(&c->timer, guest_on_left, END_MS, 0);
}

void guest_call_passed(struct guest_call *c, size_t bytes) {
    c->passed += bytes;
    if (c->over.queue || c->guest->state != GUEST_RUNNING || c->passed < ISOLATE_BODY_WINDOW / 4)
        return;
    _cleanup_(buf) struct buf b;
    buf_init(&b, 16);
    pack_u32(&b, (uint32_t)c->passed);
    c->room += c->passed;
    c->passed = 0;
    (void)pool_isolate_send(
        c->guest->isolate,
        &(struct wire_out){.type = ISOLATE_ROOM, .id = c->id, .pieces = {{b.data, b.len}}});
}

bool guest_call_input(struct guest_call *c, const void *data, size_t len, bool last) {
    if (c->over.queue)
        return true;
    c->unread += len;
    if (!c->sent) {
        (void)buf_add(&c->input, data, len);
        c->input_whole = last;
    } else if (c->guest->state == GUEST_RUNNING) {
        (void)guest_send_input(c->guest, c, data, len, last);
    }
    c->input_full = c->unread >= ISOLATE_BODY_WINDOW;
    return !c->input_full;
}

void guest_call_cancel(struct guest_call *c) {
    struct guest *g = c->guest;
    if (c->over.queue || c->leaves)
        return; /* it is over already, or as good as that */
    if (g->state == GUEST_RUNNING && c->sent) {
        if (g->warm)
            guest_leave_soon(g, c);
        else
            guest_condemn(g, c, &guest_cancelled);
        return;
    }
    if (g->state == GUEST_DYING && g->culprit == c->id)
        pool_isolate_kill(g->isolate); /* it was asked to end, and its time goes with the call */
    guest_finish_call(c, &guest_cancelled);
    if (!g->calls)
        guest_rest(g);
}

size_t guest_active_calls(const struct guest *g) {
    size_t n = 0;
    for (const struct guest_call *c = g->calls; c; c = c->next)
        n++;
    return n;
}

bool guest_lacks_database(const struct guest *g) {
    for (size_t i = 0; i < g->nbindings; i++)
        if (g->bindings[i].life != 0 && facets_is_over(g->runner->facets, g->bindings[i].life))
            return true;
    return false;
}

void guest_let_go(struct guest *g) {
    g->on_end = NULL;
}

void guest_destroy(struct guest *g) {
    if (!g)
        return;
    g->on_end = NULL;
    struct err err;
    (void)err_set(&err, ERR_CANCELLED, "the isolate was ended");
    end_guest(g, &err);
}
