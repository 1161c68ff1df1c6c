#pragma once
/* The credentials of the operator: read once from the environment and from a .env file beside
 * cay.json, then removed from the environment, so that no child and no /proc/PID/environ shows
 * them. The process that holds them cannot be dumped or traced. */

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

enum secret {
    SECRET_ANTHROPIC_API_KEY,
    SECRET_ANTHROPIC_AUTH_TOKEN,
    SECRET_ANTHROPIC_BASE_URL,
    SECRET_OPENAI_API_KEY,
    SECRET_OPENAI_BASE_URL,
    SECRET_OPENAI_ORG_ID,
    SECRET_OPENAI_PROJECT_ID,
    SECRET_COUNT,
};

/* One of another name, for routes of sandboxes. */
struct secret_extra {
    char *name;
    char *value;
    bool used;
};

struct secrets {
    char *values[SECRET_COUNT]; /* NULL if it is not set */
    struct secret_extra *extras;
    size_t nextras;
    char *file; /* that the extras came from, or NULL */
};

const char *secret_name(enum secret which);
/* Reads `env_file` if it exists (NULL: none); what the environment has wins. */
int secrets_load(struct secrets *s, const char *env_file, struct err *err);
/* By name: one of the above, one of the file, or of the environment, from which it is removed. NULL
 * if there is none. */
const char *secrets_take(struct secrets *s, const char *name);
/* Says which names of the file nobody asked for: they may be misspelt. */
void secrets_warn_unused(const struct secrets *s);
void secrets_finish(struct secrets *s);
/* No core dumps, no ptrace by the same user, no /proc/PID/mem. After the last change of user. */
void secrets_protect_process(void);
