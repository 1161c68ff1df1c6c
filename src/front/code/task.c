#include "front/code/task.h"

#include "base/cleanup.h"
#include "base/json_table.h"
#include "base/limits.h"
#include "base/mem.h"
#include "front/model/ask.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_TURNS = 30, PROMPT_BYTES = 64 << 10 };

/* --- the request --- */

enum task_mode { TASK_PLAN, TASK_ACCEPT_EDITS, TASK_BYPASS };
static const char *const task_modes[] = {
    [TASK_PLAN] = "plan", [TASK_ACCEPT_EDITS] = "acceptEdits", [TASK_BYPASS] = "bypassPermissions"};

struct task_wire {
    struct code_request request;
    enum task_mode mode;
};

static int code_task_read_body(struct task_wire *t, const json_t *body, struct err *err) {
    static const struct json_field options[] = {
        JSON_ENUM("permission_mode", struct task_wire, mode, task_modes),
        JSON_TEXT_MAX("system_prompt", struct task_wire, request.system_prompt, PROMPT_BYTES),
        JSON_TEXT_MAX("append_system_prompt", struct task_wire, request.append_system_prompt,
                      PROMPT_BYTES),
        JSON_TEXT("model", struct task_wire, request.model),
        JSON_TEXT("agent", struct task_wire, request.agent),
        JSON_TEXT("credential", struct task_wire, request.credential),
        JSON_BOOL("include_diff", struct task_wire, request.include_diff),
        JSON_INT("max_turns", struct task_wire, request.max_steps, 1, LIMIT_CODER_MAX_STEPS_MAX),
        JSON_INT_UPTO("timeout_ms", struct task_wire, request.timeout_ms, 1000),
        JSON_READ("max_budget_usd", struct task_wire, request.max_usd, model_ask_read_budget,
                  "number"),
    };
    static const struct json_field table[] = {
        JSON_TEXT_MAX("task", struct task_wire, request.spec, LIMIT_CODER_SPEC_BYTES),
        JSON_TEXT("repo", struct task_wire, request.repo),
        JSON_TEXT("ref", struct task_wire, request.ref),
        JSON_OBJECT_HERE("options", options),
        JSON_MAP("options", struct task_wire, request.options),
    };
    JSON_SHAPE("ExecuteRequest", table);
    struct code_request *r = &t->request;
    int rc = json_table_read(table, ARRAY_LEN(table), body, "the request", t, err);
    if (rc == 0 && (!r->spec || !*r->spec))
        rc = err_set(err, ERR_BAD_REQUEST, "say in \"task\" what is to be done");
    return rc;
}

int code_task_read(struct codes *all, const json_t *body, const json_t *grants,
                   struct code_request *ret, struct err *err) {
    bool repo = json_is_string(json_object_get(body, "repo"));
    struct task_wire t = {.request = {.kind = "execute",
                                      .max_steps = MAX_TURNS,
                                      .timeout_ms = codes_task_ms(all),
                                      .include_diff = repo,
                                      .gitignore = repo},
                          .mode = TASK_ACCEPT_EDITS};
    int rc = code_task_read_body(&t, body, err);
    if (rc < 0)
        return rc;
    t.request.tree = json_incref((json_t *)(uintptr_t)body);
    t.request.model = codes_model_name(all, t.request.model);
    t.request.plan = t.mode == TASK_PLAN;
    /* What the mode lets out of the sandbox besides the model. */
    t.request.has_network = t.mode == TASK_BYPASS;
    if (t.mode == TASK_BYPASS)
        codes_open_network(all, grants, &t.request.network);
    *ret = t.request;
    return 0;
}

int64_t code_task_limit_ms(const struct codes *all, const json_t *body, const char **ret_setting) {
    const json_t *own = json_object_get(json_object_get(body, "options"), "timeout_ms");
    *ret_setting = json_is_integer(own)
                       ? "\"timeout_ms\" of its \"options\""
                       : "MAX_EXECUTION_TIME, or \"timeout_ms\" of \"execute\" in cay.json";
    return (json_is_integer(own) ? json_integer_value(own) : codes_task_ms(all)) +
           code_around_ms(json_object_get(body, "repo") != NULL);
}

/* --- what is told --- */

/* A text may hold NULs: it is program output. */
static void code_task_log_line(struct buf *log, const char *before, const json_t *said) {
    const char *text = json_string_value(said);
    size_t n = json_string_length(said);
    (void)buf_add_str(log, before);
    (void)buf_add(log, text ? text : "", n);
    if (!text || n == 0 || text[n - 1] != '\n')
        (void)buf_add_str(log, "\n");
}

static void log_step(struct buf *log, const json_t *event) {
    _cleanup_(free) char *args = json_dumps(json_object_get(event, "args"), JSON_COMPACT);
    const char *tool = json_string_value(json_object_get(event, "tool"));
    (void)buf_addf(log, "%lld %s %s\n",
                   (long long)json_integer_value(json_object_get(event, "step")), tool ? tool : "",
                   args ? args : "");
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
        code_task_log_line(log, "the step failed: ", json_object_get(event, "error"));
    for (size_t i = 0; i < ARRAY_LEN(plain); i++)
        if (strcmp(type, plain[i].type) == 0 &&
            json_string_length(json_object_get(event, plain[i].key)) > 0)
            code_task_log_line(log, plain[i].before, json_object_get(event, plain[i].key));
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
