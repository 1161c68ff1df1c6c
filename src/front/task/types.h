#pragma once
/* What a task can be: a table, one row for each. A row says whether a body is one of its kind, and
 * begins a job with it. The rest (following it, cancelling it, its result) is the job's. */

#include "base/err.h"
#include "base/json.h"
#include "front/job/answer.h"
#include "front/store/store.h"

struct codes;
struct executes;
struct jobs;
struct runner;
struct workers;

/* What the jobs of tasks are begun with. */
struct task_rooms {
    struct jobs *jobs;
    struct runner *runner;
    struct workers *workers;
    struct codes *codes;
    struct executes *executes;
    struct store *store;
    const int64_t *run_events; /* that a job may have */
};

struct run_limits;

struct task_start {
    const char *run;   /* the id of the job */
    const char *owner; /* the project */
    const char *key;   /* that submitted it, "" for the operator */
    struct store_scope scope;
    const json_t *grants;
    const json_t *body; /* of a type that has no load() */
    void *loaded;       /* of one that has: borrowed */
};

/* Those with a part that may take long, for large bodies, have it in functions that are called in
 * any thread. */
struct task_type {
    const char *name;
    int (*read)(const json_t *body, const struct run_limits *max, struct err *err); /* or NULL */
    /* What read() did not check. */
    int (*check)(const struct task_rooms *r, const json_t *body, struct err *err);
    /* What start() needs of the text of a body; NULL: it as JSON. */
    int (*load)(const char *text, size_t len, const struct run_limits *max, void **ret,
                struct err *err);
    void (*unload)(void *loaded);
    /* Has begun a job when it returns 0. */
    int (*start)(const struct task_rooms *r, const struct task_start *how, struct err *err);
    /* What its endpoint answers about a job that has ended; NULL: the end of the job has it. */
    int (*answer)(const struct job_asked *ask, struct buf *out, struct job_answered *ret,
                  struct err *err);
    /* How long the job of that body may take by itself, and what says so, for people. */
    int64_t (*limit_ms)(const struct task_rooms *r, const json_t *body, const char **ret_setting);
};

/* NULL with err: there is none of that name. */
const struct task_type *task_type_find(const char *name, struct err *err);
