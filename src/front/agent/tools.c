#include "base/id.h"
#include "base/log.h"
#include "base/mem.h"
#include "front/agent/internal.h"

#include <stdlib.h>

/* What an instance hands to its tools: its databases, what its programs hold, and the place where
 * their executions are kept. */

int executions_write(struct agent *a, struct err *err) {
    int rc = 0;
    for (const struct execution *e = a->executions; e && rc == 0; e = e->next)
        rc = history_add_execution(a->history, e->id, e->code, e->output, e->error, err);
    return rc;
}

void executions_forget(struct agent *a) {
    while (a->executions) {
        struct execution *e = a->executions;
        a->executions = e->next;
        free(e->code);
        free(e->output);
        free(e->error);
        free(e);
    }
}

static int write_executions(struct agent *a, struct err *err) {
    int rc = history_begin(a->history, err);
    if (rc < 0)
        return rc;
    rc = executions_write(a, err);
    int end = history_end(a->history, rc == 0, rc == 0 ? err : NULL);
    return rc < 0 ? rc : end;
}

/* The turn is over already: written now. */
static void agent_tools_settle(struct agent *a) {
    struct err err;
    if (write_executions(a, &err) < 0)
        log_error("agent.execution", "error", err.message);
    executions_forget(a);
    agent_sync(a, false);
}

static void agent_tools_on_execution(void *ctx, const struct tool_execution *e) {
    struct agent *a = ctx;
    struct execution *new = xmalloc(sizeof(*new));
    struct execution **at = &a->executions;
    *new = (struct execution){.code = xstrdup(e->code),
                              .output = xstrdup(e->output),
                              .error = e->error ? xstrdup(e->error) : NULL};
    (void)id_to_uuid(e->run, new->id); /* a run is also known by its UUID */
    while (*at)
        at = &(*at)->next;
    *at = new;
    if (e->cancelled)
        agent_tools_settle(a);
    else
        turns_hold(a);
}

static void make_binding(struct agent *a, const struct agent_binding *b, struct env_item *item) {
    *item = (struct env_item){.name = xstrdup(b->name), .fd = -1};
    if (!b->facet) {
        item->kind = ENV_JSON;
        item->json = json_incref(b->json);
        return;
    }
    item->kind = ENV_FACET;
    item->facet_dir = xasprintf("%s/facets/%s", a->dir, b->facet->name);
    item->facet_open = &b->facet->open;
    size_t n = 0;
    while (b->methods && b->methods[n])
        n++;
    if (n == 0)
        return;
    item->methods = xcalloc(n + 1, sizeof(*item->methods));
    for (size_t k = 0; k < n; k++)
        item->methods[k] = xstrdup(b->methods[k]);
}

static void make_facets(struct agent *a) {
    const struct agent_def *d = a->def;
    a->facets = xcalloc(d->nfacets + 1, sizeof(*a->facets));
    for (size_t i = 0; i < d->nfacets; i++) {
        char *dir;
        struct facet_ref ref = agent_facet_ref(a, &d->facets[i], &dir);
        a->facets[i] = (struct tool_facet){.name = d->facets[i].name, .ref = ref};
    }
}

struct tool_env *agent_tools(struct agent *a, const char *key) {
    const struct agents *all = a->agents;
    a->tool_env.key = key;
    if (a->facets)
        return &a->tool_env;
    a->bindings.items = xcalloc(a->def->nenv + 1, sizeof(*a->bindings.items));
    for (; a->bindings.n < a->def->nenv; a->bindings.n++)
        make_binding(a, &a->def->env[a->bindings.n], &a->bindings.items[a->bindings.n]);
    make_facets(a);
    a->tool_env = (struct tool_env){.later = &a->agents->later,
                                    .intake = all->opt.intake,
                                    .runner = all->opt.runner,
                                    .jobs = all->opt.jobs,
                                    .owner = a->owner,
                                    .key = key,
                                    .title = agent_title(a),
                                    .limits = all->opt.runner->config.limits,
                                    .bindings = &a->bindings,
                                    .facets = a->facets,
                                    .nfacets = a->def->nfacets,
                                    .result_bytes = all->opt.limits.tool_bytes,
                                    .on_execution = agent_tools_on_execution,
                                    .ctx = a};
    return &a->tool_env;
}

void agent_tools_rest(struct agent *a) {
    if (!a->facets || a->tool_env.left)
        return;
    for (size_t i = 0; i < a->def->nfacets; i++)
        free((char *)(uintptr_t)a->facets[i].ref.dir);
    free(a->facets);
    a->facets = NULL;
    free((char *)(uintptr_t)a->tool_env.title);
    a->tool_env = (struct tool_env){0};
    env_finish(&a->bindings);
    a->bindings = (struct env){0};
}

void agent_tools_finish(struct agent *a) {
    tool_env_finish(&a->tool_env);
    agent_tools_rest(a);
}
