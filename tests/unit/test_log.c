#include "base/json.h"
#include "base/log.h"
#include "unit/unit.h"

#include <fcntl.h>
#include <pty.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

static char line[70000];

/* Runs fn with standard error going to `to`, and reads what came out of `from`. */
static void capture(int from, int to, void (*fn)(void)) {
    int old = dup(STDERR_FILENO);
    assert_true(dup2(to, STDERR_FILENO) >= 0);
    fn();
    assert_true(dup2(old, STDERR_FILENO) >= 0);
    close(old);
    ssize_t n = read(from, line, sizeof(line) - 1);
    line[n > 0 ? n : 0] = 0;
}

static void capture_pipe(void (*fn)(void)) {
    int p[2];
    assert_int_equal(pipe2(p, O_NONBLOCK), 0);
    capture(p[0], p[1], fn);
    close(p[0]);
    close(p[1]);
}

static void say_all_kinds(void) {
    log_init("prog", LOG_LEVEL_INFO);
    char text[] = "a \"b\"\n\x1b[2J";
    bool yes = true;
    size_t n = 5;
    log_warn("thing.done", "text", text, "flag", yes, "n", n, "neg", -7, "none",
             (const char *)NULL);
}

static void test_one_json_object_per_line(void **state) {
    (void)state;
    capture_pipe(say_all_kinds);
    assert_int_equal(line[strlen(line) - 1], '\n');
    assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
    json_t *j = json_loads(line, 0, NULL);
    assert_non_null(j);
    assert_string_equal(json_string_value(json_object_get(j, "level")), "warn");
    assert_string_equal(json_string_value(json_object_get(j, "program")), "prog");
    assert_string_equal(json_string_value(json_object_get(j, "event")), "thing.done");
    assert_string_equal(json_string_value(json_object_get(j, "text")), "a \"b\"\n\x1b[2J");
    assert_true(json_is_true(json_object_get(j, "flag")));
    assert_int_equal(json_integer_value(json_object_get(j, "n")), 5);
    assert_int_equal(json_integer_value(json_object_get(j, "neg")), -7);
    assert_string_equal(json_string_value(json_object_get(j, "none")), "");
    json_decref(j);
}

static void say_quietly(void) {
    log_init("prog", LOG_LEVEL_WARN);
    log_info("not.shown", "a", 1);
    log_debug("not.shown", "a", 1);
    log_init("prog", LOG_LEVEL_OFF);
    log_error("not.shown", "a", 1);
}

static void test_levels_are_kept(void **state) {
    (void)state;
    capture_pipe(say_quietly);
    assert_string_equal(line, "");
    enum log_level level;
    assert_true(log_level_parse("debug", &level));
    assert_int_equal(level, LOG_LEVEL_DEBUG);
    assert_false(log_level_parse("loud", &level));
    assert_false(log_level_parse("", &level));
}

static void say_badly(void) {
    log_init("prog", LOG_LEVEL_INFO);
    struct log_field fields[] = {log_field_text("key\x1b[31m", "v\xc2\x9b"
                                                               "31m\x1b[0m"),
                                 log_field_int("n", 3)};
    log_write(LOG_LEVEL_INFO, "event\x1b]0;title\x07", fields, 2);
}

static void test_no_text_drives_the_terminal(void **state) {
    (void)state;
    int master;
    int slave;
    assert_int_equal(openpty(&master, &slave, NULL, NULL, NULL), 0);
    capture(master, slave, say_badly);
    close(master);
    close(slave);
    assert_non_null(strstr(line, "info"));
    assert_non_null(strstr(line, "n=3"));
    assert_null(strchr(line, 0x1b));
    assert_null(strchr(line, 0x07));
    assert_null(strstr(line, "\xc2\x9b"));
    assert_non_null(strstr(line, "\\u001b"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PLAIN(test_one_json_object_per_line),
        PLAIN(test_levels_are_kept),
        PLAIN(test_no_text_drives_the_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
