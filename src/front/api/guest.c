#include "base/cleanup.h"
#include "base/mem.h"
#include "front/api/api.h"
#include "front/guard.h"
#include "front/run/workers.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Content that guests make, at NAME.localhost: never on our own origin. Credentials of ours are not
 * passed on, and headers that would reach over the origin are taken out of the answer. */

enum { BODY_MAX_BYTES = 16 << 20 };

struct fetch {
    struct front *front;
    struct http_req *req;
    struct guest_call *call;
    struct buf body;
    bool too_large;
    bool answered; /* the head of the answer is known */
    bool streaming;
    int status;
    char *type;
};

static void free_fetch(struct fetch *f) {
    buf_finish(&f->body);
    free(f->type);
    free(f);
}

static void fail(struct fetch *f, const struct err *err) {
    struct http_req *req = f->req;
    f->req = NULL;
    if (!req)
        return;
    http_req_on_gone(req, NULL, NULL);
    if (f->streaming)
        http_stream_break(req); /* the client must see that it is not whole */
    else
        http_respond_err(req, err);
}

static bool is_hop_by_hop(const char *name) {
    static const char *const names[] = {"connection",
                                        "keep-alive",
                                        "transfer-encoding",
                                        "upgrade",
                                        "te",
                                        "trailer",
                                        "proxy-connection",
                                        "content-length",
                                        "date",
                                        "proxy-authenticate",
                                        "x-content-type-options",
                                        "x-request-id",
                                        "content-type"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcasecmp(name, names[i]) == 0)
            return true;
    return false;
}

static bool is_ours(const char *name) {
    return strcasecmp(name, "authorization") == 0 || strcasecmp(name, "cookie") == 0;
}

static void on_response(void *ctx, const json_t *head) {
    struct fetch *f = ctx;
    struct http_req *req = f->req;
    if (!req || f->answered)
        return;
    int64_t status = 200;
    (void)json_get_int(head, "status", 200, 599, &status, NULL);
    const char *type = NULL;
    size_t i;
    const json_t *pair;
    json_array_foreach(json_object_get(head, "headers"), i, pair) {
        const char *name = json_string_value(json_array_get(pair, 0));
        const char *value = json_string_value(json_array_get(pair, 1));
        if (!name || !value)
            continue;
        if (strcasecmp(name, "content-type") == 0)
            type = value;
        else if (!is_hop_by_hop(name))
            http_res_header(req, name, value);
    }
    /* A type with control characters would split the head. */
    for (const char *p = type; p && *p; p++)
        if ((unsigned char)*p < ' ' || *p == 127) {
            type = NULL;
            break;
        }
    f->answered = true;
    f->status = (int)status;
    f->type = type ? xstrdup(type) : NULL;
}

/* A body that comes in one piece is sent with its length; others are streamed. */
static void on_body_out(void *ctx, const char *data, size_t len, bool last) {
    struct fetch *f = ctx;
    struct http_req *req = f->req;
    if (!req || !f->answered)
        return;
    if (last) {
        f->req = NULL;
        http_req_on_gone(req, NULL, NULL);
    }
    if (last && !f->streaming) {
        http_respond(req, f->status, f->type, data, len);
        return;
    }
    if (!f->streaming) {
        f->streaming = true;
        http_stream_begin(req, f->status, f->type);
    }
    (void)http_stream_write(req, data, len);
    if (last)
        http_stream_end(req);
}

static void on_error(void *ctx, const json_t *e) {
    struct err err;
    const char *message = json_string_value(json_object_get(e, "message"));
    const char *name = json_string_value(json_object_get(e, "name"));
    (void)err_set(&err, ERR_UPSTREAM, "the worker failed: %.60s: %.300s", name ? name : "Error",
                  message ? message : "");
    fail(ctx, &err);
}

static void on_done(void *ctx, const struct guest_usage *usage, const struct err *err) {
    (void)usage;
    struct fetch *f = ctx;
    struct err none;
    (void)err_set(&none, ERR_UPSTREAM, "the worker gave no response: export fetch(request, env)");
    fail(f, err ? err : &none);
    free_fetch(f);
}

static void on_gone(void *ctx) {
    struct fetch *f = ctx;
    struct http_req *req = f->req;
    f->req = NULL;
    if (f->streaming)
        http_stream_end(req);
    else
        http_respond_empty(req, 499);
    if (f->call)
        guest_call_cancel(f->call); /* on_done() frees f */
    else
        free_fetch(f);
}

static void write_request(struct json_writer *w, const struct http_req *req) {
    json_writer_object_begin(w);
    json_writer_key(w, "http");
    json_writer_object_begin(w);
    json_writer_key(w, "method");
    struct http_text m = http_req_method_text(req);
    json_writer_text(w, m.data, m.len);
    json_writer_key(w, "url");
    _cleanup_(free) char *url =
        xasprintf("http://%s%s%s%s", http_req_authority(req), http_req_path(req),
                  *http_req_query(req) ? "?" : "", http_req_query(req));
    json_writer_str(w, url);
    json_writer_key(w, "headers");
    json_writer_array_begin(w);
    const char *name;
    const char *value;
    for (size_t i = 0; http_req_header_at(req, i, &name, &value); i++) {
        if (is_ours(name))
            continue;
        json_writer_array_begin(w);
        json_writer_str(w, name);
        json_writer_str(w, value);
        json_writer_array_end(w);
    }
    json_writer_array_end(w);
    json_writer_object_end(w);
    json_writer_object_end(w);
}

static void on_body_end(void *ctx) {
    struct fetch *f = ctx;
    struct err err;
    if (f->too_large) {
        (void)err_set(&err, ERR_TOO_LARGE, "a request to a worker may have %d bytes",
                      BODY_MAX_BYTES);
        fail(f, &err);
        free_fetch(f);
        return;
    }
    const char *host = http_req_host(f->req);
    _cleanup_(free) char *label = xstrndup(host, strlen(host) - strlen(".localhost"));
    _cleanup_(buf) struct buf spec;
    buf_init(&spec, 1 << 20);
    struct json_writer w;
    json_writer_init(&w, &spec);
    write_request(&w, f->req);
    const struct identity *who = front_identity(f->req);
    struct workers_fetch fetch = {.label = label,
                                  .caller = who ? who->key_id : NULL,
                                  .caller_required =
                                      f->front->config->require_key || f->front->beyond_loopback};
    struct guest_request q = {.spec = spec.data,
                              .spec_len = spec.len,
                              .body = f->body.data,
                              .body_len = f->body.len,
                              .wall_ms = f->front->runner->config.limits.wall_ms,
                              .callbacks = {.on_response = on_response,
                                            .on_body = on_body_out,
                                            .on_error = on_error,
                                            .on_done = on_done},
                              .ctx = f};
    if (workers_call_label(f->front->workers, &fetch, &q, &f->call, &err) < 0) {
        fail(f, &err);
        free_fetch(f);
    }
}

static void on_body(void *ctx, const char *data, size_t len) {
    struct fetch *f = ctx;
    if (!buf_add(&f->body, data, len))
        f->too_large = true;
}

void api_guest(struct http_req *req, void *ctx) {
    if (api_port(req, ctx))
        return;
    struct fetch *f = xcalloc(1, sizeof(*f));
    f->front = ctx;
    f->req = req;
    buf_init(&f->body, BODY_MAX_BYTES);
    http_req_on_gone(req, on_gone, f);
    http_req_on_body(req, on_body, on_body_end, f);
}
