#include "base/buf.h"
#include "base/cleanup.h"
#include "base/mem.h"
#include "front/dialog/dialog.h"
#include "unit/unit.h"

#include <stdlib.h>
#include <string.h>

/* The dialog between a scripted model, two tools of the test's making and a view that writes down
 * what it is told. The model's functions are defined here, so that the linker takes none of the
 * library's. */

static uv_loop_t loop;
static struct later_queue queue;
static struct dialog *dialog;
static int inside; /* functions of dialog.h that are being called */
static struct buf trace;
static unsigned ends;
static struct dialog_end end;
static unsigned told; /* callbacks so far */

/* --- the model --- */

struct model_stream {
    struct model_callbacks cb;
    void *ctx;
    json_t *content;
};

static struct model_stream *stream; /* the one that runs, or NULL */
static json_t *read_messages;       /* what the last request said */
static size_t read_tools;
static int64_t read_max_tokens;
static unsigned streams;
static unsigned streams_cancelled;
static bool stream_refused;
static struct model_usage cut_usage; /* what a stream that is cut off has used */

int model_stream(struct models *m, const struct model_request *request,
                 const struct model_callbacks *callbacks, void *ctx,
                 struct model_stream **ret_stream, struct err *err) {
    (void)m;
    assert_null(stream);
    if (stream_refused)
        return err_set(err, ERR_UNAVAILABLE, "no such server");
    json_decref(read_messages);
    read_messages = json_deep_copy(request->messages);
    read_tools = json_array_size(request->tools);
    read_max_tokens = request->max_tokens;
    streams++;
    stream = xcalloc(1, sizeof(*stream));
    *stream = (struct model_stream){.cb = *callbacks, .ctx = ctx, .content = json_array()};
    *ret_stream = stream;
    return 0;
}

static void drop_stream(void) {
    json_decref(stream->content);
    free(stream);
    stream = NULL;
}

void model_stream_cancel(struct model_stream *s) {
    assert_ptr_equal(s, stream);
    streams_cancelled++;
    drop_stream();
}

unsigned model_retry_after_ms(const struct model_stream *s) {
    (void)s;
    return 2500;
}

struct model_usage model_stream_usage(const struct model_stream *s) {
    assert_ptr_equal(s, stream);
    return cut_usage;
}

/* Each returns at once if the dialog has cancelled the stream inside a callback. */
static void says(const char *text) {
    if (stream)
        stream->cb.on_text_start(stream->ctx);
    if (stream)
        stream->cb.on_text_delta(stream->ctx, text, strlen(text));
    if (stream)
        stream->cb.on_text_end(stream->ctx);
    if (stream)
        (void)json_array_append_new(stream->content,
                                    json_pack("{s:s,s:s}", "type", "text", "text", text));
}

static void thinks(const char *text) {
    if (stream)
        stream->cb.on_reasoning_start(stream->ctx);
    if (stream)
        stream->cb.on_reasoning_delta(stream->ctx, text, strlen(text));
    if (stream)
        stream->cb.on_reasoning_end(stream->ctx);
}

static void calls(const char *id, const char *name) {
    _cleanup_(json) json_t *input = json_object();
    if (stream)
        stream->cb.on_tool_start(stream->ctx, id, name);
    if (stream)
        stream->cb.on_tool_delta(stream->ctx, id, "{}", 2);
    if (stream)
        stream->cb.on_tool_end(stream->ctx, id, name,
                               &(struct model_input){.tree = input, .text = "{}", .len = 2});
    if (stream)
        (void)json_array_append_new(stream->content,
                                    json_pack("{s:s,s:s,s:s,s:O}", "type", "tool_call", "id", id,
                                              "name", name, "input", input));
}

static void calls_badly(const char *id, const char *name, const char *why) {
    stream->cb.on_tool_end(stream->ctx, id, name, &(struct model_input){.error = why});
    (void)json_array_append_new(stream->content,
                                json_pack("{s:s,s:s,s:s,s:{},s:s}", "type", "tool_call", "id", id,
                                          "name", name, "input", "input_error", why));
}

static void uses(int64_t in, int64_t out) {
    struct model_usage u = {.input_tokens = in, .output_tokens = out};
    if (stream)
        stream->cb.on_usage(stream->ctx, &u);
}

/* The stream is dead when it tells its end. */
static void stops(enum model_stop stop) {
    if (!stream)
        return;
    struct model_stream s = *stream;
    free(stream);
    stream = NULL;
    json_t *message = json_pack("{s:s,s:o}", "role", "assistant", "content", s.content);
    s.cb.on_done(s.ctx, stop, message);
    json_decref(message);
}

static void breaks_as(enum err_code code, const char *why) {
    struct err err;
    (void)err_set(&err, code, "%s", why);
    struct model_stream s = *stream;
    free(stream);
    stream = NULL;
    json_t *partial = json_array_size(s.content) > 0
                          ? json_pack("{s:s,s:O}", "role", "assistant", "content", s.content)
                          : NULL;
    s.cb.on_error(s.ctx, &err, code != ERR_UNAVAILABLE, partial);
    json_decref(partial);
    json_decref(s.content);
}

static void breaks(const char *why) {
    breaks_as(ERR_UNAVAILABLE, why);
}

/* --- the tools --- */

static struct tool_call *at_work;
static unsigned tools_started;
static unsigned tools_cancelled;

static int start_work(const struct tool_request *q, struct tool_call **ret_call, struct err *err) {
    (void)err;
    assert_null(at_work);
    tools_started++;
    at_work = xcalloc(1, sizeof(*at_work));
    *at_work = (struct tool_call){.done = q->done, .ctx = q->ctx};
    *ret_call = at_work;
    return 0;
}

static int start_nothing(const struct tool_request *q, struct tool_call **ret_call,
                         struct err *err) {
    (void)ret_call;
    return err_set(err, ERR_BAD_REQUEST, "the tool \"%s\" needs more", q->offer->name);
}

static void cancel_work(struct tool_call *call) {
    assert_ptr_equal(call, at_work);
    tools_cancelled++;
    free(at_work);
    at_work = NULL;
}

static void answers_as(const char *text, bool failed) {
    if (!at_work)
        return;
    struct tool_call c = *at_work;
    free(at_work);
    at_work = NULL;
    _cleanup_(json) json_t *output = json_string(text);
    c.done(c.ctx, &(struct tool_result){.output = output, .failed = failed});
}

static void answers(const char *text) {
    answers_as(text, false);
}

static const struct tool works = {.name = "works",
                                  .description = "",
                                  .schema = "{\"type\":\"object\"}",
                                  .start = start_work,
                                  .cancel = cancel_work};
static const struct tool refuses = {.name = "refuses",
                                    .description = "",
                                    .schema = "{\"type\":\"object\"}",
                                    .start = start_nothing,
                                    .cancel = cancel_work};
static struct tool_offer offers[2];

/* --- the view --- */

static unsigned cancel_at; /* the callback that cancels, counted from 1; 0: none does */
static unsigned destroy_at;
static unsigned acted_at; /* how many callbacks there were when one of them did */

static void stop_now(void) {
    acted_at = told;
    if (told == cancel_at)
        dialog_cancel(dialog);
    if (told == destroy_at)
        dialog_destroy(steal_ptr(&dialog));
}

static void note(const char *word, const char *text) {
    assert_int_equal(inside, 0);
    assert_int_equal(ends, 0);
    assert_int_equal(acted_at, 0);
    (void)buf_addf(&trace, "%s%s%s%s%s", trace.len ? " " : "", word, text ? "(" : "",
                   text ? text : "", text ? ")" : "");
    told++;
    if (told == cancel_at || told == destroy_at)
        stop_now();
}

static void on_step_start(void *ctx) {
    (void)ctx;
    note("step", NULL);
}

static void on_text_start(void *ctx) {
    (void)ctx;
    note("text", NULL);
}

static void on_text_delta(void *ctx, const char *text, size_t len) {
    (void)ctx;
    assert_int_equal(strlen(text), len);
    note("delta", text);
}

static void on_text_end(void *ctx) {
    (void)ctx;
    note("text-end", NULL);
}

static void on_reasoning_start(void *ctx) {
    (void)ctx;
    note("think", NULL);
}

static void on_reasoning_delta(void *ctx, const char *text, size_t len) {
    (void)ctx;
    (void)len;
    note("thought", text);
}

static void on_reasoning_end(void *ctx) {
    (void)ctx;
    note("think-end", NULL);
}

static void on_tool_start(void *ctx, const char *id, const char *name) {
    (void)ctx;
    (void)name;
    note("tool", id);
}

static void on_tool_delta(void *ctx, const char *id, const char *json, size_t len) {
    (void)ctx;
    (void)id;
    (void)len;
    note("piece", json);
}

static void on_tool_input(void *ctx, const char *id, const char *name,
                          const struct model_input *input) {
    (void)ctx;
    (void)name;
    note(input->error ? "bad-input" : "input", input->error ? input->error : id);
}

static void on_answer(void *ctx, const struct dialog_answer *a) {
    (void)ctx;
    static const char *const stop_names[] = {[MODEL_STOP_END] = "stop",
                                             [MODEL_STOP_TOOL_CALLS] = "tool-calls",
                                             [MODEL_STOP_LENGTH] = "length"};
    note(a->whole ? "answer" : "partial", a->whole ? stop_names[a->stop] : NULL);
}

static void on_tool_begun(void *ctx) {
    (void)ctx;
    assert_true(at_work != NULL);
    note("begun", NULL);
}

static void on_tool_result(void *ctx, const struct dialog_result *r) {
    (void)ctx;
    note(r->failed ? "failed" : "result", json_string_value(r->output));
}

static void on_step_finish(void *ctx) {
    (void)ctx;
    note("step-end", NULL);
}

static void on_end(void *ctx, const struct dialog_end *e) {
    (void)ctx;
    assert_int_equal(inside, 0);
    assert_int_equal(ends, 0);
    assert_int_equal(destroy_at > 0 && acted_at > 0, 0);
    ends++;
    end = *e;
    told++;
    if (told == destroy_at)
        stop_now();
}

static const struct dialog_view view = {
    .on_step_start = on_step_start,
    .on_text_start = on_text_start,
    .on_text_delta = on_text_delta,
    .on_text_end = on_text_end,
    .on_reasoning_start = on_reasoning_start,
    .on_reasoning_delta = on_reasoning_delta,
    .on_reasoning_end = on_reasoning_end,
    .on_tool_start = on_tool_start,
    .on_tool_delta = on_tool_delta,
    .on_tool_input = on_tool_input,
    .on_answer = on_answer,
    .on_tool_begun = on_tool_begun,
    .on_tool_result = on_tool_result,
    .on_step_finish = on_step_finish,
    .on_end = on_end,
};

/* --- the frame --- */

static const struct model_info model = {.id = "m",
                                        .price = {.input = 1000, .output = 1000, .known = true}};
static struct dialog_options options;

static void reset(void) {
    buf_clear(&trace);
    ends = told = streams = streams_cancelled = tools_started = tools_cancelled = 0;
    read_max_tokens = 0;
    cancel_at = destroy_at = acted_at = 0;
    stream_refused = false;
    cut_usage = (struct model_usage){0};
    end = (struct dialog_end){0};
    options = (struct dialog_options){.loop = &loop,
                                      .later = &queue,
                                      .model = &model,
                                      .tools = offers,
                                      .ntools = 2,
                                      .max_steps = 5,
                                      .view = &view};
}

static int setup(void **state) {
    (void)state;
    struct err err;
    buf_init(&trace, 65536);
    if (uv_loop_init(&loop) != 0 ||
        tool_offer_init(&offers[0], &works, &(struct tool_offer_options){0}, &err) < 0 ||
        tool_offer_init(&offers[1], &refuses, &(struct tool_offer_options){0}, &err) < 0)
        return -1;
    later_queue_init(&queue, &loop);
    reset();
    return 0;
}

static void destroy(void) {
    inside++;
    dialog_destroy(steal_ptr(&dialog));
    inside--;
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_null(stream);
    assert_null(at_work);
}

static void on_closed(uv_handle_t *h) {
    (void)h;
}

static int teardown(void **state) {
    (void)state;
    destroy();
    later_queue_close(&queue, on_closed, NULL);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    tool_offer_finish(&offers[0]);
    tool_offer_finish(&offers[1]);
    json_decref(read_messages);
    read_messages = NULL;
    buf_finish(&trace);
    return uv_loop_close(&loop) == 0 ? 0 : -1;
}

/* Until nothing more is due. */
static void turn(void) {
    for (int i = 0; i < 8; i++)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
}

static void begin(void) {
    options.messages = json_pack("[{s:s,s:s}]", "role", "user", "content", "hello");
    inside++;
    dialog = dialog_start(&options);
    inside--;
    assert_int_equal(told, 0);
}

static void cancel(void) {
    unsigned before = told;
    inside++;
    dialog_cancel(dialog);
    inside--;
    assert_int_equal(told, before);
    assert_null(stream);
    assert_null(at_work);
}

static void assert_trace(const char *expected) {
    assert_string_equal(trace.data ? trace.data : "", expected);
}

/* --- the tests --- */

static void a_dialog_without_history_streams_an_answer(void **state) {
    (void)state;
    begin();
    turn();
    thinks("hm");
    says("hi");
    uses(10, 2);
    stops(MODEL_STOP_END);
    turn();
    assert_trace("step think thought(hm) think-end text delta(hi) text-end answer(stop) step-end");
    assert_int_equal(ends, 1);
    assert_int_equal(end.outcome, DIALOG_DONE);
    assert_int_equal(end.stop, MODEL_STOP_END);
    assert_int_equal(read_tools, 2);
    assert_int_equal(dialog_steps(dialog), 1);
    assert_int_equal(dialog_meter(dialog)->usage.output_tokens, 2);
    assert_int_equal(dialog_meter(dialog)->cost_nusd, 12000);
}

static void tool_calls_run_one_after_the_other(void **state) {
    (void)state;
    begin();
    turn();
    calls("a", "works");
    calls("b", "works");
    stops(MODEL_STOP_TOOL_CALLS);
    turn();
    assert_int_equal(tools_started, 1);
    answers("one");
    assert_int_equal(tools_started, 1); /* the next one begins from the loop */
    turn();
    assert_int_equal(tools_started, 2);
    answers("two");
    turn();
    says("ok");
    stops(MODEL_STOP_END);
    turn();
    assert_trace("step tool(a) piece({}) input(a) tool(b) piece({}) input(b) answer(tool-calls) "
                 "begun result(one) begun result(two) step-end "
                 "step text delta(ok) text-end answer(stop) step-end");
    const json_t *results = json_object_get(json_array_get(read_messages, 2), "content");
    assert_int_equal(json_array_size(results), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(results, 1), "output")),
                        "two");
    assert_int_equal(end.outcome, DIALOG_DONE);
}

static void what_a_tool_cannot_do_goes_to_the_model_as_an_error(void **state) {
    (void)state;
    begin();
    turn();
    calls("a", "nosuch");
    calls_badly("b", "works", "no object");
    calls("c", "refuses");
    calls("d", "works");
    stops(MODEL_STOP_TOOL_CALLS);
    turn();
    answers_as("it broke", true);
    turn();
    assert_non_null(stream);
    assert_trace("step tool(a) piece({}) input(a) bad-input(no object) tool(c) piece({}) input(c) "
                 "tool(d) piece({}) input(d) answer(tool-calls) "
                 "failed(there is no tool \"nosuch\") "
                 "failed(the input of the tool is not valid: no object) "
                 "failed(the tool \"refuses\" needs more) begun failed(it broke) step-end step");
    const json_t *results = json_object_get(json_array_get(read_messages, 2), "content");
    for (size_t i = 0; i < 4; i++)
        assert_true(json_is_true(json_object_get(json_array_get(results, i), "is_error")));
}

/* Each is one turn of the loop: the depth of the stack does not grow with them. */
static void ten_thousand_calls_of_no_tool_end(void **state) {
    (void)state;
    enum { COUNT = 10000 };
    begin();
    turn();
    for (int i = 0; i < COUNT; i++)
        (void)json_array_append_new(stream->content,
                                    json_pack("{s:s,s:s,s:s,s:{}}", "type", "tool_call", "id", "x",
                                              "name", "nosuch", "input"));
    stops(MODEL_STOP_TOOL_CALLS);
    while (!stream)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    assert_int_equal(told, 2 + COUNT + 2);
}

static void steps_have_a_limit(void **state) {
    (void)state;
    options.max_steps = 2;
    begin();
    for (int i = 0; i < 2; i++) {
        turn();
        calls("a", "works");
        stops(MODEL_STOP_TOOL_CALLS);
        turn();
        answers("x");
        turn();
    }
    assert_int_equal(streams, 2);
    assert_int_equal(ends, 1);
    assert_int_equal(end.outcome, DIALOG_STEPS);
    assert_string_equal(end.error.message, "the turn has had its 2 steps (max_steps)");
}

static void a_budget_that_is_used_up_ends_it_before_the_next_step(void **state) {
    (void)state;
    for (int cost = 0; cost < 2; cost++) {
        reset();
        if (cost)
            options.budget.cost_nusd = 100000;
        else
            options.budget.tokens = 100;
        begin();
        turn();
        assert_int_equal(read_max_tokens > 0, 1); /* no answer may have more than is left */
        calls("a", "works");
        uses(90, 10);
        stops(MODEL_STOP_TOOL_CALLS);
        turn();
        answers("x");
        turn();
        assert_int_equal(ends, 1);
        assert_int_equal(end.outcome, DIALOG_BUDGET);
        assert_int_equal(streams, 1);
        destroy();
    }
}

static void an_answer_that_the_budget_cut_short_is_not_whole(void **state) {
    (void)state;
    options.budget.tokens = 100;
    begin();
    turn();
    says("and so on and so");
    uses(50, 50);
    stops(MODEL_STOP_LENGTH);
    turn();
    assert_int_equal(end.outcome, DIALOG_BUDGET);
    assert_non_null(strstr(end.error.message, "100"));
}

enum { WALL_MS = 1000 };

/* Whatever the loop did before, in the same turn. */
static void the_wall_clock_begins_with_the_dialog(void **state) {
    (void)state;
    (void)usleep((WALL_MS + 100) * 1000);
    options.budget.wall_ms = WALL_MS;
    begin();
    turn();
    assert_int_equal(ends, 0);
    says("hm");
    stops(MODEL_STOP_END);
    turn();
    assert_int_equal(end.outcome, DIALOG_DONE);
}

static void the_wall_clock_ends_a_stream_and_a_tool(void **state) {
    (void)state;
    for (int tool = 0; tool < 2; tool++) {
        reset();
        cut_usage = (struct model_usage){.input_tokens = 7};
        options.budget.wall_ms = WALL_MS;
        begin();
        turn();
        says("hm");
        if (tool) {
            calls("a", "works");
            stops(MODEL_STOP_TOOL_CALLS);
            turn();
            assert_non_null(at_work);
        }
        while (ends == 0)
            (void)uv_run(&loop, UV_RUN_ONCE);
        assert_int_equal(end.outcome, DIALOG_BUDGET);
        assert_string_equal(end.error.message,
                            "the turn took longer than 1000 ms (budget wall_ms)");
        assert_int_equal(tools_cancelled, tool);
        assert_int_equal(streams_cancelled, !tool);
        assert_int_equal(dialog_meter(dialog)->usage.input_tokens, tool ? 0 : 7);
        destroy();
    }
}

static void a_stream_that_fails_gives_what_came(void **state) {
    (void)state;
    begin();
    turn();
    says("half of");
    uses(5, 1);
    breaks("the line is dead");
    turn();
    assert_trace("step text delta(half of) text-end partial");
    assert_int_equal(end.outcome, DIALOG_FAILED);
    assert_string_equal(end.error.message, "the line is dead");
    assert_int_equal(dialog_meter(dialog)->usage.input_tokens, 5);
    destroy();
    reset();
    begin();
    turn();
    breaks("nobody there");
    turn();
    assert_trace("step");
    assert_int_equal(end.outcome, DIALOG_FAILED);
}

/* Whatever its server said, the client's request is not at fault. */
static void a_model_that_fails_is_a_bad_gateway(void **state) {
    (void)state;
    static const enum err_code codes[] = {ERR_UNAUTHORIZED, ERR_RATE,     ERR_TOO_LARGE,
                                          ERR_UPSTREAM,     ERR_PROTOCOL, ERR_TIMEOUT};
    for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
        begin();
        turn();
        breaks_as(codes[i], "no");
        turn();
        assert_int_equal(end.outcome, DIALOG_FAILED);
        assert_int_equal(dialog_http_status(&end), 502);
        assert_int_equal(end.retry_after_s, codes[i] == ERR_RATE ? 3 : 0);
        destroy();
        reset();
    }
    static const struct {
        struct dialog_end end;
        int status;
    } others[] = {
        {{.outcome = DIALOG_DONE}, 200},
        {{.outcome = DIALOG_STEPS, .error.code = ERR_LIMIT}, 200},
        {{.outcome = DIALOG_BUDGET, .error.code = ERR_LIMIT}, 200},
        {{.outcome = DIALOG_BUDGET, .error.code = ERR_TIMEOUT}, 504},
        {{.outcome = DIALOG_BUDGET, .error.code = ERR_QUOTA}, 429},
        {{.outcome = DIALOG_FAILED, .error.code = ERR_RATE}, 429}, /* by the key's account */
        {{.outcome = DIALOG_FAILED, .error.code = ERR_FULL}, 507},
        {{.outcome = DIALOG_CANCELLED}, 499},
    };
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        assert_int_equal(dialog_http_status(&others[i].end), others[i].status);
}

static void a_stream_that_cannot_begin_is_a_failure(void **state) {
    (void)state;
    stream_refused = true;
    begin();
    turn();
    assert_trace("step");
    assert_int_equal(end.outcome, DIALOG_FAILED);
    assert_string_equal(end.error.message, "no such server");
}

static void an_empty_answer_is_a_failure_unless_something_was_said(void **state) {
    (void)state;
    begin();
    turn();
    stops(MODEL_STOP_END);
    turn();
    assert_int_equal(end.outcome, DIALOG_FAILED);
    destroy();
    reset();
    begin();
    turn();
    calls("a", "works");
    stops(MODEL_STOP_TOOL_CALLS);
    turn();
    answers("x");
    turn();
    stops(MODEL_STOP_END);
    turn();
    assert_int_equal(end.outcome, DIALOG_DONE);
}

/* Leads the dialog into its state number n, from 0; false: there are no more. */
static bool lead(unsigned n) {
    begin(); /* between: the first step is due */
    if (n == 0)
        return true;
    turn();
    if (n == 1)
        return true; /* stream */
    says("hm");
    if (n == 2)
        return true; /* stream, in the middle */
    calls("a", "works");
    calls("b", "works");
    stops(MODEL_STOP_TOOL_CALLS);
    if (n == 3)
        return true; /* between: a tool is due */
    turn();
    if (n == 4)
        return true; /* tool, that never answers */
    answers("x");
    if (n == 5)
        return true; /* between: the second tool is due */
    turn();
    if (n == 6)
        return true; /* the second tool */
    answers("y");
    if (n == 7)
        return true; /* between: a step is due */
    turn();
    says("bye");
    stops(MODEL_STOP_END);
    return n == 8; /* ending */
}

static void it_can_be_cancelled_in_every_state(void **state) {
    (void)state;
    unsigned n = 0;
    for (; lead(n); n++) {
        cancel();
        unsigned before = told;
        cancel();
        assert_int_equal(ends, 0);
        turn();
        assert_int_equal(ends, 1);
        assert_int_equal(told, before + 1);
        assert_int_equal(end.outcome, n == 8 ? DIALOG_DONE : DIALOG_CANCELLED);
        assert_int_equal(streams_cancelled, n == 1 || n == 2);
        assert_int_equal(tools_cancelled, n == 4 || n == 6);
        cancel(); /* over: nothing happens */
        turn();
        destroy();
        reset();
    }
    assert_int_equal(n, 9);
    turn();
    cancel();
}

static void it_can_be_destroyed_in_every_state(void **state) {
    (void)state;
    unsigned n = 0;
    for (; lead(n); n++) {
        unsigned before = told;
        destroy();
        assert_int_equal(told, before);
        assert_int_equal(ends, 0);
        reset();
    }
    assert_int_equal(n, 9);
}

/* The whole of a dialog; what it does stops by itself when the dialog does. */
static void play(void) {
    begin();
    turn();
    thinks("hm");
    says("hm");
    calls("a", "works");
    calls("b", "nosuch");
    stops(MODEL_STOP_TOOL_CALLS);
    turn();
    answers("x");
    turn();
    says("bye");
    stops(MODEL_STOP_END);
    turn();
}

static void any_callback_may_cancel_it(void **state) {
    (void)state;
    play();
    unsigned all = told;
    destroy();
    for (unsigned i = 1; i < all; i++) {
        reset();
        cancel_at = i;
        play();
        assert_int_equal(ends, 1);
        assert_int_equal(told, i + 1);
        assert_int_equal(end.outcome, DIALOG_CANCELLED);
        destroy();
    }
}

static void any_callback_may_destroy_it(void **state) {
    (void)state;
    play();
    unsigned all = told;
    destroy();
    for (unsigned i = 1; i <= all; i++) {
        reset();
        destroy_at = i;
        play();
        assert_null(dialog);
        assert_int_equal(told, i);
        assert_int_equal(ends, i == all);
        destroy();
    }
}

static void a_view_may_leave_everything_out(void **state) {
    (void)state;
    static const struct dialog_view none;
    options.view = &none;
    play();
    assert_int_equal(told, 0);
    assert_int_equal(dialog_steps(dialog), 2);
}

int main(void) {
    (void)setenv("CAY_STRICT", "1", 1); /* a move that the table lacks ends the test */
    const struct CMUnitTest tests[] = {
        UNIT(a_dialog_without_history_streams_an_answer),
        UNIT(tool_calls_run_one_after_the_other),
        UNIT(what_a_tool_cannot_do_goes_to_the_model_as_an_error),
        UNIT(ten_thousand_calls_of_no_tool_end),
        UNIT(steps_have_a_limit),
        UNIT(a_budget_that_is_used_up_ends_it_before_the_next_step),
        UNIT(an_answer_that_the_budget_cut_short_is_not_whole),
        UNIT(the_wall_clock_begins_with_the_dialog),
        UNIT(the_wall_clock_ends_a_stream_and_a_tool),
        UNIT(a_stream_that_fails_gives_what_came),
        UNIT(a_model_that_fails_is_a_bad_gateway),
        UNIT(a_stream_that_cannot_begin_is_a_failure),
        UNIT(an_empty_answer_is_a_failure_unless_something_was_said),
        UNIT(it_can_be_cancelled_in_every_state),
        UNIT(it_can_be_destroyed_in_every_state),
        UNIT(any_callback_may_cancel_it),
        UNIT(any_callback_may_destroy_it),
        UNIT(a_view_may_leave_everything_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
