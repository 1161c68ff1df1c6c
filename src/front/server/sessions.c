#include "front/server/sessions.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rand.h"
#include "front/common/share.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SESSIONS_MAX = 1024,
    SESSIONS_PER_KEY = 32,
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
    uint64_t number;      /* in the order in which they were made */
    int64_t expires_ms;   /* 0: the place is free */
};

struct sessions {
    struct session items[SESSIONS_MAX];
    uint64_t made;        /* so far */
    struct shares shares; /* of the places, by keys */
};

struct sessions *sessions_create(void) {
    return xcalloc(1, sizeof(struct sessions));
}

void sessions_destroy(struct sessions *s) {
    if (s)
        shares_finish(&s->shares);
    free(s);
}

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

static struct session *token_find(struct sessions *all, const char *token, const char *host,
                                  bool once) {
    unsigned char hash[SHA256_DIGEST_LENGTH];
    (void)SHA256((const unsigned char *)token, strlen(token), hash);
    int64_t now = clock_mono_ms();
    for (size_t i = 0; i < SESSIONS_MAX; i++) {
        struct session *s = &all->items[i];
        if (s->expires_ms > now && s->once == once && strcmp(s->host, host) == 0 &&
            CRYPTO_memcmp(s->hash, hash, sizeof(hash)) == 0)
            return s;
    }
    return NULL;
}

static void session_end(struct sessions *all, struct session *s) {
    if (s->expires_ms)
        shares_remove(&all->shares, s->key_id);
    *s = (struct session){0};
}

/* The oldest one of the key. */
static struct session *session_oldest(struct sessions *all, const char *key_id) {
    struct session *oldest = NULL;
    for (size_t i = 0; i < SESSIONS_MAX; i++) {
        struct session *s = &all->items[i];
        if (s->expires_ms && strcmp(s->key_id, key_id) == 0 &&
            (!oldest || s->number < oldest->number))
            oldest = s;
    }
    return oldest;
}

/* A free place. A key that has its share gives up its own oldest one, and where all are taken the
 * key with the most does: nobody is logged out by another key's log-ins. */
static struct session *session_place(struct sessions *all, const char *key_id) {
    int64_t now = clock_mono_ms();
    struct session *place = NULL;
    for (size_t i = 0; i < SESSIONS_MAX; i++) {
        if (all->items[i].expires_ms <= now)
            session_end(all, &all->items[i]);
        if (!place && !all->items[i].expires_ms)
            place = &all->items[i];
    }
    if (shares_held(&all->shares, key_id) >= SESSIONS_PER_KEY)
        place = session_oldest(all, key_id);
    else if (!place)
        place = session_oldest(all, shares_greatest(&all->shares));
    session_end(all, place);
    shares_add(&all->shares, key_id);
    return place;
}

static void token_create(struct sessions *all, const char *key_id, const char *host, bool once,
                         char token[PASS_SIZE]) {
    unsigned char raw[TOKEN_BYTES];
    _Static_assert(PASS_SIZE == 2 * TOKEN_BYTES + 1, "two digits a byte");
    rand_bytes(raw, sizeof(raw));
    for (size_t i = 0; i < sizeof(raw); i++)
        (void)snprintf(token + 2 * i, 3, "%02x", raw[i]);
    struct session *s = session_place(all, key_id);
    *s = (struct session){.once = once,
                          .number = ++all->made,
                          .expires_ms = clock_mono_ms() + (once ? PASS_MS : SESSION_MS)};
    (void)SHA256((const unsigned char *)token, strlen(token), s->hash);
    (void)snprintf(s->key_id, sizeof(s->key_id), "%s", key_id);
    (void)snprintf(s->host, sizeof(s->host), "%s", host);
}

static struct session *session_find(struct sessions *all, const struct http_req *req,
                                    const char *name, const char *host) {
    char token[PASS_SIZE];
    return cookie_get(http_req_header(req, "cookie"), name, token, sizeof(token))
               ? token_find(all, token, host, false)
               : NULL;
}

const char *session_key_id(struct sessions *all, const struct http_req *req) {
    const struct session *s = session_find(all, req, "cay_session", "");
    return s ? s->key_id : NULL;
}

const char *session_pass_key_id(struct sessions *all, const struct http_req *req) {
    const struct session *s = session_find(all, req, "cay_pass", http_req_host(req));
    return s ? s->key_id : NULL;
}

void session_create(struct http_req *req, void *front) {
    struct front *f = front;
    const struct identity *who = front_identity(req);
    if (who->operator_) {
        http_respond_empty(req, 204); /* the operator needs no session */
        return;
    }
    char token[PASS_SIZE];
    token_create(f->sessions, who->key_id, "", false, token);
    char cookie[160];
    (void)snprintf(cookie, sizeof(cookie),
                   "cay_session=%s; Path=/; HttpOnly; SameSite=Strict; Max-Age=%d", token,
                   SESSION_MS / 1000);
    http_res_header(req, "Set-Cookie", cookie);
    http_respond_empty(req, 204);
}

void session_delete(struct http_req *req, void *front) {
    struct front *f = front;
    struct session *s = session_find(f->sessions, req, "cay_session", "");
    if (s)
        session_end(f->sessions, s);
    http_res_header(req, "Set-Cookie",
                    "cay_session=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    http_respond_empty(req, 204);
}

bool session_pass_create(struct http_req *req, struct front *f, const char *host,
                         char ret_token[PASS_SIZE]) {
    const struct identity *who = front_identity(req);
    if (who->operator_ || strlen(host) >= HOST_SIZE)
        return false;
    token_create(f->sessions, who->key_id, host, true, ret_token);
    return true;
}

/* Where the link leads to. What a browser would take for another host is not. */
static const char *pass_landing(const struct http_req *req) {
    const char *path = http_req_path(req);
    return path[0] == '/' && path[1] != '/' && path[1] != '\\' ? path : "/";
}

bool session_pass_enter(struct http_req *req, struct front *f) {
    _cleanup_(free) char *token = NULL;
    struct err err;
    if (http_req_method(req) != HTTP_METHOD_GET ||
        http_req_query_get(req, "cay_pass", &token, &err) < 0 || !token ||
        strlen(token) != PASS_SIZE - 1)
        return false;
    struct session *s = token_find(f->sessions, token, http_req_host(req), true);
    if (!s) {
        (void)err_set(&err, ERR_NOT_FOUND,
                      "this link was used already, or is too old: ask for a new one");
        http_respond_err(req, &err);
        return true;
    }
    struct session link = *s;
    session_end(f->sessions, s);
    char next[PASS_SIZE];
    char cookie[160];
    token_create(f->sessions, link.key_id, link.host, false, next);
    (void)snprintf(cookie, sizeof(cookie),
                   "cay_pass=%s; Path=/; HttpOnly; SameSite=Lax; Max-Age=%d", next,
                   SESSION_MS / 1000);
    http_res_header(req, "Set-Cookie", cookie);
    http_res_header(req, "Location", pass_landing(req));
    http_res_header(req, "Referrer-Policy", "no-referrer");
    http_respond_empty(req, 303);
    return true;
}
