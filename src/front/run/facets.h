#pragma once
/* The facets: a process for each database that is in use, started when it is first asked for and
 * ended when it has been idle. A grant is a descriptor: whoever holds it can call the methods it
 * was made for, and nobody in between. */

#include "base/err.h"
#include "wire/facet.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

struct facets;

struct facets_options {
    uv_loop_t *loop;
    int exec_fd;
    size_t max;                 /* how many may run at a time */
    struct facet_limits limits; /* of those that are opened with none of their own */
};

/* Which database, and how it is opened if it is not open. */
struct facet_ref {
    const char *dir;   /* made if it is missing; one folder per database */
    const char *owner; /* the key whose share it counts to; NULL: the operator's */
    const struct facet_open *open;
    bool must_exist; /* ERR_NOT_FOUND if it has no folder, instead of making one */
};

/* fd is the callee's, -1 on error. */
typedef void (*facet_granted)(void *ctx, int fd, const struct err *err);
/* json is borrowed: the result, or {"name","message","code"} when ok is false. json NULL: err. Of
 * facets_ask() it is the payload of the answer. */
typedef void (*facet_answered)(void *ctx, bool ok, const char *json, size_t len,
                               const struct err *err);

struct facets *facets_create(const struct facets_options *options);
/* grant->grant is chosen here. Returns a ticket that is good until done was called, which is from
 * the loop; NULL with err: done is not called. Where no room is left, the database that was idle
 * longest is closed. */
struct facet_op *facets_grant(struct facets *all, const struct facet_ref *ref,
                              const struct facet_grant *grant, facet_granted done, void *ctx,
                              struct err *err);
/* The capability at once, where the database is open and cannot but grant it: it hears of it before
 * the first call. -1: it has to be asked. */
int facets_grant_now(struct facets *all, const struct facet_ref *ref,
                     const struct facet_grant *grant, uint64_t *ret_life);
/* A call by the owner itself, with every method. */
struct facet_op *facets_call(struct facets *all, const struct facet_ref *ref, const char *method,
                             const char *args_json, facet_answered done, void *ctx,
                             struct err *err);
/* The same, but nothing can be written, whatever the method. */
struct facet_op *facets_read(struct facets *all, const struct facet_ref *ref, const char *method,
                             const char *args_json, facet_answered done, void *ctx,
                             struct err *err);
/* A request about the whole database: EXPORT (which needs a descriptor, borrowed), INSPECT or
 * MIGRATE. It waits until the database is open: an error may be the one of opening it. */
struct facet_ask {
    enum facet_msg type;
    const struct buf *payload; /* NULL: empty */
    int fd;                    /* -1: none */
};
struct facet_op *facets_ask(struct facets *all, const struct facet_ref *ref,
                            const struct facet_ask *what, facet_answered done, void *ctx,
                            struct err *err);
/* The life of the process that was asked. Not after done was called. */
uint64_t facet_op_life(const struct facet_op *op);
/* Whether that life was cut off by the machine: what was granted then is worth nothing, and nobody
 * who held it is to blame. */
bool facets_is_lost(const struct facets *all, uint64_t life);
/* Whether it has ended, for whatever reason. */
bool facets_is_over(const struct facets *all, uint64_t life);
/* done will not be called. */
void facet_op_cancel(struct facet_op *op);
/* Ends the process of a database at once: its capabilities are dead. */
void facets_abort(struct facets *all, const char *dir);
bool facets_is_open(const struct facets *all, const char *dir);
/* Ends its process if nobody uses it: it is opened anew, with what was changed. False: it is in
 * use. */
bool facets_close_unused(struct facets *all, const char *dir);

/* Keeps a database closed while its files are replaced or removed. The memory is the caller's. */
struct facet_hold {
    struct facet_hold *next;
    struct facets *facets; /* NULL: it holds nothing */
    const char *dir;       /* borrowed */
    void (*on_closed)(void *ctx);
    void *ctx;
};
/* Ends its process: holders are cut off, and nobody can open it until facets_release(). 1: it is
 * closed. 0: on_closed will be called from the loop when it is. ERR_CONFLICT: it is held already.
 */
int facets_hold(struct facets *all, struct facet_hold *hold, struct err *err);
void facets_release(struct facet_hold *hold);

struct facets_stats {
    size_t running;
    uint64_t started, calls, failed_calls;
};
struct facets_stats facets_stats(const struct facets *all);
void facets_stop(struct facets *all, void (*on_stopped)(void *ctx), void *ctx);
