#pragma once
/* Coding jobs: a sandbox is made, the work is put into it, an agent loops inside it until it is
 * done, what it tells becomes the job's events, what it changed is collected, and the sandbox ends.
 * The server only does that: it decides nothing, and the agent has no key. Its model is a route of
 * the sandbox, with the credential outside. A sandbox that was kept can be given another task. */

#include "base/err.h"
#include "base/id.h"
#include "base/json.h"
#include "front/code/definition.h"
#include "front/code/request.h"
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
    int tool_fd; /* the program that tells what changed, with O_PATH, or -1; borrowed */
    /* Of the settings, which may change. */
    const int64_t *max_steps; /* of a job that does not say */
    const int64_t *task_ms;   /* that a task of /execute may take */
};

struct codes *codes_create(const struct codes_options *options);
/* Cancels what runs; each job ends when its sandbox has. Before sandboxes_close(). */
void codes_close(struct codes *all);
/* The last job has ended. */
void codes_destroy(struct codes *all);

/* Who asks. */
struct code_ask {
    const char *id; /* of the job; NULL: one is made */
    const char *owner;
    const char *key; /* "" for the operator */
    struct store_scope scope;
    const json_t *grants; /* of the key, or NULL */
};
/* Whether a job can be begun with that request, as far as can be said before. */
int code_check(const struct codes *all, struct code_request *request, struct err *err);
/* Begins a job. No callback: follow it by its id. Takes the request, also when it fails. */
int code_start(struct codes *all, const struct code_ask *ask, struct code_request *request,
               char ret_id[ID_SIZE], struct err *err);
/* How long the sandbox of a job is needed besides its agent's time. */
int64_t code_around_ms(bool repo);
/* How long a job with that body of POST /v1/code may take at most. */
int64_t code_limit_ms(const json_t *body);
/* Adds what the operator lets sandboxes reach at most: the hosts and the routes that the key has,
 * but for those to models. */
void codes_open_network(const struct codes *all, const json_t *grants, struct network_ask *ask);
/* As model_ask_name(). */
const char *codes_model_name(const struct codes *all, const char *name);
int64_t codes_task_ms(const struct codes *all);
/* {"agents":[...]}: the kinds there are, and which of them can be used; a new reference. */
json_t *codes_show_agents(const struct codes *all);
