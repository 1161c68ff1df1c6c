#include "front/http/asset.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/path.h"
#include "front/http/url.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX_BYTES = 32 << 20 };

static const struct asset *asset_find(const char *path) {
    for (size_t i = 0; i < assets_count; i++)
        if (strcmp(assets[i].path, path) == 0)
            return &assets[i];
    return NULL;
}

static void page_headers(struct http_req *req) {
    http_res_header(
        req, "Content-Security-Policy",
        "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "form-action 'self'; object-src 'none'");
    http_res_header(req, "Referrer-Policy", "no-referrer");
    http_res_header(req, "Cross-Origin-Opener-Policy", "same-origin");
}

static bool accepts_gzip(const struct http_req *req) {
    const char *v = http_req_header(req, "accept-encoding");
    const char *at = v ? strstr(v, "gzip") : NULL;
    if (!at)
        return false;
    const char *q = at + 4 + strspn(at + 4, " \t;");
    return strncmp(q, "q=", 2) != 0 || strtod(q + 2, NULL) > 0;
}

static void respond_asset(struct http_req *req, const struct asset *a) {
    const char *known = http_req_header(req, "if-none-match");
    page_headers(req);
    http_res_header(req, "ETag", a->etag);
    http_res_header(req, "Cache-Control",
                    a->hashed ? "public, max-age=31536000, immutable" : "no-cache");
    if (a->gzip)
        http_res_header(req, "Vary", "Accept-Encoding");
    if (known && strstr(known, a->etag)) {
        http_respond_empty(req, 304);
    } else if (a->gzip && accepts_gzip(req)) {
        http_res_header(req, "Content-Encoding", "gzip");
        http_respond(req, 200, a->type, a->gzip, a->gzip_len);
    } else {
        http_respond(req, 200, a->type, a->data, a->len);
    }
}

static const char *asset_type_of(const char *path) {
    static const char *const types[][2] = {
        {".html", "text/html; charset=utf-8"}, {".js", "text/javascript; charset=utf-8"},
        {".css", "text/css; charset=utf-8"},   {".svg", "image/svg+xml"},
        {".json", "application/json"},         {".png", "image/png"}};
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < ARRAY_LEN(types); i++)
        if (strcmp(dot, types[i][0]) == 0)
            return types[i][1];
    return "application/octet-stream";
}

static bool respond_file(struct http_req *req, int dirfd, const char *path) {
    _cleanup_(close) int fd = path_open_beneath(dirfd, path + 1, O_RDONLY | O_NONBLOCK, 0);
    if (fd < 0)
        return false;
    struct buf b;
    buf_init(&b, FILE_MAX_BYTES);
    char chunk[65536];
    ssize_t n;
    while ((n = fd_read_all(fd, chunk, sizeof(chunk))) > 0)
        if (!buf_add(&b, chunk, (size_t)n))
            break;
    if (n < 0) {
        buf_finish(&b);
        return false;
    }
    page_headers(req);
    http_res_header(req, "Cache-Control", "no-store");
    http_respond_buf(req, 200, asset_type_of(path), &b);
    return true;
}

static bool respond_path(struct http_req *req, int dirfd, const char *path) {
    if (dirfd >= 0)
        return respond_file(req, dirfd, path);
    const struct asset *a = asset_find(path);
    if (a)
        respond_asset(req, a);
    return a;
}

/* A browser that opens an address says that it wants HTML; a program that mistook one does not.
 * The page finds its way from the address, or says that it leads nowhere. */
static bool wants_page(const struct http_req *req, const char *path) {
    static const char *const others[] = {"/v1/", "/agents/", "/assets/"};
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (strncmp(path, others[i], strlen(others[i])) == 0)
            return false;
    return http_req_accepts(req, "text/html");
}

void asset_respond(struct http_req *req, int dirfd) {
    _cleanup_(free) char *decoded =
        url_decode(http_req_path(req), strlen(http_req_path(req)), false);
    const char *path = decoded ? decoded : "/."; /* malformed: no file has that name */
    if (strcmp(path, "/") == 0)
        path = "/index.html";
    if (respond_path(req, dirfd, path))
        return;
    if (wants_page(req, path) && respond_path(req, dirfd, "/index.html"))
        return;
    struct err err;
    (void)err_set(&err, ERR_NOT_FOUND,
                  "there is nothing at this path; GET /openapi.json lists what there is");
    http_respond_err(req, &err);
}
