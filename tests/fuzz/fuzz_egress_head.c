/* A request's head, a policy, a decision: whatever the bytes, what is granted is what the policy
 * says, and a path goes out in its one spelling below the route's address. */

#include "base/mem.h"
#include "egress/decide.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static struct egress_allow allow[3];
static struct egress_route routes[3];
static struct egress_policy policy = {.allow = allow, .routes = routes};

static void add_route(const char *name, const char *text) {
    json_t *j = json_loads(text, 0, NULL);
    if (egress_route_parse(name, j, NULL, NULL, &routes[policy.nroutes++], NULL) < 0)
        abort();
    json_decref(j);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    static const char *const entries[] = {"a.example", "*.b.example:80", "tcp://c.example:22"};
    for (size_t i = 0; i < 3; i++)
        if (egress_allow_parse(entries[i], &allow[policy.nallow++], NULL) < 0)
            abort();
    add_route("r", "{\"url\":\"https://up.example/base\",\"paths\":[\"/x/**\"]}");
    add_route("m", "{\"url\":\"https://m.example\",\"api\":\"anthropic\",\"models\":[\"*\"]}");
    add_route("o", "{\"url\":\"https://o.example/v1\",\"api\":\"openai\",\"models\":[\"*\"]}");
    return 0;
}

static void check(const struct http1_head *h, const struct decision *d) {
    bool covered = false;
    for (size_t i = 0; i < policy.nallow; i++)
        covered = covered || egress_allow_covers(&allow[i], d->host, d->port);
    char *url = d->kind == EGRESS_KIND_CONNECT ? NULL : decision_url(d, &policy);
    switch (d->kind) {
    case EGRESS_KIND_CONNECT:
        if (!covered || strcmp(h->method, "CONNECT") != 0 || h->has_body)
            abort();
        break;
    case EGRESS_KIND_HTTP:
        if (!covered || (d->port != 80 && d->port != 22) || strncmp(url, "http://", 7) != 0)
            abort();
        break;
    case EGRESS_KIND_ROUTE:
        if (strncmp(url, "https://up.example/base/x/", 26) != 0 || strstr(d->path, "/../") ||
            strstr(d->path, "//") || strchr(d->path, '\\'))
            abort();
        break;
    case EGRESS_KIND_MODEL:
        if (strncmp(d->path, "/v1/m", 5) != 0 && strcmp(d->path, "/v1/chat/completions") != 0)
            abort();
        if (!d->endpoint || strncmp(url + strlen("https://m.example"), "/v1/", 4) != 0)
            abort();
        break;
    case EGRESS_KIND_NONE:
        abort();
    }
    free(url);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct err err;
    size_t scanned = 0;
    ssize_t end = http1_head_find_end((const char *)data, size, &scanned, &err);
    if (end <= 0)
        return 0;
    struct http1_field fields[HTTP1_FIELDS_MAX];
    struct http1_head h;
    struct http1_body body;
    http1_head_init(&h, fields, 100);
    struct decision d = {0};
    if (http1_head_parse(&h, &body, (const char *)data, (size_t)end, &err) == 0) {
        for (size_t i = 0; i < h.nfields; i++)
            if (!*h.fields[i].name || strpbrk(h.fields[i].value, "\r\n"))
                abort();
        if (decide(&policy, 3128, &h, &d, &err) == 0)
            check(&h, &d);
        decision_finish(&d);
    }
    http1_head_finish(&h);
    return 0;
}
