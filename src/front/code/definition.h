#pragma once
/* Agent kinds: a file each, coders/NAME.json (docs/coder.md). A definition says which program is
 * started in the sandbox, how, and how its lines are read, so that another agent is a file. All of
 * them are read once, at the start, and their programs opened while their folders can be seen. */

#include "base/err.h"
#include "base/json.h"
#include "front/sandbox/exec.h"
#include "wire/coder.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CODER_DEF_NAME_MAX 40

enum coder_dialect { CODER_DIALECT_ANTHROPIC, CODER_DIALECT_OPENAI, CODER_DIALECT_COUNT };
const char *coder_dialect_name(enum coder_dialect dialect);

struct coder_def {
    struct coder_def *next;
    char name[CODER_DEF_NAME_MAX + 1];
    char *title;
    char *description;
    char *program; /* below the folder of its own */
    char *mount;
    json_t *arguments;
    json_t *environment;
    json_t *options; /* {OPTION: [argument...]}: what is added when it is asked for */
    bool own;        /* it comes with cay */
    bool demo;       /* the demo model can play for it */
    bool spec_is_input;
    unsigned dialects; /* 1 << enum coder_dialect */
    enum coder_lines lines;
    int64_t memory_mb;
    /* Where its program is. */
    char *found;    /* on this machine; NULL: nowhere */
    bool is_folder; /* found is the folder that holds it, not the program alone */
    const char *by; /* what led to it: "own", "setting" or "PATH" */
    int fd;         /* of that, with O_PATH; -1: it cannot be used */
    struct err why; /* it cannot */
};

/* Where to look; all of it borrowed. */
struct coder_places {
    const char *shipped;    /* folder of definitions; NULL: there is none */
    const char *added;      /* the operator's, over the former; or NULL */
    const char *own;        /* folder of the programs that come with cay */
    const json_t *programs; /* {NAME: path of a folder or a program}, or NULL */
    const char *path;       /* PATH, or NULL */
};

/* A list by name. A file that is no definition is an error that names it. */
int coder_defs_load(const struct coder_places *places, struct coder_def **ret_list,
                    struct err *err);
void coder_defs_free(struct coder_def *list);
const struct coder_def *coder_defs_find(const struct coder_def *list, const char *name);

/* Where its program, or the folder of that, is bound in a sandbox; the caller frees. */
char *coder_def_bind_path(const struct coder_def *d);

/* What can be asked for besides: each has arguments in a definition, or cannot be. */
enum coder_option {
    CODER_OPTION_WORK,          /* files may be changed */
    CODER_OPTION_PLAN,          /* they may not */
    CODER_OPTION_SYSTEM_PROMPT, /* instead of its own */
    CODER_OPTION_APPEND_PROMPT, /* behind it */
    CODER_OPTION_COUNT,
};
bool coder_def_has_option(const struct coder_def *d, enum coder_option option);

struct coder_fill {
    unsigned options; /* 1 << enum coder_option */
    const char *system_prompt;
    const char *append_system_prompt;
    const char *dir;
    const char *spec;
    const char *model;
    enum coder_dialect dialect;
    int64_t max_steps;
    int64_t timeout_ms;
};
/* Sets argv, env and the input of a request, whose spec must outlive it; the caller finishes it. */
void coder_def_command(const struct coder_def *d, const struct coder_fill *fill,
                       struct exec_request *ret);
