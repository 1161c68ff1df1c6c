#include "front/code/request.h"

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "front/code/route.h"
#include "front/code/tree.h"
#include "front/model/ask.h"
#include "front/sandbox/sandboxes.h"

#include <stdlib.h>
#include <string.h>

enum { TITLE_BYTES = 80, TIMEOUT_MAX_MS = 86400000 };

static int read_values(struct code_request *r, const char **ret_agent, const char **ret_model,
                       const char **ret_repo, struct err *err) {
    static const char *const keys[] = {"spec",      "files",      "command", "agent", "model",
                                       "max_steps", "timeout_ms", "network", "keep",  "repo",
                                       "ref",       "credential", "sandbox", NULL};
    const struct {
        const char *key;
        const char **ret;
    } texts[] = {{"spec", &r->spec},
                 {"command", &r->command},
                 {"agent", ret_agent},
                 {"model", ret_model},
                 {"repo", ret_repo},
                 {"ref", &r->ref},
                 {"credential", &r->credential},
                 {"sandbox", &r->sandbox}};
    int rc = json_check_keys(r->body, "the request", keys, err);
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(texts); i++)
        rc = json_get_str(r->body, texts[i].key, texts[i].ret, err);
    r->keep = r->sandbox != NULL;
    if (rc == 0)
        rc = json_get_bool(r->body, "keep", &r->keep, err);
    if (rc == 0)
        rc = json_get_int(r->body, "max_steps", 1, LIMIT_CODER_MAX_STEPS_MAX, &r->max_steps, err);
    if (rc == 0)
        rc = json_get_int(r->body, "timeout_ms", 1000, TIMEOUT_MAX_MS, &r->timeout_ms, err);
    return rc;
}

static int check_task(const struct code_request *r, struct err *err) {
    if ((!r->spec || !*r->spec) && !r->command)
        return err_set(err, ERR_BAD_REQUEST, "say in \"spec\" what is to be done");
    if (r->spec && strlen(r->spec) > LIMIT_CODER_SPEC_BYTES)
        return err_set(err, ERR_TOO_LARGE, "\"spec\" exceeds %d bytes: put it into a file",
                       LIMIT_CODER_SPEC_BYTES);
    if (r->command && strlen(r->command) > LIMIT_SHELL_COMMAND_BYTES)
        return err_set(err, ERR_TOO_LARGE,
                       "\"command\" exceeds %d bytes: write it into a file and run that",
                       LIMIT_SHELL_COMMAND_BYTES);
    return 0;
}

static int check_repo(struct code_request *r, const char *repo, struct err *err) {
    if (!repo && (r->ref || r->credential))
        return err_set(err, ERR_BAD_REQUEST, "\"ref\" and \"credential\" are of a \"repo\"");
    if (repo && r->sandbox)
        return err_set(err, ERR_BAD_REQUEST,
                       "a \"repo\" goes into a new sandbox: leave \"sandbox\" out");
    const json_t *files = json_object_get(r->body, "files");
    if (files && (!json_is_array(files) || json_array_size(files) > SANDBOX_FILES_MAX))
        return err_set(err, ERR_BAD_REQUEST, "\"files\" must be a list of at most %d files",
                       SANDBOX_FILES_MAX);
    if (json_array_size(files) > 0 && (repo || r->sandbox))
        return err_set(err, ERR_BAD_REQUEST,
                       "\"files\" go into a new and empty sandbox: leave \"%s\" out",
                       repo ? "repo" : "sandbox");
    if (r->ref && !code_tree_is_ref(r->ref))
        return err_set(err, ERR_BAD_REQUEST,
                       "\"ref\" must be the name of a branch or tag, or a commit");
    return repo ? code_repo_check(repo, &r->repo, err) : 0;
}

static int choose_agent(struct code_request *r, const struct code_request_rules *rules,
                        const char *name, struct err *err) {
    char known[200] = "";
    r->def = coder_defs_find(rules->defs, name);
    for (const struct coder_def *d = rules->defs; d; d = d->next) {
        size_t n = strlen(known);
        (void)snprintf(known + n, sizeof(known) - n, "%s\"%s\"", n ? ", " : "", d->name);
    }
    if (!r->def)
        return err_set(err, ERR_BAD_REQUEST, "there is no agent \"%.60s\"; there is %s", name,
                       *known ? known : "none: name their folder in the setting \"coders_dir\"");
    if (r->command)
        return 0;
    if (r->def->fd < 0)
        return err_set(err, ERR_UNSUPPORTED, "the agent \"%s\" cannot be used: %.400s",
                       r->def->name, r->def->why.message);
    if (r->def->memory_mb > rules->settings->memory_mb)
        return err_set(err, ERR_UNSUPPORTED,
                       "the agent \"%s\" needs %lld MiB, and sandboxes have %u (setting "
                       "sandboxes.memory_mb)",
                       r->def->name, (long long)r->def->memory_mb, rules->settings->memory_mb);
    return 0;
}

/* A model of either dialect will do for a command; an agent has those it speaks. */
static int choose_dialect(struct code_request *r, struct err *err) {
    unsigned spoken = r->command ? (1U << CODER_DIALECT_COUNT) - 1 : r->def->dialects;
    bool demo = r->model.provider == MODEL_DEMO;
    r->dialect = r->model.provider == MODEL_OPENAI ? CODER_DIALECT_OPENAI : CODER_DIALECT_ANTHROPIC;
    if (demo && !r->command && !r->def->demo)
        return err_set(
            err, ERR_UNSUPPORTED,
            "the demo model plays for the agent \"coder\" only: set %s_API_KEY for \"%s\"",
            spoken & 1U ? "ANTHROPIC" : "OPENAI", r->def->name);
    if (demo && !(spoken & 1U << r->dialect))
        r->dialect = CODER_DIALECT_OPENAI;
    if (spoken & 1U << r->dialect)
        return 0;
    return err_set(err, ERR_BAD_REQUEST,
                   "the agent \"%s\" does not speak the language of \"%.100s\" (%s): name another "
                   "\"model\"",
                   r->def->name, r->model.id, coder_dialect_name(r->dialect));
}

int code_request_read(const struct code_request_rules *rules, const json_t *body,
                      struct code_request *ret, struct err *err) {
    struct code_request r = {.body = json_incref((json_t *)(uintptr_t)body),
                             .max_steps = rules->max_steps,
                             .timeout_ms = LIMIT_CODER_TIMEOUT_MS};
    const char *agent = "coder";
    const char *model = rules->model;
    const char *repo = NULL;
    int rc = read_values(&r, &agent, &model, &repo, err);
    if (rc == 0)
        rc = check_task(&r, err);
    if (rc == 0)
        rc = check_repo(&r, repo, err);
    if (rc == 0)
        rc = choose_agent(&r, rules, agent, err);
    if (rc == 0)
        rc = model_ask_find(rules->models, model, &r.model, err);
    if (rc == 0)
        rc = choose_dialect(&r, err);
    if (rc < 0)
        code_request_finish(&r);
    else
        *ret = r;
    return rc;
}

void code_request_finish(struct code_request *r) {
    json_decref(r->body);
    free(r->repo);
    *r = (struct code_request){0};
}

json_t *code_request_sandbox(const struct code_request *r, const char *job, int64_t timeout_s) {
    json_t *files = json_array();
    const json_t *given = json_object_get(r->body, "files");
    size_t i;
    json_t *f;
    json_array_foreach(given, i, f) {
        json_t *copy = json_copy(f);
        const json_t *name = json_object_get(f, "path");
        const char *path = json_string_value(name);
        /* One with a NUL is left as it is, and refused there. */
        if (path && *path != '/' && strlen(path) == json_string_length(name))
            (void)json_object_set_new(copy, "path", json_sprintf(CODE_DIR "/%s", path));
        (void)json_array_append_new(files, copy);
    }
    return json_pack("{s:s,s:o,s:O*,s:I,s:{s:s}}", "name", "coder", "files", files, "network",
                     json_object_get(r->body, "network"), "timeout_s", (json_int_t)timeout_s,
                     "metadata", "run", job);
}

char *code_request_title(const struct code_request *r) {
    const char *from = r->spec && *r->spec ? r->spec : r->command ? r->command : "";
    return xstrndup(from, utf8_floor(from, strcspn(from, "\r\n"), TITLE_BYTES));
}
