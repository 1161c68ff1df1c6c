#include "front/task/types.h"

#include "base/cleanup.h"
#include "front/code/code.h"
#include "front/code/task.h"
#include "front/execute/execute.h"
#include "front/run/ask.h"

#include <string.h>

/* --- run: a program in an isolate --- */

static struct run_ask ask_of(const struct task_rooms *r, const json_t *body) {
    return (struct run_ask){.runner = r->runner,
                            .jobs = r->jobs,
                            .workers = r->workers,
                            .facet_open = r->facet_open,
                            .owner = "",
                            .body = body,
                            .stores_events = true};
}

static int run_check(const struct task_rooms *r, const json_t *body, struct err *err) {
    struct run_ask ask = ask_of(r, body);
    if (json_object_get(body, "tails"))
        return err_set(err, ERR_BAD_REQUEST, "a task has no \"tails\": give it a \"webhook\"");
    return run_ask_check(&ask, err);
}

static int run_start_task(const struct task_rooms *r, const struct task_start *how,
                          struct err *err) {
    struct run_ask ask = ask_of(r, how->body);
    ask.id = how->run;
    ask.owner = how->owner;
    ask.grants = how->grants;
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
    {"run", run_check, run_start_task},          {"code", check_code, code_start_task},
    {"execute", execute_check, execute_start},   {"execute/sdk", sdk_check, sdk_start_task},
    {"claude-code", claude_check, claude_start},
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
