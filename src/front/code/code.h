#pragma once
/* Coding jobs: a sandbox is made, the work is put into it, an agent loops inside it until it is
 * done, what it tells becomes the job's events, what it changed is collected, and the sandbox ends.
 * The server only does that: it decides nothing, and the agent has no key. Its model is a route of
 * the sandbox, with the credential outside. A sandbox that was kept can be given another task. */

#include "base/err.h"
#include "base/id.h"
#include "base/json.h"
#include "front/code/definition.h"
#include "front/job/job.h"
#include "front/model/model.h"
#include "front/sandbox/sandboxes.h"

#include <uv.h>

struct codes;
struct door;

struct codes_options {
    uv_loop_t *loop;
    struct jobs *jobs;
    struct sandboxes *sandboxes;
    struct models *models;
    struct accounts *accounts;
    const char *model; /* the default; NULL: by the keys there are */
    const struct secrets *secrets;
    const struct door *door;      /* the demo model; NULL: there is none */
    const struct coder_def *defs; /* borrowed */
    /* Of the settings, which may change. */
    const int64_t *max_steps; /* of a job that does not say */
    const int64_t *task_ms;   /* that a task of /execute may take */
};

struct codes *codes_create(const struct codes_options *options);
/* Cancels what runs; each job ends when its sandbox has. Before sandboxes_close(). */
void codes_close(struct codes *all);
/* The last job has ended. */
void codes_destroy(struct codes *all);

/* What a job has beyond the request of POST /v1/code; copied. */
struct code_terms {
    const char *kind;
    bool plan;         /* the agent may change nothing */
    bool include_diff; /* what it changed is wanted */
    const char *system_prompt;
    const char *append_system_prompt;
    double max_usd;  /* of its model; 0: what the settings say */
    json_t *options; /* as they were asked for, for the record; NULL: none */
};

struct code_ask {
    const char *owner;
    struct store_scope scope;
    const json_t *grants;           /* of the key, or NULL */
    const json_t *body;             /* of POST /v1/code */
    const struct code_terms *terms; /* NULL: the usual ones */
};
/* Whether a job can be begun with that body, as far as can be said before; terms may be NULL. */
int code_check(const struct codes *all, const json_t *body, const struct code_terms *terms,
               struct err *err);
/* Begins a job. No callback: follow it by its id. */
int code_start(struct codes *all, const struct code_ask *ask, char ret_id[ID_SIZE],
               struct err *err);
/* What the operator lets sandboxes reach at most, as "network" of a request: the hosts and the
 * routes that the key has, but for those to models. */
json_t *codes_open_network(const struct codes *all, const json_t *grants);
/* As model_ask_name(). */
const char *codes_model_name(const struct codes *all, const char *name);
int64_t codes_task_ms(const struct codes *all);
/* {"agents":[...]}: the kinds there are, and which of them can be used; a new reference. */
json_t *codes_show_agents(const struct codes *all);
