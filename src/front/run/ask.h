#pragma once
/* A run as it is asked for: the body of POST /v1/run, or of a task, made into a run. */

#include "front/run/run.h"
#include "front/run/workers.h"

struct run_ask {
    struct runner *runner;
    struct jobs *jobs;
    struct workers *workers;
    const struct facet_open *facet_open;
    const char *id; /* NULL: one is made */
    const char *owner;
    const json_t *grants; /* of the key, or NULL */
    const json_t *body;
    bool stores_events;
    struct run_callbacks callbacks;
    void *ctx;
};

/* Whether the body describes a program. */
int run_ask_check(const struct run_ask *ask, struct err *err);
/* As run_start(). */
struct run *run_ask_start(const struct run_ask *ask, struct err *err);
