#include "front/task/hooks.h"

#include "base/address.h"
#include "base/base64.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "loop/fetch.h"
#include "wire/egress.h"

#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    CONNECTIONS = 16,
    UNDER_WAY_MAX = 16,
    PER_KEY = 12,       /* of them */
    TIMEOUT_MS = 10000, /* well within the lease of a message */
    ANSWER_BYTES = 65536,
    SECRET_MIN = 16,
    SECRET_MAX = 64,
    URL_MAX = 2000,
    IDLE_MS = 10000, /* those of a server that died are found */
};

/* How long after each failure; then it is given up: after half a day. */
static const int64_t retry_ms[] = {1000,    5000,    30000,    120000,  600000,
                                   1800000, 3600000, 14400000, 21600000};

struct hooks {
    struct hooks_options opt;
    struct fetch_pool *pool;
    uv_timer_t timer;
    struct hook_post *posts;
    size_t under_way;
    bool claiming;
    bool again; /* a hint came while it was claiming */
    bool closed;
    int holds; /* what keeps its memory: the timer, the pool, an answer that is waited for */
};

struct hook_post {
    struct hook_post *next;
    struct hooks *hooks;
    struct ledger_hook hook;
    int status;
    const char *refusal; /* of its address */
    bool private;
};

static void task_hooks_claim(struct hooks *h);

/* --- what is signed --- */

static int secret_of(const char *text, unsigned char out[SECRET_MAX + 3], size_t *ret_len) {
    size_t n = strlen(text);
    if (strncmp(text, "whsec_", 6) != 0 || n - 6 > BASE64_SIZE(SECRET_MAX) ||
        !base64_decode((char *)out, text + 6, n - 6, ret_len) || *ret_len < SECRET_MIN ||
        *ret_len > SECRET_MAX)
        return -1;
    return 0;
}

int hooks_check_secret(const char *secret, struct err *err) {
    unsigned char key[SECRET_MAX + 3];
    size_t n;
    int rc = secret_of(secret, key, &n);
    mem_wipe(key, sizeof(key));
    return rc < 0 ? err_set(err, ERR_BAD_REQUEST,
                            "a webhook's \"secret\" is \"whsec_\" and the base64 of %d to %d bytes",
                            SECRET_MIN, SECRET_MAX)
                  : 0;
}

static int read_url(const char *url, char **ret_host, uint32_t *ret_port) {
    bool tls;
    const char *path;
    _cleanup_(free) char *without = xstrndup(url, strcspn(url, "?")); /* its query */
    return egress_url_parse(without, &tls, ret_host, ret_port, &path, NULL);
}

int hooks_check_url(const char *url, struct err *err) {
    _cleanup_(free) char *host = NULL;
    uint32_t port;
    bool visible = true;
    for (const char *p = url; *p; p++)
        visible = visible && *p > ' ' && *p <= '~';
    if (strlen(url) > URL_MAX || !visible || strpbrk(url, "@#") || read_url(url, &host, &port) < 0)
        return err_set(err, ERR_BAD_REQUEST,
                       "a webhook's \"url\" is http:// or https:// with at most %d bytes, and has "
                       "no user and no fragment",
                       URL_MAX);
    return 0;
}

char *hooks_sign(const char *secret, const char *id, const char *timestamp, const char *body) {
    unsigned char key[SECRET_MAX + 3];
    unsigned char mac[EVP_MAX_MD_SIZE];
    unsigned mac_len = 0;
    size_t n;
    if (secret_of(secret, key, &n) < 0)
        return NULL;
    _cleanup_(free) char *text = xasprintf("%s.%s.%s", id, timestamp, body);
    (void)HMAC(EVP_sha256(), key, (int)n, (const unsigned char *)text, strlen(text), mac, &mac_len);
    mem_wipe(key, sizeof(key));
    char *out = xcalloc(1, 3 + BASE64_SIZE(mac_len) + 1);
    (void)snprintf(out, 4, "v1,");
    base64_encode(out + 3, (const char *)mac, mac_len);
    return out;
}

/* --- sending --- */

static void task_hooks_release(struct hooks *h) {
    if (--h->holds == 0)
        free(h);
}

static void task_hooks_free_post(struct hook_post *p) {
    struct hook_post **at = &p->hooks->posts;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    p->hooks->under_way--;
    ledger_hook_finish(&p->hook);
    free(p);
}

static void task_hooks_on_noted(void *ctx, const struct ledger_answer *a) {
    struct hooks *h = ctx;
    if (a->err.code && a->err.code != ERR_CANCELLED)
        log_warn("webhook.note", "error", a->err.message); /* it is sent again, with the same id */
    if (!h->closed)
        hooks_hint(h);
    task_hooks_release(h);
}

static void task_hooks_note(struct hook_post *p, enum ledger_hook_outcome outcome,
                            const char *error, int64_t after_ms) {
    struct hooks *h = p->hooks;
    h->holds++;
    ledger_call(h->opt.ledger,
                &(struct ledger_ask){.op = LEDGER_HOOK_END,
                                     .hook_end = {.seq = p->hook.seq,
                                                  .tries = p->hook.tries,
                                                  .outcome = outcome,
                                                  .error = error,
                                                  .retry_ms = after_ms}},
                task_hooks_on_noted, h);
}

static void task_hooks_on_end(void *ctx, const struct err *err) {
    struct hook_post *p = ctx;
    char text[200];
    size_t tries = (size_t)p->hook.tries;
    bool over = tries > ARRAY_LEN(retry_ms) || p->refusal;
    if (p->refusal)
        (void)text_print(text, sizeof(text), "its address is %s: list it in \"private_webhooks\"",
                         p->refusal);
    else if (err)
        (void)text_print(text, sizeof(text), "%s", err->message);
    else
        (void)text_print(text, sizeof(text), "it answered with %d", p->status);
    if (!err && p->status / 100 == 2)
        task_hooks_note(p, LEDGER_HOOK_DELIVERED, NULL, 0);
    else
        task_hooks_note(p, over ? LEDGER_HOOK_FAILED : LEDGER_HOOK_RETRY, text,
                        over ? 0 : retry_ms[MAX(tries, 1) - 1]);
    task_hooks_free_post(p);
}

static void task_hooks_on_head(void *ctx, struct fetch *f, int status) {
    (void)f;
    ((struct hook_post *)ctx)->status = status;
}

static void task_hooks_on_data(void *ctx, const char *data, size_t len) {
    (void)ctx;
    (void)data;
    (void)len;
}

static bool task_hooks_on_address(void *ctx, const struct sockaddr *address) {
    struct hook_post *p = ctx;
    if (!p->private)
        p->refusal = address_refusal(address);
    return !p->refusal;
}

static bool task_hooks_is_listed(const struct hooks *h, const char *url) {
    _cleanup_(free) char *host = NULL;
    uint32_t port = 0;
    size_t i;
    const json_t *v;
    if (read_url(url, &host, &port) < 0)
        return false;
    bool v6 = strchr(host, ':') != NULL;
    _cleanup_(free) char *authority =
        xasprintf("%s%s%s:%u", v6 ? "[" : "", host, v6 ? "]" : "", (unsigned)port);
    json_array_foreach(h->opt.private_hosts, i, v) {
        if (strcasecmp(json_string_value(v), authority) == 0)
            return true;
    }
    return false;
}

static int send_post(struct hook_post *p, struct err *err) {
    char time[24];
    (void)snprintf(time, sizeof(time), "%lld", (long long)(clock_wall_ms() / 1000));
    _cleanup_(free) char *signature = hooks_sign(p->hook.secret, p->hook.event, time, p->hook.body);
    if (!signature)
        return err_set(err, ERR_INTERNAL, "its secret is none");
    const struct fetch_header headers[] = {
        {.name = "Content-Type", .value = "application/json"},
        {.name = "User-Agent", .value = "cay/" CAY_VERSION},
        {.name = "webhook-id", .value = p->hook.event},
        {.name = "webhook-timestamp", .value = time},
        {.name = "webhook-signature", .value = signature},
    };
    struct fetch *f;
    return fetch_start(p->hooks->pool,
                       &(struct fetch_options){.url = p->hook.url,
                                               .headers = headers,
                                               .nheaders = ARRAY_LEN(headers),
                                               .body = p->hook.body,
                                               .body_len = strlen(p->hook.body),
                                               .alone = true,
                                               .total_timeout_ms = TIMEOUT_MS,
                                               .max_body_bytes = ANSWER_BYTES,
                                               .on_address = task_hooks_on_address,
                                               .on_head = task_hooks_on_head,
                                               .on_data = task_hooks_on_data,
                                               .on_end = task_hooks_on_end,
                                               .ctx = p},
                       &f, err);
}

static void task_hooks_post(struct hooks *h, const struct ledger_hook *hook) {
    struct hook_post *p = xcalloc(1, sizeof(*p));
    struct err err;
    *p = (struct hook_post){.next = h->posts, .hooks = h, .hook = *hook};
    p->hook.url = xstrdup(hook->url);
    p->hook.secret = xstrdup(hook->secret);
    p->hook.body = xstrdup(hook->body);
    p->private = task_hooks_is_listed(h, hook->url);
    h->posts = p;
    h->under_way++;
    if (send_post(p, &err) < 0)
        task_hooks_on_end(p, &err);
}

/* --- the outbox --- */

static void task_hooks_on_timer(uv_timer_t *t) {
    hooks_hint(t->data);
}

static void task_hooks_on_claimed(void *ctx, const struct ledger_answer *a) {
    struct hooks *h = ctx;
    const struct ledger_hook_claimed *c = &a->hook_claimed;
    bool done = a->err.code == 0;
    h->claiming = false;
    if (!h->closed) {
        bool due = done && c->next_ms >= 0;
        int64_t wait = due ? MIN(MAX(c->next_ms, 10), IDLE_MS) : IDLE_MS;
        (void)uv_timer_start(&h->timer, task_hooks_on_timer, (uint64_t)wait, 0);
        for (size_t i = 0; done && i < c->n; i++)
            task_hooks_post(h, &c->hooks[i]);
        if (h->again)
            task_hooks_claim(h);
    }
    task_hooks_release(h);
}

static void task_hooks_claim(struct hooks *h) {
    h->again = false;
    if (h->under_way >= UNDER_WAY_MAX)
        return;
    h->claiming = true;
    h->holds++;
    ledger_call(h->opt.ledger,
                &(struct ledger_ask){
                    .op = LEDGER_HOOK_CLAIM,
                    .hook_claim = {.limit = UNDER_WAY_MAX - h->under_way, .per_key = PER_KEY}},
                task_hooks_on_claimed, h);
}

void hooks_hint(struct hooks *h) {
    if (!h)
        return;
    if (h->claiming)
        h->again = true;
    else if (!h->closed)
        task_hooks_claim(h);
}

struct hooks *hooks_create(const struct hooks_options *options) {
    struct hooks *h = xcalloc(1, sizeof(*h));
    struct err err;
    h->opt = *options;
    h->holds = 1;
    (void)uv_timer_init(options->loop, &h->timer);
    h->timer.data = h;
    if (fetch_pool_create(options->loop, CONNECTIONS, &h->pool, &err) == 0)
        h->holds++;
    else
        log_error("webhooks.failed", "error", err.message);
    hooks_hint(h);
    return h;
}

static void task_hooks_on_timer_closed(uv_handle_t *t) {
    task_hooks_release(t->data);
}

static void task_hooks_on_pool_closed(void *ctx) {
    struct hooks *h = ctx;
    while (h->posts)
        // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the call takes it out of the list
        task_hooks_free_post(h->posts);
    task_hooks_release(h);
}

void hooks_close(struct hooks *h) {
    if (!h)
        return;
    h->closed = true;
    uv_close((uv_handle_t *)&h->timer, task_hooks_on_timer_closed);
    if (h->pool)
        fetch_pool_close(h->pool, task_hooks_on_pool_closed, h);
}
