#include "base/mem.h"
#include "front/http/internal.h"
#include "unit/unit.h"

#include <stdio.h>
#include <string.h>

static struct http_server *server;
static uv_loop_t loop;
static unsigned guarded;

static void handler(struct http_req *req, void *ctx) {
    (void)req;
    (void)ctx;
}

static bool guard(struct http_req *req, unsigned flags, void *ctx) {
    (void)req;
    (void)ctx;
    guarded = flags | 1U << 31;
    return true;
}

static bool is_guest(const char *host, void *ctx) {
    (void)ctx;
    return strcmp(host, "guest") == 0;
}

static const struct http_route routes[] = {
    {.methods = "GET", .pattern = "/a", .handler = handler, .flags = HTTP_ROUTE_USER},
    {.methods = "GET,POST", .pattern = "/a/{id}", .handler = handler},
    {.methods = "DELETE", .pattern = "/a/{id}", .handler = handler},
    {.methods = "GET", .pattern = "/a/{id}/b/{other}", .handler = handler},
    {.methods = "GET", .pattern = "/files/{rest...}", .handler = handler},
};

static int setup(void **state) {
    (void)state;
    (void)uv_loop_init(&loop);
    server = http_server_create(&(struct http_server_options){.loop = &loop,
                                                              .limits = http_limits_default(),
                                                              .guard = guard,
                                                              .is_guest_host = is_guest,
                                                              .guest_handler = handler,
                                                              .fallback = handler});
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++)
        http_server_route(server, &routes[i]);
    guarded = 0;
    return 0;
}

static int teardown(void **state) {
    (void)state;
    http_server_destroy(server);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop);
}

/* The pattern of the route that a request gets, or NULL; parameters as "name=value,...". */
static const char *route_at(const char *host, const char *method, const char *path, char *params) {
    static struct http_conn conn;
    char head[500];
    int n = snprintf(head, sizeof(head), "%s %s HTTP/1.1\r\nHost: %s\r\n\r\n", method, path, host);
    struct http_req *req = req_create(server);
    struct err e;
    req->owed = true; /* as for a connection: without one the answer goes nowhere */
    assert_int_equal(head_parse(&conn, req, head, (size_t)n, &e), 0);
    if (!router_admit(server, req))
        return NULL;
    params[0] = 0;
    for (size_t i = 0; i < req->nparams; i++)
        (void)snprintf(params + strlen(params), 200 - strlen(params), "%s=%s,", req->param_names[i],
                       req->params[i]);
    const char *pattern = req->route->pattern;
    req_destroy(req);
    return pattern;
}

static void leads(const char *method, const char *path, const char *pattern, const char *params) {
    char got[200];
    const char *p = route_at("a", method, path, got);
    if (!pattern) {
        assert_null(p);
        return;
    }
    assert_non_null(p);
    assert_string_equal(p, pattern);
    assert_string_equal(got, params);
}

static void test_paths_lead_to_their_routes(void **state) {
    (void)state;
    leads("GET", "/a", "/a", "");
    leads("HEAD", "/a", "/a", "");
    leads("GET", "/a?x=/a/b", "/a", "");
    leads("GET", "/a/7", "/a/{id}", "id=7,");
    leads("DELETE", "/a/7", "/a/{id}", "id=7,");
    leads("GET", "/a/x%2Fy%20z", "/a/{id}", "id=x/y z,");
    leads("GET", "/a/1/b/2", "/a/{id}/b/{other}", "id=1,other=2,");
    leads("GET", "/files/a/b%2f../c", "/files/{rest...}", "rest=a/b/../c,");
    leads("GET", "/files/", "/files/{rest...}", "rest=,");
}

static void test_other_paths_lead_nowhere_or_to_the_page(void **state) {
    (void)state;
    leads("GET", "/a/", "(page)", "");
    leads("GET", "/a//b/2", "(page)", "");
    leads("GET", "/A", "(page)", "");
    leads("GET", "//a", "(page)", "");
    leads("POST", "/nothing", NULL, NULL);
    leads("POST", "/a", NULL, NULL);
    leads("HEAD", "/nothing", "(page)", "");
    leads("OPTIONS", "/a", NULL, NULL);
    leads("GET", "/a/%zz", NULL, NULL);
    leads("GET", "/a/%00", NULL, NULL);
    leads("PROPFIND", "/a", NULL, NULL);
}

static void test_guest_hosts_never_reach_a_route(void **state) {
    (void)state;
    char got[200];
    assert_string_equal(route_at("guest", "GET", "/a", got), "(guest)");
    assert_true(guarded & HTTP_ROUTE_GUEST);
    assert_string_equal(route_at("GUEST:80", "POST", "/a/1", got), "(guest)");
    assert_string_equal(route_at("a", "GET", "/a", got), "/a");
    assert_false(guarded & HTTP_ROUTE_GUEST);
    assert_true(guarded & HTTP_ROUTE_USER);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(test_paths_lead_to_their_routes),
        UNIT(test_other_paths_lead_nowhere_or_to_the_page),
        UNIT(test_guest_hosts_never_reach_a_route),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
