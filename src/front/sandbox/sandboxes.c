#include "front/sandbox/sandboxes.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/sm.h"
#include "base/text.h"
#include "front/sandbox/advice.h"
#include "front/sandbox/exec.h"
#include "front/sandbox/parts.h"
#include "loop/later.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    TICK_MS = 100,
    PRUNE_EVERY_MS = 60000,
    PRUNE_AFTER = 50,
    EXPIRE_GRACE_S = 30, /* beyond the time that a snapshot may take */
};

enum { SMALL_UPLOAD = 16 * 1024 };

/* --- states --- */

static const struct sm_state states[] = {
    [SANDBOX_STARTING] = {"starting", SM_TO(SANDBOX_RUNNING) | SM_TO(SANDBOX_ENDING)},
    [SANDBOX_RUNNING] = {"running", SM_TO(SANDBOX_PAUSED) | SM_TO(SANDBOX_ENDING)},
    [SANDBOX_PAUSED] = {"paused", SM_TO(SANDBOX_RUNNING) | SM_TO(SANDBOX_ENDING)},
    [SANDBOX_ENDING] = {"ending", 0},
};
static const struct sm sandbox_sm = {"sandbox", states, ARRAY_LEN(states)};

void sandbox_move(struct sandbox *s, enum sandbox_state to) {
    s->state = (enum sandbox_state)sm_next(&sandbox_sm, s->state, to);
}

/* --- finding --- */

struct sandbox *sandboxes_find(struct sandboxes *all, const char *id) {
    struct sandbox *s = all->list;
    while (s && strcmp(s->id, id) != 0)
        s = s->next;
    return s;
}

struct sandbox *sandboxes_use(struct sandboxes *all, const char *id, struct store_scope scope,
                              bool paused, struct err *err) {
    struct sandbox *s = sandboxes_find(all, id);
    if (!s || !(scope.all || strcmp(s->owner, scope.owner) == 0)) {
        struct store_record r;
        if (store_record_get(all->opt.store, "sandbox", id, NULL, scope, &r, err) < 0)
            return NULL;
        (void)err_set(err, ERR_CONFLICT, "the sandbox is %.20s: make a new one", r.status);
        store_record_finish(&r);
        return NULL;
    }
    if (s->state == SANDBOX_STARTING || s->state == SANDBOX_ENDING) {
        (void)err_set(err, ERR_CONFLICT, "the sandbox is %s",
                      s->state == SANDBOX_STARTING ? "starting: wait until it is made" : "ending");
        return NULL;
    }
    if (s->state == SANDBOX_PAUSED && !paused) {
        (void)err_set(err, ERR_CONFLICT, "the sandbox is paused: resume it first");
        return NULL;
    }
    return s;
}

/* --- the end --- */

static json_t *error_object(const struct err *err) {
    json_t *j = json_pack("{s:s,s:s}", "code", err_name(err->code), "message", err->message);
    return j ? j
             : json_pack("{s:s,s:s}", "code", err_name(err->code), "message",
                         "the sandbox gave a reason that is no text");
}

static void update_timer(struct sandboxes *all);

static void free_sandbox(struct sandbox *s) {
    json_decref(s->doc);
    sandbox_strv_finish(&s->env);
    network_ask_finish(&s->network);
    store_wait_cancel(&s->prune);
    free(s);
}

/* It is gone. */
static void sandboxes_bury(struct sandbox *s, const struct err *why) {
    struct sandboxes *all = s->all;
    struct setup *setup = s->setup;
    struct err err = s->err.code ? s->err : why ? *why : (struct err){0};
    bool failed = setup != NULL || (why && !s->expired && !all->closing);
    enum sandbox_status status = setup                         ? SANDBOX_STATUS_FAILED
                                 : !failed                     ? SANDBOX_STATUS_STOPPED
                                 : err.code == ERR_UNAVAILABLE ? SANDBOX_STATUS_INTERRUPTED
                                                               : SANDBOX_STATUS_FAILED;
    if (setup && !err.code)
        (void)err_set(&err, ERR_CANCELLED, "it was ended before it was ready");
    s->box = NULL;
    json_t *usage = records_usage_of(&s->stats);
    if (s->line)
        (void)json_object_set_new(usage, "network", network_line_usage(s->line));
    (void)json_object_set_new(s->doc, "usage", usage);
    while (s->execs)
        exec_detach(s->execs);
    if (s->expired)
        (void)err_set(&err, ERR_TIMEOUT,
                      "its time was over: make another, and ask for more (timeout_s)");
    if (err.code)
        (void)json_object_set_new(s->doc, "error", error_object(&err));
    struct err ignored;
    if (!s->unwritten && record_put(s, status, clock_wall_ms(), &ignored) < 0)
        log_error("sandbox.record", "sandbox", s->id, "error", ignored.message);
    s->all->ended++;
    struct sandbox **at = &all->list;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    all->live--;
    if (failed)
        all->failed_total++;
    log_info("sandbox.ended", "sandbox", s->id, "status", sandbox_status_name(status), "error",
             err.message);
    s->setup = NULL;
    if (setup && setup->made)
        setup->made(setup->ctx, NULL, &err);
    setup_free(setup);
    while (s->waiters) {
        struct sandbox_waiter *w = s->waiters;
        s->waiters = w->next;
        if (w->cb)
            w->cb(w->ctx);
        free(w);
    }
    if (s->line)
        network_line_close(s->line); /* nobody waits for that */
    free_sandbox(s);
    update_timer(all);
}

/* A quota that nobody keeps is answered as such: "cpus" where no control group counts them. */
static void note_unenforced(struct sandbox *s) {
    const struct sandbox_features *f = sandboxes_features(s->all);
    json_t *limits = json_object_get(s->doc, "limits");
    if (!f || f->controllers & SANDBOX_HAS_CPU || !json_is_number(json_object_get(limits, "cpus")))
        return;
    (void)json_object_set_new(limits, "unenforced", json_pack("[s]", "cpus"));
    sandbox_save(s);
}

static void sandboxes_on_box_ready(void *ctx, int listener) {
    note_unenforced(ctx);
    setup_begin(ctx, listener);
}

static void sandboxes_on_box_coming(void *ctx) {
    setup_ahead(ctx);
}

static void sandboxes_on_box_failed(void *ctx, const struct err *err) {
    sandboxes_bury(ctx, err);
}

static void sandboxes_on_box_exited(void *ctx, const struct sandbox_stats *stats,
                                    const struct err *err) {
    struct sandbox *s = ctx;
    if (stats->cpu_us || stats->memory_peak_bytes)
        s->stats = *stats;
    sandboxes_bury(s, err);
}

struct sandbox_waiter *sandbox_wait(struct sandbox *s, void (*cb)(void *ctx), void *ctx) {
    struct sandbox_waiter *w = xcalloc(1, sizeof(*w));
    *w = (struct sandbox_waiter){.next = s->waiters, .cb = cb, .ctx = ctx};
    s->waiters = w;
    return w;
}

struct sandbox_waiter *sandbox_end(struct sandbox *s, void (*cb)(void *ctx), void *ctx) {
    struct sandbox_waiter *w = cb ? sandbox_wait(s, cb, ctx) : NULL;
    if (s->state != SANDBOX_ENDING) {
        sandbox_move(s, SANDBOX_ENDING);
        sandbox_box_destroy(s->box);
    }
    return w;
}

/* What it takes to be made ready did not work. */
void sandbox_give_up(struct sandbox *s, const struct err *err) {
    if (!s->err.code)
        s->err = *err;
    (void)sandbox_end(s, NULL, NULL);
}

void sandbox_drop_maker(struct sandbox *s) {
    struct err err;
    (void)err_set(&err, ERR_CANCELLED, "the client left before it was made");
    if (s->setup)
        s->setup->made = NULL;
    sandbox_give_up(s, &err);
}

/* Nobody was told of it. */
static void sandboxes_abandon(struct sandbox *s, const struct err *err) {
    if (s->box)
        (void)sandbox_end(s, NULL, NULL);
    else
        sandboxes_bury(s, err);
}

static int sandboxes_check_room(const struct sandboxes *all, const char *owner, struct err *err) {
    const struct sandbox_settings *set = all->opt.settings;
    size_t own = 0;
    for (const struct sandbox *s = all->list; s; s = s->next)
        own += strcmp(s->owner, owner) == 0;
    if (all->live >= set->max)
        return err_set(err, ERR_RATE,
                       "there are %zu sandboxes already: end one, or wait (setting sandboxes.max)",
                       all->live);
    if (own >= set->max_per_key)
        return err_set(err, ERR_RATE,
                       "this key has %zu sandboxes already: end one, or wait (setting "
                       "sandboxes.max_per_key)",
                       own);
    return 0;
}

/* True if the name of a living sandbox cannot be given to the new one. Sandboxes of coding jobs
 * share one name. Another wire (note) knows its own names, and which of them may begin again. */
static bool is_name_kept(const struct sandbox *s, const struct sandbox_request *r) {
    if (!r->extra)
        return true;
    return r->extra->note && !json_object_get(s->doc, "note");
}

/* A name leads to one sandbox of a key. */
static int sandboxes_check_name(const struct sandboxes *all, const struct sandbox_request *r,
                                struct err *err) {
    const char *name = r->name;
    for (const struct sandbox *s = name ? all->list : NULL; s; s = s->next) {
        const char *other = json_string_value(json_object_get(s->doc, "name"));
        if (s->state != SANDBOX_ENDING && other && strcmp(other, name) == 0 &&
            strcmp(s->owner, r->owner) == 0 && is_name_kept(s, r))
            return err_set(err, ERR_CONFLICT,
                           "the sandbox %s has the name \"%.64s\" already: choose another name, or "
                           "end that one first",
                           s->id, name);
    }
    return 0;
}

struct sandbox *sandboxes_make(struct sandboxes *all, struct sandbox_request *r, sandbox_made made,
                               void *ctx, struct err *err) {
    static const struct sandbox_box_callbacks callbacks = {.on_ready = sandboxes_on_box_ready,
                                                           .on_failed = sandboxes_on_box_failed,
                                                           .on_exited = sandboxes_on_box_exited,
                                                           .on_coming = sandboxes_on_box_coming};
    struct sandbox_resolved p = {.snapshot = -1};
    int rc = sandbox_request_resolve(all, r, &p, err);
    if (rc == 0)
        rc = sandboxes_check(all, err);
    if (rc == 0)
        rc = sandboxes_check_name(all, r, err);
    if (rc == 0)
        rc = sandboxes_check_room(all, r->owner, err);
    if (rc < 0) {
        sandbox_resolved_finish(&p);
        return NULL;
    }
    struct sandbox *s = xcalloc(1, sizeof(*s));
    s->all = all;
    id_new("sbx", s->id);
    (void)snprintf(s->owner, sizeof(s->owner), "%s", r->owner);
    if (r->extra && r->extra->agent)
        (void)snprintf(s->agent, sizeof(s->agent), "%s", r->extra->agent);
    s->doc = steal_ptr(&p.doc);
    s->env = r->env;
    s->network = r->network;
    s->created_ms = clock_wall_ms();
    s->expires_ms = s->created_ms + p.timeout_s * 1000;
    s->next = all->list;
    all->list = s;
    all->live++;
    p.spec.id = xstrdup(s->id);
    s->setup = xcalloc(1, sizeof(*s->setup));
    *s->setup = (struct setup){.sandbox = s,
                               .made = made,
                               .ctx = ctx,
                               .policy = p.policy,
                               .files = r->files,
                               .snapshot = steal_fd(&p.snapshot)};
    p.policy = (struct egress_policy){0};
    r->env = (struct sandbox_strv){0};
    r->network = (struct network_ask){0};
    r->files = (struct sandbox_files){0};
    s->box = sandbox_box_create(all->host, &p.spec, p.bind_fds, &callbacks, s, err);
    struct err unwritten;
    /* Beside the launcher's work, but before anything can run in it. */
    if (record_put_living(s, &unwritten) < 0) {
        s->unwritten = true;
        *err = unwritten;
    }
    sandbox_resolved_finish(&p);
    if (s->box && !s->unwritten) {
        all->created_total++;
    } else {
        s->setup->made = NULL;
        sandboxes_abandon(s, err);
        s = NULL;
    }
    update_timer(all);
    return s;
}

int sandbox_extend(struct sandbox *s, int64_t timeout_ms, struct err *err) {
    const struct sandbox_settings *set = s->all->opt.settings;
    int64_t expires = clock_wall_ms() + timeout_ms;
    if (expires - s->created_ms > (int64_t)set->max_timeout_s * 1000)
        return err_set(err, ERR_LIMIT,
                       "a sandbox lives %u seconds at most (setting sandboxes.max_timeout_s)",
                       set->max_timeout_s);
    s->expires_ms = expires;
    sandbox_save(s);
    return 0;
}

void sandbox_visit(struct sandbox *s, struct sandbox_visitor *v) {
    v->next = s->visitors;
    s->visitors = v;
    s->connections++;
}

void sandbox_leave(struct sandbox *s, struct sandbox_visitor *v) {
    struct sandbox_visitor **at = &s->visitors;
    while (*at != v)
        at = &(*at)->next;
    *at = v->next;
    s->connections--;
}

/* --- the clock --- */

static void check_visitors(struct sandbox *s, int64_t now_ms) {
    struct sandbox_visitor *next;
    for (struct sandbox_visitor *v = s->visitors; v; v = next) {
        next = v->next;
        if (v->deadline_ms && now_ms >= v->deadline_ms)
            v->on_late(v->ctx);
    }
}

static void sandboxes_expire(struct sandbox *s, int64_t now_ms) {
    struct sandboxes *all = s->all;
    bool first = !s->expired;
    s->expired = true;
    if (first && all->on_expire && all->on_expire(all->expire_ctx, s))
        s->expires_ms = now_ms + (int64_t)(all->opt.settings->snapshot_s + EXPIRE_GRACE_S) * 1000;
    else
        (void)sandbox_end(s, NULL, NULL);
}

static void sandboxes_on_tick(uv_timer_t *t) {
    struct sandboxes *all = t->data;
    int64_t wall = clock_wall_ms();
    int64_t now = clock_mono_ms();
    for (struct sandbox *s = all->list; s; s = s->next) {
        for (struct exec *e = s->execs; e; e = e->next)
            exec_check_time(e, now);
        check_visitors(s, now);
        if (wall >= s->expires_ms && s->state != SANDBOX_ENDING)
            sandboxes_expire(s, wall);
    }
    if (all->prune_again || all->ended >= PRUNE_AFTER || now - all->pruned_ms > PRUNE_EVERY_MS)
        records_prune(all);
    update_timer(all);
}

static void update_timer(struct sandboxes *all) {
    if (all->closing)
        return;
    if (all->list && !uv_is_active((uv_handle_t *)&all->timer))
        (void)uv_timer_start(&all->timer, sandboxes_on_tick, TICK_MS, TICK_MS);
    else if (!all->list && !all->prune_again && all->ended < PRUNE_AFTER)
        (void)uv_timer_stop(&all->timer);
}

/* --- all of them --- */

int sandboxes_open(const struct sandboxes_options *o, struct sandboxes **ret, struct err *err) {
    struct sandboxes *all = xcalloc(1, sizeof(*all));
    int64_t interrupted = 0;
    all->opt = *o;
    int rc = records_open(all, err);
    if (rc == 0)
        rc = store_record_interrupt_all(o->store, &interrupted, err);
    if (rc == 0)
        rc = network_create(&(struct network_options){.loop = o->loop,
                                                      .settings = o->settings,
                                                      .secrets = o->secrets,
                                                      .models = o->models,
                                                      .private_also = o->private_also,
                                                      .store = o->store,
                                                      .exec_fd = o->egress_fd},
                            &all->network, err);
    if (rc < 0) {
        records_close(all);
        free(all);
        return rc;
    }
    (void)uv_timer_init(o->loop, &all->timer);
    all->timer.data = all;
    later_queue_init(&all->later, o->loop);
    if (interrupted > 0)
        log_warn("sandboxes.interrupted", "count", interrupted);
    records_sweep(all);
    records_prune(all);
    if (o->sandbox_fd >= 0 || o->starter >= 0) {
        const struct sandbox_settings *set = o->settings;
        _cleanup_(free) char *state = set->nroots ? path_join(o->data_dir, "roots") : xstrdup("");
        struct sandbox_config config = {.pool = set->pool,
                                        .max = set->max + set->pool,
                                        .uid_base = set->uid_base,
                                        .uid_count = set->uid_count,
                                        .state_dir = state,
                                        .roots = set->roots,
                                        .nroots = set->nroots};
        if (config.max > config.uid_count / 2)
            config.max = config.uid_count / 2;
        all->host =
            sandbox_launcher_create(&(struct sandbox_launcher_options){.loop = o->loop,
                                                                       .exec_fd = o->sandbox_fd,
                                                                       .starter = o->starter,
                                                                       .config = &config,
                                                                       .on_state = o->on_state,
                                                                       .ctx = o->ctx});
    }
    *ret = all;
    return 0;
}

static void sandboxes_on_all_closed(uv_handle_t *h) {
    struct sandboxes *all = h->data;
    if (all->on_closed)
        all->on_closed(all->closed_ctx);
    records_close(all);
    free(all);
}

/* The queue is the last: what ends has something to tell. */
static void sandboxes_on_part_closed(void *ctx) {
    struct sandboxes *all = ctx;
    if (--all->parts == 0)
        later_queue_close(&all->later, sandboxes_on_all_closed, all);
}

static void sandboxes_on_timer_closed(uv_handle_t *h) {
    sandboxes_on_part_closed(h->data);
}

void sandboxes_on_expire(struct sandboxes *all, bool (*on_expire)(void *ctx, struct sandbox *s),
                         void *ctx) {
    all->on_expire = on_expire;
    all->expire_ctx = ctx;
}

void sandboxes_close(struct sandboxes *all, void (*on_closed)(void *ctx), void *ctx) {
    all->closing = true;
    all->on_closed = on_closed;
    all->closed_ctx = ctx;
    all->parts = all->host ? 3 : 2;
    network_hush(all->network);
    if (all->host)
        sandbox_launcher_stop(all->host, sandboxes_on_part_closed, all);
    network_stop(all->network, sandboxes_on_part_closed, all);
    uv_close((uv_handle_t *)&all->timer, sandboxes_on_timer_closed);
}

struct sandboxes_stats sandboxes_stats(const struct sandboxes *all) {
    struct sandboxes_stats st = {.created_total = all->created_total,
                                 .failed_total = all->failed_total};
    for (const struct sandbox *s = all->list; s; s = s->next) {
        st.starting += s->state == SANDBOX_STARTING;
        st.running += s->state == SANDBOX_RUNNING;
        st.paused += s->state == SANDBOX_PAUSED;
        for (const struct exec *e = s->execs; e; e = e->next)
            st.execs++;
    }
    return st;
}

struct sandboxes_running sandboxes_running(const struct sandboxes *all, const char *owner) {
    struct sandboxes_running r = {0};
    for (const struct sandbox *s = all->list; s; s = s->next) {
        bool own = strcmp(s->owner, owner) == 0;
        for (const struct exec *e = s->execs; e; e = e->next) {
            size_t unread = e->command ? sandbox_command_input_queued(e->command) : 0;
            r.all++;
            r.own += own;
            r.unread_all += unread;
            r.unread_own += own ? unread : 0;
        }
    }
    return r;
}

bool sandboxes_take_input(const struct sandboxes *all, const char *owner) {
    struct sandboxes_running r = sandboxes_running(all, owner);
    return r.unread_all < LIMIT_SANDBOX_INPUT_ALL_BYTES &&
           (*owner == 0 || r.unread_own < LIMIT_SANDBOX_INPUT_BYTES);
}

void sandboxes_hold_upload(struct sandboxes *all, size_t *held, size_t now) {
    all->uploads_bytes += now - *held;
    *held = now;
}

struct file_writer **sandboxes_writers(struct sandboxes *all) {
    return &all->writers;
}

uint64_t sandboxes_next_turn(struct sandboxes *all) {
    return ++all->turns;
}

size_t sandboxes_upload_most(const struct sandboxes *all, size_t wanted) {
    return all->uploads_bytes < LIMIT_SANDBOX_UPLOADS_BYTES ? wanted : MIN(wanted, SMALL_UPLOAD);
}

int sandboxes_check(const struct sandboxes *all, struct err *err) {
    if (!all->host)
        return err_set(err, ERR_UNAVAILABLE,
                       "the program cay-sandbox is missing beside cay: run `make`, or install it");
    if (sandbox_launcher_info(all->host).lost)
        return err_set(
            err, ERR_UNAVAILABLE,
            "sandboxes cannot be made: the processes that kept root's rights for it were "
            "killed. Restart cay");
    return sandbox_launcher_check(all->host, err);
}

static bool sandboxes_are_starting(const struct sandboxes *all) {
    return all->host && sandbox_launcher_info(all->host).state != KEEPER_RUNNING &&
           sandbox_launcher_info(all->host).restarts == 0;
}

bool sandboxes_are_well(const struct sandboxes *all) {
    struct err err;
    return sandboxes_are_starting(all) || sandboxes_check(all, &err) == 0;
}

bool sandboxes_feature(const struct sandboxes *all, struct feature *ret) {
    struct err err;
    const struct sandbox_features *found = sandboxes_features(all);
    struct feature x = {.name = "sandboxes", .status = FEATURE_DEGRADED};
    bool refused = !sandboxes_are_starting(all) && sandboxes_check(all, &err) < 0;
    if (refused)
        sandbox_advise_refusal(&err, &x);
    else if (found)
        sandbox_advise_limits(found, &x);
    else
        return false;
    if (refused)
        x.status = FEATURE_MISSING;
    if (!all->host)
        (void)text_print(x.advice, sizeof(x.advice), "run `make`, or install cay again");
    else if (sandbox_launcher_info(all->host).lost)
        (void)text_print(x.advice, sizeof(x.advice), "restart cay");
    *ret = x;
    return true;
}

const struct sandbox_features *sandboxes_features(const struct sandboxes *all) {
    return all->host ? sandbox_launcher_features(all->host) : NULL;
}

void sandboxes_children(const struct sandboxes *all,
                        void (*on_child)(void *ctx, const struct keeper_info *info), void *ctx) {
    if (all->host) {
        struct keeper_info info = sandbox_launcher_info(all->host);
        on_child(ctx, &info);
    }
    if (network_is_there(all->network)) {
        struct keeper_info info = network_info(all->network);
        on_child(ctx, &info);
    }
}

struct store *sandboxes_store(const struct sandboxes *all) {
    return all->opt.store;
}

const struct sandbox_settings *sandboxes_settings(const struct sandboxes *all) {
    return all->opt.settings;
}

uv_loop_t *sandboxes_loop(const struct sandboxes *all) {
    return all->opt.loop;
}

struct later_queue *sandboxes_later(struct sandboxes *all) {
    return &all->later;
}

struct network *sandboxes_network(const struct sandboxes *all) {
    return all->network;
}
