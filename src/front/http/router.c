#include "base/cleanup.h"
#include "base/mem.h"
#include "front/http/internal.h"
#include "front/http/url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool list_has(const char *list, const char *word) {
    size_t n = strlen(word);
    for (const char *p = list; *p;) {
        size_t len = strcspn(p, ",");
        if (len == n && memcmp(p, word, n) == 0)
            return true;
        p += len;
        if (*p == ',')
            p++;
    }
    return false;
}

static bool router_allows(const struct http_route *r, enum http_method m) {
    if (m == HTTP_METHOD_OTHER)
        return false;
    return list_has(r->methods, http_method_name(m)) ||
           (m == HTTP_METHOD_HEAD && list_has(r->methods, "GET"));
}

/* Matches pattern against path; when it fits, says where each parameter begins and ends. */
struct match {
    const char *name[PARAMS_MAX];
    size_t name_len[PARAMS_MAX];
    struct http_text value[PARAMS_MAX];
    size_t n;
};

static bool router_match_path(const char *pattern, const char *path, struct match *m) {
    m->n = 0;
    while (*pattern) {
        if (*pattern != '{') {
            if (*pattern != *path)
                return false;
            pattern++;
            path++;
            continue;
        }
        const char *end = strchr(pattern, '}');
        size_t name_len = (size_t)(end - pattern - 1);
        bool rest = name_len > 3 && memcmp(end - 3, "...", 3) == 0;
        size_t len = rest ? strlen(path) : strcspn(path, "/");
        if ((len == 0 && !rest) || m->n == PARAMS_MAX)
            return false;
        m->name[m->n] = pattern + 1;
        m->name_len[m->n] = rest ? name_len - 3 : name_len;
        m->value[m->n++] = (struct http_text){path, len};
        path += len;
        pattern = end + 1;
    }
    return *path == 0;
}

static bool set_params(struct http_req *req, const struct match *m) {
    for (size_t i = 0; i < m->n; i++) {
        char *v = url_decode(m->value[i].data, m->value[i].len, false);
        if (!v)
            return false;
        /* The name lives behind the value, in the same piece of memory. */
        size_t n = strlen(v);
        v = xrealloc(v, n + 1 + m->name_len[i] + 1);
        memcpy(v + n + 1, m->name[i], m->name_len[i]);
        v[n + 1 + m->name_len[i]] = 0;
        req->params[i] = v;
        req->param_names[i] = v + n + 1;
        req->nparams = i + 1;
    }
    return true;
}

static bool router_refuse(struct http_req *req, enum err_code code, const char *message) {
    struct err err;
    (void)err_set(&err, code, "%s", message);
    http_respond_err(req, &err);
    return false;
}

/* The guard, which finds out whose request it is. */
static bool ask_guard(struct http_server *s, struct http_req *req) {
    struct http_conn *c = req->conn; /* none in unit tests */
    if (c)
        c->owner[0] = c->key[0] = 0;
    if (s->opt.guard && !s->opt.guard(req, req->route->flags, s->opt.ctx))
        return false;
    if (c && s->opt.owner)
        (void)snprintf(c->owner, sizeof(c->owner), "%s", s->opt.owner(req));
    if (c && s->opt.key)
        (void)snprintf(c->key, sizeof(c->key), "%s", s->opt.key(req));
    return true;
}

bool router_admit(struct http_server *s, struct http_req *req) {
    _cleanup_(buf) struct buf allow;
    buf_init(&allow, 256);
    struct match m;
    if (s->opt.is_guest_host && s->opt.is_guest_host(req->host, s->opt.ctx)) {
        req->route = &s->guest_route;
        return ask_guard(s, req);
    }
    for (size_t i = 0; i < s->nroutes && !req->route; i++) {
        const struct http_route *r = &s->routes[i];
        if (!router_match_path(r->pattern, req->path, &m))
            continue;
        if (router_allows(r, req->method)) {
            req->route = r;
            if (!set_params(req, &m))
                return router_refuse(req, ERR_BAD_REQUEST, "the path holds a malformed escape");
        } else {
            if (allow.len > 0)
                (void)buf_add_str(&allow, ", ");
            (void)buf_add_str(&allow, r->methods);
        }
    }
    if (!req->route && allow.len == 0 && s->opt.fallback &&
        (req->method == HTTP_METHOD_GET || req->method == HTTP_METHOD_HEAD))
        req->route = &s->fallback_route;
    bool ok;
    if (req->route) {
        ok = ask_guard(s, req);
    } else if (allow.len > 0) {
        (void)buf_add_str(&allow, ", OPTIONS");
        http_res_header(req, "Allow", allow.data);
        ok = false;
        if (req->method == HTTP_METHOD_OPTIONS && s->opt.preflight)
            s->opt.preflight(req, allow.data, s->opt.ctx);
        if (req->method == HTTP_METHOD_OPTIONS)
            http_respond_empty(req, 204);
        else
            (void)router_refuse(req, ERR_METHOD, "this resource does not have that method");
    } else if (strcmp(req->path, "*") == 0) {
        http_respond_empty(req, 204);
        ok = false;
    } else {
        ok = router_refuse(req, ERR_NOT_FOUND,
                           "there is nothing at this path; GET /openapi.json lists "
                           "what there is");
    }
    return ok;
}
