#include "base/base64.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "front/api/api.h"
#include "front/api/sandbox.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Files of a sandbox: carried out inside, as the guest; here bytes only pass through. */

enum { CHUNK = 128 * 1024, ERROR_BYTES = 400, HOLD_BYTES = 64 * 1024 };

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
    uv_fs_t fs;
    struct front *front;
    struct http_req *req;
    int fd;
    int64_t at;
    bool full, gone, reading;
    char chunk[CHUNK];
};

static void read_more(struct download *d);

static void free_download(struct download *d) {
    fd_close(&d->fd);
    free(d);
}

static void on_read(uv_fs_t *fs) {
    struct download *d = fs->data;
    ssize_t n = fs->result;
    uv_fs_req_cleanup(fs);
    d->reading = false;
    if (d->gone) {
        free_download(d);
        return;
    }
    if (n <= 0) {
        http_req_on_gone(d->req, NULL, NULL);
        http_stream_on_drain(d->req, NULL, NULL);
        if (n < 0)
            http_stream_break(d->req);
        else
            http_stream_end(d->req);
        free_download(d);
        return;
    }
    d->at += n;
    d->full = !http_stream_write(d->req, d->chunk, (size_t)n);
    if (!d->full)
        read_more(d);
}

/* On another thread: what a guest hands us may be slow. */
static void read_more(struct download *d) {
    uv_buf_t b = uv_buf_init(d->chunk, sizeof(d->chunk));
    d->fs.data = d;
    d->reading = true;
    if (uv_fs_read(d->front->loop, &d->fs, d->fd, &b, 1, d->at, on_read) < 0)
        abort(); /* only for arguments that are none */
}

static void on_download_drain(void *ctx) {
    struct download *d = ctx;
    if (d->full && !d->reading) {
        d->full = false;
        read_more(d);
    }
}

static void on_download_gone(void *ctx) {
    struct download *d = ctx;
    http_stream_end(d->req);
    d->gone = true;
    if (!d->reading)
        free_download(d);
}

static void on_opened(struct ask *a, struct sandbox_reply *reply) {
    struct download *d = xcalloc(1, sizeof(*d));
    d->front = a->front;
    d->req = a->req;
    d->fd = steal_fd(&reply->fd);
    http_req_on_gone(d->req, on_download_gone, d);
    http_stream_on_drain(d->req, on_download_drain, d);
    http_res_header(d->req, "Cache-Control", "no-store");
    http_res_header(d->req, "Content-Disposition", "attachment");
    http_stream_begin(d->req, 200, "application/octet-stream");
    read_more(d);
}

static void get(struct http_req *req, void *ctx) {
    struct sandbox *s = api_sandbox(req, ctx, false);
    _cleanup_(free) char *path = s ? api_path(req) : NULL;
    if (!path)
        return;
    struct ask *a = ask_new(ctx, req, on_opened);
    ask_wait(a, sandbox_box_read(s->box, path, ask_replied, a));
}

/* --- writing --- */

/* Bodies are handed on in pieces, each written before the next is read: memory stays bounded, and a
 * full disk is known at once. */
struct upload {
    struct front *front;
    struct http_req *req; /* NULL when it was answered */
    char id[ID_SIZE];
    char *path;
    struct buf piece;
    struct sandbox_call *call;
    uint32_t mode, flags;
    uint64_t written;
    bool begun, ended, paused;
};

static void free_upload(struct upload *u) {
    sandbox_call_cancel(u->call);
    buf_finish(&u->piece);
    free(u->path);
    free(u);
}

static void end_upload(struct upload *u, const struct err *err) {
    struct http_req *req = u->req;
    http_req_on_gone(req, NULL, NULL);
    http_req_on_body(req, NULL, NULL, NULL);
    if (err) {
        http_respond_err(req, err);
    } else {
        struct buf b;
        buf_init(&b, 16 * SANDBOX_PATH_MAX);
        struct json_writer w;
        json_writer_init(&w, &b);
        json_writer_object_begin(&w);
        write_name(&w, "path", u->path);
        json_writer_key(&w, "size");
        json_writer_int(&w, (int64_t)u->written);
        json_writer_object_end(&w);
        http_respond_buf(req, 200, "application/json", &b);
    }
    free_upload(u);
}

static void flush(struct upload *u);

static void on_piece(void *ctx, struct sandbox_reply *reply, const struct err *err) {
    struct upload *u = ctx;
    u->call = NULL;
    if (err) {
        end_upload(u, err);
        return;
    }
    u->written += reply->value;
    if (u->piece.len > 0 && (u->ended || u->piece.len >= SANDBOX_INLINE_MAX)) {
        flush(u);
    } else if (u->ended) {
        end_upload(u, NULL);
    } else if (u->paused) {
        u->paused = false;
        http_req_body_resume(u->req);
    }
}

static void flush(struct upload *u) {
    struct err err;
    struct sandbox *s = sandboxes_find(u->front->sandboxes, u->id);
    size_t n = MIN(u->piece.len, (size_t)SANDBOX_INLINE_MAX);
    struct sandbox_put put = {.path = u->path,
                              .mode = u->mode,
                              .flags = u->flags | (u->begun ? SANDBOX_WRITE_APPEND : 0),
                              .data = u->piece.data,
                              .len = n,
                              .fd = -1};
    u->begun = true;
    if (s && s->state == SANDBOX_RUNNING)
        u->call = sandbox_box_write(s->box, &put, on_piece, u);
    buf_consume(&u->piece, n);
    if (!u->call) {
        (void)err_set(&err, ERR_CONFLICT, "the sandbox was paused or ended");
        end_upload(u, &err);
    }
}

static void on_upload_data(void *ctx, const char *data, size_t len) {
    struct upload *u = ctx;
    (void)buf_add(&u->piece, data, len);
    if (u->piece.len < SANDBOX_INLINE_MAX)
        return;
    if (!u->paused) {
        u->paused = true;
        http_req_body_pause(u->req);
    }
    if (!u->call)
        flush(u);
}

static void on_upload_end(void *ctx) {
    struct upload *u = ctx;
    u->ended = true;
    if (!u->call)
        flush(u);
}

static void on_upload_gone(void *ctx) {
    struct upload *u = ctx;
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

static void put(struct http_req *req, void *ctx) {
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
    struct upload *u = xcalloc(1, sizeof(*u));
    u->front = ctx;
    u->req = req;
    memcpy(u->id, s->id, sizeof(u->id));
    u->path = steal_ptr(&path);
    u->mode = mode;
    u->flags = (api_flag(req, "append") ? SANDBOX_WRITE_APPEND : 0U) |
               (api_flag(req, "parents") ? SANDBOX_WRITE_PARENTS : 0U);
    /* A pause takes hold between two reads of the connection. */
    buf_init(&u->piece, 2 * SANDBOX_INLINE_MAX + 128 * 1024);
    http_req_on_gone(req, on_upload_gone, u);
    http_req_on_body(req, on_upload_data, on_upload_end, u);
}

/* --- the rest --- */

static void on_done(struct ask *a, struct sandbox_reply *reply) {
    (void)reply;
    http_respond_empty(a->req, 204);
}

static void delete (struct http_req *req, void *ctx) {
    struct sandbox *s = api_sandbox(req, ctx, false);
    _cleanup_(free) char *path = s ? api_path(req) : NULL;
    if (!path)
        return;
    struct ask *a = ask_new(ctx, req, on_done);
    ask_wait(a, sandbox_box_delete(s->box, path, api_flag(req, "recursive"), ask_replied, a));
}

static void on_stat(struct ask *a, struct sandbox_reply *reply) {
    _cleanup_(json) json_t *o = show_stat(&reply->stat);
    http_respond_json(a->req, 200, o);
}

static void stat_(struct http_req *req, void *ctx) {
    struct sandbox *s = api_sandbox(req, ctx, false);
    _cleanup_(free) char *path = s ? api_path(req) : NULL;
    if (!path)
        return;
    struct ask *a = ask_new(ctx, req, on_stat);
    ask_wait(a, sandbox_box_stat(s->box, path, api_flag(req, "follow"), ask_replied, a));
}

static void on_list(struct ask *a, struct sandbox_reply *reply) {
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

static void list(struct http_req *req, void *ctx) {
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
    struct ask *a = ask_new(ctx, req, on_list);
    ask_wait(a, sandbox_box_list(s->box, path, skip, ask_replied, a));
}

/* KEY or KEY_base64; the caller frees. */
static int get_path(const json_t *body, const char *key, char **ret, struct err *err) {
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

static void mkdir_(struct http_req *req, void *ctx) {
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
        rc = get_path(body, "path", &path, &err);
    if (rc == 0)
        rc = json_get_bool(body, "parents", &parents, &err);
    if (rc == 0)
        rc = json_get_int(body, "mode", 0, 0777, &mode, &err);
    if (rc < 0) {
        http_respond_err(req, &err);
        return;
    }
    struct ask *a = ask_new(ctx, req, on_done);
    ask_wait(a, sandbox_box_mkdir(s->box, path, (uint32_t)mode, parents, ask_replied, a));
}

static void move(struct http_req *req, void *ctx) {
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
        rc = get_path(body, "from", &from, &err);
    if (rc == 0)
        rc = get_path(body, "to", &to, &err);
    if (rc < 0) {
        http_respond_err(req, &err);
        return;
    }
    struct ask *a = ask_new(ctx, req, on_done);
    ask_wait(a, sandbox_box_move(s->box, from, to, ask_replied, a));
}

/* --- archives: packed and unpacked by tar inside --- */

struct tar {
    struct front *front;
    struct http_req *req; /* NULL when the client is gone */
    struct sandbox_command *command;
    char id[ID_SIZE];
    char *path;
    /* The first bytes: of an upload, until it is known what they are; of a download, so that what
     * goes wrong in a small one can still be said. */
    struct buf head;
    char error[ERROR_BYTES];
    size_t error_len;
    bool in, begun, ended, paused;
};

static void free_tar(struct tar *t) {
    buf_finish(&t->head);
    free(t->path);
    free(t);
}

static void tar_failed(struct tar *t, const struct sandbox_exit *exit, struct err *err) {
    static const char denied[] = "Permission denied";
    bool unreadable = !t->in && memmem(t->error, t->error_len, denied, strlen(denied));
    if (t->error_len > 0)
        (void)err_set(err, ERR_BAD_REQUEST, "%.*s%s", (int)t->error_len, t->error,
                      unreadable ? "skip_unreadable=1 leaves such files out" : "");
    else if (exit)
        (void)err_set(err, ERR_IO, "tar ended with %s%u", exit->signaled ? "signal " : "",
                      exit->code);
}

/* Hands out what was held back. */
static void begin_tar(struct tar *t) {
    t->begun = true;
    http_res_header(t->req, "Cache-Control", "no-store");
    http_stream_begin(t->req, 200, "application/x-tar");
    if (!http_stream_write(t->req, t->head.data, t->head.len) && t->command)
        sandbox_command_pause(t->command, true);
    buf_clear(&t->head);
}

static void on_tar_output(void *ctx, int stream, const char *data, size_t len) {
    struct tar *t = ctx;
    if (stream == 2) {
        size_t n = MIN(len, sizeof(t->error) - t->error_len);
        memcpy(t->error + t->error_len, data, n);
        t->error_len += n;
        return;
    }
    if (!t->req || t->in)
        return;
    if (!t->begun && t->head.len + len <= HOLD_BYTES) {
        (void)buf_add(&t->head, data, len);
        return;
    }
    if (!t->begun)
        begin_tar(t);
    if (!http_stream_write(t->req, data, len) && t->command)
        sandbox_command_pause(t->command, true);
}

static void on_tar_drain(void *ctx) {
    struct tar *t = ctx;
    if (t->command)
        sandbox_command_pause(t->command, false);
}

static void on_tar_room(void *ctx) {
    struct tar *t = ctx;
    if (t->paused && t->req) {
        t->paused = false;
        http_req_body_resume(t->req);
    }
}

static void on_tar_exit(void *ctx, const struct sandbox_exit *exit, const struct err *why) {
    struct tar *t = ctx;
    struct http_req *req = t->req;
    struct err err = {0};
    /* Packing, 1 says that a file changed while it was read: the archive is whole all the same. */
    bool ok = exit && !exit->signaled && exit->code <= (t->in ? 0 : 1);
    t->command = NULL;
    if (why)
        err = *why;
    else if (!ok)
        tar_failed(t, exit, &err);
    if (req) {
        http_req_on_gone(req, NULL, NULL);
        http_stream_on_drain(req, NULL, NULL);
        http_req_on_body(req, NULL, NULL, NULL);
        if (ok && !t->in && !t->begun)
            begin_tar(t);
        if (t->begun && !ok)
            http_stream_break(req); /* the client must see that it is not whole */
        else if (t->begun)
            http_stream_end(req);
        else if (!ok)
            http_respond_err(req, &err);
        else
            http_respond_empty(req, 204);
    }
    free_tar(t);
}

static void on_tar_gone(void *ctx) {
    struct tar *t = ctx;
    struct sandbox *s = sandboxes_find(t->front->sandboxes, t->id);
    if (t->begun)
        http_stream_end(t->req);
    else
        http_respond_empty(t->req, 499);
    t->req = NULL;
    if (!t->command) {
        free_tar(t);
        return;
    }
    if (s && s->box)
        (void)sandbox_box_signal(s->box, t->command, SIGKILL, true, NULL, NULL);
    sandbox_command_pause(t->command, false);
}

/* False: the request is answered and t is gone. */
static bool tar_start(struct tar *t, const char *const *args, bool input) {
    struct err err;
    struct sandbox_exec e = {.cwd = (char *)"/"};
    struct sandbox *s = sandboxes_find(t->front->sandboxes, t->id);
    for (size_t i = 0; args[i]; i++)
        sandbox_strv_add(&e.argv, args[i]);
    if (s && s->state == SANDBOX_RUNNING)
        t->command = sandbox_command_start(
            s->box,
            &(struct sandbox_command_options){
                .exec = &e,
                .input = input,
                .callbacks = {NULL, on_tar_output, input ? on_tar_room : NULL, on_tar_exit},
                .ctx = t},
            &err);
    else
        (void)err_set(&err, ERR_CONFLICT, "the sandbox was paused or ended");
    sandbox_strv_finish(&e.argv);
    if (t->command)
        return true;
    http_req_on_gone(t->req, NULL, NULL);
    http_req_on_body(t->req, NULL, NULL, NULL);
    http_respond_err(t->req, &err);
    free_tar(t);
    return false;
}

static struct tar *tar_new(struct front *f, struct http_req *req) {
    struct sandbox *s = api_sandbox(req, f, false);
    char *path = s ? api_path(req) : NULL;
    if (!path)
        return NULL;
    struct tar *t = xcalloc(1, sizeof(*t));
    t->front = f;
    t->req = req;
    t->path = path;
    memcpy(t->id, s->id, sizeof(t->id));
    buf_init(&t->head, 256 * 1024);
    http_req_on_gone(req, on_tar_gone, t);
    return t;
}

/* Whether a path is that of the root, by its letters. */
static bool is_root(const char *path) {
    size_t depth = 0;
    while (*path) {
        path += strspn(path, "/");
        size_t n = strcspn(path, "/");
        if (n == 2 && memcmp(path, "..", 2) == 0)
            depth -= depth > 0;
        else if (n > 0 && !(n == 1 && path[0] == '.'))
            depth++;
        path += n;
    }
    return depth == 0;
}

static void tar_get(struct http_req *req, void *ctx) {
    struct tar *t = tar_new(ctx, req);
    if (!t)
        return;
    http_stream_on_drain(req, on_tar_drain, t);
    const char *args[16] = {"tar", "-C", t->path};
    size_t n = 3;
    if (api_flag(req, "skip_unreadable"))
        args[n++] = "--ignore-failed-read";
    if (!is_root(t->path)) {
        static const char *const all[] = {"-cf", "-", "--", "."};
        for (size_t i = 0; i < ARRAY_LEN(all); i++)
            args[n++] = all[i];
    } else {
        /* What the guest has written; the system and /proc are not what anybody wants. */
        static const char *const all[] = {
            "--anchored", "--exclude=./[h]ome/.disk", "-cf", "-", "--", "./work", "./home",
            "./tmp"};
        for (size_t i = 0; i < ARRAY_LEN(all); i++)
            args[n++] = all[i];
    }
    (void)tar_start(t, args, false);
}

/* Starts when the first bytes tell whether it is compressed. */
static bool tar_begin(struct tar *t) {
    bool gzip = t->head.len >= 2 && memcmp(t->head.data, "\x1f\x8b", 2) == 0;
    const char *args[] = {
        "tar", "-C", t->path, gzip ? "-xzf" : "-xf", "-", "--no-same-owner", "--same-permissions",
        NULL};
    t->begun = false;
    if (!tar_start(t, args, true))
        return false;
    (void)sandbox_command_write(t->command, t->head.data, t->head.len);
    buf_clear(&t->head);
    return true;
}

static void on_tar_data(void *ctx, const char *data, size_t len) {
    struct tar *t = ctx;
    if (!t->command) {
        (void)buf_add(&t->head, data, len);
        if (t->head.len >= 2)
            (void)tar_begin(t);
        return;
    }
    (void)sandbox_command_write(t->command, data, len);
    if (sandbox_command_input_queued(t->command) > 256 * 1024 && !t->paused) {
        t->paused = true;
        http_req_body_pause(t->req);
    }
}

static void on_tar_end(void *ctx) {
    struct tar *t = ctx;
    if (t->command || tar_begin(t))
        sandbox_command_end_input(t->command); /* on_tar_exit answers */
}

static void tar_put(struct http_req *req, void *ctx) {
    struct tar *t = tar_new(ctx, req);
    if (!t)
        return;
    t->in = true;
    http_req_on_body(req, on_tar_data, on_tar_end, t);
}

void api_files_routes(struct front *f) {
#define FILES "/v1/sandboxes/{id}/files"
    size_t upload = (size_t)f->config->sandboxes.upload_mb << 20;
    const struct http_route routes[] = {
        {"GET", FILES, get, f, FRONT_ROUTE_READ, 0},
        {"PUT", FILES, put, f, HTTP_ROUTE_STREAM, upload},
        {"DELETE", FILES, delete, f, 0, 0},
        {"GET", FILES "/stat", stat_, f, FRONT_ROUTE_READ, 0},
        {"GET", FILES "/list", list, f, FRONT_ROUTE_READ, 0},
        {"POST", FILES "/mkdir", mkdir_, f, 0, 0},
        {"POST", FILES "/move", move, f, 0, 0},
        {"GET", "/v1/sandboxes/{id}/tar", tar_get, f, FRONT_ROUTE_READ, 0},
        {"PUT", "/v1/sandboxes/{id}/tar", tar_put, f, HTTP_ROUTE_STREAM, upload},
    };
    for (size_t i = 0; i < ARRAY_LEN(routes); i++)
        http_server_route(f->http, &routes[i]);
}
