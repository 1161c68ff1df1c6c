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
    const char *model; /* the default; NULL: by the keys there are */
    const struct secrets *secrets;
    const struct door *door;      /* the demo model; NULL: there is none */
    const struct coder_def *defs; /* borrowed */
};

struct codes *codes_create(const struct codes_options *options);
/* Cancels what runs; each job ends when its sandbox has. Before sandboxes_close(). */
void codes_close(struct codes *all);
/* The last job has ended. */
void codes_destroy(struct codes *all);

struct code_ask {
    const char *owner;
    struct store_scope scope;
    const json_t *grants; /* of the key, or NULL */
    const json_t *body;   /* of POST /v1/code */
};
/* Begins a job. No callback: follow it by its id. */
int code_start(struct codes *all, const struct code_ask *ask, char ret_id[ID_SIZE],
               struct err *err);
/* {"agents":[...]}: the kinds there are, and which of them can be used; a new reference. */
json_t *codes_show_agents(const struct codes *all);
