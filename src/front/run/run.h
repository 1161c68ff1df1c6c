#pragma once
/* A run: one program from request to record. It is recorded before it starts and when it ends; its
 * console lines come as they happen. The record is
 *   {"id","status","output","result","error","logs":[{"level","time","message"}],"usage":{...}}
 * with status "done", "failed" or "cancelled". */

#include "front/job/job.h"
#include "front/run/guest.h"

struct run;

struct run_callbacks {
    /* json: {"level","time","message"}. May be NULL. */
    void (*on_log)(void *ctx, const char *level, const char *json, size_t len);
    /* The last callback: the record, and the same as parts. */
    void (*on_done)(void *ctx, const struct run *run, const char *record, size_t len);
};

struct run_request {
    const char *id;    /* NULL: one is made */
    const char *owner; /* the project */
    const char *key;   /* "" for the operator */
    const char *kind;
    const char *title;
    const char *source; /* compile request */
    size_t source_len;
    const unsigned char *source_hash; /* if it is known; or NULL */
    const char *code;                 /* what the record shows as the code; may be NULL */
    const json_t
        *asked;       /* what it was asked with besides, for whoever runs it again; may be NULL */
    const char *spec; /* JSON of the call; see guest.h */
    size_t spec_len;
    struct buf *own_spec; /* where it is, if it may be taken; or NULL */
    const struct env *env;
    const char *domain; /* see guest.h; NULL: a fresh isolate */
    struct run_limits limits;
    bool inner;         /* part of another job */
    bool stores_events; /* its console lines, as they come */
    struct run_callbacks callbacks;
    void *ctx;
};

/* jobs may be NULL: nothing is recorded. NULL with err: it could not be recorded, and no callback
 * comes. Callbacks come from the loop only. */
struct run *run_start(struct runner *r, struct jobs *jobs, const struct run_request *q,
                      struct err *err);
/* The same on a warm guest that the caller keeps; q->source and q->env are not read. */
struct run *run_on_guest(struct guest *g, struct jobs *jobs, const struct run_request *q,
                         struct err *err);
/* Its on_done comes soon, with "cancelled". */
void run_cancel(struct run *run);
/* Like run_start(), but gives the guest for a warm isolate. */
struct run *run_start_warm(struct runner *r, struct jobs *jobs, const struct run_request *q,
                           void (*on_end)(void *ctx), void *end_ctx, struct guest **ret_guest,
                           struct err *err);

const char *run_id(const struct run *run);
/* Console lines, joined. */
const char *run_output(const struct run *run, size_t *ret_len);
/* NULL if it went well; else the error object of the record. */
const json_t *run_error(const struct run *run);
/* Why it did not run to its end, if that was not the program's own doing; else NULL. */
const struct err *run_failure(const struct run *run);
const char *run_result(const struct run *run, size_t *ret_len);
