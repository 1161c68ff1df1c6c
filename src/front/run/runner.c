#include "front/run/runner.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/mem.h"
#include "wire/isolate.h"

#include <stdlib.h>

struct runner_config runner_config_default(void) {
    return (struct runner_config){
        .limits = {.wall_ms = LIMIT_RUN_WALL_MS,
                   .cpu_ms = LIMIT_RUN_CPU_MS,
                   .memory_bytes = LIMIT_RUN_MEMORY_BYTES,
                   .output_bytes = LIMIT_RUN_OUTPUT_BYTES,
                   .binding_calls = LIMIT_RUN_BINDING_CALLS,
                   .module_bytes = LIMIT_RUN_MODULE_BYTES},
        .isolates = LIMIT_ISOLATES,
        .ready_isolates = LIMIT_READY_ISOLATES,
        .waiting_runs = LIMIT_WAITING_RUNS,
        .facets = LIMIT_FACETS,
        .warm_workers = LIMIT_WARM_WORKERS,
        .wait_ms = LIMIT_WAIT_MS,
        .warm_idle_ms = LIMIT_WARM_IDLE_MS,
        .compile_cpu_ms = LIMIT_COMPILE_CPU_MS,
        .compile_timeout_ms = LIMIT_COMPILE_TIMEOUT_MS,
        .compile_cache_bytes = LIMIT_COMPILE_CACHE_BYTES,
        .compile_small_bytes = LIMIT_COMPILE_SMALL_BYTES,
        .compile_small_cpu_ms = LIMIT_COMPILE_SMALL_CPU_MS,
        .compile_waiting_bytes = LIMIT_COMPILE_WAITING_BYTES,
        .compile_idle_ms = LIMIT_COMPILE_IDLE_MS,
        /* Leaving libraries out of the fork gains nothing that can be measured here, and whatever
         * still calls into one of them crashes. */
        .isolate_levers = ISOLATE_LEVER_ALL & ~(uint32_t)ISOLATE_LEVER_DIET,
    };
}

const char *const runner_limit_keys[] = {"run_wall_ms",
                                         "run_cpu_ms",
                                         "run_memory_bytes",
                                         "run_output_bytes",
                                         "run_binding_calls",
                                         "run_module_bytes",
                                         "isolates",
                                         "isolates_memory_bytes",
                                         "ready_isolates",
                                         "waiting_runs",
                                         "wait_ms",
                                         "facets",
                                         "warm_workers",
                                         "warm_idle_ms",
                                         "compile_cpu_ms",
                                         "compile_timeout_ms",
                                         "compile_cache_bytes",
                                         "compile_small_bytes",
                                         "compile_small_cpu_ms",
                                         "compile_waiting_bytes",
                                         "compile_idle_ms",
                                         NULL};

int runner_config_read(struct runner_config *c, const json_t *limits, struct err *err) {
    struct run_limits *l = &c->limits;
    struct {
        const char *key;
        uint32_t *u32;
        uint64_t *u64;
        size_t *size;
        int64_t min;
        int64_t max;
    } table[] = {
        {"run_wall_ms", &l->wall_ms, NULL, NULL, 1, 86400000},
        {"run_cpu_ms", &l->cpu_ms, NULL, NULL, 1, 86400000},
        {"run_memory_bytes", NULL, &l->memory_bytes, NULL, 16 << 20, (int64_t)1 << 40},
        {"run_output_bytes", &l->output_bytes, NULL, NULL, 1024, 256 << 20},
        {"run_binding_calls", &l->binding_calls, NULL, NULL, 1, 1 << 30},
        {"run_module_bytes", &l->module_bytes, NULL, NULL, 1024, 64 << 20},
        {"isolates", NULL, NULL, &c->isolates, 1, 100000},
        {"isolates_memory_bytes", NULL, &c->isolates_memory_bytes, NULL, 0, (int64_t)1 << 50},
        {"ready_isolates", NULL, NULL, &c->ready_isolates, 1, 10000},
        {"waiting_runs", NULL, NULL, &c->waiting_runs, 0, 1000000},
        {"wait_ms", &c->wait_ms, NULL, NULL, 1, 3600000},
        {"facets", NULL, NULL, &c->facets, 1, 100000},
        {"warm_workers", NULL, NULL, &c->warm_workers, 1, 100000},
        {"warm_idle_ms", &c->warm_idle_ms, NULL, NULL, 100, 86400000},
        {"compile_cpu_ms", &c->compile_cpu_ms, NULL, NULL, 100, 600000},
        {"compile_timeout_ms", &c->compile_timeout_ms, NULL, NULL, 100, 600000},
        {"compile_cache_bytes", NULL, NULL, &c->compile_cache_bytes, 0, (int64_t)1 << 32},
        {"compile_small_bytes", NULL, NULL, &c->compile_small_bytes, 0, 64 << 20},
        {"compile_small_cpu_ms", &c->compile_small_cpu_ms, NULL, NULL, 1, 600000},
        {"compile_waiting_bytes", NULL, NULL, &c->compile_waiting_bytes, 0, (int64_t)1 << 40},
        {"compile_idle_ms", &c->compile_idle_ms, NULL, NULL, 1, 86400000},
    };
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(table); i++) {
        int64_t v = table[i].u32    ? (int64_t)*table[i].u32
                    : table[i].u64  ? (int64_t)*table[i].u64
                    : table[i].size ? (int64_t)*table[i].size
                                    : 0;
        rc = json_get_int(limits, table[i].key, table[i].min, table[i].max, &v, err);
        if (table[i].u32)
            *table[i].u32 = (uint32_t)v;
        else if (table[i].u64)
            *table[i].u64 = (uint64_t)v;
        else if (table[i].size)
            *table[i].size = (size_t)v;
    }
    return rc;
}

struct runner *runner_create(const struct runner_options *o) {
    struct runner *r = xcalloc(1, sizeof(*r));
    r->loop = o->loop;
    r->config = o->config;
    later_queue_init(&r->later, o->loop);
    const struct runner_config *c = &o->config;
    r->compiler = compiler_create(&(struct compiler_options){
        .loop = o->loop,
        .exec_fd = o->compile_fd,
        .drop = o->drop,
        .uid = o->uid,
        .gid = o->gid,
        .cache_bytes = c->compile_cache_bytes,
        .small_bytes = c->compile_small_bytes,
        .small_cpu_ms = c->compile_small_cpu_ms,
        .cpu_ms = c->compile_cpu_ms,
        .timeout_ms = c->compile_timeout_ms,
        .waiting_bytes = c->compile_waiting_bytes,
        .idle_ms = c->compile_idle_ms,
        .cold = o->cold,
    });
    r->pool_options = (struct pool_options){
        .loop = o->loop,
        .later = &r->later,
        .exec_fd = o->isolate_fd,
        .joins = o->joins,
        .njoins = o->njoins,
        .drop = o->drop,
        .uid = o->uid,
        .gid = o->gid,
        .ready = c->ready_isolates,
        .max = c->isolates,
        .max_waiting = c->waiting_runs,
        .wait_ms = c->wait_ms,
        .retire_forks = 5000,
        /* An upper bound for the zygote; each isolate lowers it to its own limit. */
        .memory_max_bytes = c->limits.memory_bytes + ((uint64_t)1 << 30),
        .cpu_max_s = c->limits.cpu_ms / 1000 + 1,
        .levers = o->cold ? 0 : c->isolate_levers,
    };
    r->pool = pool_create(&r->pool_options);
    r->facets = facets_create(&(struct facets_options){.loop = o->loop,
                                                       .exec_fd = o->facet_fd,
                                                       .drop = o->drop,
                                                       .uid = o->uid,
                                                       .gid = o->gid,
                                                       .max = c->facets});
    return r;
}

struct pool *runner_reset_pool(struct runner *r) {
    if (!r->reset_pool) {
        struct pool_options o = r->pool_options;
        o.reset = true;
        o.elder = r->pool;
        o.ready = 2; /* most are used again */
        r->reset_pool = pool_create(&o);
    }
    return r->reset_pool;
}

struct stop {
    struct runner *runner;
    unsigned left;
    void (*on_stopped)(void *ctx);
    void *ctx;
};

static void on_later_closed(uv_handle_t *h) {
    struct stop *s = h->data;
    compiler_destroy(s->runner->compiler);
    free(s->runner);
    if (s->on_stopped)
        s->on_stopped(s->ctx);
    free(s);
}

static void on_part_stopped(void *ctx) {
    struct stop *s = ctx;
    if (--s->left == 0)
        later_queue_close(&s->runner->later, on_later_closed, s);
}

void runner_stop(struct runner *r, void (*on_stopped)(void *ctx), void *ctx) {
    struct stop *s = xmalloc(sizeof(*s));
    *s = (struct stop){
        .runner = r, .left = r->reset_pool ? 4 : 3, .on_stopped = on_stopped, .ctx = ctx};
    if (r->reset_pool)
        pool_stop(r->reset_pool, on_part_stopped, s);
    compiler_stop(r->compiler, on_part_stopped, s);
    pool_stop(r->pool, on_part_stopped, s);
    facets_stop(r->facets, on_part_stopped, s);
}

void env_finish(struct env *e) {
    for (size_t i = 0; i < e->n; i++) {
        struct env_item *item = &e->items[i];
        free(item->name);
        json_decref(item->json);
        free(item->facet_dir);
        for (size_t k = 0; item->methods && item->methods[k]; k++)
            free(item->methods[k]);
        free(item->methods);
        fd_close(&item->fd);
    }
    free(e->items);
    *e = (struct env){0};
}
