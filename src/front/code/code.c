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

static void on_change(void *ctx);
static void finish(struct code_job *c);

static void code_move(struct code_job *c, enum code_state to) {
    c->state = (enum code_state)sm_next(&code_sm, c->state, to);
}

struct codes *codes_create(const struct codes_options *options) {
    struct codes *all = xcalloc(1, sizeof(*all));
    all->opt = *options;
    later_queue_init(&all->later, options->loop);
    return all;
}

static void on_later_closed(uv_handle_t *h) {
    free(h->data);
}

void codes_destroy(struct codes *all) {
    later_queue_close(&all->later, on_later_closed, all);
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

json_t *codes_open_network(const struct codes *all, const json_t *grants) {
    const struct sandbox_settings *set = sandboxes_settings(all->opt.sandboxes);
    json_t *routes = json_array();
    const char *name;
    json_t *route;
    json_object_foreach(set->routes, name, route) {
        if (!json_object_get(route, "api") && sandbox_is_granted(grants, "routes", name))
            (void)json_array_append_new(routes, json_string(name));
    }
    return json_pack("{s:o,s:o}", "allow", set->allow ? json_incref(set->allow) : json_array(),
                     "routes", routes);
}

const char *codes_model_name(const struct codes *all, const char *name) {
    return model_ask_name(all->opt.models, name);
}

int64_t codes_task_ms(const struct codes *all) {
    return *all->opt.task_ms;
}

static void fail(struct code_job *c, const struct err *err) {
    c->err = *err;
    finish(c);
}

static void tell(struct code_job *c, const char *type, json_t *event) {
    _cleanup_(json) json_t *j = event;
    _cleanup_(free) char *text = json_dumps(j, JSON_COMPACT);
    if (text)
        job_event(c->job, type, text, strlen(text));
}

/* --- commands inside --- */

static int start_exec(struct code_job *c, json_t *body, struct err *err) {
    _cleanup_(json) json_t *j = body;
    struct sandbox *s = code_place(c);
    c->offset = 0;
    if (!s)
        return err_set(err, ERR_UNAVAILABLE, "the sandbox has ended");
    int rc = exec_start(s, j, false, &c->exec, err);
    if (rc < 0)
        return rc;
    c->follower = (struct exec_follower){.on_change = on_change, .ctx = c};
    exec_follow(c->exec, &c->follower);
    return 0;
}

static void drop_exec(struct code_job *c) {
    if (!c->exec)
        return;
    later_cancel(&c->more);
    exec_unfollow(c->exec, &c->follower);
    exec_unref(c->exec);
    c->exec = NULL;
}

static bool exec_went_well(const struct exec *e) {
    return e->has_exit && !e->exit.signaled && e->exit.code == 0;
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
    return start_exec(c, code_tree_remember(), err);
}

static int begin_work(struct code_job *c, struct err *err);

static void on_opened(void *ctx, const struct err *err) {
    struct opening *o = ctx;
    struct code_job *c = o->code;
    struct err why;
    free(o);
    if (!c)
        return;
    c->opening = NULL;
    if (err) {
        fail(c, err);
        return;
    }
    /* Of a repository the clone has remembered what is there. */
    bool work = c->ask.repo != NULL;
    code_move(c, work ? CODE_WORKING : CODE_PREPARING);
    if ((work ? begin_work(c, &why) : begin_preparing(c, &why)) < 0)
        fail(c, &why);
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
        fail(c, &err);
        return;
    }
    c->opened = true;
    c->opening = xcalloc(1, sizeof(*c->opening));
    c->opening->code = c;
    network_line_set(s->line, &policy, on_opened, c->opening);
}

/* --- the repository --- */

static int64_t clone_s(const struct code_job *c) {
    return MIN((int64_t)CODE_CLONE_S, (c->ask.timeout_ms + 999) / 1000);
}

static int begin_cloning(struct code_job *c, struct err *err) {
    c->cloning_ms = clock_mono_ms();
    tell(c, "clone", json_pack("{s:s,s:s?}", "repo", c->ask.repo, "ref", c->ask.ref));
    return start_exec(
        c,
        code_tree_clone(
            &(struct code_tree){.repo = c->ask.repo, .route = c->clone_route, .ref = c->ask.ref},
            clone_s(c)),
        err);
}

static void clone_failed(const struct code_job *c, struct err *err) {
    _cleanup_(json) json_t *said = said_at_last(c->exec);
    if (c->exec->timed_out)
        (void)err_set(err, ERR_TIMEOUT, "the repository was not cloned within %lld s",
                      (long long)clone_s(c));
    else
        (void)code_tree_failure(c->ask.repo,
                                c->exec->exit.oom ? CODE_TREE_OOM : json_string_value(said), err);
}

static void cloned(struct code_job *c) {
    struct err err;
    if (!exec_went_well(c->exec)) {
        clone_failed(c, &err);
        drop_exec(c);
        fail(c, &err);
        return;
    }
    drop_exec(c);
    const char *commit = c->said.data ? c->said.data : "";
    tell(c, "cloned",
         json_pack("{s:s%,s:I}", "commit", commit, strcspn(commit, "\n"), "ms",
                   (json_int_t)(clock_mono_ms() - c->cloning_ms)));
    buf_clear(&c->said);
    begin_opening(c);
}

/* --- the agent --- */

static bool on_coder_event(void *ctx, const struct coder_event *event) {
    struct code_job *c = ctx;
    c->told++;
    job_event(c->job, coder_type_name(event->type), event->text, event->len);
    if (event->type == CODER_DONE || event->type == CODER_FAILED) {
        json_decref(c->last);
        c->last = json_deep_copy(event->json);
    }
    return true;
}

static unsigned options_of(const struct code_terms *t) {
    unsigned o = 1U << (t->plan ? CODER_OPTION_PLAN : CODER_OPTION_WORK);
    if (t->system_prompt)
        o |= 1U << CODER_OPTION_SYSTEM_PROMPT;
    if (t->append_system_prompt)
        o |= 1U << CODER_OPTION_APPEND_PROMPT;
    return o;
}

static int begin_work(struct code_job *c, struct err *err) {
    const struct code_request *r = &c->ask;
    c->reader = coder_reader_create(
        &(struct coder_reader_options){.lines = r->command ? CODER_LINES_TEXT : r->def->lines,
                                       .agent = r->command ? "command" : r->def->name,
                                       .model = r->model.id,
                                       .dir = CODE_DIR,
                                       .max_steps = r->max_steps,
                                       .on_event = on_coder_event,
                                       .ctx = c});
    json_t *body =
        r->command
            ? json_pack("{s:s}", "command", r->command)
            : coder_def_command(r->def, &(struct coder_fill){
                                            .options = options_of(&c->terms),
                                            .system_prompt = c->terms.system_prompt,
                                            .append_system_prompt = c->terms.append_system_prompt,
                                            .dir = CODE_DIR,
                                            .spec = r->spec,
                                            .model = r->model.id,
                                            .dialect = r->dialect,
                                            .max_steps = r->max_steps,
                                            .timeout_ms = r->timeout_ms});
    (void)json_object_set_new(body, "cwd", json_string(CODE_DIR));
    (void)json_object_set_new(body, "timeout_s",
                              json_integer((json_int_t)((r->timeout_ms + 999) / 1000)));
    (void)json_object_set_new(body, "read_only", json_boolean(c->terms.plan));
    return start_exec(c, body, err);
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
        tell(c, "error",
             json_pack("{s:s,s:I,s:o}", "type", "error", "at",
                       (json_int_t)(clock_wall_ms() - e->created_ms), "message", said_at_last(e)));
    coder_reader_end(c->reader, &how);
}

/* --- from begin to end --- */

static void take_output(struct code_job *c, const char *data, size_t len) {
    struct err err;
    if (c->state == CODE_WORKING) {
        if (coder_reader_feed(c->reader, data, len, &err) < 0)
            exec_kill(c->exec, SIGKILL); /* what it says from now on is not read */
    } else if (c->state == CODE_CLONING || c->state == CODE_COLLECTING) {
        (void)buf_add(&c->said, data, MIN(len, CODE_DIFF_BYTES + 1 - c->said.len));
        bool fits = c->offset <= CODE_KEPT_BYTES;
        if (c->diff && (!fits || artifact_write(c->diff, data, len, &err) < 0))
            artifact_cancel(steal_ptr(&c->diff));
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
static void next(struct code_job *c) {
    struct err err;
    int rc;
    if (was_cut_off(c, &err)) {
        fail(c, &err);
        return;
    }
    if (c->state == CODE_CLONING && !c->cancelled) {
        cloned(c);
        return;
    }
    if (c->state == CODE_WORKING)
        end_work(c);
    if (c->state == CODE_COLLECTING)
        c->collected = exec_went_well(c->exec);
    drop_exec(c);
    if (c->state == CODE_PREPARING && !c->cancelled) {
        code_move(c, CODE_WORKING);
        rc = begin_work(c, &err);
    } else if (c->state == CODE_WORKING && c->terms.include_diff) {
        code_move(c, CODE_COLLECTING);
        if (artifact_begin(sandboxes_store(c->all->opt.sandboxes), job_id(c->job), CODE_DIFF_NAME,
                           "text/x-diff", &c->diff, &err) < 0)
            log_warn("code.diff", "error", err.message);
        rc = start_exec(c, code_tree_diff(), &err);
    } else {
        finish(c);
        return;
    }
    if (rc < 0)
        fail(c, &err);
}

static void on_change(void *ctx) {
    struct code_job *c = ctx;
    struct exec *e = c->exec;
    char data[CHUNK];
    ssize_t n = 0;
    c->told = 0;
    /* An agent that says much must not make the others wait. */
    for (int i = 0; i < CHUNKS_PER_TURN && c->told < EVENTS_PER_TURN; i++) {
        n = exec_read(e, EXEC_STDOUT, c->offset, data, sizeof(data));
        if (n <= 0)
            break;
        c->offset += (uint64_t)n;
        take_output(c, data, (size_t)n);
    }
    if (n > 0)
        later_post(&c->all->later, &c->more, on_change, c);
    else if (exec_has_ended(e))
        next(c);
}

static void on_timer_closed(uv_handle_t *h) {
    struct code_job *c = h->data;
    coder_reader_destroy(c->reader);
    json_decref(c->last);
    json_decref(c->grants);
    free((char *)(uintptr_t)c->terms.system_prompt);
    free((char *)(uintptr_t)c->terms.append_system_prompt);
    json_decref(c->terms.options);
    code_request_finish(&c->ask);
    free(c->clone_route);
    buf_finish(&c->said);
    artifact_cancel(c->diff);
    free(c);
}

static void end_job(void *ctx) {
    struct code_job *c = ctx;
    struct code_job **at = &c->all->list;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    code_record_end(c);
    uv_close((uv_handle_t *)&c->timer, on_timer_closed);
}

/* The way to the model was the job's: nobody else is held to what its key may spend. What the
 * sandbox itself may reach is what it shows, also if that was changed meanwhile. */
static void on_shut(void *ctx, const struct err *err) {
    struct opening *o = ctx;
    struct code_job *c = o->code;
    free(o);
    c->opening = NULL;
    struct sandbox *s = code_place(c);
    code_record_spent(c);
    if (err && s)
        (void)sandbox_end(s, end_job, c);
    else
        end_job(c);
}

static void begin_shutting(struct code_job *c, struct sandbox *s) {
    struct egress_policy policy = {0};
    struct err err;
    int rc = code_place_policy(c, false, &policy, &err);
    c->opening = xcalloc(1, sizeof(*c->opening));
    c->opening->code = c;
    if (rc < 0)
        on_shut(c->opening, &err);
    else
        network_line_set(s->line, &policy, on_shut, c->opening);
}

/* The sandbox ends, unless it is to be kept; the job when it has. */
static void finish(struct code_job *c) {
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
    code_record_spent(c);
    if (s && making && !c->borrowed)
        sandbox_drop_maker(s); /* it ends, and on_made() is not called */
    bool stays = c->ask.keep && (c->borrowed || !c->cancelled);
    if (s && !making && !stays)
        (void)sandbox_end(s, end_job, c);
    else if (s && s->line && stays && c->opened && !c->all->closing)
        begin_shutting(c, s);
    else
        end_job(c);
}

static void on_late(uv_timer_t *t) {
    finish(t->data);
}

static void on_cancel(void *ctx) {
    struct code_job *c = ctx;
    bool again = c->cancelled;
    c->cancelled = true;
    if (c->state == CODE_WORKING && !again) {
        /* It may end in order, and say what it was about. */
        exec_kill(c->exec, SIGTERM);
        (void)uv_timer_start(&c->timer, on_late, CANCEL_MS, 0);
    } else {
        finish(c);
    }
}

/* --- the sandbox --- */

static void on_made(void *ctx, struct sandbox *s, const struct err *err) {
    struct code_job *c = ctx;
    struct err why;
    if (err) {
        *c->sandbox_id = 0;
        fail(c, err);
        return;
    }
    c->opened = true;
    tell(c, "sandbox", json_pack("{s:s}", "id", s->id));
    bool empty = json_array_size(json_object_get(c->ask.body, "files")) == 0;
    enum code_state to = c->ask.repo                       ? CODE_CLONING
                         : c->terms.include_diff && !empty ? CODE_PREPARING
                                                           : CODE_WORKING;
    code_move(c, to);
    int rc = to == CODE_CLONING     ? begin_cloning(c, &why)
             : to == CODE_PREPARING ? begin_preparing(c, &why)
                                    : begin_work(c, &why);
    if (rc < 0)
        fail(c, &why);
}

static void begin_again(void *ctx) {
    struct code_job *c = ctx;
    if (c->state != CODE_MAKING)
        return;
    tell(c, "sandbox", json_pack("{s:s}", "id", c->sandbox_id));
    begin_opening(c);
}

static int begin_sandbox(struct code_job *c, struct err *err) {
    code_move(c, CODE_MAKING);
    int rc = c->ask.sandbox ? code_place_use(c, err) : code_place_make(c, on_made, err);
    if (rc == 0 && c->borrowed)
        later_post(&c->all->later, &c->more, begin_again, c);
    return rc;
}

/* What was set aside is what the sandbox may use up: cay-egress sees to it. */
static void on_held(void *ctx, const struct account_grant *grant, const struct err *err) {
    struct code_job *c = ctx;
    struct err why;
    if (err) {
        c->hold = NULL;
        fail(c, err);
        return;
    }
    if (grant->nusd < INT64_MAX) {
        double usd = (double)grant->nusd / 1e9;
        c->on_account = c->terms.max_usd == 0 || usd < c->terms.max_usd;
        c->terms.max_usd = c->on_account ? usd : c->terms.max_usd;
    }
    if (grant->tokens < INT64_MAX) {
        c->max_tokens = (uint64_t)grant->tokens;
        c->on_account = true;
    }
    if (begin_sandbox(c, &why) < 0)
        fail(c, &why);
}

/* Of a key without limits nothing is set aside, and what it used is put down in the end. */
static void on_free(void *ctx, const struct account_grant *grant, const struct err *err) {
    struct code_job *c = ctx;
    (void)grant;
    if (!err)
        return;
    c->hold = NULL;
    fail(c, err);
}

static void on_revoked(void *ctx, const struct err *err) {
    fail(ctx, err);
}

static int hold_job(struct code_job *c, struct err *err) {
    struct accounts *a = c->all->opt.accounts;
    const struct model_info *model = &c->ask.model;
    bool limited = account_has_limits(a, c->owner);
    c->hold = account_hold_job(a,
                               &(struct account_job){.owner = c->owner,
                                                     .kind = c->terms.kind,
                                                     .model = model,
                                                     .nusd = (int64_t)(c->terms.max_usd * 1e9),
                                                     .on_revoked = on_revoked},
                               limited ? on_held : on_free, c);
    return limited ? 0 : begin_sandbox(c, err);
}

/* The terms must be some that the agent, its model and this machine have. */
static int check_terms(const struct codes *all, const struct code_request *ask,
                       const struct code_terms *t, struct err *err) {
    static const char *const names[] = {"", "the permission mode \"plan\"", "a system prompt",
                                        "a system prompt that is added"};
    const struct sandbox_features *f = sandboxes_features(all->opt.sandboxes);
    unsigned options = t ? options_of(t) : 0;
    for (unsigned i = CODER_OPTION_PLAN; i < CODER_OPTION_COUNT; i++)
        if (options & 1U << i && !coder_def_has_option(ask->def, i))
            return err_set(err, ERR_BAD_REQUEST, "the agent \"%s\" cannot be given %s",
                           ask->def->name, names[i]);
    if (t && t->plan && f && f->landlock == 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "\"plan\" needs Landlock, which the kernel of this machine does not have");
    return !t || ask->model.provider == MODEL_DEMO /* it costs nothing */
               ? 0
               : model_ask_check_budget(&ask->model, t->max_usd, err);
}

static void take_terms(struct code_job *c, const struct code_terms *t) {
    c->terms = t ? *t : (struct code_terms){.kind = "code", .include_diff = true};
    c->terms.system_prompt = t && t->system_prompt ? xstrdup(t->system_prompt) : NULL;
    c->terms.append_system_prompt =
        t && t->append_system_prompt ? xstrdup(t->append_system_prompt) : NULL;
    json_incref(c->terms.options);
    if (c->terms.plan)
        c->terms.include_diff = false; /* there is nothing to tell */
    if (c->ask.model.provider == MODEL_DEMO)
        c->terms.max_usd = 0;
}

static struct code_request_rules rules_of(const struct codes *all) {
    return (struct code_request_rules){.defs = all->opt.defs,
                                       .models = all->opt.models,
                                       .model = all->opt.model,
                                       .max_steps = *all->opt.max_steps,
                                       .settings = sandboxes_settings(all->opt.sandboxes)};
}

int code_check(const struct codes *all, const json_t *body, const struct code_terms *terms,
               struct err *err) {
    struct code_request_rules rules = rules_of(all);
    struct code_request ask = {0};
    int rc = code_request_read(&rules, body, &ask, err);
    if (rc == 0)
        rc = check_terms(all, &ask, terms, err);
    code_request_finish(&ask);
    return rc;
}

int code_start(struct codes *all, const struct code_ask *ask, char ret_id[ID_SIZE],
               struct err *err) {
    struct code_job *c = xcalloc(1, sizeof(*c));
    c->all = all;
    c->grants = json_incref((json_t *)(uintptr_t)ask->grants);
    (void)snprintf(c->owner, sizeof(c->owner), "%s", ask->owner);
    c->sees_all = ask->scope.all;
    buf_init(&c->said, CODE_DIFF_BYTES + 2);
    (void)uv_timer_init(all->opt.loop, &c->timer);
    c->timer.data = c;
    struct code_request_rules rules = rules_of(all);
    int rc = code_request_read(&rules, ask->body, &c->ask, err);
    if (rc == 0)
        rc = check_terms(all, &c->ask, ask->terms, err);
    if (rc == 0) {
        take_terms(c, ask->terms);
        _cleanup_(free) char *title = code_request_title(&c->ask);
        rc = job_begin(all->opt.jobs,
                       &(struct job_spec){.kind = c->terms.kind,
                                          .owner = ask->owner,
                                          .title = title,
                                          .stores_events = true,
                                          .cancel = on_cancel,
                                          .ctx = c},
                       &c->job, err);
    }
    if (rc < 0) {
        uv_close((uv_handle_t *)&c->timer, on_timer_closed);
        return rc;
    }
    memcpy(ret_id, job_id(c->job), ID_SIZE);
    c->next = all->list;
    all->list = c;
    rc = hold_job(c, &c->err);
    if (rc < 0) {
        *err = c->err;
        code_move(c, CODE_ENDING);
        end_job(c);
    }
    return rc;
}

void codes_close(struct codes *all) {
    struct code_job *following;
    all->closing = true; /* so does every sandbox */
    for (struct code_job *c = all->list; c; c = following) {
        following = c->next;
        c->cancelled = true;
        finish(c);
    }
}
