#include "front/run/pool.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sm.h"
#include "front/common/share.h"
#include "wire/isolate.h"
#include "wire/pack.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    QUEUE_BYTES = 64 << 20,
    TICK_MS = 100,
    IDLE_TICK_MS = 1000, /* while nobody asks for anything */
    REST_MS = 10000,
    RESET_WAIT_MS = 2000,
    QUIET_MS = 25,
    SETTLED_FORKS = 100, /* of the first zygote, before the scout goes... */
    SETTLED_MS = 3000,   /* ...or so long without a run */
    ALLOW_AFTER_NS = 500000000,
    PAGE_BYTES = 4096,
};

enum zygote_state {
    ZYGOTE_STARTING,
    ZYGOTE_SERVING, /* it said what it can: it takes work */
    ZYGOTE_RETIRED, /* another follows it; it goes when its last isolate has */
    ZYGOTE_LEAVING, /* its process is about to end, for good */
};

static const struct sm_state zygote_states[] = {
    [ZYGOTE_STARTING] = {"starting",
                         SM_TO(ZYGOTE_SERVING) | SM_TO(ZYGOTE_RETIRED) | SM_TO(ZYGOTE_LEAVING)},
    [ZYGOTE_SERVING] = {"serving",
                        SM_TO(ZYGOTE_STARTING) | SM_TO(ZYGOTE_RETIRED) | SM_TO(ZYGOTE_LEAVING)},
    [ZYGOTE_RETIRED] = {"retired", SM_TO(ZYGOTE_LEAVING)},
    [ZYGOTE_LEAVING] = {"leaving", 0},
};
static const struct sm zygote_sm = {"zygote", zygote_states, ARRAY_LEN(zygote_states)};

/* One keeper of cay-isolate. There are two or more while one takes over from the other. */
struct pool_zygote {
    struct pool_zygote *next;
    struct pool *pool;
    enum zygote_state state;
    struct keeper *keeper;         /* NULL when it leaves */
    struct pool_isolate *isolates; /* all that it forked and that have not ended */
    unsigned forks;
    size_t asked; /* isolates that it owes us */
    bool planned; /* it knew a plan when it began */
};

enum pooled_state {
    POOLED_NEW,
    POOLED_READY,     /* in the pool's list */
    POOLED_WORKING,   /* somebody owns it, and has a place among those at work */
    POOLED_IDLE,      /* owned, with nothing to do */
    POOLED_OVER,      /* owned, and it has ended: that was told, it can only be released */
    POOLED_RESETTING, /* given back by its domain: puts its memory back */
    POOLED_PRISTINE,  /* as new, waits for its domain */
    POOLED_DROPPED,   /* nobody's any more; freed when the zygote has reported its end */
};

static const struct sm_state pooled_states[] = {
    [POOLED_NEW] = {"new", SM_TO(POOLED_READY) | SM_TO(POOLED_DROPPED)},
    [POOLED_READY] = {"ready", SM_TO(POOLED_WORKING) | SM_TO(POOLED_DROPPED)},
    [POOLED_WORKING] = {"working", SM_TO(POOLED_IDLE) | SM_TO(POOLED_OVER) |
                                       SM_TO(POOLED_RESETTING) | SM_TO(POOLED_DROPPED)},
    [POOLED_IDLE] = {"idle", SM_TO(POOLED_WORKING) | SM_TO(POOLED_OVER) | SM_TO(POOLED_DROPPED)},
    [POOLED_OVER] = {"over", SM_TO(POOLED_DROPPED)},
    [POOLED_RESETTING] = {"resetting", SM_TO(POOLED_PRISTINE) | SM_TO(POOLED_DROPPED)},
    [POOLED_PRISTINE] = {"pristine", SM_TO(POOLED_WORKING) | SM_TO(POOLED_DROPPED)},
    [POOLED_DROPPED] = {"dropped", 0},
};
static const struct sm pooled_sm = {"isolate", pooled_states, ARRAY_LEN(pooled_states)};

struct pool_isolate {
    struct pool_isolate *next; /* of the zygote */
    struct pool_isolate *next_ready;
    struct pool_zygote *zygote;
    enum pooled_state state;
    struct channel *channel;
    uint32_t number;
    pid_t pid;
    int pidfd;
    struct pool_isolate_callbacks callbacks;
    void *ctx;
    char owner[ID_SIZE]; /* whose work it does */
    char *domain;        /* whom it served, in a pool that resets */
    int64_t rest_ms;     /* since when it waits for that */
    /* Its end is known whole when both have come. */
    bool hung_up; /* its channel ended */
    bool exited;  /* the zygote reported it */
    struct pool_isolate_end end;
    /* What it may use of the processor: see pool_isolate_allow(). */
    int64_t allowed_from_ns;
    bool used; /* it has had a call */
    size_t allowed_calls;
};

/* Somebody waits for an isolate, or to go on with one that he has. */
struct pool_ticket {
    struct pool_ticket *next;
    struct pool *pool;
    char *owner;
    char *domain;
    struct pool_isolate *own; /* the idle one that is to work again; NULL: a new one */
    pool_taken taken;
    void *ctx;
    int64_t deadline_ms;
    bool refused; /* made way for one of a key that waits for less */
};

struct pool {
    struct pool_options opt;
    struct pool_zygote *zygotes; /* all that have not ended */
    struct pool_zygote *current; /* the one that forks */
    struct pool_zygote *heir;    /* on its way up, to follow it */
    struct pool_isolate *ready;
    struct pool_ticket *waiting;
    struct shares working; /* isolates at work, by key */
    struct shares queued;  /* tickets, by key */
    struct later later;    /* serves those who wait, and forks */
    uv_timer_t timer;
    uv_timer_t quiet; /* fills up while nothing runs */
    struct pool_stats stats;
    int64_t busy_ms; /* when it was last seen at work */
    char *features;
    bool stopping;
    void (*on_stopped)(void *ctx);
    void *stopped_ctx;
};

static void check_retired(struct pool_zygote *z);
static void pool_go_on(struct pool *p);

/* --- isolates --- */

static void free_isolate(struct pool_isolate *i) {
    free(i->domain);
    channel_close(i->channel);
    fd_close(&i->pidfd);
    free(i);
}

static void link_ready(struct pool *p, struct pool_isolate *i) {
    i->next_ready = p->ready; /* the newest is used first: its memory is in the caches */
    p->ready = i;
}

static void unlink_ready(struct pool *p, struct pool_isolate *i) {
    struct pool_isolate **at = &p->ready;
    while (*at != i)
        at = &(*at)->next_ready;
    *at = i->next_ready;
}

/* The lists and numbers that go with a state. */
static void pool_account(struct pool *p, struct pool_isolate *i, enum pooled_state state,
                         bool enters) {
    size_t one = enters ? 1 : SIZE_MAX;
    if (state == POOLED_READY) {
        p->stats.ready += one;
        (enters ? link_ready : unlink_ready)(p, i);
    } else if (state == POOLED_WORKING) {
        p->stats.busy += one;
        (enters ? shares_add : shares_remove)(&p->working, i->owner);
    } else if (state == POOLED_RESETTING || state == POOLED_PRISTINE) {
        p->stats.resting += one;
    }
}

static void pooled_move(struct pool_isolate *i, enum pooled_state to) {
    struct pool *p = i->zygote->pool;
    enum pooled_state from = i->state;
    i->state = (enum pooled_state)sm_next(&pooled_sm, from, to);
    if (i->state != to)
        return;
    pool_account(p, i, from, false);
    pool_account(p, i, to, true);
}

static bool is_owned(const struct pool_isolate *i) {
    return i->state == POOLED_WORKING || i->state == POOLED_IDLE || i->state == POOLED_OVER;
}

static bool is_resting(const struct pool_isolate *i) {
    return i->state == POOLED_RESETTING || i->state == POOLED_PRISTINE;
}

static void kill_isolate(struct pool_isolate *i) {
    if (!i->exited)
        (void)syscall(SYS_pidfd_send_signal, i->pidfd, SIGKILL, NULL, 0);
}

/* One that nobody owns is done with. */
static void pool_drop(struct pool_isolate *i) {
    if (!is_owned(i) && i->state != POOLED_DROPPED)
        pooled_move(i, POOLED_DROPPED);
    kill_isolate(i);
}

static void maybe_free(struct pool_isolate *i) {
    if (i->state != POOLED_DROPPED || !i->exited)
        return;
    struct pool_zygote *z = i->zygote;
    struct pool_isolate **at = &z->isolates;
    while (*at && *at != i)
        at = &(*at)->next;
    if (*at)
        *at = i->next;
    free_isolate(i);
    check_retired(z);
}

/* The zygote or the channel told its end. It is freed, or its owner is told when both have: only
 * then is it known whole. He may release it in there. */
static void check_end(struct pool_isolate *i) {
    if (!is_owned(i)) {
        maybe_free(i);
    } else if (i->hung_up && i->exited && i->state != POOLED_OVER) {
        pooled_move(i, POOLED_OVER);
        if (i->callbacks.on_end)
            i->callbacks.on_end(i->ctx, &i->end);
    }
}

static void pool_on_frame(void *ctx, struct wire_frame *f) {
    struct pool_isolate *i = ctx;
    if (i->state == POOLED_RESETTING && f->type == ISOLATE_RESET_READY) {
        pooled_move(i, POOLED_PRISTINE);
        pool_go_on(i->zygote->pool);
    } else if ((i->state == POOLED_WORKING || i->state == POOLED_IDLE) && i->callbacks.on_frame) {
        i->callbacks.on_frame(i->ctx, f);
    }
}

static void pool_on_hang_up(void *ctx, const struct err *err) {
    struct pool_isolate *i = ctx;
    if (err->code == ERR_PROTOCOL)
        log_warn("isolate.protocol", "isolate", (int64_t)i->number, "error", err->message);
    struct pool *p = i->zygote->pool;
    i->hung_up = true;
    pool_drop(i);
    check_end(i);
    pool_go_on(p);
}

/* --- at work --- */

static void pool_begin_work(struct pool *p, struct pool_isolate *i) {
    pooled_move(i, POOLED_WORKING);
    p->busy_ms = clock_mono_ms();
}

/* Whether the key may have one more isolate at work now. */
static bool has_place(const struct pool *p, const char *owner) {
    return p->stats.busy < p->opt.max &&
           shares_held(&p->working, owner) < share_of(owner, p->opt.max);
}

static struct pool_isolate *pool_hand_out(struct pool *p, struct pool_isolate *i, const char *owner,
                                          const char *domain) {
    p->stats.reused += is_resting(i);
    if (domain && !i->domain)
        i->domain = xstrdup(domain);
    (void)snprintf(i->owner, sizeof(i->owner), "%s", owner);
    pool_begin_work(p, i);
    return i;
}

/* One that served the domain before and is as new, else one that served nobody. A process never
 * crosses domains. */
static struct pool_isolate *pool_choose(const struct pool *p, const char *domain) {
    for (const struct pool_zygote *z = domain ? p->zygotes : NULL; z; z = z->next)
        for (struct pool_isolate *i = z->isolates; i; i = i->next)
            if (i->state == POOLED_PRISTINE && z->state == ZYGOTE_SERVING &&
                strcmp(i->domain, domain) == 0)
                return i;
    return p->ready;
}

/* --- those who wait --- */

static void pool_free_ticket(struct pool_ticket *t) {
    struct pool *p = t->pool;
    struct pool_ticket **at = &p->waiting;
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    p->stats.waiting--;
    shares_remove(&p->queued, t->owner);
    free(t->owner);
    free(t->domain);
    free(t);
}

static void pool_refuse(struct pool_ticket *t, const struct err *err) {
    pool_taken taken = t->taken;
    void *ctx = t->ctx;
    t->pool->stats.refused++;
    pool_free_ticket(t);
    taken(ctx, NULL, err);
}

static int too_many(const struct pool *p, struct err *err) {
    return err_set(err, ERR_RATE, "%zu runs are waiting already (limit waiting_runs)",
                   p->opt.max_waiting);
}

/* The one whose key has least at work, and of those the one that waits longest. */
static struct pool_ticket *next_served(const struct pool *p) {
    struct pool_ticket *best = NULL;
    size_t least = SIZE_MAX;
    for (struct pool_ticket *t = p->waiting; t && least > 0; t = t->next) {
        size_t held = shares_held(&p->working, t->owner);
        if (held < least && has_place(p, t->owner) && (t->own || pool_choose(p, t->domain))) {
            best = t;
            least = held;
        }
    }
    return best;
}

static void serve_waiting(struct pool *p) {
    struct err err;
    for (struct pool_ticket *t = p->waiting; t;) {
        struct pool_ticket *next = t->next;
        if (t->refused) {
            (void)too_many(p, &err);
            pool_refuse(t, &err);
            next = p->waiting;
        }
        t = next;
    }
    struct pool_ticket *t;
    while (!p->stopping && (t = next_served(p))) {
        struct pool_isolate *i = t->own;
        if (i)
            pool_begin_work(p, i);
        else
            i = pool_hand_out(p, pool_choose(p, t->domain), t->owner, t->domain);
        pool_taken taken = t->taken;
        void *ctx = t->ctx;
        pool_free_ticket(t);
        taken(ctx, i, NULL);
    }
}

/* Makes room in the queue by refusing the youngest of the key that waits for most. */
static bool make_way(struct pool *p, const char *owner) {
    const char *greatest = shares_greatest(&p->queued);
    if (!greatest || shares_held(&p->queued, greatest) <= shares_held(&p->queued, owner) + 1)
        return false;
    struct pool_ticket *last = NULL;
    for (struct pool_ticket *t = p->waiting; t; t = t->next)
        if (!t->refused && strcmp(t->owner, greatest) == 0)
            last = t;
    if (last)
        last->refused = true;
    pool_go_on(p);
    return last != NULL;
}

static int pool_wait_for(struct pool *p, const struct pool_want *want, struct pool_isolate *own,
                         struct pool_ticket **ret_ticket, struct err *err) {
    if (p->stats.waiting >= p->opt.max_waiting && !make_way(p, want->owner)) {
        p->stats.refused++;
        return too_many(p, err);
    }
    struct pool_ticket *t = xcalloc(1, sizeof(*t));
    t->pool = p;
    t->owner = xstrdup(want->owner);
    t->domain = want->domain ? xstrdup(want->domain) : NULL;
    t->own = own;
    t->taken = want->taken;
    t->ctx = want->ctx;
    t->deadline_ms = clock_mono_ms() + p->opt.wait_ms;
    struct pool_ticket **at = &p->waiting;
    while (*at)
        at = &(*at)->next;
    *at = t;
    p->stats.waiting++;
    shares_add(&p->queued, t->owner);
    pool_go_on(p);
    *ret_ticket = t;
    return 0;
}

int pool_take(struct pool *p, const struct pool_want *want, struct pool_isolate **ret_isolate,
              struct pool_ticket **ret_ticket, struct err *err) {
    /* When others are about to be served, they were first. */
    bool behind = p->waiting && p->later.queue;
    struct pool_isolate *i =
        !behind && has_place(p, want->owner) ? pool_choose(p, want->domain) : NULL;
    *ret_isolate = NULL;
    *ret_ticket = NULL;
    if (!i)
        return pool_wait_for(p, want, NULL, ret_ticket, err);
    *ret_isolate = pool_hand_out(p, i, want->owner, want->domain);
    pool_go_on(p); /* the work first: a fork takes the processor from it */
    return 0;
}

void pool_isolate_idle(struct pool_isolate *i) {
    struct pool *p = i->zygote->pool;
    if (i->state != POOLED_WORKING)
        return;
    pooled_move(i, POOLED_IDLE);
    pool_go_on(p);
}

int pool_isolate_work(struct pool_isolate *i, const struct pool_want *want,
                      struct pool_ticket **ret_ticket, struct err *err) {
    struct pool *p = i->zygote->pool;
    bool behind = p->waiting && p->later.queue;
    *ret_ticket = NULL;
    if (behind || !has_place(p, want->owner))
        return pool_wait_for(p, want, i, ret_ticket, err);
    pool_begin_work(p, i);
    return 0;
}

void pool_cancel(struct pool_ticket *t) {
    if (t)
        pool_free_ticket(t);
}

/* --- what owners do with theirs --- */

void pool_isolate_watch(struct pool_isolate *i, const struct pool_isolate_callbacks *callbacks,
                        void *ctx) {
    i->callbacks = *callbacks;
    i->ctx = ctx;
}

bool pool_isolate_send(struct pool_isolate *i, const struct wire_out *out) {
    return channel_send(i->channel, out);
}

int64_t pool_isolate_cpu_ns(const struct pool_isolate *i) {
    return i->exited ? 0 : clock_process_ns(i->pid);
}

/* The zygote is not asked for every call: only when enough was used that a call could miss it. */
int64_t pool_isolate_allow(struct pool_isolate *i, size_t calls) {
    struct channel *channel = i->zygote->keeper ? keeper_channel(i->zygote->keeper) : NULL;
    if (!i->used && calls == 1) {
        i->used = true; /* a new one may take a call as it is: nothing is asked and told */
        return 0;
    }
    int64_t now = pool_isolate_cpu_ns(i);
    if (!channel || (now - i->allowed_from_ns < ALLOW_AFTER_NS && calls <= i->allowed_calls))
        return now;
    i->allowed_from_ns = now;
    i->allowed_calls = calls;
    _cleanup_(buf) struct buf b;
    buf_init(&b, 16);
    pack_u32(&b, i->number);
    pack_u32(&b, (uint32_t)calls);
    (void)channel_send(channel,
                       &(struct wire_out){.type = ISOLATE_ALLOW, .pieces = {{b.data, b.len}}});
    return now;
}

void pool_isolate_end(struct pool_isolate *i) {
    if (!i->exited)
        (void)syscall(SYS_pidfd_send_signal, i->pidfd, SIGTERM, NULL, 0);
}

void pool_isolate_ask(struct pool_isolate *i) {
    if (!i->exited)
        (void)syscall(SYS_pidfd_send_signal, i->pidfd, SIGUSR2, NULL, 0);
}

void pool_isolate_kill(struct pool_isolate *i) {
    kill_isolate(i);
}

void pool_isolate_release(struct pool_isolate *i) {
    if (!i || !is_owned(i))
        return;
    pooled_move(i, POOLED_DROPPED);
    pool_go_on(i->zygote->pool);
    kill_isolate(i);
    channel_close(i->channel);
    i->channel = NULL;
    maybe_free(i);
}

void pool_isolate_rest(struct pool_isolate *i) {
    struct pool *p = i->zygote->pool;
    if (!p->opt.reset || i->hung_up || i->exited || i->zygote->state != ZYGOTE_SERVING ||
        p->stopping || i->state != POOLED_WORKING || p->stats.resting >= p->opt.max) {
        pool_isolate_release(i);
        return;
    }
    pooled_move(i, POOLED_RESETTING);
    i->callbacks = (struct pool_isolate_callbacks){0};
    i->rest_ms = clock_mono_ms();
    pool_go_on(p);
}

/* Ends those that nobody came back for, and those that do not get ready again. */
static void end_resting(struct pool *p) {
    int64_t now = clock_mono_ms();
    for (struct pool_zygote *z = p->zygotes; z; z = z->next)
        for (struct pool_isolate *i = z->isolates; i; i = i->next)
            if (is_resting(i) &&
                now - i->rest_ms > (i->state == POOLED_PRISTINE ? REST_MS : RESET_WAIT_MS))
                pool_drop(i);
}

/* --- zygotes --- */

static void zygote_move(struct pool_zygote *z, enum zygote_state to) {
    z->state = (enum zygote_state)sm_next(&zygote_sm, z->state, to);
}

/* The process is gone, and all that it forked with it. */
static void zygote_lost(struct pool_zygote *z) {
    z->asked = 0;
    if (z->state == ZYGOTE_SERVING)
        zygote_move(z, ZYGOTE_STARTING);
    /* Owners may release theirs while they are told: begin again at the head each time. */
    struct pool_isolate *i = z->isolates;
    while (i) {
        // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): what is freed is out of the list before
        i->exited = i->hung_up = true;
        pool_drop(i);
        bool known = i->state == POOLED_OVER;
        check_end(i);
        i = known ? i->next : z->isolates;
    }
}

static void pool_on_quiet_closed(uv_handle_t *h) {
    struct pool *p = h->data;
    while (p->waiting)
        pool_free_ticket(p->waiting);
    shares_finish(&p->working);
    shares_finish(&p->queued);
    free(p->features);
    free(p);
}

static void pool_on_timer_closed(uv_handle_t *h) {
    struct pool *p = h->data;
    uv_close((uv_handle_t *)&p->quiet, pool_on_quiet_closed);
}

static void pool_on_zygote_stopped(void *ctx) {
    struct pool_zygote *z = ctx;
    struct pool *p = z->pool;
    zygote_lost(z);
    struct pool_zygote **at = &p->zygotes;
    while (*at && *at != z)
        at = &(*at)->next;
    if (*at)
        *at = z->next;
    if (p->current == z)
        p->current = NULL;
    if (p->heir == z)
        p->heir = NULL;
    free(z);
    if (p->stopping && !p->zygotes && p->on_stopped) {
        void (*cb)(void *) = p->on_stopped;
        p->on_stopped = NULL;
        later_cancel(&p->later);
        uv_close((uv_handle_t *)&p->timer, pool_on_timer_closed);
        cb(p->stopped_ctx);
    }
}

static void zygote_leave(struct pool_zygote *z) {
    zygote_move(z, ZYGOTE_LEAVING);
    keeper_stop(steal_ptr(&z->keeper), pool_on_zygote_stopped, z);
}

static void check_retired(struct pool_zygote *z) {
    if (z->state == ZYGOTE_RETIRED && !z->isolates)
        zygote_leave(z);
}

/* One that an earlier zygote forked makes room for one of its heir's. */
static void end_outdated(struct pool *p) {
    struct pool_isolate *i = p->ready;
    while (i && i->zygote->state != ZYGOTE_RETIRED)
        i = i->next_ready;
    if (i)
        pool_drop(i);
}

static void pool_on_ready(struct pool_zygote *z, struct wire_frame *f) {
    struct pool *p = z->pool;
    struct unpack u;
    unpack_init(&u, f->data, f->len);
    uint32_t number = unpack_u32(&u);
    uint32_t pid = unpack_u32(&u);
    _cleanup_(close) int channel = wire_frame_take_fd(f, 0);
    _cleanup_(close) int pidfd = wire_frame_take_fd(f, 1);
    if (!unpack_ok(&u) || channel < 0 || pidfd < 0)
        return;
    if (z->asked > 0)
        z->asked--;
    struct pool_isolate *i = xcalloc(1, sizeof(*i));
    i->zygote = z;
    i->number = number;
    i->pid = (pid_t)pid;
    i->allowed_calls = 1;
    i->pidfd = steal_fd(&pidfd);
    i->next = z->isolates;
    z->isolates = i;
    z->forks++;
    p->stats.started++;
    struct err err;
    struct channel_options o = {.max_frame_bytes = ISOLATE_FRAME_MAX,
                                .max_queue_bytes = QUEUE_BYTES,
                                .on_frame = pool_on_frame,
                                .on_end = pool_on_hang_up,
                                .ctx = i};
    if (channel_create(p->opt.zygote.loop, steal_fd(&channel), &o, &i->channel, &err) < 0) {
        log_error("isolate.channel", "error", err.message);
        pool_drop(i);
        return;
    }
    if (z->state != ZYGOTE_SERVING || p->stopping) {
        pool_drop(i);
        return;
    }
    pooled_move(i, POOLED_READY);
    end_outdated(p);
    pool_go_on(p);
}

static void pool_on_exited(struct pool_zygote *z, struct wire_frame *f) {
    struct pool *p = z->pool;
    struct unpack u;
    unpack_init(&u, f->data, f->len);
    uint32_t number = unpack_u32(&u);
    struct pool_isolate_end end = {.known = true, .wait_status = (int)unpack_u32(&u)};
    end.cpu_us = unpack_u64(&u);
    end.cpu_us += unpack_u64(&u);
    uint64_t most_kib = unpack_u64(&u);
    uint64_t faulted_kib = unpack_u64(&u) * (PAGE_BYTES / 1024);
    uint64_t base_kib = unpack_u64(&u);
    uint64_t shared_kib = unpack_u64(&u);
    if (!unpack_ok(&u))
        return;
    /* As the isolate itself counts (isolate/memory.c): what it grew by, and the pages that it
     * copied. */
    uint64_t grown_kib = most_kib - MIN(most_kib, base_kib);
    end.own_kib = grown_kib + MIN(faulted_kib - MIN(faulted_kib, grown_kib), shared_kib);
    struct pool_isolate **at = &z->isolates;
    while (*at && (*at)->number != number)
        at = &(*at)->next;
    struct pool_isolate *i = *at;
    if (!i) { /* it died before it was ready: ask again, but not without end */
        if (z->asked > 0)
            z->asked--;
        pool_go_on(z->pool);
        return;
    }
    z->pool->stats.ended++;
    i->exited = true;
    i->end = end;
    pool_drop(i);
    check_end(i); /* its owner is told when the last frames have been read */
    pool_go_on(p);
}

static void pool_on_zygote_start(void *ctx, struct channel *channel) {
    struct pool_zygote *z = ctx;
    const struct pool_options *o = &z->pool->opt;
    const struct buf *plan = scout_plan(o->scout);
    z->planned = plan->len > 0;
    z->forks = 0;
    zygote_configure(channel, &o->zygote, o->reset ? ISOLATE_CONFIG_RESET : 0, plan);
}

/* What waits of the earlier one's is ended one by one, as the heir has its own ready. */
static void pool_take_over(struct pool_zygote *z) {
    struct pool *p = z->pool;
    struct pool_zygote *old = p->current;
    p->heir = NULL;
    p->current = z;
    if (!old)
        return;
    zygote_move(old, ZYGOTE_RETIRED);
    log_debug("isolate.retire", "forks", old->forks);
    check_retired(old);
}

static void pool_on_features(struct pool_zygote *z, const struct wire_frame *f) {
    struct pool *p = z->pool;
    if (z->state == ZYGOTE_STARTING)
        zygote_move(z, ZYGOTE_SERVING);
    if (z == p->heir)
        pool_take_over(z);
    if (z != p->current)
        return;
    free(p->features);
    p->features = xstrndup((const char *)f->data, f->len);
    log_debug("isolate.features", "features", p->features);
    pool_go_on(p);
}

static void pool_on_zygote_frame(void *ctx, struct wire_frame *f) {
    struct pool_zygote *z = ctx;
    switch (f->type) {
    case ISOLATE_READY:
        pool_on_ready(z, f);
        break;
    case ISOLATE_EXITED:
        pool_on_exited(z, f);
        break;
    case ISOLATE_FEATURES:
        pool_on_features(z, f);
        break;
    default:
        break;
    }
}

static void pool_on_zygote_end(void *ctx) {
    struct pool_zygote *z = ctx;
    if (z == z->pool->heir && z->planned)
        scout_forget(z->pool->opt.scout); /* the next try goes without */
    zygote_lost(z);
}

static struct pool_zygote *zygote_create(struct pool *p) {
    struct pool_zygote *z = xcalloc(1, sizeof(*z));
    z->pool = p;
    z->next = p->zygotes;
    p->zygotes = z;
    z->keeper = zygote_keep(&p->opt.zygote,
                            &(struct zygote_callbacks){pool_on_zygote_start, pool_on_zygote_frame,
                                                       pool_on_zygote_end, z});
    return z;
}

/* A zygote that has forked enough is followed by a fresh one, and the first one by one that knows
 * the plan, once the scout is back. It serves until then, and goes when its last isolate has. */
static void look_for_heir(struct pool *p) {
    const struct pool_zygote *z = p->current;
    if (!z || z->state != ZYGOTE_SERVING || p->heir || p->stopping)
        return;
    if (z->forks >= SETTLED_FORKS || clock_mono_ms() - p->busy_ms >= SETTLED_MS)
        scout_send(p->opt.scout);
    bool worn = p->opt.retire_forks && z->forks >= p->opt.retire_forks;
    if (worn || (scout_plan(p->opt.scout)->len > 0 && !z->planned))
        p->heir = zygote_create(p);
}

static void pool_on_quiet(uv_timer_t *t);

/* How many the newest zygote is to fork: none while it cannot. */
static size_t pool_missing(const struct pool *p) {
    const struct pool_zygote *z = p->current;
    if (p->stopping || !z || z->state != ZYGOTE_SERVING || !keeper_channel(z->keeper))
        return 0;
    size_t have = z->asked;
    for (const struct pool_isolate *i = p->ready; i; i = i->next_ready)
        have += i->zygote == z;
    return p->opt.ready > have ? p->opt.ready - have : 0;
}

static void pool_ask(struct pool *p, size_t n) {
    struct pool_zygote *z = p->current;
    _cleanup_(buf) struct buf b;
    buf_init(&b, 16);
    pack_u32(&b, (uint32_t)n);
    struct wire_out out = {.type = ISOLATE_WANT, .pieces = {{b.data, b.len}}};
    if (n > 0 && channel_send(keeper_channel(z->keeper), &out))
        z->asked += n;
}

/* A fork takes more than a run, so it waits until none is at work, or the pool is half empty: then
 * a lone run meets one fork at a time, and many runs get all that are missing. */
static void pool_refill(struct pool *p) {
    size_t n = pool_missing(p);
    if (n == 0)
        return;
    bool half_empty = n >= (p->opt.ready + 1) / 2;
    if (p->waiting || (half_empty && p->stats.busy > 1) || n + 1 >= p->opt.ready)
        pool_ask(p, n);
    else if (half_empty && p->current->asked == 0)
        pool_ask(p, 1);
    else if (p->stats.busy == 0 && !uv_is_active((uv_handle_t *)&p->quiet))
        (void)uv_timer_start(&p->quiet, pool_on_quiet, QUIET_MS, 0);
}

static void pool_on_quiet(uv_timer_t *t) {
    struct pool *p = t->data;
    if (p->stats.busy == 0)
        pool_ask(p, pool_missing(p));
}

/* --- the pool --- */

static void pool_on_turn(void *ctx) {
    struct pool *p = ctx;
    serve_waiting(p);
    pool_refill(p);
}

static void tick_every(struct pool *p, uint64_t ms) {
    if (uv_timer_get_repeat(&p->timer) == ms)
        return;
    uv_timer_set_repeat(&p->timer, ms);
    (void)uv_timer_again(&p->timer);
}

/* In the next turn: who gives something back, or asks, is not called from in here. */
static void pool_go_on(struct pool *p) {
    if (p->stopping)
        return;
    later_post(p->opt.later, &p->later, pool_on_turn, p);
    tick_every(p, TICK_MS);
}

static void pool_on_timer(uv_timer_t *t) {
    struct pool *p = t->data;
    int64_t now = clock_mono_ms();
    struct err err;
    (void)err_set(&err, ERR_RATE,
                  "all isolates that may be are at work (limit isolates: %zu); none came free "
                  "within %u ms",
                  p->opt.max, p->opt.wait_ms);
    // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): a ticket is out of the list before it is freed
    while (p->waiting && now >= p->waiting->deadline_ms)
        pool_refuse(p->waiting, &err);
    if (p->stats.busy > 0)
        p->busy_ms = now;
    end_resting(p);
    look_for_heir(p);
    pool_refill(p);
    if (!p->waiting && p->stats.busy == 0 && now - p->busy_ms > SETTLED_MS)
        tick_every(p, IDLE_TICK_MS);
}

struct pool *pool_create(const struct pool_options *options) {
    struct pool *p = xcalloc(1, sizeof(*p));
    p->opt = *options;
    (void)uv_timer_init(options->zygote.loop, &p->timer);
    p->timer.data = p;
    (void)uv_timer_init(options->zygote.loop, &p->quiet);
    p->quiet.data = p;
    (void)uv_timer_start(&p->timer, pool_on_timer, TICK_MS, TICK_MS);
    p->busy_ms = clock_mono_ms();
    p->current = zygote_create(p);
    return p;
}

struct pool_stats pool_stats(const struct pool *p) {
    return p->stats;
}

const char *pool_features(const struct pool *p) {
    return p->features;
}

struct keeper_info pool_info(const struct pool *p) {
    return keeper_info(p->current->keeper);
}

void pool_stop(struct pool *p, void (*on_stopped)(void *ctx), void *ctx) {
    p->stopping = true;
    p->on_stopped = on_stopped;
    p->stopped_ctx = ctx;
    struct pool_zygote *next;
    for (struct pool_zygote *z = p->zygotes; z; z = next) {
        next = z->next;
        if (z->state != ZYGOTE_LEAVING)
            zygote_leave(z);
    }
}
