#include "base/cleanup.h"
#include "base/mem.h"
#include "front/api/api.h"
#include "front/api/sandbox.h"
#include "front/http/follower.h"
#include "front/sandbox/files.h"

#include <stdlib.h>

/* Folders of a sandbox as tar archives. */

struct tar {
    struct http_follower out;
    struct archive *archive;               /* NULL: it has ended */
    void (*respond)(struct http_req *req); /* when it is unpacked */
};

static enum http_next tar_next(void *ctx) {
    struct tar *t = ctx;
    archive_resume(t->archive);
    return HTTP_NEXT_WAIT;
}

static void tar_end(void *ctx) {
    struct tar *t = ctx;
    if (!t->out.streams)
        t->respond(t->out.req);
}

static void tar_free(void *ctx) {
    struct tar *t = ctx;
    if (t->archive)
        archive_cancel(t->archive);
    free(t);
}

static const struct http_follower_type tar_type = {
    .next = tar_next, .end = tar_end, .free = tar_free};

static bool tar_on_data(void *ctx, const char *data, size_t len) {
    struct tar *t = ctx;
    if (!t->out.streams) {
        http_res_header(t->out.req, "Cache-Control", "no-store");
        http_follower_begin(&t->out, "application/x-tar");
    }
    return http_follower_write(&t->out, data, len);
}

static void tar_on_room(void *ctx) {
    struct tar *t = ctx;
    http_req_body_resume(t->out.req);
}

static void tar_on_end(void *ctx, const struct err *err) {
    struct tar *t = ctx;
    t->archive = NULL;
    http_req_on_body(t->out.req, NULL, NULL, NULL);
    if (err)
        http_follower_fail(&t->out, err); /* the client must see that a stream is not whole */
    else
        http_follower_end(&t->out);
}

static void respond_unpacked(struct http_req *req) {
    http_respond_empty(req, 204);
}

static void tar_get(struct http_req *req, void *ctx) {
    static const struct archive_callbacks callbacks = {.on_data = tar_on_data,
                                                       .on_end = tar_on_end};
    struct err err;
    struct sandbox *s = api_sandbox(req, ctx, false);
    _cleanup_(free) char *path = s ? api_path(req) : NULL;
    if (!path)
        return;
    struct tar *t = xcalloc(1, sizeof(*t));
    struct archive_pack what = {.path = path, .skip_unreadable = api_flag(req, "skip_unreadable")};
    t->respond = respond_unpacked;
    t->archive = archive_pack(s, &what, &callbacks, t, &err);
    if (!t->archive) {
        free(t);
        http_respond_err(req, &err);
        return;
    }
    http_follower_init(&t->out, req, &tar_type, t);
}

static void tar_on_body(void *ctx, const char *data, size_t len) {
    struct tar *t = ctx;
    if (!archive_add(t->archive, data, len))
        http_req_body_pause(t->out.req);
}

static void tar_on_body_end(void *ctx) {
    struct tar *t = ctx;
    archive_finish(t->archive);
}

void api_take_archive(struct http_req *req, struct sandbox *s, const char *path,
                      void (*respond)(struct http_req *req)) {
    static const struct archive_callbacks callbacks = {.on_room = tar_on_room,
                                                       .on_end = tar_on_end};
    struct tar *t = xcalloc(1, sizeof(*t));
    t->respond = respond;
    t->archive = archive_unpack(s, path, &callbacks, t);
    http_follower_init(&t->out, req, &tar_type, t);
    http_req_on_body(req, tar_on_body, tar_on_body_end, t);
}

static void tar_put(struct http_req *req, void *ctx) {
    struct sandbox *s = api_sandbox(req, ctx, false);
    _cleanup_(free) char *path = s ? api_path(req) : NULL;
    if (path)
        api_take_archive(req, s, path, respond_unpacked);
}

void api_tar_routes(struct front *f) {
    size_t upload = (size_t)f->config->sandboxes.upload_mb << 20;
    const struct http_route routes[] = {
        {"GET", "/v1/sandboxes/{id}/tar", tar_get, f, FRONT_ROUTE_READ, 0},
        {"PUT", "/v1/sandboxes/{id}/tar", tar_put, f, HTTP_ROUTE_STREAM, upload},
    };
    http_server_routes(f->http, routes, ARRAY_LEN(routes));
}
