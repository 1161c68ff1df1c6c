#include "base/mem.h"
#include "front/http/internal.h"
#include "unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct http_server *server;
static uv_loop_t loop;
static struct http_conn conn;

static int setup(void **state) {
    (void)state;
    (void)uv_loop_init(&loop);
    server = http_server_create(
        &(struct http_server_options){.loop = &loop, .limits = http_limits_default()});
    return 0;
}

static int teardown(void **state) {
    (void)state;
    http_server_destroy(server);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop);
}

static struct http_req *parse_as(const char *text, struct err *e) {
    struct http_req *req = req_create(server);
    /* The exact length, in memory of its own. */
    size_t n = strlen(text);
    char *copy = malloc(n);
    memcpy(copy, text, n);
    int rc = head_parse(&conn, req, copy, n, e);
    free(copy);
    if (rc == 0)
        return req;
    assert_int_equal(rc, -(int)e->code);
    req_destroy(req);
    return NULL;
}

static void accepts(const char *text) {
    struct err e;
    struct http_req *req = parse_as(text, &e);
    if (!req)
        fail_msg("refused (%s): %s", e.message, text);
    req_destroy(req);
}

static void refuses(const char *text, enum err_code code) {
    struct err e;
    struct http_req *req = parse_as(text, &e);
    if (req)
        fail_msg("accepted: %s", text);
    if (e.code != code)
        fail_msg("%s: %s", err_name(e.code), text);
}

static void test_the_parts_of_a_head(void **state) {
    (void)state;
    struct err e;
    struct http_req *req = parse_as("POST /a/b%20c?x=1&y HTTP/1.1\r\nHost: ExAmple.org:80\r\n"
                                    "X-Empty:\r\nX-Two:  a b \t\r\nx-two: c\r\n"
                                    "Content-Length: 5\r\nExpect: 100-Continue\r\n\r\n",
                                    &e);
    assert_non_null(req);
    assert_int_equal(http_req_method(req), HTTP_METHOD_POST);
    assert_int_equal(http_req_method_text(req).len, 4);
    assert_string_equal(http_req_path(req), "/a/b%20c");
    assert_string_equal(http_req_query(req), "x=1&y");
    assert_string_equal(http_req_host(req), "example.org");
    assert_string_equal(http_req_authority(req), "ExAmple.org:80");
    assert_string_equal(http_req_header(req, "x-empty"), "");
    assert_string_equal(http_req_header(req, "X-TWO"), "a b");
    assert_int_equal(http_req_header_count(req, "x-two"), 2);
    assert_null(http_req_header(req, "nope"));
    assert_true(req->head.has_body && req->head.expects_continue && req->keep_alive &&
                !req->head.http10);
    req_destroy(req);
    req = parse_as("GET http://[::1]:8/p?q HTTP/1.1\r\nHost: [::1]:8\r\nConnection: close\r\n\r\n",
                   &e);
    assert_non_null(req);
    assert_string_equal(http_req_host(req), "[::1]");
    assert_string_equal(http_req_path(req), "/p");
    assert_false(req->keep_alive || req->head.has_body);
    req_destroy(req);
    req = parse_as("GET http://a HTTP/1.0\r\nHost: a\r\n\r\n", &e);
    assert_non_null(req);
    assert_string_equal(http_req_path(req), "/");
    assert_true(req->head.http10 && !req->keep_alive);
    req_destroy(req);
}

static void test_heads_that_are_fine(void **state) {
    (void)state;
    accepts("GET / HTTP/1.0\r\n\r\n");
    accepts("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
    accepts("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: CHUNKED\r\n\r\n");
    accepts("DELETE / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    accepts("PROPFIND / HTTP/1.1\r\nHost: a\r\n\r\n");
    accepts("GET / HTTP/1.1\r\nHost: a\r\nX: caf\xc3\xa9\r\n\r\n");
}

static void test_heads_that_are_not(void **state) {
    (void)state;
    refuses("GET / HTTP/1.1\r\n\r\n", ERR_BAD_REQUEST);
    refuses("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", ERR_BAD_REQUEST);
    refuses("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", ERR_BAD_REQUEST);
    refuses("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", ERR_BAD_REQUEST);
    refuses("GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", ERR_BAD_REQUEST);
    refuses("GET / HTTP/1.1\r\nHost : a\r\n\r\n", ERR_BAD_REQUEST);
    refuses("GET / HTTP/1.1\r\nHost: a\r\nX Y: b\r\n\r\n", ERR_BAD_REQUEST);
    refuses("GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", ERR_BAD_REQUEST);
    refuses("GET / HTTP/1.1\r\nHost: a\r\nX: a\x01\r\n\r\n", ERR_BAD_REQUEST);
    refuses("GET / HTTP/1.1\r\nHost: a\r\nX: a\x7f\r\n\r\n", ERR_BAD_REQUEST);
    refuses("GET / HTTP/2.0\r\nHost: a\r\n\r\n", ERR_BAD_REQUEST);
    refuses("GET / HTTP/0.9\r\nHost: a\r\n\r\n", ERR_BAD_REQUEST);
    refuses("GET / HTTP/1.2\r\nHost: a\r\n\r\n", ERR_BAD_REQUEST);
    refuses("GET / http/1.1\r\nHost: a\r\n\r\n", ERR_BAD_REQUEST);
    refuses("GET /\r\nHost: a\r\n\r\n", ERR_BAD_REQUEST);
    refuses("get / HTTP/1.1\r\nHost: a\r\n\r\n", ERR_BAD_REQUEST);
    refuses("NOSUCH / HTTP/1.1\r\nHost: a\r\n\r\n", ERR_BAD_REQUEST);
    refuses("GET x HTTP/1.1\r\nHost: a\r\n\r\n", ERR_BAD_REQUEST);
    refuses("GET * HTTP/1.1\r\nHost: a\r\n\r\n", ERR_BAD_REQUEST);
    refuses("GET /#f HTTP/1.1\r\nHost: a\r\n\r\n", ERR_BAD_REQUEST);
    refuses("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", ERR_BAD_REQUEST);
    refuses("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", ERR_BAD_REQUEST);
    refuses("GET http://a@b/ HTTP/1.1\r\nHost: b\r\n\r\n", ERR_BAD_REQUEST);
    refuses("GET https://a/ HTTP/1.1\r\nHost: a\r\n\r\n", ERR_BAD_REQUEST);
    refuses("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", ERR_BAD_REQUEST);
    refuses("GET / HTTP/1.1\r\nHost: a\r\nExpect: more\r\n\r\n", ERR_BAD_REQUEST);
}

static void test_the_number_of_fields_has_a_limit(void **state) {
    (void)state;
    char text[4000];
    for (int more = 0; more < 2; more++) {
        int n = snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: a\r\n");
        for (int i = 0; i < HEADERS_MAX - 1 + more; i++)
            n += snprintf(text + n, sizeof(text) - (size_t)n, "X-%d: v\r\n", i);
        (void)snprintf(text + n, sizeof(text) - (size_t)n, "\r\n");
        if (more)
            refuses(text, ERR_TOO_LARGE);
        else
            accepts(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(test_the_parts_of_a_head),
        UNIT(test_heads_that_are_fine),
        UNIT(test_heads_that_are_not),
        UNIT(test_the_number_of_fields_has_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
