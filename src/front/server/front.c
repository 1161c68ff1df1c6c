/* The composition: which rooms there are, in which order they open and close. What a room does is
 * its own affair; what it is given is decided here. */

#include "front/server/front.h"
#include "front/server/drain.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/path.h"
#include "front/account/account.h"
#include "front/agent/agent.h"
#include "front/code/code.h"
#include "front/code/door.h"
#include "front/code/route.h"
#include "front/common/intake.h"
#include "front/common/lock.h"
#include "front/common/rate.h"
#include "front/execute/execute.h"
#include "front/http/asset.h"
#include "front/job/job.h"
#include "front/ledger/db.h"
#include "front/run/databases.h"
#include "front/run/tails.h"
#include "front/run/workers.h"
#include "front/sandbox/sandboxes.h"
#include "front/server/guard.h"
#include "front/server/reload.h"
#include "front/server/sessions.h"
#include "front/start/data_dir.h"
#include "front/start/definitions.h"
#include "front/start/isolate_group.h"
#include "front/start/open_files.h"
#include "front/start/service.h"
#include "front/start/siblings.h"
#include "front/store/caretaker.h"
#include "front/task/tasks.h"
#include "front/web/charset.h"
#include "loop/init.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FACET_IDLE_MS = 30000 };

/* What nobody but this file needs of the front. */
struct front_server {
    struct front front;
    const struct front_options *opt;
    struct config *config;
    struct secrets secrets;
    struct server_user user;
    struct service service;
    struct siblings siblings;
    struct isolate_group isolates;
    struct agent_def *agent_defs;
    struct coder_def *coder_defs;
    struct caretaker *caretaker;
    uv_loop_t loop;
    uv_signal_t signals[3];
    int web_fd;
    int lock_fd;
    unsigned parts; /* that are ending */
    bool time_given;
    bool sandboxes_told;
    bool stopping;
    struct drain drain;
};

typedef int step(struct front_server *s, struct err *err);

static int front_take_steps(step *const *steps, size_t n, struct front_server *s, struct err *err) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = steps[i](s, err);
    return rc;
}

/* --- before the loop: what the front needs its first rights for --- */

static int find_service_manager(struct front_server *s, struct err *err) {
    return service_open(&s->service, err);
}

static int raise_open_files(struct front_server *s, struct err *err) {
    return open_files_raise(s->config, err);
}

static int load_secrets(struct front_server *s, struct err *err) {
    _cleanup_(free) char *dir = NULL;
    const char *slash = s->config->file ? strrchr(s->config->file, '/') : NULL;
    if (slash)
        dir = xstrndup(s->config->file, (size_t)(slash - s->config->file) + 1);
    _cleanup_(free) char *file = xasprintf("%s.env", dir ? dir : "");
    return secrets_load(&s->secrets, file, err);
}

static int make_data_dir(struct front_server *s, struct err *err) {
    return data_dir_make(s->config->data_dir, &s->user, err);
}

static int open_web_dir(struct front_server *s, struct err *err) {
    if (!s->config->web_dir)
        return 0;
    s->web_fd = open(s->config->web_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return s->web_fd < 0 ? err_sys(err, "web folder %s", s->config->web_dir) : 0;
}

static int load_definitions(struct front_server *s, struct err *err) {
    int rc = definitions_load_agents(s->config, &s->agent_defs, err);
    if (rc < 0)
        return rc;
    return definitions_load_coders(s->config, s->opt->programs_dir, &s->coder_defs, err);
}

static int open_programs(struct front_server *s, struct err *err) {
    int rc = siblings_open(&s->siblings, s->opt->programs_dir, s->config->call_filter, err);
    return rc < 0 ? rc : sandbox_settings_open(&s->config->sandboxes, err);
}

static int bind_listeners(struct front_server *s, struct err *err) {
    if (s->service.nfds > 0)
        return listeners_adopt(&s->front.listeners, s->service.first_fd, s->service.nfds, err);
    return listeners_bind(&s->front.listeners, s->config->listen, s->config->nlisten, &s->user,
                          err);
}

static int start_starter(struct front_server *s, struct err *err) {
    return s->user.change ? siblings_start_starter(&s->siblings, &s->loop, err) : 0;
}

static int settle_group(struct front_server *s, struct err *err) {
    (void)err;
    isolate_group_settle(&s->isolates);
    return 0;
}

static int open_isolate_group(struct front_server *s, struct err *err) {
    (void)err; /* a wall that the machine may lack */
    isolate_group_open(&s->isolates, s->config->runner.isolates_memory_bytes);
    s->front.isolates_memory_bytes = s->isolates.memory_bytes;
    features_limit(&s->front.features, s->isolates.why);
    return 0;
}

static int drop_privileges(struct front_server *s, struct err *err) {
    int rc = server_user_become(&s->user, err);
    if (rc == 0)
        secrets_protect_process();
    return rc;
}

static int server_front_lock_calls(struct front_server *s, struct err *err) {
    if (!s->config->call_filter) {
        log_warn("server.call_filter", "advice",
                 "\"call_filter\" is false: the server may make any system call");
        return 0;
    }
    int rc = siblings_start_spawner(&s->siblings, &s->loop, err);
    charset_prepare();
    return rc < 0 ? rc : front_lock_calls(err);
}

/* --- what is kept --- */

static int open_store(struct front_server *s, struct err *err) {
    int rc = data_dir_lock(s->config->data_dir, &s->lock_fd, err);
    if (rc < 0)
        return rc;
    _cleanup_(free) char *file = path_join(s->config->data_dir, "cay.db");
    rc = store_open(file, &s->front.store, err);
    if (rc == 0)
        store_configure(s->front.store, &s->config->store);
    return rc;
}

static int front_open_ledger(struct front_server *s, struct err *err) {
    struct front *f = &s->front;
    _cleanup_(free) char *store = path_join(s->config->data_dir, "cay.db");
    int rc = ledger_db_open(s->config->data_dir, &f->ledger_db, err);
    if (rc == 0)
        rc = ledger_db_take_workers(f->ledger_db, store, err);
    if (rc < 0)
        return rc;
    f->keys = keyring_create(clock_mono_ms, clock_wall_ms);
    struct ledger_watch watch = keyring_watch(f->keys);
    rc = ledger_open(&s->loop, f->ledger_db, &watch, &f->ledger, err);
    if (rc == 0)
        keyring_on_stale(f->keys, ledger_refresh, f->ledger);
    return rc;
}

static int end_interrupted_runs(struct front_server *s, struct err *err) {
    int64_t interrupted = 0;
    int rc = store_run_interrupt_all(s->front.store, &interrupted, err);
    if (rc == 0 && interrupted > 0)
        log_warn("runs.interrupted", "count", interrupted);
    return rc;
}

static int front_check_keys(struct front_server *s, struct err *err) {
    const struct front *f = &s->front;
    if (keyring_count(f->keys) > 0 || !front_requires_key(f))
        return 0;
    return err_set(err, ERR_FORBIDDEN,
                   "%s, but there is no key yet: make one with `cay key create --name NAME "
                   "--data-dir %s`",
                   f->listeners.beyond_loopback ? "listening beyond this machine needs keys"
                                                : "\"require_key\" is set",
                   s->config->data_dir);
}

static int front_prepare(struct front_server *s, struct err *err) {
    static step *const steps[] = {
        find_service_manager,    settle_group,  raise_open_files,   load_secrets,
        make_data_dir,           open_web_dir,  load_definitions,   open_programs,
        bind_listeners,          start_starter, open_isolate_group, drop_privileges,
        server_front_lock_calls, open_store,    front_open_ledger,  end_interrupted_runs,
        front_check_keys};
    int rc = front_take_steps(steps, ARRAY_LEN(steps), s, err);
    if (rc < 0 && s->front.ledger) {
        ledger_close(s->front.ledger);
        (void)uv_run(&s->loop, UV_RUN_NOWAIT);
    }
    return rc;
}

/* --- the rooms, each of which may use those before it --- */

static int open_runner(struct front_server *s, struct err *err) {
    struct front *f = &s->front;
    f->intake = intake_create(&s->loop);
    f->runner =
        runner_create(&(struct runner_options){.loop = &s->loop,
                                               .config = s->config->runner,
                                               .compile_fd = s->siblings.fds[SIBLING_COMPILE],
                                               .isolate_fd = s->siblings.fds[SIBLING_ISOLATE],
                                               .joins = s->isolates.joins,
                                               .njoins = s->isolates.njoins,
                                               .facet_fd = s->siblings.fds[SIBLING_FACET]});
    f->databases = databases_create(&(struct databases_options){.loop = &s->loop,
                                                                .facets = f->runner->facets,
                                                                .data_dir = s->config->data_dir,
                                                                .open = &f->facet_open});
    f->jobs = jobs_create(&s->loop, f->store);
    f->tails = tails_create(&s->loop, f->store, s->config->tail_origins, s->config->ntail_origins);
    return workers_create(&(struct workers_options){.facet_open = &f->facet_open,
                                                    .keys = f->keys,
                                                    .runner = f->runner,
                                                    .ledger = f->ledger,
                                                    .jobs = f->jobs,
                                                    .data_dir = s->config->data_dir,
                                                    .intake = f->intake},
                          &f->workers, err);
}

static void front_on_job_end(void *ctx, const struct job_ended *ended) {
    account_count_job(ctx, ended);
}

/* The limits of a key that was revoked meanwhile are not known any more. */
static struct jobs_max max_jobs(void *ctx, const char *key) {
    struct identity who = {0};
    (void)key_identity(ctx, key, &who, NULL);
    return (struct jobs_max){.key = who.limits.max_jobs, .project = who.project_limits.max_jobs};
}

static int open_models(struct front_server *s, struct err *err) {
    struct front *f = &s->front;
    int rc = models_create(&s->loop,
                           &(struct models_options){.file = s->config->models_file,
                                                    .secrets = &s->secrets,
                                                    .demo_delay_ms = -1,
                                                    .intake = f->intake},
                           &f->models, err);
    if (rc < 0)
        return rc;
    f->accounts = accounts_create(
        &(struct accounts_options){.loop = &s->loop,
                                   .ledger = f->ledger,
                                   .keys = f->keys,
                                   .dearest = model_catalog_dearest(models_catalog(f->models))});
    jobs_on_end(f->jobs, front_on_job_end, f->accounts);
    jobs_set_limit(f->jobs, max_jobs, f->keys);
    return 0;
}

static int open_agents(struct front_server *s, struct err *err) {
    struct front *f = &s->front;
    f->agents = agents_create(&(struct agents_options){.loop = &s->loop,
                                                       .intake = f->intake,
                                                       .runner = f->runner,
                                                       .jobs = f->jobs,
                                                       .models = f->models,
                                                       .accounts = f->accounts,
                                                       .defs = s->agent_defs,
                                                       .model = s->config->model,
                                                       .limits = s->config->agents,
                                                       .data_dir = s->config->data_dir});
    return f->agents ? 0
                     : err_set(err, ERR_INTERNAL, "there is no thread to be had for conversations");
}

extern const char coder_demo_json[]; /* made from code/demo.json */

/* The demo model is served to sandboxes too, so that everything can be tried without a key. */
static int open_door(struct front_server *s, struct err *err) {
    struct front *f = &s->front;
    f->door_script = json_read_str(coder_demo_json);
    int rc = door_open(&s->loop, f->intake, f->door_script, &f->door, err);
    f->private_upstreams = code_route_private(&s->secrets, f->door);
    return rc;
}

static void front_on_sandboxes_state(void *ctx) {
    struct front_server *s = ctx;
    struct feature found;
    if (s->sandboxes_told || !sandboxes_feature(s->front.sandboxes, &found))
        return;
    s->sandboxes_told = true;
    s->opt->on_sandboxes(&s->front, &found);
}

static int open_sandboxes(struct front_server *s, struct err *err) {
    struct front *f = &s->front;
    const struct siblings *programs = &s->siblings;
    return sandboxes_open(
        &(struct sandboxes_options){.loop = &s->loop,
                                    .private_also = f->private_upstreams,
                                    .store = f->store,
                                    .settings = &s->config->sandboxes,
                                    .secrets = &s->secrets,
                                    .models = model_catalog_json(models_catalog(f->models)),
                                    .data_dir = s->config->data_dir,
                                    .sandbox_fd =
                                        s->user.change ? -1 : programs->fds[SIBLING_SANDBOX],
                                    .egress_fd = programs->fds[SIBLING_EGRESS],
                                    .starter = programs->starter_fd,
                                    .on_state = front_on_sandboxes_state,
                                    .ctx = s},
        &f->sandboxes, err);
}

static int open_coders(struct front_server *s, struct err *err) {
    struct front *f = &s->front;
    (void)err;
    f->codes = codes_create(&(struct codes_options){.loop = &s->loop,
                                                    .jobs = f->jobs,
                                                    .sandboxes = f->sandboxes,
                                                    .models = f->models,
                                                    .accounts = f->accounts,
                                                    .model = s->config->model,
                                                    .secrets = &s->secrets,
                                                    .door = f->door,
                                                    .defs = s->coder_defs,
                                                    .tool_fd = s->siblings.fds[SIBLING_CODER],
                                                    .max_steps = &s->config->coder_max_steps,
                                                    .task_ms = &s->config->execute.timeout_ms});
    return 0;
}

static int open_executor(struct front_server *s, struct err *err) {
    struct front *f = &s->front;
    (void)err;
    f->executes =
        executes_create(&(struct executes_options){.loop = &s->loop,
                                                   .jobs = f->jobs,
                                                   .models = f->models,
                                                   .accounts = f->accounts,
                                                   .runner = f->runner,
                                                   .intake = f->intake,
                                                   .network = sandboxes_network(f->sandboxes),
                                                   .model = s->config->model,
                                                   .settings = &s->config->execute});
    return 0;
}

static int front_read_time(struct front_server *s, struct err *err) {
    const char *text = secrets_take(&s->secrets, "MAX_EXECUTION_TIME");
    s->time_given = text != NULL;
    return execute_settings_time(&s->config->execute, text, err);
}

/* Those of the rooms have been taken. */
static int warn_unused_secrets(struct front_server *s, struct err *err) {
    (void)err;
    secrets_warn_unused(&s->secrets);
    return 0;
}

/* --- what the network reaches --- */

static void front_on_request_done(const struct http_req *req, const char *route, int status,
                                  int64_t duration_us, void *ctx) {
    struct front *f = ctx;
    metrics_request(f->metrics, route, status, duration_us);
    if (log_enabled(LOG_LEVEL_DEBUG) || status >= 500)
        log_info("http.request", "id", http_req_id(req), "method",
                 http_method_name(http_req_method(req)), "route", route, "status", status, "us",
                 duration_us);
}

static void front_on_page(struct http_req *req, void *ctx) {
    asset_respond(req, CONTAINER_OF(ctx, struct front_server, front)->web_fd);
}

/* While the ledger is silent nobody knows: streams stay, and nothing new is let in. */
static bool front_key_is_valid(const char *key, void *ctx) {
    const struct front *f = ctx;
    struct identity who;
    return key_identity(f->keys, key, &who, NULL) != -ERR_UNAUTHORIZED;
}

static void front_on_keys_changed(void *ctx) {
    const struct front *f = ctx;
    http_server_recheck(f->http);
    workers_recheck(f->workers);
}

static int64_t front_on_submitted(void *ctx) {
    return store_submitted(ctx);
}

static bool front_on_has_written(void *ctx, int64_t ticket) {
    return store_has_written(ctx, ticket);
}

static void front_on_store_written(void *ctx) {
    const struct front *f = ctx;
    http_server_committed(f->http);
}

/* When what the last server left was put right, which is done at once. */
static int start_writer(struct front_server *s, struct err *err) {
    return store_start_writer(s->front.store, &s->loop, err);
}

static int open_http(struct front_server *s, struct err *err) {
    struct front *f = &s->front;
    f->http = http_server_create(&(struct http_server_options){
        .loop = &s->loop,
        .limits = s->config->http,
        .guard = guard_request,
        .preflight = guard_preflight,
        .observer = front_on_request_done,
        .is_guest_host = guard_is_guest_host,
        .guest_handler = s->opt->endpoints->guest,
        .fallback = front_on_page,
        .intake = f->intake,
        .owner = front_share,
        .key = front_key,
        .is_valid = front_key_is_valid,
        .commits = {front_on_submitted, front_on_has_written, f->store},
        .ctx = f,
    });
    keyring_on_change(f->keys, front_on_keys_changed, f);
    store_on_written(f->store, front_on_store_written, f);
    s->opt->endpoints->open(f);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < f->listeners.n; i++)
        rc = http_server_listen(f->http, f->listeners.fds[i], err);
    return rc;
}

static int open_reload(struct front_server *s, struct err *err) {
    return reload_create(
        &(struct reload_options){.front = &s->front,
                                 .config = s->config,
                                 .level_given = s->opt->level_given,
                                 .time_given = s->time_given,
                                 .service_url = secrets_take(&s->secrets, "CONFIG_SERVICE_URL"),
                                 .service_token =
                                     secrets_take(&s->secrets, "CONFIG_SERVICE_TOKEN")},
        &s->front.reload, err);
}

/* Last: it begins to work at once. */
static int open_tasks(struct front_server *s, struct err *err) {
    struct front *f = &s->front;
    (void)err;
    f->tasks = tasks_create(
        &(struct tasks_options){.loop = &s->loop,
                                .ledger = f->ledger,
                                .keys = f->keys,
                                .settings = &s->config->tasks,
                                .intake = f->intake,
                                .rooms = {.jobs = f->jobs,
                                          .runner = f->runner,
                                          .workers = f->workers,
                                          .codes = f->codes,
                                          .executes = f->executes,
                                          .store = f->store,
                                          .run_events = &f->config->store.run_events}});
    s->caretaker = caretaker_create(&s->loop, f->store, s->config->data_dir);
    f->disk = caretaker_disk(s->caretaker);
    f->mirror = mirror_create(
        &(struct mirror_options){.loop = &s->loop,
                                 .store = f->store,
                                 .key = secrets_take(&s->secrets, "AWS_ACCESS_KEY_ID"),
                                 .secret = secrets_take(&s->secrets, "AWS_SECRET_ACCESS_KEY")});
    return 0;
}

/* --- the end --- */

/* When nothing works any more, no job is left. */
static void front_on_part_ended(void *ctx) {
    struct front_server *s = ctx;
    if (--s->parts > 0)
        return;
    codes_destroy(s->front.codes);
    s->opt->endpoints->close(&s->front);
    store_stop_writer(s->front.store); /* tells the last ends */
    jobs_destroy(s->front.jobs);
    accounts_close(s->front.accounts);
    ledger_close(s->front.ledger);
    tasks_destroy(s->front.tasks);
    accounts_destroy(s->front.accounts);
}

static void front_on_sandboxes_closed(void *ctx) {
    struct front_server *s = ctx;
    fd_close(&s->siblings.starter_fd);
    front_on_part_ended(s);
}

static void front_on_drained(void *ctx) {
    struct front_server *s = ctx;
    keyring_on_change(s->front.keys, NULL, NULL);
    store_on_written(s->front.store, NULL, NULL);
    http_server_destroy(s->front.http);
    tasks_end_jobs(s->front.tasks);
    agents_destroy(s->front.agents);
    reload_close(s->front.reload);
    executes_close(s->front.executes);
    codes_close(s->front.codes);
    door_close(s->front.door);
    intake_destroy(s->front.intake);
    models_close(s->front.models, NULL, NULL);
    workers_destroy(s->front.workers);
    databases_close(s->front.databases);
    tails_close(s->front.tails);
    s->parts = 2;
    runner_stop(s->front.runner, front_on_part_ended, s);
    sandboxes_close(s->front.sandboxes, front_on_sandboxes_closed, s);
    for (size_t i = 0; i < ARRAY_LEN(s->signals); i++)
        uv_close((uv_handle_t *)&s->signals[i], NULL);
    service_close(&s->service);
    caretaker_close(s->caretaker);
    mirror_close(s->front.mirror);
}

static void front_on_leaving_over(void *ctx, unsigned left_ms) {
    struct front_server *s = ctx;
    http_server_drain(s->front.http, left_ms, front_on_drained, s);
}

static void front_on_signal(uv_signal_t *h, int signo) {
    struct front_server *s = h->data;
    struct err err;
    if (signo == SIGHUP && s->stopping)
        return;
    if (signo == SIGHUP) {
        service_notify(&s->service, "RELOADING=1");
        if (reload_now(s->front.reload, NULL, &err) < 0)
            log_error("config.reload", "error", err.message);
        service_notify(&s->service, "READY=1");
        return;
    }
    if (s->stopping)
        _exit(128 + signo); /* asked twice: do not wait */
    s->stopping = s->siblings.ending = true;
    log_info("server.stopping", "signal", signo);
    service_notify(&s->service, "STOPPING=1");
    tasks_stop(s->front.tasks);
    s->drain = (struct drain){.front = &s->front, .service = &s->service};
    drain_begin(&s->drain, s->config->drain_timeout_ms, front_on_leaving_over, s);
}

static int watch_signals(struct front_server *s, struct err *err) {
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
    (void)err;
    for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
        (void)uv_signal_init(&s->loop, &s->signals[i]);
        s->signals[i].data = s;
        (void)uv_signal_start(&s->signals[i], front_on_signal, signals[i]);
    }
    return 0;
}

static int front_work(struct front_server *s, struct err *err) {
    static step *const rooms[] = {open_runner,     open_models,         open_agents,  open_door,
                                  front_read_time, open_sandboxes,      start_writer, open_coders,
                                  open_executor,   warn_unused_secrets, open_http,    open_reload,
                                  watch_signals,   open_tasks};
    int rc = front_take_steps(rooms, ARRAY_LEN(rooms), s, err);
    if (rc < 0)
        return rc;
    s->opt->on_ready(&s->front);
    front_on_sandboxes_state(s); /* without the program it is known already */
    service_watch(&s->service, &s->loop);
    service_notify(&s->service, "READY=1");
    metrics_watch(s->front.metrics, &s->loop);
    (void)uv_run(&s->loop, UV_RUN_DEFAULT);
    metrics_unwatch(s->front.metrics);
    siblings_stop_spawner(&s->siblings);
    (void)uv_run(&s->loop, UV_RUN_DEFAULT);
    return 0;
}

static struct front_server *front_create(const struct front_options *options) {
    struct front_server *s = xcalloc(1, sizeof(*s));
    s->opt = options;
    s->config = options->config;
    s->web_fd = s->lock_fd = s->service.notify_fd = -1;
    siblings_init(&s->siblings);
    server_user_find(&s->user, s->config->user);
    (void)loop_init(&s->loop);
    struct front *f = &s->front;
    f->loop = &s->loop;
    f->config = s->config;
    f->secrets = &s->secrets;
    f->metrics = metrics_create();
    f->sessions = sessions_create();
    f->rates = rates_create(LIMIT_RATE_PLACES);
    f->started_ms = clock_mono_ms();
    f->facet_open = (struct facet_open){.file = (char *)"data.db", .idle_ms = FACET_IDLE_MS};
    features_probe(&f->features, options->programs_dir, false);
    return s;
}

static void front_destroy(struct front_server *s) {
    struct front *f = &s->front;
    siblings_stop_spawner(&s->siblings);
    (void)uv_loop_close(&s->loop); /* unless something was begun and could not be ended */
    json_decref(f->door_script);
    json_decref(f->private_upstreams);
    store_close(f->store);
    keyring_destroy(f->keys);
    ledger_db_close(f->ledger_db);
    metrics_destroy(f->metrics);
    sessions_destroy(f->sessions);
    rates_destroy(f->rates);
    listeners_finish(&f->listeners);
    isolate_group_close(&s->isolates, !s->user.change); /* else the starter, which has the right */
    fd_close(&s->web_fd);
    fd_close(&s->lock_fd);
    siblings_finish(&s->siblings);
    agent_defs_free(s->agent_defs);
    coder_defs_free(s->coder_defs);
    secrets_finish(&s->secrets);
    free(s);
}

int front_serve(const struct front_options *options, struct err *err) {
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignore, NULL);
    (void)umask(077); /* what is made here is nobody else's to read */
    /* Freeing something large teaches malloc to keep more of what lies free at the end of the heap,
     * twice as much: else each turn of a chat grows the heap and shrinks it again. */
    free(xmalloc(1 << 20));
    struct front_server *s = front_create(options);
    int rc = front_prepare(s, err);
    if (rc == 0)
        rc = front_work(s, err);
    front_destroy(s);
    return rc;
}

/* --- what the endpoints ask --- */

void front_children(const struct front *f,
                    void (*on_child)(void *ctx, const struct keeper_info *info), void *ctx) {
    struct keeper_info isolate = pool_info(f->runner->pool);
    compiler_children(f->runner->compiler, on_child, ctx);
    on_child(ctx, &isolate);
    sandboxes_children(f->sandboxes, on_child, ctx);
}

void front_model(const struct front *f, const char **ret_provider,
                 char ret_name[MODEL_ID_BYTES + 1]) {
    struct model_info info;
    bool found = models_find(f->models, f->config->model, &info, NULL) == 0;
    *ret_provider = found ? model_provider_name(info.provider) : "none";
    const char *name = found ? info.id : f->config->model ? f->config->model : "";
    (void)snprintf(ret_name, MODEL_ID_BYTES + 1, "%s", name);
}
