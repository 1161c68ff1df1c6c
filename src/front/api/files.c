#include "front/sandbox/files.h"
#include "base/base64.h"
#include "base/cleanup.h"
#include "base/json_table.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "front/api/api.h"
#include "front/api/sandbox.h"
#include "front/http/follower.h"

#include <stdlib.h>
#include <string.h>

enum { STAT_BYTES = 1024 };

static const char *const kinds[] = {"other", "file", "dir", "link", "other"};

/* The members of a file. */
static void write_stat(struct json_writer *w, const struct sandbox_stat *st) {
    char mode[8];
    (void)snprintf(mode, sizeof(mode), "%04o", (unsigned)(st->mode & 07777));
    json_put_str(w, "kind", kinds[st->kind < ARRAY_LEN(kinds) ? st->kind : 0]);
    json_put_str(w, "mode", mode);
    json_put_int(w, "size", (int64_t)st->size);
    json_put_int(w, "mtime", st->mtime_ms);
}

/* A name that is no text is shown as well as it can be; the bytes are beside it. */
static void write_name(struct json_writer *w, const char *key, const char *name) {
    size_t len = strlen(name);
    json_put_str(w, key, name);
    if (utf8_is_valid(name, len))
        return;
    _cleanup_(free) char *text = xmalloc(BASE64_SIZE(len) + 1);
    _cleanup_(free) char *bytes_key = xasprintf("%s_base64", key);
    base64_encode(text, name, len);
    json_put_text(w, bytes_key, text, BASE64_SIZE(len));
}

/* --- reading --- */

struct download {
    struct http_follower out;
    struct file_reader *reader; /* NULL: it has ended */
};

static enum http_next api_files_next(void *ctx) {
    struct download *d = ctx;
    file_reader_resume(d->reader);
    return HTTP_NEXT_WAIT;
}

static void free_download(void *ctx) {
    struct download *d = ctx;
    if (d->reader)
        file_reader_cancel(d->reader);
    free(d);
}

static void api_files_on_opened(void *ctx, const struct sandbox_stat *stat) {
    struct download *d = ctx;
    (void)stat; /* it may grow or shrink meanwhile */
    http_res_header(d->out.req, "Cache-Control", "no-store");
    http_res_header(d->out.req, "Content-Disposition", "attachment");
    http_follower_begin(&d->out, "application/octet-stream");
}

static bool api_files_on_download_data(void *ctx, const char *data, size_t len) {
    struct download *d = ctx;
    return http_follower_write(&d->out, data, len);
}

static void api_files_on_download_end(void *ctx, const struct err *err) {
    struct download *d = ctx;
    d->reader = NULL;
    if (err)
        http_follower_fail(&d->out, err);
    else
        http_follower_end(&d->out);
}

void api_send_file(struct http_req *req, struct sandbox *s, const char *path) {
    static const struct file_reader_callbacks callbacks = {
        api_files_on_opened, api_files_on_download_data, api_files_on_download_end};
    static const struct http_follower_type type = {.next = api_files_next, .free = free_download};
    struct err err;
    struct download *d = xcalloc(1, sizeof(*d));
    d->reader = file_read(s, path, &callbacks, d, &err);
    if (!d->reader) {
        free(d);
        http_respond_err(req, &err);
        return;
    }
    http_follower_init(&d->out, req, &type, d);
}

static void api_files_get(struct http_req *req, void *ctx) {
    struct sandbox *s = api_sandbox(req, ctx, false);
    _cleanup_(free) char *path = s ? api_path(req) : NULL;
    if (path)
        api_send_file(req, s, path);
}

/* --- writing --- */

struct upload {
    struct http_follower out;
    struct file_writer *writer; /* NULL: it has ended */
    char *path;
};

static void free_upload(void *ctx) {
    struct upload *u = ctx;
    if (u->writer)
        file_writer_cancel(u->writer);
    free(u->path);
    free(u);
}

static void api_files_on_upload_done(void *ctx, uint64_t written, const struct err *err) {
    struct upload *u = ctx;
    u->writer = NULL;
    http_req_on_body(u->out.req, NULL, NULL, NULL);
    if (err) {
        http_follower_fail(&u->out, err);
        return;
    }
    struct buf b;
    buf_init(&b, 16 * SANDBOX_PATH_MAX);
    struct json_writer w;
    json_writer_init(&w, &b);
    json_writer_object_begin(&w);
    write_name(&w, "path", u->path);
    json_put_int(&w, "size", (int64_t)written);
    json_writer_object_end(&w);
    http_respond_buf(u->out.req, 200, "application/json", &b);
    free_upload(u);
}

static void api_files_on_upload_room(void *ctx) {
    struct upload *u = ctx;
    http_req_body_resume(u->out.req);
}

static void api_files_on_upload_data(void *ctx, const char *data, size_t len) {
    struct upload *u = ctx;
    if (!file_writer_add(u->writer, data, len))
        http_req_body_pause(u->out.req);
}

static void api_files_on_upload_end(void *ctx) {
    struct upload *u = ctx;
    file_writer_finish(u->writer);
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
    static const struct http_follower_type type = {.free = free_upload};
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
    u->writer = file_write(s, &target, &callbacks, u);
    u->path = steal_ptr(&path);
    http_follower_init(&u->out, req, &type, u);
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
    struct buf b;
    struct json_writer w;
    buf_init(&b, STAT_BYTES);
    json_writer_init(&w, &b);
    json_writer_object_begin(&w);
    write_stat(&w, &reply->stat);
    json_writer_object_end(&w);
    http_respond_buf(a->req, 200, "application/json", &b);
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
    json_put_array_begin(&w, "entries");
    for (size_t i = 0; i < reply->nentries; i++) {
        const struct sandbox_entry *e = &reply->entries[i];
        json_writer_object_begin(&w);
        write_name(&w, "name", e->name);
        write_stat(&w, &e->stat);
        json_writer_object_end(&w);
    }
    json_writer_array_end(&w);
    json_put_bool(&w, "more", reply->more);
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

/* A path in a body: its text, or its bytes as base64. */
struct path_body {
    const char *text, *base64;
};

/* The caller frees. */
static int api_files_read_path(const struct path_body *b, const char *key, char **ret,
                               struct err *err) {
    _cleanup_(free) char *path = b->text     ? xstrdup(b->text)
                                 : b->base64 ? api_decode_path(b->base64)
                                             : NULL;
    if (!path || !*path || strlen(path) >= SANDBOX_PATH_MAX)
        return err_set(err, ERR_BAD_REQUEST,
                       "\"%s\" (or \"%s_base64\") is needed, with 1 to %d bytes", key, key,
                       SANDBOX_PATH_MAX - 1);
    *ret = steal_ptr(&path);
    return 0;
}

struct mkdir_body {
    struct path_body path;
    bool parents;
    int64_t mode;
};

static void api_files_mkdir_(struct http_req *req, void *ctx) {
    static const struct json_field table[] = {
        JSON_TEXT("path", struct mkdir_body, path.text),
        JSON_TEXT("path_base64", struct mkdir_body, path.base64),
        JSON_BOOL("parents", struct mkdir_body, parents),
        JSON_INT("mode", struct mkdir_body, mode, 0, 0777),
    };
    struct err err;
    struct sandbox *s = api_sandbox(req, ctx, false);
    if (!s)
        return;
    _cleanup_(json) json_t *body = NULL;
    _cleanup_(free) char *path = NULL;
    struct mkdir_body b = {.mode = 0755};
    int rc = api_body(req, &body, &err);
    if (rc == 0)
        rc = json_table_read(table, ARRAY_LEN(table), body, "the request", &b, &err);
    if (rc == 0)
        rc = api_files_read_path(&b.path, "path", &path, &err);
    if (rc < 0) {
        http_respond_err(req, &err);
        return;
    }
    struct ask *a = ask_new(ctx, req, api_files_on_done);
    ask_wait(a, sandbox_box_mkdir(s->box, path, (uint32_t)b.mode, b.parents, ask_replied, a));
}

struct move_body {
    struct path_body from, to;
};

static void api_files_move(struct http_req *req, void *ctx) {
    static const struct json_field table[] = {
        JSON_TEXT("from", struct move_body, from.text),
        JSON_TEXT("from_base64", struct move_body, from.base64),
        JSON_TEXT("to", struct move_body, to.text),
        JSON_TEXT("to_base64", struct move_body, to.base64),
    };
    struct err err;
    struct sandbox *s = api_sandbox(req, ctx, false);
    if (!s)
        return;
    _cleanup_(json) json_t *body = NULL;
    _cleanup_(free) char *from = NULL;
    _cleanup_(free) char *to = NULL;
    struct move_body b = {0};
    int rc = api_body(req, &body, &err);
    if (rc == 0)
        rc = json_table_read(table, ARRAY_LEN(table), body, "the request", &b, &err);
    if (rc == 0)
        rc = api_files_read_path(&b.from, "from", &from, &err);
    if (rc == 0)
        rc = api_files_read_path(&b.to, "to", &to, &err);
    if (rc < 0) {
        http_respond_err(req, &err);
        return;
    }
    struct ask *a = ask_new(ctx, req, api_files_on_done);
    ask_wait(a, sandbox_box_move(s->box, from, to, ask_replied, a));
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
    };
    http_server_routes(f->http, routes, ARRAY_LEN(routes));
}
