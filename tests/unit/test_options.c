#include "base/json.h"
#include "front/cli/cli.h"
#include "front/cli/options.h"
#include "unit/unit.h"

#include <stdio.h>
#include <string.h>

struct args {
    bool flag;
    bool quick;
    bool json;
    const char *text;
    int64_t count;
    int64_t time_ms;
    int64_t bytes;
    double amount;
    json_t *body;
    int calls;
};

static char said[1024];

/* The command line's own are beside main(). */
int cli_fail(const struct err *err) {
    (void)snprintf(said, sizeof(said), "fail: %s", err->message);
    return err_exit_status(err->code);
}

int cli_usage_with(const char *verb, const char *synopsis, const char *message) {
    (void)snprintf(said, sizeof(said), "%s: %s%s%s", verb, message, synopsis ? "; " : "",
                   synopsis ? synopsis : "");
    return 2;
}

static int on_call(void *args, const struct cli_option *o, const char *value, struct err *err) {
    struct args *a = args;
    a->calls++;
    if (strcmp(value, "gone") == 0)
        return err_set(err, ERR_NOT_FOUND, "%s is gone", o->name);
    return strcmp(value, "bad") == 0 ? err_set(err, ERR_BAD_REQUEST, "%s is bad", o->name) : 0;
}

static const struct cli_option options[] = {
    OPTION(struct args, "flag", 'f', FLAG, flag),
    OPTION(struct args, "quick", 'q', FLAG, quick),
    OPTION(struct args, "text", 't', TEXT, text),
    OPTION(struct args, "count", 0, COUNT, count, .min = 2),
    OPTION(struct args, "time", 0, TIME, time_ms),
    OPTION(struct args, "size", 0, SIZE, bytes, .min = 1 << 20, .wants = "1m or more"),
    OPTION(struct args, "amount", 0, AMOUNT, amount),
    OPTION(struct args, "model", 0, TEXT, body, .key = "model"),
    OPTION(struct args, "steps", 0, COUNT, body, .key = "max_steps"),
    OPTION(struct args, "keep", 0, FLAG, body, .key = "keep"),
    OPTION(struct args, "call", 'c', CALL, calls, .set = on_call),
    OPTIONS_JSON(struct args, json)};

static struct cli_command command = {.name = "test",
                                     .options = options,
                                     .noptions = sizeof(options) / sizeof(*options),
                                     .max_words = -1};

static int read_line(const char *line, struct args *a, char *words, size_t size) {
    static char text[256];
    char *argv[32] = {(char *)"test"};
    int argc = 1;
    char *rest = NULL;
    (void)snprintf(text, sizeof(text), "%s", line);
    for (char *w = strtok_r(text, " ", &rest); w; w = strtok_r(NULL, " ", &rest))
        argv[argc++] = w;
    *said = 0;
    int status = cli_options(&command, &argc, argv, a);
    *words = 0;
    for (int i = 1; status < 0 && i < argc; i++)
        (void)snprintf(words + strlen(words), size - strlen(words), "%s%s", i > 1 ? " " : "",
                       argv[i]);
    return status;
}

static void assert_wrong(const char *line, int status, const char *text) {
    struct args a = {.body = json_object()};
    char words[256];
    assert_int_equal(read_line(line, &a, words, sizeof(words)), status);
    assert_string_equal(said, text);
    json_decref(a.body);
}

static void values_go_where_the_table_says(void **state) {
    struct args a = {.body = json_object()};
    char words[256];
    (void)state;
    assert_int_equal(read_line("one -f --text=a=b --count 7 --time 2s --size 2m --amount 0.5 two "
                               "--model m --steps 3 --keep -cx -q -o json",
                               &a, words, sizeof(words)),
                     -1);
    assert_string_equal(words, "one two");
    assert_true(a.flag && a.quick && a.json && cli_wants_json());
    assert_string_equal(a.text, "a=b");
    assert_int_equal(a.count, 7);
    assert_int_equal(a.time_ms, 2000);
    assert_int_equal(a.bytes, 2 << 20);
    assert_true(a.amount > 0.4 && a.amount < 0.6);
    assert_int_equal(a.calls, 1);
    char *text = json_dumps(a.body, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(text, "{\"keep\":true,\"max_steps\":3,\"model\":\"m\"}");
    free(text);
    json_decref(a.body);
}

static void short_ones_stand_together_and_long_ones_may_be_cut(void **state) {
    struct args a = {.body = json_object()};
    char words[256];
    (void)state;
    assert_int_equal(read_line("-qft word - --am 2", &a, words, sizeof(words)), -1);
    assert_true(a.flag && a.quick && a.amount > 1);
    assert_string_equal(a.text, "word");
    assert_string_equal(words, "-");
    json_decref(a.body);
}

static void what_follows_two_dashes_or_a_command_is_no_option(void **state) {
    struct args a = {.body = json_object()};
    char words[256];
    (void)state;
    assert_int_equal(read_line("a -f -- -q -- b", &a, words, sizeof(words)), -1);
    assert_string_equal(words, "a -q -- b");
    assert_true(a.flag && !a.quick);
    command.command_word = 2;
    assert_int_equal(read_line("box -t -- ls -q --nosuch", &a, words, sizeof(words)), -1);
    command.command_word = 0;
    assert_string_equal(a.text, "--"); /* a value is a value */
    assert_string_equal(words, "box ls -q --nosuch");
    assert_false(a.quick);
    json_decref(a.body);
}

static void what_is_wrong_is_said(void **state) {
    (void)state;
    assert_wrong("--quik", 2, "test: unknown option --quik: did you mean --quick?");
    assert_wrong("--nonsense=1", 2, "test: unknown option --nonsense");
    assert_wrong("--t x", 2, "test: unknown option --t");
    assert_wrong("-fz", 2, "test: unknown option -z");
    assert_wrong("--text", 2, "test: --text needs a value");
    assert_wrong("-t", 2, "test: -t needs a value");
    assert_wrong("--flag=1", 2, "test: --flag takes no value");
    assert_wrong("--count 1", 2, "test: --count needs a number");
    assert_wrong("--count 1x", 2, "test: --count needs a number");
    assert_wrong("--size 1k", 2, "test: --size needs 1m or more");
    assert_wrong("--amount 0", 2, "test: --amount needs a number");
    assert_wrong("--amount nan", 2, "test: --amount needs a number");
    assert_wrong("--output xml", 2, "test: --output needs \"json\"");
    assert_wrong("-c bad", 2, "test: call is bad");
    assert_wrong("-c gone", 66, "fail: call is gone");
    command.min_words = 2;
    command.missing = "say what";
    command.synopsis = "A B";
    assert_wrong("", 2, "test: say what; A B");
    assert_wrong("a", 2, "test: something is missing; A B");
    command.max_words = 2;
    assert_wrong("a b c", 2, "test: unexpected argument \"c\"; A B");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PLAIN(values_go_where_the_table_says),
        PLAIN(short_ones_stand_together_and_long_ones_may_be_cut),
        PLAIN(what_follows_two_dashes_or_a_command_is_no_option),
        PLAIN(what_is_wrong_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
