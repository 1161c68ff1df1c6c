#include "base/cleanup.h"
#include "base/mem.h"
#include "front/api/api.h"
#include "front/http/fields.h"
#include "front/run/workers.h"
#include "front/server/guard.h"
#include "http1/field.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Content that guests make, at NAME.localhost: never on our own origin. Credentials of ours are not
 * passed on, and headers that would reach over the origin are taken out of the answer. */

enum { WHOLE_MAX_BYTES = 64 << 10 /* a larger body streams */ };

struct worker_fetch {
    struct front *front;
    struct http_req *req; /* NULL when it was answered */
    struct guest_call *call;
    char *label;
    struct buf body; /* a small one, until it is whole */
    bool stream;     /* the body goes on to the worker as it comes */
    bool answered;   /* the head of the answer is known */
    bool streaming;
    int status;
    char *type;
    int64_t length; /* of the answer, -1: not known */
    size_t unread;  /* of the answer, by the client */
};

static void free_fetch(struct worker_fetch *f) {
    buf_finish(&f->body);
    free(f->label);
    free(f->type);
    free(f);
}

static void api_guest_fail(struct worker_fetch *f, const struct err *err) {
    struct http_req *req = f->req;
    f->req = NULL;
    if (!req)
        return;
    if (f->streaming)
        http_stream_break(req); /* the client must see that it is not whole */
    else
        http_respond_err(req, err);
}

static void api_guest_on_response(void *ctx, const json_t *head) {
    struct worker_fetch *f = ctx;
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
        else if (!http1_is_hop_by_hop(name, NULL) && !field_is_ours(name) &&
                 (strcasecmp(name, "set-cookie") != 0 || field_cookie_is_fine(value)))
            http_res_header(req, name, value);
    }
    /* A type with control characters would split the head. */
    for (const char *p = type; p && *p; p++)
        if ((unsigned char)*p < ' ' || *p == 127) {
            type = NULL;
            break;
        }
    f->answered = true;
    f->length = -1;
    (void)json_get_int(head, "length", 0, INT64_MAX, &f->length, NULL);
    f->status = (int)status;
    f->type = type ? xstrdup(type) : NULL;
}

/* The client has read what it was sent. */
static void api_guest_on_drain(void *ctx) {
    struct worker_fetch *f = ctx;
    size_t unread = f->unread;
    f->unread = 0;
    guest_call_passed(f->call, unread);
}

static void api_guest_begin_stream(struct worker_fetch *f) {
    f->streaming = true;
    if (f->length >= 0)
        http_stream_length(f->req, (uint64_t)f->length);
    http_stream_begin(f->req, f->status, f->type);
    http_stream_on_drain(f->req, api_guest_on_drain, f);
}

/* A body that comes in one piece is sent with its length; others are streamed, as fast as the
 * client reads. */
static void api_guest_on_body_out(void *ctx, const char *data, size_t len, bool last) {
    struct worker_fetch *f = ctx;
    struct http_req *req = f->req;
    if (!req || !f->answered)
        return;
    if (last)
        f->req = NULL;
    if (last && !f->streaming) {
        http_respond(req, f->status, f->type, data, len);
        return;
    }
    if (!f->streaming)
        api_guest_begin_stream(f);
    f->unread += len;
    bool more = http_stream_write(req, data, len);
    if (last)
        http_stream_end(req);
    else if (more)
        api_guest_on_drain(f);
}

static void api_guest_on_error(void *ctx, const json_t *e) {
    struct err err;
    const char *message = json_string_value(json_object_get(e, "message"));
    const char *name = json_string_value(json_object_get(e, "name"));
    (void)err_set(&err, ERR_UPSTREAM, "the worker failed: %.60s: %.300s", name ? name : "Error",
                  message ? message : "");
    api_guest_fail(ctx, &err);
}

static void api_guest_on_done(void *ctx, const struct guest_usage *usage, const struct err *err) {
    (void)usage;
    struct worker_fetch *f = ctx;
    struct err none;
    (void)err_set(&none, ERR_UPSTREAM, "the worker gave no response: export fetch(request, env)");
    api_guest_fail(f, err ? err : &none);
    free_fetch(f);
}

static void api_guest_on_gone(void *ctx) {
    struct worker_fetch *f = ctx;
    struct http_req *req = f->req;
    f->req = NULL;
    if (f->streaming)
        http_stream_end(req);
    else
        http_respond_empty(req, 499);
    if (f->call)
        guest_call_cancel(f->call); /* api_guest_on_done() frees f */
    else
        free_fetch(f);
}

static void api_guest_write_request(struct json_writer *w, const struct http_req *req,
                                    bool stream) {
    json_writer_object_begin(w);
    json_put_object_begin(w, "http");
    struct http_text m = http_req_method_text(req);
    json_put_text(w, "method", m.data, m.len);
    _cleanup_(free) char *url =
        xasprintf("http://%s%s%s%s", http_req_authority(req), http_req_path(req),
                  *http_req_query(req) ? "?" : "", http_req_query(req));
    json_put_str(w, "url", url);
    json_put_array_begin(w, "headers");
    const char *name;
    const char *value;
    for (size_t i = 0; http_req_header_at(req, i, &name, &value); i++) {
        _cleanup_(free) char *cookies =
            strcasecmp(name, "cookie") == 0 ? field_guest_cookies(value) : NULL;
        if ((strcasecmp(name, "cookie") == 0 && !cookies) ||
            (strcasecmp(name, "authorization") == 0 && field_is_our_key(value)))
            continue;
        json_writer_array_begin(w);
        json_writer_str(w, name);
        json_writer_str(w, cookies ? cookies : value);
        json_writer_array_end(w);
    }
    json_writer_array_end(w);
    if (stream)
        json_put_bool(w, "stream", true);
    json_writer_object_end(w);
    json_writer_object_end(w);
}

static struct workers_fetch target_of(const struct worker_fetch *f) {
    const struct identity *who = front_identity(f->req);
    return (struct workers_fetch){
        .label = f->label, .caller = who ? who->project : NULL, .all = who && who->operator_};
}

static void api_guest_on_room(void *ctx) {
    const struct worker_fetch *f = ctx;
    if (f->req)
        http_req_body_resume(f->req);
}

static void start_call(struct worker_fetch *f) {
    struct err err;
    _cleanup_(buf) struct buf spec;
    buf_init(&spec, 1 << 20);
    struct json_writer w;
    json_writer_init(&w, &spec);
    api_guest_write_request(&w, f->req, f->stream);
    struct workers_fetch target = target_of(f);
    struct guest_request q = {.spec = spec.data,
                              .spec_len = spec.len,
                              .body = f->body.data,
                              .body_len = f->body.len,
                              .wall_ms = f->front->runner->config.limits.wall_ms,
                              .callbacks = {.on_response = api_guest_on_response,
                                            .on_body = api_guest_on_body_out,
                                            .on_room = api_guest_on_room,
                                            .on_error = api_guest_on_error,
                                            .on_done = api_guest_on_done},
                              .ctx = f};
    if (workers_call_label(f->front->workers, &target, &q, &f->call, &err) < 0) {
        api_guest_fail(f, &err);
        free_fetch(f);
    }
}

static void api_guest_on_input(struct worker_fetch *f, const char *data, size_t len, bool last) {
    /* Nobody reads the rest of a body whose request was answered. */
    if (f->req && !guest_call_input(f->call, data, len, last) && !last)
        http_req_body_pause(f->req);
}

static void api_guest_on_body(void *ctx, const char *data, size_t len) {
    struct worker_fetch *f = ctx;
    if (f->stream)
        api_guest_on_input(f, data, len, false);
    else
        (void)buf_add(&f->body, data, len);
}

static void api_guest_on_body_end(void *ctx) {
    struct worker_fetch *f = ctx;
    if (f->stream)
        api_guest_on_input(f, NULL, 0, true);
    else
        start_call(f);
}

/* A body that is small, or none, is handed over whole. */
static bool api_guest_is_large(const struct http_req *req) {
    const char *length = http_req_header(req, "content-length");
    return length ? strtoull(length, NULL, 10) > WHOLE_MAX_BYTES
                  : http_req_header(req, "transfer-encoding") != NULL;
}

/* A worker lives as long as the key that put it; what strangers ask of it counts as that key's. */
static int admit_owner(const struct worker_fetch *f, const struct workers_whose *whose,
                       int64_t *wait_s, struct err *err) {
    const struct identity *who = front_identity(f->req);
    if (who && strcmp(who->project, whose->owner) == 0)
        return 0;
    int rc = who ? guard_check_key(f->front, whose->key, err)
                 : guard_admit(f->front, whose->key, wait_s, err);
    return rc == -(int)ERR_UNAUTHORIZED
               ? err_set(err, ERR_NOT_FOUND, "there is no worker at this host name")
               : rc;
}

/* False: it was answered. */
static bool api_guest_admit(struct worker_fetch *f) {
    struct workers_fetch target = target_of(f);
    struct err err;
    struct workers_whose whose;
    int64_t wait_s = 0;
    int rc = workers_check_label(f->front->workers, &target, &whose, &err);
    if (rc == 0)
        rc = admit_owner(f, &whose, &wait_s, &err);
    if (rc == -(int)ERR_RATE)
        guard_respond_rate(f->req, wait_s, &err);
    else if (rc < 0)
        http_respond_err(f->req, &err);
    return rc == 0;
}

void api_guest(struct http_req *req, void *ctx) {
    if (api_port(req, ctx))
        return;
    struct worker_fetch *f = xcalloc(1, sizeof(*f));
    const char *host = http_req_host(req);
    f->front = ctx;
    f->req = req;
    f->label = xstrndup(host, strlen(host) - strlen(".localhost"));
    f->stream = api_guest_is_large(req);
    buf_init(&f->body, WHOLE_MAX_BYTES);
    if (!api_guest_admit(f)) { /* before any of its body is read */
        free_fetch(f);
        return;
    }
    http_req_on_gone(req, api_guest_on_gone, f);
    http_req_on_body(req, api_guest_on_body, api_guest_on_body_end, f);
    if (f->stream)
        start_call(f);
}
