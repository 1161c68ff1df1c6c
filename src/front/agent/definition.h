#pragma once
/* An agent is a folder: agent.json (what it may do), prompt.md (its system prompt), SQL files (the
 * schema and first rows of its databases), demo.json (what the demo model does with it). Read whole
 * at start; an error names the file, the key and the reason. docs/agents.md describes the format.
 */

#include "base/err.h"
#include "base/json.h"
#include "front/tool/tool.h"
#include "wire/facet.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct agent_facet {
    char *name;
    struct facet_open open;
};

struct agent_binding { /* of the env, or of rpc */
    char *name;
    const struct agent_facet *facet; /* NULL: json */
    char **methods;                  /* NULL-terminated; of rpc: the one method */
    json_t *json;
};

enum agent_state_kind { AGENT_STATE_FACET, AGENT_STATE_EXECUTIONS, AGENT_STATE_VALUE };

struct agent_state_item {
    char *key;
    enum agent_state_kind kind;
    const struct agent_facet *facet;
    char *method;
    int64_t limit;
    json_t *value;
};

struct agent_budget { /* of one turn; 0: no limit */
    int64_t tokens;
    double cost_usd;
    int64_t wall_ms;
};

struct agent_def {
    struct agent_def *next;
    char *type; /* the folder's name: "sandbox-agent" */
    char *title;
    char *description;
    char *model; /* NULL: the server's default */
    char *prompt;
    int64_t max_steps;
    int64_t max_tokens;
    struct agent_budget budget;
    struct agent_facet *facets;
    size_t nfacets;
    struct agent_binding *env;
    size_t nenv;
    struct agent_binding *rpc;
    size_t nrpc;
    struct tool_offer *tools;
    size_t ntools;
    struct agent_state_item *state;
    size_t nstate;
    char *version; /* changes with what the state is made from */
    json_t *tries; /* what the page offers to ask */
    json_t *demo;  /* demo.json, or NULL */
};

/* Reads every folder in dir that has an agent.json. */
int agent_defs_load(const char *dir, struct agent_def **ret_defs, struct err *err);
void agent_defs_free(struct agent_def *defs);
const struct agent_def *agent_defs_find(const struct agent_def *defs, const char *type);
const struct tool_offer *agent_def_tool(const struct agent_def *def, const char *name);
/* Whether the facet has the method, and whether it may change the database. */
bool agent_facet_has(const struct agent_facet *f, const char *method);
bool agent_facet_changes(const struct agent_facet *f, const char *method);
