#pragma once
/* Coding jobs: a sandbox is made, the work is put into it, an agent loops inside it until it is
 * done, what it tells becomes the job's events, what it changed is collected, and the sandbox ends.
 * The server only does that: it decides nothing, and the agent has no key. Its model is a route of
 * the sandbox, with the credential outside. */

#include "base/err.h"
#include "base/id.h"
#include "base/json.h"
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
    const struct secrets *secrets;
    const struct door *door; /* the demo model; NULL: there is none */
    int coder_fd;            /* cay-coder, opened with O_PATH; -1: it is missing; borrowed */
};

struct codes *codes_create(const struct codes_options *options);
/* Cancels what runs; each job ends when its sandbox has. Before sandboxes_close(). */
void codes_close(struct codes *all);
/* The last job has ended. */
void codes_destroy(struct codes *all);

/* Upstreams of the model routes that may have a private address, for sandboxes_options: a new list
 * of "host:port". */
json_t *codes_private(const struct secrets *secrets, const struct door *door);

struct code_ask {
    const char *owner;
    struct store_scope scope;
    const json_t *grants; /* of the key, or NULL */
    const json_t *body;   /* of POST /v1/code */
};
/* Begins a job. No callback: follow it by its id. */
int code_start(struct codes *all, const struct code_ask *ask, char ret_id[ID_SIZE],
               struct err *err);
