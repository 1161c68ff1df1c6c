#pragma once
/* A job: anything that takes a while. It has a kind, a record that is written before it starts and
 * when it ends, events with numbers that can be followed from any number, and a way to cancel it.
 * Whoever does the work owns the job from job_begin() to job_end(); everybody else knows it by its
 * id, as long as the store does.
 *
 * Events of a kind that stores them are told when the store has them, so that following a
 * job that runs, one that has ended and one that a crash cut off is the same. Others (a program's
 * console, which its record has anyway) are kept while the job runs. */

#include "base/err.h"
#include "base/id.h"
#include "front/store/store.h"
#include "loop/later.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct jobs;
struct job;
struct job_follow;

struct jobs *jobs_create(uv_loop_t *loop, struct store *store);
/* Every job has ended. */
void jobs_destroy(struct jobs *all);

struct job_spec {
    const char *id; /* NULL: one is made */
    const char *kind;
    const char *owner; /* the project */
    const char *key;   /* NULL or "": the operator */
    const char *title;
    const char *detail;        /* JSON, or NULL */
    bool inner;                /* part of another job, which counts for both */
    bool stores_events;        /* else they are kept while it runs */
    void (*cancel)(void *ctx); /* asks whoever does the work to end it soon; NULL: it cannot be */
    void *ctx;
};
/* ERR_RATE if the key, or its project, has as many as it may. */
int job_begin(struct jobs *all, const struct job_spec *spec, struct job **ret_job, struct err *err);
const char *job_id(const struct job *j);
/* json: a value. What cannot be kept any more (a full disk, too many) is dropped; the end says how
 * many. */
void job_event(struct job *j, const char *type, const char *json, size_t len);
/* The job is over and the pointer dead; end as of the store. */
void job_end(struct job *j, const struct store_run_end *end);

/* Asks a job to end. ERR_NOT_FOUND, ERR_CONFLICT if it is over, ERR_UNSUPPORTED if its kind cannot
 * be stopped. */
int job_cancel(struct jobs *all, const char *id, struct store_scope scope, struct err *err);

struct job_event {
    int64_t seq; /* from 1 */
    int64_t time_ms;
    const char *type;
    const char *json;
    size_t len;
};

/* Follows the events after number `after`. on_more is called from the loop, whenever there may be
 * something to read, and once soon after this. */
int job_follow(struct jobs *all, const char *id, struct store_scope scope, int64_t after,
               void (*on_more)(void *ctx), void *ctx, struct job_follow **ret_follow,
               struct err *err);
/* The same of a job that the caller knows by other means: its end may not be written yet. One that
 * nobody knows is over, and has no events. */
struct job_follow *job_follow_known(struct jobs *all, const char *id, int64_t after,
                                    void (*on_more)(void *ctx), void *ctx);
/* How many run now. */
size_t jobs_running(const struct jobs *all);
bool job_is_running(const struct jobs *all, const char *id);
/* Hands out what is there until on_event returns false (it took that one, and wants no more now).
 * False when the job is over and everything was read. */
bool job_read(struct job_follow *f, bool (*on_event)(void *ctx, const struct job_event *event),
              void *ctx);
/* The job's id. */
const char *job_followed(const struct job_follow *f);
void job_unfollow(struct job_follow *f);
/* Tells once, from the loop, how a job ends that runs now; what it is told is gone afterwards.
 * ERR_NOT_FOUND: no such job runs. */
struct job_watch;
int job_watch(struct jobs *all, const char *id,
              void (*on_end)(void *ctx, const struct store_run_end *end), void *ctx,
              struct job_watch **ret_watch, struct err *err);
void job_unwatch(struct job_watch *w);
/* Told of each end, before it is told to others; it may not call back. */
struct job_ended {
    const char *owner, *key, *kind;
    bool done;
    int64_t wall_ms;
};
void jobs_on_end(struct jobs *all, void (*on_end)(void *ctx, const struct job_ended *ended),
                 void *ctx);
/* How many jobs a key, and its project, may have at a time; 0: any number. What a job begins itself
 * is not counted. */
struct jobs_max {
    int64_t key, project;
};
void jobs_set_limit(struct jobs *all, struct jobs_max (*max_jobs)(void *ctx, const char *key),
                    void *ctx);
