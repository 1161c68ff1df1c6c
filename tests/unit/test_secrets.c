#include "base/buf.h"
#include "base/fd.h"
#include "base/log.h"
#include "front/common/secrets.h"
#include "unit/unit.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static char file[64];

static int setup(void **state) {
    (void)state;
    log_init("test", LOG_LEVEL_OFF);
    for (int i = 0; i < SECRET_COUNT; i++)
        (void)unsetenv(secret_name((enum secret)i));
    (void)snprintf(file, sizeof(file), "/tmp/cay-unit-XXXXXX");
    int fd = mkstemp(file);
    close(fd);
    return fd < 0 ? -1 : 0;
}

static int teardown(void **state) {
    (void)state;
    (void)unlink(file);
    return 0;
}

static void write_file(const char *text) {
    FILE *f = fopen(file, "w");
    (void)fputs(text, f);
    (void)fclose(f);
}

static void test_the_environment_is_read_once_and_wiped(void **state) {
    (void)state;
    struct secrets s;
    struct err e;
    /* A process of its own, so that the environment is what the kernel put there. */
    pid_t pid = fork();
    if (pid == 0) {
        char *argv[] = {(char *)"test_secrets", (char *)"--show-environ", NULL};
        char *env[] = {(char *)"OPENAI_API_KEY=hidden-one", (char *)"OTHER=visible",
                       (char *)"OPENAI_API_KEY=hidden-two",
                       (char *)"ANTHROPIC_API_KEY=hidden-three", NULL};
        (void)execve("/proc/self/exe", argv, env);
        _exit(9);
    }
    int st;
    assert_int_equal(waitpid(pid, &st, 0), pid);
    assert_int_equal(st, 0);
    (void)setenv("OPENAI_API_KEY", "", 1);
    assert_int_equal(secrets_load(&s, NULL, &e), 0);
    assert_null(s.values[SECRET_OPENAI_API_KEY]); /* an empty one counts as none */
    secrets_finish(&s);
}

static int show_environ(void) {
    struct secrets s;
    struct err e;
    struct buf b;
    if (secrets_load(&s, NULL, &e) < 0 || !s.values[SECRET_OPENAI_API_KEY] ||
        strcmp(s.values[SECRET_OPENAI_API_KEY], "hidden-one") != 0 ||
        strcmp(s.values[SECRET_ANTHROPIC_API_KEY], "hidden-three") != 0)
        return 1;
    if (getenv("OPENAI_API_KEY") || getenv("ANTHROPIC_API_KEY") || !getenv("OTHER"))
        return 2;
    buf_init(&b, 100000);
    if (fd_read_file(AT_FDCWD, "/proc/self/environ", &b, &e) < 0)
        return 3;
    int rc = memmem(b.data, b.len, "hidden", 6) ? 4 : memmem(b.data, b.len, "visible", 7) ? 0 : 5;
    buf_finish(&b);
    secrets_finish(&s);
    return rc;
}

static void test_an_env_file(void **state) {
    (void)state;
    struct secrets s;
    struct err e;
    write_file(
        "# comment\n\n  export OPENAI_API_KEY = no\nOPENAI_API_KEY=\"a b\" \r\n"
        "export ANTHROPIC_API_KEY='q=1'\nOPENAI_BASE_URL=http://x/ \t\nOTHER=1\nOPENAI_ORG_ID=\n");
    (void)setenv("OPENAI_BASE_URL", "http://env", 1);
    assert_int_equal(secrets_load(&s, file, &e), 0);
    assert_string_equal(s.values[SECRET_OPENAI_API_KEY], "a b");
    assert_string_equal(s.values[SECRET_ANTHROPIC_API_KEY], "q=1");
    assert_string_equal(s.values[SECRET_OPENAI_BASE_URL], "http://env"); /* the environment wins */
    assert_null(s.values[SECRET_OPENAI_ORG_ID]);
    secrets_finish(&s);
    assert_null(s.values[SECRET_OPENAI_API_KEY]);
}

static void test_secrets_of_other_names_are_taken_when_asked_for(void **state) {
    (void)state;
    struct secrets s;
    struct err e;
    write_file("FROM_FILE=one\nBOTH=file\nOPENAI_API_KEY=k\n");
    (void)setenv("BOTH", "environment", 1);
    (void)setenv("FROM_ENV", "two", 1);
    assert_int_equal(secrets_load(&s, file, &e), 0);
    assert_string_equal(getenv("FROM_ENV"), "two"); /* not ours until somebody asks */
    assert_string_equal(secrets_take(&s, "FROM_FILE"), "one");
    assert_string_equal(secrets_take(&s, "FROM_ENV"), "two");
    assert_string_equal(secrets_take(&s, "BOTH"), "environment");
    assert_string_equal(secrets_take(&s, "OPENAI_API_KEY"), "k");
    assert_null(secrets_take(&s, "NOWHERE"));
    assert_null(getenv("FROM_ENV"));
    assert_null(getenv("BOTH"));
    assert_string_equal(secrets_take(&s, "FROM_ENV"), "two"); /* and again */
    secrets_finish(&s);
}

static void test_errors_name_the_line_not_the_value(void **state) {
    (void)state;
    struct secrets s;
    struct err e;
    write_file("OPENAI_API_KEY=a\nsk-very-secret\n");
    assert_int_equal(secrets_load(&s, file, &e), -ERR_BAD_REQUEST);
    assert_non_null(strstr(e.message, file));
    assert_non_null(strstr(e.message, "line 2"));
    assert_null(strstr(e.message, "secret"));
    secrets_finish(&s);
    (void)unlink(file);
    assert_int_equal(secrets_load(&s, file, &e), 0); /* it need not be there */
    secrets_finish(&s);
}

static void test_a_protected_process_cannot_be_dumped(void **state) {
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        secrets_protect_process();
        struct rlimit r;
        (void)getrlimit(RLIMIT_CORE, &r);
        _exit(prctl(PR_GET_DUMPABLE) == 0 && r.rlim_cur == 0 && r.rlim_max == 0 ? 0 : 1);
    }
    int st;
    assert_int_equal(waitpid(pid, &st, 0), pid);
    assert_int_equal(st, 0);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--show-environ") == 0)
        return show_environ();
    const struct CMUnitTest tests[] = {
        UNIT(test_the_environment_is_read_once_and_wiped),
        UNIT(test_an_env_file),
        UNIT(test_secrets_of_other_names_are_taken_when_asked_for),
        UNIT(test_errors_name_the_line_not_the_value),
        UNIT(test_a_protected_process_cannot_be_dumped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
