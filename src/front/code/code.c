#include "front/code/code.h"

#include "base/base64.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sm.h"
#include "base/utf8.h"
#include "front/account/account.h"
#include "front/code/request.h"
#include "front/code/route.h"
#include "front/code/tree.h"
#include "front/model/ask.h"
#include "front/sandbox/exec.h"
#include "front/store/artifacts.h"
#include "wire/coder.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SPARE_S = 60, /* of the sandbox's life, beyond the agent's time */
    CLONE_S = 180,
    CHUNK = 1024,
    EVENTS_PER_TURN = 64, /* each is written to the store */
    CHUNKS_PER_TURN = 256,
    CANCEL_MS = 5000,
    SAID_BYTES = 2000, /* of what a command said on its standard error */
};

#define DIFF_NAME "changes.diff"

enum code_state {
    CODE_HOLDING,    /* what it may cost is being set aside */
    CODE_MAKING,     /* the sandbox is being made */
    CODE_CLONING,    /* the repository is being fetched */
    CODE_OPENING,    /* the network becomes what the agent may have */
    CODE_PREPARING,  /* what is there before is remembered */
    CODE_WORKING,    /* the agent runs */
    CODE_COLLECTING, /* what it changed is read */
    CODE_ENDING,     /* the sandbox ends */
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

/* A change of the network that is under way, and may outlive the job that asked for it. */
struct opening {
    struct code_job *code; /* NULL: nobody waits any more */
};

struct code_job {
    struct code_job *next;
    struct codes *all;
    enum code_state state;
    struct job *job;
    struct code_request ask;
    struct code_terms terms;
    json_t *grants;
    char owner[ID_SIZE];
    bool sees_all;
    struct account_hold *hold;
    uint64_t max_tokens;         /* of its model, by what its key has left; 0: no limit */
    bool on_account;             /* what it may cost is what its key has left */
    struct network_spent before; /* what the sandbox had used when it began */
    struct network_spent spent;  /* what this job has, once the agent has ended */
    char sandbox_id[ID_SIZE];    /* "": there is none */
    char *clone_route;           /* the name of the one to the repository; or NULL */
    struct opening *opening;
    bool opened;       /* the sandbox has, or may have, the way to the model */
    uv_timer_t timer;  /* for one that was asked to end */
    struct exec *exec; /* the one that runs */
    struct exec_follower follower;
    uint64_t offset;
    struct later more; /* there is more to read than one turn takes */
    size_t told;       /* events of this turn */
    int64_t cloning_ms;
    struct coder_reader *reader;
    json_t *last;                 /* the agent's last event */
    struct buf said;              /* the commit; then the diff */
    struct artifact_writer *diff; /* all of it; NULL: it is not kept */
    bool collected;
    bool borrowed;  /* the sandbox was there before, and stays */
    struct err err; /* why it ended early; code 0: it did not */
    bool cancelled;
};

struct codes {
    struct codes_options opt;
    struct code_job *list;
    struct later_queue later;
    bool closing;
};

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

static struct sandbox *sandbox_of(const struct code_job *c) {
    return *c->sandbox_id ? sandboxes_find(c->all->opt.sandboxes, c->sandbox_id) : NULL;
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
    struct sandbox *s = sandbox_of(c);
    c->offset = 0;
    if (!s)
        return err_set(err, ERR_UNAVAILABLE, "the sandbox has ended");
    int rc = exec_start(s, j, &c->exec, err);
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

/* What its model costs; the most that any does, if that is not known. */
static struct egress_price price_of(const struct code_job *c) {
    const struct model_info *m = c->ask.model;
    const struct model_price *p =
        m->price.known ? &m->price : accounts_dearest(c->all->opt.accounts);
    return (struct egress_price){.model = m->id,
                                 .input = (uint64_t)p->input,
                                 .output = (uint64_t)p->output,
                                 .cache_read = (uint64_t)p->cache_read,
                                 .cache_write = (uint64_t)p->cache_write};
}

/* What the agent may reach: what was asked for, its model, and during the clone its repository. */
static int make_policy(const struct code_job *c, const struct egress_route *routes, size_t n,
                       struct egress_policy *ret, struct err *err) {
    struct network *net = sandboxes_network(c->all->opt.sandboxes);
    const struct sandbox *s = sandbox_of(c);
    const json_t *asked = n > 0 ? json_object_get(c->ask.body, "network") : NULL;
    json_t *shown = NULL;
    if (!asked && s)
        asked = json_object_get(s->doc, "network");
    int rc = network_read(net, asked, c->grants, ret, &shown, err);
    json_decref(shown);
    for (size_t i = 0; rc == 0 && i < n; i++)
        network_add_route(net, ret, &routes[i]);
    if (rc == 0) {
        struct egress_price price = price_of(c);
        network_add_price(net, ret, &price);
    }
    if (rc == 0 && c->terms.max_usd > 0)
        network_cap_cost(ret, c->terms.max_usd + (double)c->before.cost_nusd / 1e9);
    if (rc == 0 && c->max_tokens > 0)
        network_cap_tokens(ret, c->max_tokens + c->before.tokens_in + c->before.tokens_out);
    return rc;
}

static int model_route(const struct code_job *c, struct egress_route *ret, struct err *err) {
    const struct codes_options *o = &c->all->opt;
    return code_route_model(o->secrets, o->door, c->ask.model, c->ask.dialect, ret, err);
}

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
    struct sandbox *s = sandbox_of(c);
    struct egress_route route = {0};
    struct egress_policy policy = {0};
    struct err err;
    int rc = s && s->line ? model_route(c, &route, &err)
                          : err_set(&err, ERR_UNAVAILABLE, "the sandbox has ended");
    if (rc == 0) {
        rc = make_policy(c, &route, 1, &policy, &err);
        egress_route_finish(&route);
    }
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
    return MIN((int64_t)CLONE_S, (c->ask.timeout_ms + 999) / 1000);
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
                                       .model = r->model->id,
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
                                            .model = r->model->id,
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
               (e->state == EXEC_INTERRUPTED || err_is_fault(e->err.code));
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
        if (artifact_begin(sandboxes_store(c->all->opt.sandboxes), job_id(c->job), DIFF_NAME,
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

/* --- what it spent --- */

static uint64_t beyond(uint64_t now, uint64_t before) {
    return now > before ? now - before : 0;
}

static void take_spent(struct code_job *c, struct network_spent now) {
    c->spent.tokens_in = MAX(c->spent.tokens_in, beyond(now.tokens_in, c->before.tokens_in));
    c->spent.tokens_out = MAX(c->spent.tokens_out, beyond(now.tokens_out, c->before.tokens_out));
    c->spent.cost_nusd = MAX(c->spent.cost_nusd, beyond(now.cost_nusd, c->before.cost_nusd));
}

/* The last count of a sandbox that has ended is in its record. */
static void take_last_spent(struct code_job *c) {
    struct store_record r;
    struct err ignored;
    const struct sandbox *s = sandbox_of(c);
    if (s && s->line)
        take_spent(c, network_line_spent(s->line));
    if (s || !*c->sandbox_id ||
        store_record_get(sandboxes_store(c->all->opt.sandboxes), "sandbox", c->sandbox_id, NULL,
                         (struct store_scope){.all = true}, &r, &ignored) < 0)
        return;
    _cleanup_(json) json_t *doc = json_loads(r.doc, 0, NULL);
    const json_t *u = json_object_get(json_object_get(doc, "usage"), "network");
    double usd = json_number_value(json_object_get(u, "cost_usd"));
    take_spent(c, (struct network_spent){
                      .tokens_in = (uint64_t)json_integer_value(json_object_get(u, "tokens_in")),
                      .tokens_out = (uint64_t)json_integer_value(json_object_get(u, "tokens_out")),
                      .cost_nusd = (uint64_t)llround(usd * 1e9)});
    store_record_finish(&r);
}

static void settle(struct code_job *c) {
    struct model_usage used = {.input_tokens = (int64_t)c->spent.tokens_in,
                               .output_tokens = (int64_t)c->spent.tokens_out};
    if (c->hold)
        account_settle_as(steal_ptr(&c->hold), &used, (int64_t)c->spent.cost_nusd);
}

static struct store_run_usage usage_of(const struct code_job *c) {
    bool any = c->spent.tokens_in > 0 || c->spent.tokens_out > 0;
    bool known = c->ask.model->price.known;
    return (struct store_run_usage){.input_tokens = (int64_t)c->spent.tokens_in,
                                    .output_tokens = (int64_t)c->spent.tokens_out,
                                    .cost_nusd = known ? (int64_t)c->spent.cost_nusd : 0,
                                    .unpriced = any && !known};
}

/* --- what is remembered --- */

/* The bytes of a diff may be no text: then they are told as they are, too. */
static void add_diff(const struct code_job *c, json_t *d, bool kept) {
    const char *diff = c->said.data && c->collected ? c->said.data : "";
    size_t n = c->collected ? MIN(c->said.len, (size_t)CODE_DIFF_BYTES) : 0;
    bool whole = c->collected && c->said.len <= CODE_DIFF_BYTES;
    if (!whole)
        n = utf8_floor(diff, n, n);
    if (utf8_is_valid(diff, n) && !memchr(diff, 0, n)) {
        (void)json_object_set_new(d, "diff", json_stringn(diff, n));
    } else {
        _cleanup_(free) char *plain = xstrndup(diff, n);
        _cleanup_(free) char *coded = xcalloc(1, BASE64_SIZE(n) + 1);
        base64_encode(coded, diff, n);
        (void)json_object_set_new(d, "diff", json_text(plain));
        (void)json_object_set_new(d, "diff_base64", json_string(coded));
    }
    (void)json_object_set_new(d, "diff_is_whole", json_boolean(whole));
    if (!whole)
        (void)json_object_set_new(
            d, "diff_note",
            c->collected ? json_sprintf("the diff is longer than %d bytes, of which it has the "
                                        "first: %s",
                                        CODE_DIFF_BYTES,
                                        kept ? "the artifact \"" DIFF_NAME "\" is all of it"
                                             : "keep the sandbox to get the files themselves")
                         : json_string("what was changed could not be read"));
}

/* A diff that has something becomes an artifact of the job. */
static bool keep_diff(struct code_job *c) {
    struct artifact_writer *w = steal_ptr(&c->diff);
    struct err err;
    if (!w || !c->collected || c->said.len == 0) {
        artifact_cancel(w);
        return false;
    }
    if (artifact_commit(w, &err) == 0)
        return true;
    log_warn("code.diff", "error", err.message);
    return false;
}

static json_t *make_detail(struct code_job *c) {
    const struct code_request *r = &c->ask;
    json_t *d = json_pack("{s:s*,s:s,s:s,s:s,s:I,s:s*,s:s*}", "spec", r->spec, "agent",
                          r->command ? "command" : r->def->name, "model", r->model->id, "sandbox",
                          c->sandbox_id, "max_steps", (json_int_t)r->max_steps, "repo", r->repo,
                          "ref", r->ref);
    if (!d)
        d = json_object();
    if (c->terms.options)
        (void)json_object_set(d, "options", c->terms.options);
    if (json_array_size(json_object_get(r->body, "files")) > 0)
        (void)json_object_set_new(
            d, "files",
            json_integer((json_int_t)json_array_size(json_object_get(r->body, "files"))));
    if (c->last)
        (void)json_object_set(d, "result", c->last);
    if (c->terms.include_diff)
        add_diff(c, d, keep_diff(c));
    (void)json_object_set_new(d, "kept", json_boolean(r->keep && sandbox_of(c)));
    return d;
}

static void record_end(struct code_job *c) {
    const char *type = json_string_value(json_object_get(c->last, "type"));
    const char *reason = json_string_value(json_object_get(c->last, "reason"));
    const char *message = json_string_value(json_object_get(c->last, "message"));
    bool done = type && strcmp(type, "done") == 0;
    _cleanup_(json) json_t *detail = make_detail(c);
    _cleanup_(free) char *text = json_dumps(detail, JSON_COMPACT);
    struct store_run_end end = {.status = c->cancelled           ? "cancelled"
                                          : done && !c->err.code ? "done"
                                                                 : "failed",
                                .usage = usage_of(c),
                                .detail = text,
                                .detail_len = text ? strlen(text) : 0};
    if (c->err.code) {
        end.error_code = err_name(c->err.code);
        end.error_message = c->err.message;
        end.fault = !c->cancelled && err_is_fault(c->err.code);
    } else if (!done && !c->cancelled) {
        /* In the words of cay-egress, by which it was held. */
        bool capped = c->terms.max_usd > 0 || c->max_tokens > 0;
        bool spent = capped && message && strstr(message, "used up its budget");
        const char *which = c->on_account ? err_name(ERR_QUOTA) : "max_budget_usd";
        end.error_code = spent ? which : reason ? reason : "error";
        end.error_message = message ? message : "the agent did not finish";
    }
    job_end(steal_ptr(&c->job), &end);
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
    take_last_spent(c);
    settle(c);
    record_end(c);
    uv_close((uv_handle_t *)&c->timer, on_timer_closed);
}

/* The way to the model was the job's: nobody else is held to what its key may spend. What the
 * sandbox itself may reach is what it shows, also if that was changed meanwhile. */
static void on_shut(void *ctx, const struct err *err) {
    struct opening *o = ctx;
    struct code_job *c = o->code;
    free(o);
    c->opening = NULL;
    struct sandbox *s = sandbox_of(c);
    if (s && s->line)
        take_spent(c, network_line_spent(s->line));
    if (err && s)
        (void)sandbox_end(s, end_job, c);
    else
        end_job(c);
}

static void begin_shutting(struct code_job *c, struct sandbox *s) {
    struct egress_policy policy = {0};
    struct err err;
    int rc = make_policy(c, NULL, 0, &policy, &err);
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
    struct sandbox *s = sandbox_of(c);
    if (s && s->line)
        take_spent(c, network_line_spent(s->line));
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

static struct store_scope scope_of(const struct code_job *c) {
    return (struct store_scope){.all = c->sees_all, .owner = c->owner};
}

/* The way to the repository: one of the operator's, with its credential, or to any host that a
 * sandbox may be let out to. */
static int repo_route(struct code_job *c, struct egress_route *ret, struct err *err) {
    struct network *net = sandboxes_network(c->all->opt.sandboxes);
    const struct egress_route *granted = NULL;
    const char *name = c->ask.credential;
    int rc = name ? network_find_route(net, name, c->grants, &granted, err)
                  : network_may_reach(net, c->ask.repo, err);
    if (rc < 0)
        return err_wrap(err, name ? "\"credential\"" : "\"repo\"");
    /* A name that no route of the settings has. */
    c->clone_route = xasprintf("clone-%s", job_id(c->job));
    return code_route_repo(c->clone_route, c->ask.repo, granted, ret, err);
}

/* How long the sandbox is needed. */
static int life_of(const struct code_job *c, int64_t *ret_s, struct err *err) {
    int64_t most = sandboxes_settings(c->all->opt.sandboxes)->max_timeout_s;
    int64_t around = SPARE_S + (c->ask.repo ? CLONE_S : 0);
    if (c->ask.timeout_ms / 1000 + around > most)
        return err_set(err, ERR_LIMIT,
                       "\"timeout_ms\" may be %lld at most here: a sandbox lives %lld s (setting "
                       "sandboxes.max_timeout_s), of which %lld are for what is around the agent",
                       (long long)MAX((most - around) * 1000, (int64_t)0), (long long)most,
                       (long long)around);
    *ret_s = c->ask.timeout_ms / 1000 + around;
    return 0;
}

static int make_sandbox(struct code_job *c, struct err *err) {
    struct egress_route routes[2] = {{0}};
    size_t n = 0;
    int64_t life;
    int rc = life_of(c, &life, err);
    if (rc < 0)
        return rc;
    rc = model_route(c, &routes[n], err);
    n += rc == 0;
    if (rc == 0 && c->ask.repo) {
        rc = repo_route(c, &routes[n], err);
        n += rc == 0;
    }
    _cleanup_(free) char *path = coder_def_bind_path(c->ask.def);
    _cleanup_(json) json_t *body = code_request_sandbox(&c->ask, job_id(c->job), life);
    struct egress_price price = price_of(c);
    struct sandbox_extra extra = {.bind_fd = c->ask.def->fd,
                                  .bind_path = path,
                                  .agent = c->ask.def->name,
                                  .routes = routes,
                                  .nroutes = n,
                                  .price = &price,
                                  .max_usd = c->terms.max_usd,
                                  .max_tokens = c->max_tokens};
    const struct sandbox *s = rc < 0 ? NULL
                                     : sandboxes_make(c->all->opt.sandboxes,
                                                      &(struct sandbox_ask){.owner = c->owner,
                                                                            .scope = scope_of(c),
                                                                            .grants = c->grants,
                                                                            .body = body,
                                                                            .extra = &extra},
                                                      on_made, c, err);
    for (size_t i = 0; i < n; i++)
        egress_route_finish(&routes[i]);
    if (!s)
        return -(int)err->code;
    memcpy(c->sandbox_id, s->id, sizeof(c->sandbox_id));
    return 0;
}

/* One that is there, of an earlier job, with the program of the same agent in it. */
static int use_sandbox(struct code_job *c, struct err *err) {
    struct sandbox *s =
        sandboxes_use(c->all->opt.sandboxes, c->ask.sandbox, scope_of(c), false, err);
    if (!s)
        return -(int)err->code;
    for (const struct code_job *other = c->all->list; other; other = other->next)
        if (other != c && strcmp(other->sandbox_id, s->id) == 0)
            return err_set(err, ERR_CONFLICT, "the run %s works in this sandbox: wait for its end",
                           job_id(other->job));
    if (!c->ask.command && strcmp(s->agent, c->ask.def->name) != 0)
        return err_set(err, ERR_CONFLICT, "the sandbox was %s%s%s: make a new one for \"%s\"",
                       *s->agent ? "made for the agent \"" : "not made by a coding job", s->agent,
                       *s->agent ? "\"" : "", c->ask.def->name);
    if (!s->line)
        return err_set(err, ERR_UNSUPPORTED, "the sandbox has no network");
    int64_t life;
    int rc = life_of(c, &life, err);
    if (rc == 0 && s->expires_ms < clock_wall_ms() + life * 1000)
        rc = sandbox_extend(s, life * 1000, err);
    if (rc < 0)
        return rc;
    memcpy(c->sandbox_id, s->id, sizeof(c->sandbox_id));
    c->before = network_line_spent(s->line);
    c->borrowed = true;
    return 0;
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
    int rc = c->ask.sandbox ? use_sandbox(c, err) : make_sandbox(c, err);
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
    const struct model_info *model = c->ask.model;
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
    return !t || ask->model->provider == MODEL_DEMO /* it costs nothing */
               ? 0
               : model_ask_check_budget(ask->model, t->max_usd, err);
}

static void take_terms(struct code_job *c, const struct code_terms *t) {
    c->terms = t ? *t : (struct code_terms){.kind = "code", .include_diff = true};
    c->terms.system_prompt = t && t->system_prompt ? xstrdup(t->system_prompt) : NULL;
    c->terms.append_system_prompt =
        t && t->append_system_prompt ? xstrdup(t->append_system_prompt) : NULL;
    json_incref(c->terms.options);
    if (c->terms.plan)
        c->terms.include_diff = false; /* there is nothing to tell */
    if (c->ask.model->provider == MODEL_DEMO)
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
