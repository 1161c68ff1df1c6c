#pragma once
/* Where the definitions of agents lie: beside the build folder, or installed. */

#include "base/err.h"

struct agent_def;
struct coder_def;
struct config;

/* Chat agents: those of the folder that was named, or those that come with cay. None is no error,
 * and *ret_defs NULL. */
int definitions_load_agents(const struct config *config, struct agent_def **ret_defs,
                            struct err *err);
/* Kinds of coding agents: those that come with cay, and the operator's. */
int definitions_load_coders(const struct config *config, const char *programs_dir,
                            struct coder_def **ret_defs, struct err *err);
