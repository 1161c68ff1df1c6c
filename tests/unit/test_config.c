#include "front/config/config.h"
#include "unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char file[64];

static int setup(void **state) {
    (void)state;
    (void)snprintf(file, sizeof(file), "/tmp/cay-unit-XXXXXX");
    int fd = mkstemp(file);
    close(fd);
    return fd < 0 ? -1 : 0;
}

static int teardown(void **state) {
    (void)state;
    return unlink(file);
}

static int load(struct config *c, const char *text, struct err *e) {
    FILE *f = fopen(file, "w");
    (void)fputs(text, f);
    (void)fclose(f);
    config_init(c);
    return config_load(c, file, e);
}

static void test_settings_are_read(void **state) {
    (void)state;
    struct config c;
    struct err e;
    assert_int_equal(load(&c,
                          "{\"listen\":[\"127.0.0.1:1\",\"unix:/x\"],\"data_dir\":\"/d\","
                          "\"hosts\":\"h\",\"require_key\":true,\"log_level\":\"warn\","
                          "\"limits\":{\"body_bytes\":2048,\"idle_timeout_ms\":100}}",
                          &e),
                     0);
    assert_int_equal(c.nlisten, 2);
    assert_string_equal(c.listen[1], "unix:/x");
    assert_string_equal(c.data_dir, "/d");
    assert_int_equal(c.nhosts, 1);
    assert_true(c.require_key);
    assert_int_equal(c.log_level, LOG_LEVEL_WARN);
    assert_int_equal(c.http.body_bytes, 2048);
    assert_int_equal(c.http.idle_timeout_ms, 100);
    assert_string_equal(c.file, file);
    config_finish(&c);
    assert_int_equal(load(&c,
                          "{\"sandboxes\":{\"max\":3,\"pool\":9,\"cpus\":1.5,\"roots\":{\"r\":"
                          "\"/x\"},\"binds\":{\"b\":{\"path\":\"/y\",\"mode\":\"rw\"}}}}",
                          &e),
                     0);
    assert_int_equal(c.sandboxes.max, 3);
    assert_int_equal(c.sandboxes.pool, 3); /* no more than there may be */
    assert_int_equal(c.sandboxes.output_mb, 64);
    assert_string_equal(sandbox_settings_root(&c.sandboxes, "r")->path, "/x");
    assert_null(sandbox_settings_root(&c.sandboxes, "/x"));
    assert_true(sandbox_settings_bind(&c.sandboxes, "b")->write);
    config_finish(&c);
    assert_int_equal(load(&c, "{\"store\":{\"keep_runs\":7,\"workers_mb\":3}}", &e), 0);
    assert_int_equal(c.store.keep_runs, 7);
    assert_int_equal(c.store.workers_mb, 3);
    assert_int_equal(c.store.keep_s, 30 * 24 * 3600);
    config_finish(&c);
    assert_int_equal(load(&c, "{}", &e), 0);
    config_defaults(&c);
    assert_string_equal(c.listen[0], "127.0.0.1:8787");
    assert_non_null(c.data_dir);
    config_finish(&c);
}

static void test_comments_are_no_settings(void **state) {
    (void)state;
    struct config c;
    struct err e;
    config_init(&c);
    assert_int_equal(
        load(&c,
             "// first\n{ # the web\n  \"hosts\": [\"a//b\", \"c#d\", \"e\\\"//f\"], // \"x\n"
             "  \"log_level\": \"warn\" // \"log_level\": \"debug\"\n}\n# end",
             &e),
        0);
    assert_int_equal(c.nhosts, 3);
    assert_string_equal(c.hosts[0], "a//b");
    assert_string_equal(c.hosts[1], "c#d");
    assert_string_equal(c.hosts[2], "e\"//f");
    assert_int_equal(c.log_level, LOG_LEVEL_WARN);
    config_finish(&c);
    static const char *const wrong[] = {
        "{} / {}", "{\"hosts\": [\"a // b\n\"]}", "/* {} */", "//", "#", "{\"hosts\": [\"\\"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        config_init(&c);
        if (load(&c, wrong[i], &e) == 0)
            fail_msg("accepted: %s", wrong[i]);
        config_finish(&c);
    }
    /* A comment does not move what comes after it. */
    config_init(&c);
    assert_true(load(&c, "// one\n// two\n{ ,", &e) < 0);
    assert_non_null(strstr(e.message, "line 3"));
    config_finish(&c);
}

static void test_errors_name_the_file_and_the_key(void **state) {
    (void)state;
    static const struct {
        const char *text;
        const char *key;
    } bad[] = {
        {"", "JSON"},
        {"[]", "object"},
        {"{\"listen\":5}", "\"listen\""},
        {"{\"listen\":[5]}", "\"listen\""},
        {"{\"listen\":\"nowhere\"}", "nowhere"},
        {"{\"listen\":\"unix:\"}", "\"listen\""},
        {"{\"listen\":\"unix:\\u0000x\"}", "\"listen\""},
        {"{\"listen\":\"a:99999\"}", "a:99999"},
        {"{\"lisden\":\"a:1\"}", "lisden"},
        {"{\"data_dir\":5}", "data_dir"},
        {"{\"data_dir\":\"a\\u0000b\"}", "data_dir"},
        {"{\"hosts\":[null]}", "hosts"},
        {"{\"origins\":{}}", "origins"},
        {"{\"require_key\":\"yes\"}", "require_key"},
        {"{\"log_level\":\"loud\"}", "log_level"},
        {"{\"limits\":[]}", "limits"},
        {"{\"limits\":{\"body_byte\":1}}", "body_byte"},
        {"{\"limits\":{\"body_bytes\":1}}", "body_bytes"},
        {"{\"limits\":{\"body_bytes\":1.5}}", "body_bytes"},
        {"{\"limits\":{\"connections\":0}}", "connections"},
        {"{\"limits\":{\"idle_timeout_ms\":-1}}", "idle_timeout_ms"},
        {"{\"limits\":{\"head_bytes\":99999999999}}", "head_bytes"},
        {"{\"sandboxes\":[]}", "sandboxes"},
        {"{\"sandboxes\":{\"maximum\":1}}", "maximum"},
        {"{\"sandboxes\":{\"max\":0}}", "\"max\""},
        {"{\"sandboxes\":{\"output_mb\":\"x\"}}", "output_mb"},
        {"{\"sandboxes\":{\"cpus\":-1}}", "cpus"},
        {"{\"sandboxes\":{\"timeout_s\":9,\"max_timeout_s\":8}}", "max_timeout_s"},
        {"{\"sandboxes\":{\"roots\":{\"..\":5}}}", "roots"},
        {"{\"sandboxes\":{\"roots\":{\"a/b\":\"/x\"}}}", "a/b"},
        {"{\"sandboxes\":{\"binds\":{\"a\":{\"path\":\"x\"}}}}", "absolute"},
        {"{\"sandboxes\":{\"binds\":{\"a\":{\"path\":\"/x\",\"mode\":\"rx\"}}}}", "mode"},
        {"{\"sandboxes\":{\"binds\":{\"a\":{\"path\":\"/x\",\"own\":1}}}}", "own"},
        {"{\"sandboxes\":{\"allow\":[\"http://x/\"]}}", "allow"},
        {"{\"sandboxes\":{\"routes\":[]}}", "routes"},
        {"{\"sandboxes\":{\"caps\":{\"money\":1}}}", "money"},
        {"{\"sandboxes\":{\"uid_base\":1000}}", "uid_base"},
        {"{\"store\":5}", "\"store\""},
        {"{\"store\":{\"keep\":1}}", "\"keep\""},
        {"{\"store\":{\"keep_runs\":0}}", "keep_runs"},
        {"{\"store\":{\"keep_s\":\"1d\"}}", "keep_s"},
        {"{\"sandboxes\":{\"max\":100,\"uid_count\":198}}", "uid_count"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct config c;
        struct err e;
        if (load(&c, bad[i].text, &e) != -ERR_BAD_REQUEST)
            fail_msg("accepted %s", bad[i].text);
        if (!strstr(e.message, file) || !strstr(e.message, bad[i].key))
            fail_msg("%s: %s", bad[i].text, e.message);
        config_finish(&c);
    }
    struct config c;
    struct err e;
    config_init(&c);
    assert_int_equal(config_load(&c, "/nonexistent/cay.json", &e), -ERR_IO);
    assert_non_null(strstr(e.message, "/nonexistent/cay.json"));
    config_finish(&c);
}

static void test_addresses(void **state) {
    (void)state;
    static const struct {
        const char *text;
        const char *host; /* NULL: refused */
        unsigned port;
    } cases[] = {
        {"127.0.0.1:80", "127.0.0.1", 80},
        {"[::1]:8787", "::1", 8787},
        {"localhost:0", "localhost", 0},
        {"a:65535", "a", 65535},
        {"a:65536", NULL, 0},
        {"a", NULL, 0},
        {"", NULL, 0},
        {":80", NULL, 0},
        {"a:", NULL, 0},
        {"a:b", NULL, 0},
        {"a:-1", NULL, 0},
        {"a:+1", NULL, 0},
        {"a: 1", NULL, 0},
        {"a:1x", NULL, 0},
        {"[]:1", NULL, 0},
        {"a:99999999999999999999", NULL, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char host[64] = "";
        unsigned port = 0;
        struct err e;
        int rc = config_parse_address(cases[i].text, host, sizeof(host), &port, &e);
        if ((rc == 0) != (cases[i].host != NULL))
            fail_msg("%s: %d", cases[i].text, rc);
        if (rc == 0) {
            assert_string_equal(host, cases[i].host);
            assert_int_equal(port, cases[i].port);
        }
    }
    char small[4];
    unsigned port;
    struct err e;
    assert_int_equal(config_parse_address("abcd:1", small, sizeof(small), &port, &e),
                     -ERR_BAD_REQUEST);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(test_settings_are_read),
        UNIT(test_comments_are_no_settings),
        UNIT(test_errors_name_the_file_and_the_key),
        UNIT(test_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
