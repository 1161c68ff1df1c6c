#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/utf8.h"
#include "front/agent/internal.h"
#include "front/common/intake.h"
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
    struct intake_item *reading;
};

/* A large answer, which a thread reads. */
struct rpc_answer {
    struct rpc *rpc;
    char *json;
    size_t len;
    char *text;
    size_t text_len;
};

static void end_rpc(struct rpc *r, const char *result, size_t len, const json_t *error) {
    later_cancel(&r->refused);
    struct rpc **at = &r->agent->calls;
    while (*at && *at != r)
        at = &(*at)->next;
    if (*at)
        *at = r->next;
    r->done(r->ctx, result, len, error);
    json_decref(r->why);
    free(r);
}

static void agent_rpc_on_refused(void *ctx) {
    struct rpc *r = ctx;
    end_rpc(r, NULL, 0, r->why);
}

/* Takes why. */
static void agent_rpc_refuse(struct rpc *r, json_t *why) {
    r->why = why;
    r->changes = false;
    later_post(&r->agent->agents->later, &r->refused, agent_rpc_on_refused, r);
}

void rpcs_end(struct agent *a) {
    for (struct rpc *r = a->calls; r; r = r->next) {
        facet_op_cancel(r->op);
        r->op = NULL;
        if (r->reading)
            intake_cancel(r->reading);
        r->reading = NULL;
        if (!r->why)
            agent_rpc_refuse(r, json_string("the agent is gone"));
    }
}

static void end_with(struct rpc *r, const char *result, size_t len, const json_t *error) {
    struct agent *a = r->agent;
    bool changed = r->changes;
    end_rpc(r, result, len, error);
    a->used_ms = clock_mono_ms();
    if (changed)
        agent_sync(a, false);
}

static void agent_rpc_free_answer(void *ctx) {
    struct rpc_answer *w = ctx;
    free(w->json);
    free(w->text);
    free(w);
}

/* In any thread. */
static void agent_rpc_read_answer(void *ctx) {
    struct rpc_answer *w = ctx;
    size_t all;
    size_t kept;
    w->text = rows_text(w->json, w->len, SIZE_MAX, &w->text_len, &all, &kept);
}

static void agent_rpc_on_answer_read(void *ctx) {
    struct rpc_answer *w = ctx;
    struct rpc *r = w->rpc;
    struct intake *intake = r->agent->agents->opt.intake;
    r->reading = NULL;
    end_with(r, w->text, w->text_len, NULL);
    intake_dispose(intake, agent_rpc_free_answer, w);
}

/* A refusal is the answer's, not the call's, which was made. */
static void agent_rpc_read_apart(struct rpc *r, struct rpc_answer *w) {
    struct err err;
    r->reading = intake_start(r->agent->agents->opt.intake,
                              &(struct intake_ask){.owner = r->agent->owner,
                                                   .bytes = w->len,
                                                   .work = agent_rpc_read_answer,
                                                   .on_done = agent_rpc_on_answer_read,
                                                   .free = agent_rpc_free_answer,
                                                   .ctx = w},
                              &err);
    if (r->reading)
        return;
    agent_rpc_free_answer(w);
    _cleanup_(json) json_t *why = json_text(err.message);
    end_with(r, NULL, 0, why);
}

static void agent_rpc_on_answer(void *ctx, bool ok, const char *json, size_t len,
                                const struct err *err) {
    struct rpc *r = ctx;
    _cleanup_(json) json_t *error = ok ? NULL : rows_error(json, len, err);
    r->op = NULL;
    if (!ok) {
        end_with(r, NULL, 0, error);
        return;
    }
    struct rpc_answer *w = xcalloc(1, sizeof(*w));
    *w = (struct rpc_answer){.rpc = r, .json = xmalloc(len), .len = len};
    memcpy(w->json, json, len);
    if (r->agent->agents->opt.intake && len > LIMIT_READ_AT_ONCE_BYTES) {
        agent_rpc_read_apart(r, w);
        return;
    }
    agent_rpc_read_answer(w);
    end_with(r, w->text, w->text_len, NULL);
    agent_rpc_free_answer(w);
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
    _cleanup_(free) char *text = text_make(
        "Method %.100s %s", method, has_method(d, method) ? "is not callable" : "does not exist");
    return json_string(text);
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
        agent_rpc_refuse(r, no_method(a->def, method));
        return;
    }
    if (waiting >= RPC_MAX) {
        agent_rpc_refuse(r, json_sprintf("%d calls are under way already", RPC_MAX));
        return;
    }
    _cleanup_(free) char *dir = NULL;
    struct err err;
    if (agents_check_open(a->agents, &err) < 0) {
        agent_rpc_refuse(r, json_text(err.message));
        return;
    }
    struct facet_ref ref = agent_facet_ref(a, b->facet, &dir);
    r->changes = agent_facet_changes(b->facet, b->methods[0]);
    if (r->changes) {
        agent_use(a);
        agent_state_spoil(a);
    }
    r->op = facets_call(a->agents->opt.runner->facets, &ref, b->methods[0], args,
                        agent_rpc_on_answer, r, &err);
    if (!r->op)
        agent_rpc_refuse(r, json_text(err.message));
}
