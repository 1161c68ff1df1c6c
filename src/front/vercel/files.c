#include "front/sandbox/files.h"

#include "base/cleanup.h"
#include "base/mem.h"
#include "front/vercel/internal.h"

#include <stdlib.h>
#include <string.h>

static void respond_empty(struct http_req *req) {
    http_respond(req, 200, "application/json", "{}", 2);
}

/* Where a path of the request leads; the caller frees. NULL: then the request is answered. */
static char *read_path(struct http_req *req) {
    struct vercel_path_wire {
        const char *path, *cwd;
    } w = {0};
    static const struct json_field table[] = {
        JSON_TEXT("path", struct vercel_path_wire, path),
        JSON_TEXT("cwd", struct vercel_path_wire, cwd),
    };
    JSON_SHAPE("POST /api/v2/sandboxes/sessions/{id}/fs/mkdir", table);
    JSON_SHAPE("POST /api/v2/sandboxes/sessions/{id}/fs/read", table);
    struct err err;
    _cleanup_(json) json_t *body = NULL;
    int rc = vercel_body(req, table, ARRAY_LEN(table), &body, &w, &err);
    const char *path = w.path;
    const char *cwd = w.cwd;
    if (rc == 0 && (!path || !*path))
        rc = err_set(&err, ERR_BAD_REQUEST, "\"path\" is needed");
    char *full = NULL;
    if (rc == 0)
        full = *path == '/' ? xstrdup(path)
               : cwd && *cwd == '/'
                   ? xasprintf("%s/%s", cwd, path)
                   : xasprintf(VERCEL_CWD "/%s%s%s", cwd ? cwd : "", cwd ? "/" : "", path);
    if (full && strlen(full) >= SANDBOX_PATH_MAX)
        rc = err_set(&err, ERR_BAD_REQUEST, "\"path\" has less than %d bytes", SANDBOX_PATH_MAX);
    if (rc == 0)
        return full;
    free(full);
    http_respond_err(req, &err);
    return NULL;
}

static void vercel_files_on_done(struct ask *a, struct sandbox_reply *reply) {
    (void)reply;
    respond_empty(a->req);
}

static void vercel_files_mkdir_(struct http_req *req, void *ctx) {
    struct vercel *v = ctx;
    struct sandbox *s = vercel_session(req, v);
    _cleanup_(free) char *path = s ? read_path(req) : NULL;
    if (!path)
        return;
    struct ask *a = ask_new(v->front, req, vercel_files_on_done);
    ask_wait(a, sandbox_box_mkdir(s->box, path, 0755, true, ask_replied, a));
}

static void read_(struct http_req *req, void *ctx) {
    struct sandbox *s = vercel_session(req, ctx);
    _cleanup_(free) char *path = s ? read_path(req) : NULL;
    if (path)
        api_send_file(req, s, path);
}

/* A gzipped tar, unpacked inside, below x-cwd. */
static void write_(struct http_req *req, void *ctx) {
    struct err err;
    struct sandbox *s = vercel_session(req, ctx);
    if (!s)
        return;
    const char *dir = http_req_header(req, "x-cwd");
    if (dir && (*dir != '/' || strlen(dir) >= SANDBOX_PATH_MAX)) {
        (void)err_set(&err, ERR_BAD_REQUEST, "x-cwd is an absolute path");
        http_respond_err(req, &err);
        return;
    }
    api_take_archive(req, s, dir ? dir : VERCEL_CWD, respond_empty);
}

void vercel_file_routes(struct vercel *v) {
    size_t upload = (size_t)v->front->config->sandboxes.upload_mb << 20;
#define FILE_ROUTES(base)                                                                          \
    vercel_route(v, "POST", base "/fs/mkdir", vercel_files_mkdir_, 0, 0);                          \
    vercel_route(v, "POST", base "/fs/read", read_, FRONT_ROUTE_READ | FRONT_ROUTE_LATE, 0);       \
    vercel_route(v, "POST", base "/fs/write", write_, HTTP_ROUTE_STREAM, upload)
    FILE_ROUTES("/api/v2/sandboxes/sessions/{id}");
    FILE_ROUTES("/api/v1/sandboxes/{id}");
}
