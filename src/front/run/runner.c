#include "front/run/runner.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/mem.h"
#include "wire/isolate.h"

#include <stdlib.h>
#include <string.h>

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
        .worker_cache_bytes = LIMIT_WORKER_CACHE_BYTES,
        .wait_ms = LIMIT_WAIT_MS,
        .warm_idle_ms = LIMIT_WARM_IDLE_MS,
        .compile_cpu_ms = LIMIT_COMPILE_CPU_MS,
        .compile_timeout_ms = LIMIT_COMPILE_TIMEOUT_MS,
        .compile_cache_bytes = LIMIT_COMPILE_CACHE_BYTES,
        .compile_small_bytes = LIMIT_COMPILE_SMALL_BYTES,
        .compile_small_cpu_ms = LIMIT_COMPILE_SMALL_CPU_MS,
        .compile_waiting_bytes = LIMIT_COMPILE_WAITING_BYTES,
        .compile_idle_ms = LIMIT_COMPILE_IDLE_MS,
        .isolate_gather = 1,
        .facet = {.rows = LIMIT_FACET_ROWS,
                  .time_ms = LIMIT_FACET_TIME_MS,
                  .disk_bytes = LIMIT_FACET_DISK_BYTES,
                  .memory_bytes = LIMIT_FACET_MEMORY_BYTES},
    };
}

size_t runner_config_table(struct runner_config *c, struct setting *out) {
    struct run_limits *l = &c->limits;
    const struct setting table[] = {
        SETTING("run_wall_ms", l->wall_ms, 1, 86400000),
        SETTING_FIXED("run_cpu_ms", l->cpu_ms, 1, 86400000),
        SETTING_FIXED("run_memory_bytes", l->memory_bytes, 16 << 20, (int64_t)1 << 40),
        SETTING("run_output_bytes", l->output_bytes, 1024, 256 << 20),
        SETTING("run_binding_calls", l->binding_calls, 1, 1 << 30),
        SETTING("run_module_bytes", l->module_bytes, 1024, 64 << 20),
        SETTING_FIXED("isolates", c->isolates, 1, 100000),
        SETTING_FIXED("isolates_memory_bytes", c->isolates_memory_bytes, 0, (int64_t)1 << 50),
        SETTING_FIXED("ready_isolates", c->ready_isolates, 1, 10000),
        SETTING_FIXED("isolate_gather", c->isolate_gather, 0, 1),
        SETTING_FIXED("waiting_runs", c->waiting_runs, 0, 1000000),
        SETTING_FIXED("wait_ms", c->wait_ms, 1, 3600000),
        SETTING_FIXED("facets", c->facets, 1, 100000),
        SETTING_FIXED("facet_rows", c->facet.rows, 1, 1000000),
        SETTING_FIXED("facet_time_ms", c->facet.time_ms, 1, 3600000),
        SETTING_FIXED("facet_disk_bytes", c->facet.disk_bytes, 1 << 20, (int64_t)1 << 40),
        SETTING_FIXED("facet_memory_bytes", c->facet.memory_bytes, 8 << 20, (int64_t)1 << 40),
        SETTING_FIXED("warm_workers", c->warm_workers, 1, 100000),
        SETTING_FIXED("worker_cache_bytes", c->worker_cache_bytes, 0, (int64_t)1 << 32),
        SETTING_FIXED("warm_idle_ms", c->warm_idle_ms, 100, 86400000),
        SETTING_FIXED("compile_cpu_ms", c->compile_cpu_ms, 100, 600000),
        SETTING_FIXED("compile_timeout_ms", c->compile_timeout_ms, 100, 600000),
        SETTING_FIXED("compile_cache_bytes", c->compile_cache_bytes, 0, (int64_t)1 << 32),
        SETTING_FIXED("compile_small_bytes", c->compile_small_bytes, 0, 64 << 20),
        SETTING_FIXED("compile_small_cpu_ms", c->compile_small_cpu_ms, 1, 600000),
        SETTING_FIXED("compile_waiting_bytes", c->compile_waiting_bytes, 0, (int64_t)1 << 40),
        SETTING_FIXED("compile_idle_ms", c->compile_idle_ms, 1, 86400000),
    };
    memcpy(out, table, sizeof(table));
    return ARRAY_LEN(table);
}

static uint32_t levers_of(const struct runner_options *o) {
    if (o->cold)
        return 0;
    return o->config.isolate_gather ? ISOLATE_LEVER_ALL
                                    : ISOLATE_LEVER_ALL & ~(uint32_t)ISOLATE_LEVER_GATHER;
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
        .cache_bytes = c->compile_cache_bytes,
        .small_bytes = c->compile_small_bytes,
        .small_cpu_ms = c->compile_small_cpu_ms,
        .cpu_ms = c->compile_cpu_ms,
        .timeout_ms = c->compile_timeout_ms,
        .waiting_bytes = c->compile_waiting_bytes,
        .idle_ms = c->compile_idle_ms,
        .cold = o->cold,
    });
    struct zygote_options zygote = {
        .loop = o->loop,
        .exec_fd = o->isolate_fd,
        .joins = o->joins,
        .njoins = o->njoins,
        /* An upper bound for the zygote; each isolate lowers it to its own limit. */
        .memory_max_bytes = c->limits.memory_bytes + ((uint64_t)1 << 30),
        .cpu_max_s = c->limits.cpu_ms / 1000 + 1,
        .levers = levers_of(o),
    };
    r->scout = scout_create(&zygote, &r->later);
    r->pool_options = (struct pool_options){
        .zygote = zygote,
        .scout = r->scout,
        .later = &r->later,
        .ready = c->ready_isolates,
        .max = c->isolates,
        .max_waiting = c->waiting_runs,
        .wait_ms = c->wait_ms,
        .retire_forks = 5000,
    };
    r->pool = pool_create(&r->pool_options);
    r->facets = facets_create(&(struct facets_options){
        .loop = o->loop, .exec_fd = o->facet_fd, .max = c->facets, .limits = c->facet});
    return r;
}

struct pool *runner_reset_pool(struct runner *r) {
    if (!r->reset_pool) {
        struct pool_options o = r->pool_options;
        o.reset = true;
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

static void runner_on_later_closed(uv_handle_t *h) {
    struct stop *s = h->data;
    compiler_destroy(s->runner->compiler);
    free(s->runner);
    if (s->on_stopped)
        s->on_stopped(s->ctx);
    free(s);
}

static void runner_on_part_stopped(void *ctx) {
    struct stop *s = ctx;
    s->left--;
    /* Programs look at their databases until their isolates have ended. */
    if (s->left == 1)
        facets_stop(s->runner->facets, runner_on_part_stopped, s);
    else if (s->left == 0)
        later_queue_close(&s->runner->later, runner_on_later_closed, s);
}

void runner_stop(struct runner *r, void (*on_stopped)(void *ctx), void *ctx) {
    struct stop *s = xmalloc(sizeof(*s));
    *s = (struct stop){
        .runner = r, .left = r->reset_pool ? 5 : 4, .on_stopped = on_stopped, .ctx = ctx};
    if (r->reset_pool)
        pool_stop(r->reset_pool, runner_on_part_stopped, s);
    compiler_stop(r->compiler, runner_on_part_stopped, s);
    scout_stop(r->scout, runner_on_part_stopped, s);
    pool_stop(r->pool, runner_on_part_stopped, s);
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
