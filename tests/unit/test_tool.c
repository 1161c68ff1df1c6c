#include "base/cleanup.h"
#include "base/mem.h"
#include "front/tool/rows.h"
#include "front/tool/tool.h"
#include "unit/unit.h"

#include <stdlib.h>
#include <string.h>

/* The tools between a runner and facets of the test's making, whose functions are defined here, so
 * that the linker takes none of the library's. */

static uv_loop_t loop;
static struct later_queue queue;
static struct err e;
static int inside; /* start() or cancel() is being called */

/* --- programs --- */

struct run {
    struct run_request q;
    const char *output;
    json_t *error;
    bool cancelled;
};

static struct run *program; /* the one that runs, or NULL */
static char started_source[4096];
static bool run_refused;

struct run *run_start(struct runner *r, struct jobs *jobs, const struct run_request *q,
                      struct err *err) {
    (void)r;
    (void)jobs;
    if (run_refused) {
        (void)err_set(err, ERR_IO, "the disk is full");
        return NULL;
    }
    assert_true(q->source_len < sizeof(started_source));
    memcpy(started_source, q->source, q->source_len);
    program = xcalloc(1, sizeof(*program));
    *program = (struct run){.q = *q, .output = ""};
    return program;
}

void run_cancel(struct run *run) {
    run->cancelled = true;
}

const char *run_output(const struct run *run, size_t *ret_len) {
    *ret_len = strlen(run->output);
    return run->output;
}

const char *run_id(const struct run *run) {
    (void)run;
    return "run_0";
}

const json_t *run_error(const struct run *run) {
    return run->error;
}

/* Takes error. */
static void program_ends(const char *output, json_t *error) {
    struct run *run = steal_ptr(&program);
    run->output = output;
    run->error = error;
    run->q.callbacks.on_done(run->q.ctx, run, "{}", 2);
    json_decref(error);
    free(run);
}

/* --- facets --- */

struct facet_op {
    facet_answered done;
    void *ctx;
    bool cancelled;
};

static struct facet_op op;
static char args[256];
static bool facet_refused;

struct facet_op *facets_call(struct facets *all, const struct facet_ref *ref, const char *method,
                             const char *args_json, facet_answered done, void *ctx,
                             struct err *err) {
    (void)all;
    assert_string_equal(ref->dir, "/db");
    assert_string_equal(method, "query");
    if (facet_refused) {
        (void)err_set(err, ERR_RATE, "all databases are in use");
        return NULL;
    }
    (void)snprintf(args, sizeof(args), "%s", args_json);
    op = (struct facet_op){.done = done, .ctx = ctx};
    return &op;
}

void facet_op_cancel(struct facet_op *o) {
    if (o)
        o->cancelled = true;
}

/* --- the frame --- */

static struct runner runner;
static struct tool_env env;
static struct tool_offer code;
static struct tool_offer query;
static const struct tool_facet facets[] = {{.name = "db", .ref = {.dir = "/db"}}};

static unsigned results;
static char result[512];
static bool result_failed;
static unsigned executions;
static struct tool_execution execution;
static char execution_output[128];

static void on_done(void *ctx, const struct tool_result *r) {
    assert_ptr_equal(ctx, &env);
    assert_int_equal(inside, 0);
    _cleanup_(free) char *text = json_dumps(r->output, JSON_COMPACT | JSON_ENCODE_ANY);
    (void)snprintf(result, sizeof(result), "%s", text);
    result_failed = r->failed;
    results++;
}

static void on_execution(void *ctx, const struct tool_execution *x) {
    assert_ptr_equal(ctx, &env);
    assert_int_equal(inside, 0);
    execution = *x;
    (void)snprintf(execution_output, sizeof(execution_output), "%s", x->output);
    executions++;
}

static int setup(void **state) {
    (void)state;
    results = executions = 0;
    run_refused = facet_refused = false;
    op = (struct facet_op){0};
    if (uv_loop_init(&loop) != 0)
        return -1;
    later_queue_init(&queue, &loop);
    env = (struct tool_env){.later = &queue,
                            .runner = &runner,
                            .owner = "",
                            .title = "t",
                            .facets = facets,
                            .nfacets = 1,
                            .result_bytes = 100,
                            .on_execution = on_execution,
                            .ctx = &env};
    int rc =
        tool_offer_init(&code, &tool_execute_code,
                        &(struct tool_offer_options){.name = "runIt", .input = "A module"}, &e);
    if (rc == 0)
        rc = tool_offer_init(&query, &tool_query_database,
                             &(struct tool_offer_options){.facet = "db"}, &e);
    return rc;
}

static void on_closed(uv_handle_t *h) {
    (void)h;
}

static int teardown(void **state) {
    (void)state;
    tool_env_finish(&env);
    tool_offer_finish(&code);
    tool_offer_finish(&query);
    later_queue_close(&queue, on_closed, NULL);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop) == 0 ? 0 : -1;
}

static int start(const struct tool_offer *offer, const char *input, struct tool_call **ret_call) {
    _cleanup_(json) json_t *j = json_loads(input, 0, NULL);
    assert_non_null(j);
    struct tool_request q = {.offer = offer, .env = &env, .input = j, .done = on_done, .ctx = &env};
    inside++;
    int rc = offer->tool->start(&q, ret_call, &e);
    inside--;
    return rc;
}

static void cancel(const struct tool_offer *offer, struct tool_call *call) {
    inside++;
    offer->tool->cancel(call);
    inside--;
}

static void turn(void) {
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
}

/* --- the tests --- */

static void an_offer_describes_itself_to_the_model(void **state) {
    (void)state;
    _cleanup_(free) char *spec = json_dumps(code.spec, JSON_COMPACT);
    assert_non_null(strstr(spec, "{\"name\":\"runIt\",\"description\":\"Runs a"));
    assert_non_null(strstr(
        spec, "\"input_schema\":{\"type\":\"object\",\"properties\":{\"code\":{\"type\":\"string\","
              "\"description\":\"A module\"}},\"required\":[\"code\"],"
              "\"additionalProperties\":false}}"));
    assert_string_equal(query.name, "queryDatabase");
    struct tool_offer bad = {0};
    assert_true(tool_offer_init(&bad, &tool_execute_code,
                                &(struct tool_offer_options){.input = "\xff"}, &e) < 0);
    assert_true(tool_offer_init(&bad, &tool_execute_code,
                                &(struct tool_offer_options){.description = "\xff"}, &e) < 0);
    tool_offer_finish(&bad);
}

static void the_table_knows_its_kinds(void **state) {
    (void)state;
    char kinds[64];
    tool_kinds(kinds, sizeof(kinds));
    assert_string_equal(kinds, "code or query");
    assert_ptr_equal(tool_of_kind("code"), &tool_execute_code);
    assert_null(tool_of_kind("executeCode"));
    struct tool_offer list[] = {code, query};
    assert_ptr_equal(tool_offer_find(list, 2, "queryDatabase"), &list[1]);
    assert_null(tool_offer_find(list, 1, "queryDatabase"));
}

static void an_input_without_its_text_is_refused(void **state) {
    (void)state;
    struct tool_call *c;
    assert_true(start(&code, "{\"code\":7}", &c) < 0);
    assert_string_equal(e.message, "the tool \"runIt\" needs a text \"code\"");
    assert_true(start(&query, "{}", &c) < 0);
    assert_string_equal(e.message, "the tool \"queryDatabase\" needs a text \"sql\"");
    env.nfacets = 0;
    assert_true(start(&query, "{\"sql\":\"x\"}", &c) < 0);
    assert_string_equal(e.message, "there is no database \"db\" here");
    turn();
    assert_int_equal(results, 0);
}

static void a_program_gives_its_lines_and_its_error(void **state) {
    (void)state;
    static const struct {
        const char *output;
        const char *error;
        const char *result;
    } cases[] = {
        {"a\nb", NULL, "{\"output\":\"a\\nb\",\"error\":null}"},
        {"", NULL, "{\"output\":\"(no output)\",\"error\":null}"},
        {"a", "{\"stack\":\"E: x\\n  at y\"}",
         "{\"output\":\"a\\n\\nError: E: x\\n  at y\",\"error\":\"E: x\\n  at y\"}"},
        {"", "{\"name\":\"N\",\"message\":\"m\"}",
         "{\"output\":\"Error: N: m\",\"error\":\"N: m\"}"},
        {"", "{\"message\":\"m\",\"kind\":\"load\",\"excerpt\":\"1 | x\"}",
         "{\"output\":\"\",\"error\":\"Error: m\\n1 | x\"}"},
        {"\xff", NULL, "{\"output\":\"(the output is not text)\",\"error\":null}"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tool_call *c;
        assert_int_equal(start(&code, "{\"code\":\"export default 1\"}", &c), 0);
        assert_non_null(strstr(started_source, "\"user-code.js\":\"export default 1\""));
        program_ends(cases[i].output, cases[i].error ? json_loads(cases[i].error, 0, NULL) : NULL);
        assert_int_equal(results, i + 1);
        assert_string_equal(result, cases[i].result);
        assert_false(result_failed);
        assert_int_equal(executions, i + 1);
        assert_false(execution.cancelled);
    }
    assert_null(env.left);
}

static void a_program_that_cannot_be_recorded_is_refused(void **state) {
    (void)state;
    struct tool_call *c;
    run_refused = true;
    assert_true(start(&code, "{\"code\":\"\"}", &c) < 0);
    assert_string_equal(e.message, "the disk is full");
    assert_int_equal(executions, 0);
}

static void a_cancelled_program_is_told_of_when_it_has_ended(void **state) {
    (void)state;
    struct tool_call *c;
    struct tool_call *other;
    assert_int_equal(start(&code, "{\"code\":\"1\"}", &c), 0);
    struct run *first = program;
    assert_int_equal(start(&code, "{\"code\":\"2\"}", &other), 0);
    struct run *second = program;
    cancel(&code, c);
    cancel(&code, other);
    assert_true(first->cancelled && second->cancelled);
    assert_non_null(env.left);
    program = first;
    program_ends("half", NULL);
    assert_int_equal(executions, 1);
    assert_true(execution.cancelled);
    assert_string_equal(execution_output, "half");
    program = second;
    program_ends("", NULL);
    assert_int_equal(executions, 2);
    assert_int_equal(results, 0);
    assert_null(env.left);
}

static void what_is_left_of_a_finished_environment_is_told_to_nobody(void **state) {
    (void)state;
    struct tool_call *c;
    assert_int_equal(start(&code, "{\"code\":\"1\"}", &c), 0);
    cancel(&code, c);
    tool_env_finish(&env);
    assert_null(env.left);
    memset(&env, 0xa5, sizeof(env)); /* its memory is the owner's again */
    program_ends("half", NULL);
    assert_int_equal(executions, 0);
    env = (struct tool_env){0};
}

static void a_query_gives_rows_or_says_why_not(void **state) {
    (void)state;
    struct err why;
    (void)err_set(&why, ERR_UNAVAILABLE, "the process is gone");
    static const char rows[] = "{\"columns\":[\"n\",\"b\"],\"rows\":[[1,[\"b\",\"eA==\"]]]}";
    struct tool_call *c;
    assert_int_equal(start(&query, "{\"sql\":\"SELECT \\\"x\\\"\"}", &c), 0);
    assert_string_equal(args, "[\"SELECT \\\"x\\\"\"]");
    op.done(op.ctx, true, rows, strlen(rows), NULL);
    assert_string_equal(result, "{\"rowCount\":1,\"rows\":[{\"n\":1,\"b\":\"eA==\"}]}");
    assert_int_equal(start(&query, "{\"sql\":\"x\"}", &c), 0);
    static const char error[] = "{\"name\":\"SqlError\",\"message\":\"no such table\"}";
    op.done(op.ctx, false, error, strlen(error), NULL);
    assert_string_equal(result, "{\"error\":\"SqlError: no such table\"}");
    assert_int_equal(start(&query, "{\"sql\":\"x\"}", &c), 0);
    op.done(op.ctx, false, NULL, 0, &why);
    assert_string_equal(result, "{\"error\":\"Error: the process is gone\"}");
    assert_int_equal(start(&query, "{\"sql\":\"x\"}", &c), 0);
    op.done(op.ctx, true, rows, env.result_bytes + 1, NULL);
    assert_non_null(strstr(result, "101 bytes and may have 100 (limit agent_tool_bytes)"));
    assert_int_equal(results, 4);
}

static void a_query_that_finds_no_room_says_so_from_the_loop(void **state) {
    (void)state;
    struct tool_call *c;
    facet_refused = true;
    assert_int_equal(start(&query, "{\"sql\":\"x\"}", &c), 0);
    assert_int_equal(results, 0);
    turn();
    assert_int_equal(results, 1);
    assert_string_equal(result, "{\"error\":\"Error: all databases are in use\"}");
    assert_int_equal(start(&query, "{\"sql\":\"x\"}", &c), 0);
    cancel(&query, c);
    turn();
    assert_int_equal(results, 1);
}

static void a_cancelled_query_tells_nothing(void **state) {
    (void)state;
    struct tool_call *c;
    assert_int_equal(start(&query, "{\"sql\":\"x\"}", &c), 0);
    cancel(&query, c);
    assert_true(op.cancelled);
    assert_int_equal(results, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(an_offer_describes_itself_to_the_model),
        UNIT(the_table_knows_its_kinds),
        UNIT(an_input_without_its_text_is_refused),
        UNIT(a_program_gives_its_lines_and_its_error),
        UNIT(a_program_that_cannot_be_recorded_is_refused),
        UNIT(a_cancelled_program_is_told_of_when_it_has_ended),
        UNIT(what_is_left_of_a_finished_environment_is_told_to_nobody),
        UNIT(a_query_gives_rows_or_says_why_not),
        UNIT(a_query_that_finds_no_room_says_so_from_the_loop),
        UNIT(a_cancelled_query_tells_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
