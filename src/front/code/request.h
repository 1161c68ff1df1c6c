#pragma once
/* What a coding job is asked for: the body of POST /v1/code, checked. */

#include "base/err.h"
#include "base/json.h"
#include "front/code/definition.h"
#include "front/model/model.h"
#include "front/sandbox/settings.h"

#include <stdbool.h>
#include <stdint.h>

struct code_request {
    json_t *body; /* which the texts are of */
    const char *spec;
    const char *command;
    const char *ref;
    const char *credential; /* a route of the settings */
    const char *sandbox;    /* one that is there; NULL: one is made */
    char *repo;
    const struct coder_def *def;
    struct model_info model;
    enum coder_dialect dialect;
    int64_t max_steps;
    int64_t timeout_ms;
    bool keep;
};

/* What it is checked against; borrowed. */
struct code_request_rules {
    const struct coder_def *defs;
    struct models *models;
    const char *model; /* the default; NULL: by the keys there are */
    int64_t max_steps; /* the default */
    const struct sandbox_settings *settings;
};

int code_request_read(const struct code_request_rules *rules, const json_t *body,
                      struct code_request *ret, struct err *err);
void code_request_finish(struct code_request *r);
/* The body of the sandbox that is made for it, whose files lie in the work folder. */
json_t *code_request_sandbox(const struct code_request *r, const char *job, int64_t timeout_s);
/* Its first line, for lists; the caller frees. */
char *code_request_title(const struct code_request *r);
