#pragma once
/* A run as it is asked for: the body of POST /v1/run, or of a task, made into a run. */

#include "front/run/code.h"
#include "front/run/run.h"
#include "front/run/workers.h"

/* A body that was read. */
struct run_asked {
    json_t *body; /* without the members that the code has taken over */
    struct code code;
    json_t *asked; /* what the record keeps of it; or NULL */
};

struct run_ask {
    struct runner *runner;
    struct jobs *jobs;
    struct workers *workers;
    const char *id;    /* NULL: one is made */
    const char *owner; /* the project */
    const char *key;   /* whose grants bound what its env may hold; "" for the operator */
    const json_t *body;
    struct run_asked *read; /* of the body, if it was read already: its spec is taken; or NULL */
    bool stores_events;
    struct run_callbacks callbacks;
    void *ctx;
};

/* Reads the text of a body; in any thread. */
int run_ask_read(const char *text, size_t len, const struct run_limits *max,
                 struct run_asked **ret_asked, struct err *err);
void run_asked_destroy(struct run_asked *a);
/* Whether the body describes a program; in any thread. */
int run_ask_check(const json_t *body, const struct run_limits *max, struct err *err);
/* As run_start(). */
struct run *run_ask_start(const struct run_ask *ask, struct err *err);
