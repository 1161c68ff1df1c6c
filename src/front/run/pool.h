#pragma once
/* The pool of isolates: keeps the zygote, has ready isolates waiting, hands them out, and knows
 * when and how each ended. Whoever takes an isolate owns it until pool_isolate_release(). */

#include "base/err.h"
#include "front/run/scout.h"
#include "front/run/zygote.h"
#include "loop/later.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct pool;
struct pool_ticket;
struct pool_isolate;

struct pool_options {
    struct zygote_options zygote;
    struct scout *scout;       /* borrowed */
    struct later_queue *later; /* borrowed */
    size_t ready;              /* how many wait, forked ahead */
    size_t max;                /* how many may be at work at a time */
    size_t max_waiting;        /* how many requests may wait for one */
    unsigned wait_ms;          /* how long they wait before ERR_RATE */
    unsigned
        retire_forks; /* the zygote is replaced after so many, for a new address-space layout */
    /* Isolates put their memory back after a run and serve again, but only the trust domain that
     * they served before. */
    bool reset;
};

struct pool_isolate_end {
    bool known;      /* the zygote reported it */
    int wait_status; /* as of wait(2) */
    uint64_t cpu_us;
    uint64_t own_kib; /* the most that it ever had of its own, in all of its calls */
};

struct pool_isolate_callbacks {
    void (*on_frame)(void *ctx, struct wire_frame *frame);
    /* Called once: the isolate ended by itself. It can only be released then. */
    void (*on_end)(void *ctx, const struct pool_isolate_end *end);
};

/* isolate NULL: err says why. */
typedef void (*pool_taken)(void *ctx, struct pool_isolate *isolate, const struct err *err);

struct pool *pool_create(const struct pool_options *options);
struct pool_want {
    const char *owner;  /* the key; "" for the operator */
    const char *domain; /* for a pool that resets, whom the isolate serves; NULL otherwise */
    pool_taken taken;
    void *ctx;
};
/* Gives an isolate at once, or a ticket: then taken() comes later, from the loop, and the ticket is
 * good until then. Who has least at work is served first; no key may have all of it. */
int pool_take(struct pool *p, const struct pool_want *want, struct pool_isolate **ret_isolate,
              struct pool_ticket **ret_ticket, struct err *err);
/* No callback comes any more. NULL is allowed. */
void pool_cancel(struct pool_ticket *t);

/* A warm isolate without a call is not at work: others may have its place... */
void pool_isolate_idle(struct pool_isolate *i);
/* ...until it is to work again: at once (no ticket), or when taken() comes. */
int pool_isolate_work(struct pool_isolate *i, const struct pool_want *want,
                      struct pool_ticket **ret_ticket, struct err *err);

void pool_isolate_watch(struct pool_isolate *i, const struct pool_isolate_callbacks *callbacks,
                        void *ctx);
bool pool_isolate_send(struct pool_isolate *i, const struct wire_out *out);
/* Processor time that it used since its start. */
int64_t pool_isolate_cpu_ns(const struct pool_isolate *i);
/* A call begins: as many as that are at work on it now, each of which may use the limit. Returns
 * what it has used until now. */
int64_t pool_isolate_allow(struct pool_isolate *i, size_t calls);
/* Asks it to say what its calls used, and to end. */
void pool_isolate_end(struct pool_isolate *i);
/* It says what each of its calls has used so far (USED). */
void pool_isolate_ask(struct pool_isolate *i);
/* Ends it; on_end tells how. */
void pool_isolate_kill(struct pool_isolate *i);
/* Ends it and gives it back; no callback comes after this. */
void pool_isolate_release(struct pool_isolate *i);
/* Gives it back to be used again by its domain, once it has put its memory back. */
void pool_isolate_rest(struct pool_isolate *i);

struct pool_stats {
    size_t ready, busy, waiting, resting;
    uint64_t started, ended, refused, reused;
};
struct pool_stats pool_stats(const struct pool *p);
/* What the zygote said of its locks and levers: JSON, or NULL while it has not. */
const char *pool_features(const struct pool *p);
struct keeper_info pool_info(const struct pool *p);
/* Ends all isolates; on_stopped when the zygotes are gone. The pointer is dead then. */
void pool_stop(struct pool *p, void (*on_stopped)(void *ctx), void *ctx);
