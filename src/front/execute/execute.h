#pragma once
/* POST /execute/sdk: a prompt, a model and web tools, with no sandbox around it. Each is a job of
 * the kind "sdk": its events are the Agent SDK's messages (transcript.h), its record has the
 * answer.
 *
 * The detail of the record, when it has ended:
 *   {"prompt","options","model","steps","tokens":{...},"cost_usd",
 *    "answer":{"result","metadata":{...},"error":{"code","message"}|null,"status",
 *    "retry_after_s"}} */

#include "base/err.h"
#include "base/id.h"
#include "base/json.h"
#include "front/execute/settings.h"
#include "front/job/answer.h"
#include "front/job/job.h"
#include "front/model/model.h"
#include "front/run/runner.h"

#include <uv.h>

struct executes;
struct network;

struct executes_options {
    uv_loop_t *loop;
    struct jobs *jobs;
    struct models *models;
    struct accounts *accounts;
    struct runner *runner;
    struct intake *intake;                   /* where large answers are read; NULL: on the loop */
    struct network *network;                 /* the way to pages */
    const char *model;                       /* the server's default, or NULL */
    const struct execute_settings *settings; /* borrowed */
};

struct executes *executes_create(const struct executes_options *options);
/* Ends what runs, as cancelled. Before models_close(). */
void executes_close(struct executes *all);

/* How long a call may take. */
int64_t executes_timeout_ms(const struct executes *all);
/* What it answers when it has ended. */
int execute_sdk_answer(const struct job_asked *ask, struct buf *out, struct job_answered *ret,
                       struct err *err);
/* Whether a job can be begun with that body. */
int execute_sdk_check(struct executes *all, const json_t *body, struct err *err);
struct execute_sdk_ask {
    const char *id; /* of the job; NULL: one is made */
    const char *owner;
    const char *key;    /* "" for the operator */
    const json_t *body; /* of POST /execute/sdk */
};
/* Begins a job. No callback: follow it by its id. */
int execute_sdk_start(struct executes *all, const struct execute_sdk_ask *ask, char ret_id[ID_SIZE],
                      struct err *err);
