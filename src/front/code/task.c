#include "front/code/task.h"

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/mem.h"
#include "front/model/ask.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_TURNS = 30, PROMPT_BYTES = 64 << 10 };

/* --- the request --- */

struct task_request {
    const char *task;
    const char *repo;
    const char *ref;
    const char *mode;
    const char *agent;
    const char *model;
    const char *credential;
    struct code_terms terms;
    int64_t max_turns;
    int64_t timeout_ms;
};

static int check_prompt(const char *what, const char *text, struct err *err) {
    if (text && strlen(text) > PROMPT_BYTES)
        return err_set(err, ERR_TOO_LARGE, "\"%s\" exceeds %d bytes", what, PROMPT_BYTES);
    return 0;
}

static int read_options(struct task_request *t, const json_t *o, int64_t most_ms, struct err *err) {
    static const char *const keys[] = {"include_diff",
                                       "permission_mode",
                                       "system_prompt",
                                       "append_system_prompt",
                                       "max_turns",
                                       "model",
                                       "timeout_ms",
                                       "max_budget_usd",
                                       "agent",
                                       "credential",
                                       NULL};
    struct code_terms *k = &t->terms;
    const struct {
        const char *key;
        const char **ret;
    } texts[] = {{"permission_mode", &t->mode},
                 {"system_prompt", &k->system_prompt},
                 {"append_system_prompt", &k->append_system_prompt},
                 {"model", &t->model},
                 {"agent", &t->agent},
                 {"credential", &t->credential}};
    int rc = o ? json_check_keys(o, "\"options\"", keys, err) : 0;
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(texts); i++)
        rc = json_get_str(o, texts[i].key, texts[i].ret, err);
    if (rc == 0)
        rc = check_prompt("system_prompt", k->system_prompt, err);
    if (rc == 0)
        rc = check_prompt("append_system_prompt", k->append_system_prompt, err);
    k->include_diff = t->repo != NULL;
    if (rc == 0)
        rc = json_get_bool(o, "include_diff", &k->include_diff, err);
    if (rc == 0)
        rc = json_get_int(o, "max_turns", 1, LIMIT_CODER_MAX_STEPS_MAX, &t->max_turns, err);
    if (rc == 0)
        rc = json_get_int(o, "timeout_ms", 1000, most_ms, &t->timeout_ms, err);
    return rc < 0 ? rc : model_ask_budget(o, &k->max_usd, err);
}

static int read_body(struct task_request *t, const json_t *body, int64_t most_ms, struct err *err) {
    static const char *const keys[] = {"task", "repo", "ref", "options", NULL};
    int rc = json_check_keys(body, "the request", keys, err);
    if (rc == 0)
        rc = json_get_str(body, "task", &t->task, err);
    if (rc == 0)
        rc = json_get_str(body, "repo", &t->repo, err);
    if (rc == 0)
        rc = json_get_str(body, "ref", &t->ref, err);
    if (rc == 0 && (!t->task || !*t->task))
        rc = err_set(err, ERR_BAD_REQUEST, "say in \"task\" what is to be done");
    if (rc == 0 && strlen(t->task) > LIMIT_CODER_SPEC_BYTES)
        rc = err_set(err, ERR_TOO_LARGE, "\"task\" exceeds %d bytes", LIMIT_CODER_SPEC_BYTES);
    const json_t *options = json_object_get(body, "options");
    if (json_is_null(options))
        options = NULL;
    return rc < 0 ? rc : read_options(t, options, most_ms, err);
}

/* What the mode lets out of the sandbox besides the model. */
static int set_mode(struct task_request *t, struct codes *all, const json_t *grants,
                    json_t *request, struct err *err) {
    t->terms.plan = strcmp(t->mode, "plan") == 0;
    bool open = strcmp(t->mode, "bypassPermissions") == 0;
    if (!t->terms.plan && !open && strcmp(t->mode, "acceptEdits") != 0)
        return err_set(err, ERR_BAD_REQUEST,
                       "\"permission_mode\" must be \"plan\", \"acceptEdits\" or "
                       "\"bypassPermissions\"");
    if (open)
        (void)json_object_set_new(request, "network", codes_open_network(all, grants));
    return 0;
}

/* The request of POST /v1/code that it comes to, a new reference, and its terms. NULL with err. */
static json_t *read_request(struct codes *all, const json_t *body, const json_t *grants,
                            struct code_terms *ret_terms, struct err *err) {
    struct task_request t = {.mode = "acceptEdits",
                             .agent = "coder",
                             .max_turns = MAX_TURNS,
                             .timeout_ms = codes_task_ms(all)};
    if (read_body(&t, body, codes_task_ms(all), err) < 0)
        return NULL;
    _cleanup_(json) json_t *request = json_pack(
        "{s:s,s:s,s:s*,s:s*,s:s*,s:s*,s:I,s:I}", "spec", t.task, "agent", t.agent, "repo", t.repo,
        "ref", t.ref, "credential", t.credential, "model", codes_model_name(all, t.model),
        "max_steps", (json_int_t)t.max_turns, "timeout_ms", (json_int_t)t.timeout_ms);
    if (set_mode(&t, all, grants, request, err) < 0)
        return NULL;
    t.terms.kind = "execute";
    t.terms.options = json_object_get(body, "options");
    *ret_terms = t.terms;
    return steal_ptr(&request);
}

int code_task_check(struct codes *all, const json_t *body, struct err *err) {
    struct code_terms terms;
    _cleanup_(json) json_t *request = read_request(all, body, NULL, &terms, err);
    return request ? code_check(all, request, &terms, err) : -(int)err->code;
}

int code_task_start(struct codes *all, const struct code_ask *ask, char ret_id[ID_SIZE],
                    struct err *err) {
    struct code_terms terms;
    _cleanup_(json) json_t *request = read_request(all, ask->body, ask->grants, &terms, err);
    if (!request)
        return -(int)err->code;
    struct code_ask more = *ask;
    more.body = request;
    more.terms = &terms;
    return code_start(all, &more, ret_id, err);
}

/* --- what is told --- */

static const char *text_of(const json_t *event, const char *key) {
    const char *text = json_string_value(json_object_get(event, key));
    return text ? text : "";
}

static void log_line(struct buf *log, const char *before, const char *text) {
    size_t n = strlen(text);
    (void)buf_add_str(log, before);
    (void)buf_add_str(log, text);
    if (n == 0 || text[n - 1] != '\n')
        (void)buf_add_str(log, "\n");
}

static void log_step(struct buf *log, const json_t *event) {
    _cleanup_(free) char *args = json_dumps(json_object_get(event, "args"), JSON_COMPACT);
    (void)buf_addf(log, "%lld %s ", (long long)json_integer_value(json_object_get(event, "step")),
                   text_of(event, "tool"));
    log_line(log, "", args ? args : "");
}

void code_task_log(struct buf *log, const char *type, const json_t *event) {
    static const struct {
        const char *type;
        const char *before;
        const char *key;
    } plain[] = {
        {"clone", "clone ", "repo"}, {"cloned", "commit ", "commit"},
        {"text", "", "text"},        {"thought", "", "text"},
        {"output", "", "text"},      {"retry", "", "message"},
        {"repair", "", "message"},   {"error", "error: ", "message"},
        {"done", "", "summary"},     {"failed", "failed: ", "message"},
    };
    if (strcmp(type, "step_begin") == 0)
        log_step(log, event);
    if (strcmp(type, "step_end") == 0 && !json_is_true(json_object_get(event, "ok")))
        log_line(log, "the step failed: ", text_of(event, "error"));
    for (size_t i = 0; i < ARRAY_LEN(plain); i++)
        if (strcmp(type, plain[i].type) == 0 && *text_of(event, plain[i].key))
            log_line(log, plain[i].before, text_of(event, plain[i].key));
}

int code_task_status(const char *error_code) {
    static const struct {
        const char *code;
        int status;
    } own[] = {{"max_steps", 200},   {"max_budget_usd", 200}, {"malformed", 502},
               {"model_error", 502}, {"timeout", 504},        {"cancelled", 499},
               {"error", 500}};
    for (size_t i = 0; i < ARRAY_LEN(own); i++)
        if (strcmp(error_code, own[i].code) == 0)
            return own[i].status;
    for (int i = 1; i < ERR_CODE_COUNT; i++)
        if (strcmp(error_code, err_name((enum err_code)i)) == 0)
            return err_http_status((enum err_code)i);
    return 500;
}
