#include "front/run/compiler.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sm.h"
#include "loop/keeper.h"
#include "wire/compile.h"
#include "wire/pack.h"

#include <assert.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum {
    TRIES_MAX = 2,       /* times that a program may be at the head of a process that ends */
    STARTS_MAX = 2,      /* lives in a row that never got ready, until those who wait are told */
    KEY_SHARE = 4,       /* of the waiting bytes a key may have one part in so many */
    TICKET_BYTES = 1024, /* what one counts beside its text */
    ERROR_MAX_BYTES = 65536,
    OVERRUN_MS = 500, /* beyond its time and a half, until the process is ended */
};

enum lane_kind { LANE_SMALL, LANE_LARGE, LANES };
static const char *const lane_names[] = {"cay-compile", "cay-compile-large"};

enum ticket_state {
    TICKET_HELD,    /* in no list: new, or taken out of one */
    TICKET_WAITING, /* in its owner's queue */
    TICKET_SENT,    /* its lane's current one */
    TICKET_SETTLED, /* to be told from the loop */
};

static const struct sm_state ticket_states[] = {
    [TICKET_HELD] = {"held", SM_TO(TICKET_WAITING) | SM_TO(TICKET_SENT) | SM_TO(TICKET_SETTLED)},
    [TICKET_WAITING] = {"waiting", SM_TO(TICKET_HELD)},
    [TICKET_SENT] = {"sent", SM_TO(TICKET_HELD)},
    [TICKET_SETTLED] = {"settled", 0},
};
static const struct sm ticket_sm = {"ticket", ticket_states, ARRAY_LEN(ticket_states)};

struct compiler_ticket {
    struct compiler *compiler;
    struct compiler_ticket *next;
    struct owner *owner;
    enum ticket_state state;
    enum lane_kind lane;
    uint64_t id;
    unsigned char hash[PROGRAM_HASH_SIZE];
    compiler_done done; /* NULL when cancelled */
    void *ctx;
    unsigned tries;
    struct program *program; /* of one that is settled; NULL: err tells why */
    struct err err;
    size_t len;
    char request[];
};

/* A key that has programs here, and its queues. */
struct owner {
    struct owner *next;
    char *name;
    size_t tickets;
    size_t bytes;
    struct compiler_ticket *first[LANES];
    uint64_t turn[LANES]; /* when it had its last turn, or came: the lowest is next */
};

enum end_cause { END_BY_ITSELF, END_SPENT, END_STUCK };

/* One process, and the program that it is at. */
struct lane {
    struct compiler *compiler;
    enum lane_kind kind;
    struct keeper *keeper; /* NULL until there is something to do */
    bool ready;
    bool used; /* this life has answered something */
    unsigned failed_starts;
    struct compiler_ticket *current;
    int64_t sent_ms;
    int64_t sent_cpu_ns;
    enum end_cause cause; /* why we ended it, if we did */
    uv_timer_t watch;
};

struct compiler {
    struct compiler_options opt;
    struct programs *cache;
    struct lane lanes[LANES];
    struct owner *owners;
    struct compiler_ticket *settled; /* to be told from the loop */
    uv_timer_t soon;
    uint64_t next_id;
    uint64_t turns;
    size_t bytes; /* of all tickets */
    struct compiler_stats stats;
    unsigned handles;
    unsigned stopping; /* processes that are about to go */
    bool stopped;
    void (*on_stopped)(void *ctx);
    void *stopped_ctx;
};

static void send_next(struct lane *l);

static void ticket_move(struct compiler_ticket *t, enum ticket_state to) {
    t->state = (enum ticket_state)sm_next(&ticket_sm, t->state, to);
    assert(t->state != TICKET_WAITING || t->owner->first[t->lane]);
    assert((t->state == TICKET_SENT) == (t->compiler->lanes[t->lane].current == t));
    assert(t->state != TICKET_SETTLED || t->program || t->err.code);
}

/* --- whose turn it is --- */

static struct owner *compiler_owner_of(struct compiler *c, const char *name) {
    for (struct owner *o = c->owners; o; o = o->next)
        if (strcmp(o->name, name) == 0)
            return o;
    struct owner *o = xcalloc(1, sizeof(*o));
    o->name = xstrdup(name);
    o->next = c->owners;
    c->owners = o;
    return o;
}

static size_t weight_of(const struct compiler_ticket *t) {
    return sizeof(*t) + TICKET_BYTES + t->len;
}

static void add_to_owner(struct compiler_ticket *t, struct owner *o) {
    t->owner = o;
    o->tickets++;
    o->bytes += weight_of(t);
    t->compiler->bytes += weight_of(t);
}

static void compiler_free_ticket(struct compiler_ticket *t) {
    struct compiler *c = t->compiler;
    struct owner *o = t->owner;
    o->bytes -= weight_of(t);
    c->bytes -= weight_of(t);
    if (--o->tickets == 0) {
        struct owner **at = &c->owners;
        while (*at != o)
            at = &(*at)->next;
        *at = o->next;
        free(o->name);
        free(o);
    }
    program_unref(t->program);
    free(t);
}

/* At the end of its owner's queue; an owner who comes gets in line behind the others. */
static void compiler_enqueue(struct compiler_ticket *t, enum lane_kind lane) {
    struct owner *o = t->owner;
    if (!o->first[lane])
        o->turn[lane] = ++t->compiler->turns;
    struct compiler_ticket **at = &o->first[lane];
    while (*at)
        at = &(*at)->next;
    *at = t;
    t->next = NULL;
    t->lane = lane;
    ticket_move(t, TICKET_WAITING);
}

/* It had its turn and lost it: it goes first. */
static void enqueue_first(struct compiler_ticket *t) {
    struct owner *o = t->owner;
    t->next = o->first[t->lane];
    o->first[t->lane] = t;
    o->turn[t->lane] = 0;
    ticket_move(t, TICKET_WAITING);
}

static struct compiler_ticket *compiler_dequeue(struct compiler *c, enum lane_kind lane) {
    struct owner *next = NULL;
    for (struct owner *o = c->owners; o; o = o->next)
        if (o->first[lane] && (!next || o->turn[lane] < next->turn[lane]))
            next = o;
    if (!next)
        return NULL;
    struct compiler_ticket *t = next->first[lane];
    next->first[lane] = t->next;
    next->turn[lane] = ++c->turns;
    ticket_move(t, TICKET_HELD);
    return t;
}

/* --- how it ends --- */

/* The last that is done with a ticket: when it is told, the ticket is gone. t->program is told, or
 * t->err. */
static void compiler_tell(struct compiler_ticket *t, const char *error_json) {
    compiler_done done = t->done;
    void *ctx = t->ctx;
    struct program *program = steal_ptr(&t->program);
    struct err err = t->err;
    compiler_free_ticket(t);
    if (done)
        done(ctx, program, error_json, program ? NULL : &err);
    else
        program_unref(program);
}

static void compiler_on_soon(uv_timer_t *timer) {
    struct compiler *c = timer->data;
    struct compiler_ticket *t = c->settled;
    c->settled = NULL; /* what is settled meanwhile has its own turn of the loop */
    while (t) {
        struct compiler_ticket *next = t->next;
        compiler_tell(t, NULL);
        t = next;
    }
}

/* It is told from the loop, since we may be in a call that it made. Without a program, t->err says
 * why. */
static void compiler_settle(struct compiler_ticket *t, struct program *program) {
    struct compiler *c = t->compiler;
    t->program = program;
    ticket_move(t, TICKET_SETTLED);
    if (!program)
        c->stats.failures++;
    t->next = NULL;
    struct compiler_ticket **at = &c->settled;
    while (*at)
        at = &(*at)->next;
    *at = t;
    (void)uv_timer_start(&c->soon, compiler_on_soon, 0, 0);
}

/* It needs more than there is for small programs. */
static void move_to_large(struct compiler_ticket *t) {
    compiler_enqueue(t, LANE_LARGE);
    send_next(&t->compiler->lanes[LANE_LARGE]);
}

static void fail_spent(struct compiler_ticket *t) {
    (void)err_set(&t->err, ERR_LIMIT,
                  "compiling took more than %u ms of processor time (limit compile_cpu_ms); make "
                  "the program smaller",
                  t->compiler->opt.cpu_ms);
    compiler_settle(t, NULL);
}

static bool is_sole(const struct lane *l) {
    return l->kind == LANE_LARGE || l->compiler->opt.cold;
}

/* --- a process --- */

static unsigned budget_ms(const struct lane *l) {
    return is_sole(l) ? l->compiler->opt.cpu_ms : l->compiler->opt.small_cpu_ms;
}

/* The process keeps to its time by itself, and lives on. This is for one that does not. */
static void compiler_on_watch(uv_timer_t *timer) {
    struct lane *l = timer->data;
    int64_t cpu_ms = (clock_process_ns(keeper_info(l->keeper).pid) - l->sent_cpu_ns) / 1000000;
    int64_t wall_ms = clock_mono_ms() - l->sent_ms;
    int64_t cpu_left = (int64_t)budget_ms(l) * 3 / 2 + OVERRUN_MS - cpu_ms;
    int64_t wall_left = (int64_t)l->compiler->opt.timeout_ms - wall_ms;
    if (cpu_left > 0 && wall_left > 0) {
        (void)uv_timer_start(timer, compiler_on_watch, (uint64_t)MIN(cpu_left, wall_left), 0);
        return;
    }
    l->cause = cpu_left <= 0 ? END_SPENT : END_STUCK;
    l->ready = false; /* nothing more is sent to it */
    log_warn("compile.killed", "child", lane_names[l->kind], "cpu_ms", cpu_ms, "wall_ms", wall_ms);
    keeper_kill(l->keeper);
}

static bool compiler_send_request(struct lane *l, struct compiler_ticket *t) {
    struct channel *channel = keeper_channel(l->keeper);
    _cleanup_(buf) struct buf head;
    buf_init(&head, COMPILE_HEAD_SIZE);
    pack_u32(&head, budget_ms(l));
    l->sent_ms = clock_mono_ms();
    l->sent_cpu_ns = clock_process_ns(keeper_info(l->keeper).pid);
    struct wire_out out = {.type = COMPILE_REQUEST,
                           .id = t->id,
                           .pieces = {{head.data, head.len}, {t->request, t->len}}};
    return channel && channel_send(channel, &out);
}

static void compiler_on_frame(void *ctx, struct wire_frame *f);
static void compiler_on_end(void *ctx);

static void compiler_start(struct lane *l) {
    const struct compiler_options *o = &l->compiler->opt;
    static const char *const cold[] = {"--cold", NULL};
    l->keeper = keeper_create(o->loop, &(struct keeper_options){
                                           .name = lane_names[l->kind],
                                           .exec_fd = o->exec_fd,
                                           /* A large program warms it up by itself. */
                                           .args = is_sole(l) ? cold : NULL,
                                           .max_frame_bytes = COMPILE_FRAME_MAX,
                                           .max_queue_bytes = 2 * (size_t)COMPILE_FRAME_MAX,
                                           .on_frame = compiler_on_frame,
                                           .on_end = compiler_on_end,
                                           .ctx = l,
                                       });
}

static void compiler_on_keeper_stopped(void *ctx) {
    struct compiler *c = ctx;
    if (--c->stopping == 0 && c->stopped)
        c->on_stopped(c->stopped_ctx);
}

static void compiler_on_idle(uv_timer_t *timer) {
    struct lane *l = timer->data;
    l->ready = false;
    l->compiler->stopping++;
    keeper_stop(steal_ptr(&l->keeper), compiler_on_keeper_stopped, l->compiler);
}

/* Its current program, which it is no longer at. */
static struct compiler_ticket *lane_take_current(struct lane *l) {
    struct compiler_ticket *t = steal_ptr(&l->current);
    if (t)
        ticket_move(t, TICKET_HELD);
    return t;
}

/* Gives the process its next program, if it waits for one; starts it when it is needed first.
 * Calls nobody back. */
static void send_next(struct lane *l) {
    struct compiler *c = l->compiler;
    if (c->stopped)
        return;
    if (!l->keeper)
        compiler_start(l);
    if (l->current || !l->ready)
        return;
    struct compiler_ticket *t = compiler_dequeue(c, l->kind);
    struct program *known;
    while (t && (known = programs_get(c->cache, t->hash))) {
        /* The same program was compiled while this one waited. */
        compiler_settle(t, program_ref(known));
        t = compiler_dequeue(c, l->kind);
    }
    if (!t) {
        if (l->kind == LANE_LARGE)
            (void)uv_timer_start(&l->watch, compiler_on_idle, c->opt.idle_ms, 0);
        return;
    }
    if (!compiler_send_request(l, t)) {
        enqueue_first(t); /* its channel is broken: it goes to the next one */
        l->ready = false;
        keeper_kill(l->keeper);
        return;
    }
    l->current = t;
    ticket_move(t, TICKET_SENT);
    uint64_t first_look_ms = MIN((uint64_t)budget_ms(l) * 3 / 2 + OVERRUN_MS, c->opt.timeout_ms);
    (void)uv_timer_start(&l->watch, compiler_on_watch, first_look_ms, 0);
}

static bool is_ended_by_others(const struct lane *l, enum end_cause cause) {
    int status = keeper_info(l->keeper).wait_status;
    return cause == END_BY_ITSELF &&
           (status < 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
}

/* It ended by its own doing, in a life that had seen nothing but this program. */
static bool is_surely_to_blame(const struct lane *l, enum end_cause cause) {
    return cause == END_BY_ITSELF && !l->used && !is_ended_by_others(l, cause);
}

static void explain_compiler_end(const struct lane *l, struct err *err) {
    int st = keeper_info(l->keeper).wait_status;
    if (st >= 0 && WIFEXITED(st) && WEXITSTATUS(st) == COMPILE_EXIT_MEMORY)
        (void)err_set(err, ERR_LIMIT,
                      "the compiler needs more than %u MiB of memory for this program: make it "
                      "smaller, or move its data out of the source",
                      COMPILE_MEMORY_BYTES >> 20);
    else
        (void)err_set(err, ERR_LIMIT,
                      "the compiler fails at this program (%s): make it smaller or simpler",
                      keeper_info(l->keeper).ended);
}

/* The program that it was at when it ended. It is tried again unless that makes no sense: the end
 * may have come from outside, or from what was there before it. */
static void compiler_blame(struct lane *l, struct compiler_ticket *t, enum end_cause cause) {
    const struct compiler_options *o = &l->compiler->opt;
    if (is_sole(l) || !is_ended_by_others(l, cause))
        t->tries++; /* who kills the small ones' process says nothing of what it was at */
    if (!t->done)
        compiler_free_ticket(t);
    else if (!is_sole(l))
        move_to_large(t);
    else if (cause == END_SPENT)
        fail_spent(t);
    else if (t->tries < TRIES_MAX && !is_surely_to_blame(l, cause))
        enqueue_first(t);
    else if (cause == END_STUCK) {
        (void)err_set(&t->err, ERR_TIMEOUT,
                      "the compiler did not answer within %u ms (limit compile_timeout_ms); run it "
                      "again when the machine has less to do",
                      o->timeout_ms);
        compiler_settle(t, NULL);
    } else {
        explain_compiler_end(l, &t->err);
        compiler_settle(t, NULL);
    }
}

/* It does not start: nobody need wait for it. */
static void fail_waiting(struct lane *l) {
    struct compiler_ticket *t;
    while ((t = compiler_dequeue(l->compiler, l->kind))) {
        (void)err_set(&t->err, ERR_UNAVAILABLE,
                      "the compiler does not start (%s); the server's log tells more",
                      keeper_info(l->keeper).ended);
        compiler_settle(t, NULL);
    }
}

static void compiler_on_end(void *ctx) {
    struct lane *l = ctx;
    struct compiler_ticket *t = lane_take_current(l);
    enum end_cause cause = l->cause;
    bool was_ready = l->ready || t || cause != END_BY_ITSELF;
    l->ready = false;
    l->cause = END_BY_ITSELF;
    (void)uv_timer_stop(&l->watch);
    if (t || cause != END_BY_ITSELF)
        keeper_hurry(l->keeper);
    if (t)
        compiler_blame(l, t, cause);
    else if (!was_ready && ++l->failed_starts >= STARTS_MAX)
        fail_waiting(l);
}

static void compiler_on_frame(void *ctx, struct wire_frame *f) {
    struct lane *l = ctx;
    struct compiler *c = l->compiler;
    if (f->type == COMPILE_READY) {
        if (l->ready || l->current || l->cause != END_BY_ITSELF)
            return; /* it says so once in a life */
        l->ready = true;
        l->used = false;
        l->failed_starts = 0;
        send_next(l);
        return;
    }
    if (!l->current || f->id != l->current->id)
        return;
    struct compiler_ticket *t = lane_take_current(l);
    l->used = true;
    (void)uv_timer_stop(&l->watch);
    _cleanup_(free) char *json = NULL;
    if (f->type == COMPILE_PROGRAM) {
        t->program = program_create(f->data, f->len);
        programs_put(c->cache, t->hash, t->program);
    } else if (f->type != COMPILE_SPENT) {
        c->stats.failures++;
        json = xstrndup((const char *)f->data, MIN(f->len, ERROR_MAX_BYTES));
        (void)err_set(&t->err, ERR_BAD_REQUEST, "the program does not compile");
    }
    send_next(l); /* it works on while we tell */
    if (f->type == COMPILE_SPENT && !t->done)
        compiler_free_ticket(t);
    else if (f->type == COMPILE_SPENT && is_sole(l))
        fail_spent(t);
    else if (f->type == COMPILE_SPENT)
        move_to_large(t);
    else
        compiler_tell(t, json);
}

/* --- what others call --- */

struct compiler *compiler_create(const struct compiler_options *options) {
    struct compiler *c = xcalloc(1, sizeof(*c));
    c->opt = *options;
    if (c->opt.cold)
        c->opt.small_bytes = SIZE_MAX;
    c->cache = programs_create(options->cache_bytes);
    (void)uv_timer_init(options->loop, &c->soon);
    c->soon.data = c;
    c->handles = 1 + LANES;
    for (int i = 0; i < LANES; i++) {
        struct lane *l = &c->lanes[i];
        l->compiler = c;
        l->kind = (enum lane_kind)i;
        (void)uv_timer_init(options->loop, &l->watch);
        l->watch.data = l;
    }
    compiler_start(&c->lanes[LANE_SMALL]);
    return c;
}

/* Whether it may wait here; t->err says why not. */
static bool compiler_admit(struct compiler_ticket *t) {
    const struct compiler *c = t->compiler;
    const struct owner *o = t->owner;
    if (o->tickets == 1 ||
        (o->bytes <= c->opt.waiting_bytes / KEY_SHARE && c->bytes <= c->opt.waiting_bytes))
        return true; /* however much the others have here: a key may have one */
    (void)err_set(&t->err, ERR_RATE,
                  "too many programs wait for the compiler (limit compile_waiting_bytes, of which "
                  "a key may use a quarter); try again in a moment");
    return false;
}

struct compiler_ticket *compiler_compile(struct compiler *c, const struct compiler_request *request,
                                         struct program **ret_program) {
    unsigned char hash[PROGRAM_HASH_SIZE];
    if (request->hash)
        memcpy(hash, request->hash, sizeof(hash));
    else
        programs_hash(request->source, request->source_len, hash);
    struct program *hit = programs_get(c->cache, hash);
    if (hit) {
        c->stats.hits++;
        *ret_program = program_ref(hit);
        return NULL;
    }
    c->stats.misses++;
    *ret_program = NULL;
    struct compiler_ticket *t = xmalloc(sizeof(*t) + request->source_len);
    *t = (struct compiler_ticket){.compiler = c,
                                  .id = ++c->next_id,
                                  .done = request->done,
                                  .ctx = request->ctx,
                                  .len = request->source_len};
    memcpy(t->hash, hash, PROGRAM_HASH_SIZE);
    add_to_owner(t, compiler_owner_of(c, request->owner ? request->owner : ""));
    if (!compiler_admit(t)) {
        compiler_settle(t, NULL);
        return t;
    }
    memcpy(t->request, request->source, request->source_len);
    enum lane_kind lane = t->len <= c->opt.small_bytes ? LANE_SMALL : LANE_LARGE;
    compiler_enqueue(t, lane);
    send_next(&c->lanes[lane]);
    return t;
}

void compiler_cancel(struct compiler_ticket *t) {
    if (!t)
        return;
    t->done = NULL;
    if (t->state != TICKET_WAITING)
        return; /* it is done with when its answer comes: the cache may want it */
    struct compiler_ticket **at = &t->owner->first[t->lane];
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    compiler_free_ticket(t);
}

struct compiler_stats compiler_stats(const struct compiler *c) {
    struct compiler_stats s = c->stats;
    s.cache_bytes = programs_bytes(c->cache);
    s.cache_entries = programs_count(c->cache);
    return s;
}

void compiler_children(const struct compiler *c,
                       void (*on_child)(void *ctx, const struct keeper_info *info), void *ctx) {
    for (int i = 0; i < LANES; i++)
        if (c->lanes[i].keeper) {
            struct keeper_info info = keeper_info(c->lanes[i].keeper);
            on_child(ctx, &info);
        }
}

void compiler_stop(struct compiler *c, void (*on_stopped)(void *ctx), void *ctx) {
    c->stopped = true;
    c->on_stopped = on_stopped;
    c->stopped_ctx = ctx;
    (void)uv_timer_stop(&c->soon);
    for (int i = 0; i < LANES; i++) {
        (void)uv_timer_stop(&c->lanes[i].watch);
        if (c->lanes[i].keeper)
            c->stopping++;
    }
    for (int i = 0; i < LANES; i++)
        if (c->lanes[i].keeper)
            keeper_stop(steal_ptr(&c->lanes[i].keeper), compiler_on_keeper_stopped, c);
}

static void compiler_on_soon_closed(uv_handle_t *h) {
    struct compiler *c = h->data;
    if (--c->handles == 0)
        free(c);
}

static void compiler_on_watch_closed(uv_handle_t *h) {
    struct lane *l = h->data;
    struct compiler *c = l->compiler;
    if (--c->handles == 0)
        free(c);
}

void compiler_destroy(struct compiler *c) {
    if (!c)
        return;
    struct compiler_ticket *t;
    for (int i = 0; i < LANES; i++) {
        struct lane *l = &c->lanes[i];
        while ((t = compiler_dequeue(c, l->kind)))
            compiler_free_ticket(t);
        if (l->current)
            compiler_free_ticket(l->current);
        uv_close((uv_handle_t *)&l->watch, compiler_on_watch_closed);
    }
    while ((t = c->settled)) {
        c->settled = t->next;
        compiler_free_ticket(t);
    }
    programs_destroy(c->cache);
    uv_close((uv_handle_t *)&c->soon, compiler_on_soon_closed);
}
