#include "front/guard.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rand.h"
#include "front/http/fields.h"

#include <arpa/inet.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    SESSIONS_MAX = 256,
    BUCKETS_MAX = 1024,
    SESSION_MS = 12 * 3600 * 1000,
    PASS_MS = 60 * 1000,
    TOKEN_BYTES = 24,
    HOST_SIZE = 96,
};

struct session {
    unsigned char hash[SHA256_DIGEST_LENGTH];
    char key_id[ID_SIZE];
    char host[HOST_SIZE]; /* a guest's, where alone it is good; "" for our own pages */
    bool once;            /* in a link, to be traded for a cookie */
    int64_t expires_ms;
};

/* A token bucket per key: full at rate_per_minute, refilled evenly. */
struct rate_bucket {
    char key_id[ID_SIZE];
    double tokens;
    int64_t filled_ms;
};

struct sessions {
    struct session items[SESSIONS_MAX];
    size_t next; /* the oldest goes first */
    struct rate_bucket buckets[BUCKETS_MAX];
    size_t nbuckets;
};

struct sessions *sessions_create(void) {
    return xcalloc(1, sizeof(struct sessions));
}

void sessions_destroy(struct sessions *s) {
    free(s);
}

static bool refuse(struct http_req *req, enum err_code code, const char *message) {
    struct err err;
    (void)err_set(&err, code, "%s", message);
    http_respond_err(req, &err);
    return false;
}

/* --- Host and Origin --- */

static bool ends_with(const char *text, const char *end) {
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
    return ends_with(host, ".localhost");
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

/* page: it is for the page's own files, which hold nothing of anybody. Behind a proxy that changes
 * the host they come with the Origin of another: refused, the page could not say what is wrong. */
static bool check_site(struct http_req *req, const struct front *f, bool page) {
    if (!host_is_ours(f, http_req_host(req)))
        return refuse(req, ERR_MISDIRECTED,
                      "this server does not answer for that host name; add it to \"hosts\" in "
                      "cay.json if it should");
    const char *origin = http_req_header(req, "origin");
    bool listed = origin && origin_is_listed(f, origin);
    if (listed)
        allow_origin(req, origin);
    if (origin && !listed && !page && !origin_is_ours(req, origin))
        return refuse(req, ERR_FORBIDDEN,
                      "requests from pages of another origin are refused; add the origin to "
                      "\"origins\" in cay.json if it may call");
    /* A form or link of another site that sends no Origin still says where it comes from. (To a
     * browser, guests' pages and other ports of this machine are of the same site.) */
    const char *site = http_req_header(req, "sec-fetch-site");
    bool changes =
        http_req_method(req) != HTTP_METHOD_GET && http_req_method(req) != HTTP_METHOD_HEAD;
    if (!origin && (changes || http_req_is_upgrade(req)) && site &&
        strcmp(site, "same-origin") != 0 && strcmp(site, "none") != 0)
        return refuse(req, ERR_FORBIDDEN, "requests from pages of another site are refused");
    return true;
}

/* --- who --- */

static bool cookie_get(const char *cookies, const char *name, char *out, size_t size) {
    size_t n = strlen(name);
    while (cookies && *cookies) {
        cookies += strspn(cookies, "; ");
        size_t len = strcspn(cookies, ";");
        if (len > n && strncmp(cookies, name, n) == 0 && cookies[n] == '=' && len - n - 1 < size) {
            memcpy(out, cookies + n + 1, len - n - 1);
            out[len - n - 1] = 0;
            return true;
        }
        cookies += len;
    }
    return false;
}

static struct session *token_find(struct front *f, const char *token, const char *host, bool once) {
    unsigned char hash[SHA256_DIGEST_LENGTH];
    (void)SHA256((const unsigned char *)token, strlen(token), hash);
    int64_t now = clock_mono_ms();
    for (size_t i = 0; i < SESSIONS_MAX; i++) {
        struct session *s = &f->sessions->items[i];
        if (s->expires_ms > now && s->once == once && strcmp(s->host, host) == 0 &&
            CRYPTO_memcmp(s->hash, hash, sizeof(hash)) == 0)
            return s;
    }
    return NULL;
}

static void token_create(struct front *f, const char *key_id, const char *host, bool once,
                         char token[PASS_SIZE]) {
    unsigned char raw[TOKEN_BYTES];
    _Static_assert(PASS_SIZE == 2 * TOKEN_BYTES + 1, "two digits a byte");
    rand_bytes(raw, sizeof(raw));
    for (size_t i = 0; i < sizeof(raw); i++)
        (void)snprintf(token + 2 * i, 3, "%02x", raw[i]);
    struct session *s = &f->sessions->items[f->sessions->next++ % SESSIONS_MAX];
    *s = (struct session){.once = once,
                          .expires_ms = clock_mono_ms() + (once ? PASS_MS : SESSION_MS)};
    (void)SHA256((const unsigned char *)token, strlen(token), s->hash);
    (void)snprintf(s->key_id, sizeof(s->key_id), "%s", key_id);
    (void)snprintf(s->host, sizeof(s->host), "%s", host);
}

static struct session *session_find(struct front *f, const struct http_req *req, const char *name,
                                    const char *host) {
    char token[PASS_SIZE];
    return cookie_get(http_req_header(req, "cookie"), name, token, sizeof(token))
               ? token_find(f, token, host, false)
               : NULL;
}

/* 1: found; 0: the request names nobody; negative: it names somebody who is not valid. */
static int identify(struct front *f, const struct http_req *req, struct identity *who,
                    struct err *err) {
    const char *auth = http_req_header(req, "authorization");
    if (auth && !is_nobody(auth)) {
        const char *key = field_bearer(auth);
        if (!key)
            return err_set(err, ERR_UNAUTHORIZED, "send the key as \"Authorization: Bearer KEY\"");
        int rc = key_check(f->keys, key, who, err);
        return rc < 0 ? rc : 1;
    }
    const struct session *s = session_find(f, req, "cay_session", "");
    if (s) {
        int rc = key_identity(f->keys, s->key_id, who, err);
        return rc < 0 ? rc : 1;
    }
    if (http_req_is_local(req) && !front_requires_key(f)) {
        *who = (struct identity){.operator_ = true, .name = "operator", .scope = KEY_SCOPE_ADMIN};
        return 1;
    }
    return 0;
}

/* ERR_RATE if the key has had its requests; *ret_wait_s is how long it has to wait then. */
static int take_token(struct front *f, const struct identity *who, int64_t *ret_wait_s,
                      struct err *err) {
    if (who->rate_per_minute <= 0)
        return 0;
    struct sessions *s = f->sessions;
    struct rate_bucket *b = NULL;
    int64_t now = clock_mono_ms();
    for (size_t i = 0; i < s->nbuckets && !b; i++)
        if (strcmp(s->buckets[i].key_id, who->key_id) == 0)
            b = &s->buckets[i];
    if (!b) {
        /* More keys than that at a time: the first bucket is used again, which only costs it a
         * fresh start. */
        b = &s->buckets[s->nbuckets < BUCKETS_MAX ? s->nbuckets++ : 0];
        *b = (struct rate_bucket){.tokens = (double)who->rate_per_minute, .filled_ms = now};
        memcpy(b->key_id, who->key_id, sizeof(b->key_id));
    }
    double per_ms = (double)who->rate_per_minute / 60000.0;
    b->tokens += (double)(now - b->filled_ms) * per_ms;
    if (b->tokens > (double)who->rate_per_minute)
        b->tokens = (double)who->rate_per_minute;
    b->filled_ms = now;
    if (b->tokens < 1) {
        *ret_wait_s = (int64_t)((1 - b->tokens) / per_ms / 1000) + 1;
        return err_set(err, ERR_RATE, "this key may send %lld requests a minute",
                       (long long)who->rate_per_minute);
    }
    b->tokens -= 1;
    return 0;
}

int guard_check_key(struct front *f, const char *key_id, struct err *err) {
    struct identity who;
    return *key_id ? key_identity(f->keys, key_id, &who, err) : 0;
}

int guard_admit(struct front *f, const char *key_id, int64_t *ret_wait_s, struct err *err) {
    struct identity who;
    if (!*key_id)
        return 0;
    int rc = key_identity(f->keys, key_id, &who, err);
    return rc < 0 ? rc : take_token(f, &who, ret_wait_s, err);
}

void guard_respond_rate(struct http_req *req, int64_t wait_s, const struct err *err) {
    char text[24];
    (void)snprintf(text, sizeof(text), "%lld", (long long)wait_s);
    http_res_header(req, "Retry-After", text);
    http_respond_err(req, err);
}

static bool check_scope(struct http_req *req, const struct identity *who, unsigned flags) {
    enum key_scope need = flags & FRONT_ROUTE_ADMIN  ? KEY_SCOPE_ADMIN
                          : flags & FRONT_ROUTE_READ ? KEY_SCOPE_READ
                                                     : KEY_SCOPE_RUN;
    if (who->scope >= need)
        return true;
    return refuse(req, ERR_FORBIDDEN,
                  need == KEY_SCOPE_ADMIN ? "this needs a key with the scope \"admin\""
                                          : "this needs a key with the scope \"run\"");
}

static void set_identity(struct http_req *req, const struct identity *who) {
    struct identity *copy = xmalloc(sizeof(*copy));
    *copy = *who;
    http_req_set_user(req, copy, free);
}

/* A cookie comes along with whatever a browser sends. What a page of another origin made it send
 * has no use of the pass, but for following a link. */
static bool is_own_doing(const struct http_req *req) {
    const char *origin = http_req_header(req, "origin");
    const char *site = http_req_header(req, "sec-fetch-site");
    const char *mode = http_req_header(req, "sec-fetch-mode");
    if (origin && !origin_is_ours(req, origin))
        return false;
    if (!site || strcmp(site, "same-origin") == 0 || strcmp(site, "none") == 0)
        return true;
    return http_req_method(req) == HTTP_METHOD_GET && mode && strcmp(mode, "navigate") == 0;
}

/* Guests' content has its own origin: it sees none of our credentials, and of its own only one that
 * looks like a key of ours is looked at, which it does not get to see. Who asks for what they may
 * not reach is told that it is not there, by the handler. */
static void identify_guest(struct front *f, struct http_req *req) {
    struct identity who;
    const char *auth = http_req_header(req, "authorization");
    const struct session *pass =
        is_own_doing(req) ? session_find(f, req, "cay_pass", http_req_host(req)) : NULL;
    if (auth && field_is_our_key(auth)) {
        if (key_check(f->keys, field_bearer(auth), &who, NULL) == 0)
            set_identity(req, &who);
    } else if (pass) {
        if (key_identity(f->keys, pass->key_id, &who, NULL) == 0)
            set_identity(req, &who);
    } else if (http_req_is_local(req) && !front_requires_key(f)) {
        who = (struct identity){.operator_ = true, .name = "operator", .scope = KEY_SCOPE_ADMIN};
        set_identity(req, &who);
    }
}

/* Answered if the caller has had its requests. */
static bool take_request(struct front *f, struct http_req *req) {
    struct err err;
    int64_t wait_s = 0;
    if (take_token(f, front_identity(req), &wait_s, &err) == 0)
        return true;
    guard_respond_rate(req, wait_s, &err);
    return false;
}

bool guard_request(struct http_req *req, unsigned flags, void *front) {
    struct front *f = front;
    if (flags & HTTP_ROUTE_GUEST) {
        identify_guest(f, req);
        /* What a stranger asks for is the owner's to pay: the handler finds out whose. */
        return !front_identity(req) || take_request(f, req);
    }
    if (!check_site(req, f, (flags & HTTP_ROUTE_PAGE) != 0))
        return false;
    bool public = (flags & (FRONT_ROUTE_PUBLIC | HTTP_ROUTE_PAGE)) != 0;
    struct err err;
    struct identity who;
    int rc = identify(f, req, &who, &err);
    if (rc < 0 && !public) {
        http_respond_err(req, &err);
        return false;
    }
    if (rc == 0 && !public)
        return refuse(
            req, ERR_UNAUTHORIZED,
            "a key is needed: `cay key create` makes one on the server's machine; send it "
            "as \"Authorization: Bearer KEY\"");
    if (rc == 1)
        set_identity(req, &who);
    if (public)
        return true;
    if (!check_scope(req, &who, flags))
        return false;
    return take_request(f, req);
}

bool front_requires_key(const struct front *f) {
    return f->config->require_key || f->listeners.beyond_loopback;
}

const struct identity *front_identity(const struct http_req *req) {
    return http_req_user(req);
}

struct store_scope front_scope(const struct http_req *req) {
    const struct identity *who = front_identity(req);
    return (struct store_scope){.all = who && who->scope == KEY_SCOPE_ADMIN,
                                .owner = who ? who->key_id : "?"};
}

void session_create(struct http_req *req, void *front) {
    struct front *f = front;
    const struct identity *who = front_identity(req);
    if (who->operator_) {
        http_respond_empty(req, 204); /* the operator needs no session */
        return;
    }
    char token[PASS_SIZE];
    token_create(f, who->key_id, "", false, token);
    char cookie[160];
    (void)snprintf(cookie, sizeof(cookie),
                   "cay_session=%s; Path=/; HttpOnly; SameSite=Strict; Max-Age=%d", token,
                   SESSION_MS / 1000);
    http_res_header(req, "Set-Cookie", cookie);
    http_respond_empty(req, 204);
}

void session_delete(struct http_req *req, void *front) {
    struct session *s = session_find(front, req, "cay_session", "");
    if (s)
        *s = (struct session){0};
    http_res_header(req, "Set-Cookie",
                    "cay_session=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    http_respond_empty(req, 204);
}

bool guard_pass_create(struct http_req *req, struct front *f, const char *host,
                       char ret_token[PASS_SIZE]) {
    const struct identity *who = front_identity(req);
    if (who->operator_ || strlen(host) >= HOST_SIZE)
        return false;
    token_create(f, who->key_id, host, true, ret_token);
    return true;
}

/* Where the link leads to. What a browser would take for another host is not. */
static const char *landing(const struct http_req *req) {
    const char *path = http_req_path(req);
    return path[0] == '/' && path[1] != '/' && path[1] != '\\' ? path : "/";
}

bool guard_pass_enter(struct http_req *req, struct front *f) {
    _cleanup_(free) char *token = NULL;
    struct err err;
    if (http_req_method(req) != HTTP_METHOD_GET ||
        http_req_query_get(req, "cay_pass", &token, &err) < 0 || !token ||
        strlen(token) != PASS_SIZE - 1)
        return false;
    struct session *s = token_find(f, token, http_req_host(req), true);
    if (!s) {
        (void)err_set(&err, ERR_NOT_FOUND,
                      "this link was used already, or is too old: ask for a new one");
        http_respond_err(req, &err);
        return true;
    }
    struct session link = *s;
    *s = (struct session){0};
    char next[PASS_SIZE];
    char cookie[160];
    token_create(f, link.key_id, link.host, false, next);
    (void)snprintf(cookie, sizeof(cookie),
                   "cay_pass=%s; Path=/; HttpOnly; SameSite=Lax; Max-Age=%d", next,
                   SESSION_MS / 1000);
    http_res_header(req, "Set-Cookie", cookie);
    http_res_header(req, "Location", landing(req));
    http_res_header(req, "Referrer-Policy", "no-referrer");
    http_respond_empty(req, 303);
    return true;
}
