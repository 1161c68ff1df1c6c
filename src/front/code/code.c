#include "front/code/code.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sm.h"
#include "front/code/internal.h"
#include "front/code/tree.h"
#include "front/model/ask.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK = 1024,
    EVENTS_PER_TURN = 64, /* each is written to the store */
    CHUNKS_PER_TURN = 256,
    LONG_CHUNK = 16 << 10, /* of what changed */
    LONG_CHUNKS_PER_TURN = 16,
    CANCEL_MS = 5000,
    SAID_BYTES = 2000, /* of what a command said on its standard error */
};

static const struct sm_state states[] = {
    [CODE_HOLDING] = {"holding", SM_TO(CODE_MAKING) | SM_TO(CODE_ENDING)},
    [CODE_MAKING] = {"making", SM_TO(CODE_CLONING) | SM_TO(CODE_OPENING) | SM_TO(CODE_PREPARING) |
                                   SM_TO(CODE_WORKING) | SM_TO(CODE_ENDING)},
    [CODE_CLONING] = {"cloning", SM_TO(CODE_OPENING) | SM_TO(CODE_ENDING)},
    [CODE_OPENING] = {"opening", SM_TO(CODE_PREPARING) | SM_TO(CODE_WORKING) | SM_TO(CODE_ENDING)},
    [CODE_PREPARING] = {"preparing", SM_TO(CODE_WORKING) | SM_TO(CODE_ENDING)},
    [CODE_WORKING] = {"working", SM_TO(CODE_COLLECTING) | SM_TO(CODE_ENDING)},
    [CODE_COLLECTING] = {"collecting", SM_TO(CODE_ENDING)},
    [CODE_ENDING] = {"ending", 0},
};
static const struct sm code_sm = {"code", states, ARRAY_LEN(states)};

static void code_on_change(void *ctx);
static void code_job_finish(struct code_job *c);

static void code_move(struct code_job *c, enum code_state to) {
    c->state = (enum code_state)sm_next(&code_sm, c->state, to);
}

struct codes *codes_create(const struct codes_options *options) {
    struct codes *all = xcalloc(1, sizeof(*all));
    all->opt = *options;
    later_queue_init(&all->later, options->loop);
    return all;
}

static void code_on_later_closed(uv_handle_t *h) {
    free(h->data);
}

void codes_destroy(struct codes *all) {
    later_queue_close(&all->later, code_on_later_closed, all);
}

json_t *codes_show_agents(const struct codes *all) {
    json_t *list = json_array();
    for (const struct coder_def *d = all->opt.defs; d; d = d->next) {
        json_t *spoken = json_array();
        for (unsigned i = 0; i < CODER_DIALECT_COUNT; i++)
            if (d->dialects & 1U << i)
                (void)json_array_append_new(spoken, json_string(coder_dialect_name(i)));
        (void)json_array_append_new(
            list,
            json_pack("{s:s,s:s,s:s,s:o,s:b,s:b,s:s*}", "name", d->name, "title", d->title,
                      "description", d->description, "dialects", spoken, "demo", d->demo, "usable",
                      d->fd >= 0, "problem",
                      d->fd < 0 ? "its program was not found: `cay doctor` says more" : NULL));
    }
    return json_pack("{s:o}", "agents", list);
}

void codes_open_network(const struct codes *all, const json_t *grants, struct network_ask *ask) {
    const struct sandbox_settings *set = sandboxes_settings(all->opt.sandboxes);
    const char *name;
    json_t *v;
    size_t i;
    json_array_foreach(set->allow, i, v) {
        sandbox_strv_add(&ask->allow, json_string_value(v));
    }
    json_object_foreach(set->routes, name, v) {
        if (!json_object_get(v, "api") && key_is_granted(grants, "routes", name))
            sandbox_strv_add(&ask->routes, name);
    }
}

const char *codes_model_name(const struct codes *all, const char *name) {
    return model_ask_name(all->opt.models, name);
}

int64_t codes_task_ms(const struct codes *all) {
    return *all->opt.task_ms;
}

/* One that is ending keeps the end it has come to. */
static void code_fail(struct code_job *c, const struct err *err) {
    if (c->state == CODE_ENDING)
        return;
    c->err = *err;
    code_job_finish(c);
}

static void code_tell(struct code_job *c, const char *type, json_t *event) {
    _cleanup_(json) json_t *j = event;
    _cleanup_(free) char *text = json_dumps(j, JSON_COMPACT);
    if (text)
        job_event(c->job, type, text, strlen(text));
}

/* --- commands inside --- */

/* Finishes the request. */
static int start_exec(struct code_job *c, struct exec_request *r, struct err *err) {
    struct sandbox *s = code_place(c);
    c->offset = 0;
    int rc = s ? exec_start(s, r, &c->exec, err)
               : err_set(err, ERR_UNAVAILABLE, "the sandbox has ended");
    exec_request_finish(r);
    if (rc < 0)
        return rc;
    c->follower = (struct exec_follower){.on_change = code_on_change, .ctx = c};
    exec_follow(c->exec, &c->follower);
    return 0;
}

static void drop_exec(struct code_job *c) {
    if (!c->exec)
        return;
    later_cancel(&c->more);
    exec_input_close(steal_ptr(&c->feed), false);
    exec_unfollow(c->exec, &c->follower);
    exec_unref(c->exec);
    c->exec = NULL;
}

static bool exec_went_well(const struct exec *e) {
    return e && e->has_exit && !e->exit.signaled && e->exit.code == 0;
}

/* The end of what it said on its standard error, as text. */
static json_t *said_at_last(struct exec *e) {
    char text[SAID_BYTES];
    uint64_t end = e->sizes[EXEC_STDERR];
    uint64_t from = end > sizeof(text) - 1 ? end - (sizeof(text) - 1) : 0;
    ssize_t n = exec_read(e, EXEC_STDERR, MAX(from, e->first[EXEC_STDERR]), text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = 0;
    return json_text(text);
}

/* --- the network --- */

static int begin_preparing(struct code_job *c, struct err *err) {
    struct exec_request r;
    code_tree_remember(&r);
    return start_exec(c, &r, err);
}

static int code_begin_work(struct code_job *c, struct err *err);

static void code_on_opened(void *ctx, const struct err *err) {
    struct opening *o = ctx;
    struct code_job *c = o->code;
    struct err why;
    free(o);
    if (!c)
        return;
    c->opening = NULL;
    if (err) {
        code_fail(c, err);
        return;
    }
    bool work = !c->ask.include_diff;
    code_move(c, work ? CODE_WORKING : CODE_PREPARING);
    if ((work ? code_begin_work(c, &why) : begin_preparing(c, &why)) < 0)
        code_fail(c, &why);
}

/* From now on the sandbox reaches what the agent may have, and nothing else. */
static void begin_opening(struct code_job *c) {
    struct sandbox *s = code_place(c);
    struct egress_policy policy = {0};
    struct err err;
    int rc = s && s->line ? code_place_policy(c, true, &policy, &err)
                          : err_set(&err, ERR_UNAVAILABLE, "the sandbox has ended");
    code_move(c, CODE_OPENING);
    if (rc < 0) {
        code_fail(c, &err);
        return;
    }
    c->opened = true;
    code_place_pay(c);
    c->opening = xcalloc(1, sizeof(*c->opening));
    c->opening->code = c;
    network_line_set(s->line, &policy, code_on_opened, c->opening);
}

/* --- the repository --- */

static int64_t clone_s(const struct code_job *c) {
    return MIN((int64_t)CODE_CLONE_S, (c->ask.timeout_ms + 999) / 1000);
}

static int begin_cloning(struct code_job *c, struct err *err) {
    c->cloning_ms = clock_mono_ms();
    code_tell(c, "clone", json_pack("{s:s,s:s?}", "repo", c->resolved.repo, "ref", c->ask.ref));
    struct exec_request r;
    code_tree_clone(
        &(struct code_tree){.repo = c->resolved.repo, .route = c->clone_route, .ref = c->ask.ref},
        clone_s(c), &r);
    return start_exec(c, &r, err);
}

static void clone_failed(const struct code_job *c, struct err *err) {
    _cleanup_(json) json_t *said = said_at_last(c->exec);
    if (c->exec->timed_out)
        (void)err_set(err, ERR_TIMEOUT, "the repository was not cloned within %lld s",
                      (long long)clone_s(c));
    else
        (void)code_tree_failure(c->resolved.repo,
                                c->exec->exit.oom ? CODE_TREE_OOM : json_string_value(said), err);
}

static void code_cloned(struct code_job *c) {
    struct err err;
    if (!exec_went_well(c->exec)) {
        clone_failed(c, &err);
        drop_exec(c);
        code_fail(c, &err);
        return;
    }
    drop_exec(c);
    const char *commit = c->said.data ? c->said.data : "";
    code_tell(c, "cloned",
              json_pack("{s:s%,s:I}", "commit", commit, strcspn(commit, "\n"), "ms",
                        (json_int_t)(clock_mono_ms() - c->cloning_ms)));
    buf_clear(&c->said);
    begin_opening(c);
}

/* --- the agent --- */

static bool code_on_coder_event(void *ctx, const struct coder_event *event) {
    struct code_job *c = ctx;
    c->told++;
    job_event(c->job, coder_type_name(event->type), event->text, event->len);
    if (event->type == CODER_DONE || event->type == CODER_FAILED) {
        json_decref(c->last);
        c->last = json_deep_copy(event->json);
    }
    return true;
}

static int code_begin_work(struct code_job *c, struct err *err) {
    const struct code_request *r = &c->ask;
    c->reader = coder_reader_create(&(struct coder_reader_options){
        .lines = r->command ? CODER_LINES_TEXT : c->resolved.def->lines,
        .agent = r->command ? "command" : c->resolved.def->name,
        .model = c->resolved.model.id,
        .dir = CODE_DIR,
        .max_steps = r->max_steps,
        .on_event = code_on_coder_event,
        .ctx = c});
    struct exec_request x = {.command = r->command};
    if (!r->command)
        coder_def_command(c->resolved.def,
                          &(struct coder_fill){.options = code_request_options(r),
                                               .system_prompt = c->ask.system_prompt,
                                               .append_system_prompt = c->ask.append_system_prompt,
                                               .dir = CODE_DIR,
                                               .spec = r->spec,
                                               .model = c->resolved.model.id,
                                               .dialect = c->resolved.dialect,
                                               .max_steps = r->max_steps,
                                               .timeout_ms = r->timeout_ms},
                          &x);
    x.cwd = CODE_DIR;
    x.timeout_s = (r->timeout_ms + 999) / 1000;
    x.read_only = c->ask.plan;
    return start_exec(c, &x, err);
}

static void end_work(struct code_job *c) {
    struct exec *e = c->exec;
    struct coder_exit how = {.exit_code = -1, .cancelled = c->cancelled, .timed_out = e->timed_out};
    if (e->has_exit && e->exit.signaled)
        how.signal = (int)e->exit.code;
    else if (e->has_exit)
        how.exit_code = (int)e->exit.code;
    /* One that could not begin says why where nobody looks. */
    if (!c->last && !c->cancelled && !exec_went_well(e) && e->bytes[EXEC_STDERR] > 0)
        code_tell(c, "error",
                  json_pack("{s:s,s:I,s:o}", "type", "error", "at",
                            (json_int_t)(clock_wall_ms() - e->created_ms), "message",
                            said_at_last(e)));
    coder_reader_end(c->reader, &how);
}

/* --- what was there, and what changed --- */

/* The output of the command that told what is there stays on this side until it is asked for: it is
 * the base that the changes are told against. */
static void keep_base(struct code_job *c) {
    struct exec *e = c->exec;
    if (!exec_went_well(e) || e->truncated) {
        _cleanup_(json) json_t *said = said_at_last(e);
        log_warn("code.base", "run", job_id(c->job), "error", json_string_value(said));
        c->base_is_lost = true;
        return;
    }
    exec_unfollow(e, &c->follower);
    c->base = steal_ptr(&c->exec);
}

static void drop_base(struct code_job *c) {
    if (c->base)
        exec_forget_output(c->base);
    exec_unref(steal_ptr(&c->base));
}

static void feed_base(void *ctx) {
    struct code_job *c = ctx;
    static char data[LONG_CHUNK];
    ssize_t n = 0;
    while (c->feed && (n = exec_read(c->base, EXEC_STDOUT, c->fed, data, sizeof(data))) > 0) {
        c->fed += (uint64_t)n;
        if (!exec_input_write(c->feed, data, (size_t)n))
            return; /* until it has room */
    }
    exec_input_close(steal_ptr(&c->feed), true);
}

/* It reads no more; what it says of that is its exit status. */
static void code_on_feed_end(void *ctx, const struct err *err) {
    struct code_job *c = ctx;
    (void)err;
    c->feed = NULL;
}

static void begin_artifact(struct code_job *c, const char *name, const char *type,
                           struct artifact_writer **ret) {
    struct err err;
    if (artifact_begin(sandboxes_store(c->all->opt.sandboxes), job_id(c->job), name, type, ret,
                       &err) < 0)
        log_warn("code.diff", "error", err.message);
}

static int begin_collecting(struct code_job *c, struct err *err) {
    static const struct exec_input_callbacks feeding = {.on_room = feed_base,
                                                        .on_end = code_on_feed_end};
    struct code_changes what = {
        .is_new = !c->base, .ignore = c->ask.gitignore, .contents = c->ask.changed_files};
    begin_artifact(c, CODE_DIFF_NAME, "text/x-diff", &c->diff);
    if (what.contents)
        begin_artifact(c, CODE_FILES_NAME, "application/octet-stream", &c->files);
    changes_reader_init(&c->changes, false);
    struct exec_request r;
    code_tree_changes(&what, &r);
    int rc = start_exec(c, &r, err);
    if (rc == 0 && c->base) {
        rc = exec_input_open(c->exec, &feeding, c, &c->feed, err);
        if (rc == 0)
            feed_base(c);
    }
    return rc;
}

static void keep_record(struct artifact_writer **w, const void *data, size_t len) {
    struct err err;
    if (*w && artifact_write(*w, data, len, &err) < 0) {
        log_warn("code.diff", "error", err.message);
        artifact_cancel(steal_ptr(w));
    }
}

static void take_left(struct code_job *c, const struct changes_record *r) {
    if (!c->left_out)
        c->left_out = json_array();
    if (json_array_size(c->left_out) < CHANGES_LEFT_MAX)
        (void)json_array_append_new(c->left_out, json_pack("{s:o,s:s}", "path", json_text(r->path),
                                                           "why", changes_why_text(r->why)));
}

static void take_record(struct code_job *c, const struct changes_record *r) {
    if (r->kind == CHANGES_DIFF) {
        (void)buf_add(&c->said, r->data, MIN(r->len, CODE_DIFF_BYTES + 1 - c->said.len));
        keep_record(&c->diff, r->data, r->len);
        return;
    }
    if (r->kind == CHANGES_LEFT)
        take_left(c, r);
    if (r->kind == CHANGES_END)
        c->end = r->end;
    if (!c->files)
        return;
    _cleanup_(buf) struct buf packed;
    buf_init(&packed, CHANGES_PIECE_BYTES + CHANGES_PATH_MAX);
    changes_pack(&packed, r);
    keep_record(&c->files, packed.data, packed.len);
}

static int take_changes(struct code_job *c, const char *data, size_t len, struct err *err) {
    static struct changes_record r;
    int rc = changes_reader_feed(&c->changes, data, len, err);
    while (rc == 0 && (rc = changes_reader_next(&c->changes, &r, err)) > 0) {
        take_record(c, &r);
        rc = 0;
    }
    return rc;
}

/* --- from begin to end --- */

static void take_output(struct code_job *c, const char *data, size_t len) {
    struct err err;
    if (c->state == CODE_WORKING) {
        if (coder_reader_feed(c->reader, data, len, &err) < 0)
            exec_kill(c->exec, SIGKILL); /* what it says from now on is not read */
    } else if (c->state == CODE_CLONING) {
        (void)buf_add(&c->said, data, MIN(len, CODE_DIFF_BYTES + 1 - c->said.len));
    } else if (c->state == CODE_COLLECTING && take_changes(c, data, len, &err) < 0) {
        log_warn("code.changes", "run", job_id(c->job), "error", err.message);
        exec_kill(c->exec, SIGKILL);
    }
}

/* The sandbox is gone from under the command, and nobody of the job's wanted that: what it was
 * about is not known, so that it does not count as done. */
static bool was_cut_off(const struct code_job *c, struct err *err) {
    const struct exec *e = c->exec;
    bool cut = !e->has_exit && !c->cancelled &&
               (e->state == EXEC_INTERRUPTED || e->err.code == ERR_CANCELLED ||
                err_is_fault(e->err.code)); /* cancelled: while it was started */
    if (cut)
        (void)err_set(err, ERR_UNAVAILABLE, "the sandbox ended before its command did");
    return cut;
}

/* The command that ran has ended. */
static void code_next(struct code_job *c) {
    struct err err;
    int rc;
    if (was_cut_off(c, &err)) {
        code_fail(c, &err);
        return;
    }
    if (c->state == CODE_CLONING && !c->cancelled) {
        code_cloned(c);
        return;
    }
    if (c->state == CODE_WORKING)
        end_work(c);
    if (c->state == CODE_PREPARING)
        keep_base(c);
    if (c->state == CODE_COLLECTING)
        c->collected = exec_went_well(c->exec) && !c->exec->truncated && c->changes.ended;
    drop_exec(c);
    if (c->state == CODE_COLLECTING)
        drop_base(c);
    if (c->state == CODE_PREPARING && !c->cancelled) {
        code_move(c, CODE_WORKING);
        rc = code_begin_work(c, &err);
    } else if (c->state == CODE_WORKING && c->ask.include_diff && !c->base_is_lost) {
        code_move(c, CODE_COLLECTING);
        rc = begin_collecting(c, &err);
    } else {
        code_job_finish(c);
        return;
    }
    if (rc < 0)
        code_fail(c, &err);
}

static void code_on_change(void *ctx) {
    struct code_job *c = ctx;
    struct exec *e = c->exec;
    static char data[LONG_CHUNK];
    ssize_t n = 0;
    bool collecting = c->state == CODE_COLLECTING;
    int chunks = collecting ? LONG_CHUNKS_PER_TURN : CHUNKS_PER_TURN;
    c->told = 0;
    /* An agent that says much must not make the others wait. What was there before is read later.
     */
    for (int i = 0; c->state != CODE_PREPARING && i < chunks && c->told < EVENTS_PER_TURN; i++) {
        n = exec_read(e, EXEC_STDOUT, c->offset, data, collecting ? LONG_CHUNK : CHUNK);
        if (n <= 0)
            break;
        c->offset += (uint64_t)n;
        take_output(c, data, (size_t)n);
    }
    if (n > 0)
        later_post(&c->all->later, &c->more, code_on_change, c);
    else if (exec_has_ended(e))
        code_next(c);
}

static void code_on_timer_closed(uv_handle_t *h) {
    struct code_job *c = h->data;
    coder_reader_destroy(c->reader);
    json_decref(c->last);
    json_decref(c->grants);
    code_request_finish(&c->ask);
    code_resolved_finish(&c->resolved);
    free(c->clone_route);
    buf_finish(&c->said);
    artifact_cancel(c->diff);
    artifact_cancel(c->files);
    drop_base(c);
    changes_reader_finish(&c->changes);
    json_decref(c->left_out);
    free(c);
}

static void code_end_job(void *ctx) {
    struct code_job *c = ctx;
    struct code_job **at = &c->all->list;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    code_record_end(c);
    uv_close((uv_handle_t *)&c->timer, code_on_timer_closed);
}

/* The way to the model was the job's: nobody else is held to what its key may spend. What the
 * sandbox itself may reach is what it shows, also if that was changed meanwhile. */
static void code_on_shut(void *ctx, const struct err *err) {
    struct opening *o = ctx;
    struct code_job *c = o->code;
    free(o);
    c->opening = NULL;
    struct sandbox *s = code_place(c);
    code_record_spent(c);
    if (err && s)
        (void)sandbox_end(s, code_end_job, c);
    else
        code_end_job(c);
}

static void begin_shutting(struct code_job *c, struct sandbox *s) {
    struct egress_policy policy = {0};
    struct err err;
    int rc = code_place_policy(c, false, &policy, &err);
    c->opening = xcalloc(1, sizeof(*c->opening));
    c->opening->code = c;
    if (rc < 0)
        code_on_shut(c->opening, &err);
    else
        network_line_set(s->line, &policy, code_on_shut, c->opening);
}

/* The sandbox ends, unless it is to be kept; the job when it has. */
static void code_job_finish(struct code_job *c) {
    if (c->state == CODE_ENDING)
        return;
    bool making = c->state == CODE_MAKING;
    code_move(c, CODE_ENDING);
    if (c->exec && !exec_has_ended(c->exec))
        exec_kill(c->exec, SIGKILL); /* also in one that stays */
    drop_exec(c);
    later_cancel(&c->more);
    if (c->opening)
        c->opening->code = NULL;
    c->opening = NULL;
    (void)uv_timer_stop(&c->timer);
    struct sandbox *s = code_place(c);
    code_record_ended(c);
    if (s && making && !c->borrowed)
        sandbox_drop_maker(s); /* it ends, and code_on_made() is not called */
    bool stays = c->ask.keep && (c->borrowed || !c->cancelled);
    if (s && !making && !stays)
        (void)sandbox_end(s, code_end_job, c);
    else if (s && s->line && stays && c->opened && !c->all->closing)
        begin_shutting(c, s);
    else
        code_end_job(c);
}

static void code_on_late(uv_timer_t *t) {
    code_job_finish(t->data);
}

static void code_on_cancel(void *ctx) {
    struct code_job *c = ctx;
    bool again = c->cancelled;
    c->cancelled = true;
    if (c->state == CODE_WORKING && !again) {
        /* It may end in order, and say what it was about. */
        exec_kill(c->exec, SIGTERM);
        (void)uv_timer_start(&c->timer, code_on_late, CANCEL_MS, 0);
    } else {
        code_job_finish(c);
    }
}

/* --- the sandbox --- */

static void code_on_made(void *ctx, struct sandbox *s, const struct err *err) {
    struct code_job *c = ctx;
    struct err why;
    if (err) {
        *c->sandbox_id = 0;
        code_fail(c, err);
        return;
    }
    c->opened = true;
    code_place_pay(c);
    code_tell(c, "sandbox", json_pack("{s:s}", "id", s->id));
    bool empty = json_array_size(c->ask.files) == 0;
    enum code_state to = c->resolved.repo                ? CODE_CLONING
                         : c->ask.include_diff && !empty ? CODE_PREPARING
                                                         : CODE_WORKING;
    code_move(c, to);
    int rc = to == CODE_CLONING     ? begin_cloning(c, &why)
             : to == CODE_PREPARING ? begin_preparing(c, &why)
                                    : code_begin_work(c, &why);
    if (rc < 0)
        code_fail(c, &why);
}

static void begin_again(void *ctx) {
    struct code_job *c = ctx;
    if (c->state != CODE_MAKING)
        return;
    code_tell(c, "sandbox", json_pack("{s:s}", "id", c->sandbox_id));
    begin_opening(c);
}

static int begin_sandbox(struct code_job *c, struct err *err) {
    code_move(c, CODE_MAKING);
    int rc = c->ask.sandbox ? code_place_use(c, err) : code_place_make(c, code_on_made, err);
    if (rc == 0 && c->borrowed)
        later_post(&c->all->later, &c->more, begin_again, c);
    return rc;
}

/* The key has something left. What each call of the model may cost is set aside when it is made. */
static void code_on_held(void *ctx, const struct account_grant *grant, const struct err *err) {
    struct code_job *c = ctx;
    struct err why;
    (void)grant;
    if (err) {
        c->hold = NULL;
        c->held_up = err->code == ERR_RATE;
        code_fail(c, err);
        return;
    }
    if (begin_sandbox(c, &why) < 0)
        code_fail(c, &why);
}

/* Of a key without limits nothing is set aside, and what it used is put down in the end. */
static void code_on_free(void *ctx, const struct account_grant *grant, const struct err *err) {
    struct code_job *c = ctx;
    (void)grant;
    if (!err)
        return;
    c->hold = NULL;
    code_fail(c, err);
}

/* While its changes are collected the agent has ended, and nothing is spent any more: the job keeps
 * the end that it has come to. */
static void code_on_revoked(void *ctx, const struct err *err) {
    struct code_job *c = ctx;
    if (c->state != CODE_COLLECTING)
        code_fail(c, err);
}

static int hold_job(struct code_job *c, struct err *err) {
    struct accounts *a = c->all->opt.accounts;
    const struct model_info *model = &c->resolved.model;
    bool limited = account_has_limits(a, c->key);
    c->hold = account_hold_job(a,
                               &(struct account_job){.owner = c->owner,
                                                     .key = c->key,
                                                     .kind = c->ask.kind,
                                                     .model = model,
                                                     .on_revoked = code_on_revoked},
                               limited ? code_on_held : code_on_free, c);
    return limited ? 0 : begin_sandbox(c, err);
}

static struct code_request_rules rules_of(const struct codes *all) {
    const struct sandbox_features *f = sandboxes_features(all->opt.sandboxes);
    return (struct code_request_rules){.defs = all->opt.defs,
                                       .models = all->opt.models,
                                       .model = all->opt.model,
                                       .max_steps = *all->opt.max_steps,
                                       .settings = sandboxes_settings(all->opt.sandboxes),
                                       .landlock = !f || f->landlock > 0};
}

int code_check(const struct codes *all, struct code_request *request, struct err *err) {
    struct code_request_rules rules = rules_of(all);
    struct code_resolved resolved = {0};
    int rc = code_request_resolve(&rules, request, &resolved, err);
    code_resolved_finish(&resolved);
    return rc;
}

int code_start(struct codes *all, const struct code_ask *ask, struct code_request *request,
               char ret_id[ID_SIZE], struct err *err) {
    struct code_job *c = xcalloc(1, sizeof(*c));
    c->all = all;
    c->ask = *request;
    *request = (struct code_request){0};
    c->grants = json_incref((json_t *)(uintptr_t)ask->grants);
    (void)snprintf(c->owner, sizeof(c->owner), "%s", ask->owner);
    (void)snprintf(c->key, sizeof(c->key), "%s", ask->key);
    c->sees_all = ask->scope.all;
    buf_init(&c->said, CODE_DIFF_BYTES + 2);
    (void)uv_timer_init(all->opt.loop, &c->timer);
    c->timer.data = c;
    struct code_request_rules rules = rules_of(all);
    int rc = code_request_resolve(&rules, &c->ask, &c->resolved, err);
    if (rc == 0) {
        _cleanup_(free) char *title = code_request_title(&c->ask);
        rc = job_begin(all->opt.jobs,
                       &(struct job_spec){.id = ask->id,
                                          .kind = c->ask.kind,
                                          .owner = ask->owner,
                                          .key = ask->key,
                                          .title = title,
                                          .stores_events = true,
                                          .cancel = code_on_cancel,
                                          .ctx = c},
                       &c->job, err);
    }
    if (rc < 0) {
        uv_close((uv_handle_t *)&c->timer, code_on_timer_closed);
        return rc;
    }
    memcpy(ret_id, job_id(c->job), ID_SIZE);
    c->next = all->list;
    all->list = c;
    rc = hold_job(c, &c->err);
    if (rc < 0) {
        *err = c->err;
        code_move(c, CODE_ENDING);
        code_end_job(c);
    }
    return rc;
}

void codes_close(struct codes *all) {
    struct code_job *following;
    all->closing = true; /* so does every sandbox */
    for (struct code_job *c = all->list; c; c = following) {
        following = c->next;
        c->cancelled = true;
        code_job_finish(c);
    }
}
