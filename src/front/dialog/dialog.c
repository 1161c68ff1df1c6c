#include "front/dialog/dialog.h"

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/sm.h"
#include "front/common/intake.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum dialog_state {
    BETWEEN, /* a next step or tool is due, from the loop */
    ASKING,  /* what the model's answer may cost is being set aside */
    STREAM,  /* the model answers */
    TOOL,    /* a tool is at work */
    ENDING,  /* all work is stopped; the end is due, from the loop */
    OVER,    /* told, or destroyed */
};

static const struct sm_state states[] = {
    [BETWEEN] = {"between",
                 SM_TO(ASKING) | SM_TO(STREAM) | SM_TO(TOOL) | SM_TO(ENDING) | SM_TO(OVER)},
    [ASKING] = {"asking", SM_TO(STREAM) | SM_TO(ENDING) | SM_TO(OVER)},
    [STREAM] = {"stream", SM_TO(BETWEEN) | SM_TO(ENDING) | SM_TO(OVER)},
    [TOOL] = {"tool", SM_TO(BETWEEN) | SM_TO(ENDING) | SM_TO(OVER)},
    [ENDING] = {"ending", SM_TO(OVER)},
    [OVER] = {"over", 0},
};
static const struct sm machine = {"dialog", states, ARRAY_LEN(states)};

struct dialog {
    struct dialog_options opt;
    enum dialog_state state;
    struct later next;         /* dialog_advance(), or dialog_tell_end() */
    uv_timer_t timer;          /* of the budget; its closing frees the dialog */
    json_t *specs;             /* of the tools, as the model reads them */
    struct account_hold *hold; /* of the stream that runs, or is about to */
    struct model_stream *stream;
    struct model_usage usage; /* of the stream that runs */
    struct model_meter meter;
    size_t bytes; /* of the messages as JSON, about */
    int64_t steps;
    bool said_something;
    json_t *calls;           /* tool calls of this step that wait; the first is at work */
    const struct tool *tool; /* the one at work... */
    struct tool_call *call;  /* ...and its call */
    struct dialog_end end;
};

static void dialog_advance(void *ctx);

static bool dialog_move(struct dialog *d, enum dialog_state to) {
    d->state = sm_next(&machine, d->state, to);
    return d->state == to;
}

/* No view is called any more but by dialog_tell_end(). */
static bool dialog_is_over(const struct dialog *d) {
    return d->state == ENDING || d->state == OVER;
}

/* Its messages are read, written and freed by threads. */
static bool dialog_is_large(const struct dialog *d) {
    return d->bytes > LIMIT_READ_AT_ONCE_BYTES;
}

/* What follows a large answer is not added to the turn of the loop that has read it. */
static struct later_queue *dialog_queue(const struct dialog *d) {
    return dialog_is_large(d) && d->opt.next ? d->opt.next : d->opt.later;
}

static void dialog_go_on(struct dialog *d) {
    later_post(dialog_queue(d), &d->next, dialog_advance, d);
}

/* --- the end --- */

static void dialog_tell_end(void *ctx) {
    struct dialog *d = ctx;
    (void)dialog_move(d, OVER);
    if (d->opt.view->on_end)
        d->opt.view->on_end(d->opt.ctx, &d->end);
}

static void take_usage(struct dialog *d) {
    model_meter_add(&d->meter, &d->opt.model->price, &d->usage);
    if (d->hold)
        account_settle(steal_ptr(&d->hold), &d->usage);
    d->usage = (struct model_usage){0};
}

static void stop_work(struct dialog *d) {
    later_cancel(&d->next);
    (void)uv_timer_stop(&d->timer);
    if (d->stream) {
        d->usage = model_stream_usage(d->stream);
        take_usage(d);
        model_stream_cancel(d->stream);
        d->stream = NULL;
    }
    if (d->hold)
        account_settle(steal_ptr(&d->hold), NULL);
    if (d->call)
        d->tool->cancel(d->call);
    d->call = NULL;
}

/* why may be NULL. */
static void end_dialog(struct dialog *d, enum dialog_outcome outcome, const struct err *why) {
    if (dialog_is_over(d))
        return;
    stop_work(d);
    (void)dialog_move(d, ENDING);
    d->end.outcome = outcome;
    if (why)
        d->end.error = *why;
    later_post(dialog_queue(d), &d->next, dialog_tell_end, d);
}

/* The money is there, but set aside for others. */
static void end_held_up(struct dialog *d, const struct err *why) {
    d->end.held_up = true;
    d->end.retry_after_s = 1;
    end_dialog(d, DIALOG_FAILED, why);
}

static void dialog_on_wall(uv_timer_t *timer) {
    struct dialog *d = timer->data;
    struct err err;
    if (d->state == ASKING) {
        (void)err_set(&err, ERR_RATE,
                      "other calls of this key hold the money or tokens that this one needs, and "
                      "did not give them back within %lld ms: try again later",
                      (long long)d->opt.budget.wall_ms);
        end_held_up(d, &err);
        return;
    }
    (void)err_set(&err, ERR_TIMEOUT, "the turn took longer than %lld ms (budget wall_ms)",
                  (long long)d->opt.budget.wall_ms);
    end_dialog(d, DIALOG_BUDGET, &err);
}

/* Money is watched while the answer comes, by what the server says and else by an estimate: its
 * input alone may cost more than is left, and not every server keeps to max_tokens. */
static void check_cost(struct dialog *d) {
    struct err err;
    int64_t max = d->opt.budget.cost_nusd;
    struct model_usage usage;
    if ((max == 0 && !d->hold) || !d->stream)
        return;
    usage = model_stream_usage(d->stream);
    if (d->hold && account_is_exceeded(d->hold, &usage)) {
        (void)err_set(&err, ERR_QUOTA, "the answer costs more than the key has left for today");
        end_dialog(d, DIALOG_BUDGET, &err);
        return;
    }
    if (max == 0)
        return;
    int64_t cost = d->meter.cost_nusd + model_cost_nusd(&d->opt.model->price, &usage);
    if (cost <= max)
        return;
    (void)err_set(&err, ERR_LIMIT, "this turn has cost $%.4f; its budget is $%.4f",
                  (double)cost / NANO_USD_PER_USD, (double)max / NANO_USD_PER_USD);
    end_dialog(d, DIALOG_BUDGET, &err);
}

/* --- what the model says --- */

static void dialog_on_text_start(void *ctx) {
    const struct dialog *d = ctx;
    if (d->opt.view->on_text_start)
        d->opt.view->on_text_start(d->opt.ctx);
}

static void dialog_on_text_delta(void *ctx, const char *text, size_t len) {
    struct dialog *d = ctx;
    d->bytes += json_quoted_bytes(text, len);
    if (d->opt.view->on_text_delta)
        d->opt.view->on_text_delta(d->opt.ctx, text, len);
    check_cost(d);
}

static void dialog_on_text_end(void *ctx) {
    const struct dialog *d = ctx;
    if (d->opt.view->on_text_end)
        d->opt.view->on_text_end(d->opt.ctx);
}

static void dialog_on_reasoning_start(void *ctx) {
    const struct dialog *d = ctx;
    if (d->opt.view->on_reasoning_start)
        d->opt.view->on_reasoning_start(d->opt.ctx);
}

static void dialog_on_reasoning_delta(void *ctx, const char *text, size_t len) {
    struct dialog *d = ctx;
    d->bytes += json_quoted_bytes(text, len);
    if (d->opt.view->on_reasoning_delta)
        d->opt.view->on_reasoning_delta(d->opt.ctx, text, len);
    check_cost(d);
}

static void dialog_on_reasoning_end(void *ctx) {
    const struct dialog *d = ctx;
    if (d->opt.view->on_reasoning_end)
        d->opt.view->on_reasoning_end(d->opt.ctx);
}

static void dialog_on_tool_start(void *ctx, const char *id, const char *name) {
    const struct dialog *d = ctx;
    if (d->opt.view->on_tool_start)
        d->opt.view->on_tool_start(d->opt.ctx, id, name);
}

static void dialog_on_tool_delta(void *ctx, const char *id, const char *json, size_t len) {
    struct dialog *d = ctx;
    if (d->opt.view->on_tool_delta)
        d->opt.view->on_tool_delta(d->opt.ctx, id, json, len);
    check_cost(d);
}

static void dialog_on_tool_end(void *ctx, const char *id, const char *name,
                               const struct model_input *input) {
    struct dialog *d = ctx;
    d->bytes += input->len;
    if (d->opt.view->on_tool_input)
        d->opt.view->on_tool_input(d->opt.ctx, id, name, input);
}

static void dialog_on_usage(void *ctx, const struct model_usage *usage) {
    struct dialog *d = ctx;
    d->usage = *usage;
    check_cost(d);
}

static void take_calls(struct dialog *d, const json_t *content) {
    size_t i;
    json_t *c;
    json_array_foreach(content, i, c) {
        const char *type = json_string_value(json_object_get(c, "type"));
        if (type && strcmp(type, "tool_call") == 0)
            (void)json_array_append(d->calls, c);
    }
    if (json_array_size(d->calls) > 0)
        (void)json_array_append_new(d->opt.messages,
                                    json_pack("{s:s,s:[]}", "role", "tool", "content"));
}

static struct model_budget budget_of(const struct dialog *d) {
    return (struct model_budget){.max_tokens = d->opt.budget.tokens,
                                 .max_cost_nusd = d->opt.budget.cost_nusd};
}

int dialog_http_status(const struct dialog_end *end) {
    switch (end->outcome) {
    case DIALOG_DONE:
    case DIALOG_STEPS:
        return 200;
    case DIALOG_BUDGET:
        return end->error.code == ERR_QUOTA     ? err_http_status(ERR_QUOTA)
               : end->error.code == ERR_TIMEOUT ? 504
                                                : 200;
    case DIALOG_CANCELLED:
        return err_http_status(ERR_CANCELLED);
    default:
        return end->by_model ? err_http_status(ERR_UPSTREAM) : err_http_status(end->error.code);
    }
}

/* The model came to its end without a tool call. */
static void end_of_answer(struct dialog *d) {
    struct model_budget budget = budget_of(d);
    struct err err;
    /* An answer that the budget has cut short must not look like a whole one. */
    if (d->end.stop == MODEL_STOP_LENGTH && model_meter_check(&d->meter, &budget, &err) < 0) {
        end_dialog(d, DIALOG_BUDGET, &err);
        return;
    }
    if (!d->said_something) {
        (void)err_set(&err, ERR_UPSTREAM, "the model's answer is empty");
        d->end.by_model = true;
        end_dialog(d, DIALOG_FAILED, &err);
        return;
    }
    if (d->opt.view->on_step_finish)
        d->opt.view->on_step_finish(d->opt.ctx);
    end_dialog(d, DIALOG_DONE, NULL);
}

/* The stream is over. False: the view has had enough. */
static bool tell_answer(struct dialog *d, const struct dialog_answer *answer) {
    d->stream = NULL;
    take_usage(d);
    if (answer->message && d->opt.view->on_answer)
        d->opt.view->on_answer(d->opt.ctx, answer);
    return !dialog_is_over(d);
}

static void dialog_on_model_done(void *ctx, enum model_stop stop, json_t *message) {
    struct dialog *d = ctx;
    const json_t *content = json_object_get(message, "content");
    d->end.stop = stop;
    if (!tell_answer(d, &(struct dialog_answer){
                            .message = message, .whole = true, .stop = stop, .usage = d->usage}))
        return;
    d->said_something = d->said_something || json_array_size(content) > 0;
    (void)json_array_append(d->opt.messages, message);
    take_calls(d, content);
    if (json_array_size(d->calls) == 0) {
        end_of_answer(d);
        return;
    }
    (void)dialog_move(d, BETWEEN);
    dialog_go_on(d);
}

static void dialog_on_model_error(void *ctx, const struct err *err, bool retryable,
                                  json_t *partial) {
    struct dialog *d = ctx;
    if (retryable && (err->code == ERR_RATE || err->code == ERR_UNAVAILABLE))
        d->end.retry_after_s = MAX(((int64_t)model_retry_after_ms(d->stream) + 999) / 1000, 1);
    d->end.by_model = true;
    if (tell_answer(d, &(struct dialog_answer){.message = partial, .usage = d->usage}))
        end_dialog(d, DIALOG_FAILED, err);
}

static const struct model_callbacks model_callbacks = {
    .on_text_start = dialog_on_text_start,
    .on_text_delta = dialog_on_text_delta,
    .on_text_end = dialog_on_text_end,
    .on_reasoning_start = dialog_on_reasoning_start,
    .on_reasoning_delta = dialog_on_reasoning_delta,
    .on_reasoning_end = dialog_on_reasoning_end,
    .on_tool_start = dialog_on_tool_start,
    .on_tool_delta = dialog_on_tool_delta,
    .on_tool_end = dialog_on_tool_end,
    .on_usage = dialog_on_usage,
    .on_done = dialog_on_model_done,
    .on_error = dialog_on_model_error,
};

/* --- tools --- */

/* The result of the first waiting call, to the view and to the model. */
static void finish_tool(struct dialog *d, const struct tool_result *r) {
    _cleanup_(json) json_t *call = json_incref(json_array_get(d->calls, 0));
    json_t *last = json_array_get(d->opt.messages, json_array_size(d->opt.messages) - 1);
    size_t len = r->len;
    _cleanup_(free) char *text = r->text ? NULL : json_dump_text(r->output, SIZE_MAX / 2, &len);
    (void)json_array_append_new(json_object_get(last, "content"),
                                json_pack("{s:s,s:O,s:O,s:O,s:b}", "type", "tool_result", "id",
                                          json_object_get(call, "id"), "name",
                                          json_object_get(call, "name"), "output", r->output,
                                          "is_error", r->failed));
    (void)json_array_remove(d->calls, 0);
    d->bytes += len;
    if (d->state != BETWEEN)
        (void)dialog_move(d, BETWEEN);
    dialog_go_on(d);
    if (d->opt.view->on_tool_result)
        d->opt.view->on_tool_result(
            d->opt.ctx,
            &(struct dialog_result){.id = json_string_value(json_object_get(call, "id")),
                                    .name = json_string_value(json_object_get(call, "name")),
                                    .output = r->output,
                                    .text = r->text ? r->text : text,
                                    .len = len,
                                    .detail = r->detail,
                                    .failed = r->failed});
}

static void dialog_on_tool_done(void *ctx, const struct tool_result *result) {
    struct dialog *d = ctx;
    /* A tool that answers inside its start finds the state still between: a fault of ours. */
    if (d->state != TOOL)
        return;
    d->call = NULL;
    finish_tool(d, result);
}

static int start_tool(struct dialog *d, const json_t *call, struct err *err) {
    const char *name = json_string_value(json_object_get(call, "name"));
    const char *bad = json_string_value(json_object_get(call, "input_error"));
    const struct tool_offer *offer =
        name ? tool_offer_find(d->opt.tools, d->opt.ntools, name) : NULL;
    if (bad)
        return err_set(err, ERR_BAD_REQUEST, "the input of the tool is not valid: %s", bad);
    if (!offer)
        return err_set(err, ERR_NOT_FOUND, "there is no tool \"%.64s\"", name ? name : "");
    struct tool_request q = {.offer = offer,
                             .env = d->opt.tool_env,
                             .input = json_object_get(call, "input"),
                             .done = dialog_on_tool_done,
                             .ctx = d};
    int rc = offer->tool->start(&q, &d->call, err);
    if (rc == 0)
        d->tool = offer->tool;
    return rc;
}

/* --- steps --- */

/* The model wants to go on but may not. */
static void end_of_steps(struct dialog *d) {
    struct err err;
    (void)err_set(&err, ERR_LIMIT, "the turn has had its %lld steps (max_steps)",
                  (long long)d->opt.max_steps);
    end_dialog(d, DIALOG_STEPS, &err);
}

static int64_t wanted_tokens(const struct dialog *d) {
    struct model_budget budget = budget_of(d);
    return model_meter_room(&d->meter, &budget, &d->opt.model->price, d->opt.max_tokens);
}

/* granted: what the account leaves; 0: no limit. */
static int dialog_start_stream(struct dialog *d, int64_t granted, struct err *err) {
    int64_t wanted = wanted_tokens(d);
    struct model_request q = {.model = d->opt.model,
                              .system = d->opt.system,
                              .messages = d->opt.messages,
                              .bytes = d->bytes,
                              .owner = d->opt.owner,
                              .tools = d->specs,
                              .max_tokens = granted == 0  ? wanted
                                            : wanted == 0 ? granted
                                                          : MIN(wanted, granted),
                              .temperature = -1,
                              .script = d->opt.script};
    return model_stream(d->opt.models, &q, &model_callbacks, d, &d->stream, err);
}

static void dialog_open_stream(struct dialog *d, int64_t granted) {
    struct err err;
    if (dialog_start_stream(d, granted, &err) < 0) {
        d->end.by_model = true;
        end_dialog(d, DIALOG_FAILED, &err);
    } else {
        (void)dialog_move(d, STREAM);
    }
}

static void dialog_on_held(void *ctx, const struct account_grant *grant, const struct err *err) {
    struct dialog *d = ctx;
    if (err) {
        d->hold = NULL;
        if (err->code == ERR_RATE)
            end_held_up(d, err);
        else
            end_dialog(d, err->code == ERR_QUOTA ? DIALOG_BUDGET : DIALOG_FAILED, err);
        return;
    }
    dialog_open_stream(d, grant->max_tokens);
}

static size_t dialog_bytes_of(const json_t *tree) {
    size_t n = LIMIT_MODEL_REQUEST_BYTES;
    free(json_dump_text(tree, n, &n));
    return n;
}

static size_t input_bytes(const struct dialog *d) {
    return (d->opt.system ? strlen(d->opt.system) : 0) +
           (dialog_is_large(d) ? d->bytes : dialog_bytes_of(d->opt.messages)) +
           dialog_bytes_of(d->specs);
}

/* Before the model is asked, what that may cost at the worst is set aside. A first call that has to
 * wait for others is refused soon: its client can try again. A later one waits as long as the
 * dialog may take, because what was done and paid before would be lost. */
static void hold_step(struct dialog *d) {
    const struct dialog_options *o = &d->opt;
    (void)dialog_move(d, ASKING);
    d->hold = account_hold_call(
        o->accounts,
        &(struct account_call){.owner = o->owner,
                               .key = o->key,
                               .kind = o->kind,
                               .model = o->model,
                               .input_bytes =
                                   account_has_limits(o->accounts, o->key) ? input_bytes(d) : 0,
                               .max_tokens = wanted_tokens(d),
                               .wait_ms = d->meter.streams > 0 ? o->budget.wall_ms : 0},
        dialog_on_held, d);
}

static void dialog_next_step(struct dialog *d) {
    struct model_budget budget = budget_of(d);
    struct err err;
    if (d->steps > 0 && d->opt.view->on_step_finish)
        d->opt.view->on_step_finish(d->opt.ctx);
    if (dialog_is_over(d))
        return;
    if (d->steps >= d->opt.max_steps) {
        end_of_steps(d);
        return;
    }
    if (model_meter_check(&d->meter, &budget, &err) < 0) {
        end_dialog(d, DIALOG_BUDGET, &err);
        return;
    }
    d->steps++;
    if (d->opt.view->on_step_start)
        d->opt.view->on_step_start(d->opt.ctx);
    if (dialog_is_over(d))
        return;
    if (d->opt.accounts)
        hold_step(d);
    else
        dialog_open_stream(d, 0);
}

static void dialog_advance(void *ctx) {
    struct dialog *d = ctx;
    struct err err;
    const json_t *call = json_array_get(d->calls, 0);
    if (!call) {
        dialog_next_step(d);
    } else if (start_tool(d, call, &err) == 0) {
        (void)dialog_move(d, TOOL);
        if (d->opt.view->on_tool_begun)
            d->opt.view->on_tool_begun(d->opt.ctx);
    } else {
        _cleanup_(json) json_t *text = json_text(err.message);
        finish_tool(d, &(struct tool_result){.output = text, .failed = true});
    }
}

/* --- the life of a dialog --- */

struct dialog *dialog_start(const struct dialog_options *options) {
    assert(options->max_steps > 0);
    struct dialog *d = xcalloc(1, sizeof(*d));
    d->opt = *options;
    d->bytes = options->bytes;
    d->calls = json_array();
    d->specs = json_array();
    for (size_t i = 0; i < options->ntools; i++)
        (void)json_array_append(d->specs, options->tools[i].spec);
    (void)uv_timer_init(options->loop, &d->timer);
    d->timer.data = d;
    if (options->budget.wall_ms > 0) {
        uv_update_time(options->loop); /* the loop's clock may be old: the time begins now */
        (void)uv_timer_start(&d->timer, dialog_on_wall, (uint64_t)options->budget.wall_ms, 0);
    }
    dialog_go_on(d);
    return d;
}

void dialog_cancel(struct dialog *d) {
    end_dialog(d, DIALOG_CANCELLED, NULL);
}

static void dialog_free_tree(void *tree) {
    json_decref(tree);
}

static void dialog_on_closed(uv_handle_t *h) {
    struct dialog *d = h->data;
    if (dialog_is_large(d))
        intake_dispose_on(h->loop, dialog_free_tree, d->opt.messages);
    else
        json_decref(d->opt.messages);
    json_decref(d->specs);
    json_decref(d->calls);
    free(d);
}

/* The memory stays until the loop goes on: this may be called inside a callback. */
void dialog_destroy(struct dialog *d) {
    if (!d)
        return;
    stop_work(d);
    if (d->state != OVER)
        (void)dialog_move(d, OVER);
    uv_close((uv_handle_t *)&d->timer, dialog_on_closed);
}

void dialog_spend(struct dialog *d, const struct model_usage *usage) {
    model_meter_add(&d->meter, &d->opt.model->price, usage);
}

int64_t dialog_left_nusd(const struct dialog *d) {
    int64_t max = d->opt.budget.cost_nusd;
    return max > 0 ? MAX(max - d->meter.cost_nusd, 0) : INT64_MAX;
}

int64_t dialog_steps(const struct dialog *d) {
    return d->steps;
}

const struct model_meter *dialog_meter(const struct dialog *d) {
    return &d->meter;
}

struct store_run_usage dialog_usage(const struct dialog *d) {
    const struct model_usage *u = &d->meter.usage;
    return (struct store_run_usage){.input_tokens = u->input_tokens,
                                    .output_tokens = u->output_tokens,
                                    .cache_read_tokens = u->cache_read_tokens,
                                    .cache_write_tokens = u->cache_write_tokens,
                                    .cost_nusd = d->meter.cost_nusd,
                                    .unpriced = d->meter.unpriced};
}
