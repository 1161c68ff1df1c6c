#pragma once
/* What it takes to run programs: the compiler, the pool of isolates and the facets, with the limits
 * that hold unless a request asks for less. */

#include "base/err.h"
#include "base/json.h"
#include "front/common/setting.h"
#include "front/run/compiler.h"
#include "front/run/facets.h"
#include "front/run/pool.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct run_limits {
    uint32_t wall_ms;
    uint32_t cpu_ms;
    uint64_t memory_bytes;
    uint32_t output_bytes;
    uint32_t binding_calls;
    uint32_t module_bytes;
};

struct runner_config {
    struct run_limits limits; /* what a request may have at most, and has unless it asks for less */
    size_t isolates;          /* at work at a time */
    size_t ready_isolates;
    size_t waiting_runs;
    size_t facets;
    size_t warm_workers;
    size_t worker_cache_bytes; /* of the code of deployed workers */
    unsigned wait_ms;
    unsigned warm_idle_ms;
    unsigned compile_cpu_ms;
    unsigned compile_timeout_ms;
    size_t compile_cache_bytes;
    size_t compile_small_bytes;
    unsigned compile_small_cpu_ms;
    size_t compile_waiting_bytes;
    unsigned compile_idle_ms;
    unsigned isolate_gather;   /* 1: what a run writes to is put side by side (isolate/gather.h) */
    struct facet_limits facet; /* of every database */
    uint64_t isolates_memory_bytes; /* of all together; 0: three quarters of the machine's */
};

struct runner_config runner_config_default(void);
/* What of "limits" belongs here; at most 32. Returns how many there are. */
size_t runner_config_table(struct runner_config *c, struct setting *out);

struct runner {
    uv_loop_t *loop;
    struct later_queue later; /* of the pools and the guests */
    struct runner_config config;
    struct compiler *compiler;
    struct scout *scout;
    struct pool *pool;
    struct pool *reset_pool; /* NULL until somebody asks for it */
    struct facets *facets;
    struct pool_options pool_options;
};

struct runner_options {
    uv_loop_t *loop;
    struct runner_config config;
    int compile_fd; /* the programs, opened with O_PATH; borrowed */
    int isolate_fd;
    int facet_fd;
    const int *joins; /* control groups of the isolates; borrowed */
    size_t njoins;
    bool cold; /* for one run: start fast instead of running fast */
};

struct runner *runner_create(const struct runner_options *options);
/* The pool of isolates that put their memory back; its zygote starts with the first call. */
struct pool *runner_reset_pool(struct runner *r);
/* Ends all children. The pointer is dead when on_stopped is called. */
void runner_stop(struct runner *r, void (*on_stopped)(void *ctx), void *ctx);

/* --- the environment of a program: what its `env` holds --- */

enum env_kind { ENV_JSON, ENV_TEXT, ENV_FACET, ENV_WORKER };

#define ENV_BINDINGS_MAX 8 /* values that are capabilities: descriptors of one message */

struct env_item {
    char *name; /* NULL for ENV_TEXT */
    enum env_kind kind;
    json_t *json;     /* ENV_JSON: the value */
    struct buf *text; /* ENV_TEXT: members as the isolate gets them; a large one is taken */
    const struct facet_open *facet_open; /* ENV_FACET: NULL takes the env's; borrowed */
    char *facet_dir;                     /* ENV_FACET */
    char **methods;                      /* NULL-terminated, or NULL for all */
    int fd; /* ENV_WORKER: the isolate's end, made by whoever serves it */
};

struct env {
    struct env_item *items;
    size_t n;
    const struct facet_open *facet_open; /* how facets of this env are opened; borrowed */
};

void env_finish(struct env *e);
