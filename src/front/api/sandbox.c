#include "front/api/sandbox.h"
#include "base/base64.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_DEFAULT = 20 };

static void ask_on_gone(void *ctx) {
    struct ask *a = ctx;
    sandbox_call_cancel(a->call);
    http_respond_empty(a->req, 499);
    free(a);
}

struct ask *ask_new(struct front *f, struct http_req *req,
                    void (*on_reply)(struct ask *a, struct sandbox_reply *reply)) {
    struct ask *a = xcalloc(1, sizeof(*a));
    a->front = f;
    a->req = req;
    a->on_reply = on_reply;
    return a;
}

void ask_replied(void *ctx, struct sandbox_reply *reply, const struct err *err) {
    struct ask *a = ctx;
    http_req_on_gone(a->req, NULL, NULL);
    if (err)
        http_respond_err(a->req, err);
    else
        a->on_reply(a, reply);
    free(a);
}

void ask_wait(struct ask *a, struct sandbox_call *call) {
    struct err err;
    if (call) {
        a->call = call;
        http_req_on_gone(a->req, ask_on_gone, a);
        return;
    }
    (void)err_set(&err, ERR_UNAVAILABLE, "the sandbox takes no requests now");
    http_respond_err(a->req, &err);
    free(a);
}

void changing_done(void *ctx, const struct err *err) {
    struct changing *c = ctx;
    http_req_on_gone(c->req, NULL, NULL);
    if (err)
        http_respond_err(c->req, err);
    else
        c->show(c->ctx, c->req, c->id);
    free(c);
}

static void changing_on_gone(void *ctx) {
    struct changing *c = ctx;
    sandbox_change_leave(c->change);
    http_respond_empty(c->req, 499);
    free(c);
}

struct changing *changing_new(struct http_req *req, const struct sandbox *s,
                              void (*show)(void *ctx, struct http_req *req, const char *id),
                              void *ctx) {
    struct changing *c = xcalloc(1, sizeof(*c));
    *c = (struct changing){.req = req, .show = show, .ctx = ctx};
    memcpy(c->id, s->id, sizeof(c->id));
    return c;
}

void changing_wait(struct changing *c, struct sandbox_change *change, const struct err *err) {
    if (change) {
        c->change = change;
        http_req_on_gone(c->req, changing_on_gone, c);
        return;
    }
    http_respond_err(c->req, err);
    free(c);
}

void api_fail(struct http_req *req, const struct err *err) {
    if (err->code == ERR_RATE)
        http_res_header(req, "Retry-After", "10");
    http_respond_err(req, err);
}

struct sandbox *api_sandbox(struct http_req *req, struct front *f, bool paused) {
    struct err err;
    struct sandbox *s =
        sandboxes_use(f->sandboxes, http_req_param(req, "id"), front_scope(req), paused, &err);
    if (!s)
        http_respond_err(req, &err);
    return s;
}

struct exec *api_exec(struct http_req *req, struct front *f) {
    struct err err;
    struct exec *e = NULL;
    if (exec_open(f->sandboxes, http_req_param(req, "id"), http_req_param(req, "exec"),
                  front_scope(req), &e, &err) < 0)
        http_respond_err(req, &err);
    return e;
}

struct exec *api_running_exec(struct http_req *req, struct front *f) {
    struct err err;
    struct exec *e = api_exec(req, f);
    if (!e)
        return NULL;
    if (exec_check_running(e, &err) == 0)
        return e;
    exec_unref(e);
    http_respond_err(req, &err);
    return NULL;
}

/* In any thread: base64 of megabytes takes milliseconds. */
static int read_with_files(const char *body, size_t len, const void *how, void **ret,
                           struct err *err) {
    (void)how;
    json_t *j = NULL;
    int rc = http_read_json(body, len, &j, err);
    if (rc == 0) {
        sandbox_decode_files(j);
        *ret = j;
    }
    return rc;
}

static void api_sandbox_free_tree(void *tree) {
    json_decref(tree);
}

const struct http_reader api_reader_files = {.read = read_with_files,
                                             .free = api_sandbox_free_tree};

/* Names, paths, tags, arguments and the like hold no NUL; what a program reads may. */
static int check_texts(const json_t *body, struct err *err) {
    const char *key;
    json_t *v;
    int rc = 0;
    json_object_foreach((json_t *)(uintptr_t)body, key, v) {
        bool content = strcmp(key, "files") == 0 || strcmp(key, "stdin") == 0;
        if (rc == 0 && !content)
            rc = json_check_no_nul(v, key, err);
    }
    return rc;
}

int api_body(struct http_req *req, json_t **ret, struct err *err) {
    if (http_req_body_len(req) == 0) {
        *ret = json_object();
        return 0;
    }
    json_t *j = NULL;
    int rc = http_req_json(req, &j, err);
    if (rc == 0 && !json_is_object(j))
        rc = err_set(err, ERR_BAD_REQUEST, "the request body must be a JSON object");
    if (rc == 0)
        rc = check_texts(j, err);
    if (rc < 0)
        json_decref(j);
    else
        *ret = j;
    return rc;
}

char *api_decode_path(const char *text) {
    size_t len = strlen(text);
    _cleanup_(free) char *plain = xasprintf("%s%.*s", text, (int)(-len % 4), "===");
    char *path = xmalloc(strlen(plain) + 1);
    for (char *c = plain; *c; c++) /* in a query "+" is a space, and some spell it for that */
        *c = *c == '-' || *c == ' ' ? '+' : *c == '_' ? '/' : *c;
    bool ok = base64_decode(path, plain, strlen(plain), &len);
    path[ok ? len : 0] = 0;
    if (ok && strlen(path) == len)
        return path;
    free(path);
    return NULL;
}

char *api_path(struct http_req *req) {
    struct err err;
    _cleanup_(free) char *encoded = NULL;
    char *path = NULL;
    int rc = http_req_query_get(req, "path", &path, &err);
    if (rc == 0)
        rc = http_req_query_get(req, "path_base64", &encoded, &err);
    if (rc > 0 && encoded)
        path = api_decode_path(encoded);
    if (rc > 0 && !path)
        rc = err_set(&err, ERR_BAD_REQUEST, "\"path_base64\" is no base64 of a path");
    else if (rc == 0)
        rc = err_set(&err, ERR_BAD_REQUEST, "say which file: ?path=/work/...");
    else if (rc > 0 && (!*path || strlen(path) >= SANDBOX_PATH_MAX))
        rc = err_set(&err, ERR_BAD_REQUEST, "\"path\" has 1 to %d bytes", SANDBOX_PATH_MAX - 1);
    if (rc >= 0)
        return path;
    free(path);
    http_respond_err(req, &err);
    return NULL;
}

bool api_flag(struct http_req *req, const char *name) {
    _cleanup_(free) char *v = NULL;
    return http_req_query_get(req, name, &v, NULL) > 0 &&
           (strcmp(v, "1") == 0 || strcmp(v, "true") == 0);
}

int api_number(struct http_req *req, const char *name, uint64_t max, uint64_t *ret,
               struct err *err) {
    _cleanup_(free) char *v = NULL;
    int rc = http_req_query_get(req, name, &v, err);
    if (rc <= 0)
        return rc;
    char *end = NULL;
    errno = 0;
    unsigned long long n = strtoull(v, &end, 10);
    if (v[0] < '0' || v[0] > '9' || *end || errno || n > max)
        return err_set(err, ERR_BAD_REQUEST, "\"%s\" must be a number from 0 to %llu", name,
                       (unsigned long long)max);
    *ret = n;
    return 1;
}

json_t *api_grants(const struct http_req *req) {
    return key_grants(front_identity(req));
}

struct records_page {
    struct front *front;
    json_t *(*show)(const struct front *f, const struct store_record *r);
    json_t *list;
    size_t limit;
    char last[ID_SIZE];
    bool more;
};

static void api_sandbox_on_record(void *ctx, const struct store_record *r) {
    struct records_page *p = ctx;
    if (json_array_size(p->list) == p->limit) {
        p->more = true;
        return;
    }
    memcpy(p->last, r->id, sizeof(p->last));
    (void)json_array_append_new(p->list, p->show(p->front, r));
}

void api_records(struct http_req *req, struct front *f, const char *kind, const char *prefix,
                 const char *key, const char *parent,
                 json_t *(*show)(const struct front *f, const struct store_record *r)) {
    struct err err;
    _cleanup_(free) char *cursor = NULL;
    static const char *const params[] = {"limit", "cursor", NULL};
    uint64_t limit = LIST_DEFAULT;
    int rc = http_req_query_check(req, params, &err);
    if (rc == 0)
        rc = api_number(req, "limit", LIMIT_PAGE_ROWS, &limit, &err);
    if (rc >= 0 && limit == 0)
        rc = err_set(&err, ERR_BAD_REQUEST, "\"limit\" must be a number from 1 to %d",
                     LIMIT_PAGE_ROWS);
    if (rc >= 0)
        rc = http_req_query_get(req, "cursor", &cursor, &err);
    if (rc > 0 && !id_is_valid(prefix, cursor, strlen(cursor)))
        rc = err_set(&err, ERR_BAD_REQUEST, "\"cursor\" must be a next_cursor of an earlier page");
    struct records_page p = {.front = f, .show = show, .list = json_array(), .limit = limit};
    struct store_record_query q = {
        .scope = front_scope(req), .parent = parent, .before = cursor, .limit = limit + 1};
    if (rc >= 0)
        rc = store_record_list(f->store, kind, &q, api_sandbox_on_record, &p, &err);
    if (rc < 0) {
        json_decref(p.list);
        http_respond_err(req, &err);
        return;
    }
    _cleanup_(json) json_t *out = json_pack("{s:o,s:o}", key, p.list, "next_cursor",
                                            p.more ? json_string(p.last) : json_null());
    http_respond_json(req, 200, out);
}
