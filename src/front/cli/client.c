#include "front/cli/client.h"

#include "base/cleanup.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { ANSWER_MAX_BYTES = 64 << 20, ERROR_MAX_BYTES = 64 << 10, CONNECTIONS = 8 };

/* What client_call() waits for. */
struct client_waiting {
    bool over;
    struct buf body;
    struct err err;
};

struct client_request {
    struct client *client;
    struct fetch *fetch;
    struct client_call call;
    struct sse sse;
    struct buf body;
    struct err err;
    int status;
    struct client_waiting *waiting; /* or NULL: on_end is called */
};

static enum err_code client_code_of(int status) {
    static const struct {
        int status;
        enum err_code code;
    } codes[] = {{400, ERR_BAD_REQUEST}, {401, ERR_UNAUTHORIZED}, {403, ERR_FORBIDDEN},
                 {404, ERR_NOT_FOUND},   {409, ERR_CONFLICT},     {413, ERR_TOO_LARGE},
                 {429, ERR_RATE},        {503, ERR_UNAVAILABLE},  {504, ERR_TIMEOUT},
                 {507, ERR_FULL}};
    for (size_t i = 0; i < ARRAY_LEN(codes); i++)
        if (codes[i].status == status)
            return codes[i].code;
    return status >= 500 ? ERR_UPSTREAM : ERR_BAD_REQUEST;
}

int client_refusal(int status, const char *body, size_t len, struct err *err) {
    _cleanup_(json) json_t *j = json_read(body ? body : "", len);
    const char *message = client_text(json_object_get(j, "error"), "message");
    const char *hint = status == 401 ? " (set CAY_API_KEY)" : "";
    if (*message)
        return err_set(err, client_code_of(status), "%s%s", message, hint);
    return err_set(err, client_code_of(status), "the server answered with status %d%s", status,
                   hint);
}

static void client_on_head(void *ctx, struct fetch *f, int status) {
    struct client_request *r = ctx;
    (void)f;
    r->status = status;
}

static void finish_request(struct client_request *r) {
    sse_finish(&r->sse);
    buf_finish(&r->body);
    free(r);
}

static void client_on_data(void *ctx, const char *data, size_t len) {
    struct client_request *r = ctx;
    bool streams = r->call.on_data || r->call.on_event;
    if (r->status >= 300 || !streams || r->err.code) {
        (void)buf_add(&r->body, data, len);
        return;
    }
    if (r->call.on_data && r->call.on_data(r->call.ctx, data, len, &r->err) < 0 && !r->err.code)
        (void)err_set(&r->err, ERR_CANCELLED, "given up");
    if (r->call.on_event && !r->err.code)
        (void)sse_feed(&r->sse, data, len, &r->err);
}

static ssize_t client_on_body(void *ctx, char *out, size_t size) {
    struct client_request *r = ctx;
    return r->call.on_body(r->call.ctx, out, size);
}

static void client_on_end(void *ctx, const struct err *err) {
    struct client_request *r = ctx;
    r->fetch = NULL;
    if (!r->err.code && err) {
        r->err = *err;
        if (r->status == 0)
            (void)err_set(&r->err, err->code, "%s: %s (is `cay serve` running there? --url)",
                          r->client->base, err->message);
    }
    if (!r->err.code && (r->status < 200 || r->status > 299))
        (void)client_refusal(r->status, r->body.data, r->body.len, &r->err);
    if (!r->err.code && r->body.full)
        (void)err_set(&r->err, ERR_TOO_LARGE, "the answer exceeds %d bytes", ANSWER_MAX_BYTES);
    if (r->waiting) {
        *r->waiting = (struct client_waiting){.over = true, .body = r->body, .err = r->err};
        r->body = (struct buf){0};
    } else if (r->call.on_end) {
        r->call.on_end(r->call.ctx, r->err.code ? &r->err : NULL);
    }
    finish_request(r);
}

int client_start(struct client *c, const struct client_call *call,
                 struct client_request **ret_request, struct err *err) {
    struct client_request *r = xcalloc(1, sizeof(*r));
    _cleanup_(free) char *url = xasprintf("%s%s", c->base, call->path);
    _cleanup_(free) char *json = call->json ? json_dumps(call->json, JSON_COMPACT) : NULL;
    bool raw = call->body || call->on_body;
    const char *type = json ? "application/json" : "application/octet-stream";
    const char *accept = call->on_event ? "text/event-stream" : "application/json";
    struct fetch_header headers[4] = {
        {.name = "Accept", .value = call->accept ? call->accept : accept}};
    size_t n = 1;
    if (json || raw)
        headers[n++] = (struct fetch_header){.name = "Content-Type", .value = type};
    if (c->auth)
        headers[n++] =
            (struct fetch_header){.name = "Authorization", .value = c->auth, .secret = true};
    if (call->header.value)
        headers[n++] = call->header;
    /* Some servers want a length with every POST. */
    bool empty = !json && !raw && call->method &&
                 (strcmp(call->method, "POST") == 0 || strcmp(call->method, "PUT") == 0);
    r->client = c;
    r->call = *call;
    buf_init(&r->body, call->on_data || call->on_event ? ERROR_MAX_BYTES : ANSWER_MAX_BYTES);
    sse_init(&r->sse, call->max_event_bytes, call->on_event, call->ctx);
    int rc = fetch_start(c->pool,
                         &(struct fetch_options){.url = url,
                                                 .unix_path = c->unix_path,
                                                 .method = call->method,
                                                 .headers = headers,
                                                 .nheaders = n,
                                                 .body = json    ? json
                                                         : empty ? ""
                                                                 : call->body,
                                                 .body_len = json ? strlen(json) : call->body_len,
                                                 .on_body = call->on_body ? client_on_body : NULL,
                                                 .on_head = client_on_head,
                                                 .on_data = client_on_data,
                                                 .on_end = client_on_end,
                                                 .ctx = r},
                         &r->fetch, err);
    if (rc < 0)
        finish_request(r);
    else if (ret_request)
        *ret_request = r;
    return rc;
}

void client_cancel(struct client_request *r) {
    if (!r)
        return;
    fetch_cancel(r->fetch);
    finish_request(r);
}

int client_call(struct client *c, const struct client_call *call, json_t **ret_json,
                struct err *err) {
    struct client_waiting w = {0};
    struct client_request *r;
    int rc = client_start(c, call, &r, err);
    if (rc < 0)
        return rc;
    r->waiting = &w;
    while (!w.over)
        (void)uv_run(&c->loop, UV_RUN_ONCE);
    if (w.err.code) {
        *err = w.err;
        rc = -(int)w.err.code;
    } else if (ret_json) {
        *ret_json = NULL;
        if (w.body.len > 0)
            rc = json_parse(w.body.data, w.body.len, "the server's answer", ret_json, err);
    }
    buf_finish(&w.body);
    return rc;
}

const char *client_default_url(void) {
    const char *set = getenv("CAY_URL");
    return set && *set ? set : "http://127.0.0.1:8787";
}

int client_init(struct client *c, const char *url, struct err *err) {
    *c = (struct client){0};
    const char *key = getenv("CAY_API_KEY");
    if (!url)
        url = client_default_url();
    size_t n = strlen(url);
    while (n > 0 && url[n - 1] == '/')
        n--;
    bool local = strncmp(url, "unix:", 5) == 0 && url[5];
    if (!local && strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0)
        return err_set(err, ERR_BAD_REQUEST,
                       "--url is http://HOST:PORT, https://HOST[:PORT] or unix:PATH");
    (void)uv_loop_init(&c->loop);
    int rc = fetch_pool_create(&c->loop, CONNECTIONS, &c->pool, err);
    if (rc < 0) {
        (void)uv_loop_close(&c->loop);
        return rc;
    }
    c->base = local ? xstrdup("http://localhost") : xstrndup(url, n);
    c->unix_path = local ? xstrdup(url + 5) : NULL;
    c->auth = key && *key ? xasprintf("Bearer %s", key) : NULL;
    return 0;
}

void client_finish(struct client *c) {
    if (!c->base)
        return;
    fetch_pool_close(c->pool, NULL, NULL);
    (void)uv_run(&c->loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&c->loop);
    if (c->auth)
        mem_wipe(c->auth, strlen(c->auth));
    free(c->auth);
    free(c->base);
    free(c->unix_path);
    *c = (struct client){0};
}

const char *client_text(const json_t *j, const char *key) {
    const char *s = json_string_value(json_object_get(j, key));
    return s ? s : "";
}

static void client_encode_but(struct buf *b, const char *text, const char *but) {
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~";
    for (const char *p = text; *p; p++)
        if (strchr(plain, *p) || strchr(but, *p))
            (void)buf_add_char(b, *p);
        else
            (void)buf_addf(b, "%%%02X", (unsigned char)*p);
}

void client_encode(struct buf *b, const char *text) {
    client_encode_but(b, text, "/");
}

void client_encode_name(struct buf *b, const char *text) {
    client_encode_but(b, text, "");
}
