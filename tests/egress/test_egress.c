/* The parts of the way out that know no sockets: entries of a policy, heads and decisions, the
 * hello of TLS, spellings of paths, secrets in a stream, the wire. */

#include "base/cleanup.h"
#include "base/mem.h"
#include "egress/decide.h"
#include "egress/hello.h"
#include "egress/scrub.h"
#include "unit/unit.h"
#include "wire/egress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- entries --- */

static void test_entries_are_read(void **state) {
    (void)state;
    static const struct {
        const char *text;
        const char *again;
    } good[] = {
        {"example.com", "example.com:443"},
        {"Example.COM:8443", "example.com:8443"},
        {"example.com:80", "example.com:80"},
        {"*.example.com", "*.example.com:443"},
        {"localhost:1", "localhost:1"},
        {"a_b.example", "a_b.example:443"},
        {"8.8.8.8", "8.8.8.8:443"},
        {"[2606:4700::1]:443", "[2606:4700::1]:443"},
        {"[2606:4700:0:0::1]", "[2606:4700::1]:443"},
        {"tcp://example.com:22", "tcp://example.com:22"},
    };
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct egress_allow a;
        struct err err;
        if (egress_allow_parse(good[i].text, &a, &err) < 0)
            fail_msg("%s: %s", good[i].text, err.message);
        char *again = egress_allow_text(&a);
        assert_string_equal(again, good[i].again);
        free(again);
        egress_allow_finish(&a);
    }
}

static void test_bad_entries_say_what_is_wrong(void **state) {
    (void)state;
    static const struct {
        const char *text;
        const char *says;
    } bad[] = {
        {"", "not a host"},
        {"*", "wildcard"},
        {"*.com", "two labels"},
        {"*.1.2.3.4", "two labels"},
        {"a.*.com", "first label"},
        {"*example.com", "first label"},
        {"https://example.com", "host and port alone"},
        {"example.com/path", "route"},
        {"example.com:443/path", "route"},
        {"example.com?x", "route"},
        {"user@example.com", "user name"},
        {"example.com:0", "not a host"},
        {"example.com:65536", "not a host"},
        {"example.com:", "not a host"},
        {"example.com:443:443", "not a host"},
        {"example.com.", "not a host"},
        {".example.com", "not a host"},
        {"exa mple.com", "not a host"},
        {"-a.com", "not a host"},
        {"2130706433", "not a host"},
        {"0x7f000001", "not a host"},
        {"127.1", "not a host"},
        {"0177.0.0.1", "not a host"},
        {"1.2.3.4.5", "not a host"},
        {"a.0x1", "not a host"},
        {"::1", "in brackets"},
        {"::1:8860", "in brackets"},
        {"tcp://2001:db8::1:22", "in brackets"},
        {"[::1", "not a host"},
        {"[fe80::1%eth0]", "not a host"},
        {"tcp://example.com", "not a host"},
        {"b\xc3\xbc"
         "cher.example",
         "not a host"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct egress_allow a;
        struct err err;
        if (egress_allow_parse(bad[i].text, &a, &err) == 0)
            fail_msg("\"%s\" is taken", bad[i].text);
        if (!strstr(err.message, bad[i].says))
            fail_msg("\"%s\": %s", bad[i].text, err.message);
    }
}

static void test_rules_cover_what_they_say(void **state) {
    (void)state;
    struct egress_allow a;
    assert_int_equal(egress_allow_parse("*.example.com", &a, NULL), 0);
    assert_true(egress_allow_covers(&a, "a.example.com", 443));
    assert_true(egress_allow_covers(&a, "b.a.example.com", 443));
    assert_false(egress_allow_covers(&a, "example.com", 443));
    assert_false(egress_allow_covers(&a, ".example.com", 443));
    assert_false(egress_allow_covers(&a, "aexample.com", 443));
    assert_false(egress_allow_covers(&a, "a.example.com.evil", 443));
    assert_false(egress_allow_covers(&a, "a.example.com", 80));
    egress_allow_finish(&a);
}

/* --- routes --- */

static const char *secret(void *ctx, const char *name) {
    (void)ctx;
    return strcmp(name, "TOKEN") == 0 ? "s3cret" : strcmp(name, "BAD") == 0 ? "a\r\nb" : NULL;
}

static int parse_route(const char *name, const char *text, struct egress_route *r,
                       struct err *err) {
    json_t *j = json_loads(text, JSON_ALLOW_NUL, NULL);
    assert_non_null(j);
    int rc = egress_route_parse(name, j, secret, NULL, r, err);
    json_decref(j);
    return rc;
}

static void test_routes_are_read(void **state) {
    (void)state;
    struct egress_route r;
    struct egress_route copy;
    struct err err = {0};
    assert_int_equal(parse_route("hub",
                                 "{\"url\":\"https://x.example/v2\",\"headers\":"
                                 "{\"Authorization\":\"Bearer ${TOKEN}\"}}",
                                 &r, &err),
                     0);
    egress_route_copy(&r, &copy);
    egress_route_finish(&r);
    assert_string_equal(copy.headers[0].name, "authorization");
    assert_string_equal(copy.headers[0].value, "Bearer s3cret");
    egress_route_finish(&copy);
    static const struct {
        const char *name;
        const char *text;
        const char *says;
    } bad[] = {
        {"Hub", "{\"url\":\"https://x\"}", "name"},
        {"a/b", "{\"url\":\"https://x\"}", "name"},
        {"r", "{}", "url is missing"},
        {"r", "{\"url\":\"ftp://x\"}", "https://"},
        {"r", "{\"url\":\"https://u@x\"}", "host and port"},
        {"r", "{\"url\":\"https://x/a/../b\"}", "plain address"},
        {"r", "{\"url\":\"https://x/?a\"}", "plain address"},
        {"r", "{\"url\":\"https://x\",\"pats\":[]}", "pats"},
        {"r", "{\"url\":\"https://x\",\"headers\":{\"a\":\"${NONE}\"}}", "secret NONE is not set"},
        {"r", "{\"url\":\"https://x\",\"headers\":{\"a\":\"${BAD}\"}}", "control character"},
        {"r", "{\"url\":\"https://x\",\"headers\":{\"a b\":\"c\"}}", "header field"},
        {"r", "{\"url\":\"https://x\",\"headers\":{\"Host\":\"c\"}}", "cannot be set"},
        {"r", "{\"url\":\"https://x\",\"headers\":{\"a\":\"b\\u0000c\"}}", "on one line"},
        {"r", "{\"url\":\"https://x\",\"methods\":[\"get\"]}", "upper case"},
        {"r", "{\"url\":\"https://x\",\"paths\":[\"a\"]}", "begin with"},
        {"r", "{\"url\":\"https://x\",\"paths\":[\"/**/a\"]}", "end"},
        {"r", "{\"url\":\"https://x\",\"api\":\"other\"}", "anthropic"},
        {"r", "{\"url\":\"https://x\",\"api\":\"openai\"}", "models"},
        {"r", "{\"url\":\"https://x\",\"api\":\"openai\",\"models\":[\"x\"],\"paths\":[\"/\"]}",
         "endpoints"},
        {"r",
         "{\"url\":\"https://x\",\"api\":\"openai\",\"models\":[\"x\"],"
         "\"endpoints\":[\"messages\"]}",
         "none of this api"},
        {"r", "{\"url\":\"https://x\",\"models\":[\"x\"]}", "need \"api\""},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (parse_route(bad[i].name, bad[i].text, &r, &err) == 0)
            fail_msg("%s is taken", bad[i].text);
        if (!strstr(err.message, bad[i].says) || strstr(err.message, "s3cret"))
            fail_msg("%s: %s", bad[i].text, err.message);
    }
}

/* --- header fields --- */

static bool test_egress_may_set(const char *name, const char *value) {
    struct err err = {0};
    return egress_header_check(name, value, &err) == 0;
}

static void test_a_header_has_the_bytes_of_a_token_and_one_line(void **state) {
    (void)state;
    char text[64];
    assert_true(test_egress_may_set("x-a", ""));
    assert_true(test_egress_may_set("x-a", "Bearer \xc3\xbc"));
    assert_false(test_egress_may_set("", "x"));
    for (int c = 1; c < 256; c++) {
        bool letter = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        bool token = letter || strchr("!#$%&'*+-.^_`|~", c); /* RFC 9110, 5.6.2 */
        (void)snprintf(text, sizeof(text), "%cx", c);
        assert_int_equal(test_egress_may_set(text, "v"), token);
        (void)snprintf(text, sizeof(text), "x%c", c);
        assert_int_equal(test_egress_may_set(text, "v"), token);
        /* Whatever stands between the words of a name that frames, it is that name. */
        (void)snprintf(text, sizeof(text), "transfer%cENCODING", c);
        assert_int_equal(test_egress_may_set(text, "v"), letter);
        (void)snprintf(text, sizeof(text), "Proxy%canything", c);
        assert_int_equal(test_egress_may_set(text, "v"), letter);
        (void)snprintf(text, sizeof(text), "a%cb", c);
        assert_int_equal(test_egress_may_set("x-a", text), c >= 0x20 && c != 0x7f);
    }
    /* Only those names, not all that begin or end as they do. */
    assert_true(test_egress_may_set("upgrade-insecure-requests", "1"));
    assert_true(test_egress_may_set("x-forwarded-host", "h"));
    assert_true(test_egress_may_set("content-type", "text/plain"));
    assert_true(test_egress_may_set("te2", "x"));
}

/* --- the wire --- */

static void test_a_policy_comes_back_from_the_wire(void **state) {
    (void)state;
    struct egress_route r;
    struct err err = {0};
    assert_int_equal(parse_route("m",
                                 "{\"url\":\"https://x\",\"api\":\"anthropic\",\"models\":"
                                 "[\"a\",\"b\"],\"urls\":true,\"headers\":{\"k\":\"v\"}}",
                                 &r, &err),
                     0);
    struct egress_allow a;
    assert_int_equal(egress_allow_parse("tcp://h:1", &a, NULL), 0);
    struct egress_price price = {.model = "a", .input = 1, .output = 2};
    struct egress_policy p = {.allow = &a,
                              .nallow = 1,
                              .routes = &r,
                              .nroutes = 1,
                              .prices = &price,
                              .nprices = 1,
                              .caps = {.tokens = 7}};
    struct buf b;
    buf_init(&b, EGRESS_FRAME_MAX);
    pack_egress_policy(&b, &p);
    struct egress_policy q;
    struct unpack u;
    unpack_init(&u, b.data, b.len);
    unpack_egress_policy(&u, &q);
    assert_true(unpack_ok(&u));
    assert_string_equal(q.allow[0].host, "h");
    assert_true(q.allow[0].plain);
    assert_string_equal(q.routes[0].models.items[1], "b");
    assert_string_equal(q.routes[0].headers[0].value, "v");
    assert_true(q.routes[0].urls);
    assert_int_equal(q.prices[0].output, 2);
    assert_int_equal(q.caps.tokens, 7);
    egress_policy_finish(&q);
    /* Cut anywhere it is bad, and nothing leaks. */
    for (size_t n = 0; n < b.len; n++) {
        unpack_init(&u, b.data, n);
        unpack_egress_policy(&u, &q);
        assert_false(unpack_ok(&u));
        egress_policy_finish(&q);
    }
    buf_finish(&b);
    egress_route_finish(&r);
    egress_allow_finish(&a);
}

/* --- paths --- */

static void test_paths_have_one_spelling(void **state) {
    (void)state;
    static const struct {
        const char *in;
        const char *out; /* NULL: refused */
    } cases[] = {
        {"/", "/"},
        {"/a/b", "/a/b"},
        {"/a/", "/a/"},
        {"/%61%2d", "/a-"},
        {"/a%20b%c3%bc", "/a%20b%C3%BC"},
        {"/a...b/.c/..d", "/a...b/.c/..d"},
        {"a", NULL},
        {"", NULL},
        {"//a", NULL},
        {"/a//b", NULL},
        {"/.", NULL},
        {"/..", NULL},
        {"/a/../b", NULL},
        {"/a/%2e%2E/b", NULL},
        {"/a/.%2e", NULL},
        {"/..;a", NULL},
        {"/..%3ba", NULL},
        {"/a%2fb", NULL},
        {"/a%2Fb", NULL},
        {"/a%5cb", NULL},
        {"/a\\b", NULL},
        {"/%25", NULL},
        {"/%00", NULL},
        {"/%0d%0a", NULL},
        {"/%7f", NULL},
        {"/%4", NULL},
        {"/%g0", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf b;
        buf_init(&b, 1024);
        int rc = decide_normal_path(cases[i].in, strlen(cases[i].in), &b, NULL);
        if ((rc == 0) != (cases[i].out != NULL) || (rc == 0 && strcmp(b.data, cases[i].out) != 0))
            fail_msg("%s: %d %s", cases[i].in, rc, b.data ? b.data : "");
        buf_finish(&b);
    }
}

static void test_patterns_match_within_their_segment(void **state) {
    (void)state;
    static const struct {
        const char *pattern;
        const char *path;
        bool fits;
    } cases[] = {
        {"/a", "/a", true},        {"/a", "/ab", false},          {"/a", "/a/", false},
        {"/a/*", "/a/b", true},    {"/a/*", "/a/b/c", false},     {"/a/*", "/a", false},
        {"/a/**", "/a/b/c", true}, {"/a/**", "/a", false},        {"/a/**", "/a/", true},
        {"/**", "/", true},        {"/*/c", "/b/c", true},        {"/*/c", "/b/b/c", false},
        {"/*b/c", "/aab/c", true}, {"/a*b*c", "/axbxc", true},    {"/a*b*c", "/axb/c", false},
        {"/*a", "/bab/a", false},  {"/v*/x/**", "/v2/x/y", true}, {"/v*/x/**", "/v2/y/x/", false},
        {"/a**", "/ab/c", true},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (decide_path_matches(cases[i].pattern, cases[i].path) != cases[i].fits)
            fail_msg("%s %s", cases[i].pattern, cases[i].path);
}

/* --- the hello --- */

/* A hello with these extensions, in records of `piece` bytes. */
static size_t make_hello(uint8_t *out, const uint8_t *exts, size_t nexts, size_t piece) {
    uint8_t m[1024];
    size_t n = 4;
    m[n++] = 3;
    m[n++] = 3;
    memset(m + n, 7, 32);
    n += 32;
    m[n++] = 0;
    memcpy(m + n, "\x00\x02\x13\x01\x01\x00", 6);
    n += 6;
    m[n++] = (uint8_t)(nexts >> 8);
    m[n++] = (uint8_t)nexts;
    memcpy(m + n, exts, nexts);
    n += nexts;
    m[0] = 1;
    m[1] = 0;
    m[2] = (uint8_t)((n - 4) >> 8);
    m[3] = (uint8_t)(n - 4);
    size_t at = 0;
    for (size_t i = 0; i < n; i += piece) {
        size_t k = MIN(piece, n - i);
        memcpy(out + at, "\x16\x03\x01", 3);
        out[at + 3] = (uint8_t)(k >> 8);
        out[at + 4] = (uint8_t)k;
        memcpy(out + at + 5, m + i, k);
        at += 5 + k;
    }
    return at;
}

static size_t name_ext(uint8_t *out, const char *name) {
    size_t n = strlen(name);
    const uint8_t head[] = {0, 0, 0, (uint8_t)(n + 5), 0, (uint8_t)(n + 3), 0, 0, (uint8_t)n};
    memcpy(out, head, sizeof(head));
    memcpy(out + sizeof(head), name, n);
    return sizeof(head) + n;
}

static void test_the_name_in_a_hello_is_found(void **state) {
    (void)state;
    uint8_t exts[256] = {0, 43, 0, 3, 2, 3, 4};
    uint8_t hello[2048];
    char name[HELLO_NAME_MAX + 1];
    size_t n = 7 + name_ext(exts + 7, "Example.COM");
    static const size_t pieces[] = {1, 3, 50, 1024};
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
        size_t len = make_hello(hello, exts, n, pieces[i]);
        assert_int_equal(hello_parse(hello, len, name), HELLO_OK);
        assert_string_equal(name, "example.com");
        for (size_t cut = 0; cut < len; cut++)
            assert_int_equal(hello_parse(hello, cut, name), HELLO_MORE);
        /* What follows it does not matter. */
        memset(hello + len, 0xff, 64);
        assert_int_equal(hello_parse(hello, len + 64, name), HELLO_OK);
    }
}

static void test_a_hello_without_one_clear_name_is_not_taken(void **state) {
    (void)state;
    uint8_t exts[256] = {0};
    uint8_t hello[2048];
    char name[HELLO_NAME_MAX + 1] = "unchanged";
    size_t len = make_hello(hello, exts, 0, 1024);
    assert_int_equal(hello_parse(hello, len, name), HELLO_NO_NAME);
    size_t n = name_ext(exts, "a.example");
    n += name_ext(exts + n, "b.example");
    len = make_hello(hello, exts, n, 1024);
    assert_int_equal(hello_parse(hello, len, name), HELLO_BAD);
    n = name_ext(exts, "");
    len = make_hello(hello, exts, n, 1024);
    assert_int_equal(hello_parse(hello, len, name), HELLO_BAD);
    /* Two names in one list. */
    static const uint8_t two[] = {0, 0, 0, 10, 0, 8, 0, 0, 1, 'a', 0, 0, 1, 'b'};
    len = make_hello(hello, two, sizeof(two), 1024);
    assert_int_equal(hello_parse(hello, len, name), HELLO_BAD);
    assert_int_equal(hello_parse((const uint8_t *)"GET / HTTP/1.1", 14, name), HELLO_BAD);
    assert_int_equal(hello_parse((const uint8_t *)"SSH-2.0", 7, name), HELLO_BAD);
    assert_int_equal(hello_parse((const uint8_t *)"\x16\x03\x01\x00\x00", 5, name), HELLO_BAD);
    assert_int_equal(hello_parse((const uint8_t *)"\x16\x03\x01\x00\x01\x02", 6, name), HELLO_BAD);
    assert_string_equal(name, "unchanged");
}

/* --- secrets --- */

static void test_a_secret_is_seen_wherever_it_is_cut(void **state) {
    (void)state;
    static const char text[] = "before Bearer se-se-secret-1 after";
    for (size_t cut = 1; cut < sizeof(text) - 1; cut++) {
        struct scrub s;
        struct buf passed;
        const char *data;
        size_t len;
        scrub_init(&s);
        scrub_add(&s, "Bearer se-secret-1");
        buf_init(&passed, 1024);
        bool seen = false;
        for (size_t at = 0; at < sizeof(text) - 1 && !seen; at += cut) {
            seen = !scrub_feed(&s, text + at, MIN(cut, sizeof(text) - 1 - at), &data, &len);
            if (!seen)
                (void)buf_add(&passed, data, len);
        }
        assert_true(seen);
        if (passed.data)
            assert_null(strstr(passed.data, "se-secret"));
        scrub_finish(&s);
        buf_finish(&passed);
    }
}

static void test_what_is_no_secret_passes_whole(void **state) {
    (void)state;
    static const char text[] = "se-secr se-secret- xse-secret-x and se-secret-";
    for (size_t cut = 1; cut < sizeof(text); cut++) {
        struct scrub s;
        struct buf passed;
        const char *data;
        size_t len;
        scrub_init(&s);
        scrub_add(&s, "se-secret-1");
        scrub_add(&s, "short");
        buf_init(&passed, 1024);
        for (size_t at = 0; at < sizeof(text) - 1; at += cut) {
            assert_true(scrub_feed(&s, text + at, MIN(cut, sizeof(text) - 1 - at), &data, &len));
            (void)buf_add(&passed, data, len);
        }
        scrub_rest(&s, &data, &len);
        if (len > 0)
            (void)buf_add(&passed, data, len);
        assert_string_equal(passed.data, text);
        scrub_finish(&s);
        buf_finish(&passed);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PLAIN(test_entries_are_read),
        PLAIN(test_bad_entries_say_what_is_wrong),
        PLAIN(test_rules_cover_what_they_say),
        PLAIN(test_routes_are_read),
        PLAIN(test_a_header_has_the_bytes_of_a_token_and_one_line),
        PLAIN(test_a_policy_comes_back_from_the_wire),
        PLAIN(test_paths_have_one_spelling),
        PLAIN(test_patterns_match_within_their_segment),
        PLAIN(test_the_name_in_a_hello_is_found),
        PLAIN(test_a_hello_without_one_clear_name_is_not_taken),
        PLAIN(test_a_secret_is_seen_wherever_it_is_cut),
        PLAIN(test_what_is_no_secret_passes_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
