#pragma once
/* What a coding job is asked for: a struct, which the reader of POST /v1/code fills, or that of
 * POST /execute (task.h). */

#include "base/err.h"
#include "base/json.h"
#include "front/code/definition.h"
#include "front/model/model.h"
#include "front/sandbox/network.h"
#include "front/sandbox/settings.h"

#include <stdbool.h>
#include <stdint.h>

struct code_request {
    json_t *tree;     /* a reference to what texts, files and options are of */
    const char *kind; /* of the job */
    const char *spec;
    const char *command;
    const char *agent; /* NULL: "coder" */
    const char *model; /* NULL: the setting's */
    const char *repo;
    const char *ref;
    const char *credential; /* a route of the settings */
    const char *sandbox;    /* one that is there; NULL: one is made */
    const json_t *files;    /* as sandbox_files_read() takes them, or NULL */
    struct network_ask network;
    bool has_network;   /* else the sandbox keeps what it has */
    int64_t max_steps;  /* 0: the setting's */
    int64_t timeout_ms; /* 0: the usual time */
    bool keep;
    bool changed_files; /* they become an artifact */
    bool gitignore;     /* what it names is not told of */
    bool include_diff;  /* what it changed is wanted */
    bool plan;          /* the agent may change nothing */
    const char *system_prompt;
    const char *append_system_prompt;
    double max_usd;        /* of its model; 0: what the settings say */
    const json_t *options; /* as they were asked for, for the record; NULL: none */
};

/* The body of POST /v1/code. */
int code_request_read(const json_t *body, struct code_request *ret, struct err *err);
void code_request_finish(struct code_request *r);
/* Its first line, for lists; the caller frees. */
char *code_request_title(const struct code_request *r);

/* What it is checked against; borrowed. */
struct code_request_rules {
    const struct coder_def *defs;
    struct models *models;
    const char *model; /* the default; NULL: by the keys there are */
    int64_t max_steps; /* the default */
    const struct sandbox_settings *settings;
    bool landlock; /* this machine has it */
};

/* What was chosen for it. */
struct code_resolved {
    const struct coder_def *def;
    struct model_info model;
    enum coder_dialect dialect;
    char *repo; /* its address; NULL: there is none */
};

/* Checks the request, and sets what it leaves to the server. */
int code_request_resolve(const struct code_request_rules *rules, struct code_request *r,
                         struct code_resolved *ret, struct err *err);
void code_resolved_finish(struct code_resolved *r);
/* The options of an agent that it asks for, 1 << enum coder_option. */
unsigned code_request_options(const struct code_request *r);
