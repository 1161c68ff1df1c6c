#include "base/cleanup.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "front/agent/internal.h"
#include "front/tool/rows.h"

#include <stdlib.h>
#include <string.h>

/* Methods of agent.json that clients call. */

enum { RPC_MAX = 256 };

struct rpc {
    struct rpc *next;
    struct agent *agent;
    struct facet_op *op;
    agent_rpc_done done;
    void *ctx;
    bool changes;
    struct later refused; /* it was not begun... */
    json_t *why;          /* ...because of this */
};

static void end_rpc(struct rpc *r, const json_t *result, const json_t *error) {
    later_cancel(&r->refused);
    struct rpc **at = &r->agent->calls;
    while (*at && *at != r)
        at = &(*at)->next;
    if (*at)
        *at = r->next;
    r->done(r->ctx, result, error);
    json_decref(r->why);
    free(r);
}

static void on_refused(void *ctx) {
    struct rpc *r = ctx;
    end_rpc(r, NULL, r->why);
}

/* Takes why. */
static void refuse(struct rpc *r, json_t *why) {
    r->why = why;
    r->changes = false;
    later_post(&r->agent->agents->later, &r->refused, on_refused, r);
}

void rpcs_end(struct agent *a) {
    for (struct rpc *r = a->calls; r; r = r->next) {
        facet_op_cancel(r->op);
        r->op = NULL;
        if (!r->why)
            refuse(r, json_string("the agent is gone"));
    }
}

static void on_rpc_answer(void *ctx, bool ok, const char *json, size_t len, const struct err *err) {
    struct rpc *r = ctx;
    struct agent *a = r->agent;
    bool changed = r->changes;
    _cleanup_(json) json_t *result = ok ? rows_read(json, len) : NULL;
    _cleanup_(json) json_t *error = ok ? NULL : rows_error(json, len, err);
    end_rpc(r, result, error);
    a->used_ms = clock_mono_ms();
    if (changed)
        agent_sync(a, NULL);
}

/* Whether the agent has such a method at all: then it is one that clients may not call. */
static bool has_method(const struct agent_def *d, const char *method) {
    if (agent_def_tool(d, method) || (*method == '_' && agent_def_tool(d, method + 1)))
        return true;
    for (size_t i = 0; i < d->nfacets; i++)
        if (agent_facet_has(&d->facets[i], method))
            return true;
    return false;
}

static json_t *no_method(const struct agent_def *d, const char *method) {
    size_t n = utf8_floor(method, strlen(method), 100);
    return json_sprintf("Method %.*s %s", (int)n, method,
                        has_method(d, method) ? "is not callable" : "does not exist");
}

void agent_rpc(struct agent *a, const char *method, const char *args, agent_rpc_done done,
               void *ctx) {
    const struct agent_binding *b = NULL;
    size_t waiting = 0;
    for (size_t i = 0; i < a->def->nrpc && !b; i++)
        if (strcmp(a->def->rpc[i].name, method) == 0)
            b = &a->def->rpc[i];
    for (const struct rpc *r = a->calls; r; r = r->next)
        waiting++;
    struct rpc *r = xcalloc(1, sizeof(*r));
    *r = (struct rpc){.next = a->calls, .agent = a, .done = done, .ctx = ctx};
    a->calls = r;
    if (!b) {
        refuse(r, no_method(a->def, method));
        return;
    }
    if (waiting >= RPC_MAX) {
        refuse(r, json_sprintf("%d calls are under way already", RPC_MAX));
        return;
    }
    _cleanup_(free) char *dir = NULL;
    struct err err;
    struct facet_ref ref = agent_facet_ref(a, b->facet, &dir);
    r->changes = agent_facet_changes(b->facet, b->methods[0]);
    if (r->changes) {
        agent_use(a);
        agent_state_spoil(a);
    }
    r->op = facets_call(a->agents->opt.runner->facets, &ref, b->methods[0], args, on_rpc_answer, r,
                        &err);
    if (!r->op)
        refuse(r, json_text(err.message));
}
