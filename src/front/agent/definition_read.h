#pragma once
/* Shared by the files that read an agent's folder: definition.c and grants.c. */

#include "front/agent/definition.h"

#include <stdbool.h>

/* A file beside agent.json; *ret_text is the caller's, NULL if it is optional and missing. */
int definition_read_text(const char *dir, const char *name, bool optional, char **ret_text,
                         struct err *err);
const struct agent_facet *definition_facet(const struct agent_def *d, const char *name);

/* Each takes the value of its key, or NULL. */
int definition_read_facets(struct agent_def *d, const char *dir, const json_t *obj,
                           struct err *err);
int definition_read_bindings(struct agent_def *d, const json_t *obj, bool rpc, struct err *err);
int definition_read_tools(struct agent_def *d, const json_t *list, struct err *err);
