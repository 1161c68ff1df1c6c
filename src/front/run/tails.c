#include "front/run/tails.h"

#include "base/cleanup.h"
#include "base/log.h"
#include "base/mem.h"
#include "loop/fetch.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { CONNECTIONS = 8, UNDER_WAY_MAX = 64, TIMEOUT_MS = 10000, TAILS_MAX = 8 };

struct tails {
    struct fetch_pool *pool;
    struct store *store;
    char *const *origins;
    size_t norigins;
    struct post *posts; /* under way */
    size_t under_way;
};

struct post {
    struct post *next;
    struct tails *tails;
    char *run_id;
    char *url;
    int status;
};

struct tails *tails_create(uv_loop_t *loop, struct store *store, char *const *origins,
                           size_t norigins) {
    struct tails *t = xcalloc(1, sizeof(*t));
    struct err err;
    t->store = store;
    t->origins = origins;
    t->norigins = norigins;
    if (norigins > 0 && fetch_pool_create(loop, CONNECTIONS, &t->pool, &err) < 0)
        log_error("tails.failed", "error", err.message);
    return t;
}

static void tails_free_post(struct post *p) {
    free(p->run_id);
    free(p->url);
    free(p);
}

static void tails_on_pool_closed(void *ctx) {
    struct tails *t = ctx;
    struct post *next;
    for (struct post *p = t->posts; p; p = next) {
        next = p->next;
        tails_free_post(p);
    }
    free(t);
}

void tails_close(struct tails *t) {
    if (t && t->pool)
        fetch_pool_close(t->pool, tails_on_pool_closed, t);
    else
        free(t);
}

static bool tails_is_listed(const struct tails *t, const char *url) {
    for (size_t i = 0; i < t->norigins; i++) {
        size_t n = strlen(t->origins[i]);
        if (strncasecmp(url, t->origins[i], n) == 0 && (url[n] == 0 || strchr("/?", url[n])))
            return true;
    }
    return false;
}

int tails_check(const struct tails *t, const json_t *list, struct err *err) {
    size_t i;
    const json_t *tail;
    if (json_array_size(list) > TAILS_MAX)
        return err_set(err, ERR_BAD_REQUEST, "a run can have %d tails at most", TAILS_MAX);
    json_array_foreach(list, i, tail) {
        const char *url = NULL;
        const char *run = NULL;
        int rc = json_get_str(tail, "url", &url, err);
        if (rc == 0)
            rc = json_get_str(tail, "run", &run, err);
        if (rc < 0)
            return err_wrap(err, "a tail");
        if (url && !tails_is_listed(t, url))
            return err_set(err, ERR_FORBIDDEN,
                           "traces may not go to %.200s: its origin is not among \"tail_origins\" "
                           "in cay.json",
                           url);
        if (!url && !run)
            return err_set(
                err, ERR_BAD_REQUEST,
                "a tail must be {\"run\": id} or {\"url\": url}: who receives the trace");
    }
    return 0;
}

static void tails_on_head(void *ctx, struct fetch *f, int status) {
    (void)f;
    struct post *p = ctx;
    p->status = status;
}

static void tails_on_data(void *ctx, const char *data, size_t len) {
    (void)ctx;
    (void)data;
    (void)len;
}

static void tails_note(struct post *p, const char *error) {
    _cleanup_(json) json_t *event =
        error ? json_pack("{s:s,s:s}", "url", p->url, "error", error)
              : json_pack("{s:s,s:i}", "url", p->url, "status", p->status);
    _cleanup_(free) char *text = event ? json_dumps(event, JSON_COMPACT) : NULL;
    struct err err;
    if (text)
        (void)store_event_add(p->tails->store, p->run_id, "tail_sent", text, strlen(text), &err);
    if (error)
        log_warn("tail.failed", "run", p->run_id, "url", p->url, "error", error);
}

static void tails_on_end(void *ctx, const struct err *err) {
    struct post *p = ctx;
    tails_note(p, err ? err->message : p->status / 100 != 2 ? "the receiver refused it" : NULL);
    struct post **at = &p->tails->posts;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    p->tails->under_way--;
    tails_free_post(p);
}

void tails_post(struct tails *t, const char *run_id, const char *url, const char *record,
                size_t len) {
    struct post *p = xcalloc(1, sizeof(*p));
    *p = (struct post){.tails = t, .run_id = xstrdup(run_id), .url = xstrdup(url)};
    static const struct fetch_header headers[] = {
        {.name = "Content-Type", .value = "application/json"}};
    struct fetch_options o = {.url = url,
                              .headers = headers,
                              .nheaders = ARRAY_LEN(headers),
                              .body = record,
                              .body_len = len,
                              .total_timeout_ms = TIMEOUT_MS,
                              .max_body_bytes = 65536,
                              .on_head = tails_on_head,
                              .on_data = tails_on_data,
                              .on_end = tails_on_end,
                              .ctx = p};
    struct err err;
    struct fetch *f;
    p->next = t->posts;
    t->posts = p;
    t->under_way++;
    int rc = 0;
    if (t->under_way > UNDER_WAY_MAX)
        rc = err_set(&err, ERR_LIMIT, "%d traces are on their way already", UNDER_WAY_MAX);
    else
        rc = fetch_start(t->pool, &o, &f, &err);
    if (rc < 0)
        tails_on_end(p, &err);
}
