#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json_table.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "front/common/share.h"
#include "front/execute/execute.h"
#include "front/execute/transcript.h"
#include "front/model/ask.h"
#include "front/web/reader.h"
#include "loop/fetch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TURNS = 10, MAX_TURNS_MAX = 200, TITLE_BYTES = 80, DETAIL_MAX_BYTES = 64 << 20 };
/* Of a record, before what was asked for: an answer of this size is put there without a copy. */
enum { ANSWER_ROOM = 32 << 10 };

extern const char execute_prompt[];    /* made from prompt.md */
extern const char execute_demo_json[]; /* made from demo.json */

/* What a request may name; a new tool is a line here. */
static const struct sdk_tool {
    const struct tool *tool;
    const char *name; /* NULL: the tool's own */
    const char *description;
    bool usual; /* offered when nothing is named */
} sdk_tools[] = {
    {&tool_web_fetch, NULL, NULL, true},
    {&tool_web_search, NULL, NULL, true},
    {&tool_todo_write, NULL, NULL, true},
    {&tool_execute_code, "RunCode",
     "Runs a JavaScript module in an isolate that has no network and no files. Its "
     "default export is an async function without arguments; what it prints with console.log comes "
     "back.",
     false},
};

struct sdk {
    struct sdk *next;
    struct executes *all;
    char owner[ID_SIZE];
    char key[ID_SIZE];
    char session[UUID_SIZE];
    struct job *job;
    json_t *body;
    const char *prompt; /* of the body */
    const json_t *options;
    const char *shown; /* the model's name, as it is told */
    struct model_info model;
    char *system;
    int64_t max_turns;
    double budget_usd; /* 0: none */
    struct tool_offer tools[ARRAY_LEN(sdk_tools)];
    size_t ntools;
    struct env bindings; /* of the programs of RunCode: none */
    struct tool_env env;
    struct transcript *transcript;
    struct dialog *dialog;
    int64_t begun_ms;
    size_t told_bytes;
    struct buf record; /* ANSWER_ROOM bytes, then what was asked for, as its record tells it */
};

struct executes {
    struct executes_options opt;
    struct later_queue later;
    struct later_queue next; /* in the next turn of the loop */
    struct sdk *list;
    struct shares shares;
    size_t running;
    json_t *script; /* of the demo */
    struct web web;
};

/* --- the request --- */

static int find_model(struct sdk *x, const char *name, struct err *err) {
    struct models *models = x->all->opt.models;
    if (!name)
        name = x->all->opt.model                                 ? x->all->opt.model
               : models_default_provider(models) == MODEL_OPENAI ? NULL
                                                                 : "sonnet";
    name = model_ask_name(models, name);
    int rc = model_ask_find(models, name, &x->model, err);
    if (rc == 0)
        x->shown = name ? name : x->model.id;
    return rc;
}

static const struct sdk_tool *execute_sdk_find_tool(const char *name) {
    for (size_t i = 0; i < ARRAY_LEN(sdk_tools); i++)
        if (strcmp(sdk_tools[i].name ? sdk_tools[i].name : sdk_tools[i].tool->name, name) == 0)
            return &sdk_tools[i];
    return NULL;
}

static int execute_sdk_offer(struct sdk *x, const struct sdk_tool *t, struct err *err) {
    const char *name = t->name ? t->name : t->tool->name;
    if (tool_offer_find(x->tools, x->ntools, name))
        return 0;
    int rc = tool_offer_init(
        &x->tools[x->ntools], t->tool,
        &(struct tool_offer_options){.name = name, .description = t->description}, err);
    if (rc == 0)
        x->ntools++;
    return rc;
}

static int no_such_tool(const char *name, struct err *err) {
    char names[128] = "";
    for (size_t i = 0; i < ARRAY_LEN(sdk_tools); i++) {
        const char *one = sdk_tools[i].name ? sdk_tools[i].name : sdk_tools[i].tool->name;
        size_t n = strlen(names);
        (void)snprintf(names + n, sizeof(names) - n, "%s%s", n ? ", " : "", one);
    }
    return err_set(err, ERR_BAD_REQUEST,
                   "\"allowed_tools\": there is no tool \"%.60s\" here; there are %s. Work with "
                   "files and commands is POST /execute",
                   name, names);
}

static int read_tools(struct sdk *x, const json_t *names, struct err *err) {
    int rc = 0;
    for (size_t i = 0; !names && rc == 0 && i < ARRAY_LEN(sdk_tools); i++)
        rc = sdk_tools[i].usual ? execute_sdk_offer(x, &sdk_tools[i], err) : 0;
    if (rc == 0)
        rc = json_check_no_nul(names, "allowed_tools", err);
    size_t i;
    const json_t *v;
    json_array_foreach(names, i, v) {
        const char *name = json_string_value(v);
        const struct sdk_tool *t = name ? execute_sdk_find_tool(name) : NULL;
        if (rc == 0)
            rc = t ? execute_sdk_offer(x, t, err) : no_such_tool(name ? name : "", err);
    }
    return rc;
}

/* The body as it comes. */
struct sdk_wire {
    const char *prompt, *model, *system, *append;
    const json_t *options, *tools;
    int64_t max_turns;
    double budget_usd;
};

static int execute_sdk_read_wire(const json_t *body, struct sdk_wire *w, struct err *err) {
    static const struct json_field options[] = {
        JSON_INT("max_turns", struct sdk_wire, max_turns, 1, MAX_TURNS_MAX),
        JSON_TEXT("model", struct sdk_wire, model),
        JSON_TEXT("system_prompt", struct sdk_wire, system),
        JSON_TEXT("append_system_prompt", struct sdk_wire, append),
        JSON_LIST("allowed_tools", struct sdk_wire, tools),
        JSON_READ("max_budget_usd", struct sdk_wire, budget_usd, model_ask_read_budget, "number"),
    };
    static const struct json_field table[] = {
        JSON_TEXT_MAX("prompt", struct sdk_wire, prompt, LIMIT_EXECUTE_PROMPT_BYTES),
        JSON_MAP("options", struct sdk_wire, options),
        JSON_OBJECT_HERE("options", options),
    };
    JSON_SHAPE("ExecuteSdkRequest", table);
    int rc = json_table_read(table, ARRAY_LEN(table), body, "the request", w, err);
    if (rc == 0 && (!w->prompt || !w->prompt[strspn(w->prompt, " \t\r\n")]))
        rc = err_set(err, ERR_BAD_REQUEST, "say in \"prompt\" what is to be done");
    return rc;
}

static int execute_sdk_read_body(struct sdk *x, struct err *err) {
    struct sdk_wire w = {.max_turns = MAX_TURNS, .system = execute_prompt};
    int rc = execute_sdk_read_wire(x->body, &w, err);
    if (rc < 0)
        return rc;
    x->prompt = w.prompt;
    x->options = w.options;
    x->max_turns = w.max_turns;
    x->budget_usd = w.budget_usd;
    x->system = xasprintf("%s%s%s", w.system, w.append ? "\n\n" : "", w.append ? w.append : "");
    rc = find_model(x, w.model, err);
    if (rc == 0)
        rc = read_tools(x, w.tools, err);
    return rc == 0 ? model_ask_check_budget(&x->model, w.budget_usd, err) : rc;
}

/* --- the end --- */

static json_t *metadata_json(const struct sdk *x, int64_t turns) {
    const struct model_meter *m = dialog_meter(x->dialog);
    return json_pack("{s:I,s:f,s:I,s:s}", "execution_time_ms",
                     (json_int_t)(clock_mono_ms() - x->begun_ms), "total_cost_usd",
                     (double)m->cost_nusd / NANO_USD_PER_USD, "num_turns", (json_int_t)turns,
                     "model", x->shown);
}

/* The prompt may have a megabyte, and six in JSON: it is written out when the job begins, not in
 * the turn of the loop that ends it, which has the disk to write to. */
static void begin_record(struct sdk *x) {
    struct json_writer w;
    buf_init(&x->record, DETAIL_MAX_BYTES);
    (void)buf_reserve(&x->record, ANSWER_ROOM + strlen(x->prompt));
    buf_claim(&x->record, ANSWER_ROOM);
    json_writer_init(&w, &x->record);
    json_put_str(&w, "prompt", x->prompt);
    json_put_tree(&w, "options", x->options);
    (void)buf_add_char(&x->record, '}');
}

static json_t *answer_json(const struct sdk *x, const struct transcript_end *end) {
    const struct model_meter *m = dialog_meter(x->dialog);
    const struct model_usage *u = &m->usage;
    json_t *error = end->code ? json_pack("{s:s,s:s}", "code", end->code, "message", end->message)
                              : json_null();
    return json_pack("{s:{s:o,s:o,s:i,s:I},s:s,s:I,s:{s:I,s:I,s:I,s:I},s:f}", "answer", "metadata",
                     metadata_json(x, end->turns), "error", error, "status", end->status,
                     "retry_after_s", (json_int_t)end->retry_after_s, "model", x->model.id, "steps",
                     (json_int_t)dialog_steps(x->dialog), "tokens", "input",
                     (json_int_t)u->input_tokens, "output", (json_int_t)u->output_tokens,
                     "cache_read", (json_int_t)u->cache_read_tokens, "cache_write",
                     (json_int_t)u->cache_write_tokens, "cost_usd",
                     (double)m->cost_nusd / NANO_USD_PER_USD);
}

/* The answer stands first, with its result: it is read without the rest (answer.c). NULL: it is
 * too long. */
static const char *end_record(struct sdk *x, const struct transcript_end *end, size_t *ret_len) {
    static const char head[] = "{\"answer\":{";
    struct buf *r = &x->record;
    _cleanup_(json) json_t *answer = answer_json(x, end);
    _cleanup_(buf) struct buf short_;
    _cleanup_(buf) struct buf text;
    buf_init(&short_, DETAIL_MAX_BYTES);
    buf_init(&text, DETAIL_MAX_BYTES);
    if (r->full || !json_dump(answer, &short_))
        return NULL;
    size_t head_len = strlen(head);
    (void)buf_add_str(&text, head);
    (void)buf_add_str(&text, "\"result\":");
    (void)buf_add(&text, end->result, end->result_len);
    (void)buf_add_char(&text, ',');
    (void)buf_add(&text, short_.data + head_len, short_.len - head_len);
    if (text.full)
        return NULL;
    text.data[text.len - 1] = ','; /* its "}" is at the record's end */
    char *at = r->data + ANSWER_ROOM;
    size_t rest = r->len - ANSWER_ROOM;
    if (text.len <= ANSWER_ROOM) {
        at -= text.len;
        memcpy(at, text.data, text.len);
        *ret_len = text.len + rest;
        return at;
    }
    (void)buf_add(&text, at, rest);
    if (text.full)
        return NULL;
    buf_finish(r);
    *r = text;
    text = (struct buf){0};
    *ret_len = r->len;
    return r->data;
}

static void free_sdk(struct sdk *x) {
    dialog_destroy(x->dialog);
    transcript_destroy(x->transcript);
    tool_env_finish(&x->env);
    for (size_t i = 0; i < x->ntools; i++)
        tool_offer_finish(&x->tools[i]);
    json_decref(x->body);
    buf_finish(&x->record);
    free(x->system);
    free(x);
}

static void unlink_sdk(struct sdk *x) {
    struct sdk **at = &x->all->list;
    while (*at != x)
        at = &(*at)->next;
    *at = x->next;
    x->all->running--;
    shares_remove(&x->all->shares, share_name(x->owner, x->key));
}

static void execute_sdk_on_end(void *ctx, const struct transcript_end *end) {
    struct sdk *x = ctx;
    size_t len = 0;
    const char *detail = end_record(x, end, &len);
    bool cancelled = end->code && strcmp(end->code, "cancelled") == 0;
    job_end(steal_ptr(&x->job), &(struct store_run_end){.status = cancelled   ? JOB_CANCELLED
                                                                  : end->code ? JOB_FAILED
                                                                              : JOB_DONE,
                                                        .usage = dialog_usage(x->dialog),
                                                        .error_code = end->code,
                                                        .error_message = end->message,
                                                        .fault = end->held_up,
                                                        .unbegun = end->held_up,
                                                        .detail = detail,
                                                        .detail_len = len});
    unlink_sdk(x);
    free_sdk(x);
}

static void execute_sdk_on_message(void *ctx, const char *type, const char *json, size_t len) {
    struct sdk *x = ctx;
    job_event(x->job, type, json, len);
    x->told_bytes += len;
    if (x->told_bytes > LIMIT_EXECUTE_TRANSCRIPT_BYTES && x->dialog) {
        transcript_overflow(x->transcript);
        dialog_cancel(x->dialog);
    }
}

static void execute_sdk_on_cancel(void *ctx) {
    struct sdk *x = ctx;
    dialog_cancel(x->dialog);
}

/* --- what tools use --- */

static int64_t left_nusd(void *ctx) {
    const struct sdk *x = ctx;
    return dialog_left_nusd(x->dialog);
}

static void execute_sdk_on_spent(void *ctx, const struct model_usage *usage) {
    struct sdk *x = ctx;
    dialog_spend(x->dialog, usage);
}

/* --- the beginning --- */

static void execute_sdk_begin(struct sdk *x) {
    const struct executes *all = x->all;
    x->begun_ms = clock_mono_ms();
    begin_record(x);
    x->env = (struct tool_env){.later = &x->all->later,
                               .intake = all->opt.intake,
                               .runner = all->opt.runner,
                               .jobs = all->opt.jobs,
                               .owner = x->owner,
                               .key = x->key,
                               .title = "RunCode",
                               .limits = all->opt.runner->config.limits,
                               .bindings = &x->bindings,
                               .web = &all->web,
                               .models = all->opt.models,
                               .accounts = all->opt.accounts,
                               .kind = "sdk",
                               .model = &x->model,
                               .left_nusd = left_nusd,
                               .on_spent = execute_sdk_on_spent,
                               .ctx = x};
    x->transcript =
        transcript_create(&(struct transcript_options){.session = x->session,
                                                       .model = &x->model,
                                                       .tools = x->tools,
                                                       .ntools = x->ntools,
                                                       .max_turns = x->max_turns,
                                                       .max_budget_usd = x->budget_usd,
                                                       .timeout_ms = all->opt.settings->timeout_ms,
                                                       .on_message = execute_sdk_on_message,
                                                       .on_end = execute_sdk_on_end,
                                                       .ctx = x});
    x->dialog = dialog_start(&(struct dialog_options){
        .loop = all->opt.loop,
        .later = &x->all->later,
        .next = &x->all->next,
        .models = all->opt.models,
        .accounts = all->opt.accounts,
        .owner = x->owner,
        .key = x->key,
        .kind = "sdk",
        .model = &x->model,
        .system = x->system,
        .messages =
            json_pack("[{s:s,s:O}]", "role", "user", "content", json_object_get(x->body, "prompt")),
        .bytes = x->record.len - ANSWER_ROOM,
        .tools = x->tools,
        .ntools = x->ntools,
        .tool_env = &x->env,
        .script = all->script,
        .max_steps = x->max_turns,
        .budget = {.cost_nusd = (int64_t)ceil(x->budget_usd * NANO_USD_PER_USD),
                   .wall_ms = all->opt.settings->timeout_ms},
        .view = &transcript_view,
        .ctx = x->transcript,
    });
    transcript_begin(x->transcript, x->dialog);
}

static int check_share(const struct executes *all, const char *owner, struct err *err) {
    size_t max = (size_t)all->opt.settings->max;
    if (all->running >= max || shares_held(&all->shares, owner) >= share_of(owner, max))
        return err_set(err, ERR_RATE,
                       "%zu calls of /execute/sdk are running already (\"max\" of \"execute\"): "
                       "wait for one to end",
                       all->running);
    return 0;
}

static struct sdk *execute_sdk_create(struct executes *all, const struct execute_sdk_ask *ask) {
    struct sdk *x = xcalloc(1, sizeof(*x));
    x->all = all;
    (void)snprintf(x->owner, sizeof(x->owner), "%s", ask->owner);
    (void)snprintf(x->key, sizeof(x->key), "%s", ask->key);
    x->body = json_incref((json_t *)(uintptr_t)ask->body);
    return x;
}

int64_t executes_timeout_ms(const struct executes *all) {
    return all->opt.settings->timeout_ms;
}

int execute_sdk_check(struct executes *all, const json_t *body, struct err *err) {
    struct sdk *x =
        execute_sdk_create(all, &(struct execute_sdk_ask){.owner = "", .key = "", .body = body});
    int rc = execute_sdk_read_body(x, err);
    free_sdk(x);
    return rc;
}

int execute_sdk_start(struct executes *all, const struct execute_sdk_ask *ask, char ret_id[ID_SIZE],
                      struct err *err) {
    struct sdk *x = execute_sdk_create(all, ask);
    int rc = execute_sdk_read_body(x, err);
    if (rc == 0)
        rc = check_share(all, share_name(ask->owner, ask->key), err);
    if (rc == 0) {
        _cleanup_(free) char *title =
            xstrndup(x->prompt, utf8_floor(x->prompt, strcspn(x->prompt, "\r\n"), TITLE_BYTES));
        rc = job_begin(all->opt.jobs,
                       &(struct job_spec){.id = ask->id,
                                          .kind = "sdk",
                                          .owner = ask->owner,
                                          .key = ask->key,
                                          .title = title,
                                          .stores_events = true,
                                          .cancel = execute_sdk_on_cancel,
                                          .ctx = x},
                       &x->job, err);
    }
    if (rc < 0) {
        free_sdk(x);
        return rc;
    }
    memcpy(ret_id, job_id(x->job), ID_SIZE);
    (void)id_to_uuid(ret_id, x->session);
    x->next = all->list;
    all->list = x;
    all->running++;
    shares_add(&all->shares, share_name(ask->owner, ask->key));
    execute_sdk_begin(x);
    return 0;
}

/* --- all of them --- */

struct executes *executes_create(const struct executes_options *options) {
    struct executes *all = xcalloc(1, sizeof(*all));
    struct err err;
    all->opt = *options;
    all->web = (struct web){.loop = options->loop,
                            .network = options->network,
                            .reader = reader_create(options->runner),
                            .timeout_ms = options->settings->fetch_timeout_ms,
                            .search_url = options->settings->search_url};
    if (fetch_pool_create(options->loop, (unsigned)options->settings->max, &all->web.pool, &err) <
        0)
        log_error("execute.web", "error", err.message);
    all->script = json_read_str(execute_demo_json);
    later_queue_init(&all->later, options->loop);
    later_queue_init_next(&all->next, options->loop);
    return all;
}

static void execute_sdk_on_next_closed(uv_handle_t *h) {
    struct executes *all = h->data;
    shares_finish(&all->shares);
    json_decref(all->script);
    free(all);
}

static void execute_sdk_on_later_closed(uv_handle_t *h) {
    struct executes *all = h->data;
    later_queue_close(&all->next, execute_sdk_on_next_closed, all);
}

void executes_close(struct executes *all) {
    if (!all)
        return;
    struct sdk *following;
    for (struct sdk *x = all->list; x; x = following) {
        following = x->next;
        job_end(steal_ptr(&x->job), &(struct store_run_end){.status = JOB_CANCELLED});
        unlink_sdk(x);
        free_sdk(x);
    }
    reader_close(all->web.reader);
    fetch_pool_close(all->web.pool, NULL, NULL);
    later_queue_close(&all->later, execute_sdk_on_later_closed, all);
}
