#include "front/run/guest.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "wire/isolate.h"
#include "wire/pack.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum guest_state {
    GUEST_PREPARING, /* compiling, getting capabilities, waiting for an isolate */
    GUEST_RUNNING,
    GUEST_ENDED,
};

struct guest_call {
    struct guest_call *next;
    struct guest *guest;
    uint64_t id;
    struct guest_callbacks cb;
    void *ctx;
    uv_timer_t timer;
    uint32_t wall_ms;
    int64_t start_ns;
    size_t output_seen;
    struct guest_usage usage;
    struct buf spec; /* while the guest prepares */
    struct buf body;
    bool finished;
};

/* A capability that the guest's env needs. */
struct binding {
    struct guest *guest;
    struct facet_op *op;
    int fd;
};

struct guest {
    struct runner *runner;
    enum guest_state state;
    struct guest_call *calls;
    uint64_t next_id;
    struct run_limits limits;
    bool warm;
    char *label;
    char *domain;
    struct program *program;
    struct compiler_ticket *compile;
    struct pool_ticket *ticket;
    struct isolate *isolate;
    struct binding bindings[ENV_BINDINGS_MAX];
    size_t nbindings;
    size_t granting; /* bindings that are not there yet */
    struct buf env;  /* JSON of the env for the isolate */
    struct err failure;
    json_t *compile_error;
    void (*on_end)(void *ctx);
    void *end_ctx;
    bool starting; /* guest_start() is on the stack */
    bool destroyed;
};

static void check_prepared(struct guest *g);
static void end_guest(struct guest *g, const struct err *err);

/* --- calls --- */

static void on_call_timer_closed(uv_handle_t *h) {
    struct guest_call *c = h->data;
    buf_finish(&c->spec);
    buf_finish(&c->body);
    free(c);
}

static void finish_call(struct guest_call *c, const struct err *err) {
    if (c->finished)
        return;
    c->finished = true;
    struct guest *g = c->guest;
    struct guest_call **at = &g->calls;
    while (*at && *at != c)
        at = &(*at)->next;
    if (*at)
        *at = c->next;
    c->usage.wall_us = (clock_mono_ns() - c->start_ns) / 1000;
    (void)uv_timer_stop(&c->timer);
    c->cb.on_done(c->ctx, &c->usage, err);
    uv_close((uv_handle_t *)&c->timer, on_call_timer_closed);
}

static void on_wall(uv_timer_t *t) {
    struct guest_call *c = t->data;
    struct err err;
    (void)err_set(&err, ERR_LIMIT, "time limit of %u ms exceeded", c->wall_ms);
    struct guest *g = c->guest;
    finish_call(c, &err);
    /* What runs in the isolate cannot be stopped but by ending it. */
    (void)err_set(&err, ERR_LIMIT,
                  "the isolate was ended because another call on it exceeded its "
                  "time limit");
    end_guest(g, &err);
}

static struct guest_call *add_call(struct guest *g, const struct guest_request *r) {
    struct guest_call *c = xcalloc(1, sizeof(*c));
    c->guest = g;
    c->id = ++g->next_id;
    c->cb = r->callbacks;
    c->ctx = r->ctx;
    c->wall_ms = r->wall_ms;
    c->start_ns = clock_mono_ns();
    buf_init(&c->spec, ISOLATE_FRAME_MAX);
    buf_init(&c->body, ISOLATE_FRAME_MAX);
    (void)uv_timer_init(g->runner->loop, &c->timer);
    c->timer.data = c;
    uv_update_time(g->runner->loop); /* the loop's clock may be old: the time begins now */
    (void)uv_timer_start(&c->timer, on_wall, r->wall_ms, 0);
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

static bool send_call(struct guest *g, struct guest_call *c, const void *spec, size_t spec_len,
                      const void *body, size_t body_len) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, ISOLATE_FRAME_MAX);
    pack_u32(&b, g->limits.cpu_ms);
    pack_bytes(&b, spec, spec_len);
    pack_bytes(&b, body, body_len);
    return !b.full && isolate_send(g->isolate, &(struct wire_out){.type = ISOLATE_CALL,
                                                                  .id = c->id,
                                                                  .pieces = {{b.data, b.len}}});
}

/* --- what the isolate says --- */

static void on_log(struct guest *g, struct guest_call *c, const struct wire_frame *f) {
    struct unpack u;
    unpack_init(&u, f->data, f->len);
    int level = unpack_u8(&u);
    double time = unpack_f64(&u);
    if (u.bad)
        return;
    size_t len = (size_t)(u.end - u.at);
    /* The isolate keeps to its budget; one that does not is not ours any more. */
    c->output_seen += len;
    if (c->output_seen > 2 * (size_t)g->limits.output_bytes + 65536) {
        struct err err;
        (void)err_set(&err, ERR_LIMIT, "output limit of %u bytes exceeded", g->limits.output_bytes);
        end_guest(g, &err);
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

static void on_response(struct guest *g, struct guest_call *c, const struct wire_frame *f) {
    _cleanup_(json) json_t *j = NULL;
    if (json_parse((const char *)f->data, f->len, "head", &j, NULL) < 0 || !json_is_object(j))
        protocol_error(g, "response");
    else if (c->cb.on_response)
        c->cb.on_response(c->ctx, j);
}

static void on_body(struct guest *g, struct guest_call *c, const struct wire_frame *f) {
    if (f->len == 0)
        protocol_error(g, "body");
    else if (c->cb.on_body)
        c->cb.on_body(c->ctx, (const char *)f->data + 1, f->len - 1, f->data[0] != 0);
}

static void on_call_done(struct guest *g, struct guest_call *c, const struct wire_frame *f) {
    struct unpack u;
    unpack_init(&u, f->data, f->len);
    c->usage.cpu_us = unpack_u64(&u);
    c->usage.peak_memory_bytes = unpack_u64(&u);
    c->usage.binding_calls = unpack_u32(&u);
    c->usage.output_bytes = unpack_u64(&u);
    c->usage.output_dropped_bytes = unpack_u64(&u);
    if (!unpack_ok(&u)) {
        protocol_error(g, "end of a call");
        return;
    }
    bool warm = g->warm;
    if (g->domain) {
        struct isolate *i = steal_ptr(&g->isolate);
        isolate_rest(i);
    }
    finish_call(c, NULL); /* may destroy a warm guest */
    if (!warm)
        end_guest(g, NULL);
}

static void on_frame(void *ctx, struct wire_frame *f) {
    struct guest *g = ctx;
    struct guest_call *c = find_call(g, f->id);
    if (!c)
        return;
    switch (f->type) {
    case ISOLATE_LOG:
        on_log(g, c, f);
        break;
    case ISOLATE_RESULT:
        if (f->len > 0 && !json_is_valid((const char *)f->data, f->len))
            protocol_error(g, "result");
        else if (c->cb.on_result)
            c->cb.on_result(c->ctx, (const char *)f->data, f->len);
        break;
    case ISOLATE_RESPONSE:
        on_response(g, c, f);
        break;
    case ISOLATE_BODY:
        on_body(g, c, f);
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
        on_call_done(g, c, f);
        break;
    default:
        break;
    }
}

/* The isolate ended in the middle of something: why, in words. */
static void on_isolate_end(void *ctx, const struct isolate_end *end) {
    struct guest *g = ctx;
    struct err err;
    int st = end->wait_status;
    if (!end->known)
        (void)err_set(&err, ERR_UNAVAILABLE, "the isolates' process ended; run it again");
    else if (WIFEXITED(st) && WEXITSTATUS(st) == ISOLATE_EXIT_MEMORY)
        (void)err_set(&err, ERR_LIMIT, "memory limit of %llu MiB exceeded",
                      (unsigned long long)(g->limits.memory_bytes >> 20));
    else if ((WIFEXITED(st) && WEXITSTATUS(st) == ISOLATE_EXIT_CPU) ||
             (WIFSIGNALED(st) && WTERMSIG(st) == SIGXCPU))
        (void)err_set(&err, ERR_LIMIT, "processor time limit of %u ms exceeded", g->limits.cpu_ms);
    else if (WIFSIGNALED(st) && WTERMSIG(st) == SIGSYS)
        (void)err_set(&err, ERR_FORBIDDEN, "the isolate was killed at a forbidden system call");
    else if (WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL)
        (void)err_set(&err, ERR_INTERNAL,
                      "the isolate was killed from outside, as when all isolates together "
                      "(isolates_memory_bytes) or the machine run out of memory");
    else if (WIFSIGNALED(st))
        (void)err_set(&err, ERR_INTERNAL, "the isolate was killed by signal %d (%s)", WTERMSIG(st),
                      strsignal(WTERMSIG(st)));
    else
        (void)err_set(&err, ERR_INTERNAL, "the isolate ended unexpectedly (status %d)",
                      WEXITSTATUS(st));
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
        struct isolate *i = g->isolate;
        g->isolate = NULL;
        isolate_release(i);
    }
}

static void free_guest(struct guest *g) {
    buf_finish(&g->env);
    json_decref(g->compile_error);
    free(g->label);
    free(g->domain);
    free(g);
}

/* Ends everything; err NULL: all calls are over already. */
static void end_guest(struct guest *g, const struct err *err) {
    if (g->state == GUEST_ENDED)
        return;
    g->state = GUEST_ENDED;
    release_parts(g);
    while (g->calls) {
        if (g->compile_error && g->calls->cb.on_error)
            g->calls->cb.on_error(g->calls->ctx, g->compile_error);
        finish_call(g->calls, g->compile_error ? NULL : err);
    }
    if (g->starting)
        return; /* guest_start() frees it */
    if (g->on_end && !g->destroyed)
        g->on_end(g->end_ctx);
    free_guest(g);
}

static int64_t since(const struct guest_call *c) {
    return (clock_mono_ns() - c->start_ns) / 1000;
}

static void on_compiled(void *ctx, struct program *program, const char *error_json,
                        const struct err *err) {
    struct guest *g = ctx;
    g->compile = NULL;
    if (program) {
        g->program = program;
        if (g->calls)
            g->calls->usage.compiled_us = since(g->calls);
        check_prepared(g);
        return;
    }
    if (error_json && json_parse(error_json, strlen(error_json), "", &g->compile_error, NULL) == 0)
        (void)json_object_set_new(g->compile_error, "kind", json_string("load"));
    end_guest(g, err);
}

static void on_granted(void *ctx, int fd, const struct err *err) {
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
        g->calls->usage.granted_us = since(g->calls);
    check_prepared(g);
}

static void on_taken(void *ctx, struct isolate *isolate, const struct err *err) {
    struct guest *g = ctx;
    g->ticket = NULL;
    if (!isolate) {
        end_guest(g, err);
        return;
    }
    g->isolate = isolate;
    static const struct isolate_callbacks callbacks = {.on_frame = on_frame,
                                                       .on_end = on_isolate_end};
    isolate_watch(isolate, &callbacks, g);
    if (g->calls)
        g->calls->usage.taken_us = since(g->calls);
    check_prepared(g);
}

/* "{...}" of the first call with the env put before it; NULL: the program is only loaded. */
static void write_run_spec(struct guest *g, const struct guest_call *c, struct buf *out) {
    (void)buf_add_str(out, "{\"env\":");
    (void)buf_add(out, g->env.data, g->env.len);
    if (!c)
        (void)buf_add_str(out, ",\"main\":false}");
    else if (c->spec.len > 2) {
        (void)buf_add_char(out, ',');
        (void)buf_add(out, c->spec.data + 1, c->spec.len - 1);
    } else {
        (void)buf_add_char(out, '}');
    }
}

static void start_running(struct guest *g) {
    /* RUN has no place for a body: such a call follows the loading. */
    struct guest_call *first = g->calls && g->calls->body.len > 0 ? NULL : g->calls;
    _cleanup_(buf) struct buf head;
    _cleanup_(buf) struct buf spec;
    buf_init(&head, 256);
    buf_init(&spec, ISOLATE_FRAME_MAX);
    write_run_spec(g, first, &spec);
    pack_u32(&head, g->warm ? ISOLATE_RUN_WARM : g->domain ? ISOLATE_RUN_RESET : 0);
    pack_u32(&head, g->limits.cpu_ms);
    pack_u64(&head, g->limits.memory_bytes);
    pack_u32(&head, g->limits.output_bytes);
    pack_u32(&head, g->limits.binding_calls);
    pack_u32(&head, 0);
    pack_u32(&head, 0);
    pack_u32(&head, (uint32_t)g->program->len);
    _cleanup_(buf) struct buf tail;
    buf_init(&tail, ISOLATE_FRAME_MAX);
    pack_bytes(&tail, spec.data, spec.len);
    int fds[ENV_BINDINGS_MAX];
    for (size_t i = 0; i < g->nbindings; i++)
        fds[i] = g->bindings[i].fd;
    struct wire_out out = {.type = ISOLATE_RUN,
                           .id = first ? first->id : 0,
                           .pieces = {{head.data, head.len},
                                      {g->program->data, g->program->len},
                                      {tail.data, tail.len}},
                           .fds = fds,
                           .nfds = g->nbindings};
    g->state = GUEST_RUNNING;
    bool sent = !tail.full && !spec.full && isolate_send(g->isolate, &out);
    for (size_t i = 0; i < g->nbindings; i++)
        fd_close(&g->bindings[i].fd);
    program_unref(g->program);
    g->program = NULL;
    /* Further calls that came while it was preparing. */
    for (struct guest_call *c = first ? first->next : g->calls; c && sent; c = c->next)
        sent = send_call(g, c, c->spec.data, c->spec.len, c->body.data, c->body.len);
    if (!sent) {
        struct err err;
        (void)err_set(&err, ERR_UNAVAILABLE, "the isolate did not take the program; run it again");
        end_guest(g, &err);
    }
}

/* The isolate is taken last: it should not sit idle while the rest is prepared. */
static void check_prepared(struct guest *g) {
    if (g->state != GUEST_PREPARING || !g->program || g->granting > 0)
        return;
    if (!g->isolate) {
        if (!g->ticket) {
            struct pool *pool = g->domain ? runner_reset_pool(g->runner) : g->runner->pool;
            struct pool_ticket *t = pool_take(pool, g->domain, on_taken, g);
            if (g->state == GUEST_PREPARING && !g->isolate)
                g->ticket = t;
        }
        return;
    }
    start_running(g);
}

static void start_bindings(struct guest *g, const struct env *env) {
    struct json_writer w;
    json_writer_init(&w, &g->env);
    json_writer_object_begin(&w);
    for (size_t i = 0; i < env->n && g->state == GUEST_PREPARING; i++) {
        struct env_item *item = &env->items[i];
        json_writer_key(&w, item->name);
        json_writer_object_begin(&w);
        if (item->kind == ENV_JSON) {
            json_writer_key(&w, "json");
            json_writer_tree(&w, item->json);
            json_writer_object_end(&w);
            continue;
        }
        size_t k = g->nbindings++;
        struct binding *b = &g->bindings[k];
        *b = (struct binding){.guest = g, .fd = -1};
        json_writer_key(&w, "fd");
        json_writer_int(&w, (int64_t)k);
        json_writer_key(&w, "kind");
        json_writer_str(&w, item->kind == ENV_FACET ? "facet" : "worker");
        size_t nmethods = 0;
        if (item->methods) {
            json_writer_key(&w, "methods");
            json_writer_array_begin(&w);
            for (; item->methods[nmethods]; nmethods++)
                json_writer_str(&w, item->methods[nmethods]);
            json_writer_array_end(&w);
        }
        json_writer_object_end(&w);
        if (item->kind == ENV_WORKER) {
            b->fd = steal_fd(&item->fd);
            continue;
        }
        g->granting++;
        struct facet_op *op = facets_grant(
            g->runner->facets,
            &(struct facet_ref){.dir = item->facet_dir,
                                .open = item->facet_open ? item->facet_open : env->facet_open},
            &(struct facet_grant){.label = g->label,
                                  .all = item->methods == NULL,
                                  .methods = item->methods,
                                  .nmethods = nmethods},
            on_granted, b);
        if (g->state == GUEST_PREPARING && b->fd < 0)
            b->op = op;
    }
    json_writer_object_end(&w);
}

struct guest *guest_start(struct runner *r, const struct guest_spec *spec,
                          const struct guest_request *first, void (*on_end)(void *ctx), void *ctx,
                          struct guest_call **ret_call) {
    struct guest *g = xcalloc(1, sizeof(*g));
    g->runner = r;
    g->limits = spec->limits;
    g->warm = spec->warm;
    g->label = xstrdup(spec->label ? spec->label : "run");
    g->domain = spec->domain && !spec->warm ? xstrdup(spec->domain) : NULL;
    g->on_end = on_end;
    g->end_ctx = ctx;
    g->starting = true;
    buf_init(&g->env, ISOLATE_FRAME_MAX);
    struct guest_call *c = add_call(g, first);
    (void)buf_add(&c->spec, first->spec, first->spec_len);
    (void)buf_add(&c->body, first->body, first->body_len);
    if (ret_call)
        *ret_call = c;
    g->granting = 1; /* keeps it from starting before all is asked for */
    g->compile = compiler_compile(r->compiler,
                                  &(struct compiler_request){.source = spec->source,
                                                             .source_len = spec->source_len,
                                                             .owner = spec->owner,
                                                             .done = on_compiled,
                                                             .ctx = g},
                                  &g->program);
    if (g->program)
        c->usage.compiled_us = since(c);
    start_bindings(g, spec->env);
    g->granting--;
    check_prepared(g);
    g->starting = false;
    if (g->state == GUEST_ENDED) {
        if (ret_call)
            *ret_call = NULL;
        free_guest(g);
        return NULL;
    }
    return g;
}

struct guest_call *guest_call(struct guest *g, const struct guest_request *request) {
    struct guest_call *c = add_call(g, request);
    if (g->state == GUEST_PREPARING) {
        (void)buf_add(&c->spec, request->spec, request->spec_len);
        (void)buf_add(&c->body, request->body, request->body_len);
    } else if (!send_call(g, c, request->spec, request->spec_len, request->body,
                          request->body_len)) {
        struct err err;
        (void)err_set(&err, ERR_UNAVAILABLE, "the isolate does not take calls any more");
        finish_call(c, &err);
        return NULL;
    }
    return c;
}

void guest_call_cancel(struct guest_call *c) {
    struct guest *g = c->guest;
    struct err err;
    (void)err_set(&err, ERR_CANCELLED, "the call was cancelled");
    finish_call(c, &err);
    if (!g->warm || !g->calls)
        end_guest(g, &err);
}

size_t guest_active_calls(const struct guest *g) {
    size_t n = 0;
    for (const struct guest_call *c = g->calls; c; c = c->next)
        n++;
    return n;
}

void guest_destroy(struct guest *g) {
    if (!g || g->state == GUEST_ENDED)
        return;
    g->destroyed = true;
    struct err err;
    (void)err_set(&err, ERR_CANCELLED, "the isolate was ended");
    end_guest(g, &err);
}
