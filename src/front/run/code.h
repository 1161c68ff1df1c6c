#pragma once
/* WorkerCode: the JSON that describes a program, as the Worker Loader has it, read and checked.
 *   {"code"} or {"mainModule","modules"}, "env", "globalOutbound": null, "limits", "entrypoint",
 *   "method", "args", "props", "id", "isolation": "fresh" | "reset", "title", "verify", "tails",
 * "compatibilityDate", "compatibilityFlags" */

#include "front/run/programs.h"
#include "front/run/runner.h"

/* A piece of an env: plain values, as members of the env that the isolate gets, or one that is a
 * capability. */
struct code_env_part {
    struct buf text;
    char *name; /* of a capability; NULL: text */
    json_t *json;
};

enum { CODE_ENV_PARTS = 2 * ENV_BINDINGS_MAX + 1 };

struct code {
    struct buf source; /* the compile request */
    unsigned char source_hash[PROGRAM_HASH_SIZE];
    struct buf spec; /* the call for the isolate */
    char *main_code; /* source of the main module (or of user-code.js beside a harness) */
    const char *id;  /* NULL: one-shot. Borrowed from the JSON, like the next two */
    const char *title;
    bool reset;                               /* "isolation": "reset" */
    struct code_env_part env[CODE_ENV_PARTS]; /* in the order they were given */
    size_t nenv;
    unsigned char env_hash[PROGRAM_HASH_SIZE]; /* of one with an id, or that resets */
    const json_t *tails;
    struct run_limits limits;
};

/* json must outlive the result, but for its "env". May be called in any thread. */
int code_read(struct code *c, const json_t *json, const struct run_limits *max, struct err *err);
void code_finish(struct code *c);
/* 1 to 63 of [a-z0-9-], not at the ends "-": fits a host name. */
bool code_is_worker_id(const char *id);

/* The trust domain of a program: the owner and what its env gives it. The caller frees. */
char *code_domain(const struct code *c, const char *owner);
