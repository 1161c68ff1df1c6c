#include "base/cleanup.h"
#include "base/limits.h"
#include "base/mem.h"
#include "front/http/internal.h"

#include <stdlib.h>
#include <string.h>

/* What the routes' readers make of bodies: of small ones when the handler asks, of large ones by a
 * thread before the handler begins. */

int http_read_json(const char *body, size_t len, json_t **ret_json, struct err *err) {
    if (len == 0)
        return err_set(err, ERR_BAD_REQUEST, "the request body is empty; send a JSON object");
    /* A tree is many times as large as its text: what one request can make of it is bounded. */
    if (json_has_more_values(body, len, LIMIT_JSON_VALUES))
        return err_set(err, ERR_TOO_LARGE, "the request body has more than %d JSON values",
                       LIMIT_JSON_VALUES);
    return json_parse(body, len, "the request body", ret_json, err);
}

static int http_reading_read_tree(const char *body, size_t len, const void *how, void **ret,
                                  struct err *err) {
    (void)how;
    json_t *j = NULL;
    int rc = http_read_json(body, len, &j, err);
    if (rc == 0)
        *ret = j;
    return rc;
}

static void http_reading_free_tree(void *p) {
    json_decref(p);
}

static const struct http_reader json_reader = {.read = http_reading_read_tree,
                                               .free = http_reading_free_tree};
const struct http_reader http_reader_json_kept = {
    .read = http_reading_read_tree, .free = http_reading_free_tree, .keeps_body = true};

static const struct http_reader *reader_of(const struct http_req *req) {
    return req->route && req->route->reader ? req->route->reader : &json_reader;
}

/* --- on the loop --- */

static bool http_reading_is_large(const struct http_req *req) {
    return req->body_seen > LIMIT_READ_AT_ONCE_BYTES;
}

/* What is large and not needed any more. */
struct read_rest {
    struct later later;
    struct http_server *server;
    void (*free)(void *read);
    void *read;
};

static void http_reading_on_rest(void *ctx) {
    struct read_rest *r = ctx;
    intake_dispose(r->server->opt.intake, r->free, r->read);
    free(r);
}

/* Later, because a handler that answers has references of its own until it returns: the last one is
 * to go in the thread. */
static void dispose_later(struct http_server *s, void (*free_read)(void *read), void *read) {
    struct read_rest *r = xcalloc(1, sizeof(*r));
    *r = (struct read_rest){.server = s, .free = free_read, .read = read};
    later_post(&s->later, &r->later, http_reading_on_rest, r);
}

void req_read_done(struct http_req *req) {
    void *p = req->read;
    req->read = NULL;
    if (p && http_reading_is_large(req) && req->server->opt.intake)
        dispose_later(req->server, reader_of(req)->free, p);
    else if (p)
        reader_of(req)->free(p);
}

void req_handle(struct http_req *req) {
    if (!commits_delay(req))
        req_begin(req);
}

void req_begin(struct http_req *req) {
    req->on_gone = NULL; /* of who waited for the store */
    struct http_server *s = req->server;
    s->handled = req;
    req->route->handler(req, req->route->ctx);
    if (s->handled == req)
        req_read_done(req);
    s->handled = NULL;
}

int http_req_read(struct http_req *req, void **ret, struct err *err) {
    const struct http_reader *r = reader_of(req);
    const char *body = req->body.data ? req->body.data : "";
    int rc = 0;
    if (req->read_err.code)
        *err = req->read_err;
    if (req->read_err.code)
        return -(int)err->code;
    if (!req->read)
        rc = r->read(body, req->body.len, r->how, &req->read, err);
    if (rc == 0)
        *ret = req->read;
    return rc;
}

int http_req_json(struct http_req *req, json_t **ret_json, struct err *err) {
    void *tree = NULL;
    int rc = http_req_read(req, &tree, err);
    if (rc == 0)
        *ret_json = json_incref(tree);
    return rc;
}

/* --- beside it --- */

struct http_reading {
    struct http_req *req; /* NULL: its client left */
    const struct http_reader *reader;
    struct intake_item *item;
    struct buf body;
    void *read;
    struct err err;
    char how[]; /* a copy: the settings may change meanwhile */
};

static void http_reading_free(void *ctx) {
    struct http_reading *r = ctx;
    if (r->read)
        r->reader->free(r->read);
    buf_finish(&r->body);
    free(r);
}

static void http_reading_on_work(void *ctx) {
    struct http_reading *r = ctx;
    if (r->reader->read(r->body.data, r->body.len, r->how, &r->read, &r->err) == 0)
        r->err = (struct err){0};
    if (!r->reader->keeps_body)
        buf_finish(&r->body);
}

static void http_reading_on_done(void *ctx) {
    struct http_reading *r = ctx;
    struct http_req *req = r->req;
    req->on_gone = NULL;
    req->body = r->body;
    r->body = (struct buf){0};
    req->read = r->read;
    r->read = NULL;
    req->read_err = r->err;
    http_reading_free(r);
    req_handle(req);
}

static void http_reading_on_gone(void *ctx) {
    struct http_reading *r = ctx;
    struct http_req *req = r->req;
    intake_cancel(r->item);
    http_respond_empty(req, 499);
}

static void http_reading_start(struct http_req *req, struct intake *intake) {
    const struct http_reader *reader = reader_of(req);
    const char *owner = req->server->opt.owner ? req->server->opt.owner(req) : "";
    struct http_reading *r = xcalloc(1, sizeof(*r) + reader->how_bytes);
    struct err err;
    *r = (struct http_reading){.req = req, .reader = reader, .body = req->body};
    if (reader->how_bytes > 0)
        memcpy(r->how, reader->how, reader->how_bytes);
    req->body = (struct buf){0};
    r->item = intake_start(intake,
                           &(struct intake_ask){.owner = owner,
                                                .bytes = r->body.len,
                                                .work = http_reading_on_work,
                                                .on_done = http_reading_on_done,
                                                .free = http_reading_free,
                                                .ctx = r},
                           &err);
    if (!r->item) {
        http_reading_free(r);
        http_respond_err(req, &err);
        return;
    }
    http_req_on_gone(req, http_reading_on_gone, r);
}

/* Of other methods a body has no meaning. A handler that looked at one nevertheless would read it
 * on the loop; what anybody may ask for without a key takes no room from those who have one. */
static bool has_meaning(const struct http_req *req) {
    return req->method == HTTP_METHOD_POST || req->method == HTTP_METHOD_PUT ||
           req->method == HTTP_METHOD_PATCH;
}

bool req_read_apart(struct http_req *req) {
    struct intake *intake = req->server->opt.intake;
    if (!intake || !http_reading_is_large(req) || !has_meaning(req))
        return false;
    http_reading_start(req, intake);
    return true;
}
