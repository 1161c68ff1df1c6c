#include "base/base64.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/mem.h"
#include "front/api/api.h"
#include "front/api/sandbox.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    CREATE_BODY_BYTES = 16 << 20,
    LIST_DEFAULT = 20,
    EVENTS_PAGE = 1000,
    EVENTS_BYTES = 16 << 20,
};

/* --- shared with the other families --- */

static void api_sandboxes_on_ask_gone(void *ctx) {
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
        http_req_on_gone(a->req, api_sandboxes_on_ask_gone, a);
        return;
    }
    (void)err_set(&err, ERR_UNAVAILABLE, "the sandbox takes no requests now");
    http_respond_err(a->req, &err);
    free(a);
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

static void api_sandboxes_free_tree(void *tree) {
    json_decref(tree);
}

const struct http_reader api_reader_files = {.read = read_with_files,
                                             .free = api_sandboxes_free_tree};

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

struct sandboxes_page {
    struct front *front;
    json_t *(*show)(const struct front *f, const struct store_record *r);
    json_t *list;
    size_t limit;
    char last[ID_SIZE];
    bool more;
};

static void api_sandboxes_on_record(void *ctx, const struct store_record *r) {
    struct sandboxes_page *p = ctx;
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
    struct sandboxes_page p = {.front = f, .show = show, .list = json_array(), .limit = limit};
    struct store_record_query q = {
        .scope = front_scope(req), .parent = parent, .before = cursor, .limit = limit + 1};
    if (rc >= 0)
        rc = store_record_list(f->store, kind, &q, api_sandboxes_on_record, &p, &err);
    if (rc < 0) {
        json_decref(p.list);
        http_respond_err(req, &err);
        return;
    }
    _cleanup_(json) json_t *out = json_pack("{s:o,s:o}", key, p.list, "next_cursor",
                                            p.more ? json_string(p.last) : json_null());
    http_respond_json(req, 200, out);
}

/* --- making one --- */

struct making {
    struct http_req *req;
    struct sandbox *sandbox;
};

static void api_sandboxes_on_made(void *ctx, struct sandbox *s, const struct err *err) {
    struct making *m = ctx;
    http_req_on_gone(m->req, NULL, NULL);
    if (err) {
        http_respond_err(m->req, err);
    } else {
        _cleanup_(json) json_t *o = sandbox_show(s);
        http_respond_json(m->req, 201, o);
    }
    free(m);
}

static void api_sandboxes_on_maker_gone(void *ctx) {
    struct making *m = ctx;
    http_respond_empty(m->req, 499);
    sandbox_drop_maker(m->sandbox);
    free(m);
}

static void api_sandboxes_create(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    _cleanup_(json) json_t *body = NULL;
    _cleanup_(json) json_t *grants = api_grants(req);
    struct sandbox_request r = {
        .owner = front_project(req), .scope = front_scope(req), .grants = grants};
    struct making *m = xcalloc(1, sizeof(*m));
    m->req = req;
    int rc = api_body(req, &body, &err);
    if (rc == 0)
        rc = sandbox_request_read(body, &r, &err);
    if (rc == 0)
        m->sandbox = sandboxes_make(f->sandboxes, &r, api_sandboxes_on_made, m, &err);
    sandbox_request_finish(&r);
    if (m->sandbox) {
        http_req_on_gone(req, api_sandboxes_on_maker_gone, m);
        return;
    }
    free(m);
    api_fail(req, &err);
}

/* --- looking --- */

static json_t *api_sandboxes_show_record(const struct front *f, const struct store_record *r) {
    return sandboxes_show_record(f->sandboxes, r);
}

static void api_sandboxes_list(struct http_req *req, void *ctx) {
    api_records(req, ctx, "sandbox", "sbx", "sandboxes", NULL, api_sandboxes_show_record);
}

static void respond_shown(void *ctx, struct http_req *req, const char *id) {
    struct front *f = ctx;
    struct err err;
    _cleanup_(json) json_t *o = NULL;
    if (sandboxes_show(f->sandboxes, id, front_scope(req), &o, &err) < 0)
        http_respond_err(req, &err);
    else
        http_respond_json(req, 200, o);
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

static void api_sandboxes_on_changing_gone(void *ctx) {
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
        http_req_on_gone(c->req, api_sandboxes_on_changing_gone, c);
        return;
    }
    http_respond_err(c->req, err);
    free(c);
}

static void api_sandboxes_get(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    const char *id = http_req_param(req, "id");
    struct sandbox *s = sandboxes_use(f->sandboxes, id, front_scope(req), true, &err);
    struct changing *c = s ? changing_new(req, s, respond_shown, f) : NULL;
    struct sandbox_change *change = s ? sandbox_measure(s, changing_done, c, &err) : NULL;
    if (change) {
        changing_wait(c, change, NULL);
        return;
    }
    free(c);
    respond_shown(f, req, id);
}

/* --- the end --- */

struct ending {
    struct http_req *req;
    struct sandbox_waiter *waiter;
};

static void api_sandboxes_on_ended(void *ctx) {
    struct ending *e = ctx;
    http_req_on_gone(e->req, NULL, NULL);
    http_respond_empty(e->req, 204);
    free(e);
}

static void api_sandboxes_on_ending_gone(void *ctx) {
    struct ending *e = ctx;
    e->waiter->cb = NULL;
    http_respond_empty(e->req, 499);
    free(e);
}

static void api_sandboxes_delete(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    const char *id = http_req_param(req, "id");
    struct store_scope scope = front_scope(req);
    struct sandbox *s = sandboxes_find(f->sandboxes, id);
    if (!s || !(scope.all || strcmp(s->owner, scope.owner) == 0)) {
        struct store_record r;
        int rc = store_record_get(f->store, "sandbox", id, NULL, scope, &r, &err);
        if (rc == 0) {
            store_record_finish(&r);
            rc = sandboxes_forget(f->sandboxes, id, &err);
        }
        if (rc < 0)
            http_respond_err(req, &err);
        else
            http_respond_empty(req, 204);
        return;
    }
    struct ending *e = xcalloc(1, sizeof(*e));
    e->req = req;
    http_req_on_gone(req, api_sandboxes_on_ending_gone, e);
    e->waiter = sandbox_end(s, api_sandboxes_on_ended, e);
}

/* --- time --- */

static void api_sandboxes_extend(struct http_req *req, void *ctx) {
    static const char *const keys[] = {"timeout_s", NULL};
    struct err err;
    struct sandbox *s = api_sandbox(req, ctx, true);
    if (!s)
        return;
    _cleanup_(json) json_t *body = NULL;
    int64_t timeout = sandboxes_settings(s->all)->timeout_s;
    int rc = api_body(req, &body, &err);
    if (rc == 0)
        rc = json_check_keys(body, "the request", keys, &err);
    if (rc == 0)
        rc = json_get_int(body, "timeout_s", 1, 315360000, &timeout, &err);
    if (rc == 0)
        rc = sandbox_extend(s, timeout * 1000, &err);
    if (rc < 0) {
        http_respond_err(req, &err);
        return;
    }
    _cleanup_(json) json_t *o = sandbox_show(s);
    http_respond_json(req, 200, o);
}

static void pause_or_resume(struct http_req *req, struct front *f, bool pause) {
    struct err err;
    struct sandbox *s = api_sandbox(req, f, true);
    if (!s)
        return;
    struct changing *c = changing_new(req, s, respond_shown, f);
    changing_wait(c, sandbox_pause(s, pause, changing_done, c, &err), &err);
}

static void pause_(struct http_req *req, void *ctx) {
    pause_or_resume(req, ctx, true);
}

static void api_sandboxes_resume(struct http_req *req, void *ctx) {
    pause_or_resume(req, ctx, false);
}

/* --- network --- */

static void put_network(struct http_req *req, void *ctx) {
    struct err err;
    struct sandbox *s = api_sandbox(req, ctx, true);
    if (!s)
        return;
    _cleanup_(json) json_t *body = NULL;
    _cleanup_(json) json_t *grants = api_grants(req);
    struct network_ask ask = {0};
    int rc = api_body(req, &body, &err);
    if (rc == 0)
        rc = network_ask_read(body, &ask, &err);
    if (rc < 0) {
        http_respond_err(req, &err);
    } else {
        struct changing *c = changing_new(req, s, respond_shown, ctx);
        struct sandbox_network network = {.ask = &ask, .grants = grants};
        changing_wait(c, sandbox_set_network(s, &network, changing_done, c, &err), &err);
    }
    network_ask_finish(&ask);
}

static void list_events(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    uint64_t after = UINT64_MAX;
    uint64_t limit = EVENTS_PAGE;
    _cleanup_(json) json_t *known = NULL;
    struct buf out;
    const char *id = http_req_param(req, "id");
    int rc = sandboxes_show(f->sandboxes, id, front_scope(req), &known, &err);
    if (rc >= 0)
        rc = api_number(req, "after", INT64_MAX, &after, &err);
    if (rc >= 0)
        rc = api_number(req, "limit", EVENTS_PAGE, &limit, &err);
    buf_init(&out, EVENTS_BYTES);
    const struct network_query query = {
        .sandbox = id, .after = after == UINT64_MAX ? -1 : (int64_t)after, .limit = limit};
    if (rc >= 0)
        rc = network_events(sandboxes_network(f->sandboxes), &query, &out, &err);
    if (rc < 0)
        http_respond_err(req, &err);
    else
        http_respond_buf(req, 200, "application/json", &out);
    buf_finish(&out);
}

void api_sandboxes_routes(struct front *f) {
    const struct http_route routes[] = {
        {.methods = "POST",
         .pattern = "/v1/sandboxes",
         .handler = api_sandboxes_create,
         .ctx = f,
         .body_bytes = CREATE_BODY_BYTES,
         .reader = &api_reader_files},
        {"GET", "/v1/sandboxes", api_sandboxes_list, f, FRONT_ROUTE_READ, 0},
        {"GET", "/v1/sandboxes/{id}", api_sandboxes_get, f, FRONT_ROUTE_READ, 0},
        {"DELETE", "/v1/sandboxes/{id}", api_sandboxes_delete, f, 0, 0},
        {"POST", "/v1/sandboxes/{id}/extend", api_sandboxes_extend, f, 0, 0},
        {"POST", "/v1/sandboxes/{id}/pause", pause_, f, 0, 0},
        {"POST", "/v1/sandboxes/{id}/resume", api_sandboxes_resume, f, 0, 0},
        {"PUT", "/v1/sandboxes/{id}/network", put_network, f, 0, 0},
        {"GET", "/v1/sandboxes/{id}/network/events", list_events, f, FRONT_ROUTE_READ, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(routes); i++)
        http_server_route(f->http, &routes[i]);
}
