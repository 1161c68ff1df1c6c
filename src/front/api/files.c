#include "front/sandbox/files.h"
#include "base/base64.h"
#include "base/cleanup.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "front/api/api.h"
#include "front/api/sandbox.h"

#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = {"other", "file", "dir", "link", "other"};

static json_t *show_stat(const struct sandbox_stat *st) {
    char mode[8];
    (void)snprintf(mode, sizeof(mode), "%04o", (unsigned)(st->mode & 07777));
    return json_pack("{s:s,s:s,s:I,s:I}", "kind", kinds[st->kind <= 4 ? st->kind : 0], "mode", mode,
                     "size", (json_int_t)st->size, "mtime", (json_int_t)st->mtime_ms);
}

/* A name that is no text is shown as well as it can be; the bytes are beside it. */
static void write_name(struct json_writer *w, const char *key, const char *name) {
    size_t len = strlen(name);
    json_writer_key(w, key);
    json_writer_str(w, name);
    if (utf8_is_valid(name, len))
        return;
    _cleanup_(free) char *text = xmalloc(BASE64_SIZE(len) + 1);
    _cleanup_(free) char *bytes_key = xasprintf("%s_base64", key);
    base64_encode(text, name, len);
    json_writer_key(w, bytes_key);
    json_writer_text(w, text, BASE64_SIZE(len));
}

/* --- reading --- */

struct download {
    struct http_req *req;
    struct file_reader *reader;
    bool begun; /* the head of the answer is out */
};

static void api_files_on_download_drain(void *ctx) {
    struct download *d = ctx;
    file_reader_resume(d->reader);
}

static void api_files_on_opened(void *ctx, const struct sandbox_stat *stat) {
    struct download *d = ctx;
    (void)stat; /* it may grow or shrink meanwhile */
    d->begun = true;
    http_stream_on_drain(d->req, api_files_on_download_drain, d);
    http_res_header(d->req, "Cache-Control", "no-store");
    http_res_header(d->req, "Content-Disposition", "attachment");
    http_stream_begin(d->req, 200, "application/octet-stream");
}

static bool api_files_on_download_data(void *ctx, const char *data, size_t len) {
    struct download *d = ctx;
    return http_stream_write(d->req, data, len);
}

static void api_files_on_download_end(void *ctx, const struct err *err) {
    struct download *d = ctx;
    http_req_on_gone(d->req, NULL, NULL);
    if (d->begun)
        http_stream_on_drain(d->req, NULL, NULL);
    if (!d->begun)
        http_respond_err(d->req, err);
    else if (err)
        http_stream_break(d->req);
    else
        http_stream_end(d->req);
    free(d);
}

static void api_files_on_download_gone(void *ctx) {
    struct download *d = ctx;
    file_reader_cancel(d->reader);
    if (d->begun)
        http_stream_end(d->req);
    else
        http_respond_empty(d->req, 499);
    free(d);
}

void api_send_file(struct http_req *req, struct sandbox *s, const char *path) {
    static const struct file_reader_callbacks callbacks = {
        api_files_on_opened, api_files_on_download_data, api_files_on_download_end};
    struct err err;
    struct download *d = xcalloc(1, sizeof(*d));
    d->req = req;
    d->reader = file_read(s, path, &callbacks, d, &err);
    if (!d->reader) {
        free(d);
        http_respond_err(req, &err);
        return;
    }
    http_req_on_gone(req, api_files_on_download_gone, d);
}

static void api_files_get(struct http_req *req, void *ctx) {
    struct sandbox *s = api_sandbox(req, ctx, false);
    _cleanup_(free) char *path = s ? api_path(req) : NULL;
    if (path)
        api_send_file(req, s, path);
}

/* --- writing --- */

struct upload {
    struct http_req *req;
    struct file_writer *writer;
    char *path;
};

static void free_upload(struct upload *u) {
    free(u->path);
    free(u);
}

static void api_files_on_upload_done(void *ctx, uint64_t written, const struct err *err) {
    struct upload *u = ctx;
    http_req_on_gone(u->req, NULL, NULL);
    http_req_on_body(u->req, NULL, NULL, NULL);
    if (err) {
        http_respond_err(u->req, err);
        free_upload(u);
        return;
    }
    struct buf b;
    buf_init(&b, 16 * SANDBOX_PATH_MAX);
    struct json_writer w;
    json_writer_init(&w, &b);
    json_writer_object_begin(&w);
    write_name(&w, "path", u->path);
    json_writer_key(&w, "size");
    json_writer_int(&w, (int64_t)written);
    json_writer_object_end(&w);
    http_respond_buf(u->req, 200, "application/json", &b);
    free_upload(u);
}

static void api_files_on_upload_room(void *ctx) {
    struct upload *u = ctx;
    http_req_body_resume(u->req);
}

static void api_files_on_upload_data(void *ctx, const char *data, size_t len) {
    struct upload *u = ctx;
    if (!file_writer_add(u->writer, data, len))
        http_req_body_pause(u->req);
}

static void api_files_on_upload_end(void *ctx) {
    struct upload *u = ctx;
    file_writer_finish(u->writer);
}

static void api_files_on_upload_gone(void *ctx) {
    struct upload *u = ctx;
    file_writer_cancel(u->writer);
    http_respond_empty(u->req, 499);
    free_upload(u);
}

static int read_mode(struct http_req *req, uint32_t *ret, struct err *err) {
    _cleanup_(free) char *text = NULL;
    int rc = http_req_query_get(req, "mode", &text, err);
    if (rc <= 0)
        return rc;
    size_t n = strspn(text, "01234567");
    if (n == 0 || n > 5 || text[n] || strtoul(text, NULL, 8) > 0777)
        return err_set(err, ERR_BAD_REQUEST, "\"mode\" is octal, such as 0644");
    *ret = (uint32_t)strtoul(text, NULL, 8);
    return 0;
}

static void api_files_put(struct http_req *req, void *ctx) {
    static const struct file_writer_callbacks callbacks = {api_files_on_upload_room,
                                                           api_files_on_upload_done};
    struct err err;
    struct sandbox *s = api_sandbox(req, ctx, false);
    _cleanup_(free) char *path = s ? api_path(req) : NULL;
    if (!path)
        return;
    uint32_t mode = 0644;
    if (read_mode(req, &mode, &err) < 0) {
        http_respond_err(req, &err);
        return;
    }
    struct file_target target = {.path = path, .mode = mode};
    target.flags = (api_flag(req, "append") ? SANDBOX_WRITE_APPEND : 0U) |
                   (api_flag(req, "parents") ? SANDBOX_WRITE_PARENTS : 0U);
    struct upload *u = xcalloc(1, sizeof(*u));
    u->req = req;
    u->writer = file_write(s, &target, &callbacks, u);
    u->path = steal_ptr(&path);
    http_req_on_gone(req, api_files_on_upload_gone, u);
    http_req_on_body(req, api_files_on_upload_data, api_files_on_upload_end, u);
}

/* --- the rest --- */

static void api_files_on_done(struct ask *a, struct sandbox_reply *reply) {
    (void)reply;
    http_respond_empty(a->req, 204);
}

static void api_files_delete(struct http_req *req, void *ctx) {
    struct sandbox *s = api_sandbox(req, ctx, false);
    _cleanup_(free) char *path = s ? api_path(req) : NULL;
    if (!path)
        return;
    struct ask *a = ask_new(ctx, req, api_files_on_done);
    ask_wait(a, sandbox_box_delete(s->box, path, api_flag(req, "recursive"), ask_replied, a));
}

static void api_files_on_stat(struct ask *a, struct sandbox_reply *reply) {
    _cleanup_(json) json_t *o = show_stat(&reply->stat);
    http_respond_json(a->req, 200, o);
}

static void stat_(struct http_req *req, void *ctx) {
    struct sandbox *s = api_sandbox(req, ctx, false);
    _cleanup_(free) char *path = s ? api_path(req) : NULL;
    if (!path)
        return;
    struct ask *a = ask_new(ctx, req, api_files_on_stat);
    ask_wait(a, sandbox_box_stat(s->box, path, api_flag(req, "follow"), ask_replied, a));
}

static void api_files_on_list(struct ask *a, struct sandbox_reply *reply) {
    struct buf b;
    buf_init(&b, 8 << 20);
    struct json_writer w;
    json_writer_init(&w, &b);
    json_writer_object_begin(&w);
    json_writer_key(&w, "entries");
    json_writer_array_begin(&w);
    for (size_t i = 0; i < reply->nentries; i++) {
        const struct sandbox_entry *e = &reply->entries[i];
        char mode[8];
        (void)snprintf(mode, sizeof(mode), "%04o", (unsigned)(e->stat.mode & 07777));
        json_writer_object_begin(&w);
        write_name(&w, "name", e->name);
        json_writer_key(&w, "kind");
        json_writer_str(&w, kinds[e->stat.kind]);
        json_writer_key(&w, "mode");
        json_writer_str(&w, mode);
        json_writer_key(&w, "size");
        json_writer_int(&w, (int64_t)e->stat.size);
        json_writer_key(&w, "mtime");
        json_writer_int(&w, e->stat.mtime_ms);
        json_writer_object_end(&w);
    }
    json_writer_array_end(&w);
    json_writer_key(&w, "more");
    json_writer_bool(&w, reply->more);
    json_writer_object_end(&w);
    http_respond_buf(a->req, 200, "application/json", &b);
}

static void api_files_list(struct http_req *req, void *ctx) {
    struct err err;
    struct sandbox *s = api_sandbox(req, ctx, false);
    _cleanup_(free) char *path = s ? api_path(req) : NULL;
    uint64_t skip = 0;
    if (!path)
        return;
    if (api_number(req, "skip", INT64_MAX, &skip, &err) < 0) {
        http_respond_err(req, &err);
        return;
    }
    struct ask *a = ask_new(ctx, req, api_files_on_list);
    ask_wait(a, sandbox_box_list(s->box, path, skip, ask_replied, a));
}

/* KEY or KEY_base64; the caller frees. */
static int api_files_get_path(const json_t *body, const char *key, char **ret, struct err *err) {
    _cleanup_(free) char *bytes_key = xasprintf("%s_base64", key);
    const char *text = NULL;
    const char *encoded = NULL;
    int rc = json_get_str(body, key, &text, err);
    if (rc == 0)
        rc = json_get_str(body, bytes_key, &encoded, err);
    if (rc < 0)
        return rc;
    _cleanup_(free) char *path = text ? xstrdup(text) : encoded ? api_decode_path(encoded) : NULL;
    if (!path || !*path || strlen(path) >= SANDBOX_PATH_MAX)
        return err_set(err, ERR_BAD_REQUEST, "\"%s\" (or \"%s\") is needed, with 1 to %d bytes",
                       key, bytes_key, SANDBOX_PATH_MAX - 1);
    *ret = steal_ptr(&path);
    return 0;
}

static void api_files_mkdir_(struct http_req *req, void *ctx) {
    static const char *const keys[] = {"path", "path_base64", "parents", "mode", NULL};
    struct err err;
    struct sandbox *s = api_sandbox(req, ctx, false);
    if (!s)
        return;
    _cleanup_(json) json_t *body = NULL;
    _cleanup_(free) char *path = NULL;
    bool parents = false;
    int64_t mode = 0755;
    int rc = api_body(req, &body, &err);
    if (rc == 0)
        rc = json_check_keys(body, "the request", keys, &err);
    if (rc == 0)
        rc = api_files_get_path(body, "path", &path, &err);
    if (rc == 0)
        rc = json_get_bool(body, "parents", &parents, &err);
    if (rc == 0)
        rc = json_get_int(body, "mode", 0, 0777, &mode, &err);
    if (rc < 0) {
        http_respond_err(req, &err);
        return;
    }
    struct ask *a = ask_new(ctx, req, api_files_on_done);
    ask_wait(a, sandbox_box_mkdir(s->box, path, (uint32_t)mode, parents, ask_replied, a));
}

static void api_files_move(struct http_req *req, void *ctx) {
    static const char *const keys[] = {"from", "from_base64", "to", "to_base64", NULL};
    struct err err;
    struct sandbox *s = api_sandbox(req, ctx, false);
    if (!s)
        return;
    _cleanup_(json) json_t *body = NULL;
    _cleanup_(free) char *from = NULL;
    _cleanup_(free) char *to = NULL;
    int rc = api_body(req, &body, &err);
    if (rc == 0)
        rc = json_check_keys(body, "the request", keys, &err);
    if (rc == 0)
        rc = api_files_get_path(body, "from", &from, &err);
    if (rc == 0)
        rc = api_files_get_path(body, "to", &to, &err);
    if (rc < 0) {
        http_respond_err(req, &err);
        return;
    }
    struct ask *a = ask_new(ctx, req, api_files_on_done);
    ask_wait(a, sandbox_box_move(s->box, from, to, ask_replied, a));
}

/* --- archives --- */

struct tar {
    struct http_req *req;
    struct archive *archive;
    void (*respond)(struct http_req *req); /* when it is unpacked */
    bool begun;                            /* the head of the answer is out */
};

static bool api_files_on_tar_data(void *ctx, const char *data, size_t len) {
    struct tar *t = ctx;
    if (!t->begun) {
        t->begun = true;
        http_res_header(t->req, "Cache-Control", "no-store");
        http_stream_begin(t->req, 200, "application/x-tar");
    }
    return http_stream_write(t->req, data, len);
}

static void api_files_on_tar_drain(void *ctx) {
    struct tar *t = ctx;
    archive_resume(t->archive);
}

static void api_files_on_tar_room(void *ctx) {
    struct tar *t = ctx;
    http_req_body_resume(t->req);
}

static void api_files_on_tar_end(void *ctx, const struct err *err) {
    struct tar *t = ctx;
    struct http_req *req = t->req;
    http_req_on_gone(req, NULL, NULL);
    http_stream_on_drain(req, NULL, NULL);
    http_req_on_body(req, NULL, NULL, NULL);
    if (t->begun && err)
        http_stream_break(req); /* the client must see that it is not whole */
    else if (t->begun)
        http_stream_end(req);
    else if (err)
        http_respond_err(req, err);
    else
        t->respond(req);
    free(t);
}

static void api_files_on_tar_gone(void *ctx) {
    struct tar *t = ctx;
    archive_cancel(t->archive);
    if (t->begun)
        http_stream_end(t->req);
    else
        http_respond_empty(t->req, 499);
    free(t);
}

static void respond_unpacked(struct http_req *req) {
    http_respond_empty(req, 204);
}

static void tar_get(struct http_req *req, void *ctx) {
    static const struct archive_callbacks callbacks = {.on_data = api_files_on_tar_data,
                                                       .on_end = api_files_on_tar_end};
    struct err err;
    struct sandbox *s = api_sandbox(req, ctx, false);
    _cleanup_(free) char *path = s ? api_path(req) : NULL;
    if (!path)
        return;
    struct tar *t = xcalloc(1, sizeof(*t));
    struct archive_pack what = {.path = path, .skip_unreadable = api_flag(req, "skip_unreadable")};
    t->req = req;
    t->respond = respond_unpacked;
    t->archive = archive_pack(s, &what, &callbacks, t, &err);
    if (!t->archive) {
        free(t);
        http_respond_err(req, &err);
        return;
    }
    http_req_on_gone(req, api_files_on_tar_gone, t);
    http_stream_on_drain(req, api_files_on_tar_drain, t);
}

static void api_files_on_tar_body(void *ctx, const char *data, size_t len) {
    struct tar *t = ctx;
    if (!archive_add(t->archive, data, len))
        http_req_body_pause(t->req);
}

static void api_files_on_tar_body_end(void *ctx) {
    struct tar *t = ctx;
    archive_finish(t->archive);
}

void api_take_archive(struct http_req *req, struct sandbox *s, const char *path,
                      void (*respond)(struct http_req *req)) {
    static const struct archive_callbacks callbacks = {.on_room = api_files_on_tar_room,
                                                       .on_end = api_files_on_tar_end};
    struct tar *t = xcalloc(1, sizeof(*t));
    t->req = req;
    t->respond = respond;
    t->archive = archive_unpack(s, path, &callbacks, t);
    http_req_on_gone(req, api_files_on_tar_gone, t);
    http_req_on_body(req, api_files_on_tar_body, api_files_on_tar_body_end, t);
}

static void tar_put(struct http_req *req, void *ctx) {
    struct sandbox *s = api_sandbox(req, ctx, false);
    _cleanup_(free) char *path = s ? api_path(req) : NULL;
    if (path)
        api_take_archive(req, s, path, respond_unpacked);
}

void api_files_routes(struct front *f) {
#define FILES "/v1/sandboxes/{id}/files"
    size_t upload = (size_t)f->config->sandboxes.upload_mb << 20;
    const struct http_route routes[] = {
        {"GET", FILES, api_files_get, f, FRONT_ROUTE_READ, 0},
        {"PUT", FILES, api_files_put, f, HTTP_ROUTE_STREAM, upload},
        {"DELETE", FILES, api_files_delete, f, 0, 0},
        {"GET", FILES "/stat", stat_, f, FRONT_ROUTE_READ, 0},
        {"GET", FILES "/list", api_files_list, f, FRONT_ROUTE_READ, 0},
        {"POST", FILES "/mkdir", api_files_mkdir_, f, 0, 0},
        {"POST", FILES "/move", api_files_move, f, 0, 0},
        {"GET", "/v1/sandboxes/{id}/tar", tar_get, f, FRONT_ROUTE_READ, 0},
        {"PUT", "/v1/sandboxes/{id}/tar", tar_put, f, HTTP_ROUTE_STREAM, upload},
    };
    for (size_t i = 0; i < ARRAY_LEN(routes); i++)
        http_server_route(f->http, &routes[i]);
}
