#include "front/task/tasks.h"
#include "front/common/share.h"
#include "front/sandbox/sandboxes.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "front/common/intake.h"
#include "front/job/job.h"
#include "front/run/runner.h"
#include "front/task/desk.h"
#include "front/task/hooks.h"
#include "front/task/types.h"
#include "loop/later.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The job of an attempt. */
struct work {
    struct work *next;
    struct tasks *tasks;
    char task[ID_SIZE];
    char run[ID_SIZE];
    const struct task_type *type;
    int64_t attempt;
    struct job_watch *watch;
    struct body_load *load; /* its body is being read, and there is no job yet */
    bool stopped;           /* it is to end as soon as it was */
};

/* What a job is begun with: a body that was read. */
struct body_load {
    struct work *work; /* NULL: nobody waits for it */
    const struct task_type *type;
    struct ledger_task task; /* its names and its body only */
    struct run_limits limits;
    json_t *json; /* of types that have no load() */
    void *loaded;
    int rc;
    struct err err;
};

struct tasks {
    struct tasks_options opt;
    struct desk *desk;
    struct hooks *hooks;
    struct work *works;
    struct task_listener *listeners;
    struct later_queue later;
    struct later tick;
    uv_timer_t timer;
    int handles; /* that are not closed */
    bool over;
};

/* --- who listens --- */

void task_listen(struct tasks *t, struct task_listener *l) {
    l->tasks = t;
    l->next = t->listeners;
    t->listeners = l;
}

void task_unlisten(struct task_listener *l) {
    if (!l->tasks)
        return;
    struct task_listener **at = &l->tasks->listeners;
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    l->tasks = NULL;
}

/* A listener may stop listening meanwhile, itself. */
static void tasks_tell(struct tasks *t, const char *task) {
    struct task_listener *l = t->listeners;
    while (l) {
        struct task_listener *next = l->next;
        if (strcmp(l->task, task) == 0)
            l->on_change(l->ctx);
        l = next;
    }
}

/* --- jobs --- */

static void free_work(struct work *k) {
    struct work **at = &k->tasks->works;
    while (*at != k)
        at = &(*at)->next;
    *at = k->next;
    if (k->load)
        k->load->work = NULL;
    job_unwatch(k->watch);
    free(k);
}

/* What the endpoint of its type would have answered; NULL: it is longer than a result may be, or
 * there will be another attempt. */
static const char *work_result(const struct work *k, const struct store_run_end *end,
                               struct buf *room) {
    const struct task_rooms *r = &k->tasks->opt.rooms;
    struct job_answered ignored;
    struct err err;
    if (end->fault)
        return NULL;
    if (!k->type->answer)
        return end->answer_len <= LEDGER_RESULT_BYTES ? end->answer : NULL;
    int rc = k->type->answer(&(struct job_asked){.store = r->store,
                                                 .events = (size_t)*r->run_events,
                                                 .id = k->run,
                                                 .scope = {.all = true}},
                             room, &ignored, &err);
    if (rc < 0)
        log_warn("task.result", "task", k->task, "error", err.message);
    return rc < 0 || room->full ? NULL : room->data;
}

static void tasks_on_job_end(void *ctx, const struct store_run_end *end) {
    struct work *k = ctx;
    struct tasks *t = k->tasks;
    char task[ID_SIZE];
    bool cancelled = end->status == JOB_CANCELLED;
    _cleanup_(buf) struct buf answer;
    buf_init(&answer, LEDGER_RESULT_BYTES);
    struct desk_end e = {.state = cancelled                 ? TASK_CANCELLED
                                  : end->status == JOB_DONE ? TASK_DONE
                                                            : TASK_FAILED,
                         .fault = end->fault && !cancelled,
                         .uncounted = end->unbegun,
                         .error_code = end->error_code,
                         .error_message = end->error_message,
                         .result = work_result(k, end, &answer)};
    memcpy(task, k->task, sizeof(task));
    k->watch = NULL; /* it is gone when this returns */
    desk_ended(t->desk, k->task, k->attempt, &e);
    free_work(k);
    hooks_hint(t->hooks);
    tasks_tell(t, task);
}

/* With what its key may do now. */
static int tasks_identify(struct keyring *keys, const char *key, struct identity *who,
                          struct err *err) {
    if (!*key) {
        *who = key_operator();
        return 0;
    }
    return key_identity(keys, key, who, err);
}

/* In any thread. */
static void tasks_read_load(void *ctx) {
    struct body_load *l = ctx;
    const char *text = l->task.body;
    size_t len = l->task.body_len;
    l->rc = l->type->load ? l->type->load(text, len, &l->limits, &l->loaded, &l->err)
                          : json_parse(text, len, "the task", &l->json, &l->err);
    if (l->json)
        sandbox_decode_files(l->json);
}

static void tasks_free_load(void *ctx) {
    struct body_load *l = ctx;
    if (l->loaded)
        l->type->unload(l->loaded);
    json_decref(l->json);
    free(l->task.body);
    free(l);
}

static struct body_load *make_load(const struct tasks *t, const struct task_type *type,
                                   struct ledger_task *task) {
    struct body_load *l = xcalloc(1, sizeof(*l));
    *l = (struct body_load){.type = type, .limits = t->opt.rooms.runner->config.limits};
    memcpy(l->task.id, task->id, sizeof(l->task.id));
    memcpy(l->task.run, task->run, sizeof(l->task.run));
    memcpy(l->task.owner, task->owner, sizeof(l->task.owner));
    memcpy(l->task.key, task->key, sizeof(l->task.key));
    l->task.body = steal_ptr(&task->body);
    l->task.body_len = task->body_len;
    return l;
}

static int begin_job(const struct tasks_options *o, const struct body_load *l, struct err *err) {
    const struct ledger_task *task = &l->task;
    struct identity who;
    int rc = tasks_identify(o->keys, task->key, &who, err);
    if (rc == 0 && l->rc < 0)
        *err = l->err;
    if (rc < 0 || l->rc < 0)
        return -(int)err->code;
    _cleanup_(json) json_t *grants = key_grants(&who);
    return l->type->start(&o->rooms,
                          &(struct task_start){.run = task->run,
                                               .owner = task->owner,
                                               .key = task->key,
                                               .scope = {.all = who.server, .owner = task->owner},
                                               .grants = grants,
                                               .body = l->json,
                                               .loaded = l->loaded},
                          err);
}

/* Begins the job, and frees the work if there is none. */
static int tasks_begin_work(struct work *k, const struct body_load *l, struct err *err) {
    struct jobs *jobs = k->tasks->opt.rooms.jobs;
    int rc = begin_job(&k->tasks->opt, l, err);
    if (rc == 0)
        rc = job_watch(jobs, k->run, tasks_on_job_end, k, &k->watch, err);
    if (rc < 0)
        free_work(k);
    return rc;
}

/* --- large bodies, which are read beside the loop --- */

static void end_unbegun(struct work *k) {
    struct tasks *t = k->tasks;
    char task[ID_SIZE];
    memcpy(task, k->task, sizeof(task));
    desk_ended(t->desk, k->task, k->attempt, &(struct desk_end){.state = TASK_CANCELLED});
    free_work(k);
    tasks_tell(t, task);
}

static void tasks_on_load_read(void *ctx) {
    struct body_load *l = ctx;
    struct work *k = l->work;
    struct tasks *t = k->tasks;
    int64_t attempt = k->attempt;
    struct err err;
    k->load = NULL;
    if (k->stopped) {
        end_unbegun(k);
    } else if (tasks_begin_work(k, l, &err) < 0) {
        struct desk_end e = desk_end_of(&err);
        desk_ended(t->desk, l->task.id, attempt, &e);
        tasks_tell(t, l->task.id);
    } else {
        tasks_tell(t, l->task.id); /* now there is a job to follow */
    }
    intake_dispose(t->opt.intake, tasks_free_load, l);
}

/* The server ends. */
static void drop_load(void *ctx) {
    struct body_load *l = ctx;
    if (l->work)
        end_unbegun(l->work);
    tasks_free_load(l);
}

static void tasks_read_apart(struct work *k, struct body_load *l) {
    l->work = k;
    k->load = l;
    (void)intake_start(k->tasks->opt.intake,
                       &(struct intake_ask){.owner = share_name(l->task.owner, l->task.key),
                                            .bytes = l->task.body_len,
                                            .waits = true, /* for the desk has so many places */
                                            .work = tasks_read_load,
                                            .on_done = tasks_on_load_read,
                                            .free = drop_load,
                                            .ctx = l},
                       NULL);
}

static int tasks_start(void *ctx, struct ledger_task *task, struct err *err) {
    struct tasks *t = ctx;
    const struct task_type *type = task_type_find(task->type, err);
    if (!type)
        return -(int)err->code;
    struct work *k = xcalloc(1, sizeof(*k));
    *k = (struct work){.next = t->works, .tasks = t, .type = type, .attempt = task->attempt};
    memcpy(k->task, task->id, sizeof(k->task));
    memcpy(k->run, task->run, sizeof(k->run));
    t->works = k;
    struct body_load *l = make_load(t, type, task);
    int rc = 0;
    if (t->opt.intake && task->body_len > LIMIT_READ_AT_ONCE_BYTES) {
        tasks_read_apart(k, l);
    } else {
        tasks_read_load(l);
        rc = tasks_begin_work(k, l, err);
        tasks_free_load(l);
    }
    tasks_tell(t, task->id);
    return rc;
}

static void tasks_cancel(struct work *k) {
    struct err err;
    if (k->load)
        k->stopped = true;
    else if (job_cancel(k->tasks->opt.rooms.jobs, k->run, (struct store_scope){.all = true}, &err) <
                 0 &&
             err.code != ERR_CONFLICT)
        log_warn("task.stop", "task", k->task, "error", err.message);
}

static void tasks_on_stop(void *ctx, const char *task, int64_t attempt) {
    const struct tasks *t = ctx;
    for (struct work *k = t->works; k; k = k->next)
        if (k->attempt == attempt && strcmp(k->task, task) == 0)
            tasks_cancel(k);
}

void tasks_end_jobs(struct tasks *t) {
    hooks_close(steal_ptr(&t->hooks));
    for (struct work *k = t->works; k; k = k->next)
        tasks_cancel(k);
}

/* --- the desk on the loop --- */

static int64_t tasks_now_ms(void *ctx) {
    (void)ctx;
    return clock_mono_ms();
}

static void tasks_ask(void *ctx, const struct ledger_ask *what, ledger_on_answer on_answer,
                      void *answer_ctx) {
    const struct tasks *t = ctx;
    ledger_call(t->opt.ledger, what, on_answer, answer_ctx);
}

static void tasks_on_tick(void *ctx) {
    struct tasks *t = ctx;
    if (!t->over)
        desk_tick(t->desk);
}

static void tasks_on_timer(uv_timer_t *timer) {
    tasks_on_tick(timer->data);
}

static void tasks_wake(void *ctx, int64_t after_ms) {
    struct tasks *t = ctx;
    if (after_ms > 0)
        (void)uv_timer_start(&t->timer, tasks_on_timer, (uint64_t)after_ms, 0);
    else
        later_post(&t->later, &t->tick, tasks_on_tick, t);
}

struct tasks *tasks_create(const struct tasks_options *options) {
    struct tasks *t = xcalloc(1, sizeof(*t));
    const struct task_settings *s = options->settings;
    t->opt = *options;
    t->handles = 2;
    later_queue_init(&t->later, options->loop);
    (void)uv_timer_init(options->loop, &t->timer);
    t->timer.data = t;
    t->desk = desk_create(&(struct desk_options){.node = LEDGER_HERE,
                                                 .slots = (size_t)s->slots,
                                                 .per_key = (size_t)s->per_key,
                                                 .keep_ms = s->keep_s * 1000,
                                                 .keep_tasks = s->keep_tasks,
                                                 .keep_bytes = s->keep_mb << 20,
                                                 .now_ms = tasks_now_ms,
                                                 .ask = tasks_ask,
                                                 .start = tasks_start,
                                                 .stop = tasks_on_stop,
                                                 .wake = tasks_wake,
                                                 .ctx = t});
    t->hooks = hooks_create(&(struct hooks_options){
        .loop = options->loop, .ledger = options->ledger, .private_hosts = s->private_webhooks});
    tasks_wake(t, 0);
    return t;
}

int tasks_check(const struct tasks *t, const struct task_type *type, const json_t *body,
                int64_t *timeout_ms, struct err *err) {
    const char *setting;
    int rc = type->check(&t->opt.rooms, body, err);
    if (rc < 0)
        return err_wrap(err, "\"input\"");
    int64_t most = type->limit_ms(&t->opt.rooms, body, &setting);
    if (*timeout_ms > most)
        return err_set(err, ERR_BAD_REQUEST,
                       "\"timeout_ms\" may be %lld at most: a task of type %s with this input ends "
                       "before (limit: %s, and a minute and more for what is around it)",
                       (long long)most, type->name, setting);
    if (*timeout_ms == 0)
        *timeout_ms = most;
    return 0;
}

void tasks_hint(struct tasks *t, const char *cancelled) {
    if (cancelled)
        desk_cancel(t->desk, cancelled);
    else
        desk_hint(t->desk);
    hooks_hint(t->hooks);
}

bool tasks_are_busy(const struct tasks *t) {
    return t && desk_is_busy(t->desk);
}

void tasks_stop(struct tasks *t) {
    if (!t)
        return;
    desk_close(t->desk);
}

static void tasks_on_closed(uv_handle_t *h) {
    struct tasks *t = h->data;
    if (--t->handles > 0)
        return;
    while (t->works)
        // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): free_work() takes it out of the list
        free_work(t->works);
    desk_destroy(t->desk);
    free(t);
}

void tasks_destroy(struct tasks *t) {
    if (!t)
        return;
    t->over = true;
    uv_close((uv_handle_t *)&t->timer, tasks_on_closed);
    later_queue_close(&t->later, tasks_on_closed, t);
}
