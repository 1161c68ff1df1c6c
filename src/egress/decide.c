#include "egress/decide.h"

#include "base/cleanup.h"
#include "base/mem.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int decide_hex(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static bool is_unreserved(int c) {
    return isalnum(c) || c == '-' || c == '.' || c == '_' || c == '~';
}

static int check_segments(const char *path, struct err *err) {
    for (const char *p = path; *p; p++) {
        if (*p != '/')
            continue;
        size_t n = strcspn(p + 1, "/");
        if (n == 0 && p[1])
            return err_set(err, ERR_BAD_REQUEST, "the path holds an empty segment (\"//\")");
        if ((n == 1 && p[1] == '.') || (n == 2 && p[1] == '.' && p[2] == '.'))
            return err_set(err, ERR_BAD_REQUEST, "the path holds a dot segment");
        /* "..;x" and "..%2" are dot segments to some servers. */
        if (n > 2 && p[1] == '.' && p[2] == '.' && !isalnum((unsigned char)p[3]))
            return err_set(err, ERR_BAD_REQUEST, "the path holds a dot segment");
    }
    return 0;
}

int decide_normal_path(const char *path, size_t len, struct buf *out, struct err *err) {
    static const char digits[] = "0123456789ABCDEF";
    if (len == 0 || path[0] != '/')
        return err_set(err, ERR_BAD_REQUEST, "the path must begin with \"/\"");
    for (size_t i = 0; i < len; i++) {
        int c = (unsigned char)path[i];
        bool escaped = c == '%';
        if (escaped) {
            int hi = len - i > 2 ? decide_hex(path[i + 1]) : -1;
            int lo = len - i > 2 ? decide_hex(path[i + 2]) : -1;
            if (hi < 0 || lo < 0)
                return err_set(err, ERR_BAD_REQUEST, "the path holds a malformed escape");
            c = hi * 16 + lo;
            i += 2;
        }
        if (c == '\\' || c < 0x20 || c == 0x7f || (escaped && (c == '/' || c == '%')))
            return err_set(err, ERR_BAD_REQUEST,
                           "the path holds a backslash, a control character, or an escaped "
                           "slash or percent sign");
        if (!escaped || is_unreserved(c)) {
            (void)buf_add_char(out, (char)c);
            continue;
        }
        char text[3] = {'%', digits[c >> 4], digits[c & 15]};
        (void)buf_add(out, text, sizeof(text));
    }
    if (out->full)
        return err_set(err, ERR_TOO_LARGE, "the path is too long");
    return check_segments(out->data, err);
}

bool decide_path_matches(const char *pattern, const char *path) {
    const char *star = NULL;
    const char *retry = NULL;
    while (*path) {
        if (pattern[0] == '*' && pattern[1] == '*')
            return true;
        if (*pattern == '*') {
            star = pattern++;
            retry = path;
        } else if (*pattern == *path) {
            pattern++;
            path++;
        } else if (star && *retry != '/') {
            pattern = star + 1;
            path = ++retry;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return !*pattern;
}

bool decide_list_has(const struct sandbox_strv *list, const char *name) {
    for (size_t i = 0; i < list->n; i++) {
        size_t n = strlen(list->items[i]);
        if (n > 0 && list->items[i][n - 1] == '*') {
            if (strncmp(list->items[i], name, n - 1) == 0)
                return true;
        } else if (strcmp(list->items[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* --- what the target names --- */

enum form { FORM_SELF, FORM_HTTP, FORM_CONNECT };

struct target {
    enum form form;
    const char *path; /* with the query; "/" if there is none */
};

static bool is_self(const char *host, uint32_t port, uint32_t own_port) {
    return port == own_port && (strcmp(host, "127.0.0.1") == 0 || strcmp(host, "localhost") == 0 ||
                                strcmp(host, "::1") == 0);
}

/* Host must say the same as the target: servers differ in which of them they believe. */
static int check_host(const struct http1_head *h, const char *host, uint32_t port,
                      uint32_t port_default, struct err *err) {
    const char *field = http1_head_value(h, "host");
    char other[EGRESS_HOST_MAX + 1];
    uint32_t other_port;
    bool literal;
    if (!field)
        return 0;
    if (!egress_authority_parse(field, strlen(field), port_default, other, &other_port, &literal))
        return err_set(err, ERR_BAD_REQUEST, "the Host field is malformed");
    if (strcmp(other, host) != 0 || other_port != port)
        return err_set(err, ERR_BAD_REQUEST, "the request target and Host name two hosts");
    return 0;
}

static int read_connect(const struct http1_head *h, struct decision *d, struct err *err) {
    d->kind = EGRESS_KIND_CONNECT;
    if (!egress_authority_parse(h->target, strlen(h->target), 0, d->host, &d->port, &d->literal))
        return err_set(err, ERR_BAD_REQUEST,
                       "CONNECT takes \"host:port\": a name, or an address in its usual form");
    if (h->has_length || h->chunked)
        return err_set(err, ERR_BAD_REQUEST, "CONNECT has no body");
    return check_host(h, d->host, d->port, d->port, err);
}

static int read_target(const struct http1_head *h, uint32_t own_port, struct decision *d,
                       struct target *ret, struct err *err) {
    const char *at = h->target;
    if (strcmp(h->method, "CONNECT") == 0) {
        ret->form = FORM_CONNECT;
        return read_connect(h, d, err);
    }
    if (strncasecmp(at, "http://", 7) == 0) {
        at += 7;
        size_t n = strcspn(at, "/?");
        if (!egress_authority_parse(at, n, 80, d->host, &d->port, &d->literal))
            return err_set(err, ERR_BAD_REQUEST, "the request target has no plain host and port");
        ret->path = at[n] ? at + n : "/";
        if (*ret->path != '/')
            return err_set(err, ERR_BAD_REQUEST, "the path must begin with \"/\"");
        ret->form = is_self(d->host, d->port, own_port) ? FORM_SELF : FORM_HTTP;
        d->kind = ret->form == FORM_HTTP ? EGRESS_KIND_HTTP : EGRESS_KIND_NONE;
        return check_host(h, d->host, d->port, 80, err);
    }
    if (*at != '/')
        return err_set(err, ERR_BAD_REQUEST,
                       strncasecmp(at, "https://", 8) == 0
                           ? "https goes through CONNECT; a proxy is not told the address"
                           : "the request target must be \"/...\", \"http://...\", or, for "
                             "CONNECT, \"host:port\"");
    ret->form = FORM_SELF;
    ret->path = at;
    const char *field = http1_head_value(h, "host");
    if (field &&
        (!egress_authority_parse(field, strlen(field), own_port, d->host, &d->port, &d->literal) ||
         !is_self(d->host, d->port, own_port)))
        return err_set(err, ERR_BAD_REQUEST,
                       "this is the proxy of the sandbox, not \"%.200s\": a request for another "
                       "host has it in its target",
                       field);
    return 0;
}

/* --- whether it is granted --- */

static const struct egress_allow *find_rule(const struct egress_policy *p, struct decision *d,
                                            bool http) {
    const struct egress_allow *found = NULL;
    for (size_t i = 0; i < p->nallow; i++) {
        const struct egress_allow *a = &p->allow[i];
        if (!egress_allow_covers(a, d->host, d->port) || (http && !a->plain && a->port != 80))
            continue;
        d->private = d->private || a->private;
        /* The one that asks for less, if there are two. */
        if (!found || a->plain)
            found = a;
    }
    return found;
}

static int judge_host(const struct egress_policy *p, struct decision *d, bool http,
                      struct err *err) {
    const struct egress_allow *rule = find_rule(p, d, http);
    char name[EGRESS_AUTHORITY_SIZE];
    if (!rule)
        return err_set(err, ERR_FORBIDDEN,
                       "%s is not allowed for this sandbox: the operator would add \"%s%s\" "
                       "to its network.allow",
                       egress_authority_text(d->host, d->port, name),
                       http && d->port != 80 ? "tcp://" : "", name);
    d->plain = rule->plain;
    return 0;
}

static const struct {
    const char *path;
    const char *method;
    uint32_t endpoint;
    bool below; /* and one name below it */
    bool of[EGRESS_APIS];
} endpoints[] = {
    {"/v1/messages", "POST", EGRESS_MESSAGES, false, {[EGRESS_API_ANTHROPIC] = true}},
    {"/v1/messages/count_tokens",
     "POST",
     EGRESS_COUNT_TOKENS,
     false,
     {[EGRESS_API_ANTHROPIC] = true}},
    {"/v1/chat/completions", "POST", EGRESS_CHAT, false, {[EGRESS_API_OPENAI] = true}},
    {"/v1/models",
     "GET",
     EGRESS_MODELS,
     true,
     {[EGRESS_API_ANTHROPIC] = true, [EGRESS_API_OPENAI] = true}},
};

static bool endpoint_is(size_t i, const char *path) {
    size_t n = strlen(endpoints[i].path);
    return strncmp(path, endpoints[i].path, n) == 0 &&
           (!path[n] || (endpoints[i].below && path[n] == '/' && !strchr(path + n + 1, '/')));
}

static int judge_endpoint(const struct egress_route *r, const struct http1_head *h,
                          struct decision *d, struct err *err) {
    for (size_t i = 0; i < ARRAY_LEN(endpoints); i++) {
        if (!endpoint_is(i, d->path) || !endpoints[i].of[r->api])
            continue;
        if (strcmp(h->method, endpoints[i].method) != 0)
            return err_set(err, ERR_METHOD, "%s takes %s only", endpoints[i].path,
                           endpoints[i].method);
        if (r->endpoints && !(r->endpoints & endpoints[i].endpoint))
            break;
        d->endpoint = endpoints[i].endpoint;
        return 0;
    }
    return err_set(
        err, ERR_FORBIDDEN,
        "%s %.200s is not granted to this sandbox: the route \"%s\" passes the endpoints "
        "that its configuration lists, of messages, count_tokens, chat and models",
        h->method, d->path, r->name);
}

static int judge_route(const struct egress_policy *p, const struct http1_head *h,
                       struct decision *d, struct err *err) {
    const struct egress_route *r = &p->routes[d->route];
    bool granted =
        r->methods.n == 0 ? strcmp(h->method, "GET") == 0 || strcmp(h->method, "HEAD") == 0 : false;
    d->kind = r->api == EGRESS_API_NONE ? EGRESS_KIND_ROUTE : EGRESS_KIND_MODEL;
    d->api = (enum egress_api)r->api;
    if (r->api != EGRESS_API_NONE)
        return judge_endpoint(r, h, d, err);
    for (size_t i = 0; i < r->methods.n; i++)
        granted = granted || strcmp(h->method, r->methods.items[i]) == 0;
    if (!granted)
        return err_set(err, ERR_FORBIDDEN,
                       "%s is not granted by the route \"%s\": the operator would add it to the "
                       "route's \"methods\"",
                       h->method, r->name);
    granted = r->paths.n == 0;
    for (size_t i = 0; i < r->paths.n; i++)
        granted = granted || decide_path_matches(r->paths.items[i], d->path);
    if (!granted)
        return err_set(
            err, ERR_FORBIDDEN,
            "%.200s is not granted by the route \"%s\": the operator would add it to the "
            "route's \"paths\"",
            d->path, r->name);
    return 0;
}

/* Where the route leads: for the guard of addresses and for events. */
static int set_upstream(const struct egress_policy *p, struct decision *d, struct err *err) {
    bool tls;
    const char *path;
    _cleanup_(free) char *host = NULL;
    int rc = egress_url_parse(p->routes[d->route].url, &tls, &host, &d->port, &path, err);
    if (rc < 0)
        return err_wrap(err, "route \"%s\"", p->routes[d->route].name);
    (void)snprintf(d->host, sizeof(d->host), "%s", host);
    d->private = p->routes[d->route].private;
    return 0;
}

static int judge_named(const struct egress_policy *p, const struct http1_head *h, char *path,
                       struct decision *d, struct err *err) {
    char *name = path + 3;
    size_t n = strcspn(name, "/");
    for (size_t i = 0; i < p->nroutes; i++) {
        if (strlen(p->routes[i].name) != n || strncmp(p->routes[i].name, name, n) != 0)
            continue;
        d->route = i;
        d->path = xstrdup(name[n] ? name + n : "/");
        int rc = set_upstream(p, d, err);
        return rc < 0 ? rc : judge_route(p, h, d, err);
    }
    d->kind = EGRESS_KIND_ROUTE;
    d->path = xstrdup(path);
    return err_set(err, ERR_FORBIDDEN,
                   "this sandbox has no route \"%.*s\": the operator would configure it and add it "
                   "to the sandbox's network.routes",
                   (int)MIN(n, 64), name);
}

/* The clients of both apis ask for /v1/models: they differ in the fields they send. */
static enum egress_api guess_api(const struct http1_head *h, const char *path) {
    if (strncmp(path, "/v1/messages", 12) == 0 || http1_head_value(h, "anthropic-version") ||
        http1_head_value(h, "x-api-key"))
        return EGRESS_API_ANTHROPIC;
    return strncmp(path, "/v1/", 4) == 0 ? EGRESS_API_OPENAI : EGRESS_API_NONE;
}

static int judge_origin(const struct egress_policy *p, const struct http1_head *h, char *path,
                        struct decision *d, struct err *err) {
    d->path = xstrdup(path);
    d->api = guess_api(h, path);
    if (d->api == EGRESS_API_NONE)
        return err_set(err, ERR_NOT_FOUND,
                       "this is the sandbox's way out: CONNECT host:port, http://host/..., "
                       "/_/ROUTE/..., or a model's api at /v1/...; nothing is at %.200s",
                       path);
    d->kind = EGRESS_KIND_MODEL;
    for (size_t i = 0; i < p->nroutes; i++) {
        if (p->routes[i].api != d->api)
            continue;
        d->route = i;
        int rc = set_upstream(p, d, err);
        return rc < 0 ? rc : judge_route(p, h, d, err);
    }
    return err_set(err, ERR_FORBIDDEN,
                   "no model is granted to this sandbox: the operator would configure a route with "
                   "\"api\": \"%s\" and add it to the sandbox's network.routes",
                   d->api == EGRESS_API_ANTHROPIC ? "anthropic" : "openai");
}

int decide(const struct egress_policy *p, uint32_t port, const struct http1_head *h,
           struct decision *ret, struct err *err) {
    struct target t = {.path = "/"};
    *ret = (struct decision){.query = ""};
    int rc = read_target(h, port, ret, &t, err);
    if (rc < 0)
        return rc;
    if (t.form == FORM_CONNECT)
        return judge_host(p, ret, false, err);
    if (strcmp(h->method, "TRACE") == 0)
        return err_set(err, ERR_METHOD, "TRACE is not passed on");
    size_t n = strcspn(t.path, "?");
    ret->query = t.path + n;
    if (t.form == FORM_HTTP) {
        /* No rule looks at it, and no credential goes with it. */
        ret->path = xstrndup(t.path, n);
        return judge_host(p, ret, true, err);
    }
    struct buf b;
    buf_init(&b, 3 * n + 1);
    rc = decide_normal_path(t.path, n, &b, err);
    _cleanup_(free) char *path = buf_steal(&b, NULL);
    if (rc < 0)
        return rc;
    ret->host[0] = 0;
    ret->port = 0;
    if (strncmp(path, "/_/", 3) == 0)
        return judge_named(p, h, path, ret, err);
    return judge_origin(p, h, path, ret, err);
}

void decision_finish(struct decision *d) {
    free(d->path);
    *d = (struct decision){0};
}

char *decision_url(const struct decision *d, const struct egress_policy *p) {
    if (d->kind == EGRESS_KIND_HTTP) {
        char name[EGRESS_AUTHORITY_SIZE];
        return xasprintf("http://%s%s%s", egress_authority_text(d->host, d->port, name), d->path,
                         d->query);
    }
    const struct egress_route *r = &p->routes[d->route];
    size_t n = strlen(r->url);
    while (n > 0 && r->url[n - 1] == '/')
        n--;
    /* OPENAI_BASE_URL ends in /v1, and so do the paths of its api begin. */
    if (r->api != EGRESS_API_NONE && n > 3 && strncmp(r->url + n - 3, "/v1", 3) == 0)
        n -= 3;
    return xasprintf("%.*s%s%s", (int)n, r->url, d->path, d->query);
}
