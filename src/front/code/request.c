#include "front/code/request.h"

#include "base/cleanup.h"
#include "base/json_table.h"
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

int code_request_read(const json_t *body, struct code_request *ret, struct err *err) {
    static const struct json_field table[] = {
        JSON_TEXT("spec", struct code_request, spec),
        JSON_TEXT("command", struct code_request, command),
        JSON_TEXT("agent", struct code_request, agent),
        JSON_TEXT("model", struct code_request, model),
        JSON_TEXT("repo", struct code_request, repo),
        JSON_TEXT("ref", struct code_request, ref),
        JSON_TEXT("credential", struct code_request, credential),
        JSON_TEXT("sandbox", struct code_request, sandbox),
        JSON_BOOL("keep", struct code_request, keep),
        JSON_BOOL("changed_files", struct code_request, changed_files),
        JSON_BOOL("gitignore", struct code_request, gitignore),
        JSON_INT("max_steps", struct code_request, max_steps, 1, LIMIT_CODER_MAX_STEPS_MAX),
        JSON_INT("timeout_ms", struct code_request, timeout_ms, 1000, TIMEOUT_MAX_MS),
        JSON_LIST_MAX("files", struct code_request, files, SANDBOX_FILES_MAX),
        JSON_READ("network", struct code_request, network, network_ask_read, "object"),
    };
    JSON_SHAPE("CodeRequest", table);
    struct code_request r = {.tree = json_incref((json_t *)(uintptr_t)body),
                             .kind = "code",
                             .include_diff = true,
                             .keep = json_is_string(json_object_get(body, "sandbox")),
                             .gitignore = json_is_string(json_object_get(body, "repo")),
                             .has_network = json_object_get(body, "network") != NULL};
    int rc = json_table_read(table, ARRAY_LEN(table), body, "the request", &r, err);
    if (rc < 0) {
        code_request_finish(&r);
        return rc;
    }
    *ret = r;
    return 0;
}

void code_request_finish(struct code_request *r) {
    network_ask_finish(&r->network);
    json_decref(r->tree);
    *r = (struct code_request){0};
}

char *code_request_title(const struct code_request *r) {
    const char *from = r->spec && *r->spec ? r->spec : r->command ? r->command : "";
    return xstrndup(from, utf8_floor(from, strcspn(from, "\r\n"), TITLE_BYTES));
}

unsigned code_request_options(const struct code_request *r) {
    unsigned o = 1U << (r->plan ? CODER_OPTION_PLAN : CODER_OPTION_WORK);
    if (r->system_prompt)
        o |= 1U << CODER_OPTION_SYSTEM_PROMPT;
    if (r->append_system_prompt)
        o |= 1U << CODER_OPTION_APPEND_PROMPT;
    return o;
}

/* --- checks --- */

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

static int check_repo(const struct code_request *r, char **ret_repo, struct err *err) {
    if (!r->repo && (r->ref || r->credential))
        return err_set(err, ERR_BAD_REQUEST, "\"ref\" and \"credential\" are of a \"repo\"");
    if (r->repo && r->sandbox)
        return err_set(err, ERR_BAD_REQUEST,
                       "a \"repo\" goes into a new sandbox: leave \"sandbox\" out");
    if (json_array_size(r->files) > 0 && (r->repo || r->sandbox))
        return err_set(err, ERR_BAD_REQUEST,
                       "\"files\" go into a new and empty sandbox: leave \"%s\" out",
                       r->repo ? "repo" : "sandbox");
    if (r->ref && !code_tree_is_ref(r->ref))
        return err_set(err, ERR_BAD_REQUEST,
                       "\"ref\" must be the name of a branch or tag, or a commit");
    return r->repo ? code_repo_check(r->repo, ret_repo, err) : 0;
}

static int choose_agent(const struct code_request *r, const struct code_request_rules *rules,
                        const struct coder_def **ret, struct err *err) {
    char known[200] = "";
    const struct coder_def *def = coder_defs_find(rules->defs, r->agent);
    for (const struct coder_def *d = rules->defs; d; d = d->next) {
        size_t n = strlen(known);
        (void)snprintf(known + n, sizeof(known) - n, "%s\"%s\"", n ? ", " : "", d->name);
    }
    if (!def)
        return err_set(err, ERR_BAD_REQUEST, "there is no agent \"%.60s\"; there is %s", r->agent,
                       *known ? known : "none: name their folder in the setting \"coders_dir\"");
    *ret = def;
    if (r->command)
        return 0;
    if (def->fd < 0)
        return err_set(err, ERR_UNSUPPORTED, "the agent \"%s\" cannot be used: %.400s", def->name,
                       def->why.message);
    if (def->memory_mb > rules->settings->memory_mb)
        return err_set(err, ERR_UNSUPPORTED,
                       "the agent \"%s\" needs %lld MiB, and sandboxes have %u (setting "
                       "sandboxes.memory_mb)",
                       def->name, (long long)def->memory_mb, rules->settings->memory_mb);
    return 0;
}

/* A model of either dialect will do for a command; an agent has those it speaks. */
static int choose_dialect(const struct code_request *r, struct code_resolved *p, struct err *err) {
    unsigned spoken = r->command ? (1U << CODER_DIALECT_COUNT) - 1 : p->def->dialects;
    bool demo = p->model.provider == MODEL_DEMO;
    p->dialect = p->model.provider == MODEL_OPENAI ? CODER_DIALECT_OPENAI : CODER_DIALECT_ANTHROPIC;
    if (demo && !r->command && !p->def->demo)
        return err_set(
            err, ERR_UNSUPPORTED,
            "the demo model plays for the agent \"coder\" only: set %s_API_KEY for \"%s\"",
            spoken & 1U ? "ANTHROPIC" : "OPENAI", p->def->name);
    if (demo && !(spoken & 1U << p->dialect))
        p->dialect = CODER_DIALECT_OPENAI;
    if (spoken & 1U << p->dialect)
        return 0;
    return err_set(err, ERR_BAD_REQUEST,
                   "the agent \"%s\" does not speak the language of \"%.100s\" (%s): name another "
                   "\"model\"",
                   p->def->name, p->model.id, coder_dialect_name(p->dialect));
}

/* The terms must be some that the agent, its model and this machine have. */
static int check_terms(const struct code_request_rules *rules, const struct code_request *r,
                       const struct code_resolved *p, struct err *err) {
    static const char *const names[] = {"", "the permission mode \"plan\"", "a system prompt",
                                        "a system prompt that is added"};
    unsigned options = code_request_options(r);
    for (unsigned i = CODER_OPTION_PLAN; i < CODER_OPTION_COUNT; i++)
        if (options & 1U << i && !coder_def_has_option(p->def, i))
            return err_set(err, ERR_BAD_REQUEST, "the agent \"%s\" cannot be given %s",
                           p->def->name, names[i]);
    if (r->plan && !rules->landlock)
        return err_set(err, ERR_UNSUPPORTED,
                       "\"plan\" needs Landlock, which the kernel of this machine does not have");
    return model_ask_check_budget(&p->model, r->max_usd, err);
}

int code_request_resolve(const struct code_request_rules *rules, struct code_request *r,
                         struct code_resolved *ret, struct err *err) {
    struct code_resolved p = {0};
    if (!r->agent)
        r->agent = "coder";
    if (!r->model)
        r->model = rules->model;
    if (!r->max_steps)
        r->max_steps = rules->max_steps;
    if (!r->timeout_ms)
        r->timeout_ms = LIMIT_CODER_TIMEOUT_MS;
    if (r->plan)
        r->include_diff = false; /* there is nothing to tell */
    int rc = check_task(r, err);
    if (rc == 0)
        rc = check_repo(r, &p.repo, err);
    if (rc == 0)
        rc = choose_agent(r, rules, &p.def, err);
    if (rc == 0)
        rc = model_ask_find(rules->models, r->model, &p.model, err);
    if (rc == 0)
        rc = choose_dialect(r, &p, err);
    if (rc == 0 && p.model.provider == MODEL_DEMO)
        r->max_usd = 0; /* it costs nothing */
    if (rc == 0)
        rc = check_terms(rules, r, &p, err);
    if (rc < 0)
        code_resolved_finish(&p);
    else
        *ret = p;
    return rc;
}

void code_resolved_finish(struct code_resolved *r) {
    free(r->repo);
    *r = (struct code_resolved){0};
}
