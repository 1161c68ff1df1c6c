#include "front/task/types.h"

#include "base/cleanup.h"
#include "base/mem.h"
#include "front/code/code.h"
#include "front/code/task.h"
#include "front/execute/execute.h"
#include "front/run/ask.h"

#include <stdlib.h>
#include <string.h>

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
                          .facet_open = r->facet_open,
                          .id = how->run,
                          .owner = how->owner,
                          .grants = how->grants,
                          .body = asked->body,
                          .read = asked,
                          .stores_events = true};
    return run_ask_start(&ask, err) ? 0 : -(int)err->code;
}

/* --- code: an agent in a sandbox --- */

static int check_code(const struct task_rooms *r, const json_t *body, struct err *err) {
    return code_check(r->codes, body, NULL, err);
}

static struct code_ask code_ask_of(const struct task_start *how, const json_t *body) {
    return (struct code_ask){
        .owner = how->owner, .scope = how->scope, .grants = how->grants, .body = body};
}

static int code_start_task(const struct task_rooms *r, const struct task_start *how,
                           struct err *err) {
    struct code_ask ask = code_ask_of(how, how->body);
    char id[ID_SIZE];
    return code_start(r->codes, &ask, id, err);
}

/* --- claude-code: the same with that agent --- */

static json_t *with_claude(const json_t *body) {
    json_t *copy = json_copy((json_t *)(uintptr_t)body);
    (void)json_object_set_new(copy, "agent", json_string("claude-code"));
    return copy;
}

static int claude_check(const struct task_rooms *r, const json_t *body, struct err *err) {
    _cleanup_(json) json_t *input = with_claude(body);
    return code_check(r->codes, input, NULL, err);
}

static int claude_start(const struct task_rooms *r, const struct task_start *how, struct err *err) {
    _cleanup_(json) json_t *input = with_claude(how->body);
    struct code_ask ask = code_ask_of(how, input);
    char id[ID_SIZE];
    return code_start(r->codes, &ask, id, err);
}

/* --- execute: a task for a coding agent --- */

static int execute_check(const struct task_rooms *r, const json_t *body, struct err *err) {
    return code_task_check(r->codes, body, err);
}

static int execute_start(const struct task_rooms *r, const struct task_start *how,
                         struct err *err) {
    struct code_ask ask = code_ask_of(how, how->body);
    char id[ID_SIZE];
    return code_task_start(r->codes, &ask, id, err);
}

/* --- execute/sdk: a prompt, a model and web tools --- */

static int sdk_check(const struct task_rooms *r, const json_t *body, struct err *err) {
    return execute_sdk_check(r->executes, body, err);
}

static int sdk_start_task(const struct task_rooms *r, const struct task_start *how,
                          struct err *err) {
    char id[ID_SIZE];
    return execute_sdk_start(r->executes, how->owner, how->body, id, err);
}

static const struct task_type types[] = {
    {.name = "run",
     .read = run_ask_check,
     .check = run_check,
     .load = run_load,
     .unload = run_unload,
     .start = run_start_task},
    {.name = "code", .check = check_code, .start = code_start_task},
    {.name = "execute", .check = execute_check, .start = execute_start},
    {.name = "execute/sdk", .check = sdk_check, .start = sdk_start_task},
    {.name = "claude-code", .check = claude_check, .start = claude_start},
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
