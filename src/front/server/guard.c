#include "front/server/guard.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "front/common/caller.h"
#include "front/common/rate.h"
#include "front/common/share.h"
#include "front/http/fields.h"
#include "front/server/sessions.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* --- where from --- */

struct origin_address {
    char text[HTTP_PEER_SIZE];
    bool local; /* on this machine: loopback, or a Unix socket */
};

/* A proxy may add a field of its own behind those that a client has sent: they are one list. */
static char *forwarded_of(const struct http_req *req) {
    char *all = NULL;
    const char *name;
    const char *value;
    for (size_t i = 0; http_req_header_at(req, i, &name, &value); i++) {
        if (strcasecmp(name, "x-forwarded-for") != 0)
            continue;
        char *more = all ? xasprintf("%s,%s", all, value) : xstrdup(value);
        free(all);
        all = more;
    }
    return all;
}

static struct origin_address address_of(const struct front *f, const struct http_req *req) {
    const struct config *c = f->config;
    struct origin_address a = {.local = http_req_is_local(req)};
    if (a.local && c->nproxies == 0)
        return a;
    char peer[HTTP_PEER_SIZE];
    _cleanup_(free) char *forwarded = forwarded_of(req);
    caller_address(http_req_peer(req, peer), forwarded, c->proxies, c->nproxies, a.text,
                   sizeof(a.text));
    a.local = a.local && caller_is_local(a.text);
    return a;
}

/* Whoever is on this machine is the operator, where no key is asked for. */
static bool is_operator(const struct front *f, const struct origin_address *from) {
    return from->local && !front_requires_key(f);
}

static bool guard_refuse(struct http_req *req, enum err_code code, const char *message) {
    struct err err;
    (void)err_set(&err, code, "%s", message);
    http_respond_err(req, &err);
    return false;
}

/* --- Host and Origin --- */

static bool guard_ends_with(const char *text, const char *end) {
    size_t n = strlen(text);
    size_t k = strlen(end);
    return n > k && strcmp(text + n - k, end) == 0;
}

/* A token that names nobody: as if there were none. */
static bool is_nobody(const char *authorization) {
    const char *key = field_bearer(authorization);
    return key && strcmp(key, GUARD_NO_KEY) == 0;
}

bool guard_is_guest_host(const char *host, void *front) {
    (void)front;
    return guard_ends_with(host, ".localhost");
}

/* An address must be one to the letter: "127.0.0.1.evil.example" is a name like any other. */
static bool is_loopback_name(const char *host) {
    struct in_addr a;
    return strcmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0 ||
           (inet_pton(AF_INET, host, &a) == 1 && ntohl(a.s_addr) >> 24 == 127);
}

static bool is_listen_host(const struct config *c, const char *host) {
    for (size_t i = 0; i < c->nlisten; i++) {
        char name[256];
        unsigned port;
        if (strncmp(c->listen[i], "unix:", 5) == 0) {
            if (*host == 0)
                return true;
        } else if (config_parse_address(c->listen[i], name, sizeof(name), &port, NULL) == 0) {
            if (strcasecmp(name, host) == 0)
                return true;
            size_t n = strlen(name); /* an IPv6 address is in brackets in a Host field */
            if (host[0] == '[' && strlen(host) == n + 2 && strncasecmp(host + 1, name, n) == 0)
                return true;
        }
    }
    return false;
}

/* A page on evil.example whose name is made to resolve to us still says Host: evil.example. */
static bool host_is_ours(const struct front *f, const char *host) {
    if (is_loopback_name(host) || is_listen_host(f->config, host))
        return true;
    for (size_t i = 0; i < f->config->nhosts; i++)
        if (strcasecmp(f->config->hosts[i], host) == 0)
            return true;
    return false;
}

static bool origin_is_listed(const struct front *f, const char *origin) {
    for (size_t i = 0; i < f->config->norigins; i++)
        if (strcasecmp(f->config->origins[i], origin) == 0)
            return true;
    return false;
}

static bool origin_is_ours(const struct http_req *req, const char *origin) {
    const char *sep = strstr(origin, "://");
    if (sep && (strncmp(origin, "http://", 7) == 0 || strncmp(origin, "https://", 8) == 0) &&
        strcasecmp(sep + 3, http_req_authority(req)) == 0)
        return true;
    return false;
}

/* The browser hands our answers to the page only if they say that it may have them. Cookies stay
 * out of it: such a page sends a key. */
static void allow_origin(struct http_req *req, const char *origin) {
    http_res_header(req, "Access-Control-Allow-Origin", origin);
    http_res_header(req, "Vary", "Origin");
}

void guard_preflight(struct http_req *req, const char *methods, void *front) {
    const char *origin = http_req_header(req, "origin");
    if (!origin || !host_is_ours(front, http_req_host(req)) || !origin_is_listed(front, origin))
        return;
    allow_origin(req, origin);
    http_res_header(req, "Access-Control-Allow-Methods", methods);
    http_res_header(req, "Access-Control-Allow-Headers",
                    "Authorization, Content-Type, Accept, Last-Event-ID");
    http_res_header(req, "Access-Control-Max-Age", "600");
}

static bool is_of_another_site(const struct http_req *req) {
    const char *site = http_req_header(req, "sec-fetch-site");
    return site && strcmp(site, "same-origin") != 0 && strcmp(site, "none") != 0;
}

/* Browsers that say neither where a request comes from nor how it was made let a form of any page
 * send a text as it is. (What a form encodes otherwise is no JSON.) */
static bool is_like_a_form(const struct http_req *req) {
    static const char *const types[] = {"text/plain", "multipart/form-data"};
    const char *type = http_req_header(req, "content-type");
    if (!type || http_req_header(req, "origin") || http_req_header(req, "sec-fetch-site") ||
        http_req_header(req, "sec-fetch-mode") || http_req_header(req, "authorization"))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (strncasecmp(type + strspn(type, " \t"), types[i], strlen(types[i])) == 0)
            return true;
    return false;
}

/* page: it is for the page's own files, which hold nothing of anybody. Behind a proxy that changes
 * the host they come with the Origin of another: refused, the page could not say what is wrong. */
static bool check_site(struct http_req *req, const struct front *f, bool page) {
    if (!host_is_ours(f, http_req_host(req)))
        return guard_refuse(
            req, ERR_MISDIRECTED,
            "this server does not answer for that host name; add it to \"hosts\" in "
            "cay.json if it should");
    const char *origin = http_req_header(req, "origin");
    bool listed = origin && origin_is_listed(f, origin);
    if (listed)
        allow_origin(req, origin);
    if (origin && !listed && !page && !origin_is_ours(req, origin))
        return guard_refuse(req, ERR_FORBIDDEN,
                            "requests from pages of another origin are refused; add the origin to "
                            "\"origins\" in cay.json if it may call");
    /* A form or link of another site that sends no Origin still says where it comes from. (To a
     * browser, guests' pages and other ports of this machine are of the same site.) */
    bool changes =
        http_req_method(req) != HTTP_METHOD_GET && http_req_method(req) != HTTP_METHOD_HEAD;
    if (!origin && (changes || http_req_is_upgrade(req)) && is_of_another_site(req))
        return guard_refuse(req, ERR_FORBIDDEN, "requests from pages of another site are refused");
    if (http_req_method(req) == HTTP_METHOD_POST && is_like_a_form(req))
        return guard_refuse(
            req, ERR_FORBIDDEN,
            "a form of any page could have sent this: name the body's type, "
            "\"Content-Type: application/json\", or application/octet-stream for bytes");
    return true;
}

/* Browsers that do not say where a request comes from still cannot have a link, a form or an image
 * send this field. */
bool guard_check_effect(struct http_req *req) {
    const char *site = http_req_header(req, "sec-fetch-site");
    if (is_of_another_site(req))
        return guard_refuse(req, ERR_FORBIDDEN, "requests from pages of another site are refused");
    if (!site && !http_req_header(req, "authorization"))
        return guard_refuse(req, ERR_FORBIDDEN,
                            "this GET changes something: send it with an Authorization field");
    return true;
}

/* --- who --- */

/* 1: found; 0: the request names nobody; negative: it names somebody who is not valid. */
static int guard_identify(struct front *f, const struct http_req *req,
                          const struct origin_address *from, struct identity *who,
                          struct err *err) {
    const char *auth = http_req_header(req, "authorization");
    if (auth && !is_nobody(auth)) {
        const char *key = field_bearer(auth);
        if (!key)
            return err_set(err, ERR_UNAUTHORIZED, "send the key as \"Authorization: Bearer KEY\"");
        int rc = key_check(f->keys, key, who, err);
        return rc < 0 ? rc : 1;
    }
    const char *session_key = session_key_id(f->sessions, req);
    if (session_key) {
        int rc = key_identity(f->keys, session_key, who, err);
        return rc < 0 ? rc : 1;
    }
    if (is_operator(f, from)) {
        *who = key_operator();
        return 1;
    }
    return 0;
}

/* What a caller is held to; no limit: per_minute is 0. */
struct rate_policy {
    const char *name; /* as the fields of the answer have it */
    int64_t per_minute;
    unsigned char who[ID_SIZE];
    size_t len;
};

static struct rate_policy policy_of_key(const struct front *f, const struct identity *who) {
    struct rate_policy p = {.name = "key", .len = strlen(who->key_id)};
    int64_t own = who->limits.rate_per_minute;
    memcpy(p.who, who->key_id, p.len);
    if (!who->operator_)
        p.per_minute = own > 0 ? own : f->config->key_per_minute;
    return p;
}

/* Over all keys of the project. Its id may be that of a key: so a letter comes before it. */
static struct rate_policy policy_of_project(const struct identity *who) {
    struct rate_policy p = {.name = "project"};
    p.who[0] = 'p';
    p.len = 1 + strlen(who->project);
    memcpy(p.who + 1, who->project, MIN(p.len, sizeof(p.who)) - 1);
    if (!who->operator_)
        p.per_minute = who->project_limits.rate_per_minute;
    return p;
}

static struct rate_policy policy_of_address(const struct front *f,
                                            const struct origin_address *from) {
    struct rate_policy p = {.name = "address"};
    if (from->local)
        return p;
    p.len = caller_name(from->text, p.who);
    p.per_minute = f->config->address_per_minute;
    return p;
}

/* ERR_RATE if they have had their requests. */
static int take_token(struct front *f, const struct rate_policy *p, struct rate_left *ret_left,
                      struct err *err) {
    if (p->per_minute <= 0 ||
        rates_take(f->rates, p->who, p->len, p->per_minute, clock_mono_ms(), ret_left))
        return 0;
    return err_set(err, ERR_RATE, "this %s may send %lld requests a minute: wait %lld s", p->name,
                   (long long)p->per_minute, (long long)ret_left->wait_s);
}

int guard_check_key(struct front *f, const char *key_id, struct err *err) {
    struct identity who;
    return *key_id ? key_identity(f->keys, key_id, &who, err) : 0;
}

int guard_admit(struct front *f, const char *key_id, int64_t *ret_wait_s, struct err *err) {
    struct identity who;
    struct rate_left left = {0};
    if (!*key_id)
        return 0;
    int rc = key_identity(f->keys, key_id, &who, err);
    if (rc < 0)
        return rc;
    struct rate_policy p = policy_of_project(&who);
    rc = take_token(f, &p, &left, err);
    if (rc == 0) {
        p = policy_of_key(f, &who);
        rc = take_token(f, &p, &left, err);
    }
    *ret_wait_s = left.wait_s;
    return rc;
}

void guard_respond_rate(struct http_req *req, int64_t wait_s, const struct err *err) {
    char text[24];
    (void)snprintf(text, sizeof(text), "%lld", (long long)wait_s);
    http_res_header(req, "Retry-After", text);
    http_respond_err(req, err);
}

static bool check_scope(struct http_req *req, const struct identity *who, unsigned flags) {
    bool admin = flags & (FRONT_ROUTE_ADMIN | FRONT_ROUTE_PROJECT_ADMIN);
    enum key_scope need = admin                      ? KEY_SCOPE_ADMIN
                          : flags & FRONT_ROUTE_READ ? KEY_SCOPE_READ
                                                     : KEY_SCOPE_RUN;
    if (who->scope >= need && (who->server || !(flags & FRONT_ROUTE_ADMIN)))
        return true;
    if (who->scope >= need)
        return guard_refuse(req, ERR_FORBIDDEN,
                            "this needs an admin key of the whole server: one of the default "
                            "project");
    return guard_refuse(req, ERR_FORBIDDEN,
                        need == KEY_SCOPE_ADMIN ? "this needs a key with the scope \"admin\""
                                                : "this needs a key with the scope \"run\"");
}

static void set_identity(struct http_req *req, const struct identity *who) {
    struct identity *copy = xmalloc(sizeof(*copy));
    *copy = *who;
    http_req_set_user(req, copy, free);
}

/* Whether the request is somebody's own doing: not what a page of another origin made the browser
 * send. A cookie comes along with that, and on a server without keys the operator's rights do.
 * Following a link is: a whole page that is asked for by GET. */
static bool is_own_doing(const struct front *f, const struct http_req *req) {
    const char *origin = http_req_header(req, "origin");
    const char *mode = http_req_header(req, "sec-fetch-mode");
    const char *dest = http_req_header(req, "sec-fetch-dest");
    if (origin && !origin_is_ours(req, origin))
        return origin_is_listed(f, origin);
    if (!is_of_another_site(req))
        return true;
    return http_req_method(req) == HTTP_METHOD_GET && mode && strcmp(mode, "navigate") == 0 &&
           (!dest || strcmp(dest, "document") == 0);
}

/* Guests' content has its own origin: it sees none of our credentials, and of its own only one that
 * looks like a key of ours is looked at, which it does not get to see. Who asks for what they may
 * not reach is told that it is not there, by the handler. */
static void identify_guest(struct front *f, struct http_req *req,
                           const struct origin_address *from) {
    struct identity who;
    const char *auth = http_req_header(req, "authorization");
    bool own = is_own_doing(f, req);
    const char *pass_key = own ? session_pass_key_id(f->sessions, req) : NULL;
    bool known = auth && field_is_our_key(auth)
                     ? key_check(f->keys, field_bearer(auth), &who, NULL) == 0
                     : pass_key && key_identity(f->keys, pass_key, &who, NULL) == 0;
    if (!known && own && is_operator(f, from)) {
        who = key_operator();
        known = true;
    }
    if (known)
        set_identity(req, &who);
}

/* Answered if the caller has had its requests. The fields are those of the IETF's draft
 * (httpapi-ratelimit-headers): what holds, and what is left of it. */
static bool take_request(struct front *f, struct http_req *req, const struct rate_policy *p) {
    struct err err;
    struct rate_left left;
    char text[64];
    if (p->per_minute <= 0)
        return true;
    int rc = take_token(f, p, &left, &err);
    (void)snprintf(text, sizeof(text), "\"%s\";q=%lld;w=60", p->name, (long long)p->per_minute);
    http_res_header(req, "RateLimit-Policy", text);
    (void)snprintf(text, sizeof(text), "\"%s\";r=%lld;t=%lld", p->name, (long long)left.requests,
                   (long long)left.wait_s);
    http_res_header(req, "RateLimit", text);
    if (rc == 0)
        return true;
    guard_respond_rate(req, left.wait_s, &err);
    return false;
}

/* Who has no key is counted by where they come from; also who has a wrong one, so that keys cannot
 * be guessed at. */
static bool take_stranger(struct front *f, struct http_req *req,
                          const struct origin_address *from) {
    struct rate_policy p = policy_of_address(f, from);
    return take_request(f, req, &p);
}

static bool take_known(struct front *f, struct http_req *req) {
    struct rate_policy of_project = policy_of_project(front_identity(req));
    struct rate_policy of_key = policy_of_key(f, front_identity(req));
    return take_request(f, req, &of_project) && take_request(f, req, &of_key);
}

/* The server leaves: what was accepted goes on and can be looked at and ended, nothing begins. */
static bool check_leaving(const struct front *f, struct http_req *req, unsigned flags) {
    enum http_method m = http_req_method(req);
    bool reads = m == HTTP_METHOD_GET || m == HTTP_METHOD_HEAD || m == HTTP_METHOD_OPTIONS;
    if (!f->leaving || (flags & FRONT_ROUTE_LATE) ||
        (!(flags & HTTP_ROUTE_GUEST) && (reads || m == HTTP_METHOD_DELETE)))
        return true;
    http_res_header(req, "Retry-After", "1");
    return guard_refuse(req, ERR_UNAVAILABLE, "the server is shutting down: try again in a second");
}

bool guard_request(struct http_req *req, unsigned flags, void *front) {
    struct front *f = front;
    if (!check_leaving(f, req, flags))
        return false;
    struct origin_address from = address_of(f, req);
    if (flags & HTTP_ROUTE_GUEST) {
        identify_guest(f, req, &from);
        /* What a stranger asks for is the owner's to pay: the handler finds out whose. */
        return front_identity(req) ? take_known(f, req) : take_stranger(f, req, &from);
    }
    if (!check_site(req, f, (flags & HTTP_ROUTE_PAGE) != 0))
        return false;
    bool public = (flags & (FRONT_ROUTE_PUBLIC | HTTP_ROUTE_PAGE)) != 0;
    struct err err;
    struct identity who;
    int rc = guard_identify(f, req, &from, &who, &err);
    if (rc <= 0 && !take_stranger(f, req, &from))
        return false;
    if (rc < 0 && !public) {
        http_respond_err(req, &err);
        return false;
    }
    if (rc == 0 && !public)
        return guard_refuse(
            req, ERR_UNAUTHORIZED,
            "a key is needed: `cay key create` makes one on the server's machine; send it "
            "as \"Authorization: Bearer KEY\"");
    if (rc == 1)
        set_identity(req, &who);
    if (public)
        return true;
    if (!check_scope(req, &who, flags))
        return false;
    return take_known(f, req);
}

bool front_requires_key(const struct front *f) {
    return f->config->require_key || f->listeners.beyond_loopback;
}

const struct identity *front_identity(const struct http_req *req) {
    return http_req_user(req);
}

struct store_scope front_scope(const struct http_req *req) {
    const struct identity *who = front_identity(req);
    return (struct store_scope){.all = who && who->server, .owner = who ? who->project : "?"};
}

const char *front_project(const struct http_req *req) {
    const struct identity *who = front_identity(req);
    return who ? who->project : "";
}

const char *front_key(const struct http_req *req) {
    const struct identity *who = front_identity(req);
    return who ? who->key_id : "";
}

const char *front_share(const struct http_req *req) {
    return share_name(front_project(req), front_key(req));
}
