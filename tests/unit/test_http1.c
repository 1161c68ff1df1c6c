#include "http1/field.h"
#include "http1/head.h"
#include "unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX = 100 };

/* --- the end of a head --- */

static void test_the_end_of_a_head_is_found_only_in_clean_lines(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t len;
        ssize_t end;
    } cases[] = {
        {"GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\nrest", 37, 33},
        {"GET / HTTP/1.1\r\nA: b\r\n\r", 23, 0},
        {"GET / HTTP/1.1\r\nA: b\r\n", 22, 0},
        {"GET / HTTP/1.1\r\nA: b\r", 21, 0},
        {"", 0, 0},
        {"GET / HTTP/1.1\nHost: a\r\n\r\n", 26, -ERR_BAD_REQUEST},
        {"GET / HTTP/1.1\r\nHost: a\n\r\n", 26, -ERR_BAD_REQUEST},
        {"GET / HTTP/1.1\r\nHost: a\r\n\n", 26, -ERR_BAD_REQUEST},
        {"GET / HTTP/1.1\nA: b\n\n", 21, -ERR_BAD_REQUEST},
        {"\nGET / HTTP/1.1\r\n\r\n", 19, -ERR_BAD_REQUEST},
        {"\nGET", 4, -ERR_BAD_REQUEST},
        {"GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", 28, -ERR_BAD_REQUEST},
        {"GET / HTTP/1.1\r\nA: b\r\n\tc\r\n\r\n", 28, -ERR_BAD_REQUEST},
        {"GET / HTTP/1.1\r\n A: b\r\n\r\n", 25, -ERR_BAD_REQUEST},
        {"GET / HTTP/1.1\r\nA: b\rC: d\r\n\r\n", 29, -ERR_BAD_REQUEST},
        {"GET / HTTP/1.1\r\r\nA: b\r\n\r\n", 25, -ERR_BAD_REQUEST},
        {"GET / HTTP/1.1\r\nA: b\r\r\n\r\n", 25, -ERR_BAD_REQUEST},
        {"GET / HTTP/1.1\r\nA: b\0c\r\n\r\n", 26, -ERR_BAD_REQUEST},
        {"GET /\0 HTTP/1.1\r\nA: b\r\n\r\n", 25, -ERR_BAD_REQUEST},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (size_t step = 1; step <= cases[i].len + 1; step++) {
            struct err err;
            size_t scanned = 0;
            ssize_t end = 0;
            for (size_t n = step; end == 0 && n < cases[i].len + step; n += step)
                end = http1_head_find_end(cases[i].text, n < cases[i].len ? n : cases[i].len,
                                          &scanned, &err);
            if (end != cases[i].end)
                fail_msg("case %zu in pieces of %zu: %zd", i, step, end);
        }
    }
}

/* --- a head --- */

static struct http1_field fields[HTTP1_FIELDS_MAX];
static struct http1_head head;
static struct http1_body body;

static int parse(const char *text, struct err *err) {
    /* The exact length, in memory of its own. */
    size_t n = strlen(text);
    char *copy = malloc(n);
    memcpy(copy, text, n);
    http1_head_finish(&head);
    http1_head_init(&head, fields, MAX);
    int rc = http1_head_parse(&head, &body, copy, n, err);
    free(copy);
    if (rc < 0 && (rc != -(int)err->code || head.target))
        fail_msg("%d, but %s and %s", rc, err->message, head.target);
    return rc;
}

static int teardown(void **state) {
    (void)state;
    http1_head_finish(&head);
    return 0;
}

static void refuses(const char *text, enum err_code code) {
    struct err err;
    if (parse(text, &err) != -(int)code)
        fail_msg("not refused as it should be: %s", text);
}

static void test_the_parts_of_a_head(void **state) {
    (void)state;
    struct err err;
    assert_int_equal(parse("POST /a?b HTTP/1.1\r\nHost: ExAmple:80\r\nX-Empty:\r\n"
                           "X-Two:  a b \t\r\nx-two: c\r\nContent-Length: 5\r\n"
                           "Expect: 100-Continue\r\n\r\n",
                           &err),
                     0);
    assert_string_equal(head.method, "POST");
    assert_string_equal(head.target, "/a?b");
    assert_string_equal(http1_head_value(&head, "host"), "ExAmple:80");
    assert_string_equal(http1_head_value(&head, "x-empty"), "");
    assert_string_equal(http1_head_value(&head, "X-TWO"), "a b");
    assert_int_equal(http1_head_count(&head, "x-two"), 2);
    assert_null(http1_head_value(&head, "nope"));
    assert_true(head.has_body && head.has_length && head.expects_continue && head.keep_alive);
    assert_false(head.http10 || head.chunked);
    assert_int_equal(head.content_length, 5);
    assert_int_equal(parse("CONNECT a:80 HTTP/1.0\r\n\r\n", &err), 0);
    assert_string_equal(head.target, "a:80");
    assert_true(head.http10 && !head.keep_alive && !head.has_body && head.nfields == 0);
    assert_int_equal(parse("PUT * HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: CHUNKED\r\n"
                           "Connection: close\r\n\r\n",
                           &err),
                     0);
    assert_true(head.chunked && head.has_body && !head.has_length && !head.keep_alive);
}

static void test_heads_that_are_not(void **state) {
    (void)state;
    static const char *const bad[] = {
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX Y: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\x01\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\x7f\r\n\r\n",
        "GET / HTTP/2.0\r\nHost: a\r\n\r\n",
        "GET / HTTP/0.9\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.2\r\nHost: a\r\n\r\n",
        "GET / http/1.1\r\nHost: a\r\n\r\n",
        "GET /\r\nHost: a\r\n\r\n",
        "GET  HTTP/1.1\r\nHost: a\r\n\r\n",
        "get / HTTP/1.1\r\nHost: a\r\n\r\n",
        "NOSUCH / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /#f HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a\tb HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nExpect: more\r\n\r\n",
        "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        refuses(bad[i], ERR_BAD_REQUEST);
}

static void test_lengths_that_two_parsers_read_differently(void **state) {
    (void)state;
    static const char *const bad[] = {
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 5\r\nContent-Length: 5",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5, 5",
        "Content-Length: +5",
        "Content-Length: -5",
        "Content-Length: 0x5",
        "Content-Length: 5a",
        "Content-Length: ",
        "Content-Length: 99999999999999999999999",
        "Content-Length : 5",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char text[200];
        struct err err;
        (void)snprintf(text, sizeof(text), "POST / HTTP/1.1\r\nHost: a\r\n%s\r\n\r\n", bad[i]);
        int rc = parse(text, &err);
        if (rc != -ERR_BAD_REQUEST && !(rc == -ERR_UNSUPPORTED && strstr(bad[i], "oding: ")))
            fail_msg("%d: %s", rc, bad[i]);
    }
}

static void test_the_number_of_fields_has_a_limit(void **state) {
    (void)state;
    static char text[8000];
    static const size_t rooms[] = {1, 2, 100, HTTP1_FIELDS_MAX, HTTP1_FIELDS_MAX + 9};
    for (size_t r = 0; r < sizeof(rooms) / sizeof(rooms[0]); r++) {
        size_t room = rooms[r] < HTTP1_FIELDS_MAX ? rooms[r] : HTTP1_FIELDS_MAX;
        for (size_t more = 0; more < 2; more++) {
            struct err err;
            int n = snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: a\r\n");
            for (size_t i = 0; i < room - 1 + more; i++)
                n += snprintf(text + n, sizeof(text) - (size_t)n, "X-%zu: v\r\n", i);
            n += snprintf(text + n, sizeof(text) - (size_t)n, "\r\n");
            /* A table of just that size: the sanitizer sees a write beyond it. */
            struct http1_field *own = malloc(room * sizeof(*own));
            http1_head_finish(&head);
            http1_head_init(&head, own, rooms[r]);
            int rc = http1_head_parse(&head, &body, text, (size_t)n, &err);
            assert_int_equal(rc, more ? -ERR_TOO_LARGE : 0);
            assert_int_equal(head.nfields, more ? 0 : room);
            http1_head_finish(&head);
            http1_head_init(&head, fields, MAX);
            free(own);
        }
    }
}

/* --- a body --- */

struct seen {
    char text[64];
    size_t len;
    size_t most;
};

static bool on_data(void *ctx, const char *data, size_t len) {
    struct seen *s = ctx;
    if (s->len + len > s->most)
        return false;
    memcpy(s->text + s->len, data, len);
    s->len += len;
    return true;
}

/* Feeds it in pieces; the bytes used when it is whole, or what was returned instead. */
static ssize_t feed(const char *coding, const char *data, size_t step, struct seen *s,
                    struct err *err) {
    char text[200];
    (void)snprintf(text, sizeof(text), "POST / HTTP/1.1\r\nHost: a\r\n%s\r\n\r\n", coding);
    assert_int_equal(parse(text, err), 0);
    const struct http1_body_sink sink = {on_data, s};
    size_t at = 0;
    size_t len = strlen(data);
    while (at < len) {
        bool whole = false;
        size_t n = len - at < step ? len - at : step;
        ssize_t used = http1_body_feed(&body, &sink, data + at, n, &whole, err);
        if (used < 0)
            return used;
        at += (size_t)used;
        if (whole)
            return (ssize_t)at;
    }
    return 0;
}

static void test_a_body_ends_where_it_says(void **state) {
    (void)state;
    static const char chunked[] = "Transfer-Encoding: chunked";
    static const struct {
        const char *coding;
        const char *data;
        size_t most;
        ssize_t used;
        const char *text;
    } cases[] = {
        {"Content-Length: 5", "helloGET /", 64, 5, "hello"},
        {"Content-Length: 5", "hell", 64, 0, "hell"},
        {"Content-Length: 5", "hello", 4, -ERR_CANCELLED, NULL},
        {chunked, "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\nGET /", 64, 20, "hello"},
        {chunked, "5;a=b\r\nhello\r\n0\r\nX: trailer\r\n\r\n", 64, 31, "hello"},
        {chunked, "2\r\nhe\r\n3\r\nll", 64, 0, "hell"},
        {chunked, "2\r\nhello", 64, -ERR_BAD_REQUEST, NULL},
        {chunked, "x\r\n", 64, -ERR_BAD_REQUEST, NULL},
        {chunked, "2\nhe\n0\n\n", 64, -ERR_BAD_REQUEST, NULL},
        {chunked, "ffffffffffffffffff\r\n", 64, -ERR_BAD_REQUEST, NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (size_t step = 1; step < 40; step++) {
            struct err err;
            struct seen s = {.most = cases[i].most};
            ssize_t used = feed(cases[i].coding, cases[i].data, step, &s, &err);
            if (used != cases[i].used)
                fail_msg("case %zu in pieces of %zu: %zd", i, step, used);
            if (cases[i].text)
                assert_string_equal(s.text, cases[i].text);
        }
    }
}

/* --- names --- */

static void test_fields_of_one_connection(void **state) {
    (void)state;
    static const char *const hop[] = {"Connection", "KEEP-ALIVE",         "te",
                                      "Trailer",    "Transfer-Encoding",  "upgrade",
                                      "X-Named",    "Proxy-Authenticate", "Proxy-Connection",
                                      "y"};
    static const char *const end[] = {"host", "content-type", "x-name", "x-named-2", ""};
    for (size_t i = 0; i < sizeof(hop) / sizeof(hop[0]); i++)
        if (!http1_is_hop_by_hop(hop[i], ", close,\tx-named , Y"))
            fail_msg("%s", hop[i]);
    for (size_t i = 0; i < sizeof(end) / sizeof(end[0]); i++)
        if (http1_is_hop_by_hop(end[i], ", close,\tx-named , Y"))
            fail_msg("%s", end[i]);
    assert_false(http1_is_hop_by_hop("x-named", NULL));
    assert_string_equal(http1_phrase(404), "Not Found");
    assert_string_equal(http1_phrase(799), "Status");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_end_of_a_head_is_found_only_in_clean_lines),
        cmocka_unit_test_teardown(test_the_parts_of_a_head, teardown),
        cmocka_unit_test_teardown(test_heads_that_are_not, teardown),
        cmocka_unit_test_teardown(test_lengths_that_two_parsers_read_differently, teardown),
        cmocka_unit_test_teardown(test_the_number_of_fields_has_a_limit, teardown),
        cmocka_unit_test_teardown(test_a_body_ends_where_it_says, teardown),
        cmocka_unit_test(test_fields_of_one_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
