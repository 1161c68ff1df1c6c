#include "unit/unit.h"

#include "base/clock.h"
#include "wire/coder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Events are noted a line each, without their times. */
struct noted {
    struct buf text;
    unsigned count;
    unsigned stop_after;
    enum coder_type last;
};

static bool on_event(void *ctx, const struct coder_event *e) {
    struct noted *n = ctx;
    json_t *copy = json_copy((json_t *)(uintptr_t)e->json);
    (void)json_object_del(copy, "at");
    (void)json_object_del(copy, "ms");
    assert_true(json_dump(copy, &n->text));
    (void)buf_add_char(&n->text, '\n');
    json_decref(copy);
    assert_true(json_is_valid(e->text, e->len));
    n->last = e->type;
    return ++n->count != n->stop_after;
}

static int read_all(struct coder_reader_options opt, const char *text, struct coder_exit how,
                    struct noted *n, struct err *err) {
    buf_init(&n->text, 1 << 24);
    n->count = 0;
    opt.on_event = on_event;
    opt.ctx = n;
    struct coder_reader *r = coder_reader_create(&opt);
    int rc = 0;
    *err = (struct err){0};
    for (size_t i = 0; rc == 0 && text[i]; i++)
        rc = coder_reader_feed(r, text + i, 1, err);
    coder_reader_end(r, &how);
    coder_reader_destroy(r);
    return rc;
}

#define USAGE "\"usage\":{\"input_tokens\":1,\"output_tokens\":2,\"model_calls\":3}"
#define START                                                                                      \
    "{\"type\":\"start\",\"at\":0,\"v\":1,\"agent\":\"a\",\"version\":\"1\",\"model\":\"m\","      \
    "\"dir\":\"/work\",\"max_steps\":5}\n"
#define OTHER                                                                                      \
    "{\"type\":\"start\",\"at\":0,\"v\":2,\"agent\":\"a\",\"version\":\"1\",\"model\":\"m\","      \
    "\"dir\":\"/work\",\"max_steps\":5}\n"
#define STEP  "{\"type\":\"step_begin\",\"at\":1,\"step\":1,\"tool\":\"t\",\"args\":{}}\n"
#define ENDED "{\"type\":\"step_end\",\"at\":1,\"step\":1,\"ok\":true,\"ms\":2}\n"
#define DONE                                                                                       \
    "{\"type\":\"done\",\"at\":9,\"reason\":\"done\",\"summary\":\"s\",\"steps\":1,\"ms\":"        \
    "9," USAGE "}\n"

/* --- our own lines --- */

static void lines_that_keep_the_contract_are_told(void **state) {
    (void)state;
    struct noted n = {0};
    struct err err;
    struct coder_reader_options opt = {.lines = CODER_LINES_CAY};
    static const char *const good[] = {
        START DONE, START STEP ENDED DONE,
        START "{\"type\":\"text\",\"at\":1,\"text\":\"\\u0000\"}\r\n" DONE,
        START STEP "{\"type\":\"output\",\"at\":1,\"step\":1,\"text\":\"x\",\"left_out\":5}\n" DONE,
        "{\"type\":\"failed\",\"at\":0,\"reason\":\"error\",\"message\":\"m\",\"steps\":0,\"ms\":"
        "0," USAGE "}"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(read_all(opt, good[i], (struct coder_exit){.exit_code = 0}, &n, &err), 0);
        assert_true(n.last == CODER_DONE || n.last == CODER_FAILED);
        assert_null(strstr(n.text.data, "last word"));
        buf_finish(&n.text);
    }
}

static void lines_that_break_the_contract_end_it(void **state) {
    (void)state;
    struct noted n = {0};
    struct err err;
    struct coder_reader_options opt = {.lines = CODER_LINES_CAY};
    static const char *const bad[] = {
        "\n",
        "hello\n",
        "[]\n",
        "{\"type\":\"start\"}\n",
        "{}\n",
        "{\"type\":5,\"at\":0}\n",
        "{\"type\":\"nothing\",\"at\":0}\n",
        STEP,
        DONE,
        START START,
        START "{\"type\":\"text\",\"text\":\"x\"}\n",
        START "{\"type\":\"text\",\"at\":-1,\"text\":\"x\"}\n",
        START "{\"type\":\"text\",\"at\":1,\"text\":5}\n",
        START "{\"type\":\"text\",\"at\":1,\"text\":\"x\",\"more\":1}\n",
        START "{\"type\":\"text\",\"type\":\"text\",\"at\":1,\"text\":\"x\"}\n",
        START "{\"type\":\"text\",\"at\":1,\"text\":\"x\"} {}\n",
        START ENDED,
        START STEP STEP,
        START STEP ENDED ENDED,
        START STEP ENDED STEP,
        START "{\"type\":\"output\",\"at\":1,\"step\":1,\"text\":\"x\"}\n",
        START STEP "{\"type\":\"output\",\"at\":1,\"step\":2,\"text\":\"x\"}\n",
        START "{\"type\":\"step_begin\",\"at\":1,\"step\":1,\"tool\":\"a\\nb\",\"args\":{}}\n",
        START "{\"type\":\"step_begin\",\"at\":1,\"step\":1,\"tool\":\"a\",\"args\":[]}\n",
        START "{\"type\":\"done\",\"at\":9,\"reason\":\"timeout\",\"summary\":\"s\",\"steps\":1,"
              "\"ms\":9," USAGE "}\n",
        START "{\"type\":\"failed\",\"at\":9,\"reason\":\"done\",\"message\":\"s\",\"steps\":1,"
              "\"ms\":9," USAGE "}\n",
        START "{\"type\":\"failed\",\"at\":9,\"reason\":\"bored\",\"message\":\"s\",\"steps\":1,"
              "\"ms\":9," USAGE "}\n",
        START
        "{\"type\":\"done\",\"at\":9,\"reason\":\"done\",\"summary\":\"s\",\"steps\":1,\"ms\":9,"
        "\"usage\":{\"input_tokens\":1}}\n",
        START DONE START,
        START DONE "x\n",
        OTHER,
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct coder_exit how = {.exit_code = 0};
        if (read_all(opt, bad[i], how, &n, &err) != -ERR_PROTOCOL)
            fail_msg("taken: %s", bad[i]);
        assert_true(err.message[0]);
        assert_true(n.last == CODER_FAILED || (n.last == CODER_DONE && strstr(bad[i], DONE)));
        if (n.last == CODER_FAILED)
            assert_non_null(strstr(n.text.data, "broke its contract"));
        buf_finish(&n.text);
    }
}

static void lines_and_texts_have_a_maximum(void **state) {
    (void)state;
    struct noted n = {0};
    struct err err;
    struct coder_reader_options opt = {.lines = CODER_LINES_CAY};
    static const size_t sizes[] = {CODER_TEXT_MAX, CODER_TEXT_MAX + 1, CODER_LINE_MAX};
    for (size_t i = 0; i < 3; i++) {
        struct buf b;
        buf_init(&b, 1 << 20);
        (void)buf_add_str(&b, START "{\"type\":\"text\",\"at\":1,\"text\":\"");
        for (size_t k = 0; k < sizes[i]; k++)
            (void)buf_add_char(&b, 'x');
        (void)buf_add_str(&b, "\"}\n" DONE);
        int rc = read_all(opt, b.data, (struct coder_exit){.exit_code = 0}, &n, &err);
        assert_int_equal(rc, i == 0 ? 0 : -ERR_PROTOCOL);
        buf_finish(&n.text);
        buf_finish(&b);
    }
}

static void past_the_maximum_of_events_only_the_end_is_told(void **state) {
    (void)state;
    struct noted n = {0};
    struct err err;
    struct coder_reader_options opt = {.lines = CODER_LINES_CAY, .max_events = 3};
    struct buf b;
    buf_init(&b, 1 << 20);
    (void)buf_add_str(&b, START);
    for (int i = 0; i < 100; i++)
        (void)buf_add_str(&b, "{\"type\":\"text\",\"at\":1,\"text\":\"x\"}\n");
    (void)buf_add_str(&b, DONE);
    assert_int_equal(read_all(opt, b.data, (struct coder_exit){.exit_code = 0}, &n, &err), 0);
    assert_int_equal(n.count, 5);
    assert_int_equal(n.last, CODER_DONE);
    assert_non_null(strstr(n.text.data, "more than 3 events"));
    buf_finish(&n.text);
    opt = (struct coder_reader_options){.lines = CODER_LINES_CAY, .max_bytes = 500};
    assert_int_equal(read_all(opt, b.data, (struct coder_exit){.exit_code = 0}, &n, &err), 0);
    assert_true(n.count < 20);
    assert_int_equal(n.last, CODER_DONE);
    buf_finish(&n.text);
    buf_finish(&b);
}

static void whoever_stops_it_is_told_the_end_and_nothing_else(void **state) {
    (void)state;
    struct noted n = {.stop_after = 1};
    struct err err;
    struct coder_reader_options opt = {.lines = CODER_LINES_CAY};
    struct coder_exit how = {.cancelled = true};
    assert_int_equal(read_all(opt, START STEP ENDED DONE, how, &n, &err), 0);
    assert_int_equal(n.count, 2);
    assert_int_equal(n.last, CODER_FAILED);
    assert_non_null(strstr(n.text.data, "\"cancelled\""));
    buf_finish(&n.text);
}

/* --- agents that do not speak it --- */

static void check(enum coder_lines lines, const char *text, struct coder_exit how,
                  const char *expected) {
    struct noted n = {0};
    struct err err;
    struct coder_reader_options opt = {
        .lines = lines, .agent = "x", .model = "m", .dir = "/work", .max_steps = 5};
    assert_int_equal(read_all(opt, text, how, &n, &err), 0);
    assert_string_equal(n.text.data, expected);
    buf_finish(&n.text);
}

#define X_START                                                                                    \
    "{\"v\":1,\"agent\":\"x\",\"version\":\"\",\"model\":\"m\",\"dir\":\"/work\",\"max_steps\":5," \
    "\"type\":\"start\"}\n"
#define NO_USAGE                                                                                   \
    "\"usage\":{\"input_tokens\":0,\"output_tokens\":0,\"model_calls\":0,\"cache_read_tokens\":0," \
    "\"cache_write_tokens\":0}"

static void an_agent_without_a_contract_is_read_line_by_line(void **state) {
    (void)state;
    check(CODER_LINES_TEXT, "one\r\n\ntw\xffo", (struct coder_exit){.exit_code = 0},
          X_START "{\"text\":\"one\",\"type\":\"text\"}\n{\"text\":\"\",\"type\":\"text\"}\n"
                  "{\"text\":\"tw\xef\xbf\xbdo\",\"type\":\"text\"}\n"
                  "{\"reason\":\"done\",\"summary\":\"\",\"steps\":0," NO_USAGE
                  ",\"type\":\"done\"}\n");
    check(CODER_LINES_TEXT, "", (struct coder_exit){.exit_code = 3},
          X_START "{\"reason\":\"error\",\"message\":\"the agent ended without a last word (exit "
                  "status 3)\",\"steps\":0," NO_USAGE ",\"type\":\"failed\"}\n");
    check(CODER_LINES_TEXT, "", (struct coder_exit){.signal = 9, .timed_out = true},
          X_START
          "{\"reason\":\"timeout\",\"message\":\"the run's time was up\",\"steps\":0," NO_USAGE
          ",\"type\":\"failed\"}\n");
}

/* As Claude Code 2.1.325 printed them; what is left out of each is not read. */
static const char claude_init[] =
    "{\"type\":\"system\",\"subtype\":\"init\",\"cwd\":\"/repo\",\"session_id\":\"s\",\"tools\":"
    "[\"Task\",\"Bash\"],\"mcp_servers\":[],\"model\":\"claude-opus-5-5\",\"permissionMode\":"
    "\"bypassPermissions\",\"apiKeySource\":\"ANTHROPIC_API_KEY\",\"claude_code_version\":"
    "\"2.1.325\",\"uuid\":\"u\"}\n";
static const char claude_text[] =
    "{\"type\":\"assistant\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":"
    "\"assistant\",\"model\":\"claude-opus-5-5\",\"content\":[{\"type\":\"text\",\"text\":\"4\"}],"
    "\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":12,\"output_tokens\":"
    "1},\"context_management\":null},\"parent_tool_use_id\":null,\"session_id\":\"s\",\"uuid\":"
    "\"u\",\"timestamp\":\"t\",\"request_id\":\"req_1\"}\n";
static const char claude_call[] =
    "{\"type\":\"assistant\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":"
    "\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"toolu_b\",\"name\":\"Bash\","
    "\"input\":{\"command\":\"echo hello\"}}],\"stop_reason\":null},\"parent_tool_use_id\":null}\n";
static const char claude_result[] =
    "{\"type\":\"user\",\"message\":{\"role\":\"user\",\"content\":[{\"tool_use_id\":\"toolu_b\","
    "\"type\":\"tool_result\",\"content\":\"hello\",\"is_error\":false}]},\"parent_tool_use_id\":"
    "null,\"session_id\":\"s\",\"uuid\":\"u\",\"timestamp\":\"t\",\"tool_use_result\":{\"stdout\":"
    "\"hello\",\"stderr\":\"\",\"interrupted\":false,\"isImage\":false,\"noOutputExpected\":false},"
    "\"tool_result_meta\":[{\"id\":\"toolu_b\",\"permission_decision\":{\"decision\":\"accept\","
    "\"source\":\"config\",\"reason_type\":\"mode\"}}]}\n";
static const char claude_retry[] =
    "{\"type\":\"system\",\"subtype\":\"api_retry\",\"attempt\":1,\"max_retries\":10,"
    "\"retry_delay_ms\":599,\"error_status\":401,\"error\":\"authentication_failed\"}\n";
static const char claude_end[] =
    "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"duration_ms\":1,\"num_"
    "turns\":"
    "2,\"result\":\"4\",\"stop_reason\":\"end_turn\",\"total_cost_usd\":0.25,\"usage\":{"
    "\"input_tokens\":1,\"output_tokens\":2,\"cache_creation_input_tokens\":3,"
    "\"cache_read_input_tokens\":4},\"permission_denials\":[],\"uuid\":\"u\",\"session_id\":\"s\"}"
    "\n";

#define CLAUDE_START                                                                               \
    "{\"v\":1,\"agent\":\"x\",\"version\":\"2.1.325\",\"model\":\"claude-opus-5-5\",\"dir\":\"/"   \
    "repo\","                                                                                      \
    "\"max_steps\":5,\"type\":\"start\"}\n"

static void claude_codes_lines_become_events(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 1 << 20);
    /* Background agents begin turns of their own: several starts and results, the last counts. */
    (void)buf_addf(&b, "%s%s%s%s%s%s%s%s", claude_init, claude_text, claude_retry, claude_call,
                   claude_result,
                   "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":true}\n", claude_init,
                   claude_end);
    check(CODER_LINES_CLAUDE, b.data, (struct coder_exit){.exit_code = 0},
          CLAUDE_START
          "{\"call\":1,\"ok\":true,\"attempts\":1,\"input_tokens\":12,\"type\":\"model_end\"}\n"
          "{\"text\":\"4\",\"type\":\"text\"}\n"
          "{\"call\":2,\"attempt\":1,\"wait_ms\":599,\"message\":\"authentication_failed\","
          "\"status\":401,\"type\":\"retry\"}\n"
          "{\"step\":1,\"tool\":\"Bash\",\"args\":{\"command\":\"echo "
          "hello\"},\"type\":\"step_begin\"}\n"
          "{\"step\":1,\"text\":\"hello\",\"type\":\"output\"}\n"
          "{\"step\":1,\"ok\":true,\"type\":\"step_end\"}\n"
          "{\"reason\":\"done\",\"summary\":\"4\",\"steps\":1,\"usage\":{\"input_tokens\":1,"
          "\"output_tokens\":2,\"model_calls\":1,\"cache_read_tokens\":4,\"cache_write_tokens\":3,"
          "\"cost_usd\":0.25},\"type\":\"done\"}\n");
    buf_finish(&b);
}

static void tell_reason(const char *line, struct coder_exit how, const char *reason,
                        const char *message) {
    struct noted n = {0};
    struct err err;
    struct coder_reader_options opt = {.lines = CODER_LINES_CLAUDE};
    assert_int_equal(read_all(opt, line, how, &n, &err), 0);
    char expected[200];
    (void)snprintf(expected, sizeof(expected), "\"reason\":\"%s\",\"%s\":\"%s", reason,
                   strcmp(reason, "done") == 0 ? "summary" : "message", message);
    if (!strstr(n.text.data, expected))
        fail_msg("%s is not in %s", expected, n.text.data);
    buf_finish(&n.text);
}

static void claude_codes_end_is_judged_by_more_than_its_subtype(void **state) {
    (void)state;
    struct coder_exit ok = {.exit_code = 0};
    struct coder_exit one = {.exit_code = 1};
    struct coder_exit term = {.exit_code = 143, .cancelled = true};
    tell_reason(claude_end, ok, "done", "4");
    tell_reason(claude_end, one, "error", "4");
    tell_reason(
        "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":true,\"terminal_reason\":"
        "\"api_error\",\"api_error_status\":400,\"result\":\"API Error: 400 x\"}\n",
        one, "model_error", "API Error: 400 x");
    tell_reason(
        "{\"type\":\"result\",\"subtype\":\"error_max_turns\",\"is_error\":true,\"errors\":["
        "\"Reached maximum number of turns (2)\"]}\n",
        one, "max_steps", "Reached maximum number of turns (2)");
    tell_reason("{\"type\":\"result\",\"subtype\":\"error_max_budget_usd\",\"is_error\":true}\n",
                one, "model_error", "error_max_budget_usd");
    tell_reason("{\"type\":\"result\",\"subtype\":\"success\"}\n", ok, "error", "success");
    tell_reason(claude_init, term, "cancelled", "the run was cancelled");
    /* SIGINT: no result, and exit status 0. */
    tell_reason(claude_init, ok, "error", "the agent ended without a last word");
    tell_reason("", (struct coder_exit){.signal = 9}, "error",
                "the agent ended without a last word (signal 9)");
}

static void claude_codes_odd_lines_do_no_harm(void **state) {
    (void)state;
    struct noted n = {0};
    struct err err;
    struct coder_reader_options opt = {.lines = CODER_LINES_CLAUDE, .agent = "x"};
    struct buf b;
    buf_init(&b, 1 << 20);
    (void)buf_add_str(&b,
                      "a warning of a library\n\n{\"type\":\"assistant\"}\n{\"type\":\"user\","
                      "\"message\":{\"content\":\"text\"}}\n{\"type\":\"new_thing\"}\n[]\n"
                      "{\"type\":\"assistant\",\"message\":{\"content\":[5,{\"type\":\"tool_use\"}"
                      ",{\"type\":\"tool_use\",\"id\":\"i\",\"name\":\"a\\nb\",\"input\":[]}]}}\n"
                      "{\"type\":\"user\",\"message\":{\"content\":[{\"type\":\"tool_result\","
                      "\"tool_use_id\":\"unknown\"},{\"type\":\"tool_result\",\"tool_use_id\":"
                      "\"i\",\"content\":[{\"type\":\"image\"},{\"type\":\"text\",\"text\":\"t\"}"
                      "],\"is_error\":true}]}}\n");
    /* More calls at once than are remembered. */
    for (int i = 0; i < 100; i++)
        (void)buf_addf(&b,
                       "{\"type\":\"assistant\",\"message\":{\"id\":\"m%d\",\"content\":[{\"type\":"
                       "\"tool_use\",\"id\":\"t%d\",\"name\":\"N\",\"input\":{}}]}}\n",
                       i, i);
    (void)buf_add_str(&b, claude_end);
    assert_int_equal(read_all(opt, b.data, (struct coder_exit){.exit_code = 0}, &n, &err), 0);
    assert_int_equal(n.last, CODER_DONE);
    assert_non_null(strstr(n.text.data, "{\"text\":\"a warning of a library\",\"type\":\"text\"}"));
    assert_non_null(strstr(n.text.data, "\"tool\":\"a b\",\"args\":{}"));
    assert_non_null(strstr(n.text.data, "\"text\":\"[image]t\""));
    assert_non_null(strstr(n.text.data, "\"steps\":102"));
    buf_finish(&n.text);
    buf_finish(&b);
}

static void a_foreign_line_that_is_too_long_is_left_out(void **state) {
    (void)state;
    struct noted n = {0};
    buf_init(&n.text, 1 << 20);
    struct coder_reader_options opt = {
        .lines = CODER_LINES_CLAUDE, .agent = "x", .on_event = on_event, .ctx = &n};
    struct coder_reader *r = coder_reader_create(&opt);
    struct err err;
    char chunk[65536];
    memset(chunk, 'x', sizeof(chunk));
    for (int i = 0; i < 100; i++)
        assert_int_equal(coder_reader_feed(r, chunk, sizeof(chunk), &err), 0);
    assert_int_equal(coder_reader_feed(r, "\n", 1, &err), 0);
    assert_int_equal(coder_reader_feed(r, claude_end, strlen(claude_end), &err), 0);
    coder_reader_end(r, &(struct coder_exit){.exit_code = 0});
    coder_reader_destroy(r);
    assert_non_null(strstr(n.text.data, "a line of 6553600 bytes was left out"));
    assert_int_equal(n.last, CODER_DONE);
    buf_finish(&n.text);
}

/* --- what is told of arguments --- */

static void long_arguments_are_shortened(void **state) {
    (void)state;
    char *big = malloc(100001);
    assert_non_null(big);
    memset(big, 'y', 100000);
    big[100000] = 0;
    json_t *args = json_pack("{s:s,s:s,s:[s]}", "path", "a", "content", big, "list", big);
    json_t *cut = coder_shorten_args(args);
    assert_string_equal(json_string_value(json_object_get(cut, "path")), "a");
    const char *text = json_string_value(json_object_get(cut, "content"));
    assert_true(strlen(text) <= 2048);
    assert_non_null(strstr(text, "bytes left out]"));
    assert_string_equal(json_string_value(json_object_get(cut, "list")), "[100004 bytes left out]");
    json_decref(args);
    json_decref(cut);
    args = json_object();
    for (int i = 0; i < 5000; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "k%d", i);
        (void)json_object_set_new(args, key, json_integer(i));
    }
    cut = coder_shorten_args(args);
    assert_int_equal(json_object_size(cut), 1);
    json_decref(args);
    json_decref(cut);
    free(big);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PLAIN(lines_that_keep_the_contract_are_told),
        PLAIN(lines_that_break_the_contract_end_it),
        PLAIN(lines_and_texts_have_a_maximum),
        PLAIN(past_the_maximum_of_events_only_the_end_is_told),
        PLAIN(whoever_stops_it_is_told_the_end_and_nothing_else),
        PLAIN(an_agent_without_a_contract_is_read_line_by_line),
        PLAIN(claude_codes_lines_become_events),
        PLAIN(claude_codes_end_is_judged_by_more_than_its_subtype),
        PLAIN(claude_codes_odd_lines_do_no_harm),
        PLAIN(a_foreign_line_that_is_too_long_is_left_out),
        PLAIN(long_arguments_are_shortened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
