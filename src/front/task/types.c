#include "front/task/types.h"

#include "base/cleanup.h"
#include "base/mem.h"
#include "front/code/code.h"
#include "front/code/task.h"
#include "front/execute/execute.h"
#include "front/run/ask.h"

#include <stdlib.h>
#include <string.h>

enum { AROUND_MS = 60000 }; /* to wait for a place and to compile, as for a sandbox */

/* --- run: a program in an isolate --- */

static int run_check(const struct task_rooms *r, const json_t *body, struct err *err) {
    (void)r;
    if (json_object_get(body, "tails"))
        return err_set(err, ERR_BAD_REQUEST, "a task has no \"tails\": give it a \"webhook\"");
    return 0;
}

static int run_load(const char *text, size_t len, const struct run_limits *max, void **ret,
                    struct err *err) {
    struct run_asked *asked;
    int rc = run_ask_read(text, len, max, &asked, err);
    if (rc == 0)
        *ret = asked;
    return rc;
}

static void run_unload(void *loaded) {
    run_asked_destroy(loaded);
}

static int run_start_task(const struct task_rooms *r, const struct task_start *how,
                          struct err *err) {
    struct run_asked *asked = how->loaded;
    struct run_ask ask = {.runner = r->runner,
                          .jobs = r->jobs,
                          .workers = r->workers,
                          .id = how->run,
                          .owner = how->owner,
                          .key = how->key,
                          .body = asked->body,
                          .read = asked,
                          .stores_events = true};
    return run_ask_start(&ask, err) ? 0 : -(int)err->code;
}

static int64_t run_limit_ms(const struct task_rooms *r, const json_t *body,
                            const char **ret_setting) {
    const json_t *own = json_object_get(json_object_get(body, "limits"), "wall_ms");
    bool has = json_is_integer(own);
    *ret_setting = has ? "\"wall_ms\" of its \"limits\"" : "the setting run_wall_ms";
    return (has ? json_integer_value(own) : r->runner->config.limits.wall_ms) + AROUND_MS;
}

/* --- code: an agent in a sandbox --- */

/* The reader of one of the bodies that begin a coding job. */
typedef int (*code_reader)(const struct task_rooms *r, const json_t *body, const json_t *grants,
                           struct code_request *ret, struct err *err);

static int code_task_type_check(code_reader read, const struct task_rooms *r, const json_t *body,
                                struct err *err) {
    struct code_request request;
    int rc = read(r, body, NULL, &request, err);
    if (rc < 0)
        return rc;
    rc = code_check(r->codes, &request, err);
    code_request_finish(&request);
    return rc;
}

static int code_task_type_start(code_reader read, const struct task_rooms *r,
                                const struct task_start *how, struct err *err) {
    struct code_request request;
    struct code_ask ask = {.id = how->run,
                           .owner = how->owner,
                           .key = how->key,
                           .scope = how->scope,
                           .grants = how->grants};
    char id[ID_SIZE];
    int rc = read(r, how->body, how->grants, &request, err);
    return rc < 0 ? rc : code_start(r->codes, &ask, &request, id, err);
}

static int code_task_type_read(const struct task_rooms *r, const json_t *body, const json_t *grants,
                               struct code_request *ret, struct err *err) {
    (void)r;
    (void)grants;
    return code_request_read(body, ret, err);
}

static int check_code(const struct task_rooms *r, const json_t *body, struct err *err) {
    return code_task_type_check(code_task_type_read, r, body, err);
}

static int code_start_task(const struct task_rooms *r, const struct task_start *how,
                           struct err *err) {
    return code_task_type_start(code_task_type_read, r, how, err);
}

static int code_answer(const struct job_asked *ask, struct buf *out, struct job_answered *ret,
                       struct err *err) {
    *ret = (struct job_answered){.status = 200};
    return job_answer(ask->store, ask->id, ask->scope, out, err);
}

static int64_t code_limit(const struct task_rooms *r, const json_t *body,
                          const char **ret_setting) {
    (void)r;
    *ret_setting = "\"timeout_ms\" of \"input\", five minutes unless it is set";
    return code_limit_ms(body);
}

/* --- claude-code: the same with that agent --- */

static int claude_read(const struct task_rooms *r, const json_t *body, const json_t *grants,
                       struct code_request *ret, struct err *err) {
    int rc = code_task_type_read(r, body, grants, ret, err);
    if (rc == 0)
        ret->agent = "claude-code";
    return rc;
}

static int claude_check(const struct task_rooms *r, const json_t *body, struct err *err) {
    return code_task_type_check(claude_read, r, body, err);
}

static int claude_start(const struct task_rooms *r, const struct task_start *how, struct err *err) {
    return code_task_type_start(claude_read, r, how, err);
}

/* --- execute: a task for a coding agent --- */

static int execute_read(const struct task_rooms *r, const json_t *body, const json_t *grants,
                        struct code_request *ret, struct err *err) {
    return code_task_read(r->codes, body, grants, ret, err);
}

static int execute_check(const struct task_rooms *r, const json_t *body, struct err *err) {
    return code_task_type_check(execute_read, r, body, err);
}

static int execute_start(const struct task_rooms *r, const struct task_start *how,
                         struct err *err) {
    return code_task_type_start(execute_read, r, how, err);
}

static int64_t execute_limit(const struct task_rooms *r, const json_t *body,
                             const char **ret_setting) {
    return code_task_limit_ms(r->codes, body, ret_setting);
}

/* --- execute/sdk: a prompt, a model and web tools --- */

static int sdk_check(const struct task_rooms *r, const json_t *body, struct err *err) {
    return execute_sdk_check(r->executes, body, err);
}

static int sdk_start_task(const struct task_rooms *r, const struct task_start *how,
                          struct err *err) {
    char id[ID_SIZE];
    struct execute_sdk_ask ask = {
        .id = how->run, .owner = how->owner, .key = how->key, .body = how->body};
    return execute_sdk_start(r->executes, &ask, id, err);
}

static int64_t sdk_limit(const struct task_rooms *r, const json_t *body, const char **ret_setting) {
    (void)body;
    *ret_setting = "MAX_EXECUTION_TIME, or \"timeout_ms\" of \"execute\" in cay.json";
    return executes_timeout_ms(r->executes) + AROUND_MS;
}

static const struct task_type types[] = {
    {.name = "run",
     .read = run_ask_check,
     .check = run_check,
     .load = run_load,
     .unload = run_unload,
     .start = run_start_task,
     .limit_ms = run_limit_ms},
    {.name = "code",
     .check = check_code,
     .start = code_start_task,
     .answer = code_answer,
     .limit_ms = code_limit},
    {.name = "execute",
     .check = execute_check,
     .start = execute_start,
     .answer = code_task_answer,
     .limit_ms = execute_limit},
    {.name = "execute/sdk",
     .check = sdk_check,
     .start = sdk_start_task,
     .answer = execute_sdk_answer,
     .limit_ms = sdk_limit},
    {.name = "claude-code",
     .check = claude_check,
     .start = claude_start,
     .answer = code_answer,
     .limit_ms = code_limit},
};

const struct task_type *task_type_find(const char *name, struct err *err) {
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (strcmp(types[i].name, name) == 0)
            return &types[i];
    (void)err_set(err, ERR_BAD_REQUEST,
                  "there is no type of tasks \"%.40s\"; there are run, code, execute, "
                  "execute/sdk and claude-code",
                  name);
    return NULL;
}
